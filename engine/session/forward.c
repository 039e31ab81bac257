/* The forward pass. Activations are handles that only operations dereference; the cache holds keys
 * as they come out of the projection, attention rotates them by the plan. */
#include "engine/ops/ops_reference.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <string.h>

/* Row `row` of x, and of any other buffer of `width` elements a row. */
static dpe_mem row_of_x(const struct dpe_session *s, int64_t row)
{
    return (float *)s->x + row * s->config->hidden;
}

static dpe_mem row_of(const struct dpe_session *s, dpe_mem memory, int64_t row, int64_t width)
{
    return (char *)memory + row * width * (int64_t)s->element;
}

static int64_t position_of(const struct dpe_batch *batch, int64_t row)
{
    return batch->positions != NULL ? batch->positions[row] : batch->start + row;
}

/* Rows that stand at consecutive positions of one branch. */
static int64_t rows_of_run(const struct dpe_batch *batch)
{
    return batch->positions != NULL ? 1 : batch->rows;
}

static dpe_status report_nonfinite(const struct dpe_session *s, int64_t layer, int64_t position,
                                   struct dpe_error *err)
{
    dpe_fail(err, DPE_NONFINITE,
             "NaN or infinity after layer %" PRId64 " at position %" PRId64
             "; the weights or the position plan (%s) produce it",
             layer, position, s->plan.name);
    if (err != NULL) {
        err->layer = (int)layer;
        err->position = position;
    }
    return DPE_NONFINITE;
}

/* `rows` rows of this process's heads come to their places in a buffer for rows of all heads, whose
 * end they may be, and zeros to those of the others. */
static void spread_heads(const struct dpe_peers *peers, const float *from, int64_t rows,
                         int64_t width, float *buffer)
{
    int64_t whole = width * peers->size;
    for (int64_t r = 0; r < rows; r++) {
        float *row = buffer + r * whole;
        float *own = row + peers->index * width;
        memmove(own, from + r * width, (size_t)width * sizeof *own);
        memset(row, 0, (size_t)(own - row) * sizeof *own);
        memset(own + width, 0, (size_t)(row + whole - (own + width)) * sizeof *own);
    }
}

/* q and k of all heads of a run, on the host: the peers' come from them, as each adds its own to
 * zeros. */
static dpe_status read_heads(struct dpe_session *s, const struct dpe_batch *batch, int64_t row,
                             int64_t rows, const float **q, const float **k, struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    int64_t q_width = s->config->n_heads * s->config->head_dim;
    int64_t k_width = s->config->n_kv_heads * s->config->head_dim;
    int64_t others = rows * (peers->size - 1);
    int64_t bad_layer = -1;
    int64_t bad_row = -1;
    *q = s->ops->read(s->backend, row_of(s, s->q, row, q_width), rows * q_width,
                      s->tap_q + others * q_width);
    *k = s->ops->read(s->backend, row_of(s, s->k, row, k_width), rows * k_width,
                      s->tap_k + others * k_width);
    dpe_status status = s->ops->finish(s->backend, &bad_layer, &bad_row, err);
    if (status == DPE_OK && bad_layer >= 0) {
        status = report_nonfinite(s, bad_layer, position_of(batch, bad_row), err);
    }
    if (peers->size == 1) {
        return status;
    }
    if (status == DPE_OK) {
        spread_heads(peers, *q, rows, q_width, s->tap_q);
        spread_heads(peers, *k, rows, k_width, s->tap_k);
    }
    *q = s->tap_q;
    *k = s->tap_k;
    int64_t n = rows * peers->size;
    status = peers->meet(peers->user, s->tap_q, n * q_width, status, err);
    return status == DPE_OK ? peers->meet(peers->user, s->tap_k, n * k_width, DPE_OK, err) : status;
}

/* The norms of a layer's rows: by the backend, or of all heads where other processes have some. */
static dpe_status add_norms(struct dpe_session *s, int64_t layer, const struct dpe_batch *batch,
                            struct dpe_error *err)
{
    const struct dpe_norm_sums *sums = &s->sums;
    const struct dpe_config *c = dpe_model_config(s->model);
    int64_t pairs = c->head_dim / 2;
    double *sum_q = sums->q + layer * c->n_heads * pairs;
    double *sum_k = sums->products ? NULL : sums->k + layer * c->n_kv_heads * pairs;
    sums->rows[layer] += batch->rows;
    if (s->options.peers->size == 1) {
        s->ops->sum_norms(s->backend, s->q, s->k, batch->rows, sums->products, sum_q, sum_k);
        return DPE_OK;
    }
    const float *q = NULL;
    const float *k = NULL;
    DPE_TRY(read_heads(s, batch, 0, batch->rows, &q, &k, err));
    dpe_norms_add(c, s->options.n_threads, q, k, batch->rows, sums->products, sum_q, sum_k);
    return DPE_OK;
}

static dpe_status give_tap(struct dpe_session *s, int64_t layer, const struct dpe_batch *batch,
                           struct dpe_error *err)
{
    int64_t run = rows_of_run(batch);
    dpe_status status = DPE_OK;
    for (int64_t r = 0; status == DPE_OK && r < batch->rows; r += run) {
        const float *q = NULL;
        const float *k = NULL;
        status = read_heads(s, batch, r, run, &q, &k, err);
        if (status == DPE_OK) {
            status = s->tap(s->tap_user, layer, position_of(batch, r), run, q, k, err);
            if (status != DPE_OK) {
                status = dpe_session_agree(s, status, err);
            }
        }
    }
    return status;
}

struct dpe_store dpe_session_store(const struct dpe_session *s, int64_t layer)
{
    bool keeps = dpe_selection_keeps_queries(&s->plan.selection) && dpe_config_moves(s->config, layer);
    return (struct dpe_store){.cache_k = s->cache_k[layer],
                              .cache_v = s->cache_v[layer],
                              .cache_q = s->cache_q[layer],
                              .capacity = s->options.capacity,
                              .kv = s->kv,
                              .keeps_queries = keeps,
                              .layer = layer};
}

struct dpe_attention dpe_forward_attention(const struct dpe_session *s, int64_t layer,
                                           const struct dpe_batch *batch, int64_t first)
{
    const struct dpe_config *c = s->config;
    int64_t width = c->n_heads * c->head_dim;
    int kind = c->layer_kinds != NULL ? c->layer_kinds[layer] : 0;
    const struct dpe_selection *selection = &s->plan.selection;
    return (struct dpe_attention){
        .plan = kind == 0 ? &s->plan : &s->kind_plans[kind],
        .rotation = kind == 0 ? &s->rotation : &s->kind_rotations[kind],
        .layer = layer,
        .start = batch->start + first,
        .rows = batch->rows - first,
        .prefix = s->prefix,
        .offset = batch->offset,
        .positions = batch->positions,
        .offsets = batch->offsets,
        .lent = batch->lent,
        .lents = batch->lents,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .capacity = s->options.capacity,
        .q = row_of(s, s->q, first, width),
        .k = s->cache_k[layer],
        .v = s->cache_v[layer],
        .kv = s->kv,
        .out = row_of(s, s->attended, first, width),
        .queries = s->cache_q[layer],
        .marks = s->marks[layer],
        .slots = dpe_selects(selection) ? dpe_selection_slots(selection, s->options.capacity,
                                                              s->options.branches)
                                        : 0,
        .room = s->room,
        .lse = s->lse,
        .workspace = s->workspace,
        .n_threads = s->options.n_threads,
    };
}

/* The chosen keys are in args->out, the compressed ones too: with the window, by their gates. */
static void add_branches(struct dpe_session *s, struct dpe_attention *args, int64_t first)
{
    const struct dpe_config *c = s->config;
    int64_t width = c->n_heads * c->head_dim;
    struct dpe_branches branches = {
        .gates = row_of(s, s->branch_gates, first, 3 * c->n_heads),
        .compressed = args->compressed,
        .out = args->out,
        .rows = args->rows,
    };
    if (c->n_kinds > 1) {
        branches.windowed = row_of(s, s->windowed, first, width);
        args->plan = &s->kind_plans[1];
        args->rotation = &s->kind_rotations[1];
        args->compressed = NULL;
        args->out = branches.windowed;
        s->ops->attention(s->backend, args);
    }
    s->ops->merge(s->backend, &branches);
}

static void attend(struct dpe_session *s, int64_t layer, const struct dpe_batch *batch,
                   int64_t first)
{
    struct dpe_attention args = dpe_forward_attention(s, layer, batch, first);
    bool branches = s->config->branch_block > 0;
    if (branches) {
        args.compressed = row_of(s, s->compressed, first, s->config->n_heads * s->config->head_dim);
    }
    s->ops->attention(s->backend, &args);
    if (branches) {
        add_branches(s, &args, first);
    }
    if (s->config->sinks) {
        s->ops->sinks(s->backend, layer, s->lse, args.rows, args.out);
    }
}

/* The blocks that a batch completes, for the selections after it. */
static void represent(struct dpe_session *s, int64_t layer, const struct dpe_batch *batch)
{
    if (s->marks[layer] != NULL) {
        const struct dpe_attention args = dpe_forward_attention(s, layer, batch, 0);
        s->ops->represent(s->backend, &args);
    }
}

void dpe_forward_represent(struct dpe_session *s, int64_t layer, int64_t branch, int64_t n)
{
    const struct dpe_batch batch = {
        .start = s->prefix, .rows = n - s->prefix, .offset = branch * s->room};
    represent(s, layer, &batch);
}

static dpe_status check_finite(struct dpe_session *s, int64_t layer, const struct dpe_batch *batch,
                               int64_t first, struct dpe_error *err)
{
    int64_t bad = s->ops->first_nonfinite(s->backend, layer, row_of_x(s, first),
                                          batch->rows - first, s->config->hidden);
    return bad < 0 ? DPE_OK : report_nonfinite(s, layer, position_of(batch, first + bad), err);
}

/* What a device reports only at the end. Rows count from the first that the layer looked at. */
static dpe_status finish(struct dpe_session *s, const struct dpe_batch *batch,
                         struct dpe_error *err)
{
    int64_t layer = -1;
    int64_t row = -1;
    DPE_TRY(s->ops->finish(s->backend, &layer, &row, err));
    if (layer < 0) {
        return DPE_OK;
    }
    int64_t first = layer == s->config->n_layers - 1 ? batch->rows - batch->wanted : 0;
    return report_nonfinite(s, layer, position_of(batch, first + row), err);
}

/* A layer's share of x is here; all of it afterwards. */
static dpe_status gather(struct dpe_session *s, dpe_mem x, int64_t rows, struct dpe_error *err)
{
    return s->ops->all_reduce(s->backend, x, rows * s->config->hidden, err);
}

/* Of the peers the first alone adds its share to x: the sum of all has x once. */
static bool adds(const struct dpe_session *s)
{
    return s->options.peers->index == 0;
}

static bool has(const struct dpe_session *s, enum dpe_weight which)
{
    return dpe_layer_name(s->config, which) != NULL;
}

/* What the products of attention or of the MLP read: x normalised, or x as it is where the family
 * has no norm there. */
static dpe_mem read_stream(struct dpe_session *s, enum dpe_weight norm, int64_t layer, dpe_mem x,
                           int64_t rows)
{
    if (!has(s, norm)) {
        return s->ops->narrow(s->backend, x, rows * s->config->hidden, s->normed);
    }
    s->ops->rmsnorm(s->backend, norm, layer, s->config->hidden, x, rows, s->normed);
    return s->normed;
}

/* x += Which · from, or the norm `after` of it where the family has one. */
static dpe_status add_to_stream(struct dpe_session *s, int64_t layer, enum dpe_weight which,
                                enum dpe_weight after, dpe_mem from, int64_t rows, dpe_mem x,
                                struct dpe_error *err)
{
    const struct dpe_ops *ops = s->ops;
    if (!has(s, after)) {
        ops->linear(s->backend, layer, which, from, rows, x, adds(s));
        return gather(s, x, rows, err);
    }
    int64_t hidden = s->config->hidden;
    ops->linear(s->backend, layer, which, from, rows, s->part, false);
    dpe_status status = gather(s, s->part, rows, err);
    if (status == DPE_OK) {
        ops->rmsnorm(s->backend, after, layer, hidden, s->part, rows, s->normed);
        ops->add(s->backend, x, s->normed, rows * hidden);
    }
    return status;
}

/* The norm of queries or keys, of each head or of all together, where they are. */
static void normalise_heads(struct dpe_session *s, enum dpe_weight norm, int64_t layer,
                            dpe_mem heads, int64_t rows, int64_t n_heads)
{
    int64_t d = s->config->head_dim;
    switch (s->config->qk_norm) {
    case DPE_QK_NORM_NONE:
        return;
    case DPE_QK_NORM_HEAD:
        s->ops->rmsnorm(s->backend, norm, layer, d, heads, rows * n_heads, heads);
        return;
    case DPE_QK_NORM_WHOLE:
        s->ops->rmsnorm(s->backend, norm, layer, n_heads * d, heads, rows, heads);
    }
}

/* q and the gates of branches from row `first` on, k and v of all rows. */
static void project(struct dpe_session *s, int64_t layer, int64_t rows, int64_t first)
{
    const struct dpe_ops *ops = s->ops;
    const struct dpe_config *c = s->config;
    struct dpe_backend *b = s->backend;
    dpe_mem in = read_stream(s, DPE_WEIGHT_ATTENTION_NORM, layer, s->x, rows);
    if (first == 0) {
        ops->project(b, layer, in, rows, s->q, s->k, s->v);
    } else {
        ops->linear(b, layer, DPE_WEIGHT_K, in, rows, s->k, false);
        ops->linear(b, layer, DPE_WEIGHT_V, in, rows, s->v, false);
    }
    normalise_heads(s, DPE_WEIGHT_K_NORM, layer, s->k, rows, c->n_kv_heads);
    if (first < rows) {
        dpe_mem q = row_of(s, s->q, first, c->n_heads * c->head_dim);
        if (first > 0) {
            ops->linear(b, layer, DPE_WEIGHT_Q, row_of(s, in, first, c->hidden), rows - first, q,
                        false);
        }
        normalise_heads(s, DPE_WEIGHT_Q_NORM, layer, q, rows - first, c->n_heads);
    }
    if (first < rows && c->branch_block > 0) {
        ops->linear(b, layer, DPE_WEIGHT_BRANCH_GATES, row_of(s, in, first, c->hidden), rows - first,
                    row_of(s, s->branch_gates, first, 3 * c->n_heads), false);
    }
}

/* x += O · attention(Q x', K x', V x'),  x' = rmsnorm(x), for the rows from `first` on; keys and
 * values are stored for all. */
static dpe_status add_attention(struct dpe_session *s, const struct dpe_batch *batch, int64_t layer,
                                int64_t first, struct dpe_error *err)
{
    int64_t rows = batch->rows;
    const struct dpe_config *c = s->config;
    struct dpe_store store = dpe_session_store(s, layer);
    bool all = s->tap != NULL || s->sums.q != NULL || store.keeps_queries;
    int64_t first_q = all ? 0 : first;
    project(s, layer, rows, first_q);
    DPE_TRY(s->sums.q != NULL ? add_norms(s, layer, batch, err) : DPE_OK);
    DPE_TRY(s->tap != NULL ? give_tap(s, layer, batch, err) : DPE_OK);
    store.q = s->q;
    store.k = s->k;
    store.v = s->v;
    s->ops->store_kv(s->backend, batch, &store);
    represent(s, layer, batch);
    if (first == rows) {
        return DPE_OK;
    }
    attend(s, layer, batch, first);
    return add_to_stream(s, layer, DPE_WEIGHT_O, DPE_WEIGHT_ATTENTION_AFTER,
                         row_of(s, s->attended, first, c->n_heads * c->head_dim), rows - first,
                         row_of_x(s, first), err);
}

/* x += Down · (act(Gate x') ⊙ Up x'),  x' = rmsnorm(x), or the sum over experts of such. */
static dpe_status add_mlp(struct dpe_session *s, const struct dpe_batch *batch, int64_t layer,
                          int64_t first, struct dpe_error *err)
{
    int64_t rows = batch->rows - first;
    const struct dpe_ops *ops = s->ops;
    struct dpe_backend *b = s->backend;
    dpe_mem x = row_of_x(s, first);
    dpe_mem in = read_stream(s, DPE_WEIGHT_MLP_NORM, layer, x, rows);
    if (s->config->n_experts > 0) {
        const struct dpe_experts args = {.x = in,
                                         .out = x,
                                         .gate = s->gate,
                                         .up = s->up,
                                         .gathered = s->gathered,
                                         .made = s->made,
                                         .scores = s->scores,
                                         .rows = rows};
        ops->experts(b, layer, &args);
        return DPE_OK;
    }
    ops->gate(b, layer, in, rows, s->gate, s->up);
    return add_to_stream(s, layer, DPE_WEIGHT_DOWN, DPE_WEIGHT_MLP_AFTER, s->gate, rows, x, err);
}

dpe_status dpe_forward(struct dpe_session *s, const struct dpe_batch *batch, struct dpe_error *err)
{
    int64_t rows = batch->rows;
    int64_t wanted = batch->wanted;
    const struct dpe_ops *ops = s->ops;
    int64_t n_layers = s->config->n_layers;
    ops->begin_batch(s->backend, batch);
    ops->embed(s->backend, batch, s->x);
    if (s->config->embedding_multiplier > 0.0) {
        ops->scale(s->backend, s->x, rows * s->config->hidden, s->config->embedding_multiplier);
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        /* After the last layer's keys and values only the wanted rows matter. */
        int64_t first = layer == n_layers - 1 ? rows - wanted : 0;
        dpe_status status = s->poll != NULL ? s->poll(s->poll_user, err) : DPE_OK;
        if (status == DPE_OK) {
            status = ops->begin_layer(s->backend, layer, rows, err);
        }
        if (status != DPE_OK) {
            return dpe_session_agree(s, status, err);
        }
        status = add_attention(s, batch, layer, first, err);
        if (status == DPE_OK && first < rows) {
            status = add_mlp(s, batch, layer, first, err);
        }
        if (status != DPE_OK) {
            return status;
        }
        status = dpe_kv_status(s->kv, err);
        if (status == DPE_OK && first < rows) {
            status = check_finite(s, layer, batch, first, err);
        }
        if (status != DPE_OK) {
            return dpe_session_agree(s, status, err);
        }
    }
    if (wanted > 0) {
        ops->rmsnorm(s->backend, DPE_WEIGHT_FINAL_NORM, 0, s->config->hidden,
                     row_of_x(s, rows - wanted), wanted, s->normed);
    }
    if (batch->best != NULL) {
        ops->best(s->backend, s->normed, wanted, &batch->room, batch->best);
    }
    return dpe_session_agree(s, finish(s, batch, err), err);
}
