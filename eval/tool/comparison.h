/**
 * @file comparison.h
 * A comparison of methods: the command line of dpe-eval; opened, priced, run, written and printed.
 */
#ifndef DPE_EVAL_COMPARISON_H
#define DPE_EVAL_COMPARISON_H

#include "engine/base/base.h"
#include "eval/compare/compare.h"
#include "eval/suite/suite.h"
#include "outputs/job/job.h"

enum {
    EVAL_MAX_METHODS = 64,
    EVAL_MAX_SUITES = 8,
    EVAL_MAX_LENGTHS = 32,
    EVAL_MAX_DEPTHS = 64,
    EVAL_MAX_SAMPLES = 1000000,
};

/** A suite on the command line. */
struct dpe_eval_suite {
    const char *name;
    struct dpe_suite_given own; /**< the keys after its name */
    char *text;                 /**< owned: what both point into */
    char *parameters;           /**< owned: own.niah */
};

struct dpe_eval_command;

/** The command line. */
struct dpe_eval_arguments {
    const struct dpe_eval_command *command;
    struct dpe_job_options job;
    const char *inputs[EVAL_MAX_SUITES]; /**< the job's: folders of official samples */
    struct dpe_eval_suite suites[EVAL_MAX_SUITES];
    int n_suites;
    const char *methods[EVAL_MAX_METHODS]; /**< specs, or files of tables */
    bool is_table[EVAL_MAX_METHODS];
    int n_methods;
    int64_t lengths[EVAL_MAX_LENGTHS]; /**< ascending, distinct */
    int n_lengths;
    const char *against; /**< NULL: the last table, or else the first method */
    bool official, other_model, details;
    struct dpe_suite_given general; /**< options: for every suite that takes them */
    enum dpe_special_policy special;
    bool special_given;
    bool grid;
    double depths[EVAL_MAX_DEPTHS]; /**< ascending, distinct */
    int n_depths;
    const char *predictions;
    bool skip_bad;
    const char *what, *norms; /**< ablate; its table is methods[0] */
    bool alone;               /**< ablate: without rope and base */
    const char *planned;     /**< of a dry run: the name of a comparison whose methods are not there
                                yet; or NULL */
    int64_t planned_methods; /**< how many it will have; those of `methods` stand for them */
    const char *temperature; /**< ablate: NULL: the detection's */
    double values[EVAL_MAX_METHODS];
    int n_values;
    bool check;     /**< the command is check: rope is the first method, its table the last */
    int64_t budget; /**< tune: rows of a method at a length, 0: not given */
    bool tune_temperature;         /**< its settings also with temperatures */
    const char *base, *base_model; /**< kld: what is compared with; NULL: the model of --model */
    const char *save_base;         /**< the file that keeps the base's logits, NULL: none */
    enum { EVAL_BASE_SAME, EVAL_BASE_F32, EVAL_BASE_BF16 } base_dtype;
    enum dpe_kv_type base_kv;
};

/** The kind of a suite; of an unknown name, which is refused when suites are opened, one that takes
 * nothing. */
const struct dpe_suite_kind *dpe_eval_kind_of(const struct dpe_eval_suite *suite);

/** Set the depths of a grid, where none are given. */
void dpe_eval_default_depths(struct dpe_eval_arguments *args);

/** Read `--suite NAME,…` or `--suite NAME:KEY=VALUE,…`; ends the process when it makes no sense.
 *  dpe_eval_suites_free frees what was added. */
void dpe_eval_add_suites(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                         const char *text);
void dpe_eval_suites_free(struct dpe_eval_arguments *args);
/** End the process on options that would be ignored. */
void dpe_eval_check_suites(struct dpe_command_line *state, const struct dpe_eval_arguments *args);
/** A suite's own keys and, for what they leave open, the options. `niah` is the suite's own if it
 *  has one; the needle parameters of both count (general first). */
struct dpe_suite_given dpe_eval_overrides_of(const struct dpe_eval_arguments *args, int suite);

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
/** The cost of these rows. `plan` is the one whose attention does most, NULL: of the comparison's
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

#endif
