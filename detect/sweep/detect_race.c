/* Racing: lengths that can no longer be rank 1 are not run any further. */
#include "detect/sweep/detect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLIPS = 999, SPREADS = 1999, STATISTICS_SEED = 1 };
static const double informative_p = 0.05;

void dpe_detect_race_free(struct dpe_detect_race *race)
{
    free(race->dropped);
    free(race->drops);
    race->dropped = NULL;
    race->drops = NULL;
}

/* Larger = better. */
static double goodness(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                       int cell, int64_t sample)
{
    double value = dpe_detect_value(scores, criterion, (size_t)(cell * scores->n_samples + sample));
    return criterion == DPE_DETECT_RECALL ? value : -value;
}

static double mean_of(const struct dpe_detect_scores *scores, enum dpe_detect_criterion criterion,
                      int cell, int64_t n)
{
    double sum = 0.0;
    int64_t valid = 0;
    for (int64_t s = 0; s < n; s++) {
        double value = goodness(scores, criterion, cell, s);
        sum += isfinite(value) ? value : 0.0;
        valid += isfinite(value);
    }
    return valid > 0 ? sum / (double)valid : (double)-INFINITY;
}

/* One look at the rows of a race. */
struct look {
    const struct dpe_detect_scores *scores;
    enum dpe_detect_criterion criterion;
    struct dpe_detect_race *race;
    int keep;
    double *a, *b; /* [n_samples] */
};

static bool round_is_there(const struct look *look, int64_t first, int64_t last)
{
    const struct dpe_detect_scores *scores = look->scores;
    for (int c = 0; c < scores->n_cells; c++) {
        for (int64_t s = first; s < last && look->race->dropped[c] < 0; s++) {
            if (scores->status[c * scores->n_samples + s] < 0) {
                return false;
            }
        }
    }
    return true;
}

static int find_leader(const struct look *look, int group, int64_t n)
{
    const struct dpe_detect_race *race = look->race;
    int leader = -1;
    double best = -INFINITY;
    for (int t = 0; t < race->n_lengths; t++) {
        int cell = group * race->n_lengths + t;
        double mean = mean_of(look->scores, look->criterion, cell, n);
        if (race->dropped[cell] < 0 && mean >= best - 1e-9) {
            leader = t;
            best = fmax(best, mean);
        }
    }
    return leader;
}

static void test_length(const struct look *look, int group, int length, int leader, int64_t n)
{
    struct dpe_detect_race *race = look->race;
    int cell = group * race->n_lengths + length;
    int best = group * race->n_lengths + leader;
    double sum = 0.0;
    int64_t pairs = 0;
    for (int64_t s = 0; s < n; s++) {
        look->a[s] = goodness(look->scores, look->criterion, best, s) + race->options.indifference;
        look->b[s] = goodness(look->scores, look->criterion, cell, s);
        if (isfinite(look->a[s]) && isfinite(look->b[s])) {
            sum += look->a[s] - look->b[s];
            pairs++;
        }
    }
    if (!(sum > 0.0)) {
        return;
    }
    const struct dpe_resampling how = {.together = look->scores->together,
                                       .rounds = FLIPS,
                                       .seed = STATISTICS_SEED + (uint64_t)cell};
    double p = 0.5 * dpe_sign_flip(look->a, look->b, (size_t)n, &how);
    if (p < race->options.level) {
        race->dropped[cell] = n;
        race->drops[race->n_drops++] = (struct dpe_detect_drop){
            .group = group,
            .length = length,
            .leader = leader,
            .samples = n,
            .difference = sum / (double)pairs - race->options.indifference,
            .p = p,
        };
    }
}

static void decide(const struct look *look, int64_t n)
{
    const struct dpe_detect_race *race = look->race;
    for (int g = 0; g < race->n_groups; g++) {
        int leader = find_leader(look, g, n);
        for (int t = 0; t < race->n_lengths; t++) {
            bool live = race->dropped[g * race->n_lengths + t] < 0;
            if (live && t != leader && t != look->keep) {
                test_length(look, g, t, leader, n);
            }
        }
    }
}

dpe_status dpe_detect_race_replay(const struct dpe_detect_race_options *options,
                                  const struct dpe_detect_scores *scores, int n_groups,
                                  int n_lengths, int keep, enum dpe_detect_criterion criterion,
                                  struct dpe_detect_race *race, struct dpe_error *err)
{
    *race =
        (struct dpe_detect_race){.options = *options, .n_groups = n_groups, .n_lengths = n_lengths};
    if (options->per_round < 1 || !(options->level > 0.0 && options->level < 0.5) ||
        !(options->indifference >= 0.0) || scores->n_cells != n_groups * n_lengths) {
        return dpe_fail(err, DPE_USAGE,
                        "race: expected a level between 0 and 0.5 and an indifference from 0 on, "
                        "found %g and %g",
                        options->level, options->indifference);
    }
    size_t n = (size_t)scores->n_samples;
    size_t n_cells = (size_t)scores->n_cells;
    struct look look = {scores, criterion, race, keep, NULL, NULL};
    dpe_status status = DPE_OK;
    race->dropped = dpe_alloc(n_cells, sizeof *race->dropped);
    race->drops = dpe_alloc(n_cells, sizeof *race->drops);
    look.a = dpe_alloc(2 * n, sizeof *look.a);
    if (race->dropped == NULL || race->drops == NULL || look.a == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a race of %zu cells", n_cells);
        dpe_detect_race_free(race);
        goto done;
    }
    look.b = look.a + n;
    for (size_t c = 0; c < n_cells; c++) {
        race->dropped[c] = -1;
    }
    race->complete = true;
    while (race->samples < scores->n_samples && race->complete) {
        int64_t last = race->samples + options->per_round;
        last = last < scores->n_samples ? last : scores->n_samples;
        race->complete = round_is_there(&look, race->samples, last);
        if (race->complete) {
            race->samples = last;
        }
        if (race->complete && last < scores->n_samples) {
            decide(&look, last);
        }
    }
done:
    free(look.a);
    return status;
}

/* ----------------------------------------------------------------------------------------- ranking
 */

/* Mean, interval and count of what a dropped length was run on come from a ranking of all rows; its
 * rank follows those of the live ones. */
static void add_dropped(const struct dpe_detect_race *race, const struct dpe_detect_ranking *all,
                        struct dpe_detect_ranking *ranking, int group)
{
    double sign = ranking->criterion == DPE_DETECT_RECALL ? 1.0 : -1.0;
    int first = group * race->n_lengths;
    int32_t live = 0;
    for (int t = 0; t < race->n_lengths; t++) {
        live = ranking->rank[first + t] > live ? ranking->rank[first + t] : live;
    }
    for (int t = first; t < first + race->n_lengths; t++) {
        if (race->dropped[t] < 0) {
            continue;
        }
        int32_t rank = live + 1;
        for (int o = first; o < first + race->n_lengths; o++) {
            bool later = race->dropped[o] > race->dropped[t];
            bool together = race->dropped[o] == race->dropped[t];
            double ahead = sign * (all->mean[o] - all->mean[t]);
            rank += later || (together && (ahead > 1e-9 || (ahead >= -1e-9 && o > t)));
        }
        ranking->rank[t] = rank;
        ranking->mean[t] = all->mean[t];
        ranking->low[t] = all->low[t];
        ranking->high[t] = all->high[t];
        ranking->n_valid[t] = all->n_valid[t];
    }
}

/* Whether all lengths of a group differ on the samples that all of them have. */
static dpe_status spread_of_all(const struct dpe_detect_scores *scores,
                                const struct dpe_detect_ranking *ranking, int group, double *p,
                                struct dpe_error *err)
{
    int all[DPE_DETECT_MAX_LENGTHS];
    for (int t = 0; t < ranking->n_lengths; t++) {
        all[t] = t;
    }
    struct dpe_detect_common common;
    dpe_status status =
        dpe_detect_common_take(scores, ranking->criterion, group * ranking->n_lengths, all,
                               ranking->n_lengths, &common, err);
    *p = status == DPE_OK ? dpe_detect_spread(&common, SPREADS, STATISTICS_SEED) : 1.0;
    dpe_detect_common_free(&common);
    return status;
}

dpe_status dpe_detect_rank_race(const struct dpe_detect_scores *scores,
                                const struct dpe_detect_race *race, const int64_t *lengths,
                                enum dpe_detect_criterion criterion,
                                struct dpe_detect_ranking *ranking, struct dpe_error *err)
{
    size_t n = (size_t)scores->n_samples;
    size_t all_rows = (size_t)scores->n_cells * n;
    struct dpe_detect_scores live = *scores;
    struct dpe_detect_ranking all = {0};
    live.recall = dpe_alloc(all_rows, sizeof *live.recall);
    live.nll_sum = dpe_alloc(all_rows, sizeof *live.nll_sum);
    dpe_status status = DPE_OK;
    *ranking = (struct dpe_detect_ranking){0};
    if (live.recall == NULL || live.nll_sum == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for ranking %zu rows", all_rows);
        goto done;
    }
    for (size_t i = 0; i < all_rows; i++) {
        bool out = race->dropped[i / n] >= 0;
        live.recall[i] = out ? (double)NAN : scores->recall[i];
        live.nll_sum[i] = out ? (double)NAN : scores->nll_sum[i];
    }
    status =
        dpe_detect_rank(scores, race->n_groups, lengths, race->n_lengths, criterion, &all, err);
    if (status == DPE_OK) {
        status = dpe_detect_rank(&live, race->n_groups, lengths, race->n_lengths, criterion,
                                 ranking, err);
    }
    for (int g = 0; g < race->n_groups && status == DPE_OK; g++) {
        double p = 1.0;
        add_dropped(race, &all, ranking, g);
        status = spread_of_all(scores, ranking, g, &p, err);
        if (!isnan(ranking->p_value[g])) {
            ranking->p_value[g] = fmin(1.0, 2.0 * fmin(p, ranking->p_value[g]));
            ranking->informative[g] = ranking->p_value[g] < informative_p;
        }
    }
done:
    dpe_detect_ranking_free(&all);
    free(live.recall);
    free(live.nll_sum);
    if (status != DPE_OK) {
        dpe_detect_ranking_free(ranking);
    }
    return status;
}
