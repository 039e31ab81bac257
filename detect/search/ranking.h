/**
 * @file ranking.h
 * From rows to scores, from scores to ranks, and what fresh samples show.
 */
#ifndef DPE_DETECT_RANKING_H
#define DPE_DETECT_RANKING_H

#include "detect/search/grid.h"
#include "engine/base/base.h"
#include "eval/task/stats.h"
#include "outputs/run/run.h"

/* ------------------------------------------------------------------------------- rows to scores */

/** Rows of one task laid out as [cells][samples]; what was not run is NaN, −1, and status −1. */
struct dpe_detect_scores {
    int n_cells;
    int64_t n_samples;
    int64_t together;                    /**< samples in a row that share a context, ≥ 1 */
    int32_t *status;                     /**< enum dpe_row_status, −1 = not run */
    double *recall, *at_least_half;      /**< NIAH */
    double *nll_sum, *nats;              /**< nats; of a token */
    int64_t *n_tokens, *n_words;         /**< scored */
    int64_t *prompt_tokens, *new_tokens; /**< of the sample, generated */
    uint64_t *seed;                      /**< of the sample; 0 = not run */
};
/** Look up the rows (task, key of each cell, first_sample …) in `run`. Seeds are copied as they
 *  are. `keys` [n_cells]; `together` as the task's. The caller frees with dpe_detect_scores_free.
 */
dpe_status dpe_detect_collect(const struct dpe_run *run, const char *task, const char *const *keys,
                              int n_cells, int64_t first_sample, int64_t n_samples,
                              int64_t together, struct dpe_detect_scores *scores,
                              struct dpe_error *err);
/** The same for given dimensions with nothing run and no context shared, for filling by hand. */
dpe_status dpe_detect_scores_init(struct dpe_detect_scores *scores, int n_cells, int64_t n_samples,
                                  struct dpe_error *err);
void dpe_detect_scores_free(struct dpe_detect_scores *scores);

/* ------------------------------------------------------------------------------------- ranking */

enum dpe_detect_criterion {
    DPE_DETECT_RECALL,     /**< higher is better */
    DPE_DETECT_PERPLEXITY, /**< lower is better */
};
/** What the rows of a cell measured, [n_samples]: recall, or nats per token; NaN where it is not
 * valid. */
const double *dpe_detect_values(const struct dpe_detect_scores *scores,
                                enum dpe_detect_criterion criterion, int cell);

/** What follows from the scores. Arrays owned; free with dpe_detect_ranking_free. */
struct dpe_detect_ranking {
    enum dpe_detect_criterion criterion;
    int n_groups, n_lengths;
    double *mean, *low, *high; /**< [g][t] recall (bootstrap) or perplexity (jackknife), 95 % */
    int64_t *n_valid;          /**< [g][t] valid rows */
    int32_t *rank;             /**< [g][t] 1 = best, −1 = no rank */
    int64_t *effective;        /**< [g] length of rank 1, −1 = none */
    double *p_value;           /**< [g] of "the lengths do not differ", NaN = none ranked */
    uint8_t *informative;      /**< [g] 1 when p < 0.05 */
};

/** Rank scores [n_groups · n_lengths cells][samples] of a grid with these detecting lengths.
 *  Within a group the lengths are compared on the samples that are valid under each of them; a
 *  length with less than half as many valid rows as the group's fullest gets no rank. Better mean
 *  first, ties to the larger length; means of recall that differ by less than 1e-9 are ties. A
 *  group without valid rows gets no rank. Deterministic. */
dpe_status dpe_detect_rank(const struct dpe_detect_scores *scores, int n_groups,
                           const int64_t *lengths, int n_lengths,
                           enum dpe_detect_criterion criterion, struct dpe_detect_ranking *ranking,
                           struct dpe_error *err);
void dpe_detect_ranking_free(struct dpe_detect_ranking *ranking);
/** Index of the length of a group with this rank; −1: none. */
int dpe_detect_ranked(const struct dpe_detect_ranking *ranking, int group, int rank);

/** What some cells have in common: their values on the samples that are valid under each of them.
 */
struct dpe_detect_common {
    int n_cells;       /**< ≤ DPE_DETECT_MAX_LENGTHS */
    int64_t n_samples; /**< in common */
    double *values;    /**< [n_cells][n_samples] as dpe_detect_value, without NaN */
    int64_t *sample;   /**< [n_samples] which they are, ascending */
    int64_t together;  /**< as the scores' */
};
/** p-value of "these cells (the lengths of a group) do not differ": the statistic is best mean −
 *  worst mean, its null distribution comes from permuting each context's values among the cells
 *  (`rounds` times, +1 rule). Because best and worst are chosen again in every permutation, having
 *  picked them after looking is accounted for. 1 when all values of every sample are equal. */
double dpe_detect_spread(const struct dpe_detect_common *common, int rounds, uint64_t seed);

/** Mean recall with its bootstrap interval, or perplexity with its jackknife, 95 %, of a cell. */
struct dpe_interval dpe_detect_interval(const struct dpe_detect_scores *scores, int cell,
                                        enum dpe_detect_criterion criterion);

/* ---------------------------------------------------------------------------------- comparison */

/** Values that differ by less are equal. */
#define DPE_DETECT_TIE 1e-9

/** Cell a − cell b of the same samples, of recall or of nats per token, into *difference. Returns
 * the pairs of valid values. */
int64_t dpe_detect_difference(const struct dpe_detect_scores *scores,
                              enum dpe_detect_criterion criterion, int a, int b,
                              const struct dpe_resampling *how, struct dpe_difference *difference);
/** Nats per token of texts under each plan: *nll [n_cells]. NaN for a plan under which fewer texts
 * are valid than under another: a mean of other texts says nothing. */
void dpe_detect_texts(const struct dpe_detect_scores *texts, double *nll);

enum {
    DPE_DETECT_ROPE,               /**< the first of every validation: the model as it is */
    DPE_DETECT_MOST_VALIDATED = 6, /**< unchanged, chosen, plain, formula, and two of a sweep */
    DPE_DETECT_PLAN_NAME = 512,    /**< bytes of a name, with its NUL */
};

/** Of one plan against another. Better and worse are shown by both the paired 95 % interval, which
 *  does not hold 0, and a test with p < 0.05. */
enum dpe_detect_verdict {
    DPE_DETECT_BETTER,
    DPE_DETECT_INDISTINCT, /**< these samples do not show a difference */
    DPE_DETECT_WORSE,
    DPE_DETECT_UNKNOWN, /**< no pair of valid rows */
};
/** Of the plan that `gain` is the gain of: of recall, or of nats per token (then negative is
 *  better). */
enum dpe_detect_verdict dpe_detect_judge(const struct dpe_difference *gain,
                                         enum dpe_detect_criterion criterion);

/** What fresh samples show of the kept plan and of others. Differences are of recall, or of nats
 * per token (then negative is better), with 95 % intervals and p of dpe_compare. */
struct dpe_detect_validation {
    enum dpe_detect_criterion criterion;
    int n_plans;
    struct dpe_interval value[DPE_DETECT_MOST_VALIDATED]; /**< recall or perplexity, 95 % */
    int kept;
    struct dpe_difference minus[DPE_DETECT_MOST_VALIDATED]; /**< kept − plan */
    int64_t needed[DPE_DETECT_MOST_VALIDATED]; /**< where neither is shown to be better: samples of
                         which four in five sets would show a difference as large as the measured
                         one; 0 = unknown, or no difference was measured */
};
/** Plans with one key are the same plan. */
void dpe_detect_validate(const struct dpe_detect_scores *scores, const char *const *keys,
                         enum dpe_detect_criterion criterion, int kept,
                         struct dpe_detect_validation *validation);

/** Recall of the easiest needles that the unchanged model has in its trained length below which
 * needles say little of it. */
#define DPE_DETECT_LOW_CEILING 0.25

#endif
