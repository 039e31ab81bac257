/**
 * @file backend.h
 * The CUDA backend from inside: what an opened one holds, and the pieces that its slots are made
 * of.
 *
 * Failures. Slots that return nothing note the first code that is not 0 in `failure` and do nothing
 * from then on; `finish` reports it as DPE_INCOMPLETE: earlier results are valid. Nothing is
 * retried on a device that failed.
 *
 * What the cache holds. Keys rotated by the table of the plan's first band at their position, so
 * that near keys are read as they are and frequency methods need no copy at all; far bands rotate
 * them further by the difference of two tables. Under a selection, which may give a key another
 * place for each query, keys as they are. Values as they are. [n_kv_heads][capacity][head_dim].
 */
#ifndef DPE_BACKEND_H
#define DPE_BACKEND_H

#include "engine/base/base.h"
#include "engine/cuda/kernels/attention.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/runtime/runtime.h"
#include "engine/model/config/layer_weights.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"
#include "engine/plan/plan.h"
#include "engine/plan/segments.h"

/** Which attention kernel. The card, dtype and head dimension have some; DPE_CUDA_ATTENTION=plain,
 * mma or wgmma in the environment leaves out those that are faster (tests, comparisons). */
enum dpe_cuda_kernel { DPE_KERNEL_PLAIN, DPE_KERNEL_MMA, DPE_KERNEL_WGMMA };

/** Whether steps of decoding may be CUDA graphs: not with DPE_CUDA_GRAPHS=off. DPE_USAGE: an
 * unknown word, which changes nothing. */
dpe_status dpe_cuda_graphs(bool *graphs, struct dpe_error *err);

/** The ways of a model on a card, as dpe_ops.way names them. */
struct dpe_cuda_ways {
    enum dpe_cuda_kernel attention[3]; /**< the fastest first, n_attention ≥ 1 */
    int n_attention;
    bool splits, decodes, few, graph; /**< there is a way before the last */
};
struct dpe_cuda_ways dpe_cuda_ways(const struct dpe_config *config,
                                   const struct dpe_cuda_info *info);
/** Of the heads of a kind of layers: their size, how many have keys, and how decoding deals them
 * (heads 0: it has no kernel for them). */
int64_t dpe_cuda_head_dim(const struct dpe_config *config, int kind);
int64_t dpe_cuda_kv_heads(const struct dpe_config *config, int kind);
struct dpe_decode_dealing dpe_cuda_dealing(const struct dpe_config *config,
                                           const struct dpe_cuda_info *info, int kind);
/** The same without the ways before those that a session takes. */
void dpe_cuda_ways_take(struct dpe_cuda_ways *ways, const struct dpe_ways *taken);
/** The slots. */
DPE_SLOT(dpe_cuda_code, code);
DPE_SLOT(dpe_cuda_way, way);

/** Device copies of the weights of a layer. */
struct dpe_cuda_layer {
    void *weight[DPE_WEIGHTS_PER_LAYER]; /**< matrices of the backend's dtype, norms float */
    void *bias[DPE_WEIGHTS_PER_LAYER];   /**< float; NULL: none */
    struct dpe_cuda_matrix *experts[3];  /**< device [n_experts]: gates, ups, downs; NULL: none */
};

/** A walk on the device, and what it was made for. */
struct dpe_cuda_walk {
    int64_t start, rows; /**< rows 0: none yet */
    int32_t parts;       /**< of a block: more than 1 for few rows over many keys */
    int64_t n_blocks;
    int64_t k_first[DPE_MAX_BANDS], k_end[DPE_MAX_BANDS];
    void *memory;
    uint64_t bytes;
    struct dpe_query_block *blocks;
    struct dpe_segment *segments;
};

/** A plan on the device: of a session, or of a kind of its layers that position plans do not move.
 */
struct dpe_cuda_plan {
    const struct dpe_plan *plan; /**< by which it is found */
    struct dpe_cuda_plan *next;
    int64_t head_dim, n_kv_heads; /**< of the heads of its layers */
    struct dpe_decode_dealing dealing;
    bool decodes;  /**< few rows go through the kernels of decoding */
    float *tables; /**< cos and sin of table t: [positions][n_pairs] each, one after the other */
    float *cos[2 * DPE_MAX_BANDS], *sin[2 * DPE_MAX_BANDS];
    uint8_t *mask; /**< [n_layers][n_heads][n_pairs] or NULL */
    struct dpe_rotated_copies q_copies, k_copies;
    struct dpe_cuda_walk walk;
    void *differences; /**< dpe_decode_band.table of key copy c, NULL where the cache will do */
    uint32_t *difference[DPE_MAX_BANDS];
};

/** What few rows are decoded by, and for which rows of a batch it was made. */
struct dpe_cuda_units {
    struct dpe_cuda_units *next;
    int64_t first, rows, start;   /**< rows 0: none yet */
    int64_t head_dim, n_kv_heads; /**< of the layers that they are for */
    int64_t n;
    void *memory;
    uint64_t bytes;
    struct dpe_decode_unit *units;
    struct dpe_decode_parts *parts;
};

/** Launches of a step of decoding, and their graph once they have come twice. */
struct dpe_cuda_step {
    struct dpe_launches launches; /**< empty: a free place */
    struct dpe_rt_graph *graph;   /**< NULL: none yet */
    int64_t used;                 /**< the last step that had them */
};
enum { DPE_CUDA_STEPS = 8 };
struct dpe_cuda_steps {
    bool on;
    bool keeping; /**< launches of this pass go to `list` */
    struct dpe_launches list;
    struct dpe_cuda_step steps[DPE_CUDA_STEPS];
    int64_t n_steps, n_run, n_made; /**< steps so far, those that ran as graphs, graphs made */
};

/** What slots leave to the launch after them, which takes it along; every other call makes it
 * before itself. Zeros: nothing. */
struct dpe_cuda_pending {
    const void *x; /**< rows of the stream whose first non-finite one is asked for, or NULL */
    int64_t rows, width, layer;
    struct dpe_rotated_rows rotated[DPE_ROTATED_AT_ONCE];
    int n_rotated;
};

struct dpe_backend {
    const struct dpe_config *config;
    const struct dpe_weights *weights; /**< host */
    int index;                         /**< of the device */
    double timeout_seconds;            /**< as dpe_rt_set_timeout */
    bool each_call;                    /**< with it: wait after each call */
    const struct dpe_peers *peers;
    bool joined;  /**< it is settled how sums over peers are made */
    void *sums;   /**< NCCL's, or NULL: through the host */
    float *stage; /**< host, [batch_room][hidden] for the latter, or NULL */
    struct dpe_cuda_info info;
    struct dpe_cuda_ways ways; /**< that are taken */
    enum dpe_dtype dtype;      /**< of weights, activations and cache */
    uint64_t element;
    struct dpe_rt_blas *blas;

    bool failed;
    struct dpe_error failure;

    void **owned; /**< device memory of weights and small buffers */
    size_t n_owned;
    struct dpe_cuda_layer *layers; /**< [n_layers] */
    void *embedding, *lm_head;
    void *final_norm; /**< float */

    struct dpe_cuda_plan *plans; /**< of all sessions */
    const int64_t *batch_positions,
        *batch_branches; /**< host, of the batch: operations get parts */
    struct dpe_cuda_steps steps;
    struct dpe_cuda_pending pending;
    struct dpe_cuda_units *units; /**< of the batch's sessions, in the order of their rows */

    int64_t batch_room; /**< rows that the next three hold */
    int32_t *tokens;
    int64_t *positions, *offsets;
    int64_t *which;   /**< [batch_room] the states of a step's rows; NULL: no layer has a state */
    int32_t *arrived; /**< [batch_room][key heads], of dpe_kernel_recur_tokens */
    /** What `finish` brings to the host in one copy: layer << 40 | row of the first non-finite row
     * (all ones: none), and after it the likeliest tokens. */
    unsigned long long *nonfinite;
    int32_t *best;    /**< [batch_room] */
    int32_t *best_to; /**< host: where the next `finish` puts n_best of them; n_best 0: nowhere */
    int64_t n_best;
    void *report_host; /**< host, room for both */
    int64_t logit_rows;
    float *logits;              /**< [logit_rows][vocab] */
    int32_t *counters;          /**< of the Hopper kernel */
    double *norms, *norms_host; /**< NULL before they are first needed */
};

enum {
    DPE_CUDA_DECODE_ROWS = 256,  /**< of a step, at once; more are taken in turns */
    DPE_CUDA_STEP_ROWS = 64,     /**< of a step that may become a graph */
    DPE_CUDA_FEW_ROWS = 4,       /**< of one branch: more go the way of a prefill */
    DPE_CUDA_MOST_UNITS = 256,   /**< that units aim at */
    DPE_CUDA_PROCESSORS = 160,   /**< for which a split walk has room in the workspace */
    DPE_CUDA_LEAST_LOGITS = 256, /**< rows of logits at once, where memory is short */
};

/** The tables of a plan, which slot set_plan was told of; NULL: it was not. */
static inline struct dpe_cuda_plan *dpe_cuda_plan_of(struct dpe_backend *backend,
                                                     const struct dpe_plan *plan)
{
    struct dpe_cuda_plan *p = backend->plans;
    while (p != NULL && p->plan != plan) {
        p = p->next;
    }
    return p;
}
/** Where the rows of a call begin among those of the batch. */
static inline int64_t dpe_cuda_first_row(const struct dpe_backend *backend,
                                         const int64_t *positions)
{
    return positions - backend->batch_positions;
}

/** Note a code that is not 0 as the backend's failure, once. */
void dpe_cuda_note(struct dpe_backend *backend, int code, const char *call, const char *file,
                   int line);
/** Make the backend's device current on this thread. */
void dpe_cuda_use(struct dpe_backend *backend);
/** Before a pass: whether its launches are kept for a graph. */
void dpe_cuda_begin_step(struct dpe_backend *backend, const struct dpe_batch *batch);
/** At its end, before the host waits for it: run what was kept, as a graph where there is one. */
void dpe_cuda_end_step(struct dpe_backend *backend);
/** Make what was kept now, launch by launch; the rest of the pass is not kept. */
void dpe_cuda_make_kept(struct dpe_backend *backend);
void dpe_cuda_free_steps(struct dpe_backend *backend);
/** Launch what is pending. */
void dpe_cuda_make_pending(struct dpe_backend *backend);
/** Whether a call can be made; launches that come before it have been. */
static inline bool dpe_cuda_ready(struct dpe_backend *backend)
{
    dpe_cuda_make_pending(backend);
    if (backend->steps.keeping) {
        dpe_cuda_make_kept(backend);
    }
    return !backend->failed;
}
/** Make a call unless the backend has failed, and note its code. */
#define DPE_CUDA_TRY(backend, call)                                                                \
    do {                                                                                           \
        if (dpe_cuda_ready(backend)) {                                                             \
            dpe_cuda_note(backend, call, #call, __FILE__, __LINE__);                               \
        }                                                                                          \
    } while (0)
/** The same for calls that only launch kernels: a step keeps their launches. */
#define DPE_CUDA_LAUNCH(backend, call)                                                             \
    do {                                                                                           \
        dpe_cuda_make_pending(backend);                                                            \
        if (!(backend)->failed) {                                                                  \
            dpe_launches_keep((backend)->steps.keeping ? &(backend)->steps.list : NULL);           \
            int launched = call;                                                                   \
            dpe_launches_keep(NULL);                                                               \
            dpe_cuda_note(backend, launched, #call, __FILE__, __LINE__);                           \
        }                                                                                          \
    } while (0)
/** Note the code of a call that was made already. */
#define DPE_CUDA_NOTE(backend, code, call) dpe_cuda_note(backend, code, call, __FILE__, __LINE__)
/** The status for the caller: DPE_OK, or the failure. */
DPE_SLOT(dpe_cuda_status, status);

/** Device memory that lives as long as the backend. DPE_NO_MEMORY, or the failure. */
dpe_status dpe_cuda_own(struct dpe_backend *backend, uint64_t bytes, void **memory,
                        struct dpe_error *err);

/** Rows whose logits are computed at once, of batches of at most `rows`: as few as keep the device
 *  busy for the large product of the head, in at most 512 MiB where that allows 256. */
int64_t dpe_cuda_logit_rows(const struct dpe_config *config, int64_t rows);
/** The slots of a layer and of the head. */
DPE_SLOT(dpe_cuda_embed, embed);
DPE_SLOT(dpe_cuda_rmsnorm, rmsnorm);
DPE_SLOT(dpe_cuda_add_inputs, add_inputs);
DPE_SLOT(dpe_cuda_linear, linear);
DPE_SLOT(dpe_cuda_project, project);
DPE_SLOT(dpe_cuda_gate, gate);
DPE_SLOT(dpe_cuda_narrow, narrow);
DPE_SLOT(dpe_cuda_scale, scale);
DPE_SLOT(dpe_cuda_scale_part, scale_part);
DPE_SLOT(dpe_cuda_centre, centre);
DPE_SLOT(dpe_cuda_add, add);
DPE_SLOT(dpe_cuda_activate, activate);
DPE_SLOT(dpe_cuda_experts, experts);
DPE_SLOT(dpe_cuda_sinks, sinks);
DPE_SLOT(dpe_cuda_merge, merge);
DPE_SLOT(dpe_cuda_logits, logits);
DPE_SLOT(dpe_cuda_best, best);
DPE_SLOT(dpe_cuda_likelihood, likelihood);

/** Bytes of the weights on the device. */
uint64_t dpe_cuda_weight_bytes(const struct dpe_config *config);
/** Upload all weights; a tensor without data becomes random numbers (dpe-bench). */
dpe_status dpe_cuda_upload(struct dpe_backend *backend, struct dpe_error *err);

/** Bytes of attention's workspace, as dpe_ops.attention_workspace. */
DPE_SLOT(dpe_cuda_attention_workspace, attention_workspace);
DPE_SLOT(dpe_cuda_attention, attention);
/** The same of plans with a selection and of dpe_cuda_attention_window, and the slots that they
 * alone have. */
uint64_t dpe_cuda_select_workspace(const struct dpe_config *config, const struct dpe_plan *plan,
                                   int64_t keys, int64_t rows);
void dpe_cuda_attention_select(struct dpe_backend *backend, const struct dpe_attention *args);
/** The window beside the chosen keys of models whose attention has branches,
 * over the same cache. */
void dpe_cuda_attention_window(struct dpe_backend *backend, const struct dpe_attention *args);
DPE_SLOT(dpe_cuda_represent, represent);

/** Layers with a state (backend_recur.c): the slots, and bytes of `which` and `arrived`. */
DPE_SLOT(dpe_cuda_recur_workspace, recur_workspace);
DPE_SLOT(dpe_cuda_recur, recur);
DPE_SLOT(dpe_cuda_copy_state, copy_state);
DPE_SLOT(dpe_cuda_output_gate, output_gate);
uint64_t dpe_cuda_recur_bytes(const struct dpe_config *config, int64_t branches);
DPE_SLOT(dpe_cuda_store_kv, store_kv);
DPE_SLOT(dpe_cuda_copy_kv, copy_kv);
/** The slot, and the device memory that it takes when it is first used. */
DPE_SLOT(dpe_cuda_sum_norms, sum_norms);
uint64_t dpe_cuda_norm_bytes(const struct dpe_config *config);
/** The slot. */
DPE_SLOT(dpe_cuda_all_reduce, all_reduce);
/** Give back what sums over peers took. */
void dpe_cuda_leave(struct dpe_backend *backend);
/** N of "cuda:N"; 0 for "cuda", "auto" and NULL. */
int dpe_cuda_device_index(const char *name);
/** Rows first … first+rows−1 of a call. */
struct dpe_cuda_rows {
    const struct dpe_attention *args;
    int64_t first, rows;
};
/** Units of the rows of n calls, made unless they are there already; NULL on failure. */
const struct dpe_cuda_units *dpe_cuda_use_units(struct dpe_backend *backend,
                                                const struct dpe_cuda_rows *calls, int n);
/** Tables that rotate the cache's keys further. */
dpe_status dpe_cuda_make_differences(struct dpe_backend *backend, struct dpe_cuda_plan *plan,
                                     int64_t capacity, struct dpe_error *err);
/** Bytes of the parts of so many rows. */
uint64_t dpe_cuda_partial_bytes(const struct dpe_config *config, int64_t rows);
/** All of a decode call but q, rows, partial and out. */
void dpe_cuda_decode_call(struct dpe_backend *backend, const struct dpe_attention *args,
                          const struct dpe_cuda_units *units, struct dpe_decode *call);
/** The slots. */
const struct dpe_ops *dpe_cuda_ops(void);

#endif
