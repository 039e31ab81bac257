/* What a comparison would cost, and how long it would take here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/tool/comparison/comparison.h"
#include "outputs/job/price.h"

/* Books: every window is read whole, and its tokens go through the LM head. */
static double windows_of(const struct dpe_comparison *comparison, const struct dpe_suite_task *task)
{
    const struct dpe_eval_arguments *args = comparison->args;
    double n = (double)task->length;
    double stride = (double)args->general.stride;
    double most = args->general.max_tokens > 0 ? (double)args->general.max_tokens : 4.0 * n;
    return stride > 0.0 ? 1.0 + fmax(ceil((most - n) / stride), 0.0) : 1.0;
}

static dpe_status price_task(const struct dpe_comparison *comparison, const struct dpe_suite *suite,
                             const struct dpe_suite_task *task, struct dpe_price *price,
                             struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(comparison->job.model);
    if (suite->perplexity) {
        dpe_price_text(config, task->length, windows_of(comparison, task), true, price);
        return DPE_OK;
    }
    int64_t together = dpe_least(task->task.together, task->n_samples);
    return dpe_task_price(&task->task, together, task->length, comparison->job.batch, config, price,
                          NULL, err);
}

/* Add the rows of every task, or print them. rows: of each task of the first suite, the only one
 * then; NULL: every sample under `share` of all methods. */
static dpe_status each_task(const struct dpe_comparison *comparison, const double *rows,
                            double share, const struct dpe_selection *selection,
                            const struct dpe_job_speed *speed, struct dpe_bill *bill,
                            struct dpe_error *err)
{
    for (int i = 0; i < (rows != NULL ? 1 : comparison->n_suites); i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        for (size_t t = 0; t < suite->n_tasks; t++) {
            const struct dpe_suite_task *task = &suite->tasks[t];
            struct dpe_price price = {0};
            double n = rows != NULL
                           ? rows[t]
                           : (double)task->n_samples * (double)comparison->n_methods * share;
            DPE_TRY(price_task(comparison, suite, task, &price, err));
            if (bill == NULL) {
                dpe_price_print(task->task.name, n, false, &price);
            } else {
                dpe_bill_add(bill, &price, n, n, selection, speed);
            }
        }
    }
    return DPE_OK;
}

static bool more_work(const struct dpe_plan *plan, const struct dpe_plan *than, int64_t length)
{
    return dpe_selects(&plan->selection) ? dpe_selection_work(&plan->selection, length) >
                                               dpe_selection_work(&than->selection, length)
                                         : plan->n_bands > than->n_bands;
}

/* The plan whose attention does most, of those that select blocks or of the others: that which
 * meets and scores most, or that with most bands. NULL: none; *share: of all plans. */
static const struct dpe_plan *slowest_plan(const struct dpe_comparison *comparison, bool selects,
                                           double *share)
{
    const struct dpe_plan *slowest = NULL;
    int64_t length = comparison->lengths[comparison->n_lengths - 1];
    int n = 0;
    for (int p = 0; p < comparison->n_plans; p++) {
        const struct dpe_plan *plan = &comparison->plans[p];
        if (dpe_selects(&plan->selection) == selects) {
            slowest = slowest == NULL || more_work(plan, slowest, length) ? plan : slowest;
            n++;
        }
    }
    *share = (double)n / fmax((double)comparison->n_plans, 1.0);
    return slowest;
}

const struct dpe_plan *dpe_eval_larger_plan(const struct dpe_comparison *comparison,
                                            const struct dpe_plan *plan,
                                            const struct dpe_plan *other)
{
    int64_t longest = comparison->lengths[comparison->n_lengths - 1];
    return dpe_job_needs_more(&comparison->job, other, plan, longest) ? other : plan;
}

const struct dpe_plan *dpe_eval_largest_plan(const struct dpe_comparison *comparison)
{
    const struct dpe_plan *largest = &comparison->plans[0];
    for (int p = 1; p < comparison->n_plans; p++) {
        largest = dpe_eval_larger_plan(comparison, largest, &comparison->plans[p]);
    }
    return largest;
}

/* −1: the estimate failed, as where a method cannot run here. */
static int64_t sample_bytes(const struct dpe_comparison *comparison, const char *key,
                            int64_t length)
{
    struct dpe_session_options options = dpe_job_session_options(&comparison->job, length);
    struct dpe_session_needs needs = {0};
    options.capacity = options.positions = length;
    options.branches = options.n_threads = 1;
    options.max_memory = UINT64_MAX; /* or a device's free memory would decide the chunk */
    options.kv_dir = NULL;
    const struct dpe_plan *plan = NULL;
    for (int p = 0; p < comparison->n_plans && plan == NULL; p++) {
        plan = strcmp(comparison->keys[p], key) == 0 ? &comparison->plans[p] : NULL;
    }
    if (plan == NULL || dpe_session_estimate(dpe_model_config(comparison->job.model), plan,
                                             &options, &needs, NULL) != DPE_OK) {
        return -1;
    }
    bool on_device = strcmp(comparison->job.device_info.kind, "cuda") == 0; /* with the weights */
    return (int64_t)(needs.memory - (on_device ? needs.weights : 0));
}

dpe_status dpe_eval_count_memory(const struct dpe_comparison *comparison,
                                 struct dpe_results *results, struct dpe_error *err)
{
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks;
    DPE_TRY(DPE_NEW(&results->r.memory, n, err, "out of memory for results"));
    for (size_t i = 0; i < n; i++) {
        int64_t length = results->suite->tasks[i % (size_t)results->n_tasks].length;
        results->r.memory[i] = sample_bytes(comparison, results->r.plan[i], length);
    }
    return DPE_OK;
}

/* The rows under one plan, with the time that they take where that is wanted. */
static dpe_status add_rows(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                           const double *rows, double share, bool timed, struct dpe_bill *bill,
                           struct dpe_error *err)
{
    struct dpe_job_speed speed = {0};
    if (timed) {
        dpe_bill_measure(bill, &comparison->job, plan,
                         comparison->lengths[comparison->n_lengths - 1], &speed);
    }
    return each_task(comparison, rows, share, &plan->selection, &speed, bill, err);
}

static dpe_status print_rows(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                             const double *rows, struct dpe_error *err)
{
    DPE_TRY(each_task(comparison, rows, 1.0, NULL, NULL, NULL, err));
    return dpe_price_print_memory(&comparison->job,
                                  plan != NULL ? plan : dpe_eval_largest_plan(comparison),
                                  comparison->lengths[comparison->n_lengths - 1], "", err);
}

/* What the rows come to, once all are added. */
static dpe_status finish(const struct dpe_comparison *comparison, const struct dpe_bill *bill,
                         struct dpe_bill *sum)
{
    if (!comparison->args->job.silent) {
        dpe_bill_print(bill);
        dpe_bill_print_time(bill);
    }
    dpe_bill_sum(sum, bill);
    return DPE_OK;
}

dpe_status dpe_eval_add_cost(const struct dpe_comparison *comparison, const struct dpe_plan *plan,
                             const double *rows, struct dpe_bill *sum, struct dpe_error *err)
{
    struct dpe_bill bill = {0};
    const bool print = !comparison->args->job.silent;
    const bool timed = print || sum != NULL;
    double share = 1.0;
    if (print) {
        DPE_TRY(print_rows(comparison, plan, rows, err));
    }
    if (plan != NULL) {
        DPE_TRY(add_rows(comparison, plan, rows, 1.0, timed, &bill, err));
    }
    for (int selects = 1; selects >= 0 && plan == NULL; selects--) {
        const struct dpe_plan *slowest = slowest_plan(comparison, selects != 0, &share);
        if (slowest != NULL) {
            DPE_TRY(add_rows(comparison, slowest, rows, share, timed, &bill, err));
        }
    }
    return finish(comparison, &bill, sum);
}

/* A part of dpe-calibrate whose inputs are not there yet: so many rows of its only task, under a
 * plan of its kind. */
static dpe_status add_planned(const struct dpe_comparison *comparison, struct dpe_bill *sum,
                              struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = comparison->args;
    const struct dpe_suite *suite = &comparison->suites[0];
    const double rows = (double)(suite->tasks[0].n_samples * args->planned_methods);
    const bool print = !args->job.silent;
    struct dpe_price price = {0};
    struct dpe_bill bill = {0};
    DPE_TRY(price_task(comparison, suite, &suite->tasks[0], &price, err));
    if (print) {
        dpe_print("\n");
        dpe_price_print(args->planned, rows, true, &price);
    }
    DPE_TRY(add_rows(comparison, dpe_eval_largest_plan(comparison), &rows, 1.0,
                     print || sum != NULL, &bill, err));
    return finish(comparison, &bill, sum);
}

dpe_status dpe_eval_cost(void *state, struct dpe_bill *sum, struct dpe_error *err)
{
    struct dpe_comparison *comparison = state;
    const struct dpe_eval_arguments *args = comparison->args;
    DPE_TRY(dpe_eval_fit_batch(comparison, dpe_eval_largest_plan(comparison), err));
    if (args->planned != NULL) {
        return add_planned(comparison, sum, err);
    }
    if (!args->job.silent) {
        dpe_print("model            %s\n", args->job.model);
        dpe_print("%-16s %d\n", args->what != NULL ? "steps" : "methods", comparison->n_methods);
    }
    return dpe_eval_add_cost(comparison, NULL, NULL, sum, err);
}
