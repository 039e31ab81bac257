/**
 * @file select.cuh
 * What the kernels of a selection share: where rows stand and lie, reading them rotated; which keys
 * a query sees for what its group chose, and where they stand: what dpe_selection_runs computes, a
 * key at a time.
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

/** What a query sees: the sinks, the chosen blocks, all from `rest` on, and then the keys at the
 *  chosen distances, some of which are among those before. */
struct dpe_seen {
    int64_t position;
    int64_t sinks, in_blocks, alone, n; /**< keys: sinks, of blocks, all but by distance, all */
    int64_t rest;
    const int32_t *blocks, *slashes; /**< ascending; n − alone are the slashes */
    const int32_t *before;           /**< or NULL: as in struct dpe_select, of the row */
};

/** Of row r and head `head`. */
__device__ static inline struct dpe_seen dpe_seen_find(const struct dpe_select &a, int64_t r,
                                                       int64_t head)
{
    const struct dpe_selection &s = a.selection;
    struct dpe_seen found;
    int64_t m = dpe_select_position(a, r);
    int64_t candidates = dpe_selection_candidates(&s, m);
    int64_t distances = candidates > s.k && a.slashes > 0 ? dpe_selection_distances(&s, m) : 0;
    int64_t unit = head / (a.n_heads / a.units);
    int64_t at = dpe_select_group(a, r) * a.units + unit;
    found.position = m;
    found.sinks = s.sinks < m + 1 ? s.sinks : m + 1;
    found.in_blocks = (candidates < s.k ? candidates : s.k) * s.block;
    found.rest = s.sinks + candidates * s.block;
    found.alone = found.sinks + found.in_blocks + (found.rest <= m ? m + 1 - found.rest : 0);
    found.n = found.alone + (distances < a.slashes ? distances : a.slashes);
    found.blocks = a.lists + at * a.chosen;
    found.slashes = a.far_lists + at * a.slashes;
    found.before = a.before == NULL ? NULL : a.before + (r * a.units + unit) * (a.chosen + 1);
    return found;
}

/** How many of n ascending numbers are less than x. */
__device__ static inline int64_t dpe_seen_below(const int32_t *list, int64_t n, int64_t x)
{
    int64_t low = 0;
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (list[middle] < x) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    return low;
}

/** Chosen blocks. */
__device__ static inline int64_t dpe_seen_blocks(const struct dpe_select &a,
                                                 const struct dpe_seen &seen)
{
    return seen.in_blocks / a.selection.block;
}

/** The first key of the b-th of them; after the last one, `rest`. */
__device__ static inline int64_t dpe_seen_start(const struct dpe_select &a,
                                                const struct dpe_seen &seen, int64_t b)
{
    return b < dpe_seen_blocks(a, seen)
               ? a.selection.sinks + static_cast<int64_t>(seen.blocks[b]) * a.selection.block
               : seen.rest;
}

/** How many keys at chosen distances lie before key n. */
__device__ static inline int64_t dpe_seen_slashes_before(const struct dpe_select &a,
                                                         const struct dpe_seen &seen, int64_t n)
{
    int64_t all = seen.n - seen.alone;
    return all - dpe_seen_below(seen.slashes, all, seen.position - a.selection.local - n + 1);
}

/** Where the query stands. */
__device__ static inline int64_t dpe_seen_query(const struct dpe_select &a,
                                                const struct dpe_seen &seen)
{
    if (a.selection.positions != DPE_PLACE_PACKED) {
        return seen.position;
    }
    return seen.alone - 1 + (seen.before == NULL ? 0 : seen.before[dpe_seen_blocks(a, seen)]);
}

/** The place of key n, the i-th. */
__device__ static inline int64_t dpe_seen_place(const struct dpe_select &a,
                                                const struct dpe_seen &seen, int64_t i, int64_t n)
{
    const struct dpe_selection &s = a.selection;
    const int64_t near = seen.position - s.local + 1;
    if (s.positions != DPE_PLACE_PACKED) {
        return s.positions == DPE_PLACE_CONSTANT && n < near ? near : n;
    }
    if (seen.before == NULL || i < seen.sinks) {
        return i;
    }
    if (i < seen.alone) {
        int64_t b =
            i - seen.sinks < seen.in_blocks ? (i - seen.sinks) / s.block : dpe_seen_blocks(a, seen);
        return i + seen.before[b];
    }
    /* Between here and the block that follows, no key is seen but for its distance. */
    int64_t b = dpe_seen_below(seen.blocks, dpe_seen_blocks(a, seen), (n - s.sinks) / s.block);
    int64_t after = dpe_seen_slashes_before(a, seen, dpe_seen_start(a, seen, b)) - (i - seen.alone);
    return s.sinks + b * s.block + seen.before[b] - after;
}

/** The i-th key and its place; −1: one that was among those before. */
__device__ static inline int64_t
dpe_seen_key(const struct dpe_select &a, const struct dpe_seen &seen, int64_t i, int64_t *place)
{
    const struct dpe_selection &s = a.selection;
    int64_t n = i;
    if (i >= seen.alone) {
        n = seen.position - s.local - seen.slashes[seen.n - 1 - i];
        int64_t block = (n - s.sinks) / s.block;
        int64_t b = dpe_seen_below(seen.blocks, dpe_seen_blocks(a, seen), block);
        if (n < s.sinks || n >= seen.rest ||
            (b < dpe_seen_blocks(a, seen) && seen.blocks[b] == block)) {
            return -1;
        }
    } else if (i >= seen.sinks + seen.in_blocks) {
        n = seen.rest + i - seen.sinks - seen.in_blocks;
    } else if (i >= seen.sinks) {
        i -= seen.sinks;
        n = s.sinks + static_cast<int64_t>(seen.blocks[i / s.block]) * s.block + i % s.block;
        i += seen.sinks;
    }
    *place = dpe_seen_place(a, seen, i, n);
    return n;
}

#endif
