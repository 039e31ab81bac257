/* Tables of frequencies for runtimes without an adapter: the factors of one, the configuration that
 * transformers, vLLM and others read them from, and the options of a runtime's command line: YaRN,
 * position interpolation or another base, which runtimes compute themselves, and where vLLM and
 * SGLang take a list of factors, the block of config.json. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/text/json.h"
#include "outputs/export/export.h"
#include "outputs/export/rope_forms.h"
#include "outputs/read/read.h"

dpe_status dpe_rope_check_form(const struct dpe_table_values *values, const char *form,
                               bool factors, struct dpe_error *err)
{
    if (!factors && values->frequencies == 0 && dpe_table_has_method(values) != 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "--format %s holds DPE, and this table holds the plan of another method (%s): "
            "write h5, json, hf or safetensors",
            form,
            values->n_bands > 0      ? "bands of its own"
            : values->unrounded != 0 ? "far positions are not rounded"
                                     : "frequencies of its own");
    }
    if (!factors && values->frequencies != 0) {
        return dpe_fail(err, DPE_USAGE,
                        "--format %s holds DPE, and this is a table of frequencies, which needs no "
                        "adapter: write longrope, gguf-rope, h5 or json",
                        form);
    }
    if (!factors || dpe_table_needs_adapter(values) == 0) {
        return DPE_OK;
    }
    if (values->n_bands > 0) {
        return dpe_fail(
            err, DPE_USAGE,
            "--format %s has one factor for each pair, at every distance: the %lld bands of this "
            "table would be lost; write h5, json, hf or safetensors",
            form, (long long)values->n_bands);
    }
    if (values->head_scale != NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "--format %s has one factor for all logits: the table's factors of heads "
                        "(head_scale) would be lost; write h5, json, hf or safetensors",
                        form);
    }
    if (dpe_table_has_method(values) != 0 && values->unrounded == 0) {
        return dpe_fail(err, DPE_USAGE,
                        "--format %s has one factor for all logits of every layer and position: "
                        "what this table has besides frequencies (log-n, another factor in deeper "
                        "layers, or a factor on logits of pairs that do not rotate) would be lost; "
                        "write h5, json, hf or safetensors",
                        form);
    }
    return dpe_fail(
        err, DPE_USAGE,
        "--format %s has one factor for each pair, at every distance: of this DPE table "
        "the near window of %lld tokens, in which keys keep their true distance%s, would "
        "be lost; the plan that dpe-detect names without an adapter has this form",
        form, (long long)values->window,
        values->top_k < values->n_pairs ? " and the key pairs of each head" : "");
}

dpe_status dpe_rope_factors_make(const struct dpe_table_values *values, double base,
                                 struct dpe_rope_factors *factors, struct dpe_error *err)
{
    const int64_t n = dpe_export_rotating(values);
    *factors = (struct dpe_rope_factors){
        .n = n,
        .attention_factor = values->attention_scaling * sqrt(values->logit_scale),
        .own_factor = values->attention_scaling,
    };
    const size_t many = (size_t)n;
    DPE_TRY(DPE_NEW(&factors->long_factor, many, err, "out of memory for %zu factors", many));
    DPE_TRY(DPE_NEW(&factors->short_factor, many, err, "out of memory for %zu factors", many));
    if (n < values->n_pairs && values->logit_scale != 1.0) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "the model rotates %lld of the %lld pairs of a head, and a runtime applies "
                        "its attention factor to these alone: the table's factor %g on all logits "
                        "would be lost%s",
                        (long long)n, (long long)values->n_pairs, values->logit_scale,
                        values->frequencies != 0 ? "; detect again with --temperature off" : "");
    }
    int64_t group = 0;
    for (int64_t j = 0; j < n; j++) {
        group += j == values->group_edge[group + 1];
        double plain = pow(base, -(double)j / (double)n);
        double own = plain / values->inv_freq[j];
        own = fabs(own - 1.0) < 1e-9 ? 1.0 : own;
        factors->short_factor[j] = own;
        factors->long_factor[j] = values->applied_inv_freq != NULL
                                      ? plain / values->applied_inv_freq[j]
                                      : own * values->scale_factor[group];
    }
    return DPE_OK;
}

void dpe_rope_factors_free(struct dpe_rope_factors *factors)
{
    free(factors->long_factor);
    free(factors->short_factor);
    *factors = (struct dpe_rope_factors){0};
}

static json_t *numbers(const double *values, int64_t n)
{
    json_t *list = json_array();
    for (int64_t j = 0; j < n; j++) {
        json_array_append_new(list, json_real(values[j]));
    }
    return list;
}

/* The block of config.json. NULL: out of memory. short_mscale and long_mscale are what vLLM reads
 * in place of attention_factor. */
static json_t *longrope_block(const struct dpe_table_values *values,
                              const struct dpe_config *config,
                              const struct dpe_rope_factors *factors)
{
    json_t *made = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:o, s:o}", "rope_type",
                             "longrope", "type", "longrope", "rope_theta", config->rope.theta,
                             "factor", (double)values->length / (double)values->trained_length,
                             "attention_factor", factors->attention_factor, "short_mscale",
                             factors->own_factor, "long_mscale", factors->attention_factor,
                             "original_max_position_embeddings", (json_int_t)values->trained_length,
                             "short_factor", numbers(factors->short_factor, factors->n),
                             "long_factor", numbers(factors->long_factor, factors->n));
    if (made != NULL && factors->n < values->n_pairs) {
        json_object_set_new(made, "partial_rotary_factor",
                            json_real((double)factors->n / (double)values->n_pairs));
    }
    return made;
}

/* DPE_BAD_DATA where the model is another than the table's, or, unless `some`, has layers that the
 * table leaves as they are, which one list of factors would change. */
static dpe_status check_model(const struct dpe_table_values *values,
                              const struct dpe_config *config, const char *model, bool some,
                              struct dpe_error *err)
{
    if (dpe_table_check_model(values, config, err) != DPE_OK) {
        return dpe_fail_prefix(err, "%s: the table", model);
    }
    for (int64_t layer = 0; layer < config->n_layers && !some; layer++) {
        if (dpe_config_attends(config, layer) && !dpe_config_moves(config, layer)) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: layer %lld has a window or a rotation of its own, which a table "
                            "leaves as it is; longrope's one list of factors would change it too",
                            model, (long long)layer);
        }
    }
    return DPE_OK;
}

/* What was measured, under a name of its own; runtimes pass over it. False: out of memory. */
static bool put_short_text(json_t *root, const struct dpe_short_text *text)
{
    return text->tokens == 0 ||
           json_object_set_new(root, "dpe_short_text",
                               json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)text->tokens,
                                         "nll", text->own, "nll_long_factor", text->applied,
                                         "nll_attention_factor", text->factor)) == 0;
}

static bool put_evidence(json_t *root, const struct dpe_table_values *values)
{
    char evidence[DPE_TABLE_EVIDENCE];
    return dpe_table_evidence(values, evidence)[0] == '\0' ||
           json_object_set_new(root, "dpe_evidence", json_string(evidence)) == 0;
}

dpe_status dpe_export_longrope(const struct dpe_table_values *values, const char *model,
                               const struct dpe_model *opened,
                               const struct dpe_short_text *short_text, struct dpe_text *out,
                               struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(opened);
    const char *config_json = dpe_model_config_json(opened);
    DPE_SCOPED(dpe_rope_factors_free) struct dpe_rope_factors factors = {0};
    json_auto_t *root = NULL;
    DPE_TRY(dpe_json_parse("config.json", config_json, strlen(config_json), &root, err));
    DPE_TRY(check_model(values, config, model, false, err));
    DPE_TRY(dpe_rope_factors_make(values, config->rope.theta, &factors, err));
    json_auto_t *rope = longrope_block(values, config, &factors);
    /* The top-level names are what transformers 4 reads beside rope_scaling. */
    const bool complete =
        rope != NULL && json_object_set(root, "rope_scaling", rope) == 0 &&
        json_object_set(root, "rope_parameters", rope) == 0 &&
        json_object_set_new(root, "rope_theta", json_real(config->rope.theta)) == 0 &&
        json_object_set_new(root, "original_max_position_embeddings",
                            json_integer(values->trained_length)) == 0 &&
        json_object_set_new(root, "max_position_embeddings", json_integer(values->length)) == 0 &&
        put_short_text(root, short_text) && put_evidence(root, values) &&
        json_object_set_new(root, DPE_TRAINED_KEY, json_integer(values->trained_length)) == 0;
    DPE_OWNED char *text =
        complete ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    DPE_TRY(DPE_MADE(text, err, "out of memory for JSON"));
    dpe_text_put(out, "%s\n", text);
    return dpe_text_done(out, err);
}

/* -------------------------------------------------------------------- options of a command line */

/* Frequencies as a runtime computes them. */
struct scaling {
    enum dpe_rope_type type; /* DEFAULT: another base; LONGROPE: a factor for each pair */
    double scale, base, fast;
    double factor; /* on cosines and sines */
};

/* Frequencies agree to what float32 can tell apart. */
static bool same(const struct dpe_table_values *values, const double *inv_freq, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        if (!(fabs(values->applied_inv_freq[j] / inv_freq[j] - 1.0) < 1e-7)) {
            return false;
        }
    }
    return true;
}

/* Whether a scaling is the table's; *found is it then. */
static bool try_scaling(const struct dpe_table_values *values, struct scaling scaling, int64_t n,
                        struct scaling *found)
{
    struct dpe_rope_config rope = dpe_rope_plain;
    DPE_OWNED double *inv_freq = dpe_alloc((size_t)n, sizeof *inv_freq);
    double a = 1.0;
    rope.type = scaling.type;
    rope.theta = scaling.base;
    rope.factor = scaling.scale;
    rope.beta_fast = scaling.fast;
    rope.beta_slow = 1.0;
    rope.truncate = true;
    rope.original_max_position = (double)values->trained_length;
    bool is = inv_freq != NULL && scaling.scale >= 1.0 && scaling.base > 1.0 &&
              dpe_rope_compute(&rope, 2 * n, values->trained_length, values->length, inv_freq, &a,
                               NULL) == DPE_OK &&
              same(values, inv_freq, n);
    if (is) {
        *found = scaling;
    }
    return is;
}

/* Which of them it is. The last pair has all of the scale, and the base is that
 * of the second pair. */
static struct scaling recognise(const struct dpe_table_values *values, double base, int64_t n)
{
    static const double turns[] = {32.0, 16.0, 8.0, 4.0, 64.0};
    const double *applied = values->applied_inv_freq;
    double plain = pow(base, -(double)(n - 1) / (double)n);
    struct scaling found = {.type = DPE_ROPE_LONGROPE};
    struct scaling wanted = {
        .type = DPE_ROPE_LINEAR, .scale = plain / applied[n - 1], .base = base};
    bool is = try_scaling(values, wanted, n, &found);
    for (size_t i = 0; i < sizeof turns / sizeof turns[0] && !is; i++) {
        wanted.type = DPE_ROPE_YARN;
        wanted.fast = turns[i];
        is = try_scaling(values, wanted, n, &found);
    }
    if (!is && n > 1) {
        wanted = (struct scaling){
            .type = DPE_ROPE_DEFAULT, .scale = 1.0, .base = pow(applied[1], -(double)n)};
        try_scaling(values, wanted, n, &found);
    }
    found.factor = values->attention_scaling * sqrt(values->logit_scale);
    return found;
}

static dpe_status cannot(const char *what, const char *instead, struct dpe_error *err)
{
    return dpe_fail(err, DPE_USAGE,
                    "llama.cpp's options say YaRN, one scale, or another base, each without a "
                    "factor of its own but YaRN's; this table has %s: write %s",
                    what, instead);
}

static dpe_status put_llama_cpp(const struct dpe_table_values *values, const struct scaling *s,
                                struct dpe_text *out, struct dpe_error *err)
{
    static const char gguf[] = "--gguf MODEL.gguf --format gguf-rope";
    if (s->type == DPE_ROPE_LONGROPE) {
        return cannot("factors of its own", gguf, err);
    }
    if (s->type != DPE_ROPE_YARN && fabs(s->factor - 1.0) > 1e-9) {
        return cannot("a factor on the logits", gguf, err);
    }
    dpe_text_put(out, "--ctx-size %lld --rope-scaling ", (long long)values->length);
    if (s->type == DPE_ROPE_YARN) {
        /* llama.cpp multiplies by 0.1 ln(scale) + 1 itself. */
        double more = s->factor / (0.1 * log(s->scale) + 1.0);
        dpe_text_put(out, "yarn --rope-scale %.9g --yarn-orig-ctx %lld", s->scale,
                     (long long)values->trained_length);
        if (s->fast != 32.0) {
            dpe_text_put(out, " --yarn-beta-fast %.9g", s->fast);
        }
        if (fabs(more - 1.0) > 1e-9) {
            dpe_text_put(out, " --yarn-attn-factor %.9g", more);
        }
    } else if (s->type == DPE_ROPE_LINEAR) {
        dpe_text_put(out, "linear --rope-scale %.9g", s->scale);
    } else {
        dpe_text_put(out, "none --rope-freq-base %.9g", s->base);
    }
    return dpe_text_done(out, err);
}

/* The rope block as a runtime reads it, NULL: out of memory. */
static json_t *block_of(const struct dpe_table_values *values, const struct dpe_config *config,
                        const struct scaling *s, const struct dpe_rope_factors *factors)
{
    double usual = s->type == DPE_ROPE_YARN ? 0.1 * log(s->scale) + 1.0 : 1.0;
    if (s->type == DPE_ROPE_LONGROPE || fabs(s->factor / usual - 1.0) > 1e-9) {
        return longrope_block(values, config, factors);
    }
    json_t *block = json_pack("{s:f}", "rope_theta",
                              s->type == DPE_ROPE_DEFAULT ? s->base : config->rope.theta);
    json_object_set_new(block, "rope_type",
                        json_string(s->type == DPE_ROPE_YARN     ? "yarn"
                                    : s->type == DPE_ROPE_LINEAR ? "linear"
                                                                 : "default"));
    if (s->type != DPE_ROPE_DEFAULT) {
        json_object_set_new(block, "factor", json_real(s->scale));
    }
    if (s->type == DPE_ROPE_YARN) {
        json_object_set_new(block, "original_max_position_embeddings",
                            json_integer(values->trained_length));
        if (s->fast != 32.0) {
            json_object_set_new(block, "beta_fast", json_real(s->fast));
        }
    }
    return block;
}

static dpe_status put_overrides(const struct dpe_table_values *values,
                                const struct dpe_config *config, const struct scaling *s,
                                const struct dpe_rope_factors *factors, bool sglang,
                                struct dpe_text *out, struct dpe_error *err)
{
    json_auto_t *block = block_of(values, config, s, factors);
    json_auto_t *root = block != NULL ? json_pack("{s:O}", "rope_parameters", block) : NULL;
    if (sglang) {
        json_object_set(root, "rope_scaling", block);
    } else {
        json_object_set_new(root, "max_position_embeddings", json_integer(values->length));
    }
    DPE_OWNED char *text =
        root != NULL ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    DPE_TRY(DPE_MADE(text, err, "out of memory for JSON"));
    dpe_text_put(out, "%s %lld %s '%s'", sglang ? "--context-length" : "--max-model-len",
                 (long long)values->length,
                 sglang ? "--json-model-override-args" : "--hf-overrides", text);
    return dpe_text_done(out, err);
}

/* The table's frequencies where it has none of its own. */
static dpe_status with_applied(const struct dpe_table_values *values,
                               const struct dpe_rope_factors *factors, double base,
                               struct dpe_table_values *full, struct dpe_error *err)
{
    *full = *values;
    DPE_TRY(DPE_NEW(&full->applied_inv_freq, (size_t)values->n_pairs, err,
                    "out of memory for frequencies"));
    for (int64_t j = 0; j < factors->n; j++) {
        full->applied_inv_freq[j] =
            pow(base, -(double)j / (double)factors->n) / factors->long_factor[j];
    }
    return DPE_OK;
}

/* llama.cpp applies the factors of a file beside its options. */
static dpe_status check_plain(const struct dpe_rope_factors *factors, struct dpe_error *err)
{
    for (int64_t j = 0; j < factors->n; j++) {
        if (factors->short_factor[j] != 1.0) {
            return dpe_fail(err, DPE_USAGE,
                            "the model has a rope scaling of its own, which llama.cpp applies "
                            "beside its options: write --gguf MODEL.gguf --format gguf-rope");
        }
    }
    return DPE_OK;
}

dpe_status dpe_export_flags(const struct dpe_table_values *values, const char *model,
                            enum dpe_flags_of runtime, struct dpe_text *out, struct dpe_error *err)
{
    const struct dpe_model_options options = {.config_only = true,
                                              .trained_length = values->trained_length};
    const bool llama_cpp = runtime == DPE_FLAGS_LLAMA_CPP;
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *opened = NULL;
    DPE_SCOPED(dpe_rope_factors_free) struct dpe_rope_factors factors = {0};
    struct dpe_table_values full = {0};
    DPE_TRY(dpe_model_open(model, &options, &opened, err));
    const struct dpe_config *config = dpe_model_config(opened);
    const double base = config->rope.theta;
    DPE_TRY(check_model(values, config, model, llama_cpp, err));
    DPE_TRY(dpe_rope_factors_make(values, base, &factors, err));
    DPE_TRY(llama_cpp ? check_plain(&factors, err) : DPE_OK);
    DPE_TRY(with_applied(values, &factors, base, &full, err));
    const struct scaling scaling = recognise(&full, base, factors.n);
    free(full.applied_inv_freq);
    DPE_TRY(llama_cpp ? put_llama_cpp(values, &scaling, out, err)
                      : put_overrides(values, config, &scaling, &factors,
                                      runtime == DPE_FLAGS_SGLANG, out, err));
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
}
