/**
 * @file attention_wgmma_tile.cuh
 * What a consumer of the Hopper attention kernel does with a tile: products, barriers of its slots,
 * mask, running softmax (attention_wgmma.cuh has the picture and the order of things).
 */
#ifndef DPE_ATTENTION_WGMMA_TILE_CUH
#define DPE_ATTENTION_WGMMA_TILE_CUH

#include "engine/cuda/prefill/attention_wgmma_feed.cuh"

/** A consumer thread's state but for the big register arrays. Index 0: row lane/4 of its warp's 16,
 *  index 1: that row + 8. */
template <class C> struct dpe_wgmma_consumer {
    struct dpe_wgmma_barriers<C> *barriers;
    uint64_t q_tiles, tiles; /* descriptors of the rings' first tiles, Q at this warpgroup's rows */
    int warpgroup, row;      /* row: this thread's first row in the block */
    dpe_ring<C::Q_SLOTS> q;
    dpe_ring<C::SLOTS> ring;
    float scale[2];       /* of the rows' logits, times log2 e */
    float top[2], sum[2]; /* maximum the exponents refer to; sum of this thread's terms */
    int lo[2], hi[2];     /* keys the rows see, less this thread's column */
    int out_row, out_rows, head;
};

/** Descriptor of a 128-byte-swizzled operand, 1024 bytes between groups of 8 rows. */
__device__ static __forceinline__ uint64_t dpe_wgmma_descriptor(uint32_t address)
{
    return static_cast<uint64_t>(address >> 4 & 0x3fffU) | static_cast<uint64_t>(1024 >> 4) << 32 |
           static_cast<uint64_t>(1) << 62;
}

/** Issue S = Q·Kᵀ for N keys, from `first` on, of the K tile at the ring's place. */
template <class C, int N>
__device__ static __forceinline__ void dpe_wgmma_issue_qk(const dpe_wgmma_consumer<C> &me,
                                                          int first, float (&s)[N / 2])
{
    uint64_t q = me.q_tiles + static_cast<uint32_t>(me.q.slot) * (C::Q_BYTES >> 4);
    uint64_t k = me.tiles + static_cast<uint32_t>(me.ring.slot) * (C::TILE_BYTES >> 4) +
                 static_cast<uint32_t>(first) * (128 >> 4);
    dpe_wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::D / 16; i++) {
        uint64_t q_at = q + static_cast<uint64_t>(i / 4 * (C::ROWS * 128 >> 4) + i % 4 * 2);
        uint64_t k_at = k + static_cast<uint64_t>(i / 4 * (C::KEYS * 128 >> 4) + i % 4 * 2);
        dpe_wgmma_shared<typename C::T, N>(s, q_at, k_at, i > 0);
    }
    dpe_wgmma_commit();
}

/** Issue O (+)= P·V for the V tile at the ring's place. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_issue_pv(const dpe_wgmma_consumer<C> &me,
                                                          const uint32_t (&p)[C::KEYS / 4],
                                                          float (&o)[C::D / 2])
{
    uint64_t v = me.tiles + static_cast<uint32_t>(me.ring.slot) * (C::TILE_BYTES >> 4) +
                 (static_cast<uint64_t>(C::KEYS * 128 >> 4) << 16);
    dpe_wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::KEYS / 16; i++) {
        dpe_wgmma_registers<typename C::T, C::D>(o, p + 4 * i,
                                                 v + static_cast<uint64_t>(i * (2048 >> 4)), 1);
    }
    dpe_wgmma_commit();
}

/** Wait for the tile at the ring's place. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_await(const dpe_wgmma_consumer<C> &me)
{
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->full[me.ring.slot]), me.ring.parity);
}

/** This warp has done with a slot. */
__device__ static __forceinline__ void dpe_wgmma_empty(uint64_t *barrier)
{
    if (threadIdx.x % 32 == 0) {
        dpe_mbarrier_arrive(dpe_shared_address(barrier));
    }
}

/** Barrier by which warpgroup w waits for its turn at issuing. */
__device__ static __forceinline__ int dpe_wgmma_turn(int warpgroup)
{
    return 1 + warpgroup;
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_take_turn(const dpe_wgmma_consumer<C> &me)
{
    if (C::PINGPONG) {
        dpe_barrier_sync(dpe_wgmma_turn(me.warpgroup), 256);
    }
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_pass_turn(const dpe_wgmma_consumer<C> &me)
{
    if (C::PINGPONG) {
        int next = me.warpgroup + 1 == C::WARPGROUPS ? 0 : me.warpgroup + 1;
        dpe_barrier_arrive(dpe_wgmma_turn(next), 256);
    }
}

/** What the rows do not see becomes −∞. `key`: the tile's first. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_mask(const dpe_wgmma_consumer<C> &me, int key,
                                                      float (&s)[C::KEYS / 2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int lo = me.lo[h] - key;
        int hi = me.hi[h] - key;
#pragma unroll
        for (int j = 0; j < C::KEYS / 8; j++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                bool seen = 8 * j + c >= lo && 8 * j + c < hi;
                s[4 * j + 2 * h + c] = seen ? s[4 * j + 2 * h + c] : -INFINITY;
            }
        }
    }
}

/** Greatest of each of the two rows over the tile and the row's lanes, not below `top`. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_row_max(const float (&s)[C::KEYS / 2],
                                                         float (&top)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float even = fmaxf(top[h], s[2 * h]);
        float odd = s[2 * h + 1];
#pragma unroll
        for (int j = 1; j < C::KEYS / 8; j++) {
            even = fmaxf(even, s[4 * j + 2 * h]);
            odd = fmaxf(odd, s[4 * j + 2 * h + 1]);
        }
        float both = fmaxf(even, odd);
        both = fmaxf(both, __shfl_xor_sync(0xffffffffU, both, 1));
        top[h] = fmaxf(both, __shfl_xor_sync(0xffffffffU, both, 2));
    }
}

/** s = 2^(scale·(s − top)), summed. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_exponents(dpe_wgmma_consumer<C> &me,
                                                           float (&s)[C::KEYS / 2])
{
    float shift[2] = {-me.top[0] * me.scale[0], -me.top[1] * me.scale[1]};
#pragma unroll
    for (int j = 0; j < C::KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[4 * j + i] = dpe_exp2(__fmaf_rn(s[4 * j + i], me.scale[i / 2], shift[i / 2]));
        }
        me.sum[0] += s[4 * j] + s[4 * j + 1];
        me.sum[1] += s[4 * j + 2] + s[4 * j + 3];
    }
}

/** P as the A operand: k16 block i holds column groups 2i and 2i + 1. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_pack(const float (&s)[C::KEYS / 2],
                                                      uint32_t (&p)[C::KEYS / 4])
{
#pragma unroll
    for (int i = 0; i < C::KEYS / 4; i++) {
        if constexpr (dpe_is_bf16<typename C::T>::value) {
            p[i] = dpe_pack_bf16(s[2 * i], s[2 * i + 1]);
        } else {
            p[i] = dpe_pack_half(s[2 * i], s[2 * i + 1]);
        }
    }
}

/** The maximum moves only when some row of the warp would exceed 2^8 otherwise: then what was
 *  summed so far is to be multiplied by `factor`, and true is returned to the whole warp. */
template <class C>
__device__ static __forceinline__ bool
dpe_wgmma_move_top(dpe_wgmma_consumer<C> &me, const float (&s)[C::KEYS / 2], float (&factor)[2])
{
    float top[2] = {me.top[0], me.top[1]};
    dpe_wgmma_row_max<C>(s, top);
    float rise = fmaxf((top[0] - me.top[0]) * me.scale[0], (top[1] - me.top[1]) * me.scale[1]);
    bool moved = __any_sync(0xffffffffU, rise > 8.0f) != 0;
    if (moved) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            factor[h] = dpe_exp2((me.top[h] - top[h]) * me.scale[h]);
            me.sum[h] *= factor[h];
            me.top[h] = top[h];
        }
    }
    return moved;
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_rescale(const float (&factor)[2],
                                                         float (&o)[C::D / 2])
{
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) {
        o[i] *= factor[i / 2 % 2];
    }
}

#endif
