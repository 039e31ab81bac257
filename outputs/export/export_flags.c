/* What a runtime's command line says of a table of frequencies: YaRN, position interpolation or
 * another base, which runtimes compute themselves, and where vLLM and SGLang take a list of
 * factors, the block of config.json. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/rope.h"
#include "outputs/export/rope_forms.h"

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
        return dpe_rope_longrope_block(values, config, factors);
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
    if (text == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for JSON");
    }
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
    const struct dpe_model_options options = {.config_only = true};
    const bool llama_cpp = runtime == DPE_FLAGS_LLAMA_CPP;
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *opened = NULL;
    DPE_SCOPED(dpe_rope_factors_free) struct dpe_rope_factors factors = {0};
    struct dpe_table_values full = {0};
    DPE_TRY(dpe_model_open(model, &options, &opened, err));
    const struct dpe_config *config = dpe_model_config(opened);
    const double base = config->rope.theta;
    DPE_TRY(dpe_rope_check_model(values, config, model, llama_cpp, err));
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
