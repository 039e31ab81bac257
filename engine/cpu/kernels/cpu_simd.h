/**
 * @file cpu_simd.h
 * The handful of vector operations that the CPU kernels (cpu_kernels.c) are written in. The
 * build chooses the instruction set by defining DPE_SIMD_AVX512, DPE_SIMD_AVX2, DPE_SIMD_NEON or
 * none (then: four lanes through the compilers' generic vectors, which become SSE2 or scalar code).
 * Lanes are float; loads and stores need no alignment.
 *
 * v_max(a, b) returns b when either is NaN. v_pow2(t) is 2^n for t = 1.5·2^23 + n, −127 ≤ n ≤ 127,
 * with 2^−127 given as 0. v_fnma(a, b, c) = c − a·b. v_mask(p) has the lanes whose byte is not 0,
 * and v_blend(mask, a, b) is a in these, else b.
 */
#ifndef DPE_CPU_SIMD_H
#define DPE_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#include "engine/ops/ops_host.h"

/* For functions whose loops an argument unrolls. `inline` alone may leave one copy for all
 * arguments, whose sums are then in memory. Sanitizers check every load of every copy, which takes
 * compilers minutes, so that there it may. */
#ifdef DPE_KERNELS_SMALL
#define ALWAYS_INLINE inline
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif

/** 1.5·2^23: adding it rounds a float of magnitude below 2^22 to an integer in its low bits. */
#define V_ROUND_MAGIC 0x1.8p23f

#if defined(DPE_SIMD_AVX512)

#include <immintrin.h>

/* Lanes of a vector; rows of an accumulator tile (12 rows × 2 vectors + 3 fill 32 registers). */
enum { VL = 16, MR = 12 };
typedef __m512 vec;

static inline vec v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vec a)
{
    _mm512_storeu_ps(p, a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vec v_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
static inline vec v_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
static inline float v_sum(vec a)
{
    return _mm512_reduce_add_ps(a);
}
/** The lane sums of four vectors, to out[0 … 3]. */
static inline void v_sum4(const vec a[4], float *out)
{
    vec x = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    vec y = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    vec z = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
/** Lane by lane a where the word of `select` is not 0, else b. */
static inline vec v_select(const uint32_t *select, vec a, vec b)
{
    __m512i words = _mm512_loadu_si512(select);
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(words, words), b, a);
}
typedef __mmask16 vmask;
static inline vmask v_mask(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm_test_epi8_mask(bytes, bytes);
}
static inline vec v_blend(vmask mask, vec a, vec b)
{
    return _mm512_mask_blend_ps(mask, b, a);
}
static inline float v_largest(vec a)
{
    return _mm512_reduce_max_ps(a);
}
static inline vec v_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline vec v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/** m[i] lane j becomes m[j] lane i. */
static inline void v_transpose(vec m[VL])
{
    vec t[VL];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        vec a = _mm512_unpacklo_ps(m[i], m[i + 1]);
        vec b = _mm512_unpackhi_ps(m[i], m[i + 1]);
        vec c = _mm512_unpacklo_ps(m[i + 2], m[i + 3]);
        vec d = _mm512_unpackhi_ps(m[i + 2], m[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        vec a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        vec b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        vec c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        vec d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        m[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        m[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        m[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        m[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#elif defined(DPE_SIMD_AVX2)

#include <immintrin.h>

/* 6 rows × 2 vectors of accumulators + 3 fit 16 registers. */
enum { VL = 8, MR = 6 };
typedef __m256 vec;

static inline vec v_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vec v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vec a)
{
    _mm256_storeu_ps(p, a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec v_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
static inline vec v_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
static inline float v_sum(vec a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
/** The lane sums of four vectors, to out[0 … 3]. */
static inline void v_sum4(const vec a[4], float *out)
{
    vec x = _mm256_add_ps(_mm256_unpacklo_ps(a[0], a[1]), _mm256_unpackhi_ps(a[0], a[1]));
    vec y = _mm256_add_ps(_mm256_unpacklo_ps(a[2], a[3]), _mm256_unpackhi_ps(a[2], a[3]));
    vec z = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(z), _mm256_extractf128_ps(z, 1)));
}
/** Lane by lane a where the word of `select` is not 0 (then all ones), else b. */
static inline vec v_select(const uint32_t *select, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, v_load((const float *)(const void *)select));
}
typedef __m256 vmask;
static inline vmask v_mask(const uint8_t *p)
{
    __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(words, _mm256_setzero_si256()));
}
static inline vec v_blend(vmask mask, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, mask);
}
static inline float v_largest(vec a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline vec v_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vec v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/** m[i] lane j becomes m[j] lane i. */
static inline void v_transpose(vec m[VL])
{
    vec t[VL];
#pragma GCC unroll 16
    for (int i = 0; i < 8; i += 4) {
        vec a = _mm256_unpacklo_ps(m[i], m[i + 1]);
        vec b = _mm256_unpackhi_ps(m[i], m[i + 1]);
        vec c = _mm256_unpacklo_ps(m[i + 2], m[i + 3]);
        vec d = _mm256_unpackhi_ps(m[i + 2], m[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        m[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        m[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#elif defined(DPE_SIMD_NEON)

#include <arm_neon.h>

enum { VL = 4, MR = 4 };
typedef float32x4_t vec;

static inline vec v_set1(float x)
{
    return vdupq_n_f32(x);
}
static inline vec v_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void v_store(float *p, vec a)
{
    vst1q_f32(p, a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}
static inline vec v_fnma(vec a, vec b, vec c)
{
    return vfmsq_f32(c, a, b);
}
static inline vec v_max(vec a, vec b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline float v_sum(vec a)
{
    return vaddvq_f32(a);
}
/** The lane sums of four vectors, to out[0 … 3]. */
static inline void v_sum4(const vec a[4], float *out)
{
    v_store(out, vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3])));
}
/** Lane by lane a where the word of `select` is not 0 (then all ones), else b. */
static inline vec v_select(const uint32_t *select, vec a, vec b)
{
    return vbslq_f32(vld1q_u32(select), a, b);
}
typedef uint32x4_t vmask;
static inline vmask v_mask(const uint8_t *p)
{
    const uint32_t words[4] = {p[0], p[1], p[2], p[3]};
    return vtstq_u32(vld1q_u32(words), vdupq_n_u32(UINT32_MAX));
}
static inline vec v_blend(vmask mask, vec a, vec b)
{
    return vbslq_f32(mask, a, b);
}
static inline float v_largest(vec a)
{
    return vmaxvq_f32(a);
}
static inline vec v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline vec v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/** m[i] lane j becomes m[j] lane i. */
static inline void v_transpose(vec m[VL])
{
    vec even = vtrn1q_f32(m[0], m[1]); /* lanes 0 and 2 of both rows */
    vec odd = vtrn2q_f32(m[0], m[1]);
    vec even2 = vtrn1q_f32(m[2], m[3]);
    vec odd2 = vtrn2q_f32(m[2], m[3]);
    m[0] = vcombine_f32(vget_low_f32(even), vget_low_f32(even2));
    m[1] = vcombine_f32(vget_low_f32(odd), vget_low_f32(odd2));
    m[2] = vcombine_f32(vget_high_f32(even), vget_high_f32(even2));
    m[3] = vcombine_f32(vget_high_f32(odd), vget_high_f32(odd2));
}

#else

enum { VL = 4, MR = 4 };
typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_bits __attribute__((vector_size(16)));

static inline vec v_set1(float x)
{
    return (vec){x, x, x, x};
}
static inline vec v_load(const float *p)
{
    vec a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline void v_store(float *p, vec a)
{
    memcpy(p, &a, sizeof a);
}
static inline vec v_fma(vec a, vec b, vec c)
{
    return a * b + c;
}
static inline vec v_fnma(vec a, vec b, vec c)
{
    return c - a * b;
}
static inline vec v_max(vec a, vec b)
{
    vec_bits greater = a > b;
    return (vec)(((vec_bits)a & greater) | ((vec_bits)b & ~greater));
}
static inline float v_sum(vec a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
/** The lane sums of four vectors, to out[0 … 3]. */
static inline void v_sum4(const vec a[4], float *out)
{
    for (int i = 0; i < 4; i++) {
        out[i] = v_sum(a[i]);
    }
}
/** Lane by lane a where the word of `select` is not 0 (then all ones), else b. */
static inline vec v_select(const uint32_t *select, vec a, vec b)
{
    vec_bits words;
    memcpy(&words, select, sizeof words);
    return (vec)(((vec_bits)a & words) | ((vec_bits)b & ~words));
}
typedef vec_bits vmask;
static inline vmask v_mask(const uint8_t *p)
{
    const vec_bits words = {p[0], p[1], p[2], p[3]};
    return words != 0;
}
static inline vec v_blend(vmask mask, vec a, vec b)
{
    return (vec)(((vec_bits)a & mask) | ((vec_bits)b & ~mask));
}
static inline float v_largest(vec a)
{
    float x = a[0] > a[2] ? a[0] : a[2];
    float y = a[1] > a[3] ? a[1] : a[3];
    return x > y ? x : y;
}
static inline vec v_load_bf16(const uint16_t *p)
{
    typedef uint32_t vec_unsigned __attribute__((vector_size(16)));
    vec_unsigned wide = {p[0], p[1], p[2], p[3]};
    return (vec)(wide << 16);
}

static inline vec v_load_f16(const uint16_t *p)
{
    return (vec){dpe_from_f16(p[0]), dpe_from_f16(p[1]), dpe_from_f16(p[2]), dpe_from_f16(p[3])};
}

/** m[i] lane j becomes m[j] lane i. */
static inline void v_transpose(vec m[VL])
{
    vec t[VL];
    for (int i = 0; i < VL; i++) {
        t[i] = (vec){m[0][i], m[1][i], m[2][i], m[3][i]};
    }
    for (int i = 0; i < VL; i++) {
        m[i] = t[i];
    }
}

#endif

/* Of every set: what the compiler has operators for. */
static inline vec v_pow2(vec t)
{
    /* Left shifts of negative lanes are undefined in C, multiplications of unsigned ones are not.
     */
    typedef uint32_t vec_unsigned __attribute__((vector_size(sizeof(vec))));
    return (vec)(((vec_unsigned)t << 23) + 0x3f800000U);
}
static inline vec v_add(vec a, vec b)
{
    return a + b;
}
static inline vec v_sub(vec a, vec b)
{
    return a - b;
}
static inline vec v_mul(vec a, vec b)
{
    return a * b;
}
static inline vec v_div(vec a, vec b)
{
    return a / b;
}

#endif
