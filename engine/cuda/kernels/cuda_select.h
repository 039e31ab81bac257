/**
 * @file cuda_select.h
 * Attention under a selection (model/config/selection.h) in three steps: what stands for a block,
 * made when the block is complete; which blocks the groups of queries choose; attention over what a
 * query then sees. Plain float arithmetic: any dtype, any head dimension, any plan. Keys and
 * queries are not rotated in memory, since a place may differ from query to query; each kernel
 * rotates what it reads.
 */
#ifndef DPE_CUDA_SELECT_H
#define DPE_CUDA_SELECT_H

#include "engine/cuda/kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A band, with the rows of the tables for places 0, 1, … [n_pairs]. */
struct dpe_select_band {
    enum dpe_band_kind kind;
    bool per_head; /**< pairs outside the head's mask take the tables of band 0 */
    int64_t lo, hi;
    const float *q_cos, *q_sin, *k_cos, *k_sin;
};

/** One call for all three. Pointers are device memory. Where a key lies, and which queries are
 *  meant: as in struct dpe_attention (ops.h). */
struct dpe_select {
    enum dpe_dtype dtype; /**< of q, k, v, queries and out */
    struct dpe_selection selection;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t rows, start, offset;
    const int64_t *positions, *offsets; /**< [rows], or both NULL */
    int64_t prefix, capacity;
    const void *q;       /**< [rows][n_heads][head_dim] */
    const void *k, *v;   /**< [n_kv_heads][capacity][head_dim] */
    const void *queries; /**< [n_heads][capacity][head_dim], or NULL where none are kept */
    float *marks;        /**< [heads][slots][width] */
    int64_t slots, room;
    struct dpe_select_band bands[DPE_MAX_BANDS];
    int32_t n_bands;
    int64_t chunk;       /**< ≥ 1 */
    const uint8_t *mask; /**< [n_heads][head_dim / 2] of the layer, or NULL */
    float scale;         /**< as in struct dpe_flash */
    float cap;           /**< logits become cap · tanh(logit / cap); 0: they stay */
    struct dpe_log_n log_n;
    /** @name Of dpe_select_choose, and read by dpe_select_attend */
    /**@{*/
    int64_t groups; /**< rows with one chooser are a group; with positions each row is one */
    int64_t units;  /**< n_heads, n_kv_heads or 1, as the selection's unit */
    int64_t blocks; /**< candidates of a query, at most */
    int64_t chosen; /**< min(k, blocks): blocks of a list */
    double *scores; /**< [groups][units][blocks] */
    int32_t *lists; /**< [groups][units][chosen], ascending; min(k, candidates) of them are given */
    /** Of DPE_REPRESENT_PROBABILITY: `distances` of a query at most, 0 without slashes, and
     * `slashes` of a list, at most as many, as indices (dpe_choice). Where a query sees every key,
     * none are given. Of each of the `last` queries, at most as many as there are keys: what its
     * logits are multiplied by, the largest logit, and 1 / the sum of e^(logit − the largest). */
    int64_t distances, slashes, last;
    double *far;        /**< room for [groups][units][distances] */
    int32_t *far_lists; /**< [groups][units][slashes], ascending */
    float *sums;        /**< room for [groups][n_heads][last][3] */
    /** Room for the keys that a query sees for their distance alone, counted before each chosen
     * block and before the keys after the last candidate; NULL unless packed
     * places have slashes. */
    int32_t *before; /**< [rows][units][chosen + 1] */
    /** Of DPE_REPRESENT_COMPRESSED: room for [groups][n_heads][blocks], and
     * [rows][n_heads][head_dim] as in struct dpe_attention, or NULL. */
    float *probabilities;
    void *compressed;
    /**@}*/
    /** @name Of dpe_select_represent */
    /**@{*/
    int64_t first_block, n_blocks; /**< to be made; with positions: those that rows complete */
    /**@}*/
    /** @name Of dpe_select_attend */
    /**@{*/
    int32_t parts;  /**< dpe_select_parts: the keys of a query and head are dealt to so many thread
                         blocks */
    float *partial; /**< dpe_select_partial_bytes; parts 1: not used */
    /**@}*/
    void *out;  /**< [rows][n_heads][head_dim]; rows without a visible key become 0 */
    float *lse; /**< [rows][n_heads], or NULL */
};

enum { DPE_SELECT_MOST_BLOCK = 4096 /**< keys, where each key's score is kept */ };

/** Whether there are kernels for a selection; false: *what is what is missing, in words. */
bool dpe_select_supports(const struct dpe_selection *selection, const char **what);
/** In how many parts to take queries that see at most so many keys, so that few of them fill a
 *  card; and bytes of the parts of any call. */
int32_t dpe_select_parts(int64_t rows, int64_t n_heads, int64_t keys);
uint64_t dpe_select_partial_bytes(int64_t head_dim);
/** Asynchronous on the backend's stream; the CUDA error code of the launch, 0 = launched. */
int dpe_select_represent(const struct dpe_select *call);
int dpe_select_choose(const struct dpe_select *call);
int dpe_select_attend(const struct dpe_select *call);
/** out [heads][head_dim] = Σ over branches of sigmoid(gate) · branch: of compressed
 * [heads][head_dim], of what is in out, and of windowed, where there is one (not NULL); gates
 * [heads][3] in this order. */
int dpe_select_merge(enum dpe_dtype dtype, const void *gates, const void *compressed,
                     const void *windowed, int64_t heads, int64_t head_dim, void *out);

#ifdef __cplusplus
}
#endif
#endif
