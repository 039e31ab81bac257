/**
 * @file log_n.cuh
 * The factor of a query's position on its logits, on the device.
 */
#ifndef DPE_LOG_N_CUH
#define DPE_LOG_N_CUH

#include "engine/cuda/kernels/attention.h"

/** f(m) of struct dpe_temperature (plan.h) times 1 + b ln(1 + floor((m + from)/L)), for m + 1
 *  > 0 keys. */
__device__ __forceinline__ float dpe_log_n_factor(const dpe_log_n &log_n, float keys)
{
    float factor = 1.0F;
    if (log_n.base > 0.0F) {
        float grown = logf(keys);
        if (log_n.decay > 0.0F) {
            grown = -expm1f(-log_n.decay * grown);
        }
        float ratio = fmaxf(1.0F, grown / log_n.base);
        factor = log_n.power == 1.0F ? ratio : powf(ratio, log_n.power);
    }
    if (log_n.growth > 0.0F) {
        factor *= 1.0F + log_n.growth * log1pf(floorf((keys - 1.0F + log_n.from) / log_n.length));
    }
    return factor;
}

/** What a query's dot products are multiplied by: then they are base-2 logits, or with a cap c
 *  what tanh is taken of, which times dpe_cap_factor is one. */
template <bool CAPPED, class CALL>
__device__ __forceinline__ float dpe_logit_factor(const CALL &call, float keys)
{
    const float by = CAPPED ? 1.0F / call.cap : 1.44269504088896F;
    return call.scale * by * dpe_log_n_factor(call.log_n, keys);
}
template <class CALL> __host__ __device__ __forceinline__ float dpe_cap_factor(const CALL &call)
{
    return call.cap * 1.44269504088896F;
}

#endif
