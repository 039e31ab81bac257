/* Results as text (outputs/words) and for scripts; and at which lengths a check is. */
#include "eval/tool/comparison.h"
#include "outputs/datasets/kinds.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/words/words.h"

#include <string.h>

/* Samples without a number do not count as 0: report how many are missing. */
static void say_gaps(const struct dpe_results *results, struct dpe_page *page)
{
    int64_t nonfinite = 0;
    size_t n = (size_t)results->n_methods * (size_t)results->n_tasks * (size_t)results->n_samples;
    for (size_t i = 0; i < n; i++) {
        nonfinite += results->r.status[i] == DPE_ROW_NONFINITE;
    }
    if (nonfinite > 0) {
        dpe_page_say(page, BLOCK_NOTE,
                     "%lld samples with NaN or infinity in their logits are left out.",
                     (long long)nonfinite);
    }
}

dpe_status dpe_eval_print(const struct dpe_comparison *comparison,
                          const struct dpe_results *results, struct dpe_error *err)
{
    const struct dpe_suite *suite = results->suite;
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_page page = {.printed = true, .err = err};
    struct dpe_suite_words words = {.r = &results->r,
                                    .name = suite->name,
                                    .title = suite->kind->title,
                                    .unit = suite->unit,
                                    .explanation = suite->kind->explanation,
                                    .against = (size_t)results->against,
                                    .together = suite->tasks[0].task.together,
                                    .trained = comparison->job.trained_length,
                                    .low_is_better = suite->kind->perplexity};
    dpe_words_derive(&page, &words);
    dpe_words_suite(&page, &words);
    say_gaps(results, &page);
    if (args->check) {
        dpe_words_check(&page, &results->r, results->against);
    }
    return dpe_page_print(&page, args->details);
}

dpe_status dpe_eval_print_grid(const struct dpe_results *results, const double *depths,
                               int n_depths, struct dpe_error *err)
{
    struct dpe_page page = {.printed = true, .err = err};
    struct dpe_grid_result grid = {0};
    dpe_status status = dpe_results_grid(results, depths, n_depths, &grid, err);
    if (status == DPE_OK) {
        dpe_words_grid(&page, &grid);
        say_gaps(results, &page);
        status = dpe_page_print(&page, false);
    }
    dpe_results_grid_free(&grid);
    return status;
}

/* --------------------------------------------------------------------------------------- check */

dpe_status dpe_eval_check_lengths(struct dpe_comparison *comparison, struct dpe_error *err)
{
    const char *path = comparison->args->methods[comparison->args->n_methods - 1];
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
    const struct dpe_table_values *values = dpe_table_values(table);
    const bool same = strcmp(values->model_fingerprint, dpe_job_fingerprint(&comparison->job)) == 0;
    comparison->n_lengths = 0;
    comparison->lengths[comparison->n_lengths++] = comparison->job.trained_length;
    if (values->length > comparison->job.trained_length) {
        comparison->lengths[comparison->n_lengths++] = values->length;
    }
    dpe_log_info("%s: made for %lld tokens, of %s", path, (long long)values->length,
                 same ? "this very model" : "a model of other weights");
    char evidence[DPE_TABLE_EVIDENCE];
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_log_info("%s: there it %s", path, evidence);
    }
    return comparison->n_lengths < 2
               ? dpe_fail(err, DPE_BAD_DATA,
                          "%s: made for %lld tokens; the model was trained at %lld and needs no "
                          "table for them",
                          path, (long long)values->length,
                          (long long)comparison->job.trained_length)
               : DPE_OK;
}

/* --------------------------------------------------------------------------------- for scripts */

struct dpe_result *dpe_eval_result_begin(const struct dpe_comparison *comparison)
{
    const struct dpe_eval_arguments *args = comparison->args;
    struct dpe_result *out = dpe_result_begin("dpe-eval");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&comparison->job));
    dpe_result_text(out, "table", args->job.output);
    dpe_result_whole(out, "trained_length", comparison->job.trained_length);
    dpe_result_whole(out, "seed", (int64_t)args->job.seed);
    dpe_result_text(out, "against", comparison->labels[comparison->against]);
    dpe_result_text(out, "ablation", args->what);
    return out;
}

/* The method that the others are compared with differs in nothing from itself. */
void dpe_eval_result_add(struct dpe_result *out, const struct dpe_results *results)
{
    for (int64_t i = 0; i < (int64_t)results->n_tasks * results->n_methods; i++) {
        const int64_t m = i % results->n_methods;
        const int64_t at = m * results->n_tasks + i / results->n_methods;
        struct dpe_suite_result r = results->r;
        r.difference = m == results->against ? NULL : r.difference;
        dpe_result_row(out, "results");
        dpe_result_text(out, "suite", results->suite->name);
        dpe_result_text(out, "measure",
                        results->suite->kind->perplexity ? "perplexity" : results->suite->score);
        dpe_datasets_fields(&dpe_suite_kinds[0], &r, "/method task", at, out);
    }
}
