/* A step of the search: the plan so far on all samples, its changes by halving, the guard and the
 * test. */
#include "detect/search/search.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_CONTEXTS = 4,
    LEAST_SHARED = 2,
    SEVERAL = 4,
    FLIPS = 4999,
    BOOTSTRAP_ROUNDS = 2000,
    STATISTICS_SEED = 1
};
static const double tie = DPE_DETECT_TIE;

/* -------------------------------------------------------------------------------------- halving */

/* Samples that the changes of a step are first run on: of one or two contexts they would say
 * little, unless several questions share each. */
static int64_t first_samples(const struct dpe_detect_search_options *options)
{
    int64_t eighth = (options->n_samples + 7) / 8;
    int64_t contexts = options->together >= SEVERAL ? LEAST_SHARED : LEAST_CONTEXTS;
    int64_t least = contexts * options->together;
    int64_t first = dpe_detect_round_up(eighth > least ? eighth : least, options->per_round);
    return first < options->n_samples ? first : options->n_samples;
}

static int64_t more_samples(const struct dpe_detect_search_options *options, int64_t samples)
{
    return 2 * samples < options->n_samples ? 2 * samples : options->n_samples;
}

static int left_of(int n)
{
    return (n + 2) / 3;
}

int64_t dpe_detect_halving_rows(const struct dpe_detect_search_options *options, int n)
{
    int64_t samples = first_samples(options);
    int64_t rows = n * samples;
    while (samples < options->n_samples) {
        int64_t more = more_samples(options, samples);
        n = left_of(n);
        rows += n * (more - samples);
        samples = more;
    }
    return rows;
}

/* With the guard's texts under the first plan and the third that is left, or all where no sample is
 * left to halve for. */
static int64_t step_rows(const struct dpe_detect_search_options *options, int n)
{
    const int read = first_samples(options) < options->n_samples ? left_of(n) : n;
    return dpe_detect_halving_rows(options, n) + options->texts * (1 + read);
}

int64_t dpe_detect_search_most_rows(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_params *params)
{
    enum { TEMPERATURES = 13, NEARER = 7, NEIGHBOURS = 7, DEPTHS = 6, WINDOWS = 3 };
    enum { USUAL = 4, COARSE = 5 /* windows and lengths under each */ };
    const bool near = options->near.logit_scale > 0.0;
    const bool coarse = dpe_detect_is_coarse(options, params);
    const int temperatures = near ? NEARER : TEMPERATURES;
    int groups = params->n_groups;
    groups = groups < DPE_DETECT_MOST_CANDIDATES ? groups : DPE_DETECT_MOST_CANDIDATES - 1;
    int cuts = groups - 1 < DPE_DETECT_MOST_CUTS ? groups - 1 : DPE_DETECT_MOST_CUTS;
    int64_t rows = options->n_samples; /* of the first plan; later ones have theirs */
    if (coarse) {
        rows += step_rows(options, COARSE * (options->temperature ? USUAL + near : 1));
    } else if (options->temperature) {
        rows += step_rows(options, temperatures);
    }
    for (int round = 0; round < options->rounds && options->joint; round++) {
        rows += step_rows(options, params->n_lengths + 2);
        rows += params->frequencies ? 0 : step_rows(options, WINDOWS);
        rows += step_rows(options, groups);
        rows += step_rows(options, 2 * cuts);
        rows += params->n_fewer > 0 ? step_rows(options, params->n_fewer) : 0;
        int depths = round > 0 && !params->frequencies ? DEPTHS : 0;
        const int grid = round == 0 && coarse ? temperatures : 0;
        rows += options->temperature ? step_rows(options, NEIGHBOURS + depths + grid) : 0;
    }
    if (options->families != 0 && options->joint) {
        enum { AROUND = 3, RAMPS = 6, WINDOWED = NEIGHBOURS + WINDOWS };
        rows += 2 * options->n_samples; /* of yarn, and of the best other method */
        rows += dpe_detect_halving_rows(options, 3 * (DPE_DETECT_PLAIN_FAMILIES + 1) - 1);
        rows += (DPE_DETECT_PLAIN_ROUNDS - 1) * dpe_detect_halving_rows(options, AROUND + RAMPS);
        rows += step_rows(options, 4 * (DPE_DETECT_FAMILIES - DPE_DETECT_PLAIN_FAMILIES));
        rows += step_rows(options, WINDOWED);
    }
    return rows;
}

/* --------------------------------------------------------------------------------------- a step */

/* A step at work. */
struct trial {
    const struct dpe_detect_search_options *options;
    const struct dpe_detect_source *source;
    struct dpe_detect_step *step;
    bool guarded;
    const struct dpe_detect_scores *scores; /* [step->n] */
    bool live[DPE_DETECT_MOST_CANDIDATES];
    int64_t run[DPE_DETECT_MOST_CANDIDATES]; /* samples that each is run on */
};

/* What a row measured, and what a choice goes by. Larger = better; NaN where there is none, or none
 * that counts. */
typedef double of_row(const struct trial *trial, int cell, int64_t sample);

static double measured(const struct trial *trial, int cell, int64_t sample)
{
    const enum dpe_detect_criterion criterion = trial->options->criterion;
    const size_t at = (size_t)cell * (size_t)trial->scores->n_samples + (size_t)sample;
    const double sign = criterion == DPE_DETECT_RECALL ? 1.0 : -1.0;
    return sample < trial->run[cell] ? sign * dpe_detect_value(trial->scores, criterion, at)
                                     : (double)NAN;
}

static double goodness(const struct trial *trial, int cell, int64_t sample)
{
    const size_t at = (size_t)cell * (size_t)trial->scores->n_samples + (size_t)sample;
    return sample < trial->run[cell]
               ? dpe_detect_goodness(trial->scores, trial->options->criterion, at)
               : (double)NAN;
}

static bool has_rows(const struct trial *trial, int cell, int64_t samples)
{
    const int32_t *status = trial->scores->status + (size_t)cell * (size_t)trial->scores->n_samples;
    for (int64_t s = 0; s < samples; s++) {
        if (status[s] < 0) {
            return false;
        }
    }
    return true;
}

/* Mean paired improvement over the step's first plan; *pairs of samples valid under both. */
static double gain_of(const struct trial *trial, of_row *of, int cell, int64_t *pairs)
{
    double sum = 0.0;
    *pairs = 0;
    for (int64_t s = 0; s < trial->run[cell]; s++) {
        double gain = of(trial, cell, s) - of(trial, 0, s);
        if (isfinite(gain)) {
            sum += gain;
            (*pairs)++;
        }
    }
    return *pairs > 0 ? sum / (double)*pairs : (double)NAN;
}

/* No test can show an improvement where the first plan loses something in too few contexts: all of
 * them gained has p = 2^-contexts. */
static bool can_be_shown(const struct trial *trial)
{
    const int64_t together = trial->options->together;
    const int64_t n = trial->options->n_samples;
    bool recall = trial->options->criterion == DPE_DETECT_RECALL;
    double least_p = 1.0;
    for (int64_t first = 0; first < n && least_p >= DPE_DETECT_SEARCH_LEVEL; first += together) {
        bool loses = false;
        for (int64_t s = first; s < n && s < first + together; s++) {
            double value = measured(trial, 0, s);
            loses = loses || (recall ? value < 1.0 - tie : isfinite(value));
        }
        least_p *= loses ? 0.5 : 1.0;
    }
    return least_p < DPE_DETECT_SEARCH_LEVEL;
}

/* Ask for the rows of what is live, below `samples`; false when they are all there. */
static bool want(struct trial *trial, int64_t samples, struct dpe_detect_search *search)
{
    bool missing = false;
    for (int i = 0; i < trial->step->n; i++) {
        bool wanted = trial->live[i] && !has_rows(trial, i, samples);
        trial->step->tried[i].wanted = wanted;
        if (trial->live[i] && samples > trial->step->tried[i].asked) {
            trial->step->tried[i].asked = samples;
        }
        missing = missing || wanted;
    }
    search->wanted = missing ? samples : 0;
    return missing;
}

/* Keep the better third of the changes by their gains so far; ties go to the earlier one. */
static void halve(struct trial *trial)
{
    double gain[DPE_DETECT_MOST_CANDIDATES];
    int n = 0;
    for (int i = 1; i < trial->step->n; i++) {
        int64_t pairs = 0;
        gain[i] = gain_of(trial, goodness, i, &pairs);
        gain[i] = 2 * pairs >= trial->run[i] ? gain[i] : (double)-INFINITY;
        n += trial->live[i];
    }
    for (int drop = n - left_of(n); drop > 0; drop--) {
        int worst = 0;
        for (int i = 1; i < trial->step->n; i++) {
            if (trial->live[i] && (worst == 0 || gain[i] <= gain[worst] + tie)) {
                worst = i;
            }
        }
        trial->live[worst] = false;
    }
}

/* ------------------------------------------------------------------------------------- the test */

/* Perplexity is held against the best of the changes that find more than the first plan. Where none
 * does, plans that predict the texts are within, and without a guard, or texts that one predicts,
 * all. */
static double guard_limit(const struct trial *trial)
{
    double least = INFINITY;
    bool predicted = false;
    for (int i = 0; i < trial->step->n; i++) {
        const struct dpe_detect_tried *tried = &trial->step->tried[i];
        int64_t pairs = 0;
        if (trial->live[i] && isfinite(tried->nll)) {
            predicted = true;
            least = i > 0 && gain_of(trial, measured, i, &pairs) > tie ? fmin(least, tried->nll)
                                                                       : least;
        }
    }
    return isfinite(least) ? least + log1p(trial->options->guard) + tie
           : predicted     ? DBL_MAX
                           : (double)INFINITY;
}

static bool is_within(const struct dpe_detect_tried *tried, double limit)
{
    return isnan(tried->nll) || tried->nll <= limit;
}

/* The best of what was run on all samples and is within the guard. */
static void find_best(const struct trial *trial)
{
    struct dpe_detect_step *step = trial->step;
    const double limit = guard_limit(trial);
    double most = tie;
    step->best = -1;
    for (int i = 1; i < step->n; i++) {
        int64_t pairs = 0;
        double gain = gain_of(trial, goodness, i, &pairs);
        if (trial->live[i] && 2 * pairs >= trial->run[i] && is_within(&step->tried[i], limit) &&
            gain > most + tie) {
            step->best = i;
            most = gain;
        }
    }
    step->guarded = step->best > 0 && !is_within(&step->tried[0], limit);
}

/* The best, and whether it is better than the first plan. */
static dpe_status choose(struct trial *trial, struct dpe_error *err)
{
    struct dpe_detect_step *step = trial->step;
    find_best(trial);
    if (step->best < 0) {
        return DPE_OK;
    }
    size_t n = (size_t)trial->options->n_samples;
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&values, 2 * n, err, "out of memory for a test of %zu samples", n));
    for (size_t s = 0; s < n; s++) {
        values[s] = measured(trial, step->best, (int64_t)s);
        values[n + s] = measured(trial, 0, (int64_t)s);
    }
    const struct dpe_resampling how = {
        .together = trial->options->together, .rounds = FLIPS, .seed = STATISTICS_SEED};
    /* One-sided: the gain is positive. */
    step->p = 0.5 * dpe_sign_flip(values, values + n, n, &how);
    const bool untested = dpe_detect_step_picks(step) || trial->options->brief || step->guarded;
    step->chosen = step->p < DPE_DETECT_SEARCH_LEVEL || untested ? step->best : 0;
    return DPE_OK;
}

/* What the step shows of each plan; intervals of so many resamples, 0: means alone. */
static dpe_status summarize(struct trial *trial, int rounds, struct dpe_error *err)
{
    const struct dpe_resampling how = {trial->options->together, 0.95, rounds, STATISTICS_SEED};
    size_t n = (size_t)trial->options->n_samples;
    bool recall = trial->options->criterion == DPE_DETECT_RECALL;
    DPE_OWNED double *values = NULL;
    DPE_TRY(DPE_NEW(&values, n, err, "out of memory for %zu samples", n));
    for (int i = 0; i < trial->step->n; i++) {
        struct dpe_detect_tried *tried = &trial->step->tried[i];
        int64_t pairs = 0;
        int64_t run = trial->run[i] < (int64_t)n ? trial->run[i] : (int64_t)n;
        for (int64_t s = 0; s < run; s++) {
            double value = measured(trial, i, s);
            values[s] = recall ? value : -value;
        }
        tried->samples = run;
        tried->gain = i > 0 ? gain_of(trial, measured, i, &pairs) : (double)NAN;
        tried->value = recall ? dpe_bootstrap_share(values, (size_t)run, &how)
                              : dpe_bootstrap_mean(values, (size_t)run, &how);
    }
    return DPE_OK;
}

/* The guard's texts under the first plan and those that are live. */
static dpe_status read_texts(struct trial *trial, struct dpe_detect_search *search,
                             struct dpe_error *err)
{
    struct dpe_detect_step *step = trial->step;
    const int64_t texts = trial->options->texts;
    const char *keys[DPE_DETECT_MOST_CANDIDATES];
    int at[DPE_DETECT_MOST_CANDIDATES];
    double nll[DPE_DETECT_MOST_CANDIDATES];
    int n = 0;
    for (int i = 0; i < step->n; i++) {
        if (trial->live[i]) {
            step->tried[i].read = true;
            keys[n] = step->tried[i].key;
            at[n++] = i;
        }
    }
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    DPE_TRY(trial->source->texts(trial->source->user, keys, n, &scores, err));
    dpe_detect_texts(&scores, nll);
    for (int i = 0; i < n; i++) {
        struct dpe_detect_tried *tried = &step->tried[at[i]];
        for (int64_t s = 0; s < texts; s++) {
            tried->wanted = tried->wanted || scores.status[i * scores.n_samples + s] < 0;
        }
        if (tried->wanted) {
            search->wants_texts = true;
            search->wanted = texts;
            continue;
        }
        tried->nll = isfinite(nll[i]) ? nll[i] : (double)INFINITY;
    }
    return DPE_OK;
}

/* What is outside the guard is not run further. */
static void keep_within(struct trial *trial)
{
    const double limit = guard_limit(trial);
    for (int i = 1; i < trial->step->n; i++) {
        trial->live[i] = trial->live[i] && is_within(&trial->step->tried[i], limit);
    }
}

/* The first plan on all samples, then the changes by halving; once a third of them is left, and at
 * the latest on all samples, the guard. Without all rows the search is not complete. */
static dpe_status run_step(struct trial *trial, struct dpe_detect_search *search,
                           struct dpe_error *err)
{
    const struct dpe_detect_search_options *options = trial->options;
    struct dpe_detect_step *step = trial->step;
    bool guarded = !trial->guarded;
    search->complete = false; /* until its rows are there */
    trial->live[0] = true;
    if (want(trial, options->n_samples, search)) {
        return DPE_OK;
    }
    trial->run[0] = options->n_samples;
    step->tested = step->n > 1 && (options->brief || can_be_shown(trial));
    for (int i = 1; i < step->n; i++) {
        trial->live[i] = step->tested;
    }
    int64_t samples = first_samples(options);
    while (step->tested) {
        if (want(trial, samples, search)) {
            return DPE_OK;
        }
        for (int i = 1; i < step->n; i++) {
            trial->run[i] = trial->live[i] ? samples : trial->run[i];
        }
        const bool last = samples >= options->n_samples;
        if (!last) {
            halve(trial);
        }
        if (!guarded) {
            DPE_TRY(read_texts(trial, search, err));
            if (search->wants_texts) {
                return DPE_OK;
            }
            keep_within(trial);
            guarded = true;
        }
        if (last) {
            break;
        }
        samples = more_samples(options, samples);
    }
    search->complete = true;
    return DPE_OK;
}

/* A step with the rows that are there, `scores` of them. */
static dpe_status open_trial(const struct dpe_detect_source *source,
                             const struct dpe_detect_search *search, struct dpe_detect_step *step,
                             struct dpe_detect_scores *scores, struct trial *trial,
                             struct dpe_error *err)
{
    const char *keys[DPE_DETECT_MOST_CANDIDATES];
    *trial = (struct trial){
        .options = &search->options, .source = source, .step = step, .scores = scores};
    for (int i = 0; i < step->n; i++) {
        keys[i] = step->tried[i].key;
        trial->run[i] = step->tried[i].samples;
    }
    return source->scores(source->user, keys, step->n, scores, err);
}

dpe_status dpe_detect_step_run(const struct dpe_detect_source *source,
                               struct dpe_detect_search *search, struct dpe_detect_step *step,
                               struct dpe_error *err)
{
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    struct trial trial;
    DPE_TRY(open_trial(source, search, step, &scores, &trial, err));
    /* Methods without an adapter are held against each other: none predicts as the others do. */
    trial.guarded = search->options.texts > 0 && step->move != DPE_DETECT_MOVE_PLAIN;
    DPE_TRY(run_step(&trial, search, err));
    DPE_TRY(summarize(&trial, 0, err));
    return search->complete && step->tested ? choose(&trial, err) : DPE_OK;
}

dpe_status dpe_detect_step_intervals(const struct dpe_detect_source *source,
                                     const struct dpe_detect_search *search,
                                     struct dpe_detect_step *step, struct dpe_error *err)
{
    DPE_SCOPED(dpe_detect_scores_free) struct dpe_detect_scores scores = {0};
    struct trial trial;
    DPE_TRY(open_trial(source, search, step, &scores, &trial, err));
    return summarize(&trial, BOOTSTRAP_ROUNDS, err);
}
