/**
 * @file detect.h
 * The sweep: which length suits which frequency group.
 *
 * A *cell* is (group, detecting length): the group's pairs move with scale s = L/t, every other
 * group sits at half the trained length, s = 2L/L0. Cells whose plans mean the same are one
 * *configuration*, run once. A sweep is the loop over configurations and samples; what comes out of
 * it are rows (outputs.h), and everything below is computed from rows, so a table can be rebuilt
 * from them at any time. Source of the definitions: the DPE paper's detection; docs of this folder.
 *
 * Nothing here keeps state between calls and nothing prints. Arrays named [g][t] are row-major.
 */
#ifndef DPE_DETECT_H
#define DPE_DETECT_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/stats.h"
#include "outputs/h5/h5.h"
#include "outputs/run/run.h"

/* --------------------------------------------------------------------------------- cells, plans */

enum { DPE_DETECT_MAX_LENGTHS = 64 };

/** What spans the grid. */
struct dpe_detect_params {
    int64_t length;         /**< L, tokens */
    int64_t trained_length; /**< L0, tokens */
    int64_t window;         /**< w, tokens: nearer keys keep their distance */
    int n_groups;           /**< C equal ranges of pairs */
    int n_lengths;
    int64_t lengths[DPE_DETECT_MAX_LENGTHS]; /**< detecting lengths t, ascending, w ≤ t ≤ L */
    const uint8_t *mask; /**< [n_layers][n_heads][n_pairs] pairs that move; NULL = all (the paper);
                              borrowed for the grid's life */
    /** Of every plan of the sweep: base, cells, steps, joint; not of "rope". All zero:
     *  none, which the grid then has. */
    struct dpe_temperature temperature;
};

/** min(1024, L0/8), at least 1. */
int64_t dpe_detect_default_window(int64_t trained_length);

/** Fill params->lengths (length, trained_length and window are set) from "auto" or a list "a,b,…".
 *  auto: L/128 … L by powers of two; those shorter than the window (or than 1) are left out and
 *  counted in *skipped, because at t < w no far key would sit nearer than w: t + w(1 − t/L) > t.
 *  A listed length shorter than the window, longer than L, or twice there is DPE_USAGE. */
dpe_status dpe_detect_parse_lengths(const char *spec, struct dpe_detect_params *params,
                                    int *skipped, struct dpe_error *err);

/** One distinct configuration. */
struct dpe_detect_config {
    char key[33]; /**< row key of the plan (dpe_plan_key) */
    struct dpe_plan plan;
    int group, length; /**< first cell that asks for it */
};

/** The grid: every cell's configuration. Filled by dpe_detect_grid_make, freed with
 *  dpe_detect_grid_free. */
struct dpe_detect_grid {
    struct dpe_detect_params params;
    int64_t n_pairs;
    int32_t *edges; /**< [n_groups + 1] first pair of each group */
    int32_t *cell;  /**< [n_groups][n_lengths] index into configs */
    int n_configs;
    struct dpe_detect_config *configs; /**< in order of their first cell */
};
/** Check the parameters (DPE_USAGE names the option to change) and make the distinct plans. L must
 *  be at least L0/2: below that the other groups' scale would be less than one. */
dpe_status dpe_detect_grid_make(const struct dpe_detect_params *params,
                                const struct dpe_plan_context *context,
                                struct dpe_detect_grid *grid, struct dpe_error *err);
void dpe_detect_grid_free(struct dpe_detect_grid *grid);

/** The base of all cells: every group at L0/2. */
dpe_status dpe_detect_base_plan(const struct dpe_detect_grid *grid,
                                const struct dpe_plan_context *context, struct dpe_plan *plan,
                                struct dpe_error *err);

/** Scales of the joint plan, S_g = max(1, ⌊L / e_g⌋). A group without an effective length
 *  (e_g < 1) stays where it was during detection: S_g = 2L/L0. scale [n_groups]. */
void dpe_detect_joint_scales(const struct dpe_detect_params *params, const int64_t *effective,
                             double *scale);
/** The plan with those scales; all pairs of every group move. */
dpe_status dpe_detect_joint_plan(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context, const double *scale,
                                 struct dpe_plan *plan, struct dpe_error *err);

/* --------------------------------------------------------------------------------- order of work
 */

/** Where a sweep stands: rounds of `per_round` samples over all tasks and plans. Zero-initialise
 *  the position, fill the sizes. A sweep that stops early has seen every plan about equally. */
struct dpe_detect_cursor {
    int64_t per_round;    /**< ≥ 1 */
    int n_tasks, n_plans; /**< tasks ≤ 4 */
    int64_t n_samples[4]; /**< per task */
    int64_t first;        /**< first sample of the current round */
    int task, plan;       /**< current */
    int64_t sample;       /**< offset in the round */
};
/** The next (task, plan, sample) in order, false at the end. Every triple comes exactly once. */
bool dpe_detect_next(struct dpe_detect_cursor *cursor, int *task, int *plan, int64_t *sample);

/* ------------------------------------------------------------------------------- rows to scores */

/** Rows of one task laid out as [cells][samples]; what was not run is NaN, −1, and status −1. */
struct dpe_detect_scores {
    int n_cells;
    int64_t n_samples;
    int64_t together;                    /**< samples in a row that share a context, ≥ 1 */
    int32_t *status;                     /**< enum dpe_row_status, −1 = not run */
    double *recall, *at_least_half;      /**< NIAH */
    double *nll_sum;                     /**< nats */
    int64_t *n_tokens, *n_words;         /**< scored */
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

/** What the scores say. Arrays owned; free with dpe_detect_ranking_free. */
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

/** What some cells have in common: their values on the samples that are valid under each of them.
 */
struct dpe_detect_common {
    int n_cells;       /**< ≤ DPE_DETECT_MAX_LENGTHS */
    int64_t n_samples; /**< in common */
    double *values;    /**< [n_cells][n_samples] as dpe_detect_value, without NaN */
    int64_t *sample;   /**< [n_samples] which they are, ascending */
    int64_t together;  /**< as the scores' */
};
/** Of the cells first + which[i]. Freed by the caller, also after a failure. DPE_NO_MEMORY. */
dpe_status dpe_detect_common_take(const struct dpe_detect_scores *scores,
                                  enum dpe_detect_criterion criterion, int first, const int *which,
                                  int n_cells, struct dpe_detect_common *common,
                                  struct dpe_error *err);
void dpe_detect_common_free(struct dpe_detect_common *common);

/** p-value of "these cells (the lengths of a group) do not differ": the statistic is best mean −
 *  worst mean, its null distribution comes from permuting each context's values among the cells
 *  (`rounds` times, +1 rule). Because best and worst are chosen anew in every permutation, having
 *  picked them after looking is accounted for. 1 when all values of every sample are equal. */
double dpe_detect_spread(const struct dpe_detect_common *common, int rounds, uint64_t seed);

/* ---------------------------------------------------------------------------------------- race */

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

/* ----------------------------------------------------------------------------------- selection */

/** How the joint plan's lengths are chosen. The paper takes each group's best length on its own;
 *  flat groups are then chosen by noise, and groups that need each other are not seen together. */
enum dpe_detect_rule {
    DPE_DETECT_PAPER,      /**< rank 1 of each group */
    DPE_DETECT_GUARDED,    /**< L0/2, except where a paired test says another length is better */
    DPE_DETECT_SEQUENTIAL, /**< group after group, those before it at their chosen lengths */
};
/** "paper", "guarded", "sequential". */
extern const char *const dpe_detect_rule_names[4]; /**< NULL ends them */

/** Level of the tests of the guarded rule. */
#define DPE_DETECT_GUARD_LEVEL 0.05

/** The value of a row that decides: recall, or nats per token; NaN when it is not valid. */
double dpe_detect_value(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                        size_t at);

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
    int base;   /**< index of L0/2 among the lengths, −1 when it is none of them (paper) */
    int *at;    /**< [n_groups] index of the length of each group, −1 = none (paper) */
    int *order; /**< [n_groups] sequential: groups as they were taken */
    int n_choices;
    struct dpe_detect_choice *choices; /**< guarded: one per group; sequential: one per step */
    bool complete;                     /**< sequential: every row it needs was there */
};
void dpe_detect_selection_free(struct dpe_detect_selection *selection);

/** Index of L0/2 among the lengths, −1 when it is none of them. */
int dpe_detect_base_length(const struct dpe_detect_params *params);

/** Rank 1 of each group. */
dpe_status dpe_detect_select_paper(const struct dpe_detect_params *params,
                                   const struct dpe_detect_ranking *ranking,
                                   struct dpe_detect_selection *selection, struct dpe_error *err);
/** dpe_detect_choose for each group of a sweep's scores [n_groups · n_lengths cells], from L0/2,
 *  at DPE_DETECT_GUARD_LEVEL. DPE_USAGE when L0/2 is none of the lengths. */
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
 *  is none of the lengths. */
dpe_status dpe_detect_select_sequential(const struct dpe_detect_params *params,
                                        const struct dpe_detect_ranking *ranking, int rounds,
                                        const struct dpe_detect_steps *steps,
                                        struct dpe_detect_selection *selection,
                                        struct dpe_error *err);

/** Plans and row keys of a sequential step: group `group` at each length, group i at at[i]
 *  otherwise. plans, keys [n_lengths]; freed by the caller (dpe_plan_free), after an error all are
 *  empty. */
dpe_status dpe_detect_step_plans(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context, const int *at, int group,
                                 struct dpe_plan *plans, char (*keys)[33], struct dpe_error *err);
/** The group of the step that an incomplete selection waits for. */
int dpe_detect_pending_group(const struct dpe_detect_selection *selection);

/** Scales of the joint plan of a selection. Paper: dpe_detect_joint_scales of rank 1. Else a group
 *  at L0/2 keeps exactly the scale it had during detection, others get max(1, ⌊L / length⌋).
 *  scale [n_groups]. */
void dpe_detect_selected_scales(const struct dpe_detect_params *params,
                                const struct dpe_detect_selection *selection, double *scale);

/* ---------------------------------------------------------------------------------- validation */

enum { DPE_DETECT_ROPE, DPE_DETECT_BASE, DPE_DETECT_JOINT, DPE_DETECT_N_VALIDATED };

/** Names of the three validated plans: "rope", "base", "joint". */
extern const char *const dpe_detect_validated_names[DPE_DETECT_N_VALIDATED];

/** Of joint against base. Better and worse are shown by both the paired 95 % interval, which does
 *  not hold 0, and a sign-flip test with p < 0.05. */
enum dpe_detect_verdict {
    DPE_DETECT_BETTER,
    DPE_DETECT_INDISTINCT, /**< these samples do not show a difference */
    DPE_DETECT_WORSE,
    DPE_DETECT_UNKNOWN, /**< no pair of valid rows */
};

/** What validation on other samples says of the joint plan. Differences are joint − base and
 *  joint − rope: of recall, or of nats per token (then negative is better). */
struct dpe_detect_validation {
    enum dpe_detect_criterion criterion;
    struct dpe_interval value[DPE_DETECT_N_VALIDATED]; /**< recall or perplexity, 95 % */
    struct dpe_interval minus_base, minus_rope;        /**< paired bootstrap, 95 % */
    double p_base, p_rope;                             /**< sign-flip test */
    enum dpe_detect_verdict verdict;                   /**< against the base */
    int64_t needed; /**< indistinct: samples of which four in five sets would show a difference as
                         large as the measured one; 0 = unknown, or no difference was measured */
    bool too_easy;  /**< base and joint find every needle: lengths cannot be compared */
};
/** scores: DPE_DETECT_N_VALIDATED cells in the order above. */
dpe_status dpe_detect_validate(const struct dpe_detect_scores *scores,
                               enum dpe_detect_criterion criterion,
                               struct dpe_detect_validation *validation, struct dpe_error *err);

/* --------------------------------------------------------------------------------------- table */

/** One benchmark of a sweep: where its rows are and, once collected, what they say. */
struct dpe_detect_result {
    bool used;
    enum dpe_detect_criterion criterion;
    const char *task, *validate_task; /**< names of the sample streams */
    int64_t n_samples, first_validated, n_validated;
    int64_t together;         /**< samples in a row that share a context, ≥ 1 */
    bool fresh;               /**< the validated samples are not those of the sweep */
    const char *const *books; /**< perplexity: [n_samples] ids; NULL for NIAH */
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking;
    bool validated; /**< the two below are filled */
    struct dpe_detect_scores validate_scores;
    struct dpe_detect_validation validation;
};

/** Everything that the table and the terminal show. `grid`, `context` and names are borrowed; the
 *  rest is computed from rows by the functions below. */
struct dpe_detect_report {
    const struct dpe_detect_grid *grid;
    const struct dpe_plan_context *context;
    enum dpe_detect_rule rule;
    int rounds; /**< sequential */
    struct dpe_detect_selection selection;
    bool racing;
    struct dpe_detect_race race;         /**< options filled by the caller when racing */
    struct dpe_detect_result results[2]; /**< NIAH, perplexity; the first used one decides */
    double *scale;                       /**< [n_groups] of the joint plan */
    int64_t *selected; /**< [n_groups] its lengths, −1 = none (the scale of the detection) */
    char keys[DPE_DETECT_N_VALIDATED][33]; /**< row keys of the validated plans, "" = not known */
    uint64_t seed, validation_seed;
    struct dpe_session_work work; /**< of this session's processes, for /run */
    /* what the run was about, for /model, /tokenizer, /corpus and /detect */
    const struct dpe_model *model;
    const struct dpe_tokenizer *tokenizer;
    const struct dpe_corpus *corpus;
    const char *niah_spec, *niah_template; /**< spec, hash of the templates; NULL = none */
};
/** The result that decides: NIAH when it is used. */
const struct dpe_detect_result *dpe_detect_deciding(const struct dpe_detect_report *report);
/** Collect the sweep's rows, rank them and select by the rule; fills scale as well. May be called
 *  again; with rows missing the selection is what those that are there say. */
dpe_status dpe_detect_report_sweep(struct dpe_detect_report *report, const struct dpe_run *run,
                                   struct dpe_error *err);
/** Only the race of a report: collect its rows and replay it. May be called again. */
dpe_status dpe_detect_report_race(struct dpe_detect_report *report, const struct dpe_run *run,
                                  struct dpe_error *err);
/** Collect the validated rows (keys are filled) and compare. May be called again. */
dpe_status dpe_detect_report_validation(struct dpe_detect_report *report, const struct dpe_run *run,
                                        struct dpe_error *err);
/** Free what was computed. */
void dpe_detect_report_free(struct dpe_detect_report *report);
/** Write the report's groups (outputs/SCHEMA.md, "Detection") into a table open for writing;
 *  /table only when `complete`. */
dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err);

/* ------------------------------------------------------------------------------------ key pairs */

enum { DPE_DETECT_RUNGS = 5 };
/** What a smaller number of key pairs must be shown to keep of the best one's recall. */
#define DPE_DETECT_KEPT 0.97
/** Nats a token that it may lose of perplexity. */
#define DPE_DETECT_NATS 0.01

/** The numbers of key pairs that are tried: 1/2, 5/8, 3/4, 7/8 and all of a head's pairs, in whole
 *  pairs and once each, ascending. Returns how many. */
int dpe_detect_top_k_ladder(int64_t n_pairs, int64_t k[DPE_DETECT_RUNGS]);

/** What is known of one number of key pairs. */
struct dpe_detect_rung {
    int64_t k;
    int64_t n_valid; /**< samples with a value */
    bool compared;   /**< as many as half of the fullest rung's */
    double mean;     /**< recall, or nats a token, over the samples of all compared rungs, each
                          context's mean weighing the same; NaN */
    double loss;     /**< of recall, or nats a token (`against`); NaN for that one itself */
    double at_most;  /**< its one-sided 95 % bound; NaN: cannot be had */
};

/** Which number of key pairs was chosen, and why. */
struct dpe_detect_top_k {
    int n;
    struct dpe_detect_rung rungs[DPE_DETECT_RUNGS];
    enum dpe_detect_criterion criterion;
    int64_t n_contexts; /**< with a sample that is valid under every compared rung */
    int chosen;         /**< index into rungs */
    int against;        /**< what `loss` is against: the best of the chosen one and all above it */
    double margin;      /**< what at_most of a chosen rung may be */
};
/** Choose among k [n] ascending (n ≤ DPE_DETECT_RUNGS) by values [n][n_samples] of the same
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

/* ------------------------------------------------------------------------------------ estimate */

/** What a sweep will cost, from the configuration alone. */
struct dpe_detect_cost {
    int64_t rows;               /**< sweep and validation */
    double prompt_tokens;       /**< read */
    double new_tokens;          /**< generated at most */
    double products, attention; /**< floating-point operations */
    uint64_t session_bytes, weight_bytes;
};
/** Seconds that this machine takes for one operation of each kind, measured by
 *  dpe_detect_measure. */
struct dpe_detect_speed {
    double per_product, per_attention; /**< seconds per operation of a prefill */
    double per_new_token;              /**< seconds, at about the measured length */
    int64_t tokens;                    /**< that the prefill had */
    double seconds;                    /**< it took */
};
/** Run prefills of doubling length in `session` (its cache is emptied) until one takes `enough`
 *  seconds or `most` tokens are reached, then generate a few tokens. Uses token ids that every
 *  vocabulary has. */
dpe_status dpe_detect_measure(struct dpe_session *session, const struct dpe_config *config,
                              int64_t most, double enough, double (*clock)(void),
                              struct dpe_detect_speed *speed, struct dpe_error *err);

/* ----------------------------------------------------------------------------------- rendering */

enum dpe_detect_colour { DPE_DETECT_MONO, DPE_DETECT_256, DPE_DETECT_TRUECOLOUR };

/** What the terminal can show. `no_colour`, `term` and `colorterm` are the environment's NO_COLOR,
 *  TERM and COLORTERM (NULL = unset). */
enum dpe_detect_colour dpe_detect_colour_of(bool terminal, const char *no_colour, const char *term,
                                            const char *colorterm);

/** A length in few characters: 512, 1k, 128k, 1000. */
void dpe_detect_short_length(int64_t length, char text[24]);

/** The group × length heat map, the best of each group marked by '*', appended to `out`. Fits into
 *  `width` columns (≥ 20): cells shrink from 0.625 to 6, and from there whole columns are left out
 *  and counted. Colours set both fore- and background, so any terminal theme shows them. */
dpe_status dpe_detect_heatmap(const struct dpe_detect_grid *grid,
                              const struct dpe_detect_ranking *ranking, int width,
                              enum dpe_detect_colour colour, struct dpe_text *out,
                              struct dpe_error *err);
/** A line per group: pairs, effective length, scale, and as many ranks with their intervals as fit
 *  into `width`. */
dpe_status dpe_detect_rank_table(const struct dpe_detect_grid *grid,
                                 const struct dpe_detect_ranking *ranking, int width,
                                 struct dpe_text *out, struct dpe_error *err);
/** The three validated plans and the verdict in words. */
dpe_status dpe_detect_validation_table(const struct dpe_detect_validation *validation, int width,
                                       struct dpe_text *out, struct dpe_error *err);

/** What the live line shows. */
struct dpe_detect_progress {
    const char *stage;     /**< "sweep" or "validate" */
    int64_t round, rounds; /**< 1-based; plans_done counts within the round */
    int64_t plans_done, plans, rows_done, rows;
    double rate;         /**< rows per second, ≤ 0 = unknown */
    double seconds_left; /**< < 0 = unknown */
    const int64_t *best; /**< [n_best] best length so far, −1 = none yet; NULL = not shown */
    int n_best;
};
/** One line of at most `width` columns, NUL-terminated in text[size], no newline: what matters
 *  least is shortened and dropped first. */
void dpe_detect_live_line(const struct dpe_detect_progress *progress, int width, char *text,
                          size_t size);

#endif
