/**
 * @file config.h
 * What a model is: its architecture as data. config_parse.h makes it of a config.json.
 */
#ifndef DPE_CONFIG_H
#define DPE_CONFIG_H

#include "engine/base/base.h"
#include "engine/gguf/blocks.h"
#include "engine/model/config/recurrent.h"
#include "engine/model/config/selection.h"

/** Native rope scaling of a checkpoint (config.json: rope_scaling or rope_parameters). */
enum dpe_rope_type {
    DPE_ROPE_DEFAULT,
    DPE_ROPE_LINEAR,
    DPE_ROPE_DYNAMIC,
    DPE_ROPE_YARN,
    DPE_ROPE_LONGROPE,
    DPE_ROPE_LLAMA3,
    DPE_ROPE_NETWORK, /**< frequencies of a network among the weights (clex.h) */
};

struct dpe_clex;

/** The rotation in config.json; fields that a type does not use hold NaN. Source of
 *  the meaning of each: methods as in transformers' modeling_rope_utils. */
struct dpe_rope_config {
    enum dpe_rope_type type;
    double theta;                  /**< rope base b */
    double factor;                 /**< s */
    double original_max_position;  /**< original_max_position_embeddings, NaN when absent */
    double attention_factor;       /**< NaN: the type's formula */
    double beta_fast, beta_slow;   /**< yarn */
    double mscale, mscale_all_dim; /**< yarn, NaN when absent */
    bool truncate;                 /**< yarn, default true */
    double low_freq_factor, high_freq_factor; /**< llama3 */
    double short_mscale, long_mscale;   /**< longrope: a of each list, before attention_factor; NaN
                                             when absent */
    double *short_factor, *long_factor; /**< longrope, [n_pairs], owned by the model; or NULL */
    bool divided;                 /**< yarn: the lists divide its frequencies too (GGUF files) */
    struct dpe_clex *network;     /**< of DPE_ROPE_NETWORK, owned by the model, else NULL */
    double partial_rotary_factor; /**< share of the head that rotates */
};

/** RoPE as it was published: base 10000, the whole head, no scaling. */
extern const struct dpe_rope_config dpe_rope_plain;
/** What config.json calls a type. */
const char *dpe_rope_name(enum dpe_rope_type type);
/** Free the lists and the network of a rotation that dpe_config_parse made. */
void dpe_rope_config_release(struct dpe_rope_config *rope);

/** Which queries and keys of a head are normalised before rotation. */
enum dpe_qk_norm {
    DPE_QK_NORM_NONE,
    DPE_QK_NORM_HEAD,  /**< each head by itself: a weight of head_dim */
    DPE_QK_NORM_WHOLE, /**< all heads together: a weight of heads * head_dim */
};

/** What the gate of the MLP does with the other half. */
enum dpe_activation {
    DPE_SWIGLU,         /**< silu(gate) * up */
    DPE_GEGLU_TANH,     /**< gelu(gate) * up, gelu by its tanh form */
    DPE_SWIGLU_CLAMPED, /**< g * sigmoid(1.702 g) * (u + 1), g = min(gate, 7), u = up in [-7, 7] */
};

/** How the queries of a layer see its keys. */
struct dpe_layer_kind {
    int64_t window; /**< keys that a query sees, itself included; 0: all before it */
    int rope;       /**< 0: dpe_config.rope, 1: dpe_config.local_rope, -1: without positions */
    bool recurrent; /**< a state (dpe_config.recurrent) in place of keys */
    bool chunked;   /**< a query sees keys of its own chunk of `window` tokens alone */
    int64_t head_dim, kv_heads; /**< of its heads; 0: those of dpe_config. The whole head rotates */
};
enum { DPE_MAX_LAYER_KINDS = 4 };

/** How the scores of a row's experts choose some of them, and weigh these. */
struct dpe_router {
    bool sigmoid; /**< each score by itself becomes σ(score), else all their softmax */
    bool shifted; /**< chosen are those of the largest score + shift, a weight by expert */
    bool before;  /**< weights scale what experts read, in place of what they make; the scores
                       choose as they are */
    int64_t groups, of_these; /**< experts of `of_these` of so many equal groups are chosen: those
                                   whose two largest sums are largest; 0 groups: one */
    double scale;             /**< of all weights; 0: 1 */
};
enum { DPE_MOST_EXPERTS = 1 << 12, DPE_MOST_ROUTER_GROUPS = 64 };

struct dpe_family;

/** Architecture variation as data. All counts are ≥ 1 and checked against the tensors. */
struct dpe_config {
    char model_type[32];             /**< a name in the table of family.c */
    const struct dpe_family *family; /**< its line there; NULL: Llama's */
    int64_t n_layers;
    int64_t hidden;        /**< width of the residual stream */
    int64_t intermediate;  /**< width of the MLP; of an expert where all layers have experts */
    int64_t n_heads;       /**< query heads */
    int64_t n_kv_heads;    /**< divides n_heads */
    int64_t head_dim;      /**< even */
    int64_t vocab;         /**< rows of the embedding */
    int64_t max_position;  /**< max_position_embeddings */
    int64_t made_longer;   /**< trained at, where max_position is longer: by DPE_TRAINED_KEY, else
                                dual_chunk_attention_config, else the family's table; 0: by none */
    bool exported;         /**< the file holds a table too (dpe-export --format hf) */
    const char *longer_by; /**< which of them: dpe_config_trained_key; static */
    double rms_eps;        /**< of all norms (a residual multiplier is in it, config.c) */
    bool qkv_bias;         /**< Qwen2 */
    bool o_bias, mlp_bias; /**< Llama attention_bias / mlp_bias */
    bool
        tied_embeddings; /**< the head is the embedding; the weights may say otherwise (own_head) */
    bool tied_outside;   /**< what stands beside a text_config says so: where no head is stored */
    bool own_head;       /**< config.json says tied, and the file has a head that is another */
    struct dpe_rope_config rope;       /**< of the layers that a position plan moves */
    struct dpe_rope_config local_rope; /**< of the layers whose kind says so */
    int64_t rotary_dim;                /**< components of a head that rotate, even; 0: head_dim */
    bool parallel;                     /**< the MLP reads what attention reads; both are added */
    bool centred;                      /**< norms take the mean away first */
    /* The kinds of layers. Kind 0 is a full-attention layer with `rope`: only these follow a
     * position plan. The others stay as they were trained. Where no full-attention layer rotates,
     * kind 0 is one without positions (rope −1): a plan is a temperature of these. */
    int n_kinds; /**< 0: all layers are of kind 0. Kind 1 may be the window of branches instead */
    struct dpe_layer_kind kinds[DPE_MAX_LAYER_KINDS];
    uint8_t *layer_kinds; /**< [n_layers] index into kinds, owned by the model; NULL: all 0 */
    enum dpe_qk_norm qk_norm;
    enum dpe_activation activation;
    /* Of the next, 0 leaves it out. */
    double embedding_multiplier;    /**< of the embeddings */
    double logits_multiplier;       /**< of the logits */
    double attention_multiplier;    /**< of q·k, in place of 1/sqrt(head_dim) */
    double attention_cap;           /**< c: attention's logits become c tanh(logit/c) */
    double logit_cap;               /**< the same for the logits of the tokens */
    double query_growth;            /**< b: queries at position p times 1 + b ln(1 + floor(p/L)) */
    double query_length;            /**< L of query_growth */
    int64_t query_from;             /**< added to p there */
    bool growth_still;              /**< of the layers without positions alone */
    bool bare_norms;                /**< norms of q and k have no weights, and layers without
                                         positions no such norms */
    bool late_norms;                /**< q and k are normalised after rotation: what their weights
                                         do within a pair is left to DPE_WEIGHT_LATE */
    bool sinks;                     /**< a logit per head that takes part in the softmax alone */
    struct dpe_selection selection; /**< of the keys that the model chooses itself; block 0: none */
    bool
        branches; /**< attention is three that gates add up: of the means of the selection's blocks,
                       of the chosen keys, and of the window of kind 1, where there is one (NSA) */
    struct dpe_recurrent recurrent; /**< the layers whose kind says so */
    bool output_gate;               /**< attention's output times the sigmoid of a gate, before O */
    int64_t n_experts;              /**< of a layer's MLP; 0: one dense MLP */
    int64_t experts_per_token;
    int64_t expert_width;    /**< of an expert's MLP */
    int64_t shared_width;    /**< of the MLP that every token takes beside its experts; 0: none */
    bool shared_gate;        /**< that MLP times the sigmoid of a gate, a number a token */
    int64_t dense_layers;    /**< the first so many layers have a dense MLP instead of experts */
    int64_t routed_every;    /**< n: and all but layers n - 1, 2n - 1, …; 0: no others */
    bool experts_normalised; /**< the weights of a token's experts add up to 1 */
    struct dpe_router router;
    bool experts_beside;    /**< the MLP beside the experts is one without them, and what both make
                                 is normalised apart, added up and normalised again; the router
                                 reads the stream through a norm of its own */
    int64_t further_layers; /**< in the file after n_layers: they predict further tokens, and are
                                 left out */
    /* Of Gemma 4, 0 in others: */
    bool fast;             /**< every pair that rotates in layers of kind 0 turns within the
                                trained length: what a plan may change is a temperature */
    bool value_norms;      /**< values are normalised, without weights */
    bool values_are_keys;  /**< in layers of kind 0 the projection of keys is that of values too */
    int64_t shared_layers; /**< the last so many have the keys and values of the last layer before
                                these that is of their kind */
    int64_t wide_layers;   /**< the last so many have an MLP of twice the width */
    bool layer_scales;     /**< the stream is multiplied by a number after each layer */
    int64_t input_width;   /**< of what each layer gets of a token's id and embedding, beside the
                                stream */
    int64_t input_vocab;   /**< rows of the table that it is from */

    int64_t bos_id;      /**< -1 when none */
    int64_t eos_ids[16]; /**< union of config.json and generation_config.json, ascending */
    int n_eos;
    enum dpe_dtype dtype; /**< of the weights on disk (the widest met among matrices); F32 where
                             they are blocks or mixed */
    int64_t fp8_block[2]; /**< rows and columns that a scale of F8_E4M3 weights is for; 0: by its
                             shape */
    bool zeros_whole;     /**< GPTQ's zero points are stored as they are, not less 1 */
    uint32_t blocks;      /**< bit t: some matrices are in blocks of type t (GGUF) */
    int64_t weight_bytes; /**< of the weights in a GGUF file; 0: by the number and dtype */
};

/** What matrices are on a device that unpacks blocks. */
static inline enum dpe_dtype dpe_config_unpacked(const struct dpe_config *config)
{
    return config->blocks != 0 ? DPE_BF16 : config->dtype;
}

/** Whether a layer has experts. */
static inline bool dpe_config_routes(const struct dpe_config *config, int64_t layer)
{
    return config->n_experts > 0 && layer >= config->dense_layers &&
           (config->routed_every == 0 || (layer + 1) % config->routed_every == 0);
}
/** How many have. */
static inline int64_t dpe_config_routed(const struct dpe_config *config)
{
    int64_t n = 0;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        n += dpe_config_routes(config, layer);
    }
    return n;
}
/** The widest of a model's MLPs. */
int64_t dpe_config_widest(const struct dpe_config *config);
/** Number of weights and their bytes on disk, computed from the configuration alone. */
int64_t dpe_config_parameters(const struct dpe_config *config);
/** The kind of a layer; {0, 0} for all layers of most models. */
struct dpe_layer_kind dpe_config_layer(const struct dpe_config *config, int64_t layer);
/** Whether the layer has keys and values, and how many before it have: where they are in a cache
 *  that holds no other layers. */
bool dpe_config_attends(const struct dpe_config *config, int64_t layer);
int64_t dpe_config_attending(const struct dpe_config *config, int64_t layer);
/** The size of a layer's heads, and how many have keys. */
int64_t dpe_config_head_dim(const struct dpe_config *config, int64_t layer);
int64_t dpe_config_kv_heads(const struct dpe_config *config, int64_t layer);
/** The layer whose keys and values a layer has: itself, but for dpe_config.shared_layers. */
int64_t dpe_config_keys_of(const struct dpe_config *config, int64_t layer);
/** Numbers of a token's keys that a layer keeps: none where it has no keys of its own. And those of
 *  all layers. */
int64_t dpe_config_kept(const struct dpe_config *config, int64_t layer);
int64_t dpe_config_kept_all(const struct dpe_config *config);
/** Whether layers differ in their heads, or share keys. */
bool dpe_config_mixed(const struct dpe_config *config);
/** Numbers of a row of queries, and of keys, at most. */
int64_t dpe_config_most_queries(const struct dpe_config *config);
int64_t dpe_config_most_keys(const struct dpe_config *config);
/** The width of the widest dense MLP, or of inputs where these are wider. */
int64_t dpe_config_dense(const struct dpe_config *config);
/** Whether a position plan moves the layer: full attention, with `rope`. */
bool dpe_config_moves(const struct dpe_config *config, int64_t layer);
/** How many layers it moves. */
int64_t dpe_config_moved(const struct dpe_config *config);
/** Whether a plan moves all layers that have keys: one rotation in config.json is theirs alone. */
bool dpe_config_alike(const struct dpe_config *config);
/** The key of a config.json by which dpe-export keeps the trained length of a model whose
 *  max_position_embeddings it replaces. */
#define DPE_TRAINED_KEY "dpe_trained_length"
/** Whether a plan is a temperature alone: the layers that it holds for do not rotate
 *  (dpe_config_stands), or too fast for a plan. */
bool dpe_config_still(const struct dpe_config *config);
bool dpe_config_stands(const struct dpe_config *config);
/** Tokens that the model was trained at. */
int64_t dpe_config_trained(const struct dpe_config *config);
/** The key of config.json that says so: DPE_TRAINED_KEY, dual_chunk_attention_config or
 *  max_position_embeddings; or, of a length from the table of families, that its authors do. */
const char *dpe_config_trained_key(const struct dpe_config *config);
/** Pairs of a head at most. No published model has more than 256. */
enum { DPE_MOST_PAIRS = 1 << 10 };
/** Pairs of a head that rotate: the first of its head_dim/2 pairs (the engine puts those that stay
 *  behind them, whatever the checkpoint's order). */
int64_t dpe_config_pairs(const struct dpe_config *config);

/** Pairs of a query and a key that it sees, over all layers and one query head, of `length` tokens
 *  after `start` cached ones: windows and branches see fewer than all. */
double dpe_config_seen(const struct dpe_config *config, int64_t start, int64_t length);
/** Floating-point operations of a prefill of `length` tokens after `start` cached ones (multiply
 * and add count 2 each): matrix products and attention apart; the LM head on `logit_rows` rows. An
 * upper bound: what the last layer computes only for rows that are looked at is counted in full. */
void dpe_config_flops(const struct dpe_config *config, int64_t start, int64_t length,
                      int64_t logit_rows, double *products, double *attention);

#endif
