/* Kernels that try matrix instructions and asynchronous copies. */
#include "engine/cuda/ptx/device.cuh"

#include "tests/emulate/emulate_mma_kernels.h"

template <class T>
__global__ void product(const uint16_t *a, const uint16_t *b, const uint16_t *b_turned,
                        bool transposed, float *c)
{
    DPE_SHARED(uint16_t, shared);
    uint16_t *b_shared = shared + 256;
    int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 256; i += 32) {
        shared[i] = a[i];
    }
    for (int i = lane; i < 256; i += 32) {
        /* Twice the same eight columns: ldmatrix reads four matrices. */
        b_shared[i] = transposed ? b[i / 16 * 8 + i % 8] : b_turned[i % 128];
    }
    __syncwarp();
    uint32_t a_part[4];
    uint32_t b_part[4];
    float sum[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    dpe_ldmatrix(a_part, dpe_shared_address(shared + lane % 16 * 16 + lane / 16 * 8));
    if (transposed) {
        dpe_ldmatrix_transposed(b_part,
                                dpe_shared_address(b_shared + lane % 16 * 16 + lane / 16 * 8));
    } else {
        dpe_ldmatrix(b_part, dpe_shared_address(b_shared + (lane % 8 + lane / 16 * 8) * 16 +
                                                lane / 8 % 2 * 8));
    }
    dpe_mma(T{}, sum, a_part, b_part[0], b_part[1]);
    for (int i = 0; i < 4; i++) {
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
    }
}

extern "C" int emulate_product(bool half, const uint16_t *a, const uint16_t *b,
                               const uint16_t *b_turned, bool transposed, float *c)
{
    return half ? dpe_launch(product<dpe_f16>, dim3(1), dim3(32), 1024, a, b, b_turned, transposed,
                             c)
                : dpe_launch(product<dpe_bf16>, dim3(1), dim3(32), 1024, a, b, b_turned, transposed,
                             c);
}

__global__ void copies(const uint32_t *from, uint32_t *seen)
{
    DPE_SHARED(uint32_t, shared);
    uint32_t lane = threadIdx.x;
    uint32_t to = dpe_shared_address(shared + 4 * lane);
    dpe_copy_async(to, from + 4 * lane);
    dpe_copy_async_commit();
    dpe_copy_async_or_zero(to + 512, from, false);
    dpe_copy_async_commit();
    for (uint32_t moment = 0; moment < 3; moment++) {
        if (moment == 1) {
            dpe_copy_async_wait<1>();
        } else if (moment == 2) {
            dpe_copy_async_wait<0>();
        }
        seen[64 * moment + lane] = shared[4 * lane];
        seen[64 * moment + 32 + lane] = shared[128 + 4 * lane];
    }
}

extern "C" int emulate_copies(const uint32_t *from, uint32_t *seen)
{
    return dpe_launch(copies, dim3(1), dim3(32), 1024, from, seen);
}

__global__ void read_once(const uint32_t *from, uint32_t *seen)
{
    uint32_t at = 4 * threadIdx.x;
    uint4 x = dpe_load_once(from + at);
    seen[at] = x.x;
    seen[at + 1] = x.y;
    seen[at + 2] = x.z;
    seen[at + 3] = x.w;
}

extern "C" int emulate_reads(const uint32_t *from, uint32_t *seen)
{
    return dpe_launch(read_once, dim3(1), dim3(32), 0, from, seen);
}

__global__ void strided(int stride)
{
    DPE_SHARED(unsigned char, shared);
    uint32_t r[4];
    dpe_ldmatrix(r, dpe_shared_address(shared + static_cast<int>(threadIdx.x) * stride));
}

extern "C" int emulate_strided(int stride)
{
    return dpe_launch(strided, dim3(1), dim3(32), 32 * 256, stride);
}
