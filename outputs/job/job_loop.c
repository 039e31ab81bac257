/* The loop's parts, for one process and for several: what is missing, how far it is, groups, and
 * how their rows are made. */
#include "outputs/job/job_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double snapshot_interval = 60.0; /* seconds, at least */

const struct dpe_row *dpe_loop_find(const struct dpe_loop *loop, const struct dpe_item *item)
{
    return dpe_run_find(loop->job->run, loop->list->tasks[item->task].name,
                        loop->list->plans[item->plan].key, item->sample);
}

/* ------------------------------------------------------------------------------------ progress */

/* Seconds a row of the task takes: measured, else by cost from the other tasks, else -1. */
static double row_seconds(const struct dpe_loop *loop, int task)
{
    const struct dpe_job_pace *pace = loop->job->pace;
    double seconds = 0.0;
    double cost = 0.0;
    if (pace[task].rows > 0) {
        return pace[task].seconds / (double)pace[task].rows;
    }
    const struct dpe_listed_task *tasks = loop->list->tasks;
    for (size_t t = 0; t < loop->list->n_tasks; t++) {
        seconds += pace[t].seconds;
        cost += tasks[t].cost * (double)pace[t].rows;
    }
    if (cost > 0.0) {
        return seconds / cost * tasks[task].cost;
    }
    return loop->unit_seconds > 0.0 ? loop->unit_seconds * tasks[task].cost : -1.0;
}

static double seconds_left(const struct dpe_loop *loop)
{
    double left = 0.0;
    for (int t = 0; t < (int)loop->list->n_tasks; t++) {
        int64_t rows = loop->missing[t];
        double seconds = row_seconds(loop, t);
        if (rows > 0 && seconds < 0.0) {
            return -1.0;
        }
        left += rows > 0 ? seconds * (double)rows : 0.0;
    }
    return left;
}

/* `inside`: what is appended to the line, by how many rows' cost `done` grows, and the seconds that
 * these took; NULL, 0, 0: nothing. */
static void show(const struct dpe_loop *loop, const char *inside, double part, double gone)
{
    const struct dpe_work *work = loop->work;
    double done = 0.0;
    double total = 0.0;
    double spent = 0.0;
    int64_t n_run = 0;
    for (size_t t = 0; t < loop->list->n_tasks; t++) {
        const double cost = loop->list->tasks[t].cost;
        total += cost * (double)loop->rows[t];
        done += cost * (double)(loop->rows[t] - loop->missing[t]);
        spent += loop->job->pace[t].seconds;
        n_run += loop->job->pace[t].rows;
    }
    done = fmin(done + part, inside != NULL ? total * (1.0 - 1e-9) : total);
    if (!dpe_progress_due(done, total)) {
        return;
    }
    double size = (double)(loop->job->ranks->size / loop->job->ranks->peers);
    const double rate = spent > 0.0 ? (double)n_run / spent * size : 0.0;
    double left = seconds_left(loop) / size;
    left = left >= 0.0 ? fmax(left - gone / size, 0.0) : (double)NAN;
    char line[512], time[32];
    bool live = isatty(STDERR_FILENO) && !loop->job->options->tool.json;
    int width = live ? dpe_terminal_width(stderr) - 1 : 255;
    const bool room = inside != NULL && (int)strlen(inside) + 22 < width;
    snprintf(line, sizeof line, "%s: %lld of %lld samples", work->name,
             (long long)(loop->job->planned - loop->job->missing), (long long)loop->job->planned);
    if (loop->job->missing > 0 && left >= 0.0) {
        dpe_append(line, sizeof line, ", %.24s left", dpe_format_seconds(left, time));
    }
    if (room) {
        dpe_append(line, sizeof line, "; %s", inside);
    }
    const struct dpe_event event = {.name = work->name,
                                    .done = done / total * (double)loop->job->planned,
                                    .total = (double)loop->job->planned,
                                    .rate = rate > 0.0 ? rate : (double)NAN,
                                    .eta = left};
    dpe_progress(&event, line);
}

void dpe_loop_show(const struct dpe_loop *loop)
{
    show(loop, NULL, 0.0, 0.0);
}

static double operations(const struct dpe_config *config, double tokens)
{
    double products = 0.0;
    double attention = 0.0;
    dpe_config_flops(config, 0, (int64_t)tokens, 0, &products, &attention);
    return products + attention;
}

/* The share of the operations of `texts` texts of `each` tokens that reading `read` tokens took. */
static double share_done(const struct dpe_config *config, double read, double each, double texts)
{
    double whole = floor(read / each);
    double share = operations(config, read - whole * each) / operations(config, each);
    return fmin((whole + share) / texts, 1.0);
}

/* Tokens that n rows of the task read, 0: not known. */
static double tokens_of(const struct dpe_loop *loop, int task, int64_t n)
{
    return (double)loop->list->tasks[task].tokens * (double)n;
}

void dpe_loop_show_inside(struct dpe_job *job)
{
    struct dpe_job_inside *inside = job->inside;
    struct dpe_loop *loop = inside->loop;
    const struct dpe_config *config = dpe_model_config(job->model);
    const struct dpe_session_work work = dpe_job_own_work(job);
    inside->polls = work.fed == inside->fed ? inside->polls + 1 : 0;
    inside->fed = work.fed;
    double elapsed = dpe_clock() - inside->begin;
    if (elapsed < 1.0) {
        return;
    }
    const double total = tokens_of(loop, inside->task, inside->n);
    /* The tokens of a chunk are read layer by layer. */
    double layers = fmin((double)inside->polls / (double)config->n_layers, 1.0);
    double chunk = (double)dpe_session_chunk(job->session);
    double read = (double)(work.fed - inside->before.fed);
    int64_t made = work.decoded - inside->before.decoded;
    char written[160];
    snprintf(written, sizeof written, "%.0f tokens read, %lld written, %.0f s", read,
             (long long)made, elapsed);
    read += made == 0 && total > read ? layers * fmin(chunk, total - read) : 0.0;
    const struct dpe_job_part part = {inside->n, inside->task, inside->begin, read};
    dpe_loop_show_parts(loop, &part, 1, read / elapsed, made == 0 ? NULL : written);
}

void dpe_loop_show_parts(struct dpe_loop *loop, const struct dpe_job_part *parts, int n,
                         double rate, const char *words)
{
    const struct dpe_config *config = dpe_model_config(loop->job->model);
    double now = dpe_clock();
    double longest = 0.0;
    double read = 0.0;
    double total = 0.0;
    double part = 0.0;
    double gone = 0.0;
    for (int r = 0; r < n; r++) {
        const struct dpe_job_part *one = &parts[r];
        double all = tokens_of(loop, one->task, one->n);
        if (one->n == 0) {
            continue;
        }
        longest = fmax(longest, now - one->begin);
        read += all > 0.0 ? fmin(one->read, all) : one->read;
        total += all;
        if (all > 0.0) {
            double each = fmin((double)loop->work->capacity, all);
            double share = share_done(config, fmin(one->read, all), each, all / each);
            double cost = loop->list->tasks[one->task].cost * (double)one->n;
            if (share > 0.02) {
                loop->unit_seconds = (now - one->begin) / share / cost;
            }
            part += share * cost;
            gone += share * (double)one->n * fmax(row_seconds(loop, one->task), 0.0);
        }
    }
    if (longest < 1.0) {
        return;
    }
    char text[160];
    if (total > 0.0) {
        snprintf(text, sizeof text, "reading %.0f of %.0f tokens (%.0f %%), %.0f tokens/s", read,
                 total, 100.0 * read / total, rate);
    } else {
        snprintf(text, sizeof text, "%.0f tokens read, %.0f tokens/s", read, rate);
    }
    show(loop, words != NULL ? words : text, part, gone);
}

/* --------------------------------------------------------------------------------------- stock */

/* A row that is there names its plan by a hash. The plan's name may have been lost to damage: it is
 * written again. Of two names of one plan the one that is recorded stays. */
static dpe_status name_plan(const struct dpe_loop *loop, int plan, struct dpe_error *err)
{
    const struct dpe_listed_plan *listed = &loop->list->plans[plan];
    if (loop->job->ranks->rank > 0 || dpe_run_plan_known(loop->job->run, listed->key)) {
        return DPE_OK;
    }
    dpe_log_rank("%s: the name of plan %s is missing in the journal; it is written again",
                 loop->job->options->output, listed->plan->name);
    return dpe_run_plan(loop->job->run, listed->key, listed->plan->name, err);
}

dpe_status dpe_loop_stock(struct dpe_loop *loop, struct dpe_error *err)
{
    const struct dpe_wanted *list = loop->list;
    dpe_status status = DPE_OK;
    loop->job->planned = (int64_t)list->n_items;
    loop->job->missing = 0;
    for (size_t i = 0; i < list->n_items && status == DPE_OK; i++) {
        const struct dpe_item *item = &list->items[i];
        loop->rows[item->task]++;
        if (dpe_loop_find(loop, item) != NULL) {
            status = name_plan(loop, item->plan, err);
        } else {
            loop->open[i] = 1;
            loop->missing[item->task]++;
            loop->job->missing++;
        }
    }
    size_t n = 0;
    const struct dpe_row *const *rows = dpe_run_rows(loop->job->run, &n);
    for (size_t i = 0; i < n; i++) {
        loop->n_nonfinite += rows[i]->status == DPE_ROW_NONFINITE;
    }
    return status;
}

dpe_status dpe_loop_check(const struct dpe_loop *loop, struct dpe_error *err)
{
    double limit = loop->work->nonfinite_limit;
    int64_t planned = loop->job->planned;
    if (limit <= 0.0 || (double)loop->n_nonfinite <= limit * (double)planned) {
        return DPE_OK;
    }
    return dpe_fail(
        err, DPE_NONFINITE,
        "%lld of %lld samples had NaN or infinity in their logits, more than %g %%; /rows of "
        "the table lists their layers and positions",
        (long long)loop->n_nonfinite, (long long)planned, 100.0 * limit);
}

/* -------------------------------------------------------------------------------------- groups */

/* Parts of a group, at most: each rank has its share of a short list. */
static int sides_of(const struct dpe_loop *loop)
{
    const struct dpe_job *job = loop->job;
    const int64_t share = job->ranks->size > 1
                              ? job->missing / (dpe_most(job->group, 1) * job->ranks->size)
                              : job->sides;
    return job->ranks->peers > 1 ? 1 : (int)dpe_most(1, dpe_least(share, job->sides));
}

int dpe_job_sides(const struct dpe_job_pace *pace, int most)
{
    int n = most;
    bool less = true;
    while (n > 1 && less && pace->decoded[n] > 0) {
        const int64_t tokens = pace->decoded[n / 2];
        const double token = pace->stepping[n] / (double)pace->decoded[n];
        less = tokens == 0 || pace->stepping[n / 2] / (double)tokens < 0.9 * token;
        n = less ? n / 2 : n;
    }
    return n;
}

/* What the work of n sessions took since `before`. */
static void learn_steps(struct dpe_job *job, struct dpe_job_pace *pace, int n,
                        const struct dpe_session_work *before)
{
    const struct dpe_session_work after = dpe_job_own_work(job);
    if (pace->warm) {
        pace->stepping[n] += after.seconds - before->seconds;
        pace->decoded[n] += after.decoded - before->decoded;
    }
    pace->warm = true;
}

/* How many of a group's items from `at` on one session makes. */
static int64_t part_of(const struct dpe_group *group, const struct dpe_loop *loop, int64_t at)
{
    const int64_t most = dpe_least(group->n - at, dpe_most(loop->job->group, 1));
    int64_t n = 1;
    while (n < most && group->items[at + n].plan == group->items[at].plan) {
        n++;
    }
    return n;
}

dpe_status dpe_group_init(struct dpe_group *group, const struct dpe_loop *loop,
                          struct dpe_error *err)
{
    *group = (struct dpe_group){.capacity = dpe_most(loop->job->group, 1) * DPE_JOB_SIDES};
    size_t n = (size_t)group->capacity;
    DPE_TRY(DPE_NEW(&group->at, n, err, "out of memory for %zu rows", n));
    DPE_TRY(DPE_NEW(&group->items, n, err, "out of memory for %zu rows", n));
    DPE_TRY(DPE_NEW(&group->rows, n, err, "out of memory for %zu rows", n));
    for (size_t i = 0; i < n; i++) {
        dpe_row_init(&group->rows[i]);
    }
    return DPE_OK;
}

void dpe_group_free(struct dpe_group *group)
{
    free(group->at);
    free(group->items);
    dpe_rows_free(group->rows, group->rows != NULL ? (size_t)group->capacity : 0);
    *group = (struct dpe_group){0};
}

void dpe_group_clear(struct dpe_group *group)
{
    for (int64_t i = 0; i < group->n; i++) {
        dpe_row_free(&group->rows[i]);
    }
    group->n = 0;
}

bool dpe_group_add(struct dpe_group *group, const struct dpe_loop *loop, int64_t at)
{
    if (group->n == group->capacity || at < 0 || at >= (int64_t)loop->list->n_items) {
        return false;
    }
    group->at[group->n] = at;
    group->items[group->n++] = loop->list->items[at];
    return true;
}

/* Item `at` of the list and later ones of the same task that are missing: of the same plan, or of
 * as many plans or whole groups as are made at once. */
static void gather(struct dpe_group *group, const struct dpe_loop *loop, int64_t at)
{
    const struct dpe_item *items = loop->list->items;
    int64_t end = (int64_t)loop->list->n_items;
    int parts = 1;
    int64_t first = 0; /* of the last part */
    group->n = 0;
    for (int64_t i = at; i < end && items[i].task == items[at].task; i++) {
        if (loop->open[i] != 1 || dpe_loop_find(loop, &items[i]) != NULL) {
            continue;
        }
        const bool fits = group->n == first || (items[i].plan == group->items[first].plan &&
                                                group->n - first < loop->job->group);
        first = fits ? first : group->n;
        parts += fits ? 0 : 1;
        if (parts > sides_of(loop) || !dpe_group_add(group, loop, i)) {
            return;
        }
    }
}

/* ---------------------------------------------------------------------------------------- rows */

/* Before a group is begun: signals, time budget, a table that is due. */
static dpe_status begin_group(struct dpe_loop *loop, const struct dpe_group *group,
                              struct dpe_error *err)
{
    struct dpe_job *job = loop->job;
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        return dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal");
    }
    double now = dpe_clock();
    double seconds = fmax(row_seconds(loop, group->items[0].task), 0.0) * (double)group->n;
    if (now + seconds > job->deadline) {
        return dpe_fail(err, DPE_INCOMPLETE, "the time budget is used up");
    }
    return now - job->last_snapshot > fmax(snapshot_interval, 20.0 * job->snapshot_cost)
               ? dpe_job_snapshot(job, false, loop->work->fill, loop->work->user, err)
               : DPE_OK;
}

/* The item's row is there. */
void dpe_loop_close(struct dpe_loop *loop, const struct dpe_item *item)
{
    loop->open[item - loop->list->items] = 0;
    loop->missing[item->task]--;
    loop->job->missing--;
    dpe_loop_show(loop);
}

dpe_status dpe_loop_next(struct dpe_loop *loop, size_t *at, struct dpe_group *group,
                         struct dpe_error *err)
{
    const struct dpe_wanted *list = loop->list;
    group->n = 0;
    for (; *at < list->n_items && group->n == 0; (*at)++) {
        const struct dpe_item *item = &list->items[*at];
        if (loop->open[*at] != 1) {
            continue;
        }
        if (dpe_loop_find(loop, item) != NULL) { /* two plans of the list are one and the same */
            dpe_loop_close(loop, item);
            continue;
        }
        gather(group, loop, (int64_t)*at);
        DPE_TRY(begin_group(loop, group, err));
    }
    for (int64_t i = 0; i < group->n; i++) {
        const struct dpe_listed_plan *plan = &list->plans[group->items[i].plan];
        DPE_TRY(dpe_run_plan(loop->job->run, plan->key, plan->plan->name, err));
    }
    return DPE_OK;
}

dpe_status dpe_loop_made(struct dpe_loop *loop, const struct dpe_item *item,
                         const struct dpe_row *row, struct dpe_error *err)
{
    struct dpe_job_pace *pace = &loop->job->pace[item->task];
    pace->seconds += row->seconds;
    pace->rows++;
    loop->n_nonfinite += row->status == DPE_ROW_NONFINITE;
    dpe_loop_close(loop, item);
    return dpe_loop_check(loop, err);
}

/* Parts of a group from item *at on, one in each session; *at becomes the first item that is left.
 * A session beside the first that does not fit into memory is not tried again. */
static dpe_status make_parts(struct dpe_loop *loop, struct dpe_group *group, int64_t *at,
                             struct dpe_error *err)
{
    const struct dpe_work *work = loop->work;
    struct dpe_job *job = loop->job;
    struct dpe_job_rows parts[DPE_JOB_SIDES];
    struct dpe_job_pace *pace = &job->pace[group->items[*at].task];
    const int most = dpe_job_sides(pace, (int)dpe_most(1, job->sides));
    int n = 0;
    while (*at < group->n && n < most) {
        const int plan = group->items[*at].plan;
        dpe_status status = DPE_OK;
        if (loop->in_session[n] != plan) {
            loop->in_session[n] = -1;
            status = dpe_job_session(job, n, loop->list->plans[plan].plan, work->capacity, err);
        }
        if (status == DPE_NO_MEMORY && n > 0) {
            dpe_log_info("memory holds %d of %d texts of %lld tokens at once", n, job->sides,
                         (long long)work->capacity);
            job->sides = n;
            break;
        }
        DPE_TRY(status);
        loop->in_session[n] = plan;
        parts[n] = (struct dpe_job_rows){.session = n > 0 ? job->beside[n - 1] : job->session,
                                         .key = loop->list->plans[plan].key,
                                         .items = group->items + *at,
                                         .n = part_of(group, loop, *at),
                                         .rows = group->rows + *at};
        *at += parts[n++].n;
    }
    const struct dpe_session_work before = dpe_job_own_work(job);
    DPE_TRY(work->rows(work->user, parts, n, err));
    learn_steps(job, pace, n, &before);
    return DPE_OK;
}

dpe_status dpe_loop_make(struct dpe_loop *loop, struct dpe_group *group, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (int64_t at = 0; at < group->n && status == DPE_OK;) {
        status = make_parts(loop, group, &at, err);
    }
    return dpe_ranks_sync_status(loop->job->ranks, status, err);
}
