/* Choices under a selection: queries and keys as they are scored, their products with each other or
 * with what represents blocks, the scores of blocks and distances, and the best of them. */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu_internal.h"

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

/* The query of a head at position m that scores for a row, as it is scored (`room` [head_dim] to
 *  read it): x [head_dim], or for extremes what is above 0 of it and what is below, [2 · head_dim].
 */
static void scored_query(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
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

/* How many blocks from i on, before n and at most DPE_CPU_BLOCK, have their representatives one
 * after another: of a head of those that have some, from *mark on. */
static int64_t next_marks(const struct dpe_cpu_select_call *call, int64_t mark_head, int64_t offset,
                          int64_t i, int64_t n, const float **mark)
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

/* Products of queries of the room (x, [queries][heads]) with the representatives of n blocks,
 * summed over heads and added to the scores [queries][layout.blocks]. */
static void score_marks(const struct dpe_cpu_select_call *call, int64_t mark_head, int64_t offset,
                        int64_t n, int64_t queries, int64_t heads,
                        const struct dpe_cpu_select_room *room)
{
    int64_t width = dpe_cpu_select_mark_floats(call);
    const struct scoring scoring = begin_scoring(call, queries, heads, width, room);
    for (int64_t i = 0; i < n;) {
        const float *mark = NULL;
        int64_t end = n - i < scoring.most ? n : i + scoring.most;
        int64_t count = next_marks(call, mark_head, offset, i, end, &mark);
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

/* The same with the largest product of a block's keys, which are unpacked and rotated once for all
 *  queries. */
static void score_keys(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t offset,
                       int64_t n, int64_t queries, int64_t heads,
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

/* Blocks that a group may choose from. */
static int64_t candidates(const struct dpe_cpu_select_call *call, int64_t g)
{
    return dpe_selection_candidates(call->selection,
                                    dpe_attention_position(call->args, call->of_group[g]));
}

/* Logits of `rows` queries [rows][2 · head_dim] of a head for the keys 0 … end−1, to p
 * [rows][keys]. */
static void probability_logits(const struct dpe_cpu_select_call *call, int64_t kv_head,
                               int64_t offset, int64_t end, int64_t rows,
                               const struct dpe_cpu_select_room *room)
{
    for (int64_t n = 0; n < end;) {
        int64_t row = 0;
        int64_t count = dpe_cpu_select_next(call->args, offset, n, end, DPE_CPU_ROTATED, &row);
        const struct dpe_cpu_vectors keys = {
            dpe_cpu_select_keys(call, kv_head, n, row, count, room), call->args->head_dim, count};
        dpe_cpu_select_dots(call, &keys, rows, room, room->p + n, call->layout.keys);
        n += count;
    }
}

/* Logits of the query at m to e^(logit − the largest); their sum. */
static double exponentials(const struct dpe_cpu_select_call *call, int64_t m, float *p, int64_t n)
{
    const struct dpe_plan *plan = call->args->plan;
    double scale = dpe_plan_query_scale(plan, call->args->layer, m);
    double largest = -(double)INFINITY;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double logit = scale * (double)p[i];
        double cap = plan->attention_cap;
        logit = cap > 0.0 ? cap * tanh(logit / cap) : logit;
        p[i] = (float)(logit * LOG2_E);
        largest = (double)p[i] > largest ? (double)p[i] : largest;
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] -= (float)largest;
    }
    call->kernels->exp2(p, n, p);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)p[i];
    }
    return sum;
}

/* The probabilities that the query at m has for its keys, from their logits p, added to the scores
 * of n blocks and n_far distances. */
static void add_probabilities(const struct dpe_cpu_select_call *call, int64_t m, float *p,
                              int64_t n, int64_t n_far, const struct dpe_cpu_select_room *room)
{
    const struct dpe_selection *s = call->selection;
    double sum = exponentials(call, m, p, m + 1);
    int64_t end = s->sinks + n * s->block;
    for (int64_t i = s->sinks; i < end && i <= m; i++) {
        room->scores[(i - s->sinks) / s->block] += (double)p[i] / sum;
    }
    for (int64_t i = 0; i < n_far && i <= m - s->local; i++) {
        room->far[i] += (double)p[m - s->local - i] / sum;
    }
}

/* What the last queries of a head before those of a row give blocks and distances. */
static void score_probability(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                              int64_t n, int64_t n_far, const struct dpe_cpu_select_room *room)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t offset = dpe_attention_offset(args, row);
    int64_t end = dpe_selection_chooser(s, dpe_attention_position(args, row)) + 1;
    for (int64_t m = end > s->last ? end - s->last : 0; m < end;) {
        int64_t rows = end - m < DPE_CPU_SELECT_HEADS ? end - m : DPE_CPU_SELECT_HEADS;
        for (int64_t i = 0; i < rows; i++) {
            scored_query(call, row, head, m + i, room->tile, room->x + i * 2 * args->head_dim);
        }
        probability_logits(call, head / call->layout.group, offset, m + rows, rows, room);
        for (int64_t i = 0; i < rows; i++) {
            add_probabilities(call, m + i, room->p + i * call->layout.keys, n, n_far, room);
        }
        m += rows;
    }
}

/* Logits of `heads` queries that share their keys for the means of n blocks' keys, to p [heads]
 * [layout.blocks]. */
static void compressed_logits(const struct dpe_cpu_select_call *call, int64_t kv_head,
                              int64_t offset, int64_t n, int64_t heads,
                              const struct dpe_cpu_select_room *room)
{
    for (int64_t i = 0; i < n;) {
        const float *mark = NULL;
        int64_t count = next_marks(call, kv_head, offset, i, n, &mark);
        const struct dpe_cpu_vectors means = {mark, call->args->head_dim, count};
        dpe_cpu_select_dots(call, &means, heads, room, room->p + i, call->layout.blocks);
        i += count;
    }
}

/* What probabilities p [heads][layout.blocks] make of the means of n blocks' values, to out [heads]
 * [head_dim]. */
static void weigh_marks(const struct dpe_cpu_select_call *call, int64_t kv_head, int64_t offset,
                        int64_t n, int64_t heads, const struct dpe_cpu_select_room *room,
                        float *out)
{
    const struct dpe_attention *args = call->args;
    const float alpha[DPE_CPU_SELECT_HEADS] = {1.0F, 1.0F, 1.0F, 1.0F};
    memset(out, 0, (size_t)(heads * args->head_dim) * sizeof *out);
    for (int64_t i = 0; i < n;) {
        const float *mark = NULL;
        int64_t count = next_marks(call, args->n_kv_heads + kv_head, offset, i, n, &mark);
        for (int64_t h = 0; h < heads; h++) {
            memcpy(room->dots + h * DPE_CPU_BLOCK, room->p + h * call->layout.blocks + i,
                   (size_t)count * sizeof *room->dots);
        }
        const struct dpe_cpu_few few = {
            .rows = heads,
            .count = count,
            .width = args->head_dim,
            .p = room->dots,
            .v = mark,
            .alpha = alpha,
        };
        call->kernels->accumulate_few(&few, out);
        i += count;
    }
}

/* Probabilities of the means of all blocks that are complete at m, of which n are candidates. */
static void score_compressed(const struct dpe_cpu_select_call *call, int64_t row, int64_t head,
                             int64_t heads, int64_t n, const struct dpe_cpu_select_room *room)
{
    const struct dpe_attention *args = call->args;
    int64_t offset = dpe_attention_offset(args, row);
    int64_t m = dpe_selection_chooser(call->selection, dpe_attention_position(args, row));
    int64_t complete = dpe_selection_complete(call->selection, m);
    int64_t kv_head = head / call->layout.group;
    compressed_logits(call, kv_head, offset, complete, heads, room);
    for (int64_t h = 0; h < heads; h++) {
        float *p = room->p + h * call->layout.blocks;
        double sum = exponentials(call, m, p, complete);
        for (int64_t i = 0; i < complete; i++) {
            p[i] = (float)((double)p[i] / sum);
        }
        for (int64_t i = 0; i < n; i++) {
            room->scores[i] += (double)p[i];
        }
    }
    if (args->compressed != NULL) {
        weigh_marks(call, kv_head, offset, complete, heads, room,
                    args->compressed + (row * args->n_heads + head) * args->head_dim);
    }
}

/* What heads head … head+heads−1 of one KV head give the blocks, with their own marks or the KV
 * head's, at the rows of `count` groups from g on: one where probabilities score. */
static void score_blocks(const struct dpe_cpu_select_call *call, int64_t g, int64_t count,
                         int64_t head, int64_t heads, const struct dpe_cpu_select_room *room)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    int64_t offset = dpe_attention_offset(args, call->of_group[g]);
    int64_t n = candidates(call, g + count - 1);
    int64_t kv_head = head / call->layout.group;
    for (int64_t i = 0; i < count * heads; i++) {
        int64_t row = call->of_group[g + i / heads];
        int64_t m = dpe_selection_chooser(s, dpe_attention_position(args, row));
        scored_query(call, row, head + i % heads, m, room->tile, room->x + i * 2 * args->head_dim);
    }
    if (s->representative == DPE_REPRESENT_COMPRESSED) {
        score_compressed(call, call->of_group[g], head, heads, n, room);
    } else if (s->representative == DPE_REPRESENT_KEYS) {
        score_keys(call, kv_head, offset, n, count, heads, room);
    } else {
        score_marks(call, dpe_selection_own_marks(s) ? head : kv_head, offset, n, count, heads,
                    room);
    }
}

/* The best blocks and distances of group g for a unit, from their scores. */
static void choose_best(const struct dpe_cpu_select_call *call, int64_t g, int64_t unit,
                        double *scores, const double *far)
{
    const struct dpe_selection *s = call->selection;
    const struct dpe_cpu_select_layout *layout = &call->layout;
    int64_t n = candidates(call, g);
    int64_t n_far =
        dpe_selection_distances(s, dpe_attention_position(call->args, call->of_group[g]));
    int64_t at = g * layout->units + unit;
    int32_t *list = call->lists + at * (layout->chosen + layout->slashes);
    dpe_selection_favour(s, scores, n);
    call->counts[2 * at] = (int32_t)dpe_selection_choose(scores, n, s->k, list);
    call->counts[2 * at + 1] =
        (int32_t)dpe_selection_choose(far, n > s->k ? n_far : 0, s->slashes, list + layout->chosen);
}

void dpe_cpu_select_choose(const struct dpe_cpu_select_call *call, int64_t g, int64_t count,
                           int64_t unit)
{
    const struct dpe_attention *args = call->args;
    const struct dpe_selection *s = call->selection;
    const struct dpe_cpu_select_layout *layout = &call->layout;
    const struct dpe_cpu_select_room room = dpe_cpu_select_thread_room(call);
    int64_t row = call->of_group[g];
    int64_t n = candidates(call, g + count - 1);
    int64_t n_far = dpe_selection_distances(s, dpe_attention_position(args, row));
    int64_t unit_heads = args->n_heads / layout->units;
    bool probability = s->representative == DPE_REPRESENT_PROBABILITY;
    bool all =
        args->compressed != NULL; /* there is something to compute where nothing is to choose */
    for (int64_t i = 0; i < count; i++) {
        memset(room.scores + i * layout->blocks, 0, (size_t)n * sizeof *room.scores);
    }
    memset(room.far, 0, (size_t)n_far * sizeof *room.far);
    for (int64_t h = unit * unit_heads; h < (unit + 1) * unit_heads && (all || n > s->k);) {
        int64_t left = (unit + 1) * unit_heads - h;
        int64_t shared = layout->group - h % layout->group;
        int64_t heads = left < shared ? left : shared;
        heads = dpe_selection_own_marks(s) || probability ? 1
                : heads < DPE_CPU_SELECT_HEADS            ? heads
                                                          : DPE_CPU_SELECT_HEADS;
        if (probability) {
            score_probability(call, row, h, n, n_far, &room);
        } else {
            score_blocks(call, g, count, h, heads, &room);
        }
        h += heads;
    }
    for (int64_t i = 0; i < count; i++) {
        choose_best(call, g + i, unit, room.scores + i * layout->blocks, room.far);
    }
}
