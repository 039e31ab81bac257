/* Tables without a checksum, in a child process. */
#include "outputs/h5/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/system/child.h"
#include "engine/system/platform.h"
#include "outputs/storage/storage.h"
#include "outputs/table/trailer.h"

/* The parent puts its process number there; a variable that was inherited from elsewhere, or set by
 * a user, does not match. */
static const char variable[] = "DPE_UNCHECKED_PARENT";

bool dpe_h5_is_unchecked(void)
{
    const char *value = getenv(variable);
    char parent[32];
    snprintf(parent, sizeof parent, "%ld", (long)getppid());
    return value != NULL && strcmp(value, parent) == 0;
}

static bool has_checksum(const char *path)
{
    uint64_t expected = 0;
    uint64_t found = 0;
    DPE_SCOPED(dpe_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && dpe_trailer_check(fd, &expected, &found) == DPE_TRAILER_WHOLE;
}

/* The child crashed: name the tables that may be the reason. */
static dpe_status crashed(const char *const *paths, size_t n, const char *why,
                          struct dpe_error *err)
{
    const char *first = NULL;
    size_t more = 0;
    for (size_t i = 0; i < n; i++) {
        if (!has_checksum(paths[i])) {
            more += first != NULL;
            first = first != NULL ? first : paths[i];
        }
    }
    char others[64] = "";
    if (more > 0) {
        snprintf(others, sizeof others, " (or one of %zu more without a checksum)", more);
    }
    return first == NULL ? dpe_fail(err, DPE_INTERNAL, "%s", why)
                         : dpe_fail(err, DPE_BAD_DATA,
                                    "%s%s: is damaged: the process that read it crashed: %s", first,
                                    others, why);
}

dpe_status dpe_h5_unchecked_run(char *const *argv, const char *const *paths, size_t n, int *code,
                                struct dpe_error *err)
{
    char program[4096];
    char parent[32];
    if (!dpe_program_path(program, sizeof program)) {
        return dpe_fail_errno(err, errno, argv[0], "the program cannot be found");
    }
    size_t n_args = 1;
    while (argv[n_args - 1] != NULL) {
        n_args++;
    }
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    DPE_OWNED char **copy = dpe_alloc(n_args, sizeof *copy);
    if (copy == NULL || setenv(variable, parent, 1) != 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a child process");
    }
    memcpy(copy, argv, n_args * sizeof *copy);
    copy[0] = program;
    struct dpe_error why = {0};
    dpe_child_forward_signals();
    dpe_status status = dpe_child_run(copy, false, code, &why);
    if (status == DPE_INTERNAL) {
        return crashed(paths, n, why.text, err);
    }
    return status == DPE_OK ? status : dpe_fail(err, status, "%s", why.text);
}
