/* A detection and a profile of key pairs from their tables; the steps of an ablation, their plans.
 */
#include "engine/plan/methods/methods.h"
#include "eval/compare/compare.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- reading */

static dpe_status take_values(const struct dpe_table_values *values,
                              struct dpe_ablation_source *source, struct dpe_error *err)
{
    if (dpe_table_has_method(values) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "expected a table with a plan of DPE, found the plan of another method, which "
            "validation showed to be better; dpe-detect --against none keeps DPE's");
    }
    source->trained_length = values->trained_length;
    source->length = values->length;
    source->window = values->window;
    source->n_groups = (int)values->n_groups;
    source->n_layers = values->n_layers;
    source->n_heads = values->n_heads;
    source->n_pairs = values->n_pairs;
    source->temperature = dpe_table_temperature(values);
    snprintf(source->fingerprint, sizeof source->fingerprint, "%s", values->model_fingerprint);
    size_t groups = (size_t)values->n_groups;
    size_t marks = (size_t)values->n_layers * (size_t)values->n_heads * (size_t)values->n_pairs;
    DPE_TRY(DPE_NEW(&source->edges, groups + 1, err, "out of memory for a table"));
    DPE_TRY(DPE_NEW(&source->scale, groups, err, "out of memory for a table"));
    memcpy(source->edges, values->group_edge, (groups + 1) * sizeof *source->edges);
    memcpy(source->scale, values->scale_factor, groups * sizeof *source->scale);
    if (values->top_k < values->n_pairs) {
        DPE_TRY(DPE_NEW(&source->mask, marks, err, "out of memory for a table"));
        memcpy(source->mask, values->mask, marks);
    }
    return DPE_OK;
}

static dpe_status read_values(const char *path, struct dpe_ablation_source *source,
                              struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    DPE_TRY(dpe_table_load(path, &table, err));
    dpe_status status = take_values(dpe_table_values(table), source, err);
    dpe_table_close(table);
    if (status == DPE_BAD_DATA) {
        dpe_fail_prefix(err, "%s", path);
    }
    return status;
}

static dpe_status read_ranks(struct dpe_h5 *table, struct dpe_ablation_source *source,
                             struct dpe_error *err)
{
    void *lengths = NULL;
    void *ranks = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    bool detection = dpe_h5_has(table, "/detect/rank");
    DPE_TRY(dpe_h5_answered(table, err));
    if (!detection) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a detection of dpe-detect, found a table without /detect/rank");
    }
    DPE_TRY(dpe_h5_get(table, "/length", DPE_COL_I64, &lengths, &rank, dims, err));
    source->lengths = lengths;
    if (rank != 1) {
        return dpe_fail(err, DPE_BAD_DATA, "/length: expected one axis, found %d", rank);
    }
    source->n_lengths = (int)dims[0];
    DPE_TRY(dpe_h5_get(table, "/detect/rank", DPE_COL_I32, &ranks, &rank, dims, err));
    source->rank = ranks;
    if (rank != 2 || dims[0] != source->n_groups || dims[1] != source->n_lengths) {
        return dpe_fail(err, DPE_BAD_DATA, "/detect/rank: expected the shape groups by lengths");
    }
    for (int t = 0; t < source->n_lengths; t++) {
        if (source->lengths[t] < 1) {
            return dpe_fail(err, DPE_BAD_DATA, "/length holds %lld", (long long)source->lengths[t]);
        }
    }
    return DPE_OK;
}

static dpe_status read_ranking(const char *path, struct dpe_ablation_source *source,
                               struct dpe_error *err)
{
    const struct dpe_profile_model model = {source->fingerprint, source->n_layers, source->n_heads,
                                            source->n_pairs};
    DPE_SCOPED(dpe_profile_free) struct dpe_profile profile = {0};
    DPE_TRY(dpe_profile_read(path, &model, false, &profile, err));
    source->ranking = profile.ranking;
    profile.ranking = NULL;
    return DPE_OK;
}

dpe_status dpe_ablation_read(const char *path, const char *norms,
                             struct dpe_ablation_source *source, struct dpe_error *err)
{
    struct dpe_h5 *table = NULL;
    DPE_TRY(read_values(path, source, err));
    DPE_TRY(dpe_h5_open(path, &table, err));
    dpe_status status = read_ranks(table, source, err);
    bool own_profile = dpe_h5_has(table, "/norms/top_k_index");
    if (status == DPE_OK) {
        status = dpe_h5_answered(table, err);
    }
    dpe_h5_close(table);
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    if (norms == NULL && !own_profile) {
        return DPE_OK;
    }
    return read_ranking(norms != NULL ? norms : path, source, err);
}

/* --------------------------------------------------------------------------------------- steps */

enum { EIGHTHS = 8 };

static const char *const names[] = {"rank", "top-k", "last-k", "window", "scaled-length"};
enum { N_NAMES = sizeof names / sizeof names[0] };

int dpe_ablation_find(const char *name)
{
    for (int i = 0; i < N_NAMES; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* A new last step with room for its scales; `scale` > 0 is every group's. */
static dpe_status add_step(struct dpe_ablation *ablation, const char *axis, double value,
                           double scale, struct dpe_ablation_step **added, struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    DPE_TRY(DPE_ROOM(&ablation->steps, (size_t)ablation->n_steps, err, "out of memory for steps"));
    struct dpe_ablation_step *step = *added = &ablation->steps[ablation->n_steps++];
    *step =
        (struct dpe_ablation_step){.axis = axis, .value = value, .k = -1, .window = source->window};
    DPE_TRY(DPE_NEW(&step->scale, (size_t)source->n_groups, err, "out of memory for steps"));
    for (int g = 0; g < source->n_groups; g++) {
        step->scale[g] = scale > 0.0 ? scale : source->scale[g];
    }
    if (isnan(value)) {
        snprintf(step->label, sizeof step->label, "%s", axis);
    } else {
        snprintf(step->label, sizeof step->label, "%s %.10g", axis, value);
    }
    return DPE_OK;
}

static size_t mask_size(const struct dpe_ablation_source *source)
{
    return (size_t)source->n_layers * (size_t)source->n_heads * (size_t)source->n_pairs;
}

/* The detection's pairs. */
static dpe_status keep_mask(const struct dpe_ablation *ablation, struct dpe_ablation_step *step,
                            struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    if (source->mask == NULL) {
        return DPE_OK;
    }
    DPE_TRY(DPE_NEW(&step->mask, mask_size(source), err, "out of memory for a mask"));
    memcpy(step->mask, source->mask, mask_size(source));
    return DPE_OK;
}

/* The first or last k of each head's ranking. */
static dpe_status choose_pairs(const struct dpe_ablation *ablation, struct dpe_ablation_step *step,
                               int64_t k, bool last, struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    step->k = k;
    DPE_TRY(DPE_NEW(&step->mask, mask_size(source), err, "out of memory for a mask"));
    return dpe_plan_mask_ranked(source->ranking, source->n_layers * source->n_heads,
                                source->n_pairs, k, last, step->mask, err);
}

static dpe_status add_rank(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    int n = (int)value;
    if (value != floor(value) || n < 1 || n > source->n_lengths) {
        return dpe_fail(err, DPE_USAGE, "rank %g: expected 1 … %d, the detection has %d lengths",
                        value, source->n_lengths, source->n_lengths);
    }
    struct dpe_ablation_step *step = NULL;
    DPE_TRY(add_step(ablation, names[ablation->what], value, 0.0, &step, err));
    for (int g = 0; g < source->n_groups; g++) {
        for (int t = 0; t < source->n_lengths; t++) {
            if (source->rank[g * source->n_lengths + t] == n) {
                step->scale[g] =
                    fmax(1.0, floor((double)source->length / (double)source->lengths[t]));
            }
        }
    }
    return keep_mask(ablation, step, err);
}

static dpe_status add_pairs(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    if (value != floor(value) || value < 0.0 || value > (double)source->n_pairs) {
        return dpe_fail(err, DPE_USAGE, "%s %g: expected 0 … %lld, a head has %lld pairs",
                        names[ablation->what], value, (long long)source->n_pairs,
                        (long long)source->n_pairs);
    }
    struct dpe_ablation_step *step = NULL;
    DPE_TRY(add_step(ablation, names[ablation->what], value, 0.0, &step, err));
    return choose_pairs(ablation, step, (int64_t)value, ablation->what == DPE_ABLATE_LAST_K, err);
}

static dpe_status add_window(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    if (value != floor(value) || value < 1.0 || value > 1e15) {
        return dpe_fail(err, DPE_USAGE, "window %g: expected a whole number of tokens from 1 on",
                        value);
    }
    struct dpe_ablation_step *step = NULL;
    DPE_TRY(add_step(ablation, names[ablation->what], value, 0.0, &step, err));
    step->window = (int64_t)value;
    return keep_mask(ablation, step, err);
}

static dpe_status add_scaled(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    if (!(value >= 1.0 && value <= (double)source->length)) {
        return dpe_fail(err, DPE_USAGE, "scaled-length %g: expected 1 … %lld tokens", value,
                        (long long)source->length);
    }
    double scale = (double)source->length / value;
    for (int i = source->ranking == NULL ? EIGHTHS : 1; i <= EIGHTHS; i++) {
        int64_t k = source->n_pairs * i / EIGHTHS;
        if (source->n_pairs * (i - 1) / EIGHTHS == k) {
            continue;
        }
        struct dpe_ablation_step *step = NULL;
        DPE_TRY(add_step(ablation, names[ablation->what], value, scale, &step, err));
        if (source->ranking != NULL) {
            dpe_append(step->label, sizeof step->label, " top-k %lld", (long long)k);
            DPE_TRY(choose_pairs(ablation, step, k, false, err));
        }
    }
    return DPE_OK;
}

/* Default value i; NaN after the last one. */
static double usual(const struct dpe_ablation *ablation, int i)
{
    const struct dpe_ablation_source *source = &ablation->source;
    double trained = (double)source->trained_length;
    switch (ablation->what) {
    case DPE_ABLATE_RANK:
        return i < source->n_lengths ? i + 1.0 : (double)NAN;
    case DPE_ABLATE_TOP_K:
    case DPE_ABLATE_LAST_K:
        return i <= EIGHTHS ? (double)(source->n_pairs * i / EIGHTHS) : (double)NAN;
    case DPE_ABLATE_WINDOW:
        return i < 5 ? fmax(1.0, floor(ldexp(trained, i - 5))) : (double)NAN;
    case DPE_ABLATE_SCALED_LENGTH:
        return i < 3 ? fmax(1.0, floor(ldexp(trained, i - 2))) : (double)NAN;
    }
    return (double)NAN;
}

static bool known(const struct dpe_ablation *ablation, double value)
{
    for (int i = 0; i < ablation->n_steps; i++) {
        if (ablation->steps[i].value == value) {
            return true;
        }
    }
    return false;
}

dpe_status dpe_ablation_make(struct dpe_ablation *ablation, enum dpe_ablation_what what,
                             const double *values, int n_values, struct dpe_error *err)
{
    static dpe_status (*const add_value[])(struct dpe_ablation *, double, struct dpe_error *) = {
        [DPE_ABLATE_RANK] = add_rank,
        [DPE_ABLATE_TOP_K] = add_pairs,
        [DPE_ABLATE_LAST_K] = add_pairs,
        [DPE_ABLATE_WINDOW] = add_window,
        [DPE_ABLATE_SCALED_LENGTH] = add_scaled};
    const struct dpe_ablation_source *source = &ablation->source;
    struct dpe_ablation_step *step = NULL;
    ablation->what = what;
    if ((what == DPE_ABLATE_TOP_K || what == DPE_ABLATE_LAST_K) && source->ranking == NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "%s needs the ranking of key pairs: give --norms with a table of dpe-norms",
                        names[what]);
    }
    double half = 2.0 * (double)source->length / (double)source->trained_length;
    DPE_TRY(add_step(ablation, "rope", (double)NAN, 1.0, &step, err));
    free(step->scale);
    step->scale = NULL;
    DPE_TRY(add_step(ablation, "base", (double)NAN, fmax(1.0, half), &step, err));
    DPE_TRY(keep_mask(ablation, step, err));
    for (int i = 0;; i++) {
        double value = n_values == 0 ? usual(ablation, i) : i < n_values ? values[i] : (double)NAN;
        if (isnan(value)) {
            break;
        }
        if (!known(ablation, value)) {
            DPE_TRY(add_value[what](ablation, value, err));
        }
    }
    return DPE_OK;
}

dpe_status dpe_ablation_plan(const struct dpe_ablation *ablation,
                             const struct dpe_ablation_step *step,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    const struct dpe_ablation_source *source = &ablation->source;
    const struct dpe_config *config = context->config;
    if (config->n_layers != source->n_layers || config->n_heads != source->n_heads ||
        config->head_dim != 2 * source->n_pairs) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "the detection is of %lld layers of %lld heads of %lld pairs, the model "
                        "has %lld of %lld of %lld",
                        (long long)source->n_layers, (long long)source->n_heads,
                        (long long)source->n_pairs, (long long)config->n_layers,
                        (long long)config->n_heads, (long long)(config->head_dim / 2));
    }
    if (step->scale == NULL) {
        return dpe_plan_make("rope", context, plan, err);
    }
    const struct dpe_dpe_params params = {.window = step->window,
                                          .n_groups = source->n_groups,
                                          .edges = source->edges,
                                          .scale = step->scale,
                                          .mask = step->mask,
                                          .temperature = &source->temperature};
    return dpe_plan_make_dpe(&params, context, plan, err);
}

void dpe_ablation_free(struct dpe_ablation *ablation)
{
    struct dpe_ablation_source *source = &ablation->source;
    for (int i = 0; i < ablation->n_steps; i++) {
        free(ablation->steps[i].scale);
        free(ablation->steps[i].mask);
    }
    free(ablation->steps);
    free(source->edges);
    free(source->lengths);
    free(source->rank);
    free(source->scale);
    free(source->mask);
    free(source->ranking);
    *ablation = (struct dpe_ablation){0};
}
