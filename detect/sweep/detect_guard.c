/* A guard on perplexity for plans that needles chose. */
#include "detect/sweep/ranking.h"

#include <math.h>

int dpe_detect_guarded(const double *value, const double *nll, int n, double share)
{
    double least = INFINITY;
    int best = -1;
    for (int i = 0; i < n; i++) {
        least = isfinite(nll[i]) ? fmin(least, nll[i]) : least;
    }
    for (int i = 0; i < n; i++) {
        if (isfinite(nll[i]) && nll[i] <= least + log1p(share) + 1e-9 &&
            (best < 0 || value[i] > value[best])) {
            best = i;
        }
    }
    return best;
}

void dpe_detect_texts(const struct dpe_detect_scores *texts, double *nll)
{
    int64_t most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int c = 0; c < texts->n_cells; c++) {
            const struct dpe_interval value = dpe_detect_interval(texts, c, DPE_DETECT_PERPLEXITY);
            most = value.n > most ? value.n : most;
            nll[c] = value.n == most ? log(value.mean) : (double)NAN;
        }
    }
}

/* As there, ∞ where a plan has none. */
static double perplexity_of(const struct dpe_detect_validation *texts, int plan)
{
    int64_t most = 1;
    for (int v = 0; v < texts->n_plans; v++) {
        most = texts->value[v].n > most ? texts->value[v].n : most;
    }
    const struct dpe_interval *value = &texts->value[plan];
    return value->n == most && isfinite(value->mean) ? value->mean : (double)INFINITY;
}

/* Whether the kept plan is shown to find more than this one, on the task that counts. */
static bool finds_less(const struct dpe_detect_validation *const needles[2], int plan)
{
    const struct dpe_detect_validation *v = needles[1] != NULL ? needles[1] : needles[0];
    return dpe_detect_judge(&v->kept_minus[plan], v->criterion) == DPE_DETECT_BETTER;
}

/* Of the plans within the guard that a table can hold the one that finds most; `any`: also of those
 * that are shown to find less than the chosen one. −1: none. */
static int find_within(const struct dpe_detect_validation *const needles[2],
                       const struct dpe_detect_validation *texts, const bool *tables, double most,
                       bool any)
{
    int found = -1;
    for (int v = 0; v < texts->n_plans; v++) {
        if (tables[v] && isfinite(needles[0]->value[v].mean) && perplexity_of(texts, v) <= most &&
            (any || !finds_less(needles, v)) &&
            (found < 0 || needles[0]->value[v].mean > needles[0]->value[found].mean)) {
            found = v;
        }
    }
    return found;
}

struct dpe_detect_guard dpe_detect_guard(const struct dpe_detect_validation *const needles[2],
                                         const struct dpe_detect_validation *texts,
                                         const bool *tables, double share)
{
    const int chosen = needles[0]->kept;
    struct dpe_detect_guard guard = {.chosen = chosen, .kept = chosen, .best = -1, .found = -1};
    for (int v = 0; v < texts->n_plans; v++) {
        if (isfinite(perplexity_of(texts, v)) &&
            (guard.best < 0 || perplexity_of(texts, v) < perplexity_of(texts, guard.best))) {
            guard.best = v;
        }
    }
    if (guard.best < 0) {
        return guard;
    }
    const double least = perplexity_of(texts, guard.best);
    const double most = (1.0 + share) * least;
    if (perplexity_of(texts, chosen) > most) {
        int within = find_within(needles, texts, tables, most, false);
        guard.kept = within >= 0 ? within : chosen;
        guard.traded = within < 0;
        guard.found = within < 0 ? find_within(needles, texts, tables, most, true) : -1;
    }
    guard.loss = perplexity_of(texts, guard.kept) / least - 1.0;
    return guard;
}
