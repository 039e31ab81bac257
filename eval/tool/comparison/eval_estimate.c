/* What a comparison would cost, and how long it would take here. */
#include <math.h>
#include <string.h>

#include "eval/tool/comparison/comparison.h"
#include "outputs/job/estimate.h"

/* What a sample of a task costs, on average over those that are made together. */
struct cost {
    double prompt, read, pairs, room, steps, branches, head;
};

static dpe_status cost_of_answers(const struct comparison *comparison,
                                  const struct dpe_suite_task *task, struct cost *cost,
                                  struct dpe_error *err)
{
    enum { MOST = 64 };
    struct dpe_sample samples[MOST] = {{0}};
    struct dpe_answering answering = {0};
    int64_t batch = comparison->job.batch > 1 ? comparison->job.batch : 1;
    int64_t n = task->task.together < MOST ? task->task.together : MOST;
    n = n < task->n_samples ? n : task->n_samples;
    const struct dpe_session_limits limits = {
        .capacity = task->length * batch, .positions = task->length, .branches = batch};
    dpe_status status = DPE_OK;
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        status = dpe_task_sample(&task->task, i, &samples[i], NULL, err);
    }
    if (status == DPE_OK) {
        status = dpe_answering_cost(samples, n, batch, &limits, &answering, err);
    }
    if (status == DPE_OK) {
        double share = 1.0 / (double)n;
        *cost = (struct cost){.prompt = (double)answering.prompts * share,
                              .read = (double)answering.read * share,
                              .pairs = 2.0 * answering.pairs * share,
                              .room = (double)samples[0].max_new,
                              .steps = (double)answering.steps * share,
                              .branches = (double)answering.decoded /
                                          fmax((double)answering.steps, 1.0),
                              .head = 1.0};
    }
    for (int64_t i = 0; i < n; i++) {
        dpe_sample_free(&samples[i]);
    }
    return status;
}

/* Books: every window is read whole, and its tokens go through the LM head. */
static void cost_of_books(const struct comparison *comparison, const struct dpe_suite_task *task,
                          struct cost *cost)
{
    const struct eval_arguments *args = comparison->args;
    double products[2] = {0.0, 0.0};
    double attention[2] = {0.0, 0.0};
    double n = (double)task->length;
    double stride = (double)args->general.stride;
    double windows = 1.0;
    if (stride > 0.0) {
        double most = args->general.max_tokens > 0 ? (double)args->general.max_tokens : 4.0 * n;
        windows += fmax(ceil((most - n) / stride), 0.0);
    }
    dpe_config_flops(dpe_model_config(comparison->job.model), 0, task->length, 0, &products[0],
                     &attention[0]);
    dpe_config_flops(dpe_model_config(comparison->job.model), 0, task->length, task->length,
                     &products[1], &attention[1]);
    *cost = (struct cost){.prompt = n * windows,
                          .read = n * windows,
                          .pairs = n * n * windows,
                          .head = products[1] / products[0]};
}

static dpe_status cost_of_task(const struct comparison *comparison, const struct dpe_suite *suite,
                               const struct dpe_suite_task *task, struct cost *cost,
                               struct dpe_error *err)
{
    if (suite->perplexity) {
        cost_of_books(comparison, task, cost);
        return DPE_OK;
    }
    return cost_of_answers(comparison, task, cost, err);
}

/* Print `rows` samples of a task, or with `speed` add the time that they take. */
static dpe_status take_task(const struct comparison *comparison, const struct dpe_suite *suite,
                            const struct dpe_suite_task *task, double rows,
                            const struct dpe_selection *selection,
                            const struct dpe_job_speed *speed, struct dpe_job_range *range,
                            struct dpe_error *err)
{
    struct cost cost = {0};
    dpe_status status = cost_of_task(comparison, suite, task, &cost, err);
    if (selection != NULL && dpe_selects(selection)) {
        double n = fmax(cost.prompt, 1.0);
        cost.pairs *= 2.0 * dpe_selection_work(selection, (int64_t)n) / (n * (n + 1.0));
    }
    if (status == DPE_OK && speed == NULL) {
        printf("%-16s %.0f samples of %.0f tokens", task->task.name, rows, cost.prompt);
        printf(cost.room > 0.0 ? " and at most %.0f generated\n" : "\n", cost.room);
    } else if (status == DPE_OK) {
        dpe_job_range_add(range, speed, rows, cost.read * cost.head, cost.pairs, cost.steps,
                          cost.prompt * cost.branches);
    }
    return status;
}

/* rows: of each task of the first suite, the only one then; NULL: every sample under `share` of all
 * methods. */
static dpe_status each_task(const struct comparison *comparison, const double *rows, double share,
                            const struct dpe_selection *selection,
                            const struct dpe_job_speed *speed, struct dpe_job_range *range,
                            struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (int i = 0; i < (rows != NULL ? 1 : comparison->n_suites); i++) {
        const struct dpe_suite *suite = &comparison->suites[i];
        for (size_t t = 0; t < suite->n_tasks && status == DPE_OK; t++) {
            const struct dpe_suite_task *task = &suite->tasks[t];
            double n = rows != NULL ? rows[t]
                                    : (double)task->n_samples * (double)comparison->n_methods *
                                          share;
            status = take_task(comparison, suite, task, n, selection, speed, range, err);
        }
    }
    return status;
}

static bool more_work(const struct dpe_plan *plan, const struct dpe_plan *than, int64_t length)
{
    return dpe_selects(&plan->selection) ? dpe_selection_work(&plan->selection, length) >
                                               dpe_selection_work(&than->selection, length)
                                         : plan->n_bands > than->n_bands;
}

/* The plan whose attention does most, of those that select blocks or of the others: that which meets
 * and scores most, or that with most bands. NULL: none; *share: of all plans. */
static const struct dpe_plan *slowest_plan(const struct comparison *comparison, bool selects,
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

const struct dpe_plan *dpe_eval_larger_plan(const struct comparison *comparison,
                                            const struct dpe_plan *plan,
                                            const struct dpe_plan *other)
{
    int64_t longest = comparison->lengths[comparison->n_lengths - 1];
    return dpe_job_needs_more(&comparison->job, other, plan, longest) ? other : plan;
}

const struct dpe_plan *dpe_eval_largest_plan(const struct comparison *comparison)
{
    const struct dpe_plan *largest = &comparison->plans[0];
    for (int p = 1; p < comparison->n_plans; p++) {
        largest = dpe_eval_larger_plan(comparison, largest, &comparison->plans[p]);
    }
    return largest;
}

/* −1: the estimate failed, as where a method cannot run here. */
static int64_t sample_bytes(const struct comparison *comparison, const char *key, int64_t length)
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
    if (plan == NULL || dpe_session_estimate(dpe_model_config(comparison->job.model), plan, &options,
                                             &needs, NULL) != DPE_OK) {
        return -1;
    }
    bool on_device = strcmp(comparison->job.device_info.kind, "cuda") == 0; /* with the weights */
    return (int64_t)(needs.memory - (on_device ? needs.weights : 0));
}

dpe_status dpe_eval_count_memory(const struct comparison *comparison, struct dpe_results *results,
                                 struct dpe_error *err)
{
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks;
    results->memory = dpe_alloc(n, sizeof *results->memory);
    for (size_t i = 0; i < n && results->memory != NULL; i++) {
        int64_t length = results->suite->tasks[i % (size_t)results->n_tasks].length;
        results->memory[i] = sample_bytes(comparison, results->keys[i], length);
    }
    return results->memory != NULL ? DPE_OK
                                   : dpe_fail(err, DPE_NO_MEMORY, "out of memory for results");
}

static dpe_status print_memory(const struct comparison *comparison, const struct dpe_plan *plan,
                               struct dpe_error *err)
{
    const struct dpe_session_options options = dpe_job_session_options(
        &comparison->job, comparison->lengths[comparison->n_lengths - 1]);
    struct dpe_session_needs needs = {0};
    char memory[DPE_JOB_MEMORY];
    dpe_status status = dpe_session_estimate(dpe_model_config(comparison->job.model), plan,
                                             &options, &needs, err);
    if (status == DPE_OK) {
        printf("memory           %s\n",
               dpe_job_memory_text(&comparison->job, &needs, memory));
    }
    return status;
}

/* The time of the rows under one plan, added to the range. */
static dpe_status add_time(const struct comparison *comparison, const struct dpe_plan *plan,
                           const double *rows, double share, struct dpe_job_speed *speed,
                           struct dpe_job_range *range, bool *measured, struct dpe_error *err)
{
    struct dpe_error why = {0};
    *measured = dpe_job_measure_here(&comparison->job, plan,
                                     comparison->lengths[comparison->n_lengths - 1], speed,
                                     &why) == DPE_OK;
    if (!*measured) {
        printf("time             not measured: %s\n", why.text);
        return DPE_OK;
    }
    return each_task(comparison, rows, share, &plan->selection, speed, range, err);
}

dpe_status dpe_eval_print_cost(const struct comparison *comparison, const struct dpe_plan *plan,
                               const double *rows, struct dpe_error *err)
{
    struct dpe_job_speed speed = {0};
    struct dpe_job_range range = {0};
    double share = 1.0;
    bool measured = true;
    dpe_status status = each_task(comparison, rows, 1.0, NULL, NULL, NULL, err);
    if (status == DPE_OK) {
        status = print_memory(comparison, plan != NULL ? plan : dpe_eval_largest_plan(comparison),
                              err);
    }
    fflush(stdout);
    if (status == DPE_OK && plan != NULL) {
        status = add_time(comparison, plan, rows, 1.0, &speed, &range, &measured, err);
    }
    for (int selects = 1; selects >= 0 && plan == NULL && status == DPE_OK && measured; selects--) {
        const struct dpe_plan *slowest = slowest_plan(comparison, selects != 0, &share);
        if (slowest != NULL) {
            status = add_time(comparison, slowest, rows, share, &speed, &range, &measured, err);
        }
    }
    if (status == DPE_OK && measured) {
        dpe_job_range_print(&range, &speed);
    }
    return status;
}

dpe_status dpe_eval_dry_run(struct comparison *comparison, struct dpe_error *err)
{
    dpe_status status = dpe_eval_fit_batch(comparison, dpe_eval_largest_plan(comparison), err);
    if (status != DPE_OK) {
        return status;
    }
    printf("model            %s\n", comparison->args->job.model);
    printf("%-16s %d\n", comparison->args->what != NULL ? "steps" : "methods",
           comparison->n_methods);
    return dpe_eval_print_cost(comparison, NULL, NULL, err);
}
