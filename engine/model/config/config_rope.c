/* The rotation in config.json, in either of its two schemas. */
#include "engine/base/base.h"
#include "engine/model/config/config_parse.h"
#include "engine/model/config/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a rotation lie in these bounds in every checkpoint by orders of magnitude. Outside
 * them frequencies and logits leave the range of single precision. */
#define MOST_THETA    1e30
#define MOST_FACTOR   1e6
#define LEAST_FACTOR  1e-6
#define MOST_POSITION 0x1p31

static const struct {
    const char *name;
    enum dpe_rope_type type;
} rope_types[] = {
    {"default", DPE_ROPE_DEFAULT}, {"linear", DPE_ROPE_LINEAR},     {"dynamic", DPE_ROPE_DYNAMIC},
    {"yarn", DPE_ROPE_YARN},       {"longrope", DPE_ROPE_LONGROPE}, {"llama3", DPE_ROPE_LLAMA3},
    {"clex", DPE_ROPE_CLEX},
};

/* "rope_type", or "type" as it was called before; both may be there and then have to agree. */
static enum dpe_rope_type read_type(struct dpe_json_reader *rope, bool phi3)
{
    const char *old = dpe_json_string(rope, "type", NULL);
    const char *name = dpe_json_string(rope, "rope_type", old == NULL ? "default" : old);
    if (rope->status != DPE_OK) {
        return DPE_ROPE_DEFAULT;
    }
    if (old != NULL && strcmp(old, name) != 0) {
        dpe_json_expected(rope, "type", "the same as rope_type");
        return DPE_ROPE_DEFAULT;
    }
    /* The first files of Phi-3 call its longrope "su" or "yarn". */
    if (phi3 && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)) {
        return DPE_ROPE_LONGROPE;
    }
    for (size_t i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++) {
        if (strcmp(rope_types[i].name, name) == 0) {
            return rope_types[i].type;
        }
    }
    dpe_json_expected(rope, dpe_json_member(rope, "rope_type") != NULL ? "rope_type" : "type",
                      "one of default, linear, dynamic, yarn, longrope, llama3, clex");
    return DPE_ROPE_DEFAULT;
}

/* One factor per pair, [n]. */
static double *read_list(struct dpe_json_reader *rope, const char *key, int64_t n)
{
    const json_t *list = dpe_json_member(rope, key);
    if (rope->status != DPE_OK) {
        return NULL;
    }
    if (!json_is_array(list) || json_array_size(list) != (size_t)n) {
        char what[64];
        snprintf(what, sizeof what, "a list of head_dim/2 = %lld numbers", (long long)n);
        dpe_json_expected(rope, key, what);
        return NULL;
    }
    double *numbers = dpe_alloc((size_t)n, sizeof *numbers);
    if (numbers == NULL) {
        rope->status = dpe_fail(rope->err, DPE_NO_MEMORY, "%s: out of memory", rope->file);
        return NULL;
    }
    for (size_t i = 0; i < (size_t)n; i++) {
        const json_t *value = json_array_get(list, i);
        numbers[i] = json_number_value(value);
        bool positive = json_is_number(value) && isfinite(numbers[i]) && numbers[i] > 0.0;
        if (!positive || numbers[i] < LEAST_FACTOR || numbers[i] > MOST_FACTOR) {
            dpe_json_expected(rope, key, positive ? "numbers from 1e-06 to 1e+06" : "numbers > 0");
            free(numbers);
            return NULL;
        }
    }
    return numbers;
}

/* For the types that have it, a top-level original_max_position_embeddings wins (as Phi-3 has it):
 * the reference does the same. */
static double read_original(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                            bool required)
{
    const struct dpe_json_bound positive = {0.0, false, false, MOST_POSITION};
    const char *key = "original_max_position_embeddings";
    double outer = dpe_json_number(top, key, positive, (double)NAN);
    if (!isnan(outer)) {
        return outer;
    }
    const struct dpe_json_bound bound = {0.0, false, required, MOST_POSITION};
    return dpe_json_number(rope, key, bound, (double)NAN);
}

/* NAN when there is none. */
static double read_attention_factor(struct dpe_json_reader *rope)
{
    const struct dpe_json_bound bound = {LEAST_FACTOR, true, false, MOST_FACTOR};
    return dpe_json_number(rope, "attention_factor", bound, (double)NAN);
}

static void read_yarn(struct dpe_json_reader *rope, struct dpe_rope_config *out)
{
    const struct dpe_json_bound positive = {0.0, false, false, MOST_FACTOR};
    const struct dpe_json_bound not_negative = {0.0, true, false, MOST_FACTOR};
    out->beta_fast = dpe_json_number(rope, "beta_fast", positive, 32.0);
    out->beta_slow = dpe_json_number(rope, "beta_slow", positive, 1.0);
    out->attention_factor = read_attention_factor(rope);
    /* 0 means "not given" in the reference. */
    out->mscale = dpe_json_number(rope, "mscale", not_negative, (double)NAN);
    out->mscale_all_dim = dpe_json_number(rope, "mscale_all_dim", not_negative, (double)NAN);
    out->mscale = out->mscale == 0.0 ? (double)NAN : out->mscale;
    out->mscale_all_dim = out->mscale_all_dim == 0.0 ? (double)NAN : out->mscale_all_dim;
    out->truncate = dpe_json_bool(rope, "truncate", true);
}

static void read_llama3(struct dpe_json_reader *rope, struct dpe_rope_config *out)
{
    const struct dpe_json_bound required = {0.0, false, true, MOST_FACTOR};
    out->low_freq_factor = dpe_json_number(rope, "low_freq_factor", required, (double)NAN);
    out->high_freq_factor = dpe_json_number(rope, "high_freq_factor", required, (double)NAN);
    if (rope->status == DPE_OK && !(out->high_freq_factor > out->low_freq_factor)) {
        dpe_json_expected(rope, "high_freq_factor", "more than low_freq_factor");
    }
}

static void read_longrope(struct dpe_json_reader *rope, int64_t n_pairs,
                          struct dpe_rope_config *out)
{
    out->attention_factor = read_attention_factor(rope);
    out->short_factor = read_list(rope, "short_factor", n_pairs);
    out->long_factor = read_list(rope, "long_factor", n_pairs);
    if (rope->status == DPE_OK && isnan(out->factor) && isnan(out->original_max_position)) {
        dpe_json_expected(rope, "factor",
                          "a number, or original_max_position_embeddings to derive it from");
    }
}

/* The network of CLEX is among the weights (weights_clex.c). */
static void read_clex(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                      struct dpe_config *config)
{
    const struct dpe_json_bound times = {1.0, true, true, 1024.0};
    const struct dpe_json_bound step = {0.0, false, true, 1.0};
    struct dpe_rope_clex *clex = dpe_alloc_zero(1, sizeof *clex);
    config->rope.clex = clex;
    if (clex == NULL) {
        rope->status = dpe_fail(rope->err, DPE_NO_MEMORY, "%s: out of memory", rope->file);
        return;
    }
    clex->max_factor = dpe_json_number(rope, "max_factor", times, 1.0);
    clex->step = dpe_json_number(rope, "time_dt", step, 1.0);
    double wide = dpe_json_number(rope, "param_factor", times, 1.0);
    clex->width = (int64_t)(wide * 2.0 * (double)dpe_config_pairs(config));
    const char *act = dpe_json_string(rope, "act", "");
    clex->tanh = act != NULL && strcmp(act, "tanh") == 0;
    if (rope->status == DPE_OK && wide != floor(wide)) {
        dpe_json_expected(rope, "param_factor", "a whole number");
    } else if (rope->status == DPE_OK && clex->step < 1e-3) {
        dpe_json_expected(rope, "time_dt", "at least 0.001");
    } else if (rope->status == DPE_OK && !clex->tanh && strcmp(act, "silu") != 0) {
        dpe_json_expected(rope, "act", "tanh or silu");
    }
    clex->log_scale = dpe_json_bool(top, "log_scale", true);
}

/* In a config.json of `dpe-export --format hf` the model's own rotation is "native" within a block
 * of type "dpe". The engine takes positions from plans, so that it reads the native one. */
static bool is_exported(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "rope_type"));
    const json_t *native = json_object_get(block, "native");
    return type != NULL && strcmp(type, "dpe") == 0 &&
           (json_is_null(native) || json_is_object(native));
}

static bool take_native(struct dpe_json_reader *rope)
{
    if (!is_exported(rope->from)) {
        return false;
    }
    json_t *native = json_object_get(rope->from, "native");
    rope->from = json_is_object(native) ? native : NULL;
    rope->object = "native.";
    return true;
}

/* The object that describes the rotation of the full-attention layers. Both schemas in one file are
 * common (a converter kept the old key): rope_scaling wins, as in the reference, and must not
 * contradict. `typed`: a rotation may be given for each type of layer. `*exported`: it is
 * the native one of an exported file. */
static struct dpe_json_reader choose_object(struct dpe_json_reader *top, bool typed,
                                            bool *exported)
{
    struct dpe_json_reader rope = *top;
    json_t *old = dpe_json_object(top, "rope_scaling");
    json_t *new = dpe_json_object(top, "rope_parameters");
    rope.status = top->status;
    rope.from = old != NULL ? old : new;
    rope.object = old != NULL ? "rope_scaling." : "rope_parameters.";
    if (rope.status == DPE_OK && old != NULL && new != NULL && !json_equal(old, new)) {
        dpe_json_expected(top, "rope_scaling", "the same as rope_parameters when both are there");
        rope.status = top->status;
    }
    *exported = take_native(&rope);
    if (typed && json_is_object(json_object_get(rope.from, "full_attention"))) {
        rope.from = json_object_get(rope.from, "full_attention");
        rope.object = "rope_parameters.full_attention.";
    }
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(rope.from, key, value)
    {
        if (json_is_object(value)) {
            dpe_json_expected(&rope, key, "one rotation for all layers");
        }
    }
    return rope;
}

const struct dpe_rope_config dpe_rope_plain = {.theta = 10000.0,
                                               .factor = NAN,
                                               .original_max_position = NAN,
                                               .attention_factor = NAN,
                                               .beta_fast = NAN,
                                               .beta_slow = NAN,
                                               .mscale = NAN,
                                               .mscale_all_dim = NAN,
                                               .truncate = true,
                                               .low_freq_factor = NAN,
                                               .high_freq_factor = NAN,
                                               .partial_rotary_factor = 1.0};

/* The part of the head that rotates, where the family may rotate a part. */
static void read_rotary_dim(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                            struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    struct dpe_rope_config *out = &config->rope;
    const struct dpe_json_bound positive = {0.0, false, false, 0.0};
    const char *key = "partial_rotary_factor";
    double own = family->defaults.partial_rotary > 0.0 ? family->defaults.partial_rotary : 1.0;
    out->partial_rotary_factor = dpe_json_number(top, key, positive, own);
    out->partial_rotary_factor = dpe_json_number(rope, key, positive, out->partial_rotary_factor);
    double dim = floor((double)config->head_dim * out->partial_rotary_factor);
    bool good = family->partial
                    ? dim >= 2.0 && dim <= (double)config->head_dim && fmod(dim, 2.0) == 0.0
                    : out->partial_rotary_factor == 1.0;
    if (rope->status == DPE_OK && !good) {
        bool inner = dpe_json_member(rope, key) != NULL;
        dpe_json_expected(inner ? rope : top, key,
                          family->partial
                              ? "a share of head_dim that is an even number of components"
                              : "1 (this family does not rotate a part of the head)");
        return;
    }
    config->rotary_dim = good ? (int64_t)dim : config->head_dim;
}

static void read_scaling(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                         struct dpe_config *config)
{
    struct dpe_rope_config *out = &config->rope;
    bool phi3 = strcmp(config->model_type, "phi3") == 0;
    out->type = read_type(rope, phi3);
    /* The ratio of the two lengths stands in for a missing factor where both are known. */
    bool needs_original = out->type == DPE_ROPE_YARN || out->type == DPE_ROPE_LONGROPE ||
                          out->type == DPE_ROPE_LLAMA3;
    if (needs_original) {
        out->original_max_position = read_original(top, rope, out->type == DPE_ROPE_LLAMA3);
    }
    if (out->type == DPE_ROPE_LONGROPE && phi3 && isnan(out->original_max_position)) {
        out->original_max_position = 4096.0; /* Phi3Config's */
    }
    if (out->type != DPE_ROPE_DEFAULT) {
        bool needed = out->type != DPE_ROPE_LONGROPE && out->type != DPE_ROPE_CLEX;
        const struct dpe_json_bound factor = {1.0, true, needed, MOST_FACTOR};
        out->factor = dpe_json_number(rope, "factor", factor, (double)NAN);
    }
    if (out->type == DPE_ROPE_YARN) {
        read_yarn(rope, out);
    } else if (out->type == DPE_ROPE_LLAMA3) {
        read_llama3(rope, out);
    } else if (out->type == DPE_ROPE_LONGROPE) {
        read_longrope(rope, dpe_config_pairs(config), out);
    } else if (out->type == DPE_ROPE_CLEX) {
        read_clex(top, rope, config);
    }
}

/* The scaling of Ministral's queries, which stands beside the rotation's keys. */
static void read_growth(struct dpe_json_reader *rope, struct dpe_config *config)
{
    const struct dpe_json_bound not_negative = {0.0, true, false, 1e6};
    config->query_growth = dpe_json_number(rope, "llama_4_scaling_beta", not_negative, 0.0);
    if (config->query_growth > 0.0) {
        const struct dpe_json_bound required = {0.0, false, true, MOST_POSITION};
        config->query_length =
            dpe_json_number(rope, "original_max_position_embeddings", required, 0.0);
    }
}

/* The rotation of windowed layers that is not that of the others: never scaled. */
static void read_local(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_json_bound above_one = {1.0, false, false, MOST_THETA};
    const json_t *block = dpe_json_member(top, "rope_parameters");
    block = is_exported(block) ? json_object_get(block, "native") : block;
    json_t *typed = json_object_get(block, "sliding_attention");
    bool own = family->local_rope == DPE_LOCAL_ROPE_OWN;
    config->local_rope = dpe_rope_plain;
    config->local_rope.partial_rotary_factor = config->rope.partial_rotary_factor;
    config->local_rope.theta = own ? family->defaults.local_theta : config->rope.theta;
    if (own) {
        config->local_rope.theta =
            dpe_json_number(top, "rope_local_base_freq", above_one, config->local_rope.theta);
    }
    struct dpe_json_reader rope = *top;
    rope.from = json_is_object(typed) ? typed : NULL;
    rope.object = "rope_parameters.sliding_attention.";
    config->local_rope.theta =
        dpe_json_number(&rope, "rope_theta", above_one, config->local_rope.theta);
    if (read_type(&rope, false) != DPE_ROPE_DEFAULT) {
        dpe_json_expected(&rope, "rope_type", "default for the windowed layers");
    }
    top->status = rope.status;
}

void dpe_config_parse_rope(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    struct dpe_rope_config *out = &config->rope;
    bool local = family->local_rope != DPE_LOCAL_ROPE_SAME;
    *out = dpe_rope_plain;
    if (top->status != DPE_OK) {
        return;
    }
    struct dpe_json_reader rope = choose_object(top, local, &out->exported);
    const struct dpe_json_bound above_one = {1.0, false, false, MOST_THETA};
    double base = family->defaults.theta > 0.0 ? family->defaults.theta : 10000.0;
    out->theta = dpe_json_number(top, "rope_theta", above_one, base);
    out->theta = dpe_json_number(&rope, "rope_theta", above_one, out->theta);
    read_rotary_dim(top, &rope, config);
    if (rope.status == DPE_OK) {
        read_scaling(top, &rope, config);
    }
    if (family->grows) {
        read_growth(&rope, config);
    }
    top->status = top->status == DPE_OK ? rope.status : top->status;
    if (local && top->status == DPE_OK) {
        read_local(top, config);
    }
}
