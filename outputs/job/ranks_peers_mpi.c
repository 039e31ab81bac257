/* Ranks that hold one model together. For a sum each rank sends all the others its numbers and its
 * status, and adds what it gets in order of rank, so all have the same bits; a failed rank sends
 * its status alone. */
#include "outputs/job/ranks_mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_PART = 11, TAG_GIVE };
enum { MOST = 1 << 22 }; /* floats of a sum that go together: bounds the buffers */

/* What begins a message. A failure follows, else floats. */
struct head {
    int64_t n;
    dpe_status status;
};

/* Buffers of this process; they grow and stay. */
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
static const char *receive(struct dpe_ranks *ranks, int peer)
{
    const MPI_Status status = dpe_ranks_await(ranks, peer, TAG_PART, peer, true);
    MPI_Request request;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    room_for(ranks, &got, &got_room, (size_t)size);
    MPI_Irecv(got, size, MPI_BYTE, peer, TAG_PART, dpe_ranks_comm(), &request);
    dpe_ranks_finish(ranks, &request, peer, true);
    return got;
}

/* What this rank has to say, to all its peers. */
static const char *send_to_all(struct dpe_ranks *ranks, const float *x, int64_t n,
                               dpe_status status, const struct dpe_error *err,
                               MPI_Request *requests)
{
    const struct head head = {n, status};
    const size_t bytes = status != DPE_OK ? sizeof *err : (size_t)n * sizeof *x;
    char *message = room_for(ranks, &sent, &sent_room, sizeof head + bytes);
    memcpy(message, &head, sizeof head);
    if (bytes > 0) {
        memcpy(message + sizeof head, status != DPE_OK ? (const void *)err : x, bytes);
    }
    for (int peer = ranks->leader; peer < ranks->leader + ranks->peers; peer++, requests++) {
        *requests = MPI_REQUEST_NULL;
        if (peer != ranks->rank) {
            MPI_Isend(message, (int)(sizeof head + bytes), MPI_BYTE, peer, TAG_PART,
                      dpe_ranks_comm(), requests);
        }
    }
    return message;
}

/* At most MOST numbers. The lowest rank that failed has the word. */
static dpe_status meet_once(struct dpe_ranks *ranks, float *x, int64_t n, dpe_status status,
                            struct dpe_error *err)
{
    static MPI_Request requests[DPE_MOST_PEERS];
    struct dpe_error failure = {0};
    bool lost = false; /* others sum something else */
    const char *own = send_to_all(ranks, x, n, status, err != NULL ? err : &failure, requests);
    status = DPE_OK;
    for (int i = 0; i < ranks->peers; i++) {
        const int peer = ranks->leader + i;
        const char *message = peer == ranks->rank ? own : receive(ranks, peer);
        const float *part = (const float *)(const void *)(message + sizeof(struct head));
        struct head head;
        memcpy(&head, message, sizeof head);
        if (head.status != DPE_OK && status == DPE_OK) {
            status = head.status;
            memcpy(&failure, part, sizeof failure);
        }
        lost = lost || head.n != n;
        for (int64_t k = 0; k < n && status == DPE_OK && !lost; k++) {
            x[k] = i == 0 ? part[k] : x[k] + part[k];
        }
    }
    for (int i = 0; i < ranks->peers; i++) {
        dpe_ranks_finish(ranks, &requests[i], ranks->leader + i, true);
    }
    if (status == DPE_OK && lost) {
        status = dpe_fail(&failure, DPE_INTERNAL,
                          "the ranks that share a model are no longer at the same sum");
    }
    ranks->failed = status;
    if (status != DPE_OK && err != NULL) {
        *err = failure;
    }
    return status;
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
