/**
 * @file unpack.h
 * What the bits of a block mean. Included by what dequantises and what multiplies, so that each is
 * compiled for its own instruction set.
 */
#ifndef DPE_UNPACK_H
#define DPE_UNPACK_H

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "engine/base/halves.h"
#include "engine/blocks/blocks.h"

enum { DPE_BLOCK_MOST = 256, DPE_BLOCK_GROUPS = 16 };

/** A block: number i is scale[g] · q[i] + shift[g], g = i / group. */
struct dpe_unpacked {
    int8_t q[DPE_BLOCK_MOST];
    float scale[DPE_BLOCK_GROUPS], shift[DPE_BLOCK_GROUPS];
};

/** Numbers of a group. */
static inline int64_t dpe_block_group(enum dpe_dtype dtype)
{
    return dtype == DPE_Q6_K ? 16 : 32;
}

static inline float dpe_unpack_half(const unsigned char *bytes)
{
    uint16_t bits = 0;
    memcpy(&bits, bytes, sizeof bits);
#if defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    return dpe_from_f16(bits);
#endif
}

/* 16 bytes of two nibbles each: the low ones are numbers 0 … 15, the high ones 16 … 31. */
static inline void dpe_unpack_nibbles(const unsigned char *bytes, int n, int8_t *q)
{
    for (int i = 0; i < n; i++) {
        q[i] = (int8_t)(bytes[i] & 15);
        q[i + n] = (int8_t)(bytes[i] >> 4);
    }
}

static inline void dpe_unpack_less(int8_t *q, int n, int by)
{
    for (int i = 0; i < n; i++) {
        q[i] = (int8_t)(q[i] - by);
    }
}

/* The fifth bits of 32 numbers, number i in bit i. */
static inline void dpe_unpack_fifth(const unsigned char *bits, int8_t *q)
{
    for (int i = 0; i < 32; i++) {
        q[i] = (int8_t)(q[i] | (((bits[i / 8] >> (i % 8)) & 1) << 4));
    }
}

/* The 6-bit scale and minimum of group j of 8, of 12 bytes. */
static inline void dpe_unpack_six(const unsigned char *s, int j, int *scale, int *least)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *least = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
        *least = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    }
}

/* d, least, 12 bytes of scales: the head of Q4_K and Q5_K. */
static inline void dpe_unpack_k_scales(const unsigned char *block, struct dpe_unpacked *out)
{
    float d = dpe_unpack_half(block);
    float least = dpe_unpack_half(block + 2);
    for (int j = 0; j < 8; j++) {
        int scale = 0;
        int minimum = 0;
        dpe_unpack_six(block + 4, j, &scale, &minimum);
        out->scale[j] = d * (float)scale;
        out->shift[j] = -(least * (float)minimum);
    }
}

static inline void dpe_unpack_q6(const unsigned char *block, struct dpe_unpacked *out)
{
    float d = dpe_unpack_half(block + 208);
    for (int half = 0; half < 2; half++) {
        const unsigned char *low = block + 64 * half;
        const unsigned char *high = block + 128 + 32 * half;
        int8_t *q = out->q + 128 * half;
        for (int i = 0; i < 32; i++) {
            q[i] = (int8_t)(((low[i] & 15) | ((high[i] & 3) << 4)) - 32);
            q[i + 32] = (int8_t)(((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4)) - 32);
            q[i + 64] = (int8_t)(((low[i] >> 4) | (((high[i] >> 4) & 3) << 4)) - 32);
            q[i + 96] = (int8_t)(((low[i + 32] >> 4) | ((high[i] >> 6) << 4)) - 32);
        }
    }
    for (int j = 0; j < 16; j++) {
        out->scale[j] = d * (float)(int8_t)block[192 + j];
        out->shift[j] = 0.0F;
    }
}

/* Four bits of which one is the sign: 0, ½, 1, 1½, 2, 3, 4, 6, here doubled; an exponent for all.
 */
static inline void dpe_unpack_mxfp4(const unsigned char *block, struct dpe_unpacked *out)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t bits =
        block[0] < 2 ? (uint32_t)0x00200000 << block[0] : (uint32_t)(block[0] - 1) << 23;
    dpe_unpack_nibbles(block + 1, 16, out->q);
    for (int i = 0; i < 32; i++) {
        out->q[i] = doubled[out->q[i]];
    }
    memcpy(out->scale, &bits, sizeof bits);
    out->shift[0] = 0.0F;
}

/** Unpack one block. `dtype` has blocks. */
static inline void dpe_unpack(enum dpe_dtype dtype, const unsigned char *block,
                              struct dpe_unpacked *out)
{
    switch (dtype) {
    case DPE_Q8_0:
        memcpy(out->q, block + 2, 32);
        out->scale[0] = dpe_unpack_half(block);
        out->shift[0] = 0.0F;
        break;
    case DPE_Q4_0:
        dpe_unpack_nibbles(block + 2, 16, out->q);
        dpe_unpack_less(out->q, 32, 8);
        out->scale[0] = dpe_unpack_half(block);
        out->shift[0] = 0.0F;
        break;
    case DPE_Q4_1:
        dpe_unpack_nibbles(block + 4, 16, out->q);
        out->scale[0] = dpe_unpack_half(block);
        out->shift[0] = dpe_unpack_half(block + 2);
        break;
    case DPE_Q5_0:
        dpe_unpack_nibbles(block + 6, 16, out->q);
        dpe_unpack_fifth(block + 2, out->q);
        dpe_unpack_less(out->q, 32, 16);
        out->scale[0] = dpe_unpack_half(block);
        out->shift[0] = 0.0F;
        break;
    case DPE_Q5_1:
        dpe_unpack_nibbles(block + 8, 16, out->q);
        dpe_unpack_fifth(block + 4, out->q);
        out->scale[0] = dpe_unpack_half(block);
        out->shift[0] = dpe_unpack_half(block + 2);
        break;
    case DPE_Q4_K:
        dpe_unpack_k_scales(block, out);
        for (int j = 0; j < 4; j++) {
            dpe_unpack_nibbles(block + 16 + 32 * j, 32, out->q + 64 * j);
        }
        break;
    case DPE_Q5_K:
        dpe_unpack_k_scales(block, out);
        for (int j = 0; j < 4; j++) {
            dpe_unpack_nibbles(block + 48 + 32 * j, 32, out->q + 64 * j);
        }
        for (int i = 0; i < 256; i++) {
            out->q[i] = (int8_t)(out->q[i] | (((block[16 + i % 32] >> (i / 32)) & 1) << 4));
        }
        break;
    case DPE_Q6_K:
        dpe_unpack_q6(block, out);
        break;
    case DPE_MXFP4:
        dpe_unpack_mxfp4(block, out);
        break;
    case DPE_F32:
    case DPE_F16:
    case DPE_BF16:
    case DPE_DTYPES:
        break;
    }
}

#endif
