/**
 * @file ops.h
 * The table of operations under the forward pass (inside the engine; tools see session.h).
 *
 * A backend is a `struct dpe_ops`: every slot is first filled with the plain reference
 * (ops_reference.c: double accumulators, obvious loops), then a backend overrides what it does
 * better. Only slots that say so may be NULL: there is nothing to do. forward.c holds activations
 * as opaque `dpe_mem` handles that only slots dereference, so that the same forward pass runs on a
 * device. A backend answers once, in `open`, whether it supports a model and plan; nothing is
 * declined later.
 *
 * Layouts: activations are row-major [rows][width]; q and attention output
 * [rows][n_heads][head_dim]; k, v [rows][n_kv_heads][head_dim]; the cache per layer
 * [n_kv_heads][capacity][head_dim], keys unrotated, so that one cache serves every plan alike. CPU
 * backends: all of it fp32, host memory; or the cache is a `struct dpe_kv`, from which tiles are
 * read as fp32 (dpe_attention_rows).
 */
#ifndef DPE_OPS_H
#define DPE_OPS_H

#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/model/config/layer_weights.h"
#include "engine/ops/kv.h"
#include "engine/ops/options.h"
#include "engine/plan/plan.h"

/** Backend memory: a host pointer on CPU backends, a device pointer on others. */
typedef void *dpe_mem;

/** One attention call: `rows` queries, each over the keys 0 … its position, one layer.
 *
 * Where a key lies. The cache may hold several branches after a common prefix (session.h,
 * "Branches"): the key at position n of a query whose branch has offset o lies in cache row n when
 * n < prefix, else in row n + o. A cache without branches is prefix 0, offset 0: row = position.
 * Where the backend says that it lends, a branch may have no rows of its own for its first
 * positions: the key at position n < lent.positions lies in row n + lent.offset, which belongs to
 * another branch.
 *
 * Which queries. Either `positions` is NULL: one branch, row r at position start + r, all with
 * `offset` and `lent`. Or `positions`, `offsets` and `lents` are given (host memory): one row of
 * each of several branches, row r at positions[r] with offsets[r] and lents[r]; start, offset and
 * lent are then not used. lents NULL: nothing is lent. */

/** What a branch reads from another one: `positions` is a multiple of DPE_LENT_UNIT, so that who
 * takes keys in blocks of that many or of a divisor meets the same blocks as without it. */
struct dpe_lent {
    int64_t positions, offset;
};
enum { DPE_LENT_UNIT = 256 };

struct dpe_attention {
    const struct dpe_plan *plan;
    const struct dpe_rotation *rotation;
    int64_t layer, start, rows;
    int64_t prefix, offset;
    const int64_t *positions, *offsets; /**< [rows], or both NULL */
    struct dpe_lent lent;
    const struct dpe_lent *lents; /**< [rows] or NULL */
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t capacity; /**< rows of k and v per KV head */
    const float *q;   /**< [rows][n_heads][head_dim], unrotated */
    const float *k;   /**< [n_kv_heads][capacity][head_dim], unrotated; rows of keys that some query
                           sees are valid */
    const float *v;   /**< as k */
    struct dpe_kv *kv;    /**< where keys, values and queries are instead; NULL: k, v, queries */
    int64_t kv_layer;     /**< dpe_config_attending: which layer of kv it is */
    const float *late;    /**< [head_dim] by which rotated queries are multiplied, or NULL */
    float *out;           /**< [rows][n_heads][head_dim]; rows without any visible key are 0 */
    const float *queries; /**< [n_heads][capacity][head_dim], unrotated, rows as those of k; NULL
                               unless dpe_selection_keeps_queries */
    float *marks; /**< [dpe_selection_heads][slots][dpe_selection_width]: representatives of blocks,
                       which slot `represent` fills; NULL where the backend keeps none */
    int64_t slots, room; /**< of a head; cache rows of each branch (dpe_block_slot) */
    float *compressed; /**< [rows][n_heads][head_dim], or NULL: under DPE_REPRESENT_COMPRESSED with
                            refresh 1, the mean of the means of the values of the blocks that end at
                            or before a query, weighed by the probabilities of their keys; 0 where
                            there are none */
    float *lse;        /**< [rows][n_heads] natural log-sum-exp of the logits, or NULL */
    void *workspace;   /**< dpe_ops.attention_workspace bytes, 64-byte aligned */
    int n_threads;
};

/** Position of query r. */
static inline int64_t dpe_attention_position(const struct dpe_attention *args, int64_t r)
{
    return args->positions != NULL ? args->positions[r] : args->start + r;
}
/** What query r adds to the position of a key after the prefix to find its cache row. */
static inline int64_t dpe_attention_offset(const struct dpe_attention *args, int64_t r)
{
    return args->offsets != NULL ? args->offsets[r] : args->offset;
}
/** What query r reads from another branch. */
static inline struct dpe_lent dpe_attention_lent(const struct dpe_attention *args, int64_t r)
{
    return args->lents != NULL ? args->lents[r] : args->lent;
}
/** Positions that some query of the call sees: 0 … this − 1. */
static inline int64_t dpe_attention_keys(const struct dpe_attention *args)
{
    int64_t keys = 0;
    for (int64_t r = args->positions != NULL ? 0 : args->rows - 1; r < args->rows; r++) {
        int64_t position = dpe_attention_position(args, r);
        keys = position >= keys ? position + 1 : keys;
    }
    return keys;
}

/** Cache rows row … row+count−1 of a head: where they are, or in `room` [count][head_dim]. */
static inline const float *dpe_attention_rows(const struct dpe_attention *args,
                                              enum dpe_kv_part part, int64_t head, int64_t row,
                                              int64_t count, float *room)
{
    if (args->kv != NULL) {
        const struct dpe_kv_rows rows = {part, args->kv_layer, head, row, count};
        dpe_kv_read(args->kv, &rows, room);
        return room;
    }
    const float *from = part == DPE_KV_KEYS     ? args->k
                        : part == DPE_KV_VALUES ? args->v
                                                : args->queries;
    return from + (head * args->capacity + row) * args->head_dim;
}

/** State of an opened backend; each backend has its own definition of it. */
struct dpe_model;
struct dpe_backend;
struct dpe_session_part;

/** Room on the host for what is made of logits, and threads to make it. */
struct dpe_logit_room {
    float *logits; /**< [rows][vocab] */
    int64_t rows;
    int n_threads;
};

/** Rows of a layer with a state: the tokens of a run after those that the state has seen, or one
 *  token each of several states. */
struct dpe_recurrence {
    int64_t layer, rows;
    dpe_mem q, k, v;      /**< [rows][dpe_recurrent_keys or _values], as projected */
    dpe_mem gate;         /**< [rows][dpe_recurrent_values], before silu; anything afterwards */
    dpe_mem beta, decay;  /**< [rows][value_heads], before the sigmoid and the softplus */
    dpe_mem out;          /**< [rows][dpe_recurrent_values] */
    dpe_mem states;       /**< [states][dpe_recurrent_floats], float: that of the rows is changed */
    int64_t start;        /**< of a run: tokens that the state has seen */
    int64_t state;        /**< of a run */
    const int64_t *which; /**< [rows] the state of each row (host), different ones; NULL: a run */
    void *workspace;      /**< as of attention */
};

/** Tokens that go through the layers together: a run of one branch, or one token of each of
 *  several. Positions and offsets as in struct dpe_attention. */
struct dpe_batch {
    const int32_t *tokens; /**< [rows] */
    int64_t rows;
    int64_t wanted; /**< hidden states of the last so many rows; positions given: all rows */
    int64_t start, offset;
    const int64_t *positions, *offsets; /**< [rows], or NULL: a run */
    struct dpe_lent lent;
    const struct dpe_lent *lents;         /**< [rows], or NULL */
    int64_t branch;                       /**< of a run */
    const int64_t *branches;              /**< [rows], or NULL: of each row */
    const struct dpe_session_part *parts; /**< [n_parts] whose rows follow each other; n_parts 0:
                                               all rows are of the lane's session */
    int64_t n_parts;
    int32_t *best; /**< [wanted] host: the likeliest next tokens (slot `best`), or NULL */
    struct dpe_logit_room room; /**< for them */
};

/** Where the keys and values of a batch go, one layer. */
struct dpe_store {
    const struct dpe_plan *plan; /**< of the layer */
    dpe_mem k, v;                /**< [rows][n_kv_heads][head_dim] */
    dpe_mem cache_k, cache_v;    /**< row r goes to row position(r) + offset(r) of each KV head */
    dpe_mem q, cache_q; /**< the same of queries, [rows][n_heads][head_dim]; cache_q NULL: they
                             are not kept */
    int64_t capacity;
    struct dpe_kv *kv; /**< where they go instead, `keeps_queries` too; NULL: the caches above */
    bool keeps_queries;
    int64_t layer;
    int64_t kv_layer; /**< dpe_config_attending: of `kv` */
};

/** The experts of a layer's MLP for some rows, and room to work in. */
struct dpe_experts {
    dpe_mem x;          /**< [rows][hidden], normalised */
    dpe_mem routed;     /**< the same for the router: x, or normalised otherwise */
    dpe_mem out;        /**< [rows][hidden] of the residual stream; added to */
    dpe_mem gate, up;   /**< [room][expert_width] */
    dpe_mem made;       /**< [room][hidden], float: rows of experts, then their results */
    dpe_mem scores;     /**< [rows][n_experts], float */
    dpe_mem routes;     /**< [rows][experts_per_token] of 32 bits: the rows of each expert; then
                             [n_experts] */
    int64_t rows, room; /**< room: dpe_experts_room of rows */
};

/** Attention of three branches (NSA) for some rows. */
struct dpe_branches {
    dpe_mem gates; /**< [rows][n_heads][3], before the sigmoid: of compressed, chosen, windowed */
    dpe_mem compressed; /**< [rows][n_heads][head_dim] */
    dpe_mem windowed;   /**< the same, NULL: there is no window */
    dpe_mem out;        /**< the same, of the chosen keys; the sum afterwards */
    int64_t rows;
};

struct dpe_ops {
    const char *name;
    int64_t default_chunk; /**< rows of a prefill chunk */
    /** Where memory is short, a default chunk is halved down to this; 0: it is not.
     */
    int64_t smallest_chunk;
    /** Rows of experts that `experts` takes at a time, where there are so many. */
    int64_t expert_rows;
    /** Tokens of the self-test before the first session (device_test.c); 0: none, and there is one
     * way for everything. */
    int64_t self_test_tokens;

    /** Attention reads its cache through dpe_attention_rows, so it may be a dpe_kv. */
    bool reads_kv;
    /** Attention without a selection heeds dpe_attention.lent; else sessions copy what branches
     * have in common. */
    bool lends;
    /** Representatives of blocks are kept (dpe_attention.marks), which slot `represent` fills. */
    bool keeps_marks;
    /** Backends opened for one thread work in several threads at once. */
    bool side_by_side;
    /** Rows of the LM head at once in likelihoods; 0: 64. More where unpacking its weights counts.
     */
    int64_t logit_rows;

    /** Name of a way of a part (dpe_ways) for models of this configuration; NULL (or no such slot):
     * there are no more. A failure says "failed in CALL, …": it is of the way whose name's last
     * word (after the last _) is in CALL. */
    const char *(*way)(const struct dpe_config *config, const char *device, enum dpe_part part,
                       int way);
    /** The code that ran last on this thread, "machine code of sm_90, PTX of
     * 9.0"; "": not known. */
    void (*code)(struct dpe_backend *backend, char text[64]);
    /** Bytes of an element of the cache and of all activations but the residual stream x, which is
     *  float everywhere. */
    uint64_t (*element_bytes)(const struct dpe_config *config);
    /** Bytes that a session can still get where it will live. */
    uint64_t (*memory_available)(const struct dpe_session_options *options);

    /** Make the backend's state for this model, or for this process's slice of it (slice.h);
     *  DPE_NO_DEVICE with the reason when it cannot. The options of all slots are resolved: device,
     *  n_threads and prefill_chunk hold no zeros, peers is not NULL. */
    dpe_status (*open)(const struct dpe_model *model, const struct dpe_session_options *options,
                       struct dpe_backend **backend, struct dpe_error *err);
    void (*close)(struct dpe_backend *backend);
    /** Whether a plan can run here: DPE_OK or DPE_NO_DEVICE with the reason. Asked at session
     *  creation and by set_plan. NULL: every plan can. */
    dpe_status (*supports)(const struct dpe_config *config, const struct dpe_plan *plan,
                           struct dpe_error *err);
    /** Bytes of the backend's own buffers (in addition to those of `allocate`). */
    uint64_t (*state_bytes)(const struct dpe_config *config, const struct dpe_plan *plan,
                            const struct dpe_session_options *options);
    /** Of these, bytes of the tables of a session's plan and of its kinds of layers; may be NULL.
     */
    uint64_t (*plan_bytes)(const struct dpe_config *config, const struct dpe_plan *plan,
                           const struct dpe_session_options *options);

    dpe_mem (*allocate)(struct dpe_backend *backend, uint64_t bytes);
    void (*release)(struct dpe_backend *backend, dpe_mem memory);
    /** n elements of an activation (not of x) as float on the host, good after the next `finish`
     *  and until a slot changes them: where they are, or a copy in `room` [n]. */
    const float *(*read)(struct dpe_backend *backend, dpe_mem from, int64_t n, float *room);

    /** A plan of a session (kind 0) or of one of its kinds of layers, and its tables: what later
     * calls with this pointer mean, until the next call for it or `drop_plan` (may be NULL).
     * DPE_NO_MEMORY, or as `finish`. */
    dpe_status (*set_plan)(struct dpe_backend *backend, int kind, const struct dpe_plan *plan,
                           const struct dpe_rotation *rotation, struct dpe_error *err);
    void (*drop_plan)(struct dpe_backend *backend, const struct dpe_plan *plan);
    /** Told before the operations of a batch, which lives until `finish`. Operations get its
     * arrays, or parts of them. May be NULL. */
    void (*begin_batch)(struct dpe_backend *backend, const struct dpe_batch *batch);
    /** Whether an operation has failed so far, asked before those of each layer: as `finish`; may
     * be NULL. */
    dpe_status (*status)(const struct dpe_backend *backend, struct dpe_error *err);
    /** x [rows][hidden] = embedding rows of the batch's tokens. */
    void (*embed)(struct dpe_backend *backend, const struct dpe_batch *batch, dpe_mem x);
    /** x [rows from first on][input_width] += the rows of a layer's table for the batch's tokens,
     * times sqrt(input_width / 2). */
    void (*add_inputs)(struct dpe_backend *backend, const struct dpe_batch *batch, int64_t layer,
                       int64_t first, dpe_mem x);
    /** out [rows][width] = x / sqrt(mean(x²) + eps) * weight, x [rows][width] of the residual
     *  stream; `which` is a norm of width `width`. */
    void (*rmsnorm)(struct dpe_backend *backend, enum dpe_weight which, int64_t layer,
                    int64_t width, dpe_mem x, int64_t rows, dpe_mem out);
    /** x [n] of the residual stream as the elements that products read, where a layer has no norm
     *  before them, as a copy in `room` [n], which is returned; NULL: these are float too. */
    dpe_mem (*narrow)(struct dpe_backend *backend, dpe_mem x, int64_t n, dpe_mem room);
    /** out [rows][weight rows] = x · Wᵀ + bias; added to what is in out when `accumulate`. The
     *  output of O and DOWN is the residual stream. */
    void (*linear)(struct dpe_backend *backend, int64_t layer, enum dpe_weight which, dpe_mem x,
                   int64_t rows, dpe_mem out, bool accumulate);
    /** `linear` with Q, K and V of the same rows, and `linear` with GATE and UP and `activate`:
     * some backends do each better at once. What is in `up` afterwards is not said. */
    void (*project)(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows, dpe_mem q,
                    dpe_mem k, dpe_mem v);
    void (*gate)(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows, dpe_mem gate,
                 dpe_mem up);
    /** Keys and values of the batch into the cache of a layer. */
    void (*store_kv)(struct dpe_backend *backend, const struct dpe_batch *batch,
                     const struct dpe_store *args);
    /** Rows from … from+rows−1 of a layer's cache also become rows to … of it (cache_k, cache_v and
     *  capacity of `args`); they do not overlap, and a token keeps its position. */
    void (*copy_kv)(struct dpe_backend *backend, const struct dpe_store *args, int64_t from,
                    int64_t to, int64_t rows);
    /** The representatives of blocks that the rows of a call complete (dpe_block_known), after
     * store_kv and before attention, where the call has marks (keeps_marks, else NULL); all rows of
     * the batch, q and out not used. */
    void (*represent)(struct dpe_backend *backend, const struct dpe_attention *args);
    /** Workspace bytes that attention needs for at most `rows` rows that see at most `keys` keys
     *  each (for rows of several branches as for rows of one). */
    uint64_t (*attention_workspace)(const struct dpe_config *config, const struct dpe_plan *plan,
                                    int64_t keys, int64_t rows, int n_threads);
    /** n calls of a layer, of sessions beside each other: the rows of each follow those of the one
     * before in q, out and lse, and all have the same workspace. */
    void (*attention)(struct dpe_backend *backend, const struct dpe_attention *args, int64_t n);
    /** out [n][each] = out · σ(gate [n]): numbers of attention's output and of its gate, or rows of
     * an expert's MLP. */
    void (*output_gate)(struct dpe_backend *backend, dpe_mem out, dpe_mem gate, int64_t n,
                        int64_t each);
    /** Rows of a layer with a state (recurrent.h). Where a run is cut into calls does not change
     * more than rounding, and nothing at multiples of 64 tokens. */
    void (*recur)(struct dpe_backend *backend, const struct dpe_recurrence *args);
    /** Bytes that it needs as workspace. */
    uint64_t (*recur_workspace)(const struct dpe_config *config, int64_t rows, int n_threads);
    /** `bytes` bytes of memory become those at `from`, NULL: zeros. */
    void (*copy_state)(struct dpe_backend *backend, dpe_mem to, dpe_mem from, uint64_t bytes);
    /** gate [rows][width] = what the configuration's activation makes of gate and up. */
    void (*activate)(struct dpe_backend *backend, dpe_mem gate, dpe_mem up, int64_t rows,
                     int64_t width);
    /** out += Σ weight · expert(x) over the experts_per_token experts of each row that the router
     *  scores highest (ties: the lower index), as dpe_router says; weights are its scores, as they
     *  are or (experts_normalised) divided by the sum of the chosen ones, times
     *  DPE_WEIGHT_EXPERT_SCALE where there is one; `before`:
     *  expert(weight · x) instead. In a fixed order. */
    void (*experts)(struct dpe_backend *backend, int64_t layer, const struct dpe_experts *args);
    /** x [n] of the residual stream *= factor; 0: zeros, whatever was there. */
    void (*scale)(struct dpe_backend *backend, dpe_mem x, int64_t n, double factor);
    /** Elements from … from + n − 1 of every row of x [rows][width], queries, *= factor. */
    void (*scale_part)(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width,
                       int64_t from, int64_t n, double factor);
    /** Each row of x [rows][width], of the residual stream, minus its mean. */
    void (*centre)(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width);
    /** x [n] of the residual stream += y [n], as rmsnorm makes it. */
    void (*add)(struct dpe_backend *backend, dpe_mem x, dpe_mem y, int64_t n);
    /** Attention's output [rows][n_heads][head_dim] with each head's sink in the softmax, given the
     *  log-sum-exp [rows][n_heads] without it: times 1 / (1 + e^(sink − lse)). */
    void (*sinks)(struct dpe_backend *backend, int64_t layer, const float *lse, int64_t rows,
                  dpe_mem out);
    /** out = Σ over branches of sigmoid(gate) · branch. */
    void (*merge)(struct dpe_backend *backend, const struct dpe_branches *branches);
    /** Add to sum_q [n_heads][n_pairs] (host) the sum over rows of the 2-norm of every pair of q
     *  [rows][n_heads][head_dim], and to sum_k [n_kv_heads][n_pairs] that of k; `products`: to
     *  sum_q alone, of ‖q^(j)‖·‖k^(j)‖. In a fixed order. Told by the next `finish`. */
    void (*sum_norms)(struct dpe_backend *backend, dpe_mem q, dpe_mem k, int64_t rows,
                      bool products, double *sum_q, double *sum_k);
    /** n numbers of the residual stream become the sum over the session's peers
     *  (dpe_peers.meet), which defines which processes wait and the status that they return. */
    dpe_status (*all_reduce)(struct dpe_backend *backend, dpe_mem x, int64_t n,
                             struct dpe_error *err);
    /** Host logits [rows][vocab] of normalised hidden rows, before the model's cap. */
    void (*logits)(struct dpe_backend *backend, dpe_mem x, int64_t rows, float *logits);
    /** tokens[r] = index of the largest logit of normalised hidden row r (ties to the lower), −1
     * when one of them is not finite. Told by the next `finish`. */
    void (*best)(struct dpe_backend *backend, dpe_mem x, int64_t rows,
                 const struct dpe_logit_room *room, int32_t *tokens);
    /** nll[r] = −ln p(targets[r]) of normalised hidden row r, NaN when a logit is not finite. Told
     * by the next `finish`. */
    void (*likelihood)(struct dpe_backend *backend, dpe_mem x, int64_t rows,
                       const struct dpe_logit_room *room, const int32_t *targets, double *nll);
    /** First row of x [rows][width] with a non-finite value, −1 when all is finite. A device may
     *  return −1 and report the value in `finish`, so that the host does not wait. */
    int64_t (*first_nonfinite)(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows,
                               int64_t width);
    /** Wait for all work that was started. DPE_INCOMPLETE: the device failed (slots that return
     * nothing then did nothing since); the session is of no more use. Else *layer and *row of the
     * first non-finite value that first_nonfinite did not return, −1 when there is none. Asked at
     * the end of every forward pass and after `read` and `logits`. */
    dpe_status (*finish)(struct dpe_backend *backend, int64_t *layer, int64_t *row,
                         struct dpe_error *err);
};

/** Declares a function that fills a slot, as the slot says: DPE_SLOT(dpe_reference_add, add); */
#define DPE_SLOT(function, slot) __typeof__(*((struct dpe_ops *)NULL)->slot) function

/** Rows of experts that there is room for where `rows` rows choose theirs: of one expert at least,
 * of all where they are few. */
static inline int64_t dpe_experts_room(const struct dpe_ops *ops, const struct dpe_config *config,
                                       int64_t rows)
{
    return dpe_most(rows, dpe_least(ops->expert_rows, rows * config->experts_per_token));
}

/** The plain reference, every slot filled. */
const struct dpe_ops *dpe_ops_reference(void);
#endif
