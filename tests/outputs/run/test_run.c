/* A run from its opening to its end: resuming, refusing, replacing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "outputs/h5/h5.h"
#include "outputs/run/run_internal.h"
#include "tests/outputs/outputs_fixture.h"

static void rows_come_back_from_the_journal(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(run->n_sessions, 1);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(fixture_count(run, 100), 100);
    assert_null(dpe_run_find(run, "niah", "nothing", 0));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    assert_false(exists(scratch->table));

    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(run->n_sessions, 2);
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
    assert_int_equal(run->n_sessions, 2);
    assert_int_equal(fixture_count(run, 30), 30);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
    assert_string_equal(scratch->notices, "");
}

static void the_extent_may_grow(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    fixture_make_table(scratch, 1, 30);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (int i = 20; i < 60; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    /* The journal holds all, the table still the first thirty: it may go. */
    assert_int_equal(unlink(scratch->table), 0);
    fixture_expect_rows(scratch, 60);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
    fixture_expect_rows(scratch, 60);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    /* The fourth only looked at a complete table, which stayed as it was. */
    assert_int_equal(run->n_sessions, 5);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void an_incomplete_snapshot_keeps_the_journal(void **state)
{
    struct scratch *scratch = *state;
    fixture_make_journal(scratch, 1, 10, 10);
    assert_true(exists(scratch->table));
    fixture_expect_rows(scratch, 10);
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, false, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    /* A row after the complete table makes it incomplete again. */
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_add(run, 10, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    fixture_expect_rows(scratch, 11);
}

static void one_cell_has_one_value(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_add(run, 2, &err), DPE_OK);
    struct stat before, after;
    assert_int_equal(stat(scratch->own, &before), 0);
    struct dpe_row row = fixture_row(2);
    row.seconds = 99.0;
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_OK);
    assert_int_equal(stat(scratch->own, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    row.score += 0.25;
    assert_int_equal(dpe_run_add(run, &row, &err), DPE_INTERNAL);
    assert_non_null(strstr(err.text, "nondeterminism"));
    assert_non_null(strstr(err.text, "score"));
    dpe_row_free(&row);
    assert_true(fixture_holds(run, 2));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void force_replaces_another_run(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    const struct dpe_run_options force = {.force = true};
    for (int table = 0; table < 2; table++) {
        scratch_clear(scratch);
        if (table) {
            fixture_make_table(scratch, 2, 5);
        } else {
            fixture_make_journal(scratch, 2, 5, 3);
        }
        struct dpe_run *run = NULL;
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_MISMATCH);
        assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, 5), 0);
        assert_int_equal(run->n_sessions, 1);
        assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_non_null(strstr(scratch->notices, "replaced"));
        /* The old table lies there until the first new one; going on needs no second --force. */
        assert_true(exists(scratch->table));
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, 1), 1);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        fixture_expect_rows(scratch, 1);
    }
    /* With the same identity there is nothing to force: the rows stay. */
    struct dpe_run *run = NULL;
    assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, 1), 1);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void what_is_not_ours_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options force = {.force = true};
    for (int kind = 0; kind < 3; kind++) {
        scratch_clear(scratch);
        if (kind == 0) {
            spill(scratch->table, "my thesis", 9);
        } else if (kind == 1) {
            spill(scratch->table, "", 0);
        } else {
            /* HDF5, and a schema that is not ours. */
            assert_int_equal(
                shell("cp '%s/tests/golden/outputs/other.h5' '%s'", DPE_SOURCE_DIR, scratch->table),
                0);
        }
        size_t n = 0, n_after = 0;
        char *before = slurp(scratch->table, &n);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
        assert_non_null(strstr(err.text, "--force"));
        char *after = slurp(scratch->table, &n_after);
        assert_int_equal(n, n_after);
        assert_memory_equal(before, after, n);
        free(after);
        free(before);
        assert_false(exists(scratch->journal));
        assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_OK);
        assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        fixture_expect_rows(scratch, 1);
    }
    scratch_clear(scratch);
    assert_int_equal(mkdir(scratch->table, 0777), 0);
    assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_CANNOT_CREATE);
    assert_int_equal(rmdir(scratch->table), 0);
    assert_int_equal(mkfifo(scratch->table, 0666), 0);
    assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_CANNOT_CREATE);
    assert_int_equal(unlink(scratch->table), 0);
    assert_false(exists(scratch->journal));
    struct dpe_identity identity = fixture_identity(1);
    assert_int_equal(dpe_run_open("/nowhere/at/all/out.h5", &identity, NULL, &run, &err),
                     DPE_CANNOT_CREATE);
    assert_int_equal(dpe_run_open("", &identity, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_int_equal(dpe_run_open("/tmp/", &identity, NULL, &run, &err), DPE_CANNOT_CREATE);
    dpe_identity_free(&identity);
}

static void journals_of_all_ranks_are_read(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    struct dpe_run *runs[3] = {NULL};
    for (int rank = 0; rank < 3; rank++) {
        const struct dpe_run_options options = {.rank = rank};
        assert_int_equal(fixture_open(scratch, 1, &options, &runs[rank], &err), DPE_OK);
    }
    for (int i = 0; i < 12; i++) {
        assert_int_equal(fixture_add(runs[i % 3], i, &err), DPE_OK);
    }
    /* The same cell from two ranks, the same value. */
    assert_int_equal(fixture_add(runs[1], 0, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(runs[1], true, NULL, NULL, &err), DPE_INTERNAL);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(dpe_run_close(runs[rank], &err), DPE_OK);
    }
    fixture_expect_rows(scratch, 12);
    /* Two values for one cell are reported when they meet. */
    const struct dpe_run_options second = {.rank = 1};
    assert_int_equal(fixture_open(scratch, 1, &second, &runs[1], &err), DPE_OK);
    assert_int_equal(fixture_open(scratch, 1, NULL, &runs[0], &err), DPE_OK);
    struct dpe_row row = fixture_row(14);
    assert_int_equal(dpe_run_add(runs[0], &row, &err), DPE_OK);
    row.score = 0.125;
    assert_int_equal(dpe_run_add(runs[1], &row, &err), DPE_OK);
    dpe_row_free(&row);
    assert_int_equal(dpe_run_close(runs[0], &err), DPE_OK);
    assert_int_equal(dpe_run_close(runs[1], &err), DPE_OK);
    assert_int_equal(fixture_open(scratch, 1, NULL, &runs[0], &err), DPE_INTERNAL);
    assert_non_null(strstr(err.text, "nondeterminism"));
}

static void plans_and_sessions_are_remembered(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    struct dpe_identity info = {0};
    char words[4][16] = {"dpe-detect", "--model", "a b", "it's"};
    char *const argv[] = {words[0], words[1], words[2], words[3]};
    assert_int_equal(dpe_run_info(&info, 4, argv, 2, &err), DPE_OK);
    assert_string_equal(dpe_identity_get(&info, "command"), "dpe-detect --model 'a b' 'it'\\''s'");
    assert_string_equal(dpe_identity_get(&info, "threads"), "2");
    assert_non_null(dpe_identity_get(&info, "hdf5"));
    assert_int_equal(dpe_identity_add(&info, "device", "cpu", &err), DPE_OK);
    const struct dpe_run_options options = {.info = &info};
    assert_int_equal(fixture_open(scratch, 1, &options, &run, &err), DPE_OK);
    struct dpe_row row = fixture_row(0);
    assert_int_equal(dpe_run_plan(run, row.plan, "self-extend", &err), DPE_OK);
    assert_int_equal(dpe_run_plan(run, row.plan, "dpe:groups=1", &err), DPE_OK);
    assert_int_equal(dpe_run_plan(run, row.plan, "self-extend", &err), DPE_OK);
    dpe_row_free(&row);
    assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);

    struct dpe_h5 *table = NULL;
    char **strings = NULL;
    size_t n = 0;
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    assert_int_equal(dpe_h5_get_strings(table, "/plans/name", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 1);
    assert_string_equal(strings[0], "dpe:groups=1");
    dpe_strings_free(strings, n);
    assert_int_equal(dpe_h5_get_strings(table, "/run/sessions/device", &strings, &n, &err), DPE_OK);
    assert_int_equal(n, 2);
    assert_string_equal(strings[0], "cpu");
    assert_string_equal(strings[1], "");
    dpe_strings_free(strings, n);
    char *history = NULL;
    assert_int_equal(dpe_h5_get_attr_text(table, "/run", "history", &history, &err), DPE_OK);
    assert_non_null(strstr(history, "dpe-detect --model"));
    free(history);
    struct dpe_row *rows = NULL;
    assert_int_equal(dpe_h5_get_rows(table, &rows, &n, &err), DPE_OK);
    assert_int_equal(n, 1);
    struct dpe_row want = fixture_row(0);
    assert_true(same_row(&rows[0], &want));
    dpe_row_free(&want);
    dpe_row_free(&rows[0]);
    free(rows);
    dpe_h5_close(table);
    struct dpe_identity bad = {0};
    assert_int_equal(dpe_identity_add(&bad, "Bad/Name", "x", &err), DPE_OK);
    const struct dpe_run_options refused = {.info = &bad};
    assert_int_equal(fixture_open(scratch, 1, &refused, &run, &err), DPE_INTERNAL);
    dpe_identity_free(&bad);
    dpe_identity_free(&info);
}

static dpe_status failing_fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    (void)user;
    dpe_h5_attr_text(table, "/detect", "criterion", "x");
    return dpe_fail(err, DPE_NONFINITE, "not today");
}

static void a_fill_that_fails_leaves_the_old_table(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    fixture_make_journal(scratch, 1, 4, 4);
    size_t n = 0, n_after = 0;
    char *before = slurp(scratch->table, &n);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, failing_fill, NULL, &err), DPE_NONFINITE);
    assert_string_equal(err.text, "not today");
    char *after = slurp(scratch->table, &n_after);
    assert_int_equal(n, n_after);
    assert_memory_equal(before, after, n);
    free(after);
    free(before);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    fixture_expect_rows(scratch, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(rows_come_back_from_the_journal),
        WITH_SCRATCH(a_complete_table_takes_the_journals_place),
        WITH_SCRATCH(the_extent_may_grow),
        WITH_SCRATCH(an_incomplete_snapshot_keeps_the_journal),
        WITH_SCRATCH(one_cell_has_one_value),
        WITH_SCRATCH(force_replaces_another_run),
        WITH_SCRATCH(what_is_not_ours_is_refused),
        WITH_SCRATCH(journals_of_all_ranks_are_read),
        WITH_SCRATCH(plans_and_sessions_are_remembered),
        WITH_SCRATCH(a_fill_that_fails_leaves_the_old_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
