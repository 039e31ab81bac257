/* What validation on other samples shows: of the joint plan against others, and which plan is kept;
 * a guard on perplexity for plans that needles chose; the rule `ready`, and what follows from it.
 */
#include "detect/sweep/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000, STATISTICS_SEED = 1 };
static const double level = 0.95;
static const double verdict_p = 0.05;
static const double error_p = 0.32; /* of a difference by its standard error */

const char *const dpe_detect_validated_names[DPE_DETECT_N_VALIDATED] = {"rope", "base", "joint"};

enum dpe_detect_verdict dpe_detect_judge(const struct dpe_difference *gain,
                                         enum dpe_detect_criterion criterion)
{
    bool higher_is_better = criterion == DPE_DETECT_RECALL;
    bool shown = gain->p < verdict_p;
    if (gain->minus.n == 0) {
        return DPE_DETECT_UNKNOWN;
    }
    if (shown && gain->minus.low > 0.0) {
        return higher_is_better ? DPE_DETECT_BETTER : DPE_DETECT_WORSE;
    }
    if (shown && gain->minus.high < 0.0) {
        return higher_is_better ? DPE_DETECT_WORSE : DPE_DETECT_BETTER;
    }
    return DPE_DETECT_INDISTINCT;
}

/* Mean and variance of the contexts' mean differences; returns how many contexts have one. */
static int64_t spread_of_contexts(const double *a, const double *b, int64_t n, int64_t together,
                                  double *mean, double *variance)
{
    int64_t contexts = 0;
    double squares = 0.0;
    *mean = 0.0;
    for (int64_t first = 0; first < n; first += together) {
        double sum = 0.0;
        int64_t pairs = 0;
        for (int64_t i = first; i < n && i < first + together; i++) {
            if (isfinite(a[i]) && isfinite(b[i])) {
                sum += a[i] - b[i];
                pairs++;
            }
        }
        if (pairs > 0) {
            double off = sum / (double)pairs - *mean;
            contexts++;
            *mean += off / (double)contexts;
            squares += off * (sum / (double)pairs - *mean);
        }
    }
    *variance = contexts > 1 ? squares / (double)(contexts - 1) : 0.0;
    return contexts;
}

/* Samples that would show the difference; more than there are, where these have not. */
static int64_t needed_samples(const double *a, const double *b, int64_t n, int64_t together)
{
    double mean = 0.0;
    double variance = 0.0;
    together = together > 1 ? together : 1;
    int64_t contexts = spread_of_contexts(a, b, n, together, &mean, &variance);
    if (contexts < 2 || fabs(mean) < 1e-9) {
        return 0;
    }
    double needed = fmax(dpe_showing_contexts(variance, mean, together), (double)(contexts + 1));
    return needed * (double)together < 1e9 ? (int64_t)needed * together : 0;
}

/* Values of a task's plans on the same samples, [n_cells][n]. */
struct values {
    const struct dpe_detect_scores *scores;
    const char *const *keys;
    enum dpe_detect_criterion criterion;
    double *all;
};

/* Those of the first plan with the same key. */
static const double *values_of(const struct values *values, int plan)
{
    int first = 0;
    while (values->keys != NULL && first < plan &&
           strcmp(values->keys[first], values->keys[plan]) != 0) {
        first++;
    }
    plan = values->keys != NULL ? first : plan;
    return values->all + (size_t)plan * (size_t)values->scores->n_samples;
}

/* Plan a − plan b. */
static struct dpe_difference compare(const struct values *values, int a, int b)
{
    const struct dpe_resampling how = {values->scores->together, level, ROUNDS, STATISTICS_SEED};
    return dpe_compare(values_of(values, a), values_of(values, b),
                       (size_t)values->scores->n_samples, values->criterion == DPE_DETECT_RECALL,
                       &how);
}

/* The joint plan; where others that a table can hold find more, by more than the standard error of
 * the difference, the best of these. */
static int find_kept(const struct values *values, const struct dpe_detect_validation *validation,
                     const bool *tables)
{
    const bool recall = values->criterion == DPE_DETECT_RECALL;
    int kept = DPE_DETECT_JOINT;
    for (int v = 0; v < validation->n_plans && tables != NULL; v++) {
        double mean = validation->value[v].mean;
        double best = validation->value[kept].mean;
        if (tables[v] && validation->minus[v].p < error_p && (recall ? mean > best : mean < best)) {
            kept = v;
        }
    }
    return kept;
}

/* Where plan a − plan b does not show which is better; 0 where it does. */
static int64_t needed_of(const struct values *values, int a, int b,
                         const struct dpe_difference *difference)
{
    const struct dpe_detect_scores *scores = values->scores;
    return dpe_detect_judge(difference, values->criterion) != DPE_DETECT_INDISTINCT
               ? 0
               : needed_samples(values_of(values, a), values_of(values, b), scores->n_samples,
                                scores->together);
}

/* values->all is the caller's. */
static dpe_status read_values(struct values *values, struct dpe_error *err)
{
    const struct dpe_detect_scores *scores = values->scores;
    size_t n = (size_t)scores->n_cells * (size_t)scores->n_samples;
    DPE_TRY(DPE_NEW(&values->all, n, err, "out of memory for %zu validation samples", n));
    for (size_t at = 0; at < n; at++) {
        values->all[at] = dpe_detect_value(scores, values->criterion, at);
    }
    return DPE_OK;
}

static void compare_kept(const struct values *values, struct dpe_detect_validation *validation)
{
    const int kept = validation->kept;
    for (int c = 0; c < validation->n_plans; c++) {
        validation->kept_minus[c] = compare(values, kept, c);
        validation->kept_needed[c] = needed_of(values, kept, c, &validation->kept_minus[c]);
    }
}

dpe_status dpe_detect_validate_keep(const struct dpe_detect_scores *scores, const char *const *keys,
                                    int kept, struct dpe_detect_validation *validation,
                                    struct dpe_error *err)
{
    struct values values = {scores, keys, validation->criterion, NULL};
    DPE_TRY(read_values(&values, err));
    validation->kept = kept;
    compare_kept(&values, validation);
    free(values.all);
    return DPE_OK;
}

bool dpe_detect_disagree(const struct dpe_detect_validation *a,
                         const struct dpe_detect_validation *b)
{
    const int n = a->n_plans < b->n_plans ? a->n_plans : b->n_plans;
    bool opposite = false;
    for (int v = 0; v < n; v++) {
        struct dpe_difference by_a = a->minus[v];
        struct dpe_difference by_b = b->minus[v];
        by_a.p *= n;
        by_b.p *= n;
        enum dpe_detect_verdict one = dpe_detect_judge(&by_a, a->criterion);
        enum dpe_detect_verdict other = dpe_detect_judge(&by_b, b->criterion);
        opposite = opposite || (one == DPE_DETECT_BETTER && other == DPE_DETECT_WORSE) ||
                   (one == DPE_DETECT_WORSE && other == DPE_DETECT_BETTER);
    }
    return opposite;
}

/* The standard error of a mean difference, by its 95 % interval. */
static double error_of(const struct dpe_interval *difference)
{
    return (difference->high - difference->low) / (2.0 * 1.96);
}

int dpe_detect_kept_by_both(const struct dpe_detect_validation *search,
                            const struct dpe_detect_validation *user, const bool *tables)
{
    int kept = DPE_DETECT_JOINT;
    double most = 0.0;
    if (dpe_detect_disagree(search, user)) {
        return user->kept;
    }
    for (int v = 0; v < search->n_plans && tables != NULL; v++) {
        const struct dpe_interval *one = &search->minus[v].minus;
        const struct dpe_interval *other = &user->minus[v].minus;
        const double gain = -(one->mean + other->mean);
        if (tables[v] && gain > most && gain > hypot(error_of(one), error_of(other))) {
            kept = v;
            most = gain;
        }
    }
    return kept;
}

dpe_status dpe_detect_validate(const struct dpe_detect_scores *scores, const char *const *keys,
                               enum dpe_detect_criterion criterion, const bool *tables,
                               struct dpe_detect_validation *validation, struct dpe_error *err)
{
    int plans = scores->n_cells;
    if (plans < DPE_DETECT_N_VALIDATED || plans > DPE_DETECT_MOST_VALIDATED) {
        return dpe_fail(err, DPE_INTERNAL, "validation of %d plans", plans);
    }
    struct values values = {scores, keys, criterion, NULL};
    DPE_TRY(read_values(&values, err));
    *validation = (struct dpe_detect_validation){.criterion = criterion, .n_plans = plans};
    for (int c = 0; c < plans; c++) {
        validation->value[c] = dpe_detect_interval(scores, c, criterion);
        validation->minus[c] = compare(&values, DPE_DETECT_JOINT, c);
    }
    validation->verdict = dpe_detect_judge(&validation->minus[DPE_DETECT_BASE], criterion);
    validation->needed =
        needed_of(&values, DPE_DETECT_JOINT, DPE_DETECT_BASE, &validation->minus[DPE_DETECT_BASE]);
    validation->too_easy = criterion == DPE_DETECT_RECALL &&
                           validation->value[DPE_DETECT_BASE].mean >= 1.0 &&
                           validation->value[DPE_DETECT_JOINT].mean >= 1.0;
    validation->kept = find_kept(&values, validation, tables);
    compare_kept(&values, validation);
    free(values.all);
    return DPE_OK;
}

/* ---------------------------------------------------------------------------------------- guard */

int dpe_detect_guarded(const double *value, const double *nll, int n, double share)
{
    double least = INFINITY;
    int best = -1;
    for (int i = 0; i < n; i++) {
        least = isfinite(nll[i]) ? fmin(least, nll[i]) : least;
    }
    for (int i = 0; i < n; i++) {
        if (isfinite(nll[i]) && nll[i] <= least + log1p(share) + 1e-9 &&
            (best < 0 || value[i] > value[best])) {
            best = i;
        }
    }
    return best;
}

void dpe_detect_texts(const struct dpe_detect_scores *texts, double *nll)
{
    int64_t most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int c = 0; c < texts->n_cells; c++) {
            const struct dpe_interval value = dpe_detect_interval(texts, c, DPE_DETECT_PERPLEXITY);
            most = value.n > most ? value.n : most;
            nll[c] = value.n == most ? log(value.mean) : (double)NAN;
        }
    }
}

/* As there, ∞ where a plan has none. */
static double perplexity_of(const struct dpe_detect_validation *texts, int plan)
{
    int64_t most = 1;
    for (int v = 0; v < texts->n_plans; v++) {
        most = texts->value[v].n > most ? texts->value[v].n : most;
    }
    const struct dpe_interval *value = &texts->value[plan];
    return value->n == most && isfinite(value->mean) ? value->mean : (double)INFINITY;
}

/* Whether the kept plan is shown to find more than this one, on the task that counts. */
static bool finds_less(const struct dpe_detect_validation *const needles[2], int plan)
{
    const struct dpe_detect_validation *v = needles[1] != NULL ? needles[1] : needles[0];
    return dpe_detect_judge(&v->kept_minus[plan], v->criterion) == DPE_DETECT_BETTER;
}

/* What a plan finds: the mean of both tasks, where there are two. */
static double found_of(const struct dpe_detect_validation *const needles[2], int plan)
{
    const double first = needles[0]->value[plan].mean;
    return needles[1] != NULL ? (first + needles[1]->value[plan].mean) / 2.0 : first;
}

/* Of the plans within the guard that a table can hold the one that finds most; `any`: also of those
 * that are shown to find less than the chosen one. −1: none. */
static int find_within(const struct dpe_detect_validation *const needles[2],
                       const struct dpe_detect_validation *texts, const bool *tables, double most,
                       bool any)
{
    int found = -1;
    for (int v = 0; v < texts->n_plans; v++) {
        if (tables[v] && isfinite(found_of(needles, v)) && perplexity_of(texts, v) <= most &&
            (any || !finds_less(needles, v)) &&
            (found < 0 || found_of(needles, v) > found_of(needles, found))) {
            found = v;
        }
    }
    return found;
}

int dpe_detect_undominated(const struct dpe_detect_validation *const needles[2],
                           const struct dpe_detect_validation *texts, const bool *tables, int kept)
{
    const double least = found_of(needles, kept);
    const double perplexity = perplexity_of(texts, kept);
    int best = kept;
    for (int v = 0; v < texts->n_plans; v++) {
        const double found = found_of(needles, v);
        const bool more = best == kept ? found >= least : found > found_of(needles, best);
        best = tables[v] && more && perplexity_of(texts, v) < perplexity ? v : best;
    }
    return best;
}

struct dpe_detect_guard dpe_detect_guard(const struct dpe_detect_validation *const needles[2],
                                         const struct dpe_detect_validation *texts,
                                         const bool *tables, double share)
{
    const int chosen = needles[0]->kept;
    struct dpe_detect_guard guard = {.chosen = chosen, .kept = chosen, .best = -1, .found = -1};
    for (int v = 0; v < texts->n_plans; v++) {
        if (isfinite(perplexity_of(texts, v)) &&
            (guard.best < 0 || perplexity_of(texts, v) < perplexity_of(texts, guard.best))) {
            guard.best = v;
        }
    }
    if (guard.best < 0) {
        return guard;
    }
    const double least = perplexity_of(texts, guard.best);
    const double most = (1.0 + share) * least;
    if (perplexity_of(texts, chosen) > most) {
        int within = find_within(needles, texts, tables, most, false);
        guard.kept = within >= 0 ? within : chosen;
        guard.traded = within < 0;
        guard.found = within < 0 ? find_within(needles, texts, tables, most, true) : -1;
    }
    guard.loss = perplexity_of(texts, guard.kept) / least - 1.0;
    return guard;
}

/* ---------------------------------------------------------------------------------------- ready */

/* Recall that a calibration is worth. */
static const double worth = 0.05;

int dpe_detect_ready_left(int plans, int64_t context, int64_t contexts)
{
    enum { FINALISTS = 2 };
    const int some = context == 0                   ? plans
                     : contexts > 2 && context == 1 ? (plans + 1) / 2
                                                    : FINALISTS;
    return some > FINALISTS ? some : plans < FINALISTS ? plans : FINALISTS;
}

/* By how much `own`, or where there is none the best of those in `live`, found more than the next.
 */
static double lead_of(const double *mean, int n, int own, const unsigned char *live)
{
    double best = -INFINITY;
    double next = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (live[i] != 0) {
            next = fmax(next, fmin(best, mean[i]));
            best = fmax(best, mean[i]);
        }
    }
    return own > 0 && mean[own] < best ? 0.0 : best - next;
}

void dpe_detect_ready_race(const struct dpe_detect_scores *scores, int64_t contexts, int own,
                           unsigned char *live)
{
    const int64_t done = scores->n_samples / scores->together;
    double mean[DPE_DETECT_MOST_VALIDATED];
    int plans = 0;
    for (int i = 0; i < scores->n_cells; i++) {
        plans += live[i];
        mean[i] = live[i] != 0 ? dpe_detect_interval(scores, i, DPE_DETECT_RECALL).mean : 0.0;
        mean[i] = isfinite(mean[i]) ? mean[i] : -1.0;
    }
    if (contexts == 2 && lead_of(mean, scores->n_cells, own, live) >= DPE_DETECT_READY_CLEAR) {
        memset(live, 0, (size_t)scores->n_cells);
        return;
    }
    for (int left = dpe_detect_ready_left(plans, done, contexts); plans > left; plans--) {
        int worst = -1;
        for (int i = 0; i < scores->n_cells; i++) {
            const bool may = live[i] != 0 && (i != own || own == 0);
            worst = may && (worst < 0 || mean[i] <= mean[worst]) ? i : worst;
        }
        live[worst] = 0;
    }
}

bool dpe_detect_in_final(const struct dpe_detect_validation *v, int plan)
{
    static const double most_lost = 0.25; /* samples that are not valid */
    int64_t most = 0;
    for (int i = 0; i < v->n_plans; i++) {
        most = v->value[i].n > most ? v->value[i].n : most;
    }
    return most > 0 && (double)v->value[plan].n > (1.0 - most_lost) * (double)most;
}

/* Of the plans in the final with `may`, but not the joint plan, which is the base; -1: none. */
static int best_of(const struct dpe_detect_validation *v, const bool *may, int first)
{
    const bool recall = v->criterion == DPE_DETECT_RECALL;
    int best = -1;
    for (int i = first; i < v->n_plans; i++) {
        const double mean = v->value[i].mean;
        if (i != DPE_DETECT_JOINT && (may == NULL || may[i]) && dpe_detect_in_final(v, i) &&
            (best < 0 || (recall ? mean > v->value[best].mean : mean < v->value[best].mean))) {
            best = i;
        }
    }
    return best;
}

/* Whether so much more was found that few samples are reason enough. */
static bool is_clear(const struct dpe_detect_validation *v, int best, int than)
{
    return v->value[best].mean >= v->value[than].mean + DPE_DETECT_READY_CLEAR;
}

int dpe_detect_ready_kept(const struct dpe_detect_validation *v, const bool *tables, int own)
{
    const int best = best_of(v, tables, 0);
    const bool stays = own > 0 && tables[own] && dpe_detect_in_final(v, own);
    return best < 0 ? DPE_DETECT_JOINT : stays && !is_clear(v, best, own) ? own : best;
}

struct dpe_detect_advice dpe_detect_advise(const struct dpe_detect_validation *v,
                                           const struct dpe_interval *ceiling)
{
    int best = best_of(v, NULL, DPE_DETECT_BASE);
    const bool keeps = v->kept == DPE_DETECT_BASE || v->kept >= DPE_DETECT_N_VALIDATED;
    if (best >= 0 && keeps && !is_clear(v, best, v->kept)) {
        best = v->kept;
    }
    struct dpe_detect_advice advice = {.plan = best < 0 ? DPE_DETECT_BASE : best};
    const double possible = ceiling->n > 0 ? ceiling->mean : 1.0;
    const double found = v->value[advice.plan].mean;
    advice.gain = fmax(0.0, possible - found);
    advice.what = possible < DPE_DETECT_LOW_CEILING                    ? DPE_DETECT_ADVICE_TASK
                  : possible - v->value[DPE_DETECT_ROPE].mean <= worth ? DPE_DETECT_ADVICE_NOTHING
                  : possible - found <= worth                          ? DPE_DETECT_ADVICE_TAKE
                                              : DPE_DETECT_ADVICE_CALIBRATE;
    return advice;
}
