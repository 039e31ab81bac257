/**
 * @file norms_tool.h
 * A profile at work.
 */
#ifndef DPE_NORMS_TOOL_H
#define DPE_NORMS_TOOL_H

#include "norms/norms_study.h"
#include "outputs/datasets/kinds.h"
#include "outputs/job/job.h"

enum {
    MAX_LENGTHS = 32,
    MOST_TOGETHER = 64, /* excerpts that an engine runs at once */
};

/* Everything a profile needs, in the order in which it is opened. */
struct profile {
    const struct dpe_norms_arguments *args;
    struct dpe_job job;
    int n_lengths;
    int64_t lengths[MAX_LENGTHS]; /* ascending */
    struct dpe_excerpts excerpts; /* of the longest; shorter ones are their beginnings */
    struct dpe_plan plan;         /* the model's own rotation */
    char key[33];
    struct dpe_norms *norms[MOST_TOGETHER]; /* [job.batch], at least 1 */
};

/** Name of the sample stream of a length. */
void dpe_norms_task_name(int64_t length, char name[32]);

/** Results of the rows so far; free with dpe_datasets_free, also after a failure. */
dpe_status dpe_norms_summarize(const struct profile *profile, struct dpe_norms_result *result,
                               struct dpe_error *err);
/** Print it for scripts. */
dpe_status dpe_norms_print_result(const struct profile *profile,
                                  const struct dpe_norms_result *result, struct dpe_error *err);
/** Fills the table of a run (dpe_run_fill); `profile` is a struct profile. */
dpe_status dpe_norms_fill(void *profile, struct dpe_h5 *table, struct dpe_error *err);

#endif
