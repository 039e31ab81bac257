/**
 * @file session_internal.h
 * A session from inside: what the forward pass reads and writes.
 */
#ifndef DPE_SESSION_INTERNAL_H
#define DPE_SESSION_INTERNAL_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/model/slice.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"
#include "engine/plan/plan.h"
#include "engine/plan/rotation.h"
#include "engine/session/session.h"

/** Bytes of everything a session allocates; the estimate and the allocation are the same numbers.
 */
struct dpe_session_bytes {
    uint64_t residual;  /**< x: [rows][hidden], float */
    uint64_t hidden;    /**< normed: [rows][hidden] */
    uint64_t heads;     /**< q and attended, each: [rows][n_heads][head_dim] */
    uint64_t kv_heads;  /**< k and v, each: [rows][n_kv_heads][head_dim] */
    uint64_t mlp;       /**< gate and up, each: [rows][intermediate] */
    uint64_t cache;     /**< keys, and values, of one layer: [n_kv_heads][capacity][head_dim] */
    uint64_t logits;    /**< [logit_rows][vocab], host */
    uint64_t workspace; /**< of attention under the plan */
    uint64_t rotation;  /**< tables of the plan */
    uint64_t state;     /**< the backend's own */
    uint64_t taps;      /**< host copies of q and k of all heads, float */
    uint64_t branches;  /**< lengths, and positions and offsets of a step: [branches] each */
    uint64_t tokens;    /**< ids by cache row: [capacity] */
    uint64_t total;
    int64_t rows;       /**< of a forward pass: the chunk, or a step of all branches */
    int64_t logit_rows; /**< at least a step of all branches */
};

struct dpe_session {
    uint64_t element;                  /**< ops->element_bytes */
    const struct dpe_model *model;     /**< the whole */
    struct dpe_model slice;            /**< what of it is computed here */
    const struct dpe_config *config;   /**< of the slice */
    const struct dpe_weights *weights; /**< of the slice */
    const struct dpe_ops *ops;
    struct dpe_backend *backend;
    struct dpe_session_options options; /**< resolved: no zeros */
    int64_t full_chunk;                 /**< before it was halved for want of memory */
    bool halves;                        /**< nobody asked for the chunk */
    struct dpe_session_bytes bytes;
    bool has_plan;        /**< false only after a set_plan that failed half-way */
    struct dpe_plan plan; /**< of the slice */
    struct dpe_rotation rotation;
    int64_t prefix;     /**< common tokens; 0 while there is one branch */
    int64_t room;       /**< cache rows of each branch */
    int64_t n_branches; /**< ≥ 1 */
    int64_t *length;    /**< [options.branches] tokens of each branch, the prefix included */
    int64_t *positions, *offsets; /**< [options.branches] of a step */
    int32_t *tokens;              /**< [capacity] what each cache row was fed with */
    struct dpe_session_work work;
    dpe_mem x, normed, q, k, v, attended, gate, up, workspace;
    dpe_mem *cache_k, *cache_v; /**< [n_layers] */
    float *logits;              /**< host */
    float *tap_q, *tap_k;       /**< host copies for the tap */
    struct dpe_norm_sums sums;  /**< q NULL: none */
    dpe_tap tap;
    void *tap_user;
    dpe_poll poll;
    void *poll_user;
};

/** Tokens of a branch, the prefix included; branch 0 is all there is without branches. */
static inline int64_t dpe_session_branch_length(const struct dpe_session *session, int64_t branch)
{
    return session->length[branch];
}

/** dpe_session_create on a device that nobody has tested. */
dpe_status dpe_session_create_untested(const struct dpe_model *model, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session **session, struct dpe_error *err);
/** Hear from all peers whether they can go on; the same status everywhere (dpe_peers.meet). A
 *  failure that may be this process's alone has to be told here before it is returned, else the
 *  others wait. */
dpe_status dpe_session_agree(struct dpe_session *session, dpe_status status, struct dpe_error *err);

/** Sizes and remedies of a session that does not fit, each without the other: "a session of 512
 *  tokens in chunks of 128", "a smaller --length or --chunk needs less" ("": nothing can be
 *  changed). Of resolved options. Returns the buffer. */
enum { DPE_SESSION_WORDS = 256 };
const char *dpe_session_size_words(const struct dpe_session_options *options,
                                   char text[DPE_SESSION_WORDS]);
const char *dpe_session_less_words(const struct dpe_session_options *options,
                                   char text[DPE_SESSION_WORDS]);
/** What max_memory is called; NULL: it was not said, or cannot be. */
const char *dpe_session_memory_word(const struct dpe_session_options *options);

/** One branch again, of the first `keep` tokens. */
void dpe_session_join(struct dpe_session *session, int64_t keep);

/** Run a batch (a run: 1 … chunk tokens, not across a grid line) through all layers and store
 *  their keys and values; session->length stays. The normalised hidden states of the wanted rows
 *  are then in session->normed, rows 0 … wanted−1. */
dpe_status dpe_forward(struct dpe_session *session, const struct dpe_batch *batch,
                       struct dpe_error *err);

#endif
