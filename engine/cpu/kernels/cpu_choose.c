/* Which instruction set runs: what the processor has, or what DPE_CPU names below it. */
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && !defined(__APPLE__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

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

#if defined(__x86_64__)
/* Whether the processor has AMX for bfloat16, and Linux lets this process use its registers, which
 * it must be asked for. */
static bool amx_usable(void)
{
#if defined(__linux__) && !defined(__APPLE__)
    enum { ASK = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILES = 18 /* XFEATURE_XTILEDATA */ };
    enum { BOTH = 1 << 22 | 1 << 24 }; /* AMX-BF16, AMX-TILE: compilers name them differently */
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & BOTH) == BOTH &&
           syscall(SYS_arch_prctl, ASK, TILES) == 0;
#else
    return false;
#endif
}
#endif

const struct dpe_cpu_bf16 *dpe_cpu_bf16_choose(void)
{
#if defined(__x86_64__)
    if (strcmp(dpe_cpu_kernels_choose()->name, "avx512") == 0 &&
        __builtin_cpu_supports("avx512bf16")) {
        return getenv("DPE_CPU") == NULL && amx_usable() ? dpe_cpu_amx() : dpe_cpu_bf16();
    }
#elif defined(__aarch64__) && defined(__linux__)
    const unsigned long has = 1UL << 14; /* HWCAP2_BF16 */
    if (strcmp(dpe_cpu_kernels_choose()->name, "neon") == 0 && (getauxval(AT_HWCAP2) & has) != 0) {
        return dpe_cpu_bf16();
    }
#endif
    return NULL;
}

/* ----------------------------------------------------------------------- whether they are faster
 */

enum { NUMBERS = 512, TIMES = 16, ROUNDS = 32 }; /* of k, tiles that are timed, how often */

/* Numbers of k times rows that are multiplied in a second, at best. */
static double tile_rate(void (*tile)(const float *, const float *, int64_t, float *, int64_t),
                        int64_t mr, int64_t k, const float *room)
{
    float sums[DPE_CPU_MOST_MR * 2 * DPE_CPU_MAX_LANES];
    double start = dpe_clock();
    for (int i = 0; i < TIMES; i++) {
        tile(room, room, k, sums, sizeof sums / sizeof *sums / DPE_CPU_MOST_MR);
    }
    return (double)(mr * NUMBERS * TIMES) / (dpe_clock() - start);
}

bool dpe_cpu_bf16_pays(const struct dpe_cpu_kernels *kernels, const struct dpe_cpu_bf16 *bf16)
{
    const double worth = 1.15; /* what is rounded is also packed again */
    double best[2] = {0.0, 0.0};
    DPE_OWNED float *room =
        dpe_alloc_zero(DPE_CPU_MOST_MR * NUMBERS + DPE_CPU_MAX_LANES, sizeof *room);
    if (room == NULL) {
        return false;
    }
    bf16->begin();
    for (int i = 0; i < ROUNDS; i++) {
        double in_float = tile_rate(kernels->tile, kernels->mr, NUMBERS, room);
        double in_bf16 = tile_rate(bf16->tile, bf16->mr, NUMBERS / 2, room);
        best[0] = in_float > best[0] ? in_float : best[0];
        best[1] = in_bf16 > best[1] ? in_bf16 : best[1];
    }
    bf16->end();
    return best[1] > worth * best[0];
}
