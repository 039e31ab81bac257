/**
 * @file race.h
 * Racing: lengths that can no longer be rank 1 are not run any further.
 */
#ifndef DPE_DETECT_RACE_H
#define DPE_DETECT_RACE_H

#include "detect/sweep/ranking.h"
#include "engine/base/base.h"

/** Dropping lengths that can no longer be rank 1, after every round of samples. */
struct dpe_detect_race_options {
    int64_t per_round;   /**< samples of a round, ≥ 1 */
    double level;        /**< of the test that drops a length, in (0, 0.5) */
    double indifference; /**< a length is dropped once it is not better by this much or more than
                              the best one (recall, or nats per token), ≥ 0 */
};
/** A length that was dropped. */
struct dpe_detect_drop {
    int group, length, leader; /**< indices of lengths */
    int64_t samples;           /**< that both had been run on */
    double difference;         /**< leader − length, mean over pairs, > 0 = leader better */
    double p;                  /**< one-sided, of: it is better than the leader by `indifference` */
};
/** What a race has decided. Arrays owned; free with dpe_detect_race_free. */
struct dpe_detect_race {
    struct dpe_detect_race_options options;
    int n_groups, n_lengths;
    int64_t samples;  /**< rows that every live length has */
    int64_t *dropped; /**< [g][t] samples after which it was dropped, −1 = live */
    bool complete;    /**< no live length lacks a row */
    int n_drops;
    struct dpe_detect_drop *drops; /**< in the order of the decisions */
};
/** Replay a race on the rows that are there (scores [n_groups · n_lengths cells]): after each round
 *  but the last every live length of a group is compared with the best live one (mean over its
 *  valid rows, ties to the larger) by a paired one-sided sign-flip test on the samples so far
 *  (those of one context are one), and dropped when p < level. `keep` is the index of a length that
 *  is never dropped (L0/2, which other groups need anyway; −1 = none). Ends where a live length
 *  lacks a row of a round, with complete = false; samples is then where that round begins.
 *  Deterministic: the same rows, the same race. */
dpe_status dpe_detect_race_replay(const struct dpe_detect_race_options *options,
                                  const struct dpe_detect_scores *scores, int n_groups,
                                  int n_lengths, int keep, enum dpe_detect_criterion criterion,
                                  struct dpe_detect_race *race, struct dpe_error *err);
void dpe_detect_race_free(struct dpe_detect_race *race);
/** dpe_detect_rank with a race: the lengths that are left are ranked by their rows, those that were
 *  dropped follow, later ones first, then by mean. A group is informative also when its lengths
 *  differ on the samples that all of them have (p is the smaller of both, doubled). */
dpe_status dpe_detect_rank_race(const struct dpe_detect_scores *scores,
                                const struct dpe_detect_race *race, const int64_t *lengths,
                                enum dpe_detect_criterion criterion,
                                struct dpe_detect_ranking *ranking, struct dpe_error *err);

#endif
