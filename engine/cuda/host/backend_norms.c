/* Norms of queries and keys, summed where they are: a profile brings no q and k to the host. */
#include "engine/cuda/host/backend.h"

static int64_t sums_of(const struct dpe_config *c)
{
    return (c->n_heads + c->n_kv_heads) * (c->head_dim / 2);
}

uint64_t dpe_cuda_norm_bytes(const struct dpe_config *config)
{
    return (uint64_t)sums_of(config) * (DPE_NORM_PARTS + 1) * sizeof(double);
}

void dpe_cuda_sum_norms(struct dpe_backend *b, dpe_mem q, dpe_mem k, int64_t rows, bool products,
                        double *sum_q, double *sum_k)
{
    const struct dpe_config *c = b->config;
    const struct dpe_norm_shape shape = {.rows = rows,
                                         .n_heads = c->n_heads,
                                         .n_kv_heads = c->n_kv_heads,
                                         .n_pairs = c->head_dim / 2,
                                         .products = products};
    int64_t n_q = c->n_heads * shape.n_pairs;
    int64_t n = products ? n_q : sums_of(c);
    if (b->norms == NULL && !b->failed) {
        b->norms_host = dpe_alloc((size_t)sums_of(c), sizeof *b->norms_host);
        dpe_status status =
            b->norms_host == NULL
                ? dpe_fail(&b->failure, DPE_NO_MEMORY, "cuda: out of host memory")
                : dpe_cuda_own(b, dpe_cuda_norm_bytes(c), (void **)&b->norms, &b->failure);
        b->failed = status != DPE_OK;
    }
    DPE_CUDA_TRY(b, dpe_kernel_norms(b->dtype, q, k, &shape, b->norms));
    DPE_CUDA_TRY(b, dpe_rt_down(b->norms_host, b->norms, (uint64_t)n * sizeof *b->norms_host));
    for (int64_t i = 0; i < n && !b->failed; i++) {
        double *sum = i < n_q ? sum_q + i : sum_k + (i - n_q);
        *sum += b->norms_host[i];
    }
}
