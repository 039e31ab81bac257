/* The rotation in config.json, in either of its two schemas. */
#include "engine/model/config/clex.h"
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

/* By enum dpe_rope_type. */
static const char *const rope_types[] = {"default",  "linear", "dynamic", "yarn",
                                         "longrope", "llama3", "clex"};
enum { N_ROPE_TYPES = sizeof rope_types / sizeof rope_types[0] };

#define OF(type) (1U << DPE_ROPE_##type)
#define NUMBER(called, member, types, ...)                                                         \
    {                                                                                              \
        called, offsetof(struct dpe_rope_config, member), types, __VA_ARGS__                       \
    }
/* Numbers of a rotation: the types that read them, the range, and what stands for an absent one.
 * Those without a type have readers of their own. */
static const struct number {
    const char *name;
    size_t at;
    unsigned types;
    struct dpe_json_bound bound;
    double usual;
} members[] = {
    NUMBER("rope_theta", theta, 0, {0}, 0.0),
    NUMBER("factor", factor, 0, {0}, 0.0),
    NUMBER("original_max_position_embeddings", original_max_position, 0, {0}, 0.0),
    NUMBER("attention_factor", attention_factor, OF(YARN) | OF(LONGROPE),
           {LEAST_FACTOR, true, false, MOST_FACTOR}, NAN),
    NUMBER("short_mscale", short_mscale, OF(LONGROPE), {LEAST_FACTOR, true, false, MOST_FACTOR},
           NAN),
    NUMBER("long_mscale", long_mscale, OF(LONGROPE), {LEAST_FACTOR, true, false, MOST_FACTOR}, NAN),
    NUMBER("beta_fast", beta_fast, OF(YARN), {0.0, false, false, MOST_FACTOR}, 32.0),
    NUMBER("beta_slow", beta_slow, OF(YARN), {0.0, false, false, MOST_FACTOR}, 1.0),
    NUMBER("mscale", mscale, OF(YARN), {0.0, true, false, MOST_FACTOR}, NAN),
    NUMBER("mscale_all_dim", mscale_all_dim, OF(YARN), {0.0, true, false, MOST_FACTOR}, NAN),
    NUMBER("low_freq_factor", low_freq_factor, OF(LLAMA3), {0.0, false, true, MOST_FACTOR}, NAN),
    NUMBER("high_freq_factor", high_freq_factor, OF(LLAMA3), {0.0, false, true, MOST_FACTOR}, NAN),
    NUMBER("partial_rotary_factor", partial_rotary_factor, 0, {0}, 0.0),
};
enum { N_MEMBERS = sizeof members / sizeof members[0] };

static double *number_of(struct dpe_rope_config *rope, const struct number *number)
{
    return (double *)(void *)((char *)rope + number->at);
}

const char *dpe_rope_name(enum dpe_rope_type type)
{
    return rope_types[type];
}

/* "rope_type", or "type" as it was called before; both may be there and then have to agree. */
static enum dpe_rope_type read_type(struct dpe_json_reader *rope, bool phi3, bool mixed)
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
    if (phi3 && dpe_json_member(rope, "short_factor") != NULL &&
        (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)) {
        return DPE_ROPE_LONGROPE;
    }
    if (mixed && strcmp(name, "proportional") == 0) {
        return DPE_ROPE_DEFAULT; /* read_proportional */
    }
    char what[192] = "one of ";
    for (int i = 0; i < N_ROPE_TYPES; i++) {
        if (strcmp(rope_types[i], name) == 0) {
            return (enum dpe_rope_type)i;
        }
        dpe_append(what, sizeof what, "%s%s", i > 0 ? ", " : "", rope_types[i]);
    }
    dpe_append(what, sizeof what, " (write the one whose formula a vendor's own name stands for)");
    dpe_json_expected(rope, dpe_json_member(rope, "rope_type") != NULL ? "rope_type" : "type",
                      what);
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
    double *numbers = NULL;
    rope->status = DPE_NEW(&numbers, (size_t)n, rope->err, "%s: out of memory", rope->file);
    for (size_t i = 0; numbers != NULL && i < (size_t)n; i++) {
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

/* What the rotation's type has. */
static void read_numbers(struct dpe_json_reader *rope, int64_t n_pairs, struct dpe_rope_config *out)
{
    for (const struct number *at = members; at < members + N_MEMBERS; at++) {
        if ((at->types >> out->type & 1U) != 0) {
            *number_of(out, at) = dpe_json_number(rope, at->name, at->bound, at->usual);
        }
    }
    if (out->type == DPE_ROPE_YARN) {
        /* 0 means "not given" in the reference. */
        out->mscale = out->mscale == 0.0 ? (double)NAN : out->mscale;
        out->mscale_all_dim = out->mscale_all_dim == 0.0 ? (double)NAN : out->mscale_all_dim;
        out->truncate = dpe_json_bool(rope, "truncate", true);
        /* Written by gguf_config.c alone: transformers' yarn has no lists. */
        out->divided = dpe_json_member(rope, "gguf_short_factor") != NULL;
    }
    if (out->divided || out->type == DPE_ROPE_LONGROPE) {
        out->short_factor =
            read_list(rope, out->divided ? "gguf_short_factor" : "short_factor", n_pairs);
        out->long_factor =
            read_list(rope, out->divided ? "gguf_long_factor" : "long_factor", n_pairs);
    }
    if (out->type == DPE_ROPE_LLAMA3 && rope->status == DPE_OK &&
        !(out->high_freq_factor > out->low_freq_factor)) {
        dpe_json_expected(rope, "high_freq_factor", "more than low_freq_factor");
    }
}

/* One rotation for all layers, or the part for the full-attention layers where the block is
 * `typed`: such a family may give a rotation for each type of layer. */
static struct dpe_json_reader read_block(const struct dpe_json_reader *top, const char *key,
                                         json_t *block, bool typed)
{
    static const struct {
        const char *key, *plain, *typed;
    } names[] = {
        {"rope_scaling", "rope_scaling.", "rope_scaling.full_attention."},
        {"rope_parameters", "rope_parameters.", "rope_parameters.full_attention."},
    };
    size_t i = strcmp(key, "rope_scaling") == 0 ? 0 : 1;
    struct dpe_json_reader rope = *top;
    json_t *full = json_object_get(block, "full_attention");
    bool inner = typed && json_is_object(full);
    rope.from = inner ? full : block;
    rope.object = inner ? names[i].typed : names[i].plain;
    const char *member = NULL;
    json_t *value = NULL;
    json_object_foreach(rope.from, member, value)
    {
        bool other = typed && strcmp(member, "sliding_attention") == 0;
        if (json_is_object(value) && !other) {
            dpe_json_expected(&rope, member, "one rotation for all layers");
        }
    }
    return rope;
}

/* A rope block of the members that `first` has, and of those that `second` alone has; "type" is
 * the old name of "rope_type", and null is absent. A new reference; NULL: out of memory. */
static json_t *unite(json_t *first, json_t *second)
{
    json_t *both = json_copy(second);
    const char *key = NULL;
    json_t *value = NULL;
    if (json_is_string(json_object_get(first, "rope_type")) ||
        json_is_string(json_object_get(first, "type"))) {
        json_object_del(both, "type");
        json_object_del(both, "rope_type");
    }
    json_object_foreach(first, key, value)
    {
        if (!json_is_null(value)) {
            json_object_set(both, key, value);
        }
    }
    return both;
}

const struct dpe_rope_config dpe_rope_plain = {.theta = 10000.0,
                                               .factor = NAN,
                                               .original_max_position = NAN,
                                               .attention_factor = NAN,
                                               .short_mscale = NAN,
                                               .long_mscale = NAN,
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
    if (family->partial) { /* MiniMax has components in place of a share */
        const double dim = dpe_json_number(top, "rotary_dim", positive, 0.0);
        own = dim > 0.0 ? dim / (double)config->head_dim : own;
    }
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

/* The pairs that rotate have the frequencies of the first of all pairs of the head: b^(-2j/d), as
 * (b^(r/d))^(-2j/r) of r components. Where all of them turn within the trained length, a plan has
 * nothing to move. */
static void read_proportional(struct dpe_json_reader *rope, struct dpe_config *config)
{
    struct dpe_rope_config *out = &config->rope;
    const double r = (double)(2 * dpe_config_pairs(config));
    const char *type = dpe_json_string(rope, "rope_type", "default");
    if (rope->status != DPE_OK) {
        return;
    }
    const struct dpe_json_bound factor = {1.0, true, false, MOST_FACTOR};
    if (strcmp(type, "proportional") == 0) {
        out->theta = pow(out->theta, r / (double)config->head_dim);
        if (dpe_json_number(rope, "factor", factor, 1.0) != 1.0) {
            dpe_json_expected(rope, "factor", "1 with a proportional rotation");
        }
    } else if (out->type != DPE_ROPE_DEFAULT || r != (double)config->head_dim) {
        dpe_json_expected(rope, "rope_type",
                          "proportional, or default for whole heads, in this family");
    }
    config->fast =
        2.0 * M_PI * pow(out->theta, (r - 2.0) / r) <= (double)dpe_config_trained(config);
}

static void read_scaling(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                         struct dpe_config *config)
{
    struct dpe_rope_config *out = &config->rope;
    bool phi3 = strcmp(config->model_type, "phi3") == 0;
    out->type = read_type(rope, phi3, dpe_family_of(config)->mixed);
    if (out->type == DPE_ROPE_DYNAMIC && dpe_family_of(config)->alpha &&
        dpe_json_member(rope, "alpha") != NULL) {
        const struct dpe_json_bound bound = {1.0, true, true, MOST_THETA};
        const double d = (double)(2 * dpe_config_pairs(config));
        const double alpha = dpe_json_number(rope, "alpha", bound, 1.0);
        out->type = DPE_ROPE_DEFAULT;
        out->theta *= pow(alpha, d > 2.0 ? d / (d - 2.0) : 1.0);
    }
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
        bool ratio = out->type == DPE_ROPE_LONGROPE || out->type == DPE_ROPE_YARN;
        const struct dpe_json_bound factor = {1.0, true, !ratio && out->type != DPE_ROPE_NETWORK,
                                              MOST_FACTOR};
        out->factor = dpe_json_number(rope, "factor", factor, (double)NAN);
        if (ratio && isnan(out->factor) && isnan(out->original_max_position)) {
            dpe_json_expected(rope, "factor",
                              "a number, or original_max_position_embeddings to derive it from");
        }
    }
    read_numbers(rope, dpe_config_pairs(config), out);
    if (out->type == DPE_ROPE_NETWORK) {
        out->network = dpe_clex_read(top, rope, dpe_config_pairs(config));
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
static void read_local(struct dpe_json_reader *top, json_t *block, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_json_bound above_one = {1.0, false, false, MOST_THETA};
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
    if (read_type(&rope, false, false) != DPE_ROPE_DEFAULT) {
        dpe_json_expected(&rope, "rope_type", "default for the windowed layers");
    }
    top->status = rope.status;
}

/* Fills config->rope and what stands beside it from a block. */
static void read_rotation(struct dpe_json_reader *top, struct dpe_json_reader *rope,
                          struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    const struct dpe_json_bound above_one = {1.0, false, false, MOST_THETA};
    double base = family->defaults.theta > 0.0 ? family->defaults.theta : 10000.0;
    config->rope = dpe_rope_plain;
    config->rope.theta = dpe_json_number(top, "rope_theta", above_one, base);
    config->rope.theta = dpe_json_number(rope, "rope_theta", above_one, config->rope.theta);
    rope->status = rope->status == DPE_OK ? top->status : rope->status;
    read_rotary_dim(top, rope, config);
    if (rope->status == DPE_OK) {
        read_scaling(top, rope, config);
    }
    if (family->grows) {
        read_growth(rope, config);
    }
    if (family->mixed && rope->status == DPE_OK) {
        read_proportional(rope, config);
    }
    top->status = top->status == DPE_OK ? rope->status : top->status;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool same_list(const double *a, const double *b, int64_t n)
{
    bool equal = (a == NULL) == (b == NULL);
    for (int64_t i = 0; equal && a != NULL && i < n; i++) {
        equal = a[i] == b[i];
    }
    return equal;
}

/* The first member in which two rotations differ, NULL: they are the same. */
static const char *difference(struct dpe_config *a, struct dpe_config *b)
{
    struct dpe_rope_config *x = &a->rope;
    struct dpe_rope_config *y = &b->rope;
    if (x->type != y->type) {
        return "rope_type";
    }
    for (const struct number *at = members; at < members + N_MEMBERS; at++) {
        if (!same(*number_of(x, at), *number_of(y, at))) {
            return at->name;
        }
    }
    int64_t n = dpe_config_pairs(a);
    const struct dpe_clex *p = x->network;
    const struct dpe_clex *q = y->network;
    bool network = p == NULL || (p->most == q->most && p->step == q->step && p->width == q->width &&
                                 p->tanh == q->tanh && p->log_scale == q->log_scale);
    return x->truncate != y->truncate                        ? "truncate"
           : a->query_growth != b->query_growth              ? "llama_4_scaling_beta"
           : !same_list(x->short_factor, y->short_factor, n) ? "short_factor"
           : !same_list(x->long_factor, y->long_factor, n)   ? "long_factor"
           : !network                                        ? "the network's numbers"
                                                             : NULL;
}

/* A second reading of the rotation, `block` in place of the first; *config is a copy to release. */
static dpe_status read_again(const struct dpe_json_reader *top, const char *key, json_t *block,
                             struct dpe_config *config)
{
    struct dpe_json_reader from = *top;
    struct dpe_json_reader rope =
        read_block(&from, key, block, dpe_family_of(config)->local_rope != DPE_LOCAL_ROPE_SAME);
    read_rotation(&from, &rope, config);
    return from.status;
}

/* Two blocks in one file are common (a converter kept the old key). Whichever comes first, both
 * together have to give one rotation. */
static void compare_blocks(struct dpe_json_reader *top, json_t *turned, struct dpe_config *config)
{
    struct dpe_config other = *config;
    dpe_status status = read_again(top, "rope_parameters", turned, &other);
    const char *member = status == DPE_OK ? difference(config, &other) : NULL;
    if (member != NULL) {
        char what[160];
        snprintf(what, sizeof what,
                 "the same as rope_parameters when both are there (they differ in %s: delete the "
                 "block that is wrong)",
                 member);
        dpe_json_expected(top, "rope_scaling", what);
    }
    top->status = top->status == DPE_OK ? status : top->status;
    dpe_rope_config_release(&other.rope);
}

void dpe_config_parse_rope(struct dpe_json_reader *top, struct dpe_config *config)
{
    const struct dpe_family *family = dpe_family_of(config);
    bool local = family->local_rope != DPE_LOCAL_ROPE_SAME;
    if (top->status != DPE_OK) {
        config->rope = dpe_rope_plain;
        return;
    }
    json_t *old = dpe_json_object(top, "rope_scaling");
    json_t *new = dpe_json_object(top, "rope_parameters");
    old = json_object_size(old) > 0 ? old : NULL; /* the reference reads an empty one as none */
    DPE_SCOPED(json_decrefp)
    json_t *made = NULL; /* of the family where the file has no block; of both where it has two */
    DPE_SCOPED(json_decrefp) json_t *turned = NULL;
    if (old == NULL && new == NULL && family->defaults.rope != NULL) {
        made = json_loads(family->defaults.rope, 0, NULL);
    } else if (old != NULL && new != NULL) {
        json_t *full = json_object_get(new, "full_attention");
        json_t *inner = local && json_is_object(full) ? full : new;
        made = unite(old, inner);
        turned = unite(inner, old);
    }
    struct dpe_json_reader rope = read_block(top, old != NULL ? "rope_scaling" : "rope_parameters",
                                             made != NULL  ? made
                                             : old != NULL ? old
                                                           : new,
                                             local);
    read_rotation(top, &rope, config);
    if (turned != NULL && top->status == DPE_OK) {
        compare_blocks(top, turned, config);
    }
    if (local && top->status == DPE_OK) {
        json_t *own = made != NULL && old == NULL ? made : new;
        read_local(top, json_object_get(own, "sliding_attention") != NULL ? own : old, config);
    }
}

void dpe_rope_config_release(struct dpe_rope_config *rope)
{
    free(rope->short_factor);
    free(rope->long_factor);
    if (rope->network != NULL) {
        free(rope->network->values);
        free(rope->network);
    }
    rope->network = NULL;
    rope->short_factor = NULL;
    rope->long_factor = NULL;
}

int64_t dpe_config_pairs(const struct dpe_config *config)
{
    return (config->rotary_dim > 0 ? config->rotary_dim : config->head_dim) / 2;
}
