/**
 * @file ranks.h
 * The processes of one job: one alone, or several that MPI started. Used inside of dpe_job only.
 *
 * ranks_mpi.c and ranks_alone.c are the two implementations; a build has one of them, and the first
 * alone has messages about rows (job_ranks.c). Every rank runs the same program on the same inputs.
 * Between dpe_ranks_barrier calls rank 0 and the others exchange messages; waiting sleeps instead
 * of spinning. One thread of a process calls these.
 */
#ifndef DPE_RANKS_H
#define DPE_RANKS_H

#include "engine/base/base.h"
#include "engine/session/session.h"
#include "engine/tool/tool.h"

struct dpe_ranks {
    int rank, size;             /**< of the job; 0 of 1 when alone */
    int local_rank, local_size; /**< on this machine */
    int threads;                /**< this rank's share of the machine's cores; 0: all are its own */
    int peers;                  /**< consecutive ranks that hold a model together; 1: none do */
    int leader;                 /**< the first of this rank's peers */
    dpe_status failed;          /**< how the last dpe_ranks_sum ended, on all peers */
    bool apart;                 /**< ranks are no longer at the same place: no more barriers */
    int most;                   /**< at a barrier: the largest that a rank comes with */
    double limit;               /**< longest silence of a rank, seconds */
    void (*beat)(
        void *user); /**< called now and then while a row is made; NULL = nothing to call */
    void *beat_user;
};

/** Join the other ranks, if any. DPE_USAGE when a launcher started several and this build has
 *  no MPI. A barrier follows, after a failure too: the others may have joined. */
dpe_status dpe_ranks_start(struct dpe_ranks *ranks, struct dpe_error *err);
/** Leave the other ranks; this process will end with `status`. */
void dpe_ranks_stop(struct dpe_ranks *ranks, dpe_status status);

/** How many ranks of this machine, this one included, pass the same `text` (first 63 bytes). All
 * ranks call it at the same place. */
int dpe_ranks_count_same(const struct dpe_ranks *ranks, const char *text);

/* Tensor parallel. Ranks leader … leader + peers − 1 hold a model together: what dpe_peers
 * (engine/ops/options.h) needs. Only the leader exchanges messages about rows, and keeps them. */

enum { DPE_MOST_PEERS = 256 };
/** Divide the ranks into groups of `peers`. DPE_USAGE when the number of ranks is not a multiple.
 */
dpe_status dpe_ranks_group(struct dpe_ranks *ranks, int peers, struct dpe_error *err);
/** dpe_peers.meet. A peer that does not come within the limit ends the job. */
dpe_status dpe_ranks_sum(struct dpe_ranks *ranks, float *x, int64_t n, dpe_status status,
                         struct dpe_error *err);
/** The end of what peers did together, `status` being how it ended here: all get one status, as
 *  from dpe_ranks_sum. The failure that the last such call gave to all is not sent again. */
dpe_status dpe_ranks_sync_status(struct dpe_ranks *ranks, dpe_status status, struct dpe_error *err);
/** dpe_peers.share. */
dpe_status dpe_ranks_broadcast(struct dpe_ranks *ranks, void *bytes, size_t n,
                               struct dpe_error *err);

/** Places at which all ranks wait for each other. */
enum dpe_barrier {
    DPE_BARRIER_JOIN,
    DPE_BARRIER_OPEN,
    DPE_BARRIER_BATCH,
    DPE_BARRIER_IDENTITY,
    DPE_BARRIER_START,
    DPE_BARRIER_RUN,
    DPE_BARRIER_RUN_OTHERS,
    DPE_BARRIER_ROWS,
    DPE_BARRIER_WORK,
    DPE_BARRIER_ROWS_END,
    DPE_BARRIER_SHARE,
    DPE_BARRIER_FINISH,
    DPE_BARRIER_MEET,
    DPE_BARRIER_CLOSE,
};
/** Wait for all ranks; they go on with one status: that of rank 0 if it failed, else of the lowest
 *  rank that did, its message naming rank and machine. When a rank has failed and is at another
 *  place than the others, every rank gets its failure and later barriers do nothing. A rank that
 *  does not come within the limit ends the job. Alone: `status`. */
dpe_status dpe_ranks_barrier(struct dpe_ranks *ranks, enum dpe_barrier place, dpe_status status,
                             struct dpe_error *err);
/** Copy rank 0's bytes to all ranks (replaced on the others), right after a barrier. On
 *  DPE_NO_MEMORY this rank must not go on: others wait for it at the next barrier. */
dpe_status dpe_ranks_share(struct dpe_ranks *ranks, struct dpe_text *bytes, struct dpe_error *err);

/** A message about rows. */
struct dpe_message {
    enum dpe_message_kind {
        DPE_MESSAGE_BEAT,   /**< still there */
        DPE_MESSAGE_ROW,    /**< to rank 0: the row of `item` (text: its bytes) */
        DPE_MESSAGE_FAILED, /**< to rank 0: what is left of the items failed (status, text: why) */
        DPE_MESSAGE_ITEM,   /**< to others: make the rows of these items (text: int64_t each) */
        DPE_MESSAGE_DROP,   /**< to others: drop the rows that you are making */
        DPE_MESSAGE_DONE,   /**< to others: no more items */
    } kind;
    int status;                   /**< dpe_status */
    int asked;                    /**< to rank 0: enum dpe_stop_request that reached this rank */
    int64_t item;                 /**< index */
    struct dpe_session_work work; /**< to rank 0: of this rank's session so far; none of those that
                                       follow a leader, who do the same work */
};
/** DPE_NO_MEMORY. */
dpe_status dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                          const char *text, size_t n, struct dpe_error *err);
/** The next message that has arrived, from any rank: false when none has. `text` is replaced. */
bool dpe_ranks_receive(struct dpe_ranks *ranks, int *from, struct dpe_message *message,
                       struct dpe_text *text);
/** Name of the machine of a rank, that has sent a message; borrowed. */
const char *dpe_ranks_host(const struct dpe_ranks *ranks, int rank);
/** End all ranks at once. */
_Noreturn void dpe_ranks_abort(struct dpe_ranks *ranks, int code);
/** The same where a rank has no memory to answer the others, with a message. */
static inline _Noreturn void dpe_ranks_no_memory(struct dpe_ranks *ranks)
{
    dpe_log_error("rank %d is out of memory; the job ends. Finished samples are saved: run the "
                  "same command to "
                  "continue",
                  ranks->rank);
    dpe_ranks_abort(ranks, DPE_NO_MEMORY);
}

#endif
