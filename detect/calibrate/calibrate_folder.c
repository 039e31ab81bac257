/* The folder that a calibration works in: made, or one where it was begun before. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"

bool dpe_calibrate_has_begun(const struct batch *batch, const char *folder, const char *name)
{
    char full[96];
    char journal_name[112];
    snprintf(full, sizeof full, "%s%s", folder, name);
    snprintf(journal_name, sizeof journal_name, "%s.journal", full);
    char *table = dpe_calibrate_tools_path(batch->args->job.output, full);
    char *journal = dpe_calibrate_tools_path(batch->args->job.output, journal_name);
    bool has = table != NULL && journal != NULL &&
               (access(table, F_OK) == 0 || access(journal, F_OK) == 0);
    free(table);
    free(journal);
    return has;
}

static bool any_begun(const struct batch *batch)
{
    bool any = false;
    for (int e = 0; e < batch->n_entries; e++) {
        any = any || dpe_calibrate_has_begun(batch, batch->entries[e].folder, "detect.h5");
    }
    return any;
}

static dpe_status refuse_foreign(const struct batch *batch, const char *name, struct dpe_error *err)
{
    char *path = dpe_calibrate_tools_path(batch->args->job.output, name);
    dpe_status status = DPE_OK;
    if (path == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    } else if (access(path, F_OK) == 0) {
        status =
            dpe_fail(err, DPE_CANNOT_CREATE,
                     "%s: exists, but no calibration was begun in this folder for these lengths: "
                     "it has no detect.h5 of them; choose another folder, or replace it with "
                     "--force",
                     path);
    }
    free(path);
    return status;
}

/* In the folder of a length that is new here, a form that dpe-calibrate did not write. */
static dpe_status refuse_in_new_entry(const struct batch *batch, const char *name,
                                      struct dpe_error *err)
{
    for (int e = 0; e < batch->n_entries; e++) {
        const char *folder = batch->entries[e].folder;
        if (folder[0] != '\0' && strncmp(name, folder, strlen(folder)) == 0 &&
            !dpe_calibrate_has_begun(batch, folder, "detect.h5")) {
            bool recorded = false;
            dpe_status status =
                dpe_calibrate_forms_has(batch->args->job.output, name, &recorded, err);
            return status == DPE_OK && !recorded ? refuse_foreign(batch, name, err) : status;
        }
    }
    return DPE_OK;
}

/* The forms are written again each time, so files of their names must be ours. What dpe-eval would
 * refuse after the sweep is found before it. */
static dpe_status refuse_foreign_files(const struct batch *batch, struct dpe_error *err)
{
    if (any_begun(batch)) {
        return dpe_calibrate_export_each(batch, refuse_in_new_entry, err);
    }
    dpe_status status = dpe_calibrate_export_each(batch, refuse_foreign, err);
    for (int e = 0; e < batch->n_entries && status == DPE_OK && batch->chooses; e++) {
        char name[96];
        snprintf(name, sizeof name, "%sablate.h5", batch->entries[e].folder);
        status = refuse_foreign(batch, name, err);
    }
    return status == DPE_OK ? refuse_foreign(batch, "check.h5", err) : status;
}

static dpe_status check_form(const struct batch *batch, const char *name, struct dpe_error *err)
{
    return dpe_calibrate_forms_check(batch->args->job.output, name, err);
}

dpe_status dpe_calibrate_make_folder(const struct batch *batch, bool *made, struct dpe_error *err)
{
    const struct calibrate_arguments *args = batch->args;
    struct stat model;
    struct stat output;
    *made = mkdir(args->job.output, 0777) == 0;
    if (!*made && errno != EEXIST) {
        bool denied = errno == EACCES || errno == EPERM;
        return dpe_fail(err, denied ? DPE_PERMISSION : DPE_CANNOT_CREATE,
                        "%s: cannot be created: %s",
                        args->job.output[0] != '\0' ? args->job.output : "\"\"", strerror(errno));
    }
    if (stat(args->job.output, &output) != 0 || !S_ISDIR(output.st_mode)) {
        return dpe_fail(err, DPE_CANNOT_CREATE, "%s: exists and is not a folder", args->job.output);
    }
    if (stat(args->job.model, &model) == 0 && model.st_dev == output.st_dev &&
        model.st_ino == output.st_ino) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s is the model's folder, where config.json would be replaced; choose another folder",
            args->job.output);
    }
    if (*made || args->job.tool.force) {
        return DPE_OK;
    }
    dpe_status status = refuse_foreign_files(batch, err);
    return status == DPE_OK ? dpe_calibrate_export_each(batch, check_form, err) : status;
}
