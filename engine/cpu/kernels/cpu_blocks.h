/**
 * @file cpu_blocks.h
 * The kernels of weights in blocks, a part of cpu_kernels.c: the small integers of a block become
 * floats in registers, a vector or several at a time (a step), and are multiplied there.
 */
#ifndef DPE_CPU_BLOCKS_H
#define DPE_CPU_BLOCKS_H

#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/kernels/cpu_simd.h"
#include "engine/gguf/unpack.h"

typedef int32_t ivec __attribute__((vector_size(4 * VL)));

/* VL bytes as numbers. */
static inline ivec i_bytes(const unsigned char *p)
{
#if defined(DPE_SIMD_AVX512)
    return (ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(DPE_SIMD_AVX2)
    return (ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#else
    return (ivec){p[0], p[1], p[2], p[3]};
#endif
}

static inline ivec i_signed_bytes(const unsigned char *p)
{
#if defined(DPE_SIMD_AVX512)
    return (ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(DPE_SIMD_AVX2)
    return (ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#else
    return (ivec){(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]};
#endif
}

static inline vec v_from_int(ivec a)
{
#if defined(DPE_SIMD_AVX512)
    return _mm512_cvtepi32_ps((__m512i)a);
#elif defined(DPE_SIMD_AVX2)
    return _mm256_cvtepi32_ps((__m256i)a);
#else
    return (vec){(float)a[0], (float)a[1], (float)a[2], (float)a[3]};
#endif
}

/* q with 16 more in the lanes whose bit is set, lane i by bit i. */
static inline ivec i_fifth(ivec q, uint32_t bits)
{
#if defined(DPE_SIMD_AVX512)
    return (ivec)_mm512_mask_or_epi32((__m512i)q, (__mmask16)bits, (__m512i)q,
                                      _mm512_set1_epi32(16));
#elif defined(DPE_SIMD_AVX2)
    const ivec up = {4, 3, 2, 1, 0, 0, 0, 0};
    const ivec down = {0, 0, 0, 0, 0, 1, 2, 3};
    ivec all = (ivec)_mm256_set1_epi32((int)bits);
    return q | ((all << up >> down) & 16);
#else
    const ivec mask = {1, 2, 4, 8};
    const ivec factor = {16, 8, 4, 2};
    int word = (int)(bits & 15);
    return q | (((ivec){word, word, word, word} & mask) * factor);
#endif
}

/* A half in every lane. */
static inline vec v_half(const unsigned char *p)
{
#if defined(DPE_SIMD_AVX512)
    uint16_t bits = 0;
    memcpy(&bits, p, sizeof bits);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)bits));
#else
    return v_set1(dpe_unpack_half(p));
#endif
}

/* Bytes and numbers of a block: the table of blocks.h as constants. */
static ALWAYS_INLINE int64_t block_bytes(enum dpe_dtype dtype)
{
    switch (dtype) {
    case DPE_Q8_0:
        return 34;
    case DPE_Q4_0:
        return 18;
    case DPE_Q4_1:
        return 20;
    case DPE_Q5_0:
        return 22;
    case DPE_Q5_1:
        return 24;
    case DPE_MXFP4:
        return 17;
    case DPE_Q4_K:
        return 144;
    case DPE_Q5_K:
        return 176;
    default:
        return 210;
    }
}

static ALWAYS_INLINE int block_elements(enum dpe_dtype dtype)
{
    return dtype == DPE_Q4_K || dtype == DPE_Q5_K || dtype == DPE_Q6_K ? 256 : 32;
}

/* What holds for 256 numbers: number i is scale[g] · q + shift[g], where q is what the bits say.
 * What the format subtracts from q is in the shift, which is exact: products of q and scales have
 * at most 24 bits. */
struct factors {
    float scale[DPE_BLOCK_GROUPS], shift[DPE_BLOCK_GROUPS];
};

/* Scale and shift of a block of 32, whose first bytes are one or two halves. */
static ALWAYS_INLINE void read_pair(enum dpe_dtype dtype, const unsigned char *block, float *scale,
                                    float *shift)
{
    float pair[4] = {0};
#if defined(__F16C__)
    int32_t bits = 0;
    memcpy(&bits, block, sizeof bits);
    _mm_storeu_ps(pair, _mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#else
    pair[0] = dpe_unpack_half(block);
    pair[1] = dpe_unpack_half(block + 2);
#endif
    *scale = pair[0];
    *shift = dtype == DPE_Q4_0 ? -8.0F * pair[0] : dtype == DPE_Q5_0 ? -16.0F * pair[0] : pair[1];
}

/* The factors of n ≤ 8 blocks of 32, or of one of 256. */
static ALWAYS_INLINE void read_factors(enum dpe_dtype dtype, const unsigned char *block, int n,
                                       struct factors *factors)
{
    if (dtype == DPE_Q4_K || dtype == DPE_Q5_K) {
        unsigned char six[16];
        vec d = v_half(block);
        vec least = v_sub(v_set1(0.0F), v_half(block + 2));
        dpe_unpack_six(block + 4, six);
        for (int i = 0; i < 16; i += VL) {
            vec all = v_from_int(i_bytes(six + i));
            v_store(factors->scale + i, v_mul(d, all));
            v_store(factors->shift + i, v_mul(least, all));
        }
    } else if (dtype == DPE_Q6_K) {
        vec d = v_half(block + 208);
        for (int i = 0; i < 16; i += VL) {
            vec scale = v_mul(d, v_from_int(i_signed_bytes(block + 192 + i)));
            v_store(factors->scale + i, scale);
            v_store(factors->shift + i, v_mul(scale, v_set1(-32.0F)));
        }
    } else {
        for (int j = 0; j < n; j++, block += block_bytes(dtype)) {
            if (dtype == DPE_MXFP4) {
                factors->scale[j] = dpe_unpack_exponent(block[0]);
            } else {
                read_pair(dtype, block, &factors->scale[j], &factors->shift[j]);
            }
        }
    }
}

/* Where shifts begin: Q4_K and Q5_K have eight scales, then eight minimums. */
static ALWAYS_INLINE int first_shift(enum dpe_dtype dtype)
{
    return dtype == DPE_Q4_K || dtype == DPE_Q5_K ? 8 : 0;
}

/* A group while it is unpacked. Decoding rounds a weight once (fused), widening rounds product and
 * sum one after the other, as the format's reference does. */
struct group {
    vec scale, shift;
    bool shifted, fused;
};

static ALWAYS_INLINE struct group read_group(enum dpe_dtype dtype, const struct factors *factors,
                                             int g, bool fused)
{
    bool shifted = dtype != DPE_Q8_0 && dtype != DPE_MXFP4;
    return (struct group){v_set1(factors->scale[g]),
                          v_set1(shifted ? factors->shift[g + first_shift(dtype)] : 0.0F), shifted,
                          fused};
}

static ALWAYS_INLINE vec weight_of(const struct group *group, vec q)
{
    return !group->shifted ? v_mul(group->scale, q)
           : group->fused  ? v_fma(group->scale, q, group->shift)
                           : v_add(v_mul(group->scale, q), group->shift);
}

/* The weights of the low nibbles of `low`; higher bits do not matter. */
static ALWAYS_INLINE vec nibbles(const struct group *group, ivec low)
{
#if defined(DPE_SIMD_AVX512)
    /* The sixteen weights that there can be, and each lane takes one. */
    const vec all = _mm512_setr_ps(0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F, 9.0F,
                                   10.0F, 11.0F, 12.0F, 13.0F, 14.0F, 15.0F);
    return _mm512_permutexvar_ps((__m512i)low, weight_of(group, all));
#else
    return weight_of(group, v_from_int(low & 15));
#endif
}

/* The same of MXFP4, whose nibbles mean doubled numbers. */
static ALWAYS_INLINE vec nibbles_mxfp4(const struct group *group, ivec low)
{
#if defined(DPE_SIMD_AVX512)
    const vec all = _mm512_setr_ps(0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 6.0F, 8.0F, 12.0F, 0.0F, -1.0F,
                                   -2.0F, -3.0F, -4.0F, -6.0F, -8.0F, -12.0F);
    return _mm512_permutexvar_ps((__m512i)low, weight_of(group, all));
#elif defined(DPE_SIMD_AVX2)
    const vec all = _mm256_setr_ps(0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 6.0F, 8.0F, 12.0F);
    vec sign = _mm256_castsi256_ps((__m256i)((low & 8) << 28));
    return weight_of(group, _mm256_xor_ps(_mm256_permutevar8x32_ps(all, (__m256i)low), sign));
#else
    static const float all[16] = {0.0F, 1.0F,  2.0F,  3.0F,  4.0F,  6.0F,  8.0F,  12.0F,
                                  0.0F, -1.0F, -2.0F, -3.0F, -4.0F, -6.0F, -8.0F, -12.0F};
    return weight_of(group,
                     (vec){all[low[0] & 15], all[low[1] & 15], all[low[2] & 15], all[low[3] & 15]});
#endif
}

/* Vectors that a step unpacks together, because their bits lie in the same bytes. */
static inline int step_vectors(enum dpe_dtype dtype)
{
    return dtype == DPE_Q8_0 ? 1 : dtype == DPE_Q6_K ? 4 : 2;
}

/* Step i of a block of 32: its weights, and where in the block each vector begins. */
static ALWAYS_INLINE void unpack_32(enum dpe_dtype dtype, const unsigned char *block, int i,
                                    const struct group *group, vec *weight, int *at)
{
    /* The last 16 bytes, or 32 of Q8_0. */
    const unsigned char *q = block + block_bytes(dtype) - (dtype == DPE_Q8_0 ? 32 : 16);
    at[0] = i * VL;
    at[1] = 16 + i * VL;
    if (dtype == DPE_Q8_0) {
        weight[0] = weight_of(group, v_from_int(i_signed_bytes(q + i * VL)));
        return;
    }
    ivec both = i_bytes(q + i * VL);
    if (dtype == DPE_Q5_0 || dtype == DPE_Q5_1) {
        uint32_t bits = 0;
        memcpy(&bits, q - 4, sizeof bits);
        weight[0] = weight_of(group, v_from_int(i_fifth(both & 15, bits >> (i * VL))));
        weight[1] = weight_of(group, v_from_int(i_fifth(both >> 4, bits >> (16 + i * VL))));
    } else if (dtype == DPE_MXFP4) {
        weight[0] = nibbles_mxfp4(group, both);
        weight[1] = nibbles_mxfp4(group, both >> 4);
    } else {
        weight[0] = nibbles(group, both);
        weight[1] = nibbles(group, both >> 4);
    }
}

/* The same of a block of 256. */
static ALWAYS_INLINE void unpack_256(enum dpe_dtype dtype, const unsigned char *block, int i,
                                     const struct factors *factors, bool fused, vec *weight,
                                     int *at)
{
    enum { STEPS = 32 / VL }; /* of 32 bytes */
    int j = i / STEPS;
    int c = i % STEPS * VL;
    struct group group[4];
    int vectors = step_vectors(dtype);
    for (int v = 0; v < vectors; v++) {
        at[v] = 32 * (vectors * j + v) + c;
        group[v] = read_group(dtype, factors, at[v] / (int)dpe_block_group(dtype), fused);
    }
    if (dtype == DPE_Q6_K) {
        ivec low = i_bytes(block + 64 * j + c);
        ivec next = i_bytes(block + 64 * j + 32 + c);
        ivec high = i_bytes(block + 128 + 32 * j + c);
        weight[0] = weight_of(&group[0], v_from_int((low & 15) | ((high << 4) & 48)));
        weight[1] = weight_of(&group[1], v_from_int((next & 15) | ((high << 2) & 48)));
        weight[2] = weight_of(&group[2], v_from_int((low >> 4) | (high & 48)));
        weight[3] = weight_of(&group[3], v_from_int((next >> 4) | ((high >> 2) & 48)));
    } else if (dtype == DPE_Q5_K) {
        ivec both = i_bytes(block + 48 + 32 * j + c);
        ivec fifth = i_bytes(block + 16 + c) << 4 >> (2 * j);
        weight[0] = weight_of(&group[0], v_from_int((both & 15) | (fifth & 16)));
        weight[1] = weight_of(&group[1], v_from_int((both >> 4) | ((fifth >> 1) & 16)));
    } else {
        ivec both = i_bytes(block + 16 + 32 * j + c);
        weight[0] = nibbles(&group[0], both);
        weight[1] = nibbles(&group[1], both >> 4);
    }
}

/* What the numbers of a row are for: they are written as floats, or multiplied with rows of x. */
struct use {
    float *out;     /* NULL: multiply */
    const float *x; /* [rows], row stride ldx */
    int64_t ldx;
    int rows;
    vec sum[4][4]; /* of row r: several, so that they wait less for each other */
};

/* One block; group g is that of a block of 32. */
static ALWAYS_INLINE void use_block(enum dpe_dtype dtype, const unsigned char *block,
                                    const struct factors *factors, int g, int64_t base,
                                    struct use *use)
{
    bool fused = use->out == NULL;
    int elements = block_elements(dtype);
    int vectors = step_vectors(dtype);
    struct group group = read_group(dtype, factors, g, fused);
    const int steps = elements / VL / vectors;
#pragma GCC unroll 8
    for (int i = 0; i < steps; i++) {
        vec weight[4] = {{0}};
        int at[4] = {0};
        if (elements == 32) {
            unpack_32(dtype, block, i, &group, weight, at);
        } else {
            unpack_256(dtype, block, i, factors, fused, weight, at);
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            if (use->out != NULL) {
                v_store(use->out + base + at[v], weight[v]);
                continue;
            }
            int s = use->rows > 2 ? at[v] / VL & 1 : at[v] / VL & 3;
#pragma GCC unroll 4
            for (int r = 0; r < use->rows; r++) {
                vec x = v_load(use->x + r * use->ldx + base + at[v]);
                use->sum[r][s] = v_fma(weight[v], x, use->sum[r][s]);
            }
        }
    }
}

static ALWAYS_INLINE void use_blocks(enum dpe_dtype dtype, const unsigned char *from, int64_t n,
                                     struct use *use)
{
    int elements = block_elements(dtype);
    for (int64_t base = 0; base < n; base += 256) {
        int blocks = (int)((n - base < 256 ? n - base : 256) / elements);
        struct factors factors;
        read_factors(dtype, from, blocks, &factors);
        for (int b = 0; b < blocks; b++, from += block_bytes(dtype)) {
            use_block(dtype, from, &factors, b, base + b * elements, use);
        }
    }
}

/* Four weight rows, or what is left of them, against `rows` rows of x; all but the pointers are
 * constants after inlining. */
static ALWAYS_INLINE void blocks_dot(enum dpe_dtype dtype, int rows,
                                     const struct dpe_cpu_dots *dots, int64_t first)
{
    int64_t bytes = dots->ldw / block_elements(dtype) * block_bytes(dtype);
    int count = dots->n - first < 4 ? (int)(dots->n - first) : 4;
    vec total[4][4];
    for (int i = 0; i < 4; i++) {
        int64_t row = first + (i < count ? i : count - 1);
        struct use use = {.x = dots->x, .ldx = dots->ldx, .rows = rows};
        for (int r = 0; r < rows; r++) {
            use.sum[r][0] = use.sum[r][1] = use.sum[r][2] = use.sum[r][3] = v_set1(0.0F);
        }
        use_blocks(dtype, (const unsigned char *)dots->w + row * bytes, dots->k, &use);
        for (int r = 0; r < rows; r++) {
            total[r][i] =
                v_add(v_add(use.sum[r][0], use.sum[r][1]), v_add(use.sum[r][2], use.sum[r][3]));
        }
    }
    for (int r = 0; r < rows; r++) {
        float four[4];
        v_sum4(total[r], four);
        memcpy(dots->out + r * dots->ldo + first, four, (size_t)count * sizeof *four);
    }
}

static ALWAYS_INLINE void blocks_dots_as(enum dpe_dtype dtype, const struct dpe_cpu_dots *dots)
{
    for (int64_t i = 0; i < dots->n; i += 4) {
        switch (dots->rows) {
        case 1:
            blocks_dot(dtype, 1, dots, i);
            break;
        case 2:
            blocks_dot(dtype, 2, dots, i);
            break;
        case 3:
            blocks_dot(dtype, 3, dots, i);
            break;
        default:
            blocks_dot(dtype, 4, dots, i);
            break;
        }
    }
}

static ALWAYS_INLINE void blocks_widen_as(enum dpe_dtype dtype, const unsigned char *from,
                                          int64_t n, float *out)
{
    struct use use = {.out = out};
    use_blocks(dtype, from, n, &use);
}

/* clang-format off */
#define DPE_EACH_BLOCK(CALL, DTYPE)                                                                \
    switch (DTYPE) {                                                                               \
    case DPE_Q8_0: CALL(DPE_Q8_0); break;                                                          \
    case DPE_Q4_0: CALL(DPE_Q4_0); break;                                                          \
    case DPE_Q4_1: CALL(DPE_Q4_1); break;                                                          \
    case DPE_Q5_0: CALL(DPE_Q5_0); break;                                                          \
    case DPE_Q5_1: CALL(DPE_Q5_1); break;                                                          \
    case DPE_Q4_K: CALL(DPE_Q4_K); break;                                                          \
    case DPE_Q5_K: CALL(DPE_Q5_K); break;                                                          \
    case DPE_Q6_K: CALL(DPE_Q6_K); break;                                                          \
    case DPE_MXFP4: CALL(DPE_MXFP4); break;                                                        \
    case DPE_F32: case DPE_F16: case DPE_BF16: case DPE_DTYPES: break;                             \
    }
/* clang-format on */

/** widen of the table of kernels for blocks: n is a multiple of the block. */
static void dpe_blocks_widen(const void *from, enum dpe_dtype dtype, int64_t n, float *out)
{
#define CALL(TYPE) blocks_widen_as(TYPE, from, n, out)
    DPE_EACH_BLOCK(CALL, dtype)
#undef CALL
}

/** dots of the table of kernels for blocks. */
static void dpe_blocks_dots(const struct dpe_cpu_dots *dots)
{
#define CALL(TYPE) blocks_dots_as(TYPE, dots)
    DPE_EACH_BLOCK(CALL, dots->dtype)
#undef CALL
}

#endif
