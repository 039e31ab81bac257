/* Kernels that try Hopper's instructions one by one. */
#include "engine/cuda/ptx/ptx_sm90.cuh"

#include "tests/emulate/emulate_sm90_kernels.h"

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
    if (box->rows) {
        strides[1] = dims[0] * 2;
        strides[0] = dims[2] * strides[1];
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
    if constexpr (REGISTERS) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own_a[i] = words[threadIdx.x * 4 + i];
        }
        dpe_wgmma_fence();
        dpe_wgmma_registers<T, N>(own, own_a, b + base, accumulate);
    } else {
        dpe_wgmma_fence();
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
    /* Widths of which the kernels have both forms, those of keys, that of a head's values. */
    if constexpr (N == 64 || N == 128 || N == 256) {
        if (p->a_registers != NULL) {
            return dpe_launch(product_kernel<T, N, true>, dim3(1), dim3(128), AREA, shared, p->a,
                              p->b, p->a_registers, static_cast<int>(p->accumulate), d);
        }
    }
    if constexpr (N != 256) {
        return dpe_launch(product_kernel<T, N, false>, dim3(1), dim3(128), AREA, shared, p->a, p->b,
                          p->a_registers, static_cast<int>(p->accumulate), d);
    }
    return 1;
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

/* Two warpgroups take registers that a third gives back, and then turns at adding to a list, as the
 * attention kernel's do. */
__global__ void __launch_bounds__(384, 1) turns_kernel(int *order)
{
    __shared__ int n;
    int group = static_cast<int>(threadIdx.x) / 128;
    if (threadIdx.x == 0) {
        n = 0;
    }
    __syncthreads();
    if (group == 2) {
        dpe_registers_release<40>();
        return;
    }
    dpe_registers_take<232>();
    if (group == 1) {
        dpe_barrier_arrive(1, 256);
    }
    for (int i = 0; i < EMULATE_SM90_TURNS; i++) {
        dpe_barrier_sync(1 + group, 256);
        if (threadIdx.x % 128 == 0) {
            order[n] = group;
            n++;
        }
        dpe_barrier_arrive(2 - group, 256);
    }
    if (group == 0) {
        dpe_barrier_sync(1, 256);
    }
}

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
    return failed != 0 ? failed : dpe_launch(box_kernel, dim3(1), dim3(32), AREA + 8, args);
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
    case 160:
        return run_product<dpe_f16, 80>(p, shared, d);
    case 161:
        return run_product<dpe_bf16, 80>(p, shared, d);
    case 512:
        return run_product<dpe_f16, 256>(p, shared, d);
    case 513:
        return run_product<dpe_bf16, 256>(p, shared, d);
    default:
        return run_product<dpe_bf16, 160>(p, shared, d);
    }
}

int emulate_sm90_phases(const uint16_t *row, int *seen)
{
    const struct emulate_box box = {{64, 1, 1, 1}, {64, 1, 1, 1}, {0, 0, 0, 0}, false};
    box_args args = {};
    int failed = map_box(&args.map, row, &box);
    return failed != 0 ? failed
                       : dpe_launch(phases_kernel, dim3(1), dim3(32), AREA + 8, args, seen);
}

int emulate_sm90_turns(int *order)
{
    return dpe_launch(turns_kernel, dim3(1), dim3(384), 0, order);
}
