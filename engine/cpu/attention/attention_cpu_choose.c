/* Choices under a selection: scores of blocks and distances, and the best of them. */
#include <math.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu_select.h"

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
            dpe_cpu_select_scored_query(call, row, head, m + i, room->tile,
                                        room->x + i * 2 * args->head_dim);
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
        int64_t count = dpe_cpu_select_next_marks(call, kv_head, offset, i, n, &mark);
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
        int64_t count =
            dpe_cpu_select_next_marks(call, args->n_kv_heads + kv_head, offset, i, n, &mark);
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
        dpe_cpu_select_scored_query(call, row, head + i % heads, m, room->tile,
                                    room->x + i * 2 * args->head_dim);
    }
    if (s->representative == DPE_REPRESENT_COMPRESSED) {
        score_compressed(call, call->of_group[g], head, heads, n, room);
    } else if (s->representative == DPE_REPRESENT_KEYS) {
        dpe_cpu_select_score_keys(call, kv_head, offset, n, count, heads, room);
    } else {
        dpe_cpu_select_score_marks(call, dpe_selection_own_marks(s) ? head : kv_head, offset, n,
                                   count, heads, room);
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
