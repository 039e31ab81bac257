/**
 * @file ablation.h
 * What a detection found, varied one thing at a time. Used inside eval/ and by dpe-eval.
 */
#ifndef DPE_ABLATION_H
#define DPE_ABLATION_H

#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"

enum dpe_ablation_what {
    DPE_ABLATE_RANK,          /**< every group at its n-th best length */
    DPE_ABLATE_TOP_K,         /**< only the k pairs of each head that contribute most are moved */
    DPE_ABLATE_LAST_K,        /**< only the k pairs that contribute least */
    DPE_ABLATE_WINDOW,        /**< the near window */
    DPE_ABLATE_SCALED_LENGTH, /**< all groups at one length; with a profile, of k pairs each */
};
/** The one named "rank", "top-k", …, or -1. */
int dpe_ablation_find(const char *name);

/** A detection (and a profile of key pairs) in memory. Owned arrays. */
struct dpe_ablation_source {
    int64_t trained_length, length, window; /**< L0, L, w: tokens */
    int n_groups, n_lengths;
    int64_t n_layers, n_heads, n_pairs;
    struct dpe_temperature temperature; /**< of the detection: that of every step but rope */
    int32_t *edges;                     /**< [n_groups + 1] */
    int64_t *lengths;                   /**< [n_lengths], tokens, ascending */
    int32_t *rank;                      /**< [n_groups][n_lengths], 1 = best, −1 = no rank */
    double *scale;                      /**< [n_groups] of the joint plan */
    uint8_t *mask;     /**< [layers][heads][pairs] of the detection, NULL = all pairs */
    uint16_t *ranking; /**< [layers][heads][pairs] pairs by falling contribution, NULL = unknown */
    char fingerprint[65]; /**< of the model it was measured on */
};

/** One plan of an ablation. Owned arrays, NULL for the model as it is. */
struct dpe_ablation_step {
    char label[64];   /**< "rank 2", "top-k 8", "window 32", "rope", "base" */
    const char *axis; /**< "rope", "base" or the name of what is varied */
    double value;     /**< n, k or tokens; NaN for rope and base */
    int64_t k;        /**< pairs of each head that move, −1 = all, or those of the detection */
    int64_t window;   /**< tokens */
    double *scale;    /**< [n_groups] */
    uint8_t *mask;    /**< NULL = all pairs */
};

/** The steps of an ablation: rope and base (every group at half the trained length) first. */
struct dpe_ablation {
    enum dpe_ablation_what what;
    struct dpe_ablation_source source;
    struct dpe_ablation_step *steps; /**< [n_steps] */
    int n_steps;
};

/** Read a finished detection of dpe-detect, and its profile of key pairs: `norms`, else the
 *  detection's own if it holds one. `norms` may be NULL. Errors name the file: DPE_NO_INPUT,
 *  DPE_BAD_DATA (no detection, not complete, damaged, another model's profile), DPE_NO_MEMORY.
 *  Zero-initialise `source`; free it with the ablation. */
dpe_status dpe_ablation_read(const char *table, const char *norms,
                             struct dpe_ablation_source *source, struct dpe_error *err);
/** Make the steps of what is in ablation->source. `values` [n_values] choose the steps (ranks, ks,
 *  windows or scaled lengths), n_values = 0 takes the usual ones: all ranks; k in eighths of the
 *  pairs, from 0 on; windows L0/32 … L0/2; scaled lengths L0/4, L0/2 and L0, as in the paper, each
 *  with every k when the profile is known. DPE_USAGE: values that make no sense, a profile that is
 *  needed and not there. */
dpe_status dpe_ablation_make(struct dpe_ablation *ablation, enum dpe_ablation_what what,
                             const double *values, int n_values, struct dpe_error *err);
/** The step's plan in a context. */
dpe_status dpe_ablation_plan(const struct dpe_ablation *ablation,
                             const struct dpe_ablation_step *step,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
void dpe_ablation_free(struct dpe_ablation *ablation);

#endif
