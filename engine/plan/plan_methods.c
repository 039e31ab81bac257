/* The methods: each fills the one struct. Formulas and sources stand in the lines of the table
 * below. */
#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
enum { MAX_GROUPS = 256, MAX_FACTORS = 512 };

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

int64_t dpe_at_least_one(int64_t x)
{
    return x < 1 ? 1 : x;
}

int64_t dpe_default_window(const struct dpe_plan_context *context)
{
    int64_t eighth = dpe_at_least_one(context->trained_length / 8);
    return eighth < 1024 ? eighth : 1024;
}

/* ------------------------------------------------------------------------- pieces of a plan */

void dpe_map_fill(struct dpe_position_map *map, int64_t n_pairs, double scale, double offset)
{
    for (int64_t j = 0; j < n_pairs; j++) {
        map->scale[j] = scale;
        map->offset[j] = offset;
    }
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

static dpe_status keep_native(const struct dpe_plan_context *context, struct dpe_plan *plan,
                              struct dpe_error *err)
{
    double a = 1.0;
    dpe_status status = dpe_rope_native(context->config, context->length, plan->inv_freq, &a, err);
    dpe_plan_set_rope_factor(plan, a);
    return status;
}

void dpe_spec_native(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (spec->status == DPE_OK) {
        spec->status = keep_native(spec->context, plan, spec->err);
    }
}

static struct dpe_rope_config plain_rope(const struct dpe_spec *spec)
{
    return (struct dpe_rope_config){
        .type = DPE_ROPE_DEFAULT,
        .theta = spec->context->config->rope.theta,
        .factor = NAN,
        .original_max_position = (double)spec->context->trained_length,
        .attention_factor = NAN,
        .beta_fast = NAN,
        .beta_slow = NAN,
        .mscale = NAN,
        .mscale_all_dim = NAN,
        .truncate = true,
        .low_freq_factor = NAN,
        .high_freq_factor = NAN,
        .partial_rotary_factor = 1.0,
    };
}

/* One band, positions as they are, frequencies of `rope` in place of the model's own. */
static void frequencies(struct dpe_spec *spec, struct dpe_plan *plan,
                        const struct dpe_rope_config *rope)
{
    const struct dpe_plan_context *context = spec->context;
    double a = 1.0;
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
    if (spec->status == DPE_OK) {
        spec->status =
            dpe_rope_compute(rope, 2 * dpe_config_pairs(context->config), context->trained_length,
                             context->length, plan->inv_freq, &a, spec->err);
    }
    plan->logit_factor = 1.0;
    dpe_plan_set_rope_factor(plan, a);
}

static double scale_key(struct dpe_spec *spec)
{
    return dpe_spec_number(spec, "scale", dpe_length_ratio(spec->context), 1.0, DPE_MOST_SCALE);
}

static void check_order(struct dpe_spec *spec, const char *low_key, double low,
                        const char *high_key, double high)
{
    if (spec->status == DPE_OK && !(low < high)) {
        spec->status =
            dpe_fail(spec->err, DPE_USAGE, "method %s: expected %s < %s, found %g and %g",
                     spec->method, low_key, high_key, low, high);
    }
}

int64_t dpe_spec_tokens(struct dpe_spec *spec, const char *key, int64_t fallback)
{
    return dpe_spec_whole(spec, key, fallback, 1, DPE_MOST_TOKENS);
}

/* -------------------------------------------------------------------------- frequency methods */

static void build_rope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    if (dpe_spec_flag(spec, "native", true)) {
        dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, INT64_MAX);
        dpe_spec_native(spec, plan);
    } else {
        frequencies(spec, plan, &rope);
    }
}

static void build_pi(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_LINEAR;
    rope.factor = scale_key(spec);
    frequencies(spec, plan, &rope);
}

static void build_ntk(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    double d = 2.0 * (double)dpe_config_pairs(spec->context->config);
    rope.theta *= pow(scale_key(spec), d / (d - 2.0));
    frequencies(spec, plan, &rope);
}

static void build_ntk_dynamic(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_DYNAMIC;
    rope.factor = scale_key(spec);
    frequencies(spec, plan, &rope);
}

static void build_ntk_by_parts(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    double scale = scale_key(spec);
    double alpha = dpe_spec_number(spec, "alpha", 1.0, 0.0, DPE_MOST_SCALE);
    double beta = dpe_spec_number(spec, "beta", 32.0, 0.0, DPE_MOST_SCALE);
    check_order(spec, "alpha", alpha, "beta", beta);
    frequencies(spec, plan, &rope);
    for (int64_t j = 0; j < plan->n_pairs; j++) {
        double rotations = (double)spec->context->trained_length * plan->inv_freq[j] / (2.0 * PI);
        double keep = fmin(fmax((rotations - alpha) / (beta - alpha), 0.0), 1.0);
        plan->inv_freq[j] = plan->inv_freq[j] / scale * (1.0 - keep) + plan->inv_freq[j] * keep;
    }
}

static void build_yarn(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_YARN;
    rope.factor = scale_key(spec);
    rope.attention_factor =
        dpe_spec_number(spec, "a", 0.1 * log(rope.factor) + 1.0, 0x1p-10, 0x1p10);
    rope.beta_fast = dpe_spec_number(spec, "beta_fast", 32.0, 0x1p-10, DPE_MOST_SCALE);
    rope.beta_slow = dpe_spec_number(spec, "beta_slow", 1.0, 0x1p-10, DPE_MOST_SCALE);
    rope.truncate = dpe_spec_flag(spec, "truncate", true);
    frequencies(spec, plan, &rope);
}

static void build_llama3(struct dpe_spec *spec, struct dpe_plan *plan)
{
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_LLAMA3;
    rope.factor = scale_key(spec);
    rope.low_freq_factor = dpe_spec_number(spec, "low", 1.0, 0x1p-10, DPE_MOST_SCALE);
    rope.high_freq_factor = dpe_spec_number(spec, "high", 4.0, 0x1p-10, DPE_MOST_SCALE);
    check_order(spec, "low", rope.low_freq_factor, "high", rope.high_freq_factor);
    frequencies(spec, plan, &rope);
}

/* Divisors of the pairs, to values [n_pairs]: those of the key, one for all pairs or one each, else
 * the model's own; false when there are none. */
static bool longrope_factors(struct dpe_spec *spec, const char *key, const double *own,
                             double *values)
{
    int64_t n_pairs = dpe_config_pairs(spec->context->config);
    int n = dpe_spec_list(spec, key, (double)NAN, 0x1p-10, DPE_MOST_SCALE, values, MAX_FACTORS);
    if (n > 1 && n != n_pairs && spec->status == DPE_OK) {
        spec->status = dpe_fail(spec->err, DPE_USAGE,
                                "method longrope: %s: expected one number or %" PRId64
                                " (one for each pair), found %d",
                                key, n_pairs, n);
    }
    for (int64_t j = n; j < n_pairs; j++) {
        values[j] = n == 0 && own != NULL ? own[j] : values[0];
    }
    return n > 0 || own != NULL;
}

static void build_longrope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    const struct dpe_rope_config *own = &context->config->rope;
    double long_factor[MAX_FACTORS] = {1.0};
    double short_factor[MAX_FACTORS] = {1.0};
    struct dpe_rope_config rope = plain_rope(spec);
    rope.type = DPE_ROPE_LONGROPE;
    rope.long_factor = long_factor;
    rope.short_factor = short_factor;
    double ratio = dpe_length_ratio(context);
    double a = (double)NAN;
    if (own->type == DPE_ROPE_LONGROPE) {
        if (!isnan(own->original_max_position)) {
            rope.original_max_position = own->original_max_position;
        }
        ratio = isnan(own->factor)
                    ? (double)context->config->max_position / rope.original_max_position
                    : own->factor;
        a = own->attention_factor;
    }
    rope.factor = dpe_spec_number(spec, "scale", fmax(1.0, ratio), 1.0, DPE_MOST_SCALE);
    double usual = sqrt(1.0 + log(rope.factor) / log(rope.original_max_position));
    rope.attention_factor = dpe_spec_number(spec, "a", isnan(a) ? usual : a, 0x1p-10, 0x1p10);
    if (dpe_config_pairs(context->config) > MAX_FACTORS) {
        spec->status =
            dpe_fail(spec->err, DPE_USAGE, "method longrope: more than %d pairs", (int)MAX_FACTORS);
        return;
    }
    bool known = longrope_factors(spec, "long", own->long_factor, long_factor);
    (void)longrope_factors(spec, "short", own->short_factor, short_factor);
    if (!known && spec->status == DPE_OK) {
        spec->status = dpe_fail(spec->err, DPE_USAGE,
                                "method longrope: the model's config.json has no long_factor; give "
                                "long=x/x/..., a divisor for each of the %" PRId64 " pairs",
                                dpe_config_pairs(context->config));
    }
    frequencies(spec, plan, &rope);
}

/* ------------------------------------------------------------------------------- band methods */

/* log-n is what the official ReRoPE code adds without a word. */
static void official_log_n(struct dpe_spec *spec, struct dpe_plan *plan)
{
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        plan->log_n_length = (double)spec->context->trained_length;
    }
}

static void build_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
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

static void build_leaky_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sixteenth = dpe_at_least_one(spec->context->trained_length / 16);
    int64_t window = dpe_spec_tokens(spec, "window", sixteenth < 512 ? sixteenth : 512);
    double scale = scale_key(spec);
    official_log_n(spec, plan);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, scale, (double)window - (double)window / scale);
    dpe_map_fill(&far->k, plan->n_pairs, scale, 0.0);
}

void dpe_plan_add_dpe_bands(const struct dpe_dpe_params *params, struct dpe_plan *plan)
{
    int64_t window = params->window;
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    far->per_head = params->mask != NULL;
    far->q.floored = true;
    far->k.floored = true;
    for (int g = 0; g < params->n_groups; g++) {
        for (int32_t j = params->edges[g]; j < params->edges[g + 1]; j++) {
            double s = params->scale[g];
            far->q.scale[j] = s;
            far->k.scale[j] = s;
            far->q.offset[j] = (double)window - floor((double)window / s);
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
    if (params->frequencies && (params->mask != NULL || params->exact)) {
        return dpe_fail(err, DPE_USAGE,
                        "frequencies: a factor of a frequency holds for every head and distance; "
                        "leave out the key pairs and exact");
    }
    if (!params->frequencies && (params->window < 1 || params->window > DPE_MOST_TOKENS)) {
        return dpe_fail(err, DPE_USAGE,
                        "dpe: expected a window from 1 to %" PRId64 ", found %" PRId64, DPE_MOST_TOKENS,
                        params->window);
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
                            "dpe: group %d: expected a scale from 1 to %g, found %g", g, DPE_MOST_SCALE,
                            params->scale[g]);
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
            : snprintf(plan->name, room, "dpe:window=%" PRId64 "%s%s,scales=", params->window,
                       params->exact ? ",exact=1" : "", params->mask != NULL ? ",masked" : "");
    for (int g = 0; g < params->n_groups && used < (int)room; g++) {
        used += snprintf(plan->name + used, room - (size_t)used, "%s%.15g", g == 0 ? "" : "/",
                         params->scale[g]);
    }
    if (params->temperature != NULL && !dpe_temperature_is_none(params->temperature) &&
        used < (int)room) {
        char text[160];
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
    status = keep_native(context, &made, err);
    if (status != DPE_OK) {
        goto done;
    }
    if (params->frequencies) {
        divide_frequencies(params, &made);
    } else {
        dpe_plan_add_dpe_bands(params, &made);
    }
    if (params->mask != NULL) {
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
    dpe_status status = dpe_plan_group_edges(dpe_config_pairs(config), n_groups, edges, err);
    if (status == DPE_OK) {
        edges[n_groups] = (int32_t)(config->head_dim / 2);
    }
    return status;
}

static void build_self_extend(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const int32_t edges[2] = {0, (int32_t)plan->n_pairs};
    double scale = 1.0;
    struct dpe_dpe_params params = {.n_groups = 1, .edges = edges, .scale = &scale};
    params.window = dpe_spec_tokens(spec, "window", dpe_default_window(spec->context));
    scale = (double)dpe_spec_tokens(spec, "group", (int64_t)ceil(dpe_half_trained_ratio(spec->context)));
    params.exact = dpe_spec_flag(spec, "exact", false);
    dpe_spec_native(spec, plan);
    dpe_plan_add_dpe_bands(&params, plan);
}

static void build_dpe(struct dpe_spec *spec, struct dpe_plan *plan)
{
    const struct dpe_plan_context *context = spec->context;
    double scale[MAX_GROUPS] = {1.0};
    int32_t edges[MAX_GROUPS + 1] = {0};
    struct dpe_dpe_params params = {.edges = edges, .scale = scale};
    int64_t n_pairs = dpe_config_pairs(context->config);
    int64_t most = n_pairs < MAX_GROUPS ? n_pairs : MAX_GROUPS;
    params.window = dpe_spec_tokens(spec, "window", dpe_default_window(context));
    double lengths[MAX_GROUPS];
    int n_lengths =
        dpe_spec_list(spec, "lengths", (double)NAN, 1.0, (double)DPE_MOST_TOKENS, lengths, MAX_GROUPS);
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

static void build_dca(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t trained = spec->context->trained_length;
    int64_t chunk = dpe_spec_tokens(spec, "chunk", dpe_at_least_one(trained * 3 / 4));
    int64_t local = dpe_spec_whole(spec, "local", trained / 8, 0, chunk - 1);
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        double a = 0.05 * log(dpe_length_ratio(spec->context)) + 1.0;
        plan->logit_factor = a * a;
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

static void build_string(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t third = dpe_at_least_one((int64_t)floor(0.33 * (double)spec->context->length));
    int64_t shift = dpe_spec_tokens(spec, "shift", third);
    int64_t window = dpe_spec_tokens(spec, "window", 128);
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        double a = 0.1 * log(2.0) + 1.0;
        plan->logit_factor = a * a;
    }
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, shift);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, shift, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, 1.0, (double)(window - shift));
}

static void build_streaming_llm(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sinks = dpe_spec_tokens(spec, "sinks", 4);
    int64_t window =
        dpe_spec_tokens(spec, "window", dpe_at_least_one(spec->context->trained_length - sinks));
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    /* A query's index inside the cache stops growing once the cache is full. */
    dpe_plan_add_band(plan, DPE_BAND_KEY, 0, sinks)->q.cap = (double)(sinks + window - 1);
}

static void build_lm_infinite(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sinks = dpe_spec_tokens(spec, "sinks", 10);
    int64_t window = dpe_spec_tokens(spec, "window", spec->context->trained_length);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *sink = dpe_plan_add_band(plan, DPE_BAND_KEY, 0, sinks);
    dpe_map_fill(&sink->q, plan->n_pairs, INFINITY, (double)window);
    dpe_map_fill(&sink->k, plan->n_pairs, INFINITY, 0.0);
}

/* clang-format off */
const struct dpe_method dpe_methods[] = {
    {"rope\tnative=1\t"
     "the model's own rotation; native=0 leaves its rope scaling out (Su et al. 2021)",
     build_rope},
    {"pi\tscale=L/L0\t"
     "all frequencies divided by the scale (position interpolation, Chen et al. 2023)",
     build_pi},
    {"ntk\tscale=L/L0\t"
     "base times scale^(d/(d-2)) (NTK-aware, bloc97 2023)",
     build_ntk},
    {"ntk-dynamic\tscale=L/L0\t"
     "base enlarged for the evaluated length (Hugging Face \"dynamic\")",
     build_ntk_dynamic},
    {"ntk-by-parts\tscale=L/L0 alpha=1 beta=32\t"
     "interpolates pairs that rotate at most alpha times in L0, keeps those that rotate at least beta times (Peng et al. 2023)",
     build_ntk_by_parts},
    {"yarn\tscale=L/L0 a=0.1*ln(scale)+1 beta_fast=32 beta_slow=1 truncate=1\t"
     "ramp between kept and divided frequencies, logits times a^2 (Peng et al. 2023, released code)",
     build_yarn},
    {"llama3\tscale=L/L0 low=1 high=4\t"
     "the ramp over wavelengths of Llama 3.1",
     build_llama3},
    {"longrope\tlong=config short=config scale=L/L0 a=sqrt(1+ln(scale)/ln(L0))\t"
     "each frequency divided by its own factor, from config.json or from long and short; long beyond L0 (Ding et al. 2024)",
     build_longrope},
    {"rerope\twindow=min(2048;L0/4) official=1\t"
     "distances are cut at the window (ReRoPE, Su 2023); official adds log-n",
     build_rerope},
    {"leaky-rerope\twindow=min(512;L0/16) scale=L/L0 official=1\t"
     "distances beyond the window are divided by the scale, not rounded (Su 2023); official adds log-n",
     build_leaky_rerope},
    {"self-extend\twindow=min(1024;L0/8) group=2L/L0 exact=0\t"
     "positions beyond the window are grouped (Jin et al. 2024); adds floor(w/s), as released decode "
     "does, released prefill w/s",
     build_self_extend},
    {"dpe\twindow=min(1024;L0/8) scales=2L/L0 lengths=(instead-of-scales) groups=8 exact=0\t"
     "positions beyond the window are grouped, each range of pairs by its own scale, "
     "scale = max(1, floor(L/length)) (Lu et al. 2025); adds floor(w/s), released prefill w/s",
     build_dpe},
    {"dca\tchunk=3*L0/4 local=L0/8 official=1\t"
     "three bands by chunk (ChunkLlama, An et al. 2024); official scales the logits",
     build_dca},
    {"string\tshift=0.33*L window=128 official=1\t"
     "far positions shifted into trained ones (STRING, An et al. 2024); official scales the logits; "
     "released prefill counts distance S in both bands, this one once",
     build_string},
    {"streaming-llm\tsinks=4 window=L0-sinks\t"
     "first tokens and a sliding window, positions inside the cache (Xiao et al. 2023); the window "
     "counts the query: released recent_size=W is window=W+1",
     build_streaming_llm},
    {"lm-infinite\tsinks=10 window=L0\t"
     "first tokens at the window's distance and a sliding window (Han et al. 2023)",
     build_lm_infinite},
    {"lampe\twindow=min(512;L0/16) tail=25*window/64 map=sigmoid(L/L0) official=1\t"
     "three bands of distance: near and last ones as they are, those between divided so that L becomes map (LaMPE, "
     "Zhang et al. 2026); map follows the curve fitted for Llama 3, in units of L0; official scales the logits "
     "by 1.1434; released code takes the prompt's length for L, counts the edges of the bands twice in a prefill, "
     "and places tokens in float32",
     dpe_build_lampe},
    {"cope\tclip=5*pairs/16 hard=0\t"
     "the lowest frequencies fade to 0 along half a cosine, or with hard=1 are 0 (CoPE, Li et al. 2026: the part "
     "without training; released code clips 20 of 64 pairs)",
     dpe_build_cope},
    {"hirope\twindow=min(1024;L0/8) segment=2L/L0 split=pairs/2\t"
     "pairs from split on count segments beyond the window, the others tokens (HiRoPE, Zhang et al. 2024); a "
     "segment is so many tokens, where the paper takes a function of the program",
     dpe_build_hirope},
    {"adagrope\tfirst=L0/4 reuse=(so-that-L-becomes-L0)\t"
     "farther positions are used more often: four bands of `first` positions, used 1, r, r^2 and r^3 times (after "
     "AdaGroPE, Xu et al. 2025); an approximation made from the paper's description: its count grows by smaller "
     "steps, and its code was not found",
     dpe_build_adagrope},
    {"dope\theads=all from=(first-pair-slower-than-L0)\t"
     "pairs of heads lose their position (after DoPE, Xiong et al. 2025); heads=i/i/..., i = layer * heads + head; "
     "the paper finds heads and pairs by matrix entropy, and its other forms zero them or add noise, which no plan does",
     dpe_build_dope},
    {"select\tk=8 block=min(64;L0/16) sinks=block local=L0/4 refresh=1 representative=mean attended=4 "
     "last=min(64;L0/16) slashes=0 unit=kv-head positions=true scored=bare over=rope\t"
     "the first tokens, a local window and the k blocks of keys with the best scores, with the positions of any "
     "method: over=METHOD:KEY=VALUE,... comes last; representative: mean, extremes, attended, keys, weighted or "
     "probability (attended, last and slashes belong to one of them); unit: head, "
     "kv-head or layer; positions: true, packed or constant; scored: bare, true or constant; the query at the first "
     "of `refresh` positions chooses for all of them",
     dpe_build_select},
    {"longheads\tblock=min(256;L0/16) k=L0/block-3 refresh=1 mean=0\t"
     "each head meets the first block, its k best and the last two, positions one after another (LongHeads, Lu et "
     "al. 2024); a block is scored by its keys weighed by an attention inside the block, as in released code, or with "
     "mean=1 by the mean of its keys; released prefill leaves out the query's own key, this one as its decode does not",
     dpe_build_longheads},
    {"infllm\tblock=min(128;L0/32) sinks=block local=min(4096;L0/2) k=16 attended=4 refresh=1\t"
     "first tokens, a local window and k blocks that a layer chooses by their most attended keys, all before the "
     "window at one distance (InfLLM, Xiao et al. 2024); attended by the paper's formula, where released code sums "
     "probabilities; every query chooses, as in released decode, where its prefill takes the mean of 512",
     dpe_build_infllm},
    {"reattention\tblock=min(32;L0/32) sinks=min(32;L0/32) local=min(4096;L0/2) k=(so-that-all-is-L0) refresh=1\t"
     "first tokens, a local window and the k blocks that hold the keys with the largest products without positions, "
     "one after another (ReAttention, Liu et al. 2025); blocks lie on a grid and are a KV head's own for every query, "
     "where released code takes spans around keys and joins those of all heads and queries of a chunk",
     dpe_build_reattention},
    {"minference\tblock=min(64;L0/16) k=100 refresh=block\t"
     "the block-sparse pattern of MInference (Jiang et al. 2024): each head meets its own block and the k-1 best by "
     "mean keys with positions; the first query of a block chooses, where released code takes the mean of the block "
     "and may leave the own block out",
     dpe_build_minference},
    {"vertical-slash\tsinks=min(30;L0/8) local=min(100;L0/4) columns=min(970;L0/4) slashes=min(5996;L0/4) "
     "last=min(64;L0/16) refresh=16*last\t"
     "the vertical-and-slash pattern of MInference (Jiang et al. 2024): each head meets first and last keys and the "
     "columns and distances to which the last queries give most; the last queries before each group of `refresh`, where "
     "released code takes those of the whole prompt for all of it, counts first and last ones among the best, widens "
     "distances to blocks of 64 and decodes without a selection; keys after those queries are all met",
     dpe_build_vertical_slash},
    {"moba\tblock=min(4096;L0/16) k=12 refresh=1\t"
     "each head meets its own block and the k-1 best by mean keys with positions (MoBA, Lu et al. 2025, without its "
     "training)",
     dpe_build_moba},
};
/* clang-format on */
const size_t dpe_n_methods = sizeof dpe_methods / sizeof dpe_methods[0];
