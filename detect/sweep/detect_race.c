/* Racing: lengths that can no longer be rank 1 are not run any further. */
#include "detect/sweep/detect_race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPREADS = 1999, STATISTICS_SEED = 1 };
static const double informative_p = 0.05;

/* The rows of a sweep as those of a race: a group's lengths are its arms. */
static void list_rows(const struct dpe_detect_scores *scores, int n_lengths, int keep,
                      enum dpe_detect_criterion criterion, int *group, unsigned char *kept,
                      unsigned char *there, double *goodness)
{
    size_t n = (size_t)scores->n_samples;
    for (int c = 0; c < scores->n_cells; c++) {
        group[c] = c / n_lengths;
        kept[c] = c % n_lengths == keep;
        for (size_t at = (size_t)c * n; at < (size_t)(c + 1) * n; at++) {
            double value = dpe_detect_value(scores, criterion, at);
            there[at] = scores->status[at] >= 0;
            goodness[at] = criterion == DPE_DETECT_RECALL ? value : -value;
        }
    }
}

dpe_status dpe_detect_race_replay(const struct dpe_race_options *options,
                                  const struct dpe_detect_scores *scores, int n_groups,
                                  int n_lengths, int keep, enum dpe_detect_criterion criterion,
                                  struct dpe_race *race, struct dpe_error *err)
{
    *race = (struct dpe_race){0};
    if (scores->n_cells != n_groups * n_lengths) {
        return dpe_fail(err, DPE_USAGE, "race: expected %d cells, found %d", n_groups * n_lengths,
                        scores->n_cells);
    }
    size_t n_cells = (size_t)scores->n_cells;
    size_t n_rows = n_cells * (size_t)scores->n_samples;
    dpe_status status = DPE_OK;
    int *group = dpe_alloc(n_cells, sizeof *group);
    unsigned char *kept = dpe_alloc(n_cells, 1);
    unsigned char *there = dpe_alloc(n_rows, 1);
    double *goodness = dpe_alloc(n_rows, sizeof *goodness);
    if (group == NULL || kept == NULL || there == NULL || goodness == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for a race of %zu cells", n_cells);
        goto done;
    }
    list_rows(scores, n_lengths, keep, criterion, group, kept, there, goodness);
    const struct dpe_race_rows rows = {
        .n_arms = scores->n_cells,
        .n_groups = n_groups,
        .group = group,
        .keep = kept,
        .n_samples = scores->n_samples,
        .together = scores->together,
        .there = there,
        .goodness = goodness,
    };
    status = dpe_race_replay(options, &rows, race, err);
done:
    free(group);
    free(kept);
    free(there);
    free(goodness);
    return status;
}

/* ----------------------------------------------------------------------------------------- ranking
 */

/* Mean, interval and count of what a dropped length was run on come from a ranking of all rows; its
 * rank follows those of the live ones. */
static void add_dropped(const struct dpe_race *race, const struct dpe_detect_ranking *all,
                        struct dpe_detect_ranking *ranking, int group)
{
    double sign = ranking->criterion == DPE_DETECT_RECALL ? 1.0 : -1.0;
    int n_lengths = ranking->n_lengths;
    int first = group * n_lengths;
    int32_t live = 0;
    for (int t = 0; t < n_lengths; t++) {
        live = ranking->rank[first + t] > live ? ranking->rank[first + t] : live;
    }
    for (int t = first; t < first + n_lengths; t++) {
        if (race->dropped[t] < 0) {
            continue;
        }
        int32_t rank = live + 1;
        for (int o = first; o < first + n_lengths; o++) {
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

dpe_status dpe_detect_rank_race(const struct dpe_detect_scores *scores, const struct dpe_race *race,
                                int n_groups, const int64_t *lengths, int n_lengths,
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
    status = dpe_detect_rank(scores, n_groups, lengths, n_lengths, criterion, &all, err);
    if (status == DPE_OK) {
        status = dpe_detect_rank(&live, n_groups, lengths, n_lengths, criterion, ranking, err);
    }
    for (int g = 0; g < n_groups && status == DPE_OK; g++) {
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
