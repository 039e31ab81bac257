/* The factors of a table of frequencies, and the configuration that transformers, vLLM and others
 * read them from. */
#include "outputs/export/export.h"
#include "outputs/export/rope_forms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/model/model.h"
#include "engine/text/json.h"

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
    return dpe_fail(
        err, DPE_USAGE,
        "--format %s has one factor for each pair, at every distance: of this DPE table "
        "the near window of %lld tokens, in which keys keep their true distance%s, would "
        "be lost; dpe-detect --move frequencies makes a table of this form",
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

/* NULL: out of memory. short_mscale and long_mscale are what vLLM reads in place of
 * attention_factor. */
json_t *dpe_rope_longrope_block(const struct dpe_table_values *values,
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

dpe_status dpe_rope_check_model(const struct dpe_table_values *values,
                                const struct dpe_config *config, const char *model, bool some,
                                struct dpe_error *err)
{
    if (config->n_layers != values->n_layers || config->n_heads != values->n_heads ||
        config->head_dim != values->head_dim) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: the table is for %lld layers with %lld heads of %lld, this model has "
                        "%lld with %lld of %lld",
                        model, (long long)values->n_layers, (long long)values->n_heads,
                        (long long)values->head_dim, (long long)config->n_layers,
                        (long long)config->n_heads, (long long)config->head_dim);
    }
    for (int64_t layer = 0; layer < config->n_layers && !some; layer++) {
        if (!dpe_config_moves(config, layer)) {
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
    DPE_OWNED char *text = NULL;
    json_auto_t *root = NULL;
    DPE_TRY(dpe_json_parse("config.json", config_json, strlen(config_json), &root, err));
    DPE_TRY(dpe_rope_check_model(values, config, model, false, err));
    DPE_TRY(dpe_rope_factors_make(values, config->rope.theta, &factors, err));
    json_auto_t *rope = dpe_rope_longrope_block(values, config, &factors);
    /* The top-level names are what transformers 4 reads beside rope_scaling. */
    if (rope == NULL || json_object_set(root, "rope_scaling", rope) != 0 ||
        json_object_set(root, "rope_parameters", rope) != 0 ||
        json_object_set_new(root, "rope_theta", json_real(config->rope.theta)) != 0 ||
        json_object_set_new(root, "original_max_position_embeddings",
                            json_integer(values->trained_length)) != 0 ||
        json_object_set_new(root, "max_position_embeddings", json_integer(values->length)) != 0 ||
        !put_short_text(root, short_text) || !put_evidence(root, values) ||
        json_object_set_new(root, DPE_TRAINED_KEY, json_integer(values->trained_length)) != 0 ||
        (text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17))) == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for JSON");
    }
    dpe_text_put(out, "%s\n", text);
    return dpe_text_done(out, err);
}
