/**
 * @file faults.h
 * Faults on demand. The linker sends this executable's own calls (ours, not those inside HDF5 or
 * libc) to the functions here (-Wl,--wrap=…): the n-th disk call fails with an errno, once or from
 * then on; writes are short; calls are interrupted; the n-th allocation fails.
 */
#ifndef DPE_FAULTS_H
#define DPE_FAULTS_H

#include <stdbool.h>

enum fault_kind {
    FAULT_NONE,
    FAULT_DISK,  /**< the n-th of open (for writing), write, fsync, fdatasync, rename, mkdir,
                      ftruncate fails with `code` */
    FAULT_ALLOC, /**< the n-th of malloc, calloc, realloc, aligned_alloc fails */
    FAULT_SHORT, /**< every write takes half of what it is given, every third is interrupted */
};

struct faults {
    enum fault_kind kind;
    long nth;     /**< counts from 1 */
    bool forever; /**< the n-th and all after it */
    int code;     /**< errno of FAULT_DISK */
    long seen;    /**< calls of this kind so far */
    long failed;  /**< of these, made to fail */
    long syncs;   /**< of those, fsync and fdatasync */
};

extern struct faults faults;

#endif
