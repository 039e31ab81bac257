/* Rows as arrays, their statistics, and the /eval/SUITE part of a table (outputs/SCHEMA.md,
 * "Comparison"). */
#include "eval/compare/compare.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 2000 };
static const double level = 0.95;

static size_t sample_of(const struct dpe_results *results, int method, int task, int64_t sample)
{
    return dpe_results_cell(results, method, task) * (size_t)results->n_samples + (size_t)sample;
}

static const struct dpe_row *find(const struct dpe_results *results, const struct dpe_run *run,
                                  int method, int task, int64_t sample)
{
    return dpe_run_find(run, results->suite->tasks[task].task.name,
                        results->r.plan[dpe_results_cell(results, method, task)], sample);
}

/* How many buckets the longest row has. */
static void count_positions(struct dpe_results *results, const struct dpe_run *run)
{
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            for (int64_t s = 0; s < results->suite->tasks[t].n_samples; s++) {
                const struct dpe_row *row = find(results, run, m, t, s);
                const int64_t n = row == NULL ? 0 : dpe_least(row->n_buckets, DPE_POSITIONS);
                results->n_positions = (int)dpe_most(n, results->n_positions);
            }
        }
    }
}

enum { MOST_CATEGORIES = 64 };

/* The arrays of a suite, by what has them: every one; perplexity; needles; tasks of several kinds;
 * texts with positions. */
static const char *const parts[] = {
    "task task_label task_length status score mean difference",
    "nll_sum n_tokens n_words word_mean",
    "at_least_half half_mean",
    "task_category category category_length category_mean",
    "position position_mean",
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

static dpe_status allocate(struct dpe_results *results, struct dpe_error *err)
{
    const struct dpe_suite_kind *kind = results->suite->kind;
    struct dpe_suite_result *r = &results->r;
    const bool has[N_PARTS] = {true, kind->perplexity, kind->half, r->n[DPE_SUITE_CATEGORY] > 0,
                               results->n_positions > 0};
    for (int i = 0; i < N_PARTS; i++) {
        DPE_TRY(has[i] ? dpe_datasets_make(&dpe_suite_kinds[0], r, parts[i], err) : DPE_OK);
    }
    return DPE_OK;
}

void dpe_results_free(struct dpe_results *results)
{
    for (int i = 0; i < N_PARTS; i++) {
        dpe_datasets_drop(&dpe_suite_kinds[0], &results->r, parts[i]);
    }
    dpe_datasets_drop(&dpe_suite_kinds[0], &results->r, "memory");
    *results = (struct dpe_results){0};
}

/* One sample's place in the arrays; `row` NULL = not run. */
static void take(struct dpe_results *results, size_t at, const struct dpe_row *row)
{
    bool ok = row != NULL && row->status == DPE_ROW_OK;
    struct dpe_suite_result *r = &results->r;
    r->status[at] = row == NULL ? -1 : row->status;
    /* Of perplexity the paired quantity is nats per token of a book. */
    r->score[at] = !ok                                ? (double)NAN
                   : results->suite->kind->perplexity ? row->nll_sum / (double)row->n_tokens
                                                      : row->score;
    if (results->suite->kind->perplexity) {
        r->nll_sum[at] = ok ? row->nll_sum : (double)NAN;
        r->n_tokens[at] = ok ? row->n_tokens : -1;
        r->n_words[at] = ok ? row->n_words : -1;
    }
    if (results->suite->kind->half) {
        r->half[at] = ok ? row->at_least_half : (double)NAN;
    }
}

static void find_positions(struct dpe_results *results, const struct dpe_run *run, int method,
                           int task)
{
    struct dpe_positions positions = {.n = 0};
    const size_t n = (size_t)results->n_positions;
    for (int64_t s = 0; s < results->suite->tasks[task].n_samples && n > 0; s++) {
        dpe_positions_add(&positions, find(results, run, method, task, s));
    }
    for (size_t b = 0; b < n; b++) {
        results->r.position_mean[dpe_results_cell(results, method, task) * n + b] =
            dpe_positions_at(&positions, (int)b);
    }
}

static void summarize(struct dpe_results *results, int method, int task, uint64_t seed)
{
    size_t at = dpe_results_cell(results, method, task);
    size_t n = (size_t)results->n_samples;
    size_t first = at * n;
    struct dpe_suite_result *r = &results->r;
    const double *score = r->score + first;
    const double *against = r->score + dpe_results_cell(results, results->against, task) * n;
    const struct dpe_resampling how = {results->suite->tasks[task].task.together, level, ROUNDS,
                                       seed};
    const bool ppl = results->suite->kind->perplexity;
    r->mean[at] = ppl ? dpe_perplexity(r->nll_sum + first, r->n_tokens + first, n, level)
                      : dpe_bootstrap_share(score, n, &how);
    if (ppl) {
        r->word[at] = dpe_perplexity(r->nll_sum + first, r->n_words + first, n, level);
    }
    r->difference[at] = dpe_compare(score, against, n, !ppl, &how);
    if (results->suite->kind->half) {
        r->half_mean[at] = dpe_bootstrap_mean(r->half + first, n, &how).mean;
    }
}

/* The categories of a suite in the order of their first task, "overall" last (alone where tasks
 * have none); of a suite of one task, whatever its lengths, and of perplexity there are none. */
static int find_categories(const struct dpe_suite *suite, const char *names[MOST_CATEGORIES])
{
    int n = 0;
    bool several = false;
    for (size_t t = 0; t < suite->n_tasks && n + 1 < MOST_CATEGORIES; t++) {
        const char *category = suite->tasks[t].category;
        if (category[0] != '\0' && dpe_named(names, (size_t)n, sizeof *names, category) == NULL) {
            names[n++] = category;
        }
        several = several || strcmp(suite->tasks[t].label, suite->tasks[0].label) != 0;
    }
    if (n > 0 || (several && !suite->kind->perplexity)) {
        names[n++] = "overall";
    }
    return n;
}

/* The lengths of its tasks, ascending. */
static int find_lengths(const struct dpe_suite *suite, int64_t lengths[MOST_CATEGORIES])
{
    int n = 0;
    for (size_t t = 0; t < suite->n_tasks && n < MOST_CATEGORIES; t++) {
        if (n == 0 || lengths[n - 1] < suite->tasks[t].length) {
            lengths[n++] = suite->tasks[t].length;
        }
    }
    return n;
}

/* Mean of the means of a method's tasks in a category ("overall": all) at a length; NaN when one is
 * missing or there are none. */
static double category_mean(const struct dpe_results *results, int method, const char *category,
                            int64_t length)
{
    double sum = 0.0;
    int n = 0;
    bool all = strcmp(category, "overall") == 0;
    for (int t = 0; t < results->n_tasks; t++) {
        const struct dpe_suite_task *task = &results->suite->tasks[t];
        if (task->length == length && (all || strcmp(task->category, category) == 0)) {
            sum += results->r.mean[dpe_results_cell(results, method, t)].mean;
            n++;
        }
    }
    return n == 0 ? (double)NAN : sum / n;
}

/* Names of tasks, positions of buckets, means of categories. */
static void name_axes(struct dpe_results *results, const char *const *categories,
                      const int64_t *lengths)
{
    struct dpe_suite_result *r = &results->r;
    const int64_t n_lengths = r->n[DPE_SUITE_CATEGORY_LENGTH];
    const int64_t n = r->n[DPE_SUITE_CATEGORY] * n_lengths;
    bool named = false;
    for (int t = 0; t < results->n_tasks; t++) {
        const struct dpe_suite_task *task = &results->suite->tasks[t];
        ((const char **)(uintptr_t)r->task)[t] = task->task.name;
        ((const char **)(uintptr_t)r->task_label)[t] = task->label;
        r->task_length[t] = task->length;
        if (r->task_category != NULL) {
            ((const char **)(uintptr_t)r->task_category)[t] = task->category;
        }
        named = named || task->category[0] != '\0';
    }
    if (!named) {
        dpe_datasets_drop(&dpe_suite_kinds[0], r, "task_category");
    }
    for (int b = 0; b < results->n_positions; b++) {
        r->position[b] = INT64_C(1) << b;
    }
    for (int64_t c = 0; c < r->n[DPE_SUITE_CATEGORY]; c++) {
        ((const char **)(uintptr_t)r->category)[c] = categories[c];
    }
    for (int64_t l = 0; l < n_lengths && n > 0; l++) {
        r->category_length[l] = lengths[l];
    }
    for (int64_t at = 0; at < results->n_methods * n; at++) {
        r->category_mean[at] = category_mean(results, (int)(at / n), categories[at % n / n_lengths],
                                             lengths[at % n_lengths]);
    }
}

dpe_status dpe_results_collect(struct dpe_results *results, uint64_t seed,
                               const struct dpe_run *run, struct dpe_error *err)
{
    const struct dpe_suite *suite = results->suite;
    const char *categories[MOST_CATEGORIES];
    int64_t lengths[MOST_CATEGORIES];
    results->n_tasks = (int)suite->n_tasks;
    for (int t = 0; t < results->n_tasks; t++) {
        results->n_samples = dpe_most(suite->tasks[t].n_samples, results->n_samples);
    }
    count_positions(results, run);
    int64_t *n = results->r.n;
    n[DPE_SUITE_METHOD] = results->n_methods;
    n[DPE_SUITE_TASK] = results->n_tasks;
    n[DPE_SUITE_SAMPLE] = results->n_samples;
    n[DPE_SUITE_POSITION] = results->n_positions;
    n[DPE_SUITE_CATEGORY] = find_categories(suite, categories);
    n[DPE_SUITE_CATEGORY_LENGTH] = find_lengths(suite, lengths);
    DPE_TRY(allocate(results, err));
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            for (int64_t s = 0; s < results->n_samples; s++) {
                bool asked = s < suite->tasks[t].n_samples;
                take(results, sample_of(results, m, t, s),
                     asked ? find(results, run, m, t, s) : NULL);
            }
        }
    }
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            summarize(results, m, t, seed);
            find_positions(results, run, m, t);
        }
    }
    name_axes(results, categories, lengths);
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- table */

static dpe_status put_attributes(const struct dpe_results *results, const char *folder,
                                 bool differences, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_suite *suite = results->suite;
    DPE_SCOPED(dpe_text_free) struct dpe_text parameters = {0};
    dpe_text_put_bytes(&parameters, "", 0); /* without parameters it is the empty text */
    for (size_t i = 0; i < suite->parameters.n; i++) {
        dpe_text_put(&parameters, "%s%s=%s", i == 0 ? "" : " ", suite->parameters.fields[i].name,
                     suite->parameters.fields[i].value);
    }
    DPE_TRY(dpe_text_done(&parameters, err));
    const struct {
        const char *name, *value;
    } texts[] = {
        {"title", suite->kind->title},
        {"unit", suite->unit},
        {"explanation", suite->kind->explanation},
        {"parameters", parameters.bytes},
        {"score", suite->score},
        {"better", suite->kind->perplexity ? "lower" : "higher"},
        {"interval_rule",
         suite->kind->perplexity
             ? "95 %, Student's t over the delete-one-book jackknife of nats per token"
             : "95 %, Wilson score of so many trials as have the moderated variance of contexts"},
        {"difference_rule",
         "score - score of the method /eval@against over samples valid under "
         "both: 95 %, Student's t over contexts, of shares with a moderated variance; two-sided "
         "sign-flip test, exact up to 16 differing contexts, else 2000 flips; of fewer than 12 "
         "contexts of several questions that t; not corrected for their number"},
    };
    size_t n = sizeof texts / sizeof texts[0] - (differences ? 0 : 1);
    for (size_t i = 0; i < n; i++) {
        dpe_h5_attr_text(table, folder, texts[i].name, texts[i].value);
    }
    dpe_h5_attr_i64(table, folder, "samples_together", suite->tasks[0].task.together);
    return dpe_h5_failed(table, err);
}

dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", results->suite->name);
    DPE_TRY(put_attributes(results, folder, true, table, err));
    dpe_datasets_put(&dpe_suite_kinds[results->suite->kind->perplexity], &results->r, folder,
                     table);
    return dpe_h5_failed(table, err);
}

static const char of_grid[] = "plan";

void dpe_results_grid_free(struct dpe_grid_result *grid)
{
    dpe_datasets_drop(&dpe_grid_kind, grid, of_grid);
}

/* Tasks of a grid lie depth by depth, as its table has them. */
dpe_status dpe_results_grid(const struct dpe_results *results, const double *depths, int n_depths,
                            struct dpe_grid_result *grid, struct dpe_error *err)
{
    const struct dpe_suite_result *r = &results->r;
    const int n_lengths = results->n_tasks / n_depths;
    *grid =
        (struct dpe_grid_result){.n = {results->n_methods, n_depths, n_lengths, results->n_samples},
                                 .method = r->method,
                                 .depth = depths,
                                 .length = r->task_length,
                                 .score = r->score,
                                 .half = r->half,
                                 .status = r->status,
                                 .mean = r->mean};
    DPE_TRY(dpe_datasets_make(&dpe_grid_kind, grid, of_grid, err));
    for (int i = 0; i < results->n_methods * n_lengths; i++) {
        /* All depths of a length have one plan. */
        ((const char **)(uintptr_t)grid->plan)[i] =
            r->plan[i / n_lengths * results->n_tasks + i % n_lengths];
    }
    return DPE_OK;
}

dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err)
{
    DPE_SCOPED(dpe_results_grid_free) struct dpe_grid_result grid = {0};
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", results->suite->name);
    DPE_TRY(dpe_results_grid(results, depths, n_depths, &grid, err));
    DPE_TRY(put_attributes(results, folder, false, table, err));
    dpe_datasets_put(&dpe_grid_kind, &grid, folder, table);
    return dpe_h5_failed(table, err);
}
