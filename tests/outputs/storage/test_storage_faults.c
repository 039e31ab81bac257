/* A run whose disk or memory fails at the N-th call, for all N: the failure is reported, nothing
 * crashes, no row that was taken is lost, no table is half-written, and the same command continues.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>

#include <jansson.h>

#include "outputs/h5/h5.h"
#include "tests/lib/faults.h"
#include "tests/outputs/outputs_fixture.h"

enum { ROWS = 5 };

/* HDF5 does not free what it had to write where the image cannot grow as the file is closed. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

/* The time goes on by so much at each look: every record is synced. */
static double clock_step = 1.0;
double __wrap_dpe_clock(void);
double __wrap_dpe_clock(void)
{
    static double now = 0.0;
    now += clock_step;
    return now;
}

/* What a life of the run got done before something failed. */
struct progress {
    dpe_status status;
    struct dpe_error err;
    bool taken[ROWS]; /* dpe_run_add returned OK */
    bool complete;    /* the last snapshot returned OK */
    long syncs;       /* that were made to fail */
};

static dpe_status fill(void *user, struct dpe_h5 *table, struct dpe_error *err)
{
    static const int64_t scale[3] = {1, 2, 3};
    const struct dpe_column column = {"/x",  DPE_COL_I64, 1,   {3},  {NULL},
                                      scale, "x",         "1", NULL, true};
    (void)user;
    dpe_h5_put(table, &column);
    return dpe_h5_failed(table, err);
}

/* Open, add, snapshot, add the rest, complete, close, with these faults from the opening on;
 * *failed is the number of calls that were made to fail. */
static struct progress live(struct scratch *scratch, struct faults plan, long *failed)
{
    struct progress done = {.status = DPE_OK};
    struct dpe_run *run = NULL;
    struct dpe_identity identity = fixture_identity(1);
    const struct dpe_run_options options = {.notice = scratch_notice, .user = scratch};
    struct dpe_row rows[ROWS];
    for (int i = 0; i < ROWS; i++) {
        rows[i] = fixture_row(i);
    }
    faults = plan;
    done.status = dpe_run_open(scratch->table, &identity, &options, &run, &done.err);
    for (int i = 0; done.status == DPE_OK && i < ROWS; i++) {
        done.status = dpe_run_plan(run, rows[i].plan, "rope", &done.err);
        if (done.status == DPE_OK) {
            done.status = dpe_run_add(run, &rows[i], &done.err);
        }
        done.taken[i] = done.status == DPE_OK;
        if (done.status == DPE_OK && i == 2) {
            done.status = dpe_run_snapshot(run, false, fill, NULL, &done.err);
        }
    }
    if (done.status == DPE_OK) {
        done.status = dpe_run_snapshot(run, true, fill, NULL, &done.err);
        done.complete = done.status == DPE_OK;
    }
    dpe_status closed = dpe_run_close(run, done.status == DPE_OK ? &done.err : NULL);
    done.status = done.status == DPE_OK ? closed : done.status;
    *failed = faults.failed;
    done.syncs = faults.syncs;
    faults = (struct faults){0};
    for (int i = 0; i < ROWS; i++) {
        dpe_row_free(&rows[i]);
    }
    dpe_identity_free(&identity);
    return done;
}

/* The table's path can be opened as a table, or does not exist. */
static void expect_whole_table(struct scratch *scratch)
{
    struct dpe_h5 *table = NULL;
    struct dpe_error err = {0};
    struct dpe_row *rows = NULL;
    size_t n = 0;
    if (!exists(scratch->table)) {
        return;
    }
    assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
    assert_int_equal(dpe_h5_get_rows(table, &rows, &n, &err), DPE_OK);
    for (size_t i = 0; i < n; i++) {
        dpe_row_free(&rows[i]);
    }
    free(rows);
    dpe_h5_close(table);
}

/* After a life that failed: every row taken is in the table, and (a longer test) the next one
 * completes.
 */
static void expect_nothing_lost(struct scratch *scratch, const struct progress *done,
                                bool to_the_end)
{
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    expect_whole_table(scratch);
    dpe_status status = fixture_open(scratch, 1, NULL, &run, &err);
    if (status != DPE_OK) {
        print_message("%s\n", err.text);
    }
    assert_int_equal(status, DPE_OK);
    for (int i = 0; i < ROWS; i++) {
        assert_true(!done->taken[i] || fixture_holds(run, i));
    }
    fixture_count(run, ROWS);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    if (!to_the_end) {
        return;
    }
    long failed = 0;
    struct progress rest = live(scratch, (struct faults){0}, &failed);
    assert_int_equal(rest.status, DPE_OK);
    assert_true(exists(scratch->table));
    assert_false(exists(scratch->journal));
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, ROWS), ROWS);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

/* For N = 1, 2, … (growing by 1/stride of itself) until a life meets no fault any more; how many
 * calls there were, at most. */
static long fail_everywhere(struct scratch *scratch, struct faults plan, long stride)
{
    int lives = 0;
    for (plan.nth = 1; plan.nth < 5000; plan.nth += 1 + plan.nth / stride) {
        scratch_clear(scratch);
        long failed = 0;
        struct progress done = live(scratch, plan, &failed);
        if (failed == 0) {
            assert_int_equal(done.status, DPE_OK);
            return plan.nth - 1;
        }
        if (done.status == DPE_OK) {
            /* Some calls only tidy up; then all is done nevertheless. No sync is one of them. */
            assert_true(done.complete);
            assert_int_equal(done.syncs, 0);
        } else if (plan.kind == FAULT_DISK) {
            assert_non_null(strstr(done.err.text, scratch->folder));
            assert_non_null(strstr(done.err.text, strerror(plan.code)));
        }
        expect_nothing_lost(scratch, &done, plan.kind == FAULT_DISK || lives++ % 20 == 0);
    }
    fail_msg("no end of calls");
    return 0;
}

static void a_disk_that_fails_at_any_call(void **state)
{
    static const struct faults plans[] = {
        {.kind = FAULT_DISK, .code = ENOSPC},
        {.kind = FAULT_DISK, .code = ENOSPC, .forever = true},
        {.kind = FAULT_DISK, .code = EIO},
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        long calls = fail_everywhere(*state, plans[i], LONG_MAX);
        print_message("%s: %ld calls\n", strerror(plans[i].code), calls);
        assert_true(calls > 30);
    }
}

static void a_full_disk_is_an_io_error(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
    faults = (struct faults){.kind = FAULT_DISK, .nth = 1, .code = ENOSPC};
    assert_int_equal(fixture_add(run, 1, &err), DPE_IO);
    /* Final for this process, even when the disk has room again. */
    assert_int_equal(fixture_add(run, 1, &err), DPE_IO);
    faults = (struct faults){0};
    assert_int_equal(fixture_add(run, 2, &err), DPE_IO);
    assert_non_null(strstr(err.text, "earlier write failed"));
    assert_int_equal(fixture_count(run, ROWS), 1);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_count(run, ROWS), 1);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void a_failed_sync_is_never_retried(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    faults = (struct faults){.kind = FAULT_DISK, .nth = 2, .code = EIO};
    assert_int_equal(fixture_add(run, 0, &err), DPE_IO);
    assert_int_equal(faults.seen, 2);
    assert_int_equal(fixture_add(run, 0, &err), DPE_IO);
    assert_int_equal(faults.seen, 2);
    faults = (struct faults){0};
    assert_null(dpe_run_find(run, "niah", "0000000000000000000000000000000a", 0));
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
}

static void rows_within_50_ms_share_a_sync(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    faults = (struct faults){.kind = FAULT_DISK, .nth = 1000};
    clock_step = 0.0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture_add(run, i, &err), DPE_OK);
    }
    assert_int_equal(faults.seen, 3); /* writes */
    clock_step = 0.05;
    assert_int_equal(fixture_add(run, 3, &err), DPE_OK);
    assert_int_equal(faults.seen, 5);
    /* The last of them is synced when the run closes. */
    clock_step = 0.0;
    assert_int_equal(fixture_add(run, 4, &err), DPE_OK);
    faults = (struct faults){.kind = FAULT_DISK, .nth = 1, .code = EIO};
    assert_int_equal(dpe_run_close(run, &err), DPE_IO);
    assert_int_equal(faults.syncs, 1);
    assert_non_null(strstr(err.text, "sync failed"));
    faults = (struct faults){0};
    clock_step = 1.0;
}

static void short_and_interrupted_writes_are_finished(void **state)
{
    struct scratch *scratch = *state;
    long failed = 0;
    struct progress done = live(scratch, (struct faults){.kind = FAULT_SHORT}, &failed);
    assert_true(failed > 20);
    assert_int_equal(done.status, DPE_OK);
    expect_nothing_lost(scratch, &done, true);
}

static void *json_allocate(size_t n)
{
    return malloc(n);
}

static void memory_that_fails_at_any_call(void **state)
{
    json_set_alloc_funcs(json_allocate, free);
    struct faults plan = {.kind = FAULT_ALLOC};
    long calls = fail_everywhere(*state, plan, LONG_MAX);
    print_message("%ld allocations\n", calls);
    assert_true(calls > 100);
    plan.forever = true;
    fail_everywhere(*state, plan, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(a_disk_that_fails_at_any_call),
        WITH_SCRATCH(a_full_disk_is_an_io_error),
        WITH_SCRATCH(a_failed_sync_is_never_retried),
        WITH_SCRATCH(rows_within_50_ms_share_a_sync),
        WITH_SCRATCH(short_and_interrupted_writes_are_finished),
        WITH_SCRATCH(memory_that_fails_at_any_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
