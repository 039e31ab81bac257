/* The forward pass. Activations are handles that only operations dereference; the cache holds keys
 * as they come out of the projection, attention rotates them by the plan. */
#include "engine/ops/ops_host.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <string.h>

/* Row `row` of x, and of any other buffer of `width` elements a row. */
static dpe_mem row_of_x(const struct dpe_lane *l, int64_t row)
{
    return (float *)l->x + row * l->config->hidden;
}

static dpe_mem row_of(const struct dpe_lane *l, dpe_mem memory, int64_t row, int64_t width)
{
    return memory == NULL ? NULL : (char *)memory + row * width * (int64_t)l->session->element;
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

/* Rows of a batch that are of one session: `n` from `first` on. */
struct share {
    struct dpe_session *session;
    int64_t first, n;
};

static int64_t shares_of(const struct dpe_batch *batch)
{
    return batch->n_parts > 0 ? batch->n_parts : 1;
}

/* Share i. Of a batch without parts all rows are one. */
static struct share share_at(const struct dpe_lane *l, const struct dpe_batch *batch, int64_t i)
{
    struct share share = {l->session, 0, batch->rows};
    for (int64_t p = 0; p <= i && p < batch->n_parts; p++) {
        share.first = p > 0 ? share.first + share.n : 0;
        share.session = batch->parts[p].session;
        share.n = batch->parts[p].n;
    }
    return share;
}

struct dpe_batch dpe_batch_rows(const struct dpe_batch *batch, int64_t first, int64_t n)
{
    struct dpe_batch some = *batch;
    if (batch->positions != NULL) {
        some.tokens += first;
        some.positions += first;
        some.offsets += first;
        some.lents += first;
        some.branches += first;
        some.rows = n;
        some.n_parts = 0;
    }
    return some;
}

/* Which plan and tables a layer has. */
static int kind_of(const struct dpe_config *c, int64_t layer)
{
    return c->layer_kinds != NULL ? c->layer_kinds[layer] : 0;
}

/* A session's own lane has the workspace of the one whose buffers it uses. */
static dpe_mem workspace_of(const struct dpe_lane *l)
{
    return l == &l->session->own ? l->session->base->own.workspace : l->workspace;
}

/* `row` of the batch is not finite. */
static dpe_status report_nonfinite(const struct dpe_lane *l, int64_t layer,
                                   const struct dpe_batch *batch, int64_t row,
                                   struct dpe_error *err)
{
    const int64_t position = position_of(batch, row);
    struct share share = share_at(l, batch, 0);
    for (int64_t i = 1; row >= share.first + share.n && i < batch->n_parts; i++) {
        share = share_at(l, batch, i);
    }
    dpe_fail(err, DPE_NONFINITE,
             "NaN or infinity after layer %" PRId64 " at position %" PRId64
             "; the weights or the position plan (%s) produce it",
             layer, position, share.session->plans[0].name);
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
static dpe_status read_heads(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                             int64_t row, int64_t rows, const float **q, const float **k,
                             struct dpe_error *err)
{
    struct dpe_session *s = l->session;
    const struct dpe_peers *peers = s->options.peers;
    int64_t q_width = l->config->n_heads * dpe_config_head_dim(l->config, layer);
    int64_t k_width = dpe_config_kv_heads(l->config, layer) * dpe_config_head_dim(l->config, layer);
    int64_t others = rows * (peers->size - 1);
    int64_t bad_layer = -1;
    int64_t bad_row = -1;
    *q = l->ops->read(l->backend, row_of(l, l->q, row, q_width), rows * q_width,
                      s->tap_q + others * q_width);
    *k = l->ops->read(l->backend, row_of(l, l->k, row, k_width), rows * k_width,
                      s->tap_k + others * k_width);
    dpe_status status = l->ops->finish(l->backend, &bad_layer, &bad_row, err);
    if (status == DPE_OK && bad_layer >= 0) {
        status = report_nonfinite(l, bad_layer, batch, bad_row, err);
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
static dpe_status add_norms(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                            struct dpe_error *err)
{
    const struct dpe_session *s = l->session;
    const struct dpe_norm_sums *sums = &s->sums;
    const struct dpe_config *c = dpe_model_config(s->model);
    int64_t pairs = c->head_dim / 2;
    double *sum_q = sums->q + layer * c->n_heads * pairs;
    double *sum_k = sums->products ? NULL : sums->k + layer * c->n_kv_heads * pairs;
    sums->rows[layer] += batch->rows;
    if (dpe_config_kept(c, layer) != c->n_kv_heads * c->head_dim ||
        dpe_config_head_dim(c, layer) != c->head_dim) {
        return DPE_OK; /* no plan moves it, or its keys are another layer's: no pair has a norm */
    }
    if (s->options.peers->size == 1) {
        l->ops->sum_norms(l->backend, l->q, l->k, batch->rows, sums->products, sum_q, sum_k);
        return DPE_OK;
    }
    const float *q = NULL;
    const float *k = NULL;
    DPE_TRY(read_heads(l, layer, batch, 0, batch->rows, &q, &k, err));
    dpe_norms_add(c, l->n_threads, q, k, batch->rows, sums->products, sum_q, sum_k);
    return DPE_OK;
}

static dpe_status give_tap(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                           struct dpe_error *err)
{
    struct dpe_session *s = l->session;
    int64_t run = rows_of_run(batch);
    for (int64_t r = 0; r < batch->rows; r += run) {
        const float *q = NULL;
        const float *k = NULL;
        DPE_TRY(read_heads(l, layer, batch, r, run, &q, &k, err));
        k = dpe_config_kept(l->config, layer) > 0 ? k : NULL;
        const dpe_status status = s->tap(s->tap_user, layer, position_of(batch, r), run, q, k, err);
        if (status != DPE_OK) {
            return dpe_session_agree(s, status, err);
        }
    }
    return DPE_OK;
}

struct dpe_store dpe_session_store(const struct dpe_session *s, int64_t layer)
{
    bool keeps =
        dpe_selection_keeps_queries(&s->plans[0].selection) && dpe_config_moves(s->config, layer);
    return (struct dpe_store){.plan = &s->plans[kind_of(s->config, layer)],
                              .cache_k = s->kept[layer].k,
                              .cache_v = s->kept[layer].v,
                              .cache_q = s->kept[layer].q,
                              .capacity = s->options.capacity,
                              .kv = s->kv,
                              .keeps_queries = keeps,
                              .layer = layer,
                              .kv_layer = dpe_config_attending(s->config, layer)};
}

/* Attention of a layer for a share of a batch, from row `first` of the batch on, whose queries are
 * in the lane. */
static struct dpe_attention attention_of(const struct dpe_lane *l, int64_t layer,
                                         const struct dpe_batch *batch, const struct share *share,
                                         int64_t first)
{
    const struct dpe_session *s = share->session;
    const bool steps = batch->positions != NULL;
    const struct dpe_config *c = l->config;
    const int64_t head_dim = dpe_config_head_dim(c, layer);
    const int64_t keys_of = dpe_config_keys_of(c, layer);
    int64_t width = c->n_heads * head_dim;
    const struct dpe_selection *selection = &s->plans[0].selection;
    return (struct dpe_attention){
        .plan = &s->plans[kind_of(c, layer)],
        .rotation = &s->rotations[kind_of(c, layer)],
        .layer = layer,
        .start = batch->start + first,
        .rows = share->first + share->n - first,
        .prefix = s->prefix,
        .offset = batch->offset,
        .positions = steps ? batch->positions + first : NULL,
        .offsets = steps ? batch->offsets + first : NULL,
        .lent = batch->lent,
        .lents = steps ? batch->lents + first : NULL,
        .n_heads = c->n_heads,
        .n_kv_heads = dpe_config_kv_heads(c, layer),
        .head_dim = head_dim,
        .capacity = s->options.capacity,
        .q = row_of(l, l->q, first, width),
        .k = s->kept[keys_of].k,
        .v = s->kept[keys_of].v,
        .kv = s->kv,
        .kv_layer = dpe_config_attending(c, layer),
        .late = c->late_norms ? s->weights->layers[layer].weight[DPE_WEIGHT_LATE].data : NULL,
        .out = row_of(l, l->attended, first, width),
        .queries = s->kept[layer].q,
        .marks = s->kept[layer].marks,
        .slots = dpe_selects(selection)
                     ? dpe_selection_slots(selection, s->options.capacity, s->options.branches)
                     : 0,
        .room = s->room,
        .lse = l->lse != NULL && steps ? (float *)l->lse + first * c->n_heads : l->lse,
        .workspace = workspace_of(l),
        .n_threads = l->n_threads,
    };
}

/* What is added to the chosen keys of a batch of so many rows, from row `first` on; or NULLs. */
static struct dpe_branches branches_of(const struct dpe_lane *l, int64_t rows, int64_t first)
{
    const int64_t heads = l->config->n_heads;
    const int64_t width = heads * l->config->head_dim;
    const bool windowed = l->config->n_kinds > 1;
    return (struct dpe_branches){
        .compressed = row_of(l, l->added, first, width),
        .windowed = windowed ? row_of(l, l->added, rows + first, width) : NULL,
        .gates = row_of(l, row_of(l, l->added, 2 * rows, width), first, 3 * heads),
        .rows = rows - first,
    };
}

enum { TOGETHER = 16 /* shares */ };

/* Attention of n shares of a batch, from its row `first` on. */
static void attend(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                   const struct share *shares, int64_t n, int64_t first)
{
    struct dpe_attention args[TOGETHER];
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        args[i] = attention_of(l, layer, batch, &shares[i], first + rows);
        args[i].compressed = branches_of(l, batch->rows, first + rows).compressed;
        rows += args[i].rows;
    }
    struct dpe_branches branches = branches_of(l, batch->rows, first);
    branches.rows = rows;
    branches.out = args->out;
    l->ops->attention(l->backend, args, n);
    if (l->config->sinks) {
        l->ops->sinks(l->backend, layer, args->lse, rows, args->out);
    }
    if (branches.windowed != NULL) {
        for (int64_t i = 0, at = first; i < n; at += args[i++].rows) {
            args[i].plan = &shares[i].session->plans[1];
            args[i].rotation = &shares[i].session->rotations[1];
            args[i].compressed = NULL;
            args[i].out = branches_of(l, batch->rows, at).windowed;
        }
        l->ops->attention(l->backend, args, n);
    }
    if (l->config->branches) {
        l->ops->merge(l->backend, &branches);
    }
    if (l->config->output_gate) {
        const int64_t width = l->config->n_heads * l->config->head_dim;
        l->ops->output_gate(l->backend, branches.out, row_of(l, l->gates, first, width),
                            rows * width, 1);
    }
}

/* The blocks that a batch completes, for the selections after it. */
static void represent(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                      const struct share *share)
{
    if (share->session->kept[layer].marks != NULL) {
        const struct dpe_attention args = attention_of(l, layer, batch, share, share->first);
        l->ops->represent(l->backend, &args);
    }
}

void dpe_forward_represent(struct dpe_session *s, int64_t layer, int64_t branch, int64_t n)
{
    const struct dpe_batch batch = {
        .start = s->prefix, .rows = n - s->prefix, .offset = branch * s->room};
    const struct share share = {s, 0, batch.rows};
    represent(&s->own, layer, &batch, &share);
}

static dpe_status check_finite(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                               int64_t first, struct dpe_error *err)
{
    int64_t bad = l->ops->first_nonfinite(l->backend, layer, row_of_x(l, first),
                                          batch->rows - first, l->config->hidden);
    return bad < 0 ? DPE_OK : report_nonfinite(l, layer, batch, first + bad, err);
}

/* What a device reports only at the end. Rows count from the first that the layer looked at. */
static dpe_status finish(struct dpe_lane *l, const struct dpe_batch *batch, struct dpe_error *err)
{
    int64_t layer = -1;
    int64_t row = -1;
    DPE_TRY(l->ops->finish(l->backend, &layer, &row, err));
    if (layer < 0) {
        return DPE_OK;
    }
    int64_t first = layer == l->config->n_layers - 1 ? batch->rows - batch->wanted : 0;
    return report_nonfinite(l, layer, batch, first + row, err);
}

/* A layer's share of x is here; all of it afterwards. */
static dpe_status gather(struct dpe_lane *l, dpe_mem x, int64_t rows, struct dpe_error *err)
{
    return l->ops->all_reduce(l->backend, x, rows * l->config->hidden, err);
}

/* Of the peers the first alone adds its share to x: the sum of all has x once. */
static bool adds(const struct dpe_lane *l)
{
    return l->session->options.peers->index == 0;
}

static bool has(const struct dpe_lane *l, int64_t layer, enum dpe_weight which)
{
    return dpe_layer_name(l->config, layer, which) != NULL;
}

/* Rows of the stream as products read them. */
static dpe_mem narrow(const struct dpe_lane *l, dpe_mem x, int64_t rows)
{
    return l->ops->narrow == NULL
               ? x
               : l->ops->narrow(l->backend, x, rows * l->config->hidden, l->normed);
}

/* What the products of attention or of the MLP read: x normalised, or x as it is where the family
 * has no norm there. */
static dpe_mem read_stream(struct dpe_lane *l, enum dpe_weight norm, int64_t layer, dpe_mem x,
                           int64_t rows)
{
    if (l->config->centred) {
        l->ops->centre(l->backend, x, rows, l->config->hidden);
    }
    if (!has(l, layer, norm)) {
        return narrow(l, x, rows);
    }
    l->ops->rmsnorm(l->backend, norm, layer, l->config->hidden, x, rows, l->normed);
    return l->normed;
}

/* x += Which · from, or the norm `after` of it where the family has one. */
static dpe_status add_to_stream(struct dpe_lane *l, int64_t layer, enum dpe_weight which,
                                enum dpe_weight after, dpe_mem from, int64_t rows, dpe_mem x,
                                struct dpe_error *err)
{
    const struct dpe_ops *ops = l->ops;
    if (!has(l, layer, after)) {
        ops->linear(l->backend, layer, which, from, rows, x, adds(l));
        return gather(l, x, rows, err);
    }
    int64_t hidden = l->config->hidden;
    ops->linear(l->backend, layer, which, from, rows, l->part, false);
    DPE_TRY(gather(l, l->part, rows, err));
    ops->rmsnorm(l->backend, after, layer, hidden, l->part, rows, l->normed);
    ops->add(l->backend, x, l->normed, rows * hidden);
    return DPE_OK;
}

/* The norm of queries, keys or values, of each head or of all together, where the layer has one. */
static void normalise_heads(struct dpe_lane *l, enum dpe_weight norm, int64_t layer, dpe_mem heads,
                            int64_t rows, int64_t n_heads)
{
    int64_t d = dpe_config_head_dim(l->config, layer);
    if (l->session->weights->layers[layer].weight[norm].cols == 0) {
        return;
    }
    switch (l->config->qk_norm) {
    case DPE_QK_NORM_NONE:
        return;
    case DPE_QK_NORM_HEAD:
        l->ops->rmsnorm(l->backend, norm, layer, d, heads, rows * n_heads, heads);
        return;
    case DPE_QK_NORM_WHOLE:
        l->ops->rmsnorm(l->backend, norm, layer, n_heads * d, heads, rows, heads);
    }
}

/* q and the gates of branches from row `first` on, k and v of all rows. */
static void project(struct dpe_lane *l, int64_t layer, int64_t rows, int64_t first)
{
    const struct dpe_ops *ops = l->ops;
    const struct dpe_config *c = l->config;
    struct dpe_backend *b = l->backend;
    dpe_mem in = read_stream(l, DPE_WEIGHT_ATTENTION_NORM, layer, l->x, rows);
    const bool own = dpe_config_kept(c, layer) > 0;
    const int64_t kv_heads = dpe_config_kv_heads(c, layer);
    if (first == 0 && own) {
        ops->project(b, layer, in, rows, l->q, l->k, l->v);
    } else if (own) {
        ops->linear(b, layer, DPE_WEIGHT_K, in, rows, l->k, false);
        ops->linear(b, layer, DPE_WEIGHT_V, in, rows, l->v, false);
    }
    normalise_heads(l, DPE_WEIGHT_K_NORM, layer, l->k, rows, kv_heads);
    normalise_heads(l, DPE_WEIGHT_V_NORM, layer, l->v, rows, kv_heads);
    if (first < rows) {
        dpe_mem q = row_of(l, l->q, first, c->n_heads * dpe_config_head_dim(c, layer));
        if (first > 0 || !own) {
            ops->linear(b, layer, DPE_WEIGHT_Q, row_of(l, in, first, c->hidden), rows - first, q,
                        false);
        }
        normalise_heads(l, DPE_WEIGHT_Q_NORM, layer, q, rows - first, c->n_heads);
    }
    if (first < rows && c->branches) {
        ops->linear(b, layer, DPE_WEIGHT_BRANCH_GATES, row_of(l, in, first, c->hidden),
                    rows - first, branches_of(l, rows, first).gates, false);
    }
    if (first < rows && c->output_gate) {
        ops->linear(b, layer, DPE_WEIGHT_OUTPUT_GATE, row_of(l, in, first, c->hidden), rows - first,
                    row_of(l, l->gates, first, c->n_heads * c->head_dim), false);
    }
}

/* H of the plan's temperature, on the queries of a share from row `first` on. The layers that the
 * plan does not move have plans without one. */
static void scale_heads(struct dpe_lane *l, int64_t layer, const struct share *share, int64_t first)
{
    const struct dpe_config *c = l->config;
    const struct dpe_temperature *t = &share->session->plans[0].temperature;
    const int64_t width = c->n_heads * c->head_dim;
    const int64_t rows = share->first + share->n - first;
    if (rows <= 0 || kind_of(c, layer) != 0) {
        return;
    }
    for (int i = 0; i < t->n_heads; i++) {
        if (t->heads[i].layer == layer) {
            l->ops->scale_part(l->backend, row_of(l, l->q, first, width), rows, width,
                               t->heads[i].head * c->head_dim, c->head_dim, t->heads[i].factor);
        }
    }
}

/* The keys and values of a share into its session's cache; `first_q`: its first query. */
static void store_share(struct dpe_lane *l, int64_t layer, const struct dpe_batch *batch,
                        const struct share *share, int64_t first_q)
{
    const int64_t head_dim = dpe_config_head_dim(l->config, layer);
    const int64_t kv_width = dpe_config_kv_heads(l->config, layer) * head_dim;
    const struct dpe_batch some = dpe_batch_rows(batch, share->first, share->n);
    struct dpe_store store = dpe_session_store(share->session, layer);
    scale_heads(l, layer, share, dpe_most(first_q, share->first));
    store.q = row_of(l, l->q, share->first, l->config->n_heads * head_dim);
    store.k = row_of(l, l->k, share->first, kv_width);
    store.v = row_of(l, l->v, share->first, kv_width);
    if (dpe_config_kept(l->config, layer) > 0) {
        l->ops->store_kv(l->backend, &some, &store);
    }
    represent(l, layer, batch, share);
}

/* x += O · attention(Q x', K x', V x'),  x' = rmsnorm(x), for the rows from `first` on; keys and
 * values are stored for all. */
static dpe_status add_attention(struct dpe_lane *l, const struct dpe_batch *batch, int64_t layer,
                                int64_t first, struct dpe_error *err)
{
    const struct dpe_session *s = l->session;
    int64_t rows = batch->rows;
    const struct dpe_config *c = l->config;
    bool taps = s->tap != NULL && batch->n_parts == 0;
    bool all = s->sums.q != NULL || taps;
    for (int64_t i = 0; i < shares_of(batch); i++) {
        all = all || dpe_session_store(share_at(l, batch, i).session, layer).keeps_queries;
    }
    int64_t first_q = all ? 0 : first;
    project(l, layer, rows, first_q);
    DPE_TRY(s->sums.q != NULL ? add_norms(l, layer, batch, err) : DPE_OK);
    DPE_TRY(taps ? give_tap(l, layer, batch, err) : DPE_OK);
    const int64_t n = shares_of(batch);
    for (int64_t i = 0; i < n; i += TOGETHER) {
        struct share shares[TOGETHER];
        const int64_t some = dpe_least(TOGETHER, n - i);
        for (int64_t k = 0; k < some; k++) {
            shares[k] = share_at(l, batch, i + k);
            store_share(l, layer, batch, &shares[k], first_q);
        }
        if (first < rows) {
            attend(l, layer, batch, shares, some, dpe_most(first, shares->first));
        }
    }
    if (first == rows) {
        return DPE_OK;
    }
    return add_to_stream(l, layer, DPE_WEIGHT_O, DPE_WEIGHT_ATTENTION_AFTER,
                         row_of(l, l->attended, first, c->n_heads * dpe_config_head_dim(c, layer)),
                         rows - first, row_of_x(l, first), err);
}

/* x += O · what the layer's state and the tokens before give, for the rows from `first` on; the
 * state goes on by all. */
static dpe_status add_recurrence(struct dpe_lane *l, const struct dpe_batch *batch, int64_t layer,
                                 int64_t first, struct dpe_error *err)
{
    const struct dpe_ops *ops = l->ops;
    struct dpe_backend *b = l->backend;
    const struct dpe_recurrent *r = &l->config->recurrent;
    const int64_t rows = batch->rows;
    const int64_t values = dpe_recurrent_values(r);
    dpe_mem in = read_stream(l, DPE_WEIGHT_ATTENTION_NORM, layer, l->x, rows);
    const int64_t keys = dpe_recurrent_keys(r);
    dpe_mem beta = row_of(l, l->gates, rows, values);
    dpe_mem decay = row_of(l, l->gates, rows, values + r->value_heads);
    if (l->session->sums.q != NULL) {
        l->session->sums.rows[layer] += rows; /* of which no pair has a norm */
    }
    ops->project(b, layer, in, rows, l->q, l->k, l->v);
    ops->linear(b, layer, DPE_WEIGHT_OUTPUT_GATE, in, rows, l->gates, false);
    ops->linear(b, layer, DPE_WEIGHT_BETA, in, rows, beta, false);
    ops->linear(b, layer, DPE_WEIGHT_DECAY, in, rows, decay, false);
    for (int64_t i = 0; i < shares_of(batch); i++) {
        const struct share share = share_at(l, batch, i);
        const struct dpe_batch some = dpe_batch_rows(batch, share.first, share.n);
        const struct dpe_recurrence args = {
            .layer = layer,
            .rows = some.rows,
            .q = row_of(l, l->q, share.first, keys),
            .k = row_of(l, l->k, share.first, keys),
            .v = row_of(l, l->v, share.first, values),
            .gate = row_of(l, l->gates, share.first, values),
            .beta = row_of(l, beta, share.first, r->value_heads),
            .decay = row_of(l, decay, share.first, r->value_heads),
            .out = row_of(l, l->attended, share.first, values),
            .states = share.session->kept[layer].states,
            .start = some.start,
            .state = some.branch,
            .which = some.branches,
            .workspace = workspace_of(l),
        };
        ops->recur(b, &args);
    }
    return first == rows ? DPE_OK
                         : add_to_stream(l, layer, DPE_WEIGHT_O, DPE_WEIGHT_ATTENTION_AFTER,
                                         row_of(l, l->attended, first, values), rows - first,
                                         row_of_x(l, first), err);
}

static struct dpe_experts experts_of(const struct dpe_lane *l, int64_t rows)
{
    return (struct dpe_experts){.gate = l->gate,
                                .up = l->up,
                                .made = l->made,
                                .scores = l->scores,
                                .routes = l->routes,
                                .rows = rows,
                                .room = dpe_experts_room(l->ops, l->config, rows)};
}

/* sum += the norm of what a part of the MLP made. */
static void add_part(struct dpe_lane *l, int64_t layer, enum dpe_weight norm, int64_t rows,
                     dpe_mem made, dpe_mem sum)
{
    const int64_t hidden = l->config->hidden;
    l->ops->rmsnorm(l->backend, norm, layer, hidden, made, rows, l->normed);
    l->ops->add(l->backend, sum, l->normed, rows * hidden);
}

/* x += norm(norm(MLP x') + norm(the sum over experts of x'')), x', x'' and what the router reads
 * norms of x. */
static void add_beside(struct dpe_lane *l, int64_t layer, dpe_mem x, int64_t rows)
{
    const struct dpe_ops *ops = l->ops;
    struct dpe_backend *b = l->backend;
    const int64_t hidden = l->config->hidden;
    struct dpe_experts args = experts_of(l, rows);
    args.x = l->beside; /* which has room for it until there is a sum */
    args.routed = l->normed;
    args.out = l->part;
    ops->rmsnorm(b, DPE_WEIGHT_ROUTER_NORM, layer, hidden, x, rows, l->normed);
    ops->rmsnorm(b, DPE_WEIGHT_EXPERTS_NORM, layer, hidden, x, rows, l->beside);
    ops->scale(b, l->part, rows * hidden, 0.0);
    ops->experts(b, layer, &args);
    ops->scale(b, l->beside, rows * hidden, 0.0);
    add_part(l, layer, DPE_WEIGHT_EXPERTS_AFTER, rows, l->part, l->beside);
    ops->rmsnorm(b, DPE_WEIGHT_MLP_NORM, layer, hidden, x, rows, l->normed);
    ops->gate(b, layer, l->normed, rows, l->gate, l->up);
    ops->linear(b, layer, DPE_WEIGHT_DOWN, l->gate, rows, l->part, false);
    add_part(l, layer, DPE_WEIGHT_DENSE_AFTER, rows, l->part, l->beside);
    add_part(l, layer, DPE_WEIGHT_MLP_AFTER, rows, l->beside, x);
}

/* x += Down · (act(Gate x') ⊙ Up x'),  x' = rmsnorm(x), or the sum over experts of such, or both.
 */
static dpe_status add_mlp(struct dpe_lane *l, const struct dpe_batch *batch, int64_t layer,
                          int64_t first, struct dpe_error *err)
{
    int64_t rows = batch->rows - first;
    const struct dpe_ops *ops = l->ops;
    struct dpe_backend *b = l->backend;
    dpe_mem x = row_of_x(l, first);
    if (l->config->experts_beside) { /* of one process */
        add_beside(l, layer, x, rows);
        return DPE_OK;
    }
    dpe_mem in = l->config->parallel ? row_of(l, l->normed, first, l->config->hidden)
                                     : read_stream(l, DPE_WEIGHT_MLP_NORM, layer, x, rows);
    if (dpe_config_routes(l->config, layer)) {
        struct dpe_experts args = experts_of(l, rows);
        args.x = args.routed = in;
        args.out = x;
        ops->experts(b, layer, &args);
        if (l->config->shared_width == 0) {
            return DPE_OK;
        }
    }
    ops->gate(b, layer, in, rows, l->gate, l->up);
    if (l->config->shared_gate && dpe_config_routes(l->config, layer)) {
        ops->linear(b, layer, DPE_WEIGHT_SHARED_GATE, in, rows, l->up, false);
        ops->output_gate(b, l->gate, l->up, rows, l->config->shared_width);
    }
    return add_to_stream(l, layer, DPE_WEIGHT_DOWN, DPE_WEIGHT_MLP_AFTER, l->gate, rows, x, err);
}

/* x += Out · (act(Gate x) ⊙ what the layer has of the tokens and their embeddings), normed; then x
 * times the layer's number. */
static dpe_status add_inputs(struct dpe_lane *l, const struct dpe_batch *batch, int64_t layer,
                             int64_t first, struct dpe_error *err)
{
    const struct dpe_config *c = l->config;
    const struct dpe_ops *ops = l->ops;
    struct dpe_backend *b = l->backend;
    const int64_t rows = batch->rows - first;
    const int64_t width = c->input_width;
    dpe_mem x = row_of_x(l, first);
    if (width > 0) {
        dpe_mem from = (float *)l->embedded + first * c->hidden;
        dpe_mem in = narrow(l, from, rows);
        ops->linear(b, layer, DPE_WEIGHT_INPUT, in, rows, l->up, false);
        ops->rmsnorm(b, DPE_WEIGHT_INPUT_NORM, layer, width, l->up, rows, l->up);
        ops->add_inputs(b, batch, layer, first, l->up);
        in = narrow(l, x, rows);
        ops->linear(b, layer, DPE_WEIGHT_INPUT_GATE, in, rows, l->gate, false);
        ops->activate(b, l->gate, l->up, rows, width);
        DPE_TRY(add_to_stream(l, layer, DPE_WEIGHT_INPUT_OUT, DPE_WEIGHT_INPUT_AFTER, l->gate, rows,
                              x, err));
    }
    if (c->layer_scales) {
        float factor = 1.0F;
        dpe_tensor_read(&l->session->weights->layers[layer].weight[DPE_WEIGHT_LAYER_SCALE], 0, 1,
                        &factor);
        ops->scale(b, x, rows * c->hidden, (double)factor);
    }
    return DPE_OK;
}

static void embed(struct dpe_lane *l, const struct dpe_batch *batch, dpe_mem x)
{
    l->ops->embed(l->backend, batch, x);
    if (l->config->embedding_multiplier > 0.0) {
        l->ops->scale(l->backend, x, batch->rows * l->config->hidden,
                      l->config->embedding_multiplier);
    }
}

dpe_status dpe_forward(struct dpe_lane *l, const struct dpe_batch *batch, struct dpe_error *err)
{
    struct dpe_session *s = l->session;
    int64_t rows = batch->rows;
    int64_t wanted = batch->wanted;
    bool polls = s->poll != NULL && l == &s->own; /* not for each lane of a step */
    const struct dpe_ops *ops = l->ops;
    int64_t n_layers = l->config->n_layers;
    if (ops->begin_batch != NULL) {
        ops->begin_batch(l->backend, batch);
    }
    embed(l, batch, l->x);
    if (l->embedded != NULL) {
        embed(l, batch, l->embedded);
    }
    for (int64_t layer = 0; layer < n_layers; layer++) {
        /* After the last layer's keys and values only the wanted rows matter. */
        int64_t first = layer == n_layers - 1 ? rows - wanted : 0;
        dpe_status status = polls ? s->poll(s->poll_user, err) : DPE_OK;
        if (status == DPE_OK && ops->status != NULL) {
            status = ops->status(l->backend, err);
        }
        if (status != DPE_OK) {
            return dpe_session_agree(s, status, err);
        }
        DPE_TRY(dpe_config_attends(l->config, layer) ? add_attention(l, batch, layer, first, err)
                                                     : add_recurrence(l, batch, layer, first, err));
        DPE_TRY(first < rows ? add_mlp(l, batch, layer, first, err) : DPE_OK);
        DPE_TRY(first < rows ? add_inputs(l, batch, layer, first, err) : DPE_OK);
        for (int64_t i = 0; status == DPE_OK && i < shares_of(batch); i++) {
            status = dpe_kv_status(share_at(l, batch, i).session->kv, err);
        }
        if (status == DPE_OK && first < rows) {
            status = check_finite(l, layer, batch, first, err);
        }
        if (status != DPE_OK) {
            return dpe_session_agree(s, status, err);
        }
    }
    if (wanted > 0 && l->config->centred) {
        ops->centre(l->backend, row_of_x(l, rows - wanted), wanted, l->config->hidden);
    }
    if (wanted > 0) {
        ops->rmsnorm(l->backend, DPE_WEIGHT_FINAL_NORM, 0, l->config->hidden,
                     row_of_x(l, rows - wanted), wanted, l->normed);
    }
    if (batch->best != NULL) {
        ops->best(l->backend, l->normed, wanted, &batch->room, batch->best);
    }
    return dpe_session_agree(s, finish(l, batch, err), err);
}

/* ----------------------------------------------------------- parts of it, timed one at a time */

/* One layer's attention of a whole prefill. */
static dpe_status measure_layer(struct dpe_session *s, int64_t layer, int64_t length,
                                double *seconds, struct dpe_error *err)
{
    int64_t chunk = s->options.prefill_chunk;
    DPE_TRY(dpe_lane_wait(&s->own, err));
    double start = dpe_clock();
    for (int64_t at = 0; at < length; at += chunk) {
        const struct dpe_batch batch = {.start = at,
                                        .rows = length - at < chunk ? length - at : chunk};
        const struct share share = {s, 0, batch.rows};
        const struct dpe_attention args = attention_of(&s->own, layer, &batch, &share, 0);
        s->ops->attention(s->own.backend, &args, 1);
        DPE_TRY(s->poll != NULL ? s->poll(s->poll_user, err) : DPE_OK);
    }
    DPE_TRY(dpe_lane_wait(&s->own, err));
    *seconds = dpe_clock() - start;
    return DPE_OK;
}

dpe_status dpe_session_measure_attention(struct dpe_session *s, int64_t length, double *seconds,
                                         struct dpe_error *err)
{
    const struct dpe_config *c = s->config;
    int kinds = c->layer_kinds != NULL ? c->n_kinds : 1;
    *seconds = 0.0;
    for (int kind = 0; kind < kinds; kind++) {
        int64_t last = -1;
        double layers = 0.0;
        double one = 0.0;
        for (int64_t i = 0; i < c->n_layers; i++) {
            bool same =
                dpe_config_attends(c, i) && (c->layer_kinds == NULL || c->layer_kinds[i] == kind);
            last = same ? i : last;
            layers += same;
        }
        DPE_TRY(last >= 0 ? measure_layer(s, last, length, &one, err) : DPE_OK);
        *seconds += layers * one;
    }
    return DPE_OK;
}

dpe_status dpe_session_measure_tokens(struct dpe_session *s, int64_t branches, int64_t n,
                                      double *seconds, struct dpe_error *err)
{
    DPE_OWNED int64_t *which = NULL;
    DPE_OWNED int32_t *tokens = NULL;
    DPE_OWNED int32_t *best = NULL;
    double start = 0.0;
    DPE_TRY(DPE_NEW(&which, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(DPE_NEW(&tokens, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(DPE_NEW(&best, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(dpe_session_branch(s, branches, n + 1, err));
    for (int64_t i = 0; i <= n; i++) {
        for (int64_t b = 0; b < branches; b++) {
            which[b] = b;
            tokens[b] = (int32_t)((i * 7 + b) % s->config->vocab);
        }
        /* The first is not counted: it finds everything cold. */
        start = i == 1 ? dpe_clock() : start;
        DPE_TRY(dpe_session_step_best(s, branches, which, tokens, best, err));
    }
    *seconds = (dpe_clock() - start) / (double)n;
    return DPE_OK;
}

struct dpe_session_memory dpe_session_memory(const struct dpe_session *session)
{
    return (struct dpe_session_memory){
        .total = session->bytes.total, .element = session->element, .file = session->bytes.file};
}

dpe_status dpe_session_measure_product(struct dpe_session *s, int64_t rows, double *seconds,
                                       struct dpe_error *err)
{
    DPE_TRY(s->ops->status != NULL ? s->ops->status(s->own.backend, err) : DPE_OK);
    memset(s->own.normed, 0, (size_t)rows * (size_t)s->config->hidden * s->element);
    double start = dpe_clock();
    s->ops->linear(s->own.backend, 0, DPE_WEIGHT_GATE, s->own.normed, rows, s->own.gate, false);
    *seconds = dpe_clock() - start;
    return DPE_OK;
}
