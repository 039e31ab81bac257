/* The candidates of a search, in the order in which they are worth a reading: what many searches
 * have ended with first (tests/bench/NOTES.md). */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const dpe_detect_kind_names[] = {"unchanged", "formula", "method", "searched"};

/* Methods whose temperature, window and ramp are varied. As released, but without temperatures that
 * official code carries silently. The first PLAIN change frequencies and a factor on the logits
 * alone, which runtimes read without an adapter. */
static const char *const families[] = {
    "yarn",
    "mrrope",
    "mrrope:form=uni",
    "ntk-by-parts",
    "leaky-rerope:official=0",
    "jet-long",
    "jetlong_freq:official=0",
    "self",
    "lampe:official=0",
    "self-extend",
    "rope", /* of models whose plans are temperatures */
};
enum { FAMILIES = sizeof families / sizeof families[0] - 1, PLAIN = 4, RAMP = 2, JETLONG_FREQ = 6 };
enum { MOST_CUTS = 4 }; /* where the groups are split */

struct list {
    const struct dpe_detect_search_options *options;
    struct dpe_detect_tried *tried;
    int n, heat;
};

/* ---------------------------------------------------------------------------------------- specs */

static void put_dpe(const struct dpe_detect_params *params, const struct dpe_detect_point *point,
                    char *spec)
{
    bool one = true;
    for (int g = 1; g < params->n_groups; g++) {
        one = one && point->length[g] == point->length[0];
    }
    snprintf(spec, DPE_DETECT_SPEC, "dpe:window=%lld,lengths=%lld", (long long)point->window,
             (long long)point->length[0]);
    for (int g = 1; g < params->n_groups && !one; g++) {
        dpe_append(spec, DPE_DETECT_SPEC, "/%lld", (long long)point->length[g]);
    }
}

static void put_family(const struct dpe_detect_point *point, char *spec)
{
    const char *family = families[point->family - 1];
    const char *join = strchr(family, ':') != NULL ? "," : ":";
    snprintf(spec, DPE_DETECT_SPEC, "%s", family);
    if (point->window > 0 && point->family <= FAMILIES) {
        dpe_append(spec, DPE_DETECT_SPEC, "%swindow=%lld", join, (long long)point->window);
        join = ",";
    }
    if (point->turns[0] > 0.0) {
        dpe_append(spec, DPE_DETECT_SPEC, "%sbeta_fast=%.4g,beta_slow=%.4g", join, point->turns[0],
                   point->turns[1]);
    }
}

static void put_spec(const struct dpe_detect_params *params, const struct dpe_detect_point *point,
                     char *spec)
{
    char temperature[DPE_TEMPERATURE_TEXT];
    if (point->family == 0) {
        put_dpe(params, point, spec);
    } else {
        put_family(point, spec);
    }
    if (!dpe_temperature_is_none(&point->temperature)) {
        dpe_temperature_text(&point->temperature, temperature);
        dpe_append(spec, DPE_DETECT_SPEC, "%s%s", strchr(spec, ':') != NULL ? "," : ":",
                   temperature);
    }
}

static void add(struct list *list, enum dpe_detect_kind kind, const struct dpe_detect_point *point)
{
    struct dpe_detect_tried *tried = &list->tried[list->n];
    struct dpe_error ignored = {0};
    if (list->n < DPE_DETECT_MOST_TRIED &&
        dpe_temperature_check(&point->temperature, &ignored) == DPE_OK) {
        *tried = (struct dpe_detect_tried){.point = *point, .kind = kind, .heat = list->heat};
        put_spec(list->options->params, point, tried->spec);
        list->n++;
    }
}

static void add_named(struct list *list, enum dpe_detect_kind kind, const char *spec)
{
    if (list->n < DPE_DETECT_MOST_TRIED) {
        struct dpe_detect_tried *tried = &list->tried[list->n++];
        *tried = (struct dpe_detect_tried){.point.family = -1, .kind = kind, .heat = list->heat};
        snprintf(tried->spec, sizeof tried->spec, "%s", spec);
    }
}

/* --------------------------------------------------------------------------------- plans of DPE */

static struct dpe_temperature factor(double logit_scale)
{
    struct dpe_temperature temperature = dpe_temperature_none;
    temperature.logit_scale = logit_scale;
    return temperature;
}

static struct dpe_temperature log_n(const struct dpe_detect_params *params, double power)
{
    struct dpe_temperature temperature = dpe_temperature_none;
    temperature.log_n_length = (double)params->trained_length;
    temperature.log_n_power = power;
    return temperature;
}

static double yarn_factor(const struct dpe_detect_params *params)
{
    const double a =
        0.1 * log(fmax(1.0, (double)params->length / (double)params->trained_length)) + 1.0;
    return a * a;
}

/* The ramp leaves pairs as they are that turn so often in L0: 4 times in the bundled model's 256
 * tokens, 32 times, as YaRN, in 8,192; L / (2 L0) times where that is more (eval/RESULTS.md). */
static double ramp_turns(const struct dpe_detect_params *params)
{
    const double trained = (double)params->trained_length;
    return fmax(fmin(fmax(4.0, trained / 256.0), 32.0), (double)params->length / trained / 2.0);
}

/* The exponent of log-n from L0: at ½ recall is lost, at one perplexity. */
static const double usual_exponent = 0.7;

/* The first `kept` groups where they are, the others at `length`; where there is nothing to move
 * the temperature alone. */
static struct dpe_detect_point placed(const struct dpe_detect_params *params,
                                      const struct dpe_temperature *temperature, int64_t window,
                                      int64_t length, int kept)
{
    struct dpe_detect_point point = {
        .temperature = *temperature, .window = window, .family = params->still ? FAMILIES + 1 : 0};
    for (int g = 0; g < params->n_groups; g++) {
        point.length[g] = g < kept ? params->length : dpe_most(1, length);
    }
    return point;
}

/* temperature: NULL: its own. */
static struct dpe_detect_point formula(const struct dpe_detect_params *params,
                                       const struct dpe_temperature *temperature)
{
    const struct dpe_formula found = dpe_formula_of(
        params->length, params->trained_length, params->window, params->n_groups, params->still);
    return placed(params, temperature != NULL ? temperature : &found.temperature, found.window,
                  found.length, found.kept);
}

/* --------------------------------------------------------------------------------- the first heat
 */

static void begin(struct list *list)
{
    const struct dpe_detect_search_options *options = list->options;
    const struct dpe_detect_params *params = options->params;
    const struct dpe_temperature usual =
        options->temperature ? log_n(params, usual_exponent) : params->temperature;
    add_named(list, DPE_DETECT_UNCHANGED, "rope");
    struct dpe_detect_point point = formula(params, options->temperature ? NULL : &usual);
    point.window = options->window ? point.window : params->window;
    add(list, DPE_DETECT_FORMULA, &point);
    point = placed(params, &usual, params->window, params->trained_length / 2, 0);
    add(list, DPE_DETECT_SEARCHED, &point);
    point.family = JETLONG_FREQ + 1;
    point.window = options->window ? params->trained_length / 4 : params->window;
    if (options->methods) {
        add_named(list, DPE_DETECT_METHOD, "lampe");
        add(list, DPE_DETECT_SEARCHED, &point);
        const struct dpe_detect_point ramp = {
            .family = RAMP + 1, .turns = {ramp_turns(params), 0.5}, .temperature = factor(1.0)};
        add(list, DPE_DETECT_SEARCHED, &ramp);
        if (params->states) {
            add_named(list, DPE_DETECT_METHOD, "streaming-llm"); /* what states keep alone */
        }
    }
    for (int i = 0; i < options->n_against; i++) {
        add_named(list, DPE_DETECT_METHOD, options->against[i]);
    }
}

/* ------------------------------------------------------------------------------- the second heat
 */

/* Temperature, window and lengths together: which of each suits depends on the others. */
static void add_grid(struct list *list)
{
    const struct dpe_detect_search_options *options = list->options;
    const struct dpe_detect_params *params = options->params;
    const struct dpe_temperature temperatures[] = {log_n(params, usual_exponent),
                                                   log_n(params, 0.5), factor(yarn_factor(params)),
                                                   dpe_temperature_none};
    const int n = options->temperature ? 4 : 1;
    for (int t = 0; t < n; t++) {
        const struct dpe_temperature *temperature =
            options->temperature ? &temperatures[t] : &params->temperature;
        for (int wide = 0; wide < (options->window ? 2 : 1); wide++) {
            for (int half = 0; half < 2; half++) {
                const struct dpe_detect_point point = placed(
                    params, temperature, params->window << wide, params->trained_length >> half, 0);
                add(list, DPE_DETECT_SEARCHED, &point);
            }
        }
        const struct dpe_detect_point point = formula(params, temperature);
        if (options->window) {
            add(list, DPE_DETECT_SEARCHED, &point);
        }
    }
}

/* Methods without an adapter with their own factor on the logits and a larger one; the others with
 * the search's window and the usual temperature. */
static void add_methods(struct list *list, const struct dpe_detect_point *best)
{
    const struct dpe_detect_params *params = list->options->params;
    static const double factors[] = {1.0, 1.2};
    for (int f = 0; f < PLAIN; f++) {
        for (int i = 0; i < 2; i++) {
            const struct dpe_detect_point point = {.family = f + 1,
                                                   .temperature = factor(factors[i])};
            add(list, i == 0 ? DPE_DETECT_METHOD : DPE_DETECT_SEARCHED, &point);
        }
    }
    for (int f = PLAIN; f < FAMILIES; f++) {
        const struct dpe_detect_point point = {.family = f + 1,
                                               .window = best->family == 0 ? best->window
                                                                           : params->window,
                                               .temperature = log_n(params, 1.0)};
        add(list, DPE_DETECT_SEARCHED, &point);
    }
}

/* What the sweep ranks first, of all groups and of those whose lengths differ beyond noise; the
 * others at L0/2. */
static void add_ranked(struct list *list, const struct dpe_temperature *temperature)
{
    const struct dpe_detect_params *params = list->options->params;
    const struct dpe_detect_ranking *ranking = list->options->ranking;
    for (int informative = 0; informative < 2; informative++) {
        struct dpe_detect_point point =
            placed(params, temperature, params->window, params->trained_length / 2, 0);
        for (int g = 0; g < params->n_groups; g++) {
            const int t = dpe_detect_ranked(ranking, g, 1);
            if (t >= 0 && (informative == 0 || ranking->informative[g])) {
                point.length[g] = params->lengths[t];
            }
        }
        add(list, DPE_DETECT_SEARCHED, &point);
    }
}

/* ------------------------------------------------------------------------------------ neighbours
 */

static void add_temperatures(struct list *list, const struct dpe_detect_point *now, bool constant)
{
    struct dpe_detect_point point = *now;
    static const double factors[] = {1.1, 1.0 / 1.1};
    for (int i = 0; i < 2; i++) {
        point.temperature = now->temperature;
        point.temperature.logit_scale *= factors[i];
        add(list, DPE_DETECT_SEARCHED, &point);
    }
    for (int i = 0; i < 2 && now->window > 0 && !list->options->params->still; i++) {
        point.temperature = now->temperature;
        point.temperature.far_scale *= factors[i];
        add(list, DPE_DETECT_SEARCHED, &point);
    }
    for (int i = 0; i < 4 && now->temperature.log_n_length > 0.0; i++) {
        point.temperature = now->temperature;
        *(i < 2 ? &point.temperature.log_n_length : &point.temperature.log_n_power) *=
            i < 2 ? (i == 0 ? 2.0 : 0.5) : (i == 2 ? 1.4 : 0.7);
        add(list, DPE_DETECT_SEARCHED, &point);
    }
    if (!constant && now->temperature.log_n_length == 0.0) {
        point.temperature = log_n(list->options->params, usual_exponent);
        add(list, DPE_DETECT_SEARCHED, &point);
    }
}

/* One end of a ramp moved, or both. */
static void add_ramps(struct list *list, const struct dpe_detect_point *now)
{
    for (int i = 0; i < 6 && now->turns[0] > 0.0; i++) {
        const double by = i % 2 == 0 ? 1.5 : 1.0 / 1.5;
        struct dpe_detect_point point = *now;
        point.turns[0] *= i / 2 != 1 ? by : 1.0;
        point.turns[1] *= i / 2 != 0 ? by : 1.0;
        if (point.turns[1] < point.turns[0]) {
            add(list, DPE_DETECT_SEARCHED, &point);
        }
    }
}

static int64_t shortest(const struct dpe_detect_params *params,
                        const struct dpe_detect_point *point)
{
    int64_t least = params->length;
    for (int g = 0; g < params->n_groups && point->family == 0; g++) {
        least = dpe_least(least, point->length[g]);
    }
    return point->family == 0 ? least : params->trained_length;
}

/* Wider than the shortest length a window would put far keys nearer than near ones. */
static void add_windows(struct list *list, const struct dpe_detect_point *now)
{
    const int64_t windows[] = {now->window * 2, now->window * 3 / 2, now->window / 2};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0] && now->window > 0; i++) {
        struct dpe_detect_point point = *now;
        point.window = windows[i];
        if (windows[i] >= 1 && windows[i] <= shortest(list->options->params, now)) {
            add(list, DPE_DETECT_SEARCHED, &point);
        }
    }
}

/* A fast pair has met all of its angles in training, a slow one has not: the fastest groups where
 * they are, and the others at one length. */
static void add_lengths(struct list *list, const struct dpe_detect_point *now)
{
    const struct dpe_detect_params *params = list->options->params;
    const int step = (int)dpe_most(1, (params->n_groups - 1 + MOST_CUTS - 1) / MOST_CUTS);
    const int64_t trained = params->trained_length;
    const int64_t lengths[] = {trained / 4, trained / 2, trained * 3 / 4, trained, 2 * trained};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int kept = 0; kept < params->n_groups; kept += step) {
            const struct dpe_detect_point point =
                placed(params, &now->temperature, now->window, lengths[i], kept);
            const bool usual = lengths[i] == trained || 2 * lengths[i] == trained;
            if (lengths[i] >= now->window && lengths[i] <= params->length && (kept == 0 || usual)) {
                add(list, DPE_DETECT_SEARCHED, &point);
            }
        }
    }
}

/* Each group alone at the length that the sweep ranks first, or second where it has the first. */
static void add_groups(struct list *list, const struct dpe_detect_point *now)
{
    const struct dpe_detect_params *params = list->options->params;
    const struct dpe_detect_ranking *ranking = list->options->ranking;
    for (int g = 0; g < params->n_groups; g++) {
        int t = dpe_detect_ranked(ranking, g, 1);
        t = t >= 0 && params->lengths[t] == now->length[g] ? dpe_detect_ranked(ranking, g, 2) : t;
        struct dpe_detect_point point = *now;
        if (t >= 0 && params->lengths[t] >= now->window) {
            point.length[g] = params->lengths[t];
            add(list, DPE_DETECT_SEARCHED, &point);
        }
    }
}

static void add_neighbours(struct list *list, const struct dpe_detect_point *now, bool plain)
{
    const struct dpe_detect_search_options *options = list->options;
    if (now->family < 0) {
        return;
    }
    if (options->temperature) {
        add_temperatures(list, now, plain);
    }
    if (options->window) {
        add_windows(list, now);
    }
    add_ramps(list, now);
    if (now->family == 0) {
        add_lengths(list, now);
        if (options->ranking != NULL) {
            add_groups(list, now);
        }
    }
}

int dpe_detect_candidates(const struct dpe_detect_search_options *options, int heat,
                          struct dpe_detect_tried *list, int n, int best, int plain)
{
    struct list made = {options, list, n, heat};
    for (int i = 0; i < options->n_settings; i++) {
        add_named(&made, i == 0 ? DPE_DETECT_METHOD : DPE_DETECT_SEARCHED, options->settings[i]);
    }
    if (options->n_settings > 0) {
        return made.n;
    }
    const struct dpe_detect_params *params = options->params;
    const struct dpe_temperature usual =
        options->temperature ? log_n(params, usual_exponent) : params->temperature;
    if (heat == 0) {
        begin(&made);
    }
    if (heat == 1) {
        for (int i = 0; i < 2 && options->ranking != NULL; i++) {
            add_ranked(&made, i == 0 ? &params->temperature : &usual);
        }
        add_grid(&made);
        if (options->methods) {
            add_methods(&made, &list[best].point);
        }
    }
    if (heat > 1) {
        const struct dpe_detect_point now[2] = {list[best].point,
                                                list[plain < 0 ? best : plain].point};
        add_neighbours(&made, &now[0], list[best].plain);
        if (plain >= 0 && plain != best) {
            add_neighbours(&made, &now[1], true);
        }
    }
    return made.n;
}
