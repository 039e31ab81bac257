/* Rows as arrays, and their statistics. */
#include "eval/compare/results.h"
#include "outputs/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000 };
static const double level = 0.95;

static size_t cell(const struct dpe_results *results, int method, int task)
{
    return (size_t)method * (size_t)results->n_tasks + (size_t)task;
}

static size_t sample_of(const struct dpe_results *results, int method, int task, int64_t sample)
{
    return cell(results, method, task) * (size_t)results->n_samples + (size_t)sample;
}

static const struct dpe_row *find(const struct dpe_results *results, const struct dpe_run *run,
                                  int method, int task, int64_t sample)
{
    return dpe_run_find(run, results->suite->tasks[task].task.name,
                        results->keys[cell(results, method, task)], sample);
}

/* How many buckets the longest row has; counts the rows on the way. */
static void measure(struct dpe_results *results, const struct dpe_run *run)
{
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            for (int64_t s = 0; s < results->suite->tasks[t].n_samples; s++) {
                const struct dpe_row *row = find(results, run, m, t, s);
                results->n_rows += row != NULL;
                if (row != NULL && row->n_buckets > results->n_positions) {
                    results->n_positions = row->n_buckets;
                }
            }
        }
    }
}

static dpe_status allocate(struct dpe_results *results, struct dpe_error *err)
{
    size_t cells = (size_t)results->n_methods * (size_t)results->n_tasks;
    size_t samples = 0;
    size_t buckets = 0;
    size_t positions = 0;
    if (__builtin_mul_overflow(cells, (size_t)results->n_samples, &samples) ||
        __builtin_mul_overflow(samples, (size_t)results->n_positions, &buckets) ||
        __builtin_mul_overflow(cells, (size_t)results->n_positions, &positions)) {
        return dpe_fail(err, DPE_NO_MEMORY, "too many results");
    }
    results->status = dpe_alloc(samples, sizeof *results->status);
    results->score = dpe_alloc(samples, sizeof *results->score);
    results->half = dpe_alloc(samples, sizeof *results->half);
    results->nll_sum = dpe_alloc(samples, sizeof *results->nll_sum);
    results->n_tokens = dpe_alloc(samples, sizeof *results->n_tokens);
    results->n_words = dpe_alloc(samples, sizeof *results->n_words);
    results->bucket_nll = dpe_alloc(buckets, sizeof *results->bucket_nll);
    results->mean = dpe_alloc(cells, sizeof *results->mean);
    results->word = dpe_alloc(cells, sizeof *results->word);
    results->difference = dpe_alloc(cells, sizeof *results->difference);
    results->half_mean = dpe_alloc(cells, sizeof *results->half_mean);
    results->p_value = dpe_alloc(cells, sizeof *results->p_value);
    results->position_mean = dpe_alloc(positions, sizeof *results->position_mean);
    bool all = results->status != NULL && results->score != NULL && results->half != NULL &&
               results->nll_sum != NULL && results->n_tokens != NULL && results->n_words != NULL &&
               results->bucket_nll != NULL && results->mean != NULL && results->word != NULL &&
               results->difference != NULL && results->half_mean != NULL &&
               results->p_value != NULL && results->position_mean != NULL;
    return all ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu results", samples);
}

void dpe_results_free(struct dpe_results *results)
{
    free(results->status);
    free(results->score);
    free(results->half);
    free(results->nll_sum);
    free(results->n_tokens);
    free(results->n_words);
    free(results->bucket_nll);
    free(results->mean);
    free(results->word);
    free(results->difference);
    free(results->half_mean);
    free(results->p_value);
    free(results->position_mean);
    free(results->memory);
    *results = (struct dpe_results){0};
}

/* One sample's place in the arrays; `row` NULL = not run. */
static void take(struct dpe_results *results, size_t at, const struct dpe_row *row)
{
    bool ok = row != NULL && row->status == DPE_ROW_OK;
    results->status[at] = row == NULL ? -1 : row->status;
    results->nll_sum[at] = ok ? row->nll_sum : (double)NAN;
    results->n_tokens[at] = ok ? row->n_tokens : -1;
    results->n_words[at] = ok ? row->n_words : -1;
    results->half[at] = ok ? row->at_least_half : (double)NAN;
    /* Of perplexity the paired quantity is nats per token of a book. */
    results->score[at] = !ok                          ? (double)NAN
                         : results->suite->perplexity ? row->nll_sum / (double)row->n_tokens
                                                      : row->score;
    for (int b = 0; b < results->n_positions; b++) {
        results->bucket_nll[at * (size_t)results->n_positions + (size_t)b] =
            ok && b < row->n_buckets ? row->buckets[b] : (double)NAN;
    }
}

/* Perplexity of bucket b: scored positions are 1 … n_tokens, the bucket's begin at 2^b. */
static double position_mean(const struct dpe_results *results, size_t first, int b)
{
    double nll = 0.0;
    double tokens = 0.0;
    int64_t begin = INT64_C(1) << b;
    for (size_t s = first; s < first + (size_t)results->n_samples; s++) {
        double sum = results->bucket_nll[s * (size_t)results->n_positions + (size_t)b];
        if (!isnan(sum)) {
            int64_t rest = results->n_tokens[s] - begin + 1;
            nll += sum;
            tokens += (double)(rest < begin ? rest : begin);
        }
    }
    return tokens > 0.0 ? exp(nll / tokens) : (double)NAN;
}

static void summarize(struct dpe_results *results, int method, int task, uint64_t seed)
{
    size_t at = cell(results, method, task);
    size_t n = (size_t)results->n_samples;
    size_t first = at * n;
    const double *score = results->score + first;
    const double *against = results->score + cell(results, results->against, task) * n;
    const struct dpe_interval none = {NAN, NAN, NAN, 0};
    const struct dpe_resampling how = {results->suite->tasks[task].task.together, level, ROUNDS,
                                       seed};
    const struct dpe_resampling mean_alone = {how.together, level, 0, seed};
    bool ppl = results->suite->perplexity;
    results->mean[at] =
        ppl ? dpe_perplexity(results->nll_sum + first, results->n_tokens + first, n, level)
            : dpe_bootstrap_share(score, n, &how);
    results->word[at] =
        ppl ? dpe_perplexity(results->nll_sum + first, results->n_words + first, n, level) : none;
    const struct dpe_difference difference = dpe_compare(score, against, n, !ppl, &how);
    results->difference[at] = difference.minus;
    results->p_value[at] = difference.p;
    results->half_mean[at] = dpe_bootstrap_mean(results->half + first, n, &mean_alone).mean;
    for (int b = 0; b < results->n_positions; b++) {
        results->position_mean[at * (size_t)results->n_positions + (size_t)b] =
            position_mean(results, first, b);
    }
}

dpe_status dpe_results_collect(struct dpe_results *results, const struct dpe_compared *compared,
                               const struct dpe_run *run, struct dpe_error *err)
{
    const struct dpe_suite *suite = compared->suite;
    const int n_methods = compared->n_methods;
    *results = (struct dpe_results){.suite = suite,
                                    .method_names = compared->method_names,
                                    .keys = compared->keys,
                                    .n_methods = n_methods,
                                    .n_tasks = (int)suite->n_tasks,
                                    .against = compared->against};
    for (int t = 0; t < results->n_tasks; t++) {
        int64_t n = suite->tasks[t].n_samples;
        results->n_samples = n > results->n_samples ? n : results->n_samples;
    }
    measure(results, run);
    DPE_TRY(allocate(results, err));
    for (int m = 0; m < n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            for (int64_t s = 0; s < results->n_samples; s++) {
                bool asked = s < suite->tasks[t].n_samples;
                take(results, sample_of(results, m, t, s),
                     asked ? find(results, run, m, t, s) : NULL);
            }
        }
    }
    for (int m = 0; m < n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            summarize(results, m, t, compared->seed);
        }
    }
    return DPE_OK;
}

static bool named(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

int dpe_results_categories(const struct dpe_suite *suite, const char **names, int size)
{
    int n = 0;
    for (size_t t = 0; t < suite->n_tasks && n + 1 < size; t++) {
        const char *category = suite->tasks[t].category;
        if (category[0] != '\0' && !named(names, n, category)) {
            names[n++] = category;
        }
    }
    bool several = false;
    for (size_t t = 1; t < suite->n_tasks; t++) {
        several = several || strcmp(suite->tasks[t].label, suite->tasks[0].label) != 0;
    }
    if (n > 0 || (several && !suite->perplexity)) {
        names[n++] = "overall";
    }
    return n;
}

double dpe_results_category(const struct dpe_results *results, int method, const char *category,
                            int64_t length)
{
    double sum = 0.0;
    int n = 0;
    bool all = strcmp(category, "overall") == 0;
    for (int t = 0; t < results->n_tasks; t++) {
        const struct dpe_suite_task *task = &results->suite->tasks[t];
        if (task->length == length && (all || strcmp(task->category, category) == 0)) {
            sum += results->mean[cell(results, method, t)].mean;
            n++;
        }
    }
    return n == 0 ? (double)NAN : sum / n;
}

int dpe_results_lengths(const struct dpe_suite *suite, int64_t *lengths, int size)
{
    int n = 0;
    for (size_t t = 0; t < suite->n_tasks; t++) {
        int64_t length = suite->tasks[t].length;
        if (n < size && (n == 0 || lengths[n - 1] != length)) {
            lengths[n++] = length;
        }
    }
    return n;
}
