/* NCCL under names of our own. */
#include "engine/cuda/runtime/nccl_module.h"

#include <string.h>

#include <nccl.h>

_Static_assert(sizeof(ncclUniqueId) == DPE_NCCL_ID, "an id has another size in this NCCL");

static int make_id(char id[DPE_NCCL_ID])
{
    ncclUniqueId made;
    ncclResult_t code = ncclGetUniqueId(&made);
    if (code == ncclSuccess) {
        memcpy(id, made.internal, DPE_NCCL_ID);
    }
    return (int)code;
}

static int join(void **sums, const char id[DPE_NCCL_ID], int index, int size)
{
    ncclUniqueId all;
    ncclComm_t made = NULL;
    memcpy(all.internal, id, DPE_NCCL_ID);
    ncclResult_t code = ncclCommInitRank(&made, size, all, index);
    *sums = made;
    return (int)code;
}

static int sum(void *sums, float *x, uint64_t n, void *stream)
{
    return (int)ncclAllReduce(x, x, (size_t)n, ncclFloat, ncclSum, sums, stream);
}

/* Not destroyed in order, which would wait for peers that may be gone. */
static void leave(void *sums)
{
    (void)ncclCommAbort(sums);
}

static const char *text(int code)
{
    return ncclGetErrorString((ncclResult_t)code);
}

const struct dpe_nccl_module *dpe_nccl_module(void)
{
    static const struct dpe_nccl_module module = {.version = DPE_NCCL_VERSION,
                                                  .id = make_id,
                                                  .join = join,
                                                  .sum = sum,
                                                  .leave = leave,
                                                  .text = text};
    return &module;
}
