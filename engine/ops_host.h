/**
 * @file ops_host.h
 * What the backends that live in host memory (reference, cpu) share, so that one can use the
 * other's slots: the definition of their `struct dpe_backend`, and reading weights as float.
 */
#ifndef DPE_OPS_HOST_H
#define DPE_OPS_HOST_H

#include <string.h>

#include "ops.h"

/** The fast CPU backend's own buffers; NULL for the reference. */
struct dpe_cpu_state;

/** Both host backends. Borrowed pointers live as long as the model. */
struct dpe_backend {
    const struct dpe_config *config;
    const struct dpe_weights *weights;
    int n_threads;
    struct dpe_cpu_state *cpu;
};

/** bfloat16 bits → float, exact. */
static inline float dpe_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value = 0.0f;
    memcpy(&value, &wide, sizeof value);
    return value;
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

/** Threads for a loop of about `work` simple steps: one when starting more would cost more. */
static inline int dpe_threads_for(int n_threads, int64_t work)
{
    return work < (1 << 17) ? 1 : n_threads;
}

/** Elements first … first+n−1 of a tensor (row-major order) as float, exact. */
void dpe_tensor_read(const struct dpe_tensor *tensor, int64_t first, int64_t n, float *out);

#endif
