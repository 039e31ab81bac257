/**
 * @file race.h
 * Racing: what can no longer be the best of its group is not run any further.
 */
#ifndef DPE_RACE_H
#define DPE_RACE_H

#include "engine/base/base.h"

struct dpe_race_options {
    int64_t per_round;   /**< samples of a round, ≥ 1 */
    double level;        /**< of the test that drops an arm, in (0, 0.5) */
    double indifference; /**< an arm is dropped once it is not better by this much or more than the
                              best one of its group (in units of the score), ≥ 0 */
    int64_t most_rows;   /**< > 0: the race ends before a round that would need more rows than these
                              in all, and when one arm of every group is left; 0: it runs all
                              samples */
};

/** The rows of a race. An arm is what is run on the samples 0, 1, …; arms of a group compete. */
struct dpe_race_rows {
    int n_arms, n_groups;
    const int *group;           /**< [n_arms] */
    const unsigned char *keep;  /**< [n_arms] 1 = never dropped; NULL: none is kept */
    int64_t n_samples;          /**< of every arm, at most */
    int64_t together;           /**< samples in a row that belong together, ≥ 1 */
    const unsigned char *there; /**< [arm][sample] the row exists */
    const double *goodness;     /**< [arm][sample] larger = better; NaN: not valid */
};

/** An arm that was dropped. */
struct dpe_race_drop {
    int arm, leader;
    int64_t samples;   /**< that both had been run on */
    double difference; /**< leader − arm, mean over pairs, > 0 = leader better */
    double p;          /**< one-sided, of: it is better than the leader by `indifference` */
};

/** What a race has decided. Arrays owned; free with dpe_race_free. */
struct dpe_race {
    int64_t samples;  /**< rows that every live arm has */
    int64_t *dropped; /**< [arm] samples after which it was dropped, −1 = live */
    bool complete;    /**< no live arm lacks a row that the race needs */
    int n_drops;
    struct dpe_race_drop *drops; /**< in the order of the decisions */
};

/** Replay a race on the rows that are there: after each round but the last every live arm of a
 *  group is compared with the best live one (mean over its valid rows, ties to the larger index)
 *  by a paired one-sided sign-flip test on the samples so far (those that belong together are one),
 *  and dropped when p < level. Ends where a live arm lacks a row of a round, with complete = false;
 *  samples is then where that round begins. The same rows, the same race. DPE_USAGE, DPE_NO_MEMORY.
 */
dpe_status dpe_race_replay(const struct dpe_race_options *options, const struct dpe_race_rows *rows,
                           struct dpe_race *race, struct dpe_error *err);
/** Mean of an arm's valid rows among its first n; −INFINITY when there are none. */
double dpe_race_mean(const struct dpe_race_rows *rows, int arm, int64_t n);
void dpe_race_free(struct dpe_race *race);

#endif
