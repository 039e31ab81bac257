/* Lists of work, gathered. */
#include "outputs/job/wanted.h"

#include <stdlib.h>

void dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens, double cost)
{
    const size_t n = wanted->n_tasks;
    if (!dpe_make_room(&wanted->tasks, n, sizeof *wanted->tasks) ||
        !dpe_make_room(&wanted->tokens, n, sizeof *wanted->tokens) ||
        !dpe_make_room(&wanted->cost, n, sizeof *wanted->cost)) {
        wanted->failed = true;
        return;
    }
    wanted->tasks[n] = name;
    wanted->tokens[n] = tokens;
    wanted->cost[n] = cost;
    wanted->n_tasks++;
}

void dpe_wanted_plan(struct dpe_wanted *wanted, const struct dpe_plan *plan, const char *key)
{
    const size_t n = wanted->n_plans;
    if (!dpe_make_room(&wanted->plans, n, sizeof *wanted->plans) ||
        !dpe_make_room(&wanted->keys, n, sizeof *wanted->keys)) {
        wanted->failed = true;
        return;
    }
    wanted->plans[n] = plan;
    wanted->keys[n] = key;
    wanted->n_plans++;
}

void dpe_wanted_rows(struct dpe_wanted *wanted, int task, int plan, int64_t first, int64_t n)
{
    for (int64_t s = first; s < first + n && !wanted->failed; s++) {
        wanted->failed = !dpe_make_room(&wanted->items, wanted->n_items, sizeof *wanted->items);
        if (!wanted->failed) {
            wanted->items[wanted->n_items++] =
                (struct dpe_item){.task = task, .plan = plan, .sample = s};
        }
    }
}

dpe_status dpe_wanted_run(struct dpe_wanted *wanted, struct dpe_job *job,
                          const struct dpe_work *how, struct dpe_error *err)
{
    struct dpe_work work = *how;
    work.n_tasks = (int)wanted->n_tasks;
    work.tasks = wanted->tasks;
    work.n_plans = (int)wanted->n_plans;
    work.plans = wanted->plans;
    work.keys = wanted->keys;
    work.items = wanted->items;
    work.n_items = wanted->n_items;
    work.tokens = wanted->tokens;
    work.cost = wanted->cost;
    dpe_status status =
        wanted->failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu rows", wanted->n_items)
                       : dpe_job_rows(job, &work, err);
    free(wanted->tasks);
    free(wanted->tokens);
    free(wanted->cost);
    free(wanted->plans);
    free(wanted->keys);
    free(wanted->items);
    *wanted = (struct dpe_wanted){0};
    return status;
}
