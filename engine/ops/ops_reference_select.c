/* The reference's selection: scores from the definition, in double, from the keys and queries of the
 * cache, for every query and head anew. */
#include <math.h>
#include <string.h>

#include "engine/ops/ops_reference.h"

/* One query and head that choose. */
struct chooser {
    const struct dpe_attention *args;
    const struct dpe_selection *selection;
    int64_t row, position, offset; /* position: of the query that chooses */
};

static int64_t cache_row(const struct chooser *chooser, int64_t position)
{
    return position < chooser->args->prefix ? position : position + chooser->offset;
}

static const float *key_at(const struct chooser *chooser, int64_t head, int64_t n)
{
    const struct dpe_attention *args = chooser->args;
    int64_t kv_head = head / (args->n_heads / args->n_kv_heads);
    return args->k + (kv_head * args->capacity + cache_row(chooser, n)) * args->head_dim;
}

/* The query of a head at a position: of the call, or one that was kept. */
static const float *query_at(const struct chooser *chooser, int64_t head, int64_t m)
{
    const struct dpe_attention *args = chooser->args;
    if (args->queries == NULL) {
        return args->q + (chooser->row * args->n_heads + head) * args->head_dim;
    }
    return args->queries + (head * args->capacity + cache_row(chooser, m)) * args->head_dim;
}

/* x, at `position`, as it stands when it is scored. */
static void stand(const struct chooser *chooser, const float *x, bool key, int64_t position,
                  double *out)
{
    const struct dpe_attention *args = chooser->args;
    const struct dpe_rotation *tables = args->rotation;
    int last = args->plan->n_bands - 1;
    int table = key ? tables->k_table[last] : tables->q_table[last];
    int64_t pairs = args->head_dim / 2;
    if (chooser->selection->scored == DPE_SCORE_CONSTANT) {
        position = key ? 0 : chooser->selection->local - 1;
    }
    for (int64_t j = 0; j < pairs; j++) {
        bool bare = chooser->selection->scored == DPE_SCORE_BARE;
        double c = bare ? 1.0 : (double)tables->cos[table][position * pairs + j];
        double s = bare ? 0.0 : (double)tables->sin[table][position * pairs + j];
        out[j] = (double)x[j] * c - (double)x[j + pairs] * s;
        out[j + pairs] = (double)x[j] * s + (double)x[j + pairs] * c;
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Σ_{j=1…local} q_{n+j} · k_n. */
static double attention_to(const struct chooser *chooser, int64_t head, int64_t n)
{
    int64_t d = chooser->args->head_dim;
    const float *k = key_at(chooser, head, n);
    double sum = 0.0;
    for (int64_t j = 1; j <= chooser->selection->local; j++) {
        const float *q = query_at(chooser, head, n + j);
        for (int64_t i = 0; i < d; i++) {
            sum += (double)q[i] * (double)k[i];
        }
    }
    return sum;
}

/* Keys of the block from `first` on that stand for it: those with the largest sums, ties to the
 * lower. */
static double score_attended(const struct chooser *chooser, int64_t head, int64_t first,
                             const double *q, double *room)
{
    const struct dpe_selection *s = chooser->selection;
    int64_t d = chooser->args->head_dim;
    double *sums = room + d;
    double total = 0.0;
    for (int64_t i = 0; i < s->block; i++) {
        sums[i] = attention_to(chooser, head, first + i);
    }
    for (int64_t r = 0; r < s->attended; r++) {
        int64_t best = 0;
        for (int64_t i = 1; i < s->block; i++) {
            best = sums[i] > sums[best] ? i : best;
        }
        sums[best] = -(double)INFINITY;
        stand(chooser, key_at(chooser, head, first + best), true, first + best, room);
        total += dot(q, room, d);
    }
    return total / (double)s->attended;
}

/* What the head with the query q gives the block from `first` on. */
static double score_block(const struct chooser *chooser, int64_t head, int64_t first,
                          const double *q, double *room)
{
    const struct dpe_selection *s = chooser->selection;
    int64_t d = chooser->args->head_dim;
    if (s->representative == DPE_REPRESENT_ATTENDED) {
        return score_attended(chooser, head, first, q, room);
    }
    double *low = room + d;
    double *high = low + d;
    double sum = 0.0;
    double largest = -(double)INFINITY;
    for (int64_t i = 0; i < s->block; i++) {
        stand(chooser, key_at(chooser, head, first + i), true, first + i, room);
        double product = dot(q, room, d);
        sum += product;
        largest = product > largest ? product : largest;
        for (int64_t c = 0; c < d; c++) {
            low[c] = i == 0 || room[c] < low[c] ? room[c] : low[c];
            high[c] = i == 0 || room[c] > high[c] ? room[c] : high[c];
        }
    }
    if (s->representative == DPE_REPRESENT_MEAN) {
        return sum / (double)s->block;
    }
    if (s->representative == DPE_REPRESENT_KEYS) {
        return largest;
    }
    sum = 0.0;
    for (int64_t c = 0; c < d; c++) {
        sum += fmax(q[c] * high[c], q[c] * low[c]);
    }
    return sum;
}

/* Heads whose scores are summed for `head`. */
static void unit_heads(const struct dpe_attention *args, int64_t head, int64_t *first, int64_t *end)
{
    int64_t group = args->n_heads / args->n_kv_heads;
    switch (args->plan->selection.unit) {
    case DPE_CHOICE_HEAD:
        *first = head;
        *end = head + 1;
        return;
    case DPE_CHOICE_KV_HEAD:
        *first = head / group * group;
        *end = *first + group;
        return;
    case DPE_CHOICE_LAYER:
        *first = 0;
        *end = args->n_heads;
    }
}

/* A place per key, a score and a choice per key at most (blocks of one key), their runs, and three
 * rows beside a query, or a query, a key and a sum per key of a block. */
uint64_t dpe_reference_place_doubles(int64_t keys, int64_t head_dim)
{
    uint64_t runs = sizeof(struct dpe_run) / sizeof(double) * ((uint64_t)keys + 3);
    return 4 * (uint64_t)keys + runs + 4 * (uint64_t)head_dim;
}

int64_t dpe_reference_places(const struct dpe_attention *args, int64_t row, int64_t head,
                             int64_t keys, double *room)
{
    const struct dpe_selection *s = &args->plan->selection;
    int64_t d = args->head_dim;
    int64_t m = dpe_attention_position(args, row);
    const struct chooser chooser = {
        .args = args,
        .selection = s,
        .row = row,
        .position = dpe_selection_chooser(s, m),
        .offset = dpe_attention_offset(args, row),
    };
    double *places = room;
    double *scores = places + keys;
    int32_t *chosen = (int32_t *)(void *)(scores + keys);
    struct dpe_run *runs = (struct dpe_run *)(void *)(scores + 2 * keys);
    double *q = (double *)(void *)(runs + keys + 3);
    int64_t candidates = dpe_selection_candidates(s, m);
    int64_t first = 0;
    int64_t end = 0;
    unit_heads(args, head, &first, &end);
    for (int64_t i = 0; i < candidates; i++) {
        scores[i] = 0.0;
        for (int64_t h = first; h < end; h++) {
            stand(&chooser, query_at(&chooser, h, chooser.position), false, chooser.position, q);
            scores[i] += score_block(&chooser, h, s->sinks + i * s->block, q, q + d);
        }
    }
    int64_t n = dpe_selection_choose(scores, candidates, s->k, chosen);
    int64_t query = 0;
    n = dpe_selection_runs(s, m, chosen, n, runs, &query);
    for (int64_t i = 0; i < keys; i++) {
        places[i] = -1.0;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t key = runs[i].first; key < runs[i].end; key++) {
            places[key] = (double)(runs[i].place + (runs[i].constant ? 0 : key - runs[i].first));
        }
    }
    return query;
}
