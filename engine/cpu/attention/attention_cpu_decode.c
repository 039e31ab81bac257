/* Attention for few rows (token-by-token decoding): nothing is packed. The keys of a query are cut
 * into fixed splits, every (query, KV head, split) is one item: it rotates each key once, in
 * registers, takes the products with all query heads of the KV head, and keeps softmax state and
 * sums of its own; at the end the splits are put together in order. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

enum {
    SPLIT = 4 * DPE_CPU_BLOCK, /* keys of an item */
    ROWS = 8,                  /* at a time */
    HEADS = 4,                 /* heads at a time: what the kernel `dots_rotated` takes */
    ALIGN = 16,                /* floats */
    SMALL_WORK = 1 << 16,      /* multiplications for which no second thread is woken */
};

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
    bool shares; /* rows that read the same keys do so together */
};

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
        .rows = ROWS,
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
        .after = args->kv == NULL ? args->v + (kv_head * args->capacity + row) * d : NULL,
        .n = count,
        .k = d,
        .ldq = ldq,
        .ldo = DPE_CPU_BLOCK,
        .room = query->rotated,
        .words = query->select,
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

/* Whether rows a and b read the same cache rows from position n on. */
static bool together(const struct call *call, int64_t a, int64_t b, int64_t n)
{
    int64_t end = 0;
    return call->shares &&
           dpe_key_row(call->args, a, n, &end) == dpe_key_row(call->args, b, n, &end);
}

/* A row's part of an item, and how far it came. */
struct walk {
    struct dpe_cpu_query query;
    int64_t row, next, end;
};

static void begin_walk(const struct call *call, int64_t row, int64_t kv_head, int64_t split,
                       float *thread, struct walk *walk)
{
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    int64_t group = layout->group;
    int64_t m = dpe_attention_position(args, row);
    float *own = part(call, row, kv_head, split);
    int64_t head = kv_head * group;
    walk->row = row;
    walk->next = split * SPLIT;
    walk->end = (split + 1) * SPLIT < m + 1 ? (split + 1) * SPLIT : m + 1;
    walk->query = (struct dpe_cpu_query){
        .kernels = call->kernels,
        .args = args,
        .q_copies = &call->q_copies,
        .k_copies = &call->k_copies,
        .place = m,
        .head = head,
        .heads = group,
        .q = call->q + (row * args->n_heads + head) * call->q_copies.n * args->head_dim,
        .factor = (float)(dpe_plan_query_scale(args->plan, args->layer, m) * LOG2_E),
        .reference = own,
        .sum = own + group,
        .o = own + 2 * group,
        .s = thread,
        .rotated = thread + layout->rotated_at,
        .tile = thread + layout->tile_at,
        .select = (uint32_t *)(void *)(thread + layout->select_at),
    };
    dpe_cpu_query_begin(&walk->query);
}

/* The keys that are probably met after those before walk->next: of this KV head, at the end of a
 * split of the next one, which is the next item. NULL: they are unpacked, or there are none. */
static const float *keys_after(const struct dpe_attention *args, const struct walk *walk)
{
    int64_t kv_head = walk->query.head / walk->query.heads;
    int64_t n = walk->next;
    int64_t end = 0;
    if (n == walk->end) {
        bool other = kv_head + 1 < args->n_kv_heads;
        n = other ? (n - 1) / SPLIT * SPLIT : n;
        kv_head = other ? kv_head + 1 : 0;
    }
    if (args->kv != NULL || n > walk->query.place) {
        return NULL;
    }
    return args->k +
           (kv_head * args->capacity + dpe_key_row(args, walk->row, n, &end)) * args->head_dim;
}

/* The next block of keys; false: there is none. */
static bool walk_on(const struct dpe_attention *args, struct walk *walk)
{
    int64_t n = walk->next;
    if (n >= walk->end) {
        return false;
    }
    struct dpe_cpu_keys keys = {.place = n, .row = dpe_key_row(args, walk->row, n, &walk->next)};
    walk->next = walk->next - n < DPE_CPU_BLOCK ? walk->next : n + DPE_CPU_BLOCK;
    walk->next = walk->next < walk->end ? walk->next : walk->end;
    keys.count = walk->next - n;
    walk->query.after = keys_after(args, walk);
    dpe_cpu_query_meet(&walk->query, &keys);
    return true;
}

/* A row, KV head and split. Rows that read the same keys meet each block of them one after another,
 * while it is in the second cache level: their first one does so for all. */
static void run_item(const struct call *call, int64_t index)
{
    const struct dpe_attention *args = call->args;
    /* KV heads innermost: they share the rows of the tables. */
    int64_t split = index / args->n_kv_heads % call->layout.splits;
    int64_t row = index / args->n_kv_heads / call->layout.splits;
    int64_t kv_head = index % args->n_kv_heads;
    float *thread = call->threads + (uint64_t)omp_get_thread_num() * call->layout.thread_floats;
    struct walk walks[ROWS];
    int n = 0;
    for (int64_t r = 0; r < row; r++) {
        if (together(call, r, row, split * SPLIT)) {
            return;
        }
    }
    begin_walk(call, row, kv_head, split, thread, &walks[n++]);
    for (int64_t r = row + 1; r < args->rows; r++) {
        if (together(call, row, r, split * SPLIT)) {
            begin_walk(call, r, kv_head, split, thread, &walks[n++]);
        }
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            more = walk_on(args, &walks[i]) || more;
        }
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
    int64_t shared = args->n_kv_heads * call.layout.splits;
    int64_t items = args->rows * shared;
    call.shares = shared >= 2 * args->n_threads || args->n_threads == 1;
    int64_t work = args->rows * extent.keys * args->n_heads * args->head_dim;
    bool alone = work <= SMALL_WORK || args->n_threads == 1;
    for (int64_t i = 0; i < items && alone; i++) {
        run_item(&call, i);
    }
    if (!alone) {
#pragma omp parallel for num_threads(args->n_threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++) {
            run_item(&call, i);
        }
    }
    for (int64_t i = 0; i < args->rows * args->n_heads; i++) {
        combine(&call, i / args->n_heads, i % args->n_heads);
    }
}

void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args)
{
    int64_t width = args->n_heads * args->head_dim;
    for (int64_t r = 0; r < args->rows; r += ROWS) {
        struct dpe_attention part = *args;
        part.rows = args->rows - r < ROWS ? args->rows - r : ROWS;
        part.start += r;
        part.positions = args->positions != NULL ? args->positions + r : NULL;
        part.offsets = args->offsets != NULL ? args->offsets + r : NULL;
        part.lents = args->lents != NULL ? args->lents + r : NULL;
        part.q += r * width;
        part.out += r * width;
        part.lse = args->lse != NULL ? args->lse + r * args->n_heads : NULL;
        decode(kernels, &part);
    }
}
