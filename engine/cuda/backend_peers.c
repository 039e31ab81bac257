/* Sums over the processes that hold one model together. */
#include "backend.h"

dpe_status dpe_cuda_all_reduce(struct dpe_backend *b, dpe_mem x, int64_t n, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    if (peers->size == 1) {
        return DPE_OK;
    }
    DPE_CUDA_TRY(b, dpe_rt_down(b->stage, x, (uint64_t)n * sizeof *b->stage));
    dpe_status status = dpe_cuda_status(b, err);
    status = peers->meet(peers->user, b->stage, n, status, err);
    if (status == DPE_OK) {
        DPE_CUDA_TRY(b, dpe_rt_up(x, b->stage, (uint64_t)n * sizeof *b->stage));
    }
    return status;
}
