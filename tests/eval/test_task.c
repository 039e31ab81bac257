/* Rows of tasks: what every row holds, and what becomes of non-finite logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/plan/plan.h"
#include "eval/task/task.h"
#include "outputs/h5/rows.h"
#include "tests/eval/task_row.h"

/* A task whose run fails a given number of times. */
struct script {
    dpe_status status;
    int failures; /* runs that end with `status` before one that works */
    int runs, closed;
};

static dpe_status run_script(void *state, const struct dpe_job_rows *parts, int64_t n,
                             struct dpe_error *err)
{
    struct script *script = state;
    struct dpe_row *row = parts->rows;
    assert_true(n == 1 && parts->n == 1);
    row->seed = 77;
    row->prompt_tokens = parts->items[0].sample;
    /* Owned by the row: freed with the row of a run that failed. */
    row->text = strdup("half done");
    if (script->runs++ < script->failures) {
        dpe_status status = dpe_fail(err, script->status, "by the script");
        if (err != NULL) {
            err->layer = 3;
            err->position = 40 + script->runs;
        }
        return status;
    }
    row->score = 0.25;
    return DPE_OK;
}

static void close_script(void *state)
{
    struct script *script = state;
    script->closed++;
}

static struct dpe_task task_of(struct script *script)
{
    return (struct dpe_task){.name = "script",
                             .n_samples = 5,
                             .together = 1,
                             .state = script,
                             .run = run_script,
                             .close = close_script};
}

static void a_row_is_filled(void **state)
{
    (void)state;
    struct script script = {DPE_OK, 0, 0, 0};
    struct dpe_task task = task_of(&script);
    struct dpe_row row;
    assert_int_equal(row_of(&task, NULL, "00112233445566778899aabbccddeeff", 4, &row, NULL),
                     DPE_OK);
    assert_string_equal(row.plan, "00112233445566778899aabbccddeeff");
    assert_string_equal(row.task, "script");
    assert_int_equal(row.sample, 4);
    assert_int_equal(row.status, DPE_ROW_OK);
    assert_int_equal(row.seed, 77);
    assert_true(row.score == 0.25 && isnan(row.nll_sum) && row.n_tokens == -1);
    assert_true(row.seconds >= 0.0 && row.seconds < 60.0);
    dpe_row_free(&row);
    dpe_task_close(&task);
    assert_int_equal(script.closed, 1);
    dpe_task_close(&task);
    assert_int_equal(script.closed, 1);
}

static void one_nonfinite_run_is_tried_again(void **state)
{
    (void)state;
    struct script script = {DPE_NONFINITE, 1, 0, 0};
    struct dpe_task task = task_of(&script);
    struct dpe_row row;
    struct dpe_error err = {0};
    assert_int_equal(row_of(&task, NULL, "key", 0, &row, &err), DPE_OK);
    assert_int_equal(script.runs, 2);
    assert_int_equal(row.status, DPE_ROW_OK);
    assert_int_equal(row.layer, -1);
    assert_true(row.score == 0.25);
    dpe_row_free(&row);
}

static void two_nonfinite_runs_are_a_row(void **state)
{
    (void)state;
    struct script script = {DPE_NONFINITE, 2, 0, 0};
    struct dpe_task task = task_of(&script);
    struct dpe_row row;
    assert_int_equal(row_of(&task, NULL, "key", 1, &row, NULL), DPE_OK);
    assert_int_equal(script.runs, 2);
    assert_int_equal(row.status, DPE_ROW_NONFINITE);
    assert_int_equal(row.layer, 3);
    assert_int_equal(row.position, 42);
    assert_true(isnan(row.score));
    assert_int_equal(row.prompt_tokens, 1);
    dpe_row_free(&row);
}

static void other_failures_are_failures(void **state)
{
    (void)state;
    struct script script = {DPE_NO_MEMORY, 1, 0, 0};
    struct dpe_task task = task_of(&script);
    struct dpe_row row;
    struct dpe_error err = {0};
    assert_int_equal(row_of(&task, NULL, "key", 0, &row, &err), DPE_NO_MEMORY);
    assert_int_equal(script.runs, 1);
    assert_string_equal(err.text, "by the script");
    assert_int_equal(row_of(&task, NULL, "key", 5, &row, &err), DPE_USAGE);
    assert_int_equal(row_of(&task, NULL, "key", -1, &row, &err), DPE_USAGE);
    assert_int_equal(script.runs, 1);
}

static void plan_keys_follow_the_plan(void **state)
{
    (void)state;
    struct dpe_plan plan = {0};
    char key[33];
    char same[33];
    char other[33];
    assert_int_equal(dpe_plan_init(&plan, 4, 1, 2, NULL), DPE_OK);
    plan.n_bands = 1;
    assert_int_equal(dpe_plan_key(&plan, key, NULL), DPE_OK);
    assert_int_equal(strlen(key), 32);
    strcpy(plan.name, "another name");
    assert_int_equal(dpe_plan_key(&plan, same, NULL), DPE_OK);
    assert_string_equal(key, same);
    plan.temperature.logit_scale = 2.0;
    assert_int_equal(dpe_plan_key(&plan, other, NULL), DPE_OK);
    assert_string_not_equal(key, other);
    dpe_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_filled),
        cmocka_unit_test(one_nonfinite_run_is_tried_again),
        cmocka_unit_test(two_nonfinite_runs_are_a_row),
        cmocka_unit_test(other_failures_are_failures),
        cmocka_unit_test(plan_keys_follow_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
