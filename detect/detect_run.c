/* A sweep from the first row to the finished table: order, progress, stops, snapshots. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect_tool.h"

enum { PER_ROUND = 4 };
static const double snapshot_interval = 60.0; /* seconds, at least */
static const double nonfinite_limit = 0.05;

/* Rows of one stage: how many there are and how many are missing. */
struct tally {
    int64_t rows, rows_missing;
    int64_t missing[2]; /* per task */
    int plans;
    int plan;      /* at work */
    int64_t round; /* from 0 */
};

struct sweep {
    struct detect_inputs *inputs;
    struct dpe_detect_report *report;
    struct dpe_run *run;
    struct dpe_session *session;
    double begin, deadline; /* deadline INFINITY: none */
    struct dpe_plan validated[DPE_DETECT_N_VALIDATED];
    const struct dpe_detect_stage *stage;          /* in progress */
    struct tally tally;                            /* of that stage */
    int64_t later[2];                              /* rows per task of the stages behind it */
    int64_t n_nonfinite, planned, planned_rows[2]; /* per task */
    double seconds[2];                             /* spent on rows of each task in this process */
    int64_t n_run[2];
    double flops[2];      /* of a row, for tasks that were not timed yet */
    double *sum, *weight; /* [configs] of the deciding task: what the live line ranks */
    int64_t *best;        /* [groups] */
    double last_snapshot, snapshot_cost;
    bool complete;
};

/* ---------------------------------------------------------------------------------------- progress
 */

/* Seconds a row of the task takes: measured, else by operations from the other task, else −1. */
static double row_seconds(const struct sweep *sweep, int task)
{
    if (sweep->n_run[task] > 0) {
        return sweep->seconds[task] / (double)sweep->n_run[task];
    }
    int other = 1 - task;
    if (sweep->inputs->n_tasks == 2 && sweep->n_run[other] > 0 && sweep->flops[other] > 0.0) {
        return sweep->seconds[other] / (double)sweep->n_run[other] * sweep->flops[task] /
               sweep->flops[other];
    }
    return -1.0;
}

static double seconds_left(const struct sweep *sweep)
{
    double left = 0.0;
    for (int i = 0; i < sweep->inputs->n_tasks; i++) {
        double seconds = row_seconds(sweep, i);
        if (seconds < 0.0) {
            return -1.0;
        }
        left += seconds * (double)(sweep->tally.missing[i] + sweep->later[i]);
    }
    return left;
}

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

static void show_progress(struct sweep *sweep)
{
    const struct tally *tally = &sweep->tally;
    double done = 0.0;
    double total = 0.0;
    int64_t most = 0;
    for (int i = 0; i < sweep->inputs->n_tasks; i++) {
        int64_t samples = sweep->stage->n_samples[i];
        most = samples > most ? samples : most;
        int64_t missing = tally->missing[i] + sweep->later[i];
        total += sweep->flops[i] * (double)sweep->planned_rows[i];
        done += sweep->flops[i] * (double)(sweep->planned_rows[i] - missing);
    }
    if (!dpe_progress_due(done, total)) {
        return;
    }
    int64_t n_run = sweep->n_run[0] + sweep->n_run[1];
    double spent = sweep->seconds[0] + sweep->seconds[1];
    bool sweeping = sweep->stage->n_plans == sweep->inputs->grid.n_configs;
    const struct dpe_detect_progress progress = {
        .stage = sweep->stage->name,
        .round = tally->round + 1,
        .rounds = (most + PER_ROUND - 1) / PER_ROUND,
        .plans_done = tally->rows_missing == 0 ? tally->plans : tally->plan,
        .plans = tally->plans,
        .rows_done = tally->rows - tally->rows_missing,
        .rows = tally->rows,
        .rate = spent > 0.0 ? (double)n_run / spent : 0.0,
        .seconds_left = seconds_left(sweep),
        .best = sweeping ? sweep->best : NULL,
        .n_best = sweep->inputs->grid.params.n_groups,
    };
    bool live = isatty(STDERR_FILENO) && !sweep->inputs->args->tool.json;
    char line[512];
    update_best(sweep);
    dpe_detect_live_line(&progress, live ? dpe_terminal_width(stderr) - 1 : (int)sizeof line - 1,
                         line, sizeof line);
    dpe_progress(done, total, line);
}

/* ------------------------------------------------------------------------------------------ tally
 */

static void add_to_best(struct sweep *sweep, int plan, const struct dpe_row *row)
{
    const struct dpe_detect_result *deciding = dpe_detect_deciding(sweep->report);
    if (row->status != DPE_ROW_OK || strcmp(row->task, deciding->task) != 0 ||
        sweep->stage->n_plans != sweep->inputs->grid.n_configs) {
        return;
    }
    bool recall = deciding->criterion == DPE_DETECT_RECALL;
    sweep->sum[plan] += recall ? row->score : row->nll_sum;
    sweep->weight[plan] += recall ? 1.0 : (double)row->n_tokens;
}

/* Count what the stage has and lacks. */
static void take_stock(struct sweep *sweep, const struct dpe_detect_stage *stage)
{
    struct tally *tally = &sweep->tally;
    sweep->stage = stage;
    *tally = (struct tally){.plans = stage->n_plans};
    for (int p = 0; p < stage->n_plans; p++) {
        for (int i = 0; i < stage->n_tasks; i++) {
            for (int64_t s = 0; s < stage->n_samples[i]; s++) {
                const struct dpe_row *row = dpe_run_find(sweep->run, stage->tasks[i].name,
                                                         stage->keys[p], stage->first[i] + s);
                tally->rows++;
                if (row == NULL) {
                    tally->missing[i]++;
                    tally->rows_missing++;
                } else {
                    sweep->n_nonfinite += row->status == DPE_ROW_NONFINITE;
                    add_to_best(sweep, p, row);
                }
            }
        }
    }
}

static dpe_status check_nonfinite(const struct sweep *sweep, struct dpe_error *err)
{
    if ((double)sweep->n_nonfinite <= nonfinite_limit * (double)sweep->planned) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_NONFINITE,
                    "%lld of %lld samples had NaN or Inf in their logits, more than %g %%; the "
                    "table's /rows says in which layer and at which position",
                    (long long)sweep->n_nonfinite, (long long)sweep->planned,
                    100.0 * nonfinite_limit);
}

/* --------------------------------------------------------------------------------------- snapshots
 */

static dpe_status fill_table(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct sweep *sweep = user;
    return dpe_detect_write(sweep->report, sweep->complete, table, err);
}

static dpe_status snapshot(struct sweep *sweep, struct dpe_error *err)
{
    double begin = dpe_clock();
    dpe_status status = dpe_detect_report_sweep(sweep->report, sweep->run, err);
    if (status == DPE_OK && sweep->report->keys[DPE_DETECT_JOINT][0] != '\0') {
        status = dpe_detect_report_validation(sweep->report, sweep->run, err);
    }
    if (status == DPE_OK) {
        status = dpe_run_snapshot(sweep->run, sweep->complete, fill_table, sweep, err);
    }
    sweep->last_snapshot = dpe_clock();
    sweep->snapshot_cost = sweep->last_snapshot - begin;
    return status;
}

/* ------------------------------------------------------------------------------------------- hooks
 */

static dpe_status open_session(void *user, struct dpe_session **session, struct dpe_error *err)
{
    struct sweep *sweep = user;
    dpe_status status = DPE_OK;
    if (sweep->session == NULL) {
        struct dpe_session_options options =
            inputs_session_options(sweep->inputs, sweep->inputs->args->length);
        status = dpe_session_create(sweep->inputs->model, &sweep->inputs->grid.configs[0].plan,
                                    &options, &sweep->session, err);
        if (status == DPE_OK) {
            dpe_session_set_tap(sweep->session, dpe_signals_tap, NULL);
        }
    }
    *session = sweep->session;
    return status;
}

static dpe_status before_row(void *user, int task, struct dpe_error *err)
{
    struct sweep *sweep = user;
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal");
    }
    double now = dpe_clock();
    if (now + fmax(row_seconds(sweep, task), 0.0) > sweep->deadline) {
        return dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up");
    }
    show_progress(sweep);
    double wait = fmax(snapshot_interval, 20.0 * sweep->snapshot_cost);
    return now - sweep->last_snapshot > wait ? snapshot(sweep, err) : DPE_OK;
}

static dpe_status after_row(void *user, int task, int plan, const struct dpe_row *row,
                            struct dpe_error *err)
{
    struct sweep *sweep = user;
    struct tally *tally = &sweep->tally;
    sweep->seconds[task] += row->seconds;
    sweep->n_run[task]++;
    sweep->n_nonfinite += row->status == DPE_ROW_NONFINITE;
    tally->rows_missing--;
    tally->missing[task]--;
    tally->plan = plan;
    tally->round = (row->sample - sweep->stage->first[task]) / PER_ROUND;
    add_to_best(sweep, plan, row);
    show_progress(sweep);
    return check_nonfinite(sweep, err);
}

/* ------------------------------------------------------------------------------------------ stages
 */

static dpe_status run_stage(struct sweep *sweep, const struct dpe_detect_stage *stage,
                            struct dpe_error *err)
{
    const struct dpe_detect_hooks hooks = {
        .user = sweep, .session = open_session, .before = before_row, .after = after_row};
    take_stock(sweep, stage);
    dpe_status status = check_nonfinite(sweep, err);
    if (status != DPE_OK || sweep->tally.rows_missing == 0) {
        return status;
    }
    if (sweep->tally.rows_missing < sweep->tally.rows) {
        dpe_log_info("%s: %lld of %lld samples are there already", stage->name,
                     (long long)(sweep->tally.rows - sweep->tally.rows_missing),
                     (long long)sweep->tally.rows);
    }
    status = dpe_detect_run_stage(stage, sweep->run, &hooks, err);
    dpe_progress_clear();
    return status;
}

static dpe_status sweep_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_grid *grid = &inputs->grid;
    static const int64_t first[2] = {0, 0};
    size_t n = (size_t)grid->n_configs;
    const struct dpe_plan **plans = dpe_alloc(n, sizeof(void *));
    const char **keys = dpe_alloc(n, sizeof *keys);
    dpe_status status = DPE_OK;
    if (plans == NULL || keys == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu configurations", n);
        goto done;
    }
    for (size_t c = 0; c < n; c++) {
        plans[c] = &grid->configs[c].plan;
        keys[c] = grid->configs[c].key;
    }
    const struct dpe_detect_stage stage = {.name = "sweep",
                                           .n_tasks = inputs->n_tasks,
                                           .tasks = inputs->tasks,
                                           .first = first,
                                           .n_samples = inputs->n_samples,
                                           .n_plans = grid->n_configs,
                                           .plans = plans,
                                           .keys = keys,
                                           .per_round = PER_ROUND};
    for (int i = 0; i < inputs->n_tasks; i++) {
        sweep->later[i] = DPE_DETECT_N_VALIDATED * inputs->n_validated[i];
    }
    status = run_stage(sweep, &stage, err);
    sweep->stage = NULL;
done:
    free(plans);
    free(keys);
    return status;
}

/* Rope, base and joint plan; the joint one needs the ranks. */
static dpe_status make_validated(struct sweep *sweep, struct dpe_error *err)
{
    const struct detect_inputs *inputs = sweep->inputs;
    struct dpe_plan *plans = sweep->validated;
    dpe_status status = dpe_plan_make("rope", &inputs->context, &plans[DPE_DETECT_ROPE], err);
    if (status == DPE_OK) {
        status =
            dpe_detect_base_plan(&inputs->grid, &inputs->context, &plans[DPE_DETECT_BASE], err);
    }
    if (status == DPE_OK) {
        status = dpe_detect_joint_plan(&inputs->grid, &inputs->context, sweep->report->scale,
                                       &plans[DPE_DETECT_JOINT], err);
    }
    for (int v = 0; v < DPE_DETECT_N_VALIDATED && status == DPE_OK; v++) {
        status = dpe_plan_key(&plans[v], sweep->report->keys[v], err);
    }
    return status;
}

static dpe_status validate_stage(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    dpe_status status = make_validated(sweep, err);
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_plan *plans[DPE_DETECT_N_VALIDATED];
    const char *keys[DPE_DETECT_N_VALIDATED];
    for (int v = 0; v < DPE_DETECT_N_VALIDATED; v++) {
        plans[v] = &sweep->validated[v];
        keys[v] = sweep->report->keys[v];
    }
    const struct dpe_detect_stage stage = {.name = "validate",
                                           .n_tasks = inputs->n_tasks,
                                           .tasks = inputs->validate_tasks,
                                           .first = inputs->first_validated,
                                           .n_samples = inputs->n_validated,
                                           .n_plans = DPE_DETECT_N_VALIDATED,
                                           .plans = plans,
                                           .keys = keys,
                                           .per_round = PER_ROUND};
    memset(sweep->later, 0, sizeof sweep->later);
    status = run_stage(sweep, &stage, err);
    sweep->stage = NULL;
    return status;
}

/* --------------------------------------------------------------------------------------- the whole
 */

static void notice(void *user, const char *text)
{
    (void)user;
    dpe_log_warning("%s", text);
}

static dpe_status open_run(struct sweep *sweep, struct dpe_error *err)
{
    const struct detect_arguments *args = sweep->inputs->args;
    struct dpe_identity identity = {0};
    struct dpe_identity info = {0};
    dpe_status status = inputs_identity(sweep->inputs, &identity, err);
    if (status == DPE_OK) {
        status = dpe_run_info(&info, args->argc, args->argv, args->tool.threads, err);
    }
    if (status == DPE_OK) {
        status = dpe_identity_add(&info, "model_folder", args->model, err);
    }
    if (status == DPE_OK) {
        status = dpe_identity_add(&info, "corpus_path", args->corpus, err);
    }
    if (status == DPE_OK) {
        const struct dpe_run_options options = {
            .force = args->tool.force,
            .salvage = args->tool.salvage,
            .keep_journal = args->tool.keep_journal,
            .force_unlock = args->tool.force_unlock,
            .info = &info,
            .notice = notice,
        };
        status = dpe_run_open(args->output, &identity, &options, &sweep->run, err);
    }
    dpe_identity_free(&info);
    dpe_identity_free(&identity);
    return status;
}

static dpe_status sweep_prepare(struct sweep *sweep, struct dpe_error *err)
{
    struct detect_inputs *inputs = sweep->inputs;
    const struct dpe_detect_grid *grid = &inputs->grid;
    size_t n_configs = (size_t)grid->n_configs;
    sweep->sum = dpe_alloc_zero(n_configs, sizeof *sweep->sum);
    sweep->weight = dpe_alloc_zero(n_configs, sizeof *sweep->weight);
    sweep->best = dpe_alloc_zero((size_t)grid->params.n_groups, sizeof *sweep->best);
    if (sweep->sum == NULL || sweep->weight == NULL || sweep->best == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu configurations", n_configs);
    }
    for (int i = 0; i < inputs->n_tasks; i++) {
        bool niah = strcmp(inputs->tasks[i].name, "niah") == 0;
        double products = 0.0;
        double attention = 0.0;
        dpe_config_flops(dpe_model_config(inputs->model), 0, inputs->args->length,
                         niah ? 1 : inputs->args->length, &products, &attention);
        sweep->flops[i] = products + attention;
        sweep->planned_rows[i] = inputs->n_samples[i] * grid->n_configs +
                                 inputs->n_validated[i] * DPE_DETECT_N_VALIDATED;
        sweep->planned += sweep->planned_rows[i];
    }
    /* Where nothing was begun, what does not fit into memory leaves nothing behind. */
    if (access(inputs->args->output, F_OK) != 0) {
        struct dpe_session *session = NULL;
        return open_session(sweep, &session, err);
    }
    return DPE_OK;
}

/* The stages, and whatever they end with: a table of what there is. */
static dpe_status sweep_all(struct sweep *sweep, struct dpe_error *err)
{
    sweep->last_snapshot = dpe_clock();
    dpe_status status = sweep_stage(sweep, err);
    if (status == DPE_OK) {
        status = dpe_detect_report_sweep(sweep->report, sweep->run, err);
    }
    if (status == DPE_OK) {
        status = validate_stage(sweep, err);
    }
    if (status == DPE_OK) {
        sweep->complete = true;
        return snapshot(sweep, err);
    }
    if (status == DPE_INCOMPLETE || status == DPE_NONFINITE) {
        int64_t missing = sweep->tally.rows_missing + sweep->later[0] + sweep->later[1];
        struct dpe_error reason = *err;
        dpe_status saved = snapshot(sweep, err);
        if (saved != DPE_OK) {
            return saved;
        }
        *err = reason;
        if (status == DPE_INCOMPLETE) {
            dpe_fail(err, status, "%s; %lld of %lld samples are safe, the same command continues",
                     reason.text, (long long)(sweep->planned - missing), (long long)sweep->planned);
        }
    }
    return status;
}

dpe_status detect_run(struct detect_inputs *inputs, double begin, struct dpe_detect_report *report,
                      struct dpe_error *err)
{
    double budget = inputs->args->tool.time_budget;
    struct sweep sweep = {.inputs = inputs,
                          .report = report,
                          .begin = begin,
                          .deadline = budget > 0.0 ? begin + budget : (double)INFINITY};
    inputs_report(inputs, report);
    dpe_status status = sweep_prepare(&sweep, err);
    if (status == DPE_OK) {
        status = open_run(&sweep, err);
    }
    if (status == DPE_OK) {
        status = sweep_all(&sweep, err);
    }
    struct dpe_error closing = {0};
    dpe_status closed = dpe_run_close(sweep.run, &closing);
    if (status == DPE_OK && closed != DPE_OK) {
        *err = closing;
        status = closed;
    }
    dpe_session_destroy(sweep.session);
    for (int v = 0; v < DPE_DETECT_N_VALIDATED; v++) {
        dpe_plan_free(&sweep.validated[v]);
    }
    free(sweep.sum);
    free(sweep.weight);
    free(sweep.best);
    return status;
}
