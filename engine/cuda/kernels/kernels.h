/**
 * @file kernels.h
 * The kernels of the CUDA backend but for attention, as host calls. Pointers are device memory
 * unless stated otherwise; `dtype` is that of activations and weights of the model (struct
 * dpe_backend.dtype), x the residual stream in float. Every call is asynchronous on the default
 * stream and returns the CUDA error code of its launch, 0 = launched. Sizes ≥ 1, 64-bit; where
 * nothing is said, no alignment beyond that of the elements is needed, and multiples of 8 elements
 * on 16 bytes go faster. Results do not depend on the grid: every sum has a fixed order.
 */
#ifndef DPE_KERNELS_H
#define DPE_KERNELS_H

#include "engine/model/config/config.h"
#include "engine/plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** x [rows][width] = rows `tokens` of table [vocab][width]. */
int dpe_kernel_embed(enum dpe_dtype dtype, const void *table, const int32_t *tokens, int64_t rows,
                     int64_t width, float *x);
/** out [rows][width] = x / sqrt(mean(x²) + eps) * weight [width]; and with `first` not NULL what
 *  dpe_kernel_nonfinite does. */
int dpe_kernel_rmsnorm(enum dpe_dtype dtype, const float *x, const float *weight, int64_t rows,
                       int64_t width, float eps, void *out, int64_t layer,
                       unsigned long long *first);
/** The same for x [rows][width] of the model's dtype, in place. */
int dpe_kernel_head_norm(enum dpe_dtype dtype, void *x, const float *weight, int64_t rows,
                         int64_t width, float eps);
/** Each row of x [rows][width] minus its mean. */
int dpe_kernel_centre(float *x, int64_t rows, int64_t width);
/** x [n] += y [n]; `dtype` is that of y. */
int dpe_kernel_add(enum dpe_dtype dtype, float *x, const void *y, int64_t n);
/** x [n] *= factor; 0: zeros, whatever was there. */
int dpe_kernel_scale(float *x, int64_t n, float factor);
/** Elements from … from + n − 1 of every row of x [rows][width] *= factor. */
int dpe_kernel_scale_part(enum dpe_dtype dtype, void *x, int64_t rows, int64_t width, int64_t from,
                          int64_t n, float factor);
/** out [rows][width] += bias [width]. `dtype` is that of out. */
int dpe_kernel_bias(enum dpe_dtype dtype, void *out, const float *bias, int64_t rows,
                    int64_t width);
/** x [rows][width] += factor times rows `tokens` of table [..][width]. */
int dpe_kernel_add_rows(enum dpe_dtype dtype, void *x, const void *table, const int32_t *tokens,
                        int64_t rows, int64_t width, float factor);
/** gate [n] = what an activation makes of gate and up. */
int dpe_kernel_activate(enum dpe_activation kind, enum dpe_dtype dtype, void *gate, const void *up,
                        int64_t n);
/** out [n] = x [n] in the model's dtype. */
int dpe_kernel_narrow(enum dpe_dtype dtype, const float *x, int64_t n, void *out);
/** *first = min(*first, layer << 40 | row) over the rows of x [rows][width] with a NaN or infinity;
 *  rows < 2^40. */
int dpe_kernel_nonfinite(const float *x, int64_t rows, int64_t width, int64_t layer,
                         unsigned long long *first);
enum { DPE_FEW_ROWS = 8, DPE_FEW_WEIGHTS = 3 };
/** out [rows][n] = x [rows][k] · w [n][k]ᵀ + bias [n] (NULL: none). w 16-byte aligned. */
struct dpe_few_weight {
    const void *w;
    const float *bias;
    void *out;
    int64_t n;
};
/** Products of one x with up to three weights. */
struct dpe_few_product {
    enum dpe_dtype dtype; /**< of w and x */
    bool out_float;       /**< out is float; else of that dtype */
    bool accumulate;      /**< added to what is in out */
    const void *x;        /**< 16-byte aligned */
    int64_t rows, k;      /**< rows ≤ DPE_FEW_ROWS, k a multiple of 8 */
    int n_weights;
    struct dpe_few_weight weights[DPE_FEW_WEIGHTS];
};
/** For few rows, one launch for all weights: warps read a column's row of w once for up to four
 *  rows. */
int dpe_kernel_product_few(const struct dpe_few_product *product);
/** The same for an MLP: out of the first of two weights of as many columns = silu(its product) ·
 *  that of the second, whose out is not written. Of the model's dtype, not accumulated. */
int dpe_kernel_gated_few(const struct dpe_few_product *product);
/** Numbers of about the normal distribution times `deviation`, a function of (seed, index). */
int dpe_kernel_random(enum dpe_dtype dtype, void *out, int64_t n, float deviation, uint64_t seed);
/** tokens[r] = index of the largest of logits [rows][vocab] (ties to the lower), −1 when one of
 *  them is not finite. */
int dpe_kernel_argmax(const float *logits, int64_t rows, int64_t vocab, int32_t *tokens);
/** nll[r] = ln Σ exp(logits[r]) − logits[r][targets[r]], sums in double; NaN when a logit is not
 *  finite. */
int dpe_kernel_nll(const float *logits, const int32_t *targets, int64_t rows, int64_t vocab,
                   double *nll);

/** Sums of norms: over rows of q [rows][n_heads][2 · n_pairs] and k [rows][n_kv_heads][…]. */
struct dpe_norm_shape {
    int64_t rows, n_heads, n_kv_heads, n_pairs;
    bool products; /**< of ‖q^(j)‖·‖k^(j)‖, else of ‖q^(j)‖ and, after them, of ‖k^(j)‖ */
};
enum { DPE_NORM_PARTS = 64 }; /**< ranges of rows that are added up side by side */
/** sums [n_heads (+ n_kv_heads)][n_pairs], norms in float, added in double in an order that depends
 *  on the number of rows alone; room for DPE_NORM_PARTS as many after them. */
int dpe_kernel_norms(enum dpe_dtype dtype, const void *q, const void *k,
                     const struct dpe_norm_shape *shape, double *sums);

/** How rows of [head][row][head_dim] are rotated: by table `table` (pairs outside the head's mask
 * by `base`), and back by table `undo` where cos is not NULL (what is read was rotated by that).
 * Tables are [positions][n_pairs]. */
struct dpe_row_rotation {
    const float *cos, *sin;
    const float *base_cos, *base_sin; /**< with a mask */
    const float *undo_cos, *undo_sin; /**< or NULL */
    const uint8_t *mask;              /**< [n_heads][n_pairs] of the layer, or NULL */
};
/** Where query or key rows lie, at which positions they stand, where rotated ones go. Without
 * padding, so that launches can be compared. */
struct dpe_rotated_rows {
    enum dpe_dtype dtype;
    int32_t n_rotations; /**< 0: the rows are copied as they are */
    const void *from;
    int64_t from_row, from_head; /**< strides in elements */
    void *to;
    int64_t to_row, to_head;
    int64_t to_copy; /**< from the rows of one rotation to those of the next */
    int64_t rows, head_dim;
    int64_t n_heads;          /**< heads of `to` */
    int64_t group;            /**< head h reads head h / group of `from` */
    int64_t first;            /**< position of row 0 … */
    const int64_t *positions; /**< … or of every row */
    /** Rows of `to` are those of `from` plus to_offset[r] + positions[r], or row r + to_first. */
    const int64_t *to_offsets;
    int64_t to_first;
    const float *late; /**< [head_dim] by which what is rotated is multiplied, or NULL */
    struct dpe_row_rotation rotations[DPE_MAX_BANDS];
};
enum { DPE_ROTATED_AT_ONCE = 4 };
/** to[c][h][r] = R(rotation c at the row's position) from[h / group][r], c = 0 … n_rotations−1, of
 *  each of n calls, at most DPE_ROTATED_AT_ONCE of one dtype, in one launch. */
int dpe_kernel_rotate(const struct dpe_rotated_rows *calls, int n);

/* ------------------------------------------------------------ routed experts, attention sinks */

/** Which experts rows take, and how these weigh. */
struct dpe_routing {
    float *scores;                /**< [rows][n_experts] */
    const float *shift, *factors; /**< [n_experts], or NULL */
    int64_t rows, n_experts, per_token;
    struct dpe_router router;
    bool normalised;
};
/** Scores become weights, as the router says: those of the per_token largest (ties: the lower
 * index), as they are or (normalised) divided by their sum, times `factors`, and 0 for the others.
 * A row with a NaN gets NaN. */
int dpe_kernel_choose_experts(const struct dpe_routing *choice);
/** counts [n_experts] of the rows of weights [rows][n_experts] that take each (what is not 0), and
 *  routes [most]: the first `most` of these rows in their order, one expert after the other. */
int dpe_kernel_route(const float *weights, int64_t rows, int64_t n_experts, int64_t most,
                     int32_t *counts, int32_t *routes);

/** A matrix of an expert. */
struct dpe_cuda_matrix {
    void *weight; /**< of the backend's dtype */
    void *bias;   /**< float; NULL: none */
};

/** out [most][n] = x · Wᵀ + bias for all routed rows, W [n][k] of their experts: x [..][k] of
 * dtype, rows `routes` of it, or one row after the other. A warp has eight columns of a row; with
 * `tiles` and more rows than experts, halves go through tensor cores: 128 threads a tile of 64 rows
 * of an expert and 128 columns, 36 KiB. */
struct dpe_grouped {
    enum dpe_dtype dtype;
    bool out_float, gathers, tiles;
    const struct dpe_cuda_matrix *matrices; /**< device [n_experts] */
    const int32_t *counts, *routes;
    int64_t n_experts, most; /**< routed rows at most */
    const void *x;
    void *out;
    int64_t n, k;
    const float *weights; /**< [rows][n_experts] by which x · Wᵀ is multiplied, or NULL */
};
int dpe_kernel_grouped(const struct dpe_grouped *grouped);

/** out [rows][width] += weights · made [routed rows][width], of the experts of each row in order.
 */
struct dpe_combined {
    const float *made, *weights;
    const int32_t *counts, *routes;
    int64_t n_experts, rows, most, width; /**< most: routed rows */
    float *out;
    bool weighed; /**< what is made has its weights already */
};
int dpe_kernel_combine(const struct dpe_combined *combined);
/** out [rows][n_heads][head_dim] *= 1 / (1 + e^(sink [n_heads] − lse [rows][n_heads])). */
int dpe_kernel_sinks(enum dpe_dtype dtype, void *out, const float *lse, const float *sink,
                     int64_t rows, int64_t n_heads, int64_t head_dim);

#ifdef __cplusplus
}
#endif

#endif
