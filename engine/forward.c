/* The forward pass. Activations are handles that only operations dereference; the cache holds keys
 * as they come out of the projection, attention turns them as the plan says. */
#include "session_internal.h"

#include <inttypes.h>

/* Row `row` of a buffer of `width` floats a row. */
static dpe_mem row_of(dpe_mem memory, int64_t row, int64_t width)
{
    return (float *)memory + row * width;
}

static dpe_status give_tap(struct dpe_session *s, int64_t layer, int64_t rows,
                           struct dpe_error *err)
{
    const struct dpe_config *c = s->config;
    uint64_t width = (uint64_t)rows * (uint64_t)c->head_dim * sizeof(float);
    s->ops->download(s->backend, s->tap_q, s->q, width * (uint64_t)c->n_heads);
    s->ops->download(s->backend, s->tap_k, s->k, width * (uint64_t)c->n_kv_heads);
    return s->tap(s->tap_user, layer, s->length, rows, s->tap_q, s->tap_k, err);
}

static void attend(struct dpe_session *s, int64_t layer, int64_t first, int64_t rows)
{
    const struct dpe_config *c = s->config;
    int64_t width = c->n_heads * c->head_dim;
    const struct dpe_attention args = {
        .plan = &s->plan,
        .rotation = &s->rotation,
        .layer = layer,
        .start = s->length + first,
        .rows = rows - first,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .capacity = s->options.capacity,
        .q = row_of(s->q, first, width),
        .k = s->cache_k[layer],
        .v = s->cache_v[layer],
        .out = row_of(s->attended, first, width),
        .workspace = s->workspace,
        .n_threads = s->options.n_threads,
    };
    s->ops->attention(s->backend, &args);
}

static dpe_status check_finite(struct dpe_session *s, int64_t layer, int64_t first, int64_t rows,
                               struct dpe_error *err)
{
    int64_t width = s->config->hidden;
    int64_t bad =
        s->ops->first_nonfinite(s->backend, row_of(s->x, first, width), rows - first, width);
    if (bad < 0) {
        return DPE_OK;
    }
    int64_t position = s->length + first + bad;
    dpe_fail(err, DPE_NONFINITE,
             "NaN or infinity behind layer %" PRId64 " at position %" PRId64
             "; the weights or the position plan (%s) produce it",
             layer, position, s->plan.name);
    if (err != NULL) {
        err->layer = (int)layer;
        err->position = position;
    }
    return DPE_NONFINITE;
}

dpe_status dpe_forward(struct dpe_session *s, const int32_t *tokens, int64_t rows, int64_t wanted,
                       struct dpe_error *err)
{
    const struct dpe_ops *ops = s->ops;
    const struct dpe_config *c = s->config;
    struct dpe_backend *b = s->backend;
    int64_t width = c->n_heads * c->head_dim;

    ops->embed(b, tokens, rows, s->x);
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        const struct dpe_layer_weights *w = &s->weights->layers[layer];
        /* Behind the last layer's keys and values only the wanted rows matter. */
        int64_t first = layer == c->n_layers - 1 ? rows - wanted : 0;
        int64_t first_q = s->tap != NULL ? 0 : first;
        dpe_status status = ops->begin_layer(b, layer, rows, err);
        if (status != DPE_OK) {
            return status;
        }

        /* x += O · attention(Q x', K x', V x'),  x' = rmsnorm(x) */
        ops->rmsnorm(b, &w->attention_norm, s->x, rows, s->normed);
        ops->linear(b, layer, DPE_WEIGHT_K, s->normed, rows, s->k, false);
        ops->linear(b, layer, DPE_WEIGHT_V, s->normed, rows, s->v, false);
        if (first_q < rows) {
            ops->linear(b, layer, DPE_WEIGHT_Q, row_of(s->normed, first_q, c->hidden),
                        rows - first_q, row_of(s->q, first_q, width), false);
        }
        if (s->tap != NULL && (status = give_tap(s, layer, rows, err)) != DPE_OK) {
            return status;
        }
        ops->store_kv(b, s->k, s->v, s->length, rows, s->options.capacity, s->cache_k[layer],
                      s->cache_v[layer]);
        if (first == rows) {
            return DPE_OK;
        }
        attend(s, layer, first, rows);
        dpe_mem x = row_of(s->x, first, c->hidden);
        ops->linear(b, layer, DPE_WEIGHT_O, row_of(s->attended, first, width), rows - first, x,
                    true);

        /* x += Down · (silu(Gate x') ⊙ Up x'),  x' = rmsnorm(x) */
        ops->rmsnorm(b, &w->mlp_norm, x, rows - first, s->normed);
        ops->linear(b, layer, DPE_WEIGHT_GATE, s->normed, rows - first, s->gate, false);
        ops->linear(b, layer, DPE_WEIGHT_UP, s->normed, rows - first, s->up, false);
        ops->swiglu(b, s->gate, s->up, rows - first);
        ops->linear(b, layer, DPE_WEIGHT_DOWN, s->gate, rows - first, x, true);

        status = check_finite(s, layer, first, rows, err);
        if (status != DPE_OK) {
            return status;
        }
    }
    ops->rmsnorm(b, &s->weights->final_norm, row_of(s->x, rows - wanted, c->hidden), wanted,
                 s->normed);
    return DPE_OK;
}
