/**
 * @file attention_wgmma_tile.cuh
 * The Hopper attention kernel's sizes, its rings in shared memory, the producer that fills them,
 * and what a consumer does with a tile: products, barriers of its slots, mask, running softmax
 * (attention_wgmma.cu has the picture and the order of things).
 */
#ifndef DPE_ATTENTION_WGMMA_TILE_CUH
#define DPE_ATTENTION_WGMMA_TILE_CUH

#include "engine/cuda/ptx/ptx_sm90.cuh"

#include "engine/cuda/kernels/attention.h"
#include "engine/plan/segments.h"

/** Tile sizes. T: dpe_bf16 or dpe_f16. */
template <class T_, int D_, int WARPGROUPS_, int KEYS_, int SLOTS_, bool CAPPED_>
struct dpe_wgmma_config {
    using T = T_;
    static constexpr int D = D_;
    static constexpr int WARPGROUPS = WARPGROUPS_;
    static constexpr int ROWS = 64 * WARPGROUPS;
    static constexpr int KEYS = KEYS_;
    static constexpr int SLOTS = SLOTS_;
    static constexpr bool CAPPED = CAPPED_;
    static constexpr int Q_SLOTS = D == 256 ? 1 : 2; /* of 64 KiB there */
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
    int32_t *counters;          /* next item, blocks that have ended */
    void *out;
    float *lse;
    int32_t n_items, items_per_kv; /* blocks × heads, blocks × heads of a KV head */
    int32_t n_heads, heads_per_kv;
    uint32_t k_per_head; /* bit c: copy c of the keys is per query head */
    float scale;
    struct dpe_log_n log_n;
    float cap, cap_factor;
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

/** Ask for the number of the next item. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_ask(dpe_wgmma_producer<C> &me,
                                                     const struct dpe_wgmma_params &params)
{
    if (dpe_wgmma_lane() == 0) {
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
        if (atomicAdd(params.counters + 1, 1) == static_cast<int>(gridDim.x) - 1) {
            params.counters[0] = 0;
            params.counters[1] = 0;
        }
    }
}

/** A consumer thread's state but for the big register arrays. Index 0: row lane/4 of its warp's 16,
 *  index 1: that row + 8. */
template <class C> struct dpe_wgmma_consumer {
    struct dpe_wgmma_barriers<C> *barriers;
    uint64_t q_tiles, tiles; /* descriptors of the rings' first tiles, Q at this warpgroup's rows */
    int warpgroup, row;      /* row: this thread's first row in the block */
    dpe_ring<C::Q_SLOTS> q;
    dpe_ring<C::SLOTS> ring;
    const struct dpe_wgmma_params *params;
    float scale[2];       /* of the rows: dpe_logit_factor */
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
    dpe_barrier_sync(dpe_wgmma_turn(me.warpgroup), 256);
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_pass_turn(const dpe_wgmma_consumer<C> &me)
{
    int next = me.warpgroup + 1 == C::WARPGROUPS ? 0 : me.warpgroup + 1;
    dpe_barrier_arrive(dpe_wgmma_turn(next), 256);
}

/** Base-2 logit of what of a dot product is kept. */
template <class C>
__device__ static __forceinline__ float dpe_wgmma_scale(const dpe_wgmma_consumer<C> &me, int h)
{
    return C::CAPPED ? me.params->cap_factor : me.scale[h];
}

/** With a cap, tanh of the dot products of a tile, or of some of its columns. */
template <class C, int N>
__device__ static __forceinline__ void dpe_wgmma_cap(const dpe_wgmma_consumer<C> &me, float (&s)[N])
{
#pragma unroll
    for (int i = 0; C::CAPPED && i < N; i++) {
        s[i] = dpe_tanh(typename C::T{}, s[i] * me.scale[i / 2 % 2]);
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
    float shift[2] = {-me.top[0] * dpe_wgmma_scale<C>(me, 0),
                      -me.top[1] * dpe_wgmma_scale<C>(me, 1)};
#pragma unroll
    for (int j = 0; j < C::KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[4 * j + i] =
                dpe_exp2(__fmaf_rn(s[4 * j + i], dpe_wgmma_scale<C>(me, i / 2), shift[i / 2]));
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
    float rise = fmaxf((top[0] - me.top[0]) * dpe_wgmma_scale<C>(me, 0),
                       (top[1] - me.top[1]) * dpe_wgmma_scale<C>(me, 1));
    bool moved = __any_sync(0xffffffffU, rise > 8.0f) != 0;
    if (moved) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            factor[h] = dpe_exp2((me.top[h] - top[h]) * dpe_wgmma_scale<C>(me, h));
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
