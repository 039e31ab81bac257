/* Numbers over tokens. */
#include "eval/kld/kld.h"
#include "eval/task/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000 };
static const double level = 0.95;

int64_t dpe_kld_buckets(int64_t n)
{
    int64_t buckets = 0;
    for (int64_t first = 1; first <= n; first *= 2) {
        buckets++;
    }
    return buckets;
}

/* Sums over the tokens of the cell; `kl` gets all divergences, the others the means of each text.
 */
static void add_tokens(const struct dpe_kld_token *const *texts, int64_t n_texts, int64_t first,
                       int64_t end, double *kl, double *text_kl, double *text_ratio,
                       struct dpe_kld_cell *cell)
{
    double squares = 0.0;
    double change = 0.0;
    double same = 0.0;
    for (int64_t s = 0; s < n_texts; s++) {
        text_kl[s] = text_ratio[s] = texts[s] != NULL ? 0.0 : (double)NAN;
        for (int64_t i = first; i < end && texts[s] != NULL; i++) {
            const struct dpe_kld_token *token = &texts[s][i - 1];
            kl[cell->n++] = token->kl;
            text_kl[s] += token->kl / (double)(end - first);
            text_ratio[s] += (token->nll - token->base_nll) / (double)(end - first);
            change += token->change;
            squares += token->change * token->change;
            same += token->same;
        }
    }
    const double n = (double)cell->n;
    cell->same_top = same / n;
    cell->change_mean = change / n;
    cell->change_rms = sqrt(squares / n);
}

dpe_status dpe_kld_summarize(const struct dpe_kld_token *const *texts, int64_t n_texts, int64_t n,
                             int64_t first, int64_t end, uint64_t seed, struct dpe_kld_cell *cell,
                             struct dpe_error *err)
{
    const struct dpe_resampling how = {1, level, ROUNDS, seed};
    end = end < n + 1 ? end : n + 1;
    double *kl = dpe_alloc((size_t)n_texts, (size_t)(end - first) * sizeof *kl);
    double *means = dpe_alloc(2, (size_t)n_texts * sizeof *means);
    *cell = (struct dpe_kld_cell){0};
    if (kl == NULL || means == NULL) {
        free(kl);
        free(means);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the divergences of %lld tokens",
                        (long long)(n_texts * (end - first)));
    }
    add_tokens(texts, n_texts, first, end, kl, means, means + n_texts, cell);
    dpe_sort(kl, (size_t)cell->n);
    const double shares[] = {0.5, 0.9, 0.99, 0.999, 1.0};
    double *const quantiles[] = {&cell->median, &cell->p90, &cell->p99, &cell->p999, &cell->most};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        *quantiles[i] = cell->n > 0 ? dpe_quantile(kl, (size_t)cell->n, shares[i]) : (double)NAN;
    }
    cell->mean = dpe_bootstrap_mean(means, (size_t)n_texts, &how);
    struct dpe_interval ratio = dpe_bootstrap_mean(means + n_texts, (size_t)n_texts, &how);
    cell->ratio = (struct dpe_interval){
        .mean = exp(ratio.mean), .low = exp(ratio.low), .high = exp(ratio.high), .n = ratio.n};
    free(kl);
    free(means);
    return DPE_OK;
}
