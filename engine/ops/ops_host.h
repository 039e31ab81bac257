/**
 * @file ops_host.h
 * What the backends that live in host memory (reference, cpu) share, so that one can use the
 * other's slots: the definition of their `struct dpe_backend`, and reading weights as float.
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

/** The scores of one row [n_experts] become the weights of the experts, 0 for those not chosen. */
void dpe_experts_choose(const struct dpe_config *config, float *scores);

/** Elements first … first+n−1 of a tensor (row-major order) as float, exact. */
void dpe_tensor_read(const struct dpe_tensor *tensor, int64_t first, int64_t n, float *out);

#endif
