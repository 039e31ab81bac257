/**
 * @file cpu_blocks.h
 * The kernels of weights in blocks, a part of cpu_kernels.c: a block is unpacked into small
 * integers that stay in the first cache level, and these become floats where they are used.
 */
#ifndef DPE_CPU_BLOCKS_H
#define DPE_CPU_BLOCKS_H

#include "engine/blocks/unpack.h"
#include "engine/cpu/cpu_kernels.h"
#include "engine/cpu/cpu_simd.h"

/* VL small integers as floats. */
static inline vec v_from_i8(const int8_t *p)
{
#if defined(DPE_SIMD_AVX512)
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
#elif defined(DPE_SIMD_AVX2)
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
    float lanes[VL];
    for (int i = 0; i < VL; i++) {
        lanes[i] = (float)p[i];
    }
    return v_load(lanes);
#endif
}

/* Product and sum are rounded one after the other, as the format's reference does: the same floats
 * as dpe_dtype_read gives. */
static inline void blocks_widen_as(enum dpe_dtype dtype, int64_t elements,
                                   const unsigned char *from, int64_t n, float *out)
{
    int64_t group = dpe_block_group(dtype);
    struct dpe_unpacked block;
    for (int64_t at = 0; at < n; at += elements, from += dpe_block_types[dtype].bytes) {
        dpe_unpack(dtype, from, &block);
        for (int64_t g = 0; g < elements / group; g++) {
            vec scale = v_set1(block.scale[g]);
            vec shift = v_set1(block.shift[g]);
            for (int64_t i = g * group; i < (g + 1) * group; i += VL) {
                v_store(out + at + i, v_add(v_mul(scale, v_from_i8(block.q + i)), shift));
            }
        }
    }
}

/* A weight row against `rows` rows of x; all but the pointers are constants after inlining. */
static inline void blocks_dot(enum dpe_dtype dtype, int64_t elements, int rows,
                              const struct dpe_cpu_dots *dots, int64_t row)
{
    int64_t group = dpe_block_group(dtype);
    const unsigned char *from =
        (const unsigned char *)dots->w + dpe_dtype_bytes(dtype, row * dots->ldw);
    struct dpe_unpacked block;
    vec sum[4][4]; /* of row r: two for every other vector, so that they wait less for each other */
    for (int r = 0; r < rows; r++) {
        sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = v_set1(0.0F);
    }
    for (int64_t at = 0; at < dots->k; at += elements, from += dpe_block_types[dtype].bytes) {
        dpe_unpack(dtype, from, &block);
        for (int64_t g = 0; g < elements / group; g++) {
            vec scale = v_set1(block.scale[g]);
            vec shift = v_set1(block.shift[g]);
#pragma GCC unroll 8
            for (int64_t i = 0; i < group; i += VL) {
                vec weight = v_fma(scale, v_from_i8(block.q + g * group + i), shift);
                for (int r = 0; r < rows; r++) {
                    vec x = v_load(dots->x + r * dots->ldx + at + g * group + i);
                    int s = (int)(i / VL) & 1;
                    sum[r][s] = v_fma(weight, x, sum[r][s]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        float four[4];
        v_sum4(sum[r], four);
        dots->out[r * dots->ldo + row] = four[0] + four[1];
    }
}

static inline void blocks_dots_as(enum dpe_dtype dtype, int64_t elements,
                                  const struct dpe_cpu_dots *dots)
{
    for (int64_t i = 0; i < dots->n; i++) {
        switch (dots->rows) {
        case 1:
            blocks_dot(dtype, elements, 1, dots, i);
            break;
        case 2:
            blocks_dot(dtype, elements, 2, dots, i);
            break;
        case 3:
            blocks_dot(dtype, elements, 3, dots, i);
            break;
        default:
            blocks_dot(dtype, elements, 4, dots, i);
            break;
        }
    }
}

/* clang-format off */
#define DPE_EACH_BLOCK(CALL, DTYPE)                                                                \
    switch (DTYPE) {                                                                               \
    case DPE_Q8_0: CALL(DPE_Q8_0, 32); break;                                                      \
    case DPE_Q4_0: CALL(DPE_Q4_0, 32); break;                                                      \
    case DPE_Q4_1: CALL(DPE_Q4_1, 32); break;                                                      \
    case DPE_Q5_0: CALL(DPE_Q5_0, 32); break;                                                      \
    case DPE_Q5_1: CALL(DPE_Q5_1, 32); break;                                                      \
    case DPE_Q4_K: CALL(DPE_Q4_K, 256); break;                                                     \
    case DPE_Q5_K: CALL(DPE_Q5_K, 256); break;                                                     \
    case DPE_Q6_K: CALL(DPE_Q6_K, 256); break;                                                     \
    case DPE_MXFP4: CALL(DPE_MXFP4, 32); break;                                                    \
    case DPE_F32: case DPE_F16: case DPE_BF16: case DPE_DTYPES: break;                             \
    }
/* clang-format on */

/** widen of the table of kernels for blocks: n is a multiple of the block. */
static void dpe_blocks_widen(const void *from, enum dpe_dtype dtype, int64_t n, float *out)
{
#define CALL(TYPE, ELEMENTS) blocks_widen_as(TYPE, ELEMENTS, from, n, out)
    DPE_EACH_BLOCK(CALL, dtype)
#undef CALL
}

/** dots of the table of kernels for blocks. */
static void dpe_blocks_dots(const struct dpe_cpu_dots *dots)
{
#define CALL(TYPE, ELEMENTS) blocks_dots_as(TYPE, ELEMENTS, dots)
    DPE_EACH_BLOCK(CALL, dots->dtype)
#undef CALL
}

#endif
