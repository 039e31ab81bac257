/**
 * @file attention_parts.cuh
 * The parts of a split walk (dpe_flash.parts): where their results lie, and how they come together.
 */
#ifndef DPE_ATTENTION_PARTS_CUH
#define DPE_ATTENTION_PARTS_CUH

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/ptx/device.cuh"

namespace
{

/* Log-sum-exp of the parts [parts · rows][n_heads], after their outputs. */
__device__ __forceinline__ float *partial_lse(const dpe_flash *call)
{
    return call->partial + call->parts * call->rows * call->n_heads * call->head_dim;
}

/* The parts of a row of one head together; grid: rows · heads, block: one warp. */
template <class T> __global__ void attention_combine(const __grid_constant__ dpe_flash call)
{
    int64_t row = blockIdx.x;
    int64_t stride = call.rows * call.n_heads;
    const float *lse = partial_lse(&call) + row;
    const float *o = call.partial + row * call.head_dim;
    float top = -INFINITY;
    float sum = 0.0F;
    for (int p = 0; p < call.parts; p++) {
        float part = lse[p * stride];
        top = part > top || part != part ? part : top; /* a NaN stays one */
    }
    float from = top == -INFINITY ? 0.0F : top;
    for (int p = 0; p < call.parts; p++) {
        sum += expf(lse[p * stride] - from);
    }
    float by = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t j = threadIdx.x; j < call.head_dim; j += 32) {
        float mixed = 0.0F;
        for (int p = 0; p < call.parts; p++) {
            mixed += expf(lse[p * stride] - from) * o[p * stride * call.head_dim + j];
        }
        static_cast<T *>(call.out)[row * call.head_dim + j] = dpe_round<T>(mixed * by);
    }
    if (call.lse != NULL && threadIdx.x == 0) {
        call.lse[row] = top + logf(sum);
    }
}

/* After the kernel that made the parts. */
template <class T> int combine_parts(const dpe_flash *call)
{
    const dim3 rows(static_cast<unsigned>(call->rows * call->n_heads));
    return dpe_launch(attention_combine<T>, rows, dim3(32), 0, *call);
}

} // namespace

#endif
