/**
 * @file select.cuh
 * What the kernels of a selection share: where rows stand and lie, and reading them rotated.
 */
#ifndef DPE_SELECT_CUH
#define DPE_SELECT_CUH

#include "engine/cuda/kernels/cuda_select.h"
#include "engine/cuda/kernels/grid.cuh"

enum { DPE_SELECT_WARPS = 8, DPE_SELECT_THREADS = 32 * DPE_SELECT_WARPS };

__device__ static inline int64_t dpe_select_position(const struct dpe_select &a, int64_t r)
{
    return a.positions != NULL ? a.positions[r] : a.start + r;
}
__device__ static inline int64_t dpe_select_offset(const struct dpe_select &a, int64_t r)
{
    return a.offsets != NULL ? a.offsets[r] : a.offset;
}
/** The cache row of position n. */
__device__ static inline int64_t dpe_select_row(const struct dpe_select &a, int64_t offset,
                                                int64_t n)
{
    return n < a.prefix ? n : n + offset;
}
/** The group of row r, from 0 on. */
__device__ static inline int64_t dpe_select_group(const struct dpe_select &a, int64_t r)
{
    int64_t every = a.selection.refresh;
    return a.positions != NULL ? r : (a.start + r) / every - a.start / every;
}
/** The first row of group g. */
__device__ static inline int64_t dpe_select_first_row(const struct dpe_select &a, int64_t g)
{
    int64_t every = a.selection.refresh;
    int64_t first = (a.start / every + g) * every;
    return a.positions != NULL ? g : first > a.start ? first - a.start : 0;
}

/** Rows of the tables by which a row is rotated; cos NULL: it is not. */
struct dpe_select_turn {
    const float *cos, *sin;
};

/** As queries or keys at a position are scored. */
__device__ static inline struct dpe_select_turn dpe_select_scored(const struct dpe_select &a,
                                                                  bool keys, int64_t position)
{
    const struct dpe_select_band &band = a.bands[a.n_bands - 1];
    if (a.selection.scored == DPE_SCORE_BARE) {
        return {NULL, NULL};
    }
    if (a.selection.scored == DPE_SCORE_CONSTANT) {
        position = keys ? 0 : a.selection.local - 1;
    }
    int64_t at = position * (a.head_dim / 2);
    return {(keys ? band.k_cos : band.q_cos) + at, (keys ? band.k_sin : band.q_sin) + at};
}

/** Pair j of a row, rotated. */
template <class T>
__device__ static inline float2 dpe_select_pair(const T *row, int64_t j, int64_t n_pairs,
                                                const struct dpe_select_turn &turn)
{
    float x = dpe_float(row[j]);
    float y = dpe_float(row[j + n_pairs]);
    if (turn.cos == NULL) {
        return make_float2(x, y);
    }
    float c = turn.cos[j];
    float s = turn.sin[j];
    return make_float2(x * c - y * s, x * s + y * c);
}

/** A row of the cache. */
template <class T>
__device__ static inline const T *dpe_select_at(const void *cache, const struct dpe_select &a,
                                                int64_t head, int64_t row)
{
    return static_cast<const T *>(cache) + (head * a.capacity + row) * a.head_dim;
}

__device__ static inline float dpe_warp_sum(float value)
{
    for (int by = 16; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, by);
    }
    return value;
}
__device__ static inline float dpe_warp_max(float value)
{
    for (int by = 16; by > 0; by /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, by));
    }
    return value;
}

/** x [head_dim] in shared memory · a row, rotated, by the threads of a warp; given to all. */
template <class T>
__device__ static inline float dpe_select_dot(const float *x, const T *row, int64_t n_pairs,
                                              const struct dpe_select_turn &turn)
{
    float sum = 0.0f;
    for (int64_t j = threadIdx.x % 32; j < n_pairs; j += 32) {
        float2 k = dpe_select_pair(row, j, n_pairs, turn);
        sum = fmaf(x[j], k.x, fmaf(x[j + n_pairs], k.y, sum));
    }
    return dpe_warp_sum(sum);
}

/** A logit under the cap. */
__device__ static inline float dpe_select_capped(const struct dpe_select &a, float logit)
{
    return a.cap > 0.0f ? a.cap * tanhf(logit / a.cap) : logit;
}

#endif
