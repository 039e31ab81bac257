/* The cache of host backends: what a batch adds to it, and copies within it. */
#include <string.h>

#include "engine/ops/ops_host.h"
#include "engine/ops/ops_reference.h"

/* Rows of `heads` heads of a part into a dpe_kv: runs of a branch, or single rows of several. */
static void store_part(const struct dpe_batch *batch, const struct dpe_store *args,
                       enum dpe_kv_part part, int64_t heads, int64_t head_dim, const float *from)
{
    int64_t run = batch->positions != NULL ? 1 : batch->rows;
    for (int64_t r = 0; r < batch->rows; r += run) {
        int64_t row = batch->positions != NULL ? batch->positions[r] + batch->offsets[r]
                                               : batch->start + batch->offset;
        for (int64_t h = 0; h < heads; h++) {
            const struct dpe_kv_rows rows = {part, args->layer, h, row, run};
            dpe_kv_write(args->kv, &rows, from + (r * heads + h) * head_dim, heads * head_dim);
        }
    }
}

static void store_kv(const struct dpe_config *c, const struct dpe_batch *batch,
                     const struct dpe_store *args)
{
    store_part(batch, args, DPE_KV_KEYS, c->n_kv_heads, c->head_dim, args->k);
    store_part(batch, args, DPE_KV_VALUES, c->n_kv_heads, c->head_dim, args->v);
    if (args->keeps_queries) {
        store_part(batch, args, DPE_KV_QUERIES, c->n_heads, c->head_dim, args->q);
    }
}

void dpe_reference_store_kv(struct dpe_backend *backend, const struct dpe_batch *batch,
                            const struct dpe_store *args)
{
    if (args->kv != NULL) {
        store_kv(backend->config, batch, args);
        return;
    }
    int64_t n_kv_heads = backend->config->n_kv_heads;
    int64_t head_dim = backend->config->head_dim;
    size_t bytes = (size_t)head_dim * sizeof(float);
    for (int64_t r = 0; r < batch->rows; r++) {
        int64_t row = batch->positions != NULL ? batch->positions[r] + batch->offsets[r]
                                               : batch->start + r + batch->offset;
        for (int64_t h = 0; h < n_kv_heads; h++) {
            int64_t from = (r * n_kv_heads + h) * head_dim;
            int64_t to = (h * args->capacity + row) * head_dim;
            memcpy((float *)args->cache_k + to, (const float *)args->k + from, bytes);
            memcpy((float *)args->cache_v + to, (const float *)args->v + from, bytes);
        }
        int64_t n_heads = args->cache_q != NULL ? backend->config->n_heads : 0;
        for (int64_t h = 0; h < n_heads; h++) {
            memcpy((float *)args->cache_q + (h * args->capacity + row) * head_dim,
                   (const float *)args->q + (r * n_heads + h) * head_dim, bytes);
        }
    }
}

static void copy_part(const struct dpe_store *args, enum dpe_kv_part part, int64_t heads,
                      int64_t from, int64_t to, int64_t n)
{
    for (int64_t h = 0; h < heads; h++) {
        const struct dpe_kv_rows rows = {part, args->layer, h, from, n};
        dpe_kv_copy(args->kv, &rows, to);
    }
}

void dpe_reference_copy_kv(struct dpe_backend *backend, const struct dpe_store *args, int64_t from,
                           int64_t to, int64_t rows)
{
    if (args->kv != NULL) {
        copy_part(args, DPE_KV_KEYS, backend->config->n_kv_heads, from, to, rows);
        copy_part(args, DPE_KV_VALUES, backend->config->n_kv_heads, from, to, rows);
        copy_part(args, DPE_KV_QUERIES, args->keeps_queries ? backend->config->n_heads : 0, from,
                  to, rows);
        return;
    }
    int64_t head_dim = backend->config->head_dim;
    size_t bytes = (size_t)(rows * head_dim) * sizeof(float);
    for (int64_t h = 0; h < backend->config->n_kv_heads; h++) {
        float *k = (float *)args->cache_k + h * args->capacity * head_dim;
        float *v = (float *)args->cache_v + h * args->capacity * head_dim;
        memcpy(k + to * head_dim, k + from * head_dim, bytes);
        memcpy(v + to * head_dim, v + from * head_dim, bytes);
    }
    for (int64_t h = 0; args->cache_q != NULL && h < backend->config->n_heads; h++) {
        float *q = (float *)args->cache_q + h * args->capacity * head_dim;
        memcpy(q + to * head_dim, q + from * head_dim, bytes);
    }
}
