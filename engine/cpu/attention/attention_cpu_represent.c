/* Representatives of blocks, made when a block is complete and kept beside the cache. */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/attention/attention_cpu_internal.h"

enum { SMALL_WORK = 1 << 21 /* multiplications for which no second thread is woken */ };

int64_t dpe_cpu_select_mark_floats(const struct dpe_cpu_select_call *call)
{
    return dpe_selection_width(call->selection, call->args->head_dim);
}

/* Of keys as they are scored, or of values as they are. */
static void write_mean(const struct dpe_cpu_select_call *call, enum dpe_kv_part part,
                       int64_t kv_head, int64_t offset, int64_t first,
                       const struct dpe_cpu_select_room *room, float *mark)
{
    int64_t d = call->args->head_dim;
    int64_t end = first + call->selection->block;
    memset(room->scores, 0, (size_t)d * sizeof *room->scores);
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t count = dpe_cpu_select_next(call->args, offset, n, end, DPE_CPU_ROTATED, &row);
        const float *rows =
            part == DPE_KV_KEYS
                ? dpe_cpu_select_keys(call, kv_head, n, row, count, room)
                : dpe_attention_rows(call->args, part, kv_head, row, count, room->tile);
        for (int64_t i = 0; i < count * d; i++) {
            room->scores[i % d] += (double)rows[i];
        }
        n += count;
    }
    for (int64_t c = 0; c < d; c++) {
        mark[c] = (float)(room->scores[c] / (double)call->selection->block);
    }
}

/* The largest of each component, then the smallest. */
static void write_extremes(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t offset,
                           int64_t first, const struct dpe_cpu_select_room *room, float *mark)
{
    int64_t d = call->args->head_dim;
    int64_t end = first + call->selection->block;
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t count = dpe_cpu_select_next(call->args, offset, n, end, DPE_CPU_ROTATED, &row);
        const float *keys = dpe_cpu_select_keys(call, kv_head, n, row, count, room);
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
static void sum_attention(const struct dpe_cpu_select_call *call, int64_t head, int64_t offset,
                          int64_t first, const struct dpe_cpu_select_room *room, double *sums,
                          double *window)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t d = args->head_dim;
    memset(window, 0, (size_t)d * sizeof *window);
    for (int64_t j = 1; j <= s->local; j++) {
        add_query(window, dpe_cpu_select_query(args, head, offset, first + j, room->tile), d, 1.0);
    }
    for (int64_t i = 0; i < s->block; i++) {
        int64_t next = 0;
        int64_t row = dpe_cache_row(args, offset, first + i, &next);
        const float *k =
            dpe_attention_rows(args, DPE_KV_KEYS, head / call->layout.group, row, 1, room->tile);
        sums[i] = 0.0;
        for (int64_t c = 0; c < d; c++) {
            sums[i] += window[c] * (double)k[c];
        }
        if (i + 1 < s->block) {
            add_query(window, dpe_cpu_select_query(args, head, offset, first + i + 1, room->tile),
                      d, -1.0);
            add_query(
                window,
                dpe_cpu_select_query(args, head, offset, first + i + 1 + s->local, room->tile), d,
                1.0);
        }
    }
}

static void write_attended(const struct dpe_cpu_select_call *call, int64_t head, int64_t offset,
                           int64_t first, const struct dpe_cpu_select_room *room, float *mark)
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
        const float *key =
            dpe_cpu_select_keys(call, head / call->layout.group, first + best, row, 1, room);
        add_query(total, key, d, 1.0);
    }
    for (int64_t c = 0; c < d; c++) {
        mark[c] = (float)(total[c] / (double)s->attended);
    }
}

/* Rows that stand at their places in a block, from place i on, as band 0 has them for all pairs. */
static void rotate_in_block(const struct dpe_cpu_select_call *call, bool keys, int64_t i,
                            const float *from, int64_t count, float *to)
{
    const struct dpe_rotation *tables = call->args->rotation;
    int table = keys ? tables->k_table[0] : tables->q_table[0];
    const struct dpe_cpu_rotation rotation = {
        .n_pairs = tables->n_pairs,
        .cos = tables->cos[table] + i * tables->n_pairs,
        .sin = tables->sin[table] + i * tables->n_pairs,
    };
    call->kernels->rotate(&rotation, from, call->args->head_dim, count, to);
}

/* What `rows` queries x [rows][2 · head_dim] make of all keys of a block [block][head_dim] and of
 * values, to o [rows][head_dim]: those of the cache from key `first` on, or (v not NULL) v. */
static void attend_block(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t offset,
                         int64_t first, const float *v, int64_t rows,
                         const struct dpe_cpu_select_room *room)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_cpu_kernels *kernels = call->kernels;
    int64_t d = args->head_dim;
    int64_t end = first + call->selection->block;
    float factor[DPE_CPU_SELECT_HEADS];
    float reference[DPE_CPU_SELECT_HEADS];
    float sum[DPE_CPU_SELECT_HEADS] = {0};
    float alpha[DPE_CPU_SELECT_HEADS];
    const struct dpe_cpu_softmax state = {factor, reference, sum, alpha};
    for (int64_t r = 0; r < rows; r++) {
        factor[r] = (float)(dpe_plan_query_scale(args->plan, args->layer, 0) * LOG2_E);
        reference[r] = -INFINITY;
    }
    memset(room->o, 0, (size_t)(rows * d) * sizeof *room->o);
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t most = DPE_CPU_ROTATED;
        int64_t count = dpe_cpu_select_next(args, offset, n, end, most, &row);
        int64_t columns = (count + kernels->panel - 1) / kernels->panel * kernels->panel;
        for (int64_t i = 0; i < rows * DPE_CPU_BLOCK; i++) {
            room->dots[i] = -INFINITY;
        }
        const struct dpe_cpu_vectors keys = {room->keys + (n - first) * d, d, count};
        dpe_cpu_select_dots(call, &keys, rows, room, room->dots, DPE_CPU_BLOCK);
        kernels->softmax(&state, rows, columns, room->dots);
        const float *values =
            v != NULL ? v + (n - first) * d
                      : dpe_attention_rows(args, DPE_KV_VALUES, kv_head, row, count, room->tile);
        const struct dpe_cpu_few few = {
            .rows = rows,
            .count = count,
            .width = d,
            .p = room->dots,
            .v = values,
            .alpha = alpha,
        };
        kernels->accumulate_few(&few, room->o);
        n += count;
    }
    for (int64_t i = 0; i < rows * d; i++) {
        room->o[i] /= sum[i / d];
    }
}

static void write_weighted(const struct dpe_cpu_select_call *call, int64_t head, int64_t offset,
                           int64_t first, const struct dpe_cpu_select_room *room, float *mark)
{
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    int64_t kv_head = head / call->layout.group;
    int64_t end = first + call->selection->block;
    double *total = room->scores;
    for (int64_t n = first; n < end;) {
        int64_t row = 0;
        int64_t count = dpe_cpu_select_next(args, offset, n, end, DPE_CPU_ROTATED, &row);
        rotate_in_block(call, true, n - first,
                        dpe_attention_rows(args, DPE_KV_KEYS, kv_head, row, count, room->tile),
                        count, room->keys + (n - first) * d);
        n += count;
    }
    memset(total, 0, (size_t)d * sizeof *total);
    for (int64_t n = first; n < end; n += DPE_CPU_SELECT_HEADS) {
        int64_t rows = end - n < DPE_CPU_SELECT_HEADS ? end - n : DPE_CPU_SELECT_HEADS;
        for (int64_t r = 0; r < rows; r++) {
            rotate_in_block(call, false, n + r - first,
                            dpe_cpu_select_query(args, head, offset, n + r, room->tile), 1,
                            room->x + r * 2 * d);
        }
        attend_block(call, kv_head, offset, first, NULL, rows, room);
        for (int64_t r = 0; r < rows; r++) {
            add_query(total, room->o + r * d, d, 1.0);
        }
    }
    for (int64_t c = 0; c < d; c++) {
        room->x[c] = (float)(total[c] / (double)call->selection->block);
    }
    attend_block(call, kv_head, offset, first, room->keys, 1, room);
    memcpy(mark, room->o, (size_t)d * sizeof *mark);
}

/* The representative of block i for a head of those that have one. */
static void write_mark(const struct dpe_cpu_select_call *call, int64_t head, int64_t offset,
                       int64_t i)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    const struct dpe_cpu_select_room room = dpe_cpu_select_thread_room(call);
    int64_t slot = dpe_block_slot(s, args->prefix, args->room, offset, i);
    float *mark = args->marks + (head * args->slots + slot) * dpe_cpu_select_mark_floats(call);
    int64_t first = s->sinks + i * s->block;
    switch (s->representative) {
    case DPE_REPRESENT_MEAN:
        write_mean(call, DPE_KV_KEYS, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_COMPRESSED:
        write_mean(call, head < args->n_kv_heads ? DPE_KV_KEYS : DPE_KV_VALUES,
                   head % args->n_kv_heads, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_EXTREMES:
        write_extremes(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_ATTENDED:
        write_attended(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_WEIGHTED:
        write_weighted(call, head, offset, first, &room, mark);
        return;
    case DPE_REPRESENT_KEYS:
    case DPE_REPRESENT_PROBABILITY:
        return;
    }
}

void dpe_cpu_represent(const struct dpe_cpu_kernels *kernels, const struct dpe_attention *args)
{
    const struct dpe_selection *s = &args->plan->selection;
    struct dpe_cpu_select_call call = {.kernels = kernels, .args = args, .selection = s};
    call.layout =
        dpe_cpu_select_lay_out(args, dpe_rotated_most(args->plan).n, dpe_attention_keys(args));
    call.threads = (float *)args->workspace + call.layout.thread_at;
    int64_t heads = dpe_selection_heads(s, args->n_heads, args->n_kv_heads);
    int64_t runs = args->positions != NULL ? args->rows : 1;
    for (int64_t r = 0; r < runs; r++) {
        int64_t start = dpe_attention_position(args, r);
        int64_t last = args->positions != NULL ? start + 1 : start + args->rows;
        int64_t first = dpe_blocks_known_before(s, start);
        int64_t end = dpe_blocks_known_before(s, last);
        int64_t offset = dpe_attention_offset(args, r);
        int64_t work = (end - first) * heads * s->block * args->head_dim;
#pragma omp parallel for num_threads(args->n_threads) schedule(dynamic, 1) if (work > SMALL_WORK)
        for (int64_t i = 0; i < (end - first) * heads; i++) {
            write_mark(&call, i % heads, offset, first + i / heads);
        }
    }
}
