/* Racing: what can no longer be the best of its group is not run any further. */
#include "eval/task/race.h"

#include <math.h>
#include <stdlib.h>

#include "eval/task/stats.h"

enum { FLIPS = 999, STATISTICS_SEED = 1 };

void dpe_race_free(struct dpe_race *race)
{
    free(race->dropped);
    free(race->drops);
    *race = (struct dpe_race){0};
}

static double goodness(const struct dpe_race_rows *rows, int arm, int64_t sample)
{
    return rows->goodness[arm * rows->n_samples + sample];
}

double dpe_race_mean(const struct dpe_race_rows *rows, int arm, int64_t n)
{
    double sum = 0.0;
    int64_t valid = 0;
    for (int64_t s = 0; s < n; s++) {
        double value = goodness(rows, arm, s);
        sum += isfinite(value) ? value : 0.0;
        valid += isfinite(value);
    }
    return valid > 0 ? sum / (double)valid : (double)-INFINITY;
}

/* One look at the rows of a race. */
struct look {
    const struct dpe_race_options *options;
    const struct dpe_race_rows *rows;
    struct dpe_race *race;
    double *a, *b; /* [n_samples] */
};

static bool round_is_there(const struct look *look, int64_t first, int64_t last)
{
    const struct dpe_race_rows *rows = look->rows;
    for (int arm = 0; arm < rows->n_arms; arm++) {
        for (int64_t s = first; s < last && look->race->dropped[arm] < 0; s++) {
            if (rows->there[arm * rows->n_samples + s] == 0) {
                return false;
            }
        }
    }
    return true;
}

static int find_leader(const struct look *look, int group, int64_t n)
{
    int leader = -1;
    double best = -INFINITY;
    for (int arm = 0; arm < look->rows->n_arms; arm++) {
        if (look->rows->group[arm] != group || look->race->dropped[arm] >= 0) {
            continue;
        }
        double mean = dpe_race_mean(look->rows, arm, n);
        if (mean >= best - 1e-9) {
            leader = arm;
            best = fmax(best, mean);
        }
    }
    return leader;
}

static void test_arm(const struct look *look, int arm, int leader, int64_t n)
{
    double sum = 0.0;
    int64_t pairs = 0;
    for (int64_t s = 0; s < n; s++) {
        look->a[s] = goodness(look->rows, leader, s) + look->options->indifference;
        look->b[s] = goodness(look->rows, arm, s);
        if (isfinite(look->a[s]) && isfinite(look->b[s])) {
            sum += look->a[s] - look->b[s];
            pairs++;
        }
    }
    if (!(sum > 0.0)) {
        return;
    }
    const struct dpe_resampling how = {
        .together = look->rows->together, .rounds = FLIPS, .seed = STATISTICS_SEED + (uint64_t)arm};
    double p = 0.5 * dpe_sign_flip(look->a, look->b, (size_t)n, &how);
    if (p < look->options->level) {
        struct dpe_race *race = look->race;
        race->dropped[arm] = n;
        race->drops[race->n_drops++] = (struct dpe_race_drop){
            .arm = arm,
            .leader = leader,
            .samples = n,
            .difference = sum / (double)pairs - look->options->indifference,
            .p = p,
        };
    }
}

static void decide(const struct look *look, int64_t n)
{
    const struct dpe_race_rows *rows = look->rows;
    for (int g = 0; g < rows->n_groups; g++) {
        int leader = find_leader(look, g, n);
        for (int arm = 0; arm < rows->n_arms; arm++) {
            bool kept = rows->keep != NULL && rows->keep[arm] != 0;
            if (rows->group[arm] == g && look->race->dropped[arm] < 0 && arm != leader && !kept) {
                test_arm(look, arm, leader, n);
            }
        }
    }
}

/* Whether a race with a limit is over. */
static bool is_over(const struct look *look)
{
    const struct dpe_race *race = look->race;
    int64_t live = 0;
    int64_t rows = 0;
    for (int arm = 0; arm < look->rows->n_arms; arm++) {
        live += race->dropped[arm] < 0;
        rows += race->dropped[arm] < 0 ? race->samples : race->dropped[arm];
    }
    return look->options->most_rows > 0 &&
           (live <= look->rows->n_groups ||
            rows + live * look->options->per_round > look->options->most_rows);
}

dpe_status dpe_race_replay(const struct dpe_race_options *options, const struct dpe_race_rows *rows,
                           struct dpe_race *race, struct dpe_error *err)
{
    *race = (struct dpe_race){0};
    if (options->per_round < 1 || !(options->level > 0.0 && options->level < 0.5) ||
        !(options->indifference >= 0.0)) {
        return dpe_fail(err, DPE_USAGE,
                        "race: expected a level between 0 and 0.5 and an indifference from 0 on, "
                        "found %g and %g",
                        options->level, options->indifference);
    }
    size_t n_arms = (size_t)rows->n_arms;
    DPE_SCOPED(dpe_race_free) struct dpe_race made = {.complete = true};
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&made.dropped, n_arms, err, "out of memory for a race of %zu cells", n_arms));
    DPE_TRY(DPE_NEW(&made.drops, n_arms, err, "out of memory for a race of %zu cells", n_arms));
    DPE_TRY(DPE_NEW(&values, 2 * (size_t)rows->n_samples, err,
                    "out of memory for a race of %zu cells", n_arms));
    struct look look = {options, rows, &made, values, values + rows->n_samples};
    for (size_t arm = 0; arm < n_arms; arm++) {
        made.dropped[arm] = -1;
    }
    while (made.samples < rows->n_samples && made.complete && !is_over(&look)) {
        const int64_t last = dpe_least(made.samples + options->per_round, rows->n_samples);
        made.complete = round_is_there(&look, made.samples, last);
        if (made.complete) {
            made.samples = last;
        }
        if (made.complete && last < rows->n_samples) {
            decide(&look, last);
        }
    }
    *race = made;
    made = (struct dpe_race){0};
    return DPE_OK;
}
