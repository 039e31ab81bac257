/**
 * @file ops_host.h
 * What the backends that live in host memory (reference, cpu) share, so that one can use the
 * other's slots: the definition of their `struct dpe_backend`, reading weights as float, and the
 * reference's slots that stand in a file of their own.
 */
#ifndef DPE_OPS_HOST_H
#define DPE_OPS_HOST_H

#include <string.h>

#include "engine/base/halves.h"
#include "engine/model/config/config.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"

/** The fast CPU backend's own buffers; NULL for the reference. */
struct dpe_cpu_state;

/** Both host backends. Borrowed pointers live as long as the model. */
struct dpe_backend {
    const struct dpe_ops *ops; /**< its own table, for slots that are made of others */
    const struct dpe_config *config;
    const struct dpe_weights *weights;
    const struct dpe_peers *peers;
    int n_threads;
    struct dpe_cpu_state *cpu;
};

/** Threads for a loop of about `work` simple steps: one when starting more would cost more. */
static inline int dpe_threads_for(int n_threads, int64_t work)
{
    return work < (1 << 17) ? 1 : n_threads;
}

/** The scores of one row [n_experts] become the weights of the experts, 0 for those not chosen;
 *  `shift` and `factors` (of the weights) [1, n_experts], where the router has them, else data
 *  NULL. */
void dpe_experts_choose(const struct dpe_config *config, const struct dpe_tensor *shift,
                        const struct dpe_tensor *factors, float *scores);

/** Elements first … first+n−1 of a tensor (row-major order) as float, exact. */
void dpe_tensor_read(const struct dpe_tensor *tensor, int64_t first, int64_t n, float *out);

/* ops_reference_select.c */

/** Doubles that dpe_reference_places needs for so many keys. */
uint64_t dpe_reference_place_doubles(int64_t keys, int64_t head_dim);
/** The places of the keys that query row `row` of a call and a head see under the plan's selection,
 *  −1 for those that it does not: into room [dpe_reference_place_doubles], the first `keys` of it.
 *  The query's place. Everything comes from the cache, directly from the definition. */
int64_t dpe_reference_places(const struct dpe_attention *args, int64_t row, int64_t head,
                             int64_t keys, double *room);

/** dpe_attention.compressed of a row and head, to out [head_dim]; the same room. */
void dpe_reference_compressed(const struct dpe_attention *args, int64_t row, int64_t head,
                              int64_t keys, double *room, float *out);
void dpe_reference_merge(struct dpe_backend *backend, const struct dpe_branches *branches);

/* ops_reference_layer.c */

void dpe_reference_activate(struct dpe_backend *backend, dpe_mem gate, dpe_mem up, int64_t rows,
                            int64_t width);
void dpe_reference_experts(struct dpe_backend *backend, int64_t layer,
                           const struct dpe_experts *args);
void dpe_reference_scale(struct dpe_backend *backend, dpe_mem x, int64_t n, double factor);
void dpe_reference_scale_part(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width,
                              int64_t from, int64_t n, double factor);
void dpe_reference_centre(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width);
void dpe_reference_add(struct dpe_backend *backend, dpe_mem x, dpe_mem y, int64_t n);
void dpe_reference_sinks(struct dpe_backend *backend, int64_t layer, const float *lse, int64_t rows,
                         dpe_mem out);

/* ops_reference_recur.c */

void dpe_reference_output_gate(struct dpe_backend *backend, dpe_mem out, dpe_mem gate, int64_t n,
                               int64_t each);
void dpe_reference_recur(struct dpe_backend *backend, const struct dpe_recurrence *args);
uint64_t dpe_reference_recur_workspace(const struct dpe_config *config, int64_t rows,
                                       int n_threads);
void dpe_reference_copy_state(struct dpe_backend *backend, dpe_mem to, dpe_mem from,
                              uint64_t bytes);

/** Add norms of rows of these heads, as slot sum_norms does, in the order of the rows: the bits do
 * not depend on n_threads. */
void dpe_norms_add(const struct dpe_config *config, int n_threads, const float *q, const float *k,
                   int64_t rows, bool products, double *sum_q, double *sum_k);
void dpe_reference_sum_norms(struct dpe_backend *backend, dpe_mem q, dpe_mem k, int64_t rows,
                             bool products, double *sum_q, double *sum_k);

void dpe_reference_store_kv(struct dpe_backend *backend, const struct dpe_batch *batch,
                            const struct dpe_store *args);
void dpe_reference_copy_kv(struct dpe_backend *backend, const struct dpe_store *args, int64_t from,
                           int64_t to, int64_t rows);

#endif
