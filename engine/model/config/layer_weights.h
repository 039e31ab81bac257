/**
 * @file layer_weights.h
 * The tensors of a layer, as one table (inside the engine).
 *
 * Loading, random models, slices, counting and uploading are loops over the table, so a tensor that
 * another model family adds to a layer is one enumerator, one line of the table and its use in
 * forward.c.
 */
#ifndef DPE_LAYER_WEIGHTS_H
#define DPE_LAYER_WEIGHTS_H

#include "engine/model/config/config.h"

/** One tensor, borrowed from the mapped file; row-major. */
struct dpe_tensor {
    const void *data; /**< may be misaligned for its dtype only if `misaligned` was impossible to
                           avoid; loaders copy such tensors, so data is always aligned */
    enum dpe_dtype dtype;
    int64_t rows, cols; /**< vectors have rows = 1 */
    int64_t stride;     /**< elements from a row to the next; 0: cols, nothing in between */
};

/** A weight of a layer by meaning; the final norm has a name here for the rmsnorm slot alone. */
enum dpe_weight {
    DPE_WEIGHT_ATTENTION_NORM,
    DPE_WEIGHT_Q,
    DPE_WEIGHT_K,
    DPE_WEIGHT_V,
    DPE_WEIGHT_O,
    DPE_WEIGHT_MLP_NORM,
    DPE_WEIGHT_GATE,
    DPE_WEIGHT_UP,
    DPE_WEIGHT_DOWN,
    DPE_WEIGHT_Q_NORM,
    DPE_WEIGHT_K_NORM,
    DPE_WEIGHT_ATTENTION_AFTER, /**< norm of what attention adds to the stream */
    DPE_WEIGHT_MLP_AFTER,       /**< norm of what the MLP adds to it */
    DPE_WEIGHT_SINKS,           /**< a logit per query head */
    DPE_WEIGHT_ROUTER,          /**< scores of the experts */
    DPE_WEIGHT_ROUTER_SHIFT,    /**< added to them where they are compared, not where they weigh */
    DPE_WEIGHT_SHARED_GATE,     /**< of the MLP beside the experts */
    DPE_WEIGHT_BRANCH_GATES,    /**< of each query head: of compressed, chosen and windowed keys */
    DPE_WEIGHT_OUTPUT_GATE,     /**< of attention's output, or of a recurrent layer's */
    /* Of layers with a state, whose Q, K, V and O have their own widths (recurrent.h). */
    DPE_WEIGHT_BETA,
    DPE_WEIGHT_DECAY,
    DPE_WEIGHT_CONVOLUTION_Q, /**< [channels][width], the last number is of the token itself */
    DPE_WEIGHT_CONVOLUTION_K,
    DPE_WEIGHT_CONVOLUTION_V,
    DPE_WEIGHT_RATE, /**< < 0, of each value head */
    DPE_WEIGHT_STEP,
    DPE_WEIGHT_OUTPUT_NORM, /**< of a head's output */
    DPE_WEIGHT_LATE,        /**< of late norms: what rotated queries are multiplied by, float */
    DPE_WEIGHT_V_NORM,      /**< ones */
    /* Of what a layer gets beside the stream (dpe_config.input_width): rows of one tensor of all
     * layers, or columns of the table. */
    DPE_WEIGHT_INPUT_TABLE, /**< a row for each token id */
    DPE_WEIGHT_INPUT,       /**< of the embedding */
    DPE_WEIGHT_INPUT_NORM,
    DPE_WEIGHT_INPUT_GATE, /**< of the stream */
    DPE_WEIGHT_INPUT_OUT,
    DPE_WEIGHT_INPUT_AFTER, /**< norm of what it adds to the stream */
    DPE_WEIGHT_LAYER_SCALE, /**< one number */
    /* Of dpe_config.experts_beside: norms of what the router and the experts read, of what the MLP
     * beside them and what they make, and what each expert's weight is multiplied by. */
    DPE_WEIGHT_ROUTER_NORM,
    DPE_WEIGHT_EXPERTS_NORM,
    DPE_WEIGHT_DENSE_AFTER,
    DPE_WEIGHT_EXPERTS_AFTER,
    DPE_WEIGHT_EXPERT_SCALE,
    DPE_WEIGHTS_PER_LAYER,
    DPE_WEIGHT_FINAL_NORM = DPE_WEIGHTS_PER_LAYER, /**< struct dpe_weights.final_norm */
};

/** One expert of a layer: an MLP of its own. */
struct dpe_expert {
    struct dpe_tensor gate, up;           /**< [expert_width, hidden] */
    struct dpe_tensor down;               /**< [hidden, expert_width] */
    struct dpe_tensor gate_bias, up_bias; /**< [1, expert_width], or data NULL */
    struct dpe_tensor down_bias;          /**< [1, hidden], or data NULL */
};

/** The weights of one layer; what the model does not have is all zeros. */
struct dpe_layer_weights {
    struct dpe_tensor weight[DPE_WEIGHTS_PER_LAYER]; /**< of the shape that the table gives */
    struct dpe_tensor bias[DPE_WEIGHTS_PER_LAYER];   /**< [1, rows of the weight] */
    struct dpe_expert *experts; /**< [n_experts], owned by the model; NULL: none */
};

struct dpe_weights {
    struct dpe_tensor embedding;      /**< [vocab, hidden] */
    struct dpe_layer_weights *layers; /**< [n_layers] */
    struct dpe_tensor final_norm;     /**< [1, hidden] */
    struct dpe_tensor lm_head;        /**< [vocab, hidden]; the embedding itself when tied */
};

/** A number of rows or columns, as the configuration determines it. */
enum dpe_width {
    DPE_WIDTH_ONE, /**< as rows: the tensor is a vector */
    DPE_WIDTH_HIDDEN,
    DPE_WIDTH_QUERY,        /**< n_heads * head_dim */
    DPE_WIDTH_KEY_VALUE,    /**< n_kv_heads * head_dim */
    DPE_WIDTH_INTERMEDIATE, /**< of a layer with experts: of the MLP beside them */
    DPE_WIDTH_QUERY_NORM,   /**< of a head or of all, by dpe_config.qk_norm */
    DPE_WIDTH_KEY_NORM,
    DPE_WIDTH_SINGLE, /**< 1, of a matrix */
    DPE_WIDTH_HEADS,  /**< n_heads */
    DPE_WIDTH_HEAD,   /**< head_dim */
    DPE_WIDTH_INPUT,
    DPE_WIDTH_INPUT_VOCAB,
    DPE_WIDTH_EXPERTS,
    DPE_WIDTH_BRANCHES,     /**< 3 * n_heads */
    DPE_WIDTH_STATE_KEYS,   /**< dpe_recurrent_keys */
    DPE_WIDTH_STATE_VALUES, /**< dpe_recurrent_values */
    DPE_WIDTH_STATE_HEADS,  /**< value_heads of the state */
    DPE_WIDTH_STATE_VALUE,  /**< value_dim */
    DPE_WIDTH_CONVOLUTION,  /**< its width */
};

/** When a model has a tensor. */
enum dpe_condition {
    DPE_IF_NEVER,
    DPE_IF_ALWAYS,
    DPE_IF_QKV_BIAS,
    DPE_IF_O_BIAS,
    DPE_IF_MLP_BIAS,
    DPE_IF_NAMED, /**< a norm: the family has a name for it */
    DPE_IF_QK_NORM,
    DPE_IF_LATE_NORMS,
    DPE_IF_KEYS, /**< keys and values of its own */
    DPE_IF_VALUE_NORMS,
    DPE_IF_INPUTS,
    DPE_IF_LAYER_SCALES,
    DPE_IF_BESIDE, /**< an MLP and experts with norms of their own */
    DPE_IF_SINKS,
    DPE_IF_DENSE,  /**< an MLP without experts, or beside them */
    DPE_IF_ROUTED, /**< with experts */
    DPE_IF_ROUTER_BIAS,
    DPE_IF_ROUTER_SHIFT,
    DPE_IF_SHARED_GATE,
    DPE_IF_BRANCHES,
    DPE_IF_OUTPUT_GATE,
};

/** What a process of a tensor-parallel session has of a tensor (slice.h). */
enum dpe_sliced {
    DPE_SLICED_WHOLE,   /**< all of it */
    DPE_SLICED_ROWS,    /**< its rows, and those elements of the bias */
    DPE_SLICED_COLUMNS, /**< its columns; process 0 has the bias, the others none */
};

/** One line of the table. */
struct dpe_layer_tensor {
    const char *name; /**< in the checkpoint, between "model.layers.N." and ".weight" or ".bias";
                           NULL: by the family, dpe_layer_name */
    enum dpe_width rows, cols;
    enum dpe_condition present, bias; /**< when a model has the weight, and its bias */
    enum dpe_sliced sliced;
};
extern const struct dpe_layer_tensor dpe_layer_tensors[DPE_WEIGHTS_PER_LAYER];

/** Sizes of a weight of a layer under a configuration, in elements. */
struct dpe_layer_shape {
    int64_t rows, cols; /**< 0, 0: the model does not have it */
    int64_t bias;       /**< elements of its bias; 0: it has none */
    bool vector;        /**< a checkpoint holds it with one dimension: a norm */
};
struct dpe_layer_shape dpe_layer_shape(const struct dpe_config *config, int64_t layer,
                                       enum dpe_weight which);

/** Whether a checkpoint has the weight under its name alone, without ".weight". */
static inline bool dpe_layer_bare(enum dpe_weight which)
{
    return which == DPE_WEIGHT_SINKS || which == DPE_WEIGHT_ROUTER_SHIFT ||
           which == DPE_WEIGHT_RATE || which == DPE_WEIGHT_STEP ||
           which == DPE_WEIGHT_LAYER_SCALE || which == DPE_WEIGHT_ROUTER_NORM ||
           which == DPE_WEIGHT_EXPERT_SCALE;
}

/** The name of a weight in a layer of a checkpoint of this family, NULL when it has none. */
const char *dpe_layer_name(const struct dpe_config *config, int64_t layer, enum dpe_weight which);

/** What a norm adds to the mean square. */
static inline double dpe_norm_eps(const struct dpe_config *config, enum dpe_weight which)
{
    /* of the embedding's product divided by sqrt(hidden), which is left out */
    return which == DPE_WEIGHT_INPUT_NORM ? config->rms_eps * (double)config->hidden
                                          : config->rms_eps;
}

/** The tensor of a norm; `layer` does not matter for the final norm. Borrowed from `weights`. */
const struct dpe_tensor *dpe_norm_weight(const struct dpe_weights *weights, enum dpe_weight which,
                                         int64_t layer);

/** Bytes of weights that decoding a token reads at least: every matrix and vector of the layers
 * once, of experts as many as a token takes, and the head. `unpacked`: blocks are on a device that
 * holds them unpacked. */
double dpe_weights_step_bytes(const struct dpe_config *config, const struct dpe_weights *weights,
                              bool unpacked);

/** Elements from a row of a tensor to the next. */
static inline int64_t dpe_tensor_stride(const struct dpe_tensor *tensor)
{
    return tensor->stride != 0 ? tensor->stride : tensor->cols;
}

/** Where element `at` of a tensor's data stands; of blocks a multiple of the block. */
static inline const char *dpe_tensor_at(const struct dpe_tensor *tensor, int64_t at)
{
    return (const char *)tensor->data + dpe_dtype_bytes(tensor->dtype, at);
}

#endif
