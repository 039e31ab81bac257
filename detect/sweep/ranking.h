/**
 * @file ranking.h
 * From rows to scores, from scores to ranks, and what validation shows of the joint plan.
 */
#ifndef DPE_DETECT_RANKING_H
#define DPE_DETECT_RANKING_H

#include "detect/sweep/grid.h"
#include "engine/base/base.h"
#include "eval/task/stats.h"
#include "outputs/run/run.h"

/* ------------------------------------------------------------------------------- rows to scores */

/** Rows of one task laid out as [cells][samples]; what was not run is NaN, −1, and status −1. */
struct dpe_detect_scores {
    int n_cells;
    int64_t n_samples;
    int64_t together;               /**< samples in a row that share a context, ≥ 1 */
    int32_t *status;                /**< enum dpe_row_status, −1 = not run */
    double *recall, *at_least_half; /**< NIAH; recall: share of steps where the score is by steps */
    double *margin;                 /**< of steps, 0 … 1; NaN without */
    double *nll_sum;                /**< nats */
    int64_t *n_tokens, *n_words;    /**< scored */
    int64_t *prompt_tokens, *new_tokens; /**< of the sample, generated */
    uint64_t *seed;                      /**< of the sample; 0 = not run */
    double *seconds;                     /**< wall time */
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
/** What a row measured: recall, or nats per token; NaN when it is not valid. Tests and intervals
 * are of it. */
double dpe_detect_value(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                        size_t at);
/** What a choice goes by, larger = better: the same, and a millionth of the margin of a score by
 * steps, which breaks ties. */
double dpe_detect_goodness(const struct dpe_detect_scores *scores,
                           enum dpe_detect_criterion criterion, size_t at);

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

/* ---------------------------------------------------------------------------------------- race */

/** Replay a race (eval/task/stats.h) on the rows that are there: the arms are the cells of `scores`
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

/* ---------------------------------------------------------------------------------- validation */

enum {
    DPE_DETECT_ROPE,
    DPE_DETECT_BASE,
    DPE_DETECT_JOINT,
    DPE_DETECT_N_VALIDATED,                     /**< that every validation has */
    DPE_DETECT_SINGLE = DPE_DETECT_N_VALIDATED, /**< of a search: one length for all groups */
    DPE_DETECT_MOST_VALIDATED = 16,             /**< with those of --against */
    DPE_DETECT_PLAN_NAME = 256,                 /**< bytes of a name, with its NUL */
};

/** Names of the first three: "rope", "base", "joint". */
extern const char *const dpe_detect_validated_names[DPE_DETECT_N_VALIDATED];

/** Of one plan against another. Better and worse are shown by both the paired 95 % interval, which
 *  does not hold 0, and a sign-flip test with p < 0.05. */
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

/** What validation on other samples shows. Differences are of recall, or of nats per token (then
 *  negative is better), with 95 % intervals and p of dpe_compare. */
struct dpe_detect_validation {
    enum dpe_detect_criterion criterion;
    int n_plans;
    struct dpe_interval value[DPE_DETECT_MOST_VALIDATED];   /**< recall or perplexity, 95 % */
    struct dpe_difference minus[DPE_DETECT_MOST_VALIDATED]; /**< joint − plan */
    enum dpe_detect_verdict verdict;                        /**< joint against the base */
    int64_t needed; /**< indistinct: samples of which four in five sets would show a difference as
                         large as the measured one; 0 = unknown, or no difference was measured */
    bool too_easy;  /**< base and joint find every needle: lengths cannot be compared */
    int kept; /**< the joint plan, or the best of those that a table can hold and that do better by
                 more than the standard error of the difference */
    struct dpe_difference kept_minus[DPE_DETECT_MOST_VALIDATED]; /**< kept − plan */
    int64_t kept_needed[DPE_DETECT_MOST_VALIDATED]; /**< as `needed`, of kept and plan */
};
/** scores: the first three plans in the order above, then others, at most
 * DPE_DETECT_MOST_VALIDATED. `keys` of the plans: those with one key are the same plan; NULL: all
 * differ. Of the plans those with `tables` may be kept; NULL: the joint plan is, whatever is
 * shown. */
dpe_status dpe_detect_validate(const struct dpe_detect_scores *scores, const char *const *keys,
                               enum dpe_detect_criterion criterion, const bool *tables,
                               struct dpe_detect_validation *validation, struct dpe_error *err);

/** The same validation with another plan kept: kept_minus and kept_needed are computed again. */
dpe_status dpe_detect_validate_keep(const struct dpe_detect_scores *scores, const char *const *keys,
                                    int kept, struct dpe_detect_validation *validation,
                                    struct dpe_error *err);
/** Whether two validations of the same plans, on two tasks, order them otherwise beyond noise: one
 * shows the joint plan to be better than some plan, and the other shows it to be worse, each with
 * p times the number of plans (Bonferroni) below 0.05. */
bool dpe_detect_disagree(const struct dpe_detect_validation *a,
                         const struct dpe_detect_validation *b);
/** The plan that two validations of the same plans keep, both of recall and each counting the same:
 * the joint one, or of those with `tables` the one that finds most on both, by more than the
 * standard error of its gain. Where the tasks disagree the user's decides. */
int dpe_detect_kept_by_both(const struct dpe_detect_validation *search,
                            const struct dpe_detect_validation *user, const bool *tables);

/* --------------------------------------------------------------------------------------- guard */

/** Nats per token of texts under each plan: *nll [n_cells]. NaN for a plan under which fewer texts
 * are valid than under another: a mean of other texts says nothing. */
void dpe_detect_texts(const struct dpe_detect_scores *texts, double *nll);
/** Of n plans the one with the largest value among those whose nats per token are at most ln(1 +
 * share) above the least; −1: none has any. NaN: not known. */
int dpe_detect_guarded(const double *value, const double *nll, int n, double share);
/** Needles alone choose plans that predict badly: what a guard on perplexity makes of a choice. */
struct dpe_detect_guard {
    int chosen; /**< by needles */
    int kept;   /**< with the guard */
    int best;   /**< plan with the least perplexity; −1: no plan has one, and the guard is off */
    int found;  /**< where `traded`: of the plans within the guard the one that finds most; −1: no
                   table  can hold one */
    double loss; /**< perplexity of the kept plan over that of the best − 1 */
    bool traded; /**< the kept plan loses more than the share, because it is shown to find more */
};
/** The plan to keep in place of `kept`, so that none of those with `tables` finds at least as much
 * (the mean of both tasks, where there are two) and predicts texts better: of such plans the one
 * that finds most, or `kept`. */
int dpe_detect_undominated(const struct dpe_detect_validation *const needles[2],
                           const struct dpe_detect_validation *texts, const bool *tables, int kept);
/** needles: validations of the same plans on needles, with `chosen` kept
 * (dpe_detect_validate_keep): on the search's task, which orders plans, and on the user's, NULL:
 * that is the search's. `texts`: their perplexity. A plan is within the guard if its perplexity is
 * at most 1 + share times the least of all plans. If the chosen plan is not, the plan within it
 * that finds most and that a table can hold takes its place, unless the chosen one is shown, on the
 * user's task, to find more than each of them: then it stays, and has traded perplexity for
 * needles. */
struct dpe_detect_guard dpe_detect_guard(const struct dpe_detect_validation *const needles[2],
                                         const struct dpe_detect_validation *texts,
                                         const bool *tables, double share);

/* --------------------------------------------------------------------------------------- ready */

/* Methods that are ready are raced by point estimates, because the choice of one needs no proof:
 * all of them read the first context, the better half of three or more also the second, two the
 * rest. The plan of DPE rests on more samples than these: a search ended with it, or most searches
 * end there. So it is never dropped, and another plan is kept only if it finds
 * DPE_DETECT_READY_CLEAR more. Of two contexts the second is not read where the plan of DPE (where
 * there is none, the best) leads the next plan by DPE_DETECT_READY_CLEAR after the first. */
#define DPE_DETECT_READY_CLEAR 0.1

/** How many of so many plans read context 0 … contexts − 1. */
int dpe_detect_ready_left(int plans, int64_t context, int64_t contexts);
/** After the contexts in `scores`, a cell for each plan: live[i] becomes 0 for those that do not
 * read the next one, and all where the choice is clear; ties stay with the earlier plan. `own`: the
 * plan of DPE, 0: there is none. */
void dpe_detect_ready_race(const struct dpe_detect_scores *scores, int64_t contexts, int own,
                           unsigned char *live);
/** Whether the plan has nearly as many valid rows as any: it was not dropped. */
bool dpe_detect_in_final(const struct dpe_detect_validation *validation, int plan);
/** Which plan the table holds: of those with `tables` in the final the best, but `own` (0: there is
 * none) unless the best finds DPE_DETECT_READY_CLEAR more; the joint plan where there is none. */
int dpe_detect_ready_kept(const struct dpe_detect_validation *validation, const bool *tables,
                          int own);

/** Recall of the easiest needles that the unchanged model has in its trained length below which
 * needles say little of it. */
#define DPE_DETECT_LOW_CEILING 0.25
/** What follows from methods that are ready. */
struct dpe_detect_advice {
    enum {
        DPE_DETECT_ADVICE_NOTHING,   /**< the model as it is finds what is possible */
        DPE_DETECT_ADVICE_TAKE,      /**< a method does */
        DPE_DETECT_ADVICE_CALIBRATE, /**< none does */
        DPE_DETECT_ADVICE_TASK,      /**< hardly anything is possible: needles say little */
    } what;
    int plan;    /**< of the validated plans: the one to take, or the base */
    double gain; /**< recall between it and what is possible, ≥ 0 */
};
/** From recalls of rope, the base, the joint plan, and methods: the plan that is kept, unless
 * another finds DPE_DETECT_READY_CLEAR more. Recalls within 0.05 of what is possible are possible;
 * a ceiling below DPE_DETECT_LOW_CEILING is low, ->n 0: all is possible. */
struct dpe_detect_advice dpe_detect_advise(const struct dpe_detect_validation *validation,
                                           const struct dpe_interval *ceiling);

#endif
