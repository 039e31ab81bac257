/* The loop: every row of a list that is not there yet, once. One process makes them in the list's
 * order; several are in job_ranks.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/h5/rows.h"
#include "outputs/job/job_internal.h"
#include "outputs/run/run.h"

static dpe_status run_group(struct dpe_loop *loop, struct dpe_group *group, struct dpe_error *err)
{
    DPE_SCOPED(dpe_group_clear_scoped) struct dpe_group *cleared = group;
    struct dpe_job_inside inside = {.loop = loop,
                                    .n = group->n,
                                    .task = group->items[0].task,
                                    .begin = dpe_clock(),
                                    .before = dpe_job_own_work(loop->job)};
    loop->job->inside = &inside;
    const dpe_status status = dpe_loop_make(loop, group, err);
    loop->job->inside = NULL;
    DPE_TRY(status);
    for (int64_t i = 0; i < group->n; i++) {
        DPE_TRY(dpe_run_add(loop->job->run, &group->rows[i], err));
        DPE_TRY(dpe_loop_made(loop, &loop->list->items[group->at[i]], &group->rows[i], err));
    }
    return DPE_OK;
}

/* One process: in the list's order. */
static dpe_status run_alone(struct dpe_loop *loop, struct dpe_error *err)
{
    DPE_SCOPED(dpe_group_free) struct dpe_group group = {0};
    size_t at = 0;
    DPE_TRY(dpe_group_init(&group, loop, err));
    DPE_TRY(dpe_loop_next(loop, &at, &group, err));
    while (group.n > 0) {
        DPE_TRY(run_group(loop, &group, err));
        DPE_TRY(dpe_loop_next(loop, &at, &group, err));
    }
    return DPE_OK;
}

/* What tells lists apart, as text. */
static dpe_status hash_work(const struct dpe_wanted *list, char hex[65], struct dpe_text *text,
                            struct dpe_error *err)
{
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t t = 0; t < list->n_tasks; t++) {
        dpe_sha256_text(hash, list->tasks[t].name);
    }
    for (size_t p = 0; p < list->n_plans; p++) {
        dpe_sha256_text(hash, list->plans[p].key);
    }
    for (size_t i = 0; i < list->n_items; i++) {
        const int64_t item[] = {list->items[i].task, list->items[i].plan, list->items[i].sample};
        dpe_sha256_add(hash, item, sizeof item);
    }
    DPE_TRY(dpe_sha256_finish(hash, hex, err));
    return dpe_text_append(text, hex, 65, err);
}

/* Every rank must be about to make the same rows. `status` is how it went here so far, which all
 * ranks learn. */
static dpe_status same_work(const struct dpe_loop *loop, dpe_status status, struct dpe_error *err)
{
    struct dpe_ranks *ranks = loop->job->ranks;
    DPE_SCOPED(dpe_text_free) struct dpe_text first = {0};
    char hex[65] = "";
    if (ranks->size <= 1) {
        return status;
    }
    status = status == DPE_OK ? hash_work(loop->list, hex, &first, err) : status;
    DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_ROWS, status, err));
    status = dpe_ranks_share(ranks, &first, err);
    if (status == DPE_OK && strcmp(first.bytes, hex) != 0) {
        status =
            dpe_fail(err, DPE_USAGE, "has other options than rank 0, and would make other samples");
    }
    return dpe_ranks_barrier(ranks, DPE_BARRIER_WORK, status, err);
}

/* Once, where the work begins: how many rows of the job are there. */
static void tell_rows(const struct dpe_loop *loop)
{
    struct dpe_job *job = loop->job;
    const int64_t there = job->planned - job->missing;
    if (job->told_rows || job->missing == 0) {
        return;
    }
    const struct dpe_event event = {there > 0 ? "resume" : "begin", (double)there,
                                    (double)job->planned, (double)NAN, (double)NAN};
    if (there == 0) {
        dpe_log_event(&event, "%lld samples to run", (long long)job->planned);
    } else {
        dpe_log_event(&event, "resuming: %lld of %lld samples", (long long)there,
                      (long long)job->planned);
    }
    job->told_rows = true;
}

static dpe_status run_missing(struct dpe_loop *loop, dpe_status status, struct dpe_error *err)
{
    status = status == DPE_OK ? dpe_loop_check(loop, err) : status;
    DPE_TRY(same_work(loop, status, err));
    tell_rows(loop);
    if (loop->job->missing > 0) {
        dpe_loop_show(loop);
    }
    status = loop->job->ranks->size > 1 ? dpe_loop_ranks(loop, err) : run_alone(loop, err);
    dpe_progress_clear();
    return status;
}

/* Times of the list's tasks; those that the list before had in their places are known. */
static dpe_status set_paces(struct dpe_job *job, const struct dpe_wanted *list,
                            struct dpe_error *err)
{
    for (int t = 0; t < (int)list->n_tasks; t++) {
        const uint64_t name = dpe_fnv(DPE_FNV, list->tasks[t].name, strlen(list->tasks[t].name));
        if (t == job->n_paces && !dpe_make_room(&job->pace, (size_t)t, sizeof *job->pace)) {
            return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu tasks", list->n_tasks);
        }
        if (t == job->n_paces || job->pace[t].name != name) {
            job->pace[t] = (struct dpe_job_pace){.name = name};
        }
        job->n_paces += t == job->n_paces;
    }
    return DPE_OK;
}

static dpe_status run_list(struct dpe_job *job, const struct dpe_wanted *list,
                           const struct dpe_work *work, struct dpe_error *err)
{
    const size_t n = list->n_items;
    DPE_OWNED int64_t *rows = NULL;
    DPE_OWNED int64_t *missing = NULL;
    DPE_OWNED unsigned char *open = NULL;
    DPE_TRY(set_paces(job, list, err));
    DPE_TRY(DPE_NEW(&rows, list->n_tasks, err, "out of memory for %zu rows", n));
    DPE_TRY(DPE_NEW(&missing, list->n_tasks, err, "out of memory for %zu rows", n));
    DPE_TRY(DPE_NEW(&open, n, err, "out of memory for %zu rows", n));
    struct dpe_loop loop = {
        .job = job, .work = work, .list = list, .rows = rows, .missing = missing, .open = open};
    for (int i = 0; i < DPE_JOB_SIDES; i++) {
        loop.in_session[i] = -1;
    }
    return run_missing(&loop, dpe_loop_stock(&loop, err), err);
}

/* -------------------------------------------------------------------------------------- wanted */

void dpe_wanted_task(struct dpe_wanted *wanted, const char *name, int64_t tokens, double cost)
{
    wanted->failed =
        wanted->failed || !dpe_make_room(&wanted->tasks, wanted->n_tasks, sizeof *wanted->tasks);
    if (!wanted->failed) {
        wanted->tasks[wanted->n_tasks++] = (struct dpe_listed_task){name, tokens, cost};
    }
}

void dpe_wanted_plan(struct dpe_wanted *wanted, const struct dpe_plan *plan, const char *key)
{
    wanted->failed =
        wanted->failed || !dpe_make_room(&wanted->plans, wanted->n_plans, sizeof *wanted->plans);
    if (!wanted->failed) {
        wanted->plans[wanted->n_plans++] = (struct dpe_listed_plan){plan, key};
    }
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
    dpe_status status =
        wanted->failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu rows", wanted->n_items)
                       : run_list(job, wanted, how, err);
    free(wanted->tasks);
    free(wanted->plans);
    free(wanted->items);
    *wanted = (struct dpe_wanted){0};
    return status;
}

/* -------------------------------------------------------- rows that rank 0 has, to all ranks */

/* Rank 0: the rows that the others do not have yet. */
static dpe_status pack(struct dpe_job *job, struct dpe_text *bytes, struct dpe_error *err)
{
    size_t n_rows = 0;
    const struct dpe_row *const *rows = dpe_run_rows(job->run, &n_rows);
    for (; job->n_shared < n_rows; job->n_shared++) {
        DPE_SCOPED(dpe_text_free) struct dpe_text one = {0};
        DPE_TRY(dpe_row_encode(rows[job->n_shared], true, &one, err));
        uint64_t n = one.n;
        DPE_TRY(dpe_text_append(bytes, (const char *)&n, sizeof n, err));
        DPE_TRY(dpe_text_append(bytes, one.bytes, one.n, err));
    }
    return DPE_OK;
}

static dpe_status unpack(struct dpe_job *job, const struct dpe_text *bytes, struct dpe_error *err)
{
    size_t at = 0;
    uint64_t n = 0;
    while (at + sizeof n <= bytes->n) {
        DPE_SCOPED(dpe_row_free) struct dpe_row row = {0};
        memcpy(&n, bytes->bytes + at, sizeof n);
        at += sizeof n;
        DPE_TRY(dpe_row_decode((const unsigned char *)bytes->bytes + at, (size_t)n, &row, err));
        at += n;
        DPE_TRY(dpe_run_learn(job->run, &row, err));
    }
    return DPE_OK;
}

dpe_status dpe_job_share_rows(struct dpe_job *job, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    const dpe_status status = job->ranks->rank == 0 ? pack(job, &bytes, err) : DPE_OK;
    DPE_TRY(dpe_ranks_barrier(job->ranks, DPE_BARRIER_SHARE, status, err));
    DPE_TRY(dpe_ranks_share(job->ranks, &bytes, err));
    return job->ranks->rank > 0 ? unpack(job, &bytes, err) : DPE_OK;
}
