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

/** 2^r for |r| ≤ ½, the highest power first: a minimax polynomial (relative error 1.9e-9 before
 * rounding, found with the Remez exchange; one of degree 5 would cost a unit). */
static const float dpe_exp2_polynomial[] = {0x1.41d334p-13F,
                                            0x1.5f456ap-10F,
                                            0x1.3b2dbcp-7F,
                                            0x1.c6aed4p-5F,
                                            0x1.ebfbdap-3F,
                                            0x1.62e43p-1F,
                                            1.0F};
enum { DPE_EXP2_DEGREE = 6 };

/** Index of the first of n numbers that is NaN or infinite, −1: none. */
int64_t dpe_first_nonfinite(const float *x, int64_t n);
/** Index of the largest logit (ties to the lower); all are finite. */
int32_t dpe_likeliest(const float *logits, int64_t vocab);
/** ln Σ exp of the logits, NaN when one is not finite: less a logit, −ln of its probability. Powers
 * are float, within 2^-22 of themselves; the same bits on every processor. */
double dpe_log_sum(const float *logits, int64_t vocab);
/** Sums over n finite numbers x, of which `largest` is the largest, in double: e^(x − largest), and
 * unless `other` [n] is NULL in *ahead e^(x − largest)·(x − other). Powers are within 2^-50 of
 * themselves, below e^-700 that; the same bits on every processor. */
double dpe_power_sums(const float *x, const float *other, int64_t n, double largest, double *ahead);

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
