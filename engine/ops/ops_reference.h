/**
 * @file ops_reference.h
 * The slots of the reference that stand in a file of their own: what comes after attention.
 */
#ifndef DPE_OPS_REFERENCE_H
#define DPE_OPS_REFERENCE_H

#include "engine/ops/ops.h"

void dpe_reference_activate(struct dpe_backend *backend, dpe_mem gate, dpe_mem up, int64_t rows);
void dpe_reference_experts(struct dpe_backend *backend, int64_t layer,
                           const struct dpe_experts *args);
void dpe_reference_scale(struct dpe_backend *backend, dpe_mem x, int64_t n, double factor);
void dpe_reference_add(struct dpe_backend *backend, dpe_mem x, dpe_mem y, int64_t n);
void dpe_reference_sinks(struct dpe_backend *backend, int64_t layer, const float *lse, int64_t rows,
                         dpe_mem out);

#endif
