/* Exit codes, the terminal and signals, shared by all tools. It links no backend: tools that run no
 * model start without OpenBLAS. */
#include "engine/system/platform.h"
#include "engine/tool/tool_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { INDENT = 2 }; /* of what follows in a message that is broken */

/* Quiet and JSON hold for the whole process, as stderr does. */
static struct {
    const char *name; /* of the tool, before warnings and errors */
    char ranked[64];  /* the same with the rank */
    int rank;
    bool quiet, json;
    bool live;        /* a live line stands on the terminal */
    double last_time; /* of the last progress print */
    double last_share;
    bool printed;
    bool running; /* the command line is read */
    bool ended;   /* dpe_tool_end has reported how */
} messages;

/* OpenMP threads that spin long at a barrier while another process has their core make a run on a
 * shared machine many times slower, and threads that sleep at once make decoding on two threads
 * slower than on one (engine/README.md, "Waiting threads"): they spin for 2000 rounds, about 50 µs.
 * libgomp reads that when it is loaded, before main, so the process starts once more with it in its
 * environment. Where that fails, the run goes on with libgomp's default. Other OpenMP libraries
 * read the policy alone. */
static void wait_briefly(char **argv)
{
    char path[4096] = "";
    sigset_t stops, before;
    if (getenv("OMP_WAIT_POLICY") == NULL && getenv("GOMP_SPINCOUNT") == NULL &&
        dpe_program_path(path, sizeof path) && setenv("OMP_WAIT_POLICY", "passive", 1) == 0 &&
        setenv("GOMP_SPINCOUNT", "2000", 1) == 0) {
        sigfillset(&stops); /* one that comes now waits for the handlers of the next start */
        sigprocmask(SIG_BLOCK, &stops, &before);
        if (dpe_signals_asked() == DPE_STOP_NONE) {
            execv(path, argv);
        }
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
}

/* A file opened in the place of a closed standard stream would get what is meant for that. Standard
 * output cannot be written then, so that a result which goes there is not lost without an error. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode) != fd) {
            _exit(DPE_IO);
        }
    }
}

/* Whether the reader of standard output has closed it, which is not an error. The errno of the
 * failed write is no longer available at the end. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

/* Write what standard output still holds. False, with an error message, when output was lost; a
 * reader that has closed it does not count. */
static bool finish_output(void)
{
    errno = 0;
    dpe_print_end();
    bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!failed || errno == EPIPE || reader_left()) {
        return true;
    }
    dpe_log_error("writing to standard output failed%s%s", errno != 0 ? ": " : "",
                  errno != 0 ? strerror(errno) : "");
    return false;
}

/* Whether the command line asks for JSON, before it is read: its errors are printed so too. */
static bool asks_json(char *const *argv)
{
    bool json = false;
    for (int i = 1; argv[i] != NULL && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--log-format") == 0) {
            json = argv[i + 1] != NULL && strcmp(argv[i + 1], "json") == 0;
        } else if (strncmp(argv[i], "--log-format=", 13) == 0) {
            json = strcmp(argv[i] + 13, "json") == 0;
        }
    }
    return json;
}

/* --help and --version end the process where the line is read. Later libgomp does, with code 1,
 * when the system has no more threads for it. */
static void at_end(void)
{
    if (messages.running && !messages.ended) {
        _exit(DPE_NO_MEMORY);
    }
    if (!messages.ended && !finish_output()) {
        _exit(DPE_IO);
    }
}

static void listen_for_signals(void);

void dpe_tool_start(char **argv)
{
    listen_for_signals();
    open_standard_streams();
    wait_briefly(argv);
    messages.name = dpe_last_part(argv[0]);
    /* Numbers in files and messages are the same everywhere; text may be any language's. */
    setlocale(LC_CTYPE, "");
    setlocale(LC_NUMERIC, "C");
    /* Tables are replaced, never changed: HDF5's locks protect nothing, and fail on some file
     * systems. */
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    atexit(at_end);
    messages.json = asks_json(argv);
}

const char *dpe_tool_path(const struct dpe_command_line *state, const char *option, const char *arg)
{
    if (arg[0] == '\0') {
        char typed[64];
        dpe_line_error(state, "%s: expected a name, found an empty one",
                       dpe_tool_typed(state, option, typed));
    }
    return arg;
}

/* Each line of `text` on its own, `before` before the first, and what is not printable escaped;
 * `clean` has room. */
static void print_lines(const char *before, char *text, char *clean, size_t size)
{
    for (char *line = text; line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        const size_t label = line == text ? strlen(before) : 0;
        memcpy(clean, before, label);
        dpe_printable(line, clean + label, size - label);
        dpe_tool_fit(stderr, clean, strlen(clean), INDENT);
        line = end != NULL ? end + 1 : NULL;
    }
}

void dpe_tool_fail_as(const char *name, const char *why)
{
    char before[128];
    size_t size = 4 * strlen(why) + sizeof before;
    DPE_OWNED char *text = strdup(why);
    DPE_OWNED char *clean = malloc(size);
    messages.running = false;
    snprintf(before, sizeof before, "%.120s: ", dpe_last_part(name));
    if (text == NULL || clean == NULL) {
        fprintf(stderr, "%sout of memory\n", before);
    } else if (messages.json) {
        for (char *at = text; (at = strchr(at, '\n')) != NULL;) {
            *at = ' ';
        }
        dpe_log_error("%s", text);
    } else {
        print_lines(before, text, clean, size);
    }
}

void dpe_tool_refuse_as(const char *name, const char *why)
{
    dpe_tool_fail_as(name, why);
    if (!messages.json) {
        const char *own = dpe_last_part(name);
        char text[160];
        snprintf(text, sizeof text, "Try `%.40s --help' or `%.40s --usage' for more information.",
                 own, own);
        dpe_tool_fit(stderr, text, strlen(text), INDENT);
    }
    exit(DPE_USAGE);
}

void dpe_tool_refuse(const char *why)
{
    dpe_tool_refuse_as(messages.name, why);
}

void dpe_tool_configure(const struct dpe_tool_options *options)
{
    messages.quiet = options->quiet;
    messages.json = options->json;
    messages.running = true;
}

void dpe_tool_set_rank(int rank)
{
    messages.rank = rank;
    if (rank > 0) {
        messages.quiet = true;
        snprintf(messages.ranked, sizeof messages.ranked, "%s[%d]", messages.name, rank);
        messages.name = messages.ranked;
        if (freopen("/dev/null", "w", stdout) == NULL) {
            dpe_log_warning("standard output cannot be silenced: %s", strerror(errno));
        }
    }
}

int dpe_tool_end(dpe_status status, const struct dpe_error *err)
{
    dpe_progress_clear();
    messages.ended = true;
    if (messages.rank > 0) {
        /* mpirun kills a job at its first exit code, perhaps before rank 0 has printed the reason.
         */
        return 0;
    }
    if (status != DPE_OK) {
        fflush(stdout);
        const char *text = err != NULL && err->text[0] != '\0' ? err->text : "failed";
        if (status == DPE_INCOMPLETE) {
            bool named = strncmp(text, "interrupted", strlen("interrupted")) == 0;
            dpe_log(DPE_LOG_NOTICE, "%s%s", named ? "" : "interrupted: ", text);
        } else {
            dpe_log_error("%s", text);
        }
        return dpe_exit_code(status);
    }
    return finish_output() ? dpe_exit_code(DPE_OK) : DPE_IO;
}

/* ------------------------------------------------------------------------------------- messages */

static bool is_terminal(FILE *file)
{
    const char *term = getenv("TERM");
    return isatty(fileno(file)) && (term == NULL || strcmp(term, "dumb") != 0);
}

bool dpe_terminal_color(FILE *file)
{
    const char *no_color = getenv("NO_COLOR");
    return is_terminal(file) && (no_color == NULL || no_color[0] == '\0');
}

char *dpe_tool_show_bytes(const char *text)
{
    size_t n = strlen(text);
    char *shown = malloc(4 * n + 1);
    size_t to = 0;
    for (size_t at = 0; shown != NULL && at < n;) {
        size_t good = dpe_utf8_check(text + at, n - at);
        memcpy(shown + to, text + at, good);
        to += good;
        at += good;
        if (at < n) {
            to += (size_t)sprintf(shown + to, "\\x%02x", (unsigned)(unsigned char)text[at]);
            at++;
        }
    }
    if (shown != NULL) {
        shown[to] = '\0';
    }
    return shown;
}

/* One object a line; `text` NULL: fields alone. */
static void print_json(const char *level, const struct dpe_event *event, const char *text)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *line =
        json_pack("{s:s, s:s, s:s}", "time", stamp, "level", level, "event", event->name);
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"done", event->done}, {"total", event->total}, {"rate", event->rate}, {"eta", event->eta}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (isfinite(numbers[i].value)) {
            json_object_set_new(line, numbers[i].name, json_real(numbers[i].value));
        }
    }
    if (text != NULL) {
        DPE_OWNED char *shown = dpe_tool_show_bytes(text);
        json_object_set_new(line, "message",
                            json_string(shown != NULL ? shown : "(no memory for the message)"));
    }
    DPE_OWNED char *dumped =
        line != NULL ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(8))
                     : NULL;
    if (dumped != NULL) {
        fprintf(stderr, "%s\n", dumped);
    }
    json_decref(line);
}

static const struct dpe_event no_event = {"message", (double)NAN, (double)NAN, (double)NAN,
                                          (double)NAN};

static void print_event(enum dpe_log_level as, const struct dpe_event *event, const char *format,
                        va_list args)
{
    static const char *const levels[] = {[DPE_LOG_INFO] = "info",
                                         [DPE_LOG_WARNING] = "warning",
                                         [DPE_LOG_RANK] = "warning",
                                         [DPE_LOG_NOTICE] = "notice",
                                         [DPE_LOG_ERROR] = "error"};
    const char *level = levels[as];
    char whole[3 * 4096];
    char text[2048];
    vsnprintf(whole, sizeof whole, format, args);
    dpe_shorten(text, sizeof text, whole);
    dpe_progress_clear();
    if (messages.json) {
        print_json(level, event, text);
    } else {
        char clean[128 + 2 * sizeof text];
        int at = 0;
        if (as == DPE_LOG_NOTICE) {
            at = snprintf(clean, 128, "%.64s: ", messages.name);
        } else if (as != DPE_LOG_INFO) {
            at = snprintf(clean, 128, "%.64s: %s: ", messages.name, level);
        }
        dpe_printable(text, clean + at, sizeof clean - (size_t)at);
        if (strcmp(event->name, "next") == 0) { /* a command is pasted as it is */
            fprintf(stderr, "%s\n", clean);
        } else {
            dpe_tool_fit(stderr, clean, strlen(clean), INDENT);
        }
    }
}

void dpe_log_event(const struct dpe_event *event, const char *format, ...)
{
    if (messages.quiet) {
        return;
    }
    va_list args;
    va_start(args, format);
    print_event(DPE_LOG_INFO, event, format, args);
    va_end(args);
}

void dpe_tool_next(const char *format, ...)
{
    static const struct dpe_event next = {"next", (double)NAN, (double)NAN, (double)NAN,
                                          (double)NAN};
    static bool begun = false;
    if (messages.quiet || messages.rank > 0) {
        return;
    }
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    /* What was printed so far comes first where both streams are one terminal. */
    fflush(stdout);
    if (messages.json) {
        dpe_log_event(&next, "%s", command);
    } else {
        dpe_log_event(&next, "%s%s", begun ? "      " : "Next: ", command);
    }
    begun = true;
}

const char *dpe_tool_quote(const char *path, char *text, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./+:,=@%";
    if (path[0] != '\0' && path[0] != '-' && strspn(path, plain) == strlen(path)) {
        snprintf(text, size, "%s", path);
        return text;
    }
    size_t n = (size_t)snprintf(text, size, "'");
    for (const char *at = path; *at != '\0' && n + 6 < size; at++) {
        n += (size_t)snprintf(text + n, size - n, *at == '\'' ? "'\\''" : "%c", *at);
    }
    snprintf(text + n, size - n, "'");
    return text;
}

void dpe_log(enum dpe_log_level level, const char *format, ...)
{
    if ((level == DPE_LOG_INFO && messages.quiet) ||
        (level == DPE_LOG_WARNING && messages.rank > 0)) {
        return;
    }
    va_list args;
    va_start(args, format);
    print_event(level, &no_event, format, args);
    va_end(args);
}

void dpe_progress_begin(void)
{
    messages.printed = false;
}

bool dpe_progress_due(double done, double total)
{
    if (messages.quiet) {
        return false;
    }
    double now = dpe_clock();
    bool last = done >= total;
    if (is_terminal(stderr) && !messages.json) {
        return last || now - messages.last_time >= 0.25;
    }
    double share = total > 0.0 ? done / total : 1.0;
    return !messages.printed || last ||
           (now - messages.last_time >= 30.0 && fabs(share - messages.last_share) >= 0.01);
}

void dpe_progress(const struct dpe_event *event, const char *text)
{
    if (!dpe_progress_due(event->done, event->total)) {
        return;
    }
    messages.last_time = dpe_clock();
    messages.last_share = event->total > 0.0 ? event->done / event->total : 1.0;
    messages.printed = true;
    if (messages.json) {
        print_json("progress", event, NULL);
    } else if (is_terminal(stderr)) {
        int width = dpe_terminal_width(stderr) - 1;
        fprintf(stderr, "\r%.*s\033[K", width > 0 ? width : 1, text);
        messages.live = true;
    } else {
        fprintf(stderr, "%s\n", text);
    }
}

void dpe_progress_clear(void)
{
    if (messages.live) {
        fputs("\r\033[K", stderr);
        messages.live = false;
    }
}

/* -------------------------------------------------------------------------------------- signals */

static volatile sig_atomic_t asked = DPE_STOP_NONE;

static void on_stop(int number)
{
    if (number == SIGUSR1) {
        if (asked == DPE_STOP_NONE) {
            asked = DPE_STOP_SOON;
        }
    } else if (asked == DPE_STOP_NOW) {
        _exit(DPE_INCOMPLETE);
    } else {
        asked = DPE_STOP_NOW;
    }
}

/* Weights are mapped: when their file is shortened, or its disk fails, reading them ends here. */
static void on_lost_page(int number, siginfo_t *info, void *context)
{
    static const char message[] =
        "error: a mapped file (the weights of the model) can no longer be "
        "read: the file was changed "
        "or its disk fails; finished results are saved\n";
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    (void)context;
    if (info->si_code != BUS_ADRALN && atomic_flag_test_and_set(&reported)) {
        pause(); /* another thread reports it and ends the process */
        return;
    }
    if (info->si_code == BUS_ADRALN || write(STDERR_FILENO, message, sizeof message - 1) < 0) {
        signal(number, SIG_DFL); /* it is raised again */
        return;
    }
    _exit(DPE_IO);
}

static void listen_for_signals(void)
{
    struct sigaction lost = {.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO};
    sigemptyset(&lost.sa_mask);
    sigaction(SIGBUS, &lost, NULL);
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before;
        /* nohup and job control ignore signals on purpose: leave those ignored. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) {
            continue;
        }
        sigaction(numbers[i], &action, NULL);
    }
    /* wait_briefly blocks them, and some launchers leave them blocked. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

enum dpe_stop_request dpe_signals_asked(void)
{
    return (enum dpe_stop_request)asked;
}

void dpe_signals_ask(enum dpe_stop_request request)
{
    if ((enum dpe_stop_request)asked < request) {
        asked = (sig_atomic_t)request;
    }
}

dpe_status dpe_signals_poll(void *user, struct dpe_error *err)
{
    (void)user;
    return asked == DPE_STOP_NOW ? dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal") : DPE_OK;
}
