/**
 * @file lfs.h
 * Pointers that Git LFS leaves in the place of large files.
 */
#ifndef DPE_LFS_H
#define DPE_LFS_H

#include "engine/base/base.h"

/** DPE_BAD_DATA, with what to do, where the file's first n bytes are those of such a pointer; else
 * DPE_OK. */
dpe_status dpe_refuse_pointer(const char *path, const void *bytes, size_t n, struct dpe_error *err);

#endif
