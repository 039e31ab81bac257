/* A lock on a file system without flock: one process gets it, also when several take it over at
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "outputs/storage/storage.h"

static int reason;

int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    (void)fd, (void)operation;
    errno = reason;
    return -1;
}

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_lock_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/run.lock", folder);
    return 0;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The files of the folder but the lock, removed. */
static int others(void)
{
    int n = 0;
    DIR *all = opendir(folder);
    assert_non_null(all);
    for (const struct dirent *each; (each = readdir(all)) != NULL;) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", folder, each->d_name);
        if (each->d_name[0] != '.' && strcmp(name, path) != 0) {
            n++;
            unlink(name);
        }
    }
    closedir(all);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    others();
    return rmdir(folder);
}

/* The text of a lock whose process ended, on this host and in this boot. */
static void dead_holder(char *text, size_t size)
{
    struct dpe_lock lock;
    struct dpe_error err = {0};
    char note[256];
    int pipes[2];
    unlink(path);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        char got[512] = "";
        bool good = dpe_lock_take(&lock, path, note, &err) == DPE_OK;
        FILE *file = good ? fopen(path, "r") : NULL;
        good = file != NULL && fgets(got, sizeof got, file) != NULL &&
               write(pipes[1], got, strlen(got)) > 0;
        _exit(!good);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ssize_t n = read(pipes[0], text, size - 1);
    assert_true(n > 0);
    text[n] = '\0';
    close(pipes[0]);
    close(pipes[1]);
}

/* So many processes try at once; those that got it hold it until all have tried. */
static int winners(int n)
{
    int start[2], end[2], told[2];
    assert_int_equal(pipe(start) + pipe(end) + pipe(told), 0);
    for (int i = 0; i < n; i++) {
        if (fork() == 0) {
            struct dpe_lock lock;
            struct dpe_error err = {0};
            char note[256], byte;
            close(start[1]);
            close(end[1]);
            (void)!read(start[0], &byte, 1); /* until the parent closes it */
            byte = dpe_lock_take(&lock, path, note, &err) == DPE_OK && dpe_lock_held(&lock) ? 'y'
                                                                                            : 'n';
            (void)!write(told[1], &byte, 1);
            (void)!read(end[0], &byte, 1);
            _exit(0);
        }
    }
    close(start[0]);
    close(start[1]);
    int got = 0;
    for (int i = 0; i < n; i++) {
        char byte = 0;
        assert_int_equal(read(told[0], &byte, 1), 1);
        got += byte == 'y';
    }
    close(end[0]);
    close(end[1]);
    while (wait(NULL) > 0) {
    }
    close(told[0]);
    close(told[1]);
    return got;
}

static void one_process_takes_over(void **state)
{
    static const int reasons[] = {ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS};
    (void)state;
    for (int round = 0; round < 24; round++) {
        char text[512];
        reason = reasons[round % 4];
        dead_holder(text, sizeof text);
        put(path, round % 3 == 0 ? "" : text); /* given back, or left by a process that ended */
        assert_int_equal(winners(8), 1);
        unlink(path);
        assert_int_equal(others(), 0);
    }
}

static void a_claim_of_the_dead_is_taken_over(void **state)
{
    char text[512];
    struct dpe_lock lock;
    struct dpe_error err = {0};
    char note[256];
    (void)state;
    reason = ENOLCK;
    dead_holder(text, sizeof text);
    put(path, text);
    /* A process that ends between its claim and its own name in the place: its claim stays, with
     * its text. */
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    }
    char claim[200];
    snprintf(claim, sizeof claim, "%s.from-%016llx", path, (unsigned long long)hash);
    put(claim, text);
    assert_int_equal(dpe_lock_take(&lock, path, note, &err), DPE_OK);
    assert_non_null(strstr(note, "took over the lock of process"));
    assert_non_null(strstr(note, "has no flock"));
    assert_true(dpe_lock_held(&lock));
    struct dpe_lock second;
    assert_int_equal(dpe_lock_take(&second, path, note, &err), DPE_CANNOT_CREATE);
    assert_non_null(strstr(err.text, "is held by process"));
    dpe_lock_release(&lock, false);
    assert_int_equal(dpe_lock_take(&lock, path, note, &err), DPE_OK);
    assert_string_equal(note, ""); /* said once */
    dpe_lock_release(&lock, true);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(others(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_takes_over),
        cmocka_unit_test(a_claim_of_the_dead_is_taken_over),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
