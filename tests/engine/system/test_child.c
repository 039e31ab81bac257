/* Programs that ours starts: streams, exit codes, limits, signals, and our own death. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/system/child.h"

static dpe_status filter(const char *script, const char *input, size_t n, double seconds,
                         struct dpe_text *output, struct dpe_error *err)
{
    char shell[] = "sh";
    char option[] = "-c";
    char *words = strdup(script);
    char *const argv[] = {shell, option, words, NULL};
    const struct dpe_child_limits limits = {.seconds = seconds};
    dpe_status status = dpe_child_filter(argv, input, n, &limits, output, err);
    free(words);
    return status;
}

static void test_filter(void **state)
{
    (void)state;
    struct dpe_text output = {0};
    struct dpe_error err = {0};
    size_t n = (size_t)3 << 20; /* more than any pipe holds */
    char *input = malloc(n);
    assert_non_null(input);
    for (size_t i = 0; i < n; i++) {
        input[i] = (char)('a' + i % 26);
    }
    assert_int_equal(filter("cat; cat >&2 </dev/null", input, n, 600.0, &output, &err), DPE_OK);
    assert_int_equal(output.n, n);
    assert_memory_equal(output.bytes, input, n);
    dpe_text_free(&output);
    /* One that does not read its input still ends well, and has no output. */
    assert_int_equal(filter("true", input, n, 600.0, &output, &err), DPE_OK);
    assert_int_equal(output.n, 0);
    free(input);
}

static void fails(const char *script, double seconds, dpe_status status, const char *words)
{
    struct dpe_text output = {0};
    struct dpe_error err = {0};
    dpe_status got = filter(script, "x\n", 2, seconds, &output, &err);
    if (got != status || strstr(err.text, words) == NULL) {
        fail_msg("%s: expected %d and '%s', found %d and '%s'", script, (int)status, words,
                 (int)got, err.text);
    }
    dpe_text_free(&output);
}

static dpe_status refuse(void *user, struct dpe_error *err)
{
    return --*(int *)user > 0 ? DPE_OK : dpe_fail(err, DPE_INCOMPLETE, "asked to stop");
}

static void test_bad_filters(void **state)
{
    (void)state;
    fails("echo 'what <went> wrong' >&2; exit 3", 600.0, DPE_IO,
          "sh failed with exit status 3: what <went> wrong");
    fails("printf 'a\\033[31mb\\377c' >&2; exit 3", 600.0, DPE_IO, "exit status 3: a [31mb");
    fails("exit 4", 600.0, DPE_IO, "exit status 4: it printed no reason");
    fails("kill -SEGV $$", 600.0, DPE_IO, "signal 11");
    fails("sleep 1000", 0.2, DPE_IO, "did not finish within 0.2 s");
    fails("yes", 600.0, DPE_IO, "wrote more than");
    struct dpe_text output = {0};
    struct dpe_error err = {0};
    int polls = 3;
    const struct dpe_child_limits limits = {.seconds = 600.0, .poll = refuse, .user = &polls};
    char missing[] = "no-such-program-anywhere";
    char *const none[] = {missing, NULL};
    assert_int_equal(dpe_child_filter(none, "", 0, &limits, &output, &err), DPE_NO_INPUT);
    assert_non_null(strstr(err.text, "no-such-program-anywhere cannot be started: No such file"));
    char sleep_word[] = "sleep";
    char seconds[] = "1000";
    char *const sleeping[] = {sleep_word, seconds, NULL};
    assert_int_equal(dpe_child_filter(sleeping, "", 0, &limits, &output, &err), DPE_INCOMPLETE);
    assert_string_equal(err.text, "asked to stop");
}

static void test_run(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    int code = -1;
    char shell[] = "sh";
    char option[] = "-c";
    /* Our tools ignore SIGPIPE; what they start must not, and a shell cannot undo it. */
    char words[] = "echo silent; kill -PIPE $$; exit 9";
    char *const argv[] = {shell, option, words, NULL};
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(dpe_child_run(argv, true, &code, &err), DPE_INCOMPLETE);
    assert_non_null(strstr(err.text, "signal 13"));
    char plain[] = "exit 9";
    char *const exits[] = {shell, option, plain, NULL};
    assert_int_equal(dpe_child_run(exits, true, &code, &err), DPE_OK);
    assert_int_equal(code, 9);
    char crash[] = "kill -ABRT $$";
    char *const crashes[] = {shell, option, crash, NULL};
    assert_int_equal(dpe_child_run(crashes, true, &code, &err), DPE_INTERNAL);
    char missing[] = "/no/such/program";
    char *const none[] = {missing, NULL};
    assert_int_equal(dpe_child_run(none, true, &code, &err), DPE_NO_INPUT);
}

/* Wait until a file has something in it. */
static void await_file(const char *path)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    for (;;) {
        FILE *file = fopen(path, "r");
        int c = file != NULL ? fgetc(file) : EOF;
        if (file != NULL) {
            fclose(file);
        }
        if (c != EOF) {
            return;
        }
        nanosleep(&nap, NULL);
    }
}

/* In a process of its own: starts a child that reports when it is ready and which signal came. The
 * child gives its parent time to tie it to itself, which the parent does after the start. */
static _Noreturn void parent(const char *folder)
{
    char shell[] = "sh";
    char option[] = "-c";
    char words[512];
    int code = -1;
    struct dpe_error err = {0};
    snprintf(words, sizeof words,
             "trap 'echo term >%s/end; exit 7' TERM; sleep 0.5; echo $$ >%s/ready; "
             "while :; do sleep 0.05; done",
             folder, folder);
    char *const argv[] = {shell, option, words, NULL};
    dpe_child_forward_signals();
    dpe_status status = dpe_child_run(argv, false, &code, &err);
    _exit(status == DPE_OK ? code : 99);
}

/* TERM reaches the child, and so does our death. Forwarded or not, it ends and reports it. */
static void test_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        char folder[] = "/tmp/dpe_child_XXXXXX";
        char ready[64];
        char end[64];
        int status = 0;
        assert_non_null(mkdtemp(folder));
        snprintf(ready, sizeof ready, "%s/ready", folder);
        snprintf(end, sizeof end, "%s/end", folder);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            parent(folder);
        }
        await_file(ready);
        kill(pid, signals[i]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (signals[i] == SIGTERM) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 7);
        } else {
            assert_true(WIFSIGNALED(status));
        }
        await_file(end);
        unlink(ready);
        unlink(end);
        rmdir(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_bad_filters),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
