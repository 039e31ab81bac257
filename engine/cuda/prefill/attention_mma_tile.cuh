/**
 * @file attention_mma_tile.cuh
 * What the mma.sync attention kernel computes of a tile: scores, mask, running softmax, weighted
 * values.
 */
#ifndef DPE_ATTENTION_MMA_TILE_CUH
#define DPE_ATTENTION_MMA_TILE_CUH

#include "engine/cuda/prefill/attention_mma_load.cuh"

namespace
{

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
            /* Without a key so far there is nothing to scale, but −∞ − −∞ is not a number. */
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

} // namespace

#endif
