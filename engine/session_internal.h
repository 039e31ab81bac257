/**
 * @file session_internal.h
 * A session from inside: what the forward pass reads and writes.
 */
#ifndef DPE_SESSION_INTERNAL_H
#define DPE_SESSION_INTERNAL_H

#include "ops.h"

/** Bytes of everything a session allocates; the estimate and the allocation are the same numbers.
 */
struct dpe_session_bytes {
    uint64_t hidden;    /**< x and normed, each: [chunk][hidden] */
    uint64_t heads;     /**< q and attended, each: [chunk][n_heads][head_dim] */
    uint64_t kv_heads;  /**< k and v, each: [chunk][n_kv_heads][head_dim] */
    uint64_t mlp;       /**< gate and up, each: [chunk][intermediate] */
    uint64_t cache;     /**< keys, and values, of one layer: [n_kv_heads][capacity][head_dim] */
    uint64_t logits;    /**< [logit_rows][vocab], host */
    uint64_t workspace; /**< of attention under the plan */
    uint64_t rotation;  /**< tables of the plan */
    uint64_t state;     /**< the backend's own */
    uint64_t total;
    int64_t logit_rows;
};

struct dpe_session {
    const struct dpe_model *model;
    const struct dpe_config *config;
    const struct dpe_weights *weights;
    const struct dpe_ops *ops;
    struct dpe_backend *backend;
    struct dpe_session_options options; /**< resolved: no zeros */
    struct dpe_session_bytes bytes;
    bool has_plan; /**< false only after a set_plan that failed half-way */
    struct dpe_plan plan;
    struct dpe_rotation rotation;
    int64_t length; /**< tokens in the cache */
    dpe_mem x, normed, q, k, v, attended, gate, up, workspace;
    dpe_mem *cache_k, *cache_v; /**< [n_layers] */
    float *logits;              /**< host */
    float *tap_q, *tap_k;       /**< host copies for the tap */
    dpe_tap tap;
    void *tap_user;
};

/** Run `rows` tokens (1 … chunk, not across a grid line) at positions length … through all layers
 *  and store their keys and values; session->length stays. The normalised hidden states of the last
 *  `wanted` rows are then in session->normed, rows 0 … wanted−1. */
dpe_status dpe_forward(struct dpe_session *session, const int32_t *tokens, int64_t rows,
                       int64_t wanted, struct dpe_error *err);

#endif
