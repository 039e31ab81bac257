/* Two plans on the same samples; what fresh samples show of the kept plan. */
#include "detect/search/ranking.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 2000, STATISTICS_SEED = 1 };
static const double level = 0.95;
static const double verdict_p = 0.05;

enum dpe_detect_verdict dpe_detect_judge(const struct dpe_difference *gain,
                                         enum dpe_detect_criterion criterion)
{
    bool higher_is_better = criterion == DPE_DETECT_RECALL;
    bool shown = gain->p < verdict_p;
    if (gain->minus.n == 0) {
        return DPE_DETECT_UNKNOWN;
    }
    if (shown && gain->minus.low > 0.0) {
        return higher_is_better ? DPE_DETECT_BETTER : DPE_DETECT_WORSE;
    }
    if (shown && gain->minus.high < 0.0) {
        return higher_is_better ? DPE_DETECT_WORSE : DPE_DETECT_BETTER;
    }
    return DPE_DETECT_INDISTINCT;
}

int64_t dpe_detect_difference(const struct dpe_detect_scores *scores,
                              enum dpe_detect_criterion criterion, int a, int b,
                              const struct dpe_resampling *how, struct dpe_difference *difference)
{
    *difference = dpe_compare(dpe_detect_values(scores, criterion, a),
                              dpe_detect_values(scores, criterion, b), (size_t)scores->n_samples,
                              criterion == DPE_DETECT_RECALL, how);
    return difference->minus.n;
}

/* Mean and variance of the contexts' mean differences; returns how many contexts have one. */
static int64_t spread_of_contexts(const double *a, const double *b, int64_t n, int64_t together,
                                  double *mean, double *variance)
{
    int64_t contexts = 0;
    double squares = 0.0;
    *mean = 0.0;
    for (int64_t first = 0; first < n; first += together) {
        double sum = 0.0;
        int64_t pairs = 0;
        for (int64_t i = first; i < n && i < first + together; i++) {
            if (isfinite(a[i]) && isfinite(b[i])) {
                sum += a[i] - b[i];
                pairs++;
            }
        }
        if (pairs > 0) {
            double off = sum / (double)pairs - *mean;
            contexts++;
            *mean += off / (double)contexts;
            squares += off * (sum / (double)pairs - *mean);
        }
    }
    *variance = contexts > 1 ? squares / (double)(contexts - 1) : 0.0;
    return contexts;
}

/* Samples that would show the difference; more than there are, where these have not. */
static int64_t needed_samples(const struct dpe_detect_scores *scores,
                              enum dpe_detect_criterion criterion, int a, int b)
{
    double mean = 0.0;
    double variance = 0.0;
    const int64_t contexts = spread_of_contexts(
        dpe_detect_values(scores, criterion, a), dpe_detect_values(scores, criterion, b),
        scores->n_samples, scores->together, &mean, &variance);
    if (contexts < 2 || fabs(mean) < DPE_DETECT_TIE) {
        return 0;
    }
    double needed =
        fmax(dpe_showing_contexts(variance, mean, scores->together), (double)(contexts + 1));
    return needed * (double)scores->together < 1e9 ? (int64_t)needed * scores->together : 0;
}

void dpe_detect_validate(const struct dpe_detect_scores *scores, const char *const *keys,
                         enum dpe_detect_criterion criterion, int kept,
                         struct dpe_detect_validation *validation)
{
    const struct dpe_resampling how = {scores->together, level, ROUNDS, STATISTICS_SEED};
    *validation = (struct dpe_detect_validation){
        .criterion = criterion, .n_plans = scores->n_cells, .kept = kept};
    for (int v = 0; v < scores->n_cells; v++) {
        int first = 0; /* with this key: its rows are of both */
        while (strcmp(keys[first], keys[v]) != 0) {
            first++;
        }
        validation->value[v] = dpe_detect_interval(scores, first, criterion);
        (void)dpe_detect_difference(scores, criterion, kept, first, &how, &validation->minus[v]);
        if (dpe_detect_judge(&validation->minus[v], criterion) == DPE_DETECT_INDISTINCT) {
            validation->needed[v] = needed_samples(scores, criterion, kept, first);
        }
    }
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
