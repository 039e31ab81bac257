/**
 * @file support.h
 * Foundations that only the engine's own files use.
 */
#ifndef DPE_SUPPORT_H
#define DPE_SUPPORT_H

#include "engine/engine.h"

/** Open a regular file for reading and tell its size; never waits, as it would on a FIFO. The
 *  caller closes *fd. Symbolic links are followed. Errors: DPE_NO_INPUT (not there, or a folder,
 *  FIFO, device), DPE_PERMISSION, DPE_IO (too many open files, a disk that fails), DPE_NO_MEMORY.
 */
dpe_status dpe_open_regular(const char *path, int *fd, uint64_t *size, struct dpe_error *err);

#endif
