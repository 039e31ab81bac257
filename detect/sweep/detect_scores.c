/* Rows laid out as cells of samples. */
#include "detect/sweep/ranking.h"
#include "outputs/rows/rows.h"
#include "outputs/run/run.h"

#include <math.h>
#include <stdlib.h>

static void scores_set(struct dpe_detect_scores *scores, size_t at, const struct dpe_row *row)
{
    bool ok = row->status == DPE_ROW_OK;
    scores->status[at] = row->status;
    scores->recall[at] = ok ? row->score : (double)NAN;
    scores->at_least_half[at] = ok ? row->at_least_half : (double)NAN;
    scores->margin[at] = ok ? row->margin : (double)NAN;
    scores->nll_sum[at] = ok ? row->nll_sum : (double)NAN;
    scores->n_tokens[at] = row->n_tokens;
    scores->n_words[at] = row->n_words;
    scores->prompt_tokens[at] = row->prompt_tokens;
    scores->new_tokens[at] = row->new_tokens;
    scores->seed[at] = row->seed;
    scores->seconds[at] = row->seconds;
}

dpe_status dpe_detect_scores_init(struct dpe_detect_scores *scores, int n_cells, int64_t n_samples,
                                  struct dpe_error *err)
{
    *scores = (struct dpe_detect_scores){.n_cells = n_cells, .n_samples = n_samples, .together = 1};
    size_t n = 0;
    if (n_cells < 0 || n_samples < 0 ||
        __builtin_mul_overflow((size_t)n_cells, (size_t)n_samples, &n)) {
        return dpe_fail(err, DPE_NO_MEMORY, "%d cells of %lld samples overflow", n_cells,
                        (long long)n_samples);
    }
    /* One room for all columns, the only one of four bytes last. */
    double *real = dpe_alloc(n, 5 * sizeof(double) + 5 * sizeof(int64_t) + sizeof(int32_t));
    if (real == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %d x %lld scores", n_cells,
                        (long long)n_samples);
    }
    int64_t *whole = (int64_t *)(real + 5 * n);
    scores->recall = real;
    scores->at_least_half = real + n;
    scores->margin = real + 2 * n;
    scores->nll_sum = real + 3 * n;
    scores->seconds = real + 4 * n;
    scores->n_tokens = whole;
    scores->n_words = whole + n;
    scores->prompt_tokens = whole + 2 * n;
    scores->new_tokens = whole + 3 * n;
    scores->seed = (uint64_t *)(whole + 4 * n);
    scores->status = (int32_t *)(whole + 5 * n);
    struct dpe_row not_run;
    dpe_row_init(&not_run);
    not_run.status = -1;
    for (size_t at = 0; at < n; at++) {
        scores_set(scores, at, &not_run);
    }
    return DPE_OK;
}

void dpe_detect_scores_free(struct dpe_detect_scores *scores)
{
    free(scores->recall);
    *scores = (struct dpe_detect_scores){0};
}

double dpe_detect_value(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                        size_t at)
{
    static const double weight = 1e-6;
    const double margin = scores->margin[at];
    if (criterion == DPE_DETECT_RECALL) {
        return isfinite(margin) ? (scores->recall[at] + weight * margin) / (1.0 + weight)
                                : scores->recall[at];
    }
    return scores->n_tokens[at] > 0 ? scores->nll_sum[at] / (double)scores->n_tokens[at]
                                    : (double)NAN;
}

dpe_status dpe_detect_collect(const struct dpe_run *run, const char *task, const char *const *keys,
                              int n_cells, int64_t first_sample, int64_t n_samples,
                              int64_t together, struct dpe_detect_scores *scores,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_detect_scores_init(scores, n_cells, n_samples, err));
    scores->together = together > 1 ? together : 1;
    for (int c = 0; c < n_cells; c++) {
        for (int64_t s = 0; s < n_samples; s++) {
            const struct dpe_row *row = dpe_run_find(run, task, keys[c], first_sample + s);
            if (row != NULL) {
                scores_set(scores, (size_t)c * (size_t)n_samples + (size_t)s, row);
            }
        }
    }
    return DPE_OK;
}
