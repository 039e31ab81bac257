/**
 * @file ptx.cuh
 * What CUDA C has no portable name for: instructions and conversions as small functions. Each
 * has a twin of the same name and meaning in tests/emulate/emulate_ptx.h.
 */
#ifndef DPE_PTX_CUH
#define DPE_PTX_CUH

/** 2^x by the MUFU unit: relative error 2^-22, 2^-inf = 0, subnormal results flushed to 0. */
__device__ static __forceinline__ float dpe_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/** bits of bfloat16 and half, nearest even; and back from half. */
__device__ static __forceinline__ uint16_t dpe_bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ static __forceinline__ uint16_t dpe_half_bits(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
__device__ static __forceinline__ float dpe_half_float(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

/** Two floats as bfloat16, `low` in the lower half of the word. */
__device__ static __forceinline__ uint32_t dpe_pack_bf16(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
/** Two floats as half, `low` in the lower half of the word. */
__device__ static __forceinline__ uint32_t dpe_pack_half(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/** A word of the signs of two bytes of `bytes`: its lower half repeats that of byte 2 · PAIR, its
 *  upper half that of the next. */
template <int PAIR> __device__ static __forceinline__ uint32_t dpe_spread_signs(uint32_t bytes)
{
    uint32_t word;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(word) : "r"(bytes), "n"(PAIR == 0 ? 0x9988 : 0xbbaa));
    return word;
}

/** 16 bytes that are read once, past level 1. Not ld.global.nc, which ptxas moves over barriers. */
__device__ static __forceinline__ uint4 dpe_load_once(const void *from)
{
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from));
    return x;
}

/** 8 bytes of global memory that are not written while the kernel runs, and of shared memory;
 * 8-byte aligned. */
__device__ static __forceinline__ uint2 dpe_load_global(const void *from)
{
    uint2 x;
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(from));
    return x;
}
__device__ static __forceinline__ uint2 dpe_load_shared(uint32_t address)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address));
    return x;
}

/** Address of shared memory as instructions take it (32 bits). */
__device__ static __forceinline__ uint32_t dpe_shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/** Named barrier `id` (1 … 15; 0 is __syncthreads) of `threads` threads, a multiple of 32: sync
 *  waits for all of them, arrive only counts. All threads of a warp call it together. */
__device__ static __forceinline__ void dpe_barrier_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static __forceinline__ void dpe_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
