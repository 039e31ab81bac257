/* Methods that the result is held against: --against with a table of dpe-eval tune stands for the
 * settings that it chose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "outputs/h5/h5.h"

/* A method's name or spec never ends like this, except that of a DPE table. */
static bool is_file(const char *method)
{
    size_t n = strlen(method);
    return n > 3 && strcmp(method + n - 3, ".h5") == 0 && strncmp(method, "table:", 6) != 0;
}

static dpe_status take(struct detect_arguments *args, const char *setting, struct dpe_error *err)
{
    if (args->n_against == DETECT_MOST_AGAINST) {
        return dpe_fail(err, DPE_USAGE, "expected at most %d methods with those of its tables",
                        DETECT_MOST_AGAINST);
    }
    char *copy = strdup(setting);
    if (copy == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a method");
    }
    args->tuned[args->n_tuned++] = copy;
    args->against[args->n_against++] = copy;
    return DPE_OK;
}

/* The settings for this length; rope has none, and is validated anyway. */
static dpe_status take_all(struct detect_arguments *args, const char *path, char *const *chosen,
                           const int64_t *length, size_t n, struct dpe_error *err)
{
    char there[256] = "";
    int before = args->n_against;
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n && status == DPE_OK; i++) {
        size_t used = strlen(there);
        if (length[i] == args->job.length) {
            status = strcmp(chosen[i], "rope") == 0 ? DPE_OK : take(args, chosen[i], err);
        } else if ((i == 0 || length[i] != length[i - 1]) && used + 24 < sizeof there) {
            snprintf(there + used, sizeof there - used, "%s%lld", used > 0 ? ", " : "",
                     (long long)length[i]);
        }
    }
    if (status == DPE_OK && args->n_against == before) {
        return dpe_fail(err, DPE_USAGE,
                        "%s: expected settings for --length %lld, found those for %s; run dpe-eval "
                        "tune at that length",
                        path, (long long)args->job.length, there[0] != '\0' ? there : "rope alone");
    }
    return status;
}

static dpe_status read_file(struct detect_arguments *args, const char *path, struct dpe_error *err)
{
    struct dpe_h5 *table = NULL;
    char **chosen = NULL;
    void *length = NULL;
    size_t n = 0;
    int rank = 0;
    int64_t dims[5] = {0};
    dpe_status status = dpe_h5_open(path, &table, err);
    if (status == DPE_OK && !dpe_h5_has(table, "/tune/chosen")) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: expected a finished table of dpe-eval tune, found another", path);
    }
    if (status == DPE_OK) {
        status = dpe_h5_get_strings(table, "/tune/chosen", &chosen, &n, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_get(table, "/tune/length", DPE_COL_I64, &length, &rank, dims, err);
    }
    if (status == DPE_OK && (rank != 1 || dims[0] != (int64_t)n)) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: /tune/length: expected one for each of %zu methods, found %lld",
                          path, n, (long long)dims[0]);
    }
    if (status == DPE_OK) {
        status = take_all(args, path, chosen, length, n, err);
    }
    free(length);
    dpe_strings_free(chosen, n);
    dpe_h5_close(table);
    return status;
}

dpe_status dpe_detect_against_read(struct detect_arguments *args, struct dpe_error *err)
{
    const char *given[DETECT_MOST_AGAINST];
    int n = args->n_against;
    memcpy(given, args->against, sizeof given);
    args->n_against = 0;
    for (int i = 0; i < n; i++) {
        dpe_status status = DPE_OK;
        if (is_file(given[i])) {
            status = read_file(args, given[i], err);
        } else if (args->n_against < DETECT_MOST_AGAINST) {
            args->against[args->n_against++] = given[i];
        } else {
            status =
                dpe_fail(err, DPE_USAGE, "expected at most %d methods with those of its tables",
                         DETECT_MOST_AGAINST);
        }
        if (status != DPE_OK) {
            return dpe_fail_prefix(err, "--against");
        }
    }
    return DPE_OK;
}

void dpe_detect_against_free(struct detect_arguments *args)
{
    for (int i = 0; i < args->n_tuned; i++) {
        free(args->tuned[i]);
    }
    args->n_tuned = 0;
}
