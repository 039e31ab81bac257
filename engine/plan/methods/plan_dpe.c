/* Plans of DPE by its parameters. */
#include "engine/plan/methods/methods_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
    DPE_TRY(dpe_plan_context_check(context, err));
    DPE_TRY(check_dpe(params, context->config, err));
    DPE_SCOPED(dpe_plan_free) struct dpe_plan made = {0};
    DPE_TRY(dpe_plan_init_for(&made, context->config, err));
    made.angle = context->angle;
    DPE_TRY(dpe_plan_keep_native(context, &made, err));
    if (params->frequencies) {
        divide_frequencies(params, &made);
    } else {
        dpe_plan_add_dpe_bands(params, &made);
    }
    if (params->inv_freq != NULL) {
        memcpy(made.inv_freq, params->inv_freq, (size_t)made.n_pairs * sizeof *made.inv_freq);
    }
    if (params->mask != NULL && made.n_bands > 1) {
        DPE_TRY(dpe_plan_set_mask(&made, params->mask, err));
    }
    if (params->temperature != NULL) {
        DPE_TRY(dpe_plan_set_temperature(&made, params->temperature, err));
    }
    DPE_TRY(dpe_plan_check(&made, err));
    name_dpe(params, &made);
    if (context->select != NULL) {
        DPE_TRY(dpe_plan_select(&made, context->select, context, err));
    }
    *plan = made;
    made = (struct dpe_plan){0};
    return DPE_OK;
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
