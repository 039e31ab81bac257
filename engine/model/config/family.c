/* The one table of model families. */
#include "engine/model/config/family.h"

#include "engine/model/config/layer_weights.h"

static const struct dpe_norm_names norms_llama = {"input_layernorm", NULL,
                                                  "post_attention_layernorm", NULL};
static const struct dpe_norm_names norms_after = {NULL, "post_attention_layernorm", NULL,
                                                  "post_feedforward_layernorm"};
static const struct dpe_norm_names norms_gemma = {"input_layernorm", "post_attention_layernorm",
                                                  "pre_feedforward_layernorm",
                                                  "post_feedforward_layernorm"};
static const struct dpe_norm_names norms_glm4 = {"input_layernorm", "post_self_attn_layernorm",
                                                 "post_attention_layernorm", "post_mlp_layernorm"};

static const struct dpe_norm_names norms_cohere = {"input_layernorm", NULL, NULL, NULL};
static const struct dpe_norm_names norms_nsa = {"attn_norm", NULL, "mlp_norm", NULL};

/* The keys of Llama's config.json but for these, and for what follows. */
#define NAMES(of_eps, bias, bias_o, ...)                                                           \
    {                                                                                              \
        .heads = "num_attention_heads", .kv_heads = "num_key_value_heads", .eps = (of_eps),        \
        .qkv_bias = (bias), .o_bias = (bias_o), .activation = "silu", .embedding = "embed_tokens", \
        __VA_ARGS__                                                                                \
    }
#define EXPERTS(before)                                                                            \
    {                                                                                              \
        before "experts", "gate_proj", "up_proj", "down_proj"                                      \
    }
static const struct dpe_family_names names_llama =
    NAMES("rms_norm_eps", "attention_bias", "attention_bias", .mlp_bias = "mlp_bias",
          .experts = "num_local_experts", .expert_width = "moe_intermediate_size",
          .expert = EXPERTS("mlp."));
static const struct dpe_family_names names_seed =
    NAMES("rms_norm_eps", "attention_bias", "attention_out_bias", .mlp_bias = "mlp_bias");
static const struct dpe_family_names names_ernie =
    NAMES("rms_norm_eps", "use_bias", "use_bias", .mlp_bias = "use_bias");
static const struct dpe_family_names names_glm =
    NAMES("rms_norm_eps", "attention_bias", NULL, .experts = "n_routed_experts",
          .expert_width = "moe_intermediate_size", .expert = EXPERTS("mlp."));
static const char *const weights_minimax[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_ROUTER] = "block_sparse_moe.gate",
    [DPE_WEIGHT_ROUTER_SHIFT] = "block_sparse_moe.e_score_correction_bias",
};
static const struct dpe_family_names names_minimax = NAMES(
    "rms_norm_eps", NULL, NULL, .experts = "num_local_experts", .expert_width = "intermediate_size",
    .weights = weights_minimax, .expert = {"block_sparse_moe.experts", "w1", "w3", "w2"});
static const struct dpe_family_names names_cohere =
    NAMES("layer_norm_eps", "attention_bias", "attention_bias", .mlp_bias = NULL);
static const char *const weights_llama4[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_ROUTER] = "feed_forward.router",
};
static const char *mlp_llama4[2][3] = {
    {"feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"},
    {"feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj",
     "feed_forward.shared_expert.down_proj"},
};
static const struct dpe_family_names names_llama4 =
    NAMES("rms_norm_eps", "attention_bias", "attention_bias", .experts = "num_local_experts",
          .expert_width = "intermediate_size", .weights = weights_llama4,
          .expert = EXPERTS("feed_forward."), .width = "intermediate_size_mlp", .mlp = mlp_llama4);
static const char *const weights_gemma4[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_ROUTER] = "router.proj",
};
static const struct dpe_family_names names_gemma4 =
    NAMES("rms_norm_eps", "attention_bias", "attention_bias", .experts = "num_experts",
          .expert_width = "moe_intermediate_size", .weights = weights_gemma4, .expert = EXPERTS(""),
          .per_token = "top_k_experts");
static const char *const weights_hunyuan[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_Q_NORM] = "self_attn.query_layernorm",
    [DPE_WEIGHT_K_NORM] = "self_attn.key_layernorm",
};
static const struct dpe_family_names names_hunyuan =
    NAMES("rms_norm_eps", "attention_bias", "attention_bias", .weights = weights_hunyuan);
static const char *const weights_nsa[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_Q] = "attn.q_proj",
    [DPE_WEIGHT_K] = "attn.k_proj",
    [DPE_WEIGHT_V] = "attn.v_proj",
    [DPE_WEIGHT_O] = "attn.o_proj",
    [DPE_WEIGHT_BRANCH_GATES] = "attn.g_proj",
};
static const struct dpe_family_names names_nsa = {
    .heads = "num_heads",
    .kv_heads = "num_kv_heads",
    .eps = "norm_eps",
    .qkv_bias = "qkv_bias",
    .activation = "swish",
    .embedding = "embeddings",
    .weights = weights_nsa,
};

static const char *const weights_qwen3_next[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_Q] = "linear_attn.in_proj_qkvz",
    [DPE_WEIGHT_K] = "linear_attn.in_proj_qkvz",
    [DPE_WEIGHT_V] = "linear_attn.in_proj_qkvz",
    [DPE_WEIGHT_OUTPUT_GATE] = "linear_attn.in_proj_qkvz",
    [DPE_WEIGHT_BETA] = "linear_attn.in_proj_ba",
    [DPE_WEIGHT_DECAY] = "linear_attn.in_proj_ba",
};
static const struct dpe_family_recurrent recurrent_qwen3_next = {.layout = DPE_RECURRENT_KEYS,
                                                                 .weights = weights_qwen3_next};
static const struct dpe_family_recurrent recurrent_qwen3_5 = {.layout = DPE_RECURRENT_QKV};

static const char *const weights_olmo_hybrid[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_Q] = "linear_attn.q_proj",
    [DPE_WEIGHT_K] = "linear_attn.k_proj",
    [DPE_WEIGHT_V] = "linear_attn.v_proj",
    [DPE_WEIGHT_O] = "linear_attn.o_proj",
    [DPE_WEIGHT_OUTPUT_GATE] = "linear_attn.g_proj",
    [DPE_WEIGHT_BETA] = "linear_attn.b_proj",
    [DPE_WEIGHT_DECAY] = "linear_attn.a_proj",
    [DPE_WEIGHT_OUTPUT_NORM] = "linear_attn.o_norm",
};
static const char *const aliases_olmo_hybrid[][2] = {
    {"attention_layer_norm", "input_layernorm"},
    {"feedforward_layer_norm", "post_attention_layernorm"},
    {NULL, NULL},
};
static const struct dpe_family_recurrent recurrent_olmo_hybrid = {.layout = DPE_RECURRENT_APART,
                                                                  .weights = weights_olmo_hybrid,
                                                                  .aliases = aliases_olmo_hybrid,
                                                                  .eps = 1e-5};

/* A family of more than texts, whose language model is of another. */
#define HOLDS_TEXT(type, class, inside)                                                            \
    {                                                                                              \
        .model_type = (type), .architecture = (class), .text = (inside)                            \
    }
static const struct dpe_family families[] = {
    {
        .model_type = "llama",
        .architecture = "LlamaForCausalLM",
        .bias = DPE_BIAS_ALL,
        .mlp_bias = true,
    },
    {
        .model_type = "mistral",
        .architecture = "MistralForCausalLM",
        .windows = DPE_WINDOW_ALL,
        .defaults = {.window = 4096},
    },
    {
        .model_type = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        .bias = DPE_BIAS_ALWAYS,
        .windows = DPE_WINDOW_SWITCHED,
        .defaults = {.window = 4096},
    },
    {
        .model_type = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .qk_norm = DPE_QK_NORM_HEAD,
        .bias = DPE_BIAS_ALL,
        .windows = DPE_WINDOW_SWITCHED,
        .defaults = {.window = 4096, .head_dim = 128, .extended = 40960, .trained = 32768},
    },
    {
        .model_type = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        .qk_norm = DPE_QK_NORM_HEAD,
        .bias = DPE_BIAS_ALL,
        .experts = DPE_EXPERTS_APART,
        .defaults = {.extended = 40960, .trained = 32768},
    },
    HOLDS_TEXT("qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"),
    {
        .model_type = "qwen3_5_text",
        .architecture = "Qwen3_5ForCausalLM",
        .qk_norm = DPE_QK_NORM_HEAD,
        .partial = true,
        .norm_plus_one = true,
        .recurrent = &recurrent_qwen3_5,
        .defaults = {.n_heads = 16,
                     .n_kv_heads = 4,
                     .head_dim = 256,
                     .vocab = 248320,
                     .max_position = 32768,
                     .partial_rotary = 0.25},
    },
    HOLDS_TEXT("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"),
    {
        .model_type = "qwen3_5_moe_text",
        .architecture = "Qwen3_5MoeForCausalLM",
        .qk_norm = DPE_QK_NORM_HEAD,
        .partial = true,
        .norm_plus_one = true,
        .recurrent = &recurrent_qwen3_5,
        .experts = DPE_EXPERTS_APART,
        .router_fixed = true,
        .shared_gate = true,
        .defaults = {.n_heads = 16,
                     .n_kv_heads = 2,
                     .head_dim = 256,
                     .vocab = 248320,
                     .max_position = 32768,
                     .partial_rotary = 0.25},
    },
    {
        .model_type = "qwen3_next",
        .architecture = "Qwen3NextForCausalLM",
        .qk_norm = DPE_QK_NORM_HEAD,
        .partial = true,
        .norm_plus_one = true,
        .recurrent = &recurrent_qwen3_next,
        .experts = DPE_EXPERTS_APART,
        .shared_gate = true,
        .defaults = {.n_heads = 16,
                     .n_kv_heads = 2,
                     .head_dim = 256,
                     .vocab = 151936,
                     .max_position = 32768,
                     .partial_rotary = 0.25},
    },
    {
        .model_type = "phi3",
        .architecture = "Phi3ForCausalLM",
        .qkv_fused = true,
        .gate_up_fused = true,
        .partial = true,
        .windows = DPE_WINDOW_ALL,
    },
    {
        .model_type = "olmo2",
        .architecture = "Olmo2ForCausalLM",
        .norms = &norms_after,
        .qk_norm = DPE_QK_NORM_WHOLE,
        .bias = DPE_BIAS_ALL,
    },
    {
        .model_type = "olmo3",
        .architecture = "Olmo3ForCausalLM",
        .norms = &norms_after,
        .qk_norm = DPE_QK_NORM_WHOLE,
        .bias = DPE_BIAS_ALL,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 4,
        .local_rope = DPE_LOCAL_ROPE_UNSCALED,
        .defaults = {.window = 4096, .theta = 5e5},
    },
    {
        .model_type = "olmo_hybrid",
        .architecture = "OlmoHybridForCausalLM",
        .norms = &norms_after,
        .qk_norm = DPE_QK_NORM_WHOLE,
        .bias = DPE_BIAS_ALL,
        .still = true,
        .recurrent = &recurrent_olmo_hybrid,
        .defaults = {.n_heads = 30, .vocab = 100352, .max_position = 65536},
    },
    {
        .model_type = "granite",
        .architecture = "GraniteForCausalLM",
        .bias = DPE_BIAS_ALL,
        .mlp_bias = true,
        .multipliers = true,
    },
    {
        .model_type = "smollm3",
        .architecture = "SmolLM3ForCausalLM",
        .bias = DPE_BIAS_ALL,
        .mlp_bias = true,
        .position_free = true,
        .defaults = {.theta = 2e6, .tied = true},
    },
    {
        .model_type = "glm4",
        .architecture = "Glm4ForCausalLM",
        .norms = &norms_glm4,
        .bias = DPE_BIAS_QKV,
        .gate_up_fused = true,
        .interleaved = true,
        .partial = true,
        .defaults = {.head_dim = 128, .partial_rotary = 0.5, .attention_bias = true},
    },
    {
        .model_type = "glm4_moe",
        .architecture = "Glm4MoeForCausalLM",
        .names = &names_glm,
        .qk_norm = DPE_QK_NORM_HEAD,
        .qk_norm_by_key = true,
        .bias = DPE_BIAS_QKV,
        .partial = true,
        .experts = DPE_EXPERTS_APART,
        .sigmoid = true,
        .shared = true,
        .defaults = {.partial_rotary = 0.5},
    },
    {
        .model_type = "minimax_m2",
        .architecture = "MiniMaxM2ForCausalLM",
        .names = &names_minimax,
        .qk_norm = DPE_QK_NORM_WHOLE,
        .partial = true,
        .experts = DPE_EXPERTS_APART,
        .sigmoid = true,
        .router_fixed = true,
        .defaults = {.head_dim = 128, .theta = 5e6},
    },
    {
        .model_type = "seed_oss",
        .architecture = "SeedOssForCausalLM",
        .names = &names_seed,
        .bias = DPE_BIAS_ALL,
        .mlp_bias = true,
        .defaults = {.head_dim = 128, .max_position = 524288, .attention_bias = true},
    },
    {
        .model_type = "ernie4_5",
        .architecture = "Ernie4_5ForCausalLM",
        .names = &names_ernie,
        .bias = DPE_BIAS_ALL,
        .mlp_bias = true,
        .interleaved = true,
        .defaults = {.head_dim = 128, .theta = 5e5, .tied = true},
    },
    {
        .model_type = "hunyuan_v1_dense",
        .architecture = "HunYuanDenseV1ForCausalLM",
        .names = &names_hunyuan,
        .qk_norm = DPE_QK_NORM_HEAD,
        .qk_norm_late = true,
        .bias = DPE_BIAS_ALL,
        .alpha = true,
    },
    {
        .model_type = "exaone4",
        .architecture = "Exaone4ForCausalLM",
        .norms = &norms_after,
        .qk_norm = DPE_QK_NORM_HEAD,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 4,
        .full_still = true,
        .defaults = {.window = 4096},
    },
    {
        .model_type = "cohere2",
        .architecture = "Cohere2ForCausalLM",
        .norms = &norms_cohere,
        .names = &names_cohere,
        .bias = DPE_BIAS_ALL,
        .interleaved = true,
        .parallel_centred = true,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 4,
        .full_still = true,
        .defaults = {.window = 4096, .tied = true},
    },
    HOLDS_TEXT("llama4", "Llama4ForConditionalGeneration", "llama4_text"),
    {
        .model_type = "llama4_text",
        .architecture = "Llama4ForCausalLM",
        .names = &names_llama4,
        .qk_norm = DPE_QK_NORM_HEAD,
        .qk_norm_bare = true,
        .bias = DPE_BIAS_ALL,
        .experts = DPE_EXPERTS_COLUMNS,
        .scaled_inputs = true,
        .interleaved = true,
        .position_free = true,
        .tuned = true,
        .windows = DPE_WINDOW_CHUNKS,
        .defaults = {.n_heads = 40,
                     .n_kv_heads = 8,
                     .head_dim = 128,
                     .vocab = 202048,
                     .max_position = 131072,
                     .extended = 10485760,
                     .trained = 262144,
                     .window = 8192,
                     .theta = 5e5},
    },
    HOLDS_TEXT("mistral3", "Mistral3ForConditionalGeneration", "mistral"),
    {
        .model_type = "ministral3",
        .architecture = "Ministral3ForCausalLM",
        .grows = true,
        .windows = DPE_WINDOW_ALL,
        .defaults = {.n_heads = 32,
                     .n_kv_heads = 8,
                     .head_dim = 128,
                     .vocab = 131072,
                     .max_position = 262144,
                     .rope = "{\"rope_type\": \"yarn\", \"rope_theta\": 1e6, \"factor\": 16, "
                             "\"original_max_position_embeddings\": 16384, \"beta_fast\": 32, "
                             "\"beta_slow\": 1, \"mscale\": 1, \"mscale_all_dim\": 1, "
                             "\"llama_4_scaling_beta\": 0.1}"},
    },
    {
        .model_type = "gemma2",
        .architecture = "Gemma2ForCausalLM",
        .norms = &norms_gemma,
        .bias = DPE_BIAS_ALL,
        .norm_plus_one = true,
        .embedding_scaled = true,
        .caps = true,
        .activation = DPE_GEGLU_TANH,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 2,
        .defaults = {.window = 4096, .head_dim = 256, .tied = true},
    },
    HOLDS_TEXT("gemma3", "Gemma3ForConditionalGeneration", "gemma3_text"),
    {
        .model_type = "gemma3_text",
        .architecture = "Gemma3ForCausalLM",
        .norms = &norms_gemma,
        .qk_norm = DPE_QK_NORM_HEAD,
        .bias = DPE_BIAS_ALL,
        .norm_plus_one = true,
        .embedding_scaled = true,
        .caps = true,
        .activation = DPE_GEGLU_TANH,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 6,
        .local_rope = DPE_LOCAL_ROPE_OWN,
        .defaults = {.n_heads = 8,
                     .n_kv_heads = 4,
                     .head_dim = 256,
                     .vocab = 262208,
                     .max_position = 131072,
                     .window = 4096,
                     .theta = 1e6,
                     .local_theta = 1e4,
                     .tied = true},
    },
    HOLDS_TEXT("gemma4", "Gemma4ForConditionalGeneration", "gemma4_text"),
    {
        .model_type = "gemma4_text",
        .architecture = "Gemma4ForCausalLM",
        .norms = &norms_gemma,
        .names = &names_gemma4,
        .qk_norm = DPE_QK_NORM_HEAD,
        .bias = DPE_BIAS_ALL,
        .partial = true,
        .embedding_scaled = true,
        .caps = true,
        .mixed = true,
        .activation = DPE_GEGLU_TANH,
        .experts = DPE_EXPERTS_APART,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 6,
        .local_rope = DPE_LOCAL_ROPE_OWN,
        .defaults = {.n_heads = 8,
                     .n_kv_heads = 4,
                     .head_dim = 256,
                     .vocab = 262144,
                     .max_position = 131072,
                     .window = 512,
                     .theta = 1e6,
                     .local_theta = 1e4,
                     .rope = "{\"full_attention\": {\"rope_type\": \"proportional\", "
                             "\"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}, "
                             "\"sliding_attention\": {\"rope_type\": \"default\", "
                             "\"rope_theta\": 1e4}}",
                     .tied = true},
    },
    {
        .model_type = "gpt_oss",
        .architecture = "GptOssForCausalLM",
        .bias = DPE_BIAS_ALL,
        .sinks = true,
        .activation = DPE_SWIGLU_CLAMPED,
        .experts = DPE_EXPERTS_STACKED,
        .experts_biased = true,
        .windows = DPE_WINDOW_TYPES,
        .window_pattern = 2,
        .defaults = {.window = 128,
                     .head_dim = 64,
                     .theta = 150000.0,
                     .rope = "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, "
                             "\"beta_slow\": 1, \"truncate\": false, "
                             "\"original_max_position_embeddings\": 4096}",
                     .attention_bias = true},
    },
    {
        .model_type = "nsa",
        .architecture = "NSAForCausalLM",
        .norms = &norms_nsa,
        .names = &names_nsa,
        .bias = DPE_BIAS_QKV,
        .branches = true,
        .defaults = {.n_heads = 64,
                     .n_kv_heads = 4,
                     .head_dim = 64,
                     .vocab = 32000,
                     .max_position = 2048,
                     .window = 512,
                     .hidden_ratio = 4,
                     .theta = 1e4},
    },
};

#define TEMPERATURE                                                                                \
    ", so no position method can move anything; what is left is a temperature: its engine may "    \
    "multiply queries at position n by max(1, ln n / ln L0), L0 the trained length, and "          \
    "--engine measures that"
static const char no_positions[] =
    "its layers that see all keys have no rotary positions" TEMPERATURE;
static const char latent[] =
    "it has multi-head latent attention (MLA), whose rotated keys are one vector for all heads; a "
    "position plan moves pairs of the heads' own keys";

static const struct refusal {
    const char *model_type, *reason;
} refused[] = {
    {"granitemoehybrid",
     "the engine does not have this family; unless position_embedding_type is rope, its layers "
     "that see all keys have no rotary positions" TEMPERATURE},
    {"nemotron_h", no_positions},
    {"kimi_linear", no_positions},
    {"muse_glimmer", no_positions},
    {"deepseek_v2", latent},
    {"deepseek_v3", latent},
    {"kimi_k2", latent},
    {"minicpm3", latent},
    {"glm4_moe_lite", latent},
    {"longcat_flash", latent},
};

/* What llama.cpp's converter makes of them: rates, and value heads in an order of its own where the
 * rows of a key head are not together. */
static const char *const weights_sorted[DPE_WEIGHTS_PER_LAYER] = {
    [DPE_WEIGHT_BETA] = "linear_attn.in_proj_ba",
    [DPE_WEIGHT_DECAY] = "linear_attn.in_proj_ba",
};
static const struct dpe_family_recurrent recurrent_gguf[] = {
    {.layout = DPE_RECURRENT_QKV, .tiled = true, .rates = true},
    {.layout = DPE_RECURRENT_SORTED, .weights = weights_sorted, .rates = true},
    {.layout = DPE_RECURRENT_KEYS, .weights = weights_qwen3_next, .rates = true}};

const struct dpe_family_recurrent *dpe_family_recurrent_gguf(const struct dpe_family *family,
                                                             bool whole)
{
    const bool keys = family->recurrent != NULL && family->recurrent->layout == DPE_RECURRENT_KEYS;
    return family->recurrent == NULL ? NULL : &recurrent_gguf[!keys ? 0 : whole ? 2 : 1];
}

const struct dpe_family *dpe_family_at(size_t i)
{
    return i < sizeof families / sizeof families[0] ? &families[i] : NULL;
}

const struct dpe_family *dpe_family_find(const char *model_type)
{
    return DPE_NAMED(families, model_type);
}

const struct dpe_family *dpe_family_of(const struct dpe_config *config)
{
    return config->family != NULL ? config->family : &families[0];
}

const struct dpe_family_names *dpe_family_names_of(const struct dpe_config *config)
{
    return dpe_family_names(dpe_family_of(config));
}

const struct dpe_family_names *dpe_family_names(const struct dpe_family *family)
{
    return family->names != NULL ? family->names : &names_llama;
}

const struct dpe_norm_names *dpe_family_norms(const struct dpe_family *family, bool recurrent)
{
    return recurrent || family->norms == NULL ? &norms_llama : family->norms;
}

const char *dpe_family_refusal(const char *model_type)
{
    const struct refusal *found = DPE_NAMED(refused, model_type);
    return found != NULL ? found->reason : NULL;
}
