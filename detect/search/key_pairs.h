/**
 * @file key_pairs.h
 * How many key pairs of a head move: all, unless fewer are shown to lose next to nothing.
 */
#ifndef DPE_DETECT_KEY_PAIRS_H
#define DPE_DETECT_KEY_PAIRS_H

#include "detect/search/ranking.h"

enum { DPE_DETECT_CANDIDATES = 5 };
/** What a smaller number of key pairs must be shown to keep of the best one's recall. */
#define DPE_DETECT_KEPT 0.97
/** Nats a token that it may lose of perplexity. */
#define DPE_DETECT_NATS 0.01

/** The numbers of key pairs that are tried: 1/2, 5/8, 3/4, 7/8 and all of a head's pairs, in whole
 *  pairs and once each, ascending. Returns how many. */
int dpe_detect_top_k_candidates(int64_t n_pairs, int64_t k[DPE_DETECT_CANDIDATES]);

/** What is known of one number of key pairs. */
struct dpe_detect_candidate {
    int64_t k;
    int64_t n_valid; /**< samples with a value */
    bool compared;   /**< as many as half of the fullest candidate's */
    double mean;     /**< recall, or nats a token, over the samples of all compared candidates, each
                          context's mean weighing the same; NaN */
    double loss;     /**< of recall, or nats a token (`against`); NaN for that one itself */
    double at_most;  /**< its one-sided 95 % bound; NaN: cannot be had */
};

/** Which number of key pairs was chosen, and why. */
struct dpe_detect_top_k {
    int n;
    struct dpe_detect_candidate candidates[DPE_DETECT_CANDIDATES];
    enum dpe_detect_criterion criterion;
    int64_t n_contexts; /**< with a sample that is valid under every compared candidate */
    int chosen;         /**< index into candidates */
    int against;        /**< what `loss` is against: the best of the chosen one and all above it */
    double margin;      /**< what at_most of a chosen candidate may be */
};
/** Choose among k [n] ascending (n ≤ DPE_DETECT_CANDIDATES) by values [n][n_samples] of the same
 *  samples, recall or nats a token, NaN where there is none; `together` in a row share a context
 * and are one, their mean. From the largest downwards a smaller number is taken as long as its loss
 *  against the best of those above it, paired by context, is at most `margin` with 95 % confidence:
 *  3 % of that one's recall, or 0.01 nats; the first that fails, or has too few valid samples, ends
 *  it. So few samples, or none that finds anything, give the largest. The bound is Student's; of
 *  recall it counts two more contexts, one without a difference, one with half of the largest there
 *  can be in each direction. DPE_NONFINITE when no sample is valid under all that are compared,
 *  DPE_INTERNAL for lists that are none, DPE_NO_MEMORY. */
dpe_status dpe_detect_choose_top_k(const int64_t *k, const double *values, int n, int64_t n_samples,
                                   int64_t together, enum dpe_detect_criterion criterion,
                                   struct dpe_detect_top_k *out, struct dpe_error *err);

#endif
