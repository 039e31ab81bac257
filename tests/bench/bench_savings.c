/* What the savings of dpe-detect cost in quality, from the rows of finished sweeps.
 *
 *   bench_savings SWEEP.h5 [OTHER.h5[+OTHER.h5…] …]
 *
 * SWEEP is a full sweep (no race). 200 sweeps are resampled from its rows, samples drawn with
 * replacement. Race: how often it keeps the first rank of the same resampled sweep without a race,
 * what recall its other choices lose (by the means over all rows), and how many rows it runs, for
 * some levels and indifferences. Two sweeps: how often two resampled ones agree on a group's first
 * rank; the same between a resampled SWEEP and a resampled OTHER, a sweep of the same grid with
 * other samples (--haystack shared, --keys-per-context), with and without a race. OTHER is
 * resampled in blocks of samples that share a context. With an OTHER the first table is left out.
 * The tokens of the naive loop are those of every cell of SWEEP, also of cells with the same plan.
 * stdout: Markdown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect/report/report.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"

enum { SWEEPS = 200, PER_ROUND = 4 };

struct sweep {
    struct dpe_detect_scores scores;
    int n_groups, n_lengths, base;
    int64_t block; /* samples that share a context: they are drawn together */
    int64_t *lengths;
    int *config; /* [cells] cells of one plan share a number */
    int n_configs;
    double *mean; /* [cells] over all rows: the truth of a resampled world */
    double naive; /* tokens of all prompts of all cells, which the naive loop reads */
    double read;  /* tokens that the sweep read, its validation left out; NaN: not known */
};

static void fail(const struct dpe_error *err, const char *path)
{
    fprintf(stderr, "%s: %s\n", path, err->text);
    exit(1);
}

static void number_plans(struct sweep *sweep, char **plans, size_t n)
{
    sweep->config = malloc(n * sizeof *sweep->config);
    for (size_t c = 0; c < n; c++) {
        sweep->config[c] = -1;
        for (size_t o = 0; o < c && sweep->config[c] < 0; o++) {
            sweep->config[c] = strcmp(plans[o], plans[c]) == 0 ? sweep->config[o] : -1;
        }
        sweep->config[c] = sweep->config[c] < 0 ? sweep->n_configs++ : sweep->config[c];
    }
}

/* The validation's rows read as much as the sweep's: its share is that of its rows. The table
 * holds what its last session read, so the tokens of a resumed run are unknown. */
static double tokens_read(struct dpe_h5 *table, double sweep_rows, const char *path)
{
    struct dpe_error err = {0};
    int64_t all = 0;
    void *task = NULL;
    void *sessions = NULL;
    int rank = 0;
    int64_t rows[5] = {0};
    int64_t n_sessions[5] = {0};
    if (dpe_h5_get_attr_i64(table, "/run", "tokens_read", &all, &err) != DPE_OK ||
        dpe_h5_get(table, "/rows/task", DPE_COL_I32, &task, &rank, rows, &err) != DPE_OK ||
        dpe_h5_get(table, "/run/session", DPE_COL_I64, &sessions, &rank, n_sessions, &err) !=
            DPE_OK) {
        fail(&err, path);
    }
    free(task);
    free(sessions);
    return n_sessions[0] == 1 ? (double)all * sweep_rows / (double)rows[0] : nan("");
}

static void print_saving(double rows, double saving)
{
    printf(" %.3f | ", rows);
    if (isnan(saving)) {
        printf("not known |\n");
    } else {
        printf("%.2f |\n", saving);
    }
    fflush(stdout);
}

static double sum_of(struct dpe_h5 *table, const char *dataset, const char *path)
{
    struct dpe_error err = {0};
    void *values = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    double sum = 0.0;
    if (dpe_h5_get(table, dataset, DPE_COL_I64, &values, &rank, dims, &err) != DPE_OK) {
        fail(&err, path);
    }
    for (int64_t i = 0; i < dims[0] * dims[1] * dims[2]; i++) {
        sum += (double)((int64_t *)values)[i];
    }
    free(values);
    return sum;
}

static struct sweep read_sweep(const char *path)
{
    struct sweep sweep = {0};
    struct dpe_error err = {0};
    struct dpe_h5 *table = NULL;
    void *recall = NULL;
    void *lengths = NULL;
    char **plans = NULL;
    int rank = 0;
    size_t n = 0;
    int64_t dims[5] = {0};
    int64_t one[5] = {0};
    if (dpe_h5_open(path, &table, &err) != DPE_OK ||
        dpe_h5_get(table, "/detect/niah/recall", DPE_COL_F64, &recall, &rank, dims, &err) !=
            DPE_OK ||
        dpe_h5_get(table, "/length", DPE_COL_I64, &lengths, &rank, one, &err) != DPE_OK ||
        dpe_h5_get_strings(table, "/detect/plan", &plans, &n, &err) != DPE_OK ||
        dpe_h5_get_attr_i64(table, "/detect/niah", "samples_together", &sweep.block, &err) !=
            DPE_OK ||
        dpe_detect_scores_init(&sweep.scores, (int)(dims[0] * dims[1]), dims[2], &err) != DPE_OK) {
        fail(&err, path);
    }
    sweep.n_groups = (int)dims[0];
    sweep.n_lengths = (int)dims[1];
    sweep.lengths = lengths;
    sweep.base = -1;
    sweep.mean = calloc(n, sizeof *sweep.mean);
    number_plans(&sweep, plans, n);
    for (int t = 1; t < sweep.n_lengths; t++) { /* L0/2: the length whose plan all groups share */
        if (sweep.config[t] == sweep.config[sweep.n_lengths + t]) {
            sweep.base = t;
        }
    }
    for (size_t i = 0; i < n * (size_t)dims[2]; i++) {
        sweep.scores.recall[i] = ((double *)recall)[i];
        sweep.scores.status[i] = DPE_ROW_OK;
        sweep.mean[i / (size_t)dims[2]] += sweep.scores.recall[i] / (double)dims[2];
    }
    sweep.naive = sum_of(table, "/detect/niah/prompt_tokens", path);
    sweep.read = tokens_read(table, (double)sweep.n_configs * (double)dims[2], path);
    free(recall);
    dpe_strings_free(plans, n);
    dpe_h5_close(table);
    return sweep;
}

/* Sweeps of one grid, "a.h5+b.h5+…", as one with all their samples. */
static struct sweep read_sweeps(const char *paths)
{
    char *copy = strdup(paths);
    char *rest = copy;
    struct sweep all = {0};
    for (char *path = strtok_r(copy, "+", &rest); path != NULL; path = strtok_r(NULL, "+", &rest)) {
        struct sweep one = read_sweep(path);
        struct sweep joined = one;
        struct dpe_error err = {0};
        if (all.scores.n_cells > 0 && all.scores.n_cells != one.scores.n_cells) {
            fprintf(stderr, "%s: another grid\n", path);
            exit(65);
        }
        if (all.scores.n_cells > 0 &&
            (all.block != one.block || all.scores.n_samples % all.block != 0)) {
            fprintf(stderr, "%s: contexts of another size, or one that is cut before\n", path);
            exit(65);
        }
        int64_t before = all.scores.n_samples;
        int64_t n = before + one.scores.n_samples;
        if (dpe_detect_scores_init(&joined.scores, one.scores.n_cells, n, &err) != DPE_OK) {
            fail(&err, path);
        }
        for (int64_t i = 0; i < one.scores.n_cells * n; i++) {
            int64_t cell = i / n;
            int64_t s = i % n;
            joined.scores.status[i] = DPE_ROW_OK;
            joined.scores.recall[i] =
                s < before ? all.scores.recall[cell * before + s]
                           : one.scores.recall[cell * one.scores.n_samples + s - before];
        }
        dpe_detect_scores_free(&all.scores);
        dpe_detect_scores_free(&one.scores);
        joined.naive += all.naive;
        joined.read += all.read;
        all = joined;
    }
    free(copy);
    return all;
}

/* Whole blocks of samples with replacement, the same for all cells. */
static void resample(const struct sweep *sweep, uint64_t stream, struct dpe_detect_scores *to)
{
    struct dpe_error err = {0};
    struct dpe_rng rng;
    int64_t n = sweep->scores.n_samples;
    int64_t blocks = n / sweep->block;
    if (dpe_detect_scores_init(to, sweep->scores.n_cells, blocks * sweep->block, &err) != DPE_OK) {
        fail(&err, "resampling");
    }
    to->together = sweep->block;
    dpe_rng_seed(&rng, 20261121, stream);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t drawn = dpe_rng_below(&rng, (uint32_t)blocks);
        for (int64_t s = 0; s < sweep->block; s++) {
            for (int c = 0; c < to->n_cells; c++) {
                int64_t at = c * to->n_samples + b * sweep->block + s;
                to->recall[at] = sweep->scores.recall[c * n + drawn * sweep->block + s];
                to->status[at] = DPE_ROW_OK;
            }
        }
    }
}

/* First rank of each group by mean, ties to the larger length: what dpe_detect_rank gives for
 * complete rows, without its intervals. */
static void first_ranks(const struct sweep *sweep, const struct dpe_detect_scores *scores,
                        const int64_t *dropped, int *best)
{
    for (int g = 0; g < sweep->n_groups; g++) {
        double most = -INFINITY;
        for (int t = 0; t < sweep->n_lengths; t++) {
            int c = g * sweep->n_lengths + t;
            double sum = 0.0;
            for (int64_t s = 0; s < scores->n_samples; s++) {
                sum += scores->recall[c * scores->n_samples + s];
            }
            sum = round(sum / (double)scores->n_samples * 1e9);
            if ((dropped == NULL || dropped[c] < 0) && sum >= most) {
                most = sum;
                best[g] = t;
            }
        }
    }
}

/* Rows of a race over those of distinct configurations without one. */
static double rows_run(const struct sweep *sweep, const struct dpe_race *race, int64_t n)
{
    int64_t *until = calloc((size_t)sweep->n_configs, sizeof *until);
    int64_t rows = 0;
    for (int c = 0; c < sweep->n_groups * sweep->n_lengths; c++) {
        int64_t last = race->dropped[c] < 0 ? n : race->dropped[c];
        until[sweep->config[c]] = last > until[sweep->config[c]] ? last : until[sweep->config[c]];
    }
    for (int c = 0; c < sweep->n_configs; c++) {
        rows += until[c];
    }
    free(until);
    return (double)rows / (double)(sweep->n_configs * n);
}

struct agreement {
    int64_t same, all;
    double lost; /* recall, of the second choice against the first, all rows */
};

static void compare(const struct sweep *sweep, const int *a, const int *b,
                    struct agreement *agreement)
{
    for (int g = 0; g < sweep->n_groups; g++) {
        const double *mean = sweep->mean + g * sweep->n_lengths;
        agreement->all++;
        agreement->same += a[g] == b[g];
        agreement->lost += mean[a[g]] - mean[b[g]];
    }
}

static void print_agreement(const char *what, const struct agreement *a)
{
    printf("| %s | %.1f %% | %+.4f |", what, 100.0 * (double)a->same / (double)a->all,
           a->lost / (double)a->all);
}

static void bench_race(const struct sweep *sweep, double level, double indifference)
{
    struct agreement agreement = {0};
    struct dpe_error err = {0};
    double rows = 0.0;
    int *full = malloc(sizeof *full * (size_t)sweep->n_groups);
    int *raced = malloc(sizeof *raced * (size_t)sweep->n_groups);
    for (uint64_t i = 0; i < SWEEPS; i++) {
        struct dpe_detect_scores scores;
        struct dpe_race race;
        const struct dpe_race_options options = {
            .per_round = sweep->block > PER_ROUND ? sweep->block : PER_ROUND,
            .level = level,
            .indifference = indifference};
        resample(sweep, i, &scores);
        if (dpe_detect_race_replay(&options, &scores, sweep->n_groups, sweep->n_lengths,
                                   sweep->base, DPE_DETECT_RECALL, &race, &err) != DPE_OK) {
            fail(&err, "race");
        }
        first_ranks(sweep, &scores, NULL, full);
        first_ranks(sweep, &scores, race.dropped, raced);
        compare(sweep, full, raced, &agreement);
        rows += rows_run(sweep, &race, scores.n_samples) / SWEEPS;
        dpe_race_free(&race);
        dpe_detect_scores_free(&scores);
    }
    char what[64];
    snprintf(what, sizeof what, "race, level %g, indifference %g", level, indifference);
    print_agreement(what, &agreement);
    double distinct = (double)sweep->n_configs / (double)(sweep->n_groups * sweep->n_lengths);
    print_saving(rows, 1.0 / (rows * distinct));
    free(full);
    free(raced);
}

/* A resampled naive sweep and a resampled other one; level > 0: the other one is a race. */
static void bench_pairs(const struct sweep *naive, const struct sweep *other, const char *name,
                        double level)
{
    struct agreement agreement = {0};
    struct dpe_error err = {0};
    double rows = 0.0;
    int *a = malloc(sizeof *a * (size_t)naive->n_groups);
    int *b = malloc(sizeof *b * (size_t)naive->n_groups);
    for (uint64_t i = 0; i < SWEEPS; i++) {
        struct dpe_detect_scores first;
        struct dpe_detect_scores second;
        struct dpe_race race = {0};
        int64_t round = other->block > PER_ROUND ? other->block : PER_ROUND;
        const struct dpe_race_options options = {.per_round = round,
                                                 .level = level > 0.0 ? level : 0.05};
        resample(naive, 1000 + i, &first);
        resample(other, 2000 + i, &second);
        if (level > 0.0 &&
            dpe_detect_race_replay(&options, &second, other->n_groups, other->n_lengths,
                                   other->base, DPE_DETECT_RECALL, &race, &err) != DPE_OK) {
            fail(&err, "race");
        }
        first_ranks(naive, &first, NULL, a);
        first_ranks(other, &second, race.dropped, b);
        compare(naive, a, b, &agreement);
        rows += level > 0.0 ? rows_run(other, &race, second.n_samples) / SWEEPS : 1.0 / SWEEPS;
        dpe_race_free(&race);
        dpe_detect_scores_free(&first);
        dpe_detect_scores_free(&second);
    }
    print_agreement(name, &agreement);
    print_saving(rows, naive->naive / (other->read * rows));
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_savings SWEEP.h5 [OTHER.h5 ...]\n");
        return 64;
    }
    struct sweep naive = read_sweep(argv[1]);
    printf("%d groups x %d lengths, %d configurations, %lld samples, %d resampled sweeps\n\n",
           naive.n_groups, naive.n_lengths, naive.n_configs, (long long)naive.scores.n_samples,
           SWEEPS);
    printf(
        "| | same first rank | recall lost by the choice | rows run | prompt tokens, naive loop / "
        "this |\n|---|---|---|---|---|\n");
    const double levels[] = {0.005, 0.02, 0.05};
    const double indifferences[] = {0.0, 0.02};
    for (size_t i = 0; argc == 2 && i < sizeof levels / sizeof levels[0]; i++) {
        for (size_t j = 0; j < sizeof indifferences / sizeof indifferences[0]; j++) {
            bench_race(&naive, levels[i], indifferences[j]);
        }
    }
    bench_pairs(&naive, &naive, "two naive sweeps", 0.0);
    for (int i = 2; i < argc; i++) {
        struct sweep other = read_sweeps(argv[i]);
        if (other.scores.n_cells != naive.scores.n_cells) {
            fprintf(stderr, "%s: another grid\n", argv[i]);
            return 65;
        }
        char name[512];
        snprintf(name, sizeof name, "%.480s, %lld samples", argv[i],
                 (long long)other.scores.n_samples);
        bench_pairs(&naive, &other, name, 0.0);
        bench_pairs(&naive, &other, "the same, race at level 0.05", 0.05);
    }
    return 0;
}
