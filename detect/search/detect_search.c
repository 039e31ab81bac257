/* The search for the best plan: its steps, replayed on the rows that are there. */
#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"

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
static const double tie = 1e-9;

void dpe_detect_search_free(struct dpe_detect_search *search)
{
    for (int i = 0; i < search->n_steps; i++) {
        free(search->steps[i].tried);
    }
    free(search->steps);
    *search = (struct dpe_detect_search){0};
}

/* ---------------------------------------------------------------------------------------- halving
 */

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Samples that the changes of a step are first run on: of one or two contexts they would say
 * little, unless several questions share each. */
static int64_t first_samples(const struct dpe_detect_search_options *options)
{
    int64_t eighth = (options->n_samples + 7) / 8;
    int64_t contexts = options->together >= SEVERAL ? LEAST_SHARED : LEAST_CONTEXTS;
    int64_t least = contexts * options->together;
    int64_t first = round_up(eighth > least ? eighth : least, options->per_round);
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
    enum { WITH_TEMPERATURES = 8 };
    const bool near = options->near.logit_scale > 0.0;
    int groups = params->n_groups;
    groups = groups < DPE_DETECT_MOST_CANDIDATES ? groups : DPE_DETECT_MOST_CANDIDATES - 1;
    int cuts = groups - 1 < DPE_DETECT_MOST_CUTS ? groups - 1 : DPE_DETECT_MOST_CUTS;
    int crossed = options->temperature ? WITH_TEMPERATURES + 2 * near : 0;
    int64_t rows = options->n_samples; /* of the first plan; later ones have theirs */
    rows += options->temperature ? step_rows(options, near ? NEARER : TEMPERATURES) : 0;
    for (int round = 0; round < options->rounds && options->joint; round++) {
        rows += step_rows(options, params->n_lengths + 2 + (round == 0 ? crossed : 0));
        rows += params->frequencies ? 0 : step_rows(options, WINDOWS);
        rows += step_rows(options, groups);
        rows += step_rows(options, 2 * cuts);
        rows += params->n_fewer > 0 ? step_rows(options, params->n_fewer) : 0;
        int depths = round > 0 && !params->frequencies ? DEPTHS : 0;
        rows += options->temperature ? step_rows(options, NEIGHBOURS + depths) : 0;
    }
    if (options->families != 0 && options->joint) {
        enum { AROUND = 3, WINDOWED = NEIGHBOURS + WINDOWS };
        rows += 2 * options->n_samples; /* of yarn, and of the best other method */
        rows += dpe_detect_halving_rows(options, 3 * DPE_DETECT_PLAIN_FAMILIES - 1);
        rows += dpe_detect_halving_rows(options, AROUND);
        rows += step_rows(options, 4 * (DPE_DETECT_FAMILIES - DPE_DETECT_PLAIN_FAMILIES));
        rows += step_rows(options, WINDOWED);
    }
    return rows;
}

/* Whether a plan of an earlier step, or of this one before it, has this key. */
static bool is_repeated(const struct dpe_detect_search *search, int step, int at)
{
    const char *key = search->steps[step].tried[at].key;
    for (int s = 0; s <= step; s++) {
        const int n = s < step ? search->steps[s].n : at;
        for (int i = 0; i < n; i++) {
            if (strcmp(search->steps[s].tried[i].key, key) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* The most samples that any step has asked for under the plan of this one. */
static int64_t most_asked(const struct dpe_detect_search *search, const char *key)
{
    int64_t most = 0;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n; i++) {
            const struct dpe_detect_tried *tried = &search->steps[s].tried[i];
            if (strcmp(tried->key, key) == 0 && tried->asked > most) {
                most = tried->asked;
            }
        }
    }
    return most;
}

/* Whether a step has asked for the texts of this plan. */
static bool is_read(const struct dpe_detect_search *search, const char *key)
{
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n; i++) {
            const struct dpe_detect_tried *tried = &search->steps[s].tried[i];
            if (tried->read && strcmp(tried->key, key) == 0) {
                return true;
            }
        }
    }
    return false;
}

int dpe_detect_search_finalists(const struct dpe_detect_search *search,
                                struct dpe_detect_point *points, double *value, bool *read,
                                int most)
{
    const bool recall = search->options.criterion == DPE_DETECT_RECALL;
    int n = 0;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n && n < most; i++) {
            const struct dpe_detect_tried *tried = &search->steps[s].tried[i];
            if (tried->samples >= search->options.n_samples && isfinite(tried->value.mean) &&
                !is_repeated(search, s, i)) {
                points[n] = tried->point;
                read[n] = is_read(search, tried->key);
                value[n++] = recall ? tried->value.mean : -tried->value.mean;
            }
        }
    }
    return n;
}

static bool is_swept(const struct dpe_detect_grid *grid, const char *key)
{
    for (int c = 0; grid != NULL && c < grid->n_configs; c++) {
        if (strcmp(grid->configs[c].key, key) == 0) {
            return true;
        }
    }
    return false;
}

int64_t dpe_detect_search_asked(const struct dpe_detect_search *search,
                                const struct dpe_detect_grid *swept, int64_t samples)
{
    int64_t rows = 0;
    for (int s = 0; s < search->n_steps; s++) {
        for (int i = 0; i < search->steps[s].n; i++) {
            const char *key = search->steps[s].tried[i].key;
            if (!is_repeated(search, s, i)) {
                int64_t asked = most_asked(search, key);
                int64_t there = is_swept(swept, key) ? samples : 0;
                rows += asked > there ? asked - there : 0;
                rows += is_read(search, key) ? search->options.texts : 0;
            }
        }
    }
    return rows;
}

/* ------------------------------------------------------------------------------------------ a step
 */

/* A step at work. */
struct trial {
    const struct dpe_detect_search_options *options;
    const struct dpe_detect_source *source;
    struct dpe_detect_step *step;
    bool guarded;
    struct dpe_detect_scores scores; /* [step->n] */
    bool live[DPE_DETECT_MOST_CANDIDATES];
    int64_t run[DPE_DETECT_MOST_CANDIDATES]; /* samples that each is run on */
};

/* Larger = better; NaN where there is none, or none that counts. */
static double goodness(const struct trial *trial, int cell, int64_t sample)
{
    if (sample >= trial->run[cell]) {
        return NAN;
    }
    size_t at = (size_t)cell * (size_t)trial->scores.n_samples + (size_t)sample;
    double value = dpe_detect_value(&trial->scores, trial->options->criterion, at);
    return trial->options->criterion == DPE_DETECT_RECALL ? value : -value;
}

static bool has_rows(const struct trial *trial, int cell, int64_t samples)
{
    const int32_t *status = trial->scores.status + (size_t)cell * (size_t)trial->scores.n_samples;
    for (int64_t s = 0; s < samples; s++) {
        if (status[s] < 0) {
            return false;
        }
    }
    return true;
}

/* Mean paired improvement over the step's first plan; *pairs of samples valid under both. */
static double gain_of(const struct trial *trial, int cell, int64_t *pairs)
{
    double sum = 0.0;
    *pairs = 0;
    for (int64_t s = 0; s < trial->run[cell]; s++) {
        double gain = goodness(trial, cell, s) - goodness(trial, 0, s);
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
            double value = goodness(trial, 0, s);
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
        gain[i] = gain_of(trial, i, &pairs);
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

/* -------------------------------------------------------------------------------------- the test
 */

/* Perplexity is held against the best of the changes that find more than the first plan: ∞ without
 * a guard, or where none does. */
static double guard_limit(const struct trial *trial)
{
    double least = INFINITY;
    for (int i = 1; i < trial->step->n; i++) {
        const struct dpe_detect_tried *tried = &trial->step->tried[i];
        int64_t pairs = 0;
        if (trial->live[i] && isfinite(tried->nll) && gain_of(trial, i, &pairs) > tie) {
            least = fmin(least, tried->nll);
        }
    }
    return least + log1p(trial->options->guard) + tie;
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
        double gain = gain_of(trial, i, &pairs);
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
    double *values = dpe_alloc(2 * n, sizeof *values);
    if (values == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a test of %zu samples", n);
    }
    for (size_t s = 0; s < n; s++) {
        values[s] = goodness(trial, step->best, (int64_t)s);
        values[n + s] = goodness(trial, 0, (int64_t)s);
    }
    const struct dpe_resampling how = {
        .together = trial->options->together, .rounds = FLIPS, .seed = STATISTICS_SEED};
    /* One-sided: the gain is positive. */
    step->p = 0.5 * dpe_sign_flip(values, values + n, n, &how);
    const bool untested = step->move == DPE_DETECT_MOVE_PLAIN ||
                          step->move == DPE_DETECT_MOVE_FAMILY || step->guarded;
    step->chosen = step->p < DPE_DETECT_SEARCH_LEVEL || untested ? step->best : 0;
    free(values);
    return DPE_OK;
}

/* What the step shows of each plan. */
static dpe_status summarize(struct trial *trial, struct dpe_error *err)
{
    const struct dpe_resampling how = {trial->options->together, 0.95, BOOTSTRAP_ROUNDS,
                                       STATISTICS_SEED};
    size_t n = (size_t)trial->options->n_samples;
    bool recall = trial->options->criterion == DPE_DETECT_RECALL;
    double *values = dpe_alloc(n, sizeof *values);
    if (values == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for %zu samples", n);
    }
    for (int i = 0; i < trial->step->n; i++) {
        struct dpe_detect_tried *tried = &trial->step->tried[i];
        int64_t pairs = 0;
        int64_t run = trial->run[i] < (int64_t)n ? trial->run[i] : (int64_t)n;
        for (int64_t s = 0; s < run; s++) {
            double value = goodness(trial, i, s);
            values[s] = recall ? value : -value;
        }
        tried->samples = run;
        tried->gain = i > 0 ? gain_of(trial, i, &pairs) : (double)NAN;
        tried->value = recall ? dpe_bootstrap_share(values, (size_t)run, &how)
                              : dpe_bootstrap_mean(values, (size_t)run, &how);
    }
    free(values);
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
    int n = 0;
    for (int i = 0; i < step->n; i++) {
        if (trial->live[i]) {
            step->tried[i].read = true;
            keys[n] = step->tried[i].key;
            at[n++] = i;
        }
    }
    struct dpe_detect_scores scores = {0};
    dpe_status status = trial->source->texts(trial->source->user, keys, n, &scores, err);
    for (int i = 0; i < n && status == DPE_OK; i++) {
        struct dpe_detect_tried *tried = &step->tried[at[i]];
        for (int64_t s = 0; s < texts; s++) {
            tried->wanted = tried->wanted || scores.status[i * scores.n_samples + s] < 0;
        }
        if (tried->wanted) {
            search->wants_texts = true;
            search->wanted = texts;
            continue;
        }
        tried->nll = log(dpe_detect_interval(&scores, i, DPE_DETECT_PERPLEXITY).mean);
        tried->nll = isfinite(tried->nll) ? tried->nll : (double)INFINITY;
    }
    dpe_detect_scores_free(&scores);
    return status;
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
    step->tested = step->n > 1 && can_be_shown(trial);
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

/* ---------------------------------------------------------------------------------------- search
 */

/* A search at work. */
struct walk {
    const struct dpe_detect_grid *grid;
    const struct dpe_plan_context *context;
    const struct dpe_detect_ranking *ranking;
    const struct dpe_detect_source *source;
    struct dpe_detect_search *search;
    bool own_temperature; /* of the plan with one length: not that of the plan beside it */
    struct dpe_error *err;
};

/* The step's plans by their keys; what is there already is dropped. */
static dpe_status fill_keys(const struct walk *walk, struct dpe_detect_step *step)
{
    int kept = 0;
    for (int i = 0; i < step->n; i++) {
        struct dpe_plan plan = {0};
        struct dpe_detect_tried *tried = &step->tried[kept];
        *tried = step->tried[i];
        tried->nll = NAN;
        dpe_status status =
            dpe_detect_point_plan(walk->grid, walk->context, &tried->point, &plan, walk->err);
        if (status == DPE_OK) {
            status = dpe_plan_key(&plan, tried->key, walk->err);
        }
        dpe_plan_free(&plan);
        if (status == DPE_USAGE && tried->point.family > 0 && i > 0) {
            continue; /* a setting that the method does not have */
        }
        if (status != DPE_OK) {
            return status;
        }
        bool known = false;
        for (int k = 0; k < kept; k++) {
            known = known || strcmp(step->tried[k].key, tried->key) == 0;
        }
        kept += !known;
    }
    step->n = kept;
    return DPE_OK;
}

/* The plan with one length for all groups that the step's rows show to be best: of those run on the
 * most samples, the one with the largest gain; the first plan has gain 0. */
static void find_single(struct walk *walk, const struct dpe_detect_step *step)
{
    const struct dpe_detect_params *params = &walk->grid->params;
    const struct dpe_detect_tried *best = NULL;
    double most = 0.0;
    for (int i = 0; i < step->n; i++) {
        const struct dpe_detect_tried *tried = &step->tried[i];
        double gain = i == 0 ? 0.0 : tried->gain;
        if (!dpe_detect_point_is_single(params, &tried->point) || tried->samples == 0 ||
            !isfinite(gain)) {
            continue;
        }
        if (best == NULL || tried->samples > best->samples ||
            (tried->samples == best->samples && gain > most + tie)) {
            best = tried;
            most = gain;
        }
    }
    if (best != NULL) {
        walk->search->single = best->point;
        walk->own_temperature = memcmp(&best->point.temperature, &step->tried[0].point.temperature,
                                       sizeof best->point.temperature) != 0;
    }
}

/* What detection by groups adds is what the lengths add: the plan with one length gets the search's
 * temperature, and its window unless that is longer. Where the step of the lengths showed another
 * temperature to suit one length better, it keeps that one: with the search's it would be worse
 * than what one length can do. */
static void align_single(const struct walk *walk)
{
    const struct dpe_detect_params *params = &walk->grid->params;
    struct dpe_detect_search *search = walk->search;
    if (dpe_detect_point_is_single(params, &search->point)) {
        search->single = search->point;
        return;
    }
    int at = search->single.at[0];
    int64_t length = at < 0 ? params->trained_length / 2 : params->lengths[at];
    if (!walk->own_temperature) {
        search->single.temperature = search->point.temperature;
    }
    search->single.fewer = search->point.fewer;
    search->single.window =
        search->point.window <= length ? search->point.window : search->single.window;
}

/* From *at on, which becomes the plan that the step ends with. */
static dpe_status take_step(struct walk *walk, enum dpe_detect_move move, int round,
                            struct dpe_detect_point *at)
{
    struct dpe_detect_search *search = walk->search;
    struct dpe_detect_step *step = &search->steps[search->n_steps];
    *step = (struct dpe_detect_step){.move = move, .round = round, .best = -1, .p = NAN};
    step->tried = dpe_alloc_zero(DPE_DETECT_MOST_CANDIDATES, sizeof *step->tried);
    if (step->tried == NULL) {
        return dpe_fail(walk->err, DPE_NO_MEMORY, "out of memory for a step of the search");
    }
    search->n_steps++;
    step->tried[0].point = *at;
    /* The whole grid of temperatures is for the first step alone. */
    int nth = move == DPE_DETECT_MOVE_TEMPERATURE && search->n_steps > 1 ? round + 1 : round;
    step->n =
        dpe_detect_candidates(&walk->grid->params, walk->context->config->head_dim, walk->ranking,
                              &search->options, move, nth, step->tried);
    dpe_status status = fill_keys(walk, step);
    if (status != DPE_OK) {
        return status;
    }
    /* Methods without an adapter are held against each other: none predicts as the others do. */
    struct trial trial = {.options = &search->options,
                          .source = walk->source,
                          .step = step,
                          .guarded = search->options.texts > 0 && move != DPE_DETECT_MOVE_PLAIN};
    const char *keys[DPE_DETECT_MOST_CANDIDATES];
    for (int i = 0; i < step->n; i++) {
        keys[i] = step->tried[i].key;
    }
    status = walk->source->scores(walk->source->user, keys, step->n, &trial.scores, walk->err);
    status = status == DPE_OK ? run_step(&trial, search, walk->err) : status;
    status = status == DPE_OK ? summarize(&trial, walk->err) : status;
    if (status == DPE_OK && search->complete && step->tested) {
        status = choose(&trial, walk->err);
    }
    dpe_detect_scores_free(&trial.scores);
    if (status == DPE_OK && search->complete) {
        *at = step->tried[step->chosen].point;
    }
    return status;
}

/* Methods that need no adapter, from yarn on, and then the others, from what the joint search found
 * on. */
static dpe_status families(struct walk *walk)
{
    enum { TWICE = 2 };
    struct dpe_detect_search *search = walk->search;
    const uint32_t wanted = search->options.families;
    const uint32_t plain = (1U << DPE_DETECT_PLAIN_FAMILIES) - 1U;
    struct dpe_detect_point best = search->point;
    struct dpe_detect_point yarn = {.family = 1, .temperature = dpe_temperature_none};
    dpe_status status = DPE_OK;
    memcpy(yarn.at, search->start.at, sizeof yarn.at);
    for (int round = 0; round < TWICE && (wanted & 1U) != 0; round++) {
        status = take_step(walk, DPE_DETECT_MOVE_PLAIN, round, &yarn);
        if (status != DPE_OK || !search->complete) {
            return status;
        }
        search->plain = yarn;
    }
    for (int round = 0; round < TWICE && (wanted & ~plain) != 0 && (round == 0 || best.family > 0);
         round++) {
        status = take_step(walk, DPE_DETECT_MOVE_FAMILY, round, &best);
        if (status != DPE_OK || !search->complete) {
            return status;
        }
    }
    search->family = best.family > 0 ? best : search->family;
    return DPE_OK;
}

/* The window first: it costs least, and after a gain less is left to show for the others. */
static dpe_status joint_rounds(struct walk *walk)
{
    static const enum dpe_detect_move moves[] = {
        DPE_DETECT_MOVE_WINDOW, DPE_DETECT_MOVE_LENGTHS, DPE_DETECT_MOVE_SPLIT,
        DPE_DETECT_MOVE_GROUP,  DPE_DETECT_MOVE_PAIRS,   DPE_DETECT_MOVE_TEMPERATURE};
    struct dpe_detect_search *search = walk->search;
    dpe_status status = DPE_OK;
    bool changed = true;
    for (int round = 0; round < search->options.rounds && changed; round++) {
        changed = false;
        for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
            if ((moves[i] == DPE_DETECT_MOVE_TEMPERATURE && !search->options.temperature) ||
                (moves[i] == DPE_DETECT_MOVE_WINDOW && walk->grid->params.frequencies) ||
                (moves[i] == DPE_DETECT_MOVE_PAIRS && walk->grid->params.n_fewer == 0)) {
                continue;
            }
            status = take_step(walk, moves[i], round, &search->point);
            if (status != DPE_OK || !search->complete) {
                return status;
            }
            const struct dpe_detect_step *step = &search->steps[search->n_steps - 1];
            changed = changed || step->chosen > 0;
            /* Later rounds try one length only under the temperature of the groups. */
            if (moves[i] == DPE_DETECT_MOVE_LENGTHS && round == 0) {
                find_single(walk, step);
            }
        }
    }
    return DPE_OK;
}

static dpe_status search_init(struct dpe_detect_search *search,
                              const struct dpe_detect_search_options *options,
                              const struct dpe_detect_params *params, struct dpe_error *err)
{
    *search = (struct dpe_detect_search){.options = *options, .complete = true};
    if (params->n_groups > DPE_DETECT_MOST_GROUPS) {
        return dpe_fail(err, DPE_USAGE, "--groups: expected at most %d with a search, found %d",
                        DPE_DETECT_MOST_GROUPS, params->n_groups);
    }
    if (options->rounds < 1 || options->rounds > 1000 || options->n_samples < 1 ||
        options->per_round < 1 || options->together < 1) {
        return dpe_fail(err, DPE_INTERNAL, "a search of %lld samples in %d rounds",
                        (long long)options->n_samples, options->rounds);
    }
    search->most_steps = 1 + options->rounds * DPE_DETECT_N_MOVES + 4;
    search->steps = dpe_alloc_zero((size_t)search->most_steps, sizeof *search->steps);
    if (search->steps == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a search of %d steps",
                        search->most_steps);
    }
    dpe_detect_point_base(params, &search->start);
    if (options->temperature) {
        search->start.temperature = dpe_temperature_none;
    }
    search->point = search->start;
    return DPE_OK;
}

dpe_status dpe_detect_search_replay(const struct dpe_detect_search_options *options,
                                    const struct dpe_detect_grid *grid,
                                    const struct dpe_plan_context *context,
                                    const struct dpe_detect_ranking *ranking,
                                    const struct dpe_detect_source *source,
                                    struct dpe_detect_search *search, struct dpe_error *err)
{
    struct walk walk = {.grid = grid,
                        .context = context,
                        .ranking = ranking,
                        .source = source,
                        .search = search,
                        .err = err};
    dpe_status status = search_init(search, options, &grid->params, err);
    if (status == DPE_OK && options->temperature) {
        status = take_step(&walk, DPE_DETECT_MOVE_TEMPERATURE, 0, &search->point);
    }
    search->single = search->point;
    if (status == DPE_OK && search->complete && options->joint) {
        search->wants_sweep = ranking == NULL;
        search->complete = ranking != NULL;
        status = ranking != NULL ? joint_rounds(&walk) : DPE_OK;
    }
    if (status == DPE_OK && search->complete && options->joint && options->families != 0) {
        status = families(&walk);
    }
    if (status == DPE_OK) {
        align_single(&walk);
    } else {
        dpe_detect_search_free(search);
    }
    return status;
}
