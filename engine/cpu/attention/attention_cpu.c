/* Attention for many rows: blocked online softmax over packed panels.
 *
 * A few KV heads and a stripe of keys at a time: first all threads pack the rotated copies of the
 * keys into panels (copies without a mask once per KV head, masked ones once per query head), then
 * every (query block, query head) is one item, longest first. The softmax of an item goes on in the
 * next stripe, so that the workspace does not grow with the keys beyond one. An item walks the keys
 * in blocks; a tile (mr rows × one panel of keys) that lies in one band altogether is one product,
 * a tile on a border is one product per band that touches it and a selection. No sum depends on how
 * items are handed out.
 *
 * In bfloat16 (struct dpe_cpu_bf16) rotated queries and keys, probabilities and V are rounded, and
 * two of them stand in the place of a float. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

unsigned dpe_cpu_touching_bands(const struct dpe_reach *reach, int n_bands, int64_t n0, int64_t n1,
                                int *whole)
{
    unsigned touching = 0;
    *whole = -1;
    for (int b = 0; b < n_bands; b++, reach++) {
        if (n0 >= reach->any_hi || n1 <= reach->any_lo || reach->any_lo >= reach->any_hi) {
            continue;
        }
        bool all = n0 >= reach->all_lo && n1 <= reach->all_hi;
        *whole = all && touching == 0 ? b : *whole;
        touching |= 1U << b;
        if (all) {
            break;
        }
    }
    return touching;
}

void dpe_cpu_add_span(struct dpe_cpu_spans *spans, int64_t column, int64_t row, int64_t count)
{
    struct dpe_cpu_span *last = spans->n > 0 ? &spans->spans[spans->n - 1] : NULL;
    if (last != NULL && last->row + last->count == row && last->column + last->count == column) {
        last->count += count;
    } else {
        spans->spans[spans->n++] = (struct dpe_cpu_span){column, row, count};
    }
}

enum { MAX_TILES = DPE_CPU_QUERY_ROWS / 4 };

/* One tile row of an item: queries first … last. */
struct tile_row {
    int64_t index, first, last;
    struct dpe_reach reach[DPE_MAX_BANDS];
};

uint64_t dpe_cpu_attention_workspace(const struct dpe_cpu_kernels *kernels,
                                     const struct dpe_cpu_bf16 *bf16,
                                     const struct dpe_config *config, const struct dpe_plan *plan,
                                     int64_t keys, int64_t rows, int n_threads)
{
    const struct dpe_attention most = dpe_cpu_attention_sized(config, plan, rows, n_threads);
    const struct dpe_cpu_call call = {
        .kernels = kernels, .bf16 = bf16, .args = &most, .keys = keys};
    if (dpe_selects(&plan->selection)) {
        return dpe_cpu_select_workspace(config, plan, keys, rows, n_threads);
    }
    struct dpe_rotated_copies copies = dpe_rotated_most(plan);
    /* Whether it unpacks or not: the same estimate for every cache. */
    struct dpe_cpu_layout layout = dpe_cpu_lay_out(&call, true, copies, copies);
    uint64_t many = rows > DPE_CPU_DECODE_ROWS ? dpe_bytes_times(layout.total, sizeof(float)) : 0;
    uint64_t few = dpe_cpu_decode_workspace(config, plan, keys, n_threads);
    return many > few ? many : few;
}

/* Product of a tile row with one panel in one band. */
static void tile_product(const struct dpe_cpu_item *item, const struct tile_row *tile, int b,
                         int64_t n0, float *s, int64_t lds)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_cpu_layout *layout = &call->layout;
    const float *rows = item->q + layout->q.of_band[b] * (int64_t)layout->q_floats +
                        tile->index * layout->pack_floats;
    const float *panel =
        dpe_cpu_key_panel(item, item->head % layout->group, layout->k.of_band[b], n0);
    (call->bf16 != NULL ? call->bf16->tile : call->kernels->tile)(
        rows, panel, call->args->head_dim / layout->pair, s, lds);
}

/* A tile on a border: what no band holds stays −∞; earlier bands win. */
static void tile_mixed(const struct dpe_cpu_item *item, const struct tile_row *tile,
                       unsigned touching, int64_t n0, float *s)
{
    const struct dpe_plan *plan = item->call->args->plan;
    int64_t panel = item->call->kernels->panel;
    for (int64_t r = 0; r < item->call->layout.mr; r++) {
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
 * tile's first query, which rows before them must not touch (their values may not be finite). In
 * bfloat16 spans and late columns count pairs of keys, and of those that are added together
 * (layout.late) all are late when the first query does not see the last. */
struct step {
    int64_t columns, n_late; /* columns: keys */
    struct dpe_cpu_spans seen;
    int64_t late_key[DPE_CPU_MOST_MR], late_column[DPE_CPU_MOST_MR];
};

/* Where the row of V of key n (of the pair from n on) lies: packed by position in the stripe, or in
 * the cache. */
static int64_t value_row(const struct dpe_cpu_item *item, int64_t n, int64_t *next)
{
    const struct dpe_cpu_call *call = item->call;
    if (call->layout.pack_v) {
        *next = INT64_MAX;
        return (n - item->begin) / call->layout.pair;
    }
    return dpe_key_row(call->args, 0, n, next);
}

static void step_add(const struct dpe_cpu_item *item, struct step *step,
                     const struct tile_row *tile, int64_t n0, int64_t panel)
{
    int64_t pair = item->call->layout.pair;
    int64_t together = item->call->layout.late;
    int64_t seen_end = (tile->first + 1) / together * together; /* by all rows */
    int64_t end = n0 + panel < seen_end ? n0 + panel : seen_end;
    int64_t next = 0;
    for (int64_t n = n0; n < end; n = next) {
        int64_t row = value_row(item, n, &next);
        next = next < end ? next : end;
        dpe_cpu_add_span(&step->seen, (step->columns + n - n0) / pair, row, (next - n) / pair);
    }
    int64_t late = n0 > seen_end ? n0 : seen_end;
    for (; late < n0 + panel && late <= tile->last; late += together) {
        step->late_key[step->n_late] = late;
        step->late_column[step->n_late++] = (step->columns + late - n0) / pair;
    }
    step->columns += panel;
}

/* Probabilities times V of a step; earlier sums are multiplied with alpha [mr]. */
static void accumulate(const struct dpe_cpu_item *item, const struct tile_row *tile,
                       const struct step *step, const float *alpha)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_cpu_kernels *kernels = call->kernels;
    const struct dpe_cpu_bf16 *bf16 = call->bf16;
    const struct dpe_cpu_layout *layout = &call->layout;
    int64_t width = layout->width;
    int64_t kv_head = item->head / layout->group;
    const float *v = layout->pack_v
                         ? call->packed_v + item->slot * layout->stripe / layout->pair * width
                         : call->args->v + kv_head * call->args->capacity * width;
    float *o = item->o + tile->index * layout->mr * width;
    for (int64_t r = 0; r < layout->mr && bf16 != NULL; r++) {
        float *p = item->s + r * DPE_CPU_BLOCK;
        bf16->halve(p, step->columns, p);
    }
    (bf16 != NULL ? bf16->accumulate : kernels->accumulate)(item->s, &step->seen, v, alpha, o,
                                                            width);
    for (int64_t i = 0; i < step->n_late; i++) {
        int64_t next = 0;
        const float *late = v + value_row(item, step->late_key[i], &next) * width;
        (bf16 != NULL ? bf16->accumulate_late : kernels->accumulate_row)(
            item->s + step->late_column[i], step->late_key[i] - tile->first, late, o, width);
    }
}

/* `rows` rows of the item from r on, all of them of one tile row: s becomes probabilities. */
static void softmax(const struct dpe_cpu_item *item, int64_t r, int64_t rows,
                    const struct step *step, float *alpha)
{
    const struct dpe_cpu_call *call = item->call;
    float *s = item->s + r % call->layout.mr * DPE_CPU_BLOCK;
    struct dpe_cpu_softmax state = {call->factor + item->row + r, item->reference + r,
                                    item->sum + r, alpha};
    for (int64_t i = 0; i < rows && call->args->plan->attention_cap > 0.0; i++) {
        dpe_cap_logits(call->kernels, call->args->plan, state.factor[i], step->columns,
                       s + i * DPE_CPU_BLOCK);
    }
    call->kernels->softmax(&state, rows, step->columns, s);
}

/* One tile row against the keys n0 … n0 + DPE_CPU_BLOCK − 1. */
static void attend(const struct dpe_cpu_item *item, const struct tile_row *tile, int64_t n0)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_cpu_kernels *kernels = call->kernels;
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
    float alpha[DPE_CPU_MOST_MR];
    for (int64_t i = 0; i < call->layout.mr; i += kernels->mr) {
        int64_t r = tile->index * call->layout.mr + i;
        int64_t rows = dpe_least(kernels->mr, call->layout.mr - i);
        softmax(item, r, rows, &step, alpha + i);
    }
    accumulate(item, tile, &step, alpha);
}

static void write_rows(const struct dpe_cpu_item *item)
{
    int64_t width = item->call->layout.width;
    for (int64_t r = 0; r < item->n_rows; r++) {
        dpe_cpu_write_head(item->call->args, item->row + r, item->head, item->o + r * width,
                           item->reference[r], item->sum[r]);
    }
}

static void run_item(const struct dpe_cpu_item *item)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_plan *plan = call->args->plan;
    int64_t mr = call->layout.mr;
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
        memset(item->o, 0, (size_t)(DPE_CPU_QUERY_ROWS * call->layout.width) * sizeof *item->o);
        for (int64_t r = 0; r < DPE_CPU_QUERY_ROWS; r++) {
            item->reference[r] = -INFINITY;
            item->sum[r] = 0.0F;
        }
    }
    lo = lo > item->begin ? lo / DPE_CPU_BLOCK * DPE_CPU_BLOCK : item->begin;
    hi = hi < item->end ? hi : item->end;
    if (lo < hi) {
        dpe_cpu_pack_queries(item);
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

static struct dpe_cpu_item thread_item(const struct dpe_cpu_call *call)
{
    const struct dpe_cpu_layout *layout = &call->layout;
    float *base = call->threads + (uint64_t)omp_get_thread_num() * layout->thread_floats;
    struct dpe_cpu_item item = {
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
static void use_state(struct dpe_cpu_item *item, int64_t index)
{
    const struct dpe_cpu_layout *layout = &item->call->layout;
    index = layout->stripes ? index : omp_get_thread_num();
    item->o = item->call->states + (uint64_t)index * layout->state_floats;
    item->reference = item->o + DPE_CPU_QUERY_ROWS * layout->width;
    item->sum = item->reference + DPE_CPU_QUERY_ROWS;
}

/* The keys of a stripe of n_kv KV heads from kv on, then all queries of their heads. By all
 * threads. */
static void run_stripe(struct dpe_cpu_item *item, int64_t kv, int64_t n_kv)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_attention *args = call->args;
    int64_t group = call->layout.group;
    int64_t blocks = dpe_cpu_round_up(item->end - item->begin, DPE_CPU_BLOCK) / DPE_CPU_BLOCK;
    int64_t row_blocks = dpe_cpu_round_up(args->rows, DPE_CPU_QUERY_ROWS) / DPE_CPU_QUERY_ROWS;
    int64_t heads = n_kv * group;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < n_kv * blocks; i++) {
        /* KV heads innermost: they share the rows of the tables. */
        item->slot = i % n_kv;
        dpe_cpu_pack_block(item, kv + item->slot, item->begin + i / n_kv * DPE_CPU_BLOCK);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads * row_blocks; i++) {
        item->row = (row_blocks - 1 - i / heads) * DPE_CPU_QUERY_ROWS;
        item->n_rows = args->rows - item->row < DPE_CPU_QUERY_ROWS ? args->rows - item->row
                                                                   : DPE_CPU_QUERY_ROWS;
        item->head = kv * group + i % heads;
        item->slot = item->head / group - kv;
        use_state(item, i);
        run_item(item);
    }
}

static void attention_many(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16,
                           const struct dpe_attention *args)
{
    struct dpe_cpu_call call = {
        .kernels = kernels, .bf16 = bf16, .args = args, .keys = args->start + args->rows};
    call.layout = dpe_cpu_lay_out(&call, args->kv != NULL,
                                  dpe_rotated_find(args->plan, args->rotation, false),
                                  dpe_rotated_find(args->plan, args->rotation, true));
    const struct dpe_cpu_layout *layout = &call.layout;
    call.factor = args->workspace;
    call.packed_k = call.factor + layout->k_at;
    call.packed_v = call.factor + layout->v_at;
    call.states = call.factor + layout->state_at;
    call.threads = call.factor + layout->thread_at;
    for (int64_t r = 0; r < dpe_cpu_round_up(args->rows, DPE_CPU_QUERY_ROWS); r++) {
        int64_t row = r < args->rows ? r : args->rows - 1;
        call.factor[r] =
            (float)(dpe_plan_query_scale(args->plan, args->layer, args->start + row) * LOG2_E);
    }
#pragma omp parallel num_threads(args->n_threads)
    {
        struct dpe_cpu_item item = thread_item(&call);
        if (bf16 != NULL) {
            bf16->begin();
        }
        for (int64_t kv = 0; kv < args->n_kv_heads; kv += layout->kv_heads_at_once) {
            int64_t left = args->n_kv_heads - kv;
            int64_t n_kv = left < layout->kv_heads_at_once ? left : layout->kv_heads_at_once;
            for (item.begin = 0; item.begin < call.keys; item.begin = item.end) {
                item.end = call.keys - item.begin > DPE_CPU_STRIPE ? item.begin + DPE_CPU_STRIPE
                                                                   : call.keys;
                run_stripe(&item, kv, n_kv);
            }
        }
        if (bf16 != NULL) {
            bf16->end();
        }
    }
}

static bool decodes(const struct dpe_attention *args)
{
    return !dpe_selects(&args->plan->selection) &&
           (args->rows <= DPE_CPU_DECODE_ROWS || args->positions != NULL);
}

void dpe_cpu_attention(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16,
                       const struct dpe_attention *args, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t some = 0;
        while (i + some < n && decodes(&args[i + some])) {
            some++;
        }
        if (some > 0) {
            dpe_cpu_attention_decode(kernels, args + i, some);
            i += some - 1;
        } else if (dpe_selects(&args[i].plan->selection)) {
            dpe_cpu_attention_select(kernels, &args[i]);
        } else {
            attention_many(kernels, bf16, &args[i]);
        }
    }
}
