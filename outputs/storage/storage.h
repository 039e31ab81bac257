/**
 * @file storage.h
 * Files that survive a crash: durable writes, the journal, the lock.
 */
#ifndef DPE_STORAGE_H
#define DPE_STORAGE_H

#include "engine/base/base.h"

/* ----------------------------------------------------------------------------- whole new files */

/* The one way in which a tool puts a file of its own at a user's path: the bytes go into a new file
 * beside it, whose name cannot be predicted, and take the path's place whole, by one rename. */

/** A file being written, under a temporary name. {.fd = -1} is none. */
struct dpe_new_file {
    int fd;       /**< open for writing while `path` is not NULL */
    char *path;   /**< the temporary name */
    char *target; /**< the path whose place it will take */
};

/** Create the new file: beside `target`, or beside `beside` (a path on the same file system) when
 *  that is not NULL. Its name is "NAME.BOOT-RANDOM.tmp"; it is created with O_EXCL | O_NOFOLLOW and
 *  held with flock(2), which a killed process lets go of: new files of `target` that a killed
 *  process of this machine left are removed. `target` is not followed when it is a link.
 *  DPE_CANNOT_CREATE, also when `target` is there and is not a regular file or link;
 * DPE_PERMISSION, DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_new_file_open(struct dpe_new_file *file, const char *target, const char *beside,
                             struct dpe_error *err);
/** Append n bytes. */
dpe_status dpe_new_file_write(struct dpe_new_file *file, const void *bytes, size_t n,
                              struct dpe_error *err);
/** Sync it, let it take the target's place, sync the folder. Of several that write one target the
 *  last one to finish remains, whole. Ends with dpe_new_file_drop, whatever happens. */
dpe_status dpe_new_file_finish(struct dpe_new_file *file, struct dpe_error *err);
/** The same, where the user's word is needed to lose what the target holds: DPE_MISMATCH unless the
 *  target is not there, or all its bytes are the first ones of the new file, or `force`. */
dpe_status dpe_new_file_finish_over(struct dpe_new_file *file, bool force, struct dpe_error *err);
/** Give it up: close it and remove it. Nothing when there is none. */
void dpe_new_file_drop(struct dpe_new_file *file);
DPE_SCOPED_HANDLE(struct dpe_new_file *, dpe_new_file_drop)

/** n bytes at `path`, which always holds either the old bytes or all of the new ones. A link there
 *  is replaced. Errors as of dpe_new_file_open. */
dpe_status dpe_replace_file(const char *path, const void *bytes, size_t n, struct dpe_error *err);
/** The same for the file that `path` leads to: a link there stays. */
dpe_status dpe_write_atomic(const char *path, const void *bytes, size_t n, struct dpe_error *err);

/** As dpe_write_atomic, put in place by dpe_new_file_finish_over. */
dpe_status dpe_extend_file(const char *path, const void *bytes, size_t n, bool force,
                           struct dpe_error *err);

/** The file that `path` leads to, which need not exist, owned by the caller. DPE_CANNOT_CREATE when
 *  links lead in a circle, DPE_NO_MEMORY. */
dpe_status dpe_follow_links(const char *path, char **file, struct dpe_error *err);

/* ---------------------------------------------------------------------------------------- lock */

/** A lock file: one process at a time holds it, and it names that process. A run has its own. */
struct dpe_lock {
    int fd; /**< −1: not held */
    char *path;
};
/** Take the lock file; `note` [256] describes the lock that was taken over, and says once where the
 * file system has no flock; "": nothing to say. DPE_CANNOT_CREATE when another process has it,
 * which is named. */
dpe_status dpe_lock_take(struct dpe_lock *lock, const char *path, char *note,
                         struct dpe_error *err);
/** Release it: emptied, and unlinked when `remove`; one that is no longer held is not changed. */
void dpe_lock_release(struct dpe_lock *lock, bool remove);

/** Fail with the status that fits an errno (EACCES → DPE_PERMISSION, EROFS and the like →
 *  DPE_CANNOT_CREATE, else DPE_IO): "PATH: WHAT: reason". */
dpe_status dpe_fail_errno(struct dpe_error *err, int code, const char *path, const char *what);
/** All of n bytes, through short writes and EINTR. */
dpe_status dpe_write_all(int fd, const char *path, const void *bytes, size_t n,
                         struct dpe_error *err);
/** Make a folder, unless something is there: DPE_CANNOT_CREATE, DPE_PERMISSION, DPE_IO. */
dpe_status dpe_make_folder(const char *path, struct dpe_error *err);
/** Sync the entries of a folder. */
dpe_status dpe_sync_folder(const char *folder, struct dpe_error *err);
/** "a" + "b" + "c", owned by the caller; NULL without memory. */
char *dpe_join(const char *a, const char *b, const char *c);
/** The folder that holds `path` ("." when it names none), owned; NULL without memory. */
char *dpe_parent_folder(const char *path);
/** The first line of a small file, without its newline; "" when it cannot be read. */
void dpe_first_line(const char *path, char *line, size_t size);
/** The time as ISO-8601 in UTC, "2026-01-31T12:00:00Z". */
void dpe_time_text(char text[32]);

enum dpe_record_type {
    DPE_RECORD_BEGIN = 1,   /**< first of every file; payload: identity hash, 64 hex digits */
    DPE_RECORD_SESSION = 2, /**< a process opened the run; payload: dpe_identity_encode */
    DPE_RECORD_ROW = 3,     /**< payload: dpe_row_encode */
    DPE_RECORD_PLAN = 4,    /**< payload: dpe_identity_encode of one pair, plan key and name */
};

enum { DPE_JOURNAL_SYNC_MS = 50 };

/** A journal file open for appending. */
struct dpe_journal {
    int fd; /**< −1: closed */
    char *path;
    uint64_t sequence; /**< of the next record */
    bool failed;       /**< a write or sync failed: nothing more is written by this process */
    bool unsynced;     /**< a record was written after the last sync, */
    double synced;     /**< which was at this dpe_clock */
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
 *  valid one after them are a torn tail (see scan). Damage before a valid record, or a sequence
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
/** One write, and fdatasync unless the last one was less than DPE_JOURNAL_SYNC_MS ago. A process
 * that is killed loses nothing that was appended; a machine that stops loses at most what took so
 * long. */
dpe_status dpe_journal_append(struct dpe_journal *journal, unsigned type, const void *payload,
                              size_t n, struct dpe_error *err);
/** fdatasync where a record is not synced yet. A failed one is DPE_IO and never repeated. */
dpe_status dpe_journal_sync(struct dpe_journal *journal, struct dpe_error *err);
/** Without a sync. */
void dpe_journal_close(struct dpe_journal *journal);

/** Whether the file at the lock's path still names this process: it does not when another process
 * removed it, or took it over by force. */
bool dpe_lock_held(const struct dpe_lock *lock);

#endif
