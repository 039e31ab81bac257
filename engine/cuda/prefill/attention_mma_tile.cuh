/**
 * @file attention_mma_tile.cuh
 * The mma.sync attention kernel's sizes, its tiles in shared memory and the copies that fill them;
 * what it computes of a tile: scores, mask, running softmax, weighted values (attention_mma.cu has
 * the picture).
 */
#ifndef DPE_ATTENTION_MMA_TILE_CUH
#define DPE_ATTENTION_MMA_TILE_CUH

#include "engine/cuda/ptx/vector.cuh"

#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/log_n.cuh"

namespace
{

/* Sizes that follow from the head dimension. */
template <int D> struct tiles {
    /* 16-row matrices of a warp, whose results registers hold, and keys of a tile: two blocks of a
     * head of 256 fit an A100 (2 · 82 KiB of 164), one the cards of 100 KiB. */
    static constexpr int mt = D >= 256 ? 1 : 2;
    static constexpr int keys = D == 512 ? 16 : D == 256 ? 32 : 64;
    static constexpr int threads = 128; /* and no more rows than threads */
    /* Warps that share rows, a half of the columns of Q, K and V each; they add up their scores. */
    static constexpr int sharers = D == 512 ? 2 : 1;
    static constexpr int columns = D / sharers; /* of a warp */
    static constexpr int rows = threads / 32 / sharers * 16 * mt;
    static constexpr int row_bytes = 2 * D;
    static constexpr int slot_bytes = keys * row_bytes;
    static constexpr int slots = 3;
    static constexpr int q_bytes = rows * row_bytes;
    static constexpr int header_bytes = 1024;                /* struct common */
    static constexpr int sum_bytes = sharers > 1 ? 1024 : 0; /* of a warp, after the slots */
    static constexpr int shared_bytes =
        header_bytes + q_bytes + slots * slot_bytes + threads / 32 * sum_bytes;
    static constexpr bool q_in_registers = D == 64;
    /* Chunks of a row that swizzling exchanges among themselves. */
    static constexpr int swizzle = D == 96 ? 4 : 8;
    /* cp.async: lanes beside each other along a row, chunks of each, rows of one pass. */
    static constexpr int lanes = D == 96 ? 4 : D >= 256 ? 16 : D / 8;
    static constexpr int apart = 16 * lanes; /* bytes from a chunk to the thread's next */
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
 * multiples of 16·swizzle bytes, so the XOR of the lower chunks never carries into the rest. */
template <int D> __device__ __forceinline__ uint32_t chunk_pair(uint32_t first, int i)
{
    constexpr int pairs = tiles<D>::swizzle / 2;
    return (first ^ static_cast<uint32_t>(32 * (i % pairs))) +
           static_cast<uint32_t>(32 * pairs * (i / pairs));
}

/* Which of the warps that share rows this is, and their first row. */
template <int D> __device__ __forceinline__ int warp_share(void)
{
    return static_cast<int>(threadIdx.x) / 32 % tiles<D>::sharers;
}
template <int D> __device__ __forceinline__ int warp_row(void)
{
    return static_cast<int>(threadIdx.x) / 32 / tiles<D>::sharers * 16 * tiles<D>::mt;
}

/* Row of a lane's first accumulator. */
template <int D> __device__ __forceinline__ int lane_row(void)
{
    return warp_row<D>() + static_cast<int>(threadIdx.x) % 32 / 4;
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
    float factor[128]; /* by row: dpe_logit_factor */
};

/* What a thread keeps throughout. */
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
 * apart, so all of a thread's rows are swizzled alike. */
template <int D> __device__ __forceinline__ uint32_t pass_address(uint32_t tile, uint32_t to, int i)
{
    using size = tiles<D>;
    static_assert(size::pass % 8 == 0, "rows of a pass");
    return tile + to + static_cast<uint32_t>(i * size::pass * size::row_bytes);
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
            const unsigned char *source = from + i * size::pass * size::row_bytes + size::apart * c;
            dpe_copy_async_or_zero(pass_address<D>(tile, at.copy_to, i) + size::apart * c,
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
            dpe_copy_async(pass_address<D>(slot, at.copy_to, i) + size::apart * c,
                           from + i * size::pass * size::row_bytes + size::apart * c);
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
    for (int kk = 0; kk < size::columns / 16; kk++) {
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
                                        float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4])
{
#pragma unroll
    for (int i = 0; i < tiles<D>::mt; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = fmaxf(largest[i][h], __shfl_xor_sync(0xffffffffU, largest[i][h], 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
            top = fmaxf(top, state.top[i][h]);
            /* Without a key so far there is nothing to scale, but −∞ − −∞ is not a number. */
            float by = top == -INFINITY ? 1.0F : dpe_exp2(state.top[i][h] - top);
            state.top[i][h] = top;
            state.sum[i][h] *= by;
#pragma unroll
            for (int j = 0; j < tiles<D>::columns / 8; j++) {
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
      float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4], const float (&factor)[tiles<D>::mt][2])
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
__device__ __forceinline__ void weigh(float (&o)[tiles<D>::mt][tiles<D>::columns / 8][4],
                                      const uint32_t (&p)[tiles<D>::mt][4], int kk, uint32_t v_lane)
{
    using size = tiles<D>;
    uint32_t b[4];
#pragma unroll
    for (int j = 0; j < size::columns / 16; j++) {
        dpe_ldmatrix_transposed(b, chunk_pair<D>(v_lane, j) +
                                       static_cast<uint32_t>(16 * kk * size::row_bytes));
#pragma unroll
        for (int i = 0; i < size::mt; i++) {
            dpe_mma(T{}, o[i][2 * j], p[i], b[0], b[1]);
            dpe_mma(T{}, o[i][2 * j + 1], p[i], b[2], b[3]);
        }
    }
}

/* Base-2 logit of a score of the lane's rows. */
template <int D, bool CAPPED, class PLACE>
__device__ __forceinline__ void read_factors(float (&factor)[tiles<D>::mt][2], const PLACE &at)
{
    const float *rows = at.item->factor + lane_row<D>();
#pragma unroll
    for (int k = 0; k < 2 * tiles<D>::mt; k++) {
        factor[k / 2][k % 2] = CAPPED ? dpe_cap_factor(*at.call) : rows[8 * k];
    }
}

template <class T, int D>
__device__ __forceinline__ void cap_scores(float (&s)[tiles<D>::mt][tiles<D>::keys / 8][4],
                                           const common *item)
{
    const float *rows = item->factor + lane_row<D>();
#pragma unroll
    for (int k = 0; k < 2 * tiles<D>::mt; k++) {
        float factor = rows[8 * k];
#pragma unroll
        for (int j = 0; j < tiles<D>::keys / 4; j++) {
            float &x = s[k / 2][j / 2][k % 2 * 2 + j % 2];
            x = dpe_tanh(T{}, x * factor);
        }
    }
}

} // namespace

#endif
