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
#include "device.cuh"

#include "attention.h"

namespace
{

/* Sizes that follow from the head dimension. */
template <int D> struct tiles {
    static constexpr int mt = D == 256 ? 1 : 2; /* 16-row matrices of a warp: what registers hold */
    static constexpr int threads = 128;         /* and no more rows than threads */
    static constexpr int rows = threads / 32 * 16 * mt;
    static constexpr int keys = D == 256 ? 32 : 64;
    static constexpr int row_bytes = 2 * D;
    static constexpr int slot_bytes = keys * row_bytes;
    static constexpr int slots = 3;
    static constexpr int q_bytes = rows * row_bytes;
    static constexpr int header_bytes = 1024; /* struct common */
    static constexpr int shared_bytes = header_bytes + q_bytes + slots * slot_bytes;
    static constexpr bool q_in_registers = D == 64;
    /* Chunks of a row that swizzling exchanges among themselves. */
    static constexpr int swizzle = D == 96 ? 4 : 8;
    /* cp.async: lanes beside each other along a row, chunks of each, rows of one pass. */
    static constexpr int lanes = D == 96 ? 4 : D / 8;
    static constexpr int chunks = D / 8 / lanes;
    static constexpr int pass = threads / lanes;
};

/* Byte of 16-byte chunk c of row r. */
template <int D> __device__ __forceinline__ int swizzled(int r, int c)
{
    int turn = D == 96 ? (r >> 1) & 3 : r & 7;
    return r * tiles<D>::row_bytes + ((c ^ turn) << 4);
}

/* The address of chunk 2i + (its lane's half) of a row, from that of i = 0. Row starts are
 * multiples of 16·swizzle bytes, so turning the lower chunks never carries into the rest. */
template <int D> __device__ __forceinline__ uint32_t chunk_pair(uint32_t first, int i)
{
    constexpr int pairs = tiles<D>::swizzle / 2;
    return (first ^ static_cast<uint32_t>(32 * (i % pairs))) +
           static_cast<uint32_t>(32 * pairs * (i / pairs));
}

/* Row of a lane's first accumulator. */
template <int D> __device__ __forceinline__ int lane_row(void)
{
    return static_cast<int>(threadIdx.x) / 32 * 16 * tiles<D>::mt +
           static_cast<int>(threadIdx.x) % 32 / 4;
}

/* What is loaded next. */
struct loader {
    const unsigned char *k; /* the head's keys, at this thread's chunk of its first row */
    int key;                /* first key of the tile */
    int left;               /* tiles of this segment from this one on */
    int segment;            /* as many as the block has: nothing is left */
};

/* What all threads of a block share, at the start of shared memory: there it costs no registers. */
struct common {
    dpe_query_block block;
    int64_t query_row; /* of Q; block.row is that of the results */
    int head, kv_head;
    float factor[128]; /* by row: base-2 logit of a dot product */
};

/* What a thread knows throughout. */
template <class T, int D> struct place {
    const dpe_flash *call;
    const common *item;
    int thread;
    uint32_t q, slots; /* shared addresses */
    uint32_t copy_to;  /* this thread's first chunk within a tile */
};

template <class T, int D>
__device__ __forceinline__ const unsigned char *
thread_source(const place<T, D> &at, const void *tensor, int64_t head, int64_t head_stride)
{
    using size = tiles<D>;
    return static_cast<const unsigned char *>(tensor) + head * head_stride * 2 +
           at.thread / size::lanes * size::row_bytes + at.thread % size::lanes * 16;
}

/* Shared address of a thread's first chunk in pass i of a tile. Passes are a multiple of 8 rows
 * apart, or (head_dim 256) of 4, which turns one bit. */
template <int D> __device__ __forceinline__ uint32_t pass_address(uint32_t tile, uint32_t to, int i)
{
    using size = tiles<D>;
    return tile + (to ^ (size::pass % 8 != 0 && i % 2 != 0 ? 64U : 0U)) +
           static_cast<uint32_t>(i * size::pass * size::row_bytes);
}

/* Start copying `passes` rows of this thread: those from `first` on that lie before `end`; the
 * others become zeros. */
template <class T, int D, int passes>
__device__ __forceinline__ void copy_some(const place<T, D> &at, const unsigned char *from,
                                          uint32_t tile, int first, int end)
{
    using size = tiles<D>;
#pragma unroll 1 /* rarely run: not worth registers */
    for (int i = 0; i < passes; i++) {
        int row = at.thread / size::lanes + i * size::pass;
        bool real = row >= first && row < end;
#pragma unroll
        for (int c = 0; c < size::chunks; c++) {
            const unsigned char *source = from + i * size::pass * size::row_bytes + 64 * c;
            dpe_copy_async_or_zero(pass_address<D>(tile, at.copy_to, i) + 64U * c,
                                   real ? source : at.call->v, real);
        }
    }
}

/* Start copying a tile whose first key is `key`; rows before key 0 become zeros. */
template <class T, int D>
__device__ __forceinline__ void copy_tile(const place<T, D> &at, const unsigned char *from, int key,
                                          uint32_t slot)
{
    using size = tiles<D>;
    constexpr int passes = size::keys / size::pass;
    from += static_cast<int64_t>(key) * size::row_bytes;
    if (key < 0) {
        copy_some<T, D, passes>(at, from, slot, -key, size::keys);
        return;
    }
#pragma unroll
    for (int i = 0; i < passes; i++) {
#pragma unroll
        for (int c = 0; c < size::chunks; c++) {
            dpe_copy_async(pass_address<D>(slot, at.copy_to, i) + 64U * c,
                           from + i * size::pass * size::row_bytes + 64 * c);
        }
    }
}

template <class T, int D>
__device__ __forceinline__ void copy_queries(const place<T, D> &at, int copy)
{
    using size = tiles<D>;
    const unsigned char *from =
        thread_source(at, at.call->q[copy], at.item->head, at.call->q_head_stride);
    copy_some<T, D, size::rows / size::pass>(at, from + at.item->query_row * size::row_bytes, at.q,
                                             0, at.item->block.rows);
}

template <class T, int D>
__device__ __forceinline__ void copy_values(const place<T, D> &at, int key, uint32_t slot)
{
    copy_tile(at, thread_source(at, at.call->v, at.item->kv_head, at.call->v_head_stride), key,
              slot);
}

template <class T, int D>
__device__ __forceinline__ const dpe_segment *segment_at(const place<T, D> &at, int i)
{
    return at.call->segments + at.item->block.first_segment + i;
}

template <class T, int D>
__device__ __forceinline__ void load_segment(const place<T, D> &at, loader &next)
{
    const dpe_segment *segment = segment_at(at, next.segment);
    const dpe_flash *call = at.call;
    int copy = segment->k_copy;
    next.k =
        thread_source(at, call->k[copy], call->k_per_head[copy] ? at.item->head : at.item->kv_head,
                      call->k_head_stride[copy]);
    next.key = static_cast<int>(segment->end) - tiles<D>::keys;
    next.left = segment->n_tiles;
}

/* On to the tile after the one loaded last. */
template <class T, int D>
__device__ __forceinline__ void load_advance(const place<T, D> &at, loader &next)
{
    next.key -= tiles<D>::keys;
    next.left--;
    if (next.left == 0 && ++next.segment < at.item->block.n_segments) {
        load_segment(at, next);
    }
}

template <class T, int D>
__device__ __forceinline__ bool load_ended(const place<T, D> &at, const loader &next)
{
    return next.segment == at.item->block.n_segments;
}

/* ------------------------------------------------------------------------------------ products */

/* Q of a warp as A operands; empty where they are read from shared memory every time. */
template <int D> struct held_queries {
    uint32_t a[tiles<D>::q_in_registers ? D / 16 : 1][tiles<D>::mt][4];
};

template <int D>
__device__ __forceinline__ void hold_queries(held_queries<D> &held, uint32_t q_lane)
{
    if (tiles<D>::q_in_registers) {
#pragma unroll
        for (int kk = 0; kk < D / 16; kk++) {
#pragma unroll
            for (int i = 0; i < tiles<D>::mt; i++) {
                dpe_ldmatrix(held.a[kk % (tiles<D>::q_in_registers ? D / 16 : 1)][i],
                             chunk_pair<D>(q_lane, kk) +
                                 static_cast<uint32_t>(16 * i * tiles<D>::row_bytes));
            }
        }
    }
}

/* s = Q K^T for the warp's rows and the keys of a slot. */
template <class T, int D>
__device__ __forceinline__ void scores(float (&s)[tiles<D>::mt][tiles<D>::keys / 8][4],
                                       const held_queries<D> &held, uint32_t q_lane,
                                       uint32_t k_lane)
{
    using size = tiles<D>;
    uint32_t a[size::mt][4];
    uint32_t b[4];
#pragma unroll
    for (int i = 0; i < size::mt; i++) {
#pragma unroll
        for (int j = 0; j < size::keys / 8; j++) {
            s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0.0F;
        }
    }
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
#pragma unroll
        for (int i = 0; i < size::mt; i++) {
            if (size::q_in_registers) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    a[i][e] = held.a[size::q_in_registers ? kk : 0][i][e];
                }
            } else {
                dpe_ldmatrix(a[i], chunk_pair<D>(q_lane, kk) +
                                       static_cast<uint32_t>(16 * i * size::row_bytes));
            }
        }
#pragma unroll
        for (int j = 0; j < size::keys / 16; j++) {
            dpe_ldmatrix(b, chunk_pair<D>(k_lane, kk) +
                                static_cast<uint32_t>(16 * j * size::row_bytes));
#pragma unroll
            for (int i = 0; i < size::mt; i++) {
                dpe_mma(T{}, s[i][2 * j], a[i], b[0], b[1]);
                dpe_mma(T{}, s[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- softmax */

/* Rows of a lane: g and g + 8 of each of its mt matrices. */
template <int D> struct softmax {
    float top[tiles<D>::mt][2]; /* what exponents are taken against; −∞: no key yet */
    float sum[tiles<D>::mt][2]; /* of this lane's columns */
};

/* How far (in powers of two) logits may exceed `top` before everything is rescaled. */
static constexpr float SLACK = 8.0F;

__device__ __forceinline__ uint32_t pack(dpe_bf16, float low, float high)
{
    return dpe_pack_bf16(low, high);
}
__device__ __forceinline__ uint32_t pack(dpe_f16, float low, float high)
{
    return dpe_pack_half(low, high);
}

/* Scores that a row must not see become −∞. */
template <int D>
__device__ __forceinline__ void mask_scores(float (&s)[tiles<D>::mt][tiles<D>::keys / 8][4],
                                            const dpe_query_block *block,
                                            const dpe_segment *segment, int t)
{
    using size = tiles<D>;
    int row = lane_row<D>();
    int column = static_cast<int>(threadIdx.x) % 4 * 2;
    /* dpe_segment_keys in 32 bits, which dpe_walk_make keeps to; columns of this lane. */
    int end = static_cast<int>(segment->end);
    int first = static_cast<int>(segment->first);
    int near = static_cast<int>(segment->near) - 1;
    int far = static_cast<int>(segment->far) - 1;
    int row_first = segment->row_first;
    int row_end = segment->row_end;
    int query = static_cast<int>(block->query);
    int key = end - (t + 1) * size::keys + column;
#pragma unroll
    for (int i = 0; i < size::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = row + 16 * i + 8 * h;
            int m = query + r;
            int from = max(m - far, first) - key;
            int to = min(m - near, end) - key;
            to = r >= row_first && r < row_end ? to : from;
#pragma unroll
            for (int j = 0; j < size::keys / 8; j++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int n = 8 * j + e;
                    s[i][j][2 * h + e] = n >= from && n < to ? s[i][j][2 * h + e] : -INFINITY;
                }
            }
        }
    }
}

/* Raise `top` where it must be, for all rows of the warp at once. */
template <int D>
__device__ __forceinline__ void rescale(softmax<D> &state, float (&largest)[tiles<D>::mt][2],
                                        float (&o)[tiles<D>::mt][D / 8][4])
{
#pragma unroll
    for (int i = 0; i < tiles<D>::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = fmaxf(largest[i][h], __shfl_xor_sync(0xffffffffU, largest[i][h], 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
            top = fmaxf(top, state.top[i][h]);
            /* Without a key so far there is nothing to scale, but −∞ − −∞ is no number. */
            float by = top == -INFINITY ? 1.0F : dpe_exp2(state.top[i][h] - top);
            state.top[i][h] = top;
            state.sum[i][h] *= by;
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                o[i][j][2 * h] *= by;
                o[i][j][2 * h + 1] *= by;
            }
        }
    }
}

/* See that no logit lies more than
 * SLACK above the state's `top`. */
template <int D>
__device__ __forceinline__ void
raise(softmax<D> &state, const float (&s)[tiles<D>::mt][tiles<D>::keys / 8][4],
      float (&o)[tiles<D>::mt][D / 8][4], const float (&factor)[tiles<D>::mt][2])
{
    using size = tiles<D>;
    float largest[size::mt][2];
    bool above = false;
#pragma unroll
    for (int i = 0; i < size::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = fmaxf(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
            for (int j = 1; j < size::keys / 8; j++) {
                most = fmaxf(most, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
            }
            largest[i][h] = most * factor[i][h];
            above = above || largest[i][h] > state.top[i][h] + SLACK;
        }
    }
    if (__any_sync(0xffffffffU, above)) {
        rescale<D>(state, largest, o);
    }
}

/* p = 2^(factor s − top) for 16 keys, summed up in state. The accumulators of two matrices of 8
 * keys are the A operand for 16 keys as they lie. */
template <class T, int D>
__device__ __forceinline__ void weights(softmax<D> &state, uint32_t (&p)[tiles<D>::mt][4],
                                        const float (&s)[tiles<D>::mt][tiles<D>::keys / 8][4],
                                        int kk, const float (&factor)[tiles<D>::mt][2], bool masked)
{
#pragma unroll
    for (int i = 0; i < tiles<D>::mt; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int h = e % 2;
            const float *two = &s[i][2 * kk + e / 2][2 * h];
            float top = masked && state.top[i][h] == -INFINITY ? 0.0F : state.top[i][h];
            float low = dpe_exp2(__fmaf_rn(two[0], factor[i][h], -top));
            float high = dpe_exp2(__fmaf_rn(two[1], factor[i][h], -top));
            state.sum[i][h] += low;
            state.sum[i][h] += high;
            p[i][e] = pack(T{}, low, high);
        }
    }
}

/* o += P V for 16 keys. */
template <class T, int D>
__device__ __forceinline__ void weigh(float (&o)[tiles<D>::mt][D / 8][4],
                                      const uint32_t (&p)[tiles<D>::mt][4], int kk, uint32_t v_lane)
{
    using size = tiles<D>;
    uint32_t b[4];
#pragma unroll
    for (int j = 0; j < D / 16; j++) {
        dpe_ldmatrix_transposed(b, chunk_pair<D>(v_lane, j) +
                                       static_cast<uint32_t>(16 * kk * size::row_bytes));
#pragma unroll
        for (int i = 0; i < size::mt; i++) {
            dpe_mma(T{}, o[i][2 * j], p[i], b[0], b[1]);
            dpe_mma(T{}, o[i][2 * j + 1], p[i], b[2], b[3]);
        }
    }
}

template <int D>
__device__ __forceinline__ void read_factors(float (&factor)[tiles<D>::mt][2], const common *item)
{
    const float *rows = item->factor + lane_row<D>();
#pragma unroll
    for (int k = 0; k < 2 * tiles<D>::mt; k++) {
        factor[k / 2][k % 2] = rows[8 * k];
    }
}

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
 * only then t is asked for. */
template <class T, int D>
__device__ __forceinline__ void step(const place<T, D> &at, walker<D> &walk,
                                     float (&o)[tiles<D>::mt][D / 8][4], int i, int t, bool masked)
{
    using size = tiles<D>;
    float s[size::mt][size::keys / 8][4];
    /* Exponentials are computed between the matrix instructions that use them, but for masked tiles
     * at head dimension 128, where registers do not last for that. */
    bool early = masked && D == 128;
    float factor[size::mt][2];
    uint32_t p[size::keys / 16][size::mt][4];
    uint32_t k_slot = walk.slot;
    uint32_t v_slot = slot_after<D>(k_slot);
    walk.slot = slot_after<D>(v_slot);

    scores<T, D>(s, walk.held, walk.q_lane, at.slots + k_slot + walk.k_lane);
    if (masked) {
        mask_scores<D>(s, &at.item->block, segment_at(at, i), t);
    }
    read_factors<D>(factor, at.item);
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

/* Where the masked tiles before (pass 0) or behind the full ones end. */
__device__ __forceinline__ int masked_end(const dpe_segment *segment, int pass)
{
    return pass == 0 ? segment->full_first : segment->n_tiles;
}

template <class T, int D>
__device__ __forceinline__ void walk_segments(const place<T, D> &at, walker<D> &walk,
                                              float (&o)[tiles<D>::mt][D / 8][4])
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
                step<T, D>(at, walk, o, i, t, true);
            }
            int left = pass == 0 ? segment_at(at, i)->full_end - t : 0;
#pragma unroll 1
            for (; left > 0; left--) {
                step<T, D>(at, walk, o, i, 0, false);
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

/* Log-sum-exp of the parts [parts · rows][n_heads], behind their outputs. */
__device__ __forceinline__ float *partial_lse(const dpe_flash *call)
{
    return call->partial + call->parts * call->rows * call->n_heads * call->head_dim;
}

/* o / sum of a part of the keys to global memory as floats; else, as the dtype, to the warp's own
 * rows of the query tile, which no one reads any more. */
template <class T, int D>
__device__ __forceinline__ void store_lanes(const place<T, D> &at, const walker<D> &walk,
                                            const float (&o)[tiles<D>::mt][D / 8][4],
                                            unsigned char *shared, bool part)
{
    const dpe_flash *call = at.call;
    float *lse = part ? partial_lse(call) : call->lse;
    int column = at.thread % 4 * 2;
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
            for (int j = 0; j < D / 8; j++) {
                float low = o[i][j][2 * h] * by;
                float high = o[i][j][2 * h + 1] * by;
                if (!part) {
                    uint32_t *two = reinterpret_cast<uint32_t *>(shared + swizzled<D>(r, j));
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

/* The warp's rows from the query tile to global memory, whole lines at a time. */
template <class T, int D>
__device__ __forceinline__ void store_rows(const place<T, D> &at, const unsigned char *shared)
{
    const dpe_flash *call = at.call;
    uint4 *out = static_cast<uint4 *>(call->out);
    int warp_row = at.thread / 32 * 16 * tiles<D>::mt;
    for (int i = at.thread % 32; i < 16 * tiles<D>::mt * (D / 8); i += 32) {
        int r = warp_row + i / (D / 8);
        int c = i % (D / 8);
        if (r < at.item->block.rows) {
            out[((at.item->block.row + r) * call->n_heads + at.item->head) * (D / 8) + c] =
                *reinterpret_cast<const uint4 *>(shared + swizzled<D>(r, c));
        }
    }
}

/* Base-2 logit of a dot product of the query at position m. */
__device__ __forceinline__ float logit_factor(const dpe_flash *call, int64_t m)
{
    float factor = call->scale * 1.44269504088896F;
    if (call->log_n_length > 0.0F) {
        factor *= fmaxf(1.0F, logf(static_cast<float>(m) + 1.0F) / logf(call->log_n_length));
    }
    return factor;
}

/* The common part; every thread does its share. */
__device__ __forceinline__ void prepare(const dpe_flash &call, common *item, int thread)
{
    unsigned heads = static_cast<unsigned>(call.n_heads);
    unsigned head = blockIdx.x % heads;
    const dpe_query_block *block = call.blocks + blockIdx.x / heads;
    item->factor[thread] = logit_factor(&call, block->query + thread);
    if (thread == 0) {
        item->block = *block;
        item->query_row = block->row % call.rows;
        item->head = static_cast<int>(head);
        item->kv_head = static_cast<int>(head / (heads / static_cast<unsigned>(call.n_kv_heads)));
    }
}

/* Grid: query blocks, heads of one block side by side, so that those of a KV head meet in the
 * cache; block: 128 threads, tiles<D>::shared_bytes of shared memory. */
template <class T, int D>
__global__ void __launch_bounds__(128, 2) attention_mma(const __grid_constant__ dpe_flash call)
{
    using size = tiles<D>;
    DPE_SHARED(unsigned char, shared);
    place<T, D> at;
    walker<D> walk;
    float o[size::mt][D / 8][4];
    common *item = reinterpret_cast<common *>(shared);
    at.call = &call;
    at.item = item;
    at.thread = static_cast<int>(threadIdx.x);
    at.q = dpe_shared_address(shared) + size::header_bytes;
    at.slots = at.q + size::q_bytes;
    at.copy_to =
        static_cast<uint32_t>(swizzled<D>(at.thread / size::lanes, at.thread % size::lanes));
    prepare(call, item, at.thread);
    __syncthreads();
    int lane = at.thread % 32;
    int warp_row = at.thread / 32 * 16 * size::mt;
    walk.q_lane = at.q + static_cast<uint32_t>(swizzled<D>(warp_row + lane % 16, lane / 16));
    walk.k_lane = static_cast<uint32_t>(swizzled<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
    walk.v_lane = static_cast<uint32_t>(swizzled<D>(lane % 16, lane / 16));
#pragma unroll
    for (int i = 0; i < size::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            walk.state.top[i][h] = -INFINITY;
            walk.state.sum[i][h] = 0.0F;
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                o[i][j][2 * h] = o[i][j][2 * h + 1] = 0.0F;
            }
        }
    }
    if (at.item->block.n_segments > 0) {
        walk_segments(at, walk, o);
    }
    store_lanes(at, walk, o, shared + size::header_bytes, call.parts > 1);
    __syncwarp();
    if (call.parts <= 1) {
        store_rows(at, shared + size::header_bytes);
    }
}

/* The parts of a row of one head together; grid: rows · heads, block: one warp. */
template <class T> __global__ void attention_combine(const __grid_constant__ dpe_flash call)
{
    int64_t row = blockIdx.x;
    int64_t stride = call.rows * call.n_heads;
    const float *lse = partial_lse(&call) + row;
    const float *o = call.partial + row * call.head_dim;
    float top = -INFINITY;
    float sum = 0.0F;
    for (int p = 0; p < call.parts; p++) {
        float part = lse[p * stride];
        top = part > top || part != part ? part : top; /* a NaN stays one */
    }
    float from = top == -INFINITY ? 0.0F : top;
    for (int p = 0; p < call.parts; p++) {
        sum += expf(lse[p * stride] - from);
    }
    float by = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t j = threadIdx.x; j < call.head_dim; j += 32) {
        float mixed = 0.0F;
        for (int p = 0; p < call.parts; p++) {
            mixed += expf(lse[p * stride] - from) * o[p * stride * call.head_dim + j];
        }
        static_cast<T *>(call.out)[row * call.head_dim + j] = dpe_round<T>(mixed * by);
    }
    if (call.lse != NULL && threadIdx.x == 0) {
        call.lse[row] = top + logf(sum);
    }
}

template <class T, int D> int launch(const dpe_flash *call, void *stream)
{
    using size = tiles<D>;
    dim3 grid(static_cast<unsigned>(call->n_blocks * call->n_heads));
    int error = dpe_launch(attention_mma<T, D>, grid, dim3(size::threads), size::shared_bytes,
                           stream, *call);
    if (error == 0 && call->parts > 1) {
        dim3 rows(static_cast<unsigned>(call->rows * call->n_heads));
        error = dpe_launch(attention_combine<T>, rows, dim3(32), 0, stream, *call);
    }
    return error;
}

template <int D> int launch_dtype(const dpe_flash *call, void *stream)
{
    return call->dtype == DPE_BF16 ? launch<dpe_bf16, D>(call, stream)
                                   : launch<dpe_f16, D>(call, stream);
}

template <int D> constexpr dpe_tile_shape shape_of(void)
{
    return {tiles<D>::rows, tiles<D>::keys};
}

} // namespace

extern "C" struct dpe_tile_shape dpe_attention_mma_shape(int64_t head_dim)
{
    switch (head_dim) {
    case 64:
        return shape_of<64>();
    case 96:
        return shape_of<96>();
    case 128:
        return shape_of<128>();
    case 256:
        return shape_of<256>();
    default:
        return {0, 0};
    }
}

extern "C" int32_t dpe_attention_mma_parts(int64_t n_blocks, int64_t longest, int64_t n_heads,
                                           int multiprocessors)
{
    /* Two blocks live on a multiprocessor; a part of fewer than 8 tiles is not worth its start. */
    int64_t parts = 2 * static_cast<int64_t>(multiprocessors) / (n_blocks * n_heads);
    parts = parts < longest / 8 ? parts : longest / 8;
    return static_cast<int32_t>(parts < 1 ? 1 : parts);
}

extern "C" int dpe_attention_mma(const struct dpe_flash *call, void *stream)
{
    static const int invalid = 1; /* cudaErrorInvalidValue */
    if ((call->dtype != DPE_BF16 && call->dtype != DPE_F16) || call->n_blocks < 1 ||
        call->n_blocks > INT32_MAX / call->n_heads || (call->parts > 1 && call->partial == NULL)) {
        return invalid;
    }
    switch (call->head_dim) {
    case 64:
        return launch_dtype<64>(call, stream);
    case 96:
        return launch_dtype<96>(call, stream);
    case 128:
        return launch_dtype<128>(call, stream);
    case 256:
        return launch_dtype<256>(call, stream);
    default:
        return invalid;
    }
}
