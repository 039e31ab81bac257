/* What the rows of a comparison say: a table in HDF5 and one for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_tool.h"

enum { ROUNDS = 2000 };
static const double level = 0.95;

/* Scores of every method and sample, and what follows from them. */
struct result {
    bool ppl;
    int64_t n_samples;
    int n_plans;
    double *score, *nll_sum; /* [plans][samples], NaN = not run or not finite */
    int64_t *n_tokens;       /* [plans][samples] */
    struct dpe_interval mean[EVAL_MAX_METHODS], difference[EVAL_MAX_METHODS];
    double p_value[EVAL_MAX_METHODS];
};

static void result_free(struct result *result)
{
    free(result->score);
    free(result->nll_sum);
    free(result->n_tokens);
}

static dpe_status collect(const struct comparison *comparison, struct result *result,
                          struct dpe_error *err)
{
    *result = (struct result){.ppl = strcmp(comparison->args->suite, "ppl") == 0,
                              .n_samples = comparison->n_samples,
                              .n_plans = comparison->n_plans};
    size_t cells = (size_t)(result->n_samples * result->n_plans);
    result->score = dpe_alloc(cells, sizeof *result->score);
    result->nll_sum = dpe_alloc(cells, sizeof *result->nll_sum);
    result->n_tokens = dpe_alloc(cells, sizeof *result->n_tokens);
    if (result->score == NULL || result->nll_sum == NULL || result->n_tokens == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu scores", cells);
    }
    for (int p = 0; p < result->n_plans; p++) {
        for (int64_t s = 0; s < result->n_samples; s++) {
            const struct dpe_row *row =
                dpe_run_find(comparison->job.run, comparison->task.name, comparison->keys[p], s);
            bool ok = row != NULL && row->status == DPE_ROW_OK;
            size_t at = (size_t)(p * result->n_samples + s);
            result->nll_sum[at] = ok ? row->nll_sum : (double)NAN;
            result->n_tokens[at] = ok ? row->n_tokens : -1;
            /* Of perplexity the paired quantity is nats per token of a book. */
            result->score[at] = !ok           ? (double)NAN
                                : result->ppl ? row->nll_sum / (double)row->n_tokens
                                              : row->score;
        }
    }
    return DPE_OK;
}

static void summarize(const struct comparison *comparison, struct result *result)
{
    size_t n = (size_t)result->n_samples;
    uint64_t seed = comparison->args->job.seed;
    for (int p = 0; p < result->n_plans; p++) {
        const double *score = result->score + (size_t)p * n;
        result->mean[p] = result->ppl ? dpe_perplexity(result->nll_sum + (size_t)p * n,
                                                       result->n_tokens + (size_t)p * n, n, level)
                                      : dpe_bootstrap_mean(score, n, level, ROUNDS, seed);
        result->difference[p] = dpe_bootstrap_paired(score, result->score, n, level, ROUNDS, seed);
        result->p_value[p] = dpe_sign_flip(score, result->score, n, ROUNDS, seed);
    }
}

static dpe_status put(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      const void *data, int rank, int64_t first, int64_t second,
                      const char *long_name, const char *units, struct dpe_error *err)
{
    const struct dpe_column column = {
        .path = path,
        .type = type,
        .rank = rank,
        .dims = {first, second},
        .scales = {"/eval/method", rank > 1 ? "/eval/sample" : NULL},
        .data = data,
        .long_name = long_name,
        .units = units,
    };
    return dpe_h5_put(table, &column, err);
}

static dpe_status put_axes(const struct comparison *comparison, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    const char *names[EVAL_MAX_METHODS];
    const char *keys[EVAL_MAX_METHODS];
    for (int p = 0; p < comparison->n_plans; p++) {
        names[p] = comparison->plans[p].name;
        keys[p] = comparison->keys[p];
    }
    int64_t *samples = dpe_alloc((size_t)comparison->n_samples, sizeof *samples);
    if (samples == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for an axis");
    }
    for (int64_t s = 0; s < comparison->n_samples; s++) {
        samples[s] = s;
    }
    const struct dpe_column axes[] = {
        {.path = "/eval/method",
         .type = DPE_COL_STRING,
         .rank = 1,
         .dims = {comparison->n_plans},
         .data = keys,
         .long_name = "key of the method's position plan",
         .units = "1",
         .is_scale = true},
        {.path = "/eval/sample",
         .type = DPE_COL_I64,
         .rank = 1,
         .dims = {comparison->n_samples},
         .data = samples,
         .long_name = "index of the sample",
         .units = "1",
         .is_scale = true},
        {.path = "/eval/name",
         .type = DPE_COL_STRING,
         .rank = 1,
         .dims = {comparison->n_plans},
         .scales = {"/eval/method"},
         .data = names,
         .long_name = "the method in words",
         .units = "1"},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0] && status == DPE_OK; i++) {
        status = dpe_h5_put(table, &axes[i], err);
    }
    free(samples);
    return status;
}

static dpe_status put_intervals(const struct result *result, struct dpe_h5 *table,
                                struct dpe_error *err)
{
    double numbers[7][EVAL_MAX_METHODS];
    for (int p = 0; p < result->n_plans; p++) {
        numbers[0][p] = result->mean[p].mean;
        numbers[1][p] = result->mean[p].low;
        numbers[2][p] = result->mean[p].high;
        numbers[3][p] = result->difference[p].mean;
        numbers[4][p] = result->difference[p].low;
        numbers[5][p] = result->difference[p].high;
        numbers[6][p] = result->p_value[p];
    }
    static const struct {
        const char *path, *recall, *ppl, *units;
    } columns[] = {
        {"/eval/mean", "mean recall", "perplexity", "1"},
        {"/eval/ci_low", "lower end of its 95 % interval", "lower end of its 95 % interval", "1"},
        {"/eval/ci_high", "upper end of its 95 % interval", "upper end of its 95 % interval", "1"},
        {"/eval/difference", "mean paired difference to the first method",
         "mean paired difference to the first method, nats per token", "1"},
        {"/eval/difference_low", "lower end of its 95 % interval", "lower end of its 95 % interval",
         "1"},
        {"/eval/difference_high", "upper end of its 95 % interval",
         "upper end of its 95 % interval", "1"},
        {"/eval/p_value", "sign-flip test of no difference to the first method",
         "sign-flip test of no difference to the first method", "1"},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0] && status == DPE_OK; i++) {
        status = put(table, columns[i].path, DPE_COL_F64, numbers[i], 1, result->n_plans, 0,
                     result->ppl ? columns[i].ppl : columns[i].recall, columns[i].units, err);
    }
    return status;
}

dpe_status comparison_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct comparison *comparison = user;
    struct result result;
    dpe_status status = collect(comparison, &result, err);
    if (status == DPE_OK) {
        summarize(comparison, &result);
        status = put_axes(comparison, table, err);
    }
    if (status == DPE_OK) {
        status = put(table, "/eval/score", DPE_COL_F64, result.score, 2, result.n_plans,
                     result.n_samples,
                     result.ppl ? "negative log-likelihood per token" : "recall of the needles",
                     result.ppl ? "nats" : "1", err);
    }
    if (status == DPE_OK) {
        status = put_intervals(&result, table, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_text(table, "/", "title", "Position methods on the same samples", err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_text(table, "/eval", "suite", comparison->args->suite, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_attr_i64(table, "/eval", "length", comparison->args->job.length, err);
    }
    result_free(&result);
    return status;
}

dpe_status comparison_print(const struct comparison *comparison, struct dpe_error *err)
{
    struct result result;
    dpe_status status = collect(comparison, &result, err);
    if (status == DPE_OK) {
        summarize(comparison, &result);
        printf("%s at %lld tokens, %lld samples, 95 %% intervals\n",
               result.ppl ? "Perplexity" : "Recall of needles",
               (long long)comparison->args->job.length, (long long)result.n_samples);
        printf("%10s  %20s  %26s  %7s  method\n", result.ppl ? "perplexity" : "recall", "interval",
               result.ppl ? "nats/token to the first" : "difference to the first", "p");
        for (int p = 0; p < result.n_plans; p++) {
            const struct dpe_interval *mean = &result.mean[p];
            const struct dpe_interval *difference = &result.difference[p];
            printf("%10.4g  [%8.4g, %8.4g]  ", mean->mean, mean->low, mean->high);
            if (p == 0) {
                printf("%26s  %7s", "", "");
            } else {
                printf("%+8.3f [%+6.3f, %+6.3f]  %7.4f", difference->mean, difference->low,
                       difference->high, result.p_value[p]);
            }
            printf("  %s\n", comparison->plans[p].name);
        }
    }
    result_free(&result);
    return status;
}
