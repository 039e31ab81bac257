/**
 * @file durable.h
 * The one way in which a tool puts a file of its own at a user's path: the bytes go into a new file
 * beside it, whose name cannot be predicted, and take the path's place whole, by one rename.
 */
#ifndef DPE_DURABLE_H
#define DPE_DURABLE_H

#include <sys/types.h>

#include "engine/base/base.h"

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

#endif
