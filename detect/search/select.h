/**
 * @file select.h
 * Selection: which length each group of the joint plan gets, where the sweep of a longer length
 * begins, and how many key pairs move.
 */
#ifndef DPE_DETECT_SELECT_H
#define DPE_DETECT_SELECT_H

#include "detect/sweep/grid.h"
#include "detect/sweep/ranking.h"
#include "engine/base/base.h"
#include "engine/plan/plan.h"

/** How the joint plan's lengths are chosen. The paper takes each group's best length on its own;
 *  flat groups are then chosen by noise, and groups that need each other are not seen together. */
enum dpe_detect_rule {
    DPE_DETECT_PAPER,   /**< rank 1 of each group */
    DPE_DETECT_GUARDED, /**< L0/2, except where a paired test shows that another length is better */
    DPE_DETECT_SEQUENTIAL, /**< group after group, those before it at their chosen lengths */
    DPE_DETECT_JOINTLY,    /**< the search of search.h */
    DPE_DETECT_READY,      /**< no sweep and no search: methods that are ready, in minutes */
    DPE_DETECT_BRIEF,      /**< these, and the best of a few plans of DPE: one step of a search */
};
/** Whether a rule sweeps the lengths of each group. */
static inline bool dpe_detect_sweeps(enum dpe_detect_rule rule)
{
    return rule < DPE_DETECT_READY;
}
/** "paper", "guarded", "sequential", "joint", "ready", "brief". */
extern const char *const dpe_detect_rule_names[]; /**< NULL ends them */

/** Level of the tests of the guarded rule. */
#define DPE_DETECT_GUARD_LEVEL 0.05

/** One choice among the lengths of a group, on the same samples. */
struct dpe_detect_choice {
    int group, round;
    int from, to;                        /**< indices of lengths: what it had, what it gets */
    double gain[DPE_DETECT_MAX_LENGTHS]; /**< mean paired improvement over `from` (of recall, or of
                                              nats per token), > 0 = better; NaN = no pair */
    double p[DPE_DETECT_MAX_LENGTHS];    /**< two-sided sign-flip test of no difference, times the
                                              lengths compared (Bonferroni), at most 1 */
    char keys[DPE_DETECT_MAX_LENGTHS][33]; /**< row keys of the configurations compared */
};
/** Choose among cells first … first + n_lengths − 1 of scores: the length with the largest gain
 *  over `from` whose p is below `level`; ties (gains within 1e-9) go to the larger length, and no
 *  positive gain means `from` stays. level ≥ 1: no test. A length with less than half as many
 *  pairs as the fullest is not chosen. Fills all but group, round and keys. DPE_NO_MEMORY. */
dpe_status dpe_detect_choose(const struct dpe_detect_scores *scores,
                             enum dpe_detect_criterion criterion, int first, int n_lengths,
                             int from, double level, struct dpe_detect_choice *choice,
                             struct dpe_error *err);

/** What a rule selected, and on what grounds. Arrays owned; free with dpe_detect_selection_free. */
struct dpe_detect_selection {
    enum dpe_detect_rule rule;
    int rounds; /**< sequential: at most */
    int n_groups;
    int base;   /**< index of L0/2 among the lengths, −1 when it is not among them (paper) */
    int *at;    /**< [n_groups] index of the length of each group, −1 = none (paper) */
    int *order; /**< [n_groups] sequential: groups as they were taken */
    int n_choices;
    struct dpe_detect_choice *choices; /**< guarded: one per group; sequential: one per step */
    bool complete;                     /**< sequential: every row it needs was there */
};
void dpe_detect_selection_free(struct dpe_detect_selection *selection);

/** The lengths of a point that a search has, as a selection. */
dpe_status dpe_detect_select_point(const struct dpe_detect_params *params, const int16_t *at,
                                   struct dpe_detect_selection *selection, struct dpe_error *err);

/** Rank 1 of each group. */
dpe_status dpe_detect_select_paper(const struct dpe_detect_params *params,
                                   const struct dpe_detect_ranking *ranking,
                                   struct dpe_detect_selection *selection, struct dpe_error *err);
/** dpe_detect_choose for each group of a sweep's scores [n_groups · n_lengths cells], from L0/2,
 *  at DPE_DETECT_GUARD_LEVEL. DPE_USAGE when L0/2 is not among the lengths. */
dpe_status dpe_detect_select_guarded(const struct dpe_detect_params *params,
                                     const struct dpe_detect_scores *scores,
                                     enum dpe_detect_criterion criterion,
                                     struct dpe_detect_selection *selection, struct dpe_error *err);

/** Where the sequential rule gets the scores of a step: group `group` at each length, group i at
 *  length at[i] otherwise. Fills *scores ([n_lengths] cells; freed by the caller) and the keys, or
 *  sets *complete to false when rows are missing. */
struct dpe_detect_steps {
    void *user;
    dpe_status (*scores)(void *user, const int *at, int group, struct dpe_detect_scores *scores,
                         char (*keys)[33], bool *complete, struct dpe_error *err);
};
/** Coordinate ascent. The groups are ordered by how much their lengths differ in the sweep (best
 *  mean − worst mean, largest first, ties to the lower group; groups without a rank last). All
 *  begin at L0/2; each in turn gets the length with the best mean given the lengths that all others
 *  have at that time; one that is not better than the one it has stays away. Then the next round,
 *  until `rounds` are done or one has changed nothing. With scores missing the selection ends
 *  there, with complete = false. The first step needs no rows but the sweep's. DPE_USAGE when L0/2
 *  is not among the lengths. */
dpe_status dpe_detect_select_sequential(const struct dpe_detect_params *params,
                                        const struct dpe_detect_ranking *ranking, int rounds,
                                        const struct dpe_detect_steps *steps,
                                        struct dpe_detect_selection *selection,
                                        struct dpe_error *err);

/** The group of the step that an incomplete selection waits for. */
int dpe_detect_pending_group(const struct dpe_detect_selection *selection);

/** Scales of the joint plan of a selection. Paper: dpe_detect_joint_scale of rank 1. Else a group
 *  at L0/2 keeps exactly the scale it had during detection, others get max(1, L / length).
 *  scale [n_groups]. */
void dpe_detect_selected_scales(const struct dpe_detect_params *params,
                                const struct dpe_detect_selection *selection, double *scale);

/* -------------------------------------------------------------- the sweep of a longer length */

/** What the shorter sweep found. Borrowed. */
struct dpe_detect_shorter {
    int64_t length;         /**< that it is for */
    int64_t trained;        /**< L0 */
    const int64_t *chosen;  /**< [n_groups] lengths, −1: none */
    const uint8_t *informs; /**< [n_groups] the group's lengths differ beyond noise */
    int64_t n_groups;
    struct dpe_temperature temperature; /**< of its table */
};
/** The detecting lengths that a sweep for `length` tokens tries: of `auto` (the length and its
 * halves, down to 1/128 of it and to the window) the length itself, those from L0/2 to L0, those
 * nearest to what the shorter sweep chose, and those within a factor of two of what it chose for a
 * group whose lengths differ beyond noise. To `text` as
 *  --lengths takes them; "" where that leaves fewer than two, which are not limited then. */
void dpe_detect_start_lengths(const struct dpe_detect_shorter *shorter, int64_t length,
                              int64_t window, char *text, size_t size);
/** "auto:K=V,…", a search around its temperature, as --temperature takes it; "" where it has none.
 */
void dpe_detect_start_temperature(const struct dpe_detect_shorter *shorter,
                                  char text[DPE_TEMPERATURE_TEXT + 8]);

/* ------------------------------------------------------------------------------------ key pairs */

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
