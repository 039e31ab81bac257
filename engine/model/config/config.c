/* config.json and generation_config.json: which model this is, strictly. */
#include "engine/model/config/config_parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/model/config/family.h"
#include "engine/model/config/layer_weights.h"

/* Bounds keep every product of sizes, and the number of weights, within 63 bits. */
enum {
    MAX_LAYERS = DPE_CONFIG_MAX_LAYERS,
    MAX_HIDDEN = 1 << 20,
    MAX_INTERMEDIATE = 1 << 22,
    MAX_HEADS = 1 << 13,
    MAX_HEAD_DIM = DPE_CONFIG_MAX_HEAD_DIM,
    MAX_VOCAB = 1 << 26,
    MAX_SHARED = 1 << 8,
};
static const int64_t max_positions = (int64_t)1 << 31;

/* "llama", "mistral", ... and "gpt_oss". */
static void name_families(char *text, size_t room)
{
    text[0] = '\0';
    for (size_t i = 0; dpe_family_at(i) != NULL; i++) {
        const char *between = i == 0 ? "" : dpe_family_at(i + 1) != NULL ? ", " : " or ";
        dpe_append(text, room, "%s\"%s\"", between, dpe_family_at(i)->model_type);
    }
}

/* What the file is for: the language model of its type (letter case apart: old LLaMA conversions
 * differ in it). */
static void check_architecture(struct dpe_json_reader *top, const struct dpe_family *family)
{
    const json_t *list = dpe_json_member(top, "architectures");
    size_t n = json_array_size(list);
    bool found = list == NULL || (json_is_array(list) && n == 0);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        found = found || (name != NULL && strcasecmp(name, family->architecture) == 0);
    }
    if (!found) {
        char what[96];
        snprintf(what, sizeof what, "[\"%s\"] for model_type %s", family->architecture,
                 family->model_type);
        dpe_json_expected(top, "architectures", what);
    }
}

/* model_type decides, as in the reference. NULL after a failure. */
static const struct dpe_family *read_type(struct dpe_json_reader *object, const char *fallback)
{
    const char *type = dpe_json_string(object, "model_type", fallback);
    const struct dpe_family *family = type == NULL ? NULL : dpe_family_find(type);
    const char *reason = type == NULL ? NULL : dpe_family_refusal(type);
    if (object->status == DPE_OK && reason != NULL) {
        object->status = dpe_fail(object->err, DPE_BAD_DATA, "%s: model_type %s cannot be used: %s",
                                  object->file, type, reason);
    }
    if (family == NULL) {
        char what[512];
        name_families(what, sizeof what);
        dpe_json_expected(object, "model_type", what);
    }
    return object->status == DPE_OK ? family : NULL;
}

/* The family; where the file describes more than a language model, `top` reads that one's part
 * from here on. */
static void read_family(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = read_type(top, NULL);
    if (family == NULL) {
        return;
    }
    check_architecture(top, family);
    if (family->text != NULL) {
        json_t *text = dpe_json_object(top, "text_config");
        if (text == NULL) {
            dpe_json_expected(top, "text_config", "the configuration of the language model");
            return;
        }
        const char *inside = family->text;
        top->from = text;
        top->object = "text_config.";
        family = read_type(top, inside);
        if (family != NULL && family->text != NULL) {
            dpe_json_expected(top, "model_type", "the type of a language model");
        }
    }
    if (family != NULL && top->status == DPE_OK) {
        config->family = family;
        snprintf(config->model_type, sizeof config->model_type, "%s", family->model_type);
    }
}

static void read_head_dim(struct dpe_json_reader *top, struct dpe_config *config)
{
    bool whole = config->hidden % config->n_heads == 0;
    int64_t quotient = whole ? config->hidden / config->n_heads : 0;
    int64_t own = dpe_family_of(config)->defaults.head_dim;
    config->head_dim = dpe_json_integer(top, "head_dim", 1, MAX_HEAD_DIM, own > 0 ? own : quotient);
    if (top->status == DPE_OK && (config->head_dim % 2 != 0 || config->head_dim > MAX_HEAD_DIM)) {
        char what[96];
        snprintf(what, sizeof what, "an even number up to %d (hidden_size/heads gives %lld)",
                 MAX_HEAD_DIM, (long long)(config->hidden / config->n_heads));
        dpe_json_expected(top, "head_dim", what);
    }
}

/* The MLP's width where a family may give it as a multiple of the hidden size alone; 0: it must
 * give the width. */
static int64_t ratio_width(struct dpe_json_reader *top, const struct dpe_config *config)
{
    enum { STEP = 256 };
    int64_t ratio = dpe_family_of(config)->defaults.hidden_ratio;
    if (ratio == 0 || top->status != DPE_OK) {
        return 0;
    }
    ratio = dpe_json_integer(top, "hidden_ratio", 1, 64, ratio);
    return (config->hidden * ratio * 2 / 3 + STEP - 1) / STEP * STEP;
}

/* Where max_position_embeddings holds with chunked attention alone, which is not run here, the
 * model was trained at the length before that. */
static void read_dual_chunk(struct dpe_json_reader *top, struct dpe_config *config)
{
    struct dpe_json_reader inner = *top;
    inner.from = dpe_json_object(top, "dual_chunk_attention_config");
    inner.object = "dual_chunk_attention_config.";
    if (inner.from != NULL && top->status == DPE_OK && config->made_longer == 0) {
        int64_t chunk = dpe_json_integer(&inner, "chunk_size", 2, config->max_position, 0);
        config->made_longer = dpe_json_integer(&inner, "original_max_position_embeddings", 2,
                                               config->max_position, chunk);
        config->longer_by = "dual_chunk_attention_config";
        top->status = inner.status;
    }
}

/* `trained`: what max_position_embeddings is where neither the file nor the family says it. */
static void read_sizes(struct dpe_json_reader *top, int64_t trained, struct dpe_config *config)
{
    const struct dpe_family_defaults *defaults = &dpe_family_of(config)->defaults;
    const struct dpe_family_names *names = dpe_family_names_of(config);
    const struct dpe_family *family = dpe_family_of(config);
    bool expert = family->experts == DPE_EXPERTS_APART && !family->shared && !family->mixed;
    const char *dense = names->width != NULL ? names->width : "intermediate_size";
    const char *width = expert ? names->expert_width : dense;
    config->n_layers = dpe_json_integer(top, "num_hidden_layers", 1, MAX_LAYERS, 0);
    config->hidden = dpe_json_integer(top, "hidden_size", 1, MAX_HIDDEN, 0);
    config->intermediate =
        dpe_json_integer(top, width, 1, MAX_INTERMEDIATE, ratio_width(top, config));
    config->n_heads = dpe_json_integer(top, names->heads, 1, MAX_HEADS, defaults->n_heads);
    config->vocab = dpe_json_integer(top, "vocab_size", 1, MAX_VOCAB, defaults->vocab);
    if (trained == 0 && defaults->max_position == 0 &&
        dpe_json_member(top, "max_position_embeddings") == NULL) {
        dpe_json_expected(top, "max_position_embeddings", "an integer, or --trained-length");
    }
    config->max_position =
        dpe_json_integer(top, "max_position_embeddings", 2, max_positions,
                         defaults->max_position > 0 ? defaults->max_position : trained);
    config->made_longer = dpe_json_integer(top, DPE_TRAINED_KEY, 0, config->max_position, 0);
    config->longer_by = DPE_TRAINED_KEY;
    read_dual_chunk(top, config);
    if (config->made_longer == 0 && config->max_position == defaults->extended) {
        config->made_longer = defaults->trained;
        config->longer_by =
            "by its authors; the rest of max_position_embeddings is room for an answer";
    }
    /* null means "as many as query heads" everywhere; an absent key means that in Llama only (the
     * others default to a number of their own). */
    bool as_heads = strcmp(config->model_type, "llama") == 0 ||
                    json_is_null(json_object_get(top->from, names->kv_heads));
    config->n_kv_heads = dpe_json_integer(top, names->kv_heads, 1, MAX_HEADS,
                                          as_heads ? config->n_heads : defaults->n_kv_heads);
    if (top->status != DPE_OK) {
        return;
    }
    if (config->n_heads % config->n_kv_heads != 0) {
        char what[64];
        snprintf(what, sizeof what, "a divisor of %s", names->heads);
        dpe_json_expected(top, names->kv_heads, what);
        return;
    }
    read_head_dim(top, config);
}

/* ------------------------------------------------------------------------------------ switches */

/* A word that has to be this one where it is there. */
static void be_the_word(struct dpe_json_reader *top, const char *key, const char *word)
{
    const char *found = dpe_json_string(top, key, word);
    if (top->status == DPE_OK && strcmp(found, word) != 0) {
        char what[40];
        snprintf(what, sizeof what, "\"%s\"", word);
        dpe_json_expected(top, key, what);
    }
}

static void read_activation(struct dpe_json_reader *top, struct dpe_config *config)
{
    config->activation = dpe_family_of(config)->activation;
    bool gelu = config->activation == DPE_GEGLU_TANH;
    be_the_word(top, gelu ? "hidden_activation" : "hidden_act",
                gelu ? "gelu_pytorch_tanh" : dpe_family_names_of(config)->activation);
}

static void read_factors(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_json_bound positive = {0.0, false, false, 1e6};
    const struct dpe_family *family = dpe_family_of(config);
    if (family->multipliers) {
        /* The stream x + r·f(norm(x)) is r times the stream y + f(norm(y)) whose embeddings and
         * whose epsilon's root are divided by r: the forward pass has no such multiplier. */
        double r = dpe_json_number(top, "residual_multiplier", positive, 1.0);
        config->embedding_multiplier =
            dpe_json_number(top, "embedding_multiplier", positive, 1.0) / r;
        config->rms_eps /= r * r;
        double scaling = dpe_json_number(top, "logits_scaling", positive, 1.0);
        config->logits_multiplier = scaling == 1.0 ? 0.0 : 1.0 / scaling;
        config->attention_multiplier = dpe_json_number(top, "attention_multiplier", positive, 1.0);
    }
    config->parallel = config->centred = family->parallel_centred;
    if (family->parallel_centred) {
        config->logits_multiplier = dpe_json_number(top, "logit_scale", positive, 0.0625);
    }
    /* transformers 4.51 wrote 4, of which it asked no more than whether it is 0. */
    const json_t *tuning = dpe_json_member(top, "attn_temperature_tuning");
    if (family->tuned &&
        (json_is_integer(tuning) ? json_integer_value(tuning) != 0
                                 : dpe_json_bool(top, "attn_temperature_tuning", true))) {
        const struct dpe_json_bound length = {1.0, true, false, 0x1p31};
        config->query_growth =
            dpe_json_number(top, "attn_scale", (struct dpe_json_bound){0.0, true, false, 1e6}, 0.1);
        config->query_length = dpe_json_number(top, "floor_scale", length, 8192.0);
        config->query_from = 1;
        config->growth_still = true;
    }
    if (family->embedding_scaled) {
        config->embedding_multiplier = sqrt((double)config->hidden);
    }
    if (family->caps) {
        bool two = config->qk_norm == DPE_QK_NORM_NONE; /* Gemma 2 has caps where it has no norms */
        bool attention = json_object_get(top->from, "attn_logit_softcapping") == NULL && two;
        bool final = json_object_get(top->from, "final_logit_softcapping") == NULL && two;
        double scalar = dpe_json_number(top, "query_pre_attn_scalar", positive, 256.0);
        config->attention_multiplier = family->mixed ? 1.0 : 1.0 / sqrt(scalar);
        config->attention_cap =
            dpe_json_number(top, "attn_logit_softcapping", positive, attention ? 50.0 : 0.0);
        config->logit_cap =
            dpe_json_number(top, "final_logit_softcapping", positive, final ? 30.0 : 0.0);
    }
}

/* The keys of Qwen's models with experts that have other layers too. */
static void check_layers_routed(struct dpe_json_reader *top)
{
    if (json_array_size(dpe_json_member(top, "mlp_only_layers")) > 0) {
        dpe_json_expected(top, "mlp_only_layers",
                          "none (layers without experts beside layers "
                          "with them are not supported)");
    }
    if (dpe_json_integer(top, "decoder_sparse_step", 1, MAX_LAYERS, 1) != 1) {
        dpe_json_expected(top, "decoder_sparse_step", "1 (experts in every layer)");
    }
}

/* The layers that have experts where not all of them have: by a step, or a list that has to be of
 * one. */
static void read_routed_layers(struct dpe_json_reader *top, struct dpe_config *config)
{
    const json_t *list = dpe_json_member(top, "moe_layers");
    int64_t every = dpe_json_integer(top, "interleave_moe_layer_step", 1, MAX_LAYERS, 1);
    if (list != NULL) {
        const json_t *first = json_array_get(list, 0);
        every = first == NULL ? config->n_layers : json_integer_value(first);
        every = dpe_least(every, MAX_LAYERS) + 1;
    }
    config->routed_every = every;
    const int64_t n = every > 0 ? config->n_layers / every : 0;
    bool regular =
        list == NULL || (json_is_array(list) && every > 0 && json_array_size(list) == (size_t)n);
    for (int64_t i = 0; regular && list != NULL && i < n; i++) {
        regular = json_integer_value(json_array_get(list, (size_t)i)) == (i + 1) * every - 1;
    }
    if (!regular && top->status == DPE_OK) {
        dpe_json_expected(top, "moe_layers", "every so many-th layer, as [1, 3, 5, ...]");
    }
}

/* How the experts are chosen: groups have to be equal, and what a token takes has to be in those
 * that are left. */
static void read_router(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_json_bound positive = {0.0, false, false, 1e6};
    const bool before = dpe_family_of(config)->scaled_inputs;
    const bool sigmoid = dpe_family_of(config)->sigmoid || before;
    be_the_word(top, "scoring_func", sigmoid ? "sigmoid" : "softmax");
    struct dpe_router *router = &config->router;
    router->sigmoid = sigmoid;
    router->shifted = sigmoid && !before;
    router->before = before;
    if (!sigmoid || before || dpe_family_of(config)->router_fixed) {
        return;
    }
    router->groups = dpe_json_integer(top, "n_group", 1, DPE_MOST_ROUTER_GROUPS, 1);
    router->of_these = dpe_json_integer(top, "topk_group", 1, DPE_MOST_ROUTER_GROUPS, 1);
    router->scale = dpe_json_number(top, "routed_scaling_factor", positive, 1.0);
    if (top->status != DPE_OK) {
        return;
    }
    const int64_t each = config->n_experts / router->groups;
    if (config->n_experts % router->groups != 0 || (router->groups > 1 && each < 2)) {
        dpe_json_expected(top, "n_group", "a divisor of the number of experts, 2 to a group");
    } else if (router->of_these > router->groups) {
        dpe_json_expected(top, "topk_group", "at most n_group");
    } else if (config->experts_per_token > each * router->of_these) {
        dpe_json_expected(top, "num_experts_per_tok", "at most the experts of topk_group groups");
    }
}

static void read_experts(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_family_names *names = dpe_family_names_of(config);
    const bool beside = family->mixed && dpe_json_bool(top, "enable_moe_block", false);
    if (family->experts == DPE_EXPERTS_NONE || (family->mixed && !beside)) {
        return;
    }
    bool apart = family->experts == DPE_EXPERTS_APART;
    const char *key =
        apart && dpe_json_member(top, "num_experts") != NULL ? "num_experts" : names->experts;
    config->n_experts = dpe_json_integer(top, key, 1, DPE_MOST_EXPERTS, 0);
    const char *taken = names->per_token != NULL ? names->per_token : "num_experts_per_tok";
    config->experts_per_token = dpe_json_integer(top, taken, 1, DPE_MOST_EXPERTS, 0);
    config->expert_width = family->shared || family->scaled_inputs || beside
                               ? dpe_json_integer(top, names->expert_width, 1, MAX_INTERMEDIATE, 0)
                               : config->intermediate;
    /* gpt-oss takes the softmax over the chosen experts alone: the same as normalising. */
    config->experts_normalised =
        !apart || family->router_fixed || beside ||
        dpe_json_bool(top, "norm_topk_prob", family->sigmoid || family->shared_gate);
    if (top->status == DPE_OK && config->experts_per_token > config->n_experts) {
        dpe_json_expected(top, taken, "at most the number of experts");
    }
    if (family->shared) {
        config->shared_width =
            config->expert_width * dpe_json_integer(top, "n_shared_experts", 0, MAX_SHARED, 1);
        config->dense_layers =
            dpe_json_integer(top, "first_k_dense_replace", 0, config->n_layers, 1);
        config->further_layers =
            dpe_json_integer(top, "num_nextn_predict_layers", 0, MAX_LAYERS, 0);
    } else if (beside) {
        config->experts_beside = true;
        config->shared_width = config->intermediate;
    } else if (family->scaled_inputs) {
        config->shared_width = config->expert_width;
        config->experts_normalised = false;
        read_routed_layers(top, config);
    } else if (apart) {
        check_layers_routed(top);
    }
    if (family->shared_gate) {
        config->shared_gate = true;
        config->shared_width =
            dpe_json_integer(top, "shared_expert_intermediate_size", 1, MAX_INTERMEDIATE, 512);
    }
    read_router(top, config);
}

/* A word of quantization_config that has to be one of these, between blanks. */
static void one_of(struct dpe_json_reader *inner, const char *key, const char *fallback,
                   const char *words)
{
    const char *found = dpe_json_string(inner, key, fallback);
    char between[64];
    snprintf(between, sizeof between, " %.60s ", found != NULL ? found : "");
    if (inner->status == DPE_OK && strstr(words, between) == NULL) {
        char what[160];
        snprintf(what, sizeof what, "one of:%s", words);
        dpe_json_expected(inner, key, what);
    }
}

/* Which quantised weights these are: the tensors say how they are packed (weights_packed.c). */
static void read_quantisation(struct dpe_json_reader *top, struct dpe_config *config)
{
    json_t *object = dpe_json_object(top, "quantization_config");
    if (object == NULL || top->status != DPE_OK) {
        return;
    }
    struct dpe_json_reader inner = *top;
    inner.from = object;
    inner.object = "quantization_config.";
    one_of(&inner, "quant_method", "",
           " fp8 fbgemm_fp8 compressed-tensors modelopt gptq awq mxfp4 ");
    const char *method = dpe_json_string(&inner, "quant_method", "");
    if (inner.status == DPE_OK && strcmp(method, "compressed-tensors") == 0) {
        one_of(&inner, "format", "", " float-quantized pack-quantized nvfp4-pack-quantized ");
    } else if (inner.status == DPE_OK && strcmp(method, "modelopt") == 0) {
        one_of(&inner, "quant_algo", "", " FP8 NVFP4 ");
    } else if (inner.status == DPE_OK && strcmp(method, "gptq") == 0) {
        int64_t bits = dpe_json_integer(&inner, "bits", 2, 8, 4);
        if (bits > 4 && bits < 8) {
            dpe_json_expected(&inner, "bits", "2, 3, 4 or 8");
        }
        one_of(&inner, "checkpoint_format", "gptq", " gptq gptq_v2 ");
        config->zeros_whole =
            strcmp(dpe_json_string(&inner, "checkpoint_format", ""), "gptq_v2") == 0;
    } else if (inner.status == DPE_OK && strcmp(method, "awq") == 0) {
        dpe_json_integer(&inner, "bits", 4, 4, 4);
        one_of(&inner, "version", "gemm", " gemm GEMM ");
    } else if (inner.status == DPE_OK && strcmp(method, "fp8") == 0) {
        const json_t *block = dpe_json_member(&inner, "weight_block_size");
        for (size_t i = 0; i < 2 && block != NULL; i++) {
            config->fp8_block[i] = json_integer_value(json_array_get(block, i));
            if (json_array_size(block) != 2 || config->fp8_block[i] < 1) {
                dpe_json_expected(&inner, "weight_block_size", "two numbers of at least 1");
            }
        }
    }
    top->status = inner.status;
}

/* Attention in both directions makes an encoder of any family. Gemma has a key of its own, which is
 * "vision" where texts are causal. */
static void refuse_encoder(struct dpe_json_reader *top)
{
    static const char both[] = "use_bidirectional_attention";
    const json_t *ways = dpe_json_member(top, both);
    bool text = json_is_string(ways) && strcmp(json_string_value(ways), "vision") == 0;
    if (!dpe_json_bool(top, "is_causal", true)) {
        dpe_json_expected(top, "is_causal", "true (a language model; this is an encoder)");
    } else if (!dpe_json_is_nothing(ways) && !text) {
        dpe_json_expected(top, both, "false (a language model; this is an encoder)");
    }
}

static void read_switches(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_json_bound not_negative = {0.0, true, false, 1.0};
    const struct dpe_family *family = dpe_family_of(config);
    bool biased = family->defaults.attention_bias;
    const struct dpe_family_names *names = dpe_family_names_of(config);
    config->rms_eps = dpe_json_number(top, names->eps, not_negative, 1e-6);
    config->tied_embeddings = dpe_json_bool(top, "tie_word_embeddings", family->defaults.tied);
    config->qkv_bias =
        family->bias == DPE_BIAS_ALWAYS ||
        (family->bias >= DPE_BIAS_QKV && dpe_json_bool(top, names->qkv_bias, biased));
    bool same = names->o_bias != NULL && strcmp(names->o_bias, names->qkv_bias) == 0;
    config->o_bias =
        family->bias == DPE_BIAS_ALL && dpe_json_bool(top, names->o_bias, same && biased);
    config->mlp_bias = family->mlp_bias && dpe_json_bool(top, names->mlp_bias, false);
    bool normed = (!family->qk_norm_by_key && !family->qk_norm_bare) ||
                  dpe_json_bool(top, "use_qk_norm", family->qk_norm_bare);
    config->qk_norm = normed ? family->qk_norm : DPE_QK_NORM_NONE;
    config->late_norms = family->qk_norm_late;
    config->bare_norms = family->qk_norm_bare;
    config->sinks = family->sinks;
    refuse_encoder(top);
    read_activation(top, config);
    read_factors(top, config);
    read_experts(top, config);
    read_quantisation(top, config);
    const char *dtype = dpe_json_string(top, "torch_dtype", "float32");
    dtype = dpe_json_string(top, "dtype", dtype);
    config->dtype = strcmp(dtype, "float16") == 0    ? DPE_F16
                    : strcmp(dtype, "bfloat16") == 0 ? DPE_BF16
                                                     : DPE_F32;
}

static void add_eos(struct dpe_json_reader *reader, const json_t *value, struct dpe_config *config)
{
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id > INT32_MAX) {
        dpe_json_expected(reader, "eos_token_id", "a token id, a list of them, or null");
        return;
    }
    int at = 0;
    while (at < config->n_eos && config->eos_ids[at] < id) {
        at++;
    }
    if (at < config->n_eos && config->eos_ids[at] == id) {
        return;
    }
    if ((size_t)config->n_eos == sizeof config->eos_ids / sizeof config->eos_ids[0]) {
        dpe_json_expected(reader, "eos_token_id", "at most 16 different ids");
        return;
    }
    memmove(config->eos_ids + at + 1, config->eos_ids + at,
            (size_t)(config->n_eos - at) * sizeof config->eos_ids[0]);
    config->eos_ids[at] = id;
    config->n_eos++;
}

static void read_ids(struct dpe_json_reader *reader, struct dpe_config *config)
{
    const json_t *eos = dpe_json_member(reader, "eos_token_id");
    if (json_is_array(eos)) {
        for (size_t i = 0; i < json_array_size(eos) && reader->status == DPE_OK; i++) {
            add_eos(reader, json_array_get(eos, i), config);
        }
    } else if (eos != NULL) {
        add_eos(reader, eos, config);
    }
    if (config->bos_id < 0 && dpe_json_member(reader, "bos_token_id") != NULL) {
        config->bos_id = dpe_json_integer(reader, "bos_token_id", 0, INT32_MAX, 0);
    }
}

/* What a file with a text_config says about the language model outside of it: what the language
 * model's part says itself wins. */
static void read_outside(struct dpe_json_reader *top, const json_t *text, struct dpe_config *config)
{
    bool said = json_is_boolean(json_object_get(text, "tie_word_embeddings"));
    config->tied_outside = dpe_json_bool(top, "tie_word_embeddings", config->tied_embeddings);
    config->tied_embeddings = said ? config->tied_embeddings : config->tied_outside;
    refuse_encoder(top);
    read_quantisation(top, config);
    read_ids(top, config);
}

dpe_status dpe_config_parse(const char *file, const char *json, size_t n,
                            const char *generation_file, const char *generation,
                            size_t n_generation, struct dpe_config *config, struct dpe_error *err)
{
    DPE_SCOPED(json_decrefp) json_t *root = NULL;
    DPE_SCOPED(json_decrefp) json_t *second = NULL;
    const int64_t trained = config->max_position;
    *config = (struct dpe_config){.bos_id = -1, .exported = config->exported};
    DPE_TRY(dpe_json_parse(file, json, n, &root, err));
    struct dpe_json_reader top = {.file = file, .object = "", .from = root, .err = err};
    read_family(&top, config);
    read_sizes(&top, trained, config);
    read_switches(&top, config);
    dpe_config_parse_layers(&top, config);
    read_ids(&top, config);
    dpe_config_parse_rope(&top, config);
    if (top.from != root) {
        /* A head that is tied, and what ends a text, may stand outside the language model's part.
         */
        const json_t *text = top.from;
        top.from = root;
        top.object = "";
        read_outside(&top, text, config);
    }
    if (top.status == DPE_OK && generation != NULL) {
        top.status = dpe_json_parse(generation_file, generation, n_generation, &second, err);
        top.file = generation_file;
        top.from = second;
        read_ids(&top, config);
    }
    if (top.status != DPE_OK) {
        dpe_config_release(config);
    }
    return top.status;
}

void dpe_config_release(struct dpe_config *config)
{
    dpe_rope_config_release(&config->rope);
    dpe_rope_config_release(&config->local_rope);
    free(config->layer_kinds);
    config->layer_kinds = NULL;
}

int64_t dpe_config_trained(const struct dpe_config *config)
{
    return config->made_longer != 0 ? config->made_longer : config->max_position;
}

const char *dpe_config_trained_key(const struct dpe_config *config)
{
    return config->made_longer != 0 ? config->longer_by : "max_position_embeddings";
}

int64_t dpe_config_widest(const struct dpe_config *config)
{
    return dpe_most(dpe_config_dense(config), dpe_most(config->expert_width, config->shared_width));
}

int64_t dpe_config_parameters(const struct dpe_config *config)
{
    int64_t layers = 0;
    for (int64_t i = 0; i < config->n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            struct dpe_layer_shape shape = dpe_layer_shape(config, i, (enum dpe_weight)which);
            const bool one = which == DPE_WEIGHT_INPUT_NORM && i > 0; /* of all layers */
            layers += one ? 0 : shape.rows * shape.cols + shape.bias;
        }
    }
    bool biased = dpe_family_of(config)->experts_biased;
    int64_t expert = 3 * config->hidden * config->expert_width;
    expert += biased ? config->hidden + 2 * config->expert_width : 0;
    layers += dpe_config_routed(config) * config->n_experts * expert;
    int64_t embeddings = config->vocab * config->hidden * (config->tied_embeddings ? 1 : 2);
    return layers + embeddings + config->hidden;
}
