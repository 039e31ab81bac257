/**
 * @file recurrent.h
 * Layers that keep a state in place of keys and values: a gated delta rule after a short causal
 * convolution (Yang et al. 2024, arXiv 2412.06464), as data.
 *
 * For each value head, whose key head is its number divided by value_heads / key_heads (`tiled`, as
 * in GGUF files: its number modulo key_heads), with q = x_q / ‖x_q‖ / √key_dim and k = x_k / ‖x_k‖
 * (ε = 1e-6 below the root):
 *
 *     S ← e^(rate · softplus(decay + step)) S          S [key_dim][value_dim]
 *     u = β (v − Sᵀ k),  S ← S + k uᵀ,  o = Sᵀ q        β = σ(beta), or 2 σ(beta)
 *     out = rmsnorm(o) · silu(gate)
 *
 * Before it each channel of q, k and v goes through a convolution over its last `width` numbers,
 * and silu. So the state of a layer after some tokens is the last width − 1 rows of q, k and v
 * before the convolution, and S: it has one size for any number of tokens, and cannot be cut back.
 */
#ifndef DPE_RECURRENT_H
#define DPE_RECURRENT_H

#include <stdbool.h>
#include <stdint.h>

/** The sizes of such layers; all counts are ≥ 1, value_heads 0: no layer is one. */
struct dpe_recurrent {
    int64_t key_heads, value_heads; /**< key_heads divides value_heads */
    int64_t key_dim, value_dim;     /**< of a head */
    int64_t width;                  /**< of the convolution, ≥ 2 */
    bool doubled;                   /**< β reaches 2 */
    bool tiled;                     /**< the order of value heads */
    double eps;                     /**< of the norm of o */
};

/** Numbers of a token's q (and k), and of its v. */
static inline int64_t dpe_recurrent_keys(const struct dpe_recurrent *r)
{
    return r->key_heads * r->key_dim;
}
static inline int64_t dpe_recurrent_values(const struct dpe_recurrent *r)
{
    return r->value_heads * r->value_dim;
}
/** Floats of the rows before the convolution, which come first in a state: [width − 1][q k v]. */
static inline int64_t dpe_recurrent_tail(const struct dpe_recurrent *r)
{
    return (r->width - 1) * (2 * dpe_recurrent_keys(r) + dpe_recurrent_values(r));
}
/** Floats of a state; S [value_heads][key_dim][value_dim] comes after the tail. */
static inline int64_t dpe_recurrent_floats(const struct dpe_recurrent *r)
{
    return dpe_recurrent_tail(r) + r->value_heads * r->key_dim * r->value_dim;
}
/** Which value head is number `i` of those of a key head. */
static inline int64_t dpe_recurrent_head(const struct dpe_recurrent *r, int64_t key_head, int64_t i)
{
    return r->tiled ? i * r->key_heads + key_head : key_head * (r->value_heads / r->key_heads) + i;
}
#endif
