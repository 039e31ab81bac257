/**
 * @file ops_head.h
 * What is made of logits on the host.
 */
#ifndef DPE_OPS_HEAD_H
#define DPE_OPS_HEAD_H

#include "engine/base/base.h"

struct dpe_backend;
struct dpe_config;
struct dpe_logit_room;
struct dpe_ops;

/** Index of the first of n numbers that is NaN or infinite, −1: none. */
int64_t dpe_first_nonfinite(const float *x, int64_t n);
/** Index of the largest logit (ties to the lower); all are finite. */
int32_t dpe_likeliest(const float *logits, int64_t vocab);
/** ln Σ exp of the logits in double, NaN when one is not finite: less a logit, −ln of its
 * probability. */
double dpe_log_sum(const float *logits, int64_t vocab);

/** Slot `logits` of a backend, then the model's cap. */
void dpe_head_logits(const struct dpe_ops *ops, struct dpe_backend *backend,
                     const struct dpe_config *config, void *x, int64_t rows, float *logits);
/** Slots `best` and `likelihood`, made of dpe_head_logits, as many rows at once as there is room
 * for. */
void dpe_head_best(const struct dpe_ops *ops, struct dpe_backend *backend,
                   const struct dpe_config *config, void *x, int64_t rows,
                   const struct dpe_logit_room *room, int32_t *tokens);
void dpe_head_likelihood(const struct dpe_ops *ops, struct dpe_backend *backend,
                         const struct dpe_config *config, void *x, int64_t rows,
                         const struct dpe_logit_room *room, const int32_t *targets, double *nll);

#endif
