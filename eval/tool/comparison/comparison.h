/**
 * @file comparison.h
 * A comparison of methods: opened, priced, run, written and printed.
 */
#ifndef DPE_EVAL_COMPARISON_H
#define DPE_EVAL_COMPARISON_H

#include "eval/compare/ablation.h"
#include "eval/compare/results.h"
#include "eval/tool/comparison/arguments.h"
#include "outputs/job/job.h"

/** A row of a comparison. */
struct dpe_eval_method {
    char label[240];                      /**< with "-LENGTH" a folder of predictions */
    const char *spec, *table;             /**< one of these, */
    const struct dpe_ablation_step *step; /**< or this */
};

/** Everything a comparison needs, in the order in which it is opened. */
struct dpe_comparison {
    const struct dpe_eval_arguments *args;
    struct dpe_job job;
    struct dpe_ablation ablation; /**< empty but for ablate */
    struct dpe_eval_method methods[EVAL_MAX_METHODS];
    const char *labels[EVAL_MAX_METHODS];
    int n_methods;
    int against; /**< the method that differences are relative to */
    int64_t lengths[EVAL_MAX_LENGTHS];
    int n_lengths;
    struct dpe_suite suites[EVAL_MAX_SUITES];
    int n_suites;
    struct dpe_plan *plans;              /**< [n_methods][n_lengths] */
    int n_plans;                         /**< made so far */
    char (*keys)[33];                    /**< of the plans */
    const char **cells[EVAL_MAX_SUITES]; /**< [n_methods][tasks of the suite]: keys */
    struct dpe_result *out;              /**< what is printed for scripts, while it is made */
};
/** Their args: struct dpe_eval_arguments. Comparisons; settings of each method at each length, of
 * samples of another seed; how far methods, types and files are from a base. */
extern const struct dpe_study dpe_eval_comparison_study, dpe_eval_tune_study, dpe_eval_kld_study;
/** What a comparison's study does; `state` begins with a struct dpe_comparison. */
dpe_status dpe_eval_cost(void *state, struct dpe_bill *sum, struct dpe_error *err);
void dpe_eval_suggest(const void *state);
dpe_status dpe_eval_comparison_close(void *state, dpe_status status, struct dpe_error *err);
/** That of two plans whose session needs more memory, `plan` when both need the same. */
const struct dpe_plan *dpe_eval_larger_plan(const struct dpe_comparison *comparison,
                                            const struct dpe_plan *plan,
                                            const struct dpe_plan *other);
/** The plan of the comparison whose session needs most memory. */
const struct dpe_plan *dpe_eval_largest_plan(const struct dpe_comparison *comparison);
/** What a session for one text of each task's length needs under each method, without weights: with
 *  one thread and nothing in a file, so that no machine and no --max-memory decides it. To
 *  results->memory. DPE_NO_MEMORY. */
dpe_status dpe_eval_count_memory(const struct dpe_comparison *comparison,
                                 struct dpe_results *results, struct dpe_error *err);
/** The same of these rows. `plan` is the one whose attention does most, NULL: of the comparison's
 * own, those with a selection and those without measured apart; rows[t]: how many samples of task t
 * of the only suite run, NULL = each sample of every suite under each method. */
dpe_status dpe_eval_add_cost(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                             const double *rows, struct dpe_bill *sum, struct dpe_error *err);
/** Make as many samples together as share a context and fit into memory under `plan`. */
dpe_status dpe_eval_fit_batch(struct dpe_comparison *comparison, const struct dpe_plan *plan,
                              struct dpe_error *err);
/** Log what is run, and open or continue the run: its kind, the suites and their parameters are its
 *  identity. `plan` is the one whose session needs most memory. */
dpe_status dpe_eval_start(struct dpe_comparison *comparison, const char *kind,
                          const struct dpe_plan *plan, struct dpe_error *err);

/** Open the suites of the command line at comparison->lengths; job and args are set. */
dpe_status dpe_eval_open_suites(struct dpe_comparison *comparison, struct dpe_error *err);

/** Labels of --method and --table, or the steps of an ablation. */
dpe_status dpe_eval_comparison_methods(struct dpe_comparison *comparison, struct dpe_error *err);
/** The plans of all methods at all lengths. */
dpe_status dpe_eval_comparison_plans(struct dpe_comparison *comparison, struct dpe_error *err);
/** Append them to a list of work. */
void dpe_eval_want_plans(const struct dpe_comparison *comparison, struct dpe_wanted *wanted);

/** Before anything runs: whether that folder can be written and each method has files of its own.
 *  DPE_USAGE, DPE_CANNOT_CREATE, DPE_PERMISSION. */
dpe_status dpe_eval_check_predictions(const struct dpe_comparison *comparison,
                                      struct dpe_error *err);
/** Write what was answered under args->predictions: a folder per method and length, a file per task
 *  in the format of its benchmark. DPE_CANNOT_CREATE, DPE_IO. */
dpe_status dpe_eval_write_predictions(const struct dpe_comparison *comparison,
                                      struct dpe_error *err);

/** Print a suite's table: methods by tasks, then intervals and paired differences. */
void dpe_eval_print(const struct dpe_results *results, bool details);
/** The same for scripts: begin a document, and add a suite's rows to it. */
struct dpe_result *dpe_eval_result_begin(const struct dpe_comparison *comparison);
void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results);
/** check: the lengths at which a table is held against the model as it is, the trained one and the
 *  longest of the table, which is the last method. DPE_BAD_DATA when that is not longer. */
dpe_status dpe_eval_check_lengths(struct dpe_comparison *comparison, struct dpe_error *err);
/** Print what follows; the first method is the model as it is, and differences are to the table. */
void dpe_eval_print_check(const struct dpe_results *results);
/** Print a heat map of each method: depths by lengths. */
void dpe_eval_print_grid(const struct dpe_results *results, const double *depths, int n_depths);

#endif
