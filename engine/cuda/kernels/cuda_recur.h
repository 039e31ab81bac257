/**
 * @file cuda_recur.h
 * Layers with a state (model/config/recurrent.h) on the device. A run goes in pieces that end at
 * multiples of 64 tokens: what a piece needs of itself alone is made for all pieces side by side,
 * the state then goes from piece to piece. Few tokens, and a token each of several states, go one
 * by one in a single kernel.
 *
 * In a piece that begins with the state S, with a_i = e^(g_1 + … + g_i), D_ij = e^(g_(j+1) + … +
 * g_i) and L_ij = β_i D_ij (k_i · k_j) for j < i:
 *
 *     u = (1 + L)^-1 β (v − a Sᵀ k),  o = a Sᵀ q + M u with M_ij = D_ij (q_i · k_j) for j ≤ i,
 *     S ← a_n S + Σ_j D_nj k_j u_jᵀ
 *
 * Products go through tensor cores: each float is a sum of bfloat16s, two where the model has
 * halves (16 bits of a float's 24) and three where it has floats (all of them), and products of
 * those are added up in float. Sums have a fixed order.
 */
#ifndef DPE_CUDA_RECUR_H
#define DPE_CUDA_RECUR_H

#include "engine/model/config/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DPE_RECUR_PIECE = 64,
    DPE_RECUR_TOKENS = 8, /**< of a piece: so many or fewer go one by one */
    DPE_RECUR_MOST_DIM = 256,
};

/** One call. Pointers are device memory; without padding, so that launches can be compared. */
struct dpe_recur {
    enum dpe_dtype dtype; /**< of what has no other type */
    int32_t width;        /**< of the convolution */
    int32_t key_heads, value_heads, key_dim, value_dim;
    int32_t tiled;
    int32_t lead;               /**< tokens of the first piece that came before the rows */
    float eps, reach;           /**< reach: β reaches 1, or 2 */
    const void *convolution[3]; /**< of q, k, v: [channels][width] */
    const float *rate, *step;   /**< [value_heads] */
    const float *norm;          /**< [value_dim] */
    const void *x[3];           /**< q, k, v as projected: [rows][heads · dim] */
    const void *gate;           /**< [rows][value_heads · value_dim] */
    const void *beta, *decay;   /**< [rows][value_heads] */
    void *out;                  /**< [rows][value_heads · value_dim] */
    float *states;              /**< dpe_recurrent_floats each */
    const int64_t *which;       /**< [rows] the state of each row, or NULL: a run of … */
    int64_t state;              /**< … this one */
    int64_t rows;
};

/** Whether a head of this size fits into the registers of a block: up to 144 numbers of a key where
 *  a value has 128, 96 where it has 192, 64 where it has 256. */
bool dpe_recur_supports(const struct dpe_recurrent *shape);
/** Floats of the workspace of dpe_kernel_recur_pieces for so many pieces. */
int64_t dpe_recur_floats(const struct dpe_recurrent *shape, int64_t pieces);
/** A run of (lead + rows + 63) / 64 pieces. `workspace` [dpe_recur_floats] 16-byte aligned. Five
 *  launches: convolution and norms (a warp a head of a token), which rows the state keeps of them
 *  (a thread a channel), L, its inverse and M (a block of 256 a piece and key head; 66 KiB), the
 *  state (a block of 256 for 32 columns of a value head; 18 KiB and 144 bytes for each of key_dim),
 *  norm and gate (a warp a head of a token). */
int dpe_kernel_recur_pieces(const struct dpe_recur *call, float *workspace);
/** A run token by token, or a token of each row's state: one launch, a block a state and value
 *  head, whose state lies in registers (at most 48 floats a thread). `arrived` [rows or 1]
 *  [key_heads] is 0 before and afterwards: the last block of a key head keeps its rows of q and k.
 */
int dpe_kernel_recur_tokens(const struct dpe_recur *call, int32_t *arrived);

/** out [n][each] = out · σ(gate [n]). */
int dpe_kernel_output_gate(enum dpe_dtype dtype, void *out, const void *gate, int64_t n,
                           int64_t each);

#ifdef __cplusplus
}
#endif
#endif
