/* Libraries that load for ever. OpenBLAS reserves some hundred MiB of addresses while it is loaded,
 * before main, and where it does not get them (a small ulimit -v) it tries again without end. What
 * it wants differs between versions, so it is not asked but timed. */
#include "engine/tool/tool_load.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "engine/base/base.h"

enum { MOST_SECONDS = 2 }; /* of the processor's time; a tenth of one is much */

static void set_timer(time_t seconds)
{
    const struct itimerval timer = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

static bool addresses_are_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static void give_up(int signal)
{
    static const char words[] =
        "error: OpenBLAS does not get the addresses that it reserves while it is loaded, and tries "
        "for ever; allow more with ulimit -v (its unit is KiB; 1000000 is enough to load)\n";
    (void)signal;
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) {
        _exit(DPE_NO_MEMORY);
    }
    _exit(DPE_NO_MEMORY);
}

static void before_libraries(void)
{
    if (addresses_are_limited()) {
        struct sigaction action = {.sa_handler = give_up};
        sigemptyset(&action.sa_mask);
        sigaction(SIGPROF, &action, NULL);
        set_timer(MOST_SECONDS);
    }
}

/* Functions here run before those of any library. */
__attribute__((section(".preinit_array"),
               used)) static void (*const at_load)(void) = before_libraries;

/* Runs behind those of all libraries by itself; who calls it has this file linked. */
__attribute__((constructor)) void dpe_tool_loaded(void)
{
    if (addresses_are_limited()) {
        set_timer(0);
        signal(SIGPROF, SIG_DFL);
    }
}
