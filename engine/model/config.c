/* config.json and generation_config.json: which model this is, strictly. */
#include "engine/base/base.h"
#include "engine/model/config.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/model/layer_weights.h"

/* Bounds keep every product of sizes, and the number of weights, within 63 bits. */
enum {
    MAX_LAYERS = 1 << 14,
    MAX_HIDDEN = 1 << 20,
    MAX_INTERMEDIATE = 1 << 22,
    MAX_HEADS = 1 << 13,
    MAX_HEAD_DIM = 1 << 11,
    MAX_VOCAB = 1 << 26,
};
static const int64_t max_positions = (int64_t)1 << 31;

static const struct {
    const char *model_type, *architecture;
} families[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* model_type decides, as in the reference; architectures, when there, has to name the language
 * model of that type (letter case apart: old LLaMA conversions differ in it). */
static void read_family(struct dpe_json_reader *top, struct dpe_config *config)
{
    const char *type = dpe_json_string(top, "model_type", NULL);
    size_t family = 0;
    while (type != NULL && family < N_FAMILIES && strcmp(families[family].model_type, type) != 0) {
        family++;
    }
    if (type == NULL || family == N_FAMILIES) {
        dpe_json_expected(top, "model_type", "\"llama\", \"mistral\" or \"qwen2\"");
        return;
    }
    snprintf(config->model_type, sizeof config->model_type, "%s", type);
    const json_t *list = dpe_json_member(top, "architectures");
    size_t n = json_array_size(list);
    bool found = list == NULL || (json_is_array(list) && n == 0);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        found = found || (name != NULL && strcasecmp(name, families[family].architecture) == 0);
    }
    if (!found) {
        char what[96];
        snprintf(what, sizeof what, "[\"%s\"] for model_type %s", families[family].architecture,
                 type);
        dpe_json_expected(top, "architectures", what);
    }
}

static void read_sizes(struct dpe_json_reader *top, struct dpe_config *config)
{
    bool llama = strcmp(config->model_type, "llama") == 0;
    config->n_layers = dpe_json_integer(top, "num_hidden_layers", 1, MAX_LAYERS, 0);
    config->hidden = dpe_json_integer(top, "hidden_size", 1, MAX_HIDDEN, 0);
    config->intermediate = dpe_json_integer(top, "intermediate_size", 1, MAX_INTERMEDIATE, 0);
    config->n_heads = dpe_json_integer(top, "num_attention_heads", 1, MAX_HEADS, 0);
    config->vocab = dpe_json_integer(top, "vocab_size", 1, MAX_VOCAB, 0);
    config->max_position = dpe_json_integer(top, "max_position_embeddings", 2, max_positions, 0);
    /* null means "as many as query heads" everywhere; an absent key means that in Llama only (the
     * others default to a number of their own). */
    bool as_heads = llama || json_is_null(json_object_get(top->from, "num_key_value_heads"));
    config->n_kv_heads =
        dpe_json_integer(top, "num_key_value_heads", 1, MAX_HEADS, as_heads ? config->n_heads : 0);
    if (top->status != DPE_OK) {
        return;
    }
    if (config->n_heads % config->n_kv_heads != 0) {
        dpe_json_expected(top, "num_key_value_heads", "a divisor of num_attention_heads");
        return;
    }
    bool whole = config->hidden % config->n_heads == 0;
    config->head_dim = dpe_json_integer(top, "head_dim", 1, MAX_HEAD_DIM,
                                        whole ? config->hidden / config->n_heads : 0);
    if (top->status == DPE_OK && (config->head_dim % 2 != 0 || config->head_dim > MAX_HEAD_DIM)) {
        char what[96];
        snprintf(what, sizeof what, "an even number up to %d (hidden_size/heads gives %lld)",
                 MAX_HEAD_DIM, (long long)(config->hidden / config->n_heads));
        dpe_json_expected(top, "head_dim", what);
    }
}

/* Tokens of the sliding window that some layer has, 0 when no layer has one. */
static int64_t sliding_window(struct dpe_json_reader *top, const struct dpe_config *config)
{
    bool mistral = strcmp(config->model_type, "mistral") == 0;
    bool qwen2 = strcmp(config->model_type, "qwen2") == 0;
    if (qwen2) {
        bool used = dpe_json_bool(top, "use_sliding_window", false);
        int64_t first = dpe_json_integer(top, "max_window_layers", 0, INT64_MAX, 28);
        qwen2 = used && first < config->n_layers;
    }
    if ((!mistral && !qwen2) || json_is_null(json_object_get(top->from, "sliding_window"))) {
        return 0;
    }
    /* An absent key has this value in both families. */
    return dpe_json_integer(top, "sliding_window", 1, INT64_MAX, 4096);
}

/* A window as long as the trained length never bit in training, so full attention is what the
 * weights know; a shorter one is refused, since no position plan here means it. */
static void read_sliding(struct dpe_json_reader *top, const struct dpe_config *config)
{
    int64_t window = sliding_window(top, config);
    if (top->status == DPE_OK && window > 0 && window < config->max_position) {
        top->status = dpe_fail(
            top->err, DPE_BAD_DATA,
            "%s: sliding_window: expected null or at least max_position_embeddings (%lld), found "
            "%lld: sliding-window attention is not supported; use a checkpoint without it",
            top->file, (long long)config->max_position, (long long)window);
    }
    json_t *layers = dpe_json_member(top, "layer_types");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *kind = json_string_value(json_array_get(layers, i));
        if (kind == NULL || strcmp(kind, "full_attention") != 0) {
            dpe_json_expected(top, "layer_types", "full_attention in every layer");
        }
    }
}

static void read_switches(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_json_bound not_negative = {0.0, true, false, 1.0};
    bool llama = strcmp(config->model_type, "llama") == 0;
    config->rms_eps = dpe_json_number(top, "rms_norm_eps", not_negative, 1e-6);
    config->tied_embeddings = dpe_json_bool(top, "tie_word_embeddings", false);
    /* In Llama one switch is for all four attention matrices; Qwen2 always has q, k, v. */
    bool attention = llama && dpe_json_bool(top, "attention_bias", false);
    config->qkv_bias = attention || strcmp(config->model_type, "qwen2") == 0;
    config->o_bias = attention;
    config->mlp_bias = llama && dpe_json_bool(top, "mlp_bias", false);
    const char *act = dpe_json_string(top, "hidden_act", "silu");
    if (top->status == DPE_OK && strcmp(act, "silu") != 0) {
        dpe_json_expected(top, "hidden_act", "\"silu\"");
    }
    if (dpe_json_member(top, "quantization_config") != NULL) {
        dpe_json_expected(top, "quantization_config",
                          "none (quantised checkpoints are not supported)");
    }
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

dpe_status dpe_config_parse(const char *folder, const char *json, size_t n, const char *generation,
                            size_t n_generation, struct dpe_config *config, struct dpe_error *err)
{
    char file[512];
    json_t *root = NULL;
    json_t *second = NULL;
    *config = (struct dpe_config){.bos_id = -1};
    snprintf(file, sizeof file, "%s/config.json", folder);
    dpe_status status = dpe_json_parse(file, json, n, &root, err);
    if (status != DPE_OK) {
        return status;
    }
    struct dpe_json_reader top = {.file = file, .object = "", .from = root, .err = err};
    read_family(&top, config);
    read_sizes(&top, config);
    read_switches(&top, config);
    read_sliding(&top, config);
    read_ids(&top, config);
    dpe_config_parse_rope(&top, config);
    status = top.status;
    if (status == DPE_OK && generation != NULL) {
        snprintf(file, sizeof file, "%s/generation_config.json", folder);
        status = dpe_json_parse(file, generation, n_generation, &second, err);
        if (status == DPE_OK) {
            top.from = second;
            read_ids(&top, config);
            status = top.status;
        }
    }
    json_decref(second);
    json_decref(root);
    if (status != DPE_OK) {
        dpe_config_release(config);
    }
    return status;
}

void dpe_config_release(struct dpe_config *config)
{
    free(config->rope.short_factor);
    free(config->rope.long_factor);
    config->rope.short_factor = NULL;
    config->rope.long_factor = NULL;
}

int64_t dpe_config_parameters(const struct dpe_config *config)
{
    int64_t layer = 0;
    for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
        struct dpe_layer_shape shape = dpe_layer_shape(config, (enum dpe_weight)which);
        layer += shape.rows * shape.cols + shape.bias;
    }
    int64_t embeddings = config->vocab * config->hidden * (config->tied_embeddings ? 1 : 2);
    return config->n_layers * layer + embeddings + config->hidden;
}
