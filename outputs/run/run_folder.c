/* The folder of a run's journal, and the file at the table's path: whose they are, and what is done
 * when either is changed by someone else while the run goes on. */
#include "engine/system/platform.h"
#include "outputs/run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    char *parent = dpe_parent_folder(run->path);
    if (parent == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", run->path);
    }
    dpe_status status = DPE_OK;
    if (mkdir(run->folder, 0777) == 0) {
        run->made_folder = true;
        status = dpe_sync_folder(parent, err);
    } else if (errno != EEXIST) {
        status = dpe_fail_errno(err, errno, run->folder, "cannot be created");
    } else if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) != 0) {
        status = dpe_fail_errno(err, errno, parent, "the folder of the table cannot be written");
    }
    free(parent);
    return status;
}

dpe_status dpe_run_take_lock(struct dpe_run *run, struct dpe_error *err)
{
    char suffix[32] = "";
    if (run->options.rank > 0) {
        snprintf(suffix, sizeof suffix, ".%04d", run->options.rank);
    }
    char *path = dpe_join(run->folder, "/LOCK", suffix);
    if (path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", run->path);
    }
    char note[256];
    dpe_status status = dpe_lock_take(&run->lock, path, run->options.force_unlock, note, err);
    if (status == DPE_OK && note[0] != '\0') {
        dpe_run_notice(run, "%s: %s", path, note);
    }
    free(path);
    return status;
}

/* -------------------------------------------------------------------------- a journal that is gone
 */

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

static dpe_status put_list(struct dpe_text *records, uint64_t *n, unsigned type,
                           const struct dpe_identity *list, struct dpe_error *err)
{
    struct dpe_text bytes = {0};
    dpe_status status = dpe_identity_encode(list, &bytes, err);
    if (status == DPE_OK) {
        status = dpe_record_encode(records, type, (*n)++, bytes.bytes, bytes.n, err);
    }
    dpe_text_free(&bytes);
    return status;
}

/* A journal of all rows that this process holds. */
static dpe_status all_records(const struct dpe_run *run, struct dpe_text *records, uint64_t *n,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_record_encode(records, DPE_RECORD_BEGIN, (*n)++, run->hash, 64, err));
    for (size_t i = 0; i < run->n_sessions; i++) {
        DPE_TRY(put_list(records, n, DPE_RECORD_SESSION, &run->sessions[i], err));
    }
    for (size_t i = 0; i < run->plans.n; i++) {
        const struct dpe_identity pair = {.n = 1, .fields = &run->plans.fields[i]};
        DPE_TRY(put_list(records, n, DPE_RECORD_PLAN, &pair, err));
    }
    for (size_t i = 0; i < run->rows.n; i++) {
        struct dpe_text bytes = {0};
        dpe_status status = dpe_row_encode(&run->rows.rows[i], true, &bytes, err);
        if (status == DPE_OK) {
            status = dpe_record_encode(records, DPE_RECORD_ROW, (*n)++, bytes.bytes, bytes.n, err);
        }
        dpe_text_free(&bytes);
        DPE_TRY(status);
    }
    return DPE_OK;
}

static dpe_status write_again(struct dpe_run *run, struct dpe_error *err)
{
    struct dpe_text records = {0};
    uint64_t n = 0;
    dpe_status status = all_records(run, &records, &n, err);
    if (status != DPE_OK) {
        goto done;
    }
    if (run->options.rank == 0) {
        const struct dpe_manifest manifest = {.identity = run->identity, .replace = run->replace};
        status = dpe_manifest_write(run->manifest, &manifest, err);
    }
    if (status != DPE_OK) {
        goto done;
    }
    struct dpe_journal again;
    status = dpe_journal_create(&again, run->own, &records, n, err);
    if (status == DPE_OK) {
        dpe_journal_close(&run->journal);
        run->journal = again;
    }
done:
    dpe_text_free(&records);
    return status;
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
        status = dpe_run_check_folder(run, err);
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

/* ------------------------------------------------------------------- the file at the table's path
 */

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
