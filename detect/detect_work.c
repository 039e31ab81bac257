/* The loop: every row that is not there yet, once. */
#include "detect.h"

#include <stdlib.h>

static dpe_status add_row(const struct dpe_detect_stage *stage, struct dpe_run *run,
                          const struct dpe_detect_hooks *hooks, struct dpe_session *session,
                          int task, int plan, int64_t sample, struct dpe_error *err)
{
    struct dpe_row row;
    dpe_row_init(&row);
    dpe_status status =
        dpe_task_row(&stage->tasks[task], session, stage->keys[plan], sample, &row, err);
    if (status == DPE_OK) {
        status = dpe_run_add(run, &row, err);
    }
    if (status == DPE_OK) {
        status = hooks->after(hooks->user, task, plan, &row, err);
    }
    dpe_row_free(&row);
    return status;
}

dpe_status dpe_detect_run_stage(const struct dpe_detect_stage *stage, struct dpe_run *run,
                                const struct dpe_detect_hooks *hooks, struct dpe_error *err)
{
    struct dpe_detect_cursor cursor = {
        .per_round = stage->per_round, .n_tasks = stage->n_tasks, .n_plans = stage->n_plans};
    for (int i = 0; i < stage->n_tasks; i++) {
        cursor.n_samples[i] = stage->n_samples[i];
    }
    struct dpe_session *session = NULL;
    int in_session = -1; /* plan that the session has */
    int task = 0;
    int plan = 0;
    int64_t offset = 0;
    while (dpe_detect_next(&cursor, &task, &plan, &offset)) {
        int64_t sample = stage->first[task] + offset;
        if (dpe_run_find(run, stage->tasks[task].name, stage->keys[plan], sample) != NULL) {
            continue;
        }
        dpe_status status = hooks->before(hooks->user, task, err);
        if (status == DPE_OK && session == NULL) {
            status = hooks->session(hooks->user, &session, err);
        }
        if (status == DPE_OK && in_session != plan) {
            status = dpe_run_plan(run, stage->keys[plan], stage->plans[plan]->name, err);
            if (status == DPE_OK) {
                status = dpe_session_set_plan(session, stage->plans[plan], err);
            }
            in_session = plan;
        }
        if (status == DPE_OK) {
            status = add_row(stage, run, hooks, session, task, plan, sample, err);
        }
        if (status != DPE_OK) {
            return status;
        }
    }
    return DPE_OK;
}
