/**
 * @file tool_run.h
 * Runs the main of a tool (DPE_MAIN of engine/tool/tool.h) in a child process of the test: what it
 * prints and how it ends, without the start of a program, and in view of sanitizers and gcov.
 * Include after cmocka.h. A group of tests works in a folder of its own:
 * cmocka_run_group_tests(tests, tool_folder, tool_folder_gone).
 */
#ifndef DPE_TOOL_RUN_H
#define DPE_TOOL_RUN_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/base.h"

#define TOOL_MODEL  DPE_SOURCE_DIR "/data/reference"
#define TOOL_CORPUS DPE_SOURCE_DIR "/data/sample"
#define TOOL_TEXTS  " -m " TOOL_MODEL " --corpus " TOOL_CORPUS " --threads 1 "

typedef int (*tool_main)(int argc, char **argv);

/** What the last run wrote, NUL-terminated. */
static char tool_out[1 << 18], tool_err[1 << 17];
static char tool_dir[] = "/tmp/dpe-tool-XXXXXX";

/* The speed of this machine is measured once, and kept there. */
static inline int tool_folder(void **state)
{
    char cache[64];
    (void)state;
    if (mkdtemp(tool_dir) == NULL || chdir(tool_dir) != 0) {
        return -1;
    }
    snprintf(cache, sizeof cache, "%s/cache", tool_dir);
    return setenv("XDG_CACHE_HOME", cache, 1);
}

static inline int tool_folder_gone(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", tool_dir);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static inline void tool_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static inline void tool_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static inline void tool_redirect(const char *path, int flags, int to)
{
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(99);
    }
    close(fd);
}

/** Begin the main of `name` with the words of `line`, which spaces divide ('...' is one word);
 * standard input is the file "in", where there is one. The child's number. */
static inline pid_t tool_begin(tool_main run, const char *name, const char *line)
{
    enum { WORDS = 96 };
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) {
        return child;
    }
    static char *words[WORDS], copy[8192];
    char *at = copy;
    snprintf(copy, sizeof copy, "%s", line);
    int n = 0;
    words[n++] = strdup(name);
    while (at != NULL && n < WORDS - 1) {
        at += strspn(at, " ");
        const char *end = *at == '\'' ? "'" : " ";
        at += *at == '\'';
        if (*at != '\0' || *end == '\'') {
            words[n++] = at;
        }
        at = strpbrk(at, end);
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    setenv("OMP_WAIT_POLICY", "passive", 1); /* else it would start the test once more */
    tool_redirect(access("in", F_OK) == 0 ? "in" : "/dev/null", O_RDONLY, STDIN_FILENO);
    tool_redirect("out", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    tool_redirect("err", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    exit(run(n, words));
}

/** Wait for it. Its exit code; its output is in tool_out and tool_err. */
static inline int tool_end(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    tool_read("out", tool_out, sizeof tool_out);
    tool_read("err", tool_err, sizeof tool_err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/** The run must end with `code`, and where `text` is not NULL the result must hold it; of a
 * failure, the messages. */
static inline void tool_expect(tool_main run, const char *name, const char *line, int code,
                               const char *text)
{
    int got = tool_end(tool_begin(run, name, line));
    const char *where = code == 0 ? tool_out : tool_err;
    if (got != code || (text != NULL && strstr(where, text) == NULL)) {
        fprintf(stderr, "%s%s", tool_out, tool_err);
        fail_msg("%s %s: exit %d, expected %d and \"%s\"", name, line, got, code,
                 text != NULL ? text : "");
    }
}

/** Declares the main of a tool and a function of its name that runs it with options, as above:
 * DPE_TOOL(detect) makes detect(OPTIONS, CODE, TEXT). */
#define DPE_TOOL(tool)                                                                             \
    int dpe_##tool##_main(int argc, char **argv);                                                  \
    static inline void tool(const char *options, int code, const char *text)                       \
    {                                                                                              \
        tool_expect(dpe_##tool##_main, "dpe-" #tool, options, code, text);                         \
    }

/** The number after `before` in the result. */
static inline double tool_number(const char *before)
{
    const char *at = strstr(tool_out, before);
    if (at == NULL) {
        fprintf(stderr, "%s", tool_out);
        fail_msg("no \"%s\"", before);
    }
    return strtod(at + strlen(before), NULL);
}

#endif
