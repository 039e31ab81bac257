/* Products and attention in bfloat16 on the tiles of AMX: compiled for it alone, chosen at run
 * time. A tile register holds 16 rows of 16 pairs. TDPBF16PS sums the first numbers of 16 pairs and
 * the second ones apart, and adds both to what is there: 16 pairs are added together, and a sum has
 * the same bits wherever such a group stands. It takes subnormal numbers for 0. */
#include "engine/cpu/kernels/cpu_kernels.h"

#include <immintrin.h>
#include <string.h>

enum {
    LANES = 16,     /* rows, and pairs of a row, of a tile register */
    MR = 2 * LANES, /* rows of a tile: four registers of sums */
    PANEL = 2 * LANES,
    GROUP = LANES * MR, /* pairs of a row pack: [LANES of k][MR][LANES] */
    ROW_BYTES = LANES * sizeof(float),
    PANEL_BYTES = PANEL * sizeof(float),
    P_BYTES = DPE_CPU_BLOCK * sizeof(float)
};

/* gcc's tile loads do not say that they read memory: what was written before stays before. */
static inline void written(void)
{
    __asm__ volatile("" : : : "memory");
}

static void begin(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } eight __attribute__((aligned(64))) = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&eight);
}

static void end(void)
{
    _tile_release();
}

/* Sums 0, 1 (rows 0 … 15 of a tile, both halves of its columns), 2, 3 (the other rows) += 16 pairs:
 * rows at a and `below`, columns at b. Without `both` only the first half of the columns is there.
 * Macros, as registers are named by constants. */
#define ADD_GROUP(both, a, below, a_bytes, b, b_bytes)                                             \
    do {                                                                                           \
        _tile_loadd(4, (a), (a_bytes));                                                            \
        _tile_loadd(5, (below), (a_bytes));                                                        \
        _tile_loadd(6, (b), (b_bytes));                                                            \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
        if (both) {                                                                                \
            _tile_loadd(7, (b) + LANES, (b_bytes));                                                \
            _tile_dpbf16ps(1, 4, 7);                                                               \
            _tile_dpbf16ps(3, 5, 7);                                                               \
        }                                                                                          \
    } while (0)

/* All sums to or from c [MR][…], `bytes` from a row to the next. */
#define EACH_SUM(both, move, c, bytes)                                                             \
    do {                                                                                           \
        move(0, (c), (bytes));                                                                     \
        move(2, (char *)(c) + LANES * (bytes), (bytes));                                           \
        if (both) {                                                                                \
            move(1, (c) + LANES, (bytes));                                                         \
            move(3, (char *)((c) + LANES) + LANES * (bytes), (bytes));                             \
        }                                                                                          \
    } while (0)

static void pack_rows(const float *x, int64_t ld, int64_t n, int64_t k, float *out)
{
    for (int64_t p = 0; p < k; p += LANES, out += GROUP) {
        __mmask16 some = (__mmask16)(k - p < LANES ? (1U << (k - p)) - 1U : 0xffffU);
        for (int64_t r = 0; r < MR; r++) {
            __m512 row = _mm512_maskz_loadu_ps(r < n ? some : 0, x + (r < n ? r : 0) * ld + p);
            _mm512_storeu_ps(out + r * LANES, row);
        }
    }
}

static void tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; k >= LANES; k -= LANES) {
        ADD_GROUP(true, rows, rows + GROUP / 2, ROW_BYTES, panel, PANEL_BYTES);
        rows += GROUP;
        panel += GROUP;
    }
    if (k > 0) {
        float rest[LANES * PANEL] = {0};
        memcpy(rest, panel, (size_t)k * PANEL_BYTES);
        written();
        ADD_GROUP(true, rows, rows + GROUP / 2, ROW_BYTES, rest, PANEL_BYTES);
    }
    EACH_SUM(true, _tile_stored, c, ldc * (int64_t)sizeof *c);
}

/* PANEL columns of accumulate or, without `both` (a constant after inlining), LANES of them; v and
 * o point at the first. */
UNROLLED void accumulate_columns(bool both, const float *p, const struct dpe_cpu_spans *spans,
                                 const float *v, float *o, int64_t width)
{
    int64_t bytes = width * (int64_t)sizeof *o;
    EACH_SUM(both, _tile_loadd, o, bytes);
    for (int64_t span = 0; span < spans->n; span++) {
        const float *keys = v + spans->spans[span].row * width;
        const float *weight = p + spans->spans[span].column;
        for (int64_t i = 0; i < spans->spans[span].count; i += LANES) {
            ADD_GROUP(both, weight + i, weight + i + LANES * DPE_CPU_BLOCK, P_BYTES,
                      keys + i * width, bytes);
        }
    }
    EACH_SUM(both, _tile_stored, o, bytes);
}

static void accumulate_all(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                           float *o, int64_t width)
{
    int64_t column = 0;
    for (; column + PANEL <= width; column += PANEL) {
        accumulate_columns(true, p, spans, v + column, o + column, width);
    }
    if (column < width) {
        accumulate_columns(false, p, spans, v + column, o + column, width);
    }
}

static void accumulate(const float *p, const struct dpe_cpu_spans *spans, const float *v,
                       const float *alpha, float *o, int64_t width)
{
    for (int64_t r = 0; r < MR; r++) {
        for (int64_t i = r * width; i < (r + 1) * width; i += LANES) {
            _mm512_storeu_ps(o + i,
                             _mm512_mul_ps(_mm512_set1_ps(alpha[r]), _mm512_loadu_ps(o + i)));
        }
    }
    written();
    if (spans->n > 0) {
        accumulate_all(p, spans, v, o, width);
    }
}

static bool finite_values(const float *v, int64_t n)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 found = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        __m512i bits = _mm512_and_si512(_mm512_loadu_si512(v + i), exponent);
        found |= _mm512_cmpeq_epi16_mask(bits, exponent);
    }
    return found == 0;
}

/* One group for row r of o, without the values of keys that it does not see. */
static void late_row(const float *p, int64_t r, int64_t sees, const float *v, float *o,
                     int64_t width)
{
    static const struct dpe_cpu_spans group = {.n = 1, .spans = {{0, 0, LANES}}};
    float weights[MR * DPE_CPU_BLOCK] = {0};
    memcpy(weights, p + r * DPE_CPU_BLOCK, ROW_BYTES);
    for (int64_t column = r * width; column < (r + 1) * width; column += LANES) {
        float values[LANES * LANES] = {0};
        float sums[MR * LANES] = {0};
        for (int64_t i = 0; i < sees; i += 2) {
            __m512i pairs = _mm512_loadu_si512(v + i / 2 * width + column - r * width);
            pairs = i + 1 < sees ? pairs : _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
            _mm512_storeu_si512(values + i / 2 * LANES, pairs);
        }
        memcpy(sums, o + column, ROW_BYTES);
        written();
        accumulate_columns(false, weights, &group, values, sums, LANES);
        memcpy(o + column, sums, ROW_BYTES);
    }
}

static void accumulate_late(const float *p, int64_t first, const float *v, float *o, int64_t width)
{
    static const struct dpe_cpu_spans group = {.n = 1, .spans = {{0, 0, LANES}}};
    if (finite_values(v, LANES * width)) {
        accumulate_all(p, &group, v, o, width);
        return;
    }
    for (int64_t r = dpe_most(first, 0); r < MR; r++) {
        late_row(p, r, dpe_least(r - first + 1, 2 * LANES), v, o, width);
    }
}

const struct dpe_cpu_bf16 *dpe_cpu_amx(void)
{
    static const struct dpe_cpu_bf16 kernels = {
        .mr = MR,
        .depth = LANES,
        .keys = 2 * LANES,
        .begin = begin,
        .end = end,
        .pack_rows = pack_rows,
        .halve = dpe_cpu_bf16_halve,
        .tile = tile,
        .pair = dpe_cpu_bf16_pair,
        .accumulate = accumulate,
        .accumulate_late = accumulate_late,
        .dots = dpe_cpu_bf16_dots,
    };
    return &kernels;
}
