/**
 * @file attention_decode.h
 * Attention of few rows over many keys (decoding): keys are split over the card, every key and
 * value is read once for all query heads of its KV head and for several rows at once, and rotated
 * further in registers where a band needs it; a second kernel puts the parts together. bfloat16
 * and half, head_dim 64, 96 and 128, at most 16 query heads per KV head.
 *
 * A *unit* is a range of keys that lie in consecutive cache rows, for rows that all have them in
 * common: the prefix of several branches, or what is a row's own.
 */
#ifndef DPE_ATTENTION_DECODE_H
#define DPE_ATTENTION_DECODE_H

#include "engine/cuda/kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** 32 bytes. n_rows 0: none, its block ends at once. */
struct dpe_decode_unit {
    int64_t first, end;        /**< keys, by position */
    int64_t shift;             /**< cache row − position */
    int32_t row_first, n_rows; /**< n_rows · (heads per KV head) ≤ 16 */
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
 * warps that take turns with the keys. heads 0: no block fits. */
struct dpe_decode_dealing {
    int32_t heads, turns;
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
/** Asynchronous on `stream`; the CUDA error code of the launches. */
int dpe_attention_decode(const struct dpe_decode *call, void *stream);
/** table [n] as dpe_decode_band.table: rotated by (cos, sin), rotated back by (undo_cos, undo_sin).
 */
int dpe_decode_table(const float *cos, const float *sin, const float *undo_cos,
                     const float *undo_sin, int64_t n, uint32_t *table);

#ifdef __cplusplus
}
#endif
#endif
