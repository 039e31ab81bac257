/* The /eval/SUITE part of a table (outputs/SCHEMA.md, "Comparison"). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/compare/results.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

enum { MAX_TASKS_LISTED = 64 };

static dpe_status put_attributes(const struct dpe_results *results, const char *folder,
                                 bool differences, struct dpe_h5 *table, struct dpe_error *err)
{
    const struct dpe_suite *suite = results->suite;
    struct dpe_text parameters = {0};
    dpe_status status = dpe_text_append(&parameters, "", 0, err);
    for (size_t i = 0; i < suite->parameters.n && status == DPE_OK; i++) {
        char field[512];
        int n = snprintf(field, sizeof field, "%s%s=%s", i == 0 ? "" : " ",
                         suite->parameters.fields[i].name, suite->parameters.fields[i].value);
        status = dpe_text_append(&parameters, field,
                                 n < (int)sizeof field ? (size_t)n : sizeof field - 1, err);
    }
    const struct {
        const char *name, *value;
    } texts[] = {
        {"title", suite->kind->title},
        {"unit", suite->kind->unit},
        {"explanation", suite->kind->explanation},
        {"parameters", parameters.bytes},
        {"score", suite->score},
        {"better", suite->perplexity ? "lower" : "higher"},
        {"interval_rule",
         suite->perplexity
             ? "95 %, Student's t over the delete-one-book jackknife of nats per token"
             : "95 %, percentiles of 2000 bootstrap means; samples of one context are drawn "
               "together; Wilson score where all samples agree"},
        {"difference_rule",
         "score - score of the method /eval@against over samples valid under "
         "both: 95 % of 2000 bootstrap means; two-sided sign-flip test, exact up to 16 "
         "differing contexts, else 2000 flips; of fewer than 12 contexts of several questions "
         "Student's t with a moderated variance; not corrected for their number"},
    };
    size_t n = sizeof texts / sizeof texts[0] - (differences ? 0 : 1);
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        status = dpe_h5_attr_text(table, folder, texts[i].name, texts[i].value, err);
    }
    if (status == DPE_OK) {
        status =
            dpe_h5_attr_i64(table, folder, "samples_together", suite->tasks[0].task.together, err);
    }
    dpe_text_free(&parameters);
    return status;
}

/* Means of categories, [method][category][length]; owned. NULL without memory. */
static double *category_means(const struct dpe_results *results, const char *const *names, int n,
                              const int64_t *lengths, int n_lengths)
{
    double *means =
        dpe_alloc((size_t)results->n_methods * (size_t)n, (size_t)n_lengths * sizeof *means);
    double *at = means;
    for (int m = 0; means != NULL && m < results->n_methods; m++) {
        for (int c = 0; c < n; c++) {
            for (int l = 0; l < n_lengths; l++) {
                *at++ = dpe_results_category(results, m, names[c], lengths[l]);
            }
        }
    }
    return means;
}

/* What is not the results' own arrays; the pointers in a suite's struct that are owned here. */
struct made {
    const char **texts; /* names, labels and categories of the tasks */
    int64_t *lengths;
    double *means;
    const char *categories[MAX_TASKS_LISTED];
    int64_t category_lengths[MAX_TASKS_LISTED], first[64];
};

static dpe_status make(const struct dpe_results *results, struct made *made,
                       struct dpe_suite_result *out, struct dpe_error *err)
{
    size_t n = results->suite->n_tasks;
    int n_categories = dpe_results_categories(results->suite, made->categories, MAX_TASKS_LISTED);
    int n_lengths = dpe_results_lengths(results->suite, made->category_lengths, MAX_TASKS_LISTED);
    made->texts = dpe_alloc(3 * n, sizeof *made->texts);
    made->lengths = dpe_alloc(n, sizeof *made->lengths);
    made->means =
        category_means(results, made->categories, n_categories, made->category_lengths, n_lengths);
    if (made->texts == NULL || made->lengths == NULL || made->means == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for results");
    }
    for (size_t t = 0; t < n; t++) {
        const struct dpe_suite_task *task = &results->suite->tasks[t];
        made->texts[t] = task->task.name;
        made->texts[n + t] = task->label;
        made->texts[2 * n + t] = task->category;
        made->lengths[t] = task->length;
        out->task_category = task->category[0] != '\0' ? made->texts + 2 * n : out->task_category;
    }
    for (int b = 0; b < results->n_positions; b++) {
        made->first[b] = INT64_C(1) << b;
    }
    out->task = made->texts;
    out->task_label = made->texts + n;
    out->task_length = made->lengths;
    if (results->n_positions > 0) {
        out->position = made->first;
        out->position_mean = results->position_mean;
    }
    if (n_categories > 0) {
        out->category = made->categories;
        out->category_length = made->category_lengths;
        out->category_mean = made->means;
    }
    out->n[DPE_SUITE_CATEGORY] = n_categories;
    out->n[DPE_SUITE_CATEGORY_LENGTH] = n_lengths;
    return DPE_OK;
}

dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    const struct dpe_suite *suite = results->suite;
    struct dpe_dataset datasets[DPE_SUITE_DATASETS];
    const struct dpe_dataset_kind kind =
        dpe_suite_datasets(suite->score, suite->perplexity, datasets);
    struct dpe_suite_result out = {
        .n = {results->n_methods, results->n_tasks, results->n_samples, results->n_positions},
        .plan = results->keys,
        .memory = results->memory,
        .score = results->score,
        .status = results->status,
        .half = suite->half ? results->half : NULL,
        .nll_sum = suite->perplexity ? results->nll_sum : NULL,
        .n_tokens = suite->perplexity ? results->n_tokens : NULL,
        .n_words = suite->perplexity ? results->n_words : NULL,
        .mean = results->mean,
        .word = suite->perplexity ? results->word : NULL,
        .difference = results->difference,
        .half_mean = suite->half ? results->half_mean : NULL,
        .p_value = results->p_value};
    struct made made = {0};
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", suite->name);
    dpe_status status = make(results, &made, &out, err);
    if (status == DPE_OK) {
        status = put_attributes(results, folder, true, table, err);
    }
    if (status == DPE_OK) {
        status = dpe_datasets_put(&kind, &out, folder, table, err);
    }
    free(made.texts);
    free(made.lengths);
    free(made.means);
    return status;
}

/* Tasks of a grid lie length by length; its table has the depth before the length. */
static void transpose(void *to, const void *from, size_t size, const struct dpe_results *results,
                      int n_depths, int64_t block)
{
    int n_lengths = results->n_tasks / n_depths;
    size_t bytes = (size_t)block * size;
    for (int m = 0; m < results->n_methods; m++) {
        for (int t = 0; t < results->n_tasks; t++) {
            int target = t % n_depths * n_lengths + t / n_depths;
            size_t row = (size_t)m * (size_t)results->n_tasks;
            memcpy((char *)to + (row + (size_t)target) * bytes,
                   (const char *)from + (row + (size_t)t) * bytes, bytes);
        }
    }
}

/* The arrays of a grid that are written, in the grid's order; owned. */
static dpe_status reorder(const struct dpe_results *results, int n_depths, struct dpe_results *grid,
                          struct dpe_error *err)
{
    size_t cells = (size_t)results->n_methods * (size_t)results->n_tasks;
    size_t n = cells * (size_t)results->n_samples;
    int64_t block = results->n_samples;
    *grid = (struct dpe_results){.suite = results->suite,
                                 .n_methods = results->n_methods,
                                 .n_tasks = results->n_tasks,
                                 .n_samples = block,
                                 .score = dpe_alloc(n, sizeof *grid->score),
                                 .half = dpe_alloc(n, sizeof *grid->half),
                                 .status = dpe_alloc(n, sizeof *grid->status),
                                 .mean = dpe_alloc(cells, sizeof *grid->mean)};
    if (grid->score == NULL || grid->half == NULL || grid->status == NULL || grid->mean == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu results", n);
    }
    transpose(grid->score, results->score, sizeof *grid->score, results, n_depths, block);
    transpose(grid->half, results->half, sizeof *grid->half, results, n_depths, block);
    transpose(grid->status, results->status, sizeof *grid->status, results, n_depths, block);
    transpose(grid->mean, results->mean, sizeof *grid->mean, results, n_depths, 1);
    return DPE_OK;
}

dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err)
{
    int64_t lengths[MAX_TASKS_LISTED];
    int n_lengths = dpe_results_lengths(results->suite, lengths, MAX_TASKS_LISTED);
    size_t n_keys = (size_t)results->n_methods * (size_t)n_lengths;
    const char **keys = dpe_alloc(n_keys, sizeof *keys);
    struct dpe_results grid = {0};
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", results->suite->name);
    dpe_status status = keys == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for keys")
                                     : reorder(results, n_depths, &grid, err);
    for (size_t i = 0; status == DPE_OK && i < n_keys; i++) {
        keys[i] = results->keys[i * (size_t)n_depths]; /* all depths of a length have one plan */
    }
    if (status == DPE_OK) {
        status = put_attributes(results, folder, false, table, err);
    }
    if (status == DPE_OK) {
        const struct dpe_grid_result out = {
            .n = {results->n_methods, n_depths, n_lengths, results->n_samples},
            .depth = depths,
            .length = lengths,
            .plan = keys,
            .score = grid.score,
            .half = results->suite->half ? grid.half : NULL,
            .status = grid.status,
            .mean = grid.mean};
        status = dpe_datasets_put(&dpe_grid_kind, &out, folder, table, err);
    }
    dpe_results_free(&grid);
    free(keys);
    return status;
}
