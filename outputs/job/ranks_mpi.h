/**
 * @file ranks_mpi.h
 * What the two files of ranks through MPI share.
 */
#ifndef DPE_RANKS_MPI_H
#define DPE_RANKS_MPI_H

#include <mpi.h>

#include "outputs/job/ranks.h"

/** All ranks of the job. */
MPI_Comm dpe_ranks_comm(void);
/** Wait for a request, or for a message of this tag from `source`: with `beats` ranks->beat is
 * called now and then. The rank that is `late` (−1: it is not known which) after the limit is
 * reported, and the job ends. */
void dpe_ranks_finish(struct dpe_ranks *ranks, MPI_Request *request, int late, bool beats);
MPI_Status dpe_ranks_await(struct dpe_ranks *ranks, int source, int tag, int late, bool beats);

#endif
