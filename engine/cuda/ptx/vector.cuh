/**
 * @file vector.cuh
 * Eight neighbouring elements of a row as floats: one 16-byte access for halves, two for float.
 * Addresses are 16-byte aligned. And sums over the threads of a block.
 */
#ifndef DPE_VECTOR_CUH
#define DPE_VECTOR_CUH

#include "engine/cuda/ptx/device.cuh"

__device__ static inline void dpe_unpack(uint4 words, dpe_bf16, float *out)
{
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(w[i] << 16);
        out[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000U);
    }
}
__device__ static inline void dpe_unpack(uint4 words, dpe_f16, float *out)
{
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = dpe_half_float(static_cast<uint16_t>(w[i] & 0xffffU));
        out[2 * i + 1] = dpe_half_float(static_cast<uint16_t>(w[i] >> 16));
    }
}
__device__ static inline uint32_t dpe_pack(float low, float high, dpe_bf16)
{
    return dpe_pack_bf16(low, high);
}
__device__ static inline uint32_t dpe_pack(float low, float high, dpe_f16)
{
    return dpe_pack_half(low, high);
}

/** N = 8: as above; N = 1: one element, any alignment. load_once, unpack: what is read
 *  once and not written while the kernel runs, N = 8; the first does not wait for what it reads. */
template <class T, int N> struct dpe_some {
    __device__ static inline void load(const T *at, float *out)
    {
        if constexpr (N == 1) {
            out[0] = dpe_float(*at);
        } else {
            dpe_unpack(*reinterpret_cast<const uint4 *>(at), T{}, out);
        }
    }
    using words = uint4;
    __device__ static inline void load_once(const T *at, words &out)
    {
        out = dpe_load_once(at);
    }
    __device__ static inline void unpack(const words &from, float *out)
    {
        dpe_unpack(from, T{}, out);
    }
    __device__ static inline void store(T *at, const float *in)
    {
        if constexpr (N == 1) {
            *at = dpe_round<T>(in[0]);
        } else {
            *reinterpret_cast<uint4 *>(at) =
                make_uint4(dpe_pack(in[0], in[1], T{}), dpe_pack(in[2], in[3], T{}),
                           dpe_pack(in[4], in[5], T{}), dpe_pack(in[6], in[7], T{}));
        }
    }
};
template <int N> struct dpe_some<float, N> {
    __device__ static inline void load(const float *at, float *out)
    {
        if constexpr (N == 1) {
            out[0] = *at;
        } else {
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                float4 four = reinterpret_cast<const float4 *>(at)[i];
                out[4 * i] = four.x;
                out[4 * i + 1] = four.y;
                out[4 * i + 2] = four.z;
                out[4 * i + 3] = four.w;
            }
        }
    }
    struct words {
        uint4 fours[N < 4 ? 1 : N / 4];
    };
    __device__ static inline void load_once(const float *at, words &out)
    {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            out.fours[i] = dpe_load_once(at + 4 * i);
        }
    }
    __device__ static inline void unpack(const words &from, float *out)
    {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            out[4 * i] = __uint_as_float(from.fours[i].x);
            out[4 * i + 1] = __uint_as_float(from.fours[i].y);
            out[4 * i + 2] = __uint_as_float(from.fours[i].z);
            out[4 * i + 3] = __uint_as_float(from.fours[i].w);
        }
    }
    __device__ static inline void store(float *at, const float *in)
    {
        if constexpr (N == 1) {
            *at = in[0];
        } else {
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                reinterpret_cast<float4 *>(at)[i] =
                    make_float4(in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3]);
            }
        }
    }
};

/** Sum over a warp, and the largest (NaN only where all are), given to all its lanes. */
template <class S> __device__ static __forceinline__ S dpe_warp_sum(S value)
{
    for (int by = 16; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, by);
    }
    return value;
}
__device__ static __forceinline__ float dpe_warp_max(float value)
{
    for (int by = 16; by > 0; by /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, by));
    }
    return value;
}

/** Sum over a block of at most 1024 threads (a multiple of 32), given to all of them; always in the
 *  same order. Ends with a barrier: may be called again at once. */
template <class S> __device__ static inline S dpe_block_sum(S value)
{
    __shared__ S parts[32];
    value = dpe_warp_sum(value);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    S total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
        total += parts[w];
    }
    __syncthreads();
    return total;
}

/** The largest of a block of at most 1024 threads (a multiple of 32), given to all of them; NaN
 *  only where all are. Ends with a barrier: may be called again at once. */
__device__ static inline float dpe_block_max(float value)
{
    __shared__ float parts[32];
    value = dpe_warp_max(value);
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float most = parts[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) {
        most = fmaxf(most, parts[w]);
    }
    __syncthreads();
    return most;
}

/** The sums of what two warps beside each other, 2i and 2i + 1, have in x, given to both. `room`:
 *  shared address of this lane's part of the warp's 1 KiB, which is written again after a barrier
 *  of the block; `other`: that of the other warp. Barriers 1 + i of 64 threads. */
__device__ static __forceinline__ void dpe_pair_sum(float (&x)[2][4], uint32_t room, uint32_t other)
{
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        dpe_store_shared(room + 128U * e, __float_as_uint(x[e / 4][e % 4]),
                         __float_as_uint(x[e / 4][e % 4 + 1]));
    }
    dpe_barrier_sync(1 + static_cast<int>(threadIdx.x) / 64, 64);
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        const uint2 two = dpe_load_shared(other + 128U * e);
        x[e / 4][e % 4] += __uint_as_float(two.x);
        x[e / 4][e % 4 + 1] += __uint_as_float(two.y);
    }
}

#endif
