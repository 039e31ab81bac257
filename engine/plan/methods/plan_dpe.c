/* DPE and Self-Extend, which is DPE with one group. */
#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/methods/methods_internal.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_GROUPS = 256 };

/* Whether positions are those of the tokens: what is left are frequencies of a method. */
static bool keeps_positions(const struct dpe_dpe_params *params)
{
    bool keeps = params->inv_freq != NULL;
    for (int g = 0; g < params->n_groups; g++) {
        keeps = keeps && params->scale[g] == 1.0;
    }
    return keeps;
}

void dpe_plan_add_dpe_bands(const struct dpe_dpe_params *params, struct dpe_plan *plan)
{
    int64_t window = params->window;
    if (keeps_positions(params)) {
        dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
        return;
    }
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    far->per_head = params->mask != NULL;
    far->q.floored = !params->unrounded;
    far->k.floored = !params->unrounded;
    for (int g = 0; g < params->n_groups; g++) {
        for (int32_t j = params->edges[g]; j < params->edges[g + 1]; j++) {
            double s = params->scale[g];
            double kept = (double)window / s;
            far->q.scale[j] = s;
            far->k.scale[j] = s;
            far->q.offset[j] = (double)window - (params->unrounded ? kept : floor(kept));
        }
    }
    plan->exact = params->exact;
}

/* One band, the frequencies of each group divided by its scale. */
static void divide_frequencies(const struct dpe_dpe_params *params, struct dpe_plan *plan)
{
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
    for (int g = 0; g < params->n_groups; g++) {
        for (int32_t j = params->edges[g]; j < params->edges[g + 1]; j++) {
            plan->inv_freq[j] /= params->scale[g];
        }
    }
}

static dpe_status check_dpe(const struct dpe_dpe_params *params, const struct dpe_config *config,
                            struct dpe_error *err)
{
    int64_t n_pairs = config->head_dim / 2;
    if (params->frequencies &&
        (params->mask != NULL || params->exact || params->unrounded || params->inv_freq != NULL)) {
        return dpe_fail(err, DPE_USAGE,
                        "frequencies: a factor of a frequency holds for every head and distance; "
                        "leave out the key pairs, exact and what other methods have");
    }
    if (params->exact && params->unrounded) {
        return dpe_fail(err, DPE_USAGE, "dpe: exact positions are rounded; leave out one of both");
    }
    if (!params->frequencies && (params->window < 1 || params->window > DPE_MOST_TOKENS)) {
        return dpe_fail(err, DPE_USAGE,
                        "dpe: expected a window from 1 to %" PRId64 ", found %" PRId64,
                        DPE_MOST_TOKENS, params->window);
    }
    if (params->n_groups < 1 || params->n_groups > n_pairs) {
        return dpe_fail(err, DPE_USAGE, "dpe: expected 1 to %" PRId64 " groups, found %d", n_pairs,
                        params->n_groups);
    }
    bool edges = params->edges[0] == 0 && params->edges[params->n_groups] == n_pairs;
    for (int g = 0; g < params->n_groups; g++) {
        edges = edges && params->edges[g] < params->edges[g + 1];
        if (!(params->scale[g] >= 1.0 && params->scale[g] <= DPE_MOST_SCALE)) {
            return dpe_fail(err, DPE_USAGE,
                            "dpe: group %d: expected a scale from 1 to %g, found %g", g,
                            DPE_MOST_SCALE, params->scale[g]);
        }
    }
    if (!edges) {
        return dpe_fail(err, DPE_USAGE, "dpe: group edges: expected increasing from 0 to %" PRId64,
                        n_pairs);
    }
    return DPE_OK;
}

static void name_dpe(const struct dpe_dpe_params *params, struct dpe_plan *plan)
{
    size_t room = sizeof plan->name;
    int used =
        params->frequencies
            ? snprintf(plan->name, room, "frequencies:scales=")
            : snprintf(plan->name, room, "dpe:window=%" PRId64 "%s%s%s%s,scales=", params->window,
                       params->exact ? ",exact=1" : "", params->mask != NULL ? ",masked" : "",
                       params->unrounded ? ",unrounded" : "",
                       params->inv_freq != NULL ? ",other frequencies" : "");
    for (int g = 0; g < params->n_groups && used < (int)room; g++) {
        used += snprintf(plan->name + used, room - (size_t)used, "%s%.15g", g == 0 ? "" : "/",
                         params->scale[g]);
    }
    if (params->temperature != NULL && !dpe_temperature_is_none(params->temperature) &&
        used < (int)room) {
        char text[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(params->temperature, text);
        snprintf(plan->name + used, room - (size_t)used, ",%s", text);
    }
}

dpe_status dpe_plan_make_dpe(const struct dpe_dpe_params *params,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err)
{
    dpe_status status = dpe_plan_context_check(context, err);
    if (status != DPE_OK) {
        return status;
    }
    const struct dpe_config *config = context->config;
    status = check_dpe(params, config, err);
    if (status != DPE_OK) {
        return status;
    }
    struct dpe_plan made;
    status = dpe_plan_init_for(&made, config, err);
    if (status != DPE_OK) {
        return status;
    }
    made.angle = context->angle;
    status = dpe_plan_keep_native(context, &made, err);
    if (status != DPE_OK) {
        goto done;
    }
    if (params->frequencies) {
        divide_frequencies(params, &made);
    } else {
        dpe_plan_add_dpe_bands(params, &made);
    }
    if (params->inv_freq != NULL) {
        memcpy(made.inv_freq, params->inv_freq, (size_t)made.n_pairs * sizeof *made.inv_freq);
    }
    if (params->mask != NULL && made.n_bands > 1) {
        status = dpe_plan_set_mask(&made, params->mask, err);
    }
    if (status == DPE_OK && params->temperature != NULL) {
        status = dpe_plan_set_temperature(&made, params->temperature, err);
    }
    if (status == DPE_OK) {
        status = dpe_plan_check(&made, err);
    }
    if (status != DPE_OK) {
        goto done;
    }
    name_dpe(params, &made);
    if (context->select != NULL) {
        status = dpe_plan_select(&made, context->select, context, err);
        if (status != DPE_OK) {
            goto done;
        }
    }
    *plan = made;
    return DPE_OK;
done:
    dpe_plan_free(&made);
    return status;
}

dpe_status dpe_plan_group_edges(int64_t n_pairs, int n_groups, int32_t *edges,
                                struct dpe_error *err)
{
    if (n_pairs < 1 || n_pairs > INT32_MAX || n_groups < 1 || n_groups > n_pairs) {
        return dpe_fail(err, DPE_USAGE,
                        "expected 1 to %" PRId64 " groups (the number of pairs), found %d", n_pairs,
                        n_groups);
    }
    for (int g = 0; g <= n_groups; g++) {
        edges[g] = (int32_t)(g * n_pairs / n_groups);
    }
    return DPE_OK;
}

dpe_status dpe_plan_model_edges(const struct dpe_config *config, int n_groups, int32_t *edges,
                                struct dpe_error *err)
{
    DPE_TRY(dpe_plan_group_edges(dpe_config_pairs(config), n_groups, edges, err));
    edges[n_groups] = (int32_t)(config->head_dim / 2);
    return DPE_OK;
}

void dpe_build_self_extend(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const int32_t edges[2] = {0, (int32_t)plan->n_pairs};
    double scale = 1.0;
    struct dpe_dpe_params params = {.n_groups = 1, .edges = edges, .scale = &scale};
    params.window = dpe_spec_tokens(spec, "window", dpe_default_window(spec->context));
    scale = (double)dpe_spec_tokens(spec, "group",
                                    (int64_t)ceil(dpe_half_trained_ratio(spec->context)));
    params.exact = dpe_spec_flag(spec, "exact", false);
    dpe_spec_native(spec, plan);
    dpe_plan_add_dpe_bands(&params, plan);
}

void dpe_build_dpe(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    double scale[MAX_GROUPS] = {1.0};
    int32_t edges[MAX_GROUPS + 1] = {0};
    struct dpe_dpe_params params = {.edges = edges, .scale = scale};
    int64_t n_pairs = dpe_config_pairs(context->config);
    int64_t most = n_pairs < MAX_GROUPS ? n_pairs : MAX_GROUPS;
    params.window = dpe_spec_tokens(spec, "window", dpe_default_window(context));
    double lengths[MAX_GROUPS];
    int n_lengths = dpe_spec_list(spec, "lengths", (double)NAN, 1.0, (double)DPE_MOST_TOKENS,
                                  lengths, MAX_GROUPS);
    double base = n_lengths > 0 ? (double)NAN : dpe_half_trained_ratio(context);
    int n = dpe_spec_list(spec, "scales", base, 1.0, DPE_MOST_SCALE, scale, MAX_GROUPS);
    if (n > 0 && n_lengths > 0 && spec->status == DPE_OK) {
        spec->status =
            dpe_fail(spec->err, DPE_USAGE, "method dpe: give scales or lengths, not both");
    }
    for (int g = 0; g < n_lengths; g++) {
        scale[g] = fmax(1.0, floor((double)context->length / lengths[g]));
    }
    n = n > n_lengths ? n : n_lengths;
    int64_t usual = most < 8 ? most : 8;
    int64_t groups = dpe_spec_whole(spec, "groups", n > 1 ? n : usual, 1, most);
    params.exact = dpe_spec_flag(spec, "exact", false);
    dpe_spec_native(spec, plan);
    if (n > 1 && n != groups && spec->status == DPE_OK) {
        spec->status = dpe_fail(spec->err, DPE_USAGE,
                                "method dpe: expected one value or one for each of the %" PRId64
                                " groups, found %d",
                                groups, n);
    }
    if (spec->status == DPE_OK) {
        params.n_groups = (int)groups;
        spec->status = dpe_plan_model_edges(context->config, params.n_groups, edges, spec->err);
    }
    if (spec->status != DPE_OK) {
        return;
    }
    for (int g = n > 1 ? n : 1; g < params.n_groups; g++) {
        scale[g] = scale[0];
    }
    dpe_plan_add_dpe_bands(&params, plan);
}
