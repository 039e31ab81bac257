/* The reference's selection: scores from the definition, in double, from the keys and queries of
 * the cache, for every query and head anew. */
#include <math.h>
#include <string.h>

#include "engine/ops/ops_host.h"

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

static int64_t kv_at(const struct chooser *chooser, int64_t head, int64_t n)
{
    const struct dpe_attention *args = chooser->args;
    int64_t kv_head = head / (args->n_heads / args->n_kv_heads);
    return (kv_head * args->capacity + cache_row(chooser, n)) * args->head_dim;
}

static const float *key_at(const struct chooser *chooser, int64_t head, int64_t n)
{
    return chooser->args->k + kv_at(chooser, head, n);
}

static const float *value_at(const struct chooser *chooser, int64_t head, int64_t n)
{
    return chooser->args->v + kv_at(chooser, head, n);
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

/* x as a band has it at `position`, for all pairs. */
static void rotate(const struct dpe_attention *args, const float *x, bool key, int band,
                   int64_t position, double *out)
{
    const struct dpe_rotation *tables = args->rotation;
    int table = key ? tables->k_table[band] : tables->q_table[band];
    int64_t pairs = args->head_dim / 2;
    for (int64_t j = 0; j < pairs; j++) {
        double c = (double)tables->cos[table][position * pairs + j];
        double s = (double)tables->sin[table][position * pairs + j];
        out[j] = (double)x[j] * c - (double)x[j + pairs] * s;
        out[j + pairs] = (double)x[j] * s + (double)x[j + pairs] * c;
    }
}

/* x, at `position`, as it stands when it is scored. */
static void stand(const struct chooser *chooser, const float *x, bool key, int64_t position,
                  double *out)
{
    const struct dpe_attention *args = chooser->args;
    for (int64_t i = 0; i < args->head_dim; i++) {
        out[i] = (double)x[i];
    }
    if (chooser->selection->scored == DPE_SCORE_CONSTANT) {
        position = key ? 0 : chooser->selection->local - 1;
    }
    if (chooser->selection->scored != DPE_SCORE_BARE) {
        rotate(args, x, key, args->plan->n_bands - 1, position, out);
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

/* Logits become probabilities. */
static void softmax(double *logits, int64_t n)
{
    double largest = -(double)INFINITY;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (int64_t i = 0; i < n; i++) {
        logits[i] = exp(logits[i] - largest);
        sum += logits[i];
    }
    for (int64_t i = 0; i < n; i++) {
        logits[i] /= sum;
    }
}

/* Probabilities of the keys of the block from `first` on, at their places in it, for x; `key` is
 * room for one of them. */
static void attend_block(const struct chooser *chooser, int64_t head, int64_t first,
                         const double *x, double *key, double *p)
{
    const struct dpe_attention *args = chooser->args;
    int64_t n = chooser->selection->block;
    for (int64_t i = 0; i < n; i++) {
        rotate(args, key_at(chooser, head, first + i), true, 0, i, key);
        p[i] = dot(x, key, args->head_dim) * dpe_plan_query_scale(args->plan, args->layer, 0);
    }
    softmax(p, n);
}

static double score_weighted(const struct chooser *chooser, int64_t head, int64_t first,
                             const double *q, double *room)
{
    const struct dpe_attention *args = chooser->args;
    int64_t d = args->head_dim;
    int64_t n = chooser->selection->block;
    double *key = room + d;
    double *f = key + d;
    double *p = f + d;
    memset(f, 0, (size_t)d * sizeof *f);
    for (int64_t j = 0; j < n; j++) {
        rotate(args, query_at(chooser, head, first + j), false, 0, j, room);
        attend_block(chooser, head, first, room, key, p);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t c = 0; c < d; c++) {
                f[c] += p[i] * (double)value_at(chooser, head, first + i)[c] / (double)n;
            }
        }
    }
    double score = 0.0;
    attend_block(chooser, head, first, f, key, p);
    for (int64_t i = 0; i < n; i++) {
        rotate(args, key_at(chooser, head, first + i), true, 0, i, key);
        score += p[i] * dot(q, key, d);
    }
    return score;
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
    if (s->representative == DPE_REPRESENT_WEIGHTED) {
        return score_weighted(chooser, head, first, q, room);
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

/* The probabilities of the last queries of a head, added to the scores of n blocks and of n_far
 * distances; room for two rows and a number for each key. */
static void add_probabilities(const struct chooser *chooser, int64_t head, double *scores,
                              int64_t n, double *far, int64_t n_far, double *room)
{
    const struct dpe_attention *args = chooser->args;
    const struct dpe_selection *s = chooser->selection;
    int64_t d = args->head_dim;
    double *key = room + d;
    double *p = key + d;
    int64_t from = chooser->position - s->last + 1;
    for (int64_t m = from > 0 ? from : 0; m <= chooser->position; m++) {
        stand(chooser, query_at(chooser, head, m), false, m, room);
        for (int64_t i = 0; i <= m; i++) {
            stand(chooser, key_at(chooser, head, i), true, i, key);
            p[i] = dot(room, key, d) * dpe_plan_query_scale(args->plan, args->layer, m);
            double cap = args->plan->attention_cap;
            p[i] = cap > 0.0 ? cap * tanh(p[i] / cap) : p[i];
        }
        softmax(p, m + 1);
        for (int64_t i = 0; i <= m; i++) {
            int64_t block = i < s->sinks ? n : (i - s->sinks) / s->block;
            int64_t distance = m - i - s->local;
            if (block < n) {
                scores[block] += p[i];
            }
            if (distance >= 0 && distance < n_far) {
                far[distance] += p[i];
            }
        }
    }
}

/* The probabilities of the means of all complete blocks, to p; room for three
 * rows. Their number. */
static int64_t compressed_probabilities(const struct chooser *chooser, int64_t head, double *p,
                                        double *room)
{
    const struct dpe_attention *args = chooser->args;
    const struct dpe_selection *s = chooser->selection;
    int64_t d = args->head_dim;
    double *key = room + d;
    double *mean = key + d;
    int64_t n = dpe_selection_complete(s, chooser->position);
    stand(chooser, query_at(chooser, head, chooser->position), false, chooser->position, room);
    for (int64_t i = 0; i < n; i++) {
        memset(mean, 0, (size_t)d * sizeof *mean);
        for (int64_t j = s->sinks + i * s->block; j < s->sinks + (i + 1) * s->block; j++) {
            stand(chooser, key_at(chooser, head, j), true, j, key);
            for (int64_t c = 0; c < d; c++) {
                mean[c] += key[c] / (double)s->block;
            }
        }
        p[i] =
            dot(room, mean, d) * dpe_plan_query_scale(args->plan, args->layer, chooser->position);
        double cap = args->plan->attention_cap;
        p[i] = cap > 0.0 ? cap * tanh(p[i] / cap) : p[i];
    }
    softmax(p, n);
    return n;
}

static struct chooser chooser_of(const struct dpe_attention *args, int64_t row)
{
    const struct dpe_selection *s = &args->plan->selection;
    return (struct chooser){
        .args = args,
        .selection = s,
        .row = row,
        .position = dpe_selection_chooser(s, dpe_attention_position(args, row)),
        .offset = dpe_attention_offset(args, row),
    };
}

void dpe_reference_compressed(const struct dpe_attention *args, int64_t row, int64_t head,
                              int64_t keys, double *room, float *out)
{
    const struct dpe_selection *s = &args->plan->selection;
    const struct chooser chooser = chooser_of(args, row);
    int64_t d = args->head_dim;
    double *p = room;
    double *sums = room + keys;
    int64_t n = compressed_probabilities(&chooser, head, p, sums);
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int64_t j = s->sinks; j < s->sinks + n * s->block; j++) {
        const float *value = value_at(&chooser, head, j);
        for (int64_t c = 0; c < d; c++) {
            sums[c] += p[(j - s->sinks) / s->block] * (double)value[c] / (double)s->block;
        }
    }
    for (int64_t c = 0; c < d; c++) {
        out[c] = (float)sums[c];
    }
}

void dpe_reference_merge(struct dpe_backend *backend, const struct dpe_branches *branches)
{
    const struct dpe_config *c = backend->config;
    const float *gates = branches->gates;
    const float *compressed = branches->compressed;
    const float *windowed = branches->windowed;
    float *out = branches->out;
    int64_t heads = branches->rows * c->n_heads;
#pragma omp parallel for num_threads(dpe_threads_for(backend->n_threads, heads * c->head_dim))     \
    schedule(static)
    for (int64_t i = 0; i < heads; i++) {
        double share[3];
        for (int b = 0; b < 3; b++) {
            share[b] = 1.0 / (1.0 + exp(-(double)gates[3 * i + b]));
        }
        for (int64_t j = i * c->head_dim; j < (i + 1) * c->head_dim; j++) {
            double third = windowed != NULL ? share[2] * (double)windowed[j] : 0.0;
            out[j] = (float)(share[0] * (double)compressed[j] + share[1] * (double)out[j] + third);
        }
    }
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

/* A place per key, a score and a choice per key at most (blocks of one key) and per distance, runs,
 * a query, three rows and a number per key. */
uint64_t dpe_reference_place_doubles(int64_t keys, int64_t head_dim)
{
    uint64_t runs = sizeof(struct dpe_key_run) / sizeof(double) * ((uint64_t)keys + 3);
    return 6 * (uint64_t)keys + runs + 4 * (uint64_t)head_dim;
}

int64_t dpe_reference_places(const struct dpe_attention *args, int64_t row, int64_t head,
                             int64_t keys, double *room)
{
    const struct dpe_selection *s = &args->plan->selection;
    int64_t d = args->head_dim;
    int64_t m = dpe_attention_position(args, row);
    const struct chooser chooser = chooser_of(args, row);
    double *places = room;
    double *scores = places + keys;
    double *far = scores + keys;
    int32_t *blocks = (int32_t *)(void *)(far + keys);
    int32_t *slashes = (int32_t *)(void *)(far + 2 * keys);
    struct dpe_key_run *runs = (struct dpe_key_run *)(void *)(far + 3 * keys);
    double *q = (double *)(void *)(runs + keys + 3);
    int64_t candidates = dpe_selection_candidates(s, m);
    int64_t distances = dpe_selection_distances(s, m);
    int64_t first = 0;
    int64_t end = 0;
    unit_heads(args, head, &first, &end);
    memset(scores, 0, (size_t)(2 * keys) * sizeof *scores);
    /* Where there is nothing to choose, the place local − 1 may lie beyond the tables. */
    for (int64_t h = first; h < end && (candidates > 0 || distances > 0); h++) {
        if (s->representative == DPE_REPRESENT_PROBABILITY) {
            add_probabilities(&chooser, h, scores, candidates, far, distances, q);
            continue;
        }
        if (s->representative == DPE_REPRESENT_COMPRESSED) {
            compressed_probabilities(&chooser, h, places, q);
            for (int64_t i = 0; i < candidates; i++) {
                scores[i] += places[i];
            }
            continue;
        }
        stand(&chooser, query_at(&chooser, h, chooser.position), false, chooser.position, q);
        for (int64_t i = 0; i < candidates; i++) {
            scores[i] += score_block(&chooser, h, s->sinks + i * s->block, q, q + d);
        }
    }
    dpe_selection_favour(s, scores, candidates);
    const struct dpe_choice choice = {
        .blocks = blocks,
        .slashes = slashes,
        .n_blocks = dpe_selection_choose(scores, candidates, s->k, blocks),
        .n_slashes = dpe_selection_choose(far, distances, s->slashes, slashes),
    };
    int64_t query = 0;
    int64_t n = dpe_selection_runs(s, m, &choice, runs, &query);
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
