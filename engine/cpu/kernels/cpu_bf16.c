/* Products in bfloat16: compiled for AVX512-BF16 alone, chosen at run time. */
#include "engine/cpu/kernels/cpu_bf16.h"

#include <immintrin.h>
#include <string.h>

enum { MR = 12, LANES = 16, PANEL = 2 * LANES }; /* of the kernels for AVX-512 */

static void halve(const float *x, int64_t n, float *pairs)
{
    for (int64_t i = 0; i < n; i += PANEL) {
        float some[PANEL] = {0};
        int64_t count = n - i < PANEL ? n - i : PANEL;
        memcpy(some, x + i, (size_t)count * sizeof *x);
        __m512bh all = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(some + LANES), _mm512_loadu_ps(some));
        memcpy(pairs + i / 2, &all, (size_t)((count + 1) / 2) * sizeof *pairs);
    }
}

static void tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    __m512 sum[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    }
    for (int64_t p = 0; p < k; p++) {
        __m512bh b0 = (__m512bh)_mm512_loadu_ps(panel);
        __m512bh b1 = (__m512bh)_mm512_loadu_ps(panel + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) {
            __m512bh a = (__m512bh)_mm512_set1_ps(rows[r]);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
        }
        panel += PANEL;
        rows += MR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        _mm512_storeu_ps(c + r * ldc, sum[r][0]);
        _mm512_storeu_ps(c + r * ldc + LANES, sum[r][1]);
    }
}

const struct dpe_cpu_bf16 *dpe_cpu_bf16(void)
{
    static const struct dpe_cpu_bf16 kernels = {.halve = halve, .tile = tile};
    return &kernels;
}
