/* One runtime's reading of one configuration: where its rules depart from the first row's, a note
 * says so. */
#include "outputs/export/runtime_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/plan/plan.h"

__attribute__((format(printf, 2, 3))) void dpe_runtime_note(struct dpe_runtime_reader *r,
                                                            const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (r->out->n_notes < DPE_READING_NOTES) {
        vsnprintf(r->out->notes[r->out->n_notes++], DPE_READING_TEXT, format, values);
    }
    va_end(values);
}

__attribute__((format(printf, 2, 3))) void dpe_runtime_refuse(struct dpe_runtime_reader *r,
                                                              const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (r->out->refused[0] == '\0') {
        vsnprintf(r->out->refused, DPE_READING_TEXT, format, values);
    }
    va_end(values);
}

static const char *json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* An object with members, NULL: none. */
static const json_t *block_of(const json_t *object, const char *key)
{
    const json_t *block = json_object_get(object, key);
    return json_object_size(block) > 0 ? block : NULL;
}

/* --------------------------------------------------------------------------- block, base, type */

/* Model types whose file in mlx-lm (mlx_lm/models of 0.32.2) reads rope_parameters, and the base
 * where there is none. */
static const struct mlx_model {
    const char *model_type;
    bool parameters; /* reads rope_parameters where rope_scaling is not there */
    bool alone;      /* reads rope_parameters alone */
    double base;     /* 0: a model without rope_theta is refused */
} mlx_models[] = {
    {"llama", false, false, 10000.0},
    {"mistral", false, false, 10000.0},
    {"qwen2", false, false, 1e6},
    {"qwen3", true, false, 0.0},
    {"qwen3_moe", false, false, 0.0},
    {"phi3", false, false, 10000.0},
    {"olmo3", false, false, 0.0},
    {"granite", false, false, 0.0},
    {"glm4", false, false, 0.0},
    {"gemma3_text", false, false, 1e6},
    {"gpt_oss", false, false, 150000.0},
    {"ministral3", true, true, 0.0},
    {"deepseek_v3", false, false, 10000.0},
};

/* That of a model type; others are as Llama. */
static const struct mlx_model *mlx_model(const char *model_type)
{
    const struct mlx_model *found = DPE_NAMED(mlx_models, model_type);
    return found != NULL ? found : &mlx_models[0];
}

/* Of two blocks the one that the runtime takes, and a word about the other. */
static void choose_block(struct dpe_runtime_reader *r)
{
    const struct dpe_runtime *rules = r->rules;
    const struct mlx_model *mlx = rules->block_by_model ? mlx_model(r->from->model_type) : NULL;
    const json_t *old = block_of(r->from->config, "rope_scaling");
    const json_t *new = block_of(r->from->config, "rope_parameters");
    bool both = old != NULL && new != NULL && !json_equal(old, new);
    bool old_alone = rules->old_block_alone || (mlx != NULL && !mlx->parameters);
    bool takes_new = rules->new_block_first || (mlx != NULL && mlx->alone);
    r->block = takes_new ? (new != NULL || (mlx != NULL && mlx->alone) ? new : old)
                         : (old != NULL ? old
                            : old_alone ? NULL
                                        : new);
    if (new != NULL && r->block != new && (both || old == NULL)) {
        dpe_runtime_note(r, "reads rope_scaling and leaves out rope_parameters");
    } else if (both && r->block == new) {
        dpe_runtime_note(r, "reads rope_parameters and leaves out rope_scaling");
    }
    const struct dpe_family *family = dpe_family_find(r->from->model_type);
    if (old == NULL && new == NULL && rules->class_defaults &&family != NULL &&
        family->defaults.rope != NULL) {
        r->made = json_loads(family->defaults.rope, 0, NULL);
        r->block = r->made;
    }
    const json_t *full = block_of(r->block, "full_attention");
    r->block = full != NULL ? full : r->block;
}

static void read_base(struct dpe_runtime_reader *r)
{
    const struct dpe_family *family = dpe_family_find(r->from->model_type);
    double own = r->rules->class_defaults && family != NULL ? family->defaults.theta : 0.0;
    double outer = dpe_runtime_number(r->from->config, "rope_theta");
    double inner = dpe_runtime_number(r->block, "rope_theta");
    if (r->rules->block_by_model) {
        const struct mlx_model *mlx = mlx_model(r->from->model_type);
        inner = mlx->parameters ? inner : (double)NAN;
        own = mlx->base;
        outer = mlx->alone ? (double)NAN : outer;
    }
    bool outer_first =
        r->rules->outer_base_first || r->rules->old_block_alone || r->rules->block_by_model;
    if (r->rules->old_block_alone) {
        inner = (double)NAN;
    }
    if (r->rules->outer_base_first && block_of(r->from->config, "rope_parameters") != r->block) {
        inner = dpe_runtime_number(block_of(r->from->config, "rope_parameters"), "rope_theta");
    }
    double base =
        outer_first ? dpe_runtime_otherwise(outer, inner) : dpe_runtime_otherwise(inner, outer);
    if (!isnan(outer) && !isnan(inner) && outer != inner) {
        dpe_runtime_note(r, "takes rope_theta %.9g %s %.9g", base,
                         outer_first ? "beside the block, not inside:"
                                     : "inside the block, not beside it:",
                         outer_first ? inner : outer);
    }
    if (isnan(base)) {
        base = own > 0.0 || r->rules->block_by_model ? own : 10000.0;
        const json_t *there = block_of(r->from->config, "rope_parameters");
        if (base == 0.0) {
            dpe_runtime_refuse(r, "%s in mlx-lm needs rope_theta beside the block",
                               r->from->model_type);
        } else if (dpe_runtime_has(there, "rope_theta") ||
                   dpe_runtime_has(r->block, "rope_theta")) {
            dpe_runtime_note(r, "does not see the rope_theta inside the block: its base is %.9g",
                             base);
        }
    }
    r->rope.theta = base;
    r->out->base = base;
}

static const struct formula {
    const char *name;
    enum dpe_rope_type type;
} formulas[] = {
    {"default", DPE_ROPE_DEFAULT},     {"linear", DPE_ROPE_LINEAR},
    {"dynamic", DPE_ROPE_DYNAMIC},     {"yarn", DPE_ROPE_YARN},
    {"longrope", DPE_ROPE_LONGROPE},   {"llama3", DPE_ROPE_LLAMA3},
    {"su", DPE_ROPE_LONGROPE},         {"deepseek_yarn", DPE_ROPE_YARN},
    {"telechat3-yarn", DPE_ROPE_YARN}, {"proportional", DPE_ROPE_LINEAR},
};

/* The name of the type as the runtime finds it. */
static const char *find_name(struct dpe_runtime_reader *r)
{
    const char *new = json_text(r->block, "rope_type");
    const char *old = json_text(r->block, "type");
    const char *name =
        r->rules->old_type_first ? (old != NULL ? old : new) : (new != NULL ? new : old);
    bool allowed =
        old != NULL && new != NULL &&strcmp(old, "su") == 0 && strcmp(new, "longrope") == 0;
    if (new != NULL && old != NULL &&strcmp(new, old) != 0) {
        if (r->rules->types_agree && !allowed && strcmp(old, "mrope") != 0) {
            dpe_runtime_refuse(r, "it wants rope_type (%s) and type (%s) to be the same", new, old);
        }
        dpe_runtime_note(r, "takes %s %s, not %s %s", name == new ? "rope_type" : "type", name,
                         name == new ? "type" : "rope_type", name == new ? old : new);
    }
    return name != NULL ? name : "default";
}

static void read_type(struct dpe_runtime_reader *r)
{
    const char *name = find_name(r);
    char word[64];
    snprintf(word, sizeof word, " %.60s ", r->from->model_type);
    if (r->rules->no_models != NULL && strstr(r->rules->no_models, word) != NULL) {
        dpe_runtime_refuse(r, "it does not know model_type %.60s", r->from->model_type);
    }
    if (r->phi3 && r->rules->phi3_of_three && r->block != NULL && json_object_size(r->block) != 3) {
        dpe_runtime_refuse(r, "of a phi3 it wants three members in rope_scaling, and no more");
    }
    bool renamed =
        r->phi3 && r->rules->phi3_names && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0);
    if (renamed && strcmp(name, "su") == 0 && r->rules->class_defaults &&
        !r->rules->old_block_alone &&
        !dpe_runtime_has(r->block, "original_max_position_embeddings")) {
        dpe_runtime_refuse(
            r, "of a type su it wants original_max_position_embeddings inside the block");
    }
    name = renamed ? "longrope" : name;
    if (strcmp(name, "mrope") == 0 && block_of(r->from->config, "rope_scaling") != NULL) {
        name = "default"; /* of a text the three positions of a token are the same */
    }
    snprintf(word, sizeof word, " %.60s ", name);
    bool mlx_su = r->rules->block_by_model && r->phi3 && strcmp(name, "su") == 0;
    bool known = strstr(r->rules->types, word) != NULL || mlx_su;
    if (!known && !r->rules->unknown_plain) {
        dpe_runtime_refuse(r, "it does not know rope_type %.60s", name);
    } else if (!known) {
        dpe_runtime_note(r, "does not know rope_type %.60s: rotates without a scaling", name);
    }
    const struct formula *formula = known ? DPE_NAMED(formulas, name) : NULL;
    r->rope.type = formula != NULL ? formula->type : DPE_ROPE_DEFAULT;
    r->each = strcmp(name, "deepseek_yarn") == 0;
    r->coefficient = strcmp(name, "telechat3-yarn") == 0 && !r->rules->block_by_model ? 0.07 : 0.1;
    snprintf(r->out->type, sizeof r->out->type, "%.30s", known ? name : "default");
}

/* -------------------------------------------------------------------------------------- lengths */

static void read_original(struct dpe_runtime_reader *r)
{
    const char *key = "original_max_position_embeddings";
    double outer = dpe_runtime_number(r->from->config, key);
    double inner = dpe_runtime_number(r->block, key);
    double none = r->from->max_position;
    if (r->phi3 && (r->rules->class_defaults || r->rules->block_by_model)) {
        outer = dpe_runtime_otherwise(outer, 4096.0);
    }
    if (r->rules->outer_length_alone && r->rope.type == DPE_ROPE_LONGROPE) {
        inner = (double)NAN;
    }
    bool mlx_phi3 = r->rules->block_by_model && r->phi3;
    bool inner_first = r->rules->inner_length_first && !mlx_phi3;
    double length =
        inner_first ? dpe_runtime_otherwise(inner, outer) : dpe_runtime_otherwise(outer, inner);
    bool mlx = r->rules->block_by_model && !mlx_phi3;
    if (mlx && isnan(inner) && r->rope.type == DPE_ROPE_LONGROPE) {
        dpe_runtime_refuse(r, "it wants original_max_position_embeddings inside the block");
    }
    if (mlx) {
        length = dpe_runtime_otherwise(inner, r->rope.type == DPE_ROPE_LLAMA3 ? 8192.0 : 4096.0);
    } else if (r->rules->fills_in && r->rope.type == DPE_ROPE_LLAMA3) {
        length = dpe_runtime_otherwise(inner, 8192.0);
    }
    if (!isnan(outer) && !isnan(inner) && outer != inner && !mlx) {
        dpe_runtime_note(r, "takes the original length %.0f %s, not %.0f %s", length,
                         inner_first ? "inside the block" : "beside the block",
                         inner_first ? outer : inner, inner_first ? "beside it" : "inside it");
    }
    r->rope.original_max_position = dpe_runtime_otherwise(length, none);
}

/* --------------------------------------------------------------------------- what is beside it */

static void read_growth(struct dpe_runtime_reader *r)
{
    bool ministral = strcmp(r->from->model_type, "ministral3") == 0;
    const json_t *own = json_object_get(r->from->config, "llama_4_scaling");
    const char *key = "original_max_position_embeddings";
    double growth = dpe_runtime_number(r->block, "llama_4_scaling_beta");
    double length = dpe_runtime_number(r->block, key);
    enum dpe_runtime_growth rule = r->rules->growth;
    bool reads = rule == DPE_GROWTH_YARN ? r->rope.type == DPE_ROPE_YARN : ministral;
    if (rule == DPE_GROWTH_OWN) {
        if (growth > 0.0 && ministral) {
            dpe_runtime_note(
                r, "leaves out llama_4_scaling_beta: it reads llama_4_scaling, beside the block");
        }
        growth = dpe_runtime_number(own, "beta");
        length = dpe_runtime_number(own, key);
        reads = true;
    } else if (rule == DPE_GROWTH_OUTER) {
        length = dpe_runtime_otherwise(dpe_runtime_number(r->from->config, key), 16384.0);
    }
    if (reads && rule != DPE_GROWTH_NONE && growth > 0.0 && length > 0.0) {
        r->out->growth = growth;
        r->out->growth_length = length;
    }
}

/* As vLLM derives it, and the positions that its table of cosines has. */
static double longest_vllm(struct dpe_runtime_reader *r)
{
    static const char scaled[] = " su longrope llama3 yarn deepseek_yarn telechat3-yarn ";
    char word[40];
    snprintf(word, sizeof word, " %s ", r->out->type);
    double most = r->from->max_position;
    double factor = dpe_runtime_otherwise(dpe_runtime_number(r->block, "factor"), 1.0);
    bool gemma = strstr(r->from->model_type, "gemma3") != NULL;
    double derived = strstr(scaled, word) != NULL || gemma ? most : most * factor;
    bool yarn = strstr(r->out->type, "yarn") != NULL;
    double rows = yarn ? r->rope.original_max_position * r->rope.factor
                  : strcmp(r->out->type, "linear") == 0 ? most * factor
                                                        : most;
    if (rows < derived) {
        dpe_runtime_note(
            r,
            "serves up to %.0f tokens, and its table of cosines ends at %.0f: beyond it reads "
            "outside",
            derived, rows);
    }
    return fmin(rows, derived);
}

static double longest_sglang(const struct dpe_runtime_reader *r)
{
    static const char *const keys[] = {"max_sequence_length", "seq_length", "max_seq_len",
                                       "model_max_length"};
    double factor = dpe_runtime_otherwise(dpe_runtime_number(r->block, "factor"), 1.0);
    double most = (double)NAN;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && isnan(most); i++) {
        most = dpe_runtime_number(r->from->config, keys[i]);
    }
    most = dpe_runtime_otherwise(most, r->from->max_position);
    bool original = json_object_get(r->block, "original_max_position_embeddings") != NULL ||
                    r->rope.type == DPE_ROPE_YARN || r->rope.type == DPE_ROPE_LONGROPE;
    return original || r->rope.type == DPE_ROPE_LLAMA3 ? most : floor(most * factor);
}

static void read_longest(struct dpe_runtime_reader *r)
{
    enum dpe_runtime_longest rule = r->rules->longest;
    r->out->longest = rule == DPE_LONGEST_VLLM     ? longest_vllm(r)
                      : rule == DPE_LONGEST_SGLANG ? longest_sglang(r)
                                                   : (double)INFINITY;
    if ((double)r->from->length > r->out->longest) {
        dpe_runtime_note(r, "takes texts of up to %.0f tokens", r->out->longest);
    }
}

static void read_share(struct dpe_runtime_reader *r)
{
    const struct dpe_family *family = dpe_family_find(r->from->model_type);
    const double own = family != NULL ? family->defaults.partial_rotary : 0.0;
    const char *key = "partial_rotary_factor";
    double share = dpe_runtime_number(r->block, key);
    share = dpe_runtime_otherwise(share, dpe_runtime_number(r->from->config, key));
    share = dpe_runtime_otherwise(share, own > 0.0 && r->rules->class_defaults ? own : 1.0);
    double dim = floor((double)r->from->head_dim * share / 2.0 + 1e-9) * 2.0;
    bool good = share > 0.0 && dim >= 2.0 && dim <= (double)r->from->head_dim;
    if (!good) {
        dpe_runtime_refuse(r, "dpe does not compute a partial_rotary_factor of %g", share);
    }
    r->dim = good ? (int64_t)dim : r->from->head_dim;
}

/* The numbers of the rotation that was read. */
static void compute(struct dpe_runtime_reader *r)
{
    struct dpe_error err = {0};
    struct dpe_rope_config rope = r->rope;
    double given = rope.attention_factor;
    bool full = rope.type == DPE_ROPE_DYNAMIC && r->rules->dynamic == DPE_DYNAMIC_FULL;
    int64_t length =
        full ? dpe_runtime_whole(rope.factor * r->from->max_position) : r->from->length;
    if (r->out->refused[0] != '\0') {
        return;
    }
    if (dpe_rope_compute(&rope, r->dim, (int64_t)r->from->max_position, length, r->out->inv_freq,
                         &r->out->factor, &err) != DPE_OK) {
        dpe_runtime_refuse(r, "dpe does not compute it: %.180s", err.text);
    }
    r->out->factor = isnan(given) ? r->out->factor : given;
}

static void read_gguf(const struct dpe_runtime_source *from, struct dpe_reading *out)
{
    struct dpe_error err = {0};
    const struct dpe_rope_config *rope = &from->gguf->rope;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0] && out->type[0] == '\0'; i++) {
        if (formulas[i].type == rope->type) {
            snprintf(out->type, sizeof out->type, "%s", formulas[i].name);
        }
    }
    out->base = rope->theta;
    out->longest = (double)INFINITY;
    out->growth = from->gguf->query_growth;
    out->growth_length = from->gguf->query_length;
    out->switch_length = rope->type == DPE_ROPE_LONGROPE && !isnan(rope->original_max_position)
                             ? (int64_t)rope->original_max_position
                             : 0;
    out->at_start = out->switch_length > 0;
    if (dpe_rope_native(from->gguf, from->length, out->inv_freq, &out->factor, &err) != DPE_OK) {
        snprintf(out->refused, sizeof out->refused, "%.200s", err.text);
    }
}

void dpe_runtime_read(const struct dpe_runtime_source *source, struct dpe_reading *reading)
{
    struct dpe_runtime_reader r = {.from = source,
                                   .rules = reading->runtime,
                                   .out = reading,
                                   .rope = dpe_rope_plain,
                                   .phi3 = strcmp(source->model_type, "phi3") == 0};
    reading->factor = 1.0;
    if (source->gguf != NULL && r.rules->reads_gguf) {
        read_gguf(source, reading);
        return;
    }
    choose_block(&r);
    read_base(&r);
    read_type(&r);
    read_share(&r);
    read_original(&r);
    if (reading->refused[0] == '\0') {
        dpe_runtime_formula(&r);
        read_growth(&r);
        compute(&r);
        read_longest(&r);
    }
    free(r.rope.short_factor);
    json_decref(r.made);
}
