/**
 * @file recur.cuh
 * What the kernels of layers with a state share (cuda_recur.h): convolution, gates, the norm of a
 * head's output.
 */
#ifndef DPE_RECUR_CUH
#define DPE_RECUR_CUH

#include "engine/cuda/kernels/cuda_recur.h"
#include "engine/cuda/kernels/grid.cuh"

/** Numbers of a token in part 0, 1, 2: q, k, v. */
__device__ static inline int64_t dpe_recur_width(const struct dpe_recur &c, int part)
{
    return part < 2 ? static_cast<int64_t>(c.key_heads) * c.key_dim
                    : static_cast<int64_t>(c.value_heads) * c.value_dim;
}
__device__ static inline int64_t dpe_recur_channels(const struct dpe_recur &c)
{
    return 2 * dpe_recur_width(c, 0) + dpe_recur_width(c, 2);
}
/** A state: the rows before the convolution, then S of each value head. */
__device__ static inline float *dpe_recur_state(const struct dpe_recur &c, int64_t which)
{
    const int64_t tail = (c.width - 1) * dpe_recur_channels(c);
    return c.states +
           which * (tail + static_cast<int64_t>(c.value_heads) * c.key_dim * c.value_dim);
}
__device__ static inline float *dpe_recur_matrix(const struct dpe_recur &c, float *state, int head)
{
    return state + (c.width - 1) * dpe_recur_channels(c) +
           static_cast<int64_t>(head) * c.key_dim * c.value_dim;
}
/** The key head of a value head, and value head `i` of those of a key head. */
__device__ static inline int dpe_recur_key_head(const struct dpe_recur &c, int head)
{
    return c.tiled != 0 ? head % c.key_heads : head / (c.value_heads / c.key_heads);
}
__device__ static inline int dpe_recur_value_head(const struct dpe_recur &c, int key_head, int i)
{
    return c.tiled != 0 ? i * c.key_heads + key_head : key_head * (c.value_heads / c.key_heads) + i;
}

/** What row `row` of a run, which begins with row `first` of the call, had before the convolution
 * in a channel of a part; rows before the run are in the state. */
template <class T>
__device__ static inline float dpe_recur_raw(const struct dpe_recur &c, const float *state,
                                             int part, int64_t first, int64_t row, int64_t channel)
{
    if (row < 0) {
        const int64_t at = (row + c.width - 1) * dpe_recur_channels(c);
        return state[at + part * dpe_recur_width(c, 0) + channel];
    }
    return dpe_float(
        static_cast<const T *>(c.x[part])[(first + row) * dpe_recur_width(c, part) + channel]);
}

/** The same after convolution and silu. */
template <class T>
__device__ static inline float dpe_recur_convolved(const struct dpe_recur &c, const float *state,
                                                   int part, int64_t first, int64_t row,
                                                   int64_t channel)
{
    const T *w = static_cast<const T *>(c.convolution[part]) + channel * c.width;
    float sum = 0.0f;
#pragma unroll 1
    for (int t = 0; t < c.width; t++) {
        sum = fmaf(dpe_float(w[t]),
                   dpe_recur_raw<T>(c, state, part, first, row + t - (c.width - 1), channel), sum);
    }
    return sum / (1.0f + expf(-sum));
}

/** A channel's last rows before the convolution become the state's, after `rows` more. */
template <class T>
__device__ static inline void dpe_recur_keep(const struct dpe_recur &c, float *state, int part,
                                             int64_t first, int64_t rows, int64_t channel)
{
    float *to = state + part * dpe_recur_width(c, 0) + channel;
#pragma unroll 1
    for (int t = 0; t + 1 < c.width; t++) {
        to[t * dpe_recur_channels(c)] =
            dpe_recur_raw<T>(c, state, part, first, rows + t - (c.width - 1), channel);
    }
}

/** By what a state fades before a token of a value head, and β. */
template <class T>
__device__ static inline void dpe_recur_gates(const struct dpe_recur &c, int64_t row, int head,
                                              float *kept, float *beta)
{
    const int64_t at = row * c.value_heads + head;
    const float x = dpe_float(static_cast<const T *>(c.decay)[at]) + c.step[head];
    *kept = expf(c.rate[head] * (x > 20.0f ? x : log1pf(expf(x))));
    *beta = c.reach / (1.0f + expf(-dpe_float(static_cast<const T *>(c.beta)[at])));
}

/** Number d of a head's output, to be scaled, with its gate. */
template <class T>
__device__ static inline void dpe_recur_store(const struct dpe_recur &c, int64_t row, int head,
                                              int d, float scaled)
{
    const int64_t at = row * dpe_recur_width(c, 2) + static_cast<int64_t>(head) * c.value_dim + d;
    const float gate = dpe_float(static_cast<const T *>(c.gate)[at]);
    static_cast<T *>(c.out)[at] = dpe_round<T>(scaled * c.norm[d] * gate / (1.0f + expf(-gate)));
}
/** What a head's output is multiplied by, given the sum of its squares. */
__device__ static inline float dpe_recur_scale(const struct dpe_recur &c, float squares)
{
    return 1.0f / sqrtf(squares / static_cast<float>(c.value_dim) + c.eps);
}

#endif
