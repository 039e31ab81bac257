/* One tool after another: started, stopped with us, its exit code handed on. */
#include "detect/calibrate/calibrate_tool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/child.h"

/* ----------------------------------------------------------------------------------- command lines
 */

void dpe_calibrate_argv_add(struct argv *argv, const char *word)
{
    char *copy = argv->n < CALIBRATE_MAX_ARGS ? strdup(word) : NULL;
    if (copy == NULL) {
        argv->failed = true;
        return;
    }
    argv->items[argv->n++] = copy;
}

void dpe_calibrate_argv_add_pair(struct argv *argv, const char *option, const char *value)
{
    if (value != NULL) {
        dpe_calibrate_argv_add(argv, option);
        dpe_calibrate_argv_add(argv, value);
    }
}

void dpe_calibrate_argv_add_number(struct argv *argv, const char *option, int64_t value,
                                   int64_t least)
{
    char text[32];
    if (value >= least) {
        snprintf(text, sizeof text, "%lld", (long long)value);
        dpe_calibrate_argv_add_pair(argv, option, text);
    }
}

void dpe_calibrate_argv_free(struct argv *argv)
{
    for (size_t i = 0; i < argv->n; i++) {
        free(argv->items[i]);
    }
    *argv = (struct argv){0};
}

/* ------------------------------------------------------------------------------------------- tools
 */

char *dpe_calibrate_tools_path(const char *folder, const char *name)
{
    /* Some of these are arguments by themselves, where -x would be an option. */
    const char *before = folder[0] == '-' ? "./" : "";
    size_t n = strlen(before) + strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL) {
        snprintf(path, n, "%s%s/%s", before, folder, name);
    }
    return path;
}

dpe_status dpe_calibrate_tools_folder(char **folder, struct dpe_error *err)
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

dpe_status dpe_calibrate_tools_run(const char *folder, const struct argv *argv, bool silent,
                                   int *code, struct dpe_error *err)
{
    if (argv->failed) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a command line");
    }
    char *path = dpe_calibrate_tools_path(folder, argv->items[argv->program]);
    if (path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    }
    dpe_status status = DPE_OK;
    if (access(path, X_OK) != 0) {
        status = dpe_fail(err, DPE_NO_INPUT, "%s: %s; install it in the folder of dpe-calibrate",
                          path, strerror(errno));
        goto done;
    }
    char *command[CALIBRATE_MAX_ARGS + 1];
    memcpy(command, argv->items, sizeof command);
    command[argv->program] = path;
    status = dpe_child_run(command, silent, code, err);
    if (status == DPE_INCOMPLETE || status == DPE_INTERNAL) {
        struct dpe_error why = *err;
        dpe_fail(err, status, "%s; run the same command to continue", why.text);
    }
done:
    free(path);
    return status;
}
