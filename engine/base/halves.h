/**
 * @file halves.h
 * What the bits of half types mean.
 */
#ifndef DPE_HALVES_H
#define DPE_HALVES_H

#include <stdint.h>
#include <string.h>

/** bfloat16 bits → float, exact. */
static inline float dpe_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value = 0.0f;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/** float → bfloat16 bits: to the nearest, ties to even; NaN stays NaN. */
static inline uint16_t dpe_to_bf16(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)(bits >> 16 | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

/** IEEE half bits → float, exact; subnormals, infinities and NaN included. */
static inline float dpe_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits >> 15) << 31;
    uint32_t exponent = (bits >> 10) & 0x1fU;
    uint32_t fraction = bits & 0x3ffU;
    uint32_t wide = 0;
    if (exponent == 0x1fU) {
        wide = sign | 0x7f800000U | fraction << 13;
    } else if (exponent != 0) {
        wide = sign | (exponent + 112U) << 23 | fraction << 13;
    } else {
        /* fraction · 2^−24 is exact in float. */
        float value = (float)fraction * 0x1p-24f;
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    }
    float value = 0.0f;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#endif
