/* From logits to tokens and log-probabilities. */
#include <math.h>
#include <stdlib.h>

#include "eval/serve/engine/serve_engine_internal.h"

/* First the largest value, then the block and the place where it stands, in loops that compilers turn
 * into vectors. */
static int32_t likeliest(const float *logits, int64_t vocab)
{
    enum { LANES = 16, BLOCK = 64 };
    float lanes[LANES];
    for (int64_t j = 0; j < LANES; j++) {
        lanes[j] = logits[0];
    }
    int64_t whole = vocab / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int64_t j = 0; j < LANES; j++) {
            lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
        }
    }
    float most = logits[0];
    for (int64_t j = 0; j < LANES; j++) {
        most = lanes[j] > most ? lanes[j] : most;
    }
    for (int64_t i = whole; i < vocab; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    int64_t best = 0;
    for (int found = 0; found == 0 && best + BLOCK < vocab; best += found != 0 ? 0 : BLOCK) {
        for (int64_t j = 0; j < BLOCK; j++) {
            found |= logits[best + j] == most;
        }
    }
    while (best + 1 < vocab && logits[best] != most) {
        best++;
    }
    return (int32_t)best;
}

/* −ln of the sum of exponentials, so that logit + this is a log-probability. */
static double find_normalizer(const float *logits, int64_t vocab)
{
    double largest = (double)logits[likeliest(logits, vocab)];
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - largest);
    }
    return -(largest + log(sum));
}

struct candidate {
    double weight;
    int32_t id;
};

static int by_weight(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The fewest likeliest tokens with at least `top_p` of the weight; *total becomes theirs. Tokens
 * below (1 − top_p) / vocab of it cannot be among them: all together they weigh less than the rest
 * that is left out. */
static int64_t nucleus(struct candidate *list, int64_t vocab, double top_p, double *total)
{
    double least = (1.0 - top_p) / (double)vocab * *total;
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (list[i].weight >= least) {
            list[n++] = list[i];
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_weight);
    double wanted = top_p * *total;
    double sum = 0.0;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || sum < wanted)) {
        sum += list[kept++].weight;
    }
    *total = sum;
    return kept;
}

int32_t dpe_serve_sample(const float *logits, int64_t vocab, double temperature, double top_p,
                         struct dpe_rng *rng)
{
    int32_t best = likeliest(logits, vocab);
    if (temperature <= 0.0) {
        return best;
    }
    struct candidate *list = dpe_alloc((size_t)vocab, sizeof *list);
    if (list == NULL) {
        return -1;
    }
    double total = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        double weight = exp(((double)logits[i] - (double)logits[best]) / temperature);
        list[i] = (struct candidate){weight, (int32_t)i};
        total += weight;
    }
    int64_t n = top_p < 1.0 ? nucleus(list, vocab, top_p, &total) : vocab;
    double left = dpe_rng_unit(rng) * total;
    int64_t i = 0;
    while (i + 1 < n && left >= list[i].weight) {
        left -= list[i++].weight;
    }
    int32_t drawn = list[i].id;
    free(list);
    return drawn;
}

/* The n largest logits, largest first, ties to the lower id. */
static void largest(const float *logits, int64_t vocab, double normalizer, int64_t n,
                    struct dpe_serve_score *top)
{
    int64_t found = 0;
    for (int64_t i = 0; i < vocab; i++) {
        double logprob = (double)logits[i] + normalizer;
        if (found == n && logprob <= top[n - 1].logprob) {
            continue;
        }
        int64_t at = found < n ? found++ : n - 1;
        for (; at > 0 && logprob > top[at - 1].logprob; at--) {
            top[at] = top[at - 1];
        }
        top[at] = (struct dpe_serve_score){(int32_t)i, logprob};
    }
}

void dpe_serve_score_add(struct dpe_serve_sequence *sequence, const float *logits, int64_t vocab,
                         int32_t id)
{
    int64_t n_top = sequence->request->top;
    struct dpe_serve_score *top = sequence->tops + sequence->n_scores * n_top;
    struct dpe_serve_score *score = &sequence->scores[sequence->n_scores];
    *score = (struct dpe_serve_score){id, NAN};
    for (int64_t i = 0; i < n_top; i++) {
        top[i].id = -1;
    }
    if (logits != NULL) {
        double normalizer = find_normalizer(logits, vocab);
        score->logprob = (double)logits[id] + normalizer;
        if (n_top > 0) {
            largest(logits, vocab, normalizer, n_top < vocab ? n_top : vocab, top);
        }
    }
    sequence->n_scores++;
}
