/**
 * @file ptx_sm90.cuh
 * Hopper's instructions as small functions: barriers in shared memory, bulk tensor copies,
 * matrix products of a warpgroup (sm_90a). Each has a twin of the same name and meaning in
 * tests/emulate/emulate_sm90.h. Facts: PTX manual, "Asynchronous warpgroup level matrix
 * instructions", "Data movement: tensor copy", "mbarrier".
 *
 * Words. A *warpgroup* is 4 consecutive warps, the first a multiple of 4. A *matrix descriptor*
 * names an operand in shared memory: bits 0–13 address >> 4; 16–29 leading byte offset >> 4; 32–45
 * stride byte offset >> 4; 62–63 swizzle (1 = 128 bytes). With the 128-byte swizzle the 16-byte
 * chunk index (address bits 4–6) is XORed with address bits 7–9, by the copy that writes and by the
 * product that reads, so tiles start at multiples of 1024 bytes.
 */
#ifndef DPE_PTX_SM90_CUH
#define DPE_PTX_SM90_CUH

#include "engine/cuda/ptx/device.cuh"

#ifndef DPE_EMULATE
#include <cuda.h>

/* ------------------------------------------------------------------------------------ barriers */

/** Make a barrier of `arrivals` expected arrivals per phase. One thread; then
 *  dpe_mbarrier_init_fence and a block barrier before anybody uses it. */
__device__ static __forceinline__ void dpe_mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}
__device__ static __forceinline__ void dpe_mbarrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/** One arrival, with release semantics. */
__device__ static __forceinline__ void dpe_mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/** One arrival that adds `bytes` to what copies have yet to bring in this phase. */
__device__ static __forceinline__ void dpe_mbarrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
/** Wait, with acquire semantics, until the phase of this parity is complete: a fresh barrier is in
 *  phase 0, and waiting for parity 1 on it returns at once. */
__device__ static __forceinline__ void dpe_mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra end_%=;\n"
                 "bra again_%=;\n"
                 "end_%=:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/** Whether the phase of this parity is complete. */
__device__ static __forceinline__ bool dpe_mbarrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t complete;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(complete)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return complete != 0;
}
/** End the launch with an error unless it holds. */
__device__ static __forceinline__ void dpe_require(bool holds)
{
    if (!holds) {
        asm volatile("trap;");
    }
}
/** Ordinary writes to shared memory before it are seen by products and copies after it. */
__device__ static __forceinline__ void dpe_proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ------------------------------------------------------------------------------- tensor copies */

/** Fetch the tensor map ahead of its first use. */
__device__ static __forceinline__ void dpe_tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
/** Copy the map's box at the given coordinates (elements, innermost first; what lies outside of the
 *  tensor, below 0 too, becomes 0) to shared memory at `to`; the box's bytes are counted off the
 *  barrier's current phase when they are there. One thread. */
__device__ static __forceinline__ void dpe_tensor_load_4d(uint32_t to, const CUtensorMap *map,
                                                          int c0, int c1, int c2, int c3,
                                                          uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(reinterpret_cast<uint64_t>(map)), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
                 "r"(barrier)
                 : "memory");
}

/** The map of a tensor of 2-byte elements for copies with the 128-byte swizzle. Innermost dimension
 *  first; strides in bytes, of dimensions 1 … 3, multiples of 16; base 16-byte aligned; box sides
 * up to 256, the innermost up to 64. Host. 0, or a CUresult (−1: the driver has no such function).
 */
static inline int dpe_tensor_map_4d(CUtensorMap *map, bool bf16, const void *base,
                                    const uint64_t dims[4], const uint64_t strides[3],
                                    const uint32_t box[4])
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        return -1;
    }
    const uint32_t steps[4] = {1, 1, 1, 1};
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    return static_cast<int>(
        encode(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
               const_cast<void *>(base), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
/** Multiprocessors of the current device. Host. */
static inline int dpe_multiprocessors(void)
{
    int device = 0;
    int n = 1;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
        return 1;
    }
    return n;
}

/* ---------------------------------------------------------------------------- registers, votes */

/** Give registers of this warpgroup back, or take more; multiples of 8 from 24 to 256. All warps of
 *  the warpgroup; the kernel has __launch_bounds__(threads, 1). */
template <int N> __device__ static __forceinline__ void dpe_registers_release(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ static __forceinline__ void dpe_registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
/** The value of lane 0, which is then the same for the compiler in the whole warp. */
__device__ static __forceinline__ int dpe_uniform(int value)
{
    return __shfl_sync(0xffffffffU, value, 0);
}

/* ---------------------------------------------------------------- matrix products of a warpgroup
 */

/** Before the first product, and again after registers that products use were touched. */
__device__ static __forceinline__ void dpe_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/** Close a group of products. */
__device__ static __forceinline__ void dpe_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/** Wait until at most N of the groups are pending. The compiler does not merge waits of different
 *  WHERE. */
template <int N, int WHERE = 0> __device__ static __forceinline__ void dpe_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0; // %1" ::"n"(N), "n"(WHERE) : "memory");
}
/** Keeps the compiler from reading accumulators above the wait they need. */
template <int N> __device__ static __forceinline__ void dpe_wgmma_settled(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

#define DPE_R0     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define DPE_R16    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define DPE_R32    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define DPE_R32_39 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define DPE_R48    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define DPE_R64    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define DPE_R80                                                                                    \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,"  \
    "%102,%103"
#define DPE_R104                                                                                   \
    ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,"  \
    "%122,%123,%124,%125,%126,%127"
#define DPE_R0_127 DPE_R0 DPE_R16 DPE_R32 DPE_R48 DPE_R64 DPE_R80 DPE_R104
#define DPE_D8(d, i)                                                                               \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define DPE_D16(d, i) DPE_D8(d, i), DPE_D8(d, i + 8)
#define DPE_D32(d)    DPE_D16(d, 0), DPE_D16(d, 16)
#define DPE_D40(d)    DPE_D32(d), DPE_D8(d, 32)
#define DPE_D64(d)    DPE_D32(d), DPE_D16(d, 32), DPE_D16(d, 48)
#define DPE_D80(d)    DPE_D64(d), DPE_D16(d, 64)
#define DPE_D128(d)   DPE_D80(d), DPE_D16(d, 80), DPE_D16(d, 96), DPE_D16(d, 112)

#define DPE_WGMMA_SHARED(n, type, regs, ia, ib, ip, ...)                                           \
    asm volatile("{\n"                                                                             \
                 ".reg .pred p;\n"                                                                 \
                 "setp.ne.b32 p, %" #ip ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" regs         \
                 "}, %" #ia ", %" #ib ", p, 1, 1, 0, 0;\n"                                         \
                 "}"                                                                               \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(accumulate))
#define DPE_WGMMA_REGISTERS(n, type, regs, ia, ib, ip, ...)                                        \
    asm volatile("{\n"                                                                             \
                 ".reg .pred p;\n"                                                                 \
                 "setp.ne.b32 p, %" #ip ", 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" regs         \
                 "}, {" ia "}, %" #ib ", p, 1, 1, 1;\n"                                            \
                 "}"                                                                               \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define DPE_WGMMA_OF(form, n, ...)                                                                 \
    if constexpr (dpe_is_bf16<T>::value) {                                                         \
        form(n, "bf16", __VA_ARGS__);                                                              \
    } else {                                                                                       \
        form(n, "f16", __VA_ARGS__);                                                               \
    }

template <class T> struct dpe_is_bf16 {
    static constexpr bool value = false;
};
template <> struct dpe_is_bf16<dpe_bf16> {
    static constexpr bool value = true;
};

/** d [64][N] (+)= A [64][16] · B [16][N]: A and B in shared memory, both with their 16 terms
 *  contiguous ("K-major"). Lane l of warp w holds of row 16w + l/4 + 8h, columns 8j + 2(l%4) + c:
 *  d[4j + 2h + c]. accumulate = 0: d starts at 0. Asynchronous: see dpe_wgmma_wait. */
template <class T, int N>
__device__ static __forceinline__ void dpe_wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b,
                                                        int accumulate)
{
    static_assert(N == 64 || N == 80 || N == 128 || N == 160, "widths with a form below");
    if constexpr (N == 64) {
        DPE_WGMMA_OF(DPE_WGMMA_SHARED, 64, DPE_R0 DPE_R16, 32, 33, 34, DPE_D32(d));
    } else if constexpr (N == 80) {
        DPE_WGMMA_OF(DPE_WGMMA_SHARED, 80, DPE_R0 DPE_R16 DPE_R32_39, 40, 41, 42, DPE_D40(d));
    } else if constexpr (N == 128) {
        DPE_WGMMA_OF(DPE_WGMMA_SHARED, 128, DPE_R0 DPE_R16 DPE_R32 DPE_R48, 64, 65, 66, DPE_D64(d));
    } else {
        DPE_WGMMA_OF(DPE_WGMMA_SHARED, 160, DPE_R0 DPE_R16 DPE_R32 DPE_R48 DPE_R64, 80, 81, 82,
                     DPE_D80(d));
    }
}

/** The same with A in registers (lane l of warp w: a[0] row 16w + l/4, terms 2(l%4) and the next;
 *  a[1] that of row + 8; a[2], a[3] terms + 8) and B in shared memory with its N columns contiguous
 *  ("N-major"). The registers of A are read until the wait. */
template <class T, int N>
__device__ static __forceinline__ void dpe_wgmma_registers(float (&d)[N / 2], const uint32_t *a,
                                                           uint64_t b, int accumulate)
{
    static_assert(N == 64 || N == 128 || N == 256, "widths with a form below");
    if constexpr (N == 64) {
        DPE_WGMMA_OF(DPE_WGMMA_REGISTERS, 64, DPE_R0 DPE_R16, "%32,%33,%34,%35", 36, 37,
                     DPE_D32(d));
    } else if constexpr (N == 128) {
        DPE_WGMMA_OF(DPE_WGMMA_REGISTERS, 128, DPE_R0 DPE_R16 DPE_R32 DPE_R48, "%64,%65,%66,%67",
                     68, 69, DPE_D64(d));
    } else {
        DPE_WGMMA_OF(DPE_WGMMA_REGISTERS, 256, DPE_R0_127, "%128,%129,%130,%131", 132, 133,
                     DPE_D128(d));
    }
}

#undef DPE_R0
#undef DPE_R16
#undef DPE_R32
#undef DPE_R48
#undef DPE_R64
#undef DPE_R32_39
#undef DPE_R80
#undef DPE_R104
#undef DPE_R0_127
#undef DPE_D8
#undef DPE_D16
#undef DPE_D32
#undef DPE_D64
#undef DPE_D40
#undef DPE_D80
#undef DPE_D128
#undef DPE_WGMMA_SHARED
#undef DPE_WGMMA_REGISTERS
#undef DPE_WGMMA_OF
#endif
#endif
