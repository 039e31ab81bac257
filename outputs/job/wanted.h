/**
 * @file wanted.h
 * The rows that a study wants, gathered one after another into a list of work.
 */
#ifndef DPE_JOB_WANTED_H
#define DPE_JOB_WANTED_H

#include "outputs/job/job.h"

/** Zero-initialise. A lack of memory is told by dpe_wanted_run. What is added is borrowed until
 * then. */
struct dpe_wanted {
    const char **tasks;
    int64_t *tokens; /**< [n_tasks] as in struct dpe_work */
    double *cost;
    const struct dpe_plan **plans;
    const char **keys; /**< [n_plans] */
    struct dpe_item *items;
    size_t n_tasks, n_plans, n_items;
    bool failed;
};
/** Append a task, rows of which read `tokens` tokens; a plan; n samples of a task under a plan. */
void dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens, double cost);
void dpe_wanted_plan(struct dpe_wanted *wanted, const struct dpe_plan *plan, const char *key);
void dpe_wanted_rows(struct dpe_wanted *wanted, int task, int plan, int64_t first, int64_t n);
/** Run what is wanted as `how` says, whose lists are set here; empties the list, also after a
 * failure. Errors of dpe_job_rows. */
dpe_status dpe_wanted_run(struct dpe_wanted *wanted, struct dpe_job *job,
                          const struct dpe_work *how, struct dpe_error *err);

#endif
