/**
 * @file experts.h
 * Kernels of routed experts and of attention sinks, as host calls (kernels.h has the conventions).
 */
#ifndef DPE_EXPERTS_H
#define DPE_EXPERTS_H

#include "engine/model/config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/** scores [rows][n_experts] become weights: the softmax of those of the per_token largest (ties:
 * the lower index), of all or (normalised) of the chosen ones, and 0 for the others. A row with a
 * NaN gets NaN. */
int dpe_kernel_choose_experts(float *scores, int64_t rows, int64_t n_experts, int64_t per_token,
                              bool normalised);
/** out [rows][width] = rows `which` of x; both of the model's dtype. */
int dpe_kernel_gather(enum dpe_dtype dtype, const void *x, const int32_t *which, int64_t rows,
                      int64_t width, void *out);
/** Row which[i] of out [..][width] += weights[which[i] · n_experts] · row i of made [rows][width].
 * No row is there twice. */
int dpe_kernel_scatter(const float *made, const int32_t *which, const float *weights,
                       int64_t n_experts, int64_t rows, int64_t width, float *out);
/** out [rows][n_heads][head_dim] *= 1 / (1 + e^(sink [n_heads] − lse [rows][n_heads])). */
int dpe_kernel_sinks(enum dpe_dtype dtype, void *out, const float *lse, const float *sink,
                     int64_t rows, int64_t n_heads, int64_t head_dim);

#ifdef __cplusplus
}
#endif
#endif
