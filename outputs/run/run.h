/**
 * @file run.h
 * A run: opened, resumed, appended to, turned into a table, closed.
 */
#ifndef DPE_RUN_H
#define DPE_RUN_H

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"

/** Append what this process is, for /run: started (ISO-8601, UTC), command (argv, shell-quoted),
 *  host, pid, os, cpu, cores, threads, memory_bytes, software (version, git), compiler, and the
 * versions of the libraries used here. Names are [a-z0-9_]+; the caller appends its own
 * besides (device, gpu, driver, openblas …) before the run is opened. argc 0: no command; n_threads
 * 0: unknown. */
dpe_status dpe_run_info(struct dpe_identity *info, int argc, char *const *argv, int n_threads,
                        struct dpe_error *err);
/** Append one more such text, of which bytes that are not UTF-8 are recorded as '?': names of files
 *  need not be UTF-8, and no run may fail over its own record. */
dpe_status dpe_run_info_add(struct dpe_identity *info, const char *name, const char *text,
                            struct dpe_error *err);

struct dpe_run_options {
    bool force;   /**< replace an output that is not a resumable run of this identity */
    bool salvage; /**< drop what a bad CRC in the middle hides, saying what is lost */
    int rank;     /**< this process's journal is rank-NNNN.journal; 0 when alone. One above 0 reads
                       that alone and adds no session; rank 0, which opens first, reads the rest */
    /** What this process is (dpe_run_info and more); NULL = dpe_run_info without a command. */
    const struct dpe_identity *info;
    /** Notices for people (a lock taken over, a torn tail set aside, rows lost by salvage). */
    void (*notice)(void *user, const char *text);
    void *user;
};

/** An open run; one thread at a time. */
struct dpe_run;

/** Open or resume the run whose table is `path` and whose journal is the folder `path`.journal.
 *  (a link is followed: what it leads to is the table, and has its journal beside it).
 *  Everything is copied. Rows come from the journal, or, where there is none, from a table of the
 *  same identity. `options` may be NULL. Refuses before any work, and leaves the disk as it was:
 *  DPE_PERMISSION or DPE_CANNOT_CREATE (the folder cannot be written; another process holds the
 *  lock, named by host and pid; the output exists and is not a DPE table, unless `force`),
 *  DPE_MISMATCH (it was made by a different run, listing every differing field, expected and found,
 *  unless `force`), DPE_BAD_DATA (a record in the middle is damaged, unless `salvage`; a newer
 *  format), DPE_INTERNAL (two values for one row), DPE_IO, DPE_NO_MEMORY. A table that is missing
 *  or damaged while its journal exists is rebuilt by the next snapshot. */
dpe_status dpe_run_open(const char *path, const struct dpe_identity *identity,
                        const struct dpe_run_options *options, struct dpe_run **run,
                        struct dpe_error *err);
/** Whether there is a run at `path`, in its journal or its table, whose identity can be read; then
 *  *value is what it has under this name, "" when it has none. What is wrong with it, dpe_run_open
 *  says. */
bool dpe_run_recorded(const char *path, const char *name, char *value, size_t size);
/** Rows known so far in no promised order; borrowed until the next add. */
const struct dpe_row *const *dpe_run_rows(const struct dpe_run *run, size_t *n);
/** The row of a key, or NULL. O(log rows). Borrowed until the next add. */
const struct dpe_row *dpe_run_find(const struct dpe_run *run, const char *task, const char *plan,
                                   int64_t sample);
/** Append to the journal (dpe_journal_append), then remember: a row of less than 50 ms may share
 * its sync with those that follow. The row is copied. A key that exists with another value is
 * DPE_INTERNAL ("nondeterminism"; seconds are not compared); with the same value it is nothing. A
 * row that breaks the rules of struct dpe_row is DPE_INTERNAL. A failed write or sync is DPE_IO,
 * final for this process: the journal stays valid up to the last row. */
dpe_status dpe_run_add(struct dpe_run *run, const struct dpe_row *row, struct dpe_error *err);
/** Remember a row that another rank has appended to its journal. The row is copied. Errors as
 *  dpe_run_add. */
dpe_status dpe_run_learn(struct dpe_run *run, const struct dpe_row *row, struct dpe_error *err);
/** Record durably what a plan key stands for (its canonical spec, UTF-8), for /plans. The same
 *  again is nothing; of two names of one key the smaller in byte order is shown. Errors as
 *  dpe_run_add. */
dpe_status dpe_run_plan(struct dpe_run *run, const char *plan, const char *name,
                        struct dpe_error *err);
/** Whether the name of a plan is recorded. */
bool dpe_run_plan_known(const struct dpe_run *run, const char *plan);

/** Fills the table from the rows; called with a table that is open for writing and already holds
 *  the root attributes, /identity, /tasks, /plans and /rows. Whatever differs between two equal
 *  runs goes under /run, and is put last. */
typedef dpe_status (*dpe_run_fill)(void *user, struct dpe_h5 *table, struct dpe_error *err);
/** For tables that are written before the run is complete: samples that were planned, and those of
 *  them that are missing. */
void dpe_run_progress(struct dpe_run *run, int64_t planned, int64_t missing);
/** Rebuild the table at `path` through a temporary file: root attributes (schema, identity,
 *  complete, n_rows), /identity, /tasks, /plans, /rows (sorted by task, plan, sample) and /run,
 * then `fill` (NULL allowed); written, reopened and compared, synced, renamed, folder synced. On
 * any failure the table at `path` is what it was. Rank 0 only. */
dpe_status dpe_run_snapshot(struct dpe_run *run, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err);
/** Release the lock and free. When the table on disk is complete and holds every row the journal is
 *  removed. NULL allowed. An error here never means that a row is lost. */
dpe_status dpe_run_close(struct dpe_run *run, struct dpe_error *err);

#endif
