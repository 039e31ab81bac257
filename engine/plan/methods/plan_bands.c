/* Methods that change positions by distance, chunk or key: bands; plans of DPE by its parameters.
 */
#include "engine/plan/methods/methods_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_GROUPS = 256 };

/* A near window of a share of L0, beyond which distances grow slower by a scale, or not at all. The
 * log-n is what the official code adds without a word. */
static void slow_down(struct dpe_spec *spec, struct dpe_plan *plan, int64_t share, int64_t most,
                      bool leaky)
{
    const int64_t trained = spec->context->trained_length;
    int64_t window = dpe_spec_tokens(spec, "window", dpe_least(most, dpe_most(1, trained / share)));
    double scale = leaky ? dpe_spec_scale(spec) : (double)INFINITY;
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        plan->temperature.log_n_length = (double)trained;
    }
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, window);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, window, INT64_MAX);
    dpe_band_fill(far, plan->n_pairs, scale, (double)window - (double)window / scale);
}

static void build_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    slow_down(spec, plan, 4, 2048, false);
}

static void build_leaky_rerope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    slow_down(spec, plan, 16, 512, true);
}

/* One group of pairs that are scaled beyond the window, or two of which the second is. */
static void build_groups(struct dpe_spec *spec, struct dpe_plan *plan, const char *key, bool split)
{
    const int64_t n_pairs = split ? dpe_config_pairs(spec->context->config) : plan->n_pairs;
    int32_t edges[3] = {0, 0, (int32_t)n_pairs};
    double scale[2] = {1.0, 1.0};
    struct dpe_dpe_params params = {
        .n_groups = split ? 2 : 1, .edges = edges + !split, .scale = scale + !split};
    params.window = dpe_spec_tokens(spec, "window", dpe_default_window(spec->context));
    scale[1] =
        (double)dpe_spec_tokens(spec, key, (int64_t)ceil(dpe_half_trained_ratio(spec->context)));
    if (split) {
        edges[1] = (int32_t)dpe_spec_whole(spec, "split", n_pairs / 2, 0, n_pairs);
    }
    dpe_spec_native(spec, plan);
    dpe_plan_add_dpe_bands(&params, plan);
}

static void build_self_extend(struct dpe_spec *spec, struct dpe_plan *plan)
{
    build_groups(spec, plan, "group", false);
}

static void build_hirope(struct dpe_spec *spec, struct dpe_plan *plan)
{
    build_groups(spec, plan, "segment", true);
}

bool dpe_plan_is_formula(const char *spec)
{
    return strncmp(spec, "dpe", 3) == 0 && (spec[3] == '\0' || spec[3] == ':') &&
           strstr(spec, "window=") == NULL && strstr(spec, "scales=") == NULL &&
           strstr(spec, "lengths=") == NULL && strstr(spec, "groups=") == NULL;
}

/* Up to 2·L0 all groups are at L0/2, near keys up to there. In longer texts the fastest groups stay
 * where they are and the others are at L0, with 3/16 of L0 near, because texts want L0/4 and
 * needles no more than this; beyond 16·L0 needles want L0/8. log-n to 0.7: at 1/2 recall is lost,
 * at one perplexity; beyond 16·L0 near keys want less of it than far ones (tests/bench/NOTES.md).
 */
struct dpe_formula dpe_formula_of(int64_t length, int64_t trained, int64_t near, int groups,
                                  bool still)
{
    struct dpe_formula found = {near * 3 / 2, trained, groups / 8, dpe_temperature_none};
    found.temperature.log_n_length = (double)trained;
    found.temperature.log_n_power = 0.7;
    if (length <= 2 * trained) {
        found.window = dpe_most(near, trained / 2);
        found.length = dpe_most(1, trained / 2);
        found.kept = 0;
    } else if (length > 16 * trained && !still) {
        found.window = near;
        found.temperature.log_n_power = 0.6;
        found.temperature.far_scale = 1.1;
    }
    return found;
}

void dpe_plan_formula(const struct dpe_plan_context *context, const char *spec, char *whole)
{
    const int64_t trained = context->trained_length;
    const int groups = (int)dpe_least(8, dpe_config_pairs(context->config));
    const bool still = dpe_config_still(context->config);
    struct dpe_formula formula =
        dpe_formula_of(context->length, trained, dpe_default_window(context), groups, still);
    char temperature[DPE_TEMPERATURE_TEXT];
    const char join = spec[3] == ':' ? ',' : ':';
    if (still) {
        snprintf(whole, DPE_FORMULA, "rope%s", spec + 3);
    } else {
        snprintf(whole, DPE_FORMULA, "%s%cwindow=%" PRId64 ",lengths=", spec, join, formula.window);
    }
    for (int g = 0; g < groups && !still; g++) {
        dpe_append(whole, DPE_FORMULA, "%s%" PRId64, g == 0 ? "" : "/",
                   g < formula.kept ? context->length : formula.length);
    }
    if (strstr(spec, "log-n") == NULL && strstr(spec, "infoscale") == NULL) {
        if (strstr(spec, "far-scale") != NULL) {
            formula.temperature.far_scale = 1.0;
        }
        dpe_temperature_text(&formula.temperature, temperature);
        dpe_append(whole, DPE_FORMULA, "%c%s", still ? join : ',', temperature);
    }
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
    int n_lengths = dpe_spec_list(spec, "lengths", (double)NAN, 1.0, (double)DPE_MOST_TOKENS,
                                  lengths, MAX_GROUPS);
    double base = n_lengths > 0 ? (double)NAN : dpe_half_trained_ratio(context);
    int n = dpe_spec_list(spec, "scales", base, 1.0, DPE_MOST_SCALE, scale, MAX_GROUPS);
    if (n > 0 && n_lengths > 0) {
        dpe_spec_fail(spec, "give scales or lengths, not both");
    }
    for (int g = 0; g < n_lengths; g++) {
        scale[g] = dpe_length_scale(context->length, lengths[g]);
    }
    n = n > n_lengths ? n : n_lengths;
    int64_t groups = dpe_spec_whole(spec, "groups", n > 1 ? n : dpe_least(most, 8), 1, most);
    dpe_spec_native(spec, plan);
    if (n > 1 && n != groups) {
        dpe_spec_fail(spec,
                      "expected one value or one for each of the %" PRId64 " groups, found %d",
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

void dpe_spec_official(struct dpe_spec *spec, struct dpe_plan *plan, double a)
{
    if (dpe_spec_flag(spec, "official", spec->context->official)) {
        plan->temperature.logit_scale = a * a;
    }
}

static void build_dca(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t trained = spec->context->trained_length;
    int64_t chunk = dpe_spec_tokens(spec, "chunk", dpe_most(1, trained * 3 / 4));
    int64_t local = dpe_spec_whole(spec, "local", trained / 8, 0, chunk - 1);
    dpe_spec_official(spec, plan, 0.05 * log(dpe_length_ratio(spec->context)) + 1.0);
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
    int64_t third = dpe_most(1, (int64_t)floor(0.33 * (double)spec->context->length));
    int64_t shift = dpe_spec_tokens(spec, "shift", third);
    int64_t window = dpe_spec_tokens(spec, "window", 128);
    dpe_spec_official(spec, plan, 0.1 * log(2.0) + 1.0);
    dpe_spec_native(spec, plan);
    dpe_plan_add_band(plan, DPE_BAND_DISTANCE, 0, shift);
    struct dpe_band *far = dpe_plan_add_band(plan, DPE_BAND_DISTANCE, shift, INT64_MAX);
    dpe_map_fill(&far->q, plan->n_pairs, 1.0, (double)(window - shift));
}

static void build_streaming_llm(struct dpe_spec *spec, struct dpe_plan *plan)
{
    int64_t sinks = dpe_spec_tokens(spec, "sinks", 4);
    int64_t window =
        dpe_spec_tokens(spec, "window", dpe_most(1, spec->context->trained_length - sinks));
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
    dpe_band_fill(sink, plan->n_pairs, INFINITY, (double)window);
}

/* clang-format off */
const struct dpe_method dpe_band_methods[] = {
    {"rerope\twindow=min(2048;L0/4) official=1\t"
     "distances are cut at the window (ReRoPE, Su 2023); official adds log-n",
     build_rerope},
    {"leaky-rerope\twindow=min(512;L0/16) scale=L/L0 official=1\t"
     "distances beyond the window are divided by the scale, not rounded (Su 2023); official adds "
     "log-n",
     build_leaky_rerope},
    {"self-extend\twindow=min(1024;L0/8) group=2L/L0\t"
     "positions beyond the window are grouped (Jin et al. 2024); adds floor(w/s), as released "
     "decode does, released prefill w/s",
     build_self_extend},
    {"dpe\twindow=min(1024;L0/8) scales=2L/L0 lengths=(instead-of-scales) groups=8\t"
     "positions beyond the window are grouped, each range of pairs by its own scale, "
     "scale = max(1, L/length), which Lu et al. 2025 round down; adds floor(w/s), released prefill "
     "w/s; without the first four keys a formula of L/L0, of which nothing was measured",
     build_dpe},
    {"hirope\twindow=min(1024;L0/8) segment=2L/L0 split=pairs/2\t"
     "pairs from split on count segments beyond the window, the others tokens (HiRoPE, Zhang et "
     "al. 2024); a segment is so many tokens, where the paper takes a function of the program",
     build_hirope},
    {"dca\tchunk=3*L0/4 local=L0/8 official=1\t"
     "three bands by chunk (ChunkLlama, An et al. 2024); official scales the logits",
     build_dca},
    {"string\tshift=0.33*L window=128 official=1\t"
     "far positions shifted into trained ones (STRING, An et al. 2024); official scales the "
     "logits; released prefill counts distance S in both bands, this one once",
     build_string},
    {"streaming-llm\tsinks=4 window=L0-sinks\t"
     "first tokens and a sliding window, positions inside the cache (Xiao et al. 2023); the window "
     "counts the query: released recent_size=W is window=W+1",
     build_streaming_llm},
    {"lm-infinite\tsinks=10 window=L0\t"
     "first tokens at the window's distance and a sliding window (Han et al. 2023)",
     build_lm_infinite},
    {NULL, NULL},
};
/* clang-format on */

/* Whether positions are those of the tokens: what is left are frequencies of a method. */
static bool keeps_positions(const struct dpe_dpe_params *params)
{
    bool keeps = params->inv_freq != NULL &&
                 (params->temperature == NULL || params->temperature->far_scale == 1.0);
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
        (params->mask != NULL || params->unrounded || params->inv_freq != NULL)) {
        return dpe_fail(err, DPE_USAGE,
                        "frequencies: a factor of a frequency holds for every head and distance; "
                        "leave out the key pairs and what other methods have");
    }
    if (!params->frequencies && (params->window < 1 || params->window > DPE_MOST_TOKENS)) {
        return dpe_fail(err, DPE_USAGE,
                        "dpe: expected a window from 1 to %" PRId64 ", found %" PRId64,
                        DPE_MOST_TOKENS, params->window);
    }
    bool edges = params->n_groups >= 1 && params->n_groups <= n_pairs && params->edges[0] == 0 &&
                 params->edges[params->n_groups] == n_pairs;
    for (int g = 0; g < params->n_groups && edges; g++) {
        edges = edges && params->edges[g] < params->edges[g + 1];
        if (!(params->scale[g] >= 1.0 && params->scale[g] <= DPE_MOST_SCALE)) {
            return dpe_fail(err, DPE_USAGE,
                            "dpe: group %d: expected a scale from 1 to %g, found %g", g,
                            DPE_MOST_SCALE, params->scale[g]);
        }
    }
    if (!edges) {
        return dpe_fail(err, DPE_USAGE,
                        "dpe: expected edges of groups that increase from 0 to %" PRId64, n_pairs);
    }
    return DPE_OK;
}

static void name_dpe(const struct dpe_dpe_params *params, struct dpe_plan *plan)
{
    char *const name = plan->name, near[48], text[DPE_TEMPERATURE_TEXT];
    snprintf(near, sizeof near, "dpe:window=%" PRId64, params->window);
    snprintf(name, sizeof plan->name,
             "%s%s%s%s%cscales=", params->frequencies ? "frequencies" : near,
             params->mask != NULL ? ",masked" : "", params->unrounded ? ",unrounded" : "",
             params->inv_freq != NULL ? ",other frequencies" : "", params->frequencies ? ':' : ',');
    for (int g = 0; g < params->n_groups; g++) {
        dpe_append(name, sizeof plan->name, "%s%.15g", g == 0 ? "" : "/", params->scale[g]);
    }
    if (params->temperature != NULL && !dpe_temperature_is_none(params->temperature)) {
        dpe_temperature_text(params->temperature, text);
        dpe_append(name, sizeof plan->name, ",%s", text);
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
