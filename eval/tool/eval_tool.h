/**
 * @file eval_tool.h
 * Inside of dpe-eval: what its files share. Not a library.
 */
#ifndef DPE_EVAL_TOOL_H
#define DPE_EVAL_TOOL_H

#include "eval/compare/ablation.h"
#include "eval/compare/results.h"
#include "outputs/job/job.h"

enum {
    EVAL_MAX_METHODS = 64,
    EVAL_MAX_SUITES = 8,
    EVAL_MAX_LENGTHS = 32,
    EVAL_MAX_DEPTHS = 64,
    EVAL_MAX_SAMPLES = 1000000,
};

/** What the command line sets for one suite or for all; NULL and 0: not given. */
struct eval_overrides {
    const char *chat_template, *niah, *tasks, *data, *template_file, *squad, *hotpotqa, *scorer;
    int64_t samples, stride, max_tokens;
};

/** A suite on the command line. */
struct eval_suite {
    const char *name;
    struct eval_overrides own; /**< the keys after its name */
    char *text;                /**< owned: what both point into */
    char *parameters;          /**< owned: own.niah */
};

/** The command line. */
struct eval_arguments {
    struct dpe_job_options job;
    struct eval_suite suites[EVAL_MAX_SUITES];
    int n_suites;
    const char *methods[EVAL_MAX_METHODS]; /**< specs, or files of tables */
    bool is_table[EVAL_MAX_METHODS];
    int n_methods;
    int64_t lengths[EVAL_MAX_LENGTHS]; /**< ascending, distinct */
    int n_lengths;
    bool official, other_model, details;
    struct eval_overrides general; /**< options: for every suite that takes them */
    enum dpe_special_policy special;
    const char *special_text; /**< --special-in-text as it was given, or NULL */
    bool grid;
    double depths[EVAL_MAX_DEPTHS]; /**< ascending, distinct */
    int n_depths;
    const char *predictions;
    bool skip_bad;
    const char *what, *norms; /**< ablate; its table is methods[0] */
    bool alone;               /**< ablate: without rope and base */
    const char *temperature;  /**< ablate: NULL: the detection's */
    double values[EVAL_MAX_METHODS];
    int n_values;
    bool tune;             /**< the command is tune: */
    int64_t budget;        /**< rows of a method's race at a length */
    bool tune_temperature; /**< its settings also with temperatures */
};

/** Pieces of the command line; input struct eval_arguments. */
extern const struct argp dpe_eval_method_argp, dpe_eval_suite_argp, dpe_eval_needle_argp,
    dpe_eval_grid_argp, dpe_eval_depth_argp, dpe_eval_book_argp, dpe_eval_special_argp,
    dpe_eval_ablate_argp, dpe_eval_chat_argp, dpe_eval_benchmark_argp, dpe_eval_ruler_argp,
    dpe_eval_infinitebench_argp, dpe_eval_tune_argp;

/** Read `--suite NAME,…` or `--suite NAME:KEY=VALUE,…`; ends the process when it makes no sense.
 *  dpe_eval_suites_free frees what was added. */
void dpe_eval_add_suites(struct argp_state *state, struct eval_arguments *args, const char *text);
void dpe_eval_add_suite(struct argp_state *state, struct eval_arguments *args, const char *name);
void dpe_eval_suites_free(struct eval_arguments *args);
/** End the process on options that would be ignored. */
void dpe_eval_check_suites(struct argp_state *state, const struct eval_arguments *args);
/** A suite's own keys and, for what they leave open, the options. `niah` is the suite's own if it
 *  has one; the needle parameters of both count (general first). */
struct eval_overrides dpe_eval_overrides_of(const struct eval_arguments *args, int suite);

/** A row of a comparison. */
struct eval_method {
    char label[160];
    const char *spec, *table;             /**< one of these, */
    const struct dpe_ablation_step *step; /**< or this */
};

/** Everything a comparison needs, in the order in which it is opened. */
struct comparison {
    const struct eval_arguments *args;
    struct dpe_job job;
    struct dpe_ablation ablation; /**< empty but for ablate */
    struct eval_method methods[EVAL_MAX_METHODS];
    const char *labels[EVAL_MAX_METHODS];
    int n_methods;
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
dpe_status dpe_eval_comparison_open(struct comparison *comparison,
                                    const struct eval_arguments *args, struct dpe_error *err);
/** Run what is missing, write the table, print it. */
dpe_status dpe_eval_comparison_run(struct comparison *comparison, struct dpe_error *err);
/** Print what the comparison would cost, and run nothing. */
dpe_status dpe_eval_dry_run(struct comparison *comparison, struct dpe_error *err);
/** The lines of a dry run about samples, memory and time. `plan` is the one whose attention does most; rows[t]:
 *  how many samples of task t of the only suite run, NULL = each sample of every suite under each method. */
dpe_status dpe_eval_print_cost(const struct comparison *comparison, const struct dpe_plan *plan,
                               const double *rows, struct dpe_error *err);
/** Make as many samples together as share a context and fit into memory. */
dpe_status dpe_eval_fit_batch(struct comparison *comparison, struct dpe_error *err);
/** Also after a failed open; returns what dpe_job_close does. */
dpe_status dpe_eval_comparison_close(struct comparison *comparison, dpe_status status,
                                     struct dpe_error *err);

/** Open the suites of the command line at comparison->lengths; job and args are set. */
dpe_status dpe_eval_open_suites(struct comparison *comparison, struct dpe_error *err);
/** The sub-command `tune`, from its inputs to the printed table. */
dpe_status dpe_eval_tune(const struct eval_arguments *args, struct dpe_error *err);

/** Labels of --method and --table, or the steps of an ablation. */
dpe_status dpe_eval_comparison_methods(struct comparison *comparison, struct dpe_error *err);
/** The plans of all methods at all lengths. */
dpe_status dpe_eval_comparison_plans(struct comparison *comparison, struct dpe_error *err);

/** Before anything runs: whether that folder can be written and each method has files of its own.
 *  DPE_USAGE, DPE_CANNOT_CREATE, DPE_PERMISSION. */
dpe_status dpe_eval_check_predictions(const struct comparison *comparison, struct dpe_error *err);
/** Write what was answered under args->predictions: a folder per method and length, a file per task
 *  in the format of its benchmark. DPE_CANNOT_CREATE, DPE_IO. */
dpe_status dpe_eval_write_predictions(const struct comparison *comparison, struct dpe_error *err);

/** Print a suite's table: methods by tasks, then intervals and paired differences. */
void dpe_eval_print(const struct dpe_results *results, bool details);
/** The same for scripts: begin a document in *out, and add a suite's rows to it. */
void dpe_eval_result_begin(const struct comparison *comparison, struct dpe_result **out);
void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results);
/** Print a heat map of each method: depths by lengths. */
void dpe_eval_print_grid(const struct dpe_results *results, const double *depths, int n_depths);

/** The sub-command `data`: as eval_score_main. */
int dpe_eval_data_main(int argc, char **argv);
/** The sub-command `score`: argv[0] is "score", the rest its options. Returns the exit code. */
int dpe_eval_score_main(int argc, char **argv);

#endif
