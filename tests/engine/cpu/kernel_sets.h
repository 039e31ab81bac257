/**
 * @file kernel_sets.h
 * The instruction sets whose kernels the tests compare: those of this build that this machine runs.
 */
#ifndef DPE_KERNEL_SETS_H
#define DPE_KERNEL_SETS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels/cpu_kernels.h"

enum { MOST_KERNEL_SETS = 3 };

/** The kernels of each set, in `found`; their number. */
static inline int kernel_sets(const struct dpe_cpu_kernels *found[MOST_KERNEL_SETS])
{
#ifdef __aarch64__
    /* "portable" multiplies with OpenBLAS, which tests/arm lacks; its source
     * is tested elsewhere. */
    const char *const names[] = {"neon"};
#else
    const char *const names[] = {"portable", "avx2", "avx512"};
#endif
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv("DPE_CPU", names[i], 1);
        const struct dpe_cpu_kernels *kernels = dpe_cpu_kernels_choose();
        if (strcmp(kernels->name, names[i]) == 0) {
            found[n++] = kernels;
        } else {
            fprintf(stderr, "this machine lacks %s\n", names[i]);
        }
    }
    unsetenv("DPE_CPU");
    return n;
}

#endif
