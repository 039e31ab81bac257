/**
 * @file child.h
 * Programs that ours starts: through posix_spawn, without a shell.
 *
 * A child gets our environment, the default action for the signals that we catch or that
 * dpe_tool_start ignores, and SIGTERM when we end without having waited for it.
 */
#ifndef DPE_CHILD_H
#define DPE_CHILD_H

#include "engine/base/base.h"

/** Forward SIGTERM, SIGINT, SIGHUP and SIGUSR1 to the child of dpe_child_run, and remember them.
 * One that the terminal sent to the child as well is not sent twice; one that was ignored when we
 *  started stays ignored. After the third of TERM, INT and HUP the child has 10 s before it is
 *  killed: mpirun of Open MPI 4.1 may ignore them. */
void dpe_child_forward_signals(void);

/** Run a program in the foreground, on our standard streams (`silent`: its standard output goes to
 *  /dev/null). argv[0] is a path, or a name in PATH; argv ends with NULL. *code: its exit status.
 *  DPE_NO_INPUT: it cannot be started; DPE_INCOMPLETE: a forwarded signal came before it was
 *  started, or it was ended by a signal; DPE_INTERNAL: it crashed. */
dpe_status dpe_child_run(char *const *argv, bool silent, int *code, struct dpe_error *err);

/** Limits of dpe_child_filter. */
struct dpe_child_limits {
    double seconds; /**< it is killed after so many */
    /** Asked several times a second; anything but DPE_OK kills the child and is returned. NULL:
     *  never. (dpe_signals_poll) */
    dpe_status (*poll)(void *user, struct dpe_error *err);
    void *user;
};
/** Run a program as a filter: standard input is the n bytes of `input`, `output` gets what it
 *  writes. In a process group of its own, which is killed at a limit. DPE_NO_INPUT: it cannot be
 *  started; DPE_IO: it ended with another exit status than 0, by a signal, or too late; the message
 *  has its first words on standard error. DPE_NO_MEMORY. */
dpe_status dpe_child_filter(char *const *argv, const char *input, size_t n,
                            const struct dpe_child_limits *limits, struct dpe_text *output,
                            struct dpe_error *err);

#endif
