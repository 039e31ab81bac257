/**
 * @file clex.h
 * CLEX (Chen et al. 2024): a network among the weights says how fast the logarithms of the
 * frequencies change with the length's multiple of the trained length.
 */
#ifndef DPE_CLEX_H
#define DPE_CLEX_H

#include "engine/base/base.h"

struct dpe_json_reader;

struct dpe_clex {
    double most, step; /**< the multiple at most; of the integral over it */
    int64_t n, width;  /**< pairs; of the hidden layer */
    bool tanh;         /**< its activation; else silu */
    bool log_scale;    /**< the attention factor grows with the length */
    double *values;    /**< frequencies [n], then the matrices up [n][width] and down [width][n],
                            owned; NULL without the weights */
};

/** Reads the settings in config.json, and in its rotation, for n pairs. Owned by the caller; NULL:
 * `rope` has failed. */
struct dpe_clex *dpe_clex_read(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                               int64_t n);
/** inv_freq [n] of a length and the attention factor; `trained` is the model's own length.
 * DPE_BAD_DATA: the network's tensors are missing, or it makes a frequency that is not a positive
 * number. DPE_NO_MEMORY. */
dpe_status dpe_clex_frequencies(const struct dpe_clex *clex, int64_t n, int64_t trained,
                                int64_t length, double *inv_freq, double *attention_factor,
                                struct dpe_error *err);

#endif
