/* What a branch holds, to be kept in a file and taken from one: keys and values as they are in the
 * cache. */
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <string.h>

/* States of recurrent layers would follow the keys and values; they are not written yet. */
dpe_status dpe_session_saved_shape(const struct dpe_session *s, struct dpe_saved_shape *shape,
                                   struct dpe_error *err)
{
    const char *why =
        s->remote != NULL                                  ? "another program runs the model"
        : s->options.peers->size > 1                       ? "several processes share the model"
        : !s->ops->reads_kv || s->element != sizeof(float) ? "the device keeps them for itself"
        : s->plans[0].selection.block > 0 ? "the plan selects keys, by what it keeps of blocks"
        : s->states.at != NULL            ? "layers have a state besides"
        : dpe_config_mixed(s->config)     ? "layers differ in their heads, or share keys"
        : s->bytes.file > 0 ? "they are in a file without a name, as they do not fit into memory"
        : s->prefix > 0     ? "branches share a prefix"
                            : NULL;
    if (why != NULL) {
        return dpe_fail(err, DPE_USAGE, "keys and values cannot be saved or restored here: %s",
                        why);
    }
    const enum dpe_kv_type type = s->kv != NULL ? s->options.kv_type : DPE_KV_F32;
    *shape = (struct dpe_saved_shape){
        .model = dpe_model_fingerprint(s->model),
        .device = s->ops->name,
        .chunk = s->options.prefill_chunk,
        .type = type,
        .layers = s->config->n_layers,
        .heads = s->config->n_kv_heads,
        .row_bytes = (int64_t)dpe_kv_row_bytes(type, s->config->head_dim),
    };
    return dpe_plan_digest(&s->plans[0], shape->plan, err);
}

/* Piece i is a head's rows of a layer: those of its keys, then those of its values. */
static unsigned char *rows_of(const struct dpe_session *s, const struct dpe_saved_shape *shape,
                              int64_t piece, int64_t row)
{
    const int64_t layer = piece / (2 * shape->heads);
    const bool values = piece / shape->heads % 2 == 1;
    const struct dpe_kv_rows rows = {.part = values ? DPE_KV_VALUES : DPE_KV_KEYS,
                                     .layer = layer,
                                     .head = piece % shape->heads,
                                     .row = row};
    if (s->kv != NULL) {
        return dpe_kv_at(s->kv, &rows);
    }
    unsigned char *layer_rows = values ? s->kept[layer].v : s->kept[layer].k;
    return layer_rows + (rows.head * s->options.capacity + row) * shape->row_bytes;
}

static dpe_status move_piece(const struct dpe_session *s, const struct dpe_saved_shape *shape,
                             int64_t branch, int64_t n, int64_t piece,
                             const struct dpe_saved_mover *mover, struct dpe_error *err)
{
    const struct dpe_lent *lent = &s->lent[branch];
    for (int64_t at = 0, count = 0; at < n; at += count) {
        bool theirs = at < lent->positions;
        count = (theirs ? dpe_least(lent->positions, n) : n) - at;
        unsigned char *bytes =
            rows_of(s, shape, piece, at + (theirs ? lent->offset : branch * s->room));
        DPE_TRY(mover->move(mover->user, (uint64_t)((piece * n + at) * shape->row_bytes), bytes,
                            (size_t)(count * shape->row_bytes), err));
    }
    return DPE_OK;
}

dpe_status dpe_session_move_saved(struct dpe_session *s, int64_t branch, int64_t n,
                                  const struct dpe_saved_mover *mover, struct dpe_error *err)
{
    struct dpe_saved_shape shape;
    dpe_status status = DPE_OK;
    DPE_TRY(dpe_session_saved_shape(s, &shape, err));
    if (branch < 0 || branch >= s->n_branches || n < 1 || n > s->room) {
        return dpe_fail(err, DPE_USAGE,
                        "session: branch %" PRId64 " has no room for %" PRId64 " tokens", branch,
                        n);
    }
    const int64_t pieces = 2 * shape.layers * shape.heads;
    const int threads = mover->in_order ? 1 : s->options.n_threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        struct dpe_error own = {0};
        dpe_status seen = DPE_OK;
#pragma omp atomic read
        seen = status;
        if (seen == DPE_OK && move_piece(s, &shape, branch, n, piece, mover, &own) != DPE_OK) {
#pragma omp critical(dpe_session_saved)
            {
#pragma omp atomic write
                status = own.status;
                *(err != NULL ? err : &own) = own;
            }
        }
    }
    return status;
}

dpe_status dpe_session_restore(struct dpe_session *s, int64_t branch, const int32_t *ids, int64_t n,
                               const struct dpe_saved_mover *mover, struct dpe_error *err)
{
    DPE_TRY(dpe_session_branch_cut(s, branch, 0, err));
    DPE_TRY(dpe_session_move_saved(s, branch, n, mover, err));
    memcpy(s->tokens + branch * s->room, ids, (size_t)n * sizeof *ids);
    s->length[branch] = n;
    return DPE_OK;
}
