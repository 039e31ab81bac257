/**
 * @file grid.cuh
 * What the small kernels share: threads that walk over elements with the stride of their grid, one
 * instance of a template for each dtype, and the activation of an MLP, from its gate and up.
 */
#ifndef DPE_GRID_CUH
#define DPE_GRID_CUH

#include "engine/cuda/ptx/vector.cuh"
#include "engine/model/config/config.h"

enum { DPE_GRID_THREADS = 256 /**< of a block */ };

__device__ static inline int64_t dpe_this_thread(void)
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ static inline int64_t dpe_all_threads(void)
{
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/** Whether x is NaN or an infinity. */
__device__ static inline bool dpe_not_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000U) == 0x7f800000U;
}

/** Blocks of a grid that has one for each of so many rows, as far as a grid goes. */
static inline unsigned dpe_row_blocks(int64_t rows)
{
    const int64_t most = 1 << 16;
    return static_cast<unsigned>(rows < 1 ? 1 : (rows > most ? most : rows));
}

/** Blocks of a grid that has a thread for each of so many elements, as far as a grid goes. */
static inline unsigned dpe_element_blocks(int64_t elements)
{
    return dpe_row_blocks((elements + DPE_GRID_THREADS - 1) / DPE_GRID_THREADS);
}

/** Whether rows of `width` elements can be walked eight at a time. */
template <class T> static inline bool dpe_by_eight(int64_t width, const void *a, const void *b)
{
    return width % 8 == 0 &&
           (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

/** How many threads of the block before this one have it, and how many have it in all. Ends with a
 * barrier. */
__device__ static inline int dpe_rank_among(bool has, int *all)
{
    __shared__ int parts[32];
    const unsigned warp = threadIdx.x / 32;
    const uint32_t votes = __ballot_sync(0xffffffffU, has);
    int before = __popc(votes & ((1U << threadIdx.x % 32) - 1U));
    if (threadIdx.x % 32 == 0) {
        parts[warp] = __popc(votes);
    }
    __syncthreads();
    *all = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
        before += w < warp ? parts[w] : 0;
        *all += parts[w];
    }
    __syncthreads();
    return before;
}

/** Launch a kernel over n elements, in its form for eight of them at a time where `by_eight`. */
template <class... P>
static inline int dpe_launch_elements(void (*eight)(P...), void (*one)(P...), bool by_eight,
                                      int64_t n, const dpe_same<P> &...arguments)
{
    return dpe_launch(by_eight ? eight : one, dpe_element_blocks(by_eight ? n / 8 : n),
                      DPE_GRID_THREADS, 0, arguments...);
}

/** Return what `call`, a template over T, returns for the type of a dtype; 1 for another dtype. */
#define DPE_FOR_DTYPE(dtype, call)                                                                 \
    switch (dtype) {                                                                               \
    case DPE_F32: {                                                                                \
        using T = float;                                                                           \
        return call;                                                                               \
    }                                                                                              \
    case DPE_F16: {                                                                                \
        using T = dpe_f16;                                                                         \
        return call;                                                                               \
    }                                                                                              \
    case DPE_BF16: {                                                                               \
        using T = dpe_bf16;                                                                        \
        return call;                                                                               \
    }                                                                                              \
    default:                                                                                       \
        return 1;                                                                                  \
    }

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
