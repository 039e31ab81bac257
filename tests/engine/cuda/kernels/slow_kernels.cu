/* What those who read the code of kernels have to find: each kernel has one thing that slows it. */
#include "engine/cuda/ptx/device.cuh"

/* Each load waits for the one before it. */
__global__ void slow_loads(const int *next, int n, int *to)
{
    int at = static_cast<int>(threadIdx.x);
    for (int i = 0; i < n; i++) {
        at = next[at];
    }
    to[threadIdx.x] = at;
}

/* The compiler cannot know whether a load is of shared or of global memory. */
__global__ void slow_space(const int *from, int n, int *to)
{
    __shared__ int own[32];
    own[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    const int *either = n > 0 ? own : from;
    to[threadIdx.x] = either[31 - threadIdx.x];
}

/* Each product adds to the result of the one before it. */
__global__ void slow_products(const uint32_t *from, float *to)
{
    const uint32_t a[4] = {from[0], from[1], from[2], from[3]};
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        dpe_mma(dpe_bf16{}, sums, a, from[4 + 2 * i], from[5 + 2 * i]);
    }
    to[threadIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
}
