/* What belongs to each length: its files, and where its sweep begins. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "detect/sweep/grid.h"
#include "engine/plan/plan.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

dpe_status dpe_calibrate_entries(struct batch *batch, int64_t trained_length, struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->args->job;
    batch->n_entries = job->n_lengths;
    batch->entry = &batch->entries[0];
    for (int i = 0; i < job->n_lengths; i++) {
        struct entry *entry = &batch->entries[i];
        entry->length = job->lengths[i];
        if (job->n_lengths == 1 && (entry->length >= trained_length || job->tool.force)) {
            break;
        }
        if (entry->length <= trained_length) {
            return dpe_fail(err, DPE_USAGE,
                            "--length %lld: up to the trained length, %lld tokens, the model is "
                            "run unchanged and needs no entry; leave this length out",
                            (long long)entry->length, (long long)trained_length);
        }
        snprintf(entry->folder, sizeof entry->folder, "%lld/", (long long)entry->length);
    }
    return DPE_OK;
}

char *dpe_calibrate_entry_path(const struct batch *batch, const struct entry *entry,
                               const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", entry->folder, name);
    return dpe_calibrate_tools_path(batch->args->job.output, full);
}

void dpe_calibrate_argv_add_entry(struct argv *argv, const char *option, const struct batch *batch,
                                  const struct entry *entry, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", entry->folder, name);
    dpe_calibrate_argv_add_path(argv, option, batch->args->job.output, full);
}

/* ------------------------------------------------------------------------------ warm start
 */

/* What the shorter entry's detection says. */
struct shorter {
    int64_t length;   /* that it is for */
    int64_t trained;  /* L0 */
    int64_t *chosen;  /* [n_groups], −1: none */
    uint8_t *informs; /* [n_groups] */
    int64_t n_groups;
    struct dpe_temperature temperature; /* of its table */
    bool other;                         /* its table holds the plan of another method */
};

static dpe_status get_list(struct dpe_h5 *table, const char *name, enum dpe_column_type type,
                           void **data, int64_t *n, struct dpe_error *err)
{
    int rank = 0;
    int64_t dims[5] = {0};
    dpe_status status = dpe_h5_get(table, name, type, data, &rank, dims, err);
    if (status == DPE_OK && rank != 1) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected one axis, found %d", name, rank);
    }
    *n = dims[0];
    return status;
}

static dpe_status read_choices(struct dpe_h5 *table, struct shorter *shorter, struct dpe_error *err)
{
    void *chosen = NULL;
    void *informs = NULL;
    int64_t n = 0;
    dpe_status status =
        get_list(table, "/select/selected_length", DPE_COL_I64, &chosen, &shorter->n_groups, err);
    if (status == DPE_OK) {
        status = get_list(table, "/detect/informative", DPE_COL_U8, &informs, &n, err);
    }
    if (status == DPE_OK && n != shorter->n_groups) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "/detect/informative: expected a value for each of %lld groups",
                          (long long)shorter->n_groups);
    }
    shorter->chosen = chosen;
    shorter->informs = informs;
    return status;
}

static dpe_status read_shorter(const char *path, struct shorter *shorter, struct dpe_error *err)
{
    struct dpe_table *plan = NULL;
    struct dpe_h5 *table = NULL;
    dpe_status status = dpe_table_load(path, &plan, err);
    if (status != DPE_OK) {
        return status;
    }
    shorter->trained = dpe_table_values(plan)->trained_length;
    shorter->other = dpe_table_has_method(dpe_table_values(plan)) != 0;
    shorter->temperature = dpe_table_temperature(dpe_table_values(plan));
    dpe_table_close(plan);
    status = dpe_h5_open(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    status = read_choices(table, shorter, err);
    dpe_h5_close(table);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "%s", path);
}

/* Whether the longer entry tries a detecting length; `longest` is the length of that entry, at
 * which a group is not scaled. L0 and L0/2 are always tried, because the search begins with them:
 * where the shorter entry chose L0/2 alone, leaving L0 out cost the reference model 15 points at
 * 2048 tokens. Where a group's lengths differ beyond noise its neighbours are tried too. A choice
 * that may be chance is kept as it is: leaving it out cost 9 points. */
static bool is_near(const struct shorter *shorter, int64_t length, int64_t longest)
{
    bool near = length == longest || (length <= shorter->trained && 2 * length >= shorter->trained);
    for (int64_t g = 0; g < shorter->n_groups && !near; g++) {
        int64_t chosen = shorter->chosen[g];
        if (chosen > 0 && chosen < shorter->length) {
            /* The squares of the ratio: 4, or 2 for the nearest of lengths that double. */
            double ratio = (double)length / (double)chosen;
            double most = shorter->informs[g] != 0 ? 4.0 : 2.0;
            near = ratio * ratio <= most && most * ratio * ratio >= 1.0;
        }
    }
    return near;
}

/* The grid of --lengths auto: the length and its halves, down to 1/128 of it and to the window that the
 * sweep begins with, which need not be the one that the shorter entry ended with. */
static void limit_lengths(const struct calibrate_arguments *args, const struct shorter *shorter,
                          struct entry *entry)
{
    const char *given = dpe_calibrate_value(args, "--window");
    int64_t window = dpe_detect_default_window(shorter->trained);
    if (given != NULL) {
        (void)dpe_parse_length(given, 1, DPE_MOST_COUNT, &window); /* the options have checked it */
    }
    int n = 0;
    entry->lengths[0] = '\0';
    for (int halves = 7; halves >= 0; halves--) {
        int64_t length = entry->length >> halves;
        if (length >= window && length > 0 && is_near(shorter, length, entry->length)) {
            size_t used = strlen(entry->lengths);
            snprintf(entry->lengths + used, sizeof entry->lengths - used, "%s%lld",
                     n++ > 0 ? "," : "", (long long)length);
        }
    }
    if (n < 2) {
        entry->lengths[0] = '\0';
    }
}

/* Around the temperature that suits the shorter entry, where a search is asked for. */
static void limit_temperature(const struct calibrate_arguments *args, const struct shorter *shorter,
                              struct entry *entry)
{
    const char *given = dpe_calibrate_value(args, "--temperature");
    char text[160];
    entry->temperature[0] = '\0';
    if ((given == NULL || strcmp(given, "auto") == 0) &&
        !dpe_temperature_is_none(&shorter->temperature)) {
        dpe_temperature_text(&shorter->temperature, text);
        snprintf(entry->temperature, sizeof entry->temperature, "auto:%s", text);
    }
}

/* Layers that rotate in several ways need several lists of factors; a runtime applies the factor on
 * the logits to what it rotates. */
static bool fits_longrope(const struct batch *batch, const struct dpe_table_values *values)
{
    bool whole = values->inv_freq[values->n_pairs - 1] > 0.0;
    return batch->alike && dpe_table_needs_adapter(values) == 0 &&
           (whole || values->logit_scale == 1.0);
}

dpe_status dpe_calibrate_look(const struct batch *batch, struct entry *entry, struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    char *path = dpe_calibrate_entry_path(batch, entry, "detect.h5");
    dpe_status status = DPE_OK;
    entry->other = false;
    entry->factors = batch->frequencies && batch->alike;
    if (path == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    } else if (access(path, F_OK) == 0 && (status = dpe_table_load(path, &table, err)) == DPE_OK) {
        entry->other = dpe_table_has_method(dpe_table_values(table)) != 0;
        entry->factors = fits_longrope(batch, dpe_table_values(table));
    }
    dpe_table_close(table);
    free(path);
    return status;
}

dpe_status dpe_calibrate_start(struct batch *batch, struct dpe_error *err)
{
    struct entry *entry = batch->entry;
    const char *given = dpe_calibrate_value(batch->args, "--lengths");
    if (entry == batch->entries || batch->args->scratch) {
        return DPE_OK;
    }
    struct shorter shorter = {.length = entry[-1].length};
    char *path = dpe_calibrate_entry_path(batch, entry - 1, "detect.h5");
    dpe_status status = path != NULL ? read_shorter(path, &shorter, err)
                                     : dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    if (status == DPE_OK && shorter.other) {
        dpe_log_info("%lld tokens: begun from scratch, the shorter entry holds another method",
                     (long long)entry->length);
        goto done;
    }
    if (status == DPE_OK) {
        limit_temperature(batch->args, &shorter, entry);
    }
    if (status == DPE_OK && (given == NULL || strcmp(given, "auto") == 0)) {
        limit_lengths(batch->args, &shorter, entry);
        dpe_log_info("%lld tokens: detecting lengths %s (%s)", (long long)entry->length,
                     entry->lengths[0] != '\0' ? entry->lengths : "auto",
                     entry->lengths[0] != '\0' ? "near those that the shorter entry chose"
                                               : "the shorter entry has no choice");
    }
    if (status == DPE_OK && entry->temperature[0] != '\0') {
        dpe_log_info("%lld tokens: temperature %s, the shorter entry's", (long long)entry->length,
                     entry->temperature);
    }
done:
    free(shorter.chosen);
    free(shorter.informs);
    free(path);
    return status;
}
