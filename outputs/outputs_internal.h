/**
 * @file outputs_internal.h
 * What the files of outputs/ share with each other and with nobody else.
 */
#ifndef DPE_OUTPUTS_INTERNAL_H
#define DPE_OUTPUTS_INTERNAL_H

#include <sys/types.h>

#include "durable.h"
#include "outputs.h"
#include "trailer.h"

/* -------------------------------------------------------------------------------- durable files */

/** Fail with the status that fits an errno (EACCES → DPE_PERMISSION, EROFS and the like →
 *  DPE_CANNOT_CREATE, else DPE_IO): "PATH: WHAT: reason". */
dpe_status dpe_fail_errno(struct dpe_error *err, int code, const char *path, const char *what);
/** All of n bytes, through short writes and EINTR. */
dpe_status dpe_write_all(int fd, const char *path, const void *bytes, size_t n,
                         struct dpe_error *err);
/** Sync the entries of a folder. */
dpe_status dpe_sync_folder(const char *folder, struct dpe_error *err);
/** "a" + "b" + "c", owned by the caller; NULL without memory. */
char *dpe_join(const char *a, const char *b, const char *c);
/** The folder that holds `path` ("." when it names none), owned; NULL without memory. */
char *dpe_parent_folder(const char *path);
/** The time as ISO-8601 in UTC, "2026-01-31T12:00:00Z". */
void dpe_time_text(char text[32]);

/* ----------------------------------------------------------------------------------------- rows */

enum dpe_row_kind { DPE_ROW_I32, DPE_ROW_I64, DPE_ROW_U64, DPE_ROW_F64 };

/** A number of struct dpe_row: its tag in the journal and its dataset in a table. */
struct dpe_row_field {
    uint16_t tag;
    enum dpe_row_kind kind;
    size_t offset;
    const char *path, *long_name, *units, *flag_meanings;
};
extern const struct dpe_row_field dpe_row_fields[];
extern const size_t dpe_n_row_fields;

/** DPE_INTERNAL when a row breaks the rules of struct dpe_row. */
dpe_status dpe_row_check(const struct dpe_row *row, struct dpe_error *err);
/** `to` is initialised by this call. */
dpe_status dpe_row_copy(struct dpe_row *to, const struct dpe_row *from, struct dpe_error *err);
/** Name of the first field that differs (NaN equals NaN, seconds are not looked at), or NULL. */
const char *dpe_row_difference(const struct dpe_row *a, const struct dpe_row *b);
/** −1, 0, 1 by (task, plan, sample). */
int dpe_row_compare(const struct dpe_row *a, const struct dpe_row *b);
/** Append the portable bytes of a row: fields of tag u16, length u32, value; numbers as 8 bytes,
 *  little-endian, doubles by their bits. Without `seconds` that field is left out. */
dpe_status dpe_row_encode(const struct dpe_row *row, bool seconds, struct dpe_text *out,
                          struct dpe_error *err);
/** The reverse; `row` is initialised by this call. Unknown tags are skipped. DPE_BAD_DATA. */
dpe_status dpe_row_decode(const unsigned char *bytes, size_t n, struct dpe_row *row,
                          struct dpe_error *err);
/** SHA-256 of the rows in the order given, without seconds. */
dpe_status dpe_rows_hash(const struct dpe_row *const *rows, size_t n, char hex[65],
                         struct dpe_error *err);

/** Rows by key. */
struct dpe_rowset {
    struct dpe_row *rows;
    size_t n, capacity;
    size_t *slots; /**< [n_slots] index + 1 of a row, 0 = free */
    size_t n_slots;
};
/** Room for one more, so that the next take cannot fail. */
dpe_status dpe_rowset_reserve(struct dpe_rowset *set, struct dpe_error *err);
/** Move a row with a new key into reserved room. */
void dpe_rowset_take(struct dpe_rowset *set, struct dpe_row *row);
const struct dpe_row *dpe_rowset_find(const struct dpe_rowset *set, const char *task,
                                      const char *plan, int64_t sample);
void dpe_rowset_free(struct dpe_rowset *set);

/* ------------------------------------------------------------------------------------- identity */

dpe_status dpe_identity_copy(struct dpe_identity *to, const struct dpe_identity *from,
                             struct dpe_error *err);
/** DPE_MISMATCH listing every field in which `found` (of the file `path`) differs. */
dpe_status dpe_identity_mismatch(const struct dpe_identity *expected,
                                 const struct dpe_identity *found, const char *path,
                                 struct dpe_error *err);
/** Portable bytes of named strings, and back (`list` is initialised). */
dpe_status dpe_identity_encode(const struct dpe_identity *list, struct dpe_text *out,
                               struct dpe_error *err);
dpe_status dpe_identity_decode(const unsigned char *bytes, size_t n, struct dpe_identity *list,
                               struct dpe_error *err);

/** Whether a name can be a dataset in /run/sessions: [a-z0-9_]+. */
bool dpe_session_name_ok(const char *name);

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

/* -------------------------------------------------------------------------------------- journal */

enum dpe_record_type {
    DPE_RECORD_BEGIN = 1,   /**< first of every file; payload: identity hash, 64 hex digits */
    DPE_RECORD_SESSION = 2, /**< a process opened the run; payload: dpe_identity_encode */
    DPE_RECORD_ROW = 3,     /**< payload: dpe_row_encode */
    DPE_RECORD_PLAN = 4,    /**< payload: dpe_identity_encode of one pair, plan key and name */
};

/** A journal file open for appending. */
struct dpe_journal {
    int fd; /**< −1: closed */
    char *path;
    uint64_t sequence; /**< of the next record */
    bool failed;       /**< a write or sync failed: nothing more is written by this process */
};

/** Sees the valid records of a file in their order. */
typedef dpe_status (*dpe_record_visit)(void *user, unsigned type, const unsigned char *payload,
                                       size_t n, struct dpe_error *err);

/** What reading a journal found. */
struct dpe_journal_scan {
    uint64_t end;       /**< bytes up to and with the last valid record */
    uint64_t size;      /**< of the file; more than `end`: a torn tail */
    uint64_t sequence;  /**< of the next record */
    uint64_t n_records; /**< valid ones */
    bool damaged;       /**< salvage left something out */
    char lost[256];     /**< what, in words */
};

/** Append the bytes of one record to `out`. */
dpe_status dpe_record_encode(struct dpe_text *out, unsigned type, uint64_t sequence,
                             const void *payload, size_t n, struct dpe_error *err);
/** Read a journal: every valid record goes to `visit`. Bytes after the last valid record with no
 *  valid one behind them are a torn tail (see scan). Damage before a valid record, or a sequence
 *  number out of order, is DPE_BAD_DATA unless `salvage`. Another version is DPE_BAD_DATA. */
dpe_status dpe_journal_read(const char *path, bool salvage, dpe_record_visit visit, void *user,
                            struct dpe_journal_scan *scan, struct dpe_error *err);
/** Put a journal file with these bytes (whole records, `sequence` of them) in place, atomically,
 *  and open it for appending. */
dpe_status dpe_journal_create(struct dpe_journal *journal, const char *path,
                              const struct dpe_text *records, uint64_t sequence,
                              struct dpe_error *err);
/** Copy the bytes of a journal from `from` on into a file beside it, "PATH.KIND-FROM": nothing that
 *  was written is thrown away unseen. *aside is its name, owned by the caller. */
dpe_status dpe_journal_set_aside(const char *path, uint64_t from, const char *kind, char **aside,
                                 struct dpe_error *err);
/** Open an existing one for appending after a read; a torn tail is set aside beside it (named in
 *  `aside`, owned by the caller, NULL when there was none) and cut. */
dpe_status dpe_journal_open(struct dpe_journal *journal, const char *path,
                            const struct dpe_journal_scan *scan, char **aside,
                            struct dpe_error *err);
/** One write, fdatasync. */
dpe_status dpe_journal_append(struct dpe_journal *journal, unsigned type, const void *payload,
                              size_t n, struct dpe_error *err);
void dpe_journal_close(struct dpe_journal *journal);

/* ----------------------------------------------------------------------------------------- lock */

/** Whether the file at the lock's path still names this process: it does not when somebody removed
 * it, or took it over by force. */
bool dpe_lock_held(const struct dpe_lock *lock);

/* --------------------------------------------------------------------------------------- tables */

#define DPE_SCHEMA_NAME    "dpe-table"
#define DPE_SCHEMA_MAJOR   1
#define DPE_SCHEMA_VERSION "1.1.0"

/** An empty table in memory. */
dpe_status dpe_h5_create(struct dpe_h5 **table, struct dpe_error *err);
/** From here on dpe_h5_attr_* refuse to change what the root says (but title and source). */
void dpe_h5_seal(struct dpe_h5 *table);
/** Close a table made by dpe_h5_create and write it into a new file: synced, reopened, every
 *  dataset compared with what was put. dpe_new_file_finish puts it in place. Frees the table
 *  always; on an error the file is dropped. */
dpe_status dpe_h5_finish(struct dpe_h5 *table, struct dpe_new_file *file, struct dpe_error *err);

/** DPE_BAD_DATA when an open file carries a trailer that its bytes do not agree with; DPE_OK when
 *  they do, or when there is no trailer (another program wrote the file). */
dpe_status dpe_h5_check_trailer(int fd, const char *path, struct dpe_error *err);

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
};
/** /tasks, /plans and /rows. */
dpe_status dpe_h5_write_rows(struct dpe_h5 *table, const struct dpe_h5_common *common,
                             struct dpe_error *err);
/** What of the rows differs between equal runs: /run/seconds. */
dpe_status dpe_h5_write_run_rows(struct dpe_h5 *table, const struct dpe_h5_common *common,
                                 struct dpe_error *err);
/** The root attributes, /identity, /tasks, /plans, /rows: first in the file. */
dpe_status dpe_h5_write_common(struct dpe_h5 *table, const struct dpe_h5_common *common,
                               struct dpe_error *err);
/** /run: last in the file, so that nothing of it moves anything else. */
dpe_status dpe_h5_write_run(struct dpe_h5 *table, const struct dpe_h5_common *common,
                            struct dpe_error *err);

#endif
