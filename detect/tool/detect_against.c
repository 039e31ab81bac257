/* Methods that the result is held against: --against with a table of dpe-eval tune stands for the
 * settings that it chose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

/* A method's name or spec never ends like this, except that of a DPE table. */
static bool is_file(const char *method)
{
    size_t n = strlen(method);
    return n > 3 && strcmp(method + n - 3, ".h5") == 0 && strncmp(method, "table:", 6) != 0;
}

static dpe_status take(struct dpe_detect_arguments *args, const char *setting,
                       struct dpe_error *err)
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
static dpe_status take_all(struct dpe_detect_arguments *args, const struct dpe_tune_result *tune,
                           struct dpe_error *err)
{
    char there[256] = "";
    int before = args->n_against;
    for (int64_t i = 0; i < tune->n[0]; i++) {
        const struct dpe_tuned *one = &tune->tuned[i];
        if (one->length == args->job.length) {
            if (strcmp(one->chosen, "rope") != 0) {
                DPE_TRY(take(args, one->chosen, err));
            }
        } else if (i == 0 || one->length != one[-1].length) {
            dpe_append(there, sizeof there, "%s%lld", there[0] != '\0' ? ", " : "",
                       (long long)one->length);
        }
    }
    if (args->n_against == before) {
        return dpe_fail(err, DPE_USAGE,
                        "expected settings for --length %lld, found those for %s; run dpe-eval "
                        "tune at that length",
                        (long long)args->job.length, there[0] != '\0' ? there : "rope alone");
    }
    return DPE_OK;
}

static dpe_status read_file(struct dpe_detect_arguments *args, const char *path,
                            struct dpe_error *err)
{
    struct dpe_h5 *table = NULL;
    struct dpe_tune_result tune = {0};
    dpe_status status = dpe_h5_open(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    status = !dpe_h5_has(table, "/tune/chosen")
                 ? dpe_fail(err, DPE_BAD_DATA,
                            "expected a finished table of dpe-eval tune, found another")
                 : dpe_datasets_get(&dpe_tune_kind, &tune, "/tune", "chosen length", table, err);
    if (status == DPE_OK) {
        status = take_all(args, &tune, err);
    }
    dpe_datasets_free(&dpe_tune_kind, &tune);
    dpe_h5_close(table);
    return status == DPE_OK ? DPE_OK : dpe_fail_prefix(err, "%s", path);
}

dpe_status dpe_detect_against_read(struct dpe_detect_arguments *args, struct dpe_error *err)
{
    const char *given[DETECT_MOST_AGAINST];
    int n = args->n_against;
    memcpy(given, args->against, sizeof given);
    args->n_against = 0;
    for (int i = 0; i < n; i++) {
        dpe_status status =
            is_file(given[i]) ? read_file(args, given[i], err) : take(args, given[i], err);
        if (status != DPE_OK) {
            return dpe_fail_prefix(err, "--against");
        }
    }
    return DPE_OK;
}

void dpe_detect_against_free(struct dpe_detect_arguments *args)
{
    for (int i = 0; i < args->n_tuned; i++) {
        free(args->tuned[i]);
    }
    args->n_tuned = 0;
}
