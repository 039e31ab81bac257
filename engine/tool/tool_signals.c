/* Signals that request a stop, and mapped files that can no longer be read. */
#include "engine/tool/tool.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

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

void dpe_signals_install(void)
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
