/* Plans with a selection: what stands for blocks, kept beside the cache, and attention over what is
 * chosen. Rows are taken a slab at a time: first their groups choose, then they attend. */
#include "engine/cuda/host/backend.h"
#include "engine/cuda/kernels/cuda_select.h"

/* Scores and lists of a slab, unless one group's take more. Tests have smaller ones. */
#ifndef DPE_CUDA_SLAB_BYTES
#define DPE_CUDA_SLAB_BYTES (64U << 20)
#endif
static const uint64_t SLAB_BYTES = DPE_CUDA_SLAB_BYTES;

/* Of calls whose queries see at most so many keys. */
struct layout {
    int64_t units, blocks, chosen, distances, slashes, last;
    uint64_t scores, far, probabilities, sums, lists, far_lists; /* bytes of a group */
    uint64_t group;                                              /* all of them */
    uint64_t before;                                             /* bytes of a row */
};

static struct layout lay_out(const struct dpe_selection *s, int64_t n_heads, int64_t n_kv_heads,
                             int64_t keys)
{
    struct layout layout = {.blocks = keys / s->block + 1};
    layout.units = s->unit == DPE_CHOICE_HEAD      ? n_heads
                   : s->unit == DPE_CHOICE_KV_HEAD ? n_kv_heads
                                                   : 1;
    layout.chosen = s->k < layout.blocks ? s->k : layout.blocks;
    layout.scores = (uint64_t)(layout.units * layout.blocks) * sizeof(double);
    layout.probabilities = s->representative == DPE_REPRESENT_COMPRESSED
                               ? (uint64_t)(n_heads * layout.blocks) * sizeof(float)
                               : 0;
    layout.lists = (uint64_t)(layout.units * layout.chosen) * sizeof(int32_t);
    if (s->representative == DPE_REPRESENT_PROBABILITY) {
        layout.distances = s->slashes > 0 ? keys : 0;
        layout.slashes = s->slashes < keys ? s->slashes : keys;
        layout.last = s->last < keys ? s->last : keys;
        bool counted = s->slashes > 0 && s->positions == DPE_PLACE_PACKED;
        layout.before =
            counted ? (uint64_t)(layout.units * (layout.chosen + 1)) * sizeof(int32_t) : 0;
    }
    layout.far = (uint64_t)(layout.units * layout.distances) * sizeof(double);
    layout.sums = (uint64_t)(n_heads * layout.last) * 3 * sizeof(float);
    layout.far_lists = (uint64_t)(layout.units * layout.slashes) * sizeof(int32_t);
    layout.group = layout.scores + layout.far + layout.probabilities + layout.sums + layout.lists +
                   layout.far_lists;
    return layout;
}

/* Bytes of a group of so many rows. */
static uint64_t group_bytes(const struct layout *layout, int64_t rows)
{
    return layout->group + (uint64_t)rows * layout->before;
}

/* How many of a call's `rows` rows from position `start` on a slab takes. It ends where a group
 * ends, since the next slab would choose for the rest again. Rows of branches are groups of their
 * own. */
static int64_t slab_rows(const struct dpe_selection *s, const struct layout *layout, bool branches,
                         int64_t start, int64_t rows)
{
    const int64_t every = branches ? 1 : s->refresh;
    const int64_t groups = (int64_t)(SLAB_BYTES / group_bytes(layout, every < rows ? every : rows));
    if (groups >= rows) {
        return rows;
    }
    int64_t most = (groups < 1 ? 1 : groups) * every - (branches ? 0 : start % every);
    return most < rows ? most : rows;
}

/* The keys of steps are counted up to a power of two, so that launches stay the same for many
 * tokens. */
static int64_t padded_keys(int64_t keys)
{
    int64_t padded = 1;
    while (padded < keys) {
        padded *= 2;
    }
    return padded;
}

/* How many keys the queries of a call see at most. */
static int64_t most_keys(const struct dpe_attention *args)
{
    const int64_t keys = dpe_attention_keys(args);
    return args->positions != NULL ? padded_keys(keys) : keys;
}

uint64_t dpe_cuda_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                   int64_t keys, int64_t rows)
{
    uint64_t parts = dpe_select_partial_bytes(config->head_dim);
    if (!dpe_selects(&plan->selection)) {
        return parts;
    }
    const struct dpe_selection *s = &plan->selection;
    const struct layout layout = lay_out(s, config->n_heads, config->n_kv_heads, padded_keys(keys));
    uint64_t group = group_bytes(&layout, s->refresh < rows ? s->refresh : rows);
    uint64_t most = SLAB_BYTES > group ? SLAB_BYTES : group;
    uint64_t bytes = dpe_bytes_times(group_bytes(&layout, 1), (uint64_t)rows);
    /* A slab of a call that sees fewer keys may have more groups, but no more bytes. */
    return parts + (bytes > most ? most : bytes);
}

/* All of a call but rows, q, out, lse and what is chosen. */
static struct dpe_select call_of(struct dpe_backend *b, const struct dpe_attention *args)
{
    const struct dpe_cuda_plan *on_device = dpe_cuda_plan_of(b, args->plan);
    const struct dpe_plan *plan = args->plan;
    const struct dpe_rotation *tables = args->rotation;
    struct dpe_select call = {
        .dtype = b->dtype,
        .selection = plan->selection,
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .start = args->start,
        .offset = args->offset,
        .prefix = args->prefix,
        .capacity = args->capacity,
        .k = args->k,
        .v = args->v,
        .queries = args->queries,
        .marks = args->marks,
        .slots = args->slots,
        .room = args->room,
        .n_bands = plan->n_bands,
        .chunk = plan->chunk > 0 ? plan->chunk : 1,
        .mask = on_device->mask == NULL
                    ? NULL
                    : on_device->mask + args->layer * plan->n_heads * plan->n_pairs,
        .scale = (float)dpe_plan_query_scale(plan, args->layer, 0),
        .cap = (float)plan->attention_cap,
        .log_n = dpe_log_n_of(plan),
    };
    for (int i = 0; i < plan->n_bands; i++) {
        call.bands[i] = (struct dpe_select_band){
            .kind = plan->bands[i].kind,
            .per_head = plan->bands[i].per_head && on_device->mask != NULL,
            .lo = plan->bands[i].lo,
            .hi = plan->bands[i].hi,
            .q_cos = on_device->cos[tables->q_table[i]],
            .q_sin = on_device->sin[tables->q_table[i]],
            .k_cos = on_device->cos[tables->k_table[i]],
            .k_sin = on_device->sin[tables->k_table[i]],
        };
    }
    return call;
}

void dpe_cuda_represent(struct dpe_backend *b, const struct dpe_attention *args)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct dpe_select call = call_of(b, args);
    call.rows = args->rows;
    if (args->positions != NULL) { /* those that complete none launch it too, as others will */
        call.positions = b->positions + dpe_cuda_first_row(b, args->positions);
        call.offsets = b->offsets + dpe_cuda_first_row(b, args->positions);
    } else {
        call.first_block = dpe_blocks_known_before(s, args->start);
        call.n_blocks = dpe_blocks_known_before(s, args->start + args->rows) - call.first_block;
    }
    if (args->positions != NULL || call.n_blocks > 0) {
        DPE_CUDA_LAUNCH(b, dpe_select_represent(&call));
    }
}

/* What the groups of a slab have, after their scores. */
static void place_groups(struct dpe_select *call, const struct layout *layout)
{
    const uint64_t groups = (uint64_t)call->groups;
    char *at = (char *)call->scores + groups * layout->scores;
    call->far = (void *)at;
    at += groups * layout->far;
    call->probabilities = (void *)at;
    at += groups * layout->probabilities;
    call->sums = (void *)at;
    at += groups * layout->sums;
    call->lists = (void *)at;
    at += groups * layout->lists;
    call->far_lists = (void *)at;
    at += groups * layout->far_lists;
    call->before = layout->before == 0 ? NULL : (void *)at;
}

void dpe_cuda_attention_select(struct dpe_backend *b, const struct dpe_attention *args)
{
    const struct dpe_selection *s = &args->plan->selection;
    const struct layout layout = lay_out(s, args->n_heads, args->n_kv_heads, most_keys(args));
    const int64_t seen = dpe_selection_keys(s, most_keys(args) - 1);
    const int64_t row = args->n_heads * args->head_dim * (int64_t)b->element;
    struct dpe_select call = call_of(b, args);
    call.units = layout.units;
    call.blocks = layout.blocks;
    call.chosen = layout.chosen;
    call.distances = layout.distances;
    call.slashes = layout.slashes;
    call.last = layout.last;
    for (int64_t r = 0; r < args->rows && !b->failed; r += call.rows) {
        call.rows = slab_rows(s, &layout, args->positions != NULL, args->start + r, args->rows - r);
        call.q = (const char *)args->q + r * row;
        call.out = (char *)args->out + r * row;
        call.lse = args->lse == NULL ? NULL : args->lse + r * args->n_heads;
        call.compressed =
            args->compressed == NULL ? NULL : (char *)(void *)args->compressed + r * row;
        if (args->positions != NULL) {
            call.positions = b->positions + dpe_cuda_first_row(b, args->positions) + r;
            call.offsets = b->offsets + dpe_cuda_first_row(b, args->positions) + r;
            call.groups = call.rows;
        } else {
            call.start = args->start + r;
            call.groups = (call.start + call.rows - 1) / s->refresh - call.start / s->refresh + 1;
        }
        call.parts = dpe_select_parts(call.rows, args->n_heads, seen);
        call.partial = args->workspace;
        call.scores = (void *)((char *)args->workspace + dpe_select_partial_bytes(args->head_dim));
        place_groups(&call, &layout);
        DPE_CUDA_LAUNCH(b, dpe_select_choose(&call));
        DPE_CUDA_LAUNCH(b, dpe_select_attend(&call));
    }
}

void dpe_cuda_attention_window(struct dpe_backend *b, const struct dpe_attention *args)
{
    const int64_t window = b->config->kinds[1].window;
    const int64_t keys = most_keys(args);
    struct dpe_select call = call_of(b, args);
    /* Where nothing is chosen, a query sees its local window. */
    call.selection = (struct dpe_selection){.block = 1, .local = window, .refresh = 1};
    call.units = args->n_kv_heads;
    call.rows = args->rows;
    if (args->positions != NULL) {
        call.positions = b->positions + dpe_cuda_first_row(b, args->positions);
        call.offsets = b->offsets + dpe_cuda_first_row(b, args->positions);
    }
    call.q = args->q;
    call.out = args->out;
    call.lse = args->lse;
    call.parts = dpe_select_parts(args->rows, args->n_heads, window < keys ? window : keys);
    call.partial = args->workspace;
    DPE_CUDA_LAUNCH(b, dpe_select_attend(&call));
}

void dpe_cuda_merge(struct dpe_backend *b, const struct dpe_branches *branches)
{
    DPE_CUDA_LAUNCH(b, dpe_select_merge(b->dtype, branches->gates, branches->compressed,
                                        branches->windowed, branches->rows * b->config->n_heads,
                                        b->config->head_dim, branches->out));
}
