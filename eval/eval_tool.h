/**
 * @file eval_tool.h
 * Inside of dpe-eval: what its files share. No library.
 */
#ifndef DPE_EVAL_TOOL_H
#define DPE_EVAL_TOOL_H

#include "eval.h"
#include "job.h"

enum { EVAL_MAX_METHODS = 64 };

/** The command line. */
struct eval_arguments {
    struct dpe_job_options job;
    const char *suite, *niah;
    const char *methods[EVAL_MAX_METHODS]; /**< specs, or files of tables */
    bool is_table[EVAL_MAX_METHODS];
    int n_methods;
    bool official;
};

/** Everything a comparison needs, in the order in which it is opened. */
struct comparison {
    const struct eval_arguments *args;
    struct dpe_job job;
    struct dpe_niah_params niah;
    char niah_spec[256], niah_template[65];
    struct dpe_task task;
    int64_t n_samples;
    struct dpe_plan plans[EVAL_MAX_METHODS];
    char keys[EVAL_MAX_METHODS][33];
    int n_plans;
};
dpe_status comparison_open(struct comparison *comparison, const struct eval_arguments *args,
                           struct dpe_error *err);
/** Run what is missing, write the table, print it. */
dpe_status comparison_run(struct comparison *comparison, struct dpe_error *err);
/** Also after a failed open; returns what dpe_job_close does. */
dpe_status comparison_close(struct comparison *comparison, dpe_status status,
                            struct dpe_error *err);

/** The /eval part of the table (dpe_run_fill; `comparison` is a struct comparison). */
dpe_status comparison_fill(void *comparison, struct dpe_h5 *table, struct dpe_error *err);
/** A line per method: mean, interval, paired difference to the first. */
dpe_status comparison_print(const struct comparison *comparison, struct dpe_error *err);

/** The sub-command `score`: argv[0] is "score", the rest its options. Returns the exit code. */
int eval_score_main(int argc, char **argv);

#endif
