/* A sweep from the first row to the finished table: its lists of rows. */
#include <string.h>

#include "detect/tool/detect_table.h"
#include "detect/tool/detect_tool.h"

static const double nonfinite_limit = 0.05;

/* --------------------------------------------------------------------------------------- stages */

/* Samples in a row that share a context, by the name of their task. */
static int64_t together_of(const struct detect_inputs *inputs, const char *task)
{
    for (int i = 0; i < DETECT_STREAMS; i++) {
        if (inputs->streams[i].task.run != NULL &&
            strcmp(task, inputs->streams[i].task.name) == 0) {
            return inputs->streams[i].task.together;
        }
    }
    for (int i = 0; i < dpe_detect_pilot_rungs(); i++) {
        const struct dpe_niah_params niah = dpe_detect_pilot_task(inputs, i);
        char values[24];
        snprintf(values, sizeof values, "-%d-%d", niah.keys, niah.values);
        const size_t n = strlen(task), tail = strlen(values);
        if (n > tail && strcmp(task + n - tail, values) == 0) {
            return dpe_niah_together(&niah);
        }
    }
    return 1;
}

/* Tokens of the prompts of all rows that have a value, of questions that share a context the
 * first's: their own few tokens are left out. */
static int64_t count_tokens(const struct detect_inputs *inputs)
{
    const struct dpe_run *run = inputs->job.run;
    size_t n = 0;
    int64_t tokens = 0;
    const struct dpe_row *const *rows = dpe_run_rows(run, &n);
    for (size_t i = 0; i < n; i++) {
        const struct dpe_row *row = rows[i];
        const int64_t together = together_of(inputs, row->task);
        const bool again = together > 1 && row->sample % together != 0 &&
                           dpe_run_find(run, row->task, row->plan, row->sample - 1) != NULL;
        const int64_t own = row->prompt_tokens > 0 ? row->prompt_tokens : row->n_tokens;
        tokens += row->status == DPE_ROW_OK && !again ? own : 0;
    }
    return tokens;
}

static dpe_status fill_table(void *state, struct dpe_h5 *table, struct dpe_error *err)
{
    struct sweep *sweep = state;
    sweep->report.read_tokens = count_tokens(&sweep->inputs);
    sweep->report.work = dpe_job_work(&sweep->inputs.job);
    if (dpe_detect_sweeps(sweep->inputs.args->rule)) {
        DPE_TRY(dpe_detect_report_sweep(&sweep->report, err));
    }
    if (sweep->report.n_validated > 0) {
        DPE_TRY(dpe_detect_report_validation(&sweep->report, err));
    }
    return dpe_detect_write(&sweep->report, sweep->complete, table, err);
}

static dpe_status make_rows(void *user, const struct dpe_job_rows *parts, int64_t n,
                            struct dpe_error *err)
{
    const struct sweep *sweep = user;
    return dpe_task_rows(&sweep->stage->tasks[parts->items->task].task, parts, n, err);
}

/* Rounds of a few samples over all tasks and plans: a sweep that stops early has seen every plan
 * about equally. */
static void want_rows(const struct stage *stage, int64_t per_round, struct dpe_wanted *wanted)
{
    const int64_t samples = dpe_most(stage->tasks[0].n, stage->tasks[1].n);
    for (int64_t first = 0; first < samples; first += per_round) {
        for (int task = 0; task < stage->n_tasks; task++) {
            const int64_t n = dpe_least(per_round, stage->tasks[task].n - first);
            for (int plan = 0; plan < stage->n_plans; plan++) {
                dpe_wanted_rows(wanted, task, plan, stage->tasks[task].first + first, n);
            }
        }
    }
}

/* Tokens that a sample reads, on average and about: samples of a context share one reading, those
 * with the same first half share that. */
static int64_t read_of(const struct dpe_task *task, int64_t shared, int64_t length)
{
    return strstr(task->name, "ppl") != NULL ? length
                                             : (length / 2 * shared + length / 2) / task->together;
}

/* Operations of a sample: of texts every token goes through the LM head. */
static double cost_of(const struct detect_inputs *inputs, const struct dpe_task *task,
                      int64_t length)
{
    double products = 0.0;
    double attention = 0.0;
    dpe_config_flops(dpe_model_config(inputs->job.model), 0, length,
                     strstr(task->name, "ppl") != NULL ? length : 1, &products, &attention);
    return products + attention;
}

dpe_status dpe_detect_stage_run(struct sweep *sweep, const struct stage *stage,
                                struct dpe_error *err)
{
    struct detect_inputs *inputs = &sweep->inputs;
    struct dpe_wanted wanted = {0};
    const int64_t length = stage->length > 0 ? stage->length : inputs->args->job.length;
    if (stage->n_tasks == 0) {
        return DPE_OK;
    }
    for (int i = 0; i < stage->n_tasks; i++) {
        const struct dpe_task *task = &stage->tasks[i].task;
        dpe_wanted_task(&wanted, task->name, read_of(task, inputs->needles.niah.shared, length),
                        stage->n_tasks > 1 ? cost_of(inputs, task, length) : 1.0);
    }
    for (int i = 0; i < stage->n_plans; i++) {
        dpe_wanted_plan(&wanted, &stage->configs[i].plan, stage->configs[i].key);
    }
    want_rows(stage, dpe_detect_inputs_per_round(inputs), &wanted);
    const struct dpe_work how = {.name = stage->name,
                                 .capacity = inputs->args->job.length,
                                 .user = sweep,
                                 .rows = make_rows,
                                 .fill = fill_table,
                                 .nonfinite_limit = nonfinite_limit};
    sweep->stage = stage;
    return dpe_wanted_run(&wanted, &inputs->job, &how, err);
}

static dpe_status sweep_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = &sweep->inputs;
    const struct dpe_detect_grid *grid = &inputs->grid;
    struct stage stage = {.name = "sweep", .n_plans = grid->n_configs, .configs = grid->configs};
    for (int i = DETECT_SWEPT; i <= DETECT_SWEPT_BOOKS; i++) {
        if (inputs->streams[i].n > 0) {
            stage.tasks[stage.n_tasks++] = inputs->streams[i];
        }
    }
    return dpe_detect_stage_run(sweep, &stage, err);
}

/* ------------------------------------------------------------------------------------ the whole */

const struct detect_opened *dpe_detect_inputs_fresh_of(const struct detect_inputs *inputs,
                                                       int result)
{
    static const struct detect_opened none;
    const bool searches = dpe_detect_searches(inputs->args->rule);
    const bool needles = dpe_detect_inputs_by_needles(inputs);
    const struct {
        bool has;
        enum detect_stream stream;
    } fresh[DPE_DETECT_RESULTS] = {
        {needles, DETECT_FRESH_NEEDLES},
        {!searches || !needles, searches ? DETECT_GUARD : DETECT_FRESH_BOOKS},
        {needles, DETECT_FRESH_USERS},
        {needles, DETECT_GUARD}};
    return fresh[result].has ? &inputs->streams[fresh[result].stream] : &none;
}

/* A task as far as the sweep and its validation have it; of a search alone what is validated. */
static struct dpe_detect_result result_of(const struct detect_inputs *inputs, int i)
{
    static const char *const names[DPE_DETECT_RESULTS] = {NULL, NULL, "user", "guard"};
    const struct detect_opened *fresh = dpe_detect_inputs_fresh_of(inputs, i);
    const bool niah = i == DPE_DETECT_NIAH;
    struct dpe_detect_result result = {
        .used = fresh->task.run != NULL,
        .criterion = niah || i == DPE_DETECT_OWN ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
        .swept.task = names[i],
        .checked.task = fresh->task.name,
        .together = fresh->task.together,
        .fresh = true};
    const struct detect_opened *swept = &inputs->streams[niah ? DETECT_SWEPT : DETECT_SWEPT_BOOKS];
    if (i <= DPE_DETECT_PPL && swept->n > 0) {
        result.used = true;
        result.swept.task = swept->task.name;
        result.together = swept->task.together;
        result.swept.n = swept->n;
        result.books = niah ? NULL : inputs->books;
        if (!dpe_detect_searches(inputs->args->rule)) {
            result.checked.first = fresh->first;
            result.checked.n = fresh->n;
            result.fresh = niah || fresh->first > 0;
        }
    }
    return result;
}

/* An empty report of these inputs. */
static void make_report(struct sweep *sweep)
{
    struct dpe_detect_report *report = &sweep->report;
    const struct detect_inputs *inputs = &sweep->inputs;
    *report = (struct dpe_detect_report){
        .plain = -1,
        .of = inputs,
    };
    for (int i = 0; i < DPE_DETECT_RESULTS; i++) {
        report->results[i] = result_of(inputs, i);
    }
    for (int i = 0; i < 2; i++) {
        const struct detect_opened *opened =
            &inputs->streams[i == 0 ? DETECT_QUARTER : DETECT_CEILING];
        if (opened->n > 0) {
            report->results[DPE_DETECT_NIAH].shorter[i] = (struct dpe_detect_short){
                opened->task.name, inputs->job.trained_length / (i == 0 ? 4 : 1), opened->n, {0}};
        }
    }
}

/* Sweep, search and validation with the task that is set. */
static dpe_status run_task(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = &sweep->report;
    const enum dpe_detect_rule rule = sweep->inputs.args->rule;
    dpe_detect_report_free(report);
    make_report(sweep);
    if (dpe_detect_sweeps(rule)) {
        DPE_TRY(sweep_stage(sweep, err));
        DPE_TRY(dpe_detect_report_sweep(report, err));
    }
    if (dpe_detect_searches(rule)) {
        DPE_TRY(dpe_detect_stage_search(sweep, err));
    }
    DPE_TRY(dpe_detect_stage_validate(sweep, err));
    return dpe_detect_report_validation(report, err);
}

/* ---------------------------------------------------------------------------------------- study */

static dpe_status detection_start(void *state, struct dpe_error *err)
{
    struct sweep *sweep = state;
    dpe_detect_announce(&sweep->inputs);
    DPE_TRY(dpe_detect_inputs_fit_batch(&sweep->inputs, err)); /* rows are priced by it */
    DPE_TRY(dpe_detect_inputs_budget(&sweep->inputs, err));
    make_report(sweep);
    return dpe_detect_inputs_start(&sweep->inputs, err);
}

static dpe_status detection_rows(void *state, struct dpe_error *err)
{
    struct sweep *sweep = state;
    dpe_status status = dpe_detect_stage_pilot(sweep, err);
    status = status == DPE_OK ? run_task(sweep, err) : status;
    sweep->complete = status == DPE_OK;
    const struct dpe_session_work work = dpe_job_work(&sweep->inputs.job);
    dpe_log_info("%lld tokens were read, %lld decoded in %lld steps", (long long)work.fed,
                 (long long)work.decoded, (long long)work.steps);
    return status;
}

const struct dpe_study dpe_detect_study = {
    .size = sizeof(struct sweep),
    .job = offsetof(struct sweep, inputs.job),
    .open = dpe_detect_open,
    .cost = dpe_detect_cost,
    .start = detection_start,
    .rows = detection_rows,
    .fill = fill_table,
    .print = dpe_detect_print,
    .suggest = dpe_detect_suggest,
    .close = dpe_detect_close,
};
