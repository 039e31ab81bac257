/**
 * @file detect_race.h
 * Racing: lengths that can no longer be rank 1 are not run any further.
 */
#ifndef DPE_DETECT_RACE_H
#define DPE_DETECT_RACE_H

#include "detect/sweep/ranking.h"
#include "engine/base/base.h"
#include "eval/task/race.h"

/** Replay a race (eval/task/race.h) on the rows that are there: the arms are the cells of `scores`
 *  [n_groups · n_lengths], and the lengths of a group compete. `keep` is the index of a length that
 *  is never dropped (L0/2, which other groups need anyway; −1 = none). The caller frees *race with
 *  dpe_race_free. DPE_USAGE, DPE_NO_MEMORY. */
dpe_status dpe_detect_race_replay(const struct dpe_race_options *options,
                                  const struct dpe_detect_scores *scores, int n_groups,
                                  int n_lengths, int keep, enum dpe_detect_criterion criterion,
                                  struct dpe_race *race, struct dpe_error *err);
/** dpe_detect_rank with a race: the lengths that are left are ranked by their rows, those that were
 *  dropped follow, later ones first, then by mean. A group is informative also when its lengths
 *  differ on the samples that all of them have (p is the smaller of both, doubled). */
dpe_status dpe_detect_rank_race(const struct dpe_detect_scores *scores, const struct dpe_race *race,
                                int n_groups, const int64_t *lengths, int n_lengths,
                                enum dpe_detect_criterion criterion,
                                struct dpe_detect_ranking *ranking, struct dpe_error *err);

#endif
