/* Sums over the processes that hold one model together: through NCCL where all of them have it,
 * else through the host, in the order of their indices. DPE_CUDA_PEERS=host in the environment asks
 * for the latter (comparisons, several processes on one device, which NCCL refuses). */
#include "engine/cuda/host/backend.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cuda/runtime/nccl_module.h"

/* All peers come here at the same sum, the first of a session. */
static dpe_status join(struct dpe_backend *b, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    const struct dpe_nccl_module *nccl = dpe_rt_nccl();
    const char *asked = getenv("DPE_CUDA_PEERS");
    float having = nccl != NULL && (asked == NULL || strcmp(asked, "host") != 0) ? 1.0f : 0.0f;
    char id[DPE_NCCL_ID] = {0};
    dpe_status status = peers->meet(peers->user, &having, 1, dpe_cuda_status(b, err), err);
    if (status != DPE_OK || having < (float)peers->size) {
        b->joined = status == DPE_OK;
        return status;
    }
    int code = peers->index == 0 ? nccl->id(id) : 0;
    if (code != 0) {
        status = dpe_fail(err, DPE_NO_DEVICE, "NCCL does not start: %s", nccl->text(code));
    }
    status = peers->meet(peers->user, NULL, 0, status, err);
    if (status == DPE_OK) {
        status = peers->share(peers->user, id, sizeof id, err);
        status = peers->meet(peers->user, NULL, 0, status, err);
    }
    if (status == DPE_OK) {
        code = nccl->join(&b->sums, id, peers->index, peers->size);
        status = code == 0 ? DPE_OK
                           : dpe_fail(err, DPE_NO_DEVICE,
                                      "NCCL does not connect the devices of %d processes: %s; "
                                      "set NCCL_DEBUG=INFO for details, or DPE_CUDA_PEERS=host to "
                                      "run without NCCL",
                                      peers->size, nccl->text(code));
        status = peers->meet(peers->user, NULL, 0, status, err);
    }
    b->joined = status == DPE_OK;
    return status;
}

static dpe_status sum_on_host(struct dpe_backend *b, dpe_mem x, int64_t n, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    dpe_status status = DPE_OK;
    if (b->stage == NULL) {
        b->stage = dpe_alloc((size_t)(b->batch_room * b->config->hidden), sizeof *b->stage);
        status =
            b->stage != NULL ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "cuda: out of host memory");
    }
    if (status == DPE_OK) {
        DPE_CUDA_TRY(b, dpe_rt_down(b->stage, x, (uint64_t)n * sizeof *b->stage));
        status = dpe_cuda_status(b, err);
    }
    status = peers->meet(peers->user, b->stage, n, status, err);
    if (status == DPE_OK) {
        DPE_CUDA_TRY(b, dpe_rt_up(x, b->stage, (uint64_t)n * sizeof *b->stage));
    }
    return status;
}

dpe_status dpe_cuda_all_reduce(struct dpe_backend *b, dpe_mem x, int64_t n, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    if (peers->size == 1) {
        return DPE_OK;
    }
    dpe_status status = b->joined ? DPE_OK : join(b, err);
    if (status != DPE_OK) {
        return status;
    }
    if (b->sums == NULL) {
        return sum_on_host(b, x, n, err);
    }
    /* A device waits for ever for one that does not come: so first check that all do. */
    status = peers->meet(peers->user, NULL, 0, dpe_cuda_status(b, err), err);
    if (status == DPE_OK) {
        int code = dpe_rt_nccl()->sum(b->sums, x, (uint64_t)n, dpe_rt_stream());
        DPE_CUDA_NOTE(b, code == 0 ? 0 : DPE_RT_NCCL + code, "ncclAllReduce");
    }
    return status;
}

void dpe_cuda_leave(struct dpe_backend *b)
{
    if (b->sums != NULL) {
        dpe_rt_nccl()->leave(b->sums);
    }
    free(b->stage);
}
