/* Attention for many rows: blocked online softmax over packed panels.
 *
 * A few KV heads and a stripe of keys at a time: first all threads pack the rotated copies of the
 * keys into panels (copies without a mask once per KV head, masked ones once per query head), then
 * every (query block, query head) is one item, longest first. The softmax of an item goes on in the
 * next stripe, so that the workspace does not grow with the keys beyond one. An item walks the keys in blocks; a tile (mr rows
 * × one panel of keys) that lies in one band altogether is one product, a tile on a border is one
 * product per band that touches it and a selection. No sum depends on how items are handed out. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/attention/attention_cpu_plan.h"

enum {
    QUERY_ROWS = 96, /* rows of an item: a multiple of every mr */
    MAX_TILES = QUERY_ROWS / 4,
    STRIPE = 128 * DPE_CPU_BLOCK, /* keys that are packed at a time */
    ALIGN = 16, /* floats */
};

/* Where things lie in the workspace, in floats. The same arithmetic for the largest call (estimate)
 * and for the call at hand, which therefore fits. */
struct layout {
    struct dpe_rotated_copies q, k;
    int64_t kv_heads_at_once, group; /* group: query heads of a KV head */
    int64_t stripe, panels, panel_floats, pack_floats, width; /* keys and panels of a stripe */
    int64_t copies_per_kv_head; /* packed key copies */
    bool pack_v;                /* rows of V are not whole vectors, or are unpacked from a dpe_kv */
    bool stripes;               /* several: every item has a state of its own, else every thread */
    uint64_t k_at, v_at, state_at, thread_at, total;
    uint64_t state_floats; /* o [QUERY_ROWS][width], reference [QUERY_ROWS], sum [QUERY_ROWS] */
    uint64_t q_floats, s_at, mixed_at, rotated_at, tile_at, select_at, thread_floats;
};

struct call {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    struct layout layout;
    int64_t keys;  /* start + rows */
    float *factor; /* [rows up to a whole item] base-2 logit of a dot product */
    float *packed_k, *packed_v, *states, *threads;
};

/* One (query block, query head) and the buffers of the thread that works on it. */
struct item {
    const struct call *call;
    int64_t begin, end;              /* keys of the stripe */
    int64_t head, slot, row, n_rows; /* slot: KV head among those packed now */
    float *q, *o, *reference, *sum, *s, *mixed, *rotated, *tile;
    uint32_t *select;
};

/* One tile row of an item: queries first … last. */
struct tile_row {
    int64_t index, first, last;
    struct dpe_reach reach[DPE_MAX_BANDS];
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static void layout_thread(const struct dpe_cpu_kernels *kernels, int64_t head_dim,
                          struct layout *layout)
{
    uint64_t d = (uint64_t)head_dim;
    uint64_t tiles = (uint64_t)(QUERY_ROWS / kernels->mr);
    uint64_t total = 0;
    layout->q_floats = tiles * (uint64_t)layout->pack_floats;
    dpe_place(&total, layout->q_floats * (uint64_t)layout->q.n);
    layout->s_at = dpe_place(&total, (uint64_t)(kernels->mr * DPE_CPU_BLOCK));
    layout->mixed_at = dpe_place(&total, (uint64_t)(kernels->mr * kernels->panel));
    layout->rotated_at = dpe_place(&total, (uint64_t)kernels->panel * d);
    layout->tile_at = dpe_place(&total, (uint64_t)kernels->panel * d);
    layout->select_at = dpe_place(&total, d / 2);
    layout->thread_floats = total;
}

/* What the layout depends on. */
struct extent {
    int64_t n_heads, n_kv_heads, head_dim, rows, keys;
    int n_threads;
    bool unpacks; /* keys and values lie in a dpe_kv */
};

static struct layout lay_out(const struct dpe_cpu_kernels *kernels, const struct extent *extent,
                             struct dpe_rotated_copies q, struct dpe_rotated_copies k)
{
    struct layout layout = {.q = q, .k = k};
    int64_t d = extent->head_dim;
    layout.group = extent->n_heads / extent->n_kv_heads;
    layout.kv_heads_at_once =
        extent->n_threads < extent->n_kv_heads ? extent->n_threads : extent->n_kv_heads;
    layout.stripes = extent->keys > STRIPE;
    layout.stripe = layout.stripes ? STRIPE : round_up(extent->keys, kernels->panel);
    layout.panels = layout.stripe / kernels->panel;
    layout.panel_floats = d * kernels->panel;
    layout.pack_floats = round_up(d * kernels->mr + kernels->lanes, ALIGN);
    layout.width = round_up(d, kernels->lanes);
    layout.pack_v = layout.width != d || extent->unpacks;
    layout.state_floats = QUERY_ROWS * ((uint64_t)layout.width + 2);
    layout.copies_per_kv_head = k.n - k.n_per_head + k.n_per_head * layout.group;
    layout_thread(kernels, d, &layout);
    uint64_t heads = (uint64_t)layout.kv_heads_at_once;
    uint64_t k_floats = dpe_bytes_times((uint64_t)layout.panels, (uint64_t)layout.panel_floats);
    k_floats = dpe_bytes_times(k_floats, heads * (uint64_t)layout.copies_per_kv_head);
    uint64_t v_floats = dpe_bytes_times((uint64_t)layout.stripe, heads * (uint64_t)layout.width);
    uint64_t items = heads * (uint64_t)layout.group;
    items = dpe_bytes_times(items, (uint64_t)(round_up(extent->rows, QUERY_ROWS) / QUERY_ROWS));
    uint64_t states = (uint64_t)extent->n_threads;
    states = layout.stripes && items > states ? items : states;
    dpe_place(&layout.total, (uint64_t)round_up(extent->rows, QUERY_ROWS));
    layout.k_at = dpe_place(&layout.total, k_floats);
    layout.v_at = dpe_place(&layout.total, layout.pack_v ? v_floats : 0);
    layout.state_at = dpe_place(&layout.total, dpe_bytes_times(states, layout.state_floats));
    uint64_t threads = dpe_bytes_times(layout.thread_floats, (uint64_t)extent->n_threads);
    layout.thread_at = dpe_place(&layout.total, threads);
    return layout;
}

uint64_t dpe_cpu_attention_workspace(const struct dpe_cpu_kernels *kernels,
                                     const struct dpe_config *config, const struct dpe_plan *plan,
                                     int64_t keys, int64_t rows, int n_threads)
{
    const struct extent most = {
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
        .rows = rows,
        .keys = keys,
        .n_threads = n_threads,
        .unpacks = true, /* whether or not: the same estimate for every cache */
    };
    if (dpe_selects(&plan->selection)) {
        return dpe_cpu_select_workspace(config, plan, keys, rows, n_threads);
    }
    struct dpe_rotated_copies copies = dpe_rotated_most(plan);
    struct layout layout = lay_out(kernels, &most, copies, copies);
    uint64_t many = rows > DPE_CPU_DECODE_ROWS ? dpe_bytes_times(layout.total, sizeof(float)) : 0;
    uint64_t few = dpe_cpu_decode_workspace(config, plan, keys, n_threads);
    return many > few ? many : few;
}

/* ------------------------------------------------------------------------------------- keys */

/* The packed panel of keys n0 … of copy c for a query head; n0 a multiple of panel. */
static float *key_panel(const struct item *item, int64_t head_in_group, int c, int64_t n0)
{
    const struct call *call = item->call;
    const struct layout *layout = &call->layout;
    int64_t index = 0;
    for (int i = 0; i < c; i++) {
        index += layout->k.copies[i].per_head ? layout->group : 1;
    }
    index += layout->k.copies[c].per_head ? head_in_group : 0;
    int64_t panel =
        (item->slot * layout->copies_per_kv_head + index) * layout->panels +
        (n0 - item->begin) / call->kernels->panel;
    return call->packed_k + panel * layout->panel_floats;
}

/* Whether some query of the call meets keys n0 … n1 in a band that uses copy c. */
static bool copy_needed(const struct call *call, int c, int64_t n0, int64_t n1)
{
    const struct dpe_attention *args = call->args;
    for (int b = 0; b < args->plan->n_bands; b++) {
        struct dpe_reach reach =
            dpe_band_reach(args->plan, b, args->start, args->start + args->rows - 1);
        if (call->layout.k.of_band[b] == c && n0 < reach.any_hi && n1 > reach.any_lo) {
            return true;
        }
    }
    return false;
}

/* Rotate and pack one panel of one copy. */
static void pack_key_panel(const struct item *item, int64_t kv_head, int64_t head_in_group, int c,
                           int64_t n0)
{
    const struct call *call = item->call;
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    int64_t count = call->keys - n0 < call->kernels->panel ? call->keys - n0 : call->kernels->panel;
    int64_t next = 0;
    for (int64_t n = n0; n < n0 + count; n = next) {
        int64_t row = dpe_key_row(args, 0, n, &next);
        next = next < n0 + count ? next : n0 + count;
        struct dpe_cpu_rotation rotation = dpe_copy_rotation(
            args, &call->layout.k.copies[c], args->rotation->k_table[0], n, item->select);
        const float *keys =
            dpe_attention_rows(args, DPE_KV_KEYS, kv_head, row, next - n, item->tile);
        call->kernels->rotate(&rotation, keys, d, next - n, item->rotated + (n - n0) * d);
    }
    call->kernels->pack_panel(item->rotated, d, count, d,
                              key_panel(item, head_in_group, c, n0));
}

/* All copies of the keys of one block of one KV head, and its rows of V where they are packed. */
static void pack_block(const struct item *item, int64_t kv_head, int64_t n0)
{
    const struct call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    int64_t end = call->keys - n0 < DPE_CPU_BLOCK ? call->keys : n0 + DPE_CPU_BLOCK;
    int64_t d = args->head_dim;
    bool needed = false;
    /* All copies of a panel in turn: its keys and its rows of the tables stay close by. */
    for (int64_t n = n0; n < end; n += call->kernels->panel) {
        for (int c = 0; c < layout->k.n; c++) {
            bool masked = layout->k.copies[c].per_head;
            int64_t variants = copy_needed(call, c, n, n + call->kernels->panel) ? 1 : 0;
            needed = needed || variants > 0;
            variants *= masked ? layout->group : 1;
            for (int64_t g = 0; g < variants; g++) {
                if (masked) {
                    dpe_copy_select(args, kv_head * layout->group + g, item->select);
                }
                pack_key_panel(item, kv_head, g, c, n);
            }
        }
    }
    int64_t next = 0;
    for (int64_t n = n0; n < end && layout->pack_v && needed; n = next) {
        int64_t row = dpe_key_row(args, 0, n, &next);
        next = next < end ? next : end;
        next = next - n < call->kernels->panel ? next : n + call->kernels->panel;
        const float *from =
            dpe_attention_rows(args, DPE_KV_VALUES, kv_head, row, next - n, item->tile);
        float *to = call->packed_v + (item->slot * layout->stripe + n - item->begin) * layout->width;
        for (int64_t i = 0; i < next - n; i++) {
            memset(to + i * layout->width, 0, (size_t)layout->width * sizeof *to);
            memcpy(to + i * layout->width, from + i * d, (size_t)d * sizeof *to);
        }
    }
}

/* ---------------------------------------------------------------------------------- queries */

static void pack_queries(const struct item *item)
{
    const struct call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    int64_t d = args->head_dim;
    int64_t ld = args->n_heads * d;
    dpe_copy_select(args, item->head, item->select);
    for (int c = 0; c < layout->q.n; c++) {
        for (int64_t r = 0; r < item->n_rows; r += call->kernels->mr) {
            int64_t n = item->n_rows - r < call->kernels->mr ? item->n_rows - r : call->kernels->mr;
            int64_t row = item->row + r;
            struct dpe_cpu_rotation rotation =
                dpe_copy_rotation(args, &layout->q.copies[c], args->rotation->q_table[0],
                                  args->start + row, item->select);
            call->kernels->rotate(&rotation, args->q + row * ld + item->head * d, ld, n,
                                  item->rotated);
            call->kernels->pack_rows(item->rotated, d, n, d,
                                     item->q + c * (int64_t)layout->q_floats +
                                         r / call->kernels->mr * layout->pack_floats);
        }
    }
}

/* Product of a tile row with one panel in one band. */
static void tile_product(const struct item *item, const struct tile_row *tile, int b, int64_t n0,
                         float *s, int64_t lds)
{
    const struct call *call = item->call;
    const struct layout *layout = &call->layout;
    const float *rows = item->q + layout->q.of_band[b] * (int64_t)layout->q_floats +
                        tile->index * layout->pack_floats;
    const float *panel =
        key_panel(item, item->head % layout->group, layout->k.of_band[b], n0);
    call->kernels->tile(rows, panel, call->args->head_dim, s, lds);
}

/* A tile on a border: what no band holds stays −∞; earlier bands win. */
static void tile_mixed(const struct item *item, const struct tile_row *tile, unsigned touching,
                       int64_t n0, float *s)
{
    const struct dpe_plan *plan = item->call->args->plan;
    int64_t panel = item->call->kernels->panel;
    for (int64_t r = 0; r < item->call->kernels->mr; r++) {
        for (int64_t c = 0; c < panel; c++) {
            s[r * DPE_CPU_BLOCK + c] = -INFINITY;
        }
    }
    for (int b = plan->n_bands - 1; b >= 0; b--) {
        if ((touching >> b & 1U) == 0) {
            continue;
        }
        tile_product(item, tile, b, n0, item->mixed, panel);
        for (int64_t m = tile->first; m <= tile->last; m++) {
            struct dpe_reach reach = dpe_band_reach(plan, b, m, m);
            int64_t lo = reach.any_lo > n0 ? reach.any_lo - n0 : 0;
            int64_t hi = reach.any_hi < n0 + panel ? reach.any_hi - n0 : panel;
            int64_t r = m - tile->first;
            if (lo < hi) {
                memcpy(s + r * DPE_CPU_BLOCK + lo, item->mixed + r * panel + lo,
                       (size_t)(hi - lo) * sizeof *s);
            }
        }
    }
}

/* Keys of a step of the softmax: spans that all rows of the tile may see, and those after the
 * tile's first query, which rows before them must not touch (their values may not be finite). */
struct step {
    int64_t columns, n_late;
    struct dpe_cpu_spans seen;
    int64_t late_key[DPE_CPU_MAX_MR], late_column[DPE_CPU_MAX_MR];
};

/* Where the row of V of key n lies: packed by position in the stripe, or in the cache. */
static int64_t value_row(const struct item *item, int64_t n, int64_t *next)
{
    const struct call *call = item->call;
    if (call->layout.pack_v) {
        *next = INT64_MAX;
        return n - item->begin;
    }
    return dpe_key_row(call->args, 0, n, next);
}

static void step_add(const struct item *item, struct step *step, const struct tile_row *tile,
                     int64_t n0, int64_t panel)
{
    int64_t end = n0 + panel < tile->first + 1 ? n0 + panel : tile->first + 1;
    int64_t next = 0;
    for (int64_t n = n0; n < end; n = next) {
        int64_t row = value_row(item, n, &next);
        next = next < end ? next : end;
        dpe_cpu_add_span(&step->seen, step->columns + n - n0, row, next - n);
    }
    int64_t late = n0 > tile->first + 1 ? n0 : tile->first + 1;
    for (; late < n0 + panel && late <= tile->last; late++) {
        step->late_key[step->n_late] = late;
        step->late_column[step->n_late++] = step->columns + late - n0;
    }
    step->columns += panel;
}

/* One tile row against the keys n0 … n0 + DPE_CPU_BLOCK − 1. */
static void attend(const struct item *item, const struct tile_row *tile, int64_t n0)
{
    const struct call *call = item->call;
    const struct dpe_cpu_kernels *kernels = call->kernels;
    const struct layout *layout = &call->layout;
    int n_bands = call->args->plan->n_bands;
    int64_t end = tile->last + 1 < n0 + DPE_CPU_BLOCK ? tile->last + 1 : n0 + DPE_CPU_BLOCK;
    struct step step;
    step.columns = step.seen.n = step.n_late = 0;
    int block_whole = -1;
    if (dpe_cpu_touching_bands(tile->reach, n_bands, n0, n0 + DPE_CPU_BLOCK, &block_whole) == 0) {
        return;
    }
    for (int64_t n = n0; n < end; n += kernels->panel) {
        int whole = block_whole;
        unsigned touching = 1;
        if (whole < 0) {
            touching = dpe_cpu_touching_bands(tile->reach, n_bands, n, n + kernels->panel, &whole);
        }
        if (touching == 0) {
            continue;
        }
        if (whole >= 0) {
            tile_product(item, tile, whole, n, item->s + step.columns, DPE_CPU_BLOCK);
        } else {
            tile_mixed(item, tile, touching, n, item->s + step.columns);
        }
        step_add(item, &step, tile, n, kernels->panel);
    }
    if (step.columns == 0) {
        return;
    }
    int64_t r = tile->index * kernels->mr;
    float alpha[DPE_CPU_MAX_MR];
    struct dpe_cpu_softmax state = {call->factor + item->row + r, item->reference + r,
                                    item->sum + r, alpha};
    if (call->args->plan->attention_cap > 0.0) {
        for (int64_t i = 0; i < kernels->mr; i++) {
            dpe_cap_logits(kernels, call->args->plan, state.factor[i], step.columns,
                           item->s + i * DPE_CPU_BLOCK);
        }
    }
    kernels->softmax(&state, kernels->mr, step.columns, item->s);
    int64_t kv_head = item->head / layout->group;
    const float *v = layout->pack_v
                         ? call->packed_v + item->slot * layout->stripe * layout->width
                         : call->args->v + kv_head * call->args->capacity * layout->width;
    float *o = item->o + r * layout->width;
    kernels->accumulate(item->s, &step.seen, v, alpha, o, layout->width);
    for (int64_t i = 0; i < step.n_late; i++) {
        int64_t next = 0;
        const float *late = v + value_row(item, step.late_key[i], &next) * layout->width;
        kernels->accumulate_row(item->s + step.late_column[i], step.late_key[i] - tile->first, late,
                                o, layout->width);
    }
}

static void write_rows(const struct item *item)
{
    int64_t width = item->call->layout.width;
    for (int64_t r = 0; r < item->n_rows; r++) {
        dpe_cpu_write_head(item->call->args, item->row + r, item->head, item->o + r * width,
                           item->reference[r], item->sum[r]);
    }
}

static void run_item(const struct item *item)
{
    const struct call *call = item->call;
    const struct dpe_plan *plan = call->args->plan;
    int64_t mr = call->kernels->mr;
    struct tile_row tiles[MAX_TILES];
    int64_t n_tiles = (item->n_rows + mr - 1) / mr;
    int64_t lo = INT64_MAX;
    int64_t hi = 0;
    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t last = (t + 1) * mr < item->n_rows ? (t + 1) * mr : item->n_rows;
        int64_t base = call->args->start + item->row;
        tiles[t].index = t;
        tiles[t].first = base + t * mr;
        tiles[t].last = base + last - 1;
        for (int b = 0; b < plan->n_bands; b++) {
            tiles[t].reach[b] = dpe_band_reach(plan, b, tiles[t].first, tiles[t].last);
            lo = tiles[t].reach[b].any_lo < lo ? tiles[t].reach[b].any_lo : lo;
            hi = tiles[t].reach[b].any_hi > hi ? tiles[t].reach[b].any_hi : hi;
        }
    }
    if (item->begin == 0) {
        memset(item->o, 0, (size_t)(QUERY_ROWS * call->layout.width) * sizeof *item->o);
        for (int64_t r = 0; r < QUERY_ROWS; r++) {
            item->reference[r] = -INFINITY;
            item->sum[r] = 0.0F;
        }
    }
    lo = lo > item->begin ? lo / DPE_CPU_BLOCK * DPE_CPU_BLOCK : item->begin;
    hi = hi < item->end ? hi : item->end;
    if (lo < hi) {
        pack_queries(item);
    }
    for (int64_t n0 = lo; n0 < hi; n0 += DPE_CPU_BLOCK) {
        for (int64_t t = 0; t < n_tiles; t++) {
            attend(item, &tiles[t], n0);
        }
    }
    if (item->end == call->keys) {
        write_rows(item);
    }
}

/* ------------------------------------------------------------------------------------- call */

static struct item thread_item(const struct call *call)
{
    const struct layout *layout = &call->layout;
    float *base = call->threads + (uint64_t)omp_get_thread_num() * layout->thread_floats;
    struct item item = {
        .call = call,
        .q = base,
        .s = base + layout->s_at,
        .mixed = base + layout->mixed_at,
        .rotated = base + layout->rotated_at,
        .tile = base + layout->tile_at,
        .select = (uint32_t *)(void *)(base + layout->select_at),
    };
    return item;
}

/* The state of an item, which with several stripes outlives the stripe. */
static void use_state(struct item *item, int64_t index)
{
    const struct layout *layout = &item->call->layout;
    index = layout->stripes ? index : omp_get_thread_num();
    item->o = item->call->states + (uint64_t)index * layout->state_floats;
    item->reference = item->o + QUERY_ROWS * layout->width;
    item->sum = item->reference + QUERY_ROWS;
}

/* The keys of a stripe of n_kv KV heads from kv on, then all queries of their heads. By all threads. */
static void run_stripe(struct item *item, int64_t kv, int64_t n_kv)
{
    const struct call *call = item->call;
    const struct dpe_attention *args = call->args;
    int64_t group = call->layout.group;
    int64_t blocks = round_up(item->end - item->begin, DPE_CPU_BLOCK) / DPE_CPU_BLOCK;
    int64_t row_blocks = round_up(args->rows, QUERY_ROWS) / QUERY_ROWS;
    int64_t heads = n_kv * group;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < n_kv * blocks; i++) {
        /* KV heads innermost: they share the rows of the tables. */
        item->slot = i % n_kv;
        pack_block(item, kv + item->slot, item->begin + i / n_kv * DPE_CPU_BLOCK);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads * row_blocks; i++) {
        item->row = (row_blocks - 1 - i / heads) * QUERY_ROWS;
        item->n_rows = args->rows - item->row < QUERY_ROWS ? args->rows - item->row : QUERY_ROWS;
        item->head = kv * group + i % heads;
        item->slot = item->head / group - kv;
        use_state(item, i);
        run_item(item);
    }
}

static void attention_many(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args)
{
    struct call call = {.kernels = kernels, .args = args, .keys = args->start + args->rows};
    const struct extent extent = {
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .rows = args->rows,
        .keys = call.keys,
        .n_threads = args->n_threads,
        .unpacks = args->kv != NULL,
    };
    call.layout = lay_out(kernels, &extent, dpe_rotated_find(args->plan, args->rotation, false),
                          dpe_rotated_find(args->plan, args->rotation, true));
    const struct layout *layout = &call.layout;
    call.factor = args->workspace;
    call.packed_k = call.factor + layout->k_at;
    call.packed_v = call.factor + layout->v_at;
    call.states = call.factor + layout->state_at;
    call.threads = call.factor + layout->thread_at;
    for (int64_t r = 0; r < round_up(args->rows, QUERY_ROWS); r++) {
        int64_t row = r < args->rows ? r : args->rows - 1;
        call.factor[r] = (float)(dpe_plan_query_scale(args->plan, args->start + row) * LOG2_E);
    }
#pragma omp parallel num_threads(args->n_threads)
    {
        struct item item = thread_item(&call);
        for (int64_t kv = 0; kv < args->n_kv_heads; kv += layout->kv_heads_at_once) {
            int64_t left = args->n_kv_heads - kv;
            int64_t n_kv = left < layout->kv_heads_at_once ? left : layout->kv_heads_at_once;
            for (item.begin = 0; item.begin < call.keys; item.begin = item.end) {
                item.end = call.keys - item.begin > STRIPE ? item.begin + STRIPE : call.keys;
                run_stripe(&item, kv, n_kv);
            }
        }
    }
}

void dpe_cpu_attention(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args)
{
    if (dpe_selects(&args->plan->selection)) {
        dpe_cpu_attention_select(kernels, args);
    } else if (args->rows <= DPE_CPU_DECODE_ROWS || args->positions != NULL) {
        dpe_cpu_attention_decode(kernels, args);
    } else {
        attention_many(kernels, args);
    }
}
