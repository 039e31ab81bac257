/* The CPU kernels of one instruction set. CMake compiles this file once per set: DPE_KERNELS_NAME
 * is the function that returns the table, DPE_KERNELS_LABEL its name, and DPE_SIMD_AVX512,
 * DPE_SIMD_AVX2, DPE_SIMD_NEON or none selects the vectors (cpu_simd.h). */
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/kernels/cpu_blocks.h"
#include "engine/cpu/kernels/cpu_simd.h"
#include "engine/ops/ops_head.h"

#include <math.h>

enum {
    PANEL = 2 * VL,
    AHEAD = 16,    /* rows between the one that is read and the one that is requested again */
    LINE = 16,     /* floats */
    STREAM = 2048, /* floats of x that stay in the first cache level beside a stream of weights */
    FEW_ROWS = VL == 16 ? 4 : 2, /* rows of `accumulate_few` whose sums fit the registers */
    TOGETHER = VL == 16 ? 4 : 2, /* weight rows of `dots` whose sums fit the registers */
    SIDE = 8,                    /* the same for few rows of x */
};

_Static_assert((int)MR <= (int)VL && (int)VL <= DPE_CPU_MAX_LANES && (int)MR <= DPE_CPU_MAX_MR,
               "a row pack is stored by overlapping vectors");

/* Request what lies `ahead` bytes after p, which may be past the end of the array, for the second
 * cache level: the first has too few requests of its own to keep the memory busy. */
static inline void prefetch_bytes(const char *p, int64_t ahead)
{
    uintptr_t address = (uintptr_t)p + (uintptr_t)ahead;
    __builtin_prefetch((const void *)address, 0, 2); /* NOLINT(performance-no-int-to-ptr) */
}

/* The float at p + ahead. */
static inline void prefetch(const float *p, int64_t ahead)
{
    prefetch_bytes((const char *)p, ahead * (int64_t)sizeof *p);
}

/* 2^x within 2 units in the last place for −126 ≤ x < 128; 0 below −126.5; NaN stays NaN.
 * x = n + r with |r| ≤ ½ and dpe_exp2_polynomial for 2^r. */
static inline vec exp2_reduced(vec x)
{
    vec t = v_add(x, v_set1(V_ROUND_MAGIC));
    vec r = v_sub(x, v_sub(t, v_set1(V_ROUND_MAGIC)));
    vec p = v_set1(dpe_exp2_polynomial[0]);
#pragma GCC unroll 6
    for (int i = 1; i <= DPE_EXP2_DEGREE; i++) {
        p = v_fma(p, r, v_set1(dpe_exp2_polynomial[i]));
    }
    return v_mul(p, v_pow2(t));
}

static inline vec v_exp2(vec x)
{
    /* The constant first: v_max then hands NaN through. */
    return exp2_reduced(v_max(v_set1(-127.0F), x));
}

/* c + a · b, lane by lane (cpu_tiles.h). */
static inline vec v_product(vec a, vec b, vec c)
{
    return v_fma(a, b, c);
}

#include "engine/cpu/kernels/cpu_tiles.h"

#include "engine/cpu/kernels/cpu_kernels_attention.h"

static void kernel_exp2(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i += VL) {
        float lanes[VL] = {0};
        int64_t count = n - i < VL ? n - i : VL;
        memcpy(lanes, x + i, (size_t)count * sizeof *x);
        v_store(lanes, v_exp2(v_load(lanes)));
        memcpy(y + i, lanes, (size_t)count * sizeof *y);
    }
}

static void kernel_tile(const float *rows, const float *panel, int64_t k, float *c, int64_t ldc)
{
    tile_rows(MR, rows, panel, k, c, ldc);
}

static void kernel_tile_part(int64_t n, const float *rows, const float *panel, int64_t k, float *c,
                             int64_t ldc)
{
    if (n <= MR / 3) {
        tile_rows(MR / 3, rows, panel, k, c, ldc);
    } else if (n <= 2 * (MR / 3)) {
        tile_rows(2 * (MR / 3), rows, panel, k, c, ldc);
    } else {
        tile_rows(MR, rows, panel, k, c, ldc);
    }
}

static void kernel_write_tile(const struct dpe_cpu_tile *tile, float *out, int64_t ldo)
{
    for (int64_t r = 0; r < tile->rows; r++) {
        const float *from = tile->sums + r * PANEL;
        float *to = out + r * ldo;
        int64_t i = 0;
        for (; i + VL <= tile->columns; i += VL) {
            vec sum = v_load(from + i);
            if (tile->bias != NULL) {
                sum = v_add(sum, v_load(tile->bias + i));
            }
            if (tile->keep) {
                sum = v_add(sum, v_load(to + i));
            }
            v_store(to + i, sum);
        }
        for (; i < tile->columns; i++) {
            float sum = tile->bias != NULL ? from[i] + tile->bias[i] : from[i];
            to[i] = tile->keep ? sum + to[i] : sum;
        }
    }
}

/* Columns p … p+VL−1 of VL rows (those from n on are 0), transposed. */
static inline void load_transposed(const float *x, int64_t ld, int64_t n, int64_t p, vec m[VL])
{
    if (n >= VL) {
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) {
            m[i] = v_load(x + i * ld + p);
        }
    } else {
        for (int i = 0; i < VL; i++) {
            m[i] = i < n ? v_load(x + i * ld + p) : v_set1(0.0F);
        }
    }
    v_transpose(m);
}

static void kernel_pack_rows(const float *x, int64_t ld, int64_t n, int64_t k, float *out)
{
    int64_t p = 0;
    for (; p + VL <= k; p += VL) {
        vec m[VL];
        load_transposed(x, ld, n, p, m);
        /* Each store runs over the start of the next row, which the next store then writes. */
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) {
            v_store(out + (p + i) * MR, m[i]);
        }
    }
    for (; p < k; p++) {
        for (int i = 0; i < MR; i++) {
            out[p * MR + i] = i < n ? x[i * ld + p] : 0.0F;
        }
    }
}

static void kernel_pack_panel(const float *x, int64_t ld, int64_t n, int64_t k, float *out)
{
    int64_t p = 0;
    for (; p + VL <= k; p += VL) {
        for (int half = 0; half < 2; half++) {
            vec m[VL];
            load_transposed(x + half * VL * ld, ld, n - half * VL, p, m);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++) {
                v_store(out + (p + i) * PANEL + half * VL, m[i]);
            }
        }
    }
    for (; p < k; p++) {
        for (int i = 0; i < PANEL; i++) {
            out[p * PANEL + i] = i < n ? x[i * ld + p] : 0.0F;
        }
    }
}

/* The pairs (a, b) of a vector rotated by the angles whose cosines and sines are c and s. */
static ALWAYS_INLINE void turn(vec a, vec b, vec c, vec s, vec *first, vec *second)
{
    *first = v_fnma(b, s, v_mul(a, c));
    *second = v_fma(a, s, v_mul(b, c));
}

/* Row i of a rotation. */
static ALWAYS_INLINE void rotate_row(bool selected, const struct dpe_cpu_rotation *rotation,
                                     int64_t i, const float *x, float *out)
{
    int64_t n_pairs = rotation->n_pairs;
    int64_t j = 0;
    for (; j + VL <= n_pairs; j += VL) {
        int64_t at = i * n_pairs + j;
        vec c = v_load(rotation->cos + at);
        vec s = v_load(rotation->sin + at);
        if (selected) {
            c = v_select(rotation->select + j, c, v_load(rotation->base_cos + at));
            s = v_select(rotation->select + j, s, v_load(rotation->base_sin + at));
        }
        vec first;
        vec second;
        turn(v_load(x + j), v_load(x + j + n_pairs), c, s, &first, &second);
        v_store(out + j, first);
        v_store(out + j + n_pairs, second);
    }
    for (; j < n_pairs; j++) {
        bool base = selected && rotation->select[j] == 0;
        float c = (base ? rotation->base_cos : rotation->cos)[i * n_pairs + j];
        float s = (base ? rotation->base_sin : rotation->sin)[i * n_pairs + j];
        float a = x[j];
        float b = x[j + n_pairs];
        out[j] = a * c - b * s;
        out[j + n_pairs] = b * c + a * s;
    }
}

static void kernel_rotate(const struct dpe_cpu_rotation *rotation, const float *x, int64_t ld,
                          int64_t n, float *out)
{
    int64_t d = 2 * rotation->n_pairs;
    for (int64_t i = 0; i < n && rotation->select == NULL; i++) {
        rotate_row(false, rotation, i, x + i * ld, out + i * d);
    }
    for (int64_t i = 0; i < n && rotation->select != NULL; i++) {
        rotate_row(true, rotation, i, x + i * ld, out + i * d);
    }
}

static inline vec load_as(const char *from, enum dpe_dtype dtype)
{
    if (dtype == DPE_F32) {
        return v_load((const float *)(const void *)from);
    }
    const uint16_t *half = (const uint16_t *)(const void *)from;
    return dtype == DPE_BF16 ? v_load_bf16(half) : v_load_f16(half);
}

static inline int64_t dtype_size(enum dpe_dtype dtype)
{
    return dtype == DPE_F32 ? 4 : 2;
}

/* Fewer than VL numbers, followed by zeros. */
static inline vec load_few(const char *from, enum dpe_dtype dtype, int64_t n)
{
    float lanes[VL] = {0};
    memcpy(lanes, from, (size_t)(n * dtype_size(dtype)));
    return load_as((const char *)lanes, dtype);
}

static inline void widen_as(enum dpe_dtype dtype, const char *from, int64_t n, float *out)
{
    int64_t size = dtype_size(dtype);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        v_store(out + i, load_as(from + i * size, dtype));
    }
    if (i < n) {
        float lanes[VL];
        v_store(lanes, load_few(from + i * size, dtype, n - i));
        memcpy(out + i, lanes, (size_t)(n - i) * sizeof *out);
    }
}

static void kernel_widen(const void *from, enum dpe_dtype dtype, int64_t n, float *out)
{
    switch (dtype) {
    case DPE_F32:
        widen_as(DPE_F32, from, n, out);
        break;
    case DPE_F16:
        widen_as(DPE_F16, from, n, out);
        break;
    case DPE_BF16:
        widen_as(DPE_BF16, from, n, out);
        break;
    default:
        dpe_blocks_widen(from, dtype, n, out);
        break;
    }
}

#include "engine/cpu/kernels/cpu_kernels_dots.h"

static void kernel_rmsnorm(const float *x, const float *weight, int64_t n, float eps, float *out)
{
    vec sum[4];
    for (int i = 0; i < 4; i++) {
        sum[i] = v_set1(0.0F);
    }
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vec a = v_load(x + i + j * VL);
            sum[j] = v_fma(a, a, sum[j]);
        }
    }
    double total = (double)v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
    for (; i < n; i++) {
        total += (double)x[i] * (double)x[i];
    }
    float scale = (float)(1.0 / sqrt(total / (double)n + (double)eps));
    for (i = 0; i + VL <= n; i += VL) {
        v_store(out + i, v_mul(v_mul(v_load(x + i), v_set1(scale)), v_load(weight + i)));
    }
    for (; i < n; i++) {
        out[i] = x[i] * scale * weight[i];
    }
}

/* a / (1 + e^−g) · u. */
static inline vec sigmoid_times(vec a, vec g, vec u)
{
    /* −g·log2 e as a rounded product and what it lost, so that e^−g keeps its last bits. Beyond
     * 2^126 the quotient is below the smallest normal number either way. */
    const float high = 0x1.715476p0F;
    const float low = 0x1.4ae0cp-26F;
    vec negative = v_sub(v_set1(0.0F), g);
    vec product = v_mul(negative, v_set1(high));
    vec lost = v_fma(negative, v_set1(high), v_sub(v_set1(0.0F), product));
    lost = v_fma(negative, v_set1(low), lost);
    vec limit = v_sub(v_set1(0.0F), v_max(v_set1(-126.0F), v_sub(v_set1(0.0F), product)));
    vec power = v_exp2(limit);
    /* e^−g = 2^product · 2^lost ≈ 2^product · (1 + lost · ln 2). */
    power = v_fma(v_mul(power, lost), v_set1(0x1.62e43p-1F), power);
    return v_mul(v_div(a, v_add(v_set1(1.0F), power)), u);
}

static inline vec v_least(vec a, vec b)
{
    vec zero = v_set1(0.0F);
    return v_sub(zero, v_max(v_sub(zero, a), v_sub(zero, b)));
}

static inline vec gelu_times(vec g, vec u)
{
    /* ½ (1 + tanh y) = 1 / (1 + e^−2y), y = √(2/π) (g + 0.044715 g³). */
    vec cube = v_mul(v_mul(g, g), g);
    vec y = v_mul(v_fma(cube, v_set1(0.044715F), g), v_set1(1.5957691216057308F));
    return sigmoid_times(g, y, u);
}

static inline vec clamped_times(vec g, vec u)
{
    g = v_least(g, v_set1(7.0F));
    u = v_max(v_set1(-7.0F), v_least(u, v_set1(7.0F)));
    return sigmoid_times(g, v_mul(g, v_set1(1.702F)), v_add(u, v_set1(1.0F)));
}

static ALWAYS_INLINE vec activated(enum dpe_activation activation, vec g, vec u)
{
    return activation == DPE_GEGLU_TANH ? gelu_times(g, u)
           : activation == DPE_SWIGLU   ? sigmoid_times(g, g, u)
                                        : clamped_times(g, u);
}

/* The activation is a constant after inlining. */
static ALWAYS_INLINE void activate_as(enum dpe_activation activation, float *gate, const float *up,
                                      int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        v_store(gate + i, activated(activation, v_load(gate + i), v_load(up + i)));
    }
    if (i < n) {
        float lanes[VL];
        vec g = load_few((const char *)(gate + i), DPE_F32, n - i);
        vec u = load_few((const char *)(up + i), DPE_F32, n - i);
        v_store(lanes, activated(activation, g, u));
        memcpy(gate + i, lanes, (size_t)(n - i) * sizeof *gate);
    }
}

static void kernel_activate(enum dpe_activation activation, float *gate, const float *up, int64_t n)
{
    switch (activation) {
    case DPE_SWIGLU:
        activate_as(DPE_SWIGLU, gate, up, n);
        break;
    case DPE_GEGLU_TANH:
        activate_as(DPE_GEGLU_TANH, gate, up, n);
        break;
    case DPE_SWIGLU_CLAMPED:
        activate_as(DPE_SWIGLU_CLAMPED, gate, up, n);
        break;
    }
}

static void kernel_cap(float *x, int64_t n, float inner, float outer)
{
    vec two = v_set1(2.0F * outer);
    vec zero = v_set1(0.0F);
    for (int64_t i = 0; i < n; i += VL) {
        vec a = v_load(x + i);
        /* 0 where a is finite, else −∞. */
        vec hidden = v_least(v_add(a, v_set1(3e38F)), zero);
        vec y = v_max(v_set1(-80.0F), v_mul(a, v_set1(2.0F * inner)));
        vec t = v_sub(sigmoid_times(two, y, v_set1(1.0F)), v_set1(outer));
        v_store(x + i, v_add(t, hidden));
    }
}

static void kernel_sigmoid(float *out, const float *gate, int64_t n)
{
    const vec one = v_set1(1.0F);
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t few = n - i < VL ? n - i : VL;
        float lanes[VL];
        vec x = load_few((const char *)(out + i), DPE_F32, few);
        vec g = load_few((const char *)(gate + i), DPE_F32, few);
        v_store(lanes, sigmoid_times(x, g, one));
        memcpy(out + i, lanes, (size_t)few * sizeof *out);
    }
}

/* `rows` ≤ MR rows of a small product, 2 · VL columns from `column` on. */
static ALWAYS_INLINE void small_tile(const struct dpe_cpu_small *p, int64_t row, int64_t column,
                                     int rows)
{
    vec sum[MR][2];
    const float *a = p->a + row * p->a_row;
    const float *b = p->b + column;
    for (int r = 0; r < rows; r++) {
        sum[r][0] = sum[r][1] = v_set1(0.0F);
    }
    for (int64_t i = 0; i < p->k; i++) {
        vec b0 = v_load(b);
        vec b1 = v_load(b + VL);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = v_set1(a[r * p->a_row]);
            sum[r][0] = v_fma(x, b0, sum[r][0]);
            sum[r][1] = v_fma(x, b1, sum[r][1]);
        }
        a += p->a_column;
        b += p->ldb;
    }
    for (int r = 0; r < rows; r++) {
        float *c = p->c + (row + r) * p->ldc + column;
        if (p->keep != 0.0F) {
            sum[r][0] = v_fma(v_set1(p->keep), v_load(c), sum[r][0]);
            sum[r][1] = v_fma(v_set1(p->keep), v_load(c + VL), sum[r][1]);
        }
        v_store(c, sum[r][0]);
        v_store(c + VL, sum[r][1]);
    }
}

static void kernel_small(const struct dpe_cpu_small *p)
{
    const int64_t wide = p->n / PANEL * PANEL;
    for (int64_t column = 0; column < wide; column += PANEL) {
        int64_t row = 0;
        for (; row + MR <= p->m; row += MR) {
            small_tile(p, row, column, MR);
        }
        for (; row + 2 <= p->m; row += 2) {
            small_tile(p, row, column, 2);
        }
        if (row < p->m) {
            small_tile(p, row, column, 1);
        }
    }
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t column = wide; column < p->n; column++) {
            float sum = 0.0F;
            for (int64_t i = 0; i < p->k; i++) {
                sum += p->a[row * p->a_row + i * p->a_column] * p->b[i * p->ldb + column];
            }
            float *c = p->c + row * p->ldc + column;
            *c = p->keep != 0.0F ? sum + p->keep * *c : sum;
        }
    }
}

const struct dpe_cpu_kernels *DPE_KERNELS_NAME(void)
{
    static const struct dpe_cpu_kernels kernels = {
        .name = DPE_KERNELS_LABEL,
        .lanes = VL,
        .mr = MR,
        .panel = PANEL,
        .tile = kernel_tile,
        .tile_part = kernel_tile_part,
        .pack_rows = kernel_pack_rows,
        .pack_panel = kernel_pack_panel,
        .rotate = kernel_rotate,
        .softmax = kernel_softmax,
        .accumulate = kernel_accumulate,
        .accumulate_row = kernel_accumulate_row,
        .accumulate_few = kernel_accumulate_few,
        .write_tile = kernel_write_tile,
        .small = kernel_small,
        .dots = kernel_dots,
        .dots_rotated = kernel_dots_rotated,
        .dots_shared = kernel_dots_shared,
        .widen = kernel_widen,
        .rmsnorm = kernel_rmsnorm,
        .sigmoid = kernel_sigmoid,
        .activate = kernel_activate,
        .cap = kernel_cap,
        .exp2 = kernel_exp2,
    };
    return &kernels;
}
