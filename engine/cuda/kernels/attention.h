/**
 * @file attention.h
 * What the attention kernels of the CUDA backend are called with: rotated copies of queries and
 * keys (segments.h defines which), the walk of segments.h on the device, and where results go; and
 * decoding, which has units of keys and a position for each row in their place. Every kernel here
 * computes, for query row r of head h at its position m (start + r, but for decoding),
 *
 *     out[r][h] = Σ_n p_n v_n,   p = softmax over the visible keys n of
 *                                scale · f(m) · ⟨q_c[h][r], k_c[n]⟩,   c = copies of n's segment,
 *
 * f(m) as in struct dpe_temperature (plan.h) times the growth of queries; log_n.cuh computes it. A
 * cap is a switch of the templates, so that kernels without one are as if there were none.
 */
#ifndef DPE_ATTENTION_H
#define DPE_ATTENTION_H

#include "engine/model/config/config.h"
#include "engine/plan/plan.h"
#include "engine/plan/segments.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/** f(m) of a plan, ready for a kernel, and what the model's queries grow by (query_growth to
 *  query_from of struct dpe_plan). */
struct dpe_log_n {
    float base;   /**< ln N, or 1 − N^−B with a decay; 0: f is 1 */
    float power;  /**< G */
    float decay;  /**< B; 0: the logarithm itself */
    float growth; /**< b; 0: queries do not grow */
    float length; /**< L */
    float from;   /**< added to positions there */
};
static inline struct dpe_log_n dpe_log_n_of(const struct dpe_plan *plan)
{
    double n = plan->temperature.log_n_length, decay = plan->temperature.log_n_decay;
    double base = n > 0.0 ? (decay > 0.0 ? -expm1(-decay * log(n)) : log(n)) : 0.0;
    struct dpe_log_n log_n = {(float)base,
                              (float)plan->temperature.log_n_power,
                              (float)decay,
                              (float)plan->query_growth,
                              (float)plan->query_length,
                              (float)plan->query_from};
    return log_n;
}

/** One call. Pointers are device memory, 16-byte aligned; strides count elements and are multiples
 *  of 8. q, k, v, out share one dtype. */
struct dpe_flash {
    enum dpe_dtype dtype; /**< DPE_BF16 or DPE_F16 */
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t rows; /**< queries of the call */
    /** Copy c of the queries: [n_heads][rows][head_dim]; rows with stride head_dim. */
    const void *q[DPE_MAX_BANDS];
    int64_t q_head_stride;
    /** Copy c of the keys: [n_kv_heads or n_heads][keys][head_dim], key n of a head at row n.
     * Memory from key 0 on must be readable; what lies outside dpe_walk.k_first … k_end may be
     * anything. */
    const void *k[DPE_MAX_BANDS];
    int64_t k_head_stride[DPE_MAX_BANDS];
    bool k_per_head[DPE_MAX_BANDS]; /**< one per query head, not per KV head */
    const void *v;                  /**< [n_kv_heads][keys][head_dim], finite in all visible rows */
    int64_t v_head_stride;
    void *out; /**< [rows][n_heads][head_dim]; rows without a visible key become 0 */
    float *lse; /**< [rows][n_heads] natural log-sum-exp of the logits (−∞ without a visible key),
                     or NULL */
    const struct dpe_query_block *blocks; /**< dpe_walk.blocks and segments */
    const struct dpe_segment *segments;
    int64_t n_blocks;
    /** dpe_attention_mma and dpe_attention_plain: parts of a split walk (0 or 1: it is not split),
     * and room for their results, parts · rows · n_heads · (head_dim + 1) floats. */
    int32_t parts;
    float *partial;
    float scale; /**< logit_factor / √head_dim, > 0 */
    float cap;   /**< c: a logit x becomes c tanh(x/c); 0: it stays */
    struct dpe_log_n log_n;
};

/** Tiles of the mma.sync kernel for a head dimension; rows 0 when it has no kernel for that one
 *  (64, 96, 128 and 256 have). */
struct dpe_tile_shape dpe_attention_mma_shape(int64_t head_dim);
/** In how many parts to split a walk, this kernel's or the plain one's, of `n_blocks` blocks, the
 * longest of `longest` tiles, so that the device is busy: 1 when it is anyway. With it `partial` is
 * never larger than about 2 · multiprocessors · 128 · (head_dim + 1) floats. */
int32_t dpe_attention_mma_parts(int64_t n_blocks, int64_t longest, int64_t n_heads,
                                int multiprocessors);
/** mma.sync with fp32 accumulators, sm_80 and later. The walk was made for the shape above.
 *  Asynchronous on dpe_rt_stream(); the CUDA error code of the launch, 0 = launched,
 *  cudaErrorInvalidValue when there is no kernel for that dtype and head_dim. */
int dpe_attention_mma(const struct dpe_flash *call);

/* ----------------------------------------------------------------------------- in plain float */

/* Any dtype, any head dimension, any plan: the path of fp32 models and of head dimensions that no
 * faster kernel has, and the oracle of those on the device. */

/** Tiles that the walk of a call is to be made for; rows 0 where heads have more than 848 numbers.
 */
struct dpe_tile_shape dpe_attention_plain_shape(int64_t head_dim);
/** One call, also with dtype DPE_F32 and strides that are not multiples of 8.
 *  Asynchronous; the CUDA error code of the launch, 0 = launched. */
int dpe_attention_plain(const struct dpe_flash *call);

/* ------------------------------------------------------------------------------------- decoding */

/* Attention of few rows over many keys: keys are split over the card, every key and value is read
 * once for all query heads of its KV head and for several rows at once, and rotated further in
 * registers where a band needs it; a second kernel puts the parts together. bfloat16 and half,
 * head_dim 64, 96, 128, 256 and 512, at most 16 query heads per KV head.
 *
 * A *unit* is a range of keys that lie in consecutive cache rows, for rows that all have them in
 * common: the prefix of several branches, or what is a row's own. */

/** 32 bytes. n_rows 0: none, its block ends at once. */
struct dpe_decode_unit {
    int64_t first, end;        /**< keys, by position */
    int32_t shift;             /**< cache row − position */
    int32_t row_first, n_rows; /**< n_rows · (heads per KV head) ≤ 16 */
    int32_t call;              /**< of those that are decoded together, whose keys they are */
};
/** The parts of a row: those of units a_first … a_end−1, in which it is row a_row, then b. 32
 * bytes. */
struct dpe_decode_parts {
    int32_t a_first, a_end, a_row;
    int32_t b_first, b_end, b_row;
    int64_t position;
};

/** A band as decoding needs it. */
struct dpe_decode_band {
    int32_t kind; /**< enum dpe_band_kind */
    int32_t q_copy;
    int32_t lo, hi; /**< cut to 2^30 */
    const uint32_t
        *table;    /**< [positions][head_dim / 2] cosine (lower half) and sine of what rotates
                        a key of the cache on, as half; NULL: the cache has what is needed */
    bool per_head; /**< only the pairs of the query head's mask are rotated further */
};

/** How the warps of a thread block are dealt: they have so many KV heads, each of them so many
 * warps (of heads of 512 dimensions, pairs of warps) that take turns with the keys. heads 0: no
 * block fits. */
struct dpe_decode_dealing {
    int32_t heads, turns;
    int32_t unstaged; /**< 1: tables of heads of 512 have no room, and are read where they lie */
};

struct dpe_decode {
    struct dpe_decode_dealing dealing;
    enum dpe_dtype dtype;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t rows;
    const void *q[DPE_MAX_BANDS]; /**< rotated copies, [n_heads][rows][head_dim] */
    int64_t q_head_stride;
    const void *k, *v; /**< the cache, [n_kv_heads][capacity][head_dim] */
    int64_t head_stride;
    struct dpe_decode_band bands[DPE_MAX_BANDS];
    int32_t n_bands;
    int32_t chunk;                       /**< ≥ 1 */
    const uint8_t *mask;                 /**< [n_heads][head_dim / 2] of the layer, or NULL */
    const struct dpe_decode_unit *units; /**< device */
    int64_t n_units;
    const struct dpe_decode_parts *parts; /**< [rows], device */
    void *partial;                        /**< dpe_decode_partial_bytes, 16-byte aligned */
    void *out;                            /**< [rows][n_heads][head_dim] */
    float *lse;                           /**< [rows][n_heads] or NULL */
    float scale;                          /**< as in struct dpe_flash */
    struct dpe_log_n log_n;
    float cap; /**< as there */
};

/** Whether there is a kernel for these. */
bool dpe_decode_supports(enum dpe_dtype dtype, int64_t head_dim, int64_t n_heads,
                         int64_t n_kv_heads);
/** Rows of one unit at most. */
int64_t dpe_decode_rows(int64_t n_heads, int64_t n_kv_heads);
/** The dealing where a block can have `shared` bytes of shared memory. */
struct dpe_decode_dealing dpe_decode_deal(int64_t n_kv_heads, int64_t head_dim, uint64_t shared);
/** Keys of a unit are best a multiple of this (but for a range's last). */
int64_t dpe_decode_step(struct dpe_decode_dealing dealing);
/** Bytes of the parts of so many units under any dealing. */
uint64_t dpe_decode_partial_bytes(int64_t n_kv_heads, int64_t head_dim, int64_t n_units);
enum { DPE_DECODE_CALLS = 8 };
/** n ≤ DPE_DECODE_CALLS calls as one, over the caches and under the plans of all: units, parts,
 * rows, partial, out and lse are those of all calls together, and so is the layout of q.
 * Asynchronous on dpe_rt_stream(); the CUDA error code of the launches. */
int dpe_attention_decode_calls(const struct dpe_decode *calls, int n);
/** table [n] as dpe_decode_band.table: rotated by (cos, sin), rotated back by (undo_cos, undo_sin).
 */
int dpe_decode_table(const float *cos, const float *sin, const float *undo_cos,
                     const float *undo_sin, int64_t n, uint32_t *table);

#ifdef __cplusplus
}
#endif

#endif
