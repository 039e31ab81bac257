/* Methods that change positions by distance, chunk or key: bands. */
#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/methods/methods_internal.h"
#include "engine/plan/plan.h"

#include <math.h>
#include <string.h>

/* log-n is what the official ReRoPE code adds without a word. */
static void official_log_n(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        plan->temperature.log_n_length = (double)spec->context->trained_length;
    }
}

void dpe_build_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t quarter = dpe_at_least_one(spec->context->trained_length / 4);
    int64_t window = dpe_spec_tokens(spec, "window", quarter < 2048 ? quarter : 2048);
    official_log_n(spec, plan);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, INFINITY, (double)window);
    dpe_map_fill(&far->k, plan->n_pairs, INFINITY, 0.0);
}

void dpe_build_leaky_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sixteenth = dpe_at_least_one(spec->context->trained_length / 16);
    int64_t window = dpe_spec_tokens(spec, "window", sixteenth < 512 ? sixteenth : 512);
    double scale = dpe_spec_scale(spec);
    official_log_n(spec, plan);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, scale, (double)window - (double)window / scale);
    dpe_map_fill(&far->k, plan->n_pairs, scale, 0.0);
}

void dpe_build_dca(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t trained = spec->context->trained_length;
    int64_t chunk = dpe_spec_tokens(spec, "chunk", dpe_at_least_one(trained * 3 / 4));
    int64_t local = dpe_spec_whole(spec, "local", trained / 8, 0, chunk - 1);
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        double a = 0.05 * log(dpe_length_ratio(spec->context)) + 1.0;
        plan->temperature.logit_scale = a * a;
    }
    dpe_spec_native(spec, plan);
    int64_t block = chunk - local;
    plan->chunk = block;
    dpe_plan_add_band(plan, DPE_BAND_CHUNK, 0, 1);
    struct dpe_band *next = dpe_plan_add_band(plan, DPE_BAND_CHUNK, 1, 2);
    struct dpe_band *older = dpe_plan_add_band(plan, DPE_BAND_CHUNK, 2, INT64_MAX);
    dpe_map_fill(&next->q, plan->n_pairs, 1.0, (double)block);
    next->q.cap = (double)chunk;
    dpe_map_fill(&older->q, plan->n_pairs, INFINITY,
                 (double)(2 * block - 1 < chunk ? 2 * block - 1 : chunk));
    for (int b = 0; b < plan->n_bands; b++) {
        plan->bands[b].k.period = (double)block;
    }
    plan->bands[0].q.period = (double)block;
    next->q.period = (double)block;
}

void dpe_build_string(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t third = dpe_at_least_one((int64_t)floor(0.33 * (double)spec->context->length));
    int64_t shift = dpe_spec_tokens(spec, "shift", third);
    int64_t window = dpe_spec_tokens(spec, "window", 128);
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        double a = 0.1 * log(2.0) + 1.0;
        plan->temperature.logit_scale = a * a;
    }
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, shift);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, shift, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, 1.0, (double)(window - shift));
}

void dpe_build_streaming_llm(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sinks = dpe_spec_tokens(spec, "sinks", 4);
    int64_t window =
        dpe_spec_tokens(spec, "window", dpe_at_least_one(spec->context->trained_length - sinks));
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    /* A query's index inside the cache stops growing once the cache is full. */
    dpe_plan_add_band(plan, DPE_BAND_KEY, 0, sinks)->q.cap = (double)(sinks + window - 1);
}

void dpe_build_lm_infinite(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sinks = dpe_spec_tokens(spec, "sinks", 10);
    int64_t window = dpe_spec_tokens(spec, "window", spec->context->trained_length);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *sink = dpe_plan_add_band(plan, DPE_BAND_KEY, 0, sinks);
    dpe_map_fill(&sink->q, plan->n_pairs, INFINITY, (double)window);
    dpe_map_fill(&sink->k, plan->n_pairs, INFINITY, 0.0);
}
