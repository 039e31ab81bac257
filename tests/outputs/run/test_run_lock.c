/* Who may write a run: one process at a time, on a folder that it may write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "outputs/run/run_internal.h"
#include "tests/outputs/outputs_fixture.h"

/* A child that opens the run, reports it, and waits to be killed. */
static pid_t hold_run(struct scratch *scratch)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* A test that fails does not leave it behind, with CTest's pipe open. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct dpe_identity identity = fixture_identity(1);
        struct dpe_run *run = NULL;
        struct dpe_error err = {0};
        char opened =
            dpe_run_open(scratch->table, &identity, NULL, &run, &err) == DPE_OK ? 'y' : 'n';
        if (write(pipes[1], &opened, 1) == 1) {
            pause();
        }
        _exit(0);
    }
    char opened = 0;
    assert_int_equal(read(pipes[0], &opened, 1), 1);
    assert_int_equal(opened, 'y');
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

/* The lock of a process that is just leaving: given back by a timer, while others wait. */
static volatile sig_atomic_t leaving;

static void leave(int signal_number)
{
    (void)signal_number;
    close((int)leaving);
}

/* Locked for 50 ms while the file holds `text`; then the run is opened. */
static void open_behind(struct scratch *scratch, const char *text)
{
    assert_int_equal(mkdir(scratch->journal, 0777), 0);
    spill(scratch->lock, text, strlen(text));
    int fd = open(scratch->lock, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    leaving = fd;
    struct sigaction before, at_alarm = {.sa_handler = leave};
    const struct itimerval soon = {.it_value.tv_usec = 50 * 1000};
    assert_int_equal(sigaction(SIGALRM, &at_alarm, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    fixture_expect_rows(scratch, 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

static void one_that_is_leaving_is_waited_for(void **state)
{
    struct scratch *scratch = *state;
    open_behind(scratch, "");
    assert_string_equal(scratch->notices, "");
}

/* One that takes a dead process's lock over has not written its own name yet. */
static void one_that_is_coming_is_waited_for(void **state)
{
    struct scratch *scratch = *state;
    char text[512], host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "host %s pid 1 start 1 boot gone since then\n", host);
    open_behind(scratch, text);
    assert_non_null(strstr(scratch->notices, "process 1 "));
}

static void a_second_process_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    const struct dpe_run_options all = {.force = true, .salvage = true};
    pid_t child = hold_run(scratch);
    char pid[32], host[128] = "";
    snprintf(pid, sizeof pid, "process %ld ", (long)child);
    gethostname(host, sizeof host - 1);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, pid));
    assert_non_null(strstr(err.text, host));
    assert_int_equal(fixture_open(scratch, 1, &all, &run, &err), DPE_CANNOT_CREATE);
    assert_true(exists(scratch->own));
    /* The lock itself, without the text that names its owner: not written in a second, that is
     * a holder too. */
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(dpe_read_file(scratch->lock, 1000, &text, &n, &err), DPE_OK);
    assert_int_equal(truncate(scratch->lock, 0), 0);
    assert_int_equal(fixture_open(scratch, 1, &all, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "the file does not name it"));
    /* Named, but not a process of this machine: one of another container, for example. */
    char other[512];
    snprintf(other, sizeof other, "host %s pid 1 start 1 boot gone since then\n", host);
    spill(scratch->lock, other, strlen(other));
    assert_int_equal(fixture_open(scratch, 1, &all, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "process 1 "));
    spill(scratch->lock, text, n);
    free(text);
    kill_child(child);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, pid));
    /* The same process twice is refused as well. */
    struct dpe_run *again = NULL;
    assert_int_equal(fixture_open(scratch, 1, NULL, &again, &err), DPE_CANNOT_CREATE);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    scratch->notices[0] = '\0';
    fixture_expect_rows(scratch, 0);
    assert_string_equal(scratch->notices, "");
}

/* A link leads to the table: it stays, also one that leads to nothing yet, and both names are one
 * run. */
static void links_are_followed(void **state)
{
    struct scratch *scratch = *state;
    struct scratch linked = *scratch;
    struct dpe_run *run = NULL;
    struct dpe_run *again = NULL;
    struct dpe_error err = {0};
    struct stat info;
    snprintf(linked.table, sizeof linked.table, "%s/link", scratch->folder);
    const char *name = strrchr(scratch->table, '/') + 1;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(symlink(round == 0 ? name : scratch->table, linked.table), 0);
        assert_int_equal(fixture_open(&linked, 1, NULL, &run, &err), DPE_OK);
        assert_true(exists(scratch->journal));
        assert_int_equal(fixture_open(scratch, 1, NULL, &again, &err), DPE_CANNOT_CREATE);
        assert_int_equal(fixture_add(run, round, &err), DPE_OK);
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_int_equal(lstat(linked.table, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        assert_int_equal(lstat(scratch->table, &info), 0);
        assert_true(S_ISREG(info.st_mode));
        fixture_expect_rows(scratch, round + 1);
        assert_int_equal(unlink(linked.table), 0);
    }
    /* One that leads to itself ends, and stays. */
    assert_int_equal(symlink(linked.table, linked.table), 0);
    assert_int_equal(fixture_open(&linked, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_int_equal(lstat(linked.table, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(unlink(linked.table), 0);
}

/* Another process deletes the folder of a run that goes on, and creates it again: the end of the
 * first must not take the journal of the second. */
static void the_journal_of_a_successor_stays(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    fixture_make_journal(scratch, 1, 3, 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    unlink(scratch->own);
    unlink(scratch->lock);
    pid_t child = hold_run(scratch);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, "another process took this folder over"));
    assert_true(exists(scratch->own));
    assert_true(exists(scratch->lock));
    kill_child(child);
}

/* Links and other users' files in the journal's folder are neither read nor written through. */
static void what_is_planted_in_the_journal_is_refused(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    struct stat before, after;
    char precious[160];
    snprintf(precious, sizeof precious, "%s/precious", scratch->folder);
    spill(precious, "mine", 4);
    const char *const names[] = {scratch->own, scratch->manifest, scratch->lock};
    for (int i = 0; i < 3; i++) {
        scratch_clear(scratch);
        assert_int_equal(mkdir(scratch->journal, 0777), 0);
        assert_int_equal(symlink(precious, names[i]), 0);
        assert_int_equal(stat(precious, &before), 0);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_PERMISSION);
        assert_non_null(strstr(err.text, names[i]));
        assert_int_equal(stat(precious, &after), 0);
        assert_int_equal(before.st_size, after.st_size);
        assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    }
    /* The folder itself as a link. */
    scratch_clear(scratch);
    assert_int_equal(symlink(scratch->folder, scratch->journal), 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_PERMISSION);
    assert_int_equal(unlink(scratch->journal), 0);
    if (geteuid() != 0) {
        skip();
    }
    /* Another user's folder, and another user's file in ours. */
    assert_int_equal(mkdir(scratch->journal, 0777), 0);
    assert_int_equal(chown(scratch->journal, 65534, 65534), 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_PERMISSION);
    assert_non_null(strstr(err.text, "user 65534"));
    assert_false(exists(scratch->manifest));
    assert_int_equal(chown(scratch->journal, 0, 0), 0);
    spill(scratch->own, "", 0);
    assert_int_equal(chown(scratch->own, 65534, 65534), 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_PERMISSION);
    assert_int_equal(chown(scratch->own, 0, 0), 0);
    fixture_expect_rows(scratch, 0);
}

/* The journal is deleted while the run goes on: it is written again at the next row, and a run that
 * is killed then has lost nothing. */
static void a_journal_that_is_deleted_is_written_again(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    for (int kind = 0; kind < 2; kind++) {
        scratch_clear(scratch);
        pid_t child = fork();
        if (child == 0) {
            bool good = fixture_open(scratch, 1, NULL, &run, &err) == DPE_OK &&
                        dpe_run_plan(run, "p", "a plan", &err) == DPE_OK &&
                        fixture_add(run, 0, &err) == DPE_OK && fixture_add(run, 1, &err) == DPE_OK;
            if (kind == 0) {
                good = good && shell("rm -r '%s'", scratch->journal) == 0;
            } else {
                good = good && unlink(scratch->own) == 0;
            }
            good = good && fixture_add(run, 2, &err) == DPE_OK &&
                   strstr(scratch->notices, "was removed during the run") != NULL;
            _exit(good ? 0 : 1); /* without a word, as if killed */
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        fixture_expect_rows(scratch, 3);
        assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
        assert_string_equal(dpe_identity_get(&run->plans, "p"), "a plan");
        assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    }
    /* The folder above it goes: an error at the next row, not at the end. */
    scratch_clear(scratch);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(shell("mv '%s' '%s.away'", scratch->folder, scratch->folder), 0);
    assert_int_equal(fixture_add(run, 0, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "was removed during the run"));
    assert_int_equal(dpe_run_close(run, NULL), DPE_OK);
    assert_int_equal(shell("mv '%s.away' '%s'", scratch->folder, scratch->folder), 0);
}

/* It is deleted and another process begins it again: the first goes on in memory, ends with its
 * table, and takes nothing of the second. */
static void a_deleted_journal_may_have_a_successor(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
    assert_int_equal(shell("rm -r '%s'", scratch->journal), 0);
    pid_t child = hold_run(scratch);
    assert_int_equal(fixture_add(run, 1, &err), DPE_OK);
    assert_non_null(strstr(scratch->notices, "in memory only"));
    assert_int_equal(dpe_run_snapshot(run, true, NULL, NULL, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
    assert_true(exists(scratch->own));
    assert_true(exists(scratch->lock));
    assert_true(exists(scratch->table));
    kill_child(child);
}

/* A file is put at the table's path while the run goes on. */
static void a_file_that_appears_is_not_replaced(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    for (int kind = 0; kind < 3; kind++) {
        const struct dpe_run_options force = {.force = kind == 2};
        scratch_clear(scratch);
        if (kind == 2) {
            spill(scratch->table, "an older one", 12);
        }
        assert_int_equal(fixture_open(scratch, 1, kind == 2 ? &force : NULL, &run, &err), DPE_OK);
        assert_int_equal(fixture_add(run, 0, &err), DPE_OK);
        if (kind == 1) { /* after the run's own snapshot, in the same file */
            assert_int_equal(dpe_run_snapshot(run, false, NULL, NULL, &err), DPE_OK);
        }
        spill(scratch->table, "a user's", 8);
        dpe_status status = dpe_run_snapshot(run, true, NULL, NULL, &err);
        if (kind == 2) { /* --force: whatever lies there */
            assert_int_equal(status, DPE_OK);
            assert_int_equal(dpe_run_close(run, &err), DPE_OK);
            continue;
        }
        assert_int_equal(status, DPE_CANNOT_CREATE);
        assert_non_null(strstr(err.text, "another program created or changed"));
        size_t n = 0;
        char *bytes = slurp(scratch->table, &n);
        assert_int_equal(n, 8);
        assert_memory_equal(bytes, "a user's", 8);
        free(bytes);
        assert_int_equal(dpe_run_close(run, &err), DPE_OK);
        assert_int_equal(unlink(scratch->table), 0);
        fixture_expect_rows(scratch, 1);
    }
}

static void locks_of_others_are_judged_by_their_text(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_run *run = NULL;
    struct dpe_error err = {0};
    char host[128] = "", text[512];
    gethostname(host, sizeof host - 1);
    fixture_make_journal(scratch, 1, 3, 0);
    /* Another host. */
    const char *other = "host elsewhere pid 4711 start 99 boot abc since 2026-01-01T00:00:00Z\n";
    spill(scratch->lock, other, strlen(other));
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "process 4711 on host elsewhere"));
    assert_non_null(strstr(err.text, "remove this file"));
    assert_int_equal(unlink(scratch->lock), 0);
    assert_int_equal(fixture_open(scratch, 1, NULL, &run, &err), DPE_OK);
    assert_int_equal(dpe_run_close(run, &err), DPE_OK);
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
        fixture_expect_rows(scratch, 3);
        assert_non_null(strstr(scratch->notices, "no longer runs"));
    }
    /* To kill(2) these are not one process but many, all of them alive. */
    for (int pid = -1; pid <= 0; pid++) {
        char boot[64] = "unknown";
        FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
        if (file != NULL) {
            assert_int_equal(fscanf(file, "%63s", boot), 1);
            fclose(file);
        }
        int n = snprintf(text, sizeof text, "host %s pid %d start 0 boot %s since then\n", host,
                         pid, boot);
        spill(scratch->lock, text, (size_t)n);
        fixture_expect_rows(scratch, 3);
    }
    /* A lock that was never finished has no owner. */
    spill(scratch->lock, "host hal", 8);
    fixture_expect_rows(scratch, 3);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(one_that_is_leaving_is_waited_for),
        WITH_SCRATCH(one_that_is_coming_is_waited_for),
        WITH_SCRATCH(a_second_process_is_refused),
        WITH_SCRATCH(links_are_followed),
        WITH_SCRATCH(the_journal_of_a_successor_stays),
        WITH_SCRATCH(what_is_planted_in_the_journal_is_refused),
        WITH_SCRATCH(a_journal_that_is_deleted_is_written_again),
        WITH_SCRATCH(a_deleted_journal_may_have_a_successor),
        WITH_SCRATCH(a_file_that_appears_is_not_replaced),
        WITH_SCRATCH(locks_of_others_are_judged_by_their_text),
        WITH_SCRATCH(folders_that_cannot_be_written_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
