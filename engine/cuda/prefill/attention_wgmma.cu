/* The fused multi-band attention of Hopper cards: bulk tensor copies feed matrix products of
 * warpgroups (sm_90a). What it computes is described at struct dpe_wgmma_call in attention_wgmma.h.
 *
 * One persistent block per multiprocessor: C::WARPGROUPS consumer warpgroups of 64 query rows each
 * and a producer warpgroup of which one thread works. An *item* is a query block × a query head;
 * its segments (segments.h) follow one another without a gap, and so do items.
 *
 * Shared memory: a ring of Q_SLOTS query tiles, one per segment, each with a message that says what
 * the segment is; a ring of C::SLOTS key and value tiles in the order of use,
 *     K₀ K₁ V₀ K₂ V₁ … K_last V_last−1 V_last   of an item, then K₀ … of the next.
 * Every slot has a "full" and an "empty" barrier; one lane of every consumer warp empties. Tiles
 * lie as [d/64][rows][64] with the 128-byte swizzle.
 *
 * A consumer's step: issue S' = Q·Kᵢ, issue O += P·Vᵢ₋₁, wait for S', its softmax while O is still
 * in work, wait for O, P = S'. The warpgroups take turns at issuing, so that one's softmax runs
 * beside another's products. */
#include "engine/cuda/prefill/attention_wgmma_tile.cuh"

#include "engine/cuda/kernels/log_n.cuh"
#include "engine/cuda/prefill/attention_wgmma.h"

/** Issue S' = Q·K of this tile and O += P·V of the one before, and wait for the first. Returns the
 *  V tile's barrier. */
template <class C>
__device__ static __forceinline__ uint64_t *
dpe_wgmma_logits(dpe_wgmma_consumer<C> &me, float (&s)[C::KEYS / 2], uint32_t (&p)[C::KEYS / 4],
                 float (&o)[C::D / 2])
{
    dpe_wgmma_await<C>(me);
    dpe_wgmma_take_turn<C>(me);
    dpe_wgmma_issue_qk<C, C::KEYS>(me, 0, s);
    uint64_t *k_empty = &me.barriers->empty[me.ring.slot];
    me.ring.next();
    dpe_wgmma_await<C>(me);
    dpe_wgmma_issue_pv<C>(me, p, o);
    uint64_t *v_empty = &me.barriers->empty[me.ring.slot];
    me.ring.next();
    dpe_wgmma_pass_turn<C>(me);

    dpe_wgmma_wait<1>();
    dpe_wgmma_settled(s);
    dpe_wgmma_empty(k_empty);
    dpe_wgmma_cap<C>(me, s);
    return v_empty;
}

/** One step: the products S' = Q·K of this tile and O += P·V of the one before, P of this tile. */
template <class C, bool MASKED>
__device__ static __forceinline__ void
dpe_wgmma_step(dpe_wgmma_consumer<C> &me, int key, float (&s)[C::KEYS / 2],
               uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    uint64_t *v_empty = dpe_wgmma_logits<C>(me, s, p, o);
    if (MASKED) {
        dpe_wgmma_mask<C>(me, key, s);
    }
    float factor[2] = {1.0f, 1.0f};
    bool moved = dpe_wgmma_move_top<C>(me, s, factor);
    dpe_wgmma_exponents<C>(me, s);
    dpe_wgmma_settled(s); /* here, not below the wait: this is what the product hides */

    /* A branch keeps ptxas from waiting before the exponentials. Its condition always holds, which
     * ptxas cannot derive: the four warps of a group must come to the same wait, and `moved`
     * differs between them. */
    if (key > INT32_MIN) {
        dpe_wgmma_wait<0>();
    } else {
        dpe_wgmma_wait<0, 1>();
    }
    dpe_wgmma_settled(o);
    if (moved) {
        dpe_wgmma_rescale<C>(factor, o);
    }
    dpe_wgmma_empty(v_empty);
    dpe_wgmma_pack<C>(s, p);
}

/** Keys that this thread's rows see in a segment. */
template <class C> __device__ static __forceinline__ void dpe_wgmma_enter(dpe_wgmma_consumer<C> &me)
{
    const struct dpe_wgmma_message &message = me.barriers->messages[me.q.slot];
    int near = static_cast<int32_t>(message.segment.near);
    int far = static_cast<int32_t>(message.segment.far);
    int first = static_cast<int32_t>(message.segment.first);
    int end = static_cast<int32_t>(message.segment.end);
    int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = me.row + 8 * h;
        int m = static_cast<int32_t>(message.block.query) + r;
        bool member = r >= message.segment.row_first && r < message.segment.row_end;
        me.lo[h] = max(m - far + 1, first) - column;
        me.hi[h] = member ? min(m - near + 1, end) - column : INT32_MIN / 2;
    }
}

/** This segment's queries are not needed any more; wait for the next message. */
template <class C> __device__ static __forceinline__ void dpe_wgmma_leave(dpe_wgmma_consumer<C> &me)
{
    __syncwarp();
    dpe_wgmma_empty(&me.barriers->q_empty[me.q.slot]);
    me.q.next();
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_await_message(const dpe_wgmma_consumer<C> &me)
{
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->q_full[me.q.slot]), me.q.parity);
}

/** Keys first … first + KEYS/2 − 1 of a tile: where this thread's rows see them in the segment
 *  entered, its logits take the place of what is there. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_select(const dpe_wgmma_consumer<C> &me, int key,
                                                        int first, const float (&half)[C::KEYS / 4],
                                                        float *s)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int lo = me.lo[h] - key - first;
        int hi = me.hi[h] - key - first;
#pragma unroll
        for (int j = 0; j < C::KEYS / 16; j++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                bool seen = 8 * j + c >= lo && 8 * j + c < hi;
                int i = 4 * j + 2 * h + c;
                s[i] = seen ? half[i] : s[i];
            }
        }
    }
}

/** A segment's last tile when the next one's first holds the same keys: no row sees a key in both,
 * so each takes its logit from one of two products, and the rest is done once. Enters the next. */
template <class C>
__device__ static __forceinline__ void
dpe_wgmma_pair_step(dpe_wgmma_consumer<C> &me, int key, float (&s)[C::KEYS / 2],
                    uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    float half[C::KEYS / 4];
    float factor[2] = {1.0f, 1.0f};
    uint64_t *v_empty = dpe_wgmma_logits<C>(me, s, p, o);
    dpe_wgmma_mask<C>(me, key, s);
    dpe_wgmma_leave<C>(me);
    dpe_wgmma_enter<C>(me);
    dpe_wgmma_wait<0>();
    dpe_wgmma_settled(o);
    dpe_wgmma_empty(v_empty);
    dpe_wgmma_await<C>(me);
#pragma unroll
    for (int first = 0; first < C::KEYS; first += C::KEYS / 2) {
        dpe_wgmma_issue_qk<C, C::KEYS / 2>(me, first, half);
        dpe_wgmma_wait<0>();
        dpe_wgmma_settled(half);
        dpe_wgmma_cap<C>(me, half);
        dpe_wgmma_select<C>(me, key, first, half, s + first / 2);
    }
    dpe_wgmma_empty(&me.barriers->empty[me.ring.slot]);
    me.ring.next();
    if (dpe_wgmma_move_top<C>(me, s, factor)) {
        dpe_wgmma_rescale<C>(factor, o);
    }
    dpe_wgmma_exponents<C>(me, s);
    dpe_wgmma_pack<C>(s, p);
}

/** Whether the tile at `key`, its segment's last, makes a pair with the next segment's first: the
 *  producer decides the same. Waits for the next message. */
template <class C>
__device__ static __forceinline__ bool dpe_wgmma_pairs(const dpe_wgmma_consumer<C> &me, int key)
{
    dpe_ring<C::Q_SLOTS> next = me.q;
    next.next();
    dpe_mbarrier_wait(dpe_shared_address(&me.barriers->q_full[next.slot]), next.parity);
    return static_cast<int32_t>(me.barriers->messages[next.slot].segment.end) - C::KEYS == key;
}

/** Tiles `t` and on of the segment entered; leaves it. Whether the next one has been entered and
 * its first tile done. */
template <class C>
__device__ static __forceinline__ bool
dpe_wgmma_walk(dpe_wgmma_consumer<C> &me, int t, bool last, float (&s)[C::KEYS / 2],
               uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    const struct dpe_segment &segment = me.barriers->messages[me.q.slot].segment;
    int n_tiles = segment.n_tiles;
    int full_end = segment.full_end;
    int key = static_cast<int32_t>(segment.end) - (t + 1) * C::KEYS;
    bool may_pair = C::PAIRS && !last && n_tiles > 1;
    int stop = may_pair ? n_tiles - 1 : n_tiles;
    full_end = min(full_end, stop);
    /* Without a full tile the masked loop takes all at once. */
    int masked_end = segment.full_first < full_end ? segment.full_first : stop;
    while (true) {
#pragma unroll 1
        for (; t < masked_end; t++, key -= C::KEYS) {
            dpe_wgmma_step<C, true>(me, key, s, p, o);
        }
#pragma unroll 1
        for (; t < full_end; t++, key -= C::KEYS) {
            dpe_wgmma_step<C, false>(me, key, s, p, o);
        }
        if (t == n_tiles) {
            break;
        }
        if constexpr (C::PAIRS) {
            if (t == stop && dpe_wgmma_pairs<C>(me, key)) {
                dpe_wgmma_pair_step<C>(me, key, s, p, o);
                return true;
            }
        }
        stop = t == stop ? n_tiles : stop;
        masked_end = stop;
    }
    dpe_wgmma_leave<C>(me);
    dpe_wgmma_await_message<C>(me);
    return false;
}

/** Four words of every lane of a quad, transposed: word i of lane l becomes word l of lane i. */
__device__ static __forceinline__ void dpe_quad_transpose(uint32_t (&w)[4])
{
    bool odd = (threadIdx.x & 1U) != 0;
    bool high = (threadIdx.x & 2U) != 0;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t got = __shfl_xor_sync(0xffffffffU, high ? w[i] : w[i + 2], 2);
        w[i] = high ? got : w[i];
        w[i + 2] = high ? w[i + 2] : got;
    }
}

/** O / sum and the log-sum-exp of an item's rows to global memory: 16 bytes a lane. */
template <class C>
__device__ static __forceinline__ void dpe_wgmma_finish(const dpe_wgmma_consumer<C> &me,
                                                        const struct dpe_wgmma_params &params,
                                                        float (&o)[C::D / 2])
{
    using T = typename C::T;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = me.sum[h];
        sum += __shfl_xor_sync(0xffffffffU, sum, 1);
        sum += __shfl_xor_sync(0xffffffffU, sum, 2);
        float inverse = sum != 0.0f ? 1.0f / sum : 0.0f; /* a NaN stays one */
        int r = me.row + 8 * h;
        bool inside = r < me.out_rows;
        int64_t at = (static_cast<int64_t>(me.out_row) + r) * params.n_heads + me.head;
        T *out = static_cast<T *>(params.out) + at * C::D + threadIdx.x % 4 * 8;
        if (inside && threadIdx.x % 4 == 0 && params.lse != nullptr) {
            params.lse[at] = sum != 0.0f ? (me.top[h] * dpe_wgmma_scale<C>(me, h) + log2f(sum)) *
                                               0.69314718055994531f
                                         : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < C::D / 32; i++) {
            uint32_t w[4];
#pragma unroll
            for (int g = 0; g < 4; g++) {
                float low = o[16 * i + 4 * g + 2 * h] * inverse;
                float high = o[16 * i + 4 * g + 2 * h + 1] * inverse;
                w[g] = dpe_is_bf16<T>::value ? dpe_pack_bf16(low, high) : dpe_pack_half(low, high);
            }
            dpe_quad_transpose(w);
            if (inside) {
                *reinterpret_cast<uint4 *>(out + 32 * i) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
}

/** An item's first tile, whose logits are there: masked always, nothing to add to. */
template <class C>
__device__ static __forceinline__ void
dpe_wgmma_begin(dpe_wgmma_consumer<C> &me, const struct dpe_wgmma_params &params,
                float (&s)[C::KEYS / 2], uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    const struct dpe_wgmma_message &message = me.barriers->messages[me.q.slot];
    me.out_row = static_cast<int32_t>(message.block.row);
    me.out_rows = message.block.rows;
    me.head = message.head;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int m = static_cast<int32_t>(message.block.query) + me.row + 8 * h;
        float keys = fmaxf(static_cast<float>(m + 1), 1.0f);
        me.scale[h] = dpe_logit_factor<C::CAPPED>(params, keys);
    }
    dpe_wgmma_cap<C>(me, s);
    dpe_wgmma_mask<C>(me, static_cast<int32_t>(message.segment.end) - C::KEYS, s);
    /* Finite, so that a row that has seen nothing yet makes no NaN. */
    me.top[0] = me.top[1] = -1e30f;
    me.sum[0] = me.sum[1] = 0.0f;
    dpe_wgmma_row_max<C>(s, me.top);
    dpe_wgmma_exponents<C>(me, s);
    dpe_wgmma_pack<C>(s, p);
#pragma unroll
    for (int i = 0; i < C::D / 2; i++) {
        o[i] = 0.0f;
    }
}

/** All segments of an item but for the product of its last V tile; afterwards the Q ring stands at
 *  the next item's first message, which is there. */
template <class C>
__device__ static __forceinline__ void
dpe_wgmma_item(dpe_wgmma_consumer<C> &me, const struct dpe_wgmma_params &params,
               float (&s)[C::KEYS / 2], uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    int t = 1;
    dpe_wgmma_enter<C>(me);
    dpe_wgmma_begin<C>(me, params, s, p, o);
    while (true) {
        bool last = me.barriers->messages[me.q.slot].kind == DPE_WGMMA_LAST_OF_ITEM;
        bool entered = dpe_wgmma_walk<C>(me, t, last, s, p, o);
        if (last) {
            return;
        }
        if (!entered) {
            dpe_wgmma_enter<C>(me);
        }
        t = entered ? 1 : 0;
    }
}

/** The item's last product beside the next item's first, its output beside the latter. Whether
 * there is a next item. */
template <class C>
__device__ static __forceinline__ bool
dpe_wgmma_turn_over(dpe_wgmma_consumer<C> &me, const struct dpe_wgmma_params &params,
                    float (&s)[C::KEYS / 2], uint32_t (&p)[C::KEYS / 4], float (&o)[C::D / 2])
{
    bool more = me.barriers->messages[me.q.slot].kind != DPE_WGMMA_NO_MORE;
    dpe_wgmma_await<C>(me);
    dpe_wgmma_take_turn<C>(me);
    dpe_wgmma_issue_pv<C>(me, p, o);
    uint64_t *v_empty = &me.barriers->empty[me.ring.slot];
    me.ring.next();
    uint64_t *k_empty = &me.barriers->empty[me.ring.slot];
    if (more) {
        dpe_wgmma_await<C>(me);
    }
    /* After the last item: a product of what is there, which is not used. */
    dpe_wgmma_issue_qk<C, C::KEYS>(me, 0, s);
    dpe_wgmma_pass_turn<C>(me);
    dpe_wgmma_wait<1>();
    dpe_wgmma_settled(o);
    dpe_wgmma_empty(v_empty);
    dpe_wgmma_finish<C>(me, params, o);
    dpe_wgmma_wait<0>();
    dpe_wgmma_settled(s);
    if (more) {
        dpe_wgmma_empty(k_empty);
        me.ring.next();
    }
    return more;
}

template <class C>
__device__ static __forceinline__ void dpe_wgmma_consume(const struct dpe_wgmma_params &params,
                                                         struct dpe_wgmma_barriers<C> *barriers,
                                                         uint32_t shared)
{
    int warpgroup = dpe_uniform(static_cast<int>(threadIdx.x) / 128);
    dpe_wgmma_consumer<C> me;
    me.params = &params;
    me.barriers = barriers;
    me.q_tiles = dpe_wgmma_descriptor(shared + static_cast<uint32_t>(warpgroup) * 64 * 128);
    me.tiles = dpe_wgmma_descriptor(shared + C::Q_SLOTS * C::Q_BYTES);
    me.warpgroup = warpgroup;
    me.row = static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
    me.q = {0, 0};
    me.ring = {0, 0};
    float s[C::KEYS / 2];
    uint32_t p[C::KEYS / 4];
    float o[C::D / 2];
    if (warpgroup == C::WARPGROUPS - 1) {
        dpe_barrier_arrive(dpe_wgmma_turn(0), 256);
    }
    dpe_mbarrier_wait(dpe_shared_address(&barriers->q_full[0]), 0);
    if (barriers->messages[0].kind != DPE_WGMMA_NO_MORE) {
        dpe_wgmma_await<C>(me);
        dpe_wgmma_issue_qk<C, C::KEYS>(me, 0, s);
        dpe_wgmma_wait<0>();
        dpe_wgmma_settled(s);
        dpe_wgmma_empty(&barriers->empty[me.ring.slot]);
        me.ring.next();
        do {
            dpe_wgmma_item<C>(me, params, s, p, o);
        } while (dpe_wgmma_turn_over<C>(me, params, s, p, o));
    }
    if (warpgroup == 0) {
        dpe_barrier_sync(dpe_wgmma_turn(0), 256);
    }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    dpe_attention_wgmma_kernel(const __grid_constant__ struct dpe_wgmma_params params)
{
    DPE_SHARED(unsigned char, shared);
    struct dpe_wgmma_barriers<C> *barriers =
        reinterpret_cast<struct dpe_wgmma_barriers<C> *>(shared + C::SHARED_BYTES);
    uint32_t address = dpe_shared_address(shared);
    dpe_require(address % 1024 == 0); /* the swizzle goes by address bits */
    if (threadIdx.x == 0) {
        for (int i = 0; i < C::Q_SLOTS; i++) {
            dpe_mbarrier_init(dpe_shared_address(&barriers->q_full[i]), 1);
            dpe_mbarrier_init(dpe_shared_address(&barriers->q_empty[i]), 4 * C::WARPGROUPS);
        }
        for (int i = 0; i < C::SLOTS; i++) {
            dpe_mbarrier_init(dpe_shared_address(&barriers->full[i]), 1);
            dpe_mbarrier_init(dpe_shared_address(&barriers->empty[i]), 4 * C::WARPGROUPS);
        }
        dpe_mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 128 * C::WARPGROUPS) {
        dpe_registers_release<C::PRODUCER_REGISTERS>();
        if (threadIdx.x < 128 * C::WARPGROUPS + 32) {
            dpe_wgmma_produce<C>(params, barriers, address);
        }
    } else {
        dpe_registers_take<C::CONSUMER_REGISTERS>();
        dpe_wgmma_consume<C>(params, barriers, address);
    }
}

namespace
{

/* Tiles of `rows` rows of all heads. */
int map_tensor(CUtensorMap *map, const struct dpe_flash *call, const void *base, int64_t rows,
               int64_t head_stride, int64_t n_heads, uint32_t tile_rows)
{
    uint64_t d = static_cast<uint64_t>(call->head_dim);
    if (rows < 1 || rows > INT64_C(1) << 30) {
        return 1;
    }
    const uint64_t dims[4] = {64, static_cast<uint64_t>(rows), d / 64,
                              static_cast<uint64_t>(n_heads)};
    const uint64_t strides[3] = {d * 2, 128, static_cast<uint64_t>(head_stride) * 2};
    const uint32_t box[4] = {64, tile_rows, static_cast<uint32_t>(d / 64), 1};
    return dpe_tensor_map_4d(map, call->dtype == DPE_BF16, base, dims, strides, box);
}

int map_tensors(struct dpe_wgmma_params *params, const struct dpe_flash *call,
                struct dpe_tile_shape shape)
{
    uint32_t rows = static_cast<uint32_t>(shape.rows);
    uint32_t keys = static_cast<uint32_t>(shape.keys);
    int failed = map_tensor(&params->v, call, call->v, call->v_head_stride / call->head_dim,
                            call->v_head_stride, call->n_kv_heads, keys);
    for (int c = 0; c < DPE_MAX_BANDS; c++) {
        if (call->q[c] != NULL) {
            failed |= map_tensor(&params->q[c], call, call->q[c], call->rows, call->q_head_stride,
                                 call->n_heads, rows);
        }
        if (call->k[c] != NULL) {
            failed |= map_tensor(&params->k[c], call, call->k[c],
                                 call->k_head_stride[c] / call->head_dim, call->k_head_stride[c],
                                 call->k_per_head[c] ? call->n_heads : call->n_kv_heads, keys);
            params->k_per_head |= call->k_per_head[c] ? 1U << c : 0U;
        }
    }
    return failed;
}

template <class C> int launch(const struct dpe_wgmma_params &params)
{
    int blocks = dpe_multiprocessors();
    blocks = blocks < params.n_items ? blocks : params.n_items;
    return dpe_launch(dpe_attention_wgmma_kernel<C>, dim3(static_cast<unsigned>(blocks)),
                      dim3(C::THREADS), C::SHARED_BYTES + sizeof(struct dpe_wgmma_barriers<C>),
                      params);
}

using launcher = int (*)(const struct dpe_wgmma_params &);

struct kind {
    int64_t head_dim;
    bool capped;
    struct dpe_tile_shape shape;
    launcher bf16, f16;
};

template <int D, int WARPGROUPS, int KEYS, int SLOTS, bool CAPPED> constexpr struct kind make_kind()
{
    return {D,
            CAPPED,
            {64 * WARPGROUPS, KEYS},
            launch<dpe_wgmma_config<dpe_bf16, D, WARPGROUPS, KEYS, SLOTS, CAPPED>>,
            launch<dpe_wgmma_config<dpe_f16, D, WARPGROUPS, KEYS, SLOTS, CAPPED>>};
}

/* With a cap, at 64 and 256, that which has registers for it. */
const struct kind KINDS[] = {
    make_kind<128, 2, 128, 5, false>(), make_kind<128, 2, 128, 5, true>(),
    make_kind<64, 3, 128, 8, false>(),  make_kind<64, 2, 128, 8, true>(),
    make_kind<256, 2, 80, 4, false>(),  make_kind<256, 2, 64, 5, true>(),
};

const struct kind *find_kind(int64_t head_dim, bool capped)
{
    for (const struct kind &kind : KINDS) {
        if (kind.head_dim == head_dim && kind.capped == capped) {
            return &kind;
        }
    }
    return NULL;
}

} // namespace

struct dpe_tile_shape dpe_attention_wgmma_shape(int64_t head_dim, bool capped)
{
    const struct kind *kind = find_kind(head_dim, capped);
    return kind == NULL ? dpe_tile_shape{0, 0} : kind->shape;
}

int dpe_attention_wgmma(const struct dpe_flash *call, int32_t *counters)
{
    static const int INVALID_VALUE = 1;
    const struct kind *kind = find_kind(call->head_dim, call->cap > 0.0f);
    int64_t per_kv = kind == NULL ? 0 : call->n_heads / call->n_kv_heads;
    if (kind == NULL || (call->dtype != DPE_BF16 && call->dtype != DPE_F16) ||
        call->n_blocks * call->n_heads >= INT32_MAX - 65536) {
        return INVALID_VALUE;
    }
    struct dpe_wgmma_params params = {};
    if (map_tensors(&params, call, kind->shape) != 0) {
        return INVALID_VALUE;
    }
    params.blocks = call->blocks;
    params.segments = call->segments;
    params.nothing.n_tiles = 1; /* keys below 0: zeros */
    params.counters = counters;
    params.out = call->out;
    params.lse = call->lse;
    params.n_items = static_cast<int32_t>(call->n_blocks * call->n_heads);
    params.items_per_kv = static_cast<int32_t>(call->n_blocks * per_kv);
    params.n_heads = static_cast<int32_t>(call->n_heads);
    params.heads_per_kv = static_cast<int32_t>(per_kv);
    params.scale = call->scale;
    params.cap = call->cap;
    params.cap_factor = dpe_cap_factor(*call);
    params.log_n = call->log_n;
    return (call->dtype == DPE_BF16 ? kind->bf16 : kind->f16)(params);
}
