/* gnuplot as a child: no shell, no start-up files, a time limit, and its words in our messages. */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_OUTPUT = 64 << 20, MAX_WORDS = 4096 };

/** A child with pipes to its standard streams; −1 = closed. */
struct child {
    pid_t pid;
    int in, out, err;
    const char *name;
    struct dpe_text words; /**< what it said on stderr */
};

static void close_one(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* The child's side: only calls that are safe after a fork. Its own process group, so that what it
 * starts is ended with it. */
static _Noreturn void become(const char *const *argv, int pipes[3][2], int failure)
{
    const int ends[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    /* The pipes may themselves be 0, 1 or 2 when we were started with these closed. */
    int safe[3];
    for (int i = 0; i < 3; i++) {
        safe[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    }
    for (int i = 0; i < 3; i++) {
        if (safe[i] < 0 || dup2(safe[i], i) < 0) {
            _exit(127);
        }
    }
    /* execvp's argv is not const for reasons of age; it changes nothing. */
    union {
        const char *const *from;
        char *const *to;
    } words = {.from = argv};
    execvp(argv[0], words.to);
    int code = errno;
    ssize_t written = write(failure, &code, sizeof code);
    _exit(written == (ssize_t)sizeof code ? 127 : 126);
}

/* A pipe whose ends no later child inherits; ours does not block where we poll it. */
static bool make_pipe(int ends[2])
{
    return pipe(ends) == 0 && fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 &&
           fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0;
}

static dpe_status start(struct child *child, const char *const *argv, struct dpe_error *err)
{
    int pipes[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    dpe_status status = DPE_OK;
    for (int i = 0; i < 4 && status == DPE_OK; i++) {
        if (!make_pipe(pipes[i])) {
            status = dpe_fail(err, DPE_NO_MEMORY, "%s: no pipe: %s", argv[0], strerror(errno));
        }
    }
    child->pid = -1;
    if (status == DPE_OK) {
        child->pid = fork();
        if (child->pid == 0) {
            become(argv, pipes, pipes[3][1]);
        }
    }
    if (status == DPE_OK && child->pid < 0) {
        status = dpe_fail(err, DPE_NO_MEMORY, "%s cannot be started: %s", argv[0], strerror(errno));
    }
    close_one(&pipes[0][0]);
    for (int i = 1; i < 4; i++) {
        close_one(&pipes[i][1]);
    }
    int code = 0;
    ssize_t got = status == DPE_OK ? read(pipes[3][0], &code, sizeof code) : 0;
    close_one(&pipes[3][0]);
    child->in = pipes[0][1];
    child->out = pipes[1][0];
    child->err = pipes[2][0];
    fcntl(child->in, F_SETFL, O_NONBLOCK);
    if (got == (ssize_t)sizeof code) {
        status = dpe_fail(err, DPE_NO_INPUT,
                          "%s: %s; figures need gnuplot (Debian: gnuplot-nox), or give --gnuplot "
                          "PROGRAM, or --no-figures",
                          argv[0], strerror(code));
    }
    return status;
}

/* Take what lies in a pipe; closes it at its end. */
static dpe_status drain(int *fd, struct dpe_text *into, size_t limit, bool cut,
                        struct dpe_error *err)
{
    char bytes[8192];
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n < 0) {
        return errno == EINTR || errno == EAGAIN
                   ? DPE_OK
                   : dpe_fail(err, DPE_IO, "reading from a pipe: %s", strerror(errno));
    }
    if (n == 0) {
        close_one(fd);
        return DPE_OK;
    }
    size_t take = (size_t)n;
    if (into->n + take > limit) {
        if (!cut) {
            return dpe_fail(err, DPE_IO, "more than %zu bytes came out", limit);
        }
        take = limit - into->n;
    }
    return take == 0 ? DPE_OK : dpe_text_append(into, bytes, take, err);
}

/* Write what the pipe takes; closes it after the last byte, or when nobody reads any more (the exit
 * status then says why). */
static void feed(int *fd, const char *input, size_t n, size_t *sent)
{
    while (*sent < n) {
        ssize_t written = write(*fd, input + *sent, n - *sent);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0 && errno == EAGAIN) {
            return;
        }
        if (written < 0) {
            break;
        }
        *sent += (size_t)written;
    }
    close_one(fd);
}

static dpe_status talk(struct child *child, const char *input, size_t n, double deadline,
                       struct dpe_text *output, struct dpe_error *err)
{
    size_t sent = 0;
    dpe_status status = DPE_OK;
    while (status == DPE_OK && (child->out >= 0 || child->err >= 0)) {
        struct pollfd waits[3] = {{.fd = child->in, .events = POLLOUT},
                                  {.fd = child->out, .events = POLLIN},
                                  {.fd = child->err, .events = POLLIN}};
        double left = deadline - dpe_clock();
        if (dpe_signals_asked() != DPE_STOP_NONE) {
            return dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal; nothing was written");
        }
        if (left <= 0.0) {
            return dpe_fail(err, DPE_IO, "%s did not finish in time (--figure-time)", child->name);
        }
        /* Short waits: a signal that comes just before poll would otherwise be seen late. */
        int ready = poll(waits, 3, left < 0.2 ? (int)(left * 1000.0) + 1 : 200);
        if (ready < 0 && errno != EINTR) {
            return dpe_fail(err, DPE_IO, "waiting for %s: %s", child->name, strerror(errno));
        }
        if (ready <= 0) {
            continue;
        }
        if (child->in >= 0 && waits[0].revents != 0) {
            feed(&child->in, input, n, &sent);
        }
        if (child->out >= 0 && waits[1].revents != 0) {
            status = drain(&child->out, output, MAX_OUTPUT, false, err);
        }
        if (status == DPE_OK && child->err >= 0 && waits[2].revents != 0) {
            status = drain(&child->err, &child->words, MAX_WORDS, true, err);
        }
    }
    return status;
}

/* Wait for the end, at most until the deadline: closed pipes do not mean that it ended. */
static dpe_status reap(const struct child *child, double deadline, int *code, struct dpe_error *err)
{
    for (;;) {
        pid_t got = waitpid(child->pid, code, WNOHANG);
        if (got == child->pid) {
            return DPE_OK;
        }
        if (got < 0 && errno != EINTR) {
            return dpe_fail(err, DPE_INTERNAL, "waiting for %s: %s", child->name, strerror(errno));
        }
        if (dpe_clock() > deadline) {
            return dpe_fail(err, DPE_IO, "%s did not finish in time (--figure-time)", child->name);
        }
        poll(NULL, 0, 2);
    }
}

/* Why it failed: the line of its words that says most, gnuplot's being the last with a colon. */
static dpe_status explain(struct child *child, int code, struct dpe_error *err)
{
    char *words = child->words.bytes != NULL ? clean_text(child->words.bytes, 400) : NULL;
    dpe_status status;
    if (WIFSIGNALED(code)) {
        status = dpe_fail(err, DPE_IO, "%s was ended by signal %d (%s)%s%s", child->name,
                          WTERMSIG(code), strsignal(WTERMSIG(code)), words != NULL ? ": " : "",
                          words != NULL ? words : "");
    } else {
        status = dpe_fail(err, DPE_IO, "%s failed with exit status %d: %s", child->name,
                          WEXITSTATUS(code), words != NULL ? words : "it said nothing");
    }
    free(words);
    return status;
}

dpe_status run_program(const char *const *argv, const char *input, size_t n, double seconds,
                       struct dpe_text *output, struct dpe_error *err)
{
    struct child child = {.pid = -1, .in = -1, .out = -1, .err = -1, .name = argv[0]};
    double deadline = dpe_clock() + seconds;
    int code = 0;
    dpe_status status = start(&child, argv, err);
    if (status == DPE_OK) {
        status = talk(&child, input, n, deadline, output, err);
    }
    if (status == DPE_OK) {
        status = reap(&child, deadline, &code, err);
    }
    if (status != DPE_OK && child.pid > 0) {
        kill(-child.pid, SIGKILL);
        kill(child.pid, SIGKILL); /* its group may not be made yet */
        while (waitpid(child.pid, &code, 0) < 0 && errno == EINTR) {
        }
    } else if (status == DPE_OK && (!WIFEXITED(code) || WEXITSTATUS(code) != 0)) {
        status = explain(&child, code, err);
    }
    close_one(&child.in);
    close_one(&child.out);
    close_one(&child.err);
    dpe_text_free(&child.words);
    return status;
}

/* ---------------------------------------------------------------------------------------- figures
 */

/* Numbers are written with a point, and text is UTF-8, whatever the user's locale says. */
static const char common[] = "set encoding utf8\nset decimalsign '.'\n";

static dpe_status draw_as(const struct figure *figure, const struct drawing *drawing, bool raster,
                          const char *terminal, struct dpe_text *output, struct dpe_error *err)
{
    /* -d: no ~/.gnuplot and no system file; what lies there is another's idea of a figure. */
    const char *const argv[] = {drawing->program, "-d", "-", NULL};
    struct writer script = {0};
    put(&script, "%s%s", terminal, common);
    if (raster) {
        /* For a character without a font, gnuplot paints a box over half of a PNG. */
        put_common(&script, figure->script.text.bytes);
    } else {
        put_bytes(&script, figure->script.text.bytes, figure->script.text.n);
    }
    dpe_status status = script.failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for a figure")
                                      : run_program(argv, script.text.bytes, script.text.n,
                                                    drawing->seconds, output, err);
    dpe_text_free(&script.text);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "figure %s", figure->id);
}

dpe_status figure_draw(struct figure *figure, const struct drawing *drawing, struct dpe_error *err)
{
    static const unsigned char png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    char terminal[256];
    snprintf(terminal, sizeof terminal,
             "set terminal svg size %d,%d noenhanced font 'sans-serif,12' name 'fig' "
             "linewidth 1\n",
             figure->width, figure->height);
    dpe_status status = draw_as(figure, drawing, false, terminal, &figure->svg, err);
    if (status == DPE_OK && (figure->svg.n == 0 || strstr(figure->svg.bytes, "</svg>") == NULL)) {
        status = dpe_fail(err, DPE_IO, "figure %s: %s wrote no SVG", figure->id, drawing->program);
    }
    if (status != DPE_OK || !drawing->png) {
        return status;
    }
    snprintf(terminal, sizeof terminal,
             "set terminal pngcairo size %d,%d noenhanced font 'sans,12' fontscale 1.5 linewidth 2 "
             "pointscale 2 background '#ffffff'\n",
             2 * figure->width, 2 * figure->height);
    status = draw_as(figure, drawing, true, terminal, &figure->png, err);
    if (status == DPE_OK &&
        (figure->png.n < sizeof png || memcmp(figure->png.bytes, png, sizeof png) != 0)) {
        status = dpe_fail(err, DPE_IO, "figure %s: %s wrote no PNG", figure->id, drawing->program);
    }
    return status;
}
