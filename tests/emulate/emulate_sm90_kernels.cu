/* Kernels that try Hopper's instructions one by one, rightly and wrongly. */
#include "ptx_sm90.cuh"

#include "emulate_sm90_kernels.h"

namespace
{

enum { AREA = 32 << 10, BARRIER = AREA };

struct box_args {
    CUtensorMap map;
    int at[4];
    int bytes;
    uint16_t *to;
};

__global__ void box_kernel(const __grid_constant__ box_args args)
{
    DPE_SHARED(unsigned char, shared);
    uint32_t base = dpe_shared_address(shared);
    if (threadIdx.x == 0) {
        dpe_mbarrier_init(base + BARRIER, 1);
        dpe_mbarrier_init_fence();
        dpe_mbarrier_expect(base + BARRIER, static_cast<uint32_t>(args.bytes));
        dpe_tensor_load_4d(base, &args.map, args.at[0], args.at[1], args.at[2], args.at[3],
                           base + BARRIER);
    }
    __syncthreads();
    dpe_mbarrier_wait(base + BARRIER, 0);
    for (int i = static_cast<int>(threadIdx.x); i < args.bytes / 2; i += 32) {
        args.to[i] = reinterpret_cast<const uint16_t *>(shared)[i];
    }
}

int map_box(CUtensorMap *map, const uint16_t *tensor, const struct emulate_box *box)
{
    uint64_t dims[4];
    uint64_t strides[3];
    uint32_t sides[4];
    uint64_t stride = 2;
    for (int k = 0; k < 4; k++) {
        dims[k] = static_cast<uint64_t>(box->n[k]);
        sides[k] = static_cast<uint32_t>(box->box[k]);
        stride *= dims[k];
        if (k < 3) {
            strides[k] = stride;
        }
    }
    return dpe_tensor_map_4d(map, true, tensor, dims, strides, sides);
}

template <class T, int N, bool REGISTERS>
__global__ void product_kernel(const uint16_t *from, uint64_t a, uint64_t b, const uint32_t *words,
                               int accumulate, float *d)
{
    DPE_SHARED(uint16_t, shared);
    float own[N / 2];
    uint32_t own_a[4] = {0, 0, 0, 0};
    for (int i = static_cast<int>(threadIdx.x); i < AREA / 2; i += 128) {
        shared[i] = from[i];
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        own[i] = d[static_cast<int>(threadIdx.x) * (N / 2) + i];
    }
    dpe_proxy_fence();
    __syncthreads();
    uint64_t base = dpe_shared_address(shared) >> 4;
    dpe_wgmma_fence();
    if constexpr (REGISTERS) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own_a[i] = words[threadIdx.x * 4 + i];
        }
        dpe_wgmma_registers<T, N>(own, own_a, b + base, accumulate);
    } else {
        dpe_wgmma_shared<T, N>(own, a + base, b + base, accumulate);
    }
    dpe_wgmma_commit();
    dpe_wgmma_wait<0>();
    dpe_wgmma_settled(own);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        d[static_cast<int>(threadIdx.x) * (N / 2) + i] = own[i];
    }
}

template <class T, int N>
int run_product(const struct emulate_product *p, const uint16_t *shared, float *d)
{
    if constexpr (N != 160) {
        if (p->a_registers != NULL) {
            return dpe_launch(product_kernel<T, N, true>, dim3(1), dim3(128), AREA, NULL, shared,
                              p->a, p->b, p->a_registers, static_cast<int>(p->accumulate), d);
        }
    }
    return dpe_launch(product_kernel<T, N, false>, dim3(1), dim3(128), AREA, NULL, shared, p->a,
                      p->b, p->a_registers, static_cast<int>(p->accumulate), d);
}

__device__ int parity_done(uint32_t barrier, uint32_t parity)
{
    return dpe_mbarrier_test(barrier, parity) ? 1 : 0;
}

__global__ void phases_kernel(const __grid_constant__ box_args args, int *seen)
{
    DPE_SHARED(unsigned char, shared);
    uint32_t base = dpe_shared_address(shared);
    uint32_t barrier = base + BARRIER;
    if (threadIdx.x == 0) {
        dpe_mbarrier_init(barrier, 2);
        dpe_mbarrier_init_fence();
        seen[0] = parity_done(barrier, 1) * 10 + parity_done(barrier, 0);
        dpe_mbarrier_expect(barrier, 128);
        dpe_mbarrier_arrive(barrier);
        seen[1] = parity_done(barrier, 0);
        dpe_tensor_load_4d(base, &args.map, 0, 0, 0, 0, barrier);
        dpe_mbarrier_wait(barrier, 0);
        seen[2] = parity_done(barrier, 0) * 10 + parity_done(barrier, 1);
        dpe_mbarrier_arrive(barrier);
        seen[3] = parity_done(barrier, 1);
        dpe_mbarrier_arrive(barrier);
        seen[4] = parity_done(barrier, 1);
    }
}

__global__ void early_kernel(float *early)
{
    DPE_SHARED(uint16_t, shared);
    float own[32] = {0};
    for (int i = static_cast<int>(threadIdx.x); i < AREA / 2; i += 128) {
        shared[i] = 0x3f80;
    }
    dpe_proxy_fence();
    __syncthreads();
    uint64_t at = dpe_shared_address(shared) >> 4 | static_cast<uint64_t>(64) << 32 |
                  static_cast<uint64_t>(1) << 62;
    dpe_wgmma_fence();
    dpe_wgmma_shared<dpe_bf16, 64>(own, at, at, 0);
    dpe_wgmma_commit();
    early[threadIdx.x] = own[0];
    dpe_wgmma_wait<0>();
    dpe_wgmma_settled(own);
    early[128 + threadIdx.x] = own[0];
}

__device__ __forceinline__ void wrong_barrier(enum emulate_sm90_wrong_kind kind, uint32_t barrier)
{
    if (threadIdx.x != 0) {
        return;
    }
    if (kind != EMULATE_SM90_NO_INIT) {
        dpe_mbarrier_init(barrier, 2);
        dpe_mbarrier_init_fence();
    }
    dpe_mbarrier_arrive(barrier);
    dpe_mbarrier_expect(barrier, kind == EMULATE_SM90_NO_INIT ? 0 : 128);
    if (kind == EMULATE_SM90_ARRIVALS) {
        dpe_mbarrier_arrive(barrier);
    }
    dpe_mbarrier_wait(barrier, 0);
}

__device__ __forceinline__ void wrong_product(enum emulate_sm90_wrong_kind kind,
                                              const CUtensorMap *map, uint32_t base)
{
    float own[32] = {0};
    uint64_t at = base >> 4 | static_cast<uint64_t>(64) << 32 | static_cast<uint64_t>(1) << 62;
    if (threadIdx.x == 0) {
        dpe_mbarrier_init(base + BARRIER, 1);
        dpe_mbarrier_init_fence();
        if (kind == EMULATE_SM90_EARLY_PRODUCT) {
            dpe_mbarrier_expect(base + BARRIER, 128);
            dpe_tensor_load_4d(base, map, 0, 0, 0, 0, base + BARRIER);
        }
    }
    __syncthreads();
    dpe_wgmma_fence();
    dpe_wgmma_shared<dpe_bf16, 64>(own, at, at, 0);
    dpe_wgmma_commit();
    if (kind == EMULATE_SM90_EARLY_COPY && threadIdx.x == 0) {
        dpe_mbarrier_expect(base + BARRIER, 128);
        dpe_tensor_load_4d(base + 1024, map, 0, 0, 0, 0, base + BARRIER);
    }
    if (kind == EMULATE_SM90_NO_FENCE) {
        dpe_wgmma_wait<0>();
        dpe_wgmma_settled(own);
        dpe_wgmma_shared<dpe_bf16, 64>(own, at, at, 1);
        dpe_wgmma_commit();
    }
    if (kind == EMULATE_SM90_UNALIGNED && threadIdx.x < 32) {
        dpe_wgmma_wait<0, 1>();
    } else if (kind != EMULATE_SM90_NO_WAIT) {
        dpe_wgmma_wait<0>();
    }
}

template <int KIND> __global__ void wrong_kernel(const __grid_constant__ box_args args)
{
    DPE_SHARED(unsigned char, shared);
    constexpr enum emulate_sm90_wrong_kind kind = static_cast<enum emulate_sm90_wrong_kind>(KIND);
    uint32_t base = dpe_shared_address(shared);
    if constexpr (kind == EMULATE_SM90_MISALIGNED) {
        if (threadIdx.x == 0) {
            dpe_mbarrier_init(base + BARRIER, 1);
            dpe_tensor_load_4d(base + 128, &args.map, 0, 0, 0, 0, base + BARRIER);
        }
    } else if constexpr (kind == EMULATE_SM90_REGISTERS) {
        dpe_registers_take<24>();
    } else if constexpr (kind == EMULATE_SM90_MANY_REGISTERS) {
        /* Three groups launched with 168 registers a thread. */
        dpe_registers_take<256>();
    } else if constexpr (kind <= EMULATE_SM90_BYTES) {
        wrong_barrier(kind, base + BARRIER);
    } else {
        wrong_product(kind, &args.map, base);
    }
}

template <int KIND> int wrong(const box_args &args)
{
    bool registers = KIND == EMULATE_SM90_MANY_REGISTERS;
    return dpe_launch(wrong_kernel<KIND>, dim3(1), dim3(registers ? 384 : 128), AREA + 8, NULL,
                      args);
}

uint16_t row_of_ones[64];

} // namespace

int emulate_tensor_box(const uint16_t *tensor, const struct emulate_box *box, uint16_t *shared)
{
    box_args args = {};
    args.bytes = 2;
    args.to = shared;
    for (int k = 0; k < 4; k++) {
        args.at[k] = box->at[k];
        args.bytes *= box->box[k];
    }
    int failed = map_box(&args.map, tensor, box);
    return failed != 0 ? failed : dpe_launch(box_kernel, dim3(1), dim3(32), AREA + 8, NULL, args);
}

int emulate_product_run(const struct emulate_product *p, const uint16_t *shared, float *d)
{
    switch (p->n * 2 + p->bf16) {
    case 128:
        return run_product<dpe_f16, 64>(p, shared, d);
    case 129:
        return run_product<dpe_bf16, 64>(p, shared, d);
    case 256:
        return run_product<dpe_f16, 128>(p, shared, d);
    case 257:
        return run_product<dpe_bf16, 128>(p, shared, d);
    default:
        return run_product<dpe_bf16, 160>(p, shared, d);
    }
}

static int one_row(box_args *args)
{
    const struct emulate_box box = {{64, 1, 1, 1}, {64, 1, 1, 1}, {0, 0, 0, 0}};
    *args = box_args();
    return map_box(&args->map, row_of_ones, &box);
}

int emulate_sm90_phases(int *seen)
{
    box_args args;
    int failed = one_row(&args);
    return failed != 0 ? failed
                       : dpe_launch(phases_kernel, dim3(1), dim3(32), AREA + 8, NULL, args, seen);
}

int emulate_sm90_early(float *early)
{
    return dpe_launch(early_kernel, dim3(1), dim3(128), AREA, NULL, early);
}

int emulate_sm90_wrong(enum emulate_sm90_wrong_kind kind)
{
    box_args args;
    if (one_row(&args) != 0) {
        return -1;
    }
    switch (kind) {
    case EMULATE_SM90_NO_INIT:
        return wrong<EMULATE_SM90_NO_INIT>(args);
    case EMULATE_SM90_ARRIVALS:
        return wrong<EMULATE_SM90_ARRIVALS>(args);
    case EMULATE_SM90_BYTES:
        return wrong<EMULATE_SM90_BYTES>(args);
    case EMULATE_SM90_NO_FENCE:
        return wrong<EMULATE_SM90_NO_FENCE>(args);
    case EMULATE_SM90_EARLY_PRODUCT:
        return wrong<EMULATE_SM90_EARLY_PRODUCT>(args);
    case EMULATE_SM90_EARLY_COPY:
        return wrong<EMULATE_SM90_EARLY_COPY>(args);
    case EMULATE_SM90_MISALIGNED:
        return wrong<EMULATE_SM90_MISALIGNED>(args);
    case EMULATE_SM90_REGISTERS:
        return wrong<EMULATE_SM90_REGISTERS>(args);
    case EMULATE_SM90_MANY_REGISTERS:
        return wrong<EMULATE_SM90_MANY_REGISTERS>(args);
    case EMULATE_SM90_UNALIGNED:
        return wrong<EMULATE_SM90_UNALIGNED>(args);
    case EMULATE_SM90_NO_WAIT:
        return wrong<EMULATE_SM90_NO_WAIT>(args);
    }
    return -1;
}
