/**
 * @file inside_limit.h
 * How much memory the elements of HDF5 datasets may take, for callers that know; not installed.
 */
#ifndef DPE_INSIDE_LIMIT_H
#define DPE_INSIDE_LIMIT_H

#include <stdint.h>

/** So many bytes may be read whatever the limit is. */
enum { DPE_INSIDE_MUCH = 64 << 20 };

/** What dpe_inside_read (inside.h) may take in this thread from now on, all its calls together, in
 * bytes. Without a call there is no limit: the library of tables alone does not know the machine.
 */
void dpe_inside_limit(uint64_t bytes);

#endif
