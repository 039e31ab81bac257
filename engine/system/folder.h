/**
 * @file folder.h
 * Places of files: what people give as the folder of a model and what they mean, and where what was
 * measured or tested on this machine is kept.
 */
#ifndef DPE_FOLDER_H
#define DPE_FOLDER_H

#include "engine/base/base.h"

/** The folder in which the model's files are: of a folder of the Hugging Face cache
 *  ("models--ORG--NAME" or its "snapshots") its snapshot, when it has exactly one; of a folder
 *  without config.json its GGUF file, when it has one model in such files; else `given` itself.
 *  Owned by the caller; NULL when memory is out. */
char *dpe_folder_find(const char *given);
/** Whether a folder holds a Hugging Face model and GGUF files as well: the first is used. */
bool dpe_folder_has_both(const char *given);
/** "FOLDER/NAME", owned by the caller; NULL when memory is out. */
char *dpe_folder_join(const char *folder, const char *name);
/** NAME in the folder at `path`, or beside the file there; owned by the caller; NULL when memory is
 * out. */
char *dpe_folder_beside(const char *path, const char *name);
/** The last part of a path, without trailing slashes; `*n` is its length. "/" is
 * its own last part. */
const char *dpe_folder_name(const char *path, int *n);
/** Whether a path is a regular file that begins as a GGUF file does. */
bool dpe_folder_is_gguf(const char *path);

/** Why there is no model at `given`, with the command to type, when it is known: an id of the
 *  Hugging Face hub, a folder of the cache with several snapshots (or none), a folder that holds
 *  several GGUF models and nothing else. DPE_NO_INPUT; DPE_OK, and `err` untouched, for everything
 * else. DPE_NO_MEMORY. */
dpe_status dpe_folder_explain(const char *given, struct dpe_error *err);
/** DPE_BAD_DATA for a regular file that does not begin as a GGUF file does: a download that failed,
 * or some other file. DPE_OK for everything else. */
dpe_status dpe_folder_explain_file(const char *given, struct dpe_error *err);

/* Files of what was measured or tested on this machine: what is lost is measured again. */

/** $XDG_CACHE_HOME/dpe/NAME or ~/.cache/dpe/NAME; false where neither folder is known, or there is
 * no room. */
bool dpe_cache_path(const char *name, char *path, size_t size);
/** Make the folder of such a file, and its folder. */
void dpe_cache_make_folders(const char *path);

#endif
