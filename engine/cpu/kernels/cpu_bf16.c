/* Products and attention in bfloat16: compiled for AVX512-BF16 alone, chosen at run time. */
#define DPE_SIMD_AVX512
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/kernels/cpu_simd.h"

#include <immintrin.h>
#include <string.h>

enum { LANES = VL, PANEL = 2 * LANES };
enum {
    SIDE = 4,     /* rows of x, and weight rows side by side, whose sums fit the registers */
    AHEAD = 8,    /* weight rows that are requested before they are read */
    STREAM = 4096 /* numbers of x that stay in the first cache level beside a stream of weights */
};

static inline __m512 halve_panel(const float *x)
{
    return (__m512)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + LANES), _mm512_loadu_ps(x));
}

void dpe_cpu_bf16_halve(const float *x, int64_t n, float *pairs)
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

void dpe_cpu_bf16_pair(const float *x, const float *y, int64_t n, float *pairs)
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

/* Of pairs of bfloat16. */
static inline vec v_product(vec a, vec b, vec c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

#include "engine/cpu/kernels/cpu_tiles.h"

static void tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    tile_rows(MR, rows, panel, k, c, ldc);
}

/* The same instruction as accumulate, so that a sum has the same bits wherever tiles begin. */
static void accumulate_late(const float *p, int64_t first, const float *v, float *o, int64_t width)
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

/* out [4] = the sums of four vectors, each in the same order. */
static inline void sum_each(const __m512 *a, float *out)
{
    __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    __m512 y = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    __m512 z = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    __m512 half = _mm512_add_ps(z, _mm512_shuffle_f32x4(z, z, 0xee));
    __m512 quarter = _mm512_add_ps(half, _mm512_shuffle_f32x4(half, half, 0x55));
    _mm_storeu_ps(out, _mm512_castps512_ps128(quarter));
}

/* PANEL numbers or, without `whole`, n < PANEL and then 0. Kept in a register: gcc 12 reads them
 * again for each row of x, where these are two or three. */
static inline __m512bh load_pairs(bool whole, const void *from, int64_t n)
{
    __m512i pairs = whole ? _mm512_loadu_si512(from)
                          : _mm512_maskz_loadu_epi16((__mmask32)((1U << n) - 1U), from);
    __asm__("" : "+v"(pairs));
    return (__m512bh)pairs;
}

/* Requests what lies `ahead` numbers after p, perhaps behind the last of all. gcc drops calls of a
 * function that does nothing else, unless it must inline it. */
UNROLLED void request(const uint16_t *p, int64_t ahead)
{
    uintptr_t address = (uintptr_t)p + (uintptr_t)(ahead * (int64_t)sizeof *p);
    _mm_prefetch((const void *)address, _MM_HINT_T1); /* NOLINT(performance-no-int-to-ptr) */
}

/* `together` weight rows w times `rows` rows of x, in columns p … p+PANEL−1 or, without `whole`, in
 * those that are left. */
UNROLLED void dots_step(bool whole, int together, int rows, const struct dpe_cpu_dots *dots,
                        const uint16_t *const *w, int64_t p, __m512 (*sum)[SIDE])
{
    __m512bh weight[SIDE];
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
        weight[i] = load_pairs(whole, w[i] + p, dots->k - p);
        if (together > 1) {
            request(w[i] + p, AHEAD * dots->ldw);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        __m512bh x = load_pairs(whole, dots->x + r * dots->ldx + p / 2, dots->k - p);
#pragma GCC unroll 4
        for (int i = 0; i < together; i++) {
            sum[r][i] = _mm512_dpbf16_ps(sum[r][i], x, weight[i]);
        }
    }
}

/* Columns at … at+together−1 of the sums: weight rows from `first` on; those beyond the last repeat
 * it. */
UNROLLED void dots_together(int together, int rows, const struct dpe_cpu_dots *dots, int64_t first,
                            int at, __m512 (*sums)[SIDE])
{
    const uint16_t *w[SIDE];
    __m512 sum[SIDE][SIDE];
#pragma GCC unroll 4
    for (int i = 0; i < together; i++) {
        int64_t row = first + i < dots->n ? first + i : dots->n - 1;
        w[i] = (const uint16_t *)dots->w + row * dots->ldw;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            sum[r][i] = _mm512_setzero_ps();
        }
    }
    int64_t p = 0;
    for (; p + PANEL <= dots->k; p += PANEL) {
        dots_step(true, together, rows, dots, w, p, sum);
    }
    if (p < dots->k) {
        dots_step(false, together, rows, dots, w, p, sum);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int i = 0; i < together; i++) {
            sums[r][at + i] = sum[r][i];
        }
    }
}

/* `together` (1 or SIDE) and `rows` must be constants after inlining. A sum has the same order for
 * any of them. */
UNROLLED void dots_rows(int together, int rows, const struct dpe_cpu_dots *dots)
{
    for (int64_t first = 0; first < dots->n; first += SIDE) {
        int64_t n = dots->n - first < SIDE ? dots->n - first : SIDE;
        __m512 sums[SIDE][SIDE];
#pragma GCC unroll 4
        for (int i = 0; i < SIDE; i += together) {
            dots_together(together, rows, dots, first + i, i, sums);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            float four[SIDE];
            float *out = dots->out + r * dots->ldo + first;
            sum_each(sums[r], n == SIDE ? out : four);
            if (n < SIDE) {
                memcpy(out, four, (size_t)n * sizeof *four);
            }
        }
    }
}

/* One row of x waits for memory, which weight rows one after another read fastest (as in
 * cpu_kernels_dots.h). More rows take a piece of x through several weight rows. */
void dpe_cpu_bf16_dots(const struct dpe_cpu_dots *dots)
{
    switch (dots->rows) {
    case 1:
        if (dots->k <= STREAM) {
            dots_rows(1, 1, dots);
        } else {
            dots_rows(SIDE, 1, dots);
        }
        break;
    case 2:
        dots_rows(SIDE, 2, dots);
        break;
    case 3:
        dots_rows(SIDE, 3, dots);
        break;
    default:
        dots_rows(SIDE, 4, dots);
        break;
    }
}

static void nothing(void)
{
}

const struct dpe_cpu_bf16 *dpe_cpu_bf16(void)
{
    static const struct dpe_cpu_bf16 kernels = {
        .mr = MR,
        .depth = 1,
        .keys = 2,
        .begin = nothing,
        .end = nothing,
        .halve = dpe_cpu_bf16_halve,
        .tile = tile,
        .pair = dpe_cpu_bf16_pair,
        .accumulate = kernel_accumulate,
        .accumulate_late = accumulate_late,
        .dots = dpe_cpu_bf16_dots,
    };
    return &kernels;
}
