/**
 * @file profile.h
 * The key-pair profile that dpe-norms writes: which pairs of each head contribute most.
 */
#ifndef DPE_PROFILE_H
#define DPE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/base.h"

/** The model that a profile has to be of. */
struct dpe_profile_model {
    const char *fingerprint; /**< as dpe_model_fingerprint; NULL: not compared */
    int64_t n_layers, n_heads, n_pairs;
};

/** A profile in memory; the arrays are owned. */
struct dpe_profile {
    uint16_t *ranking; /**< [n_layers][n_heads][n_pairs] pairs by falling contribution; each row is
                            an order of all pairs */
    char *identity;    /**< of the table, SHA-256 in hex */
    float *scores;     /**< [score_dims] /norms/contribution; NULL when not asked for */
    int64_t score_dims[5]; /**< lengths, samples, layers, heads, pairs */
};

/** Read the profile in the table `path`, which must be complete and of `model`; with `scores` the
 *  contributions as well. Free with dpe_profile_free, also after a failure. Errors name the file.
 *  As dpe_h5_open and dpe_h5_get; DPE_BAD_DATA when it is not a profile, is not complete, or is of
 *  another model. */
dpe_status dpe_profile_read(const char *path, const struct dpe_profile_model *model, bool scores,
                            struct dpe_profile *profile, struct dpe_error *err);
void dpe_profile_free(struct dpe_profile *profile);

#endif
