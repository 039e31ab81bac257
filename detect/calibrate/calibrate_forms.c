/* DIR/forms.sha256: the hashes of the forms that dpe-calibrate wrote, so that a form which a user
 * edited is not replaced. A line is dropped before its form is written and added after it: a form
 * without one was being written when the calibration was stopped. Once everything is finished it
 * also has the hashes of all other files and, under the name "command", of what they were made
 * from: then the same command again leaves everything as it is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/storage/durable.h"
#include "outputs/storage/storage.h"

enum { MOST_FILES = 160 };
static const char record_name[] = "forms.sha256";
static const char of_command[] = "command";

struct record {
    const char *path;
    int n;
    struct {
        char hex[65], name[64];
    } files[MOST_FILES];
};

static dpe_status read_record(struct batch *batch, struct record *record, struct dpe_error *err)
{
    *record = (struct record){.path = dpe_calibrate_path(batch, NULL, record_name)};
    FILE *file = fopen(record->path, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? DPE_OK
                   : dpe_fail_errno(err, errno, record->path, "cannot be read");
    }
    while (record->n < MOST_FILES &&
           fscanf(file, "%64[0-9a-f]  %63s\n", record->files[record->n].hex,
                  record->files[record->n].name) == 2) {
        record->n++;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? dpe_fail(err, DPE_IO, "%s: cannot be read", record->path) : DPE_OK;
}

static int find(const struct record *record, const char *name)
{
    for (int i = 0; i < record->n; i++) {
        if (strcmp(record->files[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static void put(struct record *record, const char *name, const char *hex)
{
    int at = find(record, name);
    if (at < 0 && record->n < MOST_FILES) {
        at = record->n++;
    }
    if (at >= 0) {
        snprintf(record->files[at].name, sizeof record->files[at].name, "%.63s", name);
        snprintf(record->files[at].hex, sizeof record->files[at].hex, "%.64s", hex);
    }
}

static void drop(struct record *record, const char *name)
{
    int at = find(record, name);
    if (at >= 0) {
        record->files[at] = record->files[--record->n];
    }
}

static dpe_status write_record(const struct record *record, struct dpe_error *err)
{
    struct dpe_text text = {0};
    dpe_status status = DPE_OK;
    for (int i = 0; i < record->n && status == DPE_OK; i++) {
        char line[160];
        int n =
            snprintf(line, sizeof line, "%s  %s\n", record->files[i].hex, record->files[i].name);
        status = dpe_text_append(&text, line, (size_t)n, err);
    }
    if (status == DPE_OK) {
        status = dpe_replace_file(record->path, text.n > 0 ? text.bytes : "", text.n, err);
    }
    dpe_text_free(&text);
    return status;
}

/* SHA-256 of a file of DIR; "" when it does not exist. */
static dpe_status hash_file(struct batch *batch, const char *name, char hex[65],
                            struct dpe_error *err)
{
    char bytes[1 << 14];
    const char *path = dpe_calibrate_path(batch, NULL, name);
    struct dpe_sha256 *hash = dpe_sha256_new();
    FILE *file = fopen(path, "rbe");
    int reason = errno;
    dpe_status status = DPE_OK;
    hex[0] = '\0';
    if (hash == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a checksum");
    } else if (file == NULL && reason != ENOENT) {
        status = dpe_fail_errno(err, reason, path, "cannot be read");
    }
    for (size_t n;
         status == DPE_OK && file != NULL && (n = fread(bytes, 1, sizeof bytes, file)) > 0;) {
        dpe_sha256_add(hash, bytes, n);
    }
    if (file != NULL && ferror(file)) {
        status = dpe_fail(err, DPE_IO, "%s: cannot be read", path);
    }
    if (hash != NULL) {
        dpe_sha256_finish(hash, hex);
    }
    if (status != DPE_OK || file == NULL) {
        hex[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    batch->n_paths--; /* the last one */
    free(batch->paths[batch->n_paths]);
    return status;
}

/* ------------------------------------------------------------------------------------------ forms
 */

dpe_status dpe_calibrate_forms_has(struct batch *batch, const char *name, bool *has,
                                   struct dpe_error *err)
{
    struct record record;
    dpe_status status = read_record(batch, &record, err);
    *has = status == DPE_OK && find(&record, name) >= 0;
    return status;
}

dpe_status dpe_calibrate_forms_check(struct batch *batch, const char *name, struct dpe_error *err)
{
    struct record record;
    char hex[65];
    dpe_status status = read_record(batch, &record, err);
    int at = status == DPE_OK ? find(&record, name) : -1;
    if (at >= 0) {
        status = hash_file(batch, name, hex, err);
    }
    if (status == DPE_OK && at >= 0 && hex[0] != '\0' && strcmp(hex, record.files[at].hex) != 0) {
        status = dpe_fail(err, DPE_MISMATCH,
                          "%s/%s: was changed after dpe-calibrate wrote it; move it away and run "
                          "the same command again (--force replaces it and repeats the sweep)",
                          batch->args->detect.job.output, name);
    }
    return status;
}

dpe_status dpe_calibrate_forms_drop(struct batch *batch, const char *name, struct dpe_error *err)
{
    struct record record;
    DPE_TRY(read_record(batch, &record, err));
    if (find(&record, name) >= 0 || find(&record, of_command) >= 0) {
        drop(&record, name);
        drop(&record, of_command);
        DPE_TRY(write_record(&record, err));
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_forms_add(struct batch *batch, const char *name, struct dpe_error *err)
{
    struct record record;
    char hex[65];
    dpe_status status = read_record(batch, &record, err);
    if (status == DPE_OK) {
        status = hash_file(batch, name, hex, err);
    }
    if (status == DPE_OK) {
        put(&record, name, hex);
        status = write_record(&record, err);
    }
    dpe_calibrate_drop_paths(batch);
    return status;
}

/* A form in DIR itself, or in the folder of an entry that the batch has; not what a study writes,
 * or the report. */
static bool is_form(const struct batch *batch, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash != NULL ? slash + 1 : name;
    const char *end = strrchr(last, '.');
    bool form = end != NULL && strcmp(end, ".html") != 0 &&
                (strcmp(end, ".h5") != 0 || strcmp(last, "table.h5") == 0);
    bool of_entry = slash == NULL;
    for (int e = 0; e < batch->state.n_entries && !of_entry; e++) {
        const char *folder = batch->state.entries[e].folder;
        size_t n = strlen(folder);
        of_entry = n > 0 && strncmp(name, folder, n) == 0 && strchr(name + n, '/') == NULL;
    }
    return form && of_entry;
}

/* Remove a form that is none now; one that was edited stays. */
static dpe_status remove_form(struct batch *batch, const char *name, const char *recorded,
                              struct dpe_error *err)
{
    char hex[65];
    dpe_status status = hash_file(batch, name, hex, err);
    const char *path = dpe_calibrate_path(batch, NULL, name);
    if (status == DPE_OK && strcmp(hex, recorded) == 0) {
        status = unlink(path) == 0 ? DPE_OK : dpe_fail_errno(err, errno, path, "cannot be removed");
        if (status == DPE_OK) {
            dpe_log_info("%s: removed: it is not a form of what the table holds now", path);
        }
    } else if (status == DPE_OK && hex[0] != '\0') {
        dpe_log_warning(
            "%s: is of an earlier calibration and was changed after it; it is left as it "
            "is, and is not a form of the table now",
            path);
    }
    return status;
}

dpe_status dpe_calibrate_forms_tidy(struct batch *batch, struct dpe_error *err)
{
    struct record record;
    dpe_status status = read_record(batch, &record, err);
    int n = record.n;
    for (int i = n - 1; i >= 0 && status == DPE_OK; i--) {
        const char *name = record.files[i].name;
        if (!is_form(batch, name) || dpe_calibrate_has_form(batch, name)) {
            continue;
        }
        status = remove_form(batch, name, record.files[i].hex, err);
        if (status == DPE_OK) {
            record.files[i] = record.files[--record.n];
        }
    }
    if (record.n < n && status == DPE_OK) {
        status = write_record(&record, err);
    }
    dpe_calibrate_drop_paths(batch);
    return status;
}

/* --------------------------------------------------------------------------------------- complete
 */

static void add_text(struct dpe_sha256 *hash, const char *text)
{
    text = text != NULL ? text : "";
    dpe_sha256_add(hash, text, strlen(text) + 1);
}

/* What a file that an option names holds. */
static dpe_status add_content(struct dpe_sha256 *hash, const char *path, struct dpe_error *err)
{
    char *bytes = NULL;
    size_t n = 0;
    add_text(hash, path);
    if (path == NULL || access(path, R_OK) != 0) {
        return DPE_OK;
    }
    dpe_status status = dpe_read_file(path, UINT64_C(1) << 24, &bytes, &n, err);
    if (status == DPE_OK) {
        dpe_sha256_add(hash, bytes, n);
    }
    free(bytes);
    return status;
}

/* What decides a result: inputs by what is in them, options as they were typed. */
static dpe_status hash_command(struct batch *batch, char hex[65], struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->line->detect.job;
    const char *const texts[] = {dpe_version(), dpe_job_fingerprint(&batch->job),
                                 dpe_tokenizer_fingerprint(batch->job.tokenizer),
                                 dpe_corpus_fingerprint(batch->job.corpus), job->tool.device};
    struct dpe_sha256 *hash = dpe_sha256_new();
    if (hash == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a checksum");
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        add_text(hash, texts[i]);
    }
    for (int i = 1; i < job->argc; i++) {
        if (strcmp(job->argv[i], "--quiet") != 0) {
            add_text(hash, job->argv[i]);
        }
    }
    dpe_status status = add_content(hash, batch->line->chat_template, err);
    dpe_sha256_finish(hash, hex);
    return status;
}

dpe_status dpe_calibrate_each_table(struct batch *batch, calibrate_visit visit,
                                    struct dpe_error *err)
{
    const struct {
        const char *name;
        bool made, each; /* there is one for each entry */
    } files[] = {{"tune.h5", batch->args->detect.against_tuned, true},
                 {"detect.h5", true, true},
                 {"norms.h5", !batch->frequencies, false},
                 {"ablate.h5", batch->chooses, true},
                 {"check.h5", true, false},
                 {"kld-trained.h5", batch->diverges, false},
                 {"kld.h5", batch->diverges, false}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int n = !files[i].made ? 0 : files[i].each ? batch->state.n_entries : 1;
        for (int e = 0; e < n; e++) {
            const struct entry *entry = &batch->state.entries[e];
            char name[96];
            snprintf(name, sizeof name, "%s%s", files[i].each ? entry->folder : "", files[i].name);
            if (!entry->other || strcmp(files[i].name, "ablate.h5") != 0) {
                DPE_TRY(visit(batch, name, err));
            }
        }
    }
    return DPE_OK;
}

/* The task may name files of its own, which are not looked into. */
static bool can_tell(const struct batch *batch)
{
    const char *niah = batch->args->detect.niah;
    return !batch->args->detect.job.tool.force &&
           (niah == NULL || strstr(niah, "template=") == NULL);
}

/* Whether every file is as it was recorded. */
static dpe_status compare(struct batch *batch, const struct record *record, bool *same,
                          struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    *same = true;
    for (int i = 0; i < record->n && *same && status == DPE_OK; i++) {
        char hex[65];
        const char *name = record->files[i].name;
        if (strcmp(name, of_command) != 0) {
            status = hash_file(batch, name, hex, err);
            *same = status == DPE_OK && strcmp(hex, record->files[i].hex) == 0;
            batch->state.pairs = batch->state.pairs || strstr(name, "ablate.h5") != NULL;
        }
    }
    return status;
}

dpe_status dpe_calibrate_is_done(struct batch *batch, struct dpe_error *err)
{
    struct record record;
    char hex[65];
    batch->state.done = batch->state.pairs = false;
    dpe_status status = read_record(batch, &record, err);
    int at = status == DPE_OK ? find(&record, of_command) : -1;
    if (status == DPE_OK && at >= 0 && can_tell(batch)) {
        status = hash_command(batch, hex, err);
        if (status == DPE_OK && strcmp(hex, record.files[at].hex) == 0) {
            status = compare(batch, &record, &batch->state.done, err);
        }
    }
    dpe_calibrate_drop_paths(batch);
    return status;
}

dpe_status dpe_calibrate_set_done(struct batch *batch, struct dpe_error *err)
{
    struct record record;
    char hex[65];
    dpe_status status = read_record(batch, &record, err);
    for (int i = record.n - 1; i >= 0; i--) { /* what other commands had made */
        if (!is_form(batch, record.files[i].name)) {
            record.files[i] = record.files[--record.n];
        }
    }
    if (status == DPE_OK && (status = write_record(&record, err)) == DPE_OK) {
        status = dpe_calibrate_each_table(batch, dpe_calibrate_forms_add, err);
    }
    if (status == DPE_OK) {
        status = dpe_calibrate_forms_add(batch, "report.html", err);
    }
    if (status == DPE_OK) {
        status = read_record(batch, &record, err);
    }
    if (status == DPE_OK) {
        status = hash_command(batch, hex, err);
    }
    if (status == DPE_OK) {
        put(&record, of_command, hex);
        status = write_record(&record, err);
    }
    dpe_calibrate_drop_paths(batch);
    return status;
}
