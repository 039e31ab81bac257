/**
 * @file attention_wgmma_feed.cuh
 * The Hopper attention kernel's sizes, its rings in shared memory, and the producer that fills them
 * (attention_wgmma.cuh has the picture and the consumers).
 */
#ifndef DPE_ATTENTION_WGMMA_FEED_CUH
#define DPE_ATTENTION_WGMMA_FEED_CUH

#include "engine/cuda/ptx/ptx_sm90.cuh"

#include "engine/cuda/kernels/attention.h"
#include "engine/plan/segments.h"

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
    /** Whether two segments that meet in one tile share its V tile and softmax. */
    static constexpr bool PAIRS = KEYS == 128;
    static constexpr int THREADS = 128 * (WARPGROUPS + 1);
    static constexpr int CONSUMER_REGISTERS = WARPGROUPS == 2 ? 232 : 160;
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;
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
    uint32_t k_per_head; /* bit c: copy c of the keys is per query head */
    float scale;
    struct dpe_log_n log_n;
};

/** What the producer passes to the consumers about a segment. Keys and positions fit 32 bits: the
 * host checks. */
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

/** One warp: lane 0 copies tiles, and every lane carries a word of a message: lanes 0 to 15 of the
 *  segment, 16 to 23 of the block. What comes next is fetched in steps between tiles, so that
 *  no thread waits for device memory. */
template <class C> struct dpe_wgmma_producer {
    struct dpe_wgmma_barriers<C> *barriers;
    uint32_t q_tiles, tiles; /* shared addresses of the rings */
    dpe_ring<C::Q_SLOTS> q;
    dpe_ring<C::SLOTS> ring;
    int asked; /* the number of the next item, lane 0's, perhaps still under way */
    int item;  /* what `word` belongs to */
    int word;
    int step; /* 0: `item` is to be taken from `asked`, 1: the block is there, 2: the segment too */
};

enum {
    DPE_WORD_END = offsetof(struct dpe_segment, end) / 4,
    DPE_WORD_Q_COPY = offsetof(struct dpe_segment, q_copy) / 4,
    DPE_WORD_K_COPY = offsetof(struct dpe_segment, k_copy) / 4,
    DPE_WORD_TILES = offsetof(struct dpe_segment, n_tiles) / 4,
    DPE_SEGMENT_WORDS = sizeof(struct dpe_segment) / 4,
    DPE_WORD_ROW = DPE_SEGMENT_WORDS + offsetof(struct dpe_query_block, row) / 4,
    DPE_WORD_FIRST = DPE_SEGMENT_WORDS + offsetof(struct dpe_query_block, first_segment) / 4,
    DPE_WORD_SEGMENTS = DPE_SEGMENT_WORDS + offsetof(struct dpe_query_block, n_segments) / 4,
    DPE_MESSAGE_WORDS = DPE_SEGMENT_WORDS + sizeof(struct dpe_query_block) / 4,
};
static_assert(DPE_MESSAGE_WORDS <= 32, "a lane a word");

__device__ static __forceinline__ int dpe_wgmma_lane(void)
{
    return static_cast<int>(threadIdx.x % 32);
}

/** Word `index` of the message that the warp carries. */
template <class C>
__device__ static __forceinline__ int dpe_wgmma_word(const dpe_wgmma_producer<C> &me, int index)
{
    return __shfl_sync(0xffffffffU, me.word, index);
}

/** Ask for the number of the item after `item`; item < 0: of the block's first. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_ask(dpe_wgmma_producer<C> &me,
                                                     const struct dpe_wgmma_params &params)
{
    if (params.counters == nullptr) {
        me.asked =
            me.item < 0 ? static_cast<int>(blockIdx.x) : me.item + static_cast<int>(gridDim.x);
    } else if (dpe_wgmma_lane() == 0) {
        me.asked = atomicAdd(params.counters, 1);
    }
}

/** Lanes 0 to 15 load segment `index` of the walk; the other lanes keep their words. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_load_segment(dpe_wgmma_producer<C> &me,
                                                              const struct dpe_segment *segment)
{
    if (dpe_wgmma_lane() < DPE_SEGMENT_WORDS) {
        me.word = reinterpret_cast<const int32_t *>(segment)[dpe_wgmma_lane()];
    }
}

/** One step towards the next item's first message. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_fetch(dpe_wgmma_producer<C> &me,
                                                       const struct dpe_wgmma_params &params)
{
    if (me.step == 0) {
        me.item = dpe_uniform(me.asked);
        int lane = dpe_wgmma_lane() - DPE_SEGMENT_WORDS;
        int block = me.item % params.items_per_kv / params.heads_per_kv;
        if (me.item < params.n_items && lane >= 0 && lane < DPE_MESSAGE_WORDS - DPE_SEGMENT_WORDS) {
            me.word = reinterpret_cast<const int32_t *>(params.blocks + block)[lane];
        }
    } else if (me.item < params.n_items) {
        const struct dpe_segment *first = params.segments + dpe_wgmma_word<C>(me, DPE_WORD_FIRST);
        bool some = dpe_wgmma_word<C>(me, DPE_WORD_SEGMENTS) > 0;
        dpe_wgmma_load_segment<C>(me, some ? first : &params.nothing);
    }
    me.step++;
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_push(dpe_wgmma_producer<C> &me,
                                                      const CUtensorMap *map, int key, int head)
{
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->empty[me.ring.slot]), me.ring.parity ^ 1U);
    if (dpe_wgmma_lane() == 0) {
        uint32_t full = dpe_shared_address(&me.barriers->full[me.ring.slot]);
        dpe_mbarrier_expect(full, C::TILE_BYTES);
        dpe_tensor_load_4d(me.tiles + static_cast<uint32_t>(me.ring.slot) * C::TILE_BYTES, map, 0,
                           key, 0, head, full);
    }
    me.ring.next();
}

/** Tell the consumers of the segment carried and fetch its queries. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_announce(dpe_wgmma_producer<C> &me,
                                                          const struct dpe_wgmma_params &params,
                                                          int head, bool last)
{
    struct dpe_wgmma_message *message = &me.barriers->messages[me.q.slot];
    int copy = dpe_wgmma_word<C>(me, DPE_WORD_Q_COPY);
    int row = dpe_wgmma_word<C>(me, DPE_WORD_ROW);
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->q_empty[me.q.slot]), me.q.parity ^ 1U);
    if (dpe_wgmma_lane() < DPE_MESSAGE_WORDS) {
        reinterpret_cast<int32_t *>(message)[dpe_wgmma_lane()] = me.word;
    }
    __syncwarp();
    if (dpe_wgmma_lane() == 0) {
        uint32_t full = dpe_shared_address(&me.barriers->q_full[me.q.slot]);
        message->head = head;
        message->kind = last ? DPE_WGMMA_LAST_OF_ITEM : DPE_WGMMA_GOES_ON;
        dpe_mbarrier_expect(full, C::Q_BYTES);
        dpe_tensor_load_4d(me.q_tiles + static_cast<uint32_t>(me.q.slot) * C::Q_BYTES,
                           &params.q[copy], 0, row, 0, head, full);
    }
    me.q.next();
}

/** Everything of the item whose first message is carried; afterwards the next one's is. A V tile
 *  follows the K tile after its own. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_produce_item(dpe_wgmma_producer<C> &me,
                                                              const struct dpe_wgmma_params &params)
{
    int kv_head = me.item / params.items_per_kv;
    int head = kv_head * params.heads_per_kv + me.item % params.items_per_kv % params.heads_per_kv;
    int left = max(dpe_wgmma_word<C>(me, DPE_WORD_SEGMENTS), 1);
    int segment = dpe_wgmma_word<C>(me, DPE_WORD_FIRST);
    constexpr int NONE = INT32_MIN;
    int value = NONE;       /* first key of the V tile that is still to come */
    bool may_share = false; /* whether the next segment's first tile may be of the same keys */
    dpe_wgmma_ask<C>(me, params);
    while (left > 0) {
        int copy = dpe_wgmma_word<C>(me, DPE_WORD_K_COPY);
        int key = dpe_wgmma_word<C>(me, DPE_WORD_END);
        int n_tiles = dpe_wgmma_word<C>(me, DPE_WORD_TILES);
        bool may_share_next = C::PAIRS && n_tiles > 1;
        int k_head = (params.k_per_head >> copy & 1U) != 0 ? head : kv_head;
        left--;
        dpe_wgmma_announce<C>(me, params, head, left == 0);
        if (left > 0) {
            segment++;
            dpe_wgmma_load_segment<C>(me, params.segments + segment);
        } else {
            me.step = 0;
        }
        for (; n_tiles > 0; n_tiles--) {
            /* The shuffle lets no lane fall a phase behind, where parities are ambiguous. */
            key = dpe_uniform(key - C::KEYS);
            dpe_wgmma_push<C>(me, &params.k[copy], key, k_head);
            if (me.step < 2) {
                dpe_wgmma_fetch<C>(me, params);
            }
            /* Two tiles of the same keys: their V tile comes once. */
            if (value != NONE && !(may_share && key == value)) {
                dpe_wgmma_push<C>(me, &params.v, value, kv_head);
            }
            value = key;
        }
        may_share = may_share_next;
    }
    dpe_wgmma_push<C>(me, &params.v, value, kv_head);
    while (me.step < 2) {
        dpe_wgmma_fetch<C>(me, params);
    }
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_produce(const struct dpe_wgmma_params &params,
                                                         struct dpe_wgmma_barriers<C> *barriers,
                                                         uint32_t shared)
{
    dpe_wgmma_producer<C> me = {
        barriers, shared, shared + C::Q_SLOTS * C::Q_BYTES, {0, 0}, {0, 0}, 0, -1, 0, 0};
    if (dpe_wgmma_lane() == 0) {
        dpe_tensor_prefetch(&params.q[0]);
        dpe_tensor_prefetch(&params.k[0]);
        dpe_tensor_prefetch(&params.v);
    }
    dpe_wgmma_ask<C>(me, params);
    dpe_wgmma_fetch<C>(me, params);
    dpe_wgmma_fetch<C>(me, params);
    while (me.item < params.n_items) {
        dpe_wgmma_produce_item<C>(me, params);
    }
    dpe_mbarrier_wait(dpe_shared_address(&barriers->q_empty[me.q.slot]), me.q.parity ^ 1U);
    if (dpe_wgmma_lane() == 0) {
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
