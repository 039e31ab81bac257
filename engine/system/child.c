/* Programs that ours starts. */
#include "engine/system/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/system/platform.h"

extern char **environ;

/** How a child is started. */
struct start {
    int streams[3];       /**< −1: ours */
    bool group;           /**< a process group of its own */
    const sigset_t *mask; /**< its signal mask */
};

/* posix_spawn cannot request a signal at our death (PR_SET_PDEATHSIG). A pipe can: the child
 * inherits the reading end, only this process has the writing end, and when that closes the kernel
 * sends the child SIGTERM (dpe_signal_at_close). It closes when this
 * process ends, however it ends, or when the child has been waited for. */
static int open_lifeline(int *held)
{
    int ends[2];
    if (dpe_pipe(ends) != 0) {
        return -1;
    }
    if (fcntl(ends[0], F_SETFD, 0) != 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    *held = ends[1];
    return ends[0];
}

static int spawn(char *const *argv, const struct start *how, pid_t *pid)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    sigset_t defaults;
    int failed = posix_spawnattr_init(&attributes);
    if (failed != 0) {
        return failed;
    }
    failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) {
        posix_spawnattr_destroy(&attributes);
        return failed;
    }
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, how->mask);
    if (how->group) {
        flags |= POSIX_SPAWN_SETPGROUP; /* 0 by default: a new one */
    }
    posix_spawnattr_setflags(&attributes, flags);
    for (int i = 0; i < 3 && failed == 0; i++) {
        if (how->streams[i] >= 0) {
            failed = posix_spawn_file_actions_adddup2(&actions, how->streams[i], i);
        }
    }
    failed =
        failed != 0 ? failed : posix_spawnp(pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

/* Start it; *held is to be closed once it has ended. */
static dpe_status start(char *const *argv, const struct start *how, pid_t *pid, int *held,
                        struct dpe_error *err)
{
    int end = open_lifeline(held);
    if (end < 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s cannot be started: no pipe: %s", argv[0],
                        strerror(errno));
    }
    int failed = spawn(argv, how, pid);
    if (failed == 0) {
        dpe_signal_at_close(end, *pid);
    }
    close(end);
    if (failed != 0) {
        close(*held);
        *held = -1;
        bool limits = failed == ENOMEM || failed == EAGAIN || failed == EMFILE || failed == ENFILE;
        return dpe_fail(err, limits ? DPE_NO_MEMORY : DPE_NO_INPUT, "%s cannot be started: %s",
                        argv[0], strerror(failed));
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------- in the foreground */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0], GRACE_SECONDS = 10 };

static volatile sig_atomic_t asked;
static volatile sig_atomic_t hurry; /* signals other than SIGUSR1 */
static volatile pid_t running;      /* the child, 0 = none; changed with the signals blocked */

static void on_alarm(int number)
{
    (void)number;
    int before = errno;
    if (running > 0) {
        kill(running, SIGKILL);
    }
    errno = before;
}

/* What a terminal sends it sends to the child as well: forwarding it would count twice there. */
static void on_stop(int number, siginfo_t *info, void *context)
{
    (void)context;
    int before = errno;
    asked = 1;
    if (number != SIGUSR1 && hurry++ == 1) {
        alarm(GRACE_SECONDS);
    }
    if (running > 0 && info->si_code <= 0) {
        kill(running, number);
    }
    errno = before;
}

void dpe_child_forward_signals(void)
{
    struct sigaction action = {.sa_flags = SA_RESTART | SA_SIGINFO};
    struct sigaction late = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigemptyset(&late.sa_mask);
    sigaction(SIGALRM, &late, NULL);
    action.sa_sigaction = on_stop;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&action.sa_mask, stop_signals[i]);
    }
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction before;
        /* nohup ignores a signal on purpose: children then ignore it too. */
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(stop_signals[i], &action, NULL);
        }
    }
}

static void block(sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        sigaddset(&set, stop_signals[i]);
    }
    sigprocmask(SIG_BLOCK, &set, before);
}

/* Wait without reaping: while the id may still be signalled it must not become another process's.
 */
static dpe_status await(pid_t pid, const char *name, int *code, struct dpe_error *err)
{
    siginfo_t info = {0};
    sigset_t before;
    int status = 0;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0) {
        if (errno != EINTR) {
            return dpe_fail(err, DPE_INTERNAL, "waiting for %s: %s", name, strerror(errno));
        }
    }
    block(&before);
    running = 0;
    waitpid(pid, &status, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (WIFEXITED(status)) {
        *code = WEXITSTATUS(status);
        return DPE_OK;
    }
    int number = WTERMSIG(status);
    bool crash = number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
                 number == SIGABRT;
    return dpe_fail(err, crash ? DPE_INTERNAL : DPE_INCOMPLETE, "%s was ended by signal %d (%s)",
                    name, number, strsignal(number));
}

dpe_status dpe_child_run(char *const *argv, bool silent, int *code, struct dpe_error *err)
{
    sigset_t before;
    pid_t pid = -1;
    DPE_SCOPED(dpe_close_fd) int held = -1;
    DPE_SCOPED(dpe_close_fd) int nowhere = silent ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (silent && nowhere < 0) {
        return dpe_fail(err, DPE_IO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    fflush(NULL);
    block(&before);
    dpe_status status =
        asked != 0
            ? dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal before %s", argv[0])
            : start(argv, &(struct start){{-1, nowhere, -1}, false, &before}, &pid, &held, err);
    running = status == DPE_OK ? pid : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status == DPE_OK ? await(pid, argv[0], code, err) : status;
}

/* ---------------------------------------------------------------------------------- as a filter */

enum { STREAM_IN, STREAM_OUT, STREAM_ERR, MAX_WORDS = 400, MAX_OUTPUT = 64 << 20 };

/* Files in memory as its streams: no bytes have to be moved while it runs, and no pipe can be full.
 * Above 2, so that none is overwritten where we were started with a closed standard stream. */
static int open_stream(const char *bytes, size_t n)
{
    int made = dpe_memory_file();
    int file = made >= 0 ? fcntl(made, F_DUPFD_CLOEXEC, 3) : -1;
    if (made >= 0) {
        close(made);
    }
    if (file >= 0 && dpe_write_at(file, bytes, n, 0) != n) {
        close(file);
        return -1;
    }
    return file;
}

/* At most `limit` bytes of what it wrote; `cut`: no error where it is more. */
static dpe_status read_stream(int file, size_t limit, bool cut, struct dpe_text *into,
                              struct dpe_error *err)
{
    struct stat info;
    if (fstat(file, &info) != 0) {
        return dpe_fail(err, DPE_IO, "the output of a program cannot be read: %s", strerror(errno));
    }
    size_t n = (size_t)info.st_size;
    if (n > limit && !cut) {
        return dpe_fail(err, DPE_IO, "expected at most %zu bytes of output, found %zu", limit, n);
    }
    n = n > limit ? limit : n;
    void *bytes = n > 0 ? mmap(NULL, n, PROT_READ, MAP_SHARED, file, 0) : NULL;
    if (bytes == MAP_FAILED) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the output of a program");
    }
    dpe_status status = n > 0 ? dpe_text_append(into, bytes, n, err) : DPE_OK;
    if (bytes != NULL) {
        munmap(bytes, n);
    }
    return status;
}

/* Whether it has written too much: it would fill our memory. */
static bool is_flood(int file)
{
    struct stat info;
    return fstat(file, &info) == 0 && info.st_size > MAX_OUTPUT;
}

/* Wait for its end or a limit; at a limit it is killed with all that it started. */
static dpe_status wait_within(pid_t pid, const char *name, const int *streams,
                              const struct dpe_child_limits *limits, int *code,
                              struct dpe_error *err)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    double deadline = dpe_clock() + limits->seconds;
    dpe_status status = DPE_OK;
    while (status == DPE_OK) {
        pid_t got = waitpid(pid, code, WNOHANG);
        if (got == pid) {
            return DPE_OK;
        }
        if (got < 0 && errno != EINTR) {
            return dpe_fail(err, DPE_INTERNAL, "waiting for %s: %s", name, strerror(errno));
        }
        if (dpe_clock() > deadline) {
            status = dpe_fail(err, DPE_IO, "%s did not finish within %g s", name, limits->seconds);
        } else if (is_flood(streams[STREAM_OUT]) || is_flood(streams[STREAM_ERR])) {
            status = dpe_fail(err, DPE_IO, "%s wrote more than %d bytes", name, MAX_OUTPUT);
        } else if (limits->poll != NULL) {
            status = limits->poll(limits->user, err);
        }
        if (status == DPE_OK) {
            nanosleep(&nap, NULL);
        }
    }
    kill(-pid, SIGKILL);
    while (waitpid(pid, code, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static dpe_status explain(const char *name, int code, int stream, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text words = {0};
    const char *reason = "it printed no reason";
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0) {
        return DPE_OK;
    }
    if (read_stream(stream, MAX_WORDS, true, &words, NULL) == DPE_OK && words.n > 0) {
        /* Messages are one line of UTF-8; the limit may have cut a character. */
        words.bytes[dpe_utf8_check(words.bytes, words.n)] = '\0';
        for (char *c = words.bytes; *c != '\0'; c++) {
            *c = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
        }
        reason = words.bytes;
    }
    if (WIFSIGNALED(code)) {
        return dpe_fail(err, DPE_IO, "%s was ended by signal %d (%s): %s", name, WTERMSIG(code),
                        strsignal(WTERMSIG(code)), reason);
    }
    return dpe_fail(err, DPE_IO, "%s failed with exit status %d: %s", name, WEXITSTATUS(code),
                    reason);
}

static void close_streams(const struct start *how)
{
    for (int i = 0; i < 3; i++) {
        dpe_close_fd(&how->streams[i]);
    }
}

dpe_status dpe_child_filter(char *const *argv, const char *input, size_t n,
                            const struct dpe_child_limits *limits, struct dpe_text *output,
                            struct dpe_error *err)
{
    DPE_SCOPED(close_streams)
    struct start how = {.streams = {open_stream(input, n), open_stream("", 0), open_stream("", 0)},
                        .group = true};
    sigset_t mask;
    pid_t pid = -1;
    DPE_SCOPED(dpe_close_fd) int held = -1;
    int code = 0;
    if (how.streams[STREAM_IN] < 0 || how.streams[STREAM_OUT] < 0 || how.streams[STREAM_ERR] < 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for its input and output: %s", argv[0],
                        strerror(errno));
    }
    sigprocmask(SIG_SETMASK, NULL, &mask);
    how.mask = &mask;
    DPE_TRY(start(argv, &how, &pid, &held, err));
    DPE_TRY(wait_within(pid, argv[0], how.streams, limits, &code, err));
    DPE_TRY(explain(argv[0], code, how.streams[STREAM_ERR], err));
    return read_stream(how.streams[STREAM_OUT], MAX_OUTPUT, false, output, err);
}
