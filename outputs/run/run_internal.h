/**
 * @file run_internal.h
 * A run, shared by the files that open it, use it and write its table.
 */
#ifndef DPE_RUN_INTERNAL_H
#define DPE_RUN_INTERNAL_H

#include "engine/base/base.h"
#include "outputs/h5/h5_file.h"
#include "outputs/rows/rows.h"
#include "outputs/run/manifest.h"
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
/** A key that is there with another value is DPE_INTERNAL; with the same one, *fresh is false and
 *  the row is freed. */
dpe_status dpe_run_keep_row(struct dpe_run *run, struct dpe_row *row, bool *fresh,
                            struct dpe_error *err);
dpe_status dpe_run_keep_plan(struct dpe_run *run, const char *plan, const char *name, bool *fresh,
                             struct dpe_error *err);
/** DPE_INTERNAL, naming the cell and the field in which two rows of one key differ. */
dpe_status dpe_run_nondeterminism(const struct dpe_row *known, const struct dpe_row *row,
                                  const char *field, struct dpe_error *err);
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
void dpe_run_free(struct dpe_run *run);

/** What is found while a run is opened. */
struct dpe_opening {
    struct dpe_run *run;
    struct dpe_manifest manifest;
    bool has_manifest; /**< of this identity */
    bool has_begin;    /**< a journal of this identity */
    bool replace;      /**< the file at the table's path may be replaced */
    enum dpe_h5_state state;
    struct dpe_h5_content table;
    const char *reading; /**< journal being read */
    bool reading_own;
    struct dpe_journal_scan own; /**< of this rank's journal */
    bool has_own;
    struct dpe_text records; /**< what a new journal of this rank holds */
    uint64_t n_records;
    size_t n_recovered;
    bool conflict; /**< a row of the table differs from the journal */
};

/** Append to `records`. */
dpe_status dpe_opening_record(struct dpe_opening *opening, unsigned type, const void *payload,
                              size_t n, struct dpe_error *err);
/** Open or create this rank's journal, with what only the table holds. */
dpe_status dpe_opening_journal(struct dpe_opening *opening, struct dpe_error *err);

#endif
