/**
 * @file run_internal.h
 * A run, shared by the files that open it, use it and write its table.
 */
#ifndef DPE_RUN_INTERNAL_H
#define DPE_RUN_INTERNAL_H

#include "engine/base/base.h"
#include "outputs/h5/rows.h"
#include "outputs/run/run.h"
#include "outputs/storage/storage.h"

#include <sys/stat.h>

struct dpe_run {
    char *path;     /**< of the table */
    char *folder;   /**< of the journal */
    char *manifest; /**< files in it */
    char *own;      /**< this rank's journal */
    char *beside;   /**< beside which a table is written before it takes its place */
    struct dpe_identity identity;
    char hash[65];
    struct dpe_run_options options; /**< info is not kept */
    struct dpe_lock lock;
    struct dpe_journal journal;
    struct dpe_rowset rows;
    struct dpe_identity plans; /**< key → name */
    struct dpe_identity *sessions;
    size_t n_sessions;
    int64_t planned, missing; /**< samples, for tables that are not complete */
    bool made_folder;         /**< by this process */
    bool table_current;       /**< the table on disk is complete and holds every row */
    bool replace;             /**< whatever lies at the table's path may be replaced */
    bool detached;            /**< another process has the folder now: rows are in memory only */
    bool table_there;         /**< when dpe_run_see_table last looked, and then: */
    struct stat table_seen;
};

/** Tell people; printf-like. */
void dpe_run_notice(const struct dpe_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Remember a session (moved) or a row (moved), or a plan's name (of two the smaller). */
dpe_status dpe_run_keep_session(struct dpe_run *run, struct dpe_identity *session,
                                struct dpe_error *err);
/** A key that is there with another value is DPE_INTERNAL, naming the field; with the same one,
 * *fresh is false and the row is freed. */
dpe_status dpe_run_keep_row(struct dpe_run *run, struct dpe_row *row, bool *fresh,
                            struct dpe_error *err);
dpe_status dpe_run_keep_plan(struct dpe_run *run, const char *plan, const char *name, bool *fresh,
                             struct dpe_error *err);
/** Whether a file of this name in a journal folder is one that runs write, the lock left out. */
bool dpe_run_is_ours(const char *name);
/** Make the journal's folder unless it is there, and prove that a table can be put beside it. */
dpe_status dpe_run_make_folder(struct dpe_run *run, struct dpe_error *err);
/** DPE_PERMISSION when the journal's folder, or one of our files in it, is a link, something else
 *  than a folder and regular files, or another user's. */
dpe_status dpe_run_check_folder(const struct dpe_run *run, struct dpe_error *err);
/** Take the folder's lock (of this rank). Errors as of dpe_lock_take. */
dpe_status dpe_run_take_lock(struct dpe_run *run, struct dpe_error *err);
/** Before each write: when the journal was removed, write it again from what is in memory, and give
 *  a notice. When another process has begun it again, `detached`. */
dpe_status dpe_run_keep_journal(struct dpe_run *run, struct dpe_error *err);
/** Remember what lies at the table's path. */
void dpe_run_see_table(struct dpe_run *run);
/** DPE_CANNOT_CREATE when there is something else at the table's path than was seen last, unless
 *  `replace`. */
dpe_status dpe_run_check_table(const struct dpe_run *run, struct dpe_error *err);
/** Unlink every file of ours in the journal folder but the lock. */
dpe_status dpe_run_clear_folder(const struct dpe_run *run, struct dpe_error *err);
/** NULL allowed. */
void dpe_run_free(struct dpe_run *run);
DPE_SCOPED_HANDLE(struct dpe_run *, dpe_run_free)

/** manifest.json: the identity of a journal folder. */
struct dpe_manifest {
    struct dpe_identity identity;
    bool replace; /**< opened with `force`: whatever lies at the table's path may be replaced */
    bool other_version; /**< reading failed because another program wrote it */
};
dpe_status dpe_manifest_write(const char *path, const struct dpe_manifest *manifest,
                              struct dpe_error *err);
/** DPE_NO_INPUT when there is none, DPE_BAD_DATA when it is damaged or of another version. */
dpe_status dpe_manifest_read(const char *path, struct dpe_manifest *manifest,
                             struct dpe_error *err);

/** Where records go. */
struct dpe_records {
    struct dpe_journal *journal; /**< NULL: they are gathered, for a new one */
    struct dpe_text bytes;
    uint64_t n; /**< of those gathered */
};
/** Put one. Errors as dpe_record_encode and dpe_journal_append. */
dpe_status dpe_records_put(struct dpe_records *to, unsigned type, const void *payload, size_t n,
                           struct dpe_error *err);
dpe_status dpe_records_put_list(struct dpe_records *to, unsigned type,
                                const struct dpe_identity *list, struct dpe_error *err);
dpe_status dpe_records_put_row(struct dpe_records *to, const struct dpe_row *row,
                               struct dpe_error *err);

#endif
