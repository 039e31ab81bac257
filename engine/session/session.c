/* Sessions: opening one, its plan, closing it. */
#include "engine/model/config/layer_weights.h"
#include "engine/ops/ops_host.h"
#include "engine/plan/rotation.h"
#include "engine/session/device.h"
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

dpe_status dpe_session_agree(struct dpe_session *s, dpe_status status, struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    return peers->meet(peers->user, NULL, 0, status, err);
}

/* --------------------------------------------------------------------------------------- life */

static dpe_status allocate_host(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session_bytes *b = &s->bytes;
    size_t n_layers = (size_t)s->config->n_layers;
    s->kept = dpe_alloc_zero(n_layers, sizeof *s->kept);
    const struct dpe_session *base = s->options.beside;
    const int64_t branches = s->options.branches;
    const int64_t rows = base != NULL ? 0 : b->rows; /* of a step, whose arrays the base has */
    s->logits = base != NULL ? base->logits : dpe_alloc(b->logits, 1);
    s->tap_q = base != NULL ? base->tap_q : dpe_alloc(b->taps, 1);
    s->tokens = dpe_alloc(b->tokens, 1);
    s->length = dpe_alloc_zero((size_t)(branches + 3 * rows), sizeof *s->length);
    s->lent = dpe_alloc_zero((size_t)(branches + rows), sizeof *s->lent);
    if (b->states > 0) {
        s->states.at = dpe_alloc((size_t)s->options.branches, sizeof *s->states.at);
    }
    for (int64_t i = 0; s->states.at != NULL && i < s->options.branches; i++) {
        s->states.at[i] = -1;
    }
    if (s->kept == NULL || s->logits == NULL || s->tap_q == NULL || s->length == NULL ||
        s->lent == NULL || s->tokens == NULL || (b->states > 0 && s->states.at == NULL)) {
        return dpe_session_out_of_memory(s, err);
    }
    s->tap_k = base != NULL ? base->tap_k
                            : s->tap_q + rows * dpe_config_most_queries(dpe_model_config(s->model));
    s->positions = s->length + branches;
    s->offsets = s->positions + rows;
    s->which = s->offsets + rows;
    s->lents = s->lent + branches;
    return DPE_OK;
}

/* Why the backend gave no memory: its device failed, or there is none. */
static dpe_status not_allocated(struct dpe_session *s, struct dpe_error *err)
{
    DPE_TRY(dpe_lane_wait(&s->own, err));
    return dpe_session_out_of_memory(s, err);
}

/* What a layer keeps, in the order of struct dpe_kept. */
enum { KEYS, VALUES, QUERIES, MARKS, STATES, PARTS };

static dpe_mem *part_of(struct dpe_session *s, int64_t layer, int part)
{
    struct dpe_kept *kept = &s->kept[layer];
    dpe_mem *const parts[PARTS] = {&kept->k, &kept->v, &kept->q, &kept->marks, &kept->states};
    return parts[part];
}

/* Queries and marks are the plan's selection's, of the layers that the plan moves; states the
 * model's, whatever the plan. */
static uint64_t part_bytes(const struct dpe_session *s, int64_t layer, int part)
{
    const struct dpe_session_bytes *b = &s->bytes;
    const bool moves = dpe_config_moves(s->config, layer);
    switch (part) {
    case QUERIES:
        return moves ? b->queries : 0;
    case MARKS:
        return moves ? b->marks : 0;
    case STATES:
        return dpe_config_attends(s->config, layer) ? 0 : b->states;
    default:
        return b->cache == 0 ? 0
                             : dpe_bytes_of(s->options.capacity, dpe_config_kept(s->config, layer),
                                            1, s->element);
    }
}

static void release_parts(struct dpe_session *s, int first, int end)
{
    for (int64_t layer = 0; s->kept != NULL && layer < s->config->n_layers; layer++) {
        for (int part = first; part < end; part++) {
            dpe_mem *memory = part_of(s, layer, part);
            s->ops->release(s->own.backend, *memory);
            *memory = NULL;
        }
    }
}

/* So that the next plan makes it, whatever its size. */
static void drop_cache(struct dpe_session *s)
{
    release_parts(s, KEYS, QUERIES);
    dpe_kv_destroy(s->kv);
    s->kv = NULL;
    s->bytes.cache = s->bytes.kv = s->bytes.file = 0;
}

/* The size of each channel of a layer's keys that its weights lead to expect: after a norm of keys
 * that norm's weight, else what the projection makes of a normalised row whose numbers do not
 * depend on each other. A function of the weights alone, so a key's code depends on nothing but the
 * key. */
static void find_channels(const struct dpe_session *s, int64_t layer, float *row, float *channels)
{
    const struct dpe_config *c = s->config;
    const struct dpe_tensor *weight = &s->weights->layers[layer].weight[DPE_WEIGHT_K];
    const struct dpe_tensor *bias = &s->weights->layers[layer].bias[DPE_WEIGHT_K];
    int64_t width = c->n_kv_heads * c->head_dim;
    float *scale = row + weight->cols;
    bool normed = dpe_layer_name(c, layer, DPE_WEIGHT_ATTENTION_NORM) != NULL;
    if (normed) {
        dpe_tensor_read(dpe_norm_weight(s->weights, DPE_WEIGHT_ATTENTION_NORM, layer), 0,
                        weight->cols, scale);
    }
    if (c->qk_norm != DPE_QK_NORM_NONE) {
        const struct dpe_tensor *norm = dpe_norm_weight(s->weights, DPE_WEIGHT_K_NORM, layer);
        int64_t n = c->qk_norm == DPE_QK_NORM_HEAD ? c->head_dim : width;
        for (int64_t i = 0; i < width; i += n) {
            dpe_tensor_read(norm, 0, n, channels + i);
        }
    }
    for (int64_t i = 0; i < width; i++) {
        float size = fabsf(channels[i]);
        if (c->qk_norm == DPE_QK_NORM_NONE) {
            double squares = 0.0;
            float added = 0.0F;
            dpe_tensor_read(weight, i * dpe_tensor_stride(weight), weight->cols, row);
            for (int64_t j = 0; j < weight->cols; j++) {
                double x = (double)row[j] * (normed ? (double)scale[j] : 1.0);
                squares += x * x;
            }
            if (bias->data != NULL) {
                dpe_tensor_read(bias, i, 1, &added);
            }
            size = (float)sqrt(squares) + fabsf(added);
        }
        channels[i] = size > 1e-20F && isfinite(size) ? size : 1.0F;
    }
}

static dpe_status make_kv(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session_ask ask = dpe_session_asked(s);
    const struct dpe_kv_shape shape = dpe_session_kv_shape(&ask);
    const char *folder = s->bytes.file > 0 ? s->options.kv_dir : NULL;
    DPE_TRY(dpe_kv_create(&shape, folder, &s->kv, err));
    if (shape.type != DPE_KV_INT8) {
        return DPE_OK;
    }
    const size_t hidden = (size_t)s->config->hidden;
    const size_t width = (size_t)(shape.heads * shape.width);
    DPE_OWNED float *row = NULL;
    DPE_OWNED float *channels = NULL;
    DPE_TRY(DPE_NEW(&row, 2 * hidden, err, "out of memory: channels of keys"));
    DPE_TRY(DPE_NEW(&channels, width, err, "out of memory: channels of keys"));
    for (int64_t layer = 0; layer < s->config->n_layers; layer++) {
        if (dpe_config_attends(s->config, layer)) {
            const int64_t at = dpe_config_attending(s->config, layer);
            find_channels(s, layer, row, channels);
            DPE_TRY(dpe_kv_set_channels(s->kv, at, channels, err));
        }
    }
    return DPE_OK;
}

/* What is not there yet of what the layers keep: keys and values as the device has them, or a
 * dpe_kv (of queries too). */
static dpe_status allocate_kept(struct dpe_session *s, struct dpe_error *err)
{
    for (int64_t layer = 0; layer < s->config->n_layers; layer++) {
        for (int part = KEYS; part < PARTS; part++) {
            dpe_mem *memory = part_of(s, layer, part);
            const uint64_t bytes = part_bytes(s, layer, part);
            if (*memory != NULL || bytes == 0) {
                continue;
            }
            *memory = s->ops->allocate(s->own.backend, bytes);
            if (*memory == NULL) {
                return not_allocated(s, err);
            }
        }
    }
    const bool in_kv = s->bytes.kv > 0 || s->bytes.file > 0;
    return in_kv && s->kv == NULL ? make_kv(s, err) : DPE_OK;
}

/* The workspace of all sessions that share their buffers: as large as the plan of any needs. False:
 * out of memory, or the device failed; those that are beside it have what they had then. */
static bool fit_workspace(struct dpe_session *s, uint64_t bytes)
{
    struct dpe_session *base = s->base;
    struct dpe_lane *lane = &base->own;
    const uint64_t before = base->workspace_room;
    const bool fits = base->n_beside > 0 ? before >= bytes : before == bytes;
    if (lane->workspace != NULL && fits) {
        return true;
    }
    s->ops->release(lane->backend, lane->workspace);
    lane->workspace = s->ops->allocate(lane->backend, bytes);
    base->workspace_room = bytes;
    if (lane->workspace == NULL && base->n_beside > 0) {
        lane->workspace = s->ops->allocate(lane->backend, before);
        base->workspace_room = before;
        return false;
    }
    return lane->workspace != NULL;
}

/* Everything that lies where the backend computes. */
static dpe_status allocate(struct dpe_session *s, struct dpe_error *err)
{
    const bool alone = s->options.beside == NULL;
    const bool there =
        alone ? dpe_lane_allocate(&s->own, &s->bytes) : fit_workspace(s, s->bytes.workspace);
    s->workspace_room = alone ? s->bytes.workspace : 0;
    DPE_TRY(there ? allocate_kept(s, err) : not_allocated(s, err));
    for (int kind = 0; kind == 0 || kind < s->config->n_kinds; kind++) {
        if (!s->config->kinds[kind].recurrent) {
            DPE_TRY(
                s->ops->set_plan(s->own.backend, kind, &s->plans[kind], &s->rotations[kind], err));
        }
    }
    return DPE_OK;
}

static void release(struct dpe_session *s)
{
    if (s->options.beside == NULL) {
        dpe_lane_release(&s->own);
    }
    drop_cache(s);
    release_parts(s, QUERIES, PARTS);
}

/* An estimate that fits may still not be there: another process took it, or it is in pieces. */
static dpe_status allocate_device(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session_ask ask = dpe_session_asked(s);
    dpe_status status = allocate(s, err);
    while (status == DPE_NO_MEMORY && s->halves && dpe_session_halve_chunk(s->ops, &s->options)) {
        release(s);
        s->bytes = dpe_session_fit_bytes(&ask, false);
        status = allocate(s, err);
    }
    DPE_TRY(status);
    dpe_session_lanes_make(s);
    return DPE_OK;
}

/* The tables of a plan, which take seconds at a million tokens. */
static dpe_status make_rotation(struct dpe_session *s, int kind, struct dpe_error *err)
{
    enum { ROWS = 1 << 12 };
    const struct dpe_plan *plan = &s->plans[kind];
    struct dpe_rotation *rotation = &s->rotations[kind];
    DPE_TRY(dpe_rotation_room(plan, s->options.positions, rotation, err));
    for (int64_t x = 0; x < rotation->capacity; x += ROWS) {
        dpe_rotation_fill(plan, x, dpe_least(x + ROWS, rotation->capacity), s->options.n_threads,
                          rotation);
        DPE_TRY(s->poll != NULL ? s->poll(s->poll_user, err) : DPE_OK);
    }
    return DPE_OK;
}

/* The plans of the layers that the session's plan does not move. */
static dpe_status make_kinds(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_config *c = s->config;
    for (int kind = 1; kind < c->n_kinds; kind++) {
        if (!c->kinds[kind].recurrent) {
            DPE_TRY(dpe_plan_make_layer(c, &c->kinds[kind], s->options.positions, &s->plans[kind],
                                        err));
            DPE_TRY(make_rotation(s, kind, err));
        }
    }
    return DPE_OK;
}

/* What a session has of the one that it is beside: the weights and what a pass works with. */
static dpe_status join_base(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_session *base = s->options.beside;
    if (s->model != base->model || s->bytes.rows > base->bytes.rows) {
        return dpe_fail(err, DPE_USAGE,
                        "session: one that is beside another has its model and at most %" PRId64
                        " branches, found %s and %" PRId64,
                        base->bytes.rows, s->model != base->model ? "another model" : "it",
                        s->options.branches);
    }
    s->own = base->own;
    s->own.session = s;
    s->own.workspace = NULL;
    return DPE_OK;
}

static dpe_status open_own(struct dpe_session *s, struct dpe_error *err)
{
    s->own = dpe_lane_of(s, s->options.n_threads);
    return s->ops->open(&s->slice, &s->options, &s->own.backend, err);
}

/* A session whose options are resolved, but for what is checked here. */
static dpe_status make(struct dpe_session *s, const struct dpe_plan *plan, struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    struct dpe_session *base = s->base;
    DPE_TRY(dpe_session_check_plan(dpe_model_config(s->model), plan, s->ops, peers, err));
    DPE_TRY(dpe_slice_check(dpe_model_config(s->model), peers->index, peers->size, err));
    DPE_TRY(s == base ? dpe_slice_make(s->model, peers->index, peers->size, &s->slice, err)
                      : DPE_OK);
    s->config = &base->slice.config;
    s->weights = &base->slice.weights;
    s->element = s->ops->element_bytes(s->config);
    const struct dpe_session_ask ask = {s->config, plan, s->ops, &s->options};
    s->bytes = dpe_session_fit_bytes(&ask, s->halves);
    DPE_TRY(dpe_session_check_fits(&ask, &s->bytes, err));
    DPE_TRY(s == base ? open_own(s, err) : join_base(s, err));
    DPE_TRY(allocate_host(s, err));
    DPE_TRY(dpe_plan_slice(plan, peers->index, peers->size, &s->plans[0], err));
    DPE_TRY(make_rotation(s, 0, err));
    DPE_TRY(make_kinds(s, err));
    return allocate_device(s, err);
}

void dpe_session_join(struct dpe_session *s, int64_t keep)
{
    dpe_session_states_join(s, keep);
    s->prefix = 0;
    s->room = s->options.capacity;
    s->n_branches = 1;
    s->length[0] = keep;
    memset(s->lent, 0, (size_t)s->options.branches * sizeof *s->lent);
}

/* As dpe_session_agree, before there is a session. */
static dpe_status meet_before(const struct dpe_session_options *options, dpe_status status,
                              struct dpe_error *err)
{
    const struct dpe_peers *peers = options->peers;
    return peers == NULL ? status : peers->meet(peers->user, NULL, 0, status, err);
}

dpe_status dpe_session_create_untested(const struct dpe_model *model, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session **session, struct dpe_error *err)
{
    if (dpe_model_weights(model) == NULL) {
        return dpe_fail(err, DPE_USAGE, "%s: the model was opened without its weights",
                        dpe_model_folder(model));
    }
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *s = NULL;
    dpe_status status = DPE_NEW(&s, 1, err, "session: out of memory");
    if (status != DPE_OK) {
        return meet_before(options, status, err);
    }
    s->model = model;
    s->base = s;
    status = dpe_session_resolve(options, &s->options, &s->ops, err);
    s->full_chunk = s->options.prefill_chunk;
    s->halves = dpe_session_may_halve(options);
    if (s->options.beside != NULL) {
        s->base = s->options.beside;
        s->base->n_beside++;
    }
    if (status == DPE_OK) {
        status = make(s, plan, err);
    }
    DPE_TRY(dpe_session_agree(s, status, err));
    dpe_session_join(s, 0);
    s->options.device = s->ops->name; /* the caller's string may go */
    s->has_plan = true;
    *session = s;
    s = NULL;
    return DPE_OK;
}

/* The test of its device, then the session itself. */
dpe_status dpe_session_create(const struct dpe_model *model, const struct dpe_plan *plan,
                              const struct dpe_session_options *options,
                              struct dpe_session **session, struct dpe_error *err)
{
    const struct dpe_ops *ops = NULL;
    /* dpe_session_create_untested reports an unknown device; that of another session is tested. */
    bool found = options->beside == NULL && dpe_ops_find(options->device, &ops, NULL) == DPE_OK;
    /* What the device does not carry is refused without a test. */
    bool carried =
        found &&
        (ops->supports == NULL || ops->supports(dpe_model_config(model), plan, NULL) == DPE_OK) &&
        (ops->reads_kv || options->kv_type == DPE_KV_F32);
    int64_t tokens = carried ? ops->self_test_tokens : 0;
    struct dpe_session_options with = *options;
    if (tokens > 0) {
        const dpe_status status = dpe_session_check_device(
            dpe_model_config(model), &plan->selection, options, tokens, &with.ways, err);
        if (status != DPE_OK) {
            return meet_before(options, status, err);
        }
    }
    return dpe_session_create_untested(model, plan, &with, session, err);
}

void dpe_session_hand_over(void)
{
    omp_pause_resource_all(omp_pause_soft);
}

static void leave_base(struct dpe_session *s)
{
    s->base->n_beside--;
    const bool kept = s->own.backend != NULL && s->ops->drop_plan != NULL;
    for (int kind = 0; kept && kind < DPE_MAX_LAYER_KINDS; kind++) {
        s->ops->drop_plan(s->own.backend, &s->plans[kind]);
    }
}

void dpe_session_destroy(struct dpe_session *s)
{
    if (s == NULL) {
        return;
    }
    dpe_session_lanes_free(s);
    if (s->own.backend != NULL) {
        release(s);
    }
    if (s->options.beside == NULL) {
        if (s->own.backend != NULL) {
            s->ops->close(s->own.backend);
        }
        free(s->logits);
        free(s->tap_q);
    } else {
        leave_base(s);
    }
    free(s->kept);
    free(s->length);
    free(s->lent);
    free(s->states.at);
    free(s->tokens);
    for (int kind = 0; kind < DPE_MAX_LAYER_KINDS; kind++) {
        dpe_rotation_free(&s->rotations[kind]);
        dpe_plan_free(&s->plans[kind]);
    }
    dpe_slice_free(&s->slice);
    free(s);
}

/* What the session's plan needs. What it does not need, or of another size, goes before anything of
 * its own is made: both at once would not fit the estimate. */
static struct dpe_session_bytes make_room(struct dpe_session *s)
{
    const struct dpe_session_ask ask = dpe_session_asked(s);
    const struct dpe_session_bytes bytes = dpe_session_fit_bytes(&ask, false);
    dpe_session_lanes_free(s);
    if (bytes.workspace != s->bytes.workspace && s->options.beside == NULL && s->n_beside == 0) {
        s->ops->release(s->own.backend, s->own.workspace);
        s->own.workspace = NULL;
    }
    release_parts(s, QUERIES, STATES);
    if (bytes.cache != s->bytes.cache || bytes.kv != s->bytes.kv || bytes.file != s->bytes.file) {
        drop_cache(s);
    }
    return bytes;
}

/* The workspace of the plan, what its selection keeps, the cache where it moves, and the tables. */
static dpe_status allocate_once(struct dpe_session *s, struct dpe_error *err)
{
    s->bytes = make_room(s);
    if (!fit_workspace(s, s->bytes.workspace)) {
        return not_allocated(s, err);
    }
    const dpe_status status = allocate_kept(s, err);
    if (status != DPE_OK) {
        drop_cache(s);
        return status;
    }
    return s->ops->set_plan(s->own.backend, 0, &s->plans[0], &s->rotations[0], err);
}

static dpe_status allocate_plan(struct dpe_session *s, struct dpe_error *err)
{
    dpe_status status = DPE_NO_MEMORY;
    do {
        status = allocate_once(s, err);
    } while (status == DPE_NO_MEMORY && s->halves && dpe_session_halve_chunk(s->ops, &s->options));
    DPE_TRY(status);
    dpe_session_lanes_make(s);
    return DPE_OK;
}

dpe_status dpe_session_set_plan(struct dpe_session *s, const struct dpe_plan *plan,
                                struct dpe_error *err)
{
    const struct dpe_peers *peers = s->options.peers;
    if (s->remote != NULL) {
        return dpe_session_remote_plan(s, plan, err);
    }
    DPE_TRY(dpe_session_check_plan(dpe_model_config(s->model), plan, s->ops, peers, err));
    struct dpe_session_options options = s->options;
    /* The free memory is no longer the limit: the session holds most of it. */
    if (options.max_memory != 0) {
        const struct dpe_session_ask ask = {s->config, plan, s->ops, &options};
        const struct dpe_session_bytes bytes = dpe_session_fit_bytes(&ask, s->halves);
        DPE_TRY(dpe_session_check_fits(&ask, &bytes, err));
    }
    struct dpe_plan copy;
    DPE_TRY(dpe_plan_slice(plan, peers->index, peers->size, &copy, err));
    s->options.prefill_chunk = options.prefill_chunk;
    dpe_plan_free(&s->plans[0]);
    dpe_rotation_free(&s->rotations[0]);
    s->plans[0] = copy;
    dpe_session_join(s, 0);
    s->has_plan = false;
    make_room(s);
    DPE_TRY(make_rotation(s, 0, err));
    DPE_TRY(allocate_plan(s, err));
    s->has_plan = true;
    return DPE_OK;
}

void dpe_session_set_poll(struct dpe_session *session, dpe_poll poll, void *user)
{
    session->poll = poll;
    session->poll_user = user;
}

void dpe_session_set_tap(struct dpe_session *session, dpe_tap tap, void *user)
{
    session->tap = tap;
    session->tap_user = user;
}

int64_t dpe_session_chunk(const struct dpe_session *session)
{
    return session->options.prefill_chunk;
}
