/**
 * @file ptx.cuh
 * What CUDA C has no portable name for: instructions and conversions as small functions, matrix
 * instructions of sm_80 and later, and copies that run by themselves. Each has a twin of the same
 * name and meaning in tests/emulate/emulate_ptx.h or emulate_mma.h. All lanes of
 * a warp call the matrix functions together.
 */
#ifndef DPE_PTX_CUH
#define DPE_PTX_CUH

/** 2^x by the MUFU unit: relative error 2^-22, 2^-inf = 0, subnormal results flushed to 0. */
__device__ static __forceinline__ float dpe_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/** tanh x, as precise as what it weighs is kept: beside bfloat16 by the MUFU unit, relative error
 *  2^-11; beside half 1 − 2/(1 + e^2x), absolute error 2^-21. */
__device__ static __forceinline__ float dpe_tanh(dpe_bf16, float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ static __forceinline__ float dpe_tanh(dpe_f16, float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + dpe_exp2(x * 2.8853900817779268f)));
    return __fmaf_rn(-2.0f, y, 1.0f);
}

/** bits of bfloat16 and half, nearest even; and back from half. */
__device__ static __forceinline__ uint16_t dpe_bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ static __forceinline__ uint16_t dpe_half_bits(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
__device__ static __forceinline__ float dpe_half_float(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

/** Two floats as bfloat16, `low` in the lower half of the word. */
__device__ static __forceinline__ uint32_t dpe_pack_bf16(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
/** Two floats as half, `low` in the lower half of the word. */
__device__ static __forceinline__ uint32_t dpe_pack_half(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/** A word of the signs of two bytes of `bytes`: its lower half repeats that of byte 2 · PAIR, its
 *  upper half that of the next. */
template <int PAIR> __device__ static __forceinline__ uint32_t dpe_spread_signs(uint32_t bytes)
{
    uint32_t word;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(word) : "r"(bytes), "n"(PAIR == 0 ? 0x9988 : 0xbbaa));
    return word;
}

/** 16 bytes that are read once, past level 1. Not ld.global.nc, which ptxas moves over barriers. */
__device__ static __forceinline__ uint4 dpe_load_once(const void *from)
{
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from));
    return x;
}

/** 8 bytes of global memory that are not written while the kernel runs, and of shared memory;
 * 8-byte aligned. */
__device__ static __forceinline__ uint2 dpe_load_global(const void *from)
{
    uint2 x;
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(from));
    return x;
}
__device__ static __forceinline__ uint2 dpe_load_shared(uint32_t address)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address));
    return x;
}
__device__ static __forceinline__ void dpe_store_shared(uint32_t address, uint32_t x, uint32_t y)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}

/** Address of shared memory as instructions take it (32 bits). */
__device__ static __forceinline__ uint32_t dpe_shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/** Named barrier `id` (1 … 15; 0 is __syncthreads) of `threads` threads, a multiple of 32: sync
 *  waits for all of them, arrive only counts. All threads of a warp call it together. */
__device__ static __forceinline__ void dpe_barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static __forceinline__ void dpe_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/** Four 8 × 8 matrices of 16-bit elements: lanes 8i … 8i+7 give the addresses of the 16-byte rows
 *  of matrix i; r[i] of a lane holds row lane/4, columns 2(lane%4) and the next of matrix i, or of
 *  its transpose. */
__device__ static __forceinline__ void dpe_ldmatrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ static __forceinline__ void dpe_ldmatrix_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/** c += a · b; a is 16 × 16, b 16 × 8, c 16 × 8 in float. With g = lane/4 and t = lane%4 a lane
 *  holds a: (g, 2t …), (g+8, 2t …), (g, 2t+8 …), (g+8, 2t+8 …), two columns each; b: rows 2t, 2t+1
 *  and rows 2t+8, 2t+9 of column g; c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). */
__device__ static __forceinline__ void dpe_mma(dpe_bf16, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ static __forceinline__ void dpe_mma(dpe_f16, float (&c)[4], const uint32_t (&a)[4],
                                               uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/** Start copying 16 bytes from global to shared memory; both sides 16-byte aligned. The second form
 *  writes zeros and reads nothing when `real` is false. */
__device__ static __forceinline__ void dpe_copy_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}
__device__ static __forceinline__ void dpe_copy_async_or_zero(uint32_t to, const void *from,
                                                              bool real)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
}
/** Close the group of copies that this thread started since the last call. */
__device__ static __forceinline__ void dpe_copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/** Wait until at most N groups of this thread are under way; a barrier then shows what landed to
 *  the other threads. */
template <int N> __device__ static __forceinline__ void dpe_copy_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
