/* Hopper's instructions used wrongly, and early: what only the emulator can detect. */
#include "engine/cuda/ptx/ptx_sm90.cuh"

#include "tests/emulate/emulate_sm90_kernels.h"

namespace
{

enum { AREA = 32 << 10, BARRIER = AREA };

struct wrong_args {
    CUtensorMap map;
};

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
    dpe_mbarrier_expect(barrier, kind == EMULATE_SM90_MANY_BYTES ? 1U << 20 : 128U);
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

template <int KIND> __global__ void wrong_kernel(const __grid_constant__ wrong_args args)
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
    } else if constexpr (kind <= EMULATE_SM90_MANY_BYTES) {
        wrong_barrier(kind, base + BARRIER);
    } else {
        wrong_product(kind, &args.map, base);
    }
}

template <int KIND> int wrong(const wrong_args &args)
{
    bool registers = KIND == EMULATE_SM90_MANY_REGISTERS;
    return dpe_launch(wrong_kernel<KIND>, dim3(1), dim3(registers ? 384 : 128), AREA + 8, args);
}

uint16_t row_of_ones[64];

int one_row(wrong_args *args)
{
    const uint64_t dims[4] = {64, 1, 1, 1};
    const uint64_t strides[3] = {128, 128, 128};
    const uint32_t box[4] = {64, 1, 1, 1};
    *args = wrong_args();
    return dpe_tensor_map_4d(&args->map, true, row_of_ones, dims, strides, box);
}

} // namespace

int emulate_sm90_early(float *early)
{
    return dpe_launch(early_kernel, dim3(1), dim3(128), AREA, early);
}

int emulate_sm90_wrong(enum emulate_sm90_wrong_kind kind)
{
    wrong_args args;
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
    case EMULATE_SM90_MANY_BYTES:
        return wrong<EMULATE_SM90_MANY_BYTES>(args);
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
