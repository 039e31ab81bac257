/**
 * @file activation.cuh
 * The activation of an MLP, from its gate and up.
 */
#ifndef DPE_ACTIVATION_CUH
#define DPE_ACTIVATION_CUH

#include "engine/cuda/ptx/device.cuh"
#include "engine/model/config/config.h"

template <enum dpe_activation KIND> __device__ __forceinline__ float dpe_activated(float g, float u)
{
    if constexpr (KIND == DPE_GEGLU_TANH) {
        float inner = 0.79788456080286535588f * (g + 0.044715f * g * g * g);
        return 0.5f * g * (1.0f + tanhf(inner)) * u;
    } else if constexpr (KIND == DPE_SWIGLU_CLAMPED) {
        /* fminf and fmaxf would take 7 for what is not a number. */
        g = g > 7.0f ? 7.0f : g;
        u = u > 7.0f ? 7.0f : (u < -7.0f ? -7.0f : u);
        return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
    } else {
        return g / (1.0f + expf(-g)) * u;
    }
}

#endif
