/**
 * @file session_internal.h
 * The inside of a session: what the forward pass reads and writes.
 */
#ifndef DPE_SESSION_INTERNAL_H
#define DPE_SESSION_INTERNAL_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/model/slice.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"

/** Bytes of everything a session allocates; the estimate and the allocation are the same numbers.
 */
struct dpe_session_bytes {
    uint64_t residual; /**< x: [rows][hidden], float */
    uint64_t hidden;   /**< normed: [rows][hidden] */
    uint64_t heads;    /**< q and attended, each: [rows][n_heads][head_dim] */
    uint64_t kv_heads; /**< k and v, each: [rows][n_kv_heads][head_dim] */
    uint64_t mlp;      /**< gate and up, each: [rows][dense or shared width], or of experts */
    uint64_t part;     /**< what attention or MLP adds, before its norm: [rows][hidden], float */
    uint64_t sinks;    /**< log-sum-exps: [rows][n_heads], float */
    uint64_t added; /**< to the chosen keys (dpe_config.branches): what compressed and windowed keys
                         make, each [rows][n_heads][head_dim], and gates [rows][n_heads][3] */
    uint64_t gates; /**< of the output, [rows][attention's or a state's values], and β and decays,
                         each [rows][value heads of a state] */
    uint64_t states;    /**< of one layer with a state: of all branches, and those that are kept */
    uint64_t experts;   /**< made: [dpe_experts_room][hidden], float */
    uint64_t scores;    /**< of experts: [rows][n_experts], float */
    uint64_t routes;    /**< to experts: [rows][experts_per_token] and [n_experts] of 32 bits */
    uint64_t embedded;  /**< embeddings, for the inputs of each layer: [rows][hidden], float */
    uint64_t beside;    /**< what experts and the MLP beside them add up to: as `embedded` */
    uint64_t cache;     /**< keys, and values, of all layers: each [kv heads][capacity][head_dim] */
    uint64_t queries;   /**< that a selection keeps, one layer: [n_heads][capacity][head_dim] */
    uint64_t kv;        /**< of a dpe_kv, which holds keys, values and queries instead of these */
    uint64_t file;      /**< of one in a file */
    uint64_t marks;     /**< representatives of blocks that a selection chooses from, one layer */
    uint64_t logits;    /**< [logit_rows][vocab], host */
    uint64_t workspace; /**< of attention under the plan */
    uint64_t rotation;  /**< tables of the plan */
    uint64_t state;     /**< the backend's own */
    uint64_t lanes;     /**< buffers and backends of all lanes */
    uint64_t taps;      /**< host copies of q and k of all heads, float */
    uint64_t branches;  /**< lengths, what is lent; positions, offsets, branches, what is lent of a
                             step */
    uint64_t tokens;    /**< ids by cache row: [capacity] */
    uint64_t total;
    int64_t rows;       /**< of a forward pass: the chunk, or a step of all branches */
    int64_t logit_rows; /**< at least a step of all branches */
};

/** What a forward pass works with. A session has one of its own; where threads take sequences
 * through the layers by themselves, each has another one (session_lanes.c). */
struct dpe_lane {
    struct dpe_session *session;
    const struct dpe_ops *ops;       /**< of the session */
    const struct dpe_config *config; /**< of the session */
    struct dpe_backend *backend;
    int n_threads;
    /** Of sessions beside another one (options.beside) the buffers are those of that one, which has
     * the workspace too. */
    dpe_mem x, normed, q, k, v, attended, gate, up, workspace;
    /** NULL where the model does not need them. */
    dpe_mem part, lse, made, scores, routes, added, gates, embedded, beside;
};

/** A state that a session keeps beside those of its branches (session_states.c). */
struct dpe_kept_state {
    int64_t branch, tokens; /**< 0 tokens: it is free */
};

struct dpe_session {
    const struct dpe_session_remote *remote; /**< NULL: the model runs here */
    struct dpe_session *base; /**< whose buffers, threads and weights it uses: itself, or the one
                                 that it is beside */
    uint64_t element;         /**< ops->element_bytes */
    const struct dpe_model *model;     /**< the whole */
    struct dpe_model slice;            /**< what of it is computed here */
    const struct dpe_config *config;   /**< of the slice */
    const struct dpe_weights *weights; /**< of the slice */
    const struct dpe_ops *ops;
    struct dpe_lane own;
    struct dpe_session_options options; /**< resolved: no zeros */
    int64_t full_chunk;                 /**< before it was halved for lack of memory */
    bool halves;                        /**< the chunk may be halved: it is the default */
    struct dpe_session_bytes bytes;
    bool has_plan; /**< false only after a set_plan that failed half-way */
    /** Of each kind of layers: 0 is the session's (of the slice), which does not move the others.
     */
    struct dpe_plan plans[DPE_MAX_LAYER_KINDS];
    struct dpe_rotation rotations[DPE_MAX_LAYER_KINDS];
    int64_t prefix;     /**< common tokens; 0 while there is one branch */
    int64_t room;       /**< cache rows of each branch */
    int64_t n_branches; /**< ≥ 1 */
    int64_t *length;    /**< [options.branches] tokens of each branch, the prefix included */
    int64_t *positions, *offsets, *which; /**< [bytes.rows] of a step; its branches */
    /** [options.branches] what each branch reads from another one, which reads nothing from others
     * and has at least so many tokens. */
    struct dpe_lent *lent;
    struct dpe_lent *lents; /**< [bytes.rows] of a step */
    int32_t *tokens;        /**< [capacity] what each cache row was fed with */
    struct dpe_session_work work;
    struct dpe_kv *kv; /**< NULL: the cache is in `kept` */
    /** [n_layers] what each keeps of the rows; NULL: it is in `kv`, or the plan does not need it.
     */
    struct dpe_kept {
        dpe_mem k, v, q, marks, states;
    } * kept;
    struct dpe_states {
        int64_t *at; /**< [options.branches] tokens in the state of each; −1: it has none. NULL: no
                          layer has states */
        struct dpe_kept_state kept[DPE_KEPT_STATES];
    } states;
    float *logits;             /**< host */
    float *tap_q, *tap_k;      /**< host copies for the tap */
    struct dpe_norm_sums sums; /**< q NULL: none */
    dpe_tap tap;
    void *tap_user;
    dpe_poll poll;
    void *poll_user;
    struct dpe_lane *lanes;  /**< [n_lanes] for steps of few sequences (session_lanes.c) */
    int n_lanes;             /**< 0: there are none */
    int64_t n_beside;        /**< sessions beside this one */
    uint64_t workspace_room; /**< bytes of own.workspace, which serves them too */
};

/** dpe_session_create without the test of the device. */
dpe_status dpe_session_create_untested(const struct dpe_model *model, const struct dpe_plan *plan,
                                       const struct dpe_session_options *options,
                                       struct dpe_session **session, struct dpe_error *err);
/* session_remote.c: what a session does whose model another program runs. */
dpe_status dpe_session_remote_plan(struct dpe_session *session, const struct dpe_plan *plan,
                                   struct dpe_error *err);
dpe_status dpe_session_remote_feed(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, double *nll,
                                   struct dpe_error *err);
dpe_status dpe_session_remote_generate(struct dpe_session *session,
                                       const struct dpe_continuation *items, int64_t n,
                                       struct dpe_error *err);
/** Exchange a status with all peers; the result is the same everywhere (dpe_peers.meet). A failure
 *  that other processes may not share has to pass through here before it is returned; otherwise
 *  the others wait. */
dpe_status dpe_session_agree(struct dpe_session *session, dpe_status status, struct dpe_error *err);

/** The options without zeros, and the device's backend. DPE_USAGE, DPE_NO_DEVICE. */
dpe_status dpe_session_resolve(const struct dpe_session_options *options,
                               struct dpe_session_options *resolved, const struct dpe_ops **ops,
                               struct dpe_error *err);
/** Whether a plan of the whole model fits this model, and the backend and so many processes support
 *  it. */
dpe_status dpe_session_check_plan(const struct dpe_config *config, const struct dpe_plan *plan,
                                  const struct dpe_ops *ops, const struct dpe_peers *peers,
                                  struct dpe_error *err);

/* session_memory.c */

/** By what the bytes of a session are counted. */
struct dpe_session_ask {
    const struct dpe_config *config; /**< of the slice */
    const struct dpe_plan *plan;
    const struct dpe_ops *ops;
    struct dpe_session_options *options; /**< resolved */
};
/** What a session allocates. */
struct dpe_session_bytes dpe_session_count_bytes(const struct dpe_session_ask *ask);
/** The same after halving ask->options->prefill_chunk, if `halves`, until the session fits or the
 * chunk is the smallest; with the cache in a file, if there may be one, where it still does not
 * fit.
 */
struct dpe_session_bytes dpe_session_fit_bytes(const struct dpe_session_ask *ask, bool halves);
/** Rows of keys, values and queries as a dpe_kv has them. */
struct dpe_kv_shape dpe_session_kv_shape(const struct dpe_session_ask *ask);
/** Whether these options, not resolved, leave the chunk to the session: none is given, and there
 * are no peers that need the same one. */
bool dpe_session_may_halve(const struct dpe_session_options *options);
/** The next smaller chunk, the default divided by a power of two, so that the grid of a halved
 * chunk does not depend on the length. False when the chunk is the smallest. */
bool dpe_session_halve_chunk(const struct dpe_ops *ops, struct dpe_session_options *options);
/** DPE_NO_MEMORY when the session does not fit; the message has the bytes needed and available, the
 *  options that need less and the longest sequence that fits. */
dpe_status dpe_session_check_fits(const struct dpe_session_ask *ask,
                                  const struct dpe_session_bytes *bytes, struct dpe_error *err);
/** DPE_NO_MEMORY for an allocation that failed, with the session's size and what needs less. */
dpe_status dpe_session_out_of_memory(const struct dpe_session *session, struct dpe_error *err);

/** Bytes of the weights of a configuration. */
uint64_t dpe_session_weight_bytes(const struct dpe_config *config);

/** What the session is under its plan. */
static inline struct dpe_session_ask dpe_session_asked(struct dpe_session *s)
{
    return (struct dpe_session_ask){s->config, &s->plans[0], s->ops, &s->options};
}

/** A lane without a backend and buffers. */
static inline struct dpe_lane dpe_lane_of(struct dpe_session *s, int n_threads)
{
    return (struct dpe_lane){
        .session = s, .ops = s->ops, .config = s->config, .n_threads = n_threads};
}

/** Wait for what was launched; whether numbers are finite is looked at elsewhere. */
static inline dpe_status dpe_lane_wait(const struct dpe_lane *lane, struct dpe_error *err)
{
    int64_t layer = -1;
    int64_t row = -1;
    return lane->ops->finish(lane->backend, &layer, &row, err);
}

/* session_lanes.c: the buffers of a forward pass, x … added, and the workspace. */

uint64_t dpe_session_buffer_bytes(const struct dpe_session_bytes *bytes);
/** All of them but the workspace are another session's. */
void dpe_session_share_buffers(struct dpe_session_bytes *bytes);
/** Those that the bytes are not 0 for; the others become NULL. False: out of memory, or the
 *  device failed; what was allocated is released as usual. */
bool dpe_lane_allocate(struct dpe_lane *lane, const struct dpe_session_bytes *bytes);
void dpe_lane_release(struct dpe_lane *lane);

/* Steps in which each thread takes some of the sequences through all layers. */

/** Bytes of all lanes of a session with these options, resolved. */
uint64_t dpe_session_lanes_bytes(const struct dpe_session_ask *ask);
/** The lanes of the session under its plan, which it then has, instead of those that it had.
 * Without memory for them it has none, and steps are slower. */
void dpe_session_lanes_make(struct dpe_session *session);
void dpe_session_lanes_free(struct dpe_session *session);
/** Whether a step of these rows goes through the lanes. */
bool dpe_session_takes_lanes(const struct dpe_session *session, const struct dpe_batch *batch);
/** dpe_forward of a step, and its logits [rows][vocab] where not NULL, with the same results. */
dpe_status dpe_session_run_lanes(struct dpe_session *session, const struct dpe_batch *batch,
                                 float *logits, struct dpe_error *err);
/** Logits of the rows in lane->normed; positions NULL: one row at `position`. */
dpe_status dpe_lane_logits(struct dpe_lane *lane, int64_t rows, const int64_t *positions,
                           int64_t position, float *logits, struct dpe_error *err);

/* session_states.c; all of it nothing for models without states. */

/** Bytes of the states of one layer that has them; 0: no layer does. */
uint64_t dpe_session_state_bytes(const struct dpe_config *config, int64_t branches);
/** Bring the states of a branch to its length, before it goes on; as dpe_forward. */
dpe_status dpe_session_states_ready(struct dpe_session *session, int64_t branch,
                                    struct dpe_error *err);
/** They went with it to its new length. */
void dpe_session_states_passed(struct dpe_session *session, int64_t branch);
/** A pass of it failed. */
void dpe_session_states_lost(struct dpe_session *session, int64_t branch);
/** Its tokens beyond the first `most` are gone. */
void dpe_session_states_cut(struct dpe_session *session, int64_t branch, int64_t most);
/** There will be one branch, of at most so many tokens. */
void dpe_session_states_join(struct dpe_session *session, int64_t most);
/** What branch 0 has becomes the prefix of others. */
dpe_status dpe_session_states_branch(struct dpe_session *session, struct dpe_error *err);
/** `to` has the first n tokens of `from`. */
void dpe_session_states_copy(struct dpe_session *session, int64_t from, int64_t to, int64_t n);

/** Test the device of `options` with `tokens` tokens, on a small model of the kind of `config`
 * under such a selection, unless it has passed in this process: `ways` are those that are right.
 * DPE_NO_DEVICE where a part has none. */
dpe_status dpe_session_check_device(const struct dpe_config *config,
                                    const struct dpe_selection *selection,
                                    const struct dpe_session_options *options, int64_t tokens,
                                    struct dpe_ways *ways, struct dpe_error *err);

/** Where the rows of a layer's cache are. */
struct dpe_store dpe_session_store(const struct dpe_session *session, int64_t layer);
/** Tokens that still fit into a branch. */
int64_t dpe_session_room(const struct dpe_session *session, int64_t branch);

/** One branch again, of the first `keep` tokens. */
void dpe_session_join(struct dpe_session *session, int64_t keep);

/** Run a batch (a run: 1 … chunk tokens, not across a grid line) through all layers and store
 *  their keys and values; session->length stays. The normalised hidden states of the wanted rows
 *  are then in lane->normed, rows 0 … wanted−1. */
dpe_status dpe_forward(struct dpe_lane *lane, const struct dpe_batch *batch, struct dpe_error *err);
/** Rows first … first+n−1 of a step as one of their own; of a run all. */
struct dpe_batch dpe_batch_rows(const struct dpe_batch *batch, int64_t first, int64_t n);
/** The representatives of the blocks that a branch's own tokens complete, of which it has n with
 *  the prefix; where its cache rows were copied. Nothing where the plan keeps none. */
void dpe_forward_represent(struct dpe_session *session, int64_t layer, int64_t branch, int64_t n);

#endif
