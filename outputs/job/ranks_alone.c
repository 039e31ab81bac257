/* A build without MPI: one process. */
#include "outputs/job/job_internal.h"

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

dpe_status dpe_loop_ranks(struct dpe_loop *loop, struct dpe_error *err)
{
    (void)loop;
    return dpe_fail(err, DPE_INTERNAL, "there are no other ranks");
}
