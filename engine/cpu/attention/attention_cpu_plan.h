/**
 * @file attention_cpu_plan.h
 * What the attention drivers of the CPU backend share: how a copy is rotated, where the key of a
 * position lies, which bands a tile touches, how a head is written, and sizes that do not overflow.
 */
#ifndef DPE_ATTENTION_CPU_PLAN_H
#define DPE_ATTENTION_CPU_PLAN_H

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/plan/segments.h"

#define LOG2_E 1.4426950408889634

/** The mask of a head as words for dpe_cpu_rotation.select; n_pairs of them. */
void dpe_copy_select(const struct dpe_attention *args, int64_t head, uint32_t *select);
/** The rotation of a copy from position `first` on; `select` is used when the copy is masked. */
struct dpe_cpu_rotation dpe_copy_rotation(const struct dpe_attention *args,
                                          const struct dpe_rotated *copy, int base_table,
                                          int64_t first, const uint32_t *select);

/** Raw logits of one row, of which `factor` makes base-2 logits, under the plan's cap; n a multiple
 *  of lanes. */
void dpe_cap_logits(const struct dpe_cpu_kernels *kernels, const struct dpe_plan *plan,
                    float factor, int64_t n, float *logits);

/** Appends `floats` to *total, in whole cache lines; where they start. */
uint64_t dpe_place(uint64_t *total, uint64_t floats);

/** Bands of a tile row that touch the keys at places n0 … n1−1, as bits; *whole: the one band that
 *  holds all of them for all rows, or −1. */
unsigned dpe_cpu_touching_bands(const struct dpe_reach *reach, int n_bands, int64_t n0, int64_t n1,
                                int *whole);
/** Appends `count` keys to the spans; the last span goes on where they follow it. */
void dpe_cpu_add_span(struct dpe_cpu_spans *spans, int64_t column, int64_t row, int64_t count);
/** The attention of a head of a row to args->out, and to args->lse where not NULL: o [head_dim] is
 *  the sum of 2^(logit − reference) · v, `sum` that of 2^(logit − reference). */
void dpe_cpu_write_head(const struct dpe_attention *args, int64_t row, int64_t head, const float *o,
                        float reference, float sum);

/** The cache row of the key at position n for a query with this offset, and in *end the first
 *  position after n whose row does not follow. */
static inline int64_t dpe_cache_row(const struct dpe_attention *args, int64_t offset, int64_t n,
                                    int64_t *end)
{
    bool common = n < args->prefix && offset != 0;
    *end = common ? args->prefix : INT64_MAX;
    return n < args->prefix ? n : n + offset;
}

/** The same for query r of a call without a selection, which may read rows of another branch. */
static inline int64_t dpe_key_row(const struct dpe_attention *args, int64_t r, int64_t n,
                                  int64_t *end)
{
    struct dpe_lent lent = dpe_attention_lent(args, r);
    if (n < lent.positions) {
        *end = lent.positions;
        return n + lent.offset;
    }
    return dpe_cache_row(args, dpe_attention_offset(args, r), n, end);
}

/** Calls of at most so many rows, and those of several branches, take the decode driver, which
 * packs nothing. */
enum { DPE_CPU_DECODE_ROWS = 4 };

/** Some query heads of a KV head at one query, for the drivers that pack nothing: the state of
 *  their softmax and room to work in. */
struct dpe_cpu_query {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    const struct dpe_rotated_copies *q_copies, *k_copies;
    int64_t place;              /**< of the query: its position, or where a selection puts it */
    int64_t head, heads;        /**< first query head and their number */
    const float *q;             /**< [heads][q_copies->n][head_dim], rotated */
    float factor;               /**< of a product as a base-2 logit */
    float *reference, *sum, *o; /**< [heads], [heads], [heads][head_dim] */
    float *s;                   /**< [heads][DPE_CPU_BLOCK] */
    float *rotated;             /**< [DPE_CPU_ROTATED][head_dim] */
    float *tile;                /**< the same, for rows that a dpe_kv unpacks */
    uint32_t *select;           /**< [head_dim / 2] */
    const float *after;         /**< keys that are met next, requested meanwhile; or NULL */
    struct dpe_reach reach[DPE_MAX_BANDS];
};
enum { DPE_CPU_ROTATED = 32 /**< keys rotated at a time */ };

/** At most DPE_CPU_BLOCK keys that lie one after another in the cache. */
struct dpe_cpu_keys {
    int64_t place; /**< of the first */
    bool constant; /**< all stand there; else one after another */
    int64_t count;
    int64_t row; /**< cache row of the first */
};
/** Nothing is seen yet; the reaches of the bands from `place`. */
void dpe_cpu_query_begin(struct dpe_cpu_query *query);
/** The query meets these keys, whose rows are read a tile at a time (dpe_attention_rows). */
void dpe_cpu_query_meet(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys);
/** All copies of head `head` of row `row` at a place: out [q_copies.n][head_dim]. */
void dpe_cpu_rotate_query(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args,
                          const struct dpe_rotated_copies *copies, int64_t row, int64_t head,
                          int64_t place, uint32_t *select, float *out);

/** The driver of plans with a selection, its workspace in bytes, and the representatives it chooses
 * by (ops.h, slot represent). */
void dpe_cpu_attention_select(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args);
uint64_t dpe_cpu_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int64_t rows, int n_threads);

/** The decode driver and its workspace in bytes. */
void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args);
uint64_t dpe_cpu_decode_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int n_threads);

#endif
