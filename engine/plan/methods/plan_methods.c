/* All methods in one list, and what their builders share. */
#include "engine/plan/methods/methods_internal.h"
#include "engine/plan/plan.h"

#include <inttypes.h>
#include <math.h>

dpe_status dpe_plan_context_check(const struct dpe_plan_context *context, struct dpe_error *err)
{
    const struct dpe_config *config = context->config;
    if (config->head_dim < 2 || config->head_dim % 2 != 0) {
        return dpe_fail(err, DPE_USAGE, "plan: expected an even head_dim, found %" PRId64,
                        config->head_dim);
    }
    if (context->trained_length < 2 || context->trained_length > DPE_MOST_TOKENS ||
        context->length < 1 || context->length > DPE_MOST_TOKENS) {
        return dpe_fail(err, DPE_USAGE,
                        "plan: expected a trained length from 2 and an evaluated length from 1, "
                        "both up to %" PRId64 ", found %" PRId64 " and %" PRId64,
                        DPE_MOST_TOKENS, context->trained_length, context->length);
    }
    return DPE_OK;
}

double dpe_length_ratio(const struct dpe_plan_context *context)
{
    return fmax(1.0, (double)context->length / (double)context->trained_length);
}

double dpe_half_trained_ratio(const struct dpe_plan_context *context)
{
    return fmax(1.0, 2.0 * (double)context->length / (double)context->trained_length);
}

int64_t dpe_default_window(const struct dpe_plan_context *context)
{
    return dpe_least(1024, dpe_most(1, context->trained_length / 8));
}

/* ------------------------------------------------------------------------- pieces of a plan */

void dpe_map_fill(struct dpe_position_map *map, int64_t n_pairs, double scale, double offset)
{
    for (int64_t j = 0; j < n_pairs; j++) {
        map->scale[j] = scale;
        map->offset[j] = offset;
    }
}

void dpe_band_fill(struct dpe_band *band, int64_t n_pairs, double scale, double offset)
{
    dpe_map_fill(&band->q, n_pairs, scale, offset);
    dpe_map_fill(&band->k, n_pairs, scale, 0.0);
}

struct dpe_band *dpe_plan_add_band(struct dpe_plan *plan, enum dpe_band_kind kind, int64_t lo,
                                   int64_t hi)
{
    struct dpe_band *band = &plan->bands[plan->n_bands++];
    band->kind = kind;
    band->lo = lo;
    band->hi = hi;
    return band;
}

dpe_status dpe_plan_keep_native(const struct dpe_plan_context *context, struct dpe_plan *plan,
                                struct dpe_error *err)
{
    double a = 1.0;
    if (dpe_config_stands(context->config)) {
        dpe_plan_stand_still(plan);
        return DPE_OK;
    }
    dpe_status status = dpe_rope_native(context->config, context->length, plan->inv_freq, &a, err);
    dpe_plan_set_rope_factor(plan, a);
    return status;
}

void dpe_spec_native(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (spec->status == DPE_OK) {
        spec->status = dpe_plan_keep_native(spec->context, plan, spec->err);
    }
}

int64_t dpe_spec_tokens(struct dpe_spec *spec, const char *key, int64_t fallback)
{
    return dpe_spec_whole(spec, key, fallback, 1, DPE_MOST_TOKENS);
}

/* In the order of the list. */
static const struct dpe_method *const groups[] = {dpe_frequency_methods, dpe_band_methods,
                                                  dpe_adaptive_methods, dpe_select_methods};

const struct dpe_method *dpe_method_at(size_t i)
{
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (const struct dpe_method *method = groups[g]; method->line != NULL; method++) {
            if (i-- == 0) {
                return method;
            }
        }
    }
    return NULL;
}

const char *dpe_plan_method(size_t i)
{
    const struct dpe_method *method = dpe_method_at(i);
    return method != NULL ? method->line : NULL;
}
