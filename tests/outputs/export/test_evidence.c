/* Evidence of a table from results: a check with made-up numbers goes into the entries of its
 * lengths, and what says nothing of the table is refused. */
#include "tests/outputs/table/dpe_table_case.h"

#include "outputs/datasets/kinds.h"
#include "outputs/export/export.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "tests/outputs/outputs_fixture.h"

enum { METHODS = 4, TASKS = 2 };

/* What is written as the results of a suite. */
struct results {
    const char *folder, *method[METHODS];
    double mean[METHODS * TASKS];
    int64_t lengths[TASKS];
};

static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    struct results *results = user;
    const char *const tasks[TASKS] = {"a", "b"};
    struct dpe_interval mean[METHODS * TASKS];
    for (int i = 0; i < METHODS * TASKS; i++) {
        double m = results->mean[i];
        mean[i] = (struct dpe_interval){.mean = m, .low = m - 0.05, .high = m + 0.05, .n = 10 + i};
    }
    struct dpe_suite_result suite = {.n = {METHODS, TASKS, 1},
                                     .method = results->method,
                                     .task = tasks,
                                     .task_label = tasks,
                                     .task_length = results->lengths,
                                     .mean = mean};
    dpe_h5_put_scale(table, "/method", DPE_COL_STRING, results->method, METHODS, "method", "1");
    dpe_datasets_put(&dpe_suite_kinds[0], &suite, results->folder, table);
    dpe_h5_attr_text(table, results->folder, "parameters",
                     "keys=3,values=1,queries=1,digits=7 template=00");
    return dpe_h5_failed(table, err);
}

static const char *write_results(struct scratch *scratch, struct results *results)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    if (dpe_run_snapshot(run, true, fill, results, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    return scratch->table;
}

static struct results checked(void)
{
    return (struct results){.folder = "/eval/niah",
                            .method = {"rope", "yarn", "self-extend", "table:t.h5"},
                            .mean = {0.25, 0.125, 0.75, 0.25, 0.5, 0.625, 0.875, 0.8125},
                            .lengths = {2048, 4096}};
}

/* Of three entries two have results; what is possible stays as it was known. */
static void results_go_into_their_entries(void **state)
{
    struct results results = checked();
    struct dpe_table *table = ladder();
    struct dpe_identity origin = {0};
    struct dpe_error err = {0};
    const char *path = write_results(*state, &results);
    if (dpe_export_evidence(path, NULL, &table, &origin, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(dpe_table_count(table), 3);
    assert_null(dpe_table_values(dpe_table_entry(table, 0))->evidence_task);
    const struct dpe_table_values *middle = dpe_table_values(dpe_table_entry(table, 1));
    assert_string_equal(middle->evidence_task, "needles: 3 keys of one value");
    assert_true(middle->evidence_score == 0.875 && middle->evidence_unchanged == 0.25);
    assert_string_equal(middle->evidence_rival, "yarn");
    assert_true(middle->evidence_rival_score == 0.75 && middle->evidence_possible == -1.0);
    const struct dpe_table_values *last = dpe_table_values(dpe_table_entry(table, 2));
    assert_true(last->evidence_score == 0.8125 && last->evidence_samples == 17);
    assert_string_equal(last->evidence_rival, "self-extend");
    assert_true(last->evidence_short_loss == 0.0);
    assert_int_equal(origin.n, 1);
    assert_string_equal(origin.fields[0].name, "evidence");
    dpe_identity_free(&origin);
    dpe_table_close(table);
}

/* What other samples of the same plans found too stands in place of one length's results. */
static void pooled_values_take_the_place(void **state)
{
    struct results results = checked();
    struct dpe_table *table = ladder();
    struct dpe_error err = {0};
    struct dpe_interval of[4] = {{0.125, 0.0, 0.25, 30},
                                 {0.75, 0.5, 1.0, 30},
                                 {0.5, 0.25, 0.75, 17},
                                 {0.6875, 0.5, 0.8125, 41}};
    const struct dpe_pooled pooled = {.length = 4096, .n_methods = 4, .of = of, .possible = 0.9375};
    assert_int_equal(
        dpe_export_evidence(write_results(*state, &results), &pooled, &table, NULL, &err), DPE_OK);
    const struct dpe_table_values *middle = dpe_table_values(dpe_table_entry(table, 1));
    assert_true(middle->evidence_score == 0.875 && middle->evidence_unchanged == 0.25);
    const struct dpe_table_values *last = dpe_table_values(dpe_table_entry(table, 2));
    assert_true(last->evidence_score == 0.6875 && last->evidence_samples == 41);
    assert_true(last->evidence_low == 0.5 && last->evidence_high == 0.8125);
    assert_true(last->evidence_unchanged == 0.125 && last->evidence_rival_score == 0.75);
    assert_true(last->evidence_possible == 0.9375 && middle->evidence_possible == -1.0);
    assert_string_equal(last->evidence_rival, "yarn");
    dpe_table_close(table);
}

/* Of perplexity less is better; what was possible in needles says nothing of it. */
static void perplexity_is_lower_the_better(void **state)
{
    struct results results = checked();
    struct dpe_table *table = ladder();
    struct dpe_error err = {0};
    results.folder = "/eval/ppl";
    assert_int_equal(dpe_export_evidence(write_results(*state, &results), NULL, &table, NULL, &err),
                     DPE_OK);
    const struct dpe_table_values *last = dpe_table_values(table);
    assert_string_equal(last->evidence_task, "perplexity");
    assert_string_equal(last->evidence_rival, "yarn");
    assert_true(last->evidence_rival_score == 0.25 && last->evidence_possible == -1.0);
    dpe_table_close(table);
}

static void results_of_something_else_are_refused(void **state)
{
    struct dpe_table *table = ladder();
    struct dpe_error err = {0};
    struct results results = checked();
    results.method[3] = "lampe";
    assert_int_equal(dpe_export_evidence(write_results(*state, &results), NULL, &table, NULL, &err),
                     DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "results of a table"));
    dpe_table_close(table);
    table = ladder();
    results = checked();
    results.lengths[0] = 512;
    results.lengths[1] = 8192;
    assert_int_equal(dpe_export_evidence(write_results(*state, &results), NULL, &table, NULL, &err),
                     DPE_BAD_DATA);
    results = checked();
    results.folder = "/eval/ruler";
    assert_int_equal(dpe_export_evidence(write_results(*state, &results), NULL, &table, NULL, &err),
                     DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "dpe-eval niah or ppl"));
    dpe_table_close(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(results_go_into_their_entries),
        WITH_SCRATCH(pooled_values_take_the_place),
        WITH_SCRATCH(perplexity_is_lower_the_better),
        WITH_SCRATCH(results_of_something_else_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
