/* One tool after another: started, stopped with us, its exit code handed on. */
#include "detect/calibrate/calibrate_tool.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/child.h"

/* ------------------------------------------------------------------------------------------- words
 */

void dpe_calibrate_words_add(struct words *words, const char *word)
{
    char *copy = words->n < CALIBRATE_MAX_WORDS ? strdup(word) : NULL;
    if (copy == NULL) {
        words->failed = true;
        return;
    }
    words->words[words->n++] = copy;
}

void dpe_calibrate_words_add_pair(struct words *words, const char *option, const char *value)
{
    if (value != NULL) {
        dpe_calibrate_words_add(words, option);
        dpe_calibrate_words_add(words, value);
    }
}

void dpe_calibrate_words_add_number(struct words *words, const char *option, int64_t value,
                                    int64_t least)
{
    char text[32];
    if (value >= least) {
        snprintf(text, sizeof text, "%lld", (long long)value);
        dpe_calibrate_words_add_pair(words, option, text);
    }
}

void dpe_calibrate_words_free(struct words *words)
{
    for (size_t i = 0; i < words->n; i++) {
        free(words->words[i]);
    }
    *words = (struct words){0};
}

/* ------------------------------------------------------------------------------------------- tools
 */

char *dpe_calibrate_tools_path(const char *folder, const char *name)
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

dpe_status dpe_calibrate_tools_run(const char *folder, const struct words *words, bool silent,
                                   int *code, struct dpe_error *err)
{
    if (words->failed) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a command line");
    }
    char *path = dpe_calibrate_tools_path(folder, words->words[words->program]);
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
    status = dpe_child_run(argv, silent, code, err);
    if (status == DPE_INCOMPLETE || status == DPE_INTERNAL) {
        struct dpe_error why = *err;
        dpe_fail(err, status, "%s; the same command continues", why.text);
    }
done:
    free(path);
    return status;
}
