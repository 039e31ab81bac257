/* Paths that options mean, and what an output may replace: never an input, and only a regular file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/system/folder.h"
#include "engine/tool/tool.h"

/* Paths that were found, until the process ends; NULL where there is no room for another. */
static char **keep_path(void)
{
    enum { MOST = 64 };
    static char *kept[MOST];
    static int n;
    return n < MOST ? &kept[n++] : NULL;
}

const char *dpe_tool_model(const char *arg)
{
    char *folder = dpe_folder_find(arg);
    if (folder == NULL) {
        return arg;
    }
    if (dpe_folder_has_both(folder)) {
        dpe_log_warning(
            "%s: holds safetensors and GGUF files; the safetensors are used (-m FILE.gguf "
            "takes a GGUF file)",
            arg);
    }
    char **kept = keep_path();
    if (kept == NULL) {
        free(folder);
        return arg;
    }
    *kept = folder;
    return folder;
}

const char *dpe_tool_table(const char *arg)
{
    char **kept = dpe_is_folder(arg) ? keep_path() : NULL;
    if (kept == NULL) {
        return arg;
    }
    char *table = dpe_folder_join(arg, "table.h5");
    char *config = dpe_folder_join(arg, "config.json");
    bool other =
        table != NULL && config != NULL && access(table, F_OK) != 0 && access(config, F_OK) == 0;
    *kept = other ? config : table;
    free(other ? table : config);
    return *kept != NULL ? *kept : arg;
}

/* Whether `path` is `input` or lies below it; both resolved. */
static bool lies_in(const char *path, const char *input)
{
    size_t n = strlen(input);
    return strncmp(path, input, n) == 0 && (path[n] == '\0' || path[n] == '/' || n == 1);
}

dpe_status dpe_tool_check_output(const char *output, const char *const *inputs, size_t n,
                                 struct dpe_error *err)
{
    DPE_OWNED char *path = realpath(output, NULL);
    for (size_t i = 0; i < n && path != NULL; i++) {
        DPE_OWNED char *input = inputs[i] != NULL ? realpath(inputs[i], NULL) : NULL;
        if (input != NULL && lies_in(path, input)) {
            return dpe_fail(err, DPE_CANNOT_CREATE,
                            "%s is one of the input files in %s, which is never replaced; "
                            "choose another output",
                            output, inputs[i]);
        }
    }
    return DPE_OK;
}

/* Whether the piece of text names the file that `info` is of. */
static bool names_file(const char *text, size_t n, const struct stat *info)
{
    char path[4096];
    struct stat other;
    if (n == 0 || n >= sizeof path) {
        return false;
    }
    memcpy(path, text, n);
    path[n] = '\0';
    return stat(path, &other) == 0 && other.st_dev == info->st_dev && other.st_ino == info->st_ino;
}

/* Files are named alone, after an option's '=', in lists such as keys=2,template=FILE, and inside
 * a method (select:k=4,over=table:FILE): at the beginning of the word or after '=', ',' or ':', up
 * to a ',' or to the end. */
static bool word_names_file(const char *word, const struct stat *info)
{
    for (const char *at = word;; at++) {
        if (names_file(at, strlen(at), info) || names_file(at, strcspn(at, ","), info)) {
            return true;
        }
        at = strpbrk(at, "=,:");
        if (at == NULL) {
            return false;
        }
    }
}

dpe_status dpe_tool_check_words(const char *output, int argc, char *const *argv,
                                struct dpe_error *err)
{
    struct stat info;
    if (stat(output, &info) != 0) {
        return DPE_OK;
    }
    for (int i = 1; i < argc; i++) {
        bool output_long = strncmp(argv[i], "--out", 5) == 0;
        if (output_long || strncmp(argv[i], "-o", 2) == 0) {
            i += output_long ? strchr(argv[i], '=') == NULL : argv[i][2] == '\0';
        } else if (word_names_file(argv[i], &info)) {
            return dpe_fail(err, DPE_CANNOT_CREATE,
                            "%s is an input ('%s'), which is never replaced; choose another "
                            "output",
                            output, argv[i]);
        }
    }
    return DPE_OK;
}

dpe_status dpe_tool_check_folder(const char *path, struct dpe_error *err)
{
    struct stat info;
    int length = 0;
    const size_t n = (size_t)(dpe_folder_name(path, &length) - path);
    DPE_OWNED char *folder = n > 0 ? strndup(path, n) : NULL;
    DPE_TRY(n > 0 ? DPE_MADE(folder, err, "out of memory for a path") : DPE_OK);
    if (folder != NULL && stat(folder, &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: cannot be created: the folder %s is not there",
                        path, folder);
    }
    return DPE_OK;
}

dpe_status dpe_tool_check_new(const char *path, bool force, struct dpe_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno == ELOOP ? dpe_fail(err, DPE_CANNOT_CREATE, "%s: cannot be written: %s", path,
                                         strerror(ELOOP))
                              : DPE_OK;
    }
    if (!S_ISREG(info.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE,
                        "%s: expected a regular file or a new name, found something else", path);
    }
    return force ? DPE_OK
                 : dpe_fail(err, DPE_MISMATCH, "%s: exists already; --force replaces it", path);
}
