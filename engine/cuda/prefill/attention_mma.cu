/* Attention by mma.sync (sm_80 and later): one kernel for every plan.
 *
 * A thread block of four warps has one query block of one head; a warp has 16·mt of its rows. It
 * walks the block's segments (segments.h), tile by tile of `keys` keys:
 *
 *     S = Q K^T   A: Q rows from shared memory (head_dim 64: held in registers), B: K
 *     P = 2^(c S − max)   the accumulators of S are the A operand of the next product as they lie
 *     O += P V    B: V, transposed while it is loaded
 *
 * K and V tiles go through a ring of three slots, K0 V0 K1 V1 …: while a product reads one slot the
 * two next tiles are on their way (cp.async, 16 bytes a thread). One barrier before each product
 * says that its slot has landed for all threads and that the slot of the product before is free.
 *
 * Rows in shared memory are 2·head_dim bytes; 16-byte chunk c of row r lies at place c ^ (r & 7)
 * (head_dim 96: c ^ (r/2 & 3)), so that the eight rows of an 8 × 8 matrix touch all banks once. */
#include "engine/cuda/kernels/attention_parts.cuh"
#include "engine/cuda/kernels/log_n.cuh"
#include "engine/cuda/prefill/attention_mma_tile.cuh"

namespace
{

/* ------------------------------------------------------------------------------------ the walk */

/* Everything of a warp that changes as it walks. */
template <int D> struct walker {
    loader next;
    softmax<D> state;
    held_queries<D> held;
    uint32_t slot;   /* of the tile of K at hand, bytes from the first */
    uint32_t q_lane; /* this lane's address for ldmatrix of Q, and offsets within slots */
    uint32_t k_lane, v_lane;
};

template <int D> __device__ __forceinline__ uint32_t slot_after(uint32_t slot)
{
    return slot == (tiles<D>::slots - 1) * tiles<D>::slot_bytes ? 0U : slot + tiles<D>::slot_bytes;
}

/* Tile t of segment i: its K has landed and the K after it is under way. `masked` is a constant;
 * only then t is requested. */
template <class T, int D, bool CAPPED>
__device__ __forceinline__ void step(const place<T, D> &at, walker<D> &walk,
                                     float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4], int i,
                                     int t, bool masked)
{
    using size = tiles<D>;
    float s[size::mt][size::keys / 8][4];
    /* Exponentials are computed between the matrix instructions that use them, but for masked tiles
     * at head dimension 128, where registers do not last for that. */
    bool early = CAPPED ? D >= 96 : masked && D == 128;
    float factor[size::mt][2];
    uint32_t p[size::keys / 16][size::mt][4];
    uint32_t k_slot = walk.slot;
    uint32_t v_slot = slot_after<D>(k_slot);
    walk.slot = slot_after<D>(v_slot);

    scores<T, D>(s, walk.held, walk.q_lane, at.slots + k_slot + walk.k_lane);
    if constexpr (size::sharers > 1) {
        const uint32_t sums = at.slots + size::slots * size::slot_bytes + 8U * (at.thread % 32);
        const auto warp = static_cast<uint32_t>(at.thread / 32);
        dpe_pair_sum(s[0], sums + size::sum_bytes * warp, sums + size::sum_bytes * (warp ^ 1U));
    }
    if (CAPPED) {
        cap_scores<T, D>(s, at.item);
    }
    if (masked) {
        mask_scores<D>(s, &at.item->block, segment_at(at, i), t);
    }
    read_factors<D, CAPPED>(factor, at);
    raise<D>(walk.state, s, o, factor);
    if (early) {
#pragma unroll
        for (int kk = 0; kk < size::keys / 16; kk++) {
            weights<T, D>(walk.state, p[kk], s, kk, factor, masked);
        }
    }

    dpe_copy_async_wait<1>(); /* V of this tile; the next K may still be under way */
    __syncthreads();
    bool last = walk.next.segment != i; /* of this segment's tiles */
    if (!load_ended(at, walk.next)) {
        copy_values(at, walk.next.key, at.slots + k_slot);
        if (last && segment_at(at, i)->q_copy != segment_at(at, i + 1)->q_copy) {
            copy_queries(at, segment_at(at, i + 1)->q_copy);
        }
    }
    dpe_copy_async_commit();

#pragma unroll
    for (int kk = 0; kk < size::keys / 16; kk++) {
        if (!early) {
            weights<T, D>(walk.state, p[kk], s, kk, factor, masked);
        }
        weigh<T, D>(o, p[kk], kk, at.slots + v_slot + walk.v_lane);
    }

    if (last) {
        dpe_copy_async_wait<0>(); /* the next K, and with the next V the next queries */
    } else {
        dpe_copy_async_wait<1>();
    }
    __syncthreads();
    if (!load_ended(at, walk.next)) {
        load_advance(at, walk.next);
    }
    if (!load_ended(at, walk.next)) {
        copy_tile(at, walk.next.k, walk.next.key, at.slots + v_slot);
    }
    dpe_copy_async_commit();
}

/* Where the masked tiles before (pass 0) or after the full ones end. */
__device__ __forceinline__ int masked_end(const dpe_segment *segment, int pass)
{
    return pass == 0 ? segment->full_first : segment->n_tiles;
}

template <class T, int D, bool CAPPED>
__device__ __forceinline__ void walk_segments(const place<T, D> &at, walker<D> &walk,
                                              float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4])
{
    walk.next.segment = 0;
    load_segment(at, walk.next);
    copy_queries(at, segment_at(at, 0)->q_copy);
    copy_tile(at, walk.next.k, walk.next.key, at.slots);
    dpe_copy_async_commit();
    copy_values(at, walk.next.key, at.slots + tiles<D>::slot_bytes);
    dpe_copy_async_commit();
    dpe_copy_async_wait<1>();
    __syncthreads();
    load_advance(at, walk.next);
    if (!load_ended(at, walk.next)) {
        copy_tile(at, walk.next.k, walk.next.key, at.slots + 2 * tiles<D>::slot_bytes);
    }
    dpe_copy_async_commit();
    walk.slot = 0;
#pragma unroll 1
    for (int i = 0; i < at.item->block.n_segments; i++) {
        hold_queries<D>(walk.held, walk.q_lane);
        int t = 0;
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) {
            /* Bounds are read again every time: that costs less than registers do. */
#pragma unroll 1
            for (; t < masked_end(segment_at(at, i), pass); t++) {
                step<T, D, CAPPED>(at, walk, o, i, t, true);
            }
            int left = pass == 0 ? segment_at(at, i)->full_end - t : 0;
#pragma unroll 1
            for (; left > 0; left--) {
                step<T, D, CAPPED>(at, walk, o, i, 0, false);
            }
            t = segment_at(at, i)->full_end;
        }
    }
}

/* ------------------------------------------------------------------------------------- results */

/* Sum over the lanes of a row. */
__device__ __forceinline__ float quad_sum(float sum)
{
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffU, sum, 2);
}

/* Of base-2 logits whose 2^(… − top) sum up to `sum`; −∞ without a key. */
__device__ __forceinline__ float natural_lse(float top, float sum)
{
    return (top + log2f(sum)) * 0.693147180559945F;
}

/* o / sum of a part of the keys to global memory as floats; else, as the dtype, to the warp's own
 * rows of the query tile, which no one reads any more. */
template <class T, int D>
__device__ __forceinline__ void
store_lanes(const place<T, D> &at, const walker<D> &walk,
            const float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4], unsigned char *shared,
            bool part)
{
    const dpe_flash *call = at.call;
    float *lse = part ? partial_lse(call) : call->lse;
    const int share = warp_share<D>();
    int column = tiles<D>::columns * share + at.thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < tiles<D>::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = lane_row<D>() + 16 * i + 8 * h;
            bool inside = r < at.item->block.rows;
            int64_t row = (at.item->block.row + r) * call->n_heads + at.item->head;
            float sum = quad_sum(walk.state.sum[i][h]);
            float by = sum == 0.0F ? 0.0F : 1.0F / sum;
            float *to = call->partial + row * D + column;
#pragma unroll
            for (int j = 0; j < tiles<D>::columns / 8; j++) {
                float low = o[i][j][2 * h] * by;
                float high = o[i][j][2 * h + 1] * by;
                if (!part) {
                    uint32_t *two = reinterpret_cast<uint32_t *>(
                        shared + swizzled<D>(r, tiles<D>::columns / 8 * share + j));
                    two[at.thread % 4] = pack(T{}, low, high);
                } else if (inside) {
                    to[8 * j] = low;
                    to[8 * j + 1] = high;
                }
            }
            if (lse != NULL && column == 0 && inside) {
                lse[row] = natural_lse(walk.state.top[i][h], sum);
            }
        }
    }
}

/* The warp's part of its rows from the query tile to global memory, whole lines at a time. */
template <class T, int D>
__device__ __forceinline__ void store_rows(const place<T, D> &at, const unsigned char *shared)
{
    const dpe_flash *call = at.call;
    uint4 *out = static_cast<uint4 *>(call->out);
    constexpr int chunks = tiles<D>::columns / 8;
    for (int i = at.thread % 32; i < 16 * tiles<D>::mt * chunks; i += 32) {
        int r = warp_row<D>() + i / chunks;
        int c = chunks * warp_share<D>() + i % chunks;
        if (r < at.item->block.rows) {
            out[((at.item->block.row + r) * call->n_heads + at.item->head) * (D / 8) + c] =
                *reinterpret_cast<const uint4 *>(shared + swizzled<D>(r, c));
        }
    }
}

/* The common part; every thread does its share. */
template <bool CAPPED>
__device__ __forceinline__ void prepare(const dpe_flash &call, common *item, int thread)
{
    unsigned heads = static_cast<unsigned>(call.n_heads);
    unsigned head = blockIdx.x % heads;
    const dpe_query_block *block = call.blocks + blockIdx.x / heads;
    float keys = static_cast<float>(block->query + thread) + 1.0F;
    item->factor[thread] = dpe_logit_factor<CAPPED>(call, keys);
    if (thread == 0) {
        item->block = *block;
        item->query_row = block->row % call.rows;
        item->head = static_cast<int>(head);
        item->kv_head = static_cast<int>(head / (heads / static_cast<unsigned>(call.n_kv_heads)));
    }
}

/* Grid: query blocks, heads of one block side by side, so that those of a KV head meet in the
 * cache; block: 128 threads, tiles<D>::shared_bytes of shared memory. */
template <class T, int D, bool CAPPED>
__global__ void __launch_bounds__(128, 2) attention_mma(const __grid_constant__ dpe_flash call)
{
    using size = tiles<D>;
    DPE_SHARED(unsigned char, shared);
    place<T, D> at;
    walker<D> walk;
    float o[size::mt][size::columns / 8][4];
    common *item = reinterpret_cast<common *>(shared);
    at.call = &call;
    at.item = item;
    at.thread = static_cast<int>(threadIdx.x);
    at.q = dpe_shared_address(shared) + size::header_bytes;
    at.slots = at.q + size::q_bytes;
    at.copy_to =
        static_cast<uint32_t>(swizzled<D>(at.thread / size::lanes, at.thread % size::lanes));
    prepare<CAPPED>(call, item, at.thread);
    __syncthreads();
    int lane = at.thread % 32;
    /* Chunks of a warp's columns begin where those that swizzling exchanges do. */
    const auto share = static_cast<uint32_t>(2 * size::columns * warp_share<D>());
    const int row = warp_row<D>() + lane % 16;
    walk.q_lane = at.q + share + static_cast<uint32_t>(swizzled<D>(row, lane / 16));
    walk.k_lane =
        share + static_cast<uint32_t>(swizzled<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
    walk.v_lane = share + static_cast<uint32_t>(swizzled<D>(lane % 16, lane / 16));
#pragma unroll
    for (int i = 0; i < size::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            walk.state.top[i][h] = -INFINITY;
            walk.state.sum[i][h] = 0.0F;
#pragma unroll
            for (int j = 0; j < size::columns / 8; j++) {
                o[i][j][2 * h] = o[i][j][2 * h + 1] = 0.0F;
            }
        }
    }
    if (at.item->block.n_segments > 0) {
        walk_segments<T, D, CAPPED>(at, walk, o);
    }
    store_lanes(at, walk, o, shared + size::header_bytes, call.parts > 1);
    __syncwarp();
    if (call.parts <= 1) {
        store_rows(at, shared + size::header_bytes);
    }
}

template <class T, int D> int launch(const dpe_flash *call)
{
    using size = tiles<D>;
    dim3 grid(static_cast<unsigned>(call->n_blocks * call->n_heads));
    auto kernel = call->cap > 0.0F ? attention_mma<T, D, true> : attention_mma<T, D, false>;
    int error = dpe_launch(kernel, grid, dim3(size::threads), size::shared_bytes, *call);
    return error == 0 && call->parts > 1 ? combine_parts<T>(call) : error;
}

using launcher = int (*)(const dpe_flash *);

struct kind {
    int64_t head_dim;
    dpe_tile_shape shape;
    launcher bf16, f16;
};

template <int D> constexpr kind kind_of(void)
{
    return {D, {tiles<D>::rows, tiles<D>::keys}, launch<dpe_bf16, D>, launch<dpe_f16, D>};
}

const kind KINDS[] = {kind_of<64>(), kind_of<96>(), kind_of<128>(), kind_of<256>(), kind_of<512>()};

} // namespace

extern "C" struct dpe_tile_shape dpe_attention_mma_shape(int64_t head_dim)
{
    const kind *of = dpe_kind_of(KINDS, head_dim);
    return of == NULL ? dpe_tile_shape{0, 0} : of->shape;
}

extern "C" int32_t dpe_attention_mma_parts(int64_t n_blocks, int64_t longest, int64_t n_heads,
                                           int multiprocessors)
{
    /* Two blocks live on a multiprocessor; a part of fewer than 8 tiles is not worth its start. */
    int64_t parts = 2 * static_cast<int64_t>(multiprocessors) / (n_blocks * n_heads);
    parts = parts < longest / 8 ? parts : longest / 8;
    return static_cast<int32_t>(parts < 1 ? 1 : parts);
}

extern "C" int dpe_attention_mma(const struct dpe_flash *call)
{
    const kind *of = dpe_kind_of(KINDS, call->head_dim);
    if (of == NULL || (call->dtype != DPE_BF16 && call->dtype != DPE_F16) || call->n_blocks < 1 ||
        call->n_blocks > INT32_MAX / call->n_heads || (call->parts > 1 && call->partial == NULL)) {
        return 1; /* cudaErrorInvalidValue */
    }
    return (call->dtype == DPE_BF16 ? of->bf16 : of->f16)(call);
}
