/* Attention for few rows (token-by-token decoding): nothing is packed. The keys of a query are cut
 * into fixed splits, every (query, KV head, split) is one item: it rotates each key once, in
 * registers, takes the products with all query heads of the KV head, and keeps softmax state and
 * sums of its own; at the end the splits are put together in order. Queries that meet the same keys
 * are one item: a tile of keys is read and rotated once for all of them, and each of them gets the
 * bits that it gets alone. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

enum {
    SPLIT = 4 * DPE_CPU_BLOCK, /* keys of an item */
    ROWS = 16,                 /* at a time */
    HEADS = 4,                 /* heads at a time: what the kernel `dots_rotated` takes */
    LEAST = 6,                 /* rows that share their keys: fewer rotate them in registers each */
    WEIGHED = 64,              /* heads of all rows at a time, where rows share their keys */
    ALIGN = 16,                /* floats */
    SMALL_WORK = 1 << 16,      /* multiplications for which no second thread is woken */
};

/* Workspace, in floats. */
struct layout {
    int64_t group, splits;
    uint64_t part_floats; /* of one item: reference [group], sum [group], o [group][head_dim] */
    uint64_t part_at, thread_at, state_at, rotated_at, tile_at, select_at, thread_floats, total;
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

static struct layout lay_out(const struct dpe_attention *args, int64_t keys, int q_copies)
{
    struct layout layout = {.group = args->n_heads / args->n_kv_heads,
                            .splits = (keys + SPLIT - 1) / SPLIT};
    uint64_t d = (uint64_t)args->head_dim;
    uint64_t heads = (uint64_t)(args->n_heads * args->rows);
    uint64_t parts = (uint64_t)(args->rows * args->n_kv_heads * layout.splits);
    uint64_t shared = (uint64_t)(layout.group * args->rows); /* of a thread, with as many states */
    uint64_t thread = 0;
    dpe_place(&layout.part_floats, (uint64_t)layout.group * (2 + d));
    dpe_place(&layout.part_at, dpe_bytes_times(heads * (uint64_t)q_copies, d));
    layout.total = layout.part_at;
    dpe_place(&layout.total, dpe_bytes_times(parts, layout.part_floats));
    dpe_place(&thread, shared * DPE_CPU_BLOCK);
    layout.state_at = dpe_place(&thread, shared * (2 + d));
    layout.rotated_at = dpe_place(&thread, DPE_CPU_ROTATED * d);
    layout.tile_at = dpe_place(&thread, DPE_CPU_ROTATED * d);
    layout.select_at = dpe_place(&thread, d / 2);
    layout.thread_floats = thread;
    layout.thread_at = dpe_place(&layout.total, dpe_bytes_times(thread, (uint64_t)args->n_threads));
    return layout;
}

uint64_t dpe_cpu_decode_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int n_threads)
{
    const struct dpe_attention most = dpe_cpu_attention_sized(config, plan, ROWS, n_threads);
    const struct layout layout = lay_out(&most, keys, dpe_rotated_most(plan).n);
    /* Of several calls each begins on a whole line. */
    return dpe_bytes_times(dpe_bytes_plus(layout.total, ROWS * ALIGN), sizeof(float));
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
        dpe_cpu_scale_rotated(args, 1, out + c * d);
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
static bool key_logits(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys)
{
    int64_t kv_head = query->head / (query->args->n_heads / query->args->n_kv_heads);
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

/* o [rows][head_dim] = alpha · o + s · values, a tile of values at a time where they are unpacked.
 * alpha changes. */
static void add_values(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys,
                       int64_t rows, const float *s, float *alpha, float *o)
{
    const struct dpe_attention *args = query->args;
    int64_t kv_head = query->head / (args->n_heads / args->n_kv_heads);
    int64_t most = args->kv != NULL ? DPE_CPU_ROTATED : keys->count;
    for (int64_t i = 0; i < keys->count; i += most) {
        int64_t count = keys->count - i < most ? keys->count - i : most;
        const struct dpe_cpu_few few = {
            .rows = rows,
            .count = count,
            .width = args->head_dim,
            .p = s + i,
            .v =
                dpe_attention_rows(args, DPE_KV_VALUES, kv_head, keys->row + i, count, query->tile),
            .alpha = alpha,
            .after = query->after != NULL ? query->after + i * args->head_dim : NULL,
        };
        query->kernels->accumulate_few(&few, o);
        for (int64_t r = 0; r < rows && i == 0; r++) {
            alpha[r] = 1.0F;
        }
    }
}

/* Columns of a block of keys, in whole panels. */
static int64_t columns_of(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys)
{
    return dpe_cpu_round_up(keys->count, query->kernels->panel);
}

/* The logits s of `rows` ≤ WEIGHED heads to their sums, from the first one of `query` on; `factor`
 * [rows]. */
static void weigh(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys, int64_t first,
                  int64_t rows, const float *factor)
{
    const struct dpe_plan *plan = query->args->plan;
    int64_t columns = columns_of(query, keys);
    float *s = query->s + first * DPE_CPU_BLOCK;
    float alpha[WEIGHED];
    for (int64_t r = 0; r < rows && plan->attention_cap > 0.0; r++) {
        dpe_cap_logits(query->kernels, plan, factor[r], columns, s + r * DPE_CPU_BLOCK);
    }
    for (int64_t r = 0; r < rows; r += HEADS) {
        const struct dpe_cpu_softmax state = {factor + r, query->reference + first + r,
                                              query->sum + first + r, alpha + r};
        query->kernels->softmax(&state, dpe_least(HEADS, rows - r), columns, s + r * DPE_CPU_BLOCK);
    }
    add_values(query, keys, rows, s, alpha, query->o + first * query->args->head_dim);
}

/* Nothing is seen yet of the keys first … end−1 of a block by `rows` heads. */
static void clear_logits(const struct dpe_cpu_query *query, int64_t rows, int64_t first,
                         int64_t end)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = first; i < end; i++) {
            query->s[r * DPE_CPU_BLOCK + i] = -INFINITY;
        }
    }
}

void dpe_cpu_query_meet(const struct dpe_cpu_query *query, const struct dpe_cpu_keys *keys)
{
    float factor[WEIGHED];
    clear_logits(query, query->heads, 0, columns_of(query, keys));
    if (!key_logits(query, keys)) {
        return;
    }
    for (int64_t g = 0; g < query->heads; g += HEADS) {
        int64_t heads = dpe_least(HEADS, query->heads - g);
        for (int64_t i = 0; i < heads; i++) {
            factor[i] = query->factor;
        }
        weigh(query, keys, g, heads, factor);
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

/* Walk `slot` of the thread. */
static void begin_walk(const struct call *call, int64_t row, int64_t kv_head, int64_t split,
                       int64_t slot, struct walk *walk)
{
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    int64_t group = layout->group;
    int64_t m = dpe_attention_position(args, row);
    float *thread = call->threads + (uint64_t)omp_get_thread_num() * layout->thread_floats;
    float *state = thread + layout->state_at;
    int64_t first = slot * group;
    int64_t shared = args->rows * group;
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
        .reference = state + first,
        .sum = state + shared + first,
        .o = state + 2 * shared + first * args->head_dim,
        .s = thread + first * DPE_CPU_BLOCK,
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

/* The next block of keys; count 0: there is none. */
static struct dpe_cpu_keys walk_next(const struct dpe_attention *args, const struct walk *walk)
{
    int64_t n = walk->next;
    int64_t end = n;
    struct dpe_cpu_keys keys = {.place = n};
    if (n < walk->end) {
        keys.row = dpe_key_row(args, walk->row, n, &end);
        end = end - n < DPE_CPU_BLOCK ? end : n + DPE_CPU_BLOCK;
        end = end < walk->end ? end : walk->end;
    }
    keys.count = end - n;
    return keys;
}

/* The band of all keys of a tile for all walks: −1 where none sees any, MIXED where they differ. */
enum { MIXED = -2 };

static int common_band(const struct walk *walks, int n, const struct dpe_cpu_keys *tile)
{
    int64_t end = 0;
    int band = band_run(&walks[0].query, tile->place, &end);
    for (int i = 0; i < n; i++) {
        bool same = band_run(&walks[i].query, tile->place, &end) == band;
        if (!same || end < tile->place + tile->count) {
            return MIXED;
        }
    }
    return band;
}

/* Raw logits of a tile, all of it in band b, for the heads g, g+step, … of all walks together. */
static void dot_heads(const struct call *call, const struct walk *walks, int b, int64_t g,
                      int64_t step, int64_t rows, const struct dpe_cpu_shared_dots *tile)
{
    const struct dpe_cpu_query *query = &walks[0].query;
    const int64_t d = call->args->head_dim;
    const struct walk *walk = walks;
    int64_t head = g;
    for (int64_t r = 0; r < rows; r += WEIGHED) {
        const float *q[WEIGHED];
        struct dpe_cpu_shared_dots dots = *tile;
        dots.rows = dpe_least(WEIGHED, rows - r);
        dots.q = q;
        dots.out += (g + r * step) * DPE_CPU_BLOCK;
        dots.ldo = step * DPE_CPU_BLOCK;
        for (int64_t i = 0; i < dots.rows; i++) {
            q[i] = walk->query.q + (head * call->q_copies.n + call->q_copies.of_band[b]) * d;
            head += step;
            if (head >= call->layout.group) { /* of the next walk; a division takes longer */
                head = g;
                walk++;
            }
        }
        query->kernels->dots_shared(&dots);
    }
}

/* The same for all heads of n walks. Keys are rotated once, or, masked, once for each head. */
static void dot_tile(const struct call *call, const struct walk *walks, int n, int b,
                     const struct dpe_cpu_keys *keys, float *s)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_query *query = &walks[0].query;
    const struct dpe_rotated *copy = &call->k_copies.copies[call->k_copies.of_band[b]];
    const struct dpe_cpu_rotation rotation =
        dpe_copy_rotation(args, copy, args->rotation->k_table[0], keys->place, query->select);
    int64_t group = call->layout.group;
    int64_t d = args->head_dim;
    const float *from = dpe_attention_rows(args, DPE_KV_KEYS, query->head / group, keys->row,
                                           keys->count, query->tile);
    struct dpe_cpu_shared_dots tile = {.keys = query->rotated, .n = keys->count, .k = d, .out = s};
    if (args->kv == NULL) { /* the values of this tile, and the keys of the next */
        tile.soon[0] = args->v + (from - args->k);
        tile.soon[1] = keys->count == DPE_CPU_ROTATED ? from + keys->count * d : NULL;
    }
    int64_t times = copy->per_head ? group : 1;
    for (int64_t g = 0; g < times; g++) {
        if (copy->per_head) {
            dpe_copy_select(args, query->head + g, query->select);
        }
        query->kernels->rotate(&rotation, from, d, keys->count, query->rotated);
        dot_heads(call, walks, b, g, times, n * group / times, &tile);
        tile.soon[0] = NULL;
    }
}

/* n walks meet the same keys. */
static void meet_together(const struct call *call, const struct walk *walks, int n,
                          const struct dpe_cpu_keys *keys)
{
    const struct dpe_cpu_query *query = &walks[0].query;
    int64_t group = call->layout.group;
    bool sees[ROWS] = {false};
    clear_logits(query, n * group, keys->count, columns_of(query, keys));
    for (int64_t i = 0; i < keys->count; i += DPE_CPU_ROTATED) {
        const struct dpe_cpu_keys tile = {.place = keys->place + i,
                                          .row = keys->row + i,
                                          .count = dpe_least(DPE_CPU_ROTATED, keys->count - i)};
        int b = common_band(walks, n, &tile);
        if (b >= 0) {
            dot_tile(call, walks, n, b, &tile, query->s + i);
        } else {
            clear_logits(query, n * group, i, i + tile.count);
        }
        for (int w = 0; w < n && b >= 0; w++) {
            sees[w] = true;
        }
        for (int w = 0; w < n && b == MIXED; w++) {
            struct dpe_cpu_query one = walks[w].query;
            one.s += i;
            sees[w] = key_logits(&one, &tile) || sees[w];
        }
    }
    for (int64_t r = 0; r < n * group;) {
        float factor[WEIGHED];
        int64_t end = r;
        for (; end < n * group && end - r < WEIGHED && sees[end / group]; end++) {
            factor[end - r] = walks[end / group].query.factor;
        }
        if (end > r) {
            weigh(query, keys, r, end - r, factor);
        }
        r = end > r ? end : r + group;
    }
}

/* Walks from the first on that meet the same keys next; they meet them. */
static int walk_on(const struct call *call, struct walk *walks, int n)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_keys keys = walk_next(args, &walks[0]);
    int met = 1;
    for (; met < n && keys.count > 0; met++) {
        const struct dpe_cpu_keys other = walk_next(args, &walks[met]);
        if (other.row != keys.row || other.count != keys.count || other.place != keys.place) {
            break;
        }
    }
    met = met < LEAST ? 1 : met;
    for (int i = 0; i < met; i++) {
        walks[i].next += keys.count;
    }
    walks[0].query.after = keys_after(args, &walks[0]);
    if (met > 1) {
        meet_together(call, walks, met, &keys);
    } else if (keys.count > 0) {
        dpe_cpu_query_meet(&walks[0].query, &keys);
    }
    return met;
}

/* What a walk has found is the row's part of the split. */
static void end_walk(const struct call *call, const struct walk *walk, int64_t kv_head,
                     int64_t split)
{
    int64_t group = call->layout.group;
    float *own = part(call, walk->row, kv_head, split);
    memcpy(own, walk->query.reference, (size_t)group * sizeof *own);
    memcpy(own + group, walk->query.sum, (size_t)group * sizeof *own);
    memcpy(own + 2 * group, walk->query.o, (size_t)(group * call->args->head_dim) * sizeof *own);
}

/* A row, KV head and split. Rows that read the same keys meet them together: their first one does
 * so for all. */
static void run_item(const struct call *call, int64_t index)
{
    const struct dpe_attention *args = call->args;
    /* KV heads innermost: they share the rows of the tables. */
    int64_t split = index / args->n_kv_heads % call->layout.splits;
    int64_t row = index / args->n_kv_heads / call->layout.splits;
    int64_t kv_head = index % args->n_kv_heads;
    struct walk walks[ROWS];
    int n = 0;
    for (int64_t r = 0; r < row; r++) {
        if (together(call, r, row, split * SPLIT)) {
            return;
        }
    }
    for (int64_t r = row; r < args->rows; r++) {
        if (r == row || together(call, row, r, split * SPLIT)) {
            begin_walk(call, r, kv_head, split, n, &walks[n]);
            n++;
        }
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n;) {
            more = walks[i].next < walks[i].end || more;
            i += walk_on(call, walks + i, n - i);
        }
    }
    for (int i = 0; i < n; i++) {
        end_walk(call, &walks[i], kv_head, split);
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

/* An item of several calls, which end at `ends`. */
static void run_any(const struct call *calls, const int64_t *ends, int64_t item)
{
    int64_t i = 0;
    while (item >= ends[i]) {
        i++;
    }
    run_item(&calls[i], i > 0 ? item - ends[i - 1] : item);
}

/* n calls of at most ROWS rows in all, whose items the threads take from one list. */
static void decode(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args,
                   int64_t n)
{
    struct call calls[ROWS];
    int64_t ends[ROWS];
    int64_t shared = 0;
    int64_t items = 0;
    int64_t work = 0;
    uint64_t thread_floats = 0;
    float *at = args->workspace;
    const int n_threads = args->n_threads;
    for (int64_t i = 0; i < n; i++, args++) {
        struct call *call = &calls[i];
        *call = (struct call){
            .kernels = kernels,
            .args = args,
            .q_copies = dpe_rotated_find(args->plan, args->rotation, false),
            .k_copies = dpe_rotated_find(args->plan, args->rotation, true),
        };
        const int64_t keys = dpe_attention_keys(args);
        call->layout = lay_out(args, keys, call->q_copies.n);
        call->q = at;
        call->parts = at + call->layout.part_at;
        at += call->layout.thread_at;
        shared += args->n_kv_heads * call->layout.splits;
        items += args->rows * args->n_kv_heads * call->layout.splits;
        work += args->rows * keys * args->n_heads * args->head_dim;
        ends[i] = items;
        thread_floats =
            call->layout.thread_floats > thread_floats ? call->layout.thread_floats : thread_floats;
    }
    for (int64_t i = 0; i < n; i++) {
        struct call *call = &calls[i];
        call->threads = at;
        call->layout.thread_floats = thread_floats;
        call->shares = shared >= 2 * n_threads || n_threads == 1;
        rotate_queries(call, (uint32_t *)(void *)(at + call->layout.select_at));
    }
    bool alone = work <= SMALL_WORK || n_threads == 1;
    for (int64_t i = 0; i < items && alone; i++) {
        run_any(calls, ends, i);
    }
    if (!alone) {
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++) {
            run_any(calls, ends, i);
        }
    }
    for (int64_t c = 0; c < n; c++) {
        const struct dpe_attention *a = calls[c].args;
        for (int64_t i = 0; i < a->rows * a->n_heads; i++) {
            combine(&calls[c], i / a->n_heads, i % a->n_heads);
        }
    }
}

/* Some rows of a call as one of their own. */
static struct dpe_attention rows_of(const struct dpe_attention *args, int64_t r, int64_t rows)
{
    const int64_t width = args->n_heads * args->head_dim;
    struct dpe_attention part = *args;
    part.rows = rows;
    part.start += r;
    part.positions = args->positions != NULL ? args->positions + r : NULL;
    part.offsets = args->offsets != NULL ? args->offsets + r : NULL;
    part.lents = args->lents != NULL ? args->lents + r : NULL;
    part.q += r * width;
    part.out += r * width;
    part.lse = args->lse != NULL ? args->lse + r * args->n_heads : NULL;
    return part;
}

void dpe_cpu_attention_decode(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args, int64_t n)
{
    struct dpe_attention parts[ROWS];
    int64_t n_parts = 0;
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t r = 0; r < args[i].rows; r += ROWS) {
            const int64_t some = dpe_least(ROWS, args[i].rows - r);
            if (rows + some > ROWS) {
                decode(kernels, parts, n_parts);
                n_parts = rows = 0;
            }
            parts[n_parts++] = rows_of(&args[i], r, some);
            rows += some;
        }
    }
    if (rows > 0) {
        decode(kernels, parts, n_parts);
    }
}
