/**
 * @file sample.h
 * From logits to the next token.
 */
#ifndef DPE_SAMPLE_H
#define DPE_SAMPLE_H

#include "engine/base/base.h"
#include "engine/ops/ops_head.h" /* the likeliest one, and the sum for probabilities */

/** How tokens are drawn. */
struct dpe_sampling {
    double temperature; /**< divides the logits; 0: the likeliest token, always */
    double top_p; /**< drawn from the fewest likeliest tokens with this share, 0 < top_p ≤ 1 */
    struct dpe_rng *rng; /**< borrowed, advanced by every draw */
};

/** A token drawn from `vocab` ≥ 1 finite logits. −1: out of memory. */
int32_t dpe_sample(const float *logits, int64_t vocab, const struct dpe_sampling *sampling);

#endif
