/* What rows of logits give: the best token, the likelihood of a given one. */
#include "engine/cuda/kernels/grid.cuh"
#include "engine/cuda/kernels/kernels.h"

namespace
{

enum { MANY_THREADS = 1024 };

enum { AT_ONCE = 4 };

/* Elements i, i + blockDim.x … of a row: reads that are under way at once. After the end the first
 * of them again. */
__device__ __forceinline__ void read_some(const float *row, int64_t i, int64_t n,
                                          float (&some)[AT_ONCE])
{
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        int64_t at = i + k * static_cast<int64_t>(blockDim.x);
        some[k] = row[at < n ? at : i];
    }
}

/* The better of this lane's number and that of the lane `by` away: the larger, of equal ones the
 * first. */
__device__ inline void take_better(float &value, int &index, int by)
{
    float other = __shfl_xor_sync(0xffffffffU, value, by);
    int at = __shfl_xor_sync(0xffffffffU, index, by);
    bool better = other > value || (other == value && at < index);
    value = better ? other : value;
    index = better ? at : index;
}

/* A block a row, several reads at once: a step of decoding waits for one row alone. NaN compares
 * false with everything, so it is looked for apart. */
__global__ void __launch_bounds__(MANY_THREADS)
    argmax(const float *logits, int64_t vocab, int32_t *tokens)
{
    __shared__ float best_value[32];
    __shared__ int best_index[32];
    const float *row = logits + blockIdx.x * vocab;
    const int64_t threads = blockDim.x;
    int warp = static_cast<int>(threadIdx.x) / 32;
    float value = -INFINITY;
    int index = INT32_MAX;
    int bad = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            bad |= dpe_not_finite(some[k]);
            index = some[k] > value ? static_cast<int>(i + k * threads) : index;
            value = some[k] > value ? some[k] : value;
        }
    }
    for (int by = 16; by > 0; by /= 2) {
        take_better(value, index, by);
    }
    if (threadIdx.x % 32 == 0) {
        best_value[warp] = value;
        best_index[warp] = index;
    }
    bad = __syncthreads_or(bad);
    if (warp == 0) {
        bool real = threadIdx.x < blockDim.x / 32;
        value = real ? best_value[threadIdx.x] : -INFINITY;
        index = real ? best_index[threadIdx.x] : INT32_MAX;
        for (int by = 16; by > 0; by /= 2) {
            take_better(value, index, by);
        }
        if (threadIdx.x == 0) {
            tokens[blockIdx.x] = bad ? -1 : index;
        }
    }
}

__global__ void likelihood(const float *logits, const int32_t *targets, int64_t vocab, double *nll)
{
    __shared__ float largest[DPE_GRID_THREADS];
    const float *row = logits + blockIdx.x * vocab;
    const int64_t threads = blockDim.x;
    float most = -INFINITY;
    int bad = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            bad |= dpe_not_finite(some[k]);
            most = fmaxf(most, some[k]);
        }
    }
    largest[threadIdx.x] = most;
    bad = __syncthreads_or(bad);
    for (unsigned t = 0; t < blockDim.x; t++) {
        most = fmaxf(most, largest[t]);
    }
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < vocab; i += AT_ONCE * threads) {
        float some[AT_ONCE];
        read_some(row, i, vocab, some);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            /* A difference of floats is rounded once, by at most 2^-24 of its size. */
            float term = i + k * threads < vocab ? expf(some[k] - most) : 0.0f;
            sum += static_cast<double>(term);
        }
    }
    sum = dpe_block_sum(sum);
    if (threadIdx.x == 0) {
        double of_target = static_cast<double>(row[targets[blockIdx.x]]);
        nll[blockIdx.x] =
            bad ? static_cast<double>(NAN) : log(sum) + static_cast<double>(most) - of_target;
    }
}

} // namespace

int dpe_kernel_argmax(const float *logits, int64_t rows, int64_t vocab, int32_t *tokens)
{
    const unsigned threads = vocab < 8192 ? unsigned{DPE_GRID_THREADS} : unsigned{MANY_THREADS};
    return dpe_launch(argmax, static_cast<unsigned>(rows), threads, 0, logits, vocab, tokens);
}

int dpe_kernel_nll(const float *logits, const int32_t *targets, int64_t rows, int64_t vocab,
                   double *nll)
{
    return dpe_launch(likelihood, static_cast<unsigned>(rows), DPE_GRID_THREADS, 0, logits, targets,
                      vocab, nll);
}
