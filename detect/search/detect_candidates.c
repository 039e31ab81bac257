/* The changes that the steps of a search try, and the points that they are. */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const dpe_detect_move_names[DPE_DETECT_N_MOVES] = {
    "temperature", "lengths", "window", "split", "group", "pairs", "plain", "family", "coarse"};

const char *const dpe_detect_families[DPE_DETECT_FAMILIES] = {
    "yarn",
    "mrrope",
    "mrrope:form=uni", /* DPE_DETECT_RAMP */
    "ntk-by-parts",
    "leaky-rerope:official=0",
    "jet-long",
    "jetlong_freq:official=0",
    "self",
    "lampe:official=0",
};

/* --------------------------------------------------------------------------------------- points */

void dpe_detect_point_base(const struct dpe_detect_params *params, struct dpe_detect_point *point)
{
    *point =
        (struct dpe_detect_point){.temperature = params->temperature, .window = params->window};
    if (point->temperature.logit_scale == 0.0) {
        point->temperature = dpe_temperature_none;
    }
    for (int g = 0; g < params->n_groups; g++) {
        point->at[g] = (int16_t)dpe_detect_base_at(params, g);
    }
}

/* How many of the fastest groups are an eighth; 0 where none of them can stay where it is. */
static int fastest_eighth(const struct dpe_detect_params *params)
{
    enum { SHARE = 8 };
    return params->lengths[params->n_lengths - 1] == params->length ? params->n_groups / SHARE : 0;
}

static bool is_short(const struct dpe_detect_params *params)
{
    return params->length <= 2 * params->trained_length;
}

/* The near window, so many halves of it, but no wider than the L0 that far keys are brought to. */
static int64_t widened(const struct dpe_detect_params *params, int64_t halves)
{
    return dpe_least(params->window * halves / 2, dpe_most(params->window, params->trained_length));
}

/* The first `kept` groups at the longest length, the others at L0; false: L0 is no detecting
 * length. */
static bool split_at_trained(const struct dpe_detect_params *params, int kept,
                             struct dpe_detect_point *point)
{
    int t = 0;
    while (t < params->n_lengths && params->lengths[t] != params->trained_length) {
        t++;
    }
    for (int g = 0; g < params->n_groups && t < params->n_lengths; g++) {
        point->at[g] = (int16_t)(g < kept ? params->n_lengths - 1 : t);
    }
    return t < params->n_lengths;
}

/* Groups and window of the usual plan, from the base; false: L0 is no detecting length. Up to 2·L0
 * all groups stay at L0/2, near keys up to there. In longer texts the fastest groups stay where
 * they are and the others are at L0, with by default 3/16 of L0, because texts want L0/4 and
 * needles no more than this; beyond 16·L0 needles want L0/8 (eval/RESULTS.md). */
static bool place_usual(const struct dpe_detect_params *params, struct dpe_detect_point *point)
{
    const int64_t trained = params->trained_length;
    const int kept = fastest_eighth(params);
    if (is_short(params)) {
        point->window = dpe_most(params->window, trained / 2);
        return true;
    }
    const int64_t halves = kept == 0 ? 4 : params->length > 16 * trained ? 2 : 3;
    point->window = widened(params, halves);
    return split_at_trained(params, kept, point);
}

/* The exponent of log-n from L0: at ½ recall is lost, at one perplexity (eval/RESULTS.md). */
static const double usual_exponent = 0.7;

bool dpe_detect_point_usual(const struct dpe_detect_params *params, struct dpe_detect_point *point)
{
    const double trained = (double)params->trained_length;
    dpe_detect_point_base(params, point);
    point->temperature = (struct dpe_temperature){trained, usual_exponent, 0.0, 1.0, DPE_LEVEL};
    return place_usual(params, point) && !params->frequencies;
}

void dpe_detect_point_spec(const struct dpe_detect_point *point, char spec[DPE_DETECT_SPEC])
{
    char temperature[DPE_TEMPERATURE_TEXT];
    spec[0] = '\0';
    if (point->family == 0) {
        return;
    }
    const char *family = dpe_detect_families[point->family - 1];
    char join = strchr(family, ':') != NULL ? ',' : ':';
    int n = snprintf(spec, DPE_DETECT_SPEC, "%s", family);
    if (point->window > 0) {
        n += snprintf(spec + n, (size_t)(DPE_DETECT_SPEC - n), "%cwindow=%lld", join,
                      (long long)point->window);
        join = ',';
    }
    if (point->turns[0] > 0.0) {
        n += snprintf(spec + n, (size_t)(DPE_DETECT_SPEC - n), "%cbeta_fast=%.4g,beta_slow=%.4g",
                      join, point->turns[0], point->turns[1]);
        join = ',';
    }
    if (!dpe_temperature_is_none(&point->temperature)) {
        dpe_temperature_text(&point->temperature, temperature);
        snprintf(spec + n, (size_t)(DPE_DETECT_SPEC - n), "%c%s", join, temperature);
    }
}

void dpe_detect_point_dpe_spec(const struct dpe_detect_grid *grid,
                               const struct dpe_detect_point *point, char *spec, size_t size)
{
    double scale[DPE_DETECT_MOST_GROUPS] = {1.0};
    char temperature[DPE_TEMPERATURE_TEXT];
    dpe_detect_point_scales(&grid->params, point, scale);
    const double length = (double)grid->params.length / scale[0];
    const bool one = dpe_detect_point_is_single(&grid->params, point) && length == floor(length);
    size_t n = (size_t)snprintf(spec, size, "dpe:window=%lld,", (long long)point->window);
    if (one) {
        n += (size_t)snprintf(spec + n, size - n, "lengths=%.0f", length);
    }
    for (int g = 0; g < grid->params.n_groups && n < size && !one; g++) {
        n += (size_t)snprintf(spec + n, size - n, "%s%.10g", g > 0 ? "/" : "scales=", scale[g]);
    }
    if (!dpe_temperature_is_none(&point->temperature) && n < size) {
        dpe_temperature_text(&point->temperature, temperature);
        n += (size_t)snprintf(spec + n, size - n, ",%s", temperature);
    }
    if (n >= size || point->fewer > 0 || grid->params.mask != NULL || grid->params.frequencies) {
        spec[0] = '\0';
    }
}

int64_t dpe_detect_point_length(const struct dpe_detect_params *params,
                                const struct dpe_detect_point *point, int group)
{
    return point->at[group] < 0 || point->family > 0 ? -1 : params->lengths[point->at[group]];
}

void dpe_detect_point_scales(const struct dpe_detect_params *params,
                             const struct dpe_detect_point *point, double *scale)
{
    for (int g = 0; g < params->n_groups; g++) {
        bool base = point->at[g] < 0 || point->at[g] == dpe_detect_base_at(params, g);
        scale[g] = dpe_detect_joint_scale(params, g, base ? -1 : params->lengths[point->at[g]]);
    }
}

struct dpe_detect_key_pairs dpe_detect_point_pairs(const struct dpe_detect_params *params,
                                                   const struct dpe_detect_point *point)
{
    return point->fewer > 0 ? params->fewer[point->fewer - 1]
                            : (struct dpe_detect_key_pairs){.k = -1, .mask = params->mask};
}

/* A length that changes nothing. */
static bool is_kept(const struct dpe_detect_params *params, int at)
{
    return at >= 0 && params->lengths[at] == params->length;
}

bool dpe_detect_point_is_single(const struct dpe_detect_params *params,
                                const struct dpe_detect_point *point)
{
    int first = 0;
    while (params->frequencies && first < params->n_groups - 1 &&
           is_kept(params, point->at[first])) {
        first++;
    }
    for (int g = first + 1; g < params->n_groups; g++) {
        if (point->at[g] != point->at[first]) {
            return false;
        }
    }
    return true;
}

dpe_status dpe_detect_point_plan(const struct dpe_detect_grid *grid,
                                 const struct dpe_plan_context *context,
                                 const struct dpe_detect_point *point, struct dpe_plan *plan,
                                 struct dpe_error *err)
{
    char spec[DPE_DETECT_SPEC];
    dpe_detect_point_spec(point, spec);
    if (spec[0] != '\0') {
        return dpe_plan_make(spec, context, plan, err);
    }
    double scale[DPE_DETECT_MOST_GROUPS];
    dpe_detect_point_scales(&grid->params, point, scale);
    struct dpe_detect_grid own = *grid;
    own.params.window = point->window;
    own.params.mask = dpe_detect_point_pairs(&grid->params, point).mask;
    own.params.temperature = point->temperature;
    return dpe_detect_joint_plan(&own, context, scale, plan, err);
}

/* ----------------------------------------------------------------------------------- candidates */

/* A step's list as it is filled. */
struct list {
    struct dpe_detect_tried *tried;
    int n;
};

/* A copy of the step's first point, to be changed; the last one again when the list is full. */
static struct dpe_detect_point *add(struct list *list)
{
    int at = list->n < DPE_DETECT_MOST_CANDIDATES ? list->n++ : DPE_DETECT_MOST_CANDIDATES - 1;
    list->tried[at] = (struct dpe_detect_tried){.point = list->tried[0].point};
    return &list->tried[at].point;
}

static void add_temperature(struct list *list, struct dpe_temperature temperature)
{
    struct dpe_error err = {0};
    if (dpe_temperature_check(&temperature, &err) == DPE_OK) {
        add(list)->temperature = temperature;
    }
}

/* A temperature times each of n factors. */
static void add_scaled(struct list *list, struct dpe_temperature temperature, const double *factors,
                       int n)
{
    for (int i = 0; i < n; i++) {
        struct dpe_temperature scaled = temperature;
        scaled.logit_scale *= factors[i];
        add_temperature(list, scaled);
    }
}

double dpe_detect_yarn_factor(const struct dpe_detect_params *params)
{
    double ratio = (double)params->length / (double)params->trained_length;
    double a = 0.1 * log(fmax(1.0, ratio)) + 1.0;
    return a * a;
}

/* Temperatures that models have been found to want, and what is known of a shorter length. Beside
 * frequencies only constants, which is what runtimes that read a factor for each pair have. */
enum { MOST_USUAL = 5 };
static int usual_temperatures(const struct dpe_detect_params *params, int64_t head_dim,
                              const struct dpe_temperature *near,
                              struct dpe_temperature usual[MOST_USUAL])
{
    const double trained = (double)params->trained_length;
    int n = 0;
    if (near->logit_scale > 0.0) {
        usual[n++] = *near;
    }
    if (!params->frequencies) {
        usual[n++] = (struct dpe_temperature){trained, usual_exponent, 0.0, 1.0, DPE_LEVEL};
        usual[n++] = (struct dpe_temperature){trained, 0.5, 0.0, 1.0, DPE_LEVEL};
        /* InfoScale's formula. */
        usual[n++] = (struct dpe_temperature){trained, 0.5, 2.0 / (double)head_dim, 1.0, DPE_LEVEL};
    }
    usual[n++] = (struct dpe_temperature){0.0, 1.0, 0.0, dpe_detect_yarn_factor(params), DPE_LEVEL};
    return n;
}

/* Log-n with bases at and below the trained length and with exponents between ½ and 2; InfoScale's
 * formula; constants, YaRN's among them. */
static void add_temperatures(struct list *list, const struct dpe_detect_params *params,
                             int64_t head_dim)
{
    double trained = (double)params->trained_length;
    const struct dpe_temperature grid[] = {
        {trained, 1.0, 0.0, 1.0, DPE_LEVEL},
        {trained / 2.0, 1.0, 0.0, 1.0, DPE_LEVEL},
        {trained / 4.0, 1.0, 0.0, 1.0, DPE_LEVEL},
        {trained, 0.5, 0.0, 1.0, DPE_LEVEL},
        {trained, 1.5, 0.0, 1.0, DPE_LEVEL},
        {trained, 2.0, 0.0, 1.0, DPE_LEVEL},
        {trained, 0.5, 2.0 / (double)head_dim, 1.0, DPE_LEVEL},
    };
    const double factors[] = {1.2, 1.4, 1.6, 1.8, 2.0, dpe_detect_yarn_factor(params)};
    for (size_t i = 0; i < sizeof grid / sizeof grid[0] && !params->frequencies; i++) {
        add_temperature(list, grid[i]);
    }
    add_scaled(list, dpe_temperature_none, factors, 6);
}

/* What suits a shorter length, somewhat more of it, because a longer prompt dilutes the softmax
 * over more keys, and the usual ones. */
static void add_nearer_temperatures(struct list *list, const struct dpe_detect_params *params,
                                    int64_t head_dim, const struct dpe_temperature *near)
{
    struct dpe_temperature usual[MOST_USUAL];
    int n = usual_temperatures(params, head_dim, near, usual);
    for (int i = 0; i < n; i++) {
        add_temperature(list, usual[i]);
    }
    static const double factors[] = {1.1, 1.21};
    add_scaled(list, *near, factors, 2);
}

/* Around the temperature that the search has; `depth`: also those whose layers differ, which gained
 * two points at most where they were tried (eval/RESULTS.md), less than a first round shows. */
static void add_neighbours(struct list *list, bool depth)
{
    const struct dpe_temperature now = list->tried[0].point.temperature;
    struct dpe_temperature other;
    if (!dpe_temperature_is_none(&now)) {
        add_temperature(list, dpe_temperature_none);
    }
    static const double factors[] = {1.1, 1.0 / 1.1};
    add_scaled(list, now, factors, 2);
    for (int i = 0; i < 2 && now.log_n_length > 0.0; i++) {
        other = now;
        other.log_n_length *= i == 0 ? 2.0 : 0.5;
        add_temperature(list, other);
        other = now;
        other.log_n_power *= i == 0 ? 1.25 : 0.8;
        add_temperature(list, other);
    }
    for (int i = 0; i < 6 && depth; i++) {
        other = now;
        other.depth[i / 2] *= i % 2 == 0 ? 4.0 / 3.0 : 0.75;
        add_temperature(list, other);
    }
}

/* Every group at one length, the longest first, to which ties go. */
static void add_single(struct list *list, const struct dpe_detect_params *params, int64_t most,
                       int how_many, const struct dpe_temperature *temperature)
{
    const int64_t window = list->tried[0].point.window;
    int n = 0;
    for (int t = params->n_lengths - 1; t >= 0 && params->lengths[t] >= window; t--) {
        if (params->lengths[t] > most || n == how_many) {
            continue;
        }
        n++;
        struct dpe_detect_point *point = add(list);
        for (int g = 0; g < params->n_groups; g++) {
            point->at[g] = (int16_t)t;
        }
        point->temperature = temperature != NULL ? *temperature : point->temperature;
    }
}

/* One length for all; what the sweep ranks first, of all groups, and of those whose lengths differ
 * beyond noise. */
static void add_lengths(struct list *list, const struct dpe_detect_params *params,
                        const struct dpe_detect_ranking *ranking)
{
    const int64_t window = list->tried[0].point.window;
    if (!params->frequencies) { /* with none kept they find nothing */
        /* Further out far keys are where no pair was trained, as with none moved (rope). */
        add_single(list, params, 2 * params->trained_length, DPE_DETECT_MAX_LENGTHS, NULL);
    }
    for (int informative = 0; informative < 2; informative++) {
        struct dpe_detect_point *point = add(list);
        for (int g = 0; g < params->n_groups; g++) {
            int t = dpe_detect_ranked(ranking, g, 1);
            if (t >= 0 && params->lengths[t] >= window &&
                (informative == 0 || ranking->informative[g])) {
                point->at[g] = (int16_t)t;
            }
        }
    }
}

/* Where searches end: log-n from the trained length on or a constant, a near window of an eighth or
 * a quarter of it and all groups at half of it or the whole, or the usual plan's (eval/RESULTS.md).
 * Which of each suits depends on the others. */
static void add_coarse(struct list *list, const struct dpe_detect_params *params, int64_t head_dim,
                       const struct dpe_detect_search_options *options)
{
    struct dpe_temperature usual[1 + MOST_USUAL] = {list->tried[0].point.temperature};
    const int n = !options->temperature
                      ? 1
                      : 1 + usual_temperatures(params, head_dim, &options->near, &usual[1]);
    const int64_t window = list->tried[0].point.window;
    struct dpe_detect_point placed = list->tried[0].point;
    const bool other =
        place_usual(params, &placed) && (is_short(params) || fastest_eighth(params) > 0);
    for (int i = 0; i < 2; i++) {
        list->tried[0].point.window = window << i;
        for (int t = 0; t < n; t++) {
            if (usual[t].log_n_decay > 0.0) {
                continue; /* InfoScale's is between others */
            }
            add_single(list, params, params->trained_length, 2, &usual[t]);
            if (other && i == 0) {
                placed.temperature = usual[t];
                *add(list) = placed;
            }
        }
    }
    list->tried[0].point.window = window;
}

/* Windows that no group's length is shorter than: there its far keys would be nearer than near
 * ones.
 */
static void add_windows(struct list *list, const struct dpe_detect_params *params)
{
    const struct dpe_detect_point now = list->tried[0].point;
    int64_t most = params->length;
    for (int g = 0; g < params->n_groups; g++) {
        int64_t length = now.at[g] < 0 ? params->trained_length / 2 : params->lengths[now.at[g]];
        most = length < most ? length : most;
    }
    const int64_t windows[] = {now.window * 2, now.window * 4, now.window / 2};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        if (windows[i] >= 1 && windows[i] <= most) {
            add(list)->window = windows[i];
        }
    }
}

/* How many of the fastest groups bear the longest length: those before the first one that the sweep
 * shows to be worse there than in the base, and never all of them. */
static int bearing_groups(const struct dpe_detect_params *params,
                          const struct dpe_detect_ranking *ranking)
{
    const int longest = params->n_lengths - 1;
    int n = 0;
    while (n < params->n_groups - 1) {
        const int base = dpe_detect_base_at(params, n);
        const int row = n * params->n_lengths;
        if (base < 0) {
            return params->n_groups - 1;
        }
        bool recall = ranking->criterion == DPE_DETECT_RECALL;
        if (recall ? ranking->high[row + longest] < ranking->mean[row + base]
                   : ranking->low[row + longest] > ranking->mean[row + base]) {
            return n;
        }
        n++;
    }
    return params->n_groups - 1;
}

/* A fast pair has met all of its angles in training, a slow one has not. So the fastest groups get
 * the longest length, and the others L0 or L0/2, where these are detecting lengths. */
static void add_splits(struct list *list, const struct dpe_detect_params *params,
                       const struct dpe_detect_ranking *ranking)
{
    const int bearing = bearing_groups(params, ranking);
    const int step = (bearing + DPE_DETECT_MOST_CUTS - 1) / DPE_DETECT_MOST_CUTS;
    const int longest = params->n_lengths - 1;
    for (int t = 0; t < longest; t++) {
        int64_t length = params->lengths[t];
        bool slow = length == params->trained_length || 2 * length == params->trained_length;
        for (int cut = bearing; slow && cut > 0; cut -= step) {
            if (length < list->tried[0].point.window) {
                continue;
            }
            struct dpe_detect_point *point = add(list);
            for (int g = 0; g < params->n_groups; g++) {
                point->at[g] = (int16_t)(g < cut ? longest : t);
            }
        }
    }
}

/* Each group alone at the length that the sweep ranks first, or second where it has the first. */
static void add_groups(struct list *list, const struct dpe_detect_params *params,
                       const struct dpe_detect_ranking *ranking)
{
    for (int g = 0; g < params->n_groups && list->n < DPE_DETECT_MOST_CANDIDATES; g++) {
        int t = dpe_detect_ranked(ranking, g, 1);
        t = t == list->tried[0].point.at[g] ? dpe_detect_ranked(ranking, g, 2) : t;
        if (t >= 0 && params->lengths[t] >= list->tried[0].point.window) {
            add(list)->at[g] = (int16_t)t;
        }
    }
}

/* Each smaller number of pairs, and all where the plan so far has fewer. */
static void add_pairs(struct list *list, const struct dpe_detect_params *params)
{
    for (int i = 0; i <= params->n_fewer; i++) {
        if (i != list->tried[0].point.fewer) {
            add(list)->fewer = (int16_t)i;
        }
    }
}

/* ------------------------------------------------------------------------------------- families */

static void add_family(struct list *list, int family, int64_t window,
                       const struct dpe_temperature *temperature)
{
    struct dpe_detect_point *point = add(list);
    point->family = (int16_t)(family + 1);
    point->window = window;
    point->fewer = 0;
    point->temperature = *temperature;
}

/* Their own factors, and larger ones; MrRoPE's even form also as the ramp where good ones have been
 * found: longer beyond 8·L0, with somewhat less than its own factor (eval/RESULTS.md). */
static void add_plain(struct list *list, const struct dpe_detect_params *params, uint32_t families)
{
    enum { FACTORS = 3 };
    static const double factors[FACTORS] = {1.0, 1.2, 1.4};
    static const double ramp_factors[FACTORS] = {0.8, 0.9, 1.0};
    const double ratio = (double)params->length / (double)params->trained_length;
    const double turns[] = {fmax(4.0, ratio / 2.0), 0.5};
    for (int f = 0; f <= DPE_DETECT_PLAIN_FAMILIES; f++) {
        const bool ramp = f == DPE_DETECT_PLAIN_FAMILIES;
        const int family = ramp ? DPE_DETECT_RAMP : f;
        for (int i = 0; i < FACTORS && (families >> family & 1U) != 0; i++) {
            const double factor = ramp ? ramp_factors[i] : factors[i];
            const struct dpe_temperature temperature = {0.0, 1.0, 0.0, factor, DPE_LEVEL};
            add_family(list, family, 0, &temperature);
            if (ramp) {
                memcpy(list->tried[list->n - 1].point.turns, turns, sizeof turns);
            }
        }
    }
}

/* One end of a ramp moved, or both. */
static void add_ramps(struct list *list)
{
    const double *now = list->tried[0].point.turns;
    for (int i = 0; i < 6 && now[0] > 0.0; i++) {
        const double factor = i % 2 == 0 ? 1.5 : 1.0 / 1.5;
        const double fast = now[0] * (i / 2 != 1 ? factor : 1.0);
        const double slow = now[1] * (i / 2 != 0 ? factor : 1.0);
        if (slow < fast) {
            struct dpe_detect_point *point = add(list);
            point->turns[0] = fast;
            point->turns[1] = slow;
        }
    }
}

/* Without a temperature, with the one of the plan so far, and with two usual ones; all with its
 * window. */
static void add_families(struct list *list, const struct dpe_detect_params *params,
                         uint32_t families)
{
    const struct dpe_detect_point now = list->tried[0].point;
    const struct dpe_temperature temperatures[] = {
        dpe_temperature_none,
        now.temperature,
        {(double)params->trained_length, 1.0, 0.0, 1.0, DPE_LEVEL},
        {0.0, 1.0, 0.0, dpe_detect_yarn_factor(params), DPE_LEVEL},
    };
    for (int f = DPE_DETECT_PLAIN_FAMILIES; f < DPE_DETECT_FAMILIES; f++) {
        for (size_t i = 0; i < 4 && (families >> f & 1U) != 0; i++) {
            add_family(list, f, now.window, &temperatures[i]);
        }
    }
}

/* Around the best of them: temperatures, and windows around the usual one of DPE. */
static void add_family_neighbours(struct list *list, const struct dpe_detect_params *params,
                                  bool windows)
{
    add_neighbours(list, false);
    for (int i = -1; i <= 1 && windows; i++) {
        int64_t window = i < 0 ? params->window / 2 : params->window << i;
        if (window >= 1 && window < params->trained_length) {
            add(list)->window = window;
        }
    }
}

int dpe_detect_candidates(const struct dpe_detect_params *params, int64_t head_dim,
                          const struct dpe_detect_ranking *ranking,
                          const struct dpe_detect_search_options *options,
                          enum dpe_detect_move move, int round, struct dpe_detect_tried *tried)
{
    struct list list = {tried, 1};
    switch (move) {
    case DPE_DETECT_MOVE_TEMPERATURE:
        if (round == 0 && options->near.logit_scale > 0.0) {
            add_nearer_temperatures(&list, params, head_dim, &options->near);
        } else if (round == 0) {
            add_temperatures(&list, params, head_dim);
        }
        if (round > 0 || !dpe_temperature_is_none(&tried[0].point.temperature)) {
            add_neighbours(&list, round > 1 && !params->frequencies);
        }
        break;
    case DPE_DETECT_MOVE_LENGTHS:
        add_lengths(&list, params, ranking);
        break;
    case DPE_DETECT_MOVE_WINDOW:
        add_windows(&list, params);
        break;
    case DPE_DETECT_MOVE_SPLIT:
        add_splits(&list, params, ranking);
        break;
    case DPE_DETECT_MOVE_GROUP:
        add_groups(&list, params, ranking);
        break;
    case DPE_DETECT_MOVE_PAIRS:
        add_pairs(&list, params);
        break;
    case DPE_DETECT_MOVE_PLAIN:
        if (round == 0) {
            add_plain(&list, params, options->families);
        } else {
            add_family_neighbours(&list, params, false);
            add_ramps(&list);
        }
        break;
    case DPE_DETECT_MOVE_FAMILY:
        if (round == 0) {
            add_families(&list, params, options->families);
        } else {
            add_family_neighbours(&list, params, true);
        }
        break;
    case DPE_DETECT_MOVE_COARSE:
        add_coarse(&list, params, head_dim, options);
        break;
    case DPE_DETECT_N_MOVES:
        break;
    }
    return list.n;
}
