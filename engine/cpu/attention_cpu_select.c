/* Attention under a selection. Rows are taken a slab at a time: first every (group of queries, unit)
 * scores the blocks and chooses, then every (query, KV head) walks the runs of keys that it sees,
 * as decoding walks all keys. Representatives of blocks are made when a block is complete and kept
 * beside the cache, so that a choice reads one row for a block. */
#include <math.h>
#include <string.h>

#include <omp.h>

#include "engine/cpu/attention_cpu_plan.h"

enum {
    SLAB = 256,            /* rows whose choices are in the workspace at a time */
    HEADS = 4,             /* heads at a time: what the kernel `dots` takes */
    ALIGN = 16,            /* floats */
    SMALL_WORK = 1 << 21,  /* multiplications for which no second thread is woken */
    RUN_FLOATS = sizeof(struct dpe_run) / sizeof(float),
};

#define LOG2_E 1.4426950408889634

/* Workspace, in floats. */
struct layout {
    int64_t group, units, blocks, chosen; /* blocks and choices of a query at most */
    uint64_t lists_at, thread_at, thread_floats, total;
    uint64_t dots_at, x_at, rotated_at, tile_at, select_at, s_at, q_at, state_at, runs_at;
};

struct call {
    const struct dpe_cpu_kernels *kernels;
    const struct dpe_attention *args;
    const struct dpe_selection *selection;
    struct dpe_rotated_copies q_copies, k_copies;
    struct layout layout;
    int64_t row, rows;      /* of the slab */
    int64_t groups;         /* of the slab */
    int64_t of_group[SLAB]; /* first row of each */
    int64_t of_row[SLAB];   /* group of each, from 0 on */
    int32_t *counts, *lists; /* [groups][units], [groups][units][chosen] */
    float *threads;
};

/* What scoring and representing use of a thread's part. */
struct room {
    double *scores;
    float *dots, *x, *rotated, *tile;
};

static uint64_t place(uint64_t *total, uint64_t floats)
{
    uint64_t at = *total;
    uint64_t padded = dpe_bytes_plus(floats, ALIGN - 1) / ALIGN * ALIGN;
    *total = dpe_bytes_plus(at, padded);
    return at;
}

struct extent {
    int64_t n_heads, n_kv_heads, head_dim, rows, keys;
    int n_copies, n_threads;
};

static struct layout lay_out(const struct dpe_selection *s, const struct extent *extent)
{
    struct layout layout = {.group = extent->n_heads / extent->n_kv_heads};
    layout.units = s->unit == DPE_CHOICE_HEAD      ? extent->n_heads
                   : s->unit == DPE_CHOICE_KV_HEAD ? extent->n_kv_heads
                                                   : 1;
    layout.blocks = extent->keys / s->block + 1;
    layout.chosen = s->k < layout.blocks ? s->k : layout.blocks;
    uint64_t d = (uint64_t)extent->head_dim;
    uint64_t group = (uint64_t)layout.group;
    uint64_t slab = extent->rows < SLAB ? (uint64_t)extent->rows : SLAB;
    uint64_t lists = dpe_bytes_times(slab * (uint64_t)layout.units, (uint64_t)layout.chosen + 1);
    layout.lists_at = place(&layout.total, lists);
    uint64_t thread = 0;
    /* Scores of all blocks; or sums of the keys of a block and a row. No call has a block longer
     * than its keys. */
    uint64_t block = (uint64_t)(s->block < extent->keys ? s->block : extent->keys);
    uint64_t scores = (uint64_t)layout.blocks;
    scores = scores < block + 2 * d ? block + 2 * d : scores;
    place(&thread, dpe_bytes_times(2, scores));
    layout.dots_at = place(&thread, (uint64_t)HEADS * DPE_CPU_BLOCK);
    layout.x_at = place(&thread, HEADS * 2 * d);
    layout.rotated_at = place(&thread, DPE_CPU_ROTATED * d);
    layout.tile_at = place(&thread, DPE_CPU_ROTATED * d);
    layout.select_at = place(&thread, d / 2);
    layout.s_at = place(&thread, group * DPE_CPU_BLOCK);
    layout.q_at = place(&thread, group * (uint64_t)extent->n_copies * d);
    layout.state_at = place(&thread, group * (2 + d));
    layout.runs_at = place(&thread, RUN_FLOATS * ((uint64_t)layout.chosen + 3));
    layout.thread_floats = thread;
    layout.thread_at =
        place(&layout.total, dpe_bytes_times(thread, (uint64_t)extent->n_threads));
    return layout;
}

uint64_t dpe_cpu_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                  int64_t keys, int64_t rows, int n_threads)
{
    const struct extent most = {
        .n_heads = config->n_heads,
        .n_kv_heads = config->n_kv_heads,
        .head_dim = config->head_dim,
        .rows = rows,
        .keys = keys,
        .n_copies = dpe_rotated_most(plan).n,
        .n_threads = n_threads,
    };
    return dpe_bytes_times(lay_out(&plan->selection, &most).total, sizeof(float));
}

static struct layout call_layout(const struct dpe_attention *args, int n_copies, int64_t keys)
{
    const struct extent extent = {
        .n_heads = args->n_heads,
        .n_kv_heads = args->n_kv_heads,
        .head_dim = args->head_dim,
        .rows = args->rows,
        .keys = keys,
        .n_copies = n_copies,
        .n_threads = args->n_threads,
    };
    return lay_out(&args->plan->selection, &extent);
}

static float *thread_part(const struct call *call)
{
    return call->threads + (uint64_t)omp_get_thread_num() * call->layout.thread_floats;
}

static struct room thread_room(const struct call *call)
{
    float *thread = thread_part(call);
    return (struct room){
        .scores = (double *)(void *)thread,
        .dots = thread + call->layout.dots_at,
        .x = thread + call->layout.x_at,
        .rotated = thread + call->layout.rotated_at,
        .tile = thread + call->layout.tile_at,
    };
}

/* ------------------------------------------------------------------------ queries, keys, scored */

/* The rotation of a query or of keys from `position` on as they are scored; false: none. */
static bool scored_rotation(const struct dpe_attention *args, bool keys, int64_t position,
                            struct dpe_cpu_rotation *rotation)
{
    const struct dpe_selection *s = &args->plan->selection;
    const struct dpe_rotation *tables = args->rotation;
    int last = args->plan->n_bands - 1;
    int table = keys ? tables->k_table[last] : tables->q_table[last];
    if (s->scored == DPE_SCORE_CONSTANT) {
        position = keys ? 0 : s->local - 1;
    }
    *rotation = (struct dpe_cpu_rotation){
        .n_pairs = tables->n_pairs,
        .cos = tables->cos[table] + position * tables->n_pairs,
        .sin = tables->sin[table] + position * tables->n_pairs,
    };
    return s->scored != DPE_SCORE_BARE;
}

/* Keys n … n+count−1 of a KV head, count ≤ DPE_CPU_ROTATED and one after another in the cache, as
 * they are scored: where they are or in the room. */
static const float *scored_keys(const struct call *call, int64_t kv_head, int64_t n, int64_t row,
                                int64_t count, const struct room *room)
{
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    const float *keys = dpe_attention_rows(args, DPE_KV_KEYS, kv_head, row, count, room->tile);
    struct dpe_cpu_rotation rotation;
    if (!scored_rotation(args, true, n, &rotation)) {
        return keys;
    }
    bool constant = call->selection->scored == DPE_SCORE_CONSTANT;
    int64_t together = constant ? 1 : count;
    for (int64_t i = 0; i < count; i += together) {
        call->kernels->rotate(&rotation, keys + i * d, d, together, room->rotated + i * d);
    }
    return room->rotated;
}

/* Keys from n on, before `end`, that are one after another in the cache, at most DPE_CPU_ROTATED. */
static int64_t next_keys(const struct dpe_attention *args, int64_t offset, int64_t n, int64_t end,
                         int64_t *row)
{
    int64_t next = 0;
    *row = dpe_cache_row(args, offset, n, &next);
    next = next < end ? next : end;
    return next - n < DPE_CPU_ROTATED ? next - n : DPE_CPU_ROTATED;
}

static const float *kept_query(const struct dpe_attention *args, int64_t head, int64_t offset,
                               int64_t m, float *room)
{
    int64_t next = 0;
    return dpe_attention_rows(args, DPE_KV_QUERIES, head, dpe_cache_row(args, offset, m, &next), 1,
                              room);
}

/* The query of a head that chooses for a row, as it is scored (`room` [head_dim] to read it): x [head_dim], or for extremes what is
 * above 0 of it and what is below, [2 · head_dim]. */
static void scored_query(const struct call *call, int64_t row, int64_t head, float *room, float *x)
{
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    int64_t m = dpe_selection_chooser(call->selection, dpe_attention_position(args, row));
    const float *q = dpe_selection_keeps_queries(call->selection)
                         ? kept_query(args, head, dpe_attention_offset(args, row), m, room)
                         : args->q + (row * args->n_heads + head) * d;
    struct dpe_cpu_rotation rotation;
    if (scored_rotation(args, false, m, &rotation)) {
        call->kernels->rotate(&rotation, q, d, 1, x);
    } else {
        memcpy(x, q, (size_t)d * sizeof *x);
    }
    for (int64_t c = 0; c < d && call->selection->representative == DPE_REPRESENT_EXTREMES; c++) {
        x[d + c] = x[c] < 0.0F ? x[c] : 0.0F;
        x[c] = x[c] > 0.0F ? x[c] : 0.0F;
    }
}

/* ----------------------------------------------------------------------------- representatives */

static int64_t mark_floats(const struct call *call)
{
    return dpe_selection_width(call->selection, call->args->head_dim);
}

/* Blocks that are known before position m. */
static int64_t known_before(const struct dpe_selection *s, int64_t m)
{
    int64_t over = m - (dpe_block_known(s, 0) - s->block + 1);
    return over > 0 ? over / s->block : 0;
}

static void write_mean(const struct call *call, int64_t kv_head, int64_t offset, int64_t first,
                       const struct room *room, float *mark)
{
    int64_t d = call->args->head_dim;
    int64_t end = first + call->selection->block;
    memset(room->scores, 0, (size_t)d * sizeof *room->scores);
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t count = next_keys(call->args, offset, n, end, &row);
        const float *keys = scored_keys(call, kv_head, n, row, count, room);
        for (int64_t i = 0; i < count * d; i++) {
            room->scores[i % d] += (double)keys[i];
        }
        n += count;
    }
    for (int64_t c = 0; c < d; c++) {
        mark[c] = (float)(room->scores[c] / (double)call->selection->block);
    }
}

/* The largest of each component, then the smallest. */
static void write_extremes(const struct call *call, int64_t kv_head, int64_t offset, int64_t first,
                           const struct room *room, float *mark)
{
    int64_t d = call->args->head_dim;
    int64_t end = first + call->selection->block;
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t count = next_keys(call->args, offset, n, end, &row);
        const float *keys = scored_keys(call, kv_head, n, row, count, room);
        for (int64_t i = 0; i < count * d; i++) {
            float *high = mark + i % d;
            float *low = high + d;
            bool none = n == first && i < d;
            *high = none || keys[i] > *high ? keys[i] : *high;
            *low = none || keys[i] < *low ? keys[i] : *low;
        }
        n += count;
    }
}

static void add_query(double *sum, const float *q, int64_t d, double sign)
{
    for (int64_t c = 0; c < d; c++) {
        sum[c] += sign * (double)q[c];
    }
}

/* What the `local` queries after each key of a block give it, into sums [block]. */
static void sum_attention(const struct call *call, int64_t head, int64_t offset, int64_t first,
                          const struct room *room, double *sums, double *window)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t d = args->head_dim;
    memset(window, 0, (size_t)d * sizeof *window);
    for (int64_t j = 1; j <= s->local; j++) {
        add_query(window, kept_query(args, head, offset, first + j, room->tile), d, 1.0);
    }
    for (int64_t i = 0; i < s->block; i++) {
        int64_t next = 0;
        int64_t row = dpe_cache_row(args, offset, first + i, &next);
        const float *k = dpe_attention_rows(args, DPE_KV_KEYS, head / call->layout.group, row, 1,
                                            room->tile);
        sums[i] = 0.0;
        for (int64_t c = 0; c < d; c++) {
            sums[i] += window[c] * (double)k[c];
        }
        if (i + 1 < s->block) {
            int64_t after = first + i + 1;
            add_query(window, kept_query(args, head, offset, after, room->tile), d, -1.0);
            add_query(window, kept_query(args, head, offset, after + s->local, room->tile), d, 1.0);
        }
    }
}

static void write_attended(const struct call *call, int64_t head, int64_t offset, int64_t first,
                           const struct room *room, float *mark)
{
    const struct dpe_selection *s = call->selection;
    int64_t d = call->args->head_dim;
    double *sums = room->scores;
    double *total = sums + s->block;
    sum_attention(call, head, offset, first, room, sums, total);
    memset(total, 0, (size_t)d * sizeof *total);
    for (int64_t r = 0; r < s->attended; r++) {
        int64_t best = 0;
        for (int64_t i = 1; i < s->block; i++) {
            best = sums[i] > sums[best] ? i : best;
        }
        sums[best] = -(double)INFINITY;
        int64_t next = 0;
        int64_t row = dpe_cache_row(call->args, offset, first + best, &next);
        const float *key = scored_keys(call, head / call->layout.group, first + best, row, 1,
                                       room);
        add_query(total, key, d, 1.0);
    }
    for (int64_t c = 0; c < d; c++) {
        mark[c] = (float)(total[c] / (double)s->attended);
    }
}

/* The representative of block i for a head of those that have one. */
static void write_mark(const struct call *call, int64_t head, int64_t offset, int64_t i)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    const struct room room = thread_room(call);
    int64_t slot = dpe_block_slot(s, args->prefix, args->room, offset, i);
    float *mark = args->marks + (head * args->slots + slot) * mark_floats(call);
    int64_t first = s->sinks + i * s->block;
    switch (s->representative) {
    case DPE_REPRESENT_MEAN:
        write_mean(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_EXTREMES:
        write_extremes(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_ATTENDED:
        write_attended(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_KEYS:
        return;
    }
}

uint64_t dpe_cpu_mark_bytes(const struct dpe_config *config, const struct dpe_plan *plan,
                            int64_t capacity, int64_t branches)
{
    const struct dpe_selection *s = &plan->selection;
    uint64_t floats = (uint64_t)dpe_selection_slots(s, capacity, branches);
    floats = dpe_bytes_times(floats, (uint64_t)dpe_selection_width(s, config->head_dim));
    floats = dpe_bytes_times(
        floats, (uint64_t)dpe_selection_heads(s, config->n_heads, config->n_kv_heads));
    return dpe_bytes_times(floats, sizeof(float));
}

void dpe_cpu_represent(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct call call = {.kernels = kernels, .args = args, .selection = s};
    call.layout = call_layout(args, dpe_rotated_most(args->plan).n, dpe_attention_keys(args));
    call.threads = (float *)args->workspace + call.layout.thread_at;
    int64_t heads = dpe_selection_heads(s, args->n_heads, args->n_kv_heads);
    int64_t runs = args->positions != NULL ? args->rows : 1;
    for (int64_t r = 0; r < runs; r++) {
        int64_t start = dpe_attention_position(args, r);
        int64_t first = known_before(s, start);
        int64_t end = known_before(s, args->positions != NULL ? start + 1 : start + args->rows);
        int64_t offset = dpe_attention_offset(args, r);
        int64_t work = (end - first) * heads * s->block * args->head_dim;
#pragma omp parallel for num_threads(args->n_threads) schedule(dynamic, 1) if (work > SMALL_WORK)
        for (int64_t i = 0; i < (end - first) * heads; i++) {
            write_mark(&call, i % heads, offset, first + i / heads);
        }
    }
}

/* ------------------------------------------------------------------------------------ choosing */

/* Products of `heads` queries that share their keys with the candidates' representatives, added to
 * the scores. */
static void score_marks(const struct call *call, int64_t mark_head, int64_t offset, int64_t n,
                        int64_t heads, const struct room *room)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t width = mark_floats(call);
    for (int64_t i = 0; i < n;) {
        int64_t slot = dpe_block_slot(s, args->prefix, args->room, offset, i);
        int64_t count = 1;
        while (count < DPE_CPU_BLOCK && i + count < n &&
               dpe_block_slot(s, args->prefix, args->room, offset, i + count) == slot + count) {
            count++;
        }
        struct dpe_cpu_dots dots = {
            .w = args->marks + (mark_head * args->slots + slot) * width,
            .ldw = width,
            .dtype = DPE_F32,
            .n = count,
            .k = width,
            .rows = heads,
            .x = room->x,
            .ldx = 2 * args->head_dim,
            .out = room->dots,
            .ldo = DPE_CPU_BLOCK,
        };
        call->kernels->dots(&dots);
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t j = 0; j < count; j++) {
                room->scores[i + j] += (double)room->dots[h * DPE_CPU_BLOCK + j];
            }
        }
        i += count;
    }
}

/* The same with the largest product of a block's keys. */
static void score_keys(const struct call *call, int64_t kv_head, int64_t offset, int64_t n,
                       int64_t heads, const struct room *room)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t d = args->head_dim;
    int64_t end = s->sinks + n * s->block;
    float best[HEADS];
    for (int64_t key = s->sinks; key < end;) {
        int64_t row = 0;
        int64_t count = next_keys(args, offset, key, end, &row);
        struct dpe_cpu_dots dots = {
            .w = scored_keys(call, kv_head, key, row, count, room),
            .ldw = d,
            .dtype = DPE_F32,
            .n = count,
            .k = d,
            .rows = heads,
            .x = room->x,
            .ldx = 2 * d,
            .out = room->dots,
            .ldo = DPE_CPU_BLOCK,
        };
        call->kernels->dots(&dots);
        for (int64_t j = 0; j < count; j++, key++) {
            int64_t in_block = (key - s->sinks) % s->block;
            for (int64_t h = 0; h < heads; h++) {
                float product = room->dots[h * DPE_CPU_BLOCK + j];
                best[h] = in_block == 0 || product > best[h] ? product : best[h];
                room->scores[(key - s->sinks) / s->block] +=
                    in_block + 1 == s->block ? (double)best[h] : 0.0;
            }
        }
    }
}

/* What group g of the slab chooses for a unit. */
static void choose(const struct call *call, int64_t g, int64_t unit)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    const struct room room = thread_room(call);
    int64_t group = call->layout.group;
    int64_t row = call->of_group[g];
    int64_t offset = dpe_attention_offset(args, row);
    int64_t n = dpe_selection_candidates(s, dpe_attention_position(args, row));
    int64_t unit_heads = args->n_heads / call->layout.units;
    bool by_keys = s->representative == DPE_REPRESENT_KEYS;
    bool own = s->representative == DPE_REPRESENT_ATTENDED; /* each query head has its own marks */
    memset(room.scores, 0, (size_t)n * sizeof *room.scores);
    for (int64_t h = unit * unit_heads; h < (unit + 1) * unit_heads && n > s->k;) {
        int64_t left = (unit + 1) * unit_heads - h;
        int64_t shared = group - h % group;
        int64_t heads = left < shared ? left : shared;
        heads = own ? 1 : heads < HEADS ? heads : HEADS;
        for (int64_t i = 0; i < heads; i++) {
            scored_query(call, row, h + i, room.tile, room.x + i * 2 * args->head_dim);
        }
        if (by_keys) {
            score_keys(call, h / group, offset, n, heads, &room);
        } else {
            score_marks(call, own ? h : h / group, offset, n, heads, &room);
        }
        h += heads;
    }
    int64_t at = g * call->layout.units + unit;
    call->counts[at] = (int32_t)dpe_selection_choose(room.scores, n, s->k,
                                                     call->lists + at * call->layout.chosen);
}

/* ------------------------------------------------------------------------------------- meeting */

static void write_head(const struct dpe_cpu_query *query, int64_t row, int64_t g)
{
    const struct dpe_attention *args = query->args;
    int64_t d = args->head_dim;
    int64_t at = row * args->n_heads + query->head + g;
    float sum = query->sum[g];
    float inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t c = 0; c < d; c++) {
        args->out[at * d + c] = query->o[g * d + c] * inverse;
    }
    if (args->lse != NULL) {
        args->lse[at] = sum == 0.0F ? -INFINITY
                                    : (float)((double)query->reference[g] / LOG2_E +
                                              log((double)sum));
    }
}

static void meet_run(const struct dpe_cpu_query *query, int64_t offset, const struct dpe_run *run)
{
    int64_t next = 0;
    for (int64_t n = run->first; n < run->end; n = next) {
        struct dpe_cpu_keys keys = {
            .place = run->place + (run->constant ? 0 : n - run->first),
            .constant = run->constant,
            .row = dpe_cache_row(query->args, offset, n, &next),
        };
        next = next - n < DPE_CPU_BLOCK ? next : n + DPE_CPU_BLOCK;
        next = next < run->end ? next : run->end;
        keys.count = next - n;
        dpe_cpu_query_meet(query, &keys);
    }
}

/* Heads head … head+heads−1, of one KV head and one choice, of a row. */
static void meet(const struct call *call, int64_t row, int64_t head, int64_t heads)
{
    const struct dpe_attention *args = call->args;
    const struct layout *layout = &call->layout;
    float *thread = thread_part(call);
    float *state = thread + layout->state_at;
    float *q = thread + layout->q_at;
    struct dpe_run *runs = (struct dpe_run *)(void *)(thread + layout->runs_at);
    int64_t m = dpe_attention_position(args, row);
    int64_t unit = head / (args->n_heads / layout->units);
    int64_t at = call->of_row[row - call->row] * layout->units + unit;
    struct dpe_cpu_query query = {
        .kernels = call->kernels,
        .args = args,
        .q_copies = &call->q_copies,
        .k_copies = &call->k_copies,
        .head = head,
        .heads = heads,
        .q = q,
        .factor = (float)(dpe_plan_query_scale(args->plan, m) * LOG2_E),
        .reference = state,
        .sum = state + heads,
        .o = state + 2 * heads,
        .s = thread + layout->s_at,
        .rotated = thread + layout->rotated_at,
        .tile = thread + layout->tile_at,
        .select = (uint32_t *)(void *)(thread + layout->select_at),
    };
    int64_t n = dpe_selection_runs(call->selection, m, call->lists + at * layout->chosen,
                                   call->counts[at], runs, &query.place);
    for (int64_t g = 0; g < heads; g++) {
        dpe_cpu_rotate_query(call->kernels, args, &call->q_copies, row, head + g, query.place,
                             query.select, q + g * call->q_copies.n * args->head_dim);
    }
    dpe_cpu_query_begin(&query);
    for (int64_t i = 0; i < n; i++) {
        meet_run(&query, dpe_attention_offset(args, row), &runs[i]);
    }
    for (int64_t g = 0; g < heads; g++) {
        write_head(&query, row, g);
    }
}

/* Rows that have one chooser, of one branch, are a group. */
static void group_rows(struct call *call)
{
    const struct dpe_attention *args = call->args;
    call->groups = 0;
    for (int64_t i = 0; i < call->rows; i++) {
        int64_t row = call->row + i;
        int64_t m = dpe_attention_position(args, row);
        if (i == 0 || args->positions != NULL || m == dpe_selection_chooser(call->selection, m)) {
            call->of_group[call->groups++] = row;
        }
        call->of_row[i] = call->groups - 1;
    }
}

void dpe_cpu_attention_select(const struct dpe_cpu_kernels *kernels,
                              const struct dpe_attention *args)
{
    struct call call = {
        .kernels = kernels,
        .args = args,
        .selection = &args->plan->selection,
        .q_copies = dpe_rotated_find(args->plan, args->rotation, false),
        .k_copies = dpe_rotated_find(args->plan, args->rotation, true),
    };
    int64_t keys = dpe_attention_keys(args);
    call.layout = call_layout(args, call.q_copies.n, keys);
    const struct layout *layout = &call.layout;
    call.threads = (float *)args->workspace + layout->thread_at;
    int64_t heads = layout->units == args->n_heads ? 1 : layout->group;
    for (call.row = 0; call.row < args->rows; call.row += SLAB) {
        call.rows = args->rows - call.row < SLAB ? args->rows - call.row : SLAB;
        group_rows(&call);
        call.counts = (int32_t *)(void *)((float *)args->workspace + layout->lists_at);
        call.lists = call.counts + call.groups * layout->units;
        int64_t walked = dpe_selection_keys(call.selection, keys - 1) + keys / call.selection->block;
        int64_t work = call.rows * args->n_heads * args->head_dim * walked;
#pragma omp parallel num_threads(args->n_threads) if (work > SMALL_WORK)
        {
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < call.groups * layout->units; i++) {
                choose(&call, i / layout->units, i % layout->units);
            }
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < call.rows * args->n_heads / heads; i++) {
                int64_t head = i * heads % args->n_heads;
                meet(&call, call.row + i * heads / args->n_heads, head, heads);
            }
        }
    }
}
