/**
 * @file cpu_bf16.h
 * What the device cpu-bf16 has beside the kernels of AVX-512: products and prefill attention in
 * bfloat16. It is an option, because it rounds what the other kernels do not.
 *
 * Both factors of a product are rounded to bfloat16 (to the nearest, ties to even), sums are float.
 * A pair is two numbers in the place of one float, which are multiplied with another pair and added
 * together: two neighbours of k in a linear layer and in query · key, two neighbouring keys in
 * probabilities · V. Row packs, panels, P and V have the layouts of cpu_kernels.h, with pairs for
 * floats.
 */
#ifndef DPE_CPU_BF16_H
#define DPE_CPU_BF16_H

#include "engine/cpu/kernels/cpu_kernels.h"

struct dpe_cpu_bf16 {
    /** pairs [(n+1)/2] of x [n]; the second of a last single number is 0. They may begin at x. */
    void (*halve)(const float *x, int64_t n, float *pairs);
    /** dpe_cpu_kernels.tile of packs and panels of k pairs. */
    void (*tile)(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc);
    /** pairs [n]: number i of x [n] and of y [n]; y NULL: 0. */
    void (*pair)(const float *x, const float *y, int64_t n, float *pairs);
    /** dpe_cpu_kernels.accumulate of pairs of keys; sums, alpha and o are float. */
    void (*accumulate)(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                       const float *alpha, float *o, int64_t width);
    /** o[r] += p[r · DPE_CPU_BLOCK] · v, a pair of keys, for the rows r = first … mr−1; for row
     *  `first` the second key is not read. */
    void (*accumulate_row)(const float *p, int64_t first, const float *v, float *o, int64_t width);
    /** dpe_cpu_kernels.dots of pairs of x (row stride ldx in pairs) and weights in bfloat16, which
     *  are read as they lie; k and ldw count numbers. A row of x gets the same bits with any others
     *  beside it. */
    void (*dots)(const struct dpe_cpu_dots *dots);
};

/** NULL where this build or this processor does not have them, or DPE_CPU names a narrower set. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16_choose(void);
/** Those of this build (cpu_bf16.c, x86 only), for any processor. */
const struct dpe_cpu_bf16 *dpe_cpu_bf16(void);

#endif
