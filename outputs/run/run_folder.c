/* The folder of a run's journal with its manifest, and the file at the table's path: whose they
 * are, and what is done when either is changed by someone else while the run goes on. */
#include "engine/system/platform.h"
#include "outputs/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

/* ------------------------------------------------------------------------------------- manifest */

enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 16 << 20 };

static json_t *manifest_json(const struct dpe_manifest *manifest, const char *hash)
{
    json_t *fields = json_array();
    for (size_t i = 0; fields != NULL && i < manifest->identity.n; i++) {
        const struct dpe_identity_field *field = &manifest->identity.fields[i];
        json_t *pair = json_pack("{s:s, s:s}", "name", field->name, "value", field->value);
        if (json_array_append_new(fields, pair) != 0) {
            json_decref(fields);
            return NULL;
        }
    }
    char created[32];
    dpe_time_text(created);
    return json_pack("{s:s, s:i, s:s, s:s, s:b, s:s, s:o}", "format", "dpe-journal", "version",
                     MANIFEST_VERSION, "software", dpe_version(), "created", created, "replace",
                     (int)manifest->replace, "identity_sha256", hash, "identity", fields);
}

dpe_status dpe_manifest_write(const char *path, const struct dpe_manifest *manifest,
                              struct dpe_error *err)
{
    char hash[65];
    DPE_TRY(dpe_identity_hash(&manifest->identity, hash, err));
    DPE_SCOPED(json_decrefp) json_t *json = manifest_json(manifest, hash);
    DPE_OWNED char *text = json == NULL ? NULL : json_dumps(json, JSON_INDENT(2));
    DPE_TRY(DPE_MADE(text, err, "%s: out of memory", path));
    return dpe_replace_file(path, text, strlen(text), err);
}

static dpe_status read_fields(const char *path, const json_t *json, struct dpe_identity *identity,
                              struct dpe_error *err)
{
    const json_t *fields = json_object_get(json, "identity");
    if (json_array_size(fields) == 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected the fields of the run's identity, found none", path);
    }
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *pair = json_array_get(fields, i);
        const char *name = json_string_value(json_object_get(pair, "name"));
        const char *value = json_string_value(json_object_get(pair, "value"));
        if (name == NULL || value == NULL) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: field %zu of the identity is incomplete", path,
                            i);
        }
        dpe_status status = dpe_identity_add(identity, name, value, err);
        if (status != DPE_OK && status != DPE_NO_MEMORY) {
            /* A name that is there twice is the file's mistake here, not ours. */
            return dpe_fail(err, DPE_BAD_DATA, "%s: field %zu of the identity is not valid", path,
                            i);
        }
        DPE_TRY(status);
    }
    char hash[65];
    DPE_TRY(dpe_identity_hash(identity, hash, err));
    const char *stated = json_string_value(json_object_get(json, "identity_sha256"));
    return stated != NULL && strcmp(stated, hash) == 0
               ? DPE_OK
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: the checksum of its identity does not match; the file is damaged",
                          path);
}

dpe_status dpe_manifest_read(const char *path, struct dpe_manifest *manifest, struct dpe_error *err)
{
    *manifest = (struct dpe_manifest){0};
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    DPE_TRY(dpe_read_file(path, MANIFEST_MAX, &bytes, &n, err));
    json_error_t why;
    DPE_SCOPED(json_decrefp) json_t *json = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    const char *format = json_string_value(json_object_get(json, "format"));
    if (json == NULL) {
        return dpe_fail(
            err, json_error_code(&why) == json_error_out_of_memory ? DPE_NO_MEMORY : DPE_BAD_DATA,
            "%s: line %d: %s", path, why.line, why.text);
    }
    if (format == NULL || strcmp(format, "dpe-journal") != 0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected the manifest of a journal, found other JSON", path);
    }
    if (json_integer_value(json_object_get(json, "version")) != MANIFEST_VERSION) {
        manifest->other_version = true;
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected version %d, found %lld; finish that run with the program "
                        "that began it",
                        path, MANIFEST_VERSION,
                        (long long)json_integer_value(json_object_get(json, "version")));
    }
    DPE_SCOPED(dpe_identity_free) struct dpe_identity identity = {0};
    manifest->replace = json_is_true(json_object_get(json, "replace"));
    DPE_TRY(read_fields(path, json, &identity, err));
    manifest->identity = identity;
    identity = (struct dpe_identity){0};
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- owners */

static dpe_status refuse_entry(const char *path, const struct stat *info, bool folder,
                               struct dpe_error *err)
{
    const char *kind = folder ? "a folder" : "a regular file";
    if (folder ? !S_ISDIR(info->st_mode) : !S_ISREG(info->st_mode)) {
        return dpe_fail(err, DPE_PERMISSION,
                        "%s: expected %s of this run, found %s, which dpe does not write to; "
                        "remove it, or choose another output",
                        path, kind, S_ISLNK(info->st_mode) ? "a link" : "something else");
    }
    return info->st_uid == geteuid()
               ? DPE_OK
               : dpe_fail(err, DPE_PERMISSION,
                          "%s: expected %s of user %lu, found one of user %lu; choose another "
                          "output, or run as that user",
                          path, kind, (unsigned long)geteuid(), (unsigned long)info->st_uid);
}

dpe_status dpe_run_check_folder(const struct dpe_run *run, struct dpe_error *err)
{
    struct stat info;
    int fd = open(run->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && lstat(run->folder, &info) == 0 && !S_ISDIR(info.st_mode)) {
        return refuse_entry(run->folder, &info, true, err);
    }
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        dpe_status status = dpe_fail_errno(err, errno, run->folder, "cannot be read");
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    dpe_status status = fstat(fd, &info) == 0
                            ? refuse_entry(run->folder, &info, true, err)
                            : dpe_fail_errno(err, errno, run->folder, "cannot be read");
    struct dirent *entry = NULL;
    while (status == DPE_OK && (entry = readdir(list)) != NULL) {
        bool ours = dpe_run_is_ours(entry->d_name) || strcmp(entry->d_name, "LOCK") == 0;
        if (ours && fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            char path[4096 + 256];
            snprintf(path, sizeof path, "%s/%s", run->folder, entry->d_name);
            status = refuse_entry(path, &info, false, err);
        }
    }
    closedir(list);
    return status;
}

dpe_status dpe_run_make_folder(struct dpe_run *run, struct dpe_error *err)
{
    DPE_OWNED char *parent = dpe_parent_folder(run->path);
    DPE_TRY(DPE_MADE(parent, err, "%s: out of memory", run->path));
    if (mkdir(run->folder, 0777) == 0) {
        run->made_folder = true;
        return dpe_sync_folder(parent, err);
    }
    if (errno != EEXIST) {
        return dpe_fail_errno(err, errno, run->folder, "cannot be created");
    }
    return faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0
               ? DPE_OK
               : dpe_fail_errno(err, errno, parent, "the folder of the table cannot be written");
}

dpe_status dpe_run_take_lock(struct dpe_run *run, struct dpe_error *err)
{
    char suffix[32] = "";
    if (run->options.rank > 0) {
        snprintf(suffix, sizeof suffix, ".%04d", run->options.rank);
    }
    DPE_OWNED char *path = dpe_join(run->folder, "/LOCK", suffix);
    DPE_TRY(DPE_MADE(path, err, "%s: out of memory", run->path));
    char note[256];
    DPE_TRY(dpe_lock_take(&run->lock, path, note, err));
    if (note[0] != '\0') {
        dpe_run_notice(run, "%s: %s", path, note);
    }
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- records */

dpe_status dpe_records_put(struct dpe_records *to, unsigned type, const void *payload, size_t n,
                           struct dpe_error *err)
{
    if (to->journal != NULL) {
        return dpe_journal_append(to->journal, type, payload, n, err);
    }
    DPE_TRY(dpe_record_encode(&to->bytes, type, to->n, payload, n, err));
    to->n++;
    return DPE_OK;
}

dpe_status dpe_records_put_list(struct dpe_records *to, unsigned type,
                                const struct dpe_identity *list, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    DPE_TRY(dpe_identity_encode(list, &bytes, err));
    return dpe_records_put(to, type, bytes.bytes, bytes.n, err);
}

dpe_status dpe_records_put_row(struct dpe_records *to, const struct dpe_row *row,
                               struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    DPE_TRY(dpe_row_encode(row, true, &bytes, err));
    return dpe_records_put(to, DPE_RECORD_ROW, bytes.bytes, bytes.n, err);
}

/* ---------------------------------------------------------------------- a journal that is gone */

/* What cannot be looked at for another reason than that it is gone is there. */
static bool journal_is_there(const struct dpe_run *run)
{
    struct stat opened, named;
    if (stat(run->own, &named) != 0) {
        return errno != ENOENT && errno != ENOTDIR;
    }
    return fstat(run->journal.fd, &opened) != 0 ||
           (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

/* A journal of all rows that this process holds. */
static dpe_status all_records(const struct dpe_run *run, struct dpe_records *records,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_records_put(records, DPE_RECORD_BEGIN, run->hash, 64, err));
    for (size_t i = 0; i < run->n_sessions; i++) {
        DPE_TRY(dpe_records_put_list(records, DPE_RECORD_SESSION, &run->sessions[i], err));
    }
    for (size_t i = 0; i < run->plans.n; i++) {
        const struct dpe_identity pair = {.n = 1, .fields = &run->plans.fields[i]};
        DPE_TRY(dpe_records_put_list(records, DPE_RECORD_PLAN, &pair, err));
    }
    for (size_t i = 0; i < run->rows.n; i++) {
        DPE_TRY(dpe_records_put_row(records, run->rows.rows[i], err));
    }
    return DPE_OK;
}

static void free_records(struct dpe_records *records)
{
    dpe_text_free(&records->bytes);
}

static dpe_status write_again(struct dpe_run *run, struct dpe_error *err)
{
    DPE_SCOPED(free_records) struct dpe_records records = {0};
    DPE_TRY(dpe_run_check_folder(run, err));
    DPE_TRY(all_records(run, &records, err));
    if (run->options.rank == 0) {
        const struct dpe_manifest manifest = {.identity = run->identity, .replace = run->replace};
        DPE_TRY(dpe_manifest_write(run->manifest, &manifest, err));
    }
    struct dpe_journal again;
    DPE_TRY(dpe_journal_create(&again, run->own, &records.bytes, records.n, err));
    dpe_journal_close(&run->journal);
    run->journal = again;
    return DPE_OK;
}

dpe_status dpe_run_keep_journal(struct dpe_run *run, struct dpe_error *err)
{
    if (run->detached || run->journal.failed || journal_is_there(run)) {
        return DPE_OK;
    }
    dpe_status status = dpe_run_make_folder(run, err);
    if (status == DPE_OK && !dpe_lock_held(&run->lock)) {
        struct dpe_error held = {0};
        dpe_lock_release(&run->lock, false);
        status = dpe_run_take_lock(run, &held);
        if (status == DPE_CANNOT_CREATE) {
            run->detached = true;
            dpe_run_notice(run,
                           "%s: was removed during the run, and another process created it again "
                           "(%s); from now on the rows of this run are in memory only, and in its "
                           "table at the end",
                           run->folder, held.text);
            return DPE_OK;
        }
        if (status != DPE_OK) {
            status = dpe_fail(err, status, "%s", held.text);
        }
    }
    if (status == DPE_OK) {
        status = write_again(run, err);
    }
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s was removed during the run and cannot be created again",
                               run->folder);
    }
    dpe_run_notice(run,
                   "%s: was removed during the run; it is written again with all %zu rows, and the "
                   "run continues",
                   run->own, run->rows.n);
    return DPE_OK;
}

/* ---------------------------------------------------------------- the file at the table's path */

void dpe_run_see_table(struct dpe_run *run)
{
    run->table_there = stat(run->path, &run->table_seen) == 0;
}

dpe_status dpe_run_check_table(const struct dpe_run *run, struct dpe_error *err)
{
    struct stat now;
    const struct stat *seen = &run->table_seen;
    if (run->replace || stat(run->path, &now) != 0) {
        return DPE_OK;
    }
    struct timespec changed = dpe_modified(&now);
    struct timespec before = dpe_modified(seen);
    bool same = run->table_there && now.st_dev == seen->st_dev && now.st_ino == seen->st_ino &&
                now.st_size == seen->st_size && changed.tv_sec == before.tv_sec &&
                changed.tv_nsec == before.tv_nsec;
    return same ? DPE_OK
                : dpe_fail(err, DPE_CANNOT_CREATE,
                           "%s: another program created or changed this file during the run; it is "
                           "not replaced. All rows are saved in %s: move the file away and run the "
                           "same command again",
                           run->path, run->folder);
}
