/* What belongs to each length: its files, and where its sweep begins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "eval/niah/niah.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

dpe_status dpe_calibrate_entries(struct batch *batch, struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->args->detect.job;
    const int64_t trained_length = batch->job.trained_length;
    batch->state.n_entries = job->n_lengths;
    batch->entry = &batch->state.entries[0];
    for (int i = 0; i < job->n_lengths; i++) {
        struct entry *entry = &batch->state.entries[i];
        entry->length = job->lengths[i];
        if (job->n_lengths == 1 && (entry->length >= trained_length || job->tool.force)) {
            break;
        }
        if (entry->length <= trained_length) {
            return dpe_fail(err, DPE_USAGE,
                            "--length %lld: up to the trained length, %lld tokens, the model is "
                            "run unchanged and needs no %s",
                            (long long)entry->length, (long long)trained_length,
                            job->n_lengths > 1
                                ? "entry; leave this length out"
                                : "table; give a larger one (--force makes it all the same)");
        }
        snprintf(entry->folder, sizeof entry->folder, "%lld/", (long long)entry->length);
    }
    return DPE_OK;
}

const char *dpe_calibrate_path(struct batch *batch, const struct entry *entry, const char *name)
{
    const char *folder = batch->args->detect.job.output;
    const char *own = entry != NULL ? entry->folder : "";
    if (folder == NULL) {
        return NULL;
    }
    struct dpe_text path = {0};
    dpe_text_put(&path, "%s/%s%s", folder, own, name);
    if (path.failed || !dpe_make_room(&batch->paths, batch->n_paths, sizeof *batch->paths)) {
        dpe_log_error("out of memory for a path");
        exit(DPE_NO_MEMORY);
    }
    batch->paths[batch->n_paths++] = path.bytes;
    return path.bytes;
}

static bool is_there(struct batch *batch, const struct entry *entry, const char *name)
{
    const char *path = dpe_calibrate_path(batch, entry, name);
    return path != NULL && access(path, F_OK) == 0;
}

bool dpe_calibrate_has_begun(struct batch *batch, const struct entry *entry, const char *name)
{
    char journal[64];
    snprintf(journal, sizeof journal, "%s.journal", name);
    return is_there(batch, entry, name) || is_there(batch, entry, journal);
}

/* Layers that rotate in several ways need several lists of factors; a runtime applies the factor on
 * the logits to what it rotates. */
static bool fits_longrope(const struct batch *batch, const struct dpe_table_values *values)
{
    bool whole = values->inv_freq[values->n_pairs - 1] > 0.0;
    return batch->alike && dpe_table_needs_adapter(values) == 0 &&
           (whole || values->logit_scale == 1.0);
}

/* Of a task as text, which leaves out what is 1. */
static int64_t number_of(const char *spec, const char *key)
{
    size_t n = 0;
    const char *found = dpe_niah_find(spec, key, &n);
    return found != NULL ? strtoll(found, NULL, 10) : 1;
}

/* "keys=K,values=V,asked=M" that the pilot chose; "" where there was no pilot. */
static void look_at_task(struct dpe_h5 *table, struct entry *entry)
{
    DPE_OWNED char *spec = NULL;
    DPE_OWNED char *pilot = NULL;
    if (dpe_h5_get_attr_text(table, "/detect", "pilot", &pilot, NULL) == DPE_OK &&
        dpe_h5_get_attr_text(table, "/detect", "niah_parameters", &spec, NULL) == DPE_OK) {
        snprintf(entry->task, sizeof entry->task, "keys=%lld,values=%lld,asked=%lld,spare=%lld",
                 (long long)number_of(spec, "keys"), (long long)number_of(spec, "values"),
                 (long long)number_of(spec, "asked"), (long long)number_of(spec, "spare"));
    }
}

void dpe_calibrate_read_validated(struct dpe_h5 *table, const char *folder,
                                  struct dpe_scores_result *validated)
{
    const struct dpe_dataset_kind *kind = &dpe_validated_scores_kinds[0];
    if (dpe_datasets_get(kind, validated, folder, NULL, table, NULL) != DPE_OK) {
        dpe_datasets_free(kind, validated);
    }
}

/* The method that the check holds the table against: the best of those that the validation did,
 * but for the table's own plan and those of a sweep. */
static void find_rival(const struct dpe_scores_result *found, const char *kept, bool needles,
                       char method[CALIBRATE_METHOD])
{
    const double *means = needles ? found->recall_mean : found->perplexity;
    double best = (double)NAN;
    method[0] = '\0';
    for (int64_t i = 1; means != NULL && i < found->n[DPE_VALIDATED_PLAN]; i++) {
        const char *name = found->plan[i];
        const bool better = isnan(best) || (needles ? means[i] > best : means[i] < best);
        const bool own =
            strcmp(name, "base") == 0 || strcmp(name, "joint") == 0 || strcmp(name, kept) == 0;
        /* A name that fills its place may have been cut. */
        if (!own && isfinite(means[i]) && better && strlen(name) < CALIBRATE_METHOD - 1) {
            best = means[i];
            snprintf(method, CALIBRATE_METHOD, "%s", name);
        }
    }
}

/* What the longest sweep says of the model, in its trained length, and of other methods. */
static void look_at_validation(struct dpe_h5 *table, bool needles, struct calibrate_state *state)
{
    struct dpe_scores_result validated = {.recall = NULL};
    DPE_OWNED char *kept = NULL;
    dpe_calibrate_read_validated(table, needles ? "/validate/niah" : "/validate/ppl", &validated);
    const bool named = dpe_h5_get_attr_text(table, "/validate", "kept", &kept, NULL) == DPE_OK;
    find_rival(&validated, named ? kept : "", needles, state->rival);
    dpe_datasets_free(&dpe_validated_scores_kinds[0], &validated);
}

/* The method for runtimes as they are, which gets forms of its own where the table needs an
 * adapter. */
static void look_at_plain(struct dpe_h5 *table, struct entry *entry)
{
    DPE_OWNED char *method = NULL;
    if (dpe_h5_get_attr_text(table, "/validate", "without_adapter", &method, NULL) == DPE_OK &&
        strcmp(method, "rope") != 0 && strlen(method) < sizeof entry->plain && !entry->factors) {
        snprintf(entry->plain, sizeof entry->plain, "%s", method);
    }
}

dpe_status dpe_calibrate_look(struct batch *batch, struct dpe_error *err)
{
    struct entry *entry = batch->entry;
    struct dpe_table *table = NULL;
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    const char *path = dpe_calibrate_path(batch, entry, "detect.h5");
    entry->other = false;
    entry->task[0] = '\0';
    entry->plain[0] = '\0';
    entry->factors = false;
    if (access(path, F_OK) != 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_table_load(path, &table, err));
    entry->other = dpe_table_has_method(dpe_table_values(table)) != 0;
    entry->factors = fits_longrope(batch, dpe_table_values(table));
    dpe_table_close(table);
    DPE_TRY(dpe_h5_open(path, &file, err));
    look_at_task(file, entry);
    look_at_plain(file, entry);
    batch->state.texts = !dpe_h5_has(file, "/validate/niah") && dpe_h5_has(file, "/validate/ppl");
    if (entry == &batch->state.entries[batch->state.n_entries - 1]) {
        look_at_validation(file, !batch->state.texts, &batch->state);
    }
    return DPE_OK;
}
