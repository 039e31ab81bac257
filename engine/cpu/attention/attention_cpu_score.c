/* Scores under a selection: queries and keys as they are scored, and their products with each other
 * or with what represents blocks. */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu_select.h"

void dpe_cpu_select_dots(const struct dpe_cpu_select_call *call, const struct dpe_cpu_vectors *to,
                         int64_t rows, const struct dpe_cpu_select_room *room, float *out,
                         int64_t ldo)
{
    const struct dpe_cpu_dots dots = {
        .w = to->first,
        .ldw = to->width,
        .dtype = DPE_F32,
        .n = to->count,
        .k = to->width,
        .rows = rows,
        .x = room->x,
        .ldx = 2 * call->args->head_dim,
        .out = out,
        .ldo = ldo,
    };
    call->kernels->dots(&dots);
}

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

const float *dpe_cpu_select_keys(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t n,
                                 int64_t row, int64_t count, const struct dpe_cpu_select_room *room)
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

int64_t dpe_cpu_select_next(const struct dpe_attention *args, int64_t offset, int64_t n,
                            int64_t end, int64_t most, int64_t *row)
{
    int64_t next = 0;
    *row = dpe_cache_row(args, offset, n, &next);
    next = next < end ? next : end;
    return next - n < most ? next - n : most;
}

const float *dpe_cpu_select_query(const struct dpe_attention *args, int64_t head, int64_t offset,
                                  int64_t m, float *room)
{
    int64_t next = 0;
    return dpe_attention_rows(args, DPE_KV_QUERIES, head, dpe_cache_row(args, offset, m, &next), 1,
                              room);
}

void dpe_cpu_select_scored_query(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                                 int64_t m, float *room, float *x)
{
    const struct dpe_attention *args = call->args;
    int64_t d = args->head_dim;
    const float *q =
        dpe_selection_keeps_queries(call->selection)
            ? dpe_cpu_select_query(args, head, dpe_attention_offset(args, row), m, room)
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

int64_t dpe_cpu_select_next_marks(const struct dpe_cpu_select_call *call, int64_t mark_head,
                                  int64_t offset, int64_t i, int64_t n, const float **mark)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t slot = dpe_block_slot(s, args->prefix, args->room, offset, i);
    int64_t count = 1;
    while (count < DPE_CPU_BLOCK && i + count < n &&
           dpe_block_slot(s, args->prefix, args->room, offset, i + count) == slot + count) {
        count++;
    }
    *mark = args->marks + (mark_head * args->slots + slot) * dpe_cpu_select_mark_floats(call);
    return count;
}

/* Queries of the room (x) as rows that meet vectors: with the kernel `dots`, or as tiles. */
struct scoring {
    int64_t rows;
    int64_t heads; /* consecutive rows that are one query's */
    bool tiles;
    int64_t step, most, ld; /* rows and vectors at a time; from the products of a row to the next */
};

static struct scoring begin_scoring(const struct dpe_cpu_select_call *call, int64_t queries,
                                    int64_t heads, int64_t width,
                                    const struct dpe_cpu_select_room *room)
{
    const struct dpe_cpu_kernels *kernels = call->kernels;
    int64_t ldx = 2 * call->args->head_dim;
    int64_t rows = queries * heads;
    struct scoring scoring = {.rows = rows, .heads = heads};
    scoring.tiles = call->tiles;
    scoring.step = scoring.tiles ? kernels->mr : rows;
    scoring.most = scoring.tiles ? kernels->panel : DPE_CPU_BLOCK;
    scoring.ld = scoring.tiles ? DPE_CPU_ROTATED : DPE_CPU_BLOCK;
    for (int64_t r = 0; r < rows && scoring.tiles; r += scoring.step) {
        kernels->pack_rows(room->x + r * ldx, ldx,
                           rows - r < scoring.step ? rows - r : scoring.step, width,
                           room->packs + r * width);
    }
    return scoring;
}

/* Products of rows row … row+rows−1 with vectors (keys or blocks) first … first+count−1, in
 * room->dots [rows][ld], and what is done with them. */
struct products {
    int64_t row, rows, first, count;
};
typedef void take_products(const struct dpe_cpu_select_call *call, const struct scoring *scoring,
                           const struct products *products, const struct dpe_cpu_select_room *room);

/* All rows meet at most scoring->most vectors; `first`: which vector the first one is. */
static void score_vectors(const struct dpe_cpu_select_call *call, const struct scoring *scoring,
                          const struct dpe_cpu_vectors *vectors, int64_t first,
                          const struct dpe_cpu_select_room *room, take_products *take)
{
    const struct dpe_cpu_kernels *kernels = call->kernels;
    int64_t width = vectors->width;
    if (scoring->tiles) {
        kernels->pack_panel(vectors->first, width, vectors->count, width, room->panel);
    }
    for (int64_t r = 0; r < scoring->rows; r += scoring->step) {
        int64_t left = scoring->rows - r;
        if (scoring->tiles) {
            kernels->tile(room->packs + r * width, room->panel, width, room->dots, scoring->ld);
        } else {
            dpe_cpu_select_dots(call, vectors, scoring->rows, room, room->dots, scoring->ld);
        }
        const struct products products = {
            .row = r,
            .rows = left < scoring->step ? left : scoring->step,
            .first = first,
            .count = vectors->count,
        };
        take(call, scoring, &products, room);
    }
}

static void add_products(const struct dpe_cpu_select_call *call, const struct scoring *scoring,
                         const struct products *products, const struct dpe_cpu_select_room *room)
{
    for (int64_t r = 0; r < products->rows; r++) {
        int64_t query = (products->row + r) / scoring->heads;
        double *scores = room->scores + query * call->layout.blocks + products->first;
        for (int64_t j = 0; j < products->count; j++) {
            scores[j] += (double)room->dots[r * scoring->ld + j];
        }
    }
}

void dpe_cpu_select_score_marks(const struct dpe_cpu_select_call *call, int64_t mark_head,
                                int64_t offset, int64_t n, int64_t queries, int64_t heads,
                                const struct dpe_cpu_select_room *room)
{
    int64_t width = dpe_cpu_select_mark_floats(call);
    const struct scoring scoring = begin_scoring(call, queries, heads, width, room);
    for (int64_t i = 0; i < n;) {
        const float *mark = NULL;
        int64_t end = n - i < scoring.most ? n : i + scoring.most;
        int64_t count = dpe_cpu_select_next_marks(call, mark_head, offset, i, end, &mark);
        const struct dpe_cpu_vectors marks = {mark, width, count};
        score_vectors(call, &scoring, &marks, i, room, add_products);
        i += count;
    }
}

/* The largest of `count` products and of `best`: eight at a time, which compilers make a vector of.
 */
static float largest(const float *products, int64_t count, float best)
{
    float most[8] = {best, best, best, best, best, best, best, best};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int j = 0; j < 8; j++) {
            most[j] = products[i + j] > most[j] ? products[i + j] : most[j];
        }
    }
    for (; i < count; i++) {
        most[0] = products[i] > most[0] ? products[i] : most[0];
    }
    for (int j = 1; j < 8; j++) {
        most[0] = most[j] > most[0] ? most[j] : most[0];
    }
    return most[0];
}

/* The largest product of each block, for keys from `first` on: what the block that the first key
 * lies in has so far is in best [rows]. */
static void add_largest(const struct dpe_cpu_select_call *call, const struct scoring *scoring,
                        const struct products *products, const struct dpe_cpu_select_room *room)
{
    const struct dpe_selection *s = call->selection;
    float *best = room->best + products->row;
    for (int64_t j = 0; j < products->count;) {
        int64_t place = products->first + j - s->sinks;
        int64_t in_block = place % s->block;
        int64_t left = products->count - j;
        int64_t n = s->block - in_block < left ? s->block - in_block : left;
        for (int64_t r = 0; r < products->rows; r++) {
            best[r] =
                largest(room->dots + r * scoring->ld + j, n, in_block == 0 ? -INFINITY : best[r]);
        }
        for (int64_t r = 0; r < products->rows && in_block + n == s->block; r++) {
            int64_t query = (products->row + r) / scoring->heads;
            room->scores[query * call->layout.blocks + place / s->block] += (double)best[r];
        }
        j += n;
    }
}

void dpe_cpu_select_score_keys(const struct dpe_cpu_select_call *call, int64_t kv_head,
                               int64_t offset, int64_t n, int64_t queries, int64_t heads,
                               const struct dpe_cpu_select_room *room)
{
    int64_t d = call->args->head_dim;
    const struct scoring scoring = begin_scoring(call, queries, heads, d, room);
    int64_t end = call->selection->sinks + n * call->selection->block;
    for (int64_t key = call->selection->sinks; key < end;) {
        int64_t at = 0;
        int64_t count =
            dpe_cpu_select_next(call->args, offset, key, end, call->kernels->panel, &at);
        const struct dpe_cpu_vectors keys = {
            dpe_cpu_select_keys(call, kv_head, key, at, count, room), d, count};
        score_vectors(call, &scoring, &keys, key, room, add_largest);
        key += count;
    }
}
