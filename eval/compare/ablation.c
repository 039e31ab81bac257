/* The steps of an ablation, and their plans. */
#include "eval/compare/ablation.h"
#include "engine/plan/methods/methods.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A new last step with room for its scales; `scale` > 0 is every group's. NULL: no memory. */
static struct dpe_ablation_step *add_step(struct dpe_ablation *ablation, const char *axis,
                                          double value, double scale, struct dpe_error *err)
{
    double *scales = dpe_alloc((size_t)ablation->source.n_groups, sizeof *scales);
    if (scales == NULL ||
        !dpe_make_room(&ablation->steps, (size_t)ablation->n_steps, sizeof *ablation->steps)) {
        free(scales);
        dpe_fail(err, DPE_NO_MEMORY, "out of memory for steps");
        return NULL;
    }
    for (int g = 0; g < ablation->source.n_groups; g++) {
        scales[g] = scale > 0.0 ? scale : ablation->source.scale[g];
    }
    struct dpe_ablation_step *step = &ablation->steps[ablation->n_steps++];
    *step = (struct dpe_ablation_step){
        .axis = axis, .value = value, .k = -1, .window = ablation->source.window, .scale = scales};
    if (isnan(value)) {
        snprintf(step->label, sizeof step->label, "%s", axis);
    } else {
        snprintf(step->label, sizeof step->label, "%s %.10g", axis, value);
    }
    return step;
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
    struct dpe_ablation_step *step = add_step(ablation, names[DPE_ABLATE_RANK], value, 0.0, err);
    if (step == NULL) {
        return DPE_NO_MEMORY;
    }
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
    struct dpe_ablation_step *step = add_step(ablation, names[ablation->what], value, 0.0, err);
    return step == NULL ? DPE_NO_MEMORY
                        : choose_pairs(ablation, step, (int64_t)value,
                                       ablation->what == DPE_ABLATE_LAST_K, err);
}

static dpe_status add_window(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    if (value != floor(value) || value < 1.0 || value > 1e15) {
        return dpe_fail(err, DPE_USAGE, "window %g: expected a whole number of tokens from 1 on",
                        value);
    }
    struct dpe_ablation_step *step = add_step(ablation, names[DPE_ABLATE_WINDOW], value, 0.0, err);
    if (step == NULL) {
        return DPE_NO_MEMORY;
    }
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
        struct dpe_ablation_step *step =
            add_step(ablation, names[DPE_ABLATE_SCALED_LENGTH], value, scale, err);
        if (step == NULL) {
            return DPE_NO_MEMORY;
        }
        if (source->ranking != NULL) {
            dpe_append(step->label, sizeof step->label, " top-k %lld", (long long)k);
            dpe_status status = choose_pairs(ablation, step, k, false, err);
            if (status != DPE_OK) {
                return status;
            }
        }
    }
    return DPE_OK;
}

static dpe_status add_value(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    switch (ablation->what) {
    case DPE_ABLATE_RANK:
        return add_rank(ablation, value, err);
    case DPE_ABLATE_TOP_K:
    case DPE_ABLATE_LAST_K:
        return add_pairs(ablation, value, err);
    case DPE_ABLATE_WINDOW:
        return add_window(ablation, value, err);
    case DPE_ABLATE_SCALED_LENGTH:
        return add_scaled(ablation, value, err);
    }
    return dpe_fail(err, DPE_INTERNAL, "no ablation %d", (int)ablation->what);
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
    const struct dpe_ablation_source *source = &ablation->source;
    ablation->what = what;
    if ((what == DPE_ABLATE_TOP_K || what == DPE_ABLATE_LAST_K) && source->ranking == NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "%s needs the ranking of key pairs: give --norms with a table of dpe-norms",
                        names[what]);
    }
    double half = 2.0 * (double)source->length / (double)source->trained_length;
    struct dpe_ablation_step *rope = add_step(ablation, "rope", (double)NAN, 1.0, err);
    if (rope == NULL) {
        return DPE_NO_MEMORY;
    }
    free(rope->scale);
    rope->scale = NULL;
    struct dpe_ablation_step *base = add_step(ablation, "base", (double)NAN, fmax(1.0, half), err);
    if (base == NULL) {
        return DPE_NO_MEMORY;
    }
    DPE_TRY(keep_mask(ablation, base, err));
    for (int i = 0;; i++) {
        double value = n_values == 0 ? usual(ablation, i) : i < n_values ? values[i] : (double)NAN;
        if (isnan(value)) {
            break;
        }
        if (!known(ablation, value)) {
            DPE_TRY(add_value(ablation, value, err));
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
