/* The method that the check holds the table against: the best of those that the sweep's validation did. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/h5/h5.h"

/* Plans that a validation has of its own. */
static bool is_own(const char *name)
{
    static const char *const own[] = {"rope", "base", "joint", "single"};
    bool found = false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        found = found || strcmp(name, own[i]) == 0;
    }
    return found;
}

static void choose(char *const *names, const double *means, size_t n, bool needles,
                   char method[CALIBRATE_METHOD])
{
    double best = NAN;
    for (size_t i = 0; i < n; i++) {
        bool better = isnan(best) || (needles ? means[i] > best : means[i] < best);
        /* A name that fills its place may have been cut. */
        if (!is_own(names[i]) && isfinite(means[i]) && better &&
            strlen(names[i]) < CALIBRATE_METHOD - 1) {
            best = means[i];
            snprintf(method, CALIBRATE_METHOD, "%s", names[i]);
        }
    }
}

void dpe_calibrate_rival(const struct batch *batch, char method[CALIBRATE_METHOD])
{
    bool needles = dpe_calibrate_needles(batch->args);
    const struct entry *longest = &batch->entries[batch->n_entries - 1];
    char *path = batch->args->job.output != NULL
                     ? dpe_calibrate_entry_path(batch, longest, "detect.h5")
                     : NULL;
    struct dpe_h5 *table = NULL;
    char **names = NULL;
    void *means = NULL;
    size_t n = 0;
    int rank = 0;
    int64_t dims[5] = {0};
    method[0] = '\0';
    if (path != NULL && access(path, R_OK) == 0 && dpe_h5_open(path, &table, NULL) == DPE_OK &&
        dpe_h5_has(table, "/validated_plan") &&
        dpe_h5_get_strings(table, "/validated_plan", &names, &n, NULL) == DPE_OK &&
        dpe_h5_get(table, needles ? "/validate/niah/recall_mean" : "/validate/ppl/perplexity",
                   DPE_COL_F64, &means, &rank, dims, NULL) == DPE_OK &&
        rank == 1 && dims[0] == (int64_t)n) {
        choose(names, means, n, needles, method);
    }
    dpe_strings_free(names, n);
    free(means);
    dpe_h5_close(table);
    free(path);
}

int dpe_calibrate_check_methods(const struct calibrate_arguments *args)
{
    const char *rule = dpe_calibrate_value(args, "--select");
    const char *against = dpe_calibrate_value(args, "--against");
    bool joint = rule == NULL || strcmp(rule, "joint") == 0;
    bool has_rival = args->tunes || (against != NULL ? strcmp(against, "none") != 0 : joint);
    return 2 + has_rival + !dpe_calibrate_frequencies(args);
}
