/**
 * @file h5_file.h
 * Whole tables: made, finished, looked at. For outputs/run.
 */
#ifndef DPE_H5_FILE_H
#define DPE_H5_FILE_H

#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/storage/storage.h"

#define DPE_SCHEMA_NAME "dpe-table"
/** An empty table in memory. */
dpe_status dpe_h5_create(struct dpe_h5 **table, struct dpe_error *err);
/** From here on dpe_h5_attr_* refuse to change attributes of the root, except title and source. */
void dpe_h5_seal(struct dpe_h5 *table);
/** Close a table made by dpe_h5_create and write it into a new file: synced, reopened, every
 *  dataset compared with what was put. dpe_new_file_finish puts it in place. Frees the table
 *  always; the file is the caller's to drop. */
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
                     const void *data, size_t n, const char *scale, const char *long_name);
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
