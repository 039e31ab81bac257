/* The layers in config.json: which have a sliding window, and which have no positions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/config_parse.h"
#include "engine/model/config/family.h"

enum { MAX_LAYERS = DPE_CONFIG_MAX_LAYERS };

static const char *window_key(const struct dpe_config *config)
{
    return dpe_family_of(config)->windows == DPE_WINDOW_CHUNKS ? "attention_chunk_size"
                                                               : "sliding_window";
}

/* Tokens of the sliding window that some layer may have, 0 when no layer has one. A window as long
 * as the trained length never cut a text in training, so full attention is
 * what the weights know. */
static int64_t sliding_window(struct dpe_json_reader *top, const struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const char *key = window_key(config);
    bool none =
        family->windows == DPE_WINDOW_NEVER || json_is_null(json_object_get(top->from, key));
    if (family->windows == DPE_WINDOW_SWITCHED) {
        none = !dpe_json_bool(top, "use_sliding_window", false) || none;
    }
    if (none || top->status != DPE_OK) {
        return 0;
    }
    int64_t fallback = family->defaults.window;
    if (fallback == 0 && dpe_json_member(top, key) == NULL) {
        return 0;
    }
    int64_t window = dpe_json_integer(top, key, 1, INT64_MAX, fallback);
    return window < config->max_position ? window : 0;
}

/* Which layers the family's rule gives a window, where layer_types does not say so; `rotates`: the
 * layer has positions. */
static bool windowed_by_rule(struct dpe_json_reader *top, const struct dpe_config *config,
                             int64_t layer, bool rotates)
{
    const struct dpe_family *family = dpe_family_of(config);
    switch (family->windows) {
    case DPE_WINDOW_NEVER:
        return false;
    case DPE_WINDOW_ALL:
        return true;
    case DPE_WINDOW_SWITCHED:
        return layer >= dpe_json_integer(top, "max_window_layers", 0, INT64_MAX, 28);
    case DPE_WINDOW_TYPES: {
        int64_t every =
            dpe_json_integer(top, "sliding_window_pattern", 1, MAX_LAYERS, family->window_pattern);
        return (layer + 1) % every != 0;
    }
    case DPE_WINDOW_CHUNKS:
        return rotates;
    }
    return false;
}

/* Whether a layer has a state in place of keys, in a family that has such layers. */
static bool recurrent_layer(struct dpe_json_reader *top, const struct dpe_config *config,
                            const json_t *types, int64_t layer)
{
    if (types == NULL) {
        int64_t every = dpe_json_integer(top, "full_attention_interval", 1, MAX_LAYERS, 4);
        /* A model that is too short for the pattern ends in attention. */
        return (layer + 1) % every != 0 &&
               !(config->n_layers < every && layer == config->n_layers - 1);
    }
    const char *kind = json_string_value(json_array_get(types, (size_t)layer));
    bool recurrent = kind != NULL && strcmp(kind, "linear_attention") == 0;
    if (!recurrent && (kind == NULL || strcmp(kind, "full_attention") != 0)) {
        dpe_json_expected(top, "layer_types", "full_attention or linear_attention for each layer");
    }
    return recurrent;
}

/* 1: windowed, 0: full; by layer_types where the family reads it. */
static bool windowed_layer(struct dpe_json_reader *top, const struct dpe_config *config,
                           const json_t *types, int64_t layer, bool rotates)
{
    enum dpe_window_rule rule = dpe_family_of(config)->windows;
    if (types == NULL) {
        return windowed_by_rule(top, config, layer, rotates);
    }
    bool read = rule == DPE_WINDOW_TYPES || rule == DPE_WINDOW_SWITCHED;
    bool chunks = rule == DPE_WINDOW_CHUNKS;
    const char *kind = json_string_value(json_array_get(types, (size_t)layer));
    bool full = kind != NULL && strcmp(kind, "full_attention") == 0;
    bool chunked = chunks && kind != NULL && strcmp(kind, "chunked_attention") == 0;
    if (!full && !chunked && !(read && kind != NULL && strcmp(kind, "sliding_attention") == 0)) {
        dpe_json_expected(top, "layer_types",
                          read     ? "full_attention or sliding_attention for each layer"
                          : chunks ? "full_attention or chunked_attention for each layer"
                                   : "full_attention in every layer");
    }
    return rule == DPE_WINDOW_ALL || !full;
}

/* Whether a layer of a family with layers without positions rotates. */
static bool rotating_layer(struct dpe_json_reader *top, const struct dpe_config *config,
                           const json_t *list, int64_t layer, bool windowed)
{
    if (dpe_family_of(config)->full_still) {
        return windowed || json_is_null(json_object_get(top->from, "sliding_window"));
    }
    if (dpe_family_of(config)->still) {
        const json_t *rope = dpe_json_member(top, "rope_parameters");
        return !json_is_null(json_object_get(rope, "rope_theta")) &&
               (rope != NULL || dpe_json_member(top, "rope_theta") != NULL);
    }
    if (!dpe_family_of(config)->position_free) {
        return true;
    }
    if (list == NULL) {
        int64_t every = dpe_json_integer(top, "no_rope_layer_interval", 1, MAX_LAYERS, 4);
        return (layer + 1) % every != 0;
    }
    const json_t *value = json_array_get(list, (size_t)layer);
    if (!json_is_integer(value)) {
        dpe_json_expected(top, "no_rope_layers", "a list of 0 and 1, one for each layer");
    }
    return json_integer_value(value) != 0;
}

/* The index of a kind, which is added when it is new. */
static uint8_t kind_index(struct dpe_config *config, struct dpe_layer_kind kind)
{
    int i = 0;
    while (i < config->n_kinds &&
           (config->kinds[i].window != kind.window || config->kinds[i].rope != kind.rope ||
            config->kinds[i].chunked != kind.chunked ||
            config->kinds[i].head_dim != kind.head_dim ||
            config->kinds[i].kv_heads != kind.kv_heads ||
            config->kinds[i].recurrent != kind.recurrent)) {
        i++;
    }
    if (i == config->n_kinds) {
        config->kinds[config->n_kinds++] = kind; /* at most: with and without window and rope */
    }
    return (uint8_t)i;
}

/* No full-attention layer rotates. Those without positions are left to a plan's temperature, and
 * become kind 0; without any, there is nothing for a plan. */
static void find_still(struct dpe_json_reader *top, struct dpe_config *config, int64_t window)
{
    const struct dpe_layer_kind still = {.rope = -1};
    const uint8_t own = kind_index(config, still);
    const int last = config->n_kinds - 1;
    bool found = false;
    for (int64_t i = 0; i < config->n_layers; i++) {
        uint8_t *kind = &config->layer_kinds[i];
        found = found || *kind == own;
        *kind = *kind == own ? 0 : *kind == last ? own : *kind;
    }
    config->kinds[0] = still;
    config->kinds[own] = config->kinds[last];
    config->n_kinds--;
    const char *why = "no layer sees all keys, so there is nothing that a plan could change";
    if (!found && window > 0) {
        top->status = dpe_fail(top->err, DPE_BAD_DATA,
                               "%s: %s%s: found %lld in every layer, expected null or "
                               "at least max_position_embeddings in some: %s",
                               top->file, top->object, window_key(config), (long long)window, why);
    } else if (!found) {
        top->status = dpe_fail(top->err, DPE_BAD_DATA, "%s: %s", top->file, why);
    }
}

/* What all layers have. The released code takes as many blocks as the next power of two has. */
static void read_branches(struct dpe_json_reader *top, struct dpe_config *config)
{
    enum { MOST_BLOCK = 1 << 16, MOST_COUNT = 1 << 16, LEAST_COUNT = 3 };
    int64_t block = dpe_json_integer(top, "block_size", 1, MOST_BLOCK, 64);
    int64_t least = dpe_json_integer(top, "block_counts", LEAST_COUNT, MOST_COUNT, 16);
    int64_t window =
        dpe_json_integer(top, "window_size", 0, INT64_MAX, dpe_family_of(config)->defaults.window);
    int64_t count = 4;
    while (count < least) {
        count *= 2;
    }
    config->branches = true;
    config->selection = dpe_selection_compressed(block, count);
    if (top->status == DPE_OK && window > 0) {
        kind_index(config, (struct dpe_layer_kind){.window = window});
    }
}

/* What all layers with a state have. Bounds keep the bytes of a state within 31 bits. */
static void read_recurrent(struct dpe_json_reader *top, struct dpe_config *config)
{
    enum { MOST_HEADS = 1 << 12, MOST_DIM = 1 << 10, MOST_WIDTH = 16, MOST_FLOATS = 1 << 28 };
    const struct dpe_family_recurrent *family = dpe_family_of(config)->recurrent;
    struct dpe_recurrent *r = &config->recurrent;
    const bool own = family->layout == DPE_RECURRENT_APART; /* sizes follow from the others' */
    r->key_heads =
        dpe_json_integer(top, "linear_num_key_heads", 1, MOST_HEADS, own ? config->n_heads : 16);
    r->value_heads =
        dpe_json_integer(top, "linear_num_value_heads", 1, MOST_HEADS, own ? config->n_heads : 32);
    const int64_t dim = own && r->key_heads > 0 ? config->hidden * 3 / (4 * r->key_heads) : 128;
    r->key_dim = dpe_json_integer(top, "linear_key_head_dim", 1, MOST_DIM, dim);
    r->value_dim =
        dpe_json_integer(top, "linear_value_head_dim", 1, MOST_DIM, own ? 2 * r->key_dim : 128);
    r->width = dpe_json_integer(top, "linear_conv_kernel_dim", 2, MOST_WIDTH, 4);
    r->eps = family->eps > 0.0 ? family->eps : config->rms_eps;
    r->doubled = own && dpe_json_bool(top, "linear_allow_neg_eigval", true);
    if (top->status != DPE_OK) {
        return;
    }
    if (r->value_heads % r->key_heads != 0) {
        dpe_json_expected(top, "linear_num_value_heads", "a multiple of linear_num_key_heads");
    } else if (dpe_recurrent_floats(r) > MOST_FLOATS) {
        dpe_json_expected(top, "linear_value_head_dim",
                          "a state of at most 2^28 numbers in each layer");
    }
    config->output_gate = family->layout != DPE_RECURRENT_APART;
    if (config->output_gate && !dpe_json_bool(top, "attn_output_gate", true)) {
        dpe_json_expected(top, "attn_output_gate", "true (attention of this family has a gate)");
    }
}

/* The heads of the full layers: those of config.json are of the layers with windows. Files have
 * keys of their own for it, or an entry for each layer. */
static void read_full_heads(struct dpe_json_reader *top, struct dpe_config *config,
                            struct dpe_layer_kind *local)
{
    enum { FULL_HEAD = 512 };
    struct dpe_json_reader own = *top;
    json_t *each = dpe_json_object(top, "per_layer_config");
    const bool alike = dpe_json_bool(top, "attention_k_eq_v", false);
    const char *key = "global_head_dim";
    const char *heads = "num_global_key_value_heads";
    const int64_t kv = config->n_kv_heads;
    *local = (struct dpe_layer_kind){.head_dim = config->head_dim, .kv_heads = kv};
    for (int64_t i = 0; each != NULL && i < config->n_layers; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        json_t *entry = json_object_get(each, number);
        if (json_is_object(entry)) {
            own.from = own.from == top->from ? entry : own.from;
            key = "head_dim";
            heads = "num_key_value_heads";
            own.object = "per_layer_config.N.";
            if (!json_equal(entry, own.from)) {
                dpe_json_expected(&own, key, "the same for all layers that have it");
            }
        }
    }
    config->head_dim = dpe_json_integer(&own, key, 1, DPE_CONFIG_MAX_HEAD_DIM,
                                        each != NULL ? config->head_dim : FULL_HEAD);
    if (alike || each != NULL) {
        config->n_kv_heads = dpe_json_integer(&own, heads, 1, config->n_heads, kv);
    }
    if (own.status == DPE_OK && config->head_dim % 2 != 0) {
        dpe_json_expected(&own, key, "an even number");
    } else if (own.status == DPE_OK && config->n_heads % config->n_kv_heads != 0) {
        dpe_json_expected(&own, heads, "a divisor of num_attention_heads");
    }
    top->status = top->status == DPE_OK ? own.status : top->status;
    config->values_are_keys = alike;
}

/* What Gemma 4's layers have besides. */
static void read_mixed(struct dpe_json_reader *top, struct dpe_config *config)
{
    enum { MOST_INPUT = 1 << 14, MOST_VOCAB = 1 << 26 };
    config->value_norms = true;
    config->layer_scales = true;
    config->input_width = dpe_json_integer(top, "hidden_size_per_layer_input", 0, MOST_INPUT, 256);
    config->input_vocab =
        dpe_json_integer(top, "vocab_size_per_layer_input", 1, MOST_VOCAB, 262144);
    if (top->status == DPE_OK && config->input_width > 0 && config->input_vocab < config->vocab) {
        dpe_json_expected(top, "vocab_size_per_layer_input", "at least vocab_size");
    }
    config->shared_layers =
        dpe_json_integer(top, "num_kv_shared_layers", 0, config->n_layers - 1, 0);
    const bool wide = dpe_json_bool(top, "use_double_wide_mlp", false);
    config->wide_layers = wide ? config->shared_layers : 0;
    for (int64_t i = 0; top->status == DPE_OK && i < config->n_layers; i++) {
        if (dpe_config_keys_of(config, i) < 0) {
            dpe_json_expected(top, "num_kv_shared_layers",
                              "a layer of each of the shared layers' types before them");
        }
    }
}

void dpe_config_parse_layers(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const json_t *types = dpe_json_member(top, "layer_types");
    const json_t *rotating = family->position_free ? dpe_json_member(top, "no_rope_layers") : NULL;
    const bool chunks = family->windows == DPE_WINDOW_CHUNKS;
    rotating =
        chunks && json_array_size(rotating) == 0 ? NULL : rotating; /* as transformers has it */
    int64_t window = sliding_window(top, config);
    if (top->status != DPE_OK) {
        return;
    }
    struct dpe_layer_kind local = {0};
    if (family->mixed) {
        read_full_heads(top, config, &local);
    }
    config->n_kinds = 1;
    config->kinds[0] = (struct dpe_layer_kind){0};
    if (top->status != DPE_OK) {
        return;
    }
    top->status = DPE_NEW(&config->layer_kinds, (size_t)config->n_layers, top->err,
                          "%s: out of memory", top->file);
    if (top->status != DPE_OK) {
        return;
    }
    bool movable = false;
    for (int64_t i = 0; i < config->n_layers && top->status == DPE_OK; i++) {
        bool recurrent = family->recurrent != NULL && recurrent_layer(top, config, types, i);
        bool free = family->position_free && !rotating_layer(top, config, rotating, i, false);
        bool windowed = family->recurrent == NULL && windowed_layer(top, config, types, i, !free);
        struct dpe_layer_kind kind = {.window = windowed ? window : 0, .recurrent = recurrent};
        kind.chunked = chunks && kind.window > 0;
        kind.head_dim = windowed ? local.head_dim : 0;
        kind.kv_heads = windowed ? local.kv_heads : 0;
        if (recurrent || free || !rotating_layer(top, config, rotating, i, windowed)) {
            kind.rope = -1;
        } else if (windowed && family->local_rope != DPE_LOCAL_ROPE_SAME) {
            kind.rope = 1;
        }
        config->layer_kinds[i] = kind_index(config, kind);
        movable = movable || config->layer_kinds[i] == 0;
    }
    if (top->status == DPE_OK && !movable) {
        find_still(top, config, window);
    }
    if (family->branches) {
        read_branches(top, config);
    }
    if (family->mixed && top->status == DPE_OK) {
        read_mixed(top, config);
    }
    if (family->recurrent != NULL) {
        read_recurrent(top, config);
    }
}

struct dpe_layer_kind dpe_config_layer(const struct dpe_config *config, int64_t layer)
{
    return config->layer_kinds == NULL ? (struct dpe_layer_kind){0}
                                       : config->kinds[config->layer_kinds[layer]];
}

bool dpe_config_attends(const struct dpe_config *config, int64_t layer)
{
    return !dpe_config_layer(config, layer).recurrent;
}

int64_t dpe_config_attending(const struct dpe_config *config, int64_t layer)
{
    int64_t n = 0;
    if (config->recurrent.value_heads == 0) { /* asked for each layer of each token */
        return layer;
    }
    for (int64_t i = 0; i < layer; i++) {
        n += dpe_config_attends(config, i);
    }
    return n;
}

int64_t dpe_config_head_dim(const struct dpe_config *config, int64_t layer)
{
    const int64_t own = dpe_config_layer(config, layer).head_dim;
    return own > 0 ? own : config->head_dim;
}

int64_t dpe_config_kv_heads(const struct dpe_config *config, int64_t layer)
{
    const int64_t own = dpe_config_layer(config, layer).kv_heads;
    return own > 0 ? own : config->n_kv_heads;
}

int64_t dpe_config_keys_of(const struct dpe_config *config, int64_t layer)
{
    int64_t of = config->n_layers - config->shared_layers - 1;
    if (layer <= of) {
        return layer;
    }
    while (of >= 0 && config->layer_kinds[of] != config->layer_kinds[layer]) {
        of--;
    }
    return of;
}

int64_t dpe_config_kept(const struct dpe_config *config, int64_t layer)
{
    const bool own =
        dpe_config_attends(config, layer) && dpe_config_keys_of(config, layer) == layer;
    return own ? dpe_config_kv_heads(config, layer) * dpe_config_head_dim(config, layer) : 0;
}

int64_t dpe_config_kept_all(const struct dpe_config *config)
{
    int64_t n = 0;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        n += dpe_config_kept(config, layer);
    }
    return n;
}

bool dpe_config_mixed(const struct dpe_config *config)
{
    bool mixed = config->shared_layers > 0;
    for (int i = 0; i < config->n_kinds; i++) {
        mixed = mixed || config->kinds[i].head_dim > 0 || config->kinds[i].kv_heads > 0;
    }
    return mixed;
}

int64_t dpe_config_most_queries(const struct dpe_config *config)
{
    int64_t most = config->head_dim;
    for (int i = 0; i < config->n_kinds; i++) {
        most = dpe_most(most, config->kinds[i].head_dim);
    }
    return config->n_heads * most;
}

int64_t dpe_config_most_keys(const struct dpe_config *config)
{
    int64_t most = config->n_kv_heads * config->head_dim;
    for (int i = 0; i < config->n_kinds; i++) {
        const struct dpe_layer_kind *kind = &config->kinds[i];
        most = dpe_most(most, (kind->kv_heads > 0 ? kind->kv_heads : config->n_kv_heads) *
                                  (kind->head_dim > 0 ? kind->head_dim : config->head_dim));
    }
    return most;
}

int64_t dpe_config_dense(const struct dpe_config *config)
{
    return dpe_most(config->intermediate * (config->wide_layers > 0 ? 2 : 1), config->input_width);
}

bool dpe_config_still(const struct dpe_config *config)
{
    return config->fast || dpe_config_stands(config);
}

bool dpe_config_stands(const struct dpe_config *config)
{
    return config->layer_kinds != NULL && config->kinds[0].rope < 0;
}

bool dpe_config_moves(const struct dpe_config *config, int64_t layer)
{
    return config->layer_kinds == NULL || config->layer_kinds[layer] == 0;
}

int64_t dpe_config_moved(const struct dpe_config *config)
{
    int64_t n = 0;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        n += dpe_config_moves(config, layer);
    }
    return n;
}

bool dpe_config_alike(const struct dpe_config *config)
{
    bool alike = true;
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        alike = alike && (dpe_config_moves(config, layer) || !dpe_config_attends(config, layer));
    }
    return alike;
}
