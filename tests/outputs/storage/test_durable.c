/* Files at a path that a user gave: written whole, under temporary names of their own, through no
 * link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "outputs/storage/storage.h"
#include "tests/outputs/outputs_fixture.h"

static void expect_text(const char *path, const char *text)
{
    size_t n = 0;
    char *bytes = slurp(path, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, n);
    free(bytes);
}

/* Files in the folder, without "." and "..". */
static int n_files(const char *path)
{
    int n = -2;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

/* Two writers of one target, step by step in every order of their ends. */
static void the_last_of_two_writers_wins_whole(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    for (int first = 0; first < 2; first++) {
        struct dpe_new_file files[2];
        static const char *const texts[2] = {"all of one writer", "and all of the other one"};
        assert_int_equal(dpe_new_file_open(&files[0], scratch->table, NULL, &err), DPE_OK);
        assert_int_equal(dpe_new_file_write(&files[0], texts[0], 6, &err), DPE_OK);
        assert_int_equal(dpe_new_file_open(&files[1], scratch->table, NULL, &err), DPE_OK);
        assert_string_not_equal(files[0].path, files[1].path);
        assert_int_equal(dpe_new_file_write(&files[1], texts[1], strlen(texts[1]), &err), DPE_OK);
        assert_int_equal(dpe_new_file_write(&files[0], texts[0] + 6, strlen(texts[0]) - 6, &err),
                         DPE_OK);
        assert_int_equal(dpe_new_file_finish(&files[first], &err), DPE_OK);
        expect_text(scratch->table, texts[first]);
        assert_int_equal(dpe_new_file_finish(&files[1 - first], &err), DPE_OK);
        expect_text(scratch->table, texts[1 - first]);
        assert_int_equal(n_files(scratch->folder), 1);
    }
}

/* What lies beside the target, or is planted there, is neither written nor followed. */
static void what_lies_beside_is_left_alone(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    char beside[160], precious[160];
    snprintf(beside, sizeof beside, "%s.tmp", scratch->table);
    snprintf(precious, sizeof precious, "%s/precious", scratch->folder);
    spill(precious, "mine", 4);
    spill(beside, "mine too", 8);
    assert_int_equal(dpe_write_atomic(scratch->table, "new", 3, &err), DPE_OK);
    expect_text(beside, "mine too");
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(symlink(precious, beside), 0);
    assert_int_equal(dpe_write_atomic(scratch->table, "newer", 5, &err), DPE_OK);
    expect_text(precious, "mine");
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(mkfifo(beside, 0600), 0);
    assert_int_equal(dpe_write_atomic(scratch->table, "newest", 6, &err), DPE_OK);
    expect_text(scratch->table, "newest");
    assert_int_equal(n_files(scratch->folder), 3);
}

/* A process that is killed while it writes: its file is removed by the next writer of the target,
 * that of one at work is not, and neither is a user's with a name much like it. */
static void what_a_killed_process_left_is_removed(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    char name[256], like[256];
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct dpe_new_file file;
        bool made = dpe_new_file_open(&file, scratch->table, NULL, &err) == DPE_OK &&
                    dpe_new_file_write(&file, "half", 4, &err) == DPE_OK;
        if (made && write(pipes[1], file.path, strlen(file.path) + 1) > 0) {
            pause();
        }
        _exit(1);
    }
    assert_true(child > 0);
    assert_true(read(pipes[0], name, sizeof name) > 0);
    snprintf(like, sizeof like, "%.*s.old", (int)(strlen(name) - 4), name);
    spill(like, "a user's", 8);
    assert_int_equal(dpe_write_atomic(scratch->table, "new", 3, &err), DPE_OK);
    assert_true(exists(name));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(exists(name));
    assert_int_equal(dpe_write_atomic(scratch->table, "newer", 5, &err), DPE_OK);
    assert_false(exists(name));
    assert_true(exists(like));
    expect_text(scratch->table, "newer");
    close(pipes[0]);
    close(pipes[1]);
}

/* Writers that begin at the same time take none of each other's new files for an abandoned one. */
static void new_files_of_many_writers_stay(void **state)
{
    enum { WRITERS = 4, TIMES = 3000 };
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    pid_t child[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        child[i] = fork();
        for (int k = 0; child[i] == 0 && k < TIMES; k++) {
            struct dpe_new_file file;
            const struct timespec moment = {.tv_nsec = 1000};
            if (dpe_new_file_open(&file, scratch->table, NULL, &err) != DPE_OK) {
                _exit(1);
            }
            nanosleep(&moment, NULL);
            if (!exists(file.path)) {
                _exit(1);
            }
            dpe_new_file_drop(&file);
        }
        if (child[i] == 0) {
            _exit(0);
        }
        assert_true(child[i] > 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void only_files_are_replaced(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    struct stat info;
    assert_int_equal(symlink("out.h5", scratch->table), 0);
    assert_int_equal(dpe_write_atomic(scratch->table, "new", 3, &err), DPE_CANNOT_CREATE);
    assert_int_equal(lstat(scratch->table, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(unlink(scratch->table), 0);
    assert_int_equal(mkfifo(scratch->table, 0600), 0);
    assert_int_equal(dpe_write_atomic(scratch->table, "new", 3, &err), DPE_CANNOT_CREATE);
    assert_int_equal(lstat(scratch->table, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(dpe_write_atomic("", "new", 3, &err), DPE_CANNOT_CREATE);
    assert_int_equal(n_files(scratch->folder), 1);
}

static void what_would_be_lost_needs_force(void **state)
{
    struct scratch *scratch = *state;
    struct dpe_error err = {0};
    assert_int_equal(dpe_extend_file(scratch->table, "one\n", 4, false, &err), DPE_OK);
    assert_int_equal(dpe_extend_file(scratch->table, "one\ntwo\n", 8, false, &err), DPE_OK);
    expect_text(scratch->table, "one\ntwo\n");
    assert_int_equal(dpe_extend_file(scratch->table, "one\n", 4, false, &err), DPE_MISMATCH);
    assert_int_equal(dpe_extend_file(scratch->table, "eins\nzwei\n", 10, false, &err),
                     DPE_MISMATCH);
    assert_non_null(strstr(err.text, "--force"));
    expect_text(scratch->table, "one\ntwo\n");
    assert_int_equal(dpe_extend_file(scratch->table, "eins\n", 5, true, &err), DPE_OK);
    expect_text(scratch->table, "eins\n");
    assert_int_equal(n_files(scratch->folder), 1);
}

static void foreign_texts_are_escaped(void **state)
{
    char out[64];
    (void)state;
    assert_string_equal(dpe_printable("Grüße, 世界", out, sizeof out), "Grüße, 世界");
    assert_string_equal(dpe_printable("a\x1b[31mb\nc\x7f", out, sizeof out),
                        "a\\x1b[31mb\\x0ac\\x7f");
    assert_string_equal(dpe_printable("\xc2\x9b|\xff|\xe2\x80\xae", out, sizeof out),
                        "\\xc2\\x9b|\\xff|\\xe2\\x80\\xae");
    assert_string_equal(dpe_printable("abc\n", out, 5), "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(the_last_of_two_writers_wins_whole),
        WITH_SCRATCH(what_lies_beside_is_left_alone),
        WITH_SCRATCH(what_a_killed_process_left_is_removed),
        WITH_SCRATCH(new_files_of_many_writers_stay),
        WITH_SCRATCH(only_files_are_replaced),
        WITH_SCRATCH(what_would_be_lost_needs_force),
        cmocka_unit_test(foreign_texts_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
