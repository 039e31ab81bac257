/* From rows, laid out as cells of samples, to ranks: what the scores of a grid show, and what is
 * noise. */
#include "detect/search/ranking.h"
#include "outputs/h5/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Results must be the same whenever they are computed, so resampling has fixed sizes and seeds. */
enum { BOOTSTRAP_ROUNDS = 2000, PERMUTATIONS = 1999, STATISTICS_SEED = 1 };
static const double level = 0.95;
static const double informative_p = 0.05;

/* ---------------------------------------------------------------------------- rows to scores */

static void scores_set(struct dpe_detect_scores *scores, size_t at, const struct dpe_row *row)
{
    bool ok = row->status == DPE_ROW_OK;
    scores->status[at] = row->status;
    scores->recall[at] = ok ? row->score : (double)NAN;
    scores->at_least_half[at] = ok ? row->at_least_half : (double)NAN;
    scores->nll_sum[at] = ok ? row->nll_sum : (double)NAN;
    scores->nats[at] = ok && row->n_tokens > 0 ? row->nll_sum / (double)row->n_tokens : (double)NAN;
    scores->n_tokens[at] = row->n_tokens;
    scores->n_words[at] = row->n_words;
    scores->prompt_tokens[at] = row->prompt_tokens;
    scores->new_tokens[at] = row->new_tokens;
    scores->seed[at] = row->seed;
}

dpe_status dpe_detect_scores_init(struct dpe_detect_scores *scores, int n_cells, int64_t n_samples,
                                  struct dpe_error *err)
{
    *scores = (struct dpe_detect_scores){.n_cells = n_cells, .n_samples = n_samples, .together = 1};
    const size_t n = (size_t)n_cells * (size_t)n_samples;
    /* One room for all columns, the only one of four bytes last. */
    double *real = dpe_alloc(n, 4 * sizeof(double) + 5 * sizeof(int64_t) + sizeof(int32_t));
    DPE_TRY(
        DPE_MADE(real, err, "out of memory for %d x %lld scores", n_cells, (long long)n_samples));
    int64_t *whole = (int64_t *)(real + 4 * n);
    scores->recall = real;
    scores->at_least_half = real + n;
    scores->nll_sum = real + 2 * n;
    scores->nats = real + 3 * n;
    scores->n_tokens = whole;
    scores->n_words = whole + n;
    scores->prompt_tokens = whole + 2 * n;
    scores->new_tokens = whole + 3 * n;
    scores->seed = (uint64_t *)(whole + 4 * n);
    scores->status = (int32_t *)(whole + 5 * n);
    struct dpe_row not_run;
    dpe_row_init(&not_run);
    not_run.status = -1;
    for (size_t at = 0; at < n; at++) {
        scores_set(scores, at, &not_run);
    }
    return DPE_OK;
}

void dpe_detect_scores_free(struct dpe_detect_scores *scores)
{
    free(scores->recall);
    *scores = (struct dpe_detect_scores){0};
}

const double *dpe_detect_values(const struct dpe_detect_scores *scores,
                                enum dpe_detect_criterion criterion, int cell)
{
    return (criterion == DPE_DETECT_RECALL ? scores->recall : scores->nats) +
           (size_t)cell * (size_t)scores->n_samples;
}

dpe_status dpe_detect_collect(const struct dpe_run *run, const char *task, const char *const *keys,
                              int n_cells, int64_t first_sample, int64_t n_samples,
                              int64_t together, struct dpe_detect_scores *scores,
                              struct dpe_error *err)
{
    DPE_TRY(dpe_detect_scores_init(scores, n_cells, n_samples, err));
    scores->together = together > 1 ? together : 1;
    for (int c = 0; c < n_cells; c++) {
        for (int64_t s = 0; s < n_samples; s++) {
            const struct dpe_row *row = dpe_run_find(run, task, keys[c], first_sample + s);
            if (row != NULL) {
                scores_set(scores, (size_t)c * (size_t)n_samples + (size_t)s, row);
            }
        }
    }
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------- informative */

/* Best mean − worst mean, times n_samples. */
static double spread_of(const double *sums, int n_lengths)
{
    double low = sums[0];
    double high = sums[0];
    for (int t = 1; t < n_lengths; t++) {
        low = sums[t] < low ? sums[t] : low;
        high = sums[t] > high ? sums[t] : high;
    }
    return high - low;
}

static void shuffle(double *values, int n, struct dpe_rng *rng)
{
    for (int i = n - 1; i > 0; i--) {
        uint32_t j = dpe_rng_below(rng, (uint32_t)i + 1);
        double kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}

double dpe_detect_spread(const struct dpe_detect_common *common, int rounds, uint64_t seed)
{
    double sums[DPE_DETECT_MAX_LENGTHS] = {0};
    double one[DPE_DETECT_MAX_LENGTHS] = {0};
    const int n_cells = common->n_cells;
    const int64_t n = common->n_samples;
    if (n_cells < 2 || n_cells > DPE_DETECT_MAX_LENGTHS || n < 1) {
        return 1.0;
    }
    for (int t = 0; t < n_cells; t++) {
        for (int64_t s = 0; s < n; s++) {
            sums[t] += common->values[t * n + s];
        }
    }
    double observed = spread_of(sums, n_cells);
    if (observed <= 0.0) {
        return 1.0;
    }
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 0);
    int64_t as_large = 0;
    for (int r = 0; r < rounds; r++) {
        memset(sums, 0, sizeof sums);
        memset(one, 0, sizeof one);
        for (int64_t s = 0; s < n; s++) {
            for (int t = 0; t < n_cells; t++) {
                one[t] += common->values[t * n + s];
            }
            if (s + 1 < n &&
                common->sample[s + 1] / common->together == common->sample[s] / common->together) {
                continue;
            }
            shuffle(one, n_cells, &rng);
            for (int t = 0; t < n_cells; t++) {
                sums[t] += one[t];
                one[t] = 0.0;
            }
        }
        /* Sums of the same numbers in another order differ by rounding. */
        as_large += spread_of(sums, n_cells) >= observed * (1.0 - 1e-12);
    }
    return (double)(as_large + 1) / (double)(rounds + 1);
}

/* ------------------------------------------------------------------------------- common samples */

static void common_free(struct dpe_detect_common *common)
{
    free(common->values);
    free(common->sample);
    *common = (struct dpe_detect_common){0};
}

/* Of the cells first + which[i]. Freed by the caller, also after a failure. */
static dpe_status common_take(const struct dpe_detect_scores *scores,
                              enum dpe_detect_criterion criterion, int first, const int *which,
                              int n_cells, struct dpe_detect_common *common, struct dpe_error *err)
{
    size_t most = (size_t)scores->n_samples;
    *common = (struct dpe_detect_common){
        .n_cells = n_cells,
        .together = scores->together,
    };
    DPE_TRY(DPE_NEW(&common->values, (size_t)n_cells * most, err,
                    "out of memory for comparing %zu samples", most));
    DPE_TRY(DPE_NEW(&common->sample, most, err, "out of memory for comparing %zu samples", most));
    for (int64_t s = 0; s < scores->n_samples; s++) {
        bool all = n_cells > 0;
        for (int i = 0; i < n_cells && all; i++) {
            all = isfinite(dpe_detect_values(scores, criterion, first + which[i])[s]);
        }
        if (all) {
            common->sample[common->n_samples++] = s;
        }
    }
    for (int i = 0; i < n_cells; i++) {
        const double *values = dpe_detect_values(scores, criterion, first + which[i]);
        for (int64_t s = 0; s < common->n_samples; s++) {
            common->values[i * common->n_samples + s] = values[common->sample[s]];
        }
    }
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- ranking */

/* The lengths of one group that are compared: cell i of `common` is length `which[i]`. */
struct comparison {
    int n_lengths;
    int which[DPE_DETECT_MAX_LENGTHS];
    struct dpe_detect_common common;
    double *weights; /* [common.n_samples] of a sample in the mean: 1, or its tokens */
};

static void comparison_free(struct comparison *with)
{
    common_free(&with->common);
    free(with->weights);
}

/* Lengths with enough valid rows, and the samples valid under each of them. */
static dpe_status compare_group(const struct dpe_detect_scores *scores,
                                const struct dpe_detect_ranking *ranking, int group,
                                struct comparison *with, struct dpe_error *err)
{
    const int64_t *n_valid = ranking->n_valid + group * ranking->n_lengths;
    int64_t fullest = 0;
    for (int t = 0; t < ranking->n_lengths; t++) {
        fullest = n_valid[t] > fullest ? n_valid[t] : fullest;
    }
    for (int t = 0; t < ranking->n_lengths; t++) {
        if (n_valid[t] > 0 && 2 * n_valid[t] >= fullest) {
            with->which[with->n_lengths++] = t;
        }
    }
    int first = group * ranking->n_lengths;
    DPE_TRY(common_take(scores, ranking->criterion, first, with->which, with->n_lengths,
                        &with->common, err));
    DPE_TRY(DPE_NEW(&with->weights, (size_t)with->common.n_samples, err,
                    "out of memory for ranking %lld samples", (long long)with->common.n_samples));
    for (int64_t s = 0; s < with->common.n_samples; s++) {
        /* A book has the same tokens under every length. */
        int64_t at = (first + with->which[0]) * scores->n_samples + with->common.sample[s];
        with->weights[s] =
            ranking->criterion == DPE_DETECT_RECALL ? 1.0 : (double)scores->n_tokens[at];
    }
    return DPE_OK;
}

/* Smaller is better. Recall is rounded first, so that shares such as 1/3 + 2/3 tie with 1. */
static double badness(const struct dpe_detect_scores *scores, const struct comparison *with,
                      int cell, enum dpe_detect_criterion criterion)
{
    double sum = 0.0;
    double weight = 0.0;
    for (int64_t s = 0; s < with->common.n_samples; s++) {
        const double value = dpe_detect_values(scores, criterion, cell)[with->common.sample[s]];
        sum += with->weights[s] * (criterion == DPE_DETECT_RECALL ? value : -value);
        weight += with->weights[s];
    }
    double mean = sum / weight;
    return criterion == DPE_DETECT_RECALL ? -round(mean * 1e9) : -mean;
}

static void rank_group(const struct dpe_detect_scores *scores, const struct comparison *with,
                       const int64_t *lengths, struct dpe_detect_ranking *ranking, int group)
{
    double bad[DPE_DETECT_MAX_LENGTHS];
    int32_t *rank = ranking->rank + group * ranking->n_lengths;
    for (int i = 0; i < with->n_lengths; i++) {
        bad[i] =
            badness(scores, with, group * ranking->n_lengths + with->which[i], ranking->criterion);
    }
    for (int i = 0; i < with->n_lengths; i++) {
        int better = 0;
        for (int k = 0; k < with->n_lengths; k++) {
            bool longer = lengths[with->which[k]] > lengths[with->which[i]];
            better += bad[k] < bad[i] || (bad[k] == bad[i] && longer);
        }
        rank[with->which[i]] = better + 1;
        if (better == 0) {
            ranking->effective[group] = lengths[with->which[i]];
        }
    }
    ranking->p_value[group] =
        dpe_detect_spread(&with->common, PERMUTATIONS, STATISTICS_SEED + (uint64_t)group);
    ranking->informative[group] = ranking->p_value[group] < informative_p;
}

struct dpe_interval dpe_detect_interval(const struct dpe_detect_scores *scores, int cell,
                                        enum dpe_detect_criterion criterion)
{
    size_t at = (size_t)cell * (size_t)scores->n_samples;
    size_t n = (size_t)scores->n_samples;
    if (criterion == DPE_DETECT_RECALL) {
        const struct dpe_resampling how = {scores->together, level, BOOTSTRAP_ROUNDS,
                                           STATISTICS_SEED};
        return dpe_bootstrap_share(scores->recall + at, n, &how);
    }
    return dpe_perplexity(scores->nll_sum + at, scores->n_tokens + at, n, level);
}

static dpe_status ranking_init(struct dpe_detect_ranking *ranking, int n_groups, int n_lengths,
                               enum dpe_detect_criterion criterion, struct dpe_error *err)
{
    *ranking = (struct dpe_detect_ranking){
        .criterion = criterion, .n_groups = n_groups, .n_lengths = n_lengths};
    size_t groups = (size_t)n_groups;
    size_t cells = groups * (size_t)n_lengths;
    /* One room for all columns, the wide ones first. */
    double *real = dpe_alloc_zero(1, cells * (4 * sizeof(double) + sizeof(int32_t)) +
                                         groups * (2 * sizeof(double) + sizeof(uint8_t)));
    DPE_TRY(DPE_MADE(real, err, "out of memory for ranking %zu cells", cells));
    ranking->mean = real;
    ranking->low = real + cells;
    ranking->high = real + 2 * cells;
    ranking->p_value = real + 3 * cells;
    ranking->n_valid = (int64_t *)(ranking->p_value + groups);
    ranking->effective = ranking->n_valid + cells;
    ranking->rank = (int32_t *)(ranking->effective + groups);
    ranking->informative = (uint8_t *)(ranking->rank + cells);
    for (size_t i = 0; i < cells; i++) {
        ranking->rank[i] = -1;
    }
    for (size_t g = 0; g < groups; g++) {
        ranking->effective[g] = -1;
        ranking->p_value[g] = NAN;
    }
    return DPE_OK;
}

dpe_status dpe_detect_rank(const struct dpe_detect_scores *scores, int n_groups,
                           const int64_t *lengths, int n_lengths,
                           enum dpe_detect_criterion criterion, struct dpe_detect_ranking *ranking,
                           struct dpe_error *err)
{
    *ranking = (struct dpe_detect_ranking){0};
    DPE_SCOPED(dpe_detect_ranking_free) struct dpe_detect_ranking made = {0};
    DPE_TRY(ranking_init(&made, n_groups, n_lengths, criterion, err));
    for (int c = 0; c < scores->n_cells; c++) {
        struct dpe_interval interval = dpe_detect_interval(scores, c, criterion);
        made.mean[c] = interval.mean;
        made.low[c] = interval.low;
        made.high[c] = interval.high;
        made.n_valid[c] = interval.n;
    }
    for (int g = 0; g < n_groups; g++) {
        DPE_SCOPED(comparison_free) struct comparison with = {0};
        DPE_TRY(compare_group(scores, &made, g, &with, err));
        if (with.common.n_samples > 0) {
            rank_group(scores, &with, lengths, &made, g);
        }
    }
    *ranking = made;
    made = (struct dpe_detect_ranking){0};
    return DPE_OK;
}

int dpe_detect_ranked(const struct dpe_detect_ranking *ranking, int group, int rank)
{
    for (int t = 0; t < ranking->n_lengths; t++) {
        if (ranking->rank[group * ranking->n_lengths + t] == rank) {
            return t;
        }
    }
    return -1;
}

void dpe_detect_ranking_free(struct dpe_detect_ranking *ranking)
{
    free(ranking->mean);
    *ranking = (struct dpe_detect_ranking){0};
}
