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
/** Whether two threads may call MPI at once. */
bool dpe_ranks_threaded(void);
/** A rank did not arrive: report it and end the job. */
_Noreturn void dpe_ranks_give_up(struct dpe_ranks *ranks, int rank);

#endif
