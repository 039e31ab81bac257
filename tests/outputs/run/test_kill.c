/* kill -9 at random times, in the middle of snapshots too: no row that was reported is lost, and no
 * table is half-written. DPE_KILLS in the environment is the number of kills (default 20). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "outputs/h5/h5.h"
#include "tests/outputs/outputs_fixture.h"

enum { SNAPSHOT_BEGINS = -1, SNAPSHOT_ENDS = -2, EVERY = 7 };

static void report(int pipe_end, int what)
{
    if (write(pipe_end, &what, sizeof what) != sizeof what) {
        _exit(3);
    }
}

static void wait_microseconds(uint32_t n)
{
    const struct timespec time = {n / 1000000, (long)(n % 1000000) * 1000};
    nanosleep(&time, NULL);
}

/* The child: go on with the run, rows without end, a snapshot now and then. */
static void work(const struct scratch *scratch, int pipe_end)
{
    struct dpe_identity identity = fixture_identity(1);
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    if (dpe_run_open(scratch->table, &identity, NULL, &run, &err) != DPE_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    for (int i = 0;; i++) {
        struct dpe_row row = fixture_row(i);
        if (dpe_run_find(run, row.task, row.plan, row.sample) == NULL) {
            if (dpe_run_add(run, &row, &err) != DPE_OK) {
                fprintf(stderr, "%s\n", err.text);
                _exit(1);
            }
            report(pipe_end, i);
            wait_microseconds(1000);
            if (i % EVERY == 0) {
                report(pipe_end, SNAPSHOT_BEGINS);
                if (dpe_run_snapshot(run, false, NULL, NULL, &err) != DPE_OK) {
                    fprintf(stderr, "%s\n", err.text);
                    _exit(1);
                }
                report(pipe_end, SNAPSHOT_ENDS);
            }
        }
        dpe_row_free(&row);
    }
}

/* Start a child, wait until it says `until` (its first word anyhow), kill it a little later. Says
 * the last row reported; true when the child died in a snapshot. */
static bool kill_one(const struct scratch *scratch, struct dpe_rng *rng, int until,
                     uint32_t microseconds, int *last)
{
    int pipes[2], what = 0, status = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipes[0]);
        work(scratch, pipes[1]);
    }
    close(pipes[1]);
    do {
        assert_int_equal(read(pipes[0], &what, sizeof what), sizeof what);
        *last = what >= 0 ? what : *last;
    } while (until < 0 && what != until);
    wait_microseconds(dpe_rng_below(rng, microseconds));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    while (read(pipes[0], &what, sizeof what) == sizeof what) {
        *last = what >= 0 ? what : *last;
    }
    close(pipes[0]);
    return what == SNAPSHOT_BEGINS;
}

static void rows_survive_kills(void **state)
{
    struct scratch *scratch = *state;
    const char *wanted = getenv("DPE_KILLS");
    int kills = wanted == NULL ? 20 : atoi(wanted), in_snapshots = 0, last = -1, tables = 0;
    struct dpe_rng rng;
    dpe_rng_seed(&rng, (uint64_t)time(NULL), 0);
    /* Snapshots are aimed at; a busy machine may need more attempts to hit one. */
    int i = 0;
    for (; i < kills || in_snapshots == 0; i++) {
        int reported = last;
        static const int until[4] = {0, SNAPSHOT_BEGINS, SNAPSHOT_ENDS, SNAPSHOT_BEGINS};
        in_snapshots += kill_one(scratch, &rng, until[i % 4], i % 2 == 0 ? 30000 : 3000, &reported);
        struct dpe_h5 *table = NULL;
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        if (exists(scratch->table)) {
            struct dpe_row *rows = NULL;
            size_t n = 0;
            assert_int_equal(dpe_h5_open(scratch->table, &table, &err), DPE_OK);
            assert_int_equal(dpe_h5_get_rows(table, &rows, &n, &err), DPE_OK);
            for (size_t k = 0; k < n; k++) {
                dpe_row_free(&rows[k]);
            }
            free(rows);
            dpe_h5_close(table);
            tables++;
        }
        scratch->notices[0] = '\0';
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        size_t n = 0;
        dpe_run_rows(run, &n);
        /* The one after the last report may have been written as well. */
        assert_in_range((int)n, reported + 1, reported + 2);
        assert_int_equal(fixture_count(run, (int)n), n);
        last = (int)n - 1;
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    }
    print_message("%d kills, %d of them in snapshots, %d rows, %d tables looked at\n", i,
                  in_snapshots, last + 1, tables);
    assert_true(in_snapshots > 0);
    assert_true(tables > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_survive_kills, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
