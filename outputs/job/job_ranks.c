/* The loop with several ranks. Rank 0 is a scheduler that assigns items, one group at a time, to
 * workers that are free, itself included; while it makes its own rows it answers the others now and
 * then. A rank above 0 makes the rows that are assigned to it, and appends each to its own journal
 * before it reports it. */
#include "outputs/h5/rows.h"
#include "outputs/job/job_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double grace = 8.0; /* seconds for dropping a row */

/* Wait a little before looking for messages again. */
static void nap(void)
{
    const struct timespec time = {0, 500000};
    nanosleep(&time, NULL);
}

/* An empty message of rank 0 to every rank whose number is a multiple of `each`, but 0. */
static void tell_all(struct dpe_ranks *ranks, int each, enum dpe_message_kind kind)
{
    const struct dpe_message message = {.kind = kind};
    for (int r = each; r < ranks->size; r += each) {
        if (dpe_ranks_send(ranks, r, &message, NULL, 0, NULL) != DPE_OK) {
            dpe_ranks_no_memory(ranks);
        }
    }
}

/* The items of a group, n bytes, to those that make its rows with this rank. */
static dpe_status send_peers(struct dpe_ranks *ranks, const char *list, size_t n,
                             struct dpe_error *err)
{
    const struct dpe_message message = {.kind = DPE_MESSAGE_ITEM};
    dpe_status status = DPE_OK;
    for (int i = 1; i < ranks->peers && status == DPE_OK; i++) {
        status = dpe_ranks_send(ranks, ranks->rank + i, &message, list, n, err);
        if (status != DPE_OK && i > 1) {
            dpe_ranks_no_memory(ranks); /* those before begin, and wait for all */
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------- handing out */

/* The state of a rank. */
struct worker {
    int64_t rows; /* being made */
    int64_t item; /* the first of them */
    bool free;    /* waits for items */
    double last_seen;
    int64_t n;    /* rows that it was given */
    double begin; /* when */
    int64_t fed;  /* tokens that it had read then */
};

struct scheduler {
    struct dpe_loop *loop;
    struct dpe_ranks *ranks;
    struct worker *workers; /* [size] */
    struct dpe_group group; /* to be handed out to another rank */
    struct dpe_group own;   /* of rank 0 */
    size_t next;            /* no item before this one is to be handed out */
    double dropped;         /* when the others were asked to drop their rows, 0 = not yet */
    dpe_status status;
    struct dpe_error err;
    double beat;
    double looked;              /* when rank 0 last looked for signs of life */
    struct dpe_job_part *parts; /* [size] */
    double shown, begin;
    int64_t fed; /* tokens that all had read at `begin` */
};

/* Tokens that a rank has read, as it last said. */
static int64_t read_by(const struct scheduler *scheduler, int rank)
{
    const struct dpe_job *job = scheduler->loop->job;
    return rank > 0 ? job->works[rank].fed : dpe_job_own_work(job).fed;
}

/* The progress line within the rows that are being made. */
static void show_parts(struct scheduler *scheduler)
{
    double now = dpe_clock();
    int64_t all = 0;
    if (now - scheduler->shown < 0.5) {
        return;
    }
    scheduler->shown = now;
    for (int r = 0; r < scheduler->ranks->size; r++) {
        const struct worker *worker = &scheduler->workers[r];
        int64_t fed = read_by(scheduler, r);
        all += fed;
        scheduler->parts[r] = (struct dpe_job_part){0};
        if (worker->rows > 0 && worker->rows == worker->n) { /* none of them is reported yet */
            scheduler->parts[r] =
                (struct dpe_job_part){.n = worker->n,
                                      .task = scheduler->loop->list->items[worker->item].task,
                                      .begin = worker->begin,
                                      .read = (double)(fed - worker->fed)};
        }
    }
    double rate = (double)(all - scheduler->fed) / fmax(now - scheduler->begin, 1e-3);
    dpe_loop_show_parts(scheduler->loop, scheduler->parts, scheduler->ranks->size, rate, NULL);
}

/* The first failure counts; from then on nothing is handed out. */
static void stop(struct scheduler *scheduler, dpe_status status, const struct dpe_error *err)
{
    if (scheduler->status == DPE_OK && status != DPE_OK) {
        scheduler->status = status;
        scheduler->err = *err;
    }
}

/* Give a group to a rank. */
static dpe_status assign(struct scheduler *scheduler, const struct dpe_group *group, int rank,
                         struct dpe_error *err)
{
    const char *list = (const char *)group->at;
    const size_t n = (size_t)group->n * sizeof *group->at;
    const struct dpe_message message = {.kind = DPE_MESSAGE_ITEM};
    DPE_TRY(rank > 0 ? dpe_ranks_send(scheduler->ranks, rank, &message, list, n, err)
                     : send_peers(scheduler->ranks, list, n, err));
    for (int64_t i = 0; i < group->n; i++) {
        scheduler->loop->open[group->at[i]] = 2;
    }
    scheduler->workers[rank] = (struct worker){.rows = group->n,
                                               .item = group->at[0],
                                               .last_seen = dpe_clock(),
                                               .n = group->n,
                                               .begin = dpe_clock(),
                                               .fed = read_by(scheduler, rank)};
    return DPE_OK;
}

static dpe_status hand_out(struct scheduler *scheduler, int rank, struct dpe_error *err)
{
    struct dpe_group *group = rank > 0 ? &scheduler->group : &scheduler->own;
    DPE_TRY(dpe_loop_next(scheduler->loop, &scheduler->next, group, err));
    return group->n > 0 ? assign(scheduler, group, rank, err) : DPE_OK;
}

/* A row that is safe in the journal of `rank`. */
static dpe_status take_row(struct scheduler *scheduler, int rank, int64_t at,
                           const struct dpe_row *row, struct dpe_error *err)
{
    struct dpe_loop *loop = scheduler->loop;
    struct worker *worker = &scheduler->workers[rank];
    if (at < 0 || at >= (int64_t)loop->list->n_items || worker->rows < 1) {
        return dpe_fail(err, DPE_INTERNAL, "rank %d reports a row that was not assigned to it",
                        rank);
    }
    dpe_status status =
        rank > 0 ? dpe_run_learn(loop->job->run, row, err) : dpe_run_add(loop->job->run, row, err);
    worker->rows--;
    worker->free = worker->rows == 0;
    return status == DPE_OK ? dpe_loop_made(loop, &loop->list->items[at], row, err) : status;
}

static void take_failure(struct scheduler *scheduler, int rank, dpe_status status, const char *text)
{
    struct dpe_error err = {0};
    scheduler->workers[rank].rows = 0;
    scheduler->workers[rank].free = true;
    if (status == DPE_INCOMPLETE || rank == 0) {
        dpe_fail(&err, status, "%s", text);
    } else {
        dpe_fail(&err, status, "rank %d on %s: %s", rank, dpe_ranks_host(scheduler->ranks, rank),
                 text);
    }
    stop(scheduler, status, &err);
}

static bool receive_others(struct scheduler *scheduler, struct dpe_text *text)
{
    struct dpe_message message;
    int from = 0;
    if (!dpe_ranks_receive(scheduler->ranks, &from, &message, text)) {
        return false;
    }
    struct dpe_error err = {0};
    DPE_SCOPED(dpe_row_free) struct dpe_row row = {0};
    dpe_status status = DPE_OK;
    scheduler->workers[from].last_seen = dpe_clock();
    scheduler->loop->job->works[from] = message.work;
    dpe_signals_ask((enum dpe_stop_request)message.asked);
    switch (message.kind) {
    case DPE_MESSAGE_ROW:
        status = dpe_row_decode((const unsigned char *)text->bytes, text->n, &row, &err);
        if (status == DPE_OK) {
            status = take_row(scheduler, from, message.item, &row, &err);
        } else {
            scheduler->workers[from].rows--;
        }
        stop(scheduler, status, &err);
        break;
    case DPE_MESSAGE_FAILED:
        take_failure(scheduler, from, (dpe_status)message.status, text->n > 0 ? text->bytes : "");
        break;
    default:
        break;
    }
    return true;
}

/* Busy ranks must send something; waiting ranks get a sign of life from rank 0. The time since its
 * last look counts for no silence: what came meanwhile may show at the next one. */
static void watch(struct scheduler *scheduler)
{
    const struct dpe_wanted *list = scheduler->loop->list;
    double now = dpe_clock();
    bool greet = now - scheduler->beat > fmin(60.0, scheduler->ranks->limit / 4.0);
    for (int r = 1; r < scheduler->ranks->size; r++) {
        const struct worker *worker = &scheduler->workers[r];
        if (worker->rows > 0 && scheduler->looked - worker->last_seen > scheduler->ranks->limit) {
            const struct dpe_item *item = &list->items[worker->item];
            dpe_log_error(
                "rank %d on %s has sent nothing for %.0f s while it made sample %lld of "
                "%s under %s (--rank-timeout); the job ends. %lld of %lld samples are "
                "saved; run the same command to continue",
                r, dpe_ranks_host(scheduler->ranks, r), now - worker->last_seen,
                (long long)item->sample, list->tasks[item->task].name,
                list->plans[item->plan].plan->name,
                (long long)(scheduler->loop->job->planned - scheduler->loop->job->missing),
                (long long)scheduler->loop->job->planned);
            dpe_ranks_abort(scheduler->ranks, DPE_INCOMPLETE);
        }
        if (greet && (worker->free || r % scheduler->ranks->peers != 0)) {
            const struct dpe_message message = {.kind = DPE_MESSAGE_BEAT};
            struct dpe_error err;
            stop(scheduler, dpe_ranks_send(scheduler->ranks, r, &message, NULL, 0, &err), &err);
        }
    }
    scheduler->beat = greet ? now : scheduler->beat;
    scheduler->looked = now;
}

/* Some ranks did not drop their rows; they may be dead. Save what there is and end the job. */
static _Noreturn void give_up(struct scheduler *scheduler)
{
    struct dpe_job *job = scheduler->loop->job;
    struct dpe_error err = {0};
    for (int r = 1; r < scheduler->ranks->size; r++) {
        if (scheduler->workers[r].rows > 0) {
            dpe_log_error("rank %d on %s did not stop", r, dpe_ranks_host(scheduler->ranks, r));
        }
    }
    if (dpe_job_snapshot(job, false, scheduler->loop->work->fill, scheduler->loop->work->user,
                         &err) != DPE_OK) {
        dpe_log_error("%s", err.text);
    }
    dpe_log_error("%s; %lld of %lld samples are saved; run the same command to continue",
                  scheduler->err.text, (long long)(job->planned - job->missing),
                  (long long)job->planned);
    dpe_ranks_abort(scheduler->ranks, dpe_exit_code(scheduler->status));
}

static bool any_worker_busy(const struct scheduler *scheduler)
{
    for (int r = 0; r < scheduler->ranks->size; r++) {
        if (scheduler->workers[r].rows > 0) {
            return true;
        }
    }
    return false;
}

/* What the other ranks need now; whether one was heard. Also while rank 0 makes rows. */
static bool tend(struct scheduler *scheduler)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct dpe_error err = {0};
    bool heard = false;
    while (receive_others(scheduler, &text)) {
        heard = true;
    }
    if (dpe_signals_asked() != DPE_STOP_NONE) {
        dpe_fail(&err, DPE_INCOMPLETE, "stopped by a signal");
        stop(scheduler, DPE_INCOMPLETE, &err);
    }
    bool drop = dpe_signals_asked() == DPE_STOP_NOW ||
                (scheduler->status != DPE_OK && scheduler->status != DPE_INCOMPLETE);
    if (drop && scheduler->dropped == 0.0) {
        scheduler->dropped = dpe_clock();
        tell_all(scheduler->ranks, scheduler->ranks->peers, DPE_MESSAGE_DROP);
        dpe_signals_ask(DPE_STOP_NOW); /* this rank's own rows */
    }
    for (int r = 1; r < scheduler->ranks->size && scheduler->status == DPE_OK; r++) {
        if (scheduler->workers[r].free) {
            stop(scheduler, hand_out(scheduler, r, &err), &err);
        }
    }
    watch(scheduler);
    if (scheduler->dropped > 0.0 &&
        dpe_clock() - scheduler->dropped > fmin(grace, scheduler->ranks->limit)) {
        give_up(scheduler);
    }
    show_parts(scheduler);
    return heard;
}

/* Called at every layer, of which a small model has thousands a second: few of them look. */
static void tend_others(void *user)
{
    struct scheduler *scheduler = user;
    if (dpe_clock() - scheduler->looked > 0.001) {
        tend(scheduler);
    }
}

/* Rank 0's own rows. */
static void make_own(struct scheduler *scheduler)
{
    struct dpe_error err = {0};
    DPE_SCOPED(dpe_group_clear_scoped) struct dpe_group *own = &scheduler->own;
    dpe_status status = hand_out(scheduler, 0, &err);
    stop(scheduler, status, &err);
    if (status != DPE_OK || own->n == 0) {
        return;
    }
    scheduler->ranks->beat = tend_others;
    scheduler->ranks->beat_user = scheduler;
    status = dpe_loop_make(scheduler->loop, own, &err);
    scheduler->ranks->beat = NULL;
    for (int64_t i = 0; i < own->n && status == DPE_OK; i++) {
        status = take_row(scheduler, 0, own->at[i], &own->rows[i], &err);
    }
    if (status != DPE_OK) { /* those after it are not reported either */
        take_failure(scheduler, 0, status, err.text);
    }
}

static void run_scheduler(struct scheduler *scheduler)
{
    while (any_worker_busy(scheduler) ||
           (scheduler->status == DPE_OK && scheduler->loop->job->missing > 0)) {
        const bool heard = tend(scheduler);
        const int64_t before = scheduler->loop->job->missing;
        if (scheduler->status == DPE_OK) {
            make_own(scheduler);
        }
        if (!heard && scheduler->loop->job->missing == before) {
            nap();
        }
    }
}

static dpe_status lead(struct dpe_loop *loop, struct dpe_error *err)
{
    struct dpe_ranks *ranks = loop->job->ranks;
    struct scheduler scheduler = {
        .loop = loop, .ranks = ranks, .beat = dpe_clock(), .begin = dpe_clock()};
    scheduler.workers = dpe_alloc_zero((size_t)ranks->size, sizeof *scheduler.workers);
    scheduler.parts = dpe_alloc_zero((size_t)ranks->size, sizeof *scheduler.parts);
    if (scheduler.workers == NULL || scheduler.parts == NULL ||
        dpe_group_init(&scheduler.group, loop, NULL) != DPE_OK ||
        dpe_group_init(&scheduler.own, loop, NULL) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
    for (int r = 0; r < ranks->size; r++) {
        scheduler.workers[r] = (struct worker){.free = r % ranks->peers == 0};
        scheduler.fed += read_by(&scheduler, r);
    }
    run_scheduler(&scheduler);
    tell_all(ranks, 1, DPE_MESSAGE_DONE);
    if (scheduler.status != DPE_OK && err != NULL) {
        *err = scheduler.err;
    }
    dpe_group_free(&scheduler.group);
    dpe_group_free(&scheduler.own);
    free(scheduler.workers);
    free(scheduler.parts);
    return scheduler.status;
}

/* -------------------------------------------------------------------------------- ranks above 0 */

struct server {
    struct dpe_loop *loop;
    struct dpe_group group;
    double sent; /* last message to rank 0 */
};

static void report(struct server *server, const struct dpe_message *message, const char *text,
                   size_t n)
{
    struct dpe_ranks *ranks = server->loop->job->ranks;
    struct dpe_message full = *message;
    full.asked = (int)dpe_signals_asked();
    if (ranks->rank == ranks->leader) {
        full.work = dpe_job_own_work(server->loop->job);
    }
    server->sent = dpe_clock();
    if (dpe_ranks_send(ranks, 0, &full, text, n, NULL) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
}

/* While a row is made: send a sign of life, and look whether the row is to be dropped. */
static void beat(void *user)
{
    struct server *server = user;
    struct dpe_ranks *ranks = server->loop->job->ranks;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct dpe_message message;
    int from = 0;
    double now = dpe_clock();
    while (dpe_ranks_receive(ranks, &from, &message, &text)) {
        if (message.kind == DPE_MESSAGE_DROP) {
            dpe_signals_ask(DPE_STOP_NOW);
        }
    }
    if (now - server->sent > fmin(1.0, ranks->limit / 4.0)) {
        report(server, &(struct dpe_message){.kind = DPE_MESSAGE_BEAT}, NULL, 0);
    }
}

/* Make the rows of a group and report each. A rank that follows a leader leaves the rows to it. */
static dpe_status make_group(struct server *server, struct dpe_error *err)
{
    struct dpe_loop *loop = server->loop;
    DPE_SCOPED(dpe_group_clear_scoped) struct dpe_group *group = &server->group;
    struct dpe_ranks *ranks = loop->job->ranks;
    bool leads = ranks->rank == ranks->leader;
    DPE_TRY(dpe_loop_make(loop, group, err));
    for (int64_t i = 0; i < group->n && leads; i++) {
        DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
        DPE_TRY(dpe_run_add(loop->job->run, &group->rows[i], err));
        DPE_TRY(dpe_row_encode(&group->rows[i], true, &bytes, err));
        const struct dpe_message answer = {.kind = DPE_MESSAGE_ROW, .item = group->at[i]};
        report(server, &answer, bytes.bytes, bytes.n);
    }
    return DPE_OK;
}

/* Make the rows of a list, or report why there are none. */
static void serve_list(struct server *server, const struct dpe_text *list)
{
    struct dpe_ranks *ranks = server->loop->job->ranks;
    struct dpe_error err = {0};
    bool leads = ranks->rank == ranks->leader;
    if (leads && send_peers(ranks, list->bytes, list->n, &err) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
    for (size_t i = 0; i + sizeof(int64_t) <= list->n; i += sizeof(int64_t)) {
        int64_t at = 0;
        memcpy(&at, list->bytes + i, sizeof at);
        dpe_group_add(&server->group, server->loop, at);
    }
    const dpe_status status = make_group(server, &err);
    if (status != DPE_OK && leads) {
        const struct dpe_message answer = {.kind = DPE_MESSAGE_FAILED, .status = (int)status};
        report(server, &answer, err.text, strlen(err.text));
    }
}

static void serve(struct dpe_loop *loop)
{
    struct dpe_ranks *ranks = loop->job->ranks;
    struct server server = {.loop = loop};
    struct dpe_message message = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    enum dpe_stop_request reported = DPE_STOP_NONE;
    int from = 0;
    if (dpe_group_init(&server.group, loop, NULL) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
    if (ranks->rank == ranks->leader) {
        ranks->beat = beat;
        ranks->beat_user = &server;
    }
    double received = dpe_clock();
    while (message.kind != DPE_MESSAGE_DONE) {
        if (dpe_ranks_receive(ranks, &from, &message, &text)) {
            if (message.kind == DPE_MESSAGE_ITEM) {
                serve_list(&server, &text);
            }
            received = dpe_clock();
            continue;
        }
        if (dpe_signals_asked() != reported) {
            reported = dpe_signals_asked();
            report(&server, &(struct dpe_message){.kind = DPE_MESSAGE_BEAT}, NULL, 0);
        }
        if (dpe_clock() - received > 2.0 * ranks->limit + 5.0) {
            dpe_log_error("rank 0 has sent nothing for %.0f s (--rank-timeout); the job ends. "
                          "Finished samples are saved: run the same command to continue",
                          dpe_clock() - received);
            dpe_ranks_abort(ranks, DPE_INCOMPLETE);
        }
        nap();
    }
    ranks->beat = NULL;
    dpe_group_free(&server.group);
}

/* ---------------------------------------------------------------------------------- the loop */

dpe_status dpe_loop_ranks(struct dpe_loop *loop, struct dpe_error *err)
{
    struct dpe_ranks *ranks = loop->job->ranks;
    dpe_status status = DPE_OK;
    if (ranks->rank == 0) {
        status = lead(loop, err);
    } else {
        serve(loop);
    }
    DPE_TRY(dpe_ranks_barrier(ranks, DPE_BARRIER_ROWS_END, status, err));
    DPE_TRY(dpe_job_share_rows(loop->job, err));
    for (size_t i = 0; i < loop->list->n_items && ranks->rank > 0; i++) {
        const struct dpe_item *item = &loop->list->items[i];
        if (loop->open[i]) {
            dpe_loop_close(loop, item);
        }
    }
    return DPE_OK;
}
