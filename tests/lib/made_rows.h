/**
 * @file made_rows.h
 * A world in which it is known which plan is best, for the tools' own main: see made_rows.c.
 */
#ifndef DPE_MADE_ROWS_H
#define DPE_MADE_ROWS_H

#include "engine/plan/plan.h"

/** In it the key that is farthest away is found best where the pairs of the first and of the second
 * half of a head see it at these distances; each factor of two costs a quarter of that pair's
 * share. A sample's own luck is the same under all plans: up to half of `noise` to either side. */
struct made_world {
    double best[2]; /**< tokens */
    double factor;  /**< on the logits of the last query; each factor of e costs all; 0: any */
    double noise;
    bool blind;      /**< needles of --length tokens are found by luck alone: only texts tell */
    int fails_after; /**< the n-th list of rows from here on is not made, as after a signal; 0: all
                        are */
};
extern struct made_world made_world;
/** Recall, 0 … 0.95, of needles in so many tokens under a plan. */
double made_quality(const struct dpe_plan *plan, int64_t tokens);

#endif
