/* Attention for few rows (token-by-token decoding): nothing is packed. The keys of a query are cut
 * into fixed splits. Every (query, KV head, split) keeps softmax state and sums of its own: each
 * key is rotated once, in registers, for the products with all query heads of the KV head. At the
 * end the splits are put together in order. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention_cpu_plan.h"

enum {
    SPLIT = 4 * DPE_CPU_BLOCK, /* keys of an item */
    HEADS = 4,                 /* heads at a time: what the kernel `dots_rotated` takes */
    ALIGN = 16,                /* floats */
    SMALL_WORK = 1 << 16,      /* multiplications for which there is no parallel region */
};

#define LOG2_E 1.4426950408889634

/* Workspace, in floats. */
struct layout {
    int64_t group, splits;
    uint64_t part_floats; /* of one item: reference [group], sum [group], o [group][head_dim] */
    uint64_t part_at, thread_at, rotated_at, tile_at, select_at, thread_floats, total;
};

struct call {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    struct dpe_rotated_copies q_copies, k_copies;
    struct layout layout;
    float *q; /* [rows][n_heads][copies][head_dim], rotated */
    float *parts, *threads;
    int64_t kv_heads; /* of an item, all or one */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static uint64_t aligned(uint64_t floats)
{
    return dpe_bytes_plus(floats, ALIGN - 1) / ALIGN * ALIGN;
}

/* What the layout depends on. */
struct extent {
    int64_t n_heads, n_kv_heads, head_dim, rows, keys;
    int q_copies, n_threads;
};

static struct layout lay_out(const struct extent *extent)
{
    struct layout layout = {.group = extent->n_heads / extent->n_kv_heads,
                            .splits = (extent->keys + SPLIT - 1) / SPLIT};
    uint64_t d = (uint64_t)extent->head_dim;
    uint64_t group = (uint64_t)layout.group;
    uint64_t heads = (uint64_t)(extent->n_heads * extent->rows);
    layout.part_floats = aligned(group * (2 + d));
    layout.part_at = aligned(dpe_bytes_times(heads * (uint64_t)extent->q_copies, d));
    uint64_t parts = (uint64_t)(extent->rows * extent->n_kv_heads * layout.splits);
    layout.thread_at = dpe_bytes_plus(layout.part_at, dpe_bytes_times(parts, layout.part_floats));
    layout.rotated_at = group * DPE_CPU_BLOCK;
    layout.tile_at = layout.rotated_at + DPE_CPU_ROTATED * d;
    layout.select_at = layout.tile_at + DPE_CPU_ROTATED * d;
    layout.thread_floats = aligned(layout.select_at + d / 2);
    uint64_t threads = dpe_bytes_times(layout.thread_floats, (uint64_t)extent->n_threads);
    layout.total = dpe_bytes_plus(layout.thread_at, threads);
    return layout;
}

uint64_t dpe_cpu_decode_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int n_threads)
{
    const struct extent most = {
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
        .rows = DPE_CPU_DECODE_ROWS,
        .keys = keys,
        .q_copies = dpe_rotated_most(plan).n,
        .n_threads = n_threads,
    };
    return dpe_bytes_times(lay_out(&most).total, sizeof(float));
}

/* ------------------------------------------------------------------------------- one query */

void dpe_cpu_rotate_query(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args,
                          const struct dpe_rotated_copies *copies, int64_t row, int64_t head,
                          int64_t place, uint32_t *select, float *out)
{
    int64_t d = args->head_dim;
    dpe_copy_select(args, head, select);
    for (int c = 0; c < copies->n; c++) {
        struct dpe_cpu_rotation rotation =
            dpe_copy_rotation(args, &copies->copies[c], args->rotation->q_table[0], place, select);
        kernels->rotate(&rotation, args->q + (row * args->n_heads + head) * d, d, 1, out + c * d);
    }
}

void dpe_cpu_query_begin(struct dpe_cpu_query *query)
{
    int64_t d = query->args->head_dim;
    for (int64_t g = 0; g < query->heads; g++) {
        query->reference[g] = -INFINITY;
        query->sum[g] = 0.0F;
    }
    memset(query->o, 0, (size_t)(query->heads * d) * sizeof *query->o);
    for (int b = 0; b < query->args->plan->n_bands; b++) {
        query->reach[b] = dpe_band_reach(query->args->plan, b, query->place, query->place);
    }
}

/* Band of a key at place x (−1: masked) and the first place after x where that may change. */
static int band_run(const struct dpe_cpu_query *query, int64_t x, int64_t *end)
{
    *end = INT64_MAX;
    for (int b = 0; b < query->args->plan->n_bands; b++) {
        const struct dpe_reach *reach = &query->reach[b];
        if (x < reach->any_lo) {
            *end = reach->any_lo < *end ? reach->any_lo : *end;
        } else if (x < reach->any_hi) {
            *end = reach->any_hi < *end ? reach->any_hi : *end;
            return b;
        }
    }
    return -1;
}

/* Raw logits of the `count` keys from a row of the cache on, which stand at place x and after it,
 * count ≤ DPE_CPU_ROTATED, all in band b, into s [heads][DPE_CPU_BLOCK]. */
static void dot_keys(const struct dpe_cpu_query *query, int b, int64_t x, int64_t count,
                     int64_t kv_head, int64_t row, float *s)
{
    const struct dpe_attention *args = query->args;
    const struct dpe_plan *plan = args->plan;
    int64_t d = args->head_dim;
    int64_t ldq = query->q_copies->n * d;
    const struct dpe_rotated *copy = &query->k_copies->copies[query->k_copies->of_band[b]];
    struct dpe_cpu_rotation rotation =
        dpe_copy_rotation(args, copy, args->rotation->k_table[0], x, NULL);
    struct dpe_cpu_key_dots dots = {
        .rotation = &rotation,
        .keys = dpe_attention_rows(args, DPE_KV_KEYS, kv_head, row, count, query->tile),
        .n = count,
        .k = d,
        .ldq = ldq,
        .ldo = DPE_CPU_BLOCK,
        .room = query->rotated,
        .words = query->select,
        .after = args->kv == NULL ? args->v + (kv_head * args->capacity + row) * d : NULL,
    };
    for (int64_t g = 0; g < query->heads; g += HEADS) {
        dots.rows = query->heads - g < HEADS ? query->heads - g : HEADS;
        dots.q = query->q + query->q_copies->of_band[b] * d + g * ldq;
        dots.out = s + g * DPE_CPU_BLOCK;
        if (copy->per_head) {
            dots.mask =
                plan->mask + (args->layer * plan->n_heads + query->head + g) * plan->n_pairs;
        }
        query->kernels->dots_rotated(&dots);
    }
}

/* Raw logits of the keys; false where no band holds any of them. */
static bool key_logits(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys,
                       int64_t kv_head)
{
    int64_t most = keys->constant ? 1 : DPE_CPU_ROTATED;
    bool visible = false;
    for (int64_t i = 0; i < keys->count;) {
        int64_t x = keys->constant ? keys->place : keys->place + i;
        int64_t run = 0;
        int b = band_run(query, x, &run);
        int64_t count = keys->constant || run - x > keys->count - i ? keys->count - i : run - x;
        if (b >= 0) {
            visible = true;
            count = count < most ? count : most;
            dot_keys(query, b, x, count, kv_head, keys->row + i, query->s + i);
        }
        i += count;
    }
    return visible;
}

/* o [heads][head_dim] = alpha · o + s · values, a tile of rows at a time where they are unpacked.
 */
static void add_values(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys,
                       int64_t kv_head, int64_t heads, const float *s, const float *alpha, float *o)
{
    static const float keep[HEADS] = {1.0F, 1.0F, 1.0F, 1.0F};
    const struct dpe_attention *args = query->args;
    int64_t most = args->kv != NULL ? DPE_CPU_ROTATED : keys->count;
    for (int64_t i = 0; i < keys->count; i += most) {
        int64_t count = keys->count - i < most ? keys->count - i : most;
        const float *v =
            dpe_attention_rows(args, DPE_KV_VALUES, kv_head, keys->row + i, count, query->tile);
        const struct dpe_cpu_few few = {
            .rows = heads,
            .count = count,
            .width = args->head_dim,
            .p = s + i,
            .v = v,
            .alpha = i == 0 ? alpha : keep,
            .after = query->after,
        };
        query->kernels->accumulate_few(&few, o);
    }
}

void dpe_cpu_query_meet(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys)
{
    const struct dpe_attention *args = query->args;
    int64_t d = args->head_dim;
    int64_t kv_head = query->head / (args->n_heads / args->n_kv_heads);
    int64_t panel = query->kernels->panel;
    int64_t columns = (keys->count + panel - 1) / panel * panel;
    for (int64_t g = 0; g < query->heads; g++) {
        for (int64_t i = 0; i < columns; i++) {
            query->s[g * DPE_CPU_BLOCK + i] = -INFINITY;
        }
    }
    if (!key_logits(query, keys, kv_head)) {
        return;
    }
    for (int64_t g = 0; g < query->heads; g += HEADS) {
        int64_t heads = query->heads - g < HEADS ? query->heads - g : HEADS;
        float factor[HEADS];
        float alpha[HEADS];
        for (int64_t i = 0; i < heads; i++) {
            factor[i] = query->factor;
        }
        struct dpe_cpu_softmax state = {factor, query->reference + g, query->sum + g, alpha};
        float *s = query->s + g * DPE_CPU_BLOCK;
        for (int64_t i = 0; i < heads && args->plan->attention_cap > 0.0; i++) {
            dpe_cap_logits(query->kernels, args->plan, query->factor, columns,
                           s + i * DPE_CPU_BLOCK);
        }
        query->kernels->softmax(&state, heads, columns, s);
        add_values(query, keys, kv_head, heads, s, alpha, query->o + g * d);
    }
}

/* ------------------------------------------------------------------------------------- items */

static void rotate_queries(const struct call *call, uint32_t *select)
{
    const struct dpe_attention *args = call->args;
    for (int64_t i = 0; i < args->rows * args->n_heads; i++) {
        int64_t row = i / args->n_heads;
        dpe_cpu_rotate_query(call->kernels, args, &call->q_copies, row, i % args->n_heads,
                             dpe_attention_position(args, row), select,
                             call->q + i * call->q_copies.n * args->head_dim);
    }
}

static float *part(const struct call *call, int64_t row, int64_t kv_head, int64_t split)
{
    int64_t index = (row * call->args->n_kv_heads + kv_head) * call->layout.splits + split;
    return call->parts + (uint64_t)index * call->layout.part_floats;
}

/* Some KV heads of a split of the keys of a row: what a thread takes at a time. */
struct item {
    int64_t row, split, kv_head;
};

static struct item item_of(const struct call *call, int64_t index)
{
    int64_t parts = call->args->n_kv_heads / call->kv_heads;
    return (struct item){
        .row = index / parts / call->layout.splits,
        .split = index / parts % call->layout.splits,
        .kv_head = index % parts * call->kv_heads,
    };
}

/* The keys of an item that are met together, from position n on; none at its end. */
static struct dpe_cpu_keys keys_from(const struct call *call, const struct item *item, int64_t n)
{
    const struct dpe_attention *args = call->args;
    int64_t end = least((item->split + 1) * SPLIT, dpe_attention_position(args, item->row) + 1);
    int64_t next = 0;
    struct dpe_cpu_keys keys = {
        .place = n,
        .row = dpe_cache_row(args, dpe_attention_offset(args, item->row), n, &next),
    };
    keys.count = n < end ? least(least(next - n, DPE_CPU_BLOCK), end - n) : 0;
    return keys;
}

/* Where the keys of a KV head are, NULL where they are unpacked or there are none. */
static const float *where(const struct call *call, const struct dpe_cpu_keys *keys, int64_t kv_head)
{
    const struct dpe_attention *args = call->args;
    bool in_place = args->kv == NULL && keys->count > 0;
    return in_place ? args->k + (kv_head * args->capacity + keys->row) * args->head_dim : NULL;
}

/* The query of an item becomes that of the heads of a KV head. */
static void take_heads(const struct call *call, const struct item *item, int64_t kv_head,
                       struct dpe_cpu_query *query)
{
    const struct dpe_attention *args = call->args;
    int64_t group = call->layout.group;
    float *own = part(call, item->row, kv_head, item->split);
    query->head = kv_head * group;
    query->heads = group;
    query->q =
        call->q + (item->row * args->n_heads + query->head) * call->q_copies.n * args->head_dim;
    query->reference = own;
    query->sum = own + group;
    query->o = own + 2 * group;
}

/* Some keys at a time, and their KV heads innermost, which share the rows of the tables. `after`:
 * the item that this thread takes next. */
static void run_item(const struct call *call, const struct item *item, const struct item *after)
{
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    int64_t m = dpe_attention_position(args, item->row);
    float *thread = call->threads + (uint64_t)omp_get_thread_num() * layout->thread_floats;
    struct dpe_cpu_query query = {
        .kernels = call->kernels,
        .args = args,
        .q_copies = &call->q_copies,
        .k_copies = &call->k_copies,
        .place = m,
        .factor = (float)(dpe_plan_query_scale(args->plan, m) * LOG2_E),
        .s = thread,
        .rotated = thread + layout->rotated_at,
        .tile = thread + layout->tile_at,
        .select = (uint32_t *)(void *)(thread + layout->select_at),
    };
    int64_t end = item->kv_head + call->kv_heads;
    for (int64_t h = item->kv_head; h < end; h++) {
        take_heads(call, item, h, &query);
        dpe_cpu_query_begin(&query);
    }
    struct dpe_cpu_keys next;
    for (struct dpe_cpu_keys keys = keys_from(call, item, item->split * SPLIT); keys.count > 0;
         keys = next) {
        next = keys_from(call, item, keys.place + keys.count);
        struct dpe_cpu_keys first = keys_from(call, after, after->split * SPLIT);
        for (int64_t h = item->kv_head; h < end; h++) {
            take_heads(call, item, h, &query);
            query.after = h + 1 < end      ? where(call, &keys, h + 1)
                          : next.count > 0 ? where(call, &next, item->kv_head)
                                           : where(call, &first, after->kv_head);
            dpe_cpu_query_meet(&query, &keys);
        }
    }
}

/* Items that no other thread has taken. The next one is taken before one is run. */
static void run_items(const struct call *call, int64_t items, int64_t *taken)
{
    int64_t index = 0;
    int64_t after = 0;
#pragma omp atomic capture
    index = (*taken)++;
    for (; index < items; index = after) {
#pragma omp atomic capture
        after = (*taken)++;
        struct item item = item_of(call, index);
        struct item next = item_of(call, least(after, items - 1));
        run_item(call, &item, &next);
    }
}

/* Splits of one query and head, in order. */
static void combine(const struct call *call, int64_t row, int64_t head)
{
    const struct dpe_attention *args = call->args;
    int64_t group = call->layout.group;
    int64_t g = head % group;
    int64_t d = args->head_dim;
    float *out = args->out + (row * args->n_heads + head) * d;
    float largest = -INFINITY;
    for (int64_t i = 0; i < call->layout.splits; i++) {
        float reference = part(call, row, head / group, i)[g];
        largest = reference > largest ? reference : largest;
    }
    double total = 0.0;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t i = 0; i < call->layout.splits; i++) {
        const float *from = part(call, row, head / group, i);
        /* A split without a visible key has no part in the sum; NaN has. */
        if (from[group + g] == 0.0F) {
            continue;
        }
        double weight = exp2((double)from[g] - (double)largest);
        total += weight * (double)from[group + g];
        for (int64_t j = 0; j < d; j++) {
            out[j] += (float)weight * from[2 * group + g * d + j];
        }
    }
    float inverse = total == 0.0 ? 0.0F : (float)(1.0 / total);
    for (int64_t j = 0; j < d; j++) {
        out[j] *= inverse;
    }
    if (args->lse != NULL) {
        args->lse[row * args->n_heads + head] =
            total == 0.0 ? -INFINITY : (float)((double)largest / LOG2_E + log(total));
    }
}

static void decode(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args)
{
    struct call call = {
        .kernels = kernels,
        .args = args,
        .q_copies = dpe_rotated_find(args->plan, args->rotation, false),
        .k_copies = dpe_rotated_find(args->plan, args->rotation, true),
    };
    const struct extent extent = {
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .rows = args->rows,
        .keys = dpe_attention_keys(args),
        .q_copies = call.q_copies.n,
        .n_threads = args->n_threads,
    };
    call.layout = lay_out(&extent);
    call.q = args->workspace;
    call.parts = call.q + call.layout.part_at;
    call.threads = call.q + call.layout.thread_at;
    rotate_queries(&call, (uint32_t *)(void *)(call.threads + call.layout.select_at));
    int64_t work = args->rows * extent.keys * args->n_heads * args->head_dim;
    int threads = work <= SMALL_WORK ? 1 : args->n_threads;
    /* Few splits: each KV head is an item, so that all threads have some. */
    int64_t items = args->rows * call.layout.splits;
    call.kv_heads = threads > 1 && items < 4 * threads ? 1 : args->n_kv_heads;
    items *= args->n_kv_heads / call.kv_heads;
    int64_t taken = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    run_items(&call, items, &taken);
    for (int64_t i = 0; i < args->rows * args->n_heads; i++) {
        combine(&call, i / args->n_heads, i % args->n_heads);
    }
}

void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args)
{
    int64_t width = args->n_heads * args->head_dim;
    for (int64_t r = 0; r < args->rows; r += DPE_CPU_DECODE_ROWS) {
        struct dpe_attention part = *args;
        part.rows = args->rows - r < DPE_CPU_DECODE_ROWS ? args->rows - r : DPE_CPU_DECODE_ROWS;
        part.start += r;
        part.positions = args->positions != NULL ? args->positions + r : NULL;
        part.offsets = args->offsets != NULL ? args->offsets + r : NULL;
        part.q += r * width;
        part.out += r * width;
        part.lse = args->lse != NULL ? args->lse + r * args->n_heads : NULL;
        decode(kernels, &part);
    }
}
