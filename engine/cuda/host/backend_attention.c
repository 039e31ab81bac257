/* Keys and values into the cache, and attention over it: rotated copies in a workspace, the walk of
 * a plan, the kernel for this card. */
#include "engine/cuda/host/backend.h"

#include <string.h>

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/prefill/attention_wgmma.h"

/* ---------------------------------------------------------------------------------------- cache */

/* What rotates the keys of the cache: the table of the first band. */
static struct dpe_row_rotation base_rotation(const struct dpe_cuda_plan *p)
{
    const struct dpe_row_rotation rotation = {.cos = p->cos[p->k_copies.base_table],
                                              .sin = p->sin[p->k_copies.base_table]};
    return rotation;
}

/* Rows that the next launch takes along. */
static void put_off(struct dpe_backend *b, const struct dpe_rotated_rows *rows)
{
    struct dpe_cuda_pending *pending = &b->pending;
    if (pending->n_rotated == DPE_ROTATED_AT_ONCE) {
        dpe_cuda_make_pending(b);
    }
    pending->rotated[pending->n_rotated++] = *rows;
}

void dpe_cuda_store_kv(struct dpe_backend *b, const struct dpe_batch *batch,
                       const struct dpe_store *args)
{
    const int64_t n_heads = b->config->n_heads;
    const struct dpe_cuda_plan *p = dpe_cuda_plan_of(b, args->plan);
    struct dpe_rotated_rows rows = {
        .dtype = b->dtype,
        .n_rotations = dpe_selects(&p->plan->selection) ? 0 : 1,
        .rotations = {base_rotation(p)},
        .from = args->k,
        .from_row = p->n_kv_heads * p->head_dim,
        .from_head = p->head_dim,
        .to = args->cache_k,
        .to_row = p->head_dim,
        .to_head = args->capacity * p->head_dim,
        .rows = batch->rows,
        .head_dim = p->head_dim,
        .n_heads = p->n_kv_heads,
        .group = 1,
        .first = batch->start,
        .to_first = batch->start + batch->offset,
    };
    if (batch->positions != NULL) {
        const int64_t first = dpe_cuda_first_row(b, batch->positions);
        rows.positions = b->positions + first;
        rows.to_offsets = b->offsets + first;
    }
    /* The launch that rotates queries takes these along. */
    put_off(b, &rows);
    rows.n_rotations = 0;
    rows.from = args->v;
    rows.to = args->cache_v;
    put_off(b, &rows);
    if (args->cache_q != NULL) {
        rows.from = args->q;
        rows.from_row = n_heads * p->head_dim;
        rows.to = args->cache_q;
        rows.n_heads = n_heads;
        put_off(b, &rows);
    }
}

/* Rows of every head of a cache. */
static void copy_rows(struct dpe_backend *b, const struct dpe_store *args, dpe_mem cache,
                      int64_t n_heads, int64_t from, int64_t to, int64_t rows)
{
    uint64_t row = (uint64_t)dpe_cuda_plan_of(b, args->plan)->head_dim * b->element;
    for (int64_t h = 0; h < n_heads; h++) {
        char *head = (char *)cache + (uint64_t)(h * args->capacity) * row;
        DPE_CUDA_TRY(b, dpe_rt_copy(head + (uint64_t)to * row, head + (uint64_t)from * row,
                                    (uint64_t)rows * row));
    }
}

void dpe_cuda_copy_kv(struct dpe_backend *b, const struct dpe_store *args, int64_t from, int64_t to,
                      int64_t rows)
{
    const int64_t n_kv_heads = dpe_cuda_plan_of(b, args->plan)->n_kv_heads;
    copy_rows(b, args, args->cache_k, n_kv_heads, from, to, rows);
    copy_rows(b, args, args->cache_v, n_kv_heads, from, to, rows);
    if (args->cache_q != NULL) {
        copy_rows(b, args, args->cache_q, b->config->n_heads, from, to, rows);
    }
}

/* ------------------------------------------------------------------------------------ workspace */

/* Room in the workspace is taken piece after piece; `used` alone when there is no memory yet. */
struct room {
    char *memory;
    uint64_t used;
};

static void *take(struct room *room, int64_t a, int64_t b, int64_t c, uint64_t size)
{
    const uint64_t units = dpe_bytes_plus(dpe_bytes_of(a, b, c, size), 255) / 256;
    void *taken = room->memory == NULL ? NULL : room->memory + room->used;
    room->used = dpe_bytes_plus(room->used, units * 256);
    return taken;
}

/* Room for the parts of a split walk. */
static uint64_t split_bytes(enum dpe_dtype dtype, int64_t head_dim)
{
    const int64_t most =
        dpe_most(dpe_attention_mma_shape(head_dim).rows, dpe_attention_plain_shape(head_dim).rows);
    int64_t rows = dtype == DPE_F32 ? 0 : most;
    return (uint64_t)(2 * DPE_CUDA_PROCESSORS * rows * (head_dim + 1)) * sizeof(float);
}

/* Of decoding, whatever plans the sessions have that it is done for together. */
static uint64_t decode_workspace(const struct dpe_config *config, int64_t rows)
{
    const enum dpe_dtype dtype = dpe_config_unpacked(config);
    struct room room = {0};
    if (dpe_decode_supports(dtype, config->head_dim, config->n_heads, config->n_kv_heads)) {
        rows = dpe_least(rows, DPE_CUDA_DECODE_ROWS);
        for (int copy = 0; copy < DPE_MAX_BANDS; copy++) {
            (void)take(&room, config->n_heads, rows, config->head_dim, 2);
        }
        (void)take(&room, 1, 1, 1, dpe_cuda_partial_bytes(config, rows));
    }
    return room.used;
}

uint64_t dpe_cuda_attention_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                      int64_t keys, int64_t rows, int n_threads)
{
    (void)n_threads;
    const uint64_t few = decode_workspace(config, rows);
    if (dpe_selects(&plan->selection) || dpe_selects(&config->selection)) {
        const uint64_t selects = dpe_cuda_select_workspace(config, plan, keys, rows);
        return selects > few ? selects : few;
    }
    struct room room = {0};
    uint64_t e = dpe_config_unpacked(config) == DPE_F32 ? 4 : 2;
    for (int band = 0; band < plan->n_bands; band++) {
        bool per_head = plan->bands[band].per_head && plan->mask != NULL;
        (void)take(&room, config->n_heads, rows, config->head_dim, e);
        if (band > 0) {
            (void)take(&room, per_head ? config->n_heads : config->n_kv_heads, keys,
                       config->head_dim, e);
        }
    }
    /* A branch's keys and values in one piece. */
    (void)take(&room, 2 * config->n_kv_heads, keys, config->head_dim, e);
    (void)take(&room, 1, 1, 1, split_bytes(dpe_config_unpacked(config), config->head_dim));
    return room.used > few ? room.used : few;
}

/* --------------------------------------------------------------------------------------- kernel */

static struct dpe_tile_shape wgmma_shape(const struct dpe_cuda_plan *p)
{
    return dpe_attention_wgmma_shape(p->head_dim, p->plan->attention_cap > 0.0);
}

/* The fastest of the backend's that takes the heads of the plan's layers. */
static enum dpe_cuda_kernel kernel_of(const struct dpe_backend *b, const struct dpe_cuda_plan *p)
{
    for (int i = 0; i < b->ways.n_attention; i++) {
        const enum dpe_cuda_kernel kernel = b->ways.attention[i];
        if ((kernel == DPE_KERNEL_WGMMA && wgmma_shape(p).rows > 0) ||
            (kernel == DPE_KERNEL_MMA && dpe_attention_mma_shape(p->head_dim).rows > 0)) {
            return kernel;
        }
    }
    return DPE_KERNEL_PLAIN;
}

/* Into how many parts to split the walk of few rows over many keys, so that they fill the card. Of
 * the fast kernels that of mma.sync can do so, at about half the rate of wgmma: on Hopper it is
 * worth it when rows would fill less than half of the card. */
static int32_t parts_of(const struct dpe_backend *b, const struct dpe_cuda_plan *p, int64_t start,
                        int64_t rows)
{
    const enum dpe_cuda_kernel kernel = kernel_of(b, p);
    struct dpe_tile_shape shape = kernel == DPE_KERNEL_PLAIN
                                      ? dpe_attention_plain_shape(p->head_dim)
                                      : dpe_attention_mma_shape(p->head_dim);
    if (!b->ways.splits || shape.rows == 0) {
        return 1;
    }
    int processors =
        b->info.processors < DPE_CUDA_PROCESSORS ? b->info.processors : DPE_CUDA_PROCESSORS;
    int64_t blocks = (rows + shape.rows - 1) / shape.rows;
    int64_t tiles = (start + rows + shape.keys - 1) / shape.keys;
    int32_t parts = dpe_attention_mma_parts(blocks, tiles, b->config->n_heads, processors);
    return parts >= (kernel == DPE_KERNEL_WGMMA ? 4 : 2) ? parts : 1;
}

static struct dpe_tile_shape shape_of(const struct dpe_backend *b, const struct dpe_cuda_plan *p,
                                      int32_t parts)
{
    const enum dpe_cuda_kernel kernel = kernel_of(b, p);
    switch (parts > 1 && kernel != DPE_KERNEL_PLAIN ? DPE_KERNEL_MMA : kernel) {
    case DPE_KERNEL_WGMMA:
        return wgmma_shape(p);
    case DPE_KERNEL_MMA:
        return dpe_attention_mma_shape(p->head_dim);
    case DPE_KERNEL_PLAIN:
        break;
    }
    return dpe_attention_plain_shape(p->head_dim);
}

static void launch(struct dpe_backend *b, const struct dpe_cuda_plan *p,
                   const struct dpe_flash *call)
{
    const enum dpe_cuda_kernel kernel = kernel_of(b, p);
    if (call->parts > 1 && dpe_cuda_ready(b)) {
        const int code =
            kernel == DPE_KERNEL_PLAIN ? dpe_attention_plain(call) : dpe_attention_mma(call);
        DPE_CUDA_NOTE(b, code, "dpe_attention_parts");
    }
    if (call->parts > 1) {
        return;
    }
    switch (kernel) {
    case DPE_KERNEL_WGMMA:
        DPE_CUDA_TRY(b, dpe_attention_wgmma(call, b->counters));
        return;
    case DPE_KERNEL_MMA:
        DPE_CUDA_TRY(b, dpe_attention_mma(call));
        return;
    case DPE_KERNEL_PLAIN:
        break;
    }
    DPE_CUDA_TRY(b, dpe_attention_plain(call));
}

/* ----------------------------------------------------------------------------------------- walk */

static bool use_walk(struct dpe_backend *b, struct dpe_cuda_plan *p, int64_t start, int64_t rows)
{
    struct dpe_cuda_walk *on_device = &p->walk;
    int32_t parts = parts_of(b, p, start, rows);
    if (on_device->rows == rows && on_device->start == start) {
        return !b->failed;
    }
    DPE_SCOPED(dpe_walk_free) struct dpe_walk walk = {0};
    struct dpe_tile_shape shape = shape_of(b, p, parts);
    dpe_status status =
        dpe_walk_make(p->plan, &p->q_copies, &p->k_copies, shape, start, rows, &walk, &b->failure);
    if (status == DPE_OK && parts > 1) {
        status = dpe_walk_split(&walk, rows, shape.keys, parts, &b->failure);
    }
    if (status != DPE_OK) {
        b->failed = true; /* out of host memory: the message is in `failure` */
        return false;
    }
    uint64_t blocks = (uint64_t)walk.n_blocks * sizeof *walk.blocks;
    uint64_t segments = (uint64_t)walk.n_segments * sizeof *walk.segments;
    blocks = (blocks + 255) / 256 * 256;
    if (blocks + segments > on_device->bytes) {
        DPE_CUDA_TRY(b, dpe_rt_release(on_device->memory));
        on_device->memory = NULL;
        on_device->bytes = 0;
        DPE_CUDA_TRY(b, dpe_rt_allocate(&on_device->memory, blocks + segments));
        on_device->bytes = b->failed ? 0 : blocks + segments;
    }
    on_device->blocks = on_device->memory;
    on_device->segments = (void *)((char *)on_device->memory + (b->failed ? 0 : blocks));
    DPE_CUDA_TRY(b, dpe_rt_up(on_device->blocks, walk.blocks,
                              (uint64_t)walk.n_blocks * sizeof *walk.blocks));
    if (segments > 0) { /* a plan may leave a call's queries without any key */
        DPE_CUDA_TRY(b, dpe_rt_up(on_device->segments, walk.segments, segments));
    }
    on_device->start = start;
    on_device->rows = rows;
    on_device->parts = parts;
    on_device->n_blocks = walk.n_blocks;
    memcpy(on_device->k_first, walk.k_first, sizeof on_device->k_first);
    memcpy(on_device->k_end, walk.k_end, sizeof on_device->k_end);
    return !b->failed;
}

/* ------------------------------------------------------------------------------------ attention */

/* Consecutive queries of one branch: positions start … of one call. Or rows of a step, after the
 * `before` rows of other runs that are decoded with them, `all` rows in all. */
struct run {
    const struct dpe_attention *args;
    struct dpe_cuda_plan *plan;
    int64_t start, rows, offset;
    int64_t first, before, all; /* first: of the call's rows */
    const int64_t *positions;   /* device, of a step's rows; else NULL */
    const char *q;
    char *out;
    float *lse;
};

/* A table of one side of a plan with its mask. */
static struct dpe_row_rotation rotation_of(const struct dpe_cuda_plan *p,
                                           const struct dpe_rotated_copies *copies, int copy,
                                           int64_t layer)
{
    const struct dpe_rotated *rotated = &copies->copies[copy];
    struct dpe_row_rotation rotation = {.cos = p->cos[rotated->table],
                                        .sin = p->sin[rotated->table]};
    if (rotated->per_head && p->mask != NULL) {
        rotation.base_cos = p->cos[copies->base_table];
        rotation.base_sin = p->sin[copies->base_table];
        rotation.mask = p->mask + layer * p->plan->n_heads * p->plan->n_pairs;
    }
    return rotation;
}

/* The copies go to q [DPE_MAX_BANDS], head after head; the next launch makes them. */
static void rotate_queries(struct dpe_backend *b, const struct run *run, struct room *room,
                           const void **q)
{
    const struct dpe_attention *args = run->args;
    const struct dpe_rotated_copies *copies = &run->plan->q_copies;
    char *to[DPE_MAX_BANDS] = {NULL};
    struct dpe_rotated_rows rows = {
        .dtype = b->dtype,
        .n_rotations = copies->n,
        .from = run->q,
        .from_row = args->n_heads * args->head_dim,
        .from_head = args->head_dim,
        .to_row = args->head_dim,
        .to_head = run->all * args->head_dim,
        .rows = run->rows,
        .head_dim = args->head_dim,
        .n_heads = args->n_heads,
        .group = 1,
        .first = run->start,
        .positions = run->positions,
        .late = b->layers[args->layer].weight[DPE_WEIGHT_LATE],
    };
    for (int c = 0; c < copies->n; c++) {
        rows.rotations[c] = rotation_of(run->plan, copies, c, args->layer);
        to[c] = take(room, args->n_heads, run->all, args->head_dim, b->element);
        q[c] = to[c];
    }
    rows.to = to[0] + run->before * args->head_dim * (int64_t)b->element;
    rows.to_copy = copies->n > 1 ? (to[1] - to[0]) / (int64_t)b->element : 0;
    put_off(b, &rows); /* with what goes into the cache */
}

/* Where a run's keys and values lie, key n at row n: the cache itself, unless a branch's own keys
 * lie after those of others; then the two parts are brought together. */
struct found {
    const char *k, *v;
    int64_t head_stride;
};

static struct found find_keys(struct dpe_backend *b, const struct run *run, struct room *room)
{
    const struct dpe_attention *args = run->args;
    struct found found = {.k = (const char *)args->k,
                          .v = (const char *)args->v,
                          .head_stride = args->capacity * args->head_dim};
    int64_t keys = run->start + run->rows;
    if (run->offset == 0 || keys <= args->prefix) {
        return found;
    }
    char *to[2];
    const char *from[2] = {found.k, found.v};
    for (int side = 0; side < 2; side++) {
        to[side] = take(room, args->n_kv_heads, keys, args->head_dim, b->element);
        for (int part = 0; part < 2; part++) {
            int64_t first = part == 0 ? 0 : args->prefix;
            int64_t from_row = part == 0 ? 0 : args->prefix + run->offset;
            struct dpe_rotated_rows rows = {
                .dtype = b->dtype,
                .from = from[side] + from_row * args->head_dim * (int64_t)b->element,
                .from_row = args->head_dim,
                .from_head = found.head_stride,
                .to = to[side],
                .to_row = args->head_dim,
                .to_head = keys * args->head_dim,
                .rows = (part == 0 ? args->prefix : keys) - first,
                .head_dim = args->head_dim,
                .n_heads = args->n_kv_heads,
                .group = 1,
                .to_first = first,
            };
            if (rows.rows > 0) {
                DPE_CUDA_LAUNCH(b, dpe_kernel_rotate(&rows, 1));
            }
        }
    }
    found.k = to[0];
    found.v = to[1];
    found.head_stride = keys * args->head_dim;
    return found;
}

static void rotate_keys(struct dpe_backend *b, const struct run *run, const struct found *found,
                        struct room *room, struct dpe_flash *call)
{
    const struct dpe_attention *args = run->args;
    const struct dpe_rotated_copies *copies = &run->plan->k_copies;
    const struct dpe_cuda_walk *walk = &run->plan->walk;
    int64_t group = args->n_heads / args->n_kv_heads;
    int64_t keys = run->start + run->rows;
    /* A segment's last tile reaches so far below it: what is loaded there counts for nothing, but a
     * sanitizer reports memory that was never written. */
    int64_t below = shape_of(b, run->plan, walk->parts).keys - 1;
    for (int c = 0; c < copies->n; c++) {
        call->k[c] = found->k;
        call->k_head_stride[c] = found->head_stride;
        if (copies->copies[c].table == copies->base_table) {
            continue;
        }
        struct dpe_row_rotation rotation = rotation_of(run->plan, copies, c, args->layer);
        bool per_head = rotation.mask != NULL;
        int64_t heads = per_head ? args->n_heads : args->n_kv_heads;
        char *to = take(room, heads, keys, args->head_dim, b->element);
        int64_t first = walk->k_first[c] > below ? walk->k_first[c] - below : 0;
        int64_t at = first * args->head_dim * (int64_t)b->element;
        const struct dpe_row_rotation base = base_rotation(run->plan);
        rotation.undo_cos = base.cos;
        rotation.undo_sin = base.sin;
        const struct dpe_rotated_rows rows = {
            .dtype = b->dtype,
            .n_rotations = 1,
            .rotations = {rotation},
            .from = found->k + at,
            .from_row = args->head_dim,
            .from_head = found->head_stride,
            .to = to,
            .to_row = args->head_dim,
            .to_head = keys * args->head_dim,
            .rows = walk->k_end[c] - first,
            .head_dim = args->head_dim,
            .n_heads = heads,
            .group = per_head ? group : 1,
            .first = first,
            .to_first = first,
        };
        if (rows.rows > 0) {
            DPE_CUDA_LAUNCH(b, dpe_kernel_rotate(&rows, 1));
        }
        call->k[c] = to;
        call->k_head_stride[c] = keys * args->head_dim;
        call->k_per_head[c] = per_head;
    }
}

static void attend_run(struct dpe_backend *b, const struct run *run)
{
    const struct dpe_attention *args = run->args;
    const struct dpe_plan *plan = run->plan->plan;
    const struct dpe_cuda_walk *walk = &run->plan->walk;
    struct room room = {.memory = args->workspace};
    if (b->failed || !use_walk(b, run->plan, run->start, run->rows)) {
        return;
    }
    struct dpe_flash call = {
        .dtype = b->dtype,
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .rows = run->rows,
        .out = run->out,
        .lse = run->lse,
        .blocks = walk->blocks,
        .segments = walk->segments,
        .n_blocks = walk->n_blocks,
        /* At query 0 the part that depends on the query is 1. */
        .scale = (float)dpe_plan_query_scale(plan, args->layer, 0),
        .cap = (float)plan->attention_cap,
        .log_n = dpe_log_n_of(plan),
    };
    rotate_queries(b, run, &room, call.q);
    call.q_head_stride = run->rows * args->head_dim;
    const struct found found = find_keys(b, run, &room);
    call.v = found.v;
    call.v_head_stride = found.head_stride;
    rotate_keys(b, run, &found, &room, &call);
    call.parts = walk->parts;
    call.partial =
        call.parts > 1 ? take(&room, 1, 1, 1, split_bytes(b->dtype, args->head_dim)) : NULL;
    launch(b, run->plan, &call);
}

/* Few rows over many keys: those of n runs together. */
static void decode_runs(struct dpe_backend *b, const struct run *runs, int n)
{
    struct room most = {0};
    struct dpe_decode calls[DPE_DECODE_CALLS] = {0};
    /* Before units are uploaded: that must not wait for what is pending. */
    for (int i = 0; i < n; i++) {
        struct room room = {.memory = runs[i].args->workspace};
        rotate_queries(b, &runs[i], &room, calls[i].q);
        most = room.used > most.used ? room : most;
    }
    dpe_cuda_make_pending(b);
    struct dpe_cuda_rows rows[DPE_DECODE_CALLS];
    for (int i = 0; i < n; i++) {
        rows[i] = (struct dpe_cuda_rows){runs[i].args, runs[i].first, runs[i].rows};
    }
    const struct dpe_cuda_units *units = b->failed ? NULL : dpe_cuda_use_units(b, rows, n);
    for (int i = 0; i < n && units != NULL; i++) {
        dpe_cuda_decode_call(b, runs[i].args, units, &calls[i]);
        calls[i].q_head_stride = runs->all * runs->args->head_dim;
        calls[i].rows = runs->all;
        calls[i].out = runs->out;
        calls[i].lse = runs->lse;
        calls[i].partial = most.memory + most.used;
    }
    if (units != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_attention_decode_calls(calls, n));
    }
}

/* Rows of a call, from row r on. */
static struct run run_of(struct dpe_backend *b, const struct dpe_attention *args, int64_t r,
                         int64_t rows)
{
    const int64_t row = args->n_heads * args->head_dim * (int64_t)b->element;
    struct dpe_cuda_plan *plan = dpe_cuda_plan_of(b, args->plan);
    const bool steps = args->positions != NULL;
    const bool one = steps && !plan->decodes; /* a row of a step as a run of its own */
    return (struct run){
        .args = args,
        .plan = plan,
        .start = one ? args->positions[r] : args->start,
        .rows = rows,
        .offset = one ? args->offsets[r] : args->offset,
        .first = r,
        .all = rows,
        .positions =
            steps && !one ? b->positions + dpe_cuda_first_row(b, args->positions) + r : NULL,
        .q = (const char *)args->q + r * row,
        .out = (char *)args->out + r * row,
        .lse = args->lse == NULL ? NULL : args->lse + r * args->n_heads,
    };
}

static bool selects(const struct dpe_backend *b, const struct dpe_attention *args)
{
    return dpe_selects(&args->plan->selection) || dpe_selects(&b->config->selection);
}

static void attend_call(struct dpe_backend *b, const struct dpe_attention *args)
{
    const bool few = dpe_cuda_plan_of(b, args->plan)->decodes;
    const bool steps = args->positions != NULL;
    if (selects(b, args)) {
        (dpe_selects(&args->plan->selection) ? dpe_cuda_attention_select
                                             : dpe_cuda_attention_window)(b, args);
        return;
    }
    const int64_t at_once = !steps ? args->rows : few ? DPE_CUDA_DECODE_ROWS : 1;
    for (int64_t r = 0; r < args->rows; r += at_once) {
        const struct run run = run_of(b, args, r, dpe_least(at_once, args->rows - r));
        if (few && (steps || args->rows <= DPE_CUDA_FEW_ROWS)) {
            decode_runs(b, &run, 1);
        } else {
            attend_run(b, &run);
        }
    }
}

/* So many of the first of n calls as are steps of few rows; under a cap, which `decode_together`
 * does not know, one. */
static int attend_together(struct dpe_backend *b, const struct dpe_attention *args, int64_t n)
{
    struct run runs[DPE_DECODE_CALLS];
    int64_t all = 0;
    int some = 0;
    while (some < dpe_least(n, DPE_DECODE_CALLS)) {
        const struct dpe_attention *a = &args[some];
        if (a->positions == NULL || selects(b, a) || !dpe_cuda_plan_of(b, a->plan)->decodes ||
            all + a->rows > DPE_CUDA_DECODE_ROWS || (some > 0 && a->plan->attention_cap > 0.0)) {
            break;
        }
        runs[some] = run_of(b, a, 0, a->rows);
        runs[some++].before = all;
        all += a->rows;
    }
    for (int i = 0; i < some; i++) {
        runs[i].all = all;
    }
    if (some > 0) {
        decode_runs(b, runs, some);
    }
    return some;
}

void dpe_cuda_attention(struct dpe_backend *b, const struct dpe_attention *args, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        const int some = attend_together(b, args + i, n - i);
        if (some == 0) {
            attend_call(b, &args[i]);
        }
        i += some > 0 ? some : 1;
    }
}
