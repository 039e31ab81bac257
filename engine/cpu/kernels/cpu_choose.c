/* Which instruction set runs: what the processor has, or what DPE_CPU names below it. */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels/cpu_kernels.h"

const struct dpe_cpu_kernels *dpe_cpu_kernels_choose(void)
{
    const char *cap = getenv("DPE_CPU");
    const struct dpe_cpu_kernels *found = NULL;
#if defined(__x86_64__)
    bool wide = cap == NULL || strcmp(cap, "avx512") == 0;
    bool middle = wide || strcmp(cap, "avx2") == 0;
    __builtin_cpu_init();
    if (wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        found = dpe_cpu_kernels_avx512();
    }
    /* Every processor with AVX2 converts halves (F16C) too. */
    if (found == NULL && middle && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma")) {
        found = dpe_cpu_kernels_avx2();
    }
#elif defined(__aarch64__)
    /* Every processor of this kind has NEON. */
    if (cap == NULL || strcmp(cap, "neon") == 0) {
        found = dpe_cpu_kernels_neon();
    }
#else
    (void)cap;
#endif
    return found != NULL ? found : dpe_cpu_kernels_portable();
}

const struct dpe_cpu_bf16 *dpe_cpu_bf16_choose(void)
{
#if defined(__x86_64__)
    if (strcmp(dpe_cpu_kernels_choose()->name, "avx512") == 0 &&
        __builtin_cpu_supports("avx512bf16")) {
        return dpe_cpu_bf16();
    }
#endif
    return NULL;
}
