/**
 * @file cpu_bf16.h
 * What products in bfloat16 need beside the kernels of AVX-512: an option, because they round what
 * the other products do not.
 *
 * Both factors are rounded to bfloat16 (to the nearest, ties to even); two neighbours of k stand in
 * the place of one float and are multiplied together; sums are float. Row packs and panels have the
 * layouts of cpu_kernels.h, with pairs for floats.
 */
#ifndef DPE_CPU_BF16_H
#define DPE_CPU_BF16_H

#include "engine/cpu/kernels/cpu_kernels.h"

struct dpe_cpu_bf16 {
    /** pairs [(n+1)/2] of x [n]; the second of a last single number is 0. They may begin at x. */
    void (*halve)(const float *x, int64_t n, float *pairs);
    /** dpe_cpu_kernels.tile of packs and panels of k pairs. */
    void (*tile)(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc);
};

/** NULL where this build or this processor does not have them, or DPE_CPU names a narrower set. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16_choose(void);
/** Those of this build (cpu_bf16.c, x86 only), for any processor. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16(void);

#endif
