/* The folder that a calibration works in: made, or one where it was begun before. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"

bool dpe_calibrate_is_there(struct batch *batch, const struct entry *entry, const char *name)
{
    const char *path = dpe_calibrate_path(batch, entry, name);
    return path != NULL && access(path, F_OK) == 0;
}

bool dpe_calibrate_has_begun(struct batch *batch, const struct entry *entry, const char *name)
{
    char journal[64];
    snprintf(journal, sizeof journal, "%s.journal", name);
    bool has =
        dpe_calibrate_is_there(batch, entry, name) || dpe_calibrate_is_there(batch, entry, journal);
    dpe_calibrate_drop_paths(batch);
    return has;
}

static bool any_begun(struct batch *batch)
{
    bool any = false;
    for (int e = 0; e < batch->state.n_entries; e++) {
        any = any || dpe_calibrate_has_begun(batch, &batch->state.entries[e], "detect.h5");
    }
    return any;
}

static dpe_status refuse_foreign(struct batch *batch, const char *name, struct dpe_error *err)
{
    const char *path = dpe_calibrate_path(batch, NULL, name);
    return access(path, F_OK) != 0
               ? DPE_OK
               : dpe_fail(err, DPE_CANNOT_CREATE,
                          "%s: exists, but no calibration was begun in this folder for these "
                          "lengths: it has no detect.h5 of them; choose another folder, or "
                          "replace it with --force",
                          path);
}

/* In the folder of a length that is new here, a form that dpe-calibrate did not write. */
static dpe_status refuse_in_new_entry(struct batch *batch, const char *name, struct dpe_error *err)
{
    for (int e = 0; e < batch->state.n_entries; e++) {
        const char *folder = batch->state.entries[e].folder;
        if (folder[0] != '\0' && strncmp(name, folder, strlen(folder)) == 0 &&
            !dpe_calibrate_has_begun(batch, &batch->state.entries[e], "detect.h5")) {
            return dpe_calibrate_forms_has(batch, name) ? DPE_OK : refuse_foreign(batch, name, err);
        }
    }
    return DPE_OK;
}

/* The forms are written again each time, so files of their names must be ours. What dpe-eval would
 * refuse after the sweep is found before it. */
static dpe_status refuse_foreign_files(struct batch *batch, struct dpe_error *err)
{
    if (any_begun(batch)) {
        return dpe_calibrate_export_each(batch, refuse_in_new_entry, err);
    }
    DPE_TRY(dpe_calibrate_export_each(batch, refuse_foreign, err));
    for (int e = 0; e < batch->state.n_entries && batch->chooses; e++) {
        char name[96];
        snprintf(name, sizeof name, "%sablate.h5", batch->state.entries[e].folder);
        DPE_TRY(refuse_foreign(batch, name, err));
    }
    const char *const names[] = {"check.h5", "kld-trained.h5", "kld.h5"};
    const size_t n = batch->diverges ? 3 : 1;
    for (size_t i = 0; i < n; i++) {
        DPE_TRY(refuse_foreign(batch, names[i], err));
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_make_folder(struct batch *batch, bool *made, struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->args->detect.job;
    struct stat model;
    struct stat output;
    *made = mkdir(job->output, 0777) == 0;
    if (!*made && errno != EEXIST) {
        bool denied = errno == EACCES || errno == EPERM;
        return dpe_fail(err, denied ? DPE_PERMISSION : DPE_CANNOT_CREATE,
                        "%s: cannot be created: %s", job->output[0] != '\0' ? job->output : "\"\"",
                        strerror(errno));
    }
    if (stat(job->output, &output) != 0 || !S_ISDIR(output.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: exists and is not a folder", job->output);
    }
    if (stat(job->model, &model) == 0 && model.st_dev == output.st_dev &&
        model.st_ino == output.st_ino) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s is the model's folder, where config.json would be replaced; choose another folder",
            job->output);
    }
    if (*made || job->tool.force) {
        return DPE_OK;
    }
    DPE_TRY(refuse_foreign_files(batch, err));
    return dpe_calibrate_export_each(batch, dpe_calibrate_forms_check, err);
}
