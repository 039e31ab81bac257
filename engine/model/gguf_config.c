/* The metadata of a GGUF file as a config.json: one reader decides what a configuration means. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/config/config_parse.h"
#include "engine/model/gguf_model.h"

/* general.architecture, and how the weights of the family lie in a GGUF file. */
static const struct architecture {
    const char *name, *model_type;
    bool interleaved; /* rows of q and k were permuted to neighbouring pairs */
} architectures[] = {
    {"llama", "llama", true},
    {"qwen2", "qwen2", false},
    {"qwen3", "qwen3", false},
    {"qwen3moe", "qwen3_moe", false},
    {"phi3", "phi3", false},
    {"gemma2", "gemma2", false},
    {"gemma3", "gemma3_text", false},
    {"olmo2", "olmo2", false},
    {"granite", "granite", true},
    {"glm4", "glm4", true},
    {"gpt-oss", "gpt_oss", false},
    {"mistral3", "ministral3", true},
    {"smollm3", "smollm3", true},
    {"glm4moe", "glm4_moe", false},
    {"minimax-m2", "minimax_m2", false},
    {"seed_oss", "seed_oss", false},
    {"llama4", "llama4_text", true},
    {"gemma4", "gemma4_text", false},
    {"hunyuan-dense", "hunyuan_v1_dense", false},
    {"ernie4_5", "ernie4_5", true},
    {"exaone4", "exaone4", false},
    {"cohere2", "cohere2", true},
    {"qwen35", "qwen3_5_text", false},
    {"qwen35moe", "qwen3_5_moe_text", false},
    {"qwen3next", "qwen3_next", false},
};

/* What the functions of this file work on. */
struct maker {
    const struct dpe_gguf_set *set;
    struct dpe_json_reader in;
    const char *architecture;
    const struct dpe_family *family;
    json_t *out;
    int64_t head_dim, pairs; /* pairs that rotate */
    char key[128];
};

/* "llama.block_count", until another is asked for */
static const char *key_of(struct maker *maker, const char *name)
{
    snprintf(maker->key, sizeof maker->key, "%s.%s", maker->architecture, name);
    return maker->key;
}

/* NULL: absent */
static const struct dpe_gguf_value *value_of(struct maker *maker, const char *name)
{
    return dpe_gguf_find(maker->set->files[0], key_of(maker, name));
}

static double number(struct maker *maker, const char *name, double fallback)
{
    return dpe_json_number(&maker->in, key_of(maker, name), dpe_gguf_any, fallback);
}

static void expected(struct maker *maker, const char *name, const char *what)
{
    dpe_json_expected(&maker->in, key_of(maker, name), what);
}

static void put(struct maker *maker, const char *name, json_t *value)
{
    if (maker->in.status == DPE_OK && json_object_set_new(maker->out, name, value) != 0) {
        maker->in.status =
            dpe_fail(maker->in.err, DPE_NO_MEMORY, "%s: out of memory", maker->in.file);
    } else if (maker->in.status != DPE_OK) {
        json_decref(value);
    }
}

/* A tensor of any of the files, NULL when none has it; *file is whose. */
static const struct dpe_gguf_tensor *find_tensor(const struct dpe_gguf_set *set, const char *name,
                                                 int *file)
{
    for (int f = 0; f < set->n; f++) {
        for (size_t i = 0; i < set->files[f]->n_tensors; i++) {
            if (strcmp(set->files[f]->tensors[i].name, name) == 0) {
                if (file != NULL) {
                    *file = f;
                }
                return &set->files[f]->tensors[i];
            }
        }
    }
    return NULL;
}

static bool has_tensor(const struct maker *maker, const char *name)
{
    return find_tensor(maker->set, name, NULL) != NULL;
}

/* Whether some layer has the matrix: by the tensors, as the metadata may say any number of layers.
 */
static bool some_layer_has(const struct maker *maker, const char *matrix)
{
    bool found = false;
    for (int f = 0; f < maker->set->n; f++) {
        for (size_t i = 0; i < maker->set->files[f]->n_tensors; i++) {
            const char *name = maker->set->files[f]->tensors[i].name;
            found = found || (strncmp(name, "blk.", 4) == 0 && strstr(name, matrix) != NULL);
        }
    }
    return found;
}

/* The number of a layer: of an array with one for each, or the one of all. −1: absent. */
static int64_t whole_of(struct maker *maker, const char *name, int64_t layer)
{
    const struct dpe_gguf_value *value = value_of(maker, name);
    if (value == NULL || !value->array) {
        return dpe_gguf_whole(&maker->in, maker->key, -1);
    }
    if (value->type == DPE_GGUF_STRING || (uint64_t)layer >= value->n) {
        dpe_json_expected(&maker->in, maker->key, "a whole number for each layer");
        return -1;
    }
    return (int64_t)dpe_gguf_number_at(value, (uint64_t)layer);
}

/* A whole number; an array with one number for each layer has to say the same for all of them.
 * −1: absent. */
static int64_t read_whole(struct maker *maker, const char *name)
{
    const struct dpe_gguf_value *value = value_of(maker, name);
    const uint64_t n = value != NULL && value->array ? value->n : 0;
    const int64_t first = whole_of(maker, name, 0);
    bool equal = n == 0 || first >= 0;
    for (uint64_t i = 1; equal && i < n; i++) {
        equal = (int64_t)dpe_gguf_number_at(value, i) == first;
    }
    if (!equal) {
        dpe_json_expected(&maker->in, maker->key, "the same number for all layers");
    }
    return first;
}

/* A required number of the metadata under the name of config.json. */
static int64_t put_whole(struct maker *maker, const char *name, const char *as)
{
    int64_t value = read_whole(maker, name);
    if (value < 0) {
        expected(maker, name, "a whole number");
    }
    put(maker, as, json_integer(value));
    return value;
}

/* The same where it is there. */
static void put_known(struct maker *maker, const char *name, const char *as)
{
    if (read_whole(maker, name) >= 0) {
        put_whole(maker, name, as);
    }
}

static void put_number(struct maker *maker, const char *name, const char *as)
{
    double value = number(maker, name, (double)NAN);
    if (!isnan(value)) {
        put(maker, as, json_real(value));
    }
}

/* A number that is put already. */
static int64_t whole_so_far(const struct maker *maker, const char *name)
{
    return json_integer_value(json_object_get(maker->out, name));
}

/* The layers' types: `other` where the metadata's array says so, else full attention. */
static void put_types(struct maker *maker, const struct dpe_gguf_value *which, const char *other)
{
    const uint64_t layers = (uint64_t)whole_so_far(maker, "num_hidden_layers");
    json_t *types = json_array();
    for (uint64_t i = 0; which->array && i < layers && i < which->n; i++) {
        const bool is = dpe_gguf_number_at(which, i) != 0.0;
        json_array_append_new(types, json_string(is ? other : "full_attention"));
    }
    put(maker, "layer_types", types);
}

/* Experts and their router; a file without a gating function has its family's. */
static void put_experts(struct maker *maker)
{
    static const char *const functions[] = {NULL, "softmax", "sigmoid"};
    const struct dpe_family *family = maker->family;
    const struct dpe_family_names *names = dpe_family_names(family);
    const char *width =
        family->experts == DPE_EXPERTS_STACKED ? "intermediate_size" : names->expert_width;
    put_whole(maker, "expert_feed_forward_length", width);
    if (family->scaled_inputs) { /* what llama.cpp goes by where the file says nothing */
        put_whole(maker, "feed_forward_length", names->width);
        put_known(maker, "interleave_moe_layer_step", "interleave_moe_layer_step");
        put(maker, "use_qk_norm", json_boolean(read_whole(maker, "expert_count") != 128));
    }
    put_whole(maker, "expert_count", names->experts);
    put_whole(maker, "expert_used_count",
              names->per_token != NULL ? names->per_token : "num_experts_per_tok");
    bool normalised = dpe_json_bool(&maker->in, key_of(maker, "expert_weights_norm"), true);
    put(maker, "norm_topk_prob", json_boolean(normalised));
    int64_t function = read_whole(maker, "expert_gating_func");
    if (function > 0) {
        put(maker, "scoring_func", json_string(function < 3 ? functions[function] : "unknown"));
    }
    if (family->sigmoid) {
        put_number(maker, "expert_weights_scale", "routed_scaling_factor");
        put_known(maker, "expert_group_count", "n_group");
        put_known(maker, "expert_group_used_count", "topk_group");
    }
    if (family->shared_gate) {
        put_whole(maker, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    }
    if (family->shared) {
        put_whole(maker, "feed_forward_length", "intermediate_size");
        put_known(maker, "expert_shared_count", "n_shared_experts");
        put_known(maker, "leading_dense_block_count", "first_k_dense_replace");
    }
}

static void put_sizes(struct maker *maker)
{
    int64_t blocks = put_whole(maker, "block_count", "num_hidden_layers");
    int64_t further = read_whole(maker, "nextn_predict_layers");
    if (further > 0 && (maker->family->shared || maker->family->recurrent != NULL)) {
        put(maker, "num_hidden_layers", json_integer(blocks - further));
        put(maker, "num_nextn_predict_layers", json_integer(further));
    }
    int64_t hidden = put_whole(maker, "embedding_length", "hidden_size");
    int64_t heads = put_whole(maker, "attention.head_count", "num_attention_heads");
    const bool mixed = maker->family->mixed;
    int64_t kv = mixed ? heads : read_whole(maker, "attention.head_count_kv");
    put(maker, "num_key_value_heads", json_integer(kv < 0 ? heads : kv));
    put_whole(maker, "context_length", "max_position_embeddings");
    if (!dpe_json_bool(&maker->in, key_of(maker, "attention.causal"), true)) {
        dpe_json_expected(&maker->in, maker->key, "true (a language model; this is an encoder)");
    }
    if (maker->family->experts != DPE_EXPERTS_NONE &&
        !(mixed && read_whole(maker, "expert_count") <= 0)) {
        put_experts(maker);
    } else if (!mixed) {
        put_whole(maker, "feed_forward_length", "intermediate_size");
        if (read_whole(maker, "expert_count") > 0) {
            expected(maker, "expert_count", "no experts in this architecture");
        }
    }
    int64_t own = read_whole(maker, "attention.key_length");
    int64_t value = read_whole(maker, "attention.value_length");
    if (own >= 0 && value >= 0 && own != value) {
        expected(maker, "attention.value_length", "the same as attention.key_length");
    }
    if (maker->in.status == DPE_OK && own < 0 && (heads < 1 || hidden % heads != 0)) {
        expected(maker, "attention.head_count", "a divisor of embedding_length");
    }
    maker->head_dim = own >= 0 ? own : maker->in.status == DPE_OK ? hidden / heads : 0;
    put(maker, "head_dim", json_integer(maker->head_dim));
    const struct dpe_gguf_tensor *embedding = find_tensor(maker->set, "token_embd.weight", NULL);
    put(maker, "vocab_size", json_integer(embedding != NULL ? embedding->shape[0] : 1));
}

/* The layers with a state. The value heads have the width of the key heads in what the converter
 * writes; here it follows from the inner size. */
static void put_recurrent(struct maker *maker)
{
    if (maker->family->recurrent == NULL) {
        return;
    }
    put_whole(maker, "ssm.conv_kernel", "linear_conv_kernel_dim");
    put_whole(maker, "ssm.state_size", "linear_key_head_dim");
    put_whole(maker, "ssm.group_count", "linear_num_key_heads");
    const int64_t heads = put_whole(maker, "ssm.time_step_rank", "linear_num_value_heads");
    const int64_t inner = read_whole(maker, "ssm.inner_size");
    if (heads > 0 && (inner < heads || inner % heads != 0)) {
        expected(maker, "ssm.inner_size", "a multiple of ssm.time_step_rank");
    }
    put(maker, "linear_value_head_dim", json_integer(heads > 0 ? inner / heads : 0));
    put_known(maker, "full_attention_interval", "full_attention_interval");
    const struct dpe_gguf_value *which = value_of(maker, "attention.recurrent_layers");
    if (which != NULL) {
        put_types(maker, which, "linear_attention");
    }
}

/* What Gemma 4's layers have: heads by the type of a layer, and the rest of read_mixed
 * (config_layers.c). */
static void put_mixed(struct maker *maker)
{
    const int64_t layers = whole_so_far(maker, "num_hidden_layers");
    const json_t *types = json_object_get(maker->out, "layer_types");
    if (!maker->family->mixed || maker->in.status != DPE_OK) {
        return;
    }
    if (json_array_size(types) != (size_t)layers) {
        expected(maker, "attention.sliding_window_pattern", "an array with the type of each layer");
        return;
    }
    const int64_t shared = dpe_most(0, read_whole(maker, "attention.shared_kv_layers"));
    json_t *each = json_object();
    bool alike = false;
    for (int64_t i = 0; i < layers && maker->in.status == DPE_OK; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const int64_t kv = whole_of(maker, "attention.head_count_kv", i);
        char name[48];
        if (strcmp(type, "full_attention") != 0) {
            put(maker, "num_key_value_heads", json_integer(kv));
            continue;
        }
        snprintf(name, sizeof name, "%lld", (long long)i);
        json_object_set_new(each, name,
                            json_pack("{s:I, s:I}", "head_dim", (json_int_t)maker->head_dim,
                                      "num_key_value_heads", (json_int_t)kv));
        snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)i);
        alike = alike || (i < layers - shared && !has_tensor(maker, name));
    }
    put(maker, "per_layer_config", each);
    put(maker, "attention_k_eq_v", json_boolean(alike));
    put(maker, "num_kv_shared_layers", json_integer(shared));
    put_whole(maker, "attention.key_length_swa", "head_dim");
    const int64_t width = whole_of(maker, "feed_forward_length", 0);
    put(maker, "intermediate_size", json_integer(width));
    const int64_t last = whole_of(maker, "feed_forward_length", dpe_most(0, layers - 1));
    put(maker, "use_double_wide_mlp", json_boolean(last > width));
    const struct dpe_gguf_tensor *table =
        find_tensor(maker->set, "per_layer_token_embd.weight", NULL);
    put(maker, "hidden_size_per_layer_input",
        json_integer(dpe_most(0, read_whole(maker, "embedding_length_per_layer_input"))));
    put(maker, "vocab_size_per_layer_input",
        json_integer(table != NULL ? table->shape[0] : 1 << 26));
    put(maker, "enable_moe_block", json_boolean(read_whole(maker, "expert_count") > 0));
    put_number(maker, "final_logit_softcapping", "final_logit_softcapping");
}

static void put_switches(struct maker *maker)
{
    bool biased = has_tensor(maker, "blk.0.attn_q.bias");
    const char *eps = maker->family->parallel_centred ? "attention.layer_norm_epsilon"
                                                      : "attention.layer_norm_rms_epsilon";
    const char *as = dpe_family_names(maker->family)->eps;
    put_number(maker, eps, as);
    if (json_object_get(maker->out, as) == NULL) {
        expected(maker, eps, "a number");
    }
    put_number(maker, "logit_scale", "logit_scale");
    put(maker, "tie_word_embeddings", json_boolean(!has_tensor(maker, "output.weight")));
    put(maker, "attention_bias", json_boolean(biased));
    put(maker, "attention_out_bias", json_boolean(has_tensor(maker, "blk.0.attn_output.bias")));
    put(maker, "use_bias", json_boolean(biased));
    if (!maker->family->qk_norm_bare) {
        put(maker, "use_qk_norm", json_boolean(has_tensor(maker, "blk.0.attn_q_norm.weight")));
    }
    put(maker, "mlp_bias", json_boolean(has_tensor(maker, "blk.0.ffn_up.bias")));
}

/* What multiplies and caps. */
static void put_factors(struct maker *maker)
{
    if (maker->family->multipliers) {
        put_number(maker, "embedding_scale", "embedding_multiplier");
        put_number(maker, "residual_scale", "residual_multiplier");
        put_number(maker, "logit_scale", "logits_scaling");
        put_number(maker, "attention.scale", "attention_multiplier");
        if (json_object_get(maker->out, "attention_multiplier") == NULL) {
            put(maker, "attention_multiplier", json_real(1.0 / sqrt((double)maker->head_dim)));
        }
    }
    if (maker->family->caps && !maker->family->mixed) {
        int64_t layers = whole_so_far(maker, "num_hidden_layers");
        int64_t hidden = whole_so_far(maker, "hidden_size");
        int64_t heads = whole_so_far(maker, "num_attention_heads");
        /* Most files have no such key; of the published models only those of 27 billion differ. */
        bool wide = (layers == 46 || layers == 62) && heads > 0;
        double scalar = wide ? (double)hidden / (double)heads : (double)maker->head_dim;
        double scale = number(maker, "attention.scale", 0.0);
        scalar = scale > 0.0 ? 1.0 / (scale * scale) : scalar;
        put(maker, "query_pre_attn_scalar", json_real(scalar));
        put_number(maker, "attn_logit_softcapping", "attn_logit_softcapping");
        put_number(maker, "final_logit_softcapping", "final_logit_softcapping");
    }
}

static void put_windows(struct maker *maker)
{
    enum dpe_window_rule rule = maker->family->windows;
    int64_t window = read_whole(maker, "attention.sliding_window");
    if (rule == DPE_WINDOW_CHUNKS) { /* llama.cpp's are of 8192, or none where the file says 0 */
        put(maker, "attention_chunk_size", window == 0 ? json_null() : json_integer(8192));
        if (window == 0) {
            put(maker, "no_rope_layer_interval", json_integer(DPE_CONFIG_MAX_LAYERS));
        }
        return;
    }
    if (window < 1 || rule == DPE_WINDOW_NEVER || rule == DPE_WINDOW_SWITCHED) {
        put(maker, "sliding_window", json_null());
        return;
    }
    put(maker, "sliding_window", json_integer(window));
    const struct dpe_gguf_value *pattern = value_of(maker, "attention.sliding_window_pattern");
    if (pattern == NULL) {
        return;
    }
    if (!pattern->array) {
        put(maker, "sliding_window_pattern",
            json_integer(dpe_gguf_whole(&maker->in, maker->key, 1)));
        return;
    }
    if (pattern->type == DPE_GGUF_STRING ||
        pattern->n < (uint64_t)whole_so_far(maker, "num_hidden_layers")) {
        dpe_json_expected(&maker->in, maker->key, "a number for each layer");
        return;
    }
    put_types(maker, pattern, "sliding_attention");
}

/* ------------------------------------------------------------------------------------- rotation */

/* The numbers of a tensor of factors, one for each pair; NULL after a failure. */
static json_t *read_factors(struct maker *maker, const char *name)
{
    int file = 0;
    const struct dpe_gguf_tensor *tensor = find_tensor(maker->set, name, &file);
    if (tensor == NULL || maker->in.status != DPE_OK) {
        return NULL;
    }
    const struct dpe_gguf *gguf = maker->set->files[file];
    float factors[4096];
    size_t bytes = (size_t)(tensor->end - tensor->begin);
    if (tensor->rank != 1 || tensor->dtype != DPE_F32 || bytes > sizeof factors) {
        maker->in.status = dpe_fail(maker->in.err, DPE_BAD_DATA,
                                    "%s: tensor %s: expected a vector of at most 4096 numbers of "
                                    "type F32",
                                    gguf->path, name);
        return NULL;
    }
    if (dpe_read_at(gguf->fd, factors, bytes, tensor->begin) != bytes) {
        maker->in.status =
            dpe_fail(maker->in.err, DPE_IO, "%s: tensor %s: read failed", gguf->path, name);
        return NULL;
    }
    json_t *list = json_array();
    for (int64_t i = 0; i < tensor->shape[0]; i++) {
        /* NULL, which is refused as no number, for what is not finite. */
        json_array_append_new(list, json_real((double)factors[i]));
    }
    return list;
}

/* Whether the factors are those of Llama 3.1's scaling, which the file has only as this result. */
static bool are_llama3(const json_t *list, double theta, int64_t head_dim, double *factor)
{
    size_t n = json_array_size(list);
    const double low = 1.0;
    const double high = 4.0;
    const double original = 8192.0;
    *factor = n > 0 ? round(json_real_value(json_array_get(list, n - 1)) * 1e4) / 1e4 : 0.0;
    bool are = n > 0 && (int64_t)(2 * n) == head_dim && *factor >= 1.0;
    for (size_t i = 0; are && i < n; i++) {
        double turns = original * pow(theta, -2.0 * (double)i / (double)head_dim) / (2.0 * M_PI);
        double smooth = (turns - low) / (high - low);
        smooth = smooth < 0.0 ? 0.0 : smooth > 1.0 ? 1.0 : smooth;
        double want = 1.0 / ((1.0 - smooth) / *factor + smooth);
        are = fabs(json_real_value(json_array_get(list, i)) - want) <= 1e-4 * want;
    }
    return are;
}

/* The parts of a rotation. llama.cpp reads each by itself and multiplies: pair j rotates by
 * b^(-2j/d) / divisor_j / scale, cosines and sines times `attention`; YaRN keeps the scale from the
 * pairs that turn often. */
struct rotation {
    bool yarn;
    double theta, scale, attention;
    int64_t original;   /* the length up to which `few` holds, and which YaRN counts turns in */
    json_t *few, *many; /* divisors of the pairs for short and for long texts; NULL: 1 */
};

/* rope.scaling.factor, or the key before it; a file without a type is linear, and 0 is no factor.
 */
static void read_scale(struct maker *maker, struct rotation *out)
{
    static const char *const types[] = {"none", "linear", "yarn", "longrope"};
    const char *key = key_of(maker, "rope.scaling.type");
    const char *found = dpe_json_member(&maker->in, key) == NULL ? "linear" : NULL;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        found = dpe_gguf_text_is(&maker->in, key, types[i]) ? types[i] : found;
    }
    if (found == NULL) {
        dpe_json_expected(&maker->in, key, "none, linear, yarn or longrope");
        return;
    }
    out->yarn = strcmp(found, "yarn") == 0;
    if (dpe_json_member(&maker->in, key_of(maker, "rope.scaling.factor")) == NULL) {
        key_of(maker, "rope.scale_linear");
    }
    double scale = dpe_json_number(&maker->in, key, dpe_gguf_any, 0.0);
    out->scale = scale == 0.0 || strcmp(found, "none") == 0 ? 1.0 : scale;
    if (out->scale < 1.0) {
        dpe_json_expected(&maker->in, key, "a number of at least 1, or 0 for none");
    }
}

/* The divisors of a list, or ones where there is none, times `scale`. */
static json_t *divisors(const struct maker *maker, const json_t *list, double scale)
{
    json_t *out = json_array();
    size_t n = list != NULL ? json_array_size(list) : (size_t)maker->pairs;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        double divisor = list != NULL ? json_real_value(value) : 1.0;
        json_array_append_new(out, json_is_null(value) ? json_null() : json_real(divisor * scale));
    }
    return out;
}

/* rope_freqs.weight for all lengths, else the two lists by length. */
static void read_divisors(struct maker *maker, struct rotation *out)
{
    out->few = read_factors(maker, "rope_freqs.weight");
    out->many = json_incref(out->few);
    if (out->few != NULL) {
        return;
    }
    out->few = read_factors(maker, "rope_factors_short.weight");
    out->many = read_factors(maker, "rope_factors_long.weight");
    if (out->few != NULL || out->many != NULL) {
        out->few = out->few != NULL ? out->few : divisors(maker, NULL, 1.0);
        out->many = out->many != NULL ? out->many : divisors(maker, NULL, 1.0);
    }
}

/* As longrope, which has divisors and an attention factor, where linear cannot say it. */
static json_t *scaling_without_yarn(struct maker *maker, const struct rotation *of)
{
    double factor = 0.0;
    bool plain = of->few == NULL && of->attention == 1.0;
    if (plain) {
        return of->scale == 1.0
                   ? json_pack("{s:s}", "rope_type", "default")
                   : json_pack("{s:s, s:f}", "rope_type", "linear", "factor", of->scale);
    }
    if (of->few != NULL && of->few == of->many && of->attention == 1.0 && of->scale == 1.0 &&
        are_llama3(of->few, of->theta, maker->head_dim, &factor)) {
        return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", factor,
                         "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                         "original_max_position_embeddings", 8192);
    }
    return json_pack("{s:s, s:f, s:o, s:o}", "rope_type", "longrope", "attention_factor",
                     of->attention, "short_factor", divisors(maker, of->few, of->scale),
                     "long_factor", divisors(maker, of->many, of->scale));
}

static json_t *yarn_scaling(struct maker *maker, const struct rotation *of)
{
    json_t *scaling = json_pack("{s:s, s:f, s:b}", "rope_type", "yarn", "factor", of->scale,
                                "truncate", strcmp(maker->family->model_type, "gpt_oss") != 0);
    static const char *const ramp[][2] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                          {"rope.scaling.yarn_beta_slow", "beta_slow"},
                                          {"rope.scaling.yarn_log_multiplier", "mscale_all_dim"},
                                          {"rope.scaling.yarn_attn_factor", "attention_factor"}};
    for (size_t i = 0; i < sizeof ramp / sizeof ramp[0]; i++) {
        double value = number(maker, ramp[i][0], (double)NAN);
        if (!isnan(value)) {
            json_object_set_new(scaling, ramp[i][1], json_real(value));
        }
    }
    /* The converter leaves out mscale, which is 1 in what it converts. */
    double all = json_real_value(json_object_get(scaling, "mscale_all_dim"));
    if (all != 0.0) {
        json_object_set_new(scaling, "mscale", json_real(1.0));
    }
    if (of->attention != 1.0) {
        double own = json_real_value(json_object_get(scaling, "attention_factor"));
        own = own != 0.0 ? own : (0.1 * log(of->scale) + 1.0) / (0.1 * all * log(of->scale) + 1.0);
        json_object_set_new(scaling, "attention_factor", json_real(of->attention * own));
    }
    if (of->few != NULL) {
        json_object_set(scaling, "gguf_short_factor", of->few);
        json_object_set(scaling, "gguf_long_factor", of->many);
    }
    return scaling;
}

/* Always a block, also of no scaling: a family's own default is for a config.json without one. */
static void put_scaling(struct maker *maker, const struct rotation *of)
{
    if (maker->in.status != DPE_OK) {
        return;
    }
    json_t *scaling = of->yarn ? yarn_scaling(maker, of) : scaling_without_yarn(maker, of);
    double growth = number(maker, "attention.temperature_scale", 0.0);
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    bool by_length = strcmp(type, "default") != 0 && strcmp(type, "linear") != 0;
    if ((by_length || growth != 0.0) &&
        json_object_get(scaling, "original_max_position_embeddings") == NULL) {
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer(of->original));
    }
    if (growth != 0.0) {
        json_object_set_new(scaling, "llama_4_scaling_beta", json_real(growth));
    }
    put(maker, "rope_scaling", scaling);
}

/* With divisors for all lengths and no scaling the original length is the trained one of the file
 * that dpe-export copied. */
static void put_trained(struct maker *maker, const struct rotation *of)
{
    int64_t length = whole_so_far(maker, "max_position_embeddings");
    bool copied = of->few != NULL && of->few == of->many && !of->yarn && of->scale == 1.0;
    if (copied && of->original < length) {
        put(maker, DPE_TRAINED_KEY, json_integer(of->original));
    }
}

/* Gemma 4's two rotations: of a full layer's pairs those turn whose factor is 1, the others' is so
 * large that they stand still. */
static void put_rope_mixed(struct maker *maker)
{
    json_t *factors = read_factors(maker, "rope_freqs.weight");
    const size_t n = json_array_size(factors);
    size_t turning = 0;
    while (turning < n && json_real_value(json_array_get(factors, turning)) == 1.0) {
        turning++;
    }
    bool good = factors == NULL || (turning > 0 && (int64_t)(2 * n) == maker->head_dim);
    for (size_t i = turning; i < n; i++) {
        good = good && json_real_value(json_array_get(factors, i)) > 1e29;
    }
    if (!good && maker->in.status == DPE_OK) {
        maker->in.status = dpe_fail(maker->in.err, DPE_BAD_DATA,
                                    "%s: tensor rope_freqs.weight: expected a 1 for each pair that "
                                    "rotates, then 1e30 for the others of the head",
                                    maker->in.file);
    }
    const double share = factors != NULL && n > 0 ? (double)turning / (double)n : 1.0;
    const double theta = number(maker, "rope.freq_base", 1e6);
    const double local = number(maker, "rope.freq_base_swa", 1e4);
    const int64_t own = whole_so_far(maker, "head_dim");
    const int64_t whole = read_whole(maker, "rope.dimension_count_swa");
    if (whole >= 0 && whole != own) {
        expected(maker, "rope.dimension_count_swa", "the same as attention.key_length_swa");
    }
    json_decref(factors);
    put(maker, "rope_parameters",
        json_pack("{s:{s:s, s:f, s:f}, s:{s:s, s:f}}", "full_attention", "rope_type",
                  "proportional", "partial_rotary_factor", share, "rope_theta", theta,
                  "sliding_attention", "rope_type", "default", "rope_theta", local));
}

static void put_rope(struct maker *maker)
{
    if (maker->family->mixed) {
        put_rope_mixed(maker);
        return;
    }
    const char *finetuned = key_of(maker, "rope.scaling.finetuned");
    if (maker->family->multipliers && !dpe_json_bool(&maker->in, finetuned, true)) {
        dpe_json_expected(&maker->in, finetuned,
                          "true (granite without it has no rotary positions)");
    }
    struct rotation rotation = {.theta = number(maker, "rope.freq_base", 1e4)};
    put(maker, "rope_theta", json_real(rotation.theta));
    put_number(maker, "rope.freq_base_swa", "rope_local_base_freq");
    int64_t dim = read_whole(maker, "rope.dimension_count");
    maker->pairs = (dim > 0 ? dim : maker->head_dim) / 2;
    if (dim > 0 && dim != maker->head_dim && maker->head_dim > 0) {
        put(maker, "partial_rotary_factor", json_real((double)dim / (double)maker->head_dim));
    }
    int64_t original = read_whole(maker, "rope.scaling.original_context_length");
    rotation.original = original > 0 ? original : whole_so_far(maker, "max_position_embeddings");
    rotation.attention = number(maker, "rope.scaling.attn_factor", 1.0);
    read_scale(maker, &rotation);
    read_divisors(maker, &rotation);
    put_trained(maker, &rotation);
    put_scaling(maker, &rotation);
    json_decref(rotation.few);
    json_decref(rotation.many);
}

/* ----------------------------------------------------------------------------------------- ends */

static void put_ids(struct maker *maker)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t bos =
        dpe_gguf_token_id(maker->set->files[0], &maker->in, "tokenizer.ggml.bos_token_id");
    if (bos >= 0) {
        put(maker, "bos_token_id", json_integer(bos));
    }
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int64_t id = dpe_gguf_token_id(maker->set->files[0], &maker->in, ends[i]);
        if (id >= 0) {
            json_array_append_new(list, json_integer(id));
        }
    }
    put(maker, "eos_token_id", list);
}

static const struct architecture *find_architecture(struct maker *maker)
{
    static const char key[] = "general.architecture";
    char known[256] = "one of";
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        if (dpe_gguf_text_is(&maker->in, key, architectures[i].name)) {
            return &architectures[i];
        }
        dpe_append(known, sizeof known, "%s %s", i > 0 ? "," : "", architectures[i].name);
    }
    dpe_json_expected(&maker->in, key, known);
    return NULL;
}

dpe_status dpe_gguf_config(const struct dpe_gguf_set *set, char **json, struct dpe_family *family,
                           struct dpe_error *err)
{
    struct maker maker = {.set = set, .in = dpe_gguf_reader(set->files[0], err)};
    const struct architecture *architecture = find_architecture(&maker);
    *json = NULL;
    if (architecture == NULL) {
        return maker.in.status;
    }
    maker.out = json_object();
    maker.architecture = architecture->name;
    bool olmo3 = strcmp(maker.architecture, "olmo2") == 0 &&
                 read_whole(&maker, "attention.sliding_window") > 0;
    maker.family = dpe_family_find(olmo3 ? "olmo3" : architecture->model_type);
    put(&maker, "model_type", json_string(maker.family->model_type));
    put_sizes(&maker);
    put_recurrent(&maker);
    put_switches(&maker);
    put_factors(&maker);
    put_windows(&maker);
    put_mixed(&maker);
    put_rope(&maker);
    put_ids(&maker);
    if (maker.in.status == DPE_OK) {
        *json = json_dumps(maker.out, JSON_COMPACT);
        if (*json == NULL) {
            maker.in.status =
                dpe_fail(err, DPE_BAD_DATA, "%s: its metadata holds a number that is not finite",
                         set->files[0]->path);
        }
        *family = *maker.family;
        family->interleaved = architecture->interleaved;
        family->names = NULL;          /* names of tensors do not depend on the family */
        family->norm_plus_one = false; /* the 1 is in the file's norms */
        family->recurrent =
            dpe_family_recurrent_gguf(maker.family, some_layer_has(&maker, ".ssm_in."));
        family->experts =
            family->experts == DPE_EXPERTS_NONE ? DPE_EXPERTS_NONE : DPE_EXPERTS_APART;
    }
    json_decref(maker.out);
    return maker.in.status;
}
