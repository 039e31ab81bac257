/* What the ways of attention share; packing for attention of many rows: keys are rotated and become
 * panels, queries row packs, V rows of whole vectors; in bfloat16 all of them pairs (struct
 * dpe_cpu_bf16). */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

enum { ALIGN = 16 /* floats */ };

void dpe_copy_select(const struct dpe_attention *args, int64_t head, uint32_t *select)
{
    const struct dpe_plan *plan = args->plan;
    if (plan->mask == NULL) {
        return;
    }
    const uint8_t *mask = plan->mask + (args->layer * plan->n_heads + head) * plan->n_pairs;
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        select[j] = mask[j] != 0 ? UINT32_MAX : 0;
    }
}

struct dpe_cpu_rotation dpe_copy_rotation(const struct dpe_attention *args,
                                          const struct dpe_rotated *copy, int base_table,
                                          int64_t first, const uint32_t *select)
{
    const struct dpe_rotation *tables = args->rotation;
    int64_t n_pairs = tables->n_pairs;
    struct dpe_cpu_rotation rotation = {
        .n_pairs = n_pairs,
        .cos = tables->cos[copy->table] + first * n_pairs,
        .sin = tables->sin[copy->table] + first * n_pairs,
    };
    if (copy->per_head) {
        rotation.base_cos = tables->cos[base_table] + first * n_pairs;
        rotation.base_sin = tables->sin[base_table] + first * n_pairs;
        rotation.select = select;
    }
    return rotation;
}

void dpe_cap_logits(const struct dpe_cpu_kernels *kernels, const struct dpe_plan *plan,
                    float factor, int64_t n, float *logits)
{
    /* factor · s is in base 2: the cap there is cap · log2 e. */
    float base2 = (float)(plan->attention_cap * LOG2_E);
    kernels->cap(logits, n, factor / base2, base2 / factor);
}

uint64_t dpe_place(uint64_t *total, uint64_t floats)
{
    uint64_t at = *total;
    uint64_t padded = dpe_bytes_plus(floats, ALIGN - 1) / ALIGN * ALIGN;
    *total = dpe_bytes_plus(at, padded);
    return at;
}

void dpe_cpu_write_head(const struct dpe_attention *args, int64_t row, int64_t head, const float *o,
                        float reference, float sum)
{
    int64_t at = row * args->n_heads + head;
    float inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t i = 0; i < args->head_dim; i++) {
        args->out[at * args->head_dim + i] = o[i] * inverse;
    }
    if (args->lse != NULL) {
        args->lse[at] =
            sum == 0.0F ? -INFINITY : (float)((double)reference / LOG2_E + log((double)sum));
    }
}

static void layout_thread(const struct dpe_cpu_kernels *kernels, int64_t head_dim,
                          struct dpe_cpu_layout *layout)
{
    uint64_t d = (uint64_t)head_dim;
    uint64_t tiles = (uint64_t)(DPE_CPU_QUERY_ROWS / layout->mr);
    uint64_t total = 0;
    layout->q_floats = tiles * (uint64_t)layout->pack_floats;
    dpe_place(&total, layout->q_floats * (uint64_t)layout->q.n);
    layout->s_at = dpe_place(&total, (uint64_t)(layout->mr * DPE_CPU_BLOCK));
    layout->mixed_at = dpe_place(&total, (uint64_t)(layout->mr * kernels->panel));
    layout->rotated_at = dpe_place(&total, (uint64_t)kernels->panel * d);
    layout->tile_at = dpe_place(&total, (uint64_t)kernels->panel * d);
    layout->select_at = dpe_place(&total, d / 2);
    layout->thread_floats = total;
}

struct dpe_cpu_layout dpe_cpu_lay_out(const struct dpe_cpu_call *call, bool unpacks,
                                      struct dpe_rotated_copies q, struct dpe_rotated_copies k)
{
    const struct dpe_cpu_kernels *kernels = call->kernels;
    const struct dpe_attention *args = call->args;
    struct dpe_cpu_layout layout = {.q = q, .k = k};
    int64_t d = args->head_dim;
    layout.group = args->n_heads / args->n_kv_heads;
    layout.kv_heads_at_once =
        args->n_threads < args->n_kv_heads ? args->n_threads : args->n_kv_heads;
    layout.stripes = call->keys > DPE_CPU_STRIPE;
    layout.stripe = layout.stripes ? DPE_CPU_STRIPE : dpe_cpu_round_up(call->keys, kernels->panel);
    layout.panels = layout.stripe / kernels->panel;
    layout.mr = dpe_cpu_mr(kernels, call->bf16);
    layout.pair = call->bf16 != NULL ? 2 : 1;
    layout.late = call->bf16 != NULL ? call->bf16->keys : 1;
    layout.panel_floats = d / layout.pair * kernels->panel;
    layout.pack_floats = dpe_cpu_pack_floats(kernels, call->bf16, d / layout.pair);
    layout.width = dpe_cpu_round_up(d, kernels->lanes);
    layout.pack_v = layout.width != d || unpacks || call->bf16 != NULL;
    layout.state_floats = DPE_CPU_QUERY_ROWS * ((uint64_t)layout.width + 2);
    layout.copies_per_kv_head = k.n - k.n_per_head + k.n_per_head * layout.group;
    layout_thread(kernels, d, &layout);
    uint64_t heads = (uint64_t)layout.kv_heads_at_once;
    uint64_t k_floats = dpe_bytes_times((uint64_t)layout.panels, (uint64_t)layout.panel_floats);
    k_floats = dpe_bytes_times(k_floats, heads * (uint64_t)layout.copies_per_kv_head);
    uint64_t v_floats =
        dpe_bytes_times((uint64_t)(layout.stripe / layout.pair), heads * (uint64_t)layout.width);
    uint64_t items = heads * (uint64_t)layout.group;
    items = dpe_bytes_times(
        items, (uint64_t)(dpe_cpu_round_up(args->rows, DPE_CPU_QUERY_ROWS) / DPE_CPU_QUERY_ROWS));
    uint64_t states = (uint64_t)args->n_threads;
    states = layout.stripes && items > states ? items : states;
    dpe_place(&layout.total, (uint64_t)dpe_cpu_round_up(args->rows, DPE_CPU_QUERY_ROWS));
    layout.k_at = dpe_place(&layout.total, k_floats);
    layout.v_at = dpe_place(&layout.total, layout.pack_v ? v_floats : 0);
    layout.state_at = dpe_place(&layout.total, dpe_bytes_times(states, layout.state_floats));
    uint64_t threads = dpe_bytes_times(layout.thread_floats, (uint64_t)args->n_threads);
    layout.thread_at = dpe_place(&layout.total, threads);
    return layout;
}

float *dpe_cpu_key_panel(const struct dpe_cpu_item *item, int64_t head_in_group, int c, int64_t n0)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_cpu_layout *layout = &call->layout;
    int64_t index = 0;
    for (int i = 0; i < c; i++) {
        index += layout->k.copies[i].per_head ? layout->group : 1;
    }
    index += layout->k.copies[c].per_head ? head_in_group : 0;
    int64_t panel = (item->slot * layout->copies_per_kv_head + index) * layout->panels +
                    (n0 - item->begin) / call->kernels->panel;
    return call->packed_k + panel * layout->panel_floats;
}

/* Whether some query of the call meets keys n0 … n1 in a band that uses copy c. */
static bool copy_needed(const struct dpe_cpu_call *call, int c, int64_t n0, int64_t n1)
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

/* `rows` rotated rows in item->rotated become pairs where the call is in bfloat16: columns of a row
 * pack or panel. */
static int64_t halve_rows(const struct dpe_cpu_item *item, int64_t rows)
{
    const struct dpe_cpu_call *call = item->call;
    int64_t d = call->args->head_dim;
    if (call->bf16 == NULL) {
        return d;
    }
    /* All rows as one: d is even, and pairs lie before what is still to be read. */
    call->bf16->halve(item->rotated, rows * d, item->rotated);
    return d / 2;
}

/* Rotate and pack one panel of one copy. */
static void pack_key_panel(const struct dpe_cpu_item *item, int64_t kv_head, int64_t head_in_group,
                           int c, int64_t n0)
{
    const struct dpe_cpu_call *call = item->call;
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
    int64_t columns = halve_rows(item, count);
    call->kernels->pack_panel(item->rotated, columns, count, columns,
                              dpe_cpu_key_panel(item, head_in_group, c, n0));
}

/* The rows of V of the keys n … end−1 ≤ n + panel; n is a multiple of panel. */
static void pack_values(const struct dpe_cpu_item *item, int64_t kv_head, int64_t n, int64_t end)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_layout *layout = &call->layout;
    int64_t d = args->head_dim;
    int64_t count = end - n;
    float *to = call->packed_v +
                (item->slot * layout->stripe + n - item->begin) / layout->pair * layout->width;
    float *rows = call->bf16 != NULL ? item->rotated : to;
    int64_t ld = call->bf16 != NULL ? d : layout->width;
    memset(to, 0,
           (size_t)(dpe_cpu_round_up(count, layout->late) / layout->pair * layout->width) *
               sizeof *to);
    for (int64_t next = 0, i = 0; i < count; i = next - n) {
        int64_t row = dpe_key_row(args, 0, n + i, &next);
        next = next < end ? next : end;
        const float *from =
            dpe_attention_rows(args, DPE_KV_VALUES, kv_head, row, next - n - i, item->tile);
        for (int64_t r = i; r < next - n; r++) {
            memcpy(rows + r * ld, from + (r - i) * d, (size_t)d * sizeof *rows);
        }
    }
    for (int64_t i = 0; i < count && call->bf16 != NULL; i += 2) {
        call->bf16->pair(rows + i * d, i + 1 < count ? rows + (i + 1) * d : NULL, d,
                         to + i / 2 * layout->width);
    }
}

void dpe_cpu_pack_block(const struct dpe_cpu_item *item, int64_t kv_head, int64_t n0)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_layout *layout = &call->layout;
    int64_t end = call->keys - n0 < DPE_CPU_BLOCK ? call->keys : n0 + DPE_CPU_BLOCK;
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
    for (int64_t n = n0; n < end && layout->pack_v && needed; n += call->kernels->panel) {
        int64_t last = end - n < call->kernels->panel ? end : n + call->kernels->panel;
        pack_values(item, kv_head, n, last);
    }
}

void dpe_cpu_pack_queries(const struct dpe_cpu_item *item)
{
    const struct dpe_cpu_call *call = item->call;
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_layout *layout = &call->layout;
    int64_t d = args->head_dim;
    int64_t ld = args->n_heads * d;
    dpe_copy_select(args, item->head, item->select);
    for (int c = 0; c < layout->q.n; c++) {
        for (int64_t r = 0; r < item->n_rows; r += layout->mr) {
            int64_t n = dpe_least(item->n_rows - r, layout->mr);
            int64_t row = item->row + r;
            struct dpe_cpu_rotation rotation =
                dpe_copy_rotation(args, &layout->q.copies[c], args->rotation->q_table[0],
                                  args->start + row, item->select);
            call->kernels->rotate(&rotation, args->q + row * ld + item->head * d, ld, n,
                                  item->rotated);
            dpe_cpu_scale_rotated(args, n, item->rotated);
            int64_t columns = halve_rows(item, n);
            dpe_cpu_pack_rows(call->kernels, call->bf16, item->rotated, n, columns,
                              item->q + c * (int64_t)layout->q_floats +
                                  r / layout->mr * layout->pack_floats);
        }
    }
}
