/* The folder of a calibration: the forms of its table, which there are, and what each is made from;
 * and in it forms.sha256: the hashes of the forms that dpe-calibrate wrote, so that a form which a
 * user edited is not replaced. A line is dropped before its form is written and added after it: a
 * form without one was being written when the calibration was stopped. Once everything is finished
 * it also has the hashes of all other files and, under the name "command", of what they were made
 * from: then the same command again leaves everything as it is. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "detect/calibrate/calibrate_tool.h"
#include "outputs/export/export.h"
#include "outputs/storage/storage.h"

/* Every form: written from those before it in `from`. With several entries the first of them is the
 * table of one entry, which the second joins; other forms hold one entry, and stand beside its
 * table, or all of them. */
static const struct form {
    const char *name, *from[2];
    bool each;    /* one for each entry */
    bool several; /* only where there are several entries, from the tables of all */
    bool top_k, model, scores;
    bool drop;                     /* it cannot carry an attention temperature */
    bool dpe;                      /* it holds plans of DPE alone */
    bool still;                    /* of a temperature alone */
    bool both;                     /* of either */
    enum dpe_export_format format; /* FORMAT_AUTO: the one of its name */
    bool plain;                    /* of the method that needs no adapter */
} forms[] = {
    {.name = "table.h5", .from = {"detect.h5", "norms.h5"}, .each = true, .top_k = true},
    {.name = "table.h5", .from = {"detect.h5"}, .each = true, .still = true},
    {.name = "table.h5", .several = true, .both = true},
    {.name = "table.json", .from = {"table.h5"}, .both = true},
    {.name = "scores.pt", .from = {"detect.h5", "norms.h5"}},
    {.name = "table.yaml",
     .from = {"table.h5"},
     .each = true,
     .model = true,
     .scores = true,
     .drop = true,
     .dpe = true},
    {.name = "table.safetensors", .from = {"table.h5"}},
    {.name = "config.json", .from = {"table.h5"}, .model = true},
    {.name = "config.json",
     .from = {"table.h5"},
     .model = true,
     .both = true,
     .format = FORMAT_LONGROPE},
    {.name = "no-adapter.h5", .each = true, .model = true, .plain = true},
    {.name = "no-adapter.json",
     .each = true,
     .model = true,
     .plain = true,
     .format = FORMAT_LONGROPE},
    {.name = "table.csv", .from = {"table.h5"}, .each = true, .drop = true, .dpe = true},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* A file that is to be written: a form, of an entry or (NULL) of all. */
struct file {
    const struct form *form;
    const struct entry *entry;
    char name[96]; /* in DIR */
};

bool dpe_calibrate_factors(const struct batch *batch)
{
    return batch->state.n_entries == 1 && batch->state.entries[0].factors;
}

/* A config.json for runtimes is of tables that longrope can hold, one for the adapter of the
 * others.
 */
static bool is_written(const struct batch *batch, const struct form *form)
{
    bool factors = dpe_calibrate_factors(batch);
    const bool config = strcmp(form->name, "config.json") == 0;
    const bool ours = config ? factors == (form->format != FORMAT_AUTO)
                             : form->both || batch->pairless == form->still;
    return ours && (!form->several || batch->state.n_entries > 1);
}

/* File i of the batch, in the order in which they are written; false when there are fewer. */
static bool find_file(const struct batch *batch, int i, struct file *file)
{
    for (int f = 0; f < FORMS; f++) {
        int n = !is_written(batch, &forms[f]) ? 0 : forms[f].each ? batch->state.n_entries : 1;
        for (int e = 0; e < n; e++) {
            const struct entry *entry = &batch->state.entries[e];
            bool held =
                (!forms[f].dpe || !entry->other) && (!forms[f].plain || entry->plain[0] != '\0');
            if (held && i-- == 0) {
                *file = (struct file){.form = &forms[f], .entry = forms[f].each ? entry : NULL};
                snprintf(file->name, sizeof file->name, "%s%s", forms[f].each ? entry->folder : "",
                         forms[f].name);
                return true;
            }
        }
    }
    return false;
}

/* An input: of the profile there is one, a detection is an entry's. */
static void add_input(struct batch *batch, const struct file *file, const char *name,
                      struct dpe_export_arguments *args)
{
    bool own =
        strcmp(name, "detect.h5") == 0 || (file->entry != NULL && strcmp(name, "norms.h5") != 0);
    const struct entry *entry = file->entry != NULL ? file->entry : &batch->state.entries[0];
    args->inputs[args->n_inputs++] = dpe_calibrate_path(batch, own ? entry : NULL, name);
}

/* A count of pairs, or a share, which an export takes as a negative number. */
static void set_top_k(const char *text, struct dpe_export_arguments *args)
{
    const bool all = strcmp(text, "all") == 0;
    const double k =
        all ? nextafter(1.0, 0.0) : strtod(text, NULL); /* the options have checked it */
    args->has_k = true;
    args->k = k < 1.0 ? -k : k;
}

static void fill_export(struct batch *batch, const struct file *file,
                        struct dpe_export_arguments *args)
{
    const struct form *form = file->form;
    *args = (struct dpe_export_arguments){
        .force = true,
        .threads = batch->args->detect.job.tool.threads,
        .output = dpe_calibrate_path(batch, NULL, file->name),
        .model = form->model ? batch->args->detect.job.model : NULL,
        .fingerprint = batch->job.remote != NULL ? dpe_job_fingerprint(&batch->job) : NULL,
        .drop_temperature = form->drop,
        .format = form->format,
        .quiet = batch->checked,
        .join = form->several};
    if (batch->checked && strcmp(form->name, "table.h5") == 0 && !form->several) {
        args->evidence = dpe_calibrate_path(batch, NULL, "check.h5");
        args->pooled = &batch->pooled;
    }
    if (form->top_k) {
        set_top_k(file->entry->k, args);
    }
    if (form->plain) {
        args->method = file->entry->plain;
        args->length = file->entry->length;
        args->trained = batch->args->detect.job.trained_length;
    }
    if (form->scores) { /* from the file's own folder: all of DIR can be moved */
        bool below = file->entry != NULL && file->entry->folder[0] != '\0';
        args->scores = below ? "../scores.pt" : "scores.pt";
    }
    for (int e = 0; e < batch->state.n_entries && form->several; e++) {
        args->inputs[args->n_inputs++] =
            dpe_calibrate_path(batch, &batch->state.entries[e], "table.h5");
    }
    for (int f = 0; f < 2 && form->from[f] != NULL; f++) {
        add_input(batch, file, form->from[f], args);
    }
}

static bool has_form(const struct batch *batch, const char *name)
{
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        if (strcmp(file.name, name) == 0) {
            return true;
        }
    }
    return false;
}

dpe_status dpe_calibrate_export_each(struct batch *batch, calibrate_visit visit,
                                     struct dpe_error *err)
{
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        DPE_TRY(visit(batch, file.name, err));
    }
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- record */

static const char record_name[] = "forms.sha256";
static const char of_command[] = "command";

dpe_status dpe_calibrate_forms_read(struct batch *batch, struct dpe_error *err)
{
    struct calibrate_record *record = &batch->record;
    const char *path = dpe_calibrate_path(batch, NULL, record_name);
    record->n = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? DPE_OK
                   : dpe_fail_errno(err, errno, path, "cannot be read");
    }
    while (record->n < CALIBRATE_FILES &&
           fscanf(file, "%64[0-9a-f]  %63s\n", record->files[record->n].hex,
                  record->files[record->n].name) == 2) {
        record->n++;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? dpe_fail(err, DPE_IO, "%s: cannot be read", path) : DPE_OK;
}

static int find(const struct calibrate_record *record, const char *name)
{
    int at = record->n - 1;
    while (at >= 0 && strcmp(record->files[at].name, name) != 0) {
        at--;
    }
    return at;
}

static void put(struct calibrate_record *record, const char *name, const char *hex)
{
    int at = find(record, name);
    if (at < 0 && record->n < CALIBRATE_FILES) {
        at = record->n++;
    }
    if (at >= 0) {
        snprintf(record->files[at].name, sizeof record->files[at].name, "%.63s", name);
        snprintf(record->files[at].hex, sizeof record->files[at].hex, "%.64s", hex);
    }
}

static bool drop(struct calibrate_record *record, const char *name)
{
    int at = find(record, name);
    if (at >= 0) {
        record->files[at] = record->files[--record->n];
    }
    return at >= 0;
}

static dpe_status write_record(struct batch *batch, struct dpe_error *err)
{
    char text[CALIBRATE_FILES * 132] = "";
    for (int i = 0; i < batch->record.n; i++) {
        dpe_append(text, sizeof text, "%s  %s\n", batch->record.files[i].hex,
                   batch->record.files[i].name);
    }
    return dpe_replace_file(dpe_calibrate_path(batch, NULL, record_name), text, strlen(text), err);
}

/* SHA-256 of a file of DIR; "" when it does not exist. */
static dpe_status hash_file(struct batch *batch, const char *name, char hex[65],
                            struct dpe_error *err)
{
    dpe_status status = dpe_sha256_file(dpe_calibrate_path(batch, NULL, name), hex, err);
    return status == DPE_NO_INPUT ? DPE_OK : status;
}

static dpe_status note_file(struct batch *batch, const char *name, struct dpe_error *err)
{
    char hex[65];
    DPE_TRY(hash_file(batch, name, hex, err));
    put(&batch->record, name, hex);
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- forms */

static dpe_status check_form(struct batch *batch, const char *name, struct dpe_error *err)
{
    char hex[65] = "";
    int at = find(&batch->record, name);
    if (at >= 0) {
        DPE_TRY(hash_file(batch, name, hex, err));
    }
    return hex[0] == '\0' || strcmp(hex, batch->record.files[at].hex) == 0
               ? DPE_OK
               : dpe_fail(err, DPE_MISMATCH,
                          "%s/%s: was changed after dpe-calibrate wrote it; move it away and run "
                          "the same command again (--force replaces it and repeats the sweep)",
                          batch->args->detect.job.output, name);
}

/* Before a form is written. */
static dpe_status drop_form(struct batch *batch, const char *name, struct dpe_error *err)
{
    if (!batch->args->detect.job.tool.force) {
        DPE_TRY(check_form(batch, name, err));
    }
    const bool form = drop(&batch->record, name);
    const bool command = drop(&batch->record, of_command);
    return form || command ? write_record(batch, err) : DPE_OK;
}

/* A form in DIR itself, or in the folder of an entry that the batch has. */
static bool is_form(const struct batch *batch, const char *name)
{
    const char *last = dpe_last_part(name);
    const bool form = DPE_NAMED(forms, last) != NULL;
    bool of_entry = last == name;
    for (int e = 0; e < batch->state.n_entries && !of_entry; e++) {
        const char *folder = batch->state.entries[e].folder;
        size_t n = strlen(folder);
        of_entry = n > 0 && strncmp(name, folder, n) == 0 && strchr(name + n, '/') == NULL;
    }
    return form && of_entry;
}

static dpe_status remove_form(struct batch *batch, const char *name, const char *recorded,
                              struct dpe_error *err)
{
    char hex[65];
    const char *path = dpe_calibrate_path(batch, NULL, name);
    DPE_TRY(hash_file(batch, name, hex, err));
    if (strcmp(hex, recorded) == 0) {
        if (unlink(path) != 0) {
            return dpe_fail_errno(err, errno, path, "cannot be removed");
        }
        dpe_log_info("%s: removed: it is not a form of what the table holds now", path);
    } else if (hex[0] != '\0') {
        dpe_log_warning(
            "%s: is of an earlier calibration and was changed after it; it is left as it "
            "is, and is not a form of the table now",
            path);
    }
    return DPE_OK;
}

/* Remove the forms of an earlier calibration of these entries that are none of the batch's now, but
 * for those that were edited. */
static dpe_status tidy(struct batch *batch, struct dpe_error *err)
{
    struct calibrate_record *record = &batch->record;
    const int n = record->n;
    for (int i = n - 1; i >= 0; i--) {
        const char *name = record->files[i].name;
        if (is_form(batch, name) && !has_form(batch, name)) {
            DPE_TRY(remove_form(batch, name, record->files[i].hex, err));
            record->files[i] = record->files[--record->n];
        }
    }
    return record->n < n ? write_record(batch, err) : DPE_OK;
}

/* ------------------------------------------------------------------------------------- complete */

/* What a file that an option names holds. */
static dpe_status add_content(struct dpe_sha256 *hash, const char *path, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    dpe_sha256_text(hash, path);
    if (path == NULL || access(path, R_OK) != 0) {
        return DPE_OK;
    }
    DPE_TRY(dpe_read_file(path, UINT64_C(1) << 24, &bytes, &n, err));
    dpe_sha256_add(hash, bytes, n);
    return DPE_OK;
}

/* What decides a result: inputs by what is in them, options as they were typed. */
static dpe_status hash_command(struct batch *batch, char hex[65], struct dpe_error *err)
{
    const struct dpe_job_options *job = &batch->line->detect.job;
    const char *const texts[] = {dpe_version(), dpe_job_fingerprint(&batch->job),
                                 dpe_tokenizer_fingerprint(batch->job.tokenizer),
                                 batch->job.corpus->fingerprint, job->tool.device};
    struct dpe_sha256 *hash = dpe_sha256_new();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dpe_sha256_text(hash, texts[i]);
    }
    for (int i = 1; i < job->argc; i++) {
        if (strcmp(job->argv[i], "--quiet") != 0) {
            dpe_sha256_text(hash, job->argv[i]);
        }
    }
    const dpe_status status = add_content(hash, batch->line->chat_template, err);
    const dpe_status finished = dpe_sha256_finish(hash, hex, status == DPE_OK ? err : NULL);
    return status == DPE_OK ? finished : status;
}

dpe_status dpe_calibrate_each_table(struct batch *batch, calibrate_visit visit,
                                    struct dpe_error *err)
{
    const struct {
        const char *name;
        bool made, each; /* there is one for each entry */
    } files[] = {{"detect.h5", true, true},
                 {"norms.h5", !batch->pairless, false},
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
static dpe_status compare(struct batch *batch, bool *same, struct dpe_error *err)
{
    *same = true;
    for (int i = 0; i < batch->record.n && *same; i++) {
        char hex[65];
        const char *name = batch->record.files[i].name;
        if (strcmp(name, of_command) != 0) {
            DPE_TRY(hash_file(batch, name, hex, err));
            *same = strcmp(hex, batch->record.files[i].hex) == 0;
            batch->state.pairs = batch->state.pairs || strstr(name, "ablate.h5") != NULL;
        }
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_is_done(struct batch *batch, struct dpe_error *err)
{
    char hex[65];
    batch->state.done = batch->state.pairs = false;
    DPE_TRY(dpe_calibrate_forms_read(batch, err));
    int at = find(&batch->record, of_command);
    if (at < 0 || !can_tell(batch)) {
        return DPE_OK;
    }
    DPE_TRY(hash_command(batch, hex, err));
    return strcmp(hex, batch->record.files[at].hex) == 0 ? compare(batch, &batch->state.done, err)
                                                         : DPE_OK;
}

dpe_status dpe_calibrate_set_done(struct batch *batch, struct dpe_error *err)
{
    struct calibrate_record *record = &batch->record;
    char hex[65];
    for (int i = record->n - 1; i >= 0; i--) { /* what other commands had made */
        if (!is_form(batch, record->files[i].name)) {
            record->files[i] = record->files[--record->n];
        }
    }
    DPE_TRY(dpe_calibrate_each_table(batch, note_file, err));
    DPE_TRY(note_file(batch, "report.html", err));
    DPE_TRY(hash_command(batch, hex, err));
    put(record, of_command, hex);
    return write_record(batch, err);
}

/* --------------------------------------------------------------------------------------- folder */

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
            return find(&batch->record, name) >= 0 ? DPE_OK : refuse_foreign(batch, name, err);
        }
    }
    return DPE_OK;
}

/* What dpe-eval would refuse after the sweep. */
static dpe_status refuse_later(struct batch *batch, const char *name, struct dpe_error *err)
{
    const bool later = strstr(name, "ablate.h5") != NULL || strcmp(name, "check.h5") == 0 ||
                       strncmp(name, "kld", 3) == 0;
    return later ? refuse_foreign(batch, name, err) : DPE_OK;
}

/* The forms are written again each time, so files of their names must be ours. */
static dpe_status refuse_foreign_files(struct batch *batch, struct dpe_error *err)
{
    if (any_begun(batch)) {
        return dpe_calibrate_export_each(batch, refuse_in_new_entry, err);
    }
    DPE_TRY(dpe_calibrate_export_each(batch, refuse_foreign, err));
    return dpe_calibrate_each_table(batch, refuse_later, err);
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
    return dpe_calibrate_export_each(batch, check_form, err);
}

/* ------------------------------------------------------------------------------------- written */

static dpe_status write_file(struct batch *batch, const struct file *file, struct dpe_error *err)
{
    struct dpe_export_arguments args;
    DPE_TRY(drop_form(batch, file->name, err));
    fill_export(batch, file, &args);
    DPE_TRY(dpe_export_do(&args, err));
    DPE_TRY(note_file(batch, file->name, err));
    return write_record(batch, err);
}

dpe_status dpe_calibrate_check_exports(struct batch *batch, struct dpe_error *err)
{
    struct dpe_export_arguments args;
    struct file file;
    for (int i = 0; find_file(batch, i, &file); i++) {
        fill_export(batch, &file, &args);
        const char *wrong = dpe_export_refusal(&args);
        if (wrong != NULL) {
            return dpe_fail(err, DPE_USAGE, "%s: %s", file.name, wrong);
        }
    }
    return DPE_OK;
}

dpe_status dpe_calibrate_export(struct batch *batch, struct dpe_error *err)
{
    struct file file;
    DPE_TRY(tidy(batch, err));
    for (int i = 0; find_file(batch, i, &file); i++) {
        DPE_TRY(write_file(batch, &file, err));
    }
    return DPE_OK;
}
