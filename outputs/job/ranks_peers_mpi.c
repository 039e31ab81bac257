/* Ranks that hold one model together. A sum is made in two rounds: each rank gets the parts of one
 * piece of x from all and adds them in order of rank, then the sums of all pieces. The first round
 * also carries the status of each rank, so that all know it before they continue; a failed rank
 * sends that alone. */
#include "outputs/job/ranks_mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_PART = 11, TAG_SUM, TAG_GIVE };
enum { MOST = 1 << 22 }; /* floats of a sum that go together: bounds the buffers */

/* What begins a message of the first round. A failure's text follows, else floats. */
struct head {
    int64_t n;
    dpe_status status;
};

/* Buffers of this process, one thread's at a time; they grow and stay. */
static char *sent, *got;
static size_t sent_room, got_room;

static char *room_for(struct dpe_ranks *ranks, char **buffer, size_t *room, size_t bytes)
{
    if (bytes > *room) {
        free(*buffer);
        *buffer = malloc(bytes);
        *room = bytes;
    }
    if (*buffer == NULL) {
        dpe_ranks_no_memory(ranks);
    }
    return *buffer;
}

/* The next message of a peer, of any size, into `got`. */
static size_t receive(struct dpe_ranks *ranks, int peer, int tag)
{
    const MPI_Status status = dpe_ranks_await(ranks, peer, tag, peer, true);
    MPI_Request request;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    room_for(ranks, &got, &got_room, (size_t)size);
    MPI_Irecv(got, size, MPI_BYTE, peer, tag, dpe_ranks_comm(), &request);
    dpe_ranks_finish(ranks, &request, peer, true);
    return (size_t)size;
}

/* ---------------------------------------------------------------------------------------- sums */

/* A sum on its way: this rank's piece of x, from index begin on. */
struct meeting {
    struct dpe_ranks *ranks;
    float *x;
    int64_t n;
    int own; /* index among the peers */
    struct dpe_error err;
    dpe_status status; /* of `failed`, the lowest index that failed; −1: none */
    int failed;
    bool lost; /* others sum something else */
};

static int64_t piece_at(const struct meeting *m, int index)
{
    return m->n * index / m->ranks->peers;
}

static void note(struct meeting *m, int index, dpe_status status, const struct dpe_error *err)
{
    if (status != DPE_OK && (m->failed < 0 || index < m->failed)) {
        m->failed = index;
        m->status = status;
        m->err = *err;
    }
}

/* A message for each peer, one after the other: its piece of our x, or why there is none. */
static void send_parts(struct meeting *m, dpe_status status, const struct dpe_error *err,
                       MPI_Request *requests)
{
    const struct head head = {.n = m->n, .status = status};
    struct dpe_ranks *ranks = m->ranks;
    size_t longest = sizeof head + sizeof *err + (size_t)(m->n / ranks->peers + 1) * sizeof *m->x;
    char *at = room_for(ranks, &sent, &sent_room, (size_t)ranks->peers * longest);
    for (int i = 0; i < ranks->peers; i++, at += longest) {
        int64_t begin = piece_at(m, i);
        size_t n = sizeof head;
        requests[i] = MPI_REQUEST_NULL;
        if (i == m->own) {
            continue;
        }
        memcpy(at, &head, sizeof head);
        if (status != DPE_OK) {
            memcpy(at + n, err, sizeof *err);
            n += sizeof *err;
        } else if (m->n > 0) {
            size_t bytes = (size_t)(piece_at(m, i + 1) - begin) * sizeof *m->x;
            memcpy(at + n, m->x + begin, bytes);
            n += bytes;
        }
        MPI_Isend(at, (int)n, MPI_BYTE, ranks->leader + i, TAG_PART, dpe_ranks_comm(),
                  &requests[i]);
    }
}

/* A peer's part of our piece, added after those of lower ranks. */
static void take_part(struct meeting *m, int index, float *sum)
{
    struct head head = {0};
    struct dpe_error err = {0};
    size_t size = receive(m->ranks, m->ranks->leader + index, TAG_PART);
    memcpy(&head, got, sizeof head);
    int64_t n = piece_at(m, m->own + 1) - piece_at(m, m->own);
    if (head.status != DPE_OK) {
        memcpy(&err, got + sizeof head, sizeof err);
    } else if (head.n != m->n || size != sizeof head + (size_t)n * sizeof *sum) {
        m->lost = true;
    }
    note(m, index, head.status, &err);
    if (m->failed >= 0 || m->lost) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float part = 0.0F;
        memcpy(&part, got + sizeof head + (size_t)i * sizeof part, sizeof part);
        sum[i] = index == 0 ? part : sum[i] + part;
    }
}

static void add_parts(struct meeting *m, float *sum)
{
    int64_t begin = piece_at(m, m->own);
    int64_t n = piece_at(m, m->own + 1) - begin;
    for (int i = 0; i < m->ranks->peers; i++) {
        if (i != m->own) {
            take_part(m, i, sum);
            continue;
        }
        for (int64_t k = 0; k < n && m->failed < 0 && !m->lost; k++) {
            sum[k] = i == 0 ? m->x[begin + k] : sum[k] + m->x[begin + k];
        }
    }
}

/* Our sum to all, theirs into x. */
static void spread_sums(struct meeting *m, MPI_Request *requests)
{
    struct dpe_ranks *ranks = m->ranks;
    MPI_Comm comm = dpe_ranks_comm();
    int64_t begin = piece_at(m, m->own);
    int bytes = (int)((size_t)(piece_at(m, m->own + 1) - begin) * sizeof *m->x);
    for (int i = 0; i < ranks->peers; i++) {
        requests[i] = MPI_REQUEST_NULL;
        if (i != m->own) {
            MPI_Isend(m->x + begin, bytes, MPI_BYTE, ranks->leader + i, TAG_SUM, comm,
                      &requests[i]);
        }
    }
    for (int i = 0; i < ranks->peers; i++) {
        MPI_Request request;
        if (i != m->own) {
            int64_t first = piece_at(m, i);
            MPI_Irecv(m->x + first, (int)((size_t)(piece_at(m, i + 1) - first) * sizeof *m->x),
                      MPI_BYTE, ranks->leader + i, TAG_SUM, comm, &request);
            dpe_ranks_finish(ranks, &request, ranks->leader + i, true);
        }
    }
}

static void finish_all(struct dpe_ranks *ranks, MPI_Request *requests)
{
    for (int i = 0; i < ranks->peers; i++) {
        dpe_ranks_finish(ranks, &requests[i], ranks->leader + i, true);
    }
}

/* At most MOST numbers. */
static dpe_status meet_once(struct dpe_ranks *ranks, float *x, int64_t n, dpe_status status,
                            struct dpe_error *err)
{
    static MPI_Request requests[DPE_MOST_PEERS];
    static float sum[MOST];
    static const struct dpe_error silent;
    struct meeting m = {
        .ranks = ranks, .x = x, .n = n, .own = ranks->rank - ranks->leader, .failed = -1};
    note(&m, m.own, status, err != NULL ? err : &silent);
    send_parts(&m, status, err != NULL ? err : &silent, requests);
    add_parts(&m, sum);
    finish_all(ranks, requests);
    if (m.failed < 0 && m.lost) {
        dpe_fail(&m.err, DPE_INTERNAL,
                 "the ranks that share a model are no longer at the same sum");
        note(&m, 0, DPE_INTERNAL, &m.err);
    }
    ranks->failed = m.failed >= 0 ? m.status : DPE_OK;
    if (m.failed >= 0) {
        if (err != NULL) {
            *err = m.err;
        }
        return m.status;
    }
    if (n > 0) {
        memcpy(x + piece_at(&m, m.own), sum,
               (size_t)(piece_at(&m, m.own + 1) - piece_at(&m, m.own)) * sizeof *x);
        spread_sums(&m, requests);
        finish_all(ranks, requests);
    }
    return DPE_OK;
}

dpe_status dpe_ranks_sum(struct dpe_ranks *ranks, float *x, int64_t n, dpe_status status,
                         struct dpe_error *err)
{
    if (ranks->peers <= 1) {
        return status;
    }
    int64_t at = 0;
    do {
        int64_t some = n - at < MOST ? n - at : MOST;
        status =
            meet_once(ranks, x == NULL ? NULL : x + at, status == DPE_OK ? some : 0, status, err);
        at += some;
    } while (status == DPE_OK && at < n);
    return status;
}

dpe_status dpe_ranks_sync_status(struct dpe_ranks *ranks, dpe_status status, struct dpe_error *err)
{
    return status != DPE_OK && status == ranks->failed ? status
                                                       : dpe_ranks_sum(ranks, NULL, 0, status, err);
}

dpe_status dpe_ranks_broadcast(struct dpe_ranks *ranks, void *bytes, size_t n,
                               struct dpe_error *err)
{
    MPI_Request request;
    if (n > INT_MAX) {
        return dpe_fail(err, DPE_INTERNAL, "%zu bytes are too many for a message", n);
    }
    for (int i = 1; i < ranks->peers && ranks->rank == ranks->leader; i++) {
        MPI_Isend(bytes, (int)n, MPI_BYTE, ranks->leader + i, TAG_GIVE, dpe_ranks_comm(), &request);
        dpe_ranks_finish(ranks, &request, ranks->leader + i, true);
    }
    if (ranks->rank != ranks->leader) {
        MPI_Irecv(bytes, (int)n, MPI_BYTE, ranks->leader, TAG_GIVE, dpe_ranks_comm(), &request);
        dpe_ranks_finish(ranks, &request, ranks->leader, true);
    }
    return DPE_OK;
}

dpe_status dpe_ranks_group(struct dpe_ranks *ranks, int peers, struct dpe_error *err)
{
    if (peers > DPE_MOST_PEERS || ranks->size % peers != 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "--tensor-parallel %d: expected a multiple of %d processes, found %d; start "
            "them with mpirun -n %d",
            peers, peers, ranks->size, (ranks->size / peers + 1) * peers);
    }
    ranks->peers = peers;
    ranks->leader = ranks->rank / peers * peers;
    return DPE_OK;
}
