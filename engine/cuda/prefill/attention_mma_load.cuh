/**
 * @file attention_mma_load.cuh
 * The mma.sync attention kernel's sizes, its tiles in shared memory and the copies that fill them
 * (attention_mma.cu has the picture).
 */
#ifndef DPE_ATTENTION_MMA_LOAD_CUH
#define DPE_ATTENTION_MMA_LOAD_CUH

#include "engine/cuda/ptx/device.cuh"

#include "engine/cuda/kernels/attention.h"

namespace
{

/* Sizes that follow from the head dimension. */
template <int D> struct tiles {
    static constexpr int mt = 2;        /* 16-row matrices of a warp: what registers hold */
    static constexpr int threads = 128; /* and no more rows than threads */
    static constexpr int rows = threads / 32 * 16 * mt;
    static constexpr int keys = 64;
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
 * multiples of 16·swizzle bytes, so the XOR of the lower chunks never carries into the rest. */
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

} // namespace

#endif
