/* Sums over the processes that hold one model together: through NCCL where all of them have it and
 * it sums right, else through the host, in the order of their indices. DPE_CUDA_PEERS=host in the
 * environment asks for the latter (comparisons, several processes on one device, which NCCL
 * refuses). */
#include "engine/cuda/host/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/runtime/nccl_module.h"

/* Whether all peers say so; each of them gets the same answer. */
static dpe_status all_do(struct dpe_backend *b, bool here, bool *all, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    float count = here ? 1.0f : 0.0f;
    dpe_status status = peers->meet(peers->user, &count, 1, dpe_cuda_status(b, err), err);
    *all = status == DPE_OK && count == (float)peers->size;
    return status;
}

/* Sum numbers whose sum is known. They lie where logits will, which nothing holds before the end of
 * a pass. */
static bool sums_right(struct dpe_backend *b, const struct dpe_nccl_module *nccl)
{
    enum { MOST = 256, SECONDS = 60 };
    float x[MOST];
    const int size = b->peers->size;
    const uint64_t n = b->config->vocab < MOST ? (uint64_t)b->config->vocab : MOST;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(i + 1) + (float)b->peers->index;
    }
    DPE_CUDA_TRY(b, dpe_rt_up(b->logits, x, n * sizeof *x));
    int code = b->failed ? 1 : nccl->sum(b->sums, b->logits, n, dpe_rt_stream());
    if (code == 0) {
        dpe_rt_set_timeout(SECONDS); /* a device waits for ever for one that does not come */
        DPE_CUDA_TRY(b, dpe_rt_down(x, b->logits, n * sizeof *x));
        dpe_rt_set_timeout(b->timeout_seconds);
    }
    bool right = code == 0 && !b->failed;
    for (uint64_t i = 0; i < n && right; i++) {
        right = x[i] == (float)size * (float)(i + 1) + (float)(size * (size - 1) / 2);
    }
    return right;
}

/* Join through NCCL; *why: what of it does not work for all, NULL: nothing. */
static dpe_status join_nccl(struct dpe_backend *b, const struct dpe_nccl_module *nccl,
                            const char **why, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    char id[DPE_NCCL_ID] = {0};
    bool all = false;
    *why = "does not start";
    int code = peers->index == 0 ? nccl->id(id) : 0;
    DPE_TRY(all_do(b, code == 0, &all, err));
    if (!all) {
        return DPE_OK;
    }
    dpe_status shared = peers->share(peers->user, id, sizeof id, err);
    DPE_TRY(peers->meet(peers->user, NULL, 0, shared, err));
    *why = "does not connect the devices";
    code = nccl->join(&b->sums, id, peers->index, peers->size);
    DPE_TRY(all_do(b, code == 0, &all, err));
    if (!all) {
        return DPE_OK;
    }
    *why = "sums wrong numbers";
    DPE_TRY(all_do(b, sums_right(b, nccl), &all, err));
    *why = all ? NULL : *why;
    return DPE_OK;
}

/* All peers come here at the same sum, the first of a session. What NCCL cannot do the host does.
 */
static dpe_status join(struct dpe_backend *b, struct dpe_error *err)
{
    const struct dpe_nccl_module *nccl = dpe_rt_nccl();
    const char *asked = getenv("DPE_CUDA_PEERS");
    const char *why = NULL;
    bool all = false;
    bool wanted = asked == NULL || strcmp(asked, "host") != 0;
    DPE_TRY(all_do(b, nccl != NULL && wanted, &all, err));
    DPE_TRY(all ? join_nccl(b, nccl, &why, err) : DPE_OK);
    if (why != NULL) {
        if (b->sums != NULL) {
            nccl->leave(b->sums);
            b->sums = NULL;
        }
        if (b->peers->index == 0) {
            fprintf(stderr,
                    "cuda: NCCL %s, sums over devices go through the host (NCCL_DEBUG=INFO says "
                    "more)\n",
                    why);
        }
    }
    b->joined = true;
    return DPE_OK;
}

static dpe_status sum_on_host(struct dpe_backend *b, dpe_mem x, int64_t n, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    dpe_status status = DPE_OK;
    if (b->stage == NULL) {
        size_t most = (size_t)(b->batch_room * b->config->hidden);
        status = DPE_NEW(&b->stage, most, err, "cuda: out of host memory");
    }
    if (status == DPE_OK) {
        DPE_CUDA_TRY(b, dpe_rt_down(b->stage, x, (uint64_t)n * sizeof *b->stage));
        status = dpe_cuda_status(b, err);
    }
    DPE_TRY(peers->meet(peers->user, b->stage, n, status, err));
    DPE_CUDA_TRY(b, dpe_rt_up(x, b->stage, (uint64_t)n * sizeof *b->stage));
    return DPE_OK;
}

dpe_status dpe_cuda_all_reduce(struct dpe_backend *b, dpe_mem x, int64_t n, struct dpe_error *err)
{
    const struct dpe_peers *peers = b->peers;
    if (peers->size == 1) {
        return DPE_OK;
    }
    DPE_TRY(b->joined ? DPE_OK : join(b, err));
    if (b->sums == NULL) {
        return sum_on_host(b, x, n, err);
    }
    /* A device waits for ever for one that does not come: so first check that all do. */
    DPE_TRY(peers->meet(peers->user, NULL, 0, dpe_cuda_status(b, err), err));
    int code = dpe_rt_nccl()->sum(b->sums, x, (uint64_t)n, dpe_rt_stream());
    DPE_CUDA_NOTE(b, code == 0 ? 0 : DPE_RT_NCCL + code, "ncclAllReduce");
    return DPE_OK;
}

void dpe_cuda_leave(struct dpe_backend *b)
{
    if (b->sums != NULL) {
        dpe_rt_nccl()->leave(b->sums);
    }
    free(b->stage);
}
