/**
 * @file device.cuh
 * What every kernel source includes first. The same source is compiled twice: by nvcc for the
 * device, and with DPE_EMULATE by a plain C++17 compiler that is given a header with the same names
 * (-include), where every thread of a block runs on the CPU. So a kernel uses the language of CUDA
 * C (threadIdx, __shared__, __syncthreads, shuffles, votes, atomics) and, for everything that has
 * no name in it, the wrappers of ptx.cuh and ptx_sm90.cuh. No #ifdef in kernels.
 *
 * Half types are structs of their bits; the conversions here round to nearest even and keep NaN
 * and infinities on both sides.
 */
#ifndef DPE_DEVICE_CUH
#define DPE_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#include "engine/cuda/ptx/launch.h"

#ifndef DPE_EMULATE
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

/** bfloat16 and IEEE half as they lie in memory. */
struct dpe_bf16 {
    uint16_t bits;
};
struct dpe_f16 {
    uint16_t bits;
};

#ifndef DPE_EMULATE
#include "engine/cuda/ptx/ptx.cuh"

/** `type *name` = the block's dynamic shared memory, 1024-byte aligned. */
#define DPE_SHARED(type, name)                                                                     \
    extern __shared__ __align__(1024) unsigned char dpe_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(dpe_dynamic_shared)

/** dpe_kernel_launch.call. */
template <class... P> struct dpe_emulated_call {
    static constexpr void (*call)(const void *, const void *const *) = NULL;
};
#endif

/** P, which an argument is converted to: P comes from the kernel alone. */
template <class P> struct dpe_parameter {
    using type = P;
};
template <class P> using dpe_same = typename dpe_parameter<P>::type;
/** Launch a kernel (name a template instance through a variable or in parentheses); the CUDA error
 *  code, 0 = launched. */
template <class... P>
static inline int dpe_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                             const dpe_same<P> &...arguments)
{
    const void *const pointers[] = {&arguments...};
    const uint32_t sizes[] = {static_cast<uint32_t>(sizeof arguments)...};
    static_assert(sizeof...(P) <= DPE_MOST_ARGUMENTS, "launches are kept with so many arguments");
    const struct dpe_kernel_launch launch = {reinterpret_cast<const void *>(kernel),
                                             dpe_emulated_call<P...>::call,
                                             {grid.x, grid.y, grid.z},
                                             {block.x, block.y, block.z},
                                             shared,
                                             static_cast<int32_t>(sizeof...(P)),
                                             pointers,
                                             sizes,
                                             NULL};
    return dpe_rt_launch(&launch);
}

/** Of a table of what there is for some head dimensions, the entry of one; NULL: none. */
template <class K, size_t N> const K *dpe_kind_of(const K (&kinds)[N], int64_t head_dim)
{
    for (const K &kind : kinds) {
        if (kind.head_dim == head_dim) {
            return &kind;
        }
    }
    return NULL;
}

/** @name Between float and what lies in memory; exact to float, nearest even from it. */
/**@{*/
__device__ static inline float dpe_float(float value)
{
    return value;
}
__device__ static inline float dpe_float(dpe_bf16 value)
{
    return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ static inline float dpe_float(dpe_f16 value)
{
    return dpe_half_float(value.bits);
}
template <class T> __device__ static inline T dpe_round(float value);
template <> __device__ inline float dpe_round<float>(float value)
{
    return value;
}
template <> __device__ inline dpe_bf16 dpe_round<dpe_bf16>(float value)
{
    return dpe_bf16{dpe_bf16_bits(value)};
}
template <> __device__ inline dpe_f16 dpe_round<dpe_f16>(float value)
{
    return dpe_f16{dpe_half_bits(value)};
}
/**@}*/

#endif
