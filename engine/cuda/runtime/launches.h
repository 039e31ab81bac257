/**
 * @file launches.h
 * Launches that are kept with copies of their arguments: so many of them can be compared with those
 * of another time, and made later.
 */
#ifndef DPE_LAUNCHES_H
#define DPE_LAUNCHES_H

#include <stddef.h>

#include "engine/cuda/ptx/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zeros: none. */
struct dpe_launches {
    unsigned char *memory;
    size_t used, room;
};

/** Launches of this thread go to the end of `list` from now on and are not made; NULL: they are
 *  made. */
void dpe_launches_keep(struct dpe_launches *list);
/** Whether a launch is kept; then *code is 0, or 2 (cudaErrorMemoryAllocation). */
bool dpe_launches_take(const struct dpe_kernel_launch *launch, int *code);
/** Whether two lists have the same launches: kernels, shapes and arguments, byte by byte (a byte of
 *  padding that differs makes them different ones). */
bool dpe_launches_equal(const struct dpe_launches *a, const struct dpe_launches *b);
/** Call `make` for each, in order, until one returns a code that is not 0: that code, or 0. */
int dpe_launches_each(const struct dpe_launches *list,
                      int (*make)(const struct dpe_kernel_launch *launch));
/** 0, or 2: no memory, and `to` is as it was. */
int dpe_launches_copy(struct dpe_launches *to, const struct dpe_launches *from);
void dpe_launches_free(struct dpe_launches *list);

#ifdef __cplusplus
}
#endif
#endif
