/* Products and attention in bfloat16: compiled for AVX512-BF16 alone, chosen at run time. */
#include "engine/cpu/kernels/cpu_bf16.h"

#include <immintrin.h>
#include <string.h>

enum { MR = 12, LANES = 16, PANEL = 2 * LANES }; /* of the kernels for AVX-512 */

static inline __m512 halve_panel(const float *x)
{
    return (__m512)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + LANES), _mm512_loadu_ps(x));
}

static void halve(const float *x, int64_t n, float *pairs)
{
    int64_t i = 0;
    for (; i + PANEL <= n; i += PANEL) {
        _mm512_storeu_ps(pairs + i / 2, halve_panel(x + i));
    }
    if (i < n) {
        float some[PANEL] = {0};
        memcpy(some, x + i, (size_t)(n - i) * sizeof *x);
        __m512 all = halve_panel(some);
        memcpy(pairs + i / 2, &all, (size_t)((n - i + 1) / 2) * sizeof *pairs);
    }
}

static void pair(const float *x, const float *y, int64_t n, float *pairs)
{
    for (int64_t i = 0; i < n; i += LANES) {
        unsigned lanes = n - i < LANES ? (1U << (n - i)) - 1U : 0xffffU;
        __mmask16 some = (__mmask16)lanes;
        __m512 first = _mm512_maskz_loadu_ps(some, x + i);
        __m512 second = y != NULL ? _mm512_maskz_loadu_ps(some, y + i) : _mm512_setzero_ps();
        __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first));
        __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second));
        _mm512_mask_storeu_epi32(pairs + i, some,
                                 _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
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

/* `vectors` (1 or 2, constant after inlining) vectors of the width of accumulate; v and o point at
 * the first column. */
static inline __attribute__((always_inline)) void
accumulate_columns(int vectors, const float *p, const struct dpe_cpu_spans *spans, const float *v,
                   const float *alpha, float *o, int64_t width)
{
    __m512 sum[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        __m512 scale = _mm512_set1_ps(alpha[r]);
        sum[r][0] = _mm512_mul_ps(scale, _mm512_loadu_ps(o + r * width));
        sum[r][1] =
            vectors == 2 ? _mm512_mul_ps(scale, _mm512_loadu_ps(o + r * width + LANES)) : scale;
    }
    for (int64_t span = 0; span < spans->n; span++) {
        const float *keys = v + spans->spans[span].row * width;
        const float *weight = p + spans->spans[span].column;
        for (int64_t i = 0; i < spans->spans[span].count; i++) {
            __m512bh b0 = (__m512bh)_mm512_loadu_ps(keys);
            __m512bh b1 = vectors == 2 ? (__m512bh)_mm512_loadu_ps(keys + LANES) : b0;
#pragma GCC unroll 16
            for (int r = 0; r < MR; r++) {
                __m512bh a = (__m512bh)_mm512_set1_ps(weight[r * DPE_CPU_BLOCK]);
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
                if (vectors == 2) {
                    sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
                }
            }
            keys += width;
            weight++;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++) {
        _mm512_storeu_ps(o + r * width, sum[r][0]);
        if (vectors == 2) {
            _mm512_storeu_ps(o + r * width + LANES, sum[r][1]);
        }
    }
}

static void accumulate(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                       const float *alpha, float *o, int64_t width)
{
    int64_t column = 0;
    for (; column + PANEL <= width; column += PANEL) {
        accumulate_columns(2, p, spans, v + column, alpha, o + column, width);
    }
    if (column < width) {
        accumulate_columns(1, p, spans, v + column, alpha, o + column, width);
    }
}

/* The same instruction as accumulate, so that a sum has the same bits wherever tiles begin. */
static void accumulate_row(const float *p, int64_t first, const float *v, float *o, int64_t width)
{
    const __m512i low = _mm512_set1_epi32(0xffff);
    for (int64_t column = 0; column < width; column += LANES) {
        __m512i keys = _mm512_loadu_si512(v + column);
        __m512bh b = (__m512bh)_mm512_and_si512(keys, low);
        for (int64_t r = first; r < MR; r++) {
            float *to = o + r * width + column;
            __m512bh a = (__m512bh)_mm512_set1_ps(p[r * DPE_CPU_BLOCK]);
            _mm512_storeu_ps(to, _mm512_dpbf16_ps(_mm512_loadu_ps(to), a, b));
            b = (__m512bh)keys;
        }
    }
}

const struct dpe_cpu_bf16 *dpe_cpu_bf16(void)
{
    static const struct dpe_cpu_bf16 kernels = {
        .halve = halve,
        .tile = tile,
        .pair = pair,
        .accumulate = accumulate,
        .accumulate_row = accumulate_row,
    };
    return &kernels;
}
