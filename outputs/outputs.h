/**
 * @file outputs.h
 * Results that are never lost: rows, the journal they are appended to, and the HDF5 tables derived
 * from them.
 *
 * One story. A tool describes what decides its results as an *identity* (a list of named strings)
 * and opens a run on its output file. The run holds a lock, gives back every row that an earlier
 * process finished (from the journal, or from a complete table of the same identity), and appends
 * each new row durably before the tool goes on. From time to time and at the end the tool has the
 * table rebuilt: into a temporary file beside it, closed, synced, read back, renamed. The journal
 * is the truth, the table is derived; readers only ever see closed files.
 */
#ifndef DPE_OUTPUTS_H
#define DPE_OUTPUTS_H

#include "engine.h"

/* ----------------------------------------------------------------------------------------- rows */

enum dpe_row_status {
    DPE_ROW_OK = 0,
    DPE_ROW_NONFINITE = 1, /**< NaN or Inf twice; layer and position say where */
    DPE_ROW_FAILED = 2,    /**< could not be run; not scored */
};

/** One sample under one plan. Fields that a task does not produce hold NaN, −1 or NULL. */
struct dpe_row {
    char plan[33];        /**< first 16 bytes of dpe_plan_digest, hex: half of the row's key */
    char task[32];        /**< "niah", "ppl", "validate-niah", …: names the sample stream */
    int64_t sample;       /**< index in that stream, ≥ 0 */
    int32_t status;       /**< enum dpe_row_status */
    double score;         /**< NIAH: recall, 0 … 1 */
    double at_least_half; /**< NIAH: 1 when at least half of the values were found, else 0 */
    double nll_sum;       /**< nats */
    int64_t n_tokens;     /**< scored tokens */
    int64_t n_words;      /**< words of the scored text */
    int64_t prompt_tokens;
    int64_t new_tokens; /**< generated */
    uint64_t seed;      /**< of the sample */
    int32_t layer;      /**< DPE_ROW_NONFINITE: where */
    int64_t position;
    double seconds;  /**< differs between equal runs: goes to /run */
    char *text;      /**< the prediction, UTF-8, owned by the row; NULL when none */
    double *buckets; /**< NLL sums by position bucket (powers of two), owned; NULL when none */
    int32_t n_buckets;
};
/** All fields empty. */
void dpe_row_init(struct dpe_row *row);
void dpe_row_free(struct dpe_row *row);

/* ---------------------------------------------------------------------------------------- names */

/** Named strings in a fixed order: what decides a result (an identity), or what a process is
 *  (/run). Names are unique and, like values, valid UTF-8. Zero-initialise. */
struct dpe_identity {
    size_t n, capacity;
    struct dpe_identity_field {
        char *name, *value;
    } * fields;
};
/** Append a copy. DPE_INTERNAL when the name is there already or is empty, DPE_BAD_DATA when name
 *  or value is not UTF-8. */
dpe_status dpe_identity_add(struct dpe_identity *identity, const char *name, const char *value,
                            struct dpe_error *err);
/** printf-like value; write doubles as %.17g. */
dpe_status dpe_identity_addf(struct dpe_identity *identity, struct dpe_error *err, const char *name,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
/** The value of a name, borrowed, or NULL. */
const char *dpe_identity_get(const struct dpe_identity *identity, const char *name);
/** SHA-256 of all names and values in their order; 64 hex digits and a NUL. DPE_NO_MEMORY. */
dpe_status dpe_identity_hash(const struct dpe_identity *identity, char hex[65],
                             struct dpe_error *err);
void dpe_identity_free(struct dpe_identity *identity);

/** Append what this process is, for /run: started (ISO-8601, UTC), command (argv, shell-quoted),
 *  host, pid, os, cpu, cores, threads, memory_bytes, software (version, git), compiler, and the
 * versions of the libraries used here. Names are [a-z0-9_]+; the caller appends what it knows
 * besides (device, gpu, driver, openblas …) before the run is opened. argc 0: no command; n_threads
 * 0: unknown. */
dpe_status dpe_run_info(struct dpe_identity *info, int argc, char *const *argv, int n_threads,
                        struct dpe_error *err);

/* ----------------------------------------------------------------------------------------- lock */

/** A file that one process at a time has, and that says which. A run takes its own. */
struct dpe_lock {
    int fd; /**< −1: not held */
    char *path;
};
/** Take the lock file; `note` [256] says what was taken over, "" when nothing was.
 * DPE_CANNOT_CREATE when another process has it, which is named. */
dpe_status dpe_lock_take(struct dpe_lock *lock, const char *path, bool force_unlock, char *note,
                         struct dpe_error *err);
/** Give it back: emptied, and unlinked when `remove`; one that is no longer held stays as it is. */
void dpe_lock_release(struct dpe_lock *lock, bool remove);

/* ------------------------------------------------------------------------------------------ run */

struct dpe_run_options {
    bool force;        /**< replace an output that is no resumable run of this identity */
    bool salvage;      /**< drop what a bad CRC in the middle hides, saying what is lost */
    bool keep_journal; /**< leave the journal beside the finished table */
    bool force_unlock; /**< take over the lock of another host */
    int rank;          /**< this process's journal is rank-NNNN.journal; 0 when alone */
    bool own_only;     /**< a rank above 0: look at nothing but its own journal, tell no session;
                            rank 0, which opens first, knows the rest */
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
 *  lock, named by host and pid; the output exists and is no table of ours, unless `force`),
 *  DPE_MISMATCH (it was made by a different run, listing every differing field, expected and found,
 *  unless `force`), DPE_BAD_DATA (a record in the middle is damaged, unless `salvage`; a newer
 *  format), DPE_INTERNAL (two values for one row), DPE_IO, DPE_NO_MEMORY. A table that is missing
 *  or damaged while its journal exists is rebuilt by the next snapshot. */
dpe_status dpe_run_open(const char *path, const struct dpe_identity *identity,
                        const struct dpe_run_options *options, struct dpe_run **run,
                        struct dpe_error *err);
/** Rows known so far in no promised order; borrowed until the next add. */
const struct dpe_row *dpe_run_rows(const struct dpe_run *run, size_t *n);
/** The row of a key, or NULL. O(1). Borrowed until the next add. */
const struct dpe_row *dpe_run_find(const struct dpe_run *run, const char *task, const char *plan,
                                   int64_t sample);
/** Append durably (one write, fdatasync), then remember. The row is copied. A key that exists with
 *  another value is DPE_INTERNAL ("nondeterminism"; seconds are not compared); with the same value
 *  it is nothing. A row that breaks the rules of struct dpe_row is DPE_INTERNAL. A failed write or
 *  sync is DPE_IO, final for this process: the journal stays valid up to the last row. */
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
/** Times this run was opened before. */
int dpe_run_sessions(const struct dpe_run *run);

struct dpe_h5;
/** Fills the table from the rows; called with a table that is open for writing and already holds
 *  the root attributes, /identity, /tasks, /plans and /rows. Whatever differs between two equal
 *  runs goes under /run, and is put last. */
typedef dpe_status (*dpe_run_fill)(void *user, struct dpe_h5 *table, struct dpe_error *err);
/** Rebuild the table at `path` through a temporary file: root attributes (schema, identity,
 *  complete, n_rows), /identity, /tasks, /plans, /rows (sorted by task, plan, sample) and /run,
 * then `fill` (NULL allowed); written, synced, reopened and compared, renamed, folder synced. On
 * any failure the table at `path` is what it was. Rank 0 only. */
dpe_status dpe_run_snapshot(struct dpe_run *run, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err);
/** Release the lock and free. When the table on disk is complete and holds every row the journal is
 *  removed (unless keep_journal). NULL allowed. An error here never means that a row is lost. */
dpe_status dpe_run_close(struct dpe_run *run, struct dpe_error *err);

/* --------------------------------------------------------------------------------------- tables */

enum dpe_column_type {
    DPE_COL_F64,
    DPE_COL_F32,
    DPE_COL_I64,
    DPE_COL_I32,
    DPE_COL_U64,
    DPE_COL_U16,
    DPE_COL_U8,
    DPE_COL_STRING, /**< UTF-8, variable length */
};

/** One dataset: dense, row-major. */
struct dpe_column {
    const char *path; /**< absolute, "/detect/rank"; groups are made as needed */
    enum dpe_column_type type;
    int rank; /**< 0 (scalar) … 5 */
    int64_t dims[5];
    const char *scales[5]; /**< path of the dimension scale of each axis; a scale itself has none */
    const void *data;      /**< the elements; DPE_COL_STRING: const char *const *, NULL = "" */
    const char *long_name; /**< required */
    const char *units;     /**< "1" when it has none */
    const char
        *flag_meanings; /**< "ok nonfinite failed" for coded integers 0, 1, 2, …; NULL else */
    bool is_scale;      /**< becomes an HDF5 dimension scale; name = last part of the path */
};
/** Write one dataset (chunked, shuffle, gzip 4, fletcher32; a scalar or an empty one contiguous).
 *  Attributes long_name, units, flag_values and flag_meanings, and _FillValue (NaN; −1) on floats
 *  and signed integers that are no scales. Scales are put before what uses them, into a folder
 *  above it (datasets in /run: one in /run). Errors:
 *  DPE_INTERNAL (a path that exists, a scale that is missing or has another length), DPE_NO_MEMORY.
 */
dpe_status dpe_h5_put(struct dpe_h5 *table, const struct dpe_column *column, struct dpe_error *err);
/** A scale of n values, and 0, 1, 2, … as one. Errors as dpe_h5_put. */
dpe_status dpe_h5_put_scale(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                            const void *data, int64_t n, const char *long_name, const char *units,
                            struct dpe_error *err);
dpe_status dpe_h5_put_count(struct dpe_h5 *table, const char *path, int64_t n,
                            const char *long_name, struct dpe_error *err);
/** Attributes on a group, dataset or "/" (missing groups are made). An attribute that exists is
 *  replaced, except those that dpe_run_snapshot writes on "/" (DPE_INTERNAL), but for title and
 *  source. */
dpe_status dpe_h5_attr_text(struct dpe_h5 *table, const char *object, const char *name,
                            const char *value, struct dpe_error *err);
dpe_status dpe_h5_attr_f64(struct dpe_h5 *table, const char *object, const char *name, double value,
                           struct dpe_error *err);
dpe_status dpe_h5_attr_i64(struct dpe_h5 *table, const char *object, const char *name,
                           int64_t value, struct dpe_error *err);

/** Open for reading; checks schema_name and the major version. DPE_NO_INPUT, DPE_PERMISSION,
 *  DPE_BAD_DATA (not HDF5, not ours, newer, damaged). Close with dpe_h5_close. */
dpe_status dpe_h5_open(const char *path, struct dpe_h5 **table, struct dpe_error *err);
/** Whether a dataset or group is there. */
bool dpe_h5_has(struct dpe_h5 *table, const char *path);
/** Names of what lies in a group (datasets and groups), sorted by bytes; free with
 *  dpe_strings_free. None when there is no such group. DPE_BAD_DATA, DPE_NO_MEMORY. */
dpe_status dpe_h5_list(struct dpe_h5 *table, const char *path, char ***names, size_t *n,
                       struct dpe_error *err);
/** Read a whole numeric dataset, converted to `type`; *data is owned by the caller (free), dims
 *  [5] filled, *rank set. DPE_BAD_DATA when it is not there and when a value does not fit
 *  `type`, an integer type is asked of floats, the checksum is wrong, or the file is too small to
 *  hold what it claims. */
dpe_status dpe_h5_get(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      void **data, int *rank, int64_t dims[5], struct dpe_error *err);
/** Read a string dataset (of any rank, row-major): an array of n owned strings; free with
 *  dpe_strings_free. Errors as dpe_h5_get. */
dpe_status dpe_h5_get_strings(struct dpe_h5 *table, const char *path, char ***strings, size_t *n,
                              struct dpe_error *err);
void dpe_strings_free(char **strings, size_t n);
/** Attributes; DPE_BAD_DATA when object or attribute is not there. *value is owned (free). */
dpe_status dpe_h5_get_attr_text(struct dpe_h5 *table, const char *object, const char *name,
                                char **value, struct dpe_error *err);
dpe_status dpe_h5_get_attr_f64(struct dpe_h5 *table, const char *object, const char *name,
                               double *value, struct dpe_error *err);
dpe_status dpe_h5_get_attr_i64(struct dpe_h5 *table, const char *object, const char *name,
                               int64_t *value, struct dpe_error *err);
/** Every row of a table in its order (sorted by task, plan, sample), owned by the caller: free each
 *  with dpe_row_free, then the array. DPE_BAD_DATA when /rows does not agree with its checksum. */
dpe_status dpe_h5_get_rows(struct dpe_h5 *table, struct dpe_row **rows, size_t *n,
                           struct dpe_error *err);
/** NULL allowed. */
void dpe_h5_close(struct dpe_h5 *table);

/* ------------------------------------------------------------------------------------- DPE tables
 */

struct dpe_table;
struct dpe_table_values;
/** dpe_table_open (dpe_table.h) with our kind of error: DPE_NO_INPUT without such a file, else
 *  DPE_BAD_DATA. */
dpe_status dpe_table_load(const char *path, struct dpe_table **table, struct dpe_error *err);
/** The position plan that a DPE table (dpe_table.h) describes, for the lengths it was made for;
 *  of `context` the configuration, `official` and `angle` are used. DPE_BAD_DATA when layers,
 *  heads, KV heads or head dimension are not the model's, or its own frequencies and attention
 *  scaling are not those that the table was made with (to 1e-5). */
dpe_status dpe_plan_of_table(const struct dpe_table_values *values,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);

#endif
