/* DIR/forms.sha256: the hashes of the forms that dpe-calibrate wrote, so that a form which a user
 * edited is not replaced. An entry is dropped before its form is written and added after it: a form
 * without an entry was being written when the calibration was stopped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/storage/durable.h"
#include "outputs/storage/storage.h"

enum { MOST_FORMS = 96 };

struct record {
    char *path;
    int n;
    struct {
        char hex[65], name[64];
    } entries[MOST_FORMS];
};

static dpe_status read_record(const char *folder, struct record *record, struct dpe_error *err)
{
    *record = (struct record){.path = dpe_calibrate_tools_path(folder, "forms.sha256")};
    if (record->path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
    }
    FILE *file = fopen(record->path, "re");
    if (file == NULL) {
        return errno == ENOENT ? DPE_OK
                               : dpe_fail_errno(err, errno, record->path, "cannot be read");
    }
    while (record->n < MOST_FORMS &&
           fscanf(file, "%64[0-9a-f]  %63s\n", record->entries[record->n].hex,
                  record->entries[record->n].name) == 2) {
        record->n++;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? dpe_fail(err, DPE_IO, "%s: cannot be read", record->path) : DPE_OK;
}

static int find(const struct record *record, const char *name)
{
    for (int i = 0; i < record->n; i++) {
        if (strcmp(record->entries[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static dpe_status write_record(const struct record *record, struct dpe_error *err)
{
    struct dpe_text text = {0};
    dpe_status status = DPE_OK;
    for (int i = 0; i < record->n && status == DPE_OK; i++) {
        char line[160];
        int n = snprintf(line, sizeof line, "%s  %s\n", record->entries[i].hex,
                         record->entries[i].name);
        status = dpe_text_append(&text, line, (size_t)n, err);
    }
    if (status == DPE_OK) {
        status = dpe_replace_file(record->path, text.n > 0 ? text.bytes : "", text.n, err);
    }
    dpe_text_free(&text);
    return status;
}

dpe_status dpe_calibrate_hash_file(const char *folder, const char *name, char hex[65],
                                   struct dpe_error *err)
{
    char bytes[1 << 14];
    char *path = dpe_calibrate_tools_path(folder, name);
    struct dpe_sha256 *hash = dpe_sha256_new();
    FILE *file = path != NULL ? fopen(path, "rbe") : NULL;
    int reason = errno;
    dpe_status status = DPE_OK;
    hex[0] = '\0';
    if (path == NULL || hash == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a checksum");
        goto done;
    }
    if (file == NULL) {
        status = reason == ENOENT ? DPE_OK : dpe_fail_errno(err, reason, path, "cannot be read");
        goto done;
    }
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;) {
        dpe_sha256_add(hash, bytes, n);
    }
    if (ferror(file)) {
        status = dpe_fail(err, DPE_IO, "%s: cannot be read", path);
        goto done;
    }
    dpe_sha256_finish(hash, hex);
    hash = NULL;
done:
    if (hash != NULL) {
        char unused[65];
        dpe_sha256_finish(hash, unused);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(path);
    return status;
}

dpe_status dpe_calibrate_forms_has(const char *folder, const char *name, bool *has,
                                   struct dpe_error *err)
{
    struct record record;
    dpe_status status = read_record(folder, &record, err);
    *has = status == DPE_OK && find(&record, name) >= 0;
    free(record.path);
    return status;
}

dpe_status dpe_calibrate_forms_check(const char *folder, const char *name, struct dpe_error *err)
{
    struct record record;
    char hex[65];
    dpe_status status = read_record(folder, &record, err);
    int at = status == DPE_OK ? find(&record, name) : -1;
    if (at >= 0) {
        status = dpe_calibrate_hash_file(folder, name, hex, err);
    }
    if (status == DPE_OK && at >= 0 && hex[0] != '\0' && strcmp(hex, record.entries[at].hex) != 0) {
        status = dpe_fail(err, DPE_MISMATCH,
                          "%s/%s: was changed after dpe-calibrate wrote it; move it away and run "
                          "the same command again (--force replaces it and repeats the sweep)",
                          folder, name);
    }
    free(record.path);
    return status;
}

dpe_status dpe_calibrate_forms_drop(const char *folder, const char *name, struct dpe_error *err)
{
    struct record record;
    dpe_status status = read_record(folder, &record, err);
    int at = status == DPE_OK ? find(&record, name) : -1;
    if (at >= 0) {
        record.entries[at] = record.entries[--record.n];
        status = write_record(&record, err);
    }
    free(record.path);
    return status;
}

/* A form in DIR itself, or in the folder of an entry that the batch has. */
static bool is_of_batch(const struct batch *batch, const char *name)
{
    bool of_entry = strchr(name, '/') == NULL;
    for (int e = 0; e < batch->n_entries && !of_entry; e++) {
        const char *folder = batch->entries[e].folder;
        size_t n = strlen(folder);
        of_entry = n > 0 && strncmp(name, folder, n) == 0 && strchr(name + n, '/') == NULL;
    }
    return of_entry;
}

dpe_status dpe_calibrate_forms_tidy(const struct batch *batch, struct dpe_error *err)
{
    const char *folder = batch->args->job.output;
    struct record record;
    dpe_status status = read_record(folder, &record, err);
    int n = record.n;
    for (int i = n - 1; i >= 0 && status == DPE_OK; i--) {
        const char *name = record.entries[i].name;
        char *path = NULL;
        char hex[65];
        if (!is_of_batch(batch, name) || dpe_calibrate_has_form(batch, name)) {
            continue;
        }
        status = dpe_calibrate_hash_file(folder, name, hex, err);
        path = dpe_calibrate_tools_path(folder, name);
        if (status == DPE_OK && path == NULL) {
            status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a path");
        } else if (status == DPE_OK && strcmp(hex, record.entries[i].hex) == 0) {
            status = unlink(path) == 0 ? DPE_OK : dpe_fail_errno(err, errno, path, "cannot be removed");
            if (status == DPE_OK) {
                dpe_log_info("%s: removed: it is not a form of what the table holds now", path);
            }
        } else if (status == DPE_OK && hex[0] != '\0' && strcmp(hex, record.entries[i].hex) != 0) {
            dpe_log_warning("%s: is of an earlier calibration and was changed after it; it is left as it "
                            "is, and is not a form of the table now",
                            path);
        }
        free(path);
        if (status == DPE_OK) {
            record.entries[i] = record.entries[--record.n];
        }
    }
    if (record.n < n && status == DPE_OK) {
        status = write_record(&record, err);
    }
    free(record.path);
    return status;
}

dpe_status dpe_calibrate_forms_add(const char *folder, const char *name, struct dpe_error *err)
{
    struct record record;
    dpe_status status = read_record(folder, &record, err);
    if (status == DPE_OK && record.n < MOST_FORMS && find(&record, name) < 0) {
        snprintf(record.entries[record.n].name, sizeof record.entries[0].name, "%s", name);
        status = dpe_calibrate_hash_file(folder, name, record.entries[record.n].hex, err);
        if (status == DPE_OK) {
            record.n++;
            status = write_record(&record, err);
        }
    }
    free(record.path);
    return status;
}
