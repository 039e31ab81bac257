/* From logits to the next token. */
#include "engine/session/sample.h"

#include <math.h>
#include <stdlib.h>

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

int32_t dpe_sample(const float *logits, int64_t vocab, const struct dpe_sampling *sampling)
{
    int32_t best = dpe_likeliest(logits, vocab);
    const double top_p = sampling->top_p;
    if (sampling->temperature <= 0.0) {
        return best;
    }
    struct candidate *list = dpe_alloc((size_t)vocab, sizeof *list);
    if (list == NULL) {
        return -1;
    }
    double total = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        double weight = exp(((double)logits[i] - (double)logits[best]) / sampling->temperature);
        list[i] = (struct candidate){weight, (int32_t)i};
        total += weight;
    }
    int64_t n = top_p < 1.0 ? nucleus(list, vocab, top_p, &total) : vocab;
    double left = dpe_rng_unit(sampling->rng) * total;
    int64_t i = 0;
    while (i + 1 < n && left >= list[i].weight) {
        left -= list[i++].weight;
    }
    int32_t drawn = list[i].id;
    free(list);
    return drawn;
}
