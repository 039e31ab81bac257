/* One tool after another: started, stopped with us, its exit code handed on. */
#include "calibrate_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------- words
 */

void words_add(struct words *words, const char *word)
{
    char *copy = words->n < CALIBRATE_MAX_WORDS ? strdup(word) : NULL;
    if (copy == NULL) {
        words->failed = true;
        return;
    }
    words->words[words->n++] = copy;
}

void words_add_pair(struct words *words, const char *option, const char *value)
{
    if (value != NULL) {
        words_add(words, option);
        words_add(words, value);
    }
}

void words_add_number(struct words *words, const char *option, int64_t value, int64_t least)
{
    char text[32];
    if (value >= least) {
        snprintf(text, sizeof text, "%lld", (long long)value);
        words_add_pair(words, option, text);
    }
}

void words_free(struct words *words)
{
    for (size_t i = 0; i < words->n; i++) {
        free(words->words[i]);
    }
    *words = (struct words){0};
}

/* ----------------------------------------------------------------------------------------- signals
 */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
enum { STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

static volatile sig_atomic_t asked;
static volatile sig_atomic_t hurry; /* signals other than SIGUSR1 */
static volatile pid_t running;      /* the tool, 0 = none; changed with the signals blocked */

/* Our tools leave at once at a second signal. mpirun may not: when a rank dies inside MPI_Init,
 * that of Open MPI 4.1 waits for ever and ignores them. */
enum { PATIENCE = 10 };

static void on_alarm(int number)
{
    (void)number;
    int before = errno;
    if (running > 0) {
        kill(running, SIGKILL);
    }
    errno = before;
}

/* What a terminal sends it sends to the tool as well: passing it on would count twice there. */
static void on_stop(int number, siginfo_t *info, void *context)
{
    (void)context;
    int before = errno;
    asked = 1;
    if (number != SIGUSR1 && hurry++ == 1) {
        alarm(PATIENCE);
    }
    if (running > 0 && info->si_code <= 0) {
        kill(running, number);
    }
    errno = before;
}

void tools_signals_install(void)
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
        /* nohup ignores a signal on purpose: the tools then ignore it too. */
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

/* ------------------------------------------------------------------------------------------- tools
 */

char *tools_path(const char *folder, const char *name)
{
    /* Some of these are words of a command line by themselves, where -x would be an option. */
    const char *before = folder[0] == '-' ? "./" : "";
    size_t n = strlen(before) + strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL) {
        snprintf(path, n, "%s%s/%s", before, folder, name);
    }
    return path;
}

dpe_status tools_folder(char **folder, struct dpe_error *err)
{
    char path[PATH_MAX + 1];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    if (n < 1) {
        return dpe_fail(err, DPE_IO, "/proc/self/exe cannot be read: %s", strerror(errno));
    }
    path[n] = '\0';
    *strrchr(path, '/') = '\0';
    *folder = strdup(path);
    return *folder != NULL ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
}

/* The child's side of the fork: only calls that are safe there. Why it failed goes into `why`,
 * which a tool that starts does not have. */
static _Noreturn void become(char *const *argv, bool silent, pid_t parent, const sigset_t *mask,
                             int why)
{
    /* The tool gets our defaults back (an ignored signal stays ignored), and SIGTERM when we die:
     * it then keeps what it has and ends by itself. */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (int i = 0; i < STOP_SIGNALS; i++) {
        struct sigaction before;
        if (sigaction(stop_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(stop_signals[i], &plain, NULL);
        }
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nowhere = silent ? open("/dev/null", O_WRONLY) : -1;
    if (getppid() != parent) {
        _exit(DPE_INCOMPLETE);
    }
    if (!silent || (nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0)) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(argv[0], argv);
    }
    int code = errno;
    _exit(write(why, &code, sizeof code) == (ssize_t)sizeof code ? DPE_NO_INPUT : DPE_IO);
}

/* Fork and become the tool. DPE_NO_INPUT when its first word cannot be started. */
static dpe_status start(char *const *argv, bool silent, pid_t parent, const sigset_t *mask,
                        struct dpe_error *err)
{
    int why[2];
    int code = 0;
    if (pipe(why) != 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s cannot be started: no pipe to it: %s", argv[0],
                        strerror(errno));
    }
    fcntl(why[0], F_SETFD, FD_CLOEXEC);
    fcntl(why[1], F_SETFD, FD_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        become(argv, silent, parent, mask, why[1]);
    }
    int failed = errno;
    close(why[1]);
    dpe_status status = DPE_OK;
    if (pid < 0) {
        status =
            dpe_fail(err, DPE_NO_MEMORY, "%s cannot be started: %s", argv[0], strerror(failed));
    } else if (read(why[0], &code, sizeof code) == (ssize_t)sizeof code) {
        waitpid(pid, NULL, 0);
        bool limits = code == EMFILE || code == ENFILE || code == ENOMEM || code == EAGAIN;
        status = dpe_fail(err, limits ? DPE_NO_MEMORY : DPE_NO_INPUT, "%s cannot be started: %s",
                          argv[0], strerror(code));
    }
    close(why[0]);
    running = status == DPE_OK ? pid : 0;
    return status;
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
    return dpe_fail(err, crash ? DPE_INTERNAL : DPE_INCOMPLETE,
                    "%s was ended by signal %d (%s); the same command continues", name, number,
                    strsignal(number));
}

dpe_status tools_run(const char *folder, const struct words *words, bool silent, int *code,
                     struct dpe_error *err)
{
    if (words->failed) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a command line");
    }
    const char *name = words->words[words->program];
    char *path = tools_path(folder, name);
    if (path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    }
    dpe_status status = DPE_OK;
    if (access(path, X_OK) != 0) {
        status = dpe_fail(err, DPE_NO_INPUT, "%s: %s; it is installed beside dpe-calibrate", path,
                          strerror(errno));
        goto done;
    }
    char *argv[CALIBRATE_MAX_WORDS + 1];
    memcpy(argv, words->words, sizeof argv);
    argv[words->program] = path;
    fflush(NULL);
    sigset_t before;
    pid_t parent = getpid();
    block(&before);
    if (asked) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        status = dpe_fail(err, DPE_INCOMPLETE,
                          "stopped by a signal before %s; the same command "
                          "continues",
                          name);
        goto done;
    }
    status = start(argv, silent, parent, &before, err);
    pid_t pid = running;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (status == DPE_OK) {
        status = await(pid, name, code, err);
    }
done:
    free(path);
    return status;
}
