/* Products and attention in bfloat16 on 64-bit ARM: compiled for FEAT_BF16 alone, chosen at run
 * time. BFMMLA adds 2 × 2 products of four numbers at a time, from two rows of two pairs and two
 * columns of two pairs: two pairs of k are added together, and a sum has the same bits wherever
 * such a group stands. It takes subnormal numbers for 0. */
#include "engine/cpu/kernels/cpu_kernels.h"

#include <arm_neon.h>
#include <string.h>

enum {
    LANES = 4,
    MR = 8,
    HALF = MR / 2, /* pairs of rows */
    PANEL = 2 * LANES,
    SIDE = 4,   /* rows of x, and weight rows side by side, whose sums fit the registers */
    NUMBERS = 8 /* bfloat16 in a vector */
};

typedef float32x4_t vec; /* four floats, or four pairs */

UNROLLED vec blocks_add(vec sums, vec rows, vec columns)
{
    return vbfmmlaq_f32(sums, vreinterpretq_bf16_f32(rows), vreinterpretq_bf16_f32(columns));
}

/* The first halves of two vectors, and the second ones. */
UNROLLED vec firsts(vec a, vec b)
{
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}

UNROLLED vec seconds(vec a, vec b)
{
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}

UNROLLED vec halve_four(const float *x)
{
    const bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(x));
    return vreinterpretq_f32_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(x + LANES)));
}

static void halve(const float *x, int64_t n, float *pairs)
{
    int64_t i = 0;
    for (; i + NUMBERS <= n; i += NUMBERS) {
        vst1q_f32(pairs + i / 2, halve_four(x + i));
    }
    if (i < n) {
        float some[NUMBERS] = {0};
        memcpy(some, x + i, (size_t)(n - i) * sizeof *x);
        vst1q_f32(some, halve_four(some));
        memcpy(pairs + i / 2, some, (size_t)((n - i + 1) / 2) * sizeof *pairs);
    }
}

static void pair(const float *x, const float *y, int64_t n, float *pairs)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const size_t bytes = (size_t)dpe_least(LANES, n - i) * sizeof *x;
        float some[NUMBERS] = {0};
        memcpy(some, x + i, bytes);
        if (y != NULL) {
            memcpy(some + LANES, y + i, bytes);
        }
        const uint16x8_t all = vreinterpretq_u16_f32(halve_four(some));
        const uint16x8_t turned = vzip1q_u16(all, vextq_u16(all, all, LANES));
        vst1q_f32(some, vreinterpretq_f32_u16(turned));
        memcpy(pairs + i, some, bytes);
    }
}

/* Two pairs of k: [HALF] of (row 2i: both, row 2i + 1: both). */
static void pack_rows(const float *x, int64_t ld, int64_t n, int64_t k, float *out)
{
    for (int64_t p = 0; p < k; p += 2) {
        for (int64_t r = 0; r < MR; r++, out += 2) {
            out[0] = r < n ? x[r * ld + p] : 0.0F;
            out[1] = r < n && p + 1 < k ? x[r * ld + p + 1] : 0.0F;
        }
    }
}

/* sum[2j …][i] (rows 2i, 2i + 1 of two columns) += a pair of k or, with `both`, two: of the rows,
 * and of 4 · fours columns at b, of the second pair `ld` floats on. */
UNROLLED void add_group(bool both, int fours, vec (*sum)[HALF], const vec *rows, const float *b,
                        int64_t ld)
{
#pragma GCC unroll 2
    for (int j = 0; j < fours; j++) {
        const vec first = vld1q_f32(b + LANES * j);
        const vec second = both ? vld1q_f32(b + ld + LANES * j) : vdupq_n_f32(0.0F);
        const vec low = vzip1q_f32(first, second);
        const vec high = vzip2q_f32(first, second);
#pragma GCC unroll 4
        for (int i = 0; i < HALF; i++) {
            sum[2 * j][i] = blocks_add(sum[2 * j][i], rows[i], low);
            sum[2 * j + 1][i] = blocks_add(sum[2 * j + 1][i], rows[i], high);
        }
    }
}

UNROLLED void store_sums(int fours, vec (*sum)[HALF], float *c, int64_t ldc)
{
#pragma GCC unroll 2
    for (int j = 0; j < fours; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < HALF; i++) {
            float *to = c + 2 * i * ldc + LANES * j;
            vst1q_f32(to, firsts(sum[2 * j][i], sum[2 * j + 1][i]));
            vst1q_f32(to + ldc, seconds(sum[2 * j][i], sum[2 * j + 1][i]));
        }
    }
}

UNROLLED void tile_step(bool both, vec (*sum)[HALF], const float *rows, const float *panel)
{
    vec row[HALF];
#pragma GCC unroll 4
    for (int i = 0; i < HALF; i++) {
        row[i] = vld1q_f32(rows + LANES * i);
    }
    add_group(both, 2, sum, row, panel, PANEL);
}

static void tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    vec sum[HALF][HALF];
#pragma GCC unroll 16
    for (int i = 0; i < HALF * HALF; i++) {
        sum[i / HALF][i % HALF] = vdupq_n_f32(0.0F);
    }
    for (; k >= 2; k -= 2) {
        tile_step(true, sum, rows, panel);
        panel += 2 * PANEL;
        rows += 2 * MR;
    }
    if (k > 0) {
        tile_step(false, sum, rows, panel);
    }
    store_sums(2, sum, c, ldc);
}

/* 4 · fours (constant after inlining) columns of the width of accumulate; v and o point at the
 * first. */
UNROLLED void accumulate_columns(int fours, const float *p, const struct dpe_cpu_spans *spans,
                                 const float *v, const float *alpha, float *o, int64_t width)
{
    vec sum[HALF][HALF];
#pragma GCC unroll 2
    for (int j = 0; j < fours; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < HALF; i++) {
            const float *from = o + 2 * i * width + LANES * j;
            const vec row = vmulq_n_f32(vld1q_f32(from), alpha[2 * i]);
            const vec below = vmulq_n_f32(vld1q_f32(from + width), alpha[2 * i + 1]);
            sum[2 * j][i] = firsts(row, below);
            sum[2 * j + 1][i] = seconds(row, below);
        }
    }
    for (int64_t span = 0; span < spans->n; span++) {
        const float *keys = v + spans->spans[span].row * width;
        const float *weight = p + spans->spans[span].column;
        for (int64_t i = 0; i < spans->spans[span].count; i += 2) {
            vec row[HALF];
#pragma GCC unroll 4
            for (int r = 0; r < HALF; r++) {
                const float *at = weight + 2 * r * DPE_CPU_BLOCK;
                row[r] = vcombine_f32(vld1_f32(at), vld1_f32(at + DPE_CPU_BLOCK));
            }
            add_group(true, fours, sum, row, keys, width);
            keys += 2 * width;
            weight += 2;
        }
    }
    store_sums(fours, sum, o, width);
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

/* Each row by itself, without the values of keys that it does not see: they may not be finite. */
static void accumulate_late(const float *p, int64_t first, const float *v, float *o, int64_t width)
{
    for (int64_t r = dpe_most(first, 0); r < MR; r++) {
        const int64_t sees = r - first + 1; /* of four */
        const uint32_t second = sees > 3 ? UINT32_MAX : sees > 2 ? 0xffff : 0;
        const uint32x4_t mask[2] = {vdupq_n_u32(sees > 1 ? UINT32_MAX : 0xffff),
                                    vdupq_n_u32(second)};
        const vec row = vcombine_f32(vld1_f32(p + r * DPE_CPU_BLOCK), vdup_n_f32(0.0F));
        for (int64_t column = 0; column < width; column += LANES) {
            vec keys[2];
            for (int i = 0; i < 2; i++) {
                const vec all = vld1q_f32(v + i * width + column);
                keys[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(all), mask[i]));
            }
            float *to = o + r * width + column;
            const vec sum = vld1q_f32(to);
            const vec zero = vdupq_n_f32(0.0F);
            const vec low = blocks_add(firsts(sum, zero), row, vzip1q_f32(keys[0], keys[1]));
            const vec high = blocks_add(seconds(sum, zero), row, vzip2q_f32(keys[0], keys[1]));
            vst1q_f32(to, firsts(low, high));
        }
    }
}

/* NUMBERS numbers or, without `whole`, n < NUMBERS and then 0. */
UNROLLED bfloat16x8_t load_pairs(bool whole, const void *from, int64_t n)
{
    uint16_t some[NUMBERS] = {0};
    if (!whole) {
        memcpy(some, from, (size_t)n * sizeof *some);
    }
    return vreinterpretq_bf16_u16(vld1q_u16(whole ? from : some));
}

/* Weight rows from `first` on (those beyond the last repeat it) times `rows` rows of x, in columns
 * p … p + NUMBERS − 1 or, without `whole`, in those that are left. */
UNROLLED void dots_step(bool whole, int rows, const struct dpe_cpu_dots *dots, int64_t first,
                        int64_t p, vec (*sum)[SIDE])
{
    bfloat16x8_t weight[SIDE];
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; i++) {
        const int64_t row = dpe_least(first + i, dots->n - 1);
        weight[i] = load_pairs(whole, (const uint16_t *)dots->w + row * dots->ldw + p, dots->k - p);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const float *from = dots->x + r * dots->ldx + p / 2;
        const bfloat16x8_t x = load_pairs(whole, from, dots->k - p);
#pragma GCC unroll 4
        for (int i = 0; i < SIDE; i++) {
            sum[r][i] = vbfdotq_f32(sum[r][i], x, weight[i]);
        }
    }
}

/* `rows` is a constant after inlining. A sum has the same order for any of them. */
UNROLLED void dots_rows(int rows, const struct dpe_cpu_dots *dots)
{
    for (int64_t first = 0; first < dots->n; first += SIDE) {
        vec sum[SIDE][SIDE];
#pragma GCC unroll 16
        for (int i = 0; i < rows * SIDE; i++) {
            sum[i / SIDE][i % SIDE] = vdupq_n_f32(0.0F);
        }
        int64_t p = 0;
        for (; p + NUMBERS <= dots->k; p += NUMBERS) {
            dots_step(true, rows, dots, first, p, sum);
        }
        if (p < dots->k) {
            dots_step(false, rows, dots, first, p, sum);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            float four[SIDE];
            vst1q_f32(four, vpaddq_f32(vpaddq_f32(sum[r][0], sum[r][1]),
                                       vpaddq_f32(sum[r][2], sum[r][3])));
            memcpy(dots->out + r * dots->ldo + first, four,
                   (size_t)dpe_least(SIDE, dots->n - first) * sizeof *four);
        }
    }
}

static void multiply_few(const struct dpe_cpu_dots *dots)
{
    switch (dots->rows) {
    case 1:
        dots_rows(1, dots);
        break;
    case 2:
        dots_rows(2, dots);
        break;
    case 3:
        dots_rows(3, dots);
        break;
    default:
        dots_rows(4, dots);
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
        .depth = 2,
        .keys = 4,
        .begin = nothing,
        .end = nothing,
        .pack_rows = pack_rows,
        .halve = halve,
        .tile = tile,
        .pair = pair,
        .accumulate = accumulate,
        .accumulate_late = accumulate_late,
        .dots = multiply_few,
    };
    return &kernels;
}
