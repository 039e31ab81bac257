/* A sweep from the first row to the finished table: its two lists of rows and its live line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/report/detect_table.h"
#include "detect/tool/detect_tool.h"

static const double nonfinite_limit = 0.05;

/* ------------------------------------------------------------------------------------- progress */

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

/* --------------------------------------------------------------------------------------- stages */

/* Samples in a row that share a context, by the name of their task. */
static int64_t together_of(const struct detect_inputs *inputs, const char *task)
{
    for (int i = 0; i < inputs->n_tasks; i++) {
        if (strcmp(task, inputs->tasks[i].name) == 0 ||
            strcmp(task, inputs->validate_tasks[i].name) == 0) {
            return inputs->tasks[i].together;
        }
    }
    for (int i = 0; i < DETECT_N_HELD; i++) {
        if (inputs->held[i].n > 0 && strcmp(task, inputs->held[i].task.name) == 0) {
            return inputs->held[i].task.together;
        }
    }
    return dpe_detect_pilot_together(inputs, task);
}

/* Tokens of the prompts of all rows that have a value, of questions that share a context the
 * first's: their own few tokens are left out. */
static int64_t count_tokens(const struct detect_inputs *inputs, const struct dpe_run *run)
{
    size_t n = 0;
    int64_t tokens = 0;
    const struct dpe_row *rows = dpe_run_rows(run, &n);
    for (size_t i = 0; i < n; i++) {
        const struct dpe_row *row = &rows[i];
        const int64_t together = together_of(inputs, row->task);
        const bool again = together > 1 && row->sample % together != 0 &&
                           dpe_run_find(run, row->task, row->plan, row->sample - 1) != NULL;
        const int64_t own = row->prompt_tokens > 0 ? row->prompt_tokens : row->n_tokens;
        tokens += row->status == DPE_ROW_OK && !again ? own : 0;
    }
    return tokens;
}

static dpe_status fill_table(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    struct sweep *sweep = user;
    const struct dpe_run *run = sweep->inputs->job.run;
    sweep->report->read_tokens = count_tokens(sweep->inputs, run);
    sweep->report->work = dpe_job_work(&sweep->inputs->job);
    DPE_TRY(dpe_detect_report_sweep(sweep->report, run, err));
    if (sweep->report->keys[DPE_DETECT_JOINT] != NULL) {
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
    const int64_t samples = dpe_most(stage->n_samples[0], stage->n_samples[1]);
    size_t n = 0;
    for (int64_t first = 0; first < samples; first += per_round) {
        for (int task = 0; task < stage->n_tasks; task++) {
            const int64_t end = dpe_least(first + per_round, stage->n_samples[task]);
            for (int plan = 0; plan < stage->n_plans; plan++) {
                const bool live = stage->live == NULL || stage->live[plan] != 0;
                for (int64_t sample = first; sample < end && live; sample++) {
                    items[n++] = (struct dpe_item){task, plan, stage->first[task] + sample};
                }
            }
        }
    }
    return n;
}

struct stage dpe_detect_stage_of(const struct sweep *sweep, const char *name,
                                 const struct dpe_task *task, int64_t n,
                                 const struct dpe_detect_config *configs, int n_plans)
{
    struct stage stage = {.name = name,
                          .n_tasks = 1,
                          .tasks = task,
                          .n_samples = {n},
                          .n_plans = n_plans,
                          .configs = configs};
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
    DPE_OWNED struct dpe_item *items = dpe_alloc((size_t)rows, sizeof *items);
    DPE_OWNED const struct dpe_plan **plans = dpe_alloc((size_t)stage->n_plans, sizeof(void *));
    DPE_OWNED const char **keys = dpe_alloc((size_t)stage->n_plans, sizeof *keys);
    DPE_TRY(DPE_MADE(items, err, "out of memory for %lld samples", (long long)rows));
    DPE_TRY(DPE_MADE(plans, err, "out of memory for %lld samples", (long long)rows));
    DPE_TRY(DPE_MADE(keys, err, "out of memory for %lld samples", (long long)rows));
    for (int i = 0; i < stage->n_plans; i++) {
        plans[i] = &stage->configs[i].plan;
        keys[i] = stage->configs[i].key;
    }
    const struct dpe_work work = {
        .name = stage->name,
        .n_tasks = stage->n_tasks,
        .tasks = names,
        .n_plans = stage->n_plans,
        .plans = plans,
        .keys = keys,
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
    return dpe_job_rows(&sweep->inputs->job, &work, err);
}

dpe_status dpe_detect_stage_scores(struct sweep *sweep, const struct stage *stage, int64_t together,
                                   struct dpe_detect_scores *scores, struct dpe_error *err)
{
    const char *keys[DPE_DETECT_MOST_CANDIDATES];
    for (int i = 0; i < stage->n_plans; i++) {
        keys[i] = stage->configs[i].key;
    }
    DPE_TRY(dpe_detect_stage_run(sweep, stage, err));
    return dpe_detect_collect(sweep->inputs->job.run, stage->tasks[0].name, keys, stage->n_plans, 0,
                              stage->first[0] + stage->n_samples[0], together, scores, err);
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
    DPE_OWNED unsigned char *live = NULL;
    DPE_TRY(DPE_NEW(&live, (size_t)grid->n_configs, err, "out of memory for %d configurations",
                    grid->n_configs));
    struct stage stage =
        dpe_detect_stage_of(sweep, inputs->args->race ? "race" : "sweep", inputs->tasks,
                            inputs->n_samples[0], grid->configs, grid->n_configs);
    stage.n_tasks = inputs->n_tasks;
    stage.n_samples[1] = inputs->n_samples[1];
    stage.later[0] += dpe_detect_inputs_steps(inputs) * inputs->n_samples[0];
    sweep->sweeping = true;
    dpe_status status = inputs->args->race ? race_rounds(sweep, &stage, live, err)
                                           : dpe_detect_stage_run(sweep, &stage, err);
    sweep->sweeping = false;
    return status;
}

/* One step of the sequential rule, on the deciding task alone: it is the first. */
static dpe_status step_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_selection *selection = &sweep->report->selection;
    const int n = inputs->grid.params.n_lengths;
    struct dpe_detect_config *configs = NULL; /* too large for a small stack */
    DPE_TRY(DPE_NEW(&configs, (size_t)n, err, "out of memory for %d plans", n));
    dpe_status status = DPE_OK;
    for (int t = 0; t < n && status == DPE_OK; t++) {
        status = dpe_detect_step_plan(&inputs->grid, &inputs->context, selection->at,
                                      dpe_detect_pending_group(selection), t, &configs[t], err);
    }
    struct stage stage =
        dpe_detect_stage_of(sweep, "select", inputs->tasks, inputs->n_samples[0], configs, n);
    stage.later[0] +=
        (dpe_detect_inputs_steps(inputs) - selection->n_choices * (n - 1)) * inputs->n_samples[0];
    status = status == DPE_OK ? dpe_detect_stage_run(sweep, &stage, err) : status;
    for (int t = 0; t < n; t++) {
        dpe_plan_free(&configs[t].plan);
    }
    free(configs);
    return status;
}

/* ------------------------------------------------------------------------------------ the whole */

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
    const size_t n_groups = (size_t)grid->params.n_groups;
    DPE_TRY(
        DPE_NEW(&sweep->sum, n_configs, err, "out of memory for %zu configurations", n_configs));
    DPE_TRY(
        DPE_NEW(&sweep->weight, n_configs, err, "out of memory for %zu configurations", n_configs));
    DPE_TRY(DPE_NEW(&sweep->best, n_groups, err, "out of memory for %zu groups", n_groups));
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

static void put_ceiling(const struct detect_held *held, struct dpe_detect_result *result)
{
    if (held->n > 0) {
        result->ceiling_task = held->task.name;
        result->n_ceiling = held->n;
    }
}

/* An empty report of these inputs. */
static void make_report(const struct detect_inputs *inputs, struct dpe_detect_report *report)
{
    *report = (struct dpe_detect_report){
        .plain = -1,
        .grid = &inputs->grid,
        .context = &inputs->context,
        .rule = inputs->args->rule,
        .rounds = inputs->args->rounds > 0 ? (int)inputs->args->rounds : 1,
        .searching = dpe_detect_inputs_searching(inputs),
        .racing = inputs->args->race,
        .race_options = {.per_round = dpe_detect_inputs_per_round(inputs),
                         .level = inputs->args->race_level,
                         .indifference = inputs->args->race_indifference},
        .seed = inputs->args->job.seed,
        .validation_seed = inputs->validation_seed,
        .model = inputs->job.model,
        .fingerprint = dpe_job_fingerprint(&inputs->job),
        .tokenizer = inputs->job.tokenizer,
        .corpus = inputs->job.corpus,
        .niah_spec = inputs->args->use_niah ? inputs->niah_spec : NULL,
        .niah_template = inputs->args->use_niah ? inputs->niah_template : NULL,
        .pilot = inputs->args->auto_task ? inputs->pilot : NULL,
    };
    for (int i = 0; i < inputs->n_tasks; i++) {
        bool niah = strcmp(inputs->tasks[i].name, "ppl") != 0;
        report->results[niah ? 0 : 1] = (struct dpe_detect_result){
            .used = true,
            .criterion = niah ? DPE_DETECT_RECALL : DPE_DETECT_PERPLEXITY,
            .task = inputs->tasks[i].name,
            .validate_task = inputs->validate_tasks[i].name,
            .together = inputs->tasks[i].together,
            .n_samples = inputs->n_samples[i],
            .first_validated = inputs->first_validated[i],
            .n_validated = inputs->n_validated[i],
            .fresh = niah || inputs->first_validated[i] > 0,
            .books = niah ? NULL : inputs->books,
        };
    }
    const struct detect_held *users = &inputs->held[DETECT_USERS];
    if (users->n > 0) {
        report->users_spec = inputs->users_spec;
        report->users = (struct dpe_detect_result){.used = true,
                                                   .criterion = DPE_DETECT_RECALL,
                                                   .task = "user",
                                                   .validate_task = users->task.name,
                                                   .together = users->task.together,
                                                   .n_validated = users->n,
                                                   .fresh = true};
        put_ceiling(&inputs->held[DETECT_USERS_CEILING], &report->users);
    }
    const struct detect_held *texts = &inputs->held[DETECT_GUARD];
    report->guard_share = inputs->args->guard;
    if (texts->n > 0) {
        report->texts = (struct dpe_detect_result){.used = true,
                                                   .criterion = DPE_DETECT_PERPLEXITY,
                                                   .task = "guard",
                                                   .validate_task = texts->task.name,
                                                   .together = 1,
                                                   .n_validated = texts->n,
                                                   .fresh = true};
    }
    put_ceiling(&inputs->held[DETECT_CEILING], &report->results[0]);
}

/* Search, sweep and validation with the task that is set. */
static dpe_status run_task(struct sweep *sweep, struct dpe_error *err)
{
    struct dpe_detect_report *report = sweep->report;
    const struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_run *run = inputs->job.run;
    DPE_TRY(dpe_detect_inputs_hold(sweep->inputs, err));
    dpe_detect_report_free(report);
    make_report(sweep->inputs, report);
    DPE_TRY(dpe_detect_stage_search(sweep, err));
    DPE_TRY(dpe_detect_stage_warm(sweep, err));
    if (dpe_detect_sweeps(inputs->args->rule)) {
        DPE_TRY(sweep_stage(sweep, err));
    }
    report->swept = true;
    DPE_TRY(dpe_detect_report_sweep(report, run, err));
    while (!report->selection.complete) {
        DPE_TRY(step_stage(sweep, err));
        DPE_TRY(dpe_detect_report_sweep(report, run, err));
    }
    DPE_TRY(dpe_detect_stage_search(sweep, err));
    DPE_TRY(dpe_detect_report_sweep(report, run, err));
    DPE_TRY(dpe_detect_stage_validate(sweep, err));
    return dpe_detect_report_validation(report, run, err);
}

/* ---------------------------------------------------------------------------------------- study */

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
    make_report(&detection->inputs, &detection->report);
    DPE_TRY(sweep_prepare(&detection->sweep, err));
    return dpe_detect_inputs_start(&detection->inputs, err);
}

static dpe_status detection_rows(void *state, struct dpe_error *err)
{
    struct detection *detection = state;
    dpe_status status = dpe_detect_stage_pilot(&detection->sweep, err);
    status = status == DPE_OK ? run_task(&detection->sweep, err) : status;
    detection->sweep.complete = status == DPE_OK;
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
        dpe_plan_free(&sweep->validated[v].plan);
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
