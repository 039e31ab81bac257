/* The numbers of each rope type, as a runtime takes them from its block. */
#include "outputs/export/runtime_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void read_factor(struct dpe_runtime_reader *r, const char *type)
{
    r->rope.factor = dpe_runtime_number(r->block, "factor");
    bool null = json_is_null(json_object_get(r->block, "factor"));
    bool there = json_object_get(r->block, "factor") != NULL;
    bool llama3 = r->rope.type == DPE_ROPE_LLAMA3;
    if (strcmp(type, "proportional") == 0) {
        r->rope.factor = r->rules->proportional ? 1.0 : dpe_runtime_otherwise(r->rope.factor, 1.0);
    } else if (llama3 && r->rules->fills_in && !r->rules->block_by_model) {
        r->rope.factor = dpe_runtime_otherwise(r->rope.factor, 8.0);
    } else if (r->rules->unknown_plain && isnan(r->rope.factor)) {
        dpe_runtime_note(r, "reads no %s without a factor: rotates without a scaling", type);
        r->rope.type = DPE_ROPE_DEFAULT;
    } else if (!there && !(r->rules->ratio && r->rope.type == DPE_ROPE_YARN)) {
        dpe_runtime_refuse(r, "%s needs factor", type);
    } else if (null && (r->rules->null_refused || r->rope.type != DPE_ROPE_YARN)) {
        dpe_runtime_refuse(r, "it refuses a factor of null");
    }
}

/* The number of an optional member that 0 and null leave at its default. */
static double beta(const struct dpe_runtime_reader *r, const char *key, double usual)
{
    double value = dpe_runtime_number(r->block, key);
    return isnan(value) || value == 0.0 ? usual : value;
}

static double mscale_of(const struct dpe_runtime_reader *r, double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : r->coefficient * mscale * log(factor) + 1.0;
}

/* The pair of mscale and mscale_all_dim, as far as the runtime has it. */
static double of_mscales(struct dpe_runtime_reader *r, double factor)
{
    bool ministral = strcmp(r->from->model_type, "ministral3") == 0;
    bool llama_cpp = r->rules->reads_gguf && ministral; /* its converter asks for mscale_all_dim */
    bool each = r->each || r->rules->mscale_each;
    bool pair = r->mscale > 0.0 && r->mscale_all > 0.0;
    if (llama_cpp) {
        double all = dpe_runtime_otherwise(r->mscale_all, 0.0);
        return all > 0.0 ? mscale_of(r, factor, 1.0) / mscale_of(r, factor, all)
                         : mscale_of(r, factor, 1.0);
    }
    if (each) {
        return mscale_of(r, factor, dpe_runtime_otherwise(r->mscale, 1.0)) /
               mscale_of(r, factor, dpe_runtime_otherwise(r->mscale_all, 0.0));
    }
    if (pair && !r->rules->no_mscales) {
        return mscale_of(r, factor, r->mscale) / mscale_of(r, factor, r->mscale_all);
    }
    if (pair) {
        dpe_runtime_note(r, "leaves out mscale and mscale_all_dim");
    }
    return mscale_of(r, factor, 1.0);
}

static void read_yarn_attention(struct dpe_runtime_reader *r, double factor)
{
    double given = dpe_runtime_number(r->block, "attention_factor");
    double multiplied = dpe_runtime_number(r->block, "attn_factor");
    bool grows =
        r->rules->growth == DPE_GROWTH_YARN && dpe_runtime_has(r->block, "llama_4_scaling_beta");
    r->mscale = dpe_runtime_number(r->block, "mscale");
    r->mscale_all = dpe_runtime_number(r->block, "mscale_all_dim");
    if (!isnan(given) && !r->rules->no_attention_factor && !r->each) {
        r->rope.attention_factor = given;
        return;
    }
    if (grows) {
        r->rope.attention_factor = 1.0;
        dpe_runtime_note(r, "has no logit factor beside llama_4_scaling_beta");
        return;
    }
    r->rope.attention_factor = of_mscales(r, factor);
    if (!isnan(given) && fabs(given / r->rope.attention_factor - 1.0) > 1e-6) {
        dpe_runtime_note(r, "leaves out attention_factor %.9g%s", given,
                         r->rules->reads_gguf ? ": it computes one where ext_factor is not 0" : "");
    }
    if (r->rules->attn_factor && !isnan(multiplied)) {
        r->rope.attention_factor *= multiplied;
        dpe_runtime_note(r, "multiplies by attn_factor %.9g", multiplied);
    }
}

static void read_yarn(struct dpe_runtime_reader *r)
{
    read_factor(r, "yarn");
    double ratio = r->from->max_position / r->rope.original_max_position;
    bool original = dpe_runtime_has(r->block, "original_max_position_embeddings");
    double factor = dpe_runtime_otherwise(r->rope.factor, ratio);
    if (r->rules->ratio && original) {
        if (fabs(ratio / factor - 1.0) > 1e-9) {
            dpe_runtime_note(
                r, "takes max_position_embeddings / original length = %.9g, not factor %.9g", ratio,
                factor);
        }
        factor = ratio;
    }
    if (r->rope.type != DPE_ROPE_YARN) {
        return;
    }
    const json_t *truncate = json_object_get(r->block, "truncate");
    r->rope.truncate = !json_is_false(truncate) || r->rules->no_truncate;
    if (json_is_false(truncate) && r->rules->no_truncate) {
        dpe_runtime_note(r, "leaves out truncate: it rounds the ends of the ramp to whole pairs");
    }
    r->rope.factor = factor;
    r->rope.beta_fast = beta(r, "beta_fast", 32.0);
    r->rope.beta_slow = beta(r, "beta_slow", 1.0);
    if (strcmp(r->from->model_type, "ministral3") == 0 && r->rules->reads_gguf &&
        !dpe_runtime_has(r->block, "mscale_all_dim")) {
        dpe_runtime_refuse(r, "of a ministral3 its converter wants mscale_all_dim");
    }
    read_yarn_attention(r, factor);
}

/* A list of the block, one number for each pair that rotates; NULL: the runtime has none to read.
 */
static double *read_list(struct dpe_runtime_reader *r, const char *key)
{
    const json_t *list = json_object_get(r->block, key);
    size_t n = (size_t)r->dim / 2;
    if (!json_is_array(list) || json_array_size(list) != n) {
        dpe_runtime_refuse(r, "longrope needs %s, a list of %zu numbers", key, n);
        return NULL;
    }
    double *numbers = dpe_alloc(n, sizeof *numbers);
    for (size_t i = 0; i < n && numbers != NULL; i++) {
        numbers[i] = json_number_value(json_array_get(list, i));
    }
    return numbers;
}

/* Which of the two lists rotates the text. */
static void choose_list(struct dpe_runtime_reader *r)
{
    double original = r->rope.original_max_position;
    bool many = (double)r->from->length > original;
    if (r->rules->long_always) {
        many = true;
        dpe_runtime_note(r, "takes long_factor at every length");
    } else if (r->rules->long_by_model) {
        many = r->from->max_position > original;
        dpe_runtime_note(r, "takes %s at every length: max_position_embeddings decides",
                         many ? "long_factor" : "short_factor");
    } else {
        r->out->switch_length = dpe_runtime_whole(original);
        r->out->at_start = r->rules->long_at_start;
        if (r->rules->long_at_start) {
            dpe_runtime_note(
                r, "decides between the lists when it starts, by the longest text that it serves");
        }
    }
    const char *from = many ? "long_factor" : "short_factor";
    double *list = read_list(r, from);
    r->rope.short_factor = list;
    r->rope.long_factor = list;
    double mscale = dpe_runtime_number(r->block, many ? "long_mscale" : "short_mscale");
    if (r->rules->mscales && mscale > 0.0) {
        r->rope.attention_factor = mscale;
        dpe_runtime_note(r, "takes %s %.9g", many ? "long_mscale" : "short_mscale", mscale);
    } else if (mscale > 0.0 && fabs(mscale / r->rope.attention_factor - 1.0) > 1e-6) {
        dpe_runtime_note(r, "leaves out %s %.9g", many ? "long_mscale" : "short_mscale", mscale);
    }
}

static void read_longrope(struct dpe_runtime_reader *r)
{
    double original = r->rope.original_max_position;
    double ratio = r->from->max_position / original;
    double given = dpe_runtime_number(r->block, "attention_factor");
    double own = dpe_runtime_number(r->block, "factor");
    double factor = r->rules->of_lengths ? ratio : dpe_runtime_otherwise(own, ratio);
    bool mlx_phi3 = r->rules->block_by_model && r->phi3;
    if (r->rules->lists_of_phi3 && !r->phi3) {
        dpe_runtime_note(r, "reads the lists of a phi3 alone: rotates without a scaling");
        r->rope.type = DPE_ROPE_DEFAULT;
        return;
    }
    if (mlx_phi3 && !dpe_runtime_has(r->block, "type")) {
        dpe_runtime_refuse(r, "of a phi3 it wants \"type\" in rope_scaling");
    }
    double formula = factor > 1.0 ? sqrt(1.0 + log(factor) / log(original)) : 1.0;
    r->rope.attention_factor = isnan(given) || r->rules->of_lengths ? formula : given;
    if (!isnan(given) && r->rules->of_lengths && fabs(given / formula - 1.0) > 1e-6) {
        dpe_runtime_note(r, "leaves out attention_factor %.9g", given);
    } else if (r->rules->of_lengths && isnan(given) && !isnan(own) &&
               fabs(own / ratio - 1.0) > 1e-9) {
        dpe_runtime_note(r, "takes the ratio of the two lengths, %.9g, not factor %.9g", ratio,
                         own);
    }
    choose_list(r);
    /* transformers asks for both lists when it opens the file. */
    if (r->rules->class_defaults && r->out->refused[0] == '\0') {
        free(read_list(r, "short_factor"));
        free(read_list(r, "long_factor"));
    }
}

static void read_llama3(struct dpe_runtime_reader *r)
{
    static const struct {
        const char *key;
        double usual;
    } members[] = {{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
    double found[2];
    read_factor(r, "llama3");
    for (size_t i = 0; i < 2; i++) {
        found[i] = dpe_runtime_number(r->block, members[i].key);
        if (isnan(found[i]) && !r->rules->fills_in) {
            dpe_runtime_refuse(r, "llama3 needs %s", members[i].key);
        }
        found[i] = dpe_runtime_otherwise(found[i], members[i].usual);
    }
    r->rope.low_freq_factor = found[0];
    r->rope.high_freq_factor = found[1];
}

static void read_dynamic(struct dpe_runtime_reader *r)
{
    double d = (double)r->dim;
    double alpha = dpe_runtime_number(r->block, "alpha");
    if (r->rules->alpha && !isnan(alpha)) {
        r->rope.theta *= pow(alpha, d / (d - 2.0));
        r->rope.type = DPE_ROPE_DEFAULT;
        dpe_runtime_note(r, "takes alpha %.9g: a base of %.9g at every length", alpha,
                         r->rope.theta);
        return;
    }
    read_factor(r, "dynamic");
    if (r->rules->dynamic == DPE_DYNAMIC_FLAT) {
        r->rope.type = DPE_ROPE_DEFAULT;
        dpe_runtime_note(
            r, "rotates without a scaling at every length: its base has no max_trained_positions "
               "to grow "
               "from");
    } else if (r->rules->dynamic == DPE_DYNAMIC_FULL) {
        dpe_runtime_note(
            r, "rotates as for a text of factor times max_position_embeddings at every length");
    } else {
        r->out->switch_length = dpe_runtime_whole(r->from->max_position);
    }
}

void dpe_runtime_formula(struct dpe_runtime_reader *r)
{
    bool proportional = strcmp(r->out->type, "proportional") == 0;
    if (proportional) {
        read_factor(r, "proportional");
        /* Its exponents are shares of the whole head. */
        r->rope.theta = pow(r->rope.theta, (double)r->dim / (double)r->from->head_dim);
    } else if (r->rope.type == DPE_ROPE_LINEAR) {
        read_factor(r, "linear");
    } else if (r->rope.type == DPE_ROPE_YARN) {
        read_yarn(r);
    } else if (r->rope.type == DPE_ROPE_LONGROPE) {
        read_longrope(r);
    } else if (r->rope.type == DPE_ROPE_LLAMA3) {
        read_llama3(r);
    } else if (r->rope.type == DPE_ROPE_DYNAMIC) {
        read_dynamic(r);
    }
}
