/* Intervals and tests over rows, and races. Sums are in index order and signs are drawn from a
 * seeded generator, so equal input gives equal bits. */
#include "eval/task/stats.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/base.h"

enum { STREAM_SIGN_FLIP = 2, EXACT_FLIPS = 16 };
static const double rounding = 1e-12; /* of sums, relative to that of their absolute values */

/* Sums over the valid values of each context that has any. */
struct units {
    double *sum;    /* [n] */
    double *size;   /* [n] of |value| */
    int64_t *count; /* [n] values in it */
    size_t n;
    double total; /* of all values, in their order */
    int64_t n_values;
};

static void units_free(struct units *units)
{
    free(units->sum);
    free(units->size);
    free(units->count);
}

static void units_add(struct units *units, double value, bool first)
{
    if (first) {
        units->sum[units->n] = 0.0;
        units->size[units->n] = 0.0;
        units->count[units->n] = 0;
        units->n++;
    }
    units->sum[units->n - 1] += value;
    units->size[units->n - 1] += fabs(value);
    units->count[units->n - 1]++;
    units->total += value;
    units->n_values++;
}

/* Of a[i] − b[i] (b NULL: a[i]); false: no memory. */
static bool units_take(struct units *units, const double *a, const double *b, size_t n,
                       int64_t together)
{
    *units = (struct units){.sum = dpe_alloc(n, sizeof *units->sum),
                            .size = dpe_alloc(n, sizeof *units->size),
                            .count = dpe_alloc(n, sizeof *units->count)};
    if (units->sum == NULL || units->size == NULL || units->count == NULL) {
        return false;
    }
    size_t size = together > 1 ? (size_t)together : 1;
    size_t open = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        double value = b == NULL ? a[i] : a[i] - b[i];
        if (!isnan(value)) {
            units_add(units, value, i / size != open);
            open = i / size;
        }
    }
    return true;
}

/* |Σ ± d| with signs from the bits of `flips`, bit i for d[i]. */
static double flipped_sum(const double *d, size_t n, uint32_t flips)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += (flips >> i & 1u) != 0 ? -d[i] : d[i];
    }
    return fabs(sum);
}

static double exact_p(const double *d, size_t n, double threshold)
{
    uint32_t all = (uint32_t)1 << n;
    uint32_t extreme = 0;
    for (uint32_t flips = 0; flips < all; flips++) {
        extreme += flipped_sum(d, n, flips) >= threshold;
    }
    return (double)extreme / (double)all;
}

static double sampled_p(const double *d, size_t n, double threshold, int rounds, uint64_t seed)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, STREAM_SIGN_FLIP);
    int64_t extreme = 1;
    for (int r = 0; r < rounds; r++) {
        double sum = 0.0;
        uint32_t bits = 0;
        for (size_t i = 0; i < n; i++) {
            bits = i % 32 == 0 ? dpe_rng_u32(&rng) : bits >> 1;
            sum += (bits & 1u) != 0 ? -d[i] : d[i];
        }
        extreme += fabs(sum) >= threshold;
    }
    return (double)extreme / ((double)rounds + 1.0);
}

double dpe_sign_flip(const double *a, const double *b, size_t n, const struct dpe_resampling *how)
{
    DPE_SCOPED(units_free) struct units units = {0};
    if (!units_take(&units, a, b, n, how->together)) {
        return NAN;
    }
    double *d = units.sum;
    size_t used = 0;
    double observed = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < units.n; i++) {
        /* What cancels within a context leaves its rounding. */
        if (fabs(d[i]) > rounding * units.size[i]) {
            d[used++] = d[i];
            observed += d[i];
            size += units.size[i];
        }
    }
    /* Sums of the same numbers in other signs round differently: what is equal must count. */
    double threshold = fabs(observed) - rounding * size;
    if (used == 0) {
        return 1.0;
    }
    if (used <= EXACT_FLIPS) {
        return exact_p(d, used, threshold);
    }
    return how->rounds < 1 ? (double)NAN : sampled_p(d, used, threshold, how->rounds, how->seed);
}

/* P(|T| ≤ t) of Student's t with `freedom` degrees (Abramowitz & Stegun 26.7.3, 26.7.4). */
static double t_inside(double t, int64_t freedom)
{
    const double pi = 3.14159265358979323846;
    double theta = atan(t / sqrt((double)freedom));
    double cos2 = cos(theta) * cos(theta);
    bool odd = freedom % 2 != 0;
    double term = odd ? cos(theta) : 1.0;
    double sum = freedom == 1 ? 0.0 : term;
    for (int64_t k = odd ? 3 : 2; k <= freedom - 2; k += 2) {
        term *= cos2 * (double)(k - 1) / (double)k;
        sum += term;
    }
    return odd ? 2.0 / pi * (theta + sin(theta) * sum) : sin(theta) * sum;
}

double dpe_student_quantile(double level, int64_t freedom)
{
    if (freedom < 1 || !(level > 0.0 && level < 1.0)) {
        return NAN;
    }
    /* By bisection. */
    double low = 0.0;
    double high = 1.0;
    while (t_inside(high, freedom) < level && high < 1e12) {
        high *= 2.0;
    }
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (t_inside(middle, freedom) < level) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return 0.5 * (low + high);
}

/* ------------------------------------------------------------------------------------ intervals */

/* Below so many contexts of several questions, a sign-flip test says too little. */
enum { MANY_CONTEXTS = 12 };
/* What is expected of the variance of contexts before any was seen: the share of the variance of a
 * question that questions of one context have in common, which counts as so many contexts. */
static const double in_common = 0.3;
enum { EXPECTED_COUNTS = 4 };
/* Of a context: a share of few trials has steps, as a normal distribution has none. */
static const double step = 0.1;

/* Of the means of contexts, times their number less one. */
static double squares_of_contexts(const struct units *units)
{
    double mean = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < units->n; i++) {
        double value = units->sum[i] / (double)units->count[i];
        double off = value - mean;
        mean += off / (double)(i + 1);
        squares += off * (value - mean);
    }
    return squares;
}

/* The variance of a context's mean that is expected, as a share of that of a question. */
static double expected_share(const struct units *units)
{
    return in_common + (1.0 - in_common) * (double)units->n / (double)units->n_values;
}

/* Wilson 1927 for a share of so many trials, which need not be whole, at z standard errors. */
static void score_interval(double trials, double z, struct dpe_interval *out)
{
    const double z2 = z * z / trials;
    const double most = out->mean * (1.0 - out->mean);
    const double centre = (out->mean + z2 / 2.0) / (1.0 + z2);
    const double reach = (sqrt(z2 * (most + z2 / 4.0)) + step / trials) / (1.0 + z2);
    /* A share of exactly 0 or 1 lies in its interval, whatever the rounding. */
    out->low = fmin(fmax(centre - reach, 0.0), out->mean);
    out->high = fmax(fmin(centre + reach, 1.0), out->mean);
}

/* The variance of contexts as a share of p (1 − p) is that which is expected and that which was
 * seen, weighed by their degrees of freedom; contexts say less about it where p is near 0 or 1. */
static void interval_of_share(const struct units *units, double level, struct dpe_interval *out)
{
    const double contexts = (double)units->n;
    const double seen = 4.0 * fmax(out->mean * (1.0 - out->mean), 0.0) * (contexts - 1.0);
    const double freedom = EXPECTED_COUNTS + seen;
    const double squares = seen > 0.0 ? 4.0 * squares_of_contexts(units) : 0.0;
    const double share = (EXPECTED_COUNTS * expected_share(units) + squares) / freedom;
    score_interval(contexts / share, dpe_student_quantile(level, (int64_t)freedom), out);
}

/* Of a[i] − b[i], b NULL: a[i]; whether there can be bounds. */
static bool take_mean(const double *a, const double *b, size_t n, const struct dpe_resampling *how,
                      struct units *units, struct dpe_interval *out)
{
    *out = (struct dpe_interval){NAN, NAN, NAN, 0};
    if (!units_take(units, a, b, n, how->together)) {
        return false;
    }
    out->n = units->n_values;
    out->mean = out->n > 0 ? units->total / (double)out->n : out->mean;
    return units->n > 1 && how->level > 0.0 && how->level < 1.0;
}

struct dpe_interval dpe_bootstrap_share(const double *values, size_t n,
                                        const struct dpe_resampling *how)
{
    struct dpe_interval out;
    DPE_SCOPED(units_free) struct units units = {0};
    if (take_mean(values, NULL, n, how, &units, &out)) {
        interval_of_share(&units, how->level, &out);
    }
    return out;
}

/* Student's t; the standard error. */
static double spread(double variance, int64_t freedom, double contexts, double level,
                     struct dpe_interval *out)
{
    const double error = sqrt(variance / contexts);
    const double reach = dpe_student_quantile(level, freedom) * error;
    out->low = out->mean - reach;
    out->high = out->mean + reach;
    return error;
}

struct dpe_interval dpe_bootstrap_mean(const double *values, size_t n,
                                       const struct dpe_resampling *how)
{
    struct dpe_interval out;
    DPE_SCOPED(units_free) struct units units = {0};
    if (take_mean(values, NULL, n, how, &units, &out)) {
        const double contexts = (double)units.n;
        spread(squares_of_contexts(&units) / (contexts - 1.0), (int64_t)units.n - 1, contexts,
               how->level, &out);
    }
    return out;
}

/* Contexts of one question below which no sign-flip test has p < 0.05; of several questions one
 * context has nothing that it could be held against. */
static int64_t least_showing(int64_t together)
{
    return together > 1 ? 2 : 6;
}

/* Standard errors of the difference that n contexts show at 5 %, with a power of 80 %. */
static double shown_errors(int64_t n, int64_t together)
{
    const int64_t freedom = n - 1 + EXPECTED_COUNTS;
    return together > 1 && n < MANY_CONTEXTS
               ? dpe_student_quantile(0.95, freedom) + dpe_student_quantile(0.6, freedom)
               : 2.8;
}

double dpe_shown_difference(double variance, int64_t n, int64_t together)
{
    return n < least_showing(together) ? (double)INFINITY
                                       : shown_errors(n, together) * sqrt(variance / (double)n);
}

double dpe_showing_contexts(double variance, double mean, int64_t together)
{
    for (int64_t n = least_showing(together); n < MANY_CONTEXTS; n++) {
        if (dpe_shown_difference(variance, n, together) <= fabs(mean)) {
            return (double)n;
        }
    }
    const double errors = shown_errors(MANY_CONTEXTS, together);
    return fmax(ceil(errors * errors * variance / (mean * mean)), (double)MANY_CONTEXTS);
}

/* Of the differences of questions; two more are added, of the largest size in either direction,
 * because equal differences of few questions do not show that others would be equal. */
static double variance_of_questions(const double *a, const double *b, size_t n, int64_t valid)
{
    double sum = 0.0;
    double squares = 0.0;
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = a[i] - b[i];
        if (!isnan(d)) {
            sum += d;
            squares += d * d;
            largest = fmax(largest, fabs(d));
        }
    }
    largest = largest > 0.0 ? largest : 1.0;
    squares += 2.0 * largest * largest;
    return (squares - sum * sum / ((double)valid + 2.0)) / ((double)valid + 1.0);
}

struct dpe_difference dpe_compare(const double *a, const double *b, size_t n, bool shares,
                                  const struct dpe_resampling *how)
{
    struct dpe_difference out = {.p = (double)NAN, .detectable = (double)NAN};
    DPE_SCOPED(units_free) struct units units = {0};
    const bool bounded = take_mean(a, b, n, how, &units, &out.minus);
    bool flips = true;
    if (a == b && bounded) {
        out.minus.low = out.minus.high = out.minus.mean;
    } else if (bounded) {
        /* Smyth 2004: what is expected and what was seen, weighed by their degrees of freedom. */
        const int counts = shares ? EXPECTED_COUNTS : 0;
        const int64_t freedom = (int64_t)units.n - 1 + counts;
        const double expected =
            shares ? variance_of_questions(a, b, n, units.n_values) * expected_share(&units) : 0.0;
        const double seen = squares_of_contexts(&units);
        /* Contexts that agree show nothing of how others would differ. */
        const double variance =
            seen > 0.0 ? (counts * expected + seen) / (double)freedom : expected;
        const double error = spread(variance, freedom, (double)units.n, how->level, &out.minus);
        const double least = dpe_shown_difference(variance, (int64_t)units.n, how->together);
        out.detectable = variance > 0.0 && isfinite(least) ? least : (double)NAN;
        flips = !shares || how->together < 2 || units.n >= MANY_CONTEXTS;
        out.p = 1.0 - t_inside(fabs(out.minus.mean) / error, freedom);
        out.minus.low = shares ? fmax(out.minus.low, -1.0) : out.minus.low;
        out.minus.high = shares ? fmin(out.minus.high, 1.0) : out.minus.high;
    }
    out.p = flips ? dpe_sign_flip(a, b, n, how) : out.p;
    return out;
}

static bool valid_book(double nll, int64_t n_tokens)
{
    return !isnan(nll) && n_tokens > 0;
}

struct dpe_interval dpe_perplexity(const double *nll_sum, const int64_t *n_tokens, size_t n,
                                   double level)
{
    struct dpe_interval out = {NAN, NAN, NAN, 0};
    double nll = 0.0;
    double tokens = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (valid_book(nll_sum[i], n_tokens[i])) {
            nll += nll_sum[i];
            tokens += (double)n_tokens[i];
            out.n++;
        }
    }
    if (out.n == 0) {
        return out;
    }
    double whole = nll / tokens;
    out.mean = exp(whole);
    if (out.n < 2 || !(level > 0.0 && level < 1.0)) {
        return out;
    }
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (valid_book(nll_sum[i], n_tokens[i])) {
            /* Centred at the whole, so that equal books give exactly no width. */
            double without = (nll - nll_sum[i]) / (tokens - (double)n_tokens[i]) - whole;
            sum += without;
            squares += without * without;
        }
    }
    double books = (double)out.n;
    double spread = squares - sum * sum / books;
    double error = sqrt((spread > 0.0 ? spread : 0.0) * (books - 1.0) / books);
    double reach = dpe_student_quantile(level, out.n - 1) * error;
    out.low = exp(whole - reach);
    out.high = exp(whole + reach);
    return out;
}

enum { FLIPS = 999, STATISTICS_SEED = 1 };

void dpe_race_free(struct dpe_race *race)
{
    free(race->dropped);
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
    for (int64_t s = 0; s < n; s++) {
        look->a[s] = goodness(look->rows, leader, s) + look->options->indifference;
        look->b[s] = goodness(look->rows, arm, s);
        if (isfinite(look->a[s]) && isfinite(look->b[s])) {
            sum += look->a[s] - look->b[s];
        }
    }
    if (!(sum > 0.0)) {
        return;
    }
    const struct dpe_resampling how = {
        .together = look->rows->together, .rounds = FLIPS, .seed = STATISTICS_SEED + (uint64_t)arm};
    double p = 0.5 * dpe_sign_flip(look->a, look->b, (size_t)n, &how);
    if (p < look->options->level) {
        look->race->dropped[arm] = n;
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
