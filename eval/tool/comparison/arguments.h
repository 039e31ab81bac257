/**
 * @file arguments.h
 * The command line of dpe-eval.
 */
#ifndef DPE_EVAL_ARGUMENTS_H
#define DPE_EVAL_ARGUMENTS_H

#include "engine/base/base.h"
#include "eval/suite/suite.h"
#include "outputs/job/job.h"

enum {
    EVAL_MAX_METHODS = 64,
    EVAL_MAX_SUITES = 8,
    EVAL_MAX_LENGTHS = 32,
    EVAL_MAX_DEPTHS = 64,
    EVAL_MAX_SAMPLES = 1000000,
};

/** What the command line sets for one suite or for all; NULL and 0: not given. */
struct dpe_eval_overrides {
    const char *chat_template, *niah, *tasks, *data, *template_file, *squad, *hotpotqa, *scorer;
    int64_t samples, stride, max_tokens;
};

/** A suite on the command line. */
struct dpe_eval_suite {
    const char *name;
    struct dpe_eval_overrides own; /**< the keys after its name */
    char *text;                    /**< owned: what both point into */
    char *parameters;              /**< owned: own.niah */
};

/** The command line. */
struct dpe_eval_arguments {
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
    struct dpe_eval_overrides general; /**< options: for every suite that takes them */
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
    int64_t budget; /**< tune: rows of a method's race at a length, 0: not given */
    bool tune_temperature;         /**< its settings also with temperatures */
    const char *base, *base_model; /**< kld: what is compared with; NULL: rope, that of --model */
    const char *save_base;         /**< the file that keeps the base's logits, NULL: none */
    bool base_bf16;
    enum dpe_kv_type base_kv;
};

/** The kind of a suite; of an unknown name, which is refused when suites are opened, one that takes
 * nothing. */
const struct dpe_suite_kind *dpe_eval_kind_of(const struct dpe_eval_suite *suite);

/** Set the depths of a grid, where none are given. */
void dpe_eval_default_depths(struct dpe_eval_arguments *args);

/** Pieces of the command line; input struct dpe_eval_arguments. */
extern const struct dpe_option_set dpe_eval_method_option_set, dpe_eval_suite_option_set,
    dpe_eval_needle_option_set, dpe_eval_grid_option_set, dpe_eval_depth_option_set,
    dpe_eval_book_option_set, dpe_eval_special_option_set, dpe_eval_ablate_option_set,
    dpe_eval_chat_option_set, dpe_eval_benchmark_option_set, dpe_eval_ruler_option_set,
    dpe_eval_infinitebench_option_set, dpe_eval_tune_option_set, dpe_eval_check_option_set,
    dpe_eval_kld_option_set;

/** Add a method's spec, or the file of a table. */
void dpe_eval_add_method(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                         const char *spec, bool table);
/** Read `--suite NAME,…` or `--suite NAME:KEY=VALUE,…`; ends the process when it makes no sense.
 *  dpe_eval_suites_free frees what was added. */
void dpe_eval_add_suites(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                         const char *text);
void dpe_eval_suites_free(struct dpe_eval_arguments *args);
/** End the process on options that would be ignored. */
void dpe_eval_check_suites(struct dpe_command_line *state, const struct dpe_eval_arguments *args);
/** A suite's own keys and, for what they leave open, the options. `niah` is the suite's own if it
 *  has one; the needle parameters of both count (general first). */
struct dpe_eval_overrides dpe_eval_overrides_of(const struct dpe_eval_arguments *args, int suite);

#endif
