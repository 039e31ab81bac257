/**
 * @file family.h
 * The model families: what a model_type of config.json means, as one table (inside the engine).
 *
 * A family is an entry of the table. The forward pass reads what it needs from struct dpe_config
 * and does not know the name of a family.
 */
#ifndef DPE_FAMILY_H
#define DPE_FAMILY_H

#include "engine/model/config/config.h"

/** Which projections of attention have a bias. */
enum dpe_bias_rule {
    DPE_BIAS_NEVER,
    DPE_BIAS_ALWAYS, /**< q, k, v */
    DPE_BIAS_QKV,    /**< q, k, v, where config.json says so */
    DPE_BIAS_ALL,    /**< and o, where config.json says so */
};

/** Which layers have a sliding window. */
enum dpe_window_rule {
    DPE_WINDOW_NEVER,
    DPE_WINDOW_ALL,      /**< all of them, when sliding_window is a number */
    DPE_WINDOW_SWITCHED, /**< those from max_window_layers on (or layer_types), when
                              use_sliding_window is true */
    DPE_WINDOW_TYPES,    /**< those that layer_types names; else all but every window_pattern-th */
    DPE_WINDOW_CHUNKS,   /**< chunks of attention_chunk_size in the layers that layer_types names;
                              else in those that rotate */
};

/** A second rotation for the windowed layers. */
enum dpe_local_rope {
    DPE_LOCAL_ROPE_SAME,     /**< the windowed layers rotate as the others */
    DPE_LOCAL_ROPE_UNSCALED, /**< as the others, without their scaling (OLMo 3) */
    DPE_LOCAL_ROPE_OWN,      /**< with a base of their own, rope_local_base_freq (Gemma 3) */
};

/** How a checkpoint holds the experts of a layer. */
enum dpe_expert_layout {
    DPE_EXPERTS_NONE,
    DPE_EXPERTS_APART,   /**< mlp.experts.N.gate_proj, up_proj, down_proj, one matrix each (Qwen3),
                              or as dpe_family_names.expert has it; or all experts in one tensor,
                              rows of gate, then of up (Qwen3.5) */
    DPE_EXPERTS_STACKED, /**< all experts in one tensor, gate and up by turns, columns first, with
                             biases (gpt-oss) */
    DPE_EXPERTS_COLUMNS  /**< the same, all of gate, then all of up, without biases (Llama 4) */
};

/** How a checkpoint holds the projections of a layer with a state. */
enum dpe_recurrent_layout {
    DPE_RECURRENT_QKV,    /**< rows of q, k, v in one tensor, the others apart (Qwen3.5) */
    DPE_RECURRENT_KEYS,   /**< rows of q, k, v, gate in one tensor, of beta and decay in another,
                               those of a key head together (Qwen3-Next) */
    DPE_RECURRENT_SORTED, /**< rows of q, k, v in one tensor, the gate apart, of beta and decay as
                             in KEYS (Qwen3-Next in GGUF files) */
    DPE_RECURRENT_APART   /**< one tensor each (OLMo Hybrid) */
};

/** Names of the norms around attention and MLP, NULL where the family has none. */
struct dpe_norm_names {
    const char *before_attention, *after_attention, *before_mlp, *after_mlp;
};

/** The layers with a state in place of keys and values. */
struct dpe_family_recurrent {
    enum dpe_recurrent_layout layout;
    const char *const *weights;      /**< [DPE_WEIGHTS_PER_LAYER], NULL: that of layer_weights.c */
    const char *const (*aliases)[2]; /**< names of tensors that checkpoints may have, and ours; ends
                                          with NULLs; or NULL */
    double eps;                      /**< of the norm of their output; 0: the model's */
    bool tiled;                      /**< dpe_recurrent.tiled */
    bool rates;                      /**< rates in place of A_log */
};

/** Values of keys that a config.json may leave out; 0: the key is required. */
struct dpe_family_defaults {
    int64_t n_heads, n_kv_heads, head_dim, vocab, max_position, window;
    int64_t hidden_ratio; /**< 0: the MLP's width is not given so */
    /** Of a max_position_embeddings of `extended` the authors name `trained` as the length that the
     * model was trained at; 0: they do not. */
    int64_t extended, trained;
    double theta, local_theta, partial_rotary;
    const char *rope; /**< rope_parameters as JSON, where the class has more than a base */
    bool tied, attention_bias;
};

/** Names of keys of a config.json, and of tensors, where a family has its own. */
struct dpe_family_names {
    const char *heads, *kv_heads, *eps, *qkv_bias, *o_bias, *mlp_bias;
    const char *experts, *expert_width; /**< their number; the width of one */
    const char *activation;             /**< a value of hidden_act */
    const char *embedding;
    const char *const *weights; /**< [DPE_WEIGHTS_PER_LAYER], NULL: that of layer_weights.c */
    const char *expert[4];      /**< of a layer's experts: the one before N, gate, up, down */
    const char *width;          /**< of the dense MLP; NULL: intermediate_size */
    const char *per_token;      /**< experts of a token; NULL: num_experts_per_tok */
    const char *(*mlp)[3];      /**< gate, up, down of a dense MLP, and of one beside experts; NULL:
                                     those of layer_weights.c */
};

/** One line of the table. */
struct dpe_family {
    const char *model_type, *architecture;
    const char *text; /**< the model_type of text_config when it has none: the language model lies
                           there; NULL: in the file itself */
    const struct dpe_norm_names *norms;   /**< NULL: those of Llama */
    const struct dpe_family_names *names; /**< NULL: those of Llama */
    enum dpe_qk_norm qk_norm;
    bool qk_norm_by_key; /**< of use_qk_norm, false when absent */
    bool qk_norm_late;   /**< the checkpoint's model normalises what is rotated already */
    bool qk_norm_bare;   /**< without weights, of the layers that rotate; use_qk_norm is true when
                              absent */
    enum dpe_bias_rule bias;
    bool mlp_bias;                 /**< by mlp_bias of config.json */
    bool qkv_fused, gate_up_fused; /**< one tensor holds the rows of q, k, v; of gate, up */
    bool sigmoid;       /**< a router of sigmoids with a correction bias, groups and a scale */
    bool router_fixed;  /**< a token's experts weigh 1 in all; no groups, no scale are read */
    bool scaled_inputs; /**< a router of sigmoids that scales what its experts read; an expert that
                             every token takes, and layers without experts by their numbers */
    bool shared;        /**< an expert that every token takes, and first layers without experts */
    bool shared_gate;   /**< such an expert with a gate, in all layers */
    bool interleaved;   /**< the checkpoint's pairs are components 2j, 2j + 1 */
    bool partial;       /**< may rotate a part of the head */
    bool norm_plus_one; /**< norms multiply by 1 + weight */
    bool embedding_scaled; /**< embeddings times sqrt(hidden_size) */
    bool multipliers;      /**< reads Granite's four multipliers */
    bool caps;             /**< reads the soft caps and query_pre_attn_scalar */
    bool mixed;            /**< Gemma 4: full layers with heads of their own size, a proportional
                                rotation and keys that may be values; norms of values; layers that
                                share keys; inputs of each layer; experts beside an MLP where
                                enable_moe_block says so */
    bool sinks;            /**< an attention sink per head */
    bool grows;            /**< reads llama_4_scaling_beta */
    bool tuned;            /**< reads attn_temperature_tuning: queries of layers without positions
                                grow */
    bool full_still;       /**< layers that see all keys do not rotate where others have windows */
    bool parallel_centred; /**< attention and MLP read one norm, which takes the mean away;
                                reads logit_scale */
    bool position_free;    /**< reads no_rope_layers */
    bool still;            /**< has no positions where its rotation has no base */
    bool alpha;            /**< reads alpha of a dynamic rotation: a base of its own, once */
    bool branches;         /**< attention of three branches (NSA) */
    const struct dpe_family_recurrent *recurrent; /**< NULL: no layer has a state */
    enum dpe_activation activation;
    enum dpe_expert_layout experts;
    bool experts_biased; /**< experts and router have biases */
    enum dpe_window_rule windows;
    int window_pattern; /**< without layer_types every so many-th layer is full */
    enum dpe_local_rope local_rope;
    struct dpe_family_defaults defaults;
};

/** A family's recurrent layers as a GGUF file has them; NULL: it has none. `whole`: the file has
 * ssm_in, as the first ones of Qwen3-Next. */
const struct dpe_family_recurrent *dpe_family_recurrent_gguf(const struct dpe_family *family,
                                                             bool whole);
/** The family of a model_type, NULL when the table does not have it. */
const struct dpe_family *dpe_family_find(const char *model_type);
/** Line i of the table, NULL after the last. */
const struct dpe_family *dpe_family_at(size_t i);
/** The family of a configuration; one that was filled by hand is of Llama's. */
const struct dpe_family *dpe_family_of(const struct dpe_config *config);
/** Its names, Llama's where it has none of its own. */
const struct dpe_family_names *dpe_family_names(const struct dpe_family *family);
const struct dpe_family_names *dpe_family_names_of(const struct dpe_config *config);
/** The names of the norms around a layer; around those with a state they are Llama's. */
const struct dpe_norm_names *dpe_family_norms(const struct dpe_family *family, bool recurrent);
/** Why models of a type that people know cannot open, NULL where no reason is known. */
const char *dpe_family_refusal(const char *model_type);

#endif
