/* What dpe-eval tune found: its table, its text, and what it would cost. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "eval/tool/tune.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/words/words.h"

/* ---------------------------------------------------------------------------------------- table */

static dpe_status put_arms(const struct dpe_tuning *tuning, struct dpe_h5 *table,
                           struct dpe_error *err)
{
    struct dpe_race_result result = {0};
    for (int g = 0; g < tuning->n_groups; g++) {
        result.n[0] += tuning->groups[g].n_arms;
    }
    DPE_TRY(DPE_NEW(&result.raced, (size_t)result.n[0], err, "out of memory for results"));
    struct dpe_raced *at = result.raced;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        for (int a = 0; a < group->n_arms; a++) {
            *at = group->arms[a].raced;
            at++->of = g;
        }
    }
    dpe_datasets_put(&dpe_race_kind, &result, "/tune/setting", table);
    free(result.raced);
    return DPE_OK;
}

dpe_status dpe_tune_put(const struct dpe_tuning *tuning, struct dpe_h5 *table,
                        struct dpe_error *err)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    dpe_datasets_put(&dpe_tune_kind, &tuning->result, "/tune", table);
    DPE_TRY(put_arms(tuning, table, err));
    dpe_h5_attr_i64(table, "/tune", "seed", (int64_t)args->job.seed);
    dpe_h5_attr_i64(table, "/tune", "trained_length", tuning->comparison.job.trained_length);
    dpe_h5_attr_i64(table, "/tune", "official", args->official);
    dpe_h5_attr_i64(table, "/tune", "budget", tuning->budget);
    dpe_h5_attr_i64(table, "/tune", "fresh_samples", tuning->fresh);
    dpe_h5_attr_i64(table, "/tune", "first_fresh_sample", dpe_tune_first_fresh(tuning));
    dpe_h5_attr_i64(table, "/tune", "samples_together", dpe_tune_task(tuning, 0)->task.together);
    dpe_h5_attr_text(table, "/", "title",
                     "Settings of position methods, found with as many rows for each");
    return dpe_h5_failed(table, err);
}

/* ----------------------------------------------------------------------------------------- text */

static struct dpe_result *begin_document(const struct dpe_tuning *tuning)
{
    const struct dpe_eval_arguments *args = tuning->comparison.args;
    struct dpe_result *out = dpe_result_begin("dpe-eval");
    dpe_result_text(out, "model", args->job.model);
    dpe_result_text(out, "table", args->job.output);
    dpe_result_whole(out, "trained_length", tuning->comparison.job.trained_length);
    dpe_result_whole(out, "seed", (int64_t)args->job.seed);
    dpe_result_whole(out, "budget", tuning->budget);
    return out;
}

/* The same for scripts: a row for each length and method. */
static dpe_status print_document(const struct dpe_tuning *tuning, struct dpe_error *err)
{
    struct dpe_result *out = begin_document(tuning);
    for (int g = 0; g < tuning->n_groups; g++) {
        dpe_result_row(out, "results");
        dpe_result_whole(out, "settings", tuning->groups[g].n_arms);
        dpe_datasets_fields(&dpe_tune_kind, &tuning->result, "method", g, out);
    }
    return dpe_result_print(out, err);
}

dpe_status dpe_tune_print(void *state, struct dpe_error *err)
{
    const struct dpe_tuning *tuning = state;
    if (tuning->comparison.args->job.json) {
        return print_document(tuning, err);
    }
    struct dpe_page page = {.printed = true};
    dpe_words_tune(&page, &tuning->result, tuning->fresh);
    dpe_page_print(&page, false);
    return DPE_OK;
}

/* The plan of any setting whose attention does most: that with most bands. */
static const struct dpe_plan *slowest_plan(const struct dpe_tuning *tuning)
{
    const struct dpe_plan *slowest = &tuning->groups[0].arms[0].plan;
    for (int g = 0; g < tuning->n_groups; g++) {
        for (int i = 0; i < tuning->groups[g].n_arms; i++) {
            const struct dpe_plan *plan = &tuning->groups[g].arms[i].plan;
            slowest = plan->n_bands > slowest->n_bands ? plan : slowest;
        }
    }
    return slowest;
}

/* What a group may run at most: its search, and the default and the chosen setting on fresh
 * samples. */
static int64_t search_rows(const struct dpe_tuning *tuning, const struct dpe_tune_group *group)
{
    return group->n_arms > 1 ? tuning->budget : 0;
}

static int64_t fresh_rows(const struct dpe_tuning *tuning, const struct dpe_tune_group *group)
{
    return (group->n_arms > 1 ? 2 : 1) * tuning->fresh;
}

static void print_settings(const struct dpe_tuning *tuning)
{
    const struct dpe_comparison *comparison = &tuning->comparison;
    dpe_print("model            %s\n", comparison->args->job.model);
    dpe_print("%-16s %8s %8s %12s %6s\n", "method", "length", "settings", "rows", "fresh");
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        dpe_print("%-16.*s %8lld %8d %12lld %6lld\n", (int)strcspn(group->result->method, ":"),
                  group->result->method, (long long)group->result->length, group->n_arms,
                  (long long)search_rows(tuning, group), (long long)fresh_rows(tuning, group));
    }
}

static dpe_status print_cost_document(const struct dpe_tuning *tuning, struct dpe_error *err)
{
    struct dpe_result *out = begin_document(tuning);
    int64_t rows = 0;
    double tokens = 0.0;
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        int64_t n = search_rows(tuning, group) + fresh_rows(tuning, group);
        rows += n;
        tokens += (double)n * (double)group->result->length;
        dpe_result_row(out, "methods");
        dpe_result_text(out, "method", group->result->method);
        dpe_result_whole(out, "length", group->result->length);
        dpe_result_whole(out, "settings", group->n_arms);
        dpe_result_whole(out, "search_rows", search_rows(tuning, group));
        dpe_result_whole(out, "fresh_rows", fresh_rows(tuning, group));
    }
    dpe_result_row(out, NULL);
    dpe_result_whole(out, "rows", rows);
    dpe_result_number(out, "tokens", tokens);
    return dpe_result_print(out, err);
}

dpe_status dpe_tune_cost(const struct dpe_tuning *tuning, struct dpe_bill *sum,
                         struct dpe_error *err)
{
    if (tuning->comparison.args->job.json) {
        return print_cost_document(tuning, err);
    }
    DPE_OWNED double *rows = NULL;
    DPE_TRY(DPE_NEW(&rows, (size_t)tuning->comparison.n_lengths, err, "out of memory"));
    for (int g = 0; g < tuning->n_groups; g++) {
        const struct dpe_tune_group *group = &tuning->groups[g];
        rows[group->length] +=
            (double)search_rows(tuning, group) + (double)fresh_rows(tuning, group);
    }
    if (!tuning->comparison.args->job.silent) {
        print_settings(tuning);
    }
    return dpe_eval_add_cost(&tuning->comparison, slowest_plan(tuning), rows, sum, err);
}
