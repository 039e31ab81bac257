/* The loop: every row of a list that is not there yet, once, in the list's order. */
#include "job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double snapshot_interval = 60.0; /* seconds, at least */

/* What the rows of one task took in this process. */
struct dpe_job_pace {
    double seconds;
    int64_t rows;
};

/* A list at work. */
struct loop {
    struct dpe_job *job;
    const struct dpe_work *work;
    int64_t *rows, *missing; /* [n_tasks] of the list */
    unsigned char *open;     /* [n_items] 1 = its row is missing */
    int64_t n_missing, n_nonfinite;
    const struct dpe_item *last;
    int in_session; /* plan that the session has, -1 = none of the list */
};

static double cost_of(const struct loop *loop, int task)
{
    return loop->work->cost != NULL ? loop->work->cost[task] : 1.0;
}

/* Rows of the whole job, and those of it that are missing. */
static int64_t planned_of(const struct loop *loop, int task)
{
    return loop->work->planned != NULL ? loop->work->planned[task] : loop->rows[task];
}

static int64_t missing_of(const struct loop *loop, int task)
{
    return loop->missing[task] + (loop->work->later != NULL ? loop->work->later[task] : 0);
}

static const struct dpe_row *row_of(const struct loop *loop, const struct dpe_item *item)
{
    return dpe_run_find(loop->job->run, loop->work->tasks[item->task], loop->work->keys[item->plan],
                        item->sample);
}

/* ---------------------------------------------------------------------------------------- progress
 */

/* Seconds a row of the task takes: measured, else by cost from the other tasks, else -1. */
static double row_seconds(const struct loop *loop, int task)
{
    const struct dpe_job_pace *pace = loop->job->pace;
    double seconds = 0.0;
    double cost = 0.0;
    if (pace[task].rows > 0) {
        return pace[task].seconds / (double)pace[task].rows;
    }
    for (int t = 0; t < loop->work->n_tasks; t++) {
        seconds += pace[t].seconds;
        cost += cost_of(loop, t) * (double)pace[t].rows;
    }
    return cost > 0.0 ? seconds / cost * cost_of(loop, task) : -1.0;
}

static double seconds_left(const struct loop *loop)
{
    double left = 0.0;
    for (int t = 0; t < loop->work->n_tasks; t++) {
        int64_t rows = missing_of(loop, t);
        double seconds = row_seconds(loop, t);
        if (rows > 0 && seconds < 0.0) {
            return -1.0;
        }
        left += rows > 0 ? seconds * (double)rows : 0.0;
    }
    return left;
}

static void plain_line(const struct dpe_work_progress *progress, char *text, size_t size)
{
    char left[32] = "";
    char time[32];
    if (progress->rows_done < progress->rows && progress->seconds_left >= 0.0) {
        snprintf(left, sizeof left, ", %.24s left",
                 dpe_format_seconds(progress->seconds_left, time));
    }
    snprintf(text, size, "%s: %lld of %lld samples%s", progress->work->name,
             (long long)progress->rows_done, (long long)progress->rows, left);
}

static void show_progress(const struct loop *loop)
{
    const struct dpe_work *work = loop->work;
    double done = 0.0;
    double total = 0.0;
    double spent = 0.0;
    int64_t n_run = 0;
    for (int t = 0; t < work->n_tasks; t++) {
        int64_t planned = planned_of(loop, t);
        total += cost_of(loop, t) * (double)planned;
        done += cost_of(loop, t) * (double)(planned - missing_of(loop, t));
        spent += loop->job->pace[t].seconds;
        n_run += loop->job->pace[t].rows;
    }
    if (!dpe_progress_due(done, total)) {
        return;
    }
    const struct dpe_work_progress progress = {
        .work = work,
        .rows = (int64_t)work->n_items,
        .rows_done = (int64_t)work->n_items - loop->n_missing,
        .last = loop->last,
        .rate = spent > 0.0 ? (double)n_run / spent : 0.0,
        .seconds_left = seconds_left(loop),
    };
    char line[512];
    bool live = isatty(STDERR_FILENO) && !loop->job->options->tool.json;
    int width = live ? dpe_terminal_width(stderr) - 1 : (int)sizeof line - 1;
    if (work->line != NULL) {
        work->line(work->user, &progress, width, line, sizeof line);
    } else {
        plain_line(&progress, line, sizeof line);
    }
    dpe_progress(done, total, line);
}

/* ------------------------------------------------------------------------------------------- stock
 */

static void tell(const struct loop *loop, const struct dpe_item *item, const struct dpe_row *row)
{
    if (loop->work->seen != NULL) {
        loop->work->seen(loop->work->user, item, row);
    }
}

static void count_job(const struct loop *loop)
{
    struct dpe_job *job = loop->job;
    job->planned = job->missing = 0;
    for (int t = 0; t < loop->work->n_tasks; t++) {
        job->planned += planned_of(loop, t);
        job->missing += missing_of(loop, t);
    }
}

/* Count what there is and what is missing. */
static void take_stock(struct loop *loop)
{
    const struct dpe_work *work = loop->work;
    for (size_t i = 0; i < work->n_items; i++) {
        const struct dpe_item *item = &work->items[i];
        const struct dpe_row *row = row_of(loop, item);
        loop->rows[item->task]++;
        if (row != NULL) {
            tell(loop, item, row);
        } else {
            loop->open[i] = 1;
            loop->missing[item->task]++;
            loop->n_missing++;
        }
    }
    size_t n = 0;
    const struct dpe_row *rows = dpe_run_rows(loop->job->run, &n);
    for (size_t i = 0; i < n; i++) {
        loop->n_nonfinite += rows[i].status == DPE_ROW_NONFINITE;
    }
    count_job(loop);
}

static dpe_status check_nonfinite(const struct loop *loop, struct dpe_error *err)
{
    double limit = loop->work->nonfinite_limit;
    int64_t planned = loop->job->planned;
    if (limit <= 0.0 || (double)loop->n_nonfinite <= limit * (double)planned) {
        return DPE_OK;
    }
    return dpe_fail(err, DPE_NONFINITE,
                    "%lld of %lld samples had NaN or Inf in their logits, more than %g %%; the "
                    "table's /rows says in which layer and at which position",
                    (long long)loop->n_nonfinite, (long long)planned, 100.0 * limit);
}

/* -------------------------------------------------------------------------------------------- rows
 */

static dpe_status before_row(struct loop *loop, int task, struct dpe_error *err)
{
    struct dpe_job *job = loop->job;
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal");
    }
    double now = dpe_clock();
    if (now + fmax(row_seconds(loop, task), 0.0) > job->deadline) {
        return dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up");
    }
    double wait = fmax(snapshot_interval, 20.0 * job->snapshot_cost);
    return now - job->last_snapshot > wait
               ? dpe_job_snapshot(job, false, loop->work->fill, loop->work->user, err)
               : DPE_OK;
}

/* The item's row is there. */
static void close_item(struct loop *loop, const struct dpe_item *item, const struct dpe_row *row)
{
    loop->open[item - loop->work->items] = 0;
    loop->missing[item->task]--;
    loop->n_missing--;
    loop->job->missing--;
    loop->last = item;
    tell(loop, item, row);
    show_progress(loop);
}

static dpe_status after_row(struct loop *loop, const struct dpe_item *item,
                            const struct dpe_row *row, struct dpe_error *err)
{
    struct dpe_job_pace *pace = &loop->job->pace[item->task];
    pace->seconds += row->seconds;
    pace->rows++;
    loop->n_nonfinite += row->status == DPE_ROW_NONFINITE;
    close_item(loop, item, row);
    return check_nonfinite(loop, err);
}

static dpe_status use_plan(struct loop *loop, int plan, struct dpe_error *err)
{
    const struct dpe_work *work = loop->work;
    if (loop->in_session == plan) {
        return DPE_OK;
    }
    loop->in_session = -1;
    dpe_status status =
        dpe_run_plan(loop->job->run, work->keys[plan], work->plans[plan]->name, err);
    if (status == DPE_OK) {
        status = dpe_job_session(loop->job, work->plans[plan], work->capacity, err);
    }
    loop->in_session = status == DPE_OK ? plan : -1;
    return status;
}

static dpe_status run_item(struct loop *loop, const struct dpe_item *item, struct dpe_error *err)
{
    struct dpe_row row;
    dpe_row_init(&row);
    dpe_status status = use_plan(loop, item->plan, err);
    if (status == DPE_OK) {
        status = loop->work->row(loop->work->user, item, loop->job->session, &row, err);
    }
    if (status == DPE_OK) {
        status = dpe_run_add(loop->job->run, &row, err);
    }
    if (status == DPE_OK) {
        status = after_row(loop, item, &row, err);
    }
    dpe_row_free(&row);
    return status;
}

static dpe_status run_missing(struct loop *loop, struct dpe_error *err)
{
    const struct dpe_work *work = loop->work;
    dpe_status status = check_nonfinite(loop, err);
    if (status != DPE_OK) {
        return status;
    }
    if (loop->n_missing < (int64_t)work->n_items) {
        dpe_log_info("%s: %lld of %zu samples are there already", work->name,
                     (long long)work->n_items - loop->n_missing, work->n_items);
    }
    if (loop->n_missing > 0) {
        show_progress(loop);
    }
    for (size_t i = 0; i < work->n_items && status == DPE_OK; i++) {
        const struct dpe_item *item = &work->items[i];
        if (!loop->open[i]) {
            continue;
        }
        const struct dpe_row *row = row_of(loop, item);
        if (row != NULL) { /* two plans of the list are one and the same */
            close_item(loop, item, row);
            continue;
        }
        status = before_row(loop, item->task, err);
        if (status == DPE_OK) {
            status = run_item(loop, item, err);
        }
    }
    dpe_progress_clear();
    return status;
}

/* Times of tasks that no earlier list had. */
static dpe_status extend_paces(struct dpe_job *job, int n_tasks, struct dpe_error *err)
{
    if (n_tasks <= job->n_paces) {
        return DPE_OK;
    }
    struct dpe_job_pace *pace = realloc(job->pace, (size_t)n_tasks * sizeof *pace);
    if (pace == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %d tasks", n_tasks);
    }
    memset(pace + job->n_paces, 0, (size_t)(n_tasks - job->n_paces) * sizeof *pace);
    job->pace = pace;
    job->n_paces = n_tasks;
    return DPE_OK;
}

dpe_status dpe_job_rows(struct dpe_job *job, const struct dpe_work *work, struct dpe_error *err)
{
    struct loop loop = {.job = job, .work = work, .in_session = -1};
    loop.rows = dpe_alloc_zero((size_t)work->n_tasks, sizeof *loop.rows);
    loop.missing = dpe_alloc_zero((size_t)work->n_tasks, sizeof *loop.missing);
    loop.open = dpe_alloc_zero(work->n_items, 1);
    dpe_status status = extend_paces(job, work->n_tasks, err);
    if (status == DPE_OK && (loop.rows == NULL || loop.missing == NULL || loop.open == NULL)) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu rows", work->n_items);
    }
    if (status == DPE_OK) {
        take_stock(&loop);
        status = run_missing(&loop, err);
    }
    free(loop.rows);
    free(loop.missing);
    free(loop.open);
    return status;
}
