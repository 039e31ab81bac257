/* A detection and a profile of key pairs from their tables; the steps of an ablation, their plans.
 */
#include "engine/plan/methods/methods.h"
#include "eval/compare/compare.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------- reading */

/* The ranks, which a detection without a sweep has none of. */
static dpe_status take_ranks(struct dpe_h5 *file, struct dpe_ablation_source *source,
                             struct dpe_error *err)
{
    struct dpe_ranking_result *ranks = &source->ranks;
    const bool detection = dpe_h5_has(file, "/detect/plan");
    DPE_TRY(dpe_h5_answered(file, err));
    if (!detection) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a detection of dpe-detect, found a table without /detect/plan");
    }
    if (dpe_h5_has(file, "/detect/rank")) {
        DPE_TRY(dpe_datasets_get(&dpe_ranking_kind, ranks, "/detect", "rank", file, err));
    }
    if (ranks->rank != NULL && ranks->n[DPE_CELLS_GROUP] != source->values->n_groups) {
        return dpe_fail(err, DPE_BAD_DATA, "/detect/rank: expected %lld groups, found %lld",
                        (long long)source->values->n_groups, (long long)ranks->n[DPE_CELLS_GROUP]);
    }
    for (int64_t t = 0; t < ranks->n[DPE_CELLS_LENGTH]; t++) {
        if (ranks->length[t] < 1) {
            return dpe_fail(err, DPE_BAD_DATA, "/length holds %lld", (long long)ranks->length[t]);
        }
    }
    return DPE_OK;
}

static dpe_status read_ranks(const char *path, struct dpe_ablation_source *source,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    DPE_TRY(dpe_h5_open(path, &file, err));
    return take_ranks(file, source, err) == DPE_OK ? DPE_OK : dpe_fail_prefix(err, "%s", path);
}

static dpe_status read_ranking(const char *path, struct dpe_ablation_source *source,
                               struct dpe_error *err)
{
    const struct dpe_table_values *values = source->values;
    const struct dpe_profile_model model = {values->model_fingerprint, values->n_layers,
                                            values->n_heads, values->n_pairs};
    DPE_SCOPED(dpe_profile_free) struct dpe_profile profile = {0};
    DPE_TRY(dpe_profile_read(path, &model, false, &profile, err));
    source->ranking = profile.ranking;
    profile.ranking = NULL;
    return DPE_OK;
}

dpe_status dpe_ablation_read(const char *path, const char *norms,
                             struct dpe_ablation_source *source, struct dpe_error *err)
{
    DPE_TRY(dpe_table_load(path, &source->table, err));
    source->values = dpe_table_values(source->table);
    source->temperature = dpe_table_temperature(source->values);
    if (dpe_table_has_method(source->values) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: expected a table with a plan of DPE, found the plan of another method, which "
            "validation showed to be better; dpe-detect --select paper keeps DPE's",
            path);
    }
    DPE_TRY(read_ranks(path, source, err));
    return norms != NULL ? read_ranking(norms, source, err) : DPE_OK;
}

/* --------------------------------------------------------------------------------------- steps */

enum { EIGHTHS = 8 };

static const char *const names[] = {"rank", "top-k", "last-k", "window", "scaled-length"};

int dpe_ablation_find(const char *name)
{
    const char *const *found = DPE_NAMED(names, name);
    return found != NULL ? (int)(found - names) : -1;
}

/* A new last step with the window and pairs of the detection, and its scales, or `scale` > 0 for
 * every group. */
static dpe_status add_step(struct dpe_ablation *ablation, const char *axis, double value,
                           double scale, struct dpe_ablation_step **added, struct dpe_error *err)
{
    const struct dpe_table_values *values = ablation->source.values;
    DPE_TRY(DPE_ROOM(&ablation->steps, (size_t)ablation->n_steps, err, "out of memory for steps"));
    struct dpe_ablation_step *step = *added = &ablation->steps[ablation->n_steps++];
    *step =
        (struct dpe_ablation_step){.axis = axis,
                                   .value = value,
                                   .k = -1,
                                   .window = values->window,
                                   .mask = values->top_k < values->n_pairs ? values->mask : NULL};
    DPE_TRY(DPE_NEW(&step->scale, (size_t)values->n_groups, err, "out of memory for steps"));
    for (int64_t g = 0; g < values->n_groups; g++) {
        step->scale[g] = scale > 0.0 ? scale : values->scale_factor[g];
    }
    if (isnan(value)) {
        snprintf(step->label, sizeof step->label, "%s", axis);
    } else {
        snprintf(step->label, sizeof step->label, "%s %.10g", axis, value);
    }
    return DPE_OK;
}

/* The first or last k of each head's ranking. */
static dpe_status choose_pairs(const struct dpe_ablation *ablation, struct dpe_ablation_step *step,
                               int64_t k, bool last, struct dpe_error *err)
{
    const struct dpe_table_values *values = ablation->source.values;
    const int64_t heads = values->n_layers * values->n_heads;
    step->k = k;
    DPE_TRY(
        DPE_NEW(&step->chosen, (size_t)(heads * values->n_pairs), err, "out of memory for a mask"));
    step->mask = step->chosen;
    return dpe_plan_mask_ranked(ablation->source.ranking, heads, values->n_pairs, k, last,
                                step->chosen, err);
}

static dpe_status add_rank(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const struct dpe_ranking_result *ranks = &ablation->source.ranks;
    const int64_t n = ranks->n[DPE_CELLS_LENGTH];
    if (value != floor(value) || value < 1.0 || value > (double)n) {
        return dpe_fail(err, DPE_USAGE,
                        "rank %g: expected 1 … %lld, of the detection's sweep (--select paper or "
                        "both)",
                        value, (long long)n);
    }
    struct dpe_ablation_step *step = NULL;
    DPE_TRY(add_step(ablation, names[ablation->what], value, 0.0, &step, err));
    for (int64_t i = 0; i < ranks->n[DPE_CELLS_GROUP] * n; i++) {
        if (ranks->rank[i] == (int32_t)value) {
            step->scale[i / n] =
                dpe_length_scale(ablation->source.values->length, (double)ranks->length[i % n]);
        }
    }
    return DPE_OK;
}

static dpe_status add_pairs(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const int64_t pairs = ablation->source.values->n_pairs;
    if (value != floor(value) || value < 0.0 || value > (double)pairs) {
        return dpe_fail(err, DPE_USAGE, "%s %g: expected 0 … %lld, a head has %lld pairs",
                        names[ablation->what], value, (long long)pairs, (long long)pairs);
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
    return DPE_OK;
}

static dpe_status add_scaled(struct dpe_ablation *ablation, double value, struct dpe_error *err)
{
    const struct dpe_table_values *values = ablation->source.values;
    const bool ranked = ablation->source.ranking != NULL;
    if (!(value >= 1.0 && value <= (double)values->length)) {
        return dpe_fail(err, DPE_USAGE, "scaled-length %g: expected 1 … %lld tokens", value,
                        (long long)values->length);
    }
    double scale = (double)values->length / value;
    for (int i = ranked ? 1 : EIGHTHS; i <= EIGHTHS; i++) {
        int64_t k = values->n_pairs * i / EIGHTHS;
        if (values->n_pairs * (i - 1) / EIGHTHS == k) {
            continue;
        }
        struct dpe_ablation_step *step = NULL;
        DPE_TRY(add_step(ablation, names[ablation->what], value, scale, &step, err));
        step->mask = NULL;
        if (ranked) {
            dpe_append(step->label, sizeof step->label, " top-k %lld", (long long)k);
            DPE_TRY(choose_pairs(ablation, step, k, false, err));
        }
    }
    return DPE_OK;
}

/* Default value i; NaN after the last one. */
static double usual(const struct dpe_ablation *ablation, int i)
{
    const struct dpe_table_values *values = ablation->source.values;
    double trained = (double)values->trained_length;
    switch (ablation->what) {
    case DPE_ABLATE_RANK:
        return i < dpe_most(1, ablation->source.ranks.n[DPE_CELLS_LENGTH]) ? i + 1.0 : (double)NAN;
    case DPE_ABLATE_TOP_K:
    case DPE_ABLATE_LAST_K:
        return i <= EIGHTHS ? (double)(values->n_pairs * i / EIGHTHS) : (double)NAN;
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
    const struct dpe_table_values *table = ablation->source.values;
    struct dpe_ablation_step *step = NULL;
    ablation->what = what;
    if ((what == DPE_ABLATE_TOP_K || what == DPE_ABLATE_LAST_K) &&
        ablation->source.ranking == NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "%s needs the ranking of key pairs: give --norms with a table of dpe-norms",
                        names[what]);
    }
    double half = 2.0 * (double)table->length / (double)table->trained_length;
    DPE_TRY(add_step(ablation, "rope", (double)NAN, 1.0, &step, err));
    free(step->scale);
    step->scale = NULL;
    DPE_TRY(add_step(ablation, "base", (double)NAN, fmax(1.0, half), &step, err));
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
    const struct dpe_table_values *values = ablation->source.values;
    if (dpe_table_check_model(values, context->config, err) != DPE_OK) {
        return dpe_fail_prefix(err, "the detection");
    }
    if (step->scale == NULL) {
        return dpe_plan_make("rope", context, plan, err);
    }
    const struct dpe_dpe_params params = {.window = step->window,
                                          .n_groups = (int)values->n_groups,
                                          .edges = values->group_edge,
                                          .scale = step->scale,
                                          .mask = step->mask,
                                          .temperature = &ablation->source.temperature};
    return dpe_plan_make_dpe(&params, context, plan, err);
}

void dpe_ablation_free(struct dpe_ablation *ablation)
{
    for (int i = 0; i < ablation->n_steps; i++) {
        free(ablation->steps[i].scale);
        free(ablation->steps[i].chosen);
    }
    free(ablation->steps);
    dpe_table_close(ablation->source.table);
    dpe_datasets_free(&dpe_ranking_kind, &ablation->source.ranks);
    free(ablation->source.ranking);
    *ablation = (struct dpe_ablation){0};
}
