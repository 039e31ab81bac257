/* peer_late.c: loaded before MPI (LD_PRELOAD), it makes rank 1's first messages late, so that the
 * other ranks wait inside whatever needs them: making the session, and the first sums. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LATE_MESSAGES = 40 };

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int sent;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank != NULL && strcmp(rank, "1") == 0 && sent++ < LATE_MESSAGES) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
