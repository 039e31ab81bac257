/* One tool after another: started, stopped with us, its exit code handed on. */
#include "detect/calibrate/calibrate_tool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/system/child.h"
#include "engine/system/platform.h"
#include "outputs/storage/storage.h"

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

void dpe_calibrate_argv_add_path(struct argv *argv, const char *option, const char *folder,
                                 const char *name)
{
    char *path = dpe_calibrate_tools_path(folder, name);
    if (option != NULL) {
        dpe_calibrate_argv_add(argv, option);
    }
    dpe_calibrate_argv_add(argv, path != NULL ? path : "");
    argv->failed = argv->failed || path == NULL;
    free(path);
}

dpe_status dpe_calibrate_tools_folder(char **folder, struct dpe_error *err)
{
    char path[PATH_MAX + 1];
    if (!dpe_program_path(path, sizeof path)) {
        return dpe_fail(err, DPE_IO, "the folder of dpe-calibrate cannot be found: %s", strerror(errno));
    }
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

dpe_status dpe_calibrate_run(struct batch *batch, struct argv *argv, bool silent,
                             struct dpe_error *err)
{
    dpe_status status = dpe_calibrate_tools_run(batch->tools, argv, silent, &batch->code, err);
    dpe_calibrate_argv_free(argv);
    return status;
}

/* Print what a dry run wrote, and add up its sums. */
static void hand_on(struct batch *batch, FILE *from)
{
    char line[512];
    double value = 0.0;
    rewind(from);
    while (fgets(line, sizeof line, from) != NULL) {
        fputs(line, stdout);
        if (sscanf(line, "tokens %lf", &value) == 1) {
            batch->tokens += value;
        } else if (sscanf(line, "operations %lf", &value) == 1) {
            batch->operations += value;
        }
    }
}

dpe_status dpe_calibrate_try(struct batch *batch, struct argv *argv, struct dpe_error *err)
{
    FILE *text = tmpfile();
    int own = text != NULL && fflush(stdout) == 0 ? dup(STDOUT_FILENO) : -1;
    if (own < 0 || dup2(fileno(text), STDOUT_FILENO) < 0) {
        dpe_status failed = dpe_fail_errno(err, errno, "a temporary file", "cannot be created");
        dpe_calibrate_argv_free(argv);
        if (text != NULL) {
            fclose(text);
        }
        if (own >= 0) {
            close(own);
        }
        return failed;
    }
    dpe_status status = dpe_calibrate_run(batch, argv, false, err);
    if (dup2(own, STDOUT_FILENO) < 0 && status == DPE_OK) {
        status = dpe_fail_errno(err, errno, "standard output", "cannot be restored");
    }
    close(own);
    hand_on(batch, text);
    fclose(text);
    return status;
}
