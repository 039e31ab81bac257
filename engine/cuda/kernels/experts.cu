/* Routed experts and attention sinks. Plain loops: the products of the experts are those of every
 * other weight, these kernels say which rows and by how much. */
#include "engine/cuda/kernels/experts.h"
#include "engine/cuda/kernels/grid.cuh"

namespace
{

/* A thread a row. What is chosen becomes −1 − weight, so that it is not chosen again. */
__device__ void weigh(float *scores, int64_t n, int64_t per_token, bool normalised)
{
    float largest = -INFINITY;
    float total = 0.0f;
    float chosen = 0.0f;
    for (int64_t e = 0; e < n; e++) {
        largest = scores[e] > largest ? scores[e] : largest;
    }
    for (int64_t e = 0; e < n; e++) {
        scores[e] = expf(scores[e] - largest);
        total += scores[e];
    }
    for (int64_t i = 0; i < per_token; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; e++) {
            best = scores[e] >= 0.0f && (best < 0 || scores[e] > scores[best]) ? e : best;
        }
        if (best < 0) {
            break; /* scores that are not numbers */
        }
        scores[best] /= total;
        chosen += scores[best];
        scores[best] = -1.0f - scores[best];
    }
    for (int64_t e = 0; e < n; e++) {
        float weight = -1.0f - scores[e];
        weight = normalised ? weight / chosen : weight;
        scores[e] = scores[e] >= 0.0f ? 0.0f : weight;
    }
}

__global__ void choose(float *scores, int64_t rows, int64_t n, int64_t per_token, bool normalised)
{
    for (int64_t r = dpe_this_thread(); r < rows; r += dpe_all_threads()) {
        weigh(scores + r * n, n, per_token, normalised);
    }
}

template <class T>
__global__ void gather(const T *x, const int32_t *which, int64_t rows, int64_t width, T *out)
{
    for (int64_t i = dpe_this_thread(); i < rows * width; i += dpe_all_threads()) {
        out[i] = x[which[i / width] * width + i % width];
    }
}

__global__ void scatter(const float *made, const int32_t *which, const float *weights,
                        int64_t n_experts, int64_t rows, int64_t width, float *out)
{
    for (int64_t i = dpe_this_thread(); i < rows * width; i += dpe_all_threads()) {
        int64_t row = which[i / width];
        out[row * width + i % width] += weights[row * n_experts] * made[i];
    }
}

template <class T>
__global__ void sinks(T *out, const float *lse, const float *sink, int64_t heads, int64_t n_heads,
                      int64_t head_dim)
{
    for (int64_t i = dpe_this_thread(); i < heads * head_dim; i += dpe_all_threads()) {
        int64_t head = i / head_dim;
        float share = 1.0f / (1.0f + expf(sink[head % n_heads] - lse[head]));
        out[i] = dpe_round<T>(dpe_float(out[i]) * share);
    }
}

template <class T>
int gather_of(const void *x, const int32_t *which, int64_t rows, int64_t width, void *out)
{
    return dpe_launch(gather<T>, dpe_element_blocks(rows * width), DPE_GRID_THREADS, 0, NULL,
                      static_cast<const T *>(x), which, rows, width, static_cast<T *>(out));
}

template <class T>
int sinks_of(void *out, const float *lse, const float *sink, int64_t rows, int64_t n_heads,
             int64_t head_dim)
{
    return dpe_launch(sinks<T>, dpe_element_blocks(rows * n_heads * head_dim), DPE_GRID_THREADS, 0,
                      NULL, static_cast<T *>(out), lse, sink, rows * n_heads, n_heads, head_dim);
}

} // namespace

int dpe_kernel_choose_experts(float *scores, int64_t rows, int64_t n_experts, int64_t per_token,
                              bool normalised)
{
    return dpe_launch(choose, dpe_element_blocks(rows), DPE_GRID_THREADS, 0, NULL, scores, rows,
                      n_experts, per_token, normalised);
}

int dpe_kernel_gather(enum dpe_dtype dtype, const void *x, const int32_t *which, int64_t rows,
                      int64_t width, void *out)
{
    DPE_FOR_DTYPE(dtype, gather_of<T>(x, which, rows, width, out));
}

int dpe_kernel_scatter(const float *made, const int32_t *which, const float *weights,
                       int64_t n_experts, int64_t rows, int64_t width, float *out)
{
    return dpe_launch(scatter, dpe_element_blocks(rows * width), DPE_GRID_THREADS, 0, NULL, made,
                      which, weights, n_experts, rows, width, out);
}

int dpe_kernel_sinks(enum dpe_dtype dtype, void *out, const float *lse, const float *sink,
                     int64_t rows, int64_t n_heads, int64_t head_dim)
{
    DPE_FOR_DTYPE(dtype, sinks_of<T>(out, lse, sink, rows, n_heads, head_dim));
}
