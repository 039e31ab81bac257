/* A build without MPI: one process. */
#include "outputs/job/ranks.h"

#include <stdlib.h>

/* Whether a launcher (mpirun, srun) started this process as one of several. */
static bool launched(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *size = getenv(sizes[i]);
        if (size != NULL && atoi(size) > 1) {
            return true;
        }
    }
    return false;
}

dpe_status dpe_ranks_start(struct dpe_ranks *ranks, struct dpe_error *err)
{
    *ranks = (struct dpe_ranks){.size = 1, .local_size = 1, .peers = 1, .limit = ranks->limit};
    return launched()
               ? dpe_fail(err, DPE_USAGE,
                          "started as several ranks, but this dpe was built without MPI: build it "
                          "with an "
                          "MPI library (Debian: libopenmpi-dev), or start one process")
               : DPE_OK;
}

void dpe_ranks_stop(struct dpe_ranks *ranks, dpe_status status)
{
    (void)ranks, (void)status;
}

int dpe_ranks_count_same(const struct dpe_ranks *ranks, const char *text)
{
    (void)ranks, (void)text;
    return 1;
}

dpe_status dpe_ranks_group(struct dpe_ranks *ranks, int peers, struct dpe_error *err)
{
    ranks->peers = 1;
    return peers == 1 ? DPE_OK
                      : dpe_fail(err, DPE_USAGE,
                                 "--tensor-parallel %d: this dpe was built without MPI: build it "
                                 "with an MPI library (Debian: libopenmpi-dev)",
                                 peers);
}

dpe_status dpe_ranks_sum(struct dpe_ranks *ranks, float *x, int64_t n, dpe_status status,
                         struct dpe_error *err)
{
    (void)ranks, (void)x, (void)n, (void)err;
    return status;
}

dpe_status dpe_ranks_sync_status(struct dpe_ranks *ranks, dpe_status status, struct dpe_error *err)
{
    (void)ranks, (void)err;
    return status;
}

dpe_status dpe_ranks_broadcast(struct dpe_ranks *ranks, void *bytes, size_t n,
                               struct dpe_error *err)
{
    (void)ranks, (void)bytes, (void)n, (void)err;
    return DPE_OK;
}

dpe_status dpe_ranks_barrier(struct dpe_ranks *ranks, enum dpe_barrier place, dpe_status status,
                             struct dpe_error *err)
{
    (void)ranks, (void)place, (void)err;
    return status;
}

dpe_status dpe_ranks_share(struct dpe_ranks *ranks, struct dpe_text *bytes, struct dpe_error *err)
{
    (void)ranks, (void)bytes, (void)err;
    return DPE_OK;
}

dpe_status dpe_ranks_send(struct dpe_ranks *ranks, int to, const struct dpe_message *message,
                          const char *text, size_t n, struct dpe_error *err)
{
    (void)ranks, (void)message, (void)text, (void)n;
    return dpe_fail(err, DPE_INTERNAL, "there is no rank %d", to);
}

bool dpe_ranks_receive(struct dpe_ranks *ranks, int *from, struct dpe_message *message,
                       struct dpe_text *text)
{
    (void)ranks, (void)from, (void)message, (void)text;
    return false;
}

void dpe_ranks_drop(struct dpe_ranks *ranks)
{
    (void)ranks;
}

bool dpe_ranks_dropped(struct dpe_ranks *ranks)
{
    (void)ranks;
    return false;
}

const char *dpe_ranks_host(const struct dpe_ranks *ranks, int rank)
{
    (void)ranks, (void)rank;
    return "";
}

_Noreturn void dpe_ranks_abort(struct dpe_ranks *ranks, int code)
{
    (void)ranks;
    _Exit(code);
}
