/* The /eval/SUITE part of a table (outputs/SCHEMA.md, "Comparison"). */
#include <stdio.h>
#include <string.h>

#include "eval/compare/results.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

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

dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", results->suite->name);
    DPE_TRY(put_attributes(results, folder, true, table, err));
    return dpe_datasets_put(&dpe_suite_kinds[results->suite->perplexity], &results->r, folder,
                            table, err);
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

dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err)
{
    static const char made[] = "length plan score status mean";
    static const char half[] = "at_least_half";
    const struct dpe_suite_result *r = &results->r;
    const int n_lengths = results->n_tasks / n_depths;
    struct dpe_grid_result grid = {
        .n = {results->n_methods, n_depths, n_lengths, results->n_samples}, .depth = depths};
    char folder[64];
    snprintf(folder, sizeof folder, "/eval/%s", results->suite->name);
    dpe_status status = dpe_datasets_make(&dpe_grid_kind, &grid, made, err);
    if (status == DPE_OK && r->half != NULL) {
        status = dpe_datasets_make(&dpe_grid_kind, &grid, half, err);
    }
    if (status == DPE_OK) {
        const int64_t n = results->n_samples;
        transpose(grid.score, r->score, sizeof *grid.score, results, n_depths, n);
        transpose(grid.status, r->status, sizeof *grid.status, results, n_depths, n);
        transpose(grid.mean, r->mean, sizeof *grid.mean, results, n_depths, 1);
        for (int l = 0; l < n_lengths; l++) {
            grid.length[l] = r->task_length[l * n_depths];
        }
        for (int i = 0; i < results->n_methods * n_lengths; i++) {
            /* All depths of a length have one plan. */
            ((const char **)(uintptr_t)grid.plan)[i] = r->plan[i * n_depths];
        }
        status = put_attributes(results, folder, false, table, err);
    }
    if (status == DPE_OK && r->half != NULL) {
        transpose(grid.half, r->half, sizeof *grid.half, results, n_depths, results->n_samples);
    }
    if (status == DPE_OK) {
        status = dpe_datasets_put(&dpe_grid_kind, &grid, folder, table, err);
    }
    dpe_datasets_drop(&dpe_grid_kind, &grid, made);
    dpe_datasets_drop(&dpe_grid_kind, &grid, half);
    return status;
}
