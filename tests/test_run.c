/* A run from its opening to its end: resuming, refusing, replacing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>

#include "outputs_fixture.h"
#include "outputs_internal.h"

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

/* One complete table with n rows and no journal. */
static void make_table(struct scratch *scratch, int variant, int n)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, variant, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
}

/* An open journal with n rows, closed again; a table of the first `snapshot` of them. */
static void make_journal(struct scratch *scratch, int variant, int n, int snapshot)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, variant, NULL, &run, &err), DPE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
        if (i + 1 == snapshot) {
            assert_int_equal(dpe_run_snapshot(run, false, NULL, NULL, &err), DPE_OK);
        }
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
}

/* Opening works and gives rows 0 … n − 1. */
static void expect_rows(struct scratch *scratch, int n)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
    if (status != DPE_OK) {
        print_message("%s\n", err.text);
    }
    assert_int_equal(status, DPE_OK);
    assert_int_equal(fixture_count(run, n), (size_t)n);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void the_extent_may_grow(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    make_table(scratch, 1, 30);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    for (int i = 20; i < 60; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    /* The journal holds all, the table still the first thirty: it may go. */
    assert_int_equal(unlink(scratch->table), 0);
    expect_rows(scratch, 60);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_false(exists(scratch->journal));
    expect_rows(scratch, 60);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    /* The fourth only looked at a complete table, which stayed as it was. */
    assert_int_equal(dpe_run_sessions(run), 4);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void an_incomplete_snapshot_keeps_the_journal(void **state)
{
    struct scratch *scratch = *state;
    make_journal(scratch, 1, 10, 10);
    assert_true(exists(scratch->table));
    expect_rows(scratch, 10);
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options keep = {.keep_journal = true};
    assert_int_equal(fixture_open(scratch, 1, &keep, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    /* A row after the complete table makes it incomplete again. */
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_add(run, 10, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    expect_rows(scratch, 11);
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

static void every_differing_field_is_listed(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    for (int table = 0; table < 2; table++) {
        scratch_clear(scratch);
        if (table) {
            make_table(scratch, 1, 5);
        } else {
            make_journal(scratch, 1, 5, 0);
        }
        struct dpe_identity other = {0};
        assert_int_equal(dpe_identity_add(&other, "model", "fedcba", NULL), DPE_OK);
        assert_int_equal(dpe_identity_add(&other, "seed", "1", NULL), DPE_OK);
        assert_int_equal(dpe_identity_addf(&other, NULL, "theta", "%.17g", 0.1), DPE_OK);
        const struct dpe_run_options options = {.notice = scratch_notice, .user = scratch};
        assert_int_equal(dpe_run_open(scratch->table, &other, &options, &run, &err), DPE_MISMATCH);
        assert_non_null(strstr(err.text, "model: expected \"fedcba\", found \"0123456789abcdef\""));
        assert_non_null(strstr(err.text, "task: expected (absent), found \"niah\""));
        assert_non_null(
            strstr(err.text, "theta: expected \"0.10000000000000001\", found (absent)"));
        assert_null(strstr(err.text, "seed:"));
        assert_int_equal(exists(scratch->journal), !table);
        dpe_identity_free(&other);
        expect_rows(scratch, 5);
    }
}

/* A long value that is shortened still shows where it differs. */
static void a_difference_in_the_middle_is_shown(void **state)
{
    (void)state;
    struct dpe_identity ours = {0};
    struct dpe_identity theirs = {0};
    struct dpe_error err = {0};
    char value[200];
    for (size_t at = 0; at < 190; at += 9) {
        memset(value, 'x', 190);
        value[190] = '\0';
        value[at] = 'a';
        assert_int_equal(dpe_identity_add(&ours, "niah", value, NULL), DPE_OK);
        value[at] = 'b';
        assert_int_equal(dpe_identity_add(&theirs, "niah", value, NULL), DPE_OK);
        assert_int_equal(dpe_identity_mismatch(&ours, &theirs, "t.h5", &err), DPE_MISMATCH);
        const char *expected = strstr(err.text, "niah: expected \"");
        const char *found = strstr(err.text, "\", found \"");
        assert_non_null(memchr(expected + 16, 'a', (size_t)(found - expected - 16)));
        assert_non_null(strchr(found + 10, 'b'));
        dpe_identity_free(&ours);
        dpe_identity_free(&theirs);
    }
}

static void many_long_differences_are_still_named(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    make_table(scratch, 1, 1);
    struct dpe_identity other = {0};
    char value[400];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "field_%02d", i);
        assert_int_equal(dpe_identity_add(&other, name, value, NULL), DPE_OK);
    }
    assert_int_equal(dpe_run_open(scratch->table, &other, NULL, &run, &err), DPE_MISMATCH);
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "field_%02d", i);
        assert_non_null(strstr(err.text, name));
    }
    assert_non_null(strstr(err.text, "--force"));
    dpe_identity_free(&other);
}

static void force_replaces_another_run(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    const struct dpe_run_options force = {.force = true};
    for (int table = 0; table < 2; table++) {
        scratch_clear(scratch);
        if (table) {
            make_table(scratch, 2, 5);
        } else {
            make_journal(scratch, 2, 5, 3);
        }
        struct dpe_run *run = NULL;
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_MISMATCH);
        assert_int_equal(fixture_open(scratch, 1, &force, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, 5), 0);
        assert_int_equal(dpe_run_sessions(run), 0);
        assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_non_null(strstr(scratch->notices, "replaced"));
        /* The old table lies there until the first new one; going on needs no second --force. */
        assert_true(exists(scratch->table));
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(fixture_count(run, 1), 1);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        expect_rows(scratch, 1);
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
        expect_rows(scratch, 1);
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

static void a_table_that_is_gone_or_hurt_is_rebuilt(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    for (int kind = 0; kind < 4; kind++) {
        scratch_clear(scratch);
        make_journal(scratch, 1, 12, 8);
        size_t n = 0;
        char *bytes = slurp(scratch->table, &n);
        if (kind == 0) {
            assert_int_equal(unlink(scratch->table), 0);
        } else if (kind == 1) {
            spill(scratch->table, bytes, n / 2);
        } else if (kind == 2) {
            spill(scratch->table, "", 0);
        } else {
            memset(bytes + n / 3, 0, n / 3);
            spill(scratch->table, bytes, n);
        }
        free(bytes);
        scratch->notices[0] = '\0';
        struct dpe_run *run = NULL;
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_int_equal(strstr(scratch->notices, "rebuild") != NULL, kind > 0);
        assert_int_equal(fixture_count(run, 12), 12);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        expect_rows(scratch, 12);
    }
}

static void a_hurt_table_alone_is_refused_or_right(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    make_table(scratch, 1, 12);
    size_t n = 0, refused = 0, right = 0;
    char *bytes = slurp(scratch->table, &n);
    for (size_t at = 0; at < n; at += 61) {
        bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
        spill(scratch->table, bytes, n);
        struct dpe_run *run = NULL;
        dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
        if (status == DPE_OK) {
            /* The bit lay in the magic of the checksum itself. */
            assert_int_equal(fixture_count(run, 12), 12);
            assert_int_equal(dpe_run_close(run, &err), DPE_OK);
            right++;
        } else {
            assert_true(status == DPE_CANNOT_CREATE || status == DPE_MISMATCH);
            refused++;
        }
        bytes[at] = (char)(bytes[at] ^ (1 << at % 8));
        remove_files(scratch->journal, "");
        rmdir(scratch->journal);
    }
    assert_true(refused > 100 && right <= 1);
    free(bytes);
}

static void rows_the_journal_lacks_come_from_the_table(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    /* The journal is being removed behind a complete table when the process is killed. */
    for (int kind = 0; kind < 3; kind++) {
        scratch_clear(scratch);
        make_journal(scratch, 1, 12, 12);
        assert_int_equal(unlink(kind == 1 ? scratch->manifest : scratch->own), 0);
        if (kind == 2) {
            assert_int_equal(unlink(scratch->manifest), 0);
        }
        expect_rows(scratch, 12);
        assert_int_equal(unlink(scratch->table), 0);
        expect_rows(scratch, 12);
    }
    /* Salvage loses a row of the journal, the snapshot still has it. */
    scratch_clear(scratch);
    make_journal(scratch, 1, 12, 8);
    size_t n = 0;
    char *bytes = slurp(scratch->own, &n);
    bytes[n / 2] ^= 1;
    spill(scratch->own, bytes, n);
    free(bytes);
    struct dpe_run *run = NULL;
    const struct dpe_run_options salvage = {.salvage = true};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_int_equal(fixture_open(scratch, 1, &salvage, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, 12), 12);
    assert_non_null(strstr(scratch->notices, "taken from the table"));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    expect_rows(scratch, 12);
}

static void a_manifest_that_is_hurt_is_written_anew(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    make_journal(scratch, 1, 3, 0);
    size_t n = 0;
    char *bytes = slurp(scratch->manifest, &n);
    spill(scratch->manifest, bytes, n / 2);
    expect_rows(scratch, 3);
    assert_non_null(strstr(scratch->notices, "anew"));
    scratch->notices[0] = '\0';
    expect_rows(scratch, 3);
    assert_string_equal(scratch->notices, "");
    /* A value that was edited no longer agrees with the checksum beside it. */
    assert_non_null(strstr(bytes, "niah"));
    bytes[strstr(bytes, "niah") - bytes] = 'm';
    spill(scratch->manifest, bytes, n);
    expect_rows(scratch, 3);
    free(bytes);
    /* Without a manifest the hash in the journal still tells another run. */
    assert_int_equal(unlink(scratch->manifest), 0);
    assert_int_equal(fixture_open(scratch, 2, NULL, &run, &err), DPE_MISMATCH);
    expect_rows(scratch, 3);
    /* Of a later version: not ours to touch. */
    spill(scratch->manifest, "{\"format\": \"dpe-journal\", \"version\": 2}", 39);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_BAD_DATA);
    assert_non_null(strstr(err.text, "version"));
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
    expect_rows(scratch, 12);
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

/* ------------------------------------------------------------------------------------------ locks
 */

/* A child that opens the run, says so, and waits to be killed. */
static pid_t hold_run(struct scratch *scratch)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dpe_identity identity = fixture_identity(1);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        char said = dpe_run_open(scratch->table, &identity, NULL, &run, &err) == DPE_OK ? 'y' : 'n';
        if (write(pipes[1], &said, 1) == 1) {
            pause();
        }
        _exit(0);
    }
    char said = 0;
    assert_int_equal(read(pipes[0], &said, 1), 1);
    assert_int_equal(said, 'y');
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void kill_child(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

static void a_second_process_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options all = {.force = true, .force_unlock = true, .salvage = true};
    pid_t child = hold_run(scratch);
    char pid[32], host[128] = "";
    snprintf(pid, sizeof pid, "process %ld ", (long)child);
    gethostname(host, sizeof host - 1);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, host));
    assert_int_equal(fixture_open(scratch, 1, &all, &run, &err), DPE_CANNOT_CREATE);
    assert_true(exists(scratch->own));
    /* The lock itself, without the text that says whose it is: before that is written, say. */
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(dpe_read_file(scratch->lock, 1000, &text, &n, &err), DPE_OK);
    assert_int_equal(truncate(scratch->lock, 0), 0);
    assert_int_equal(fixture_open(scratch, 1, &all, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "just opening"));
    spill(scratch->lock, text, n);
    free(text);
    kill_child(child);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, pid));
    /* The same process twice is no better. */
    struct dpe_run *again = NULL;
    assert_int_equal(fixture_open(scratch, 1, NULL, &again, &err), DPE_CANNOT_CREATE);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    scratch->notices[0] = '\0';
    expect_rows(scratch, 0);
    assert_string_equal(scratch->notices, "");
}

/* Somebody deletes the folder of a run that goes on, and begins it anew: the end of the first must
 * not take the journal of the second. */
static void the_journal_of_a_successor_stays(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    make_journal(scratch, 1, 3, 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    unlink(scratch->own);
    unlink(scratch->lock);
    pid_t child = hold_run(scratch);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, "by another process"));
    assert_true(exists(scratch->own));
    assert_true(exists(scratch->lock));
    kill_child(child);
}

static void locks_of_others_are_judged_by_what_they_say(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options unlock = {.force_unlock = true};
    char host[128] = "", text[512];
    gethostname(host, sizeof host - 1);
    make_journal(scratch, 1, 3, 0);
    /* Another host. */
    const char *other = "host elsewhere pid 4711 start 99 boot abc since 2026-01-01T00:00:00Z\n";
    spill(scratch->lock, other, strlen(other));
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "process 4711 on host elsewhere"));
    assert_non_null(strstr(err.text, "--force-unlock"));
    assert_int_equal(fixture_open(scratch, 1, &unlock, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, "elsewhere"));
    /* This host before it was booted; and this very pid, started at another time. */
    for (int kind = 0; kind < 2; kind++) {
        char boot[64] = "unknown";
        FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
        if (kind == 1 && file != NULL) {
            assert_int_equal(fscanf(file, "%63s", boot), 1);
        }
        if (file != NULL) {
            fclose(file);
        }
        int n = snprintf(text, sizeof text, "host %s pid %ld start 1 boot %s since then\n", host,
                         (long)getpid(), boot);
        spill(scratch->lock, text, (size_t)n);
        scratch->notices[0] = '\0';
        expect_rows(scratch, 3);
        assert_non_null(strstr(scratch->notices, "no longer runs"));
    }
    /* A lock that was never finished is nobody's. */
    spill(scratch->lock, "host hal", 8);
    expect_rows(scratch, 3);
}

static void folders_that_cannot_be_written_are_refused(void **state)
{
    struct scratch *scratch = *state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chmod(scratch->folder, 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dpe_identity identity = fixture_identity(1);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        if (setuid(65534) != 0) {
            _exit(2);
        }
        dpe_status status = dpe_run_open(scratch->table, &identity, NULL, &run, &err);
        bool named = strstr(err.text, scratch->table) != NULL;
        _exit(status == DPE_PERMISSION && named ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_false(exists(scratch->journal));
}

/* ---------------------------------------------------------------------------------- what is in it
 */

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
    dpe_status status = dpe_h5_attr_text(table, "/detect", "criterion", "x", err);
    return status != DPE_OK ? status : dpe_fail(err, DPE_NONFINITE, "not today");
}

static void a_fill_that_fails_leaves_the_old_table(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    make_journal(scratch, 1, 4, 4);
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
    expect_rows(scratch, 4);
}

static void identities_are_strict(void **state)
{
    (void)state;
    struct dpe_identity a = {0}, b = {0};
    char hash_a[65], hash_b[65];
    assert_int_equal(dpe_identity_add(&a, "x", "yz", NULL), DPE_OK);
    assert_int_equal(dpe_identity_add(&a, "x", "again", NULL), DPE_INTERNAL);
    assert_int_equal(dpe_identity_add(&a, "", "v", NULL), DPE_INTERNAL);
    assert_int_equal(dpe_identity_add(&a, "n", "\xff", NULL), DPE_BAD_DATA);
    assert_int_equal(dpe_identity_add(&b, "xy", "z", NULL), DPE_OK);
    assert_int_equal(dpe_identity_hash(&a, hash_a, NULL), DPE_OK);
    assert_int_equal(dpe_identity_hash(&b, hash_b, NULL), DPE_OK);
    assert_string_not_equal(hash_a, hash_b);
    dpe_identity_free(&a);
    dpe_identity_free(&b);
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(rows_come_back_from_the_journal),
        WITH_SCRATCH(a_complete_table_takes_the_journals_place),
        WITH_SCRATCH(the_extent_may_grow),
        WITH_SCRATCH(an_incomplete_snapshot_keeps_the_journal),
        WITH_SCRATCH(one_cell_has_one_value),
        WITH_SCRATCH(every_differing_field_is_listed),
        cmocka_unit_test(a_difference_in_the_middle_is_shown),
        WITH_SCRATCH(many_long_differences_are_still_named),
        WITH_SCRATCH(force_replaces_another_run),
        WITH_SCRATCH(what_is_not_ours_is_refused),
        WITH_SCRATCH(a_table_that_is_gone_or_hurt_is_rebuilt),
        WITH_SCRATCH(a_hurt_table_alone_is_refused_or_right),
        WITH_SCRATCH(rows_the_journal_lacks_come_from_the_table),
        WITH_SCRATCH(a_manifest_that_is_hurt_is_written_anew),
        WITH_SCRATCH(journals_of_all_ranks_are_read),
        WITH_SCRATCH(a_second_process_is_refused),
        WITH_SCRATCH(the_journal_of_a_successor_stays),
        WITH_SCRATCH(locks_of_others_are_judged_by_what_they_say),
        WITH_SCRATCH(folders_that_cannot_be_written_are_refused),
        WITH_SCRATCH(plans_and_sessions_are_remembered),
        WITH_SCRATCH(a_fill_that_fails_leaves_the_old_table),
        cmocka_unit_test(identities_are_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
