/* Which lengths the joint plan gets: rank 1 of each group, or something more careful; and near them
 * where the sweep of a longer length begins. How many key pairs of a head move: all, unless fewer
 * are shown to lose next to nothing. */
#include "detect/search/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLIPS = 4999, STATISTICS_SEED = 1 };
static const double tie = 1e-9;

const char *const dpe_detect_rule_names[] = {"paper", "guarded", "sequential", "joint",
                                             "ready", "brief",   NULL};

/* ----------------------------------------------------------------------------------- one choice */

/* Of one cell, what tests are of, and what a choice goes by. */
static void take_values(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                        int cell, double *values, double *goodness)
{
    size_t n = (size_t)scores->n_samples;
    for (size_t s = 0; s < n; s++) {
        values[s] = dpe_detect_value(scores, criterion, (size_t)cell * n + s);
        goodness[s] = dpe_detect_goodness(scores, criterion, (size_t)cell * n + s);
    }
}

static int64_t compare_pairs(const double *a, const double *b, size_t n, double *gain)
{
    int64_t pairs = 0;
    double sum = 0.0;
    for (size_t s = 0; s < n; s++) {
        if (isfinite(a[s]) && isfinite(b[s])) {
            sum += a[s] - b[s];
            pairs++;
        }
    }
    *gain = pairs > 0 ? sum / (double)pairs : (double)NAN;
    return pairs;
}

/* The largest gain that is positive and beyond doubt, the longest length of those that tie. */
static int pick(const struct dpe_detect_choice *choice, const int64_t *pairs, int n_lengths,
                double level)
{
    int64_t fullest = 0;
    for (int t = 0; t < n_lengths; t++) {
        fullest = pairs[t] > fullest ? pairs[t] : fullest;
    }
    int best = choice->from;
    double most = tie;
    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < n_lengths; t++) {
            bool open = t != choice->from && pairs[t] > 0 && 2 * pairs[t] >= fullest &&
                        (level >= 1.0 || choice->p[t] < level);
            if (open && pass == 0) {
                most = fmax(most, choice->gain[t]);
            } else if (open && most > tie && choice->gain[t] >= most - tie) {
                best = t;
            }
        }
    }
    return best;
}

dpe_status dpe_detect_choose(const struct dpe_detect_scores *scores,
                             enum dpe_detect_criterion criterion, int first, int n_lengths,
                             int from, double level, struct dpe_detect_choice *choice,
                             struct dpe_error *err)
{
    if (n_lengths < 1 || n_lengths > DPE_DETECT_MAX_LENGTHS || from < 0 || from >= n_lengths ||
        first < 0 || first + n_lengths > scores->n_cells) {
        return dpe_fail(err, DPE_INTERNAL, "a choice among cells %d to %d of %d from %d", first,
                        first + n_lengths - 1, scores->n_cells, from);
    }
    size_t n = (size_t)scores->n_samples;
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&values, 4 * n, err, "out of memory for a choice on %zu samples", n));
    double *had = values + n;
    double *goodness = values + 2 * n;
    double *good = values + 3 * n;
    int64_t pairs[DPE_DETECT_MAX_LENGTHS] = {0};
    int compared = 0;
    choice->from = from;
    take_values(scores, criterion, first + from, had, good);
    for (int t = 0; t < n_lengths; t++) {
        take_values(scores, criterion, first + t, values, goodness);
        pairs[t] = compare_pairs(goodness, good, n, &choice->gain[t]);
        compared += t != from && pairs[t] > 0;
        choice->p[t] =
            dpe_sign_flip(values, had, n,
                          &(struct dpe_resampling){.together = scores->together,
                                                   .rounds = FLIPS,
                                                   .seed = STATISTICS_SEED + (uint64_t)t});
    }
    for (int t = 0; t < n_lengths; t++) {
        choice->p[t] = fmin(1.0, choice->p[t] * (compared > 1 ? (double)compared : 1.0));
    }
    choice->to = pick(choice, pairs, n_lengths, level);
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- selections */

static dpe_status selection_init(const struct dpe_detect_params *params, enum dpe_detect_rule rule,
                                 int n_choices, struct dpe_detect_selection *selection,
                                 struct dpe_error *err)
{
    size_t n = (size_t)params->n_groups;
    DPE_SCOPED(dpe_detect_selection_free)
    struct dpe_detect_selection made = {.rule = rule,
                                        .n_groups = params->n_groups,
                                        .base = dpe_detect_base_length(params),
                                        .complete = true};
    bool compares = rule == DPE_DETECT_GUARDED || rule == DPE_DETECT_SEQUENTIAL;
    *selection = (struct dpe_detect_selection){0};
    if (compares && made.base < 0) {
        return dpe_fail(err, DPE_USAGE,
                        "--select %s: expected half the trained length (%g) among --lengths: the "
                        "others are compared with it",
                        dpe_detect_rule_names[rule], 0.5 * (double)params->trained_length);
    }
    DPE_TRY(DPE_NEW(&made.at, n, err, "out of memory for a selection of %zu groups", n));
    DPE_TRY(DPE_NEW(&made.order, n, err, "out of memory for a selection of %zu groups", n));
    DPE_TRY(DPE_NEW(&made.choices, (size_t)n_choices, err,
                    "out of memory for a selection of %zu groups", n));
    for (size_t g = 0; g < n; g++) {
        made.at[g] = made.base;
        made.order[g] = (int)g;
    }
    *selection = made;
    made = (struct dpe_detect_selection){0};
    return DPE_OK;
}

void dpe_detect_selection_free(struct dpe_detect_selection *selection)
{
    free(selection->at);
    free(selection->order);
    free(selection->choices);
    *selection = (struct dpe_detect_selection){0};
}

dpe_status dpe_detect_select_paper(const struct dpe_detect_params *params,
                                   const struct dpe_detect_ranking *ranking,
                                   struct dpe_detect_selection *selection, struct dpe_error *err)
{
    DPE_TRY(selection_init(params, DPE_DETECT_PAPER, 0, selection, err));
    for (int g = 0; g < params->n_groups; g++) {
        selection->at[g] = dpe_detect_ranked(ranking, g, 1);
    }
    return DPE_OK;
}

dpe_status dpe_detect_select_point(const struct dpe_detect_params *params, const int16_t *at,
                                   struct dpe_detect_selection *selection, struct dpe_error *err)
{
    DPE_TRY(selection_init(params, DPE_DETECT_JOINTLY, 0, selection, err));
    for (int g = 0; g < params->n_groups; g++) {
        selection->at[g] = at[g];
    }
    return DPE_OK;
}

dpe_status dpe_detect_select_guarded(const struct dpe_detect_params *params,
                                     const struct dpe_detect_scores *scores,
                                     enum dpe_detect_criterion criterion,
                                     struct dpe_detect_selection *selection, struct dpe_error *err)
{
    *selection = (struct dpe_detect_selection){0};
    DPE_SCOPED(dpe_detect_selection_free) struct dpe_detect_selection made = {0};
    DPE_TRY(selection_init(params, DPE_DETECT_GUARDED, params->n_groups, &made, err));
    for (int g = 0; g < params->n_groups; g++) {
        struct dpe_detect_choice *choice = &made.choices[g];
        choice->group = g;
        DPE_TRY(dpe_detect_choose(scores, criterion, g * params->n_lengths, params->n_lengths,
                                  made.base, DPE_DETECT_GUARD_LEVEL, choice, err));
        made.at[g] = choice->to;
        made.n_choices++;
    }
    *selection = made;
    made = (struct dpe_detect_selection){0};
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- sequential */

/* Best mean − worst mean of a group over its ranked lengths; −1 without any. */
static double steepness(const struct dpe_detect_ranking *ranking, int group)
{
    double low = INFINITY;
    double high = -INFINITY;
    for (int t = 0; t < ranking->n_lengths; t++) {
        int cell = group * ranking->n_lengths + t;
        double mean = ranking->criterion == DPE_DETECT_RECALL ? ranking->mean[cell]
                                                              : log(ranking->mean[cell]);
        if (ranking->rank[cell] > 0) {
            low = fmin(low, mean);
            high = fmax(high, mean);
        }
    }
    return high >= low ? high - low : -1.0;
}

static void order_groups(const struct dpe_detect_ranking *ranking, int *order)
{
    for (int i = 0; i < ranking->n_groups; i++) {
        int at = i;
        while (at > 0 && steepness(ranking, order[at - 1]) < steepness(ranking, i) - tie) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

/* One step: *changed when the group moved; selection->complete false when rows are missing. */
static dpe_status take_step(const struct dpe_detect_params *params,
                            const struct dpe_detect_ranking *ranking, int round, int group,
                            const struct dpe_detect_steps *steps,
                            struct dpe_detect_selection *selection, bool *changed,
                            struct dpe_error *err)
{
    struct dpe_detect_choice *choice = &selection->choices[selection->n_choices];
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    choice->group = group;
    choice->round = round;
    DPE_TRY(steps->scores(steps->user, selection->at, group, &scores, choice->keys,
                          &selection->complete, err));
    if (selection->complete) {
        DPE_TRY(dpe_detect_choose(&scores, ranking->criterion, 0, params->n_lengths,
                                  selection->at[group], 1.0, choice, err));
        *changed = *changed || choice->to != choice->from;
        selection->at[group] = choice->to;
        selection->n_choices++;
    }
    return DPE_OK;
}

dpe_status dpe_detect_select_sequential(const struct dpe_detect_params *params,
                                        const struct dpe_detect_ranking *ranking, int rounds,
                                        const struct dpe_detect_steps *steps,
                                        struct dpe_detect_selection *selection,
                                        struct dpe_error *err)
{
    int n_choices = 0;
    *selection = (struct dpe_detect_selection){0};
    if (rounds < 1 || __builtin_mul_overflow(rounds, params->n_groups, &n_choices)) {
        return dpe_fail(err, DPE_USAGE, "--rounds: expected 1 or a few, found %d", rounds);
    }
    DPE_SCOPED(dpe_detect_selection_free) struct dpe_detect_selection made = {0};
    DPE_TRY(selection_init(params, DPE_DETECT_SEQUENTIAL, n_choices, &made, err));
    made.rounds = rounds;
    order_groups(ranking, made.order);
    bool changed = true;
    for (int round = 0; round < rounds && changed && made.complete; round++) {
        changed = false;
        for (int i = 0; i < params->n_groups && made.complete; i++) {
            DPE_TRY(take_step(params, ranking, round, made.order[i], steps, &made, &changed, err));
        }
    }
    *selection = made;
    made = (struct dpe_detect_selection){0};
    return DPE_OK;
}

int dpe_detect_pending_group(const struct dpe_detect_selection *selection)
{
    return selection->order[selection->n_choices % selection->n_groups];
}

void dpe_detect_selected_scales(const struct dpe_detect_params *params,
                                const struct dpe_detect_selection *selection, double *scale)
{
    for (int g = 0; g < params->n_groups; g++) {
        int at = selection->at[g];
        bool stays = selection->rule != DPE_DETECT_PAPER && at == selection->base;
        int64_t length = at < 0 || stays ? -1 : params->lengths[at];
        scale[g] = dpe_detect_joint_scale(params, g, length);
    }
}

/* ----------------------------------------------------------------- the sweep of a longer length */

/* L0 and L0/2 are always tried, because the search begins with them: where the shorter entry chose
 * L0/2 alone, leaving L0 out cost the reference model 15 points at 2048 tokens. Where a group's
 * lengths differ beyond noise its neighbours are tried too. A choice that may be chance is kept as
 * it is: leaving it out cost 9 points. */
static bool is_near(const struct dpe_detect_shorter *shorter, int64_t length, int64_t longest)
{
    bool near = length == longest || (length <= shorter->trained && 2 * length >= shorter->trained);
    for (int64_t g = 0; g < shorter->n_groups && !near; g++) {
        int64_t chosen = shorter->chosen[g];
        if (chosen > 0 && chosen < shorter->length) {
            /* The squares of the ratio: 4, or 2 for the nearest of lengths that double. */
            double ratio = (double)length / (double)chosen;
            double most = shorter->informs[g] != 0 ? 4.0 : 2.0;
            near = ratio * ratio <= most && most * ratio * ratio >= 1.0;
        }
    }
    return near;
}

void dpe_detect_start_lengths(const struct dpe_detect_shorter *shorter, int64_t length,
                              int64_t window, char *text, size_t size)
{
    enum { HALVES = 7 };
    int n = 0;
    text[0] = '\0';
    for (int halves = HALVES; halves >= 0; halves--) {
        int64_t tried = length >> halves;
        if (tried >= window && tried > 0 && is_near(shorter, tried, length)) {
            dpe_append(text, size, "%s%lld", n++ > 0 ? "," : "", (long long)tried);
        }
    }
    if (n < 2) {
        text[0] = '\0';
    }
}

void dpe_detect_start_temperature(const struct dpe_detect_shorter *shorter,
                                  char text[DPE_TEMPERATURE_TEXT + 8])
{
    char found[DPE_TEMPERATURE_TEXT];
    text[0] = '\0';
    if (!dpe_temperature_is_none(&shorter->temperature)) {
        dpe_temperature_text(&shorter->temperature, found);
        snprintf(text, DPE_TEMPERATURE_TEXT + 8, "auto:%s", found);
    }
}

/* -------------------------------------------------------------------------- how many key pairs */

/* Means that are this near are one, summed in another order. */
static const double same_mean = 1e-12;
/* One-sided 95 %. */
static const double level = 0.90;

int dpe_detect_top_k_candidates(int64_t n_pairs, int64_t k[DPE_DETECT_CANDIDATES])
{
    int n = 0;
    for (int eighths = 4; eighths <= 8 && n_pairs > 0; eighths++) {
        /* As dpe-export rounds a share. */
        int64_t candidate = (n_pairs * eighths + 4) / 8;
        if (n == 0 || candidate > k[n - 1]) {
            k[n++] = candidate;
        }
    }
    return n;
}

/* Rungs with at least half as many valid samples as the fullest, into compared [n]. False when no
 * sample of any is valid. */
static bool find_compared(const double *values, int n, int64_t n_samples,
                          struct dpe_detect_top_k *out)
{
    int64_t fullest = 0;
    for (int i = 0; i < n; i++) {
        out->candidates[i].n_valid = 0;
        for (int64_t s = 0; s < n_samples; s++) {
            out->candidates[i].n_valid += !isnan(values[i * n_samples + s]);
        }
        fullest = out->candidates[i].n_valid > fullest ? out->candidates[i].n_valid : fullest;
    }
    for (int i = 0; i < n; i++) {
        out->candidates[i].compared = fullest > 0 && 2 * out->candidates[i].n_valid >= fullest;
    }
    return fullest > 0;
}

static bool is_common(const double *values, int64_t n_samples, int64_t s,
                      const struct dpe_detect_top_k *out)
{
    for (int i = 0; i < out->n; i++) {
        if (out->candidates[i].compared && isnan(values[i * n_samples + s])) {
            return false;
        }
    }
    return true;
}

/* Means over the samples of each context that are valid under every compared candidate, contexts
 * without any left out: [n][n_samples] of which the first out->n_contexts of a row are filled,
 * those of other candidates with anything. Owned by the caller; NULL: no memory. */
static double *take_contexts(const double *values, int64_t n_samples, int64_t together,
                             struct dpe_detect_top_k *out)
{
    double *means = dpe_alloc_zero((size_t)out->n * (size_t)n_samples, sizeof *means);
    int64_t here = 0; /* samples of this context so far */
    for (int64_t s = 0; s < n_samples && means != NULL; s++) {
        bool common = is_common(values, n_samples, s, out);
        bool ends = (s + 1) % together == 0 || s + 1 == n_samples;
        here += common;
        for (int i = 0; i < out->n && here > 0; i++) {
            double *mean = &means[i * n_samples + out->n_contexts];
            *mean += common ? values[i * n_samples + s] : 0.0;
            *mean /= ends ? (double)here : 1.0;
        }
        if (ends) {
            out->n_contexts += here > 0;
            here = 0;
        }
    }
    return means;
}

static void take_means(const double *contexts, int64_t stride, struct dpe_detect_top_k *out)
{
    for (int i = 0; i < out->n; i++) {
        double sum = 0.0;
        for (int64_t c = 0; c < out->n_contexts; c++) {
            sum += contexts[i * stride + c];
        }
        out->candidates[i].mean =
            out->candidates[i].compared ? sum / (double)out->n_contexts : (double)NAN;
    }
}

/* Loss of candidate i against the one it is held against, and what it is at most. Of recall two
 * more contexts count, one without a difference and one with the largest there can be, half of it
 * in either direction: contexts that all agree would otherwise be taken for certainty, however few
 * (Agresti and Min's interval of paired proportions). */
static void bound_loss(const double *contexts, int64_t stride, bool recall, int i,
                       struct dpe_detect_top_k *out)
{
    struct dpe_detect_candidate *candidate = &out->candidates[i];
    double sum = 0.0;
    double squares = recall ? 1.0 : 0.0;
    double n = (double)out->n_contexts + (recall ? 2.0 : 0.0);
    for (int64_t c = 0; c < out->n_contexts; c++) {
        double loss = contexts[out->against * stride + c] - contexts[i * stride + c];
        loss = recall ? loss : -loss;
        sum += loss;
        squares += loss * loss;
    }
    candidate->loss = sum / (double)out->n_contexts;
    if (n >= 2.0) {
        double mean = sum / n;
        double variance = fmax(squares / n - mean * mean, 0.0) / (n - 1.0);
        candidate->at_most = mean + dpe_student_quantile(level, (int64_t)n - 1) * sqrt(variance);
        candidate->at_most = recall ? fmin(candidate->at_most, 1.0) : candidate->at_most;
    }
}

/* Of recall the margin is a share of what is found. */
static double margin_of(const struct dpe_detect_top_k *out, bool recall)
{
    return recall ? (1.0 - DPE_DETECT_KEPT) * out->candidates[out->against].mean : DPE_DETECT_NATS;
}

/* From the largest number downwards, as far as samples carry. */
static void descend(const double *contexts, int64_t stride, bool recall,
                    struct dpe_detect_top_k *out)
{
    double sign = recall ? 1.0 : -1.0;
    for (int i = out->against - 1; i >= 0 && out->candidates[i].compared; i--) {
        bound_loss(contexts, stride, recall, i, out);
        if (!(out->candidates[i].at_most <= margin_of(out, recall))) {
            break;
        }
        out->chosen = i;
        if (sign * out->candidates[i].mean >
            sign * out->candidates[out->against].mean + same_mean) {
            out->against = i;
        }
    }
    out->margin = margin_of(out, recall);
    for (int i = 0; i < out->n; i++) {
        out->candidates[i].loss = out->candidates[i].at_most = NAN;
        if (out->candidates[i].compared && i != out->against) {
            bound_loss(contexts, stride, recall, i, out);
        }
    }
}

dpe_status dpe_detect_choose_top_k(const int64_t *k, const double *values, int n, int64_t n_samples,
                                   int64_t together, enum dpe_detect_criterion criterion,
                                   struct dpe_detect_top_k *out, struct dpe_error *err)
{
    *out = (struct dpe_detect_top_k){.n = n, .criterion = criterion, .against = -1, .chosen = -1};
    if (n < 1 || n > DPE_DETECT_CANDIDATES) {
        return dpe_fail(err, DPE_INTERNAL, "a choice among %d numbers of key pairs", n);
    }
    bool recall = criterion == DPE_DETECT_RECALL;
    for (int i = 0; i < n; i++) {
        out->candidates[i] = (struct dpe_detect_candidate){.k = k[i], .loss = NAN, .at_most = NAN};
        if (i > 0 && k[i] <= k[i - 1]) {
            return dpe_fail(err, DPE_INTERNAL, "numbers of key pairs are not ascending");
        }
    }
    DPE_OWNED double *contexts = NULL;
    if (find_compared(values, n, n_samples, out)) {
        contexts = take_contexts(values, n_samples, together, out);
        DPE_TRY(DPE_MADE(contexts, err, "out of memory for %lld samples", (long long)n_samples));
    }
    if (out->n_contexts == 0) {
        return dpe_fail(err, DPE_NONFINITE,
                        "no sample is valid under the numbers of key pairs that are compared");
    }
    take_means(contexts, n_samples, out);
    for (int i = 0; i < n; i++) {
        out->against = out->candidates[i].compared ? i : out->against;
    }
    out->chosen = out->against;
    descend(contexts, n_samples, recall, out);
    return DPE_OK;
}
