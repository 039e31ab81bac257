/**
 * @file cache.h
 * Files of what was measured or tested on this machine: what is lost is measured again.
 */
#ifndef DPE_CACHE_H
#define DPE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/** $XDG_CACHE_HOME/dpe/NAME or ~/.cache/dpe/NAME; false where neither folder is known, or there is
 * no room. */
bool dpe_cache_path(const char *name, char *path, size_t size);
/** Make the folder of such a file, and its folder. */
void dpe_cache_make_folders(const char *path);

#endif
