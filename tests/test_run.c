/* A run from its opening to its end: resuming, refusing, replacing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>

#include "outputs_fixture.h"

static void rows_come_back_from_the_journal(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_sessions(run), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(fixture_count(run, 100), 100);
    assert_null(dpe_run_find(run, "niah", "nothing", 0));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    assert_false(exists(scratch->table));

    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_sessions(run), 1);
    assert_int_equal(fixture_count(run, 100), 100);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_string_equal(scratch->notices, "");
}

static void a_complete_table_takes_the_journals_place(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    char key[33];
    snprintf(key, sizeof key, "%032x", 11u);
    assert_int_equal(dpe_run_plan(run, key, "rope", &err), DPE_OK);
    dpe_status status = dpe_run_snapshot(run, true, NULL, NULL, &err);
    if (status != DPE_OK) {
        print_message("%s\n", err.text);
    }
    assert_int_equal(status, DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->table));
    assert_false(exists(scratch->journal));

    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_sessions(run), 1);
    assert_int_equal(fixture_count(run, 30), 30);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
    assert_string_equal(scratch->notices, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_back_from_the_journal, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_complete_table_takes_the_journals_place, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
