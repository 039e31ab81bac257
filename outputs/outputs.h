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

/* ---------------------------------------------------------------------------------------- rows */

enum dpe_row_status {
    DPE_ROW_OK = 0,
    DPE_ROW_NONFINITE = 1, /**< NaN or Inf twice; layer and position say where */
    DPE_ROW_FAILED = 2,    /**< could not be run; not scored */
};

/** One sample under one plan. Fields that a task does not produce hold NaN, −1 or NULL. */
struct dpe_row {
    char plan[33];        /**< first 16 bytes of dpe_plan_digest, hex: half of the row's key */
    char task[32];        /**< "niah", "ppl", "validate-niah", …: names the sample stream */
    int64_t sample;       /**< index in that stream */
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

/* ------------------------------------------------------------------------------------------ run */

/** What decides a result, as named strings in a fixed order. Numbers are written as %.17g. */
struct dpe_identity {
    size_t n, capacity;
    struct dpe_identity_field {
        char *name, *value;
    } * fields;
};
dpe_status dpe_identity_add(struct dpe_identity *identity, const char *name, const char *value,
                            struct dpe_error *err);
/** printf-like value. */
dpe_status dpe_identity_addf(struct dpe_identity *identity, struct dpe_error *err, const char *name,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
/** SHA-256 of all names and values. */
void dpe_identity_hash(const struct dpe_identity *identity, char hex[65]);
void dpe_identity_free(struct dpe_identity *identity);

struct dpe_run_options {
    bool force;        /**< replace an output that is no resumable run of this identity */
    bool salvage;      /**< drop what a bad CRC in the middle hides, saying what is lost */
    bool keep_journal; /**< leave the journal beside the finished table */
    bool force_unlock; /**< take over the lock of another host */
    int rank;          /**< this process's journal is rank-NNNN.journal; 0 when alone */
    /** Notices for people (a lock taken over, a torn tail set aside, rows lost by salvage). */
    void (*notice)(void *user, const char *text);
    void *user;
};

struct dpe_run;

/** Open or resume the run whose table is `path`. Refuses before any work when the folder cannot be
 *  written, another process holds the lock (DPE_CANNOT_CREATE), the output exists and was made by
 *  a different run (DPE_MISMATCH, listing every differing field, expected and found) unless
 *  `force`, or a record in the middle is damaged (DPE_BAD_DATA) unless `salvage`. */
dpe_status dpe_run_open(const char *path, const struct dpe_identity *identity,
                        const struct dpe_run_options *options, struct dpe_run **run,
                        struct dpe_error *err);
/** Rows known so far in order of (task, plan, sample) is not promised; borrowed until the next add.
 */
const struct dpe_row *dpe_run_rows(const struct dpe_run *run, size_t *n);
/** The row of a key, or NULL. O(1). Borrowed until the next add. */
const struct dpe_row *dpe_run_find(const struct dpe_run *run, const char *task, const char *plan,
                                   int64_t sample);
/** Append durably (one write, fdatasync), then remember. The row is copied. A key that exists with
 *  another value is DPE_INTERNAL ("nondeterminism"); with the same value it is nothing. A failed
 *  write or sync is DPE_IO, final for this process: the journal stays valid up to the last row. */
dpe_status dpe_run_add(struct dpe_run *run, const struct dpe_row *row, struct dpe_error *err);
/** Times this run was opened before (sessions), for /run. */
int dpe_run_sessions(const struct dpe_run *run);

struct dpe_table;
/** Fills the table from the rows; called with an empty table that is open for writing. */
typedef dpe_status (*dpe_run_fill)(void *user, struct dpe_table *table, struct dpe_error *err);
/** Rebuild the table at `path` through a temporary file: fill, write /rows and the root attributes
 *  (schema, identity, complete, n_rows), close, sync, reopen and compare, rename, sync the folder.
 */
dpe_status dpe_run_snapshot(struct dpe_run *run, bool complete, dpe_run_fill fill, void *user,
                            struct dpe_error *err);
/** Release the lock. When the last snapshot was complete the journal is removed (unless
 *  keep_journal). NULL allowed. */
dpe_status dpe_run_close(struct dpe_run *run, struct dpe_error *err);

/* ---------------------------------------------------------------------------------------- tables
 */

enum dpe_column_type { DPE_F64, DPE_F32C, DPE_I64, DPE_I32, DPE_U64, DPE_U16, DPE_U8, DPE_STRING };

/** One dataset: dense, row-major. */
struct dpe_column {
    const char *path; /**< absolute, "/detect/rank"; groups are made as needed */
    enum dpe_column_type type;
    int rank; /**< 0 (scalar) … 5 */
    int64_t dims[5];
    const char *scales[5]; /**< path of the dimension scale of each axis, or NULL */
    const void *data;      /**< the elements; DPE_STRING: const char *const * (UTF-8) */
    const char *long_name; /**< required */
    const char *units;     /**< "1" when it has none */
    const char
        *flag_meanings; /**< "ok nonfinite failed" for coded integers 0, 1, 2, …; NULL else */
    bool is_scale;      /**< becomes an HDF5 dimension scale; name = last part of the path */
};
/** Write one dataset (chunked, shuffle, gzip 4, fletcher32; fill value NaN or −1). */
dpe_status dpe_table_put(struct dpe_table *table, const struct dpe_column *column,
                         struct dpe_error *err);
/** Attributes on a group, dataset or "/" (groups are made as needed). */
dpe_status dpe_table_attr_text(struct dpe_table *table, const char *object, const char *name,
                               const char *value, struct dpe_error *err);
dpe_status dpe_table_attr_f64(struct dpe_table *table, const char *object, const char *name,
                              double value, struct dpe_error *err);
dpe_status dpe_table_attr_i64(struct dpe_table *table, const char *object, const char *name,
                              int64_t value, struct dpe_error *err);

/** Open for reading; checks schema_name and the major version. */
dpe_status dpe_table_open(const char *path, struct dpe_table **table, struct dpe_error *err);
/** Whether a dataset or group is there. */
bool dpe_table_has(struct dpe_table *table, const char *path);
/** Read a whole numeric dataset, converted to `type`; *data is owned by the caller (free), dims
 *  [5] filled, *rank set. Bounded by the file's size. */
dpe_status dpe_table_get(struct dpe_table *table, const char *path, enum dpe_column_type type,
                         void **data, int *rank, int64_t dims[5], struct dpe_error *err);
/** Read a string dataset of rank 0 or 1: an array of owned strings (free each, then the array). */
dpe_status dpe_table_get_strings(struct dpe_table *table, const char *path, char ***strings,
                                 size_t *n, struct dpe_error *err);
dpe_status dpe_table_get_attr_text(struct dpe_table *table, const char *object, const char *name,
                                   char **value, struct dpe_error *err);
dpe_status dpe_table_get_attr_f64(struct dpe_table *table, const char *object, const char *name,
                                  double *value, struct dpe_error *err);
void dpe_table_close(struct dpe_table *table);

#endif
