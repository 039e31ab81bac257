/**
 * @file unchecked.h
 * Tables without a checksum: refused, unless a tool has an option (--unchecked) to read them.
 *
 * HDF5 1.10 crashes on some damaged files. A file whose checksum matches is not damaged; one
 * without a checksum may be. It is therefore read in a child process, whose crash is an error like
 * others.
 */
#ifndef DPE_H5_UNCHECKED_H
#define DPE_H5_UNCHECKED_H

#include <stdbool.h>

#include "engine/base/base.h"

/** Whether this process reads tables without a checksum: it is a child of dpe_h5_unchecked_run. */
bool dpe_h5_is_unchecked(void);

/** Run this program again with the same arguments, in a child process that reads tables without a
 *  checksum, and forward signals to it. *code: its exit status. DPE_BAD_DATA when it crashed, with
 *  the tables among the n `paths` that have no checksum; as dpe_child_run. argv[1] … are borrowed.
 */
dpe_status dpe_h5_unchecked_run(char *const *argv, const char *const *paths, size_t n, int *code,
                                struct dpe_error *err);

#endif
