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
#include "engine/gguf/blocks.h"

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

/** The 6-bit scales of 8 groups and their minimums, of 12 bytes: four numbers stand in each word.
 * The low 6 bits of the first two words are groups 0 to 3; those of 4 to 7 have their low nibbles
 * in the third word and the rest in the high bits of the others. */
static inline void dpe_unpack_six(const unsigned char *from, unsigned char six[16])
{
    uint32_t words[3];
    memcpy(words, from, sizeof words);
    const uint32_t out[4] = {
        words[0] & 0x3f3f3f3fU,
        (words[2] & 0x0f0f0f0fU) | ((words[0] >> 2) & 0x30303030U),
        words[1] & 0x3f3f3f3fU,
        ((words[2] >> 4) & 0x0f0f0f0fU) | ((words[1] >> 2) & 0x30303030U),
    };
    memcpy(six, out, sizeof out);
}

/* d, least and the scales: the head of Q4_K and Q5_K. */
static inline void dpe_unpack_k_scales(const unsigned char *block, float *scale, float *shift)
{
    float d = dpe_unpack_half(block);
    float least = -dpe_unpack_half(block + 2);
    unsigned char six[16];
    dpe_unpack_six(block + 4, six);
    for (int j = 0; j < 8; j++) {
        scale[j] = d * (float)six[j];
        shift[j] = least * (float)six[8 + j];
    }
}

/** The scale of an MXFP4 block, half of 2^(byte − 127): its numbers are doubled. */
static inline float dpe_unpack_exponent(unsigned char byte)
{
    uint32_t bits = byte < 2 ? (uint32_t)0x00200000 << byte : (uint32_t)(byte - 1) << 23;
    float scale = 0.0F;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
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
    dpe_unpack_nibbles(block + 1, 16, out->q);
    for (int i = 0; i < 32; i++) {
        out->q[i] = doubled[out->q[i]];
    }
    out->scale[0] = dpe_unpack_exponent(block[0]);
    out->shift[0] = 0.0F;
}

/** Unpack one block. `dtype` has blocks. */
static inline void dpe_unpack(enum dpe_dtype dtype, const unsigned char *block,
                              struct dpe_unpacked *out)
{
    const bool shifted = dtype == DPE_Q4_1 || dtype == DPE_Q5_1;
    /* Of the types of 32 numbers but MXFP4; the others have their own. */
    out->scale[0] = dpe_unpack_half(block);
    out->shift[0] = shifted ? dpe_unpack_half(block + 2) : 0.0F;
    switch (dtype) {
    case DPE_Q8_0:
        memcpy(out->q, block + 2, 32);
        break;
    case DPE_Q4_0:
        dpe_unpack_nibbles(block + 2, 16, out->q);
        dpe_unpack_less(out->q, 32, 8);
        break;
    case DPE_Q4_1:
        dpe_unpack_nibbles(block + 4, 16, out->q);
        break;
    case DPE_Q5_0:
        dpe_unpack_nibbles(block + 6, 16, out->q);
        dpe_unpack_fifth(block + 2, out->q);
        dpe_unpack_less(out->q, 32, 16);
        break;
    case DPE_Q5_1:
        dpe_unpack_nibbles(block + 8, 16, out->q);
        dpe_unpack_fifth(block + 4, out->q);
        break;
    case DPE_Q4_K:
        dpe_unpack_k_scales(block, out->scale, out->shift);
        for (int j = 0; j < 4; j++) {
            dpe_unpack_nibbles(block + 16 + 32 * j, 32, out->q + 64 * j);
        }
        break;
    case DPE_Q5_K:
        dpe_unpack_k_scales(block, out->scale, out->shift);
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
