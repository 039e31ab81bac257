/* The loop with several ranks, as ranks above 0 see it: they make the rows that rank 0 assigns.
 * Every rank appends a row to its own journal before it reports it. */
#include "outputs/h5/rows.h"
#include "outputs/job/job_internal.h"
#include "outputs/run/run.h"

#include <math.h>
#include <string.h>
#include <time.h>

void dpe_loop_nap(void)
{
    const struct timespec time = {0, 500000};
    nanosleep(&time, NULL);
}

dpe_status dpe_loop_send_peers(struct dpe_ranks *ranks, const char *list, size_t n,
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

struct server {
    struct dpe_loop *loop;
    struct dpe_group group;
    double sent, looked; /* last message to rank 0, and last look for one */
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
    double now = dpe_clock();
    if (now - server->looked > 0.1) {
        server->looked = now;
        if (dpe_ranks_dropped(ranks)) {
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

/* Make the rows of a list, as many at a time as this rank's memory holds, or report why there are
 * none. */
static void serve_list(struct server *server, const struct dpe_text *list)
{
    struct dpe_ranks *ranks = server->loop->job->ranks;
    struct dpe_error err = {0};
    dpe_status status = DPE_OK;
    bool leads = ranks->rank == ranks->leader;
    if (leads && dpe_loop_send_peers(ranks, list->bytes, list->n, &err) != DPE_OK) {
        dpe_ranks_no_memory(ranks);
    }
    for (size_t i = 0; i + sizeof(int64_t) <= list->n && status == DPE_OK; i += sizeof(int64_t)) {
        int64_t at = 0;
        memcpy(&at, list->bytes + i, sizeof at);
        dpe_group_add(&server->group, server->loop, at);
        bool last = i + 2 * sizeof at > list->n;
        if (last || server->group.n == server->group.capacity) {
            status = make_group(server, &err);
            /* All continue only if the leader could keep its rows. */
            status = last ? status : dpe_ranks_sync_status(ranks, status, &err);
        }
    }
    if (status != DPE_OK && leads) {
        const struct dpe_message answer = {.kind = DPE_MESSAGE_FAILED, .status = (int)status};
        report(server, &answer, err.text, strlen(err.text));
    }
}

void dpe_loop_serve(struct dpe_loop *loop)
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
        dpe_loop_nap();
    }
    ranks->beat = NULL;
    dpe_group_free(&server.group);
    dpe_ranks_dropped(ranks);
}

/* -------------------------------------------------------- rows that rank 0 has, to all ranks */

/* Rank 0: the rows that the others do not have yet. */
static dpe_status pack(struct dpe_job *job, struct dpe_text *bytes, struct dpe_error *err)
{
    size_t n_rows = 0;
    const struct dpe_row *rows = dpe_run_rows(job->run, &n_rows);
    for (; job->n_shared < n_rows; job->n_shared++) {
        DPE_SCOPED(dpe_text_free) struct dpe_text one = {0};
        DPE_TRY(dpe_row_encode(&rows[job->n_shared], true, &one, err));
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
