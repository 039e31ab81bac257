/**
 * @file folder.h
 * What people give as the folder of a model, and what they mean.
 */
#ifndef DPE_FOLDER_H
#define DPE_FOLDER_H

#include "engine/base/base.h"

/** The folder in which the model's files are: of a folder of the Hugging Face cache
 *  ("models--ORG--NAME" or its "snapshots") its snapshot, when it has exactly one; else `given`
 *  itself. Owned by the caller; NULL when memory is out. */
char *dpe_folder_find(const char *given);

/** Why there is no model at `given`, with the command to type, when it is known: an id of the
 *  Hugging Face hub, a GGUF file, a folder of the cache with several snapshots (or none), a folder
 *  that holds only GGUF files. DPE_NO_INPUT; DPE_OK, and `err` untouched, for everything else.
 *  DPE_NO_MEMORY. */
dpe_status dpe_folder_explain(const char *given, struct dpe_error *err);

#endif
