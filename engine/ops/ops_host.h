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

/** sum plus row `row` of a weight times x [weight cols]. */
double dpe_reference_dot(const struct dpe_tensor *weight, int64_t row, const float *x, double sum);
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
DPE_SLOT(dpe_reference_merge, merge);

/* ops_reference_layer.c */

DPE_SLOT(dpe_reference_activate, activate);
DPE_SLOT(dpe_reference_experts, experts);
DPE_SLOT(dpe_reference_scale, scale);
DPE_SLOT(dpe_reference_scale_part, scale_part);
DPE_SLOT(dpe_reference_centre, centre);
DPE_SLOT(dpe_reference_add, add);
DPE_SLOT(dpe_reference_sinks, sinks);

/* ops_reference_recur.c */

DPE_SLOT(dpe_reference_output_gate, output_gate);
DPE_SLOT(dpe_reference_recur, recur);
DPE_SLOT(dpe_reference_recur_workspace, recur_workspace);
DPE_SLOT(dpe_reference_copy_state, copy_state);

/** Add norms of rows of these heads, as slot sum_norms does, in the order of the rows: the bits do
 * not depend on n_threads. */
void dpe_norms_add(const struct dpe_config *config, int n_threads, const float *q, const float *k,
                   int64_t rows, bool products, double *sum_q, double *sum_k);
DPE_SLOT(dpe_reference_sum_norms, sum_norms);

DPE_SLOT(dpe_reference_store_kv, store_kv);
DPE_SLOT(dpe_reference_copy_kv, copy_kv);

#endif
