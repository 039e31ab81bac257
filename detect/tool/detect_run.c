/* A sweep from the first row to the finished table: its two lists of rows and its live line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/table/detect_table.h"
#include "detect/tool/detect_stages.h"

static const double nonfinite_limit = 0.05;

/* ---------------------------------------------------------------------------------------- progress
 */

/* Best length per group by the means so far: what the final ranking does, without its intervals. */
static void update_best(struct sweep *sweep)
{
    const struct dpe_detect_grid *grid = &sweep->inputs->grid;
    bool lower = dpe_detect_deciding(sweep->report)->criterion == DPE_DETECT_PERPLEXITY;
    for (int g = 0; g < grid->params.n_groups; g++) {
        double best = -INFINITY;
        sweep->best[g] = -1;
        for (int t = 0; t < grid->params.n_lengths; t++) {
            int c = grid->cell[g * grid->params.n_lengths + t];
            if (!(sweep->weight[c] > 0.0)) {
                continue;
            }
            double mean = sweep->sum[c] / sweep->weight[c];
            double value = lower ? -mean : round(mean * 1e9);
            if (value >= best) { /* lengths ascend: a tie goes to the larger */
                best = value;
                sweep->best[g] = grid->params.lengths[t];
            }
        }
    }
}

static void live_line(void *user, const struct dpe_work_progress *work, int width, char *text,
                      size_t size)
{
    struct sweep *sweep = user;
    const struct dpe_item *last = work->last;
    int64_t most = 0;
    for (size_t i = 0; i < work->work->n_items; i++) {
        const struct dpe_item *item = &work->work->items[i];
        int64_t samples = item->sample - sweep->first[item->task] + 1;
        most = samples > most ? samples : most;
    }
    int64_t per_round = dpe_detect_inputs_per_round(sweep->inputs);
    int64_t round = last != NULL ? (last->sample - sweep->first[last->task]) / per_round : 0;
    const struct dpe_detect_progress progress = {
        .stage = work->work->name,
        .round = round + 1,
        .rounds = (most + per_round - 1) / per_round,
        .plans_done = work->rows_done == work->rows ? work->work->n_plans
                      : last != NULL                ? last->plan
                                                    : 0,
        .plans = work->work->n_plans,
        .rows_done = work->rows_done,
        .rows = work->rows,
        .rate = work->rate,
        .seconds_left = work->seconds_left,
        .best = sweep->sweeping ? sweep->best : NULL,
        .n_best = sweep->inputs->grid.params.n_groups,
    };
    update_best(sweep);
    dpe_detect_live_line(&progress, width, text, size);
}

static void add_to_best(void *user, const struct dpe_item *item, const struct dpe_row *row)
{
    struct sweep *sweep = user;
    const struct dpe_detect_result *deciding = dpe_detect_deciding(sweep->report);
    if (!sweep->sweeping || row->status != DPE_ROW_OK || strcmp(row->task, deciding->task) != 0) {
        return;
    }
    bool recall = deciding->criterion == DPE_DETECT_RECALL;
    sweep->sum[item->plan] += recall ? row->score : row->nll_sum;
    sweep->weight[item->plan] += recall ? 1.0 : (double)row->n_tokens;
}

/* ------------------------------------------------------------------------------------------ stages
 */

static dpe_status fill_table(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    struct sweep *sweep = user;
    const struct dpe_run *run = sweep->inputs->job.run;
    sweep->report->work = dpe_job_work(&sweep->inputs->job);
    DPE_TRY(dpe_detect_report_sweep(sweep->report, run, err));
    if (sweep->report->keys[DPE_DETECT_JOINT][0] != '\0') {
        DPE_TRY(dpe_detect_report_validation(sweep->report, run, err));
    }
    return dpe_detect_write(sweep->report, sweep->complete, table, err);
}

static dpe_status make_rows(void *user, const struct dpe_item *items, int64_t n,
                            struct dpe_session *session, struct dpe_row *rows,
                            struct dpe_error *err)
{
    const struct sweep *sweep = user;
    return dpe_task_rows_of_items(&sweep->tasks[items->task], session,
                                  sweep->work->keys[items->plan], items, n, rows, err);
}

/* Rounds of a few samples over all tasks and plans: a sweep that stops early has seen every plan
 * about equally. */
static size_t fill_items(const struct stage *stage, int64_t per_round, struct dpe_item *items)
{
    struct dpe_detect_cursor cursor = {
        .per_round = per_round, .n_tasks = stage->n_tasks, .n_plans = stage->n_plans};
    for (int i = 0; i < cursor.n_tasks; i++) {
        cursor.n_samples[i] = stage->n_samples[i];
    }
    size_t n = 0;
    struct dpe_item item;
    while (dpe_detect_next(&cursor, &item.task, &item.plan, &item.sample)) {
        item.sample += stage->first[item.task];
        if (stage->live == NULL || stage->live[item.plan] != 0) {
            items[n++] = item;
        }
    }
    return n;
}

struct stage dpe_detect_stage_of(const struct sweep *sweep, const char *name,
                                 const struct dpe_task *task, int64_t n)
{
    struct stage stage = {.name = name, .n_tasks = 1, .tasks = task, .n_samples = {n}};
    for (int i = 0; i < sweep->inputs->n_tasks; i++) {
        stage.later[i] = dpe_detect_inputs_validated_rows(sweep->inputs, i);
    }
    return stage;
}

dpe_status dpe_detect_stage_run(struct sweep *sweep, const struct stage *stage,
                                struct dpe_error *err)
{
    const char *names[2] = {NULL, NULL};
    int64_t rows = 0;
    int64_t tokens[2];
    for (int i = 0; i < stage->n_tasks; i++) {
        tokens[i] = dpe_detect_inputs_read(sweep->inputs, i);
        names[i] = stage->tasks[i].name;
        rows += stage->n_samples[i] * stage->n_plans;
    }
    struct dpe_item *items = NULL;
    DPE_TRY(DPE_NEW(&items, (size_t)rows, err, "out of memory for %lld samples", (long long)rows));
    const struct dpe_work work = {
        .name = stage->name,
        .n_tasks = stage->n_tasks,
        .tasks = names,
        .n_plans = stage->n_plans,
        .plans = stage->plans,
        .keys = stage->keys,
        .items = items,
        .n_items = fill_items(stage, dpe_detect_inputs_per_round(sweep->inputs), items),
        .capacity = sweep->inputs->args->job.length,
        .user = sweep,
        .rows = make_rows,
        .seen = add_to_best,
        .line = live_line,
        .fill = fill_table,
        .tokens = tokens,
        .cost = sweep->cost,
        .planned = sweep->planned,
        .later = stage->last ? NULL : stage->later,
        .nonfinite_limit = nonfinite_limit,
    };
    sweep->first = stage->first;
    sweep->tasks = stage->tasks;
    sweep->work = &work;
    dpe_status status = dpe_job_rows(&sweep->inputs->job, &work, err);
    free(items);
    return status;
}

/* Configurations of the lengths that a race has left. */
static int find_live(const struct sweep *sweep, unsigned char *live)
{
    const struct dpe_detect_grid *grid = &sweep->inputs->grid;
    int n = 0;
    memset(live, 0, (size_t)grid->n_configs);
    for (int c = 0; c < grid->params.n_groups * grid->params.n_lengths; c++) {
        if (sweep->report->race.dropped[c] < 0) {
            n += live[grid->cell[c]] == 0;
            live[grid->cell[c]] = 1;
        }
    }
    return n;
}

/* Round after round, each on the lengths that are left. */
static dpe_status race_rounds(struct sweep *sweep, struct stage *stage, unsigned char *live,
                              struct dpe_error *err)
{
    const int64_t samples = stage->n_samples[0];
    const int64_t after = stage->later[0];
    const int64_t per_round = dpe_detect_inputs_per_round(sweep->inputs);
    const struct dpe_run *run = sweep->inputs->job.run;
    const struct dpe_race *race = &sweep->report->race;
    DPE_TRY(dpe_detect_report_race(sweep->report, run, err));
    while (!race->complete) {
        int64_t left = samples - race->samples;
        stage->first[0] = race->samples;
        stage->n_samples[0] = left < per_round ? left : per_round;
        stage->later[0] = after + (left - stage->n_samples[0]) * find_live(sweep, live);
        stage->live = live;
        DPE_TRY(dpe_detect_stage_run(sweep, stage, err));
        DPE_TRY(dpe_detect_report_race(sweep->report, run, err));
    }
    return DPE_OK;
}

static dpe_status sweep_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_grid *grid = &inputs->grid;
    size_t n = (size_t)grid->n_configs;
    const struct dpe_plan **plans = dpe_alloc(n, sizeof(void *));
    const char **keys = dpe_alloc(n, sizeof *keys);
    unsigned char *live = dpe_alloc(n, 1);
    dpe_status status = DPE_OK;
    if (plans == NULL || keys == NULL || live == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu configurations", n);
        goto done;
    }
    for (size_t c = 0; c < n; c++) {
        plans[c] = &grid->configs[c].plan;
        keys[c] = grid->configs[c].key;
    }
    struct stage stage = dpe_detect_stage_of(sweep, inputs->args->race ? "race" : "sweep",
                                             inputs->tasks, inputs->n_samples[0]);
    stage.n_tasks = inputs->n_tasks;
    stage.n_samples[1] = inputs->n_samples[1];
    stage.n_plans = grid->n_configs;
    stage.plans = plans;
    stage.keys = keys;
    stage.later[0] += dpe_detect_inputs_steps(inputs) * inputs->n_samples[0];
    sweep->sweeping = true;
    status = inputs->args->race ? race_rounds(sweep, &stage, live, err)
                                : dpe_detect_stage_run(sweep, &stage, err);
    sweep->sweeping = false;
done:
    free(plans);
    free(keys);
    free(live);
    return status;
}

/* One step of the sequential rule, on the deciding task alone: it is the first. */
static dpe_status step_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_selection *selection = &sweep->report->selection;
    int n = inputs->grid.params.n_lengths;
    /* Too large for a small stack. */
    struct dpe_plan *plans = dpe_alloc_zero((size_t)n, sizeof *plans);
    char names[DPE_DETECT_MAX_LENGTHS][33];
    const struct dpe_plan *borrowed[DPE_DETECT_MAX_LENGTHS];
    const char *keys[DPE_DETECT_MAX_LENGTHS];
    if (plans == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %d plans", n);
    }
    dpe_status status =
        dpe_detect_step_plans(&inputs->grid, &inputs->context, selection->at,
                              dpe_detect_pending_group(selection), plans, names, err);
    if (status != DPE_OK) {
        free(plans);
        return status;
    }
    for (int t = 0; t < n; t++) {
        borrowed[t] = &plans[t];
        keys[t] = names[t];
    }
    struct stage stage = dpe_detect_stage_of(sweep, "select", inputs->tasks, inputs->n_samples[0]);
    stage.n_plans = n;
    stage.plans = borrowed;
    stage.keys = keys;
    stage.later[0] +=
        (dpe_detect_inputs_steps(inputs) - selection->n_choices * (n - 1)) * inputs->n_samples[0];
    status = dpe_detect_stage_run(sweep, &stage, err);
    for (int t = 0; t < n; t++) {
        dpe_plan_free(&plans[t]);
    }
    free(plans);
    return status;
}

/* --------------------------------------------------------------------------------------- the whole
 */

void dpe_detect_stage_plan(struct sweep *sweep)
{
    const struct detect_inputs *inputs = sweep->inputs;
    for (int i = 0; i < inputs->n_tasks; i++) {
        bool sweeps = dpe_detect_sweeps(inputs->args->rule);
        sweep->planned[i] = (sweeps ? inputs->n_samples[i] * inputs->grid.n_configs : 0) +
                            dpe_detect_inputs_validated_rows(inputs, i);
    }
    const struct detect_held_rows held = dpe_detect_inputs_held(inputs);
    sweep->planned[0] += dpe_detect_inputs_steps(inputs) * inputs->n_samples[0] + held.users +
                         held.ceilings + held.texts;
}

static dpe_status sweep_prepare(struct sweep *sweep, struct dpe_error *err)
{
    const struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_grid *grid = &inputs->grid;
    size_t n_configs = (size_t)grid->n_configs;
    sweep->sum = dpe_alloc_zero(n_configs, sizeof *sweep->sum);
    sweep->weight = dpe_alloc_zero(n_configs, sizeof *sweep->weight);
    sweep->best = dpe_alloc_zero((size_t)grid->params.n_groups, sizeof *sweep->best);
    if (sweep->sum == NULL || sweep->weight == NULL || sweep->best == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu configurations", n_configs);
    }
    for (int i = 0; i < inputs->n_tasks; i++) {
        bool niah = strcmp(inputs->tasks[i].name, "ppl") != 0;
        double products = 0.0;
        double attention = 0.0;
        dpe_config_flops(dpe_model_config(inputs->job.model), 0, inputs->args->job.length,
                         niah ? 1 : inputs->args->job.length, &products, &attention);
        sweep->cost[i] = products + attention;
    }
    dpe_detect_stage_plan(sweep);
    return DPE_OK;
}

/* Search, sweep and validation with the task that is set. */
static dpe_status run_task(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = sweep->report;
    const struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_run *run = inputs->job.run;
    dpe_status status = dpe_detect_inputs_hold(sweep->inputs, err);
    if (status != DPE_OK) {
        return status;
    }
    dpe_detect_report_free(report);
    dpe_detect_inputs_report(sweep->inputs, report);
    if ((status = dpe_detect_stage_search(sweep, err)) != DPE_OK ||
        (status = dpe_detect_stage_warm(sweep, err)) != DPE_OK ||
        (dpe_detect_sweeps(inputs->args->rule) && (status = sweep_stage(sweep, err)) != DPE_OK)) {
        return status;
    }
    report->swept = true;
    status = dpe_detect_report_sweep(report, run, err);
    while (status == DPE_OK && !report->selection.complete) {
        status = step_stage(sweep, err);
        if (status == DPE_OK) {
            status = dpe_detect_report_sweep(report, run, err);
        }
    }
    if (status != DPE_OK || (status = dpe_detect_stage_search(sweep, err)) != DPE_OK ||
        (status = dpe_detect_report_sweep(report, run, err)) != DPE_OK ||
        (status = dpe_detect_stage_validate(sweep, err)) != DPE_OK) {
        return status;
    }
    return dpe_detect_report_validation(report, run, err);
}

static dpe_status run_stages(struct sweep *sweep, struct dpe_error *err)
{
    DPE_TRY(dpe_detect_stage_pilot(sweep, err));
    DPE_TRY(run_task(sweep, err));
    sweep->complete = true;
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------------ study
 */

struct detection {
    struct dpe_detect_arguments args; /* a copy: tables of dpe-eval tune become what they chose */
    struct detect_inputs inputs;
    struct dpe_detect_report report;
    struct sweep sweep;
};

static dpe_status detection_open(void *state, const void *asked, struct dpe_error *err)
{
    struct detection *detection = state;
    detection->args = *(const struct dpe_detect_arguments *)asked;
    detection->sweep = (struct sweep){.inputs = &detection->inputs, .report = &detection->report};
    DPE_TRY(dpe_detect_against_read(&detection->args, err));
    return dpe_detect_inputs_open(&detection->inputs, &detection->args, err);
}

static dpe_status detection_cost(void *state, struct dpe_bill *bill, struct dpe_error *err)
{
    struct detection *detection = state;
    return dpe_detect_cost(&detection->inputs, bill, err);
}

static dpe_status detection_start(void *state, struct dpe_error *err)
{
    struct detection *detection = state;
    dpe_detect_announce(&detection->inputs);
    dpe_detect_inputs_report(&detection->inputs, &detection->report);
    DPE_TRY(sweep_prepare(&detection->sweep, err));
    return dpe_detect_inputs_start(&detection->inputs, err);
}

static dpe_status detection_rows(void *state, struct dpe_error *err)
{
    struct detection *detection = state;
    dpe_status status = run_stages(&detection->sweep, err);
    const struct dpe_session_work work = dpe_job_work(&detection->inputs.job);
    dpe_log_info("%lld tokens were read, %lld decoded in %lld steps", (long long)work.fed,
                 (long long)work.decoded, (long long)work.steps);
    return status;
}

static dpe_status detection_fill(void *state, struct dpe_h5 *table, struct dpe_error *err)
{
    struct detection *detection = state;
    return fill_table(&detection->sweep, table, err);
}

static dpe_status detection_print(void *state, struct dpe_error *err)
{
    struct detection *detection = state;
    return detection->args.job.result != DPE_RESULT_TEXT
               ? dpe_detect_print_result(&detection->inputs, &detection->report, err)
               : dpe_detect_print(&detection->inputs, &detection->report, err);
}

static void suggest(const void *state)
{
    const struct detection *detection = state;
    dpe_detect_suggest(&detection->inputs, &detection->report);
}

static dpe_status detection_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct detection *detection = state;
    struct sweep *sweep = &detection->sweep;
    for (int v = 0; v < DPE_DETECT_MOST_VALIDATED; v++) {
        dpe_plan_free(&sweep->validated[v]);
    }
    free(sweep->sum);
    free(sweep->weight);
    free(sweep->best);
    dpe_detect_report_free(&detection->report);
    status = dpe_detect_inputs_close(&detection->inputs, status, err);
    dpe_detect_against_free(&detection->args);
    return status;
}

const struct dpe_study dpe_detect_study = {
    .tool = "dpe-detect",
    .size = sizeof(struct detection),
    .job = offsetof(struct detection, inputs.job),
    .open = detection_open,
    .cost = detection_cost,
    .start = detection_start,
    .rows = detection_rows,
    .fill = detection_fill,
    .print = detection_print,
    .suggest = suggest,
    .close = detection_close,
};
