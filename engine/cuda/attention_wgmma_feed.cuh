/**
 * @file attention_wgmma_feed.cuh
 * The Hopper attention kernel's sizes, its rings in shared memory, and the producer that fills them
 * (attention_wgmma.cuh has the picture and the consumers).
 */
#ifndef DPE_ATTENTION_WGMMA_FEED_CUH
#define DPE_ATTENTION_WGMMA_FEED_CUH

#include "ptx_sm90.cuh"

#include "segments.h"

/** Tile sizes and schedule. T: dpe_bf16 or dpe_f16. */
template <class T_, int D_, int WARPGROUPS_, int KEYS_, int SLOTS_, bool PINGPONG_>
struct dpe_wgmma_config {
    using T = T_;
    static constexpr int D = D_;
    static constexpr int WARPGROUPS = WARPGROUPS_;
    static constexpr int ROWS = 64 * WARPGROUPS;
    static constexpr int KEYS = KEYS_;
    static constexpr int SLOTS = SLOTS_;
    static constexpr bool PINGPONG = PINGPONG_;
    static constexpr int Q_SLOTS = 2;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 2 ? 240 : 160;
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 24 : 32;
    static constexpr uint32_t Q_BYTES = ROWS * D * 2;
    static constexpr uint32_t TILE_BYTES = KEYS * D * 2;
    static constexpr uint32_t SHARED_BYTES = Q_SLOTS * Q_BYTES + SLOTS * TILE_BYTES;
};

/** What a launch needs. */
struct dpe_wgmma_params {
    CUtensorMap q[DPE_MAX_BANDS], k[DPE_MAX_BANDS], v;
    const struct dpe_query_block *blocks;
    const struct dpe_segment *segments;
    struct dpe_segment nothing; /* for rows that see no key: one tile of which nothing is seen */
    int32_t *counters; /* next item, blocks that have ended; NULL: items are dealt in turn */
    void *out;
    float *lse;
    int32_t n_items, items_per_kv; /* blocks × heads, blocks × heads of a KV head */
    int32_t n_heads, heads_per_kv;
    uint32_t k_per_head;      /* bit c: copy c of the keys is per query head */
    float scale, log_n_scale; /* 1 / ln(log_n_length), or 0 */
};

/** What the producer tells the consumers about a segment. Keys and positions fit 32 bits: the host
 *  checks. */
struct dpe_wgmma_message {
    struct dpe_segment segment;
    struct dpe_query_block block;
    int32_t head;
    int32_t kind; /* DPE_WGMMA_GOES_ON … */
};
enum { DPE_WGMMA_GOES_ON, DPE_WGMMA_LAST_OF_ITEM, DPE_WGMMA_NO_MORE };

template <class C> struct dpe_wgmma_barriers {
    uint64_t q_full[C::Q_SLOTS], q_empty[C::Q_SLOTS];
    uint64_t full[C::SLOTS], empty[C::SLOTS];
    struct dpe_wgmma_message messages[C::Q_SLOTS];
};

/** Place in a ring: slot and the parity of its phase. */
template <int N> struct dpe_ring {
    int slot;
    uint32_t parity;
    __device__ __forceinline__ void next()
    {
        slot++;
        if (slot == N) {
            slot = 0;
            parity ^= 1U;
        }
    }
};

/* ------------------------------------------------------------------------------------ producer */

/* One warp: lane 0 copies tiles, all lanes copy messages. */
template <class C> struct dpe_wgmma_producer {
    struct dpe_wgmma_barriers<C> *barriers;
    uint32_t q_tiles, tiles; /* shared addresses of the rings */
    dpe_ring<C::Q_SLOTS> q;
    dpe_ring<C::SLOTS> ring;
};

template <class C>
__device__ static __forceinline__ void dpe_wgmma_push(dpe_wgmma_producer<C> &me,
                                                      const CUtensorMap *map, int key, int head)
{
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->empty[me.ring.slot]), me.ring.parity ^ 1U);
    if (threadIdx.x % 32 == 0) {
        uint32_t full = dpe_shared_address(&me.barriers->full[me.ring.slot]);
        dpe_mbarrier_expect(full, C::TILE_BYTES);
        dpe_tensor_load_4d(me.tiles + static_cast<uint32_t>(me.ring.slot) * C::TILE_BYTES, map, 0,
                           key, 0, head, full);
    }
    me.ring.next();
}

/** Tell the consumers of a segment and fetch its queries. */
template <class C>
__device__ static __forceinline__ void
dpe_wgmma_announce(dpe_wgmma_producer<C> &me, const struct dpe_wgmma_params &params,
                   const struct dpe_query_block *block, const struct dpe_segment *segment, int head,
                   int kind)
{
    constexpr int SEGMENT_WORDS = sizeof *segment / 4;
    constexpr int BLOCK_WORDS = sizeof *block / 4;
    static_assert(SEGMENT_WORDS + BLOCK_WORDS <= 32, "a lane a word");
    struct dpe_wgmma_message *message = &me.barriers->messages[me.q.slot];
    int lane = static_cast<int>(threadIdx.x % 32);
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->q_empty[me.q.slot]), me.q.parity ^ 1U);
    if (lane < SEGMENT_WORDS) {
        reinterpret_cast<int32_t *>(&message->segment)[lane] =
            reinterpret_cast<const int32_t *>(segment)[lane];
    } else if (lane < SEGMENT_WORDS + BLOCK_WORDS) {
        reinterpret_cast<int32_t *>(&message->block)[lane - SEGMENT_WORDS] =
            reinterpret_cast<const int32_t *>(block)[lane - SEGMENT_WORDS];
    }
    __syncwarp();
    if (lane == 0) {
        uint32_t full = dpe_shared_address(&me.barriers->q_full[me.q.slot]);
        message->head = head;
        message->kind = kind;
        dpe_mbarrier_expect(full, C::Q_BYTES);
        dpe_tensor_load_4d(me.q_tiles + static_cast<uint32_t>(me.q.slot) * C::Q_BYTES,
                           &params.q[segment->q_copy], 0, static_cast<int32_t>(block->row), 0, head,
                           full);
    }
    me.q.next();
}

/** Everything of one item; the V tile of a K tile follows the next K tile. */
template <class C>
__device__ static __forceinline__ void
dpe_wgmma_produce_item(dpe_wgmma_producer<C> &me, const struct dpe_wgmma_params &params,
                       const struct dpe_query_block *block, int head, int kv_head)
{
    int n = block->n_segments;
    const struct dpe_segment *segment =
        n > 0 ? params.segments + block->first_segment : &params.nothing;
    bool first = true;
    int value = 0; /* first key of the V tile that is still to come */
    do {
        dpe_wgmma_announce<C>(me, params, block, segment, head,
                              n <= 1 ? DPE_WGMMA_LAST_OF_ITEM : DPE_WGMMA_GOES_ON);
        const CUtensorMap *map = &params.k[segment->k_copy];
        int k_head = (params.k_per_head >> segment->k_copy & 1U) != 0 ? head : kv_head;
        int key = static_cast<int32_t>(segment->end);
        for (int left = segment->n_tiles; left > 0; left--) {
            key -= C::KEYS;
            dpe_wgmma_push<C>(me, map, key, k_head);
            if (!first) {
                dpe_wgmma_push<C>(me, &params.v, value, kv_head);
            }
            first = false;
            value = key;
        }
        segment++;
        n--;
    } while (n > 0);
    dpe_wgmma_push<C>(me, &params.v, value, kv_head);
}

/** The item after `item`, or this block's first with item < 0. */
__device__ static __forceinline__ int dpe_wgmma_next_item(const struct dpe_wgmma_params &params,
                                                          int item)
{
    if (params.counters == nullptr) {
        return item < 0 ? static_cast<int>(blockIdx.x) : item + static_cast<int>(gridDim.x);
    }
    return dpe_uniform(threadIdx.x % 32 == 0 ? atomicAdd(params.counters, 1) : 0);
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_produce(const struct dpe_wgmma_params &params,
                                                         struct dpe_wgmma_barriers<C> *barriers,
                                                         uint32_t shared)
{
    dpe_wgmma_producer<C> me = {barriers, shared, shared + C::Q_SLOTS * C::Q_BYTES, {0, 0}, {0, 0}};
    int item = dpe_wgmma_next_item(params, -1);
    while (item < params.n_items) {
        int rest = item % params.items_per_kv;
        int kv_head = item / params.items_per_kv;
        int head = kv_head * params.heads_per_kv + rest % params.heads_per_kv;
        dpe_wgmma_produce_item<C>(me, params, params.blocks + rest / params.heads_per_kv, head,
                                  kv_head);
        item = dpe_wgmma_next_item(params, item);
    }
    dpe_mbarrier_wait(dpe_shared_address(&barriers->q_empty[me.q.slot]), me.q.parity ^ 1U);
    if (threadIdx.x % 32 == 0) {
        barriers->messages[me.q.slot].kind = DPE_WGMMA_NO_MORE;
        dpe_mbarrier_arrive(dpe_shared_address(&barriers->q_full[me.q.slot]));
        /* The last block leaves the counters as it found them. */
        if (params.counters != nullptr &&
            atomicAdd(params.counters + 1, 1) == static_cast<int>(gridDim.x) - 1) {
            params.counters[0] = 0;
            params.counters[1] = 0;
        }
    }
}

#endif
