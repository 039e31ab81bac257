/**
 * @file h5.h
 * HDF5 tables: datasets, scales and attributes, written and read; whole tables, made, finished and
 * looked at.
 */
#ifndef DPE_H5_H
#define DPE_H5_H

#include "engine/base/base.h"
#include "outputs/h5/rows.h"

/** A table, open for writing or for reading. */
struct dpe_h5;

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
/** A table being written remembers its first failure: after it, the calls that write do nothing. A
 * writer asks once at its end whether there was one: */
dpe_status dpe_h5_failed(const struct dpe_h5 *table, struct dpe_error *err);
/** Remember a failure of the writer's own, unless there was one. */
void dpe_h5_stop(struct dpe_h5 *table, dpe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** n cleared elements for what is put; their lack stops the table, "out of memory for WHAT". */
void *dpe_h5_room(struct dpe_h5 *table, size_t n, size_t size, const char *what);
/** Write one dataset (chunked, shuffle, gzip 4, fletcher32; a scalar or an empty one contiguous).
 *  Attributes long_name, units, flag_values and flag_meanings, and _FillValue (NaN; −1) on floats
 *  and signed integers that are not scales. Scales are put before what uses them, into a folder
 *  above it (datasets in /run: one in /run). Errors:
 *  DPE_INTERNAL (a path that exists, a scale that is missing or has another length, also than one
 * of its name in a folder above), DPE_NO_MEMORY.
 */
void dpe_h5_put(struct dpe_h5 *table, const struct dpe_column *column);
/** A scale of n values, and 0, 1, 2, … as one. Errors as dpe_h5_put. */
void dpe_h5_put_scale(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      const void *data, int64_t n, const char *long_name, const char *units);
void dpe_h5_put_count(struct dpe_h5 *table, const char *path, int64_t n, const char *long_name);
/** Attributes on a group, dataset or "/" (missing groups are made). An attribute that exists is
 *  replaced. On "/" a tool sets only title and source; the others are dpe_run_snapshot's. */
void dpe_h5_attr_text(struct dpe_h5 *table, const char *object, const char *name,
                      const char *value);
void dpe_h5_attr_f64(struct dpe_h5 *table, const char *object, const char *name, double value);
void dpe_h5_attr_i64(struct dpe_h5 *table, const char *object, const char *name, int64_t value);

struct dpe_table_values;
/** Put the fields of these parts (outputs/table/fields.h) of a DPE table's entry into a folder
 * ("/table", "/table/LENGTH"); the axes are there. */
void dpe_h5_put_entry(struct dpe_h5 *table, const char *folder,
                      const struct dpe_table_values *values, unsigned parts);
/** The attributes of /table that say what a runtime has to do. */
void dpe_h5_put_conventions(struct dpe_h5 *table, const struct dpe_table_values *values,
                            unsigned parts);
/** The attributes of /model: of the values its type, fingerprint and shape are used. */
void dpe_h5_put_model(struct dpe_h5 *table, const struct dpe_table_values *values);

/** Open for reading; checks the checksum at its end, schema_name and the major
 *  version. DPE_NO_INPUT, DPE_PERMISSION, DPE_BAD_DATA (not HDF5, not a DPE table, newer, damaged,
 *  without a checksum). Close with dpe_h5_close. */
dpe_status dpe_h5_open(const char *path, struct dpe_h5 **table, struct dpe_error *err);
/** Whether a dataset or group is there. No, too, when HDF5 cannot tell: see dpe_h5_answered. */
bool dpe_h5_has(struct dpe_h5 *table, const char *path);
/** Whether dpe_h5_has knew all its answers about this table; ask before a result that depends on a
 *  "no" is used. DPE_NO_MEMORY, DPE_BAD_DATA. */
dpe_status dpe_h5_answered(const struct dpe_h5 *table, struct dpe_error *err);
/** Names of what lies in a group (datasets and groups), sorted by bytes; free with
 *  dpe_strings_free. None when the group does not exist. DPE_BAD_DATA, DPE_NO_MEMORY. */
dpe_status dpe_h5_list(struct dpe_h5 *table, const char *path, char ***names, size_t *n,
                       struct dpe_error *err);
/** Read a whole numeric dataset, converted to `type`; *data is owned by the caller (free), dims
 *  [5] filled, *rank set. DPE_BAD_DATA when it is not there and when a value does not fit
 *  `type`, floats are to be read as integers, the checksum is wrong, or the file is too small to
 *  hold what it claims. */
dpe_status dpe_h5_get(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                      void **data, int *rank, int64_t dims[5], struct dpe_error *err);
/** Read a string dataset (of any rank, row-major): an array of n owned strings; free with
 *  dpe_strings_free. Errors as dpe_h5_get. */
dpe_status dpe_h5_get_strings(struct dpe_h5 *table, const char *path, char ***strings, size_t *n,
                              struct dpe_error *err);
void dpe_strings_free(char **strings, size_t n);
/** The same as one variable, for DPE_SCOPED(dpe_strings_drop). */
struct dpe_strings {
    char **at;
    size_t n;
};
void dpe_strings_drop(struct dpe_strings *strings);
/** Attributes; DPE_BAD_DATA when object or attribute is not there. *value is owned (free). */
dpe_status dpe_h5_get_attr_text(struct dpe_h5 *table, const char *object, const char *name,
                                char **value, struct dpe_error *err);
dpe_status dpe_h5_get_attr_i64(struct dpe_h5 *table, const char *object, const char *name,
                               int64_t *value, struct dpe_error *err);
/** What decides the result. Free it also after a failure. DPE_BAD_DATA. */
dpe_status dpe_h5_get_identity(struct dpe_h5 *table, struct dpe_identity *identity,
                               struct dpe_error *err);
/** Every row of a table in its order (sorted by task, plan, sample), owned by the caller: free each
 *  with dpe_row_free, then the array. DPE_BAD_DATA when /rows does not agree with its checksum. */
dpe_status dpe_h5_get_rows(struct dpe_h5 *table, struct dpe_row **rows, size_t *n,
                           struct dpe_error *err);
/** NULL allowed. */
void dpe_h5_close(struct dpe_h5 *table);
DPE_SCOPED_HANDLE(struct dpe_h5 *, dpe_h5_close)

/* ------------------------------------------------------------------- tables without a checksum */

/* They are refused, unless a tool has an option (--unchecked) to read them. HDF5 1.10 crashes on
 * some damaged files. A file whose checksum matches is not damaged; one without a checksum may be.
 * It is therefore read in a child process, whose crash is an error like others. */

/** Whether this process reads tables without a checksum: it is a child of dpe_h5_unchecked_run. */
bool dpe_h5_is_unchecked(void);

/** Run this program again with the same arguments, in a child process that reads tables without a
 *  checksum, and forward signals to it. *code: its exit status. DPE_BAD_DATA when it crashed, with
 *  the tables among the n `paths` that have no checksum; as dpe_child_run. argv[1] … are borrowed.
 */
dpe_status dpe_h5_unchecked_run(char *const *argv, const char *const *paths, size_t n, int *code,
                                struct dpe_error *err);

/* ---------------------------------------------------------------- whole tables, for outputs/run */

#define DPE_SCHEMA_NAME "dpe-table"
/** An empty table in memory. */
dpe_status dpe_h5_create(struct dpe_h5 **table, struct dpe_error *err);
struct dpe_new_file;
/** Close a table made by dpe_h5_create and write it into a new file, which is reopened and compared
 *  with the bytes that were written. dpe_new_file_finish puts it in place. Frees the table always;
 *  the file is the caller's to drop. */
dpe_status dpe_h5_finish(struct dpe_h5 *table, struct dpe_new_file *file, struct dpe_error *err);

/** Compare an open file with its trailer. DPE_BAD_DATA when they do not match; without a trailer
 *  (another program wrote or changed the file, or it is cut off) DPE_BAD_DATA if it is `needed`,
 *  DPE_OK if not. */
dpe_status dpe_h5_check_trailer(int fd, const char *path, bool needed, struct dpe_error *err);

/** What lies where a table should be. */
enum dpe_h5_state {
    DPE_H5_ABSENT,
    DPE_H5_FOREIGN, /**< HDF5, but no table of ours, or one of a newer schema */
    DPE_H5_DAMAGED, /**< cannot be read: no HDF5 at all, or a table that broke */
    DPE_H5_OURS,
};
/** Everything a run needs to go on from a table. */
struct dpe_h5_content {
    struct dpe_identity identity;
    struct dpe_row *rows;
    size_t n_rows;
    struct dpe_identity plans;     /**< key → name */
    struct dpe_identity *sessions; /**< [n_sessions] */
    size_t n_sessions;
    bool complete;
    char problem[512]; /**< why it is foreign or damaged */
};
/** Look at `path`; fails only for what no table could be (a folder, a FIFO: DPE_CANNOT_CREATE) and
 *  for DPE_PERMISSION, DPE_NO_MEMORY. */
dpe_status dpe_h5_look(const char *path, enum dpe_h5_state *state, struct dpe_h5_content *content,
                       struct dpe_error *err);
void dpe_h5_content_free(struct dpe_h5_content *content);

/** Write n elements along a scale, or (scale NULL) a scale. dpe_h5_failed tells whether it worked.
 */
void dpe_h5_put_list(struct dpe_h5 *table, const char *path, enum dpe_column_type type,
                     const void *data, size_t n, const char *scale, const char *long_name,
                     const char *units);
/** DPE_BAD_DATA with this message unless the attribute of the object is the hash. */
dpe_status dpe_h5_check_hash(struct dpe_h5 *table, const char *object, const char *name,
                             const char *hex, const char *message, struct dpe_error *err);

/** What a run writes into each of its tables. */
struct dpe_h5_common {
    const struct dpe_identity *identity;
    const char *hash;
    const struct dpe_row *const *rows; /**< sorted */
    size_t n_rows;
    const struct dpe_identity *plans;
    const struct dpe_identity *sessions;
    size_t n_sessions;
    bool complete;
    int64_t planned, missing; /**< of a run that is not complete: samples; planned 0: not known */
};
/** /tasks, /plans and /rows. dpe_h5_failed tells whether these worked. */
void dpe_h5_write_rows(struct dpe_h5 *table, const struct dpe_h5_common *common);
/** What of the rows differs between equal runs: /run/seconds. */
void dpe_h5_write_run_rows(struct dpe_h5 *table, const struct dpe_h5_common *common);
/** The root attributes, /identity, /tasks, /plans, /rows: first in the file. */
dpe_status dpe_h5_write_common(struct dpe_h5 *table, const struct dpe_h5_common *common,
                               struct dpe_error *err);
/** /run: last in the file, so that nothing of it moves anything else. */
dpe_status dpe_h5_write_run(struct dpe_h5 *table, const struct dpe_h5_common *common,
                            struct dpe_error *err);

#endif
