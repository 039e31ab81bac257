/* Intervals and tests over rows. Everything is drawn from a seeded generator and summed in index
 * order, so equal input gives equal bits. */
#include "eval.h"

#include <math.h>
#include <stdlib.h>

/* Streams of the generator, so that two statistics with one seed share no draws. */
enum { STREAM_BOOTSTRAP = 1, STREAM_SIGN_FLIP = 2 };
enum { EXACT_FLIPS = 16 };

static double mean_of(const double *values, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum / (double)n;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return (*x > *y) - (*x < *y);
}

/* Quantile of sorted values, linear between order statistics (numpy's default). */
static double quantile(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t low = (size_t)floor(at);
    size_t high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

static double resampled_mean(const double *values, size_t n, struct dpe_rng *rng)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += values[dpe_rng_below(rng, (uint32_t)n)];
    }
    return sum / (double)n;
}

/* Interval of the mean of n valid values; takes `values` over. */
static struct dpe_interval bootstrap(double *values, size_t n, double level, int rounds,
                                     uint64_t seed)
{
    struct dpe_interval out = {NAN, NAN, NAN, (int64_t)n};
    double *means = NULL;
    if (values == NULL || n == 0) {
        goto done;
    }
    out.mean = mean_of(values, n);
    if (rounds < 1 || n > UINT32_MAX || !(level > 0.0 && level < 1.0)) {
        goto done;
    }
    means = dpe_alloc((size_t)rounds, sizeof *means);
    if (means == NULL) {
        goto done;
    }
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, STREAM_BOOTSTRAP);
    for (int i = 0; i < rounds; i++) {
        means[i] = resampled_mean(values, n, &rng);
    }
    qsort(means, (size_t)rounds, sizeof *means, by_value);
    out.low = quantile(means, (size_t)rounds, (1.0 - level) / 2.0);
    out.high = quantile(means, (size_t)rounds, (1.0 + level) / 2.0);
done:
    free(means);
    free(values);
    return out;
}

/* The valid a[i] − b[i] (b NULL: a[i]) in their order, owned by the caller; NULL: no memory. */
static double *valid_differences(const double *a, const double *b, size_t n, size_t *n_valid)
{
    *n_valid = 0;
    double *values = dpe_alloc(n, sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++) {
        double value = b == NULL ? a[i] : a[i] - b[i];
        if (!isnan(value)) {
            values[(*n_valid)++] = value;
        }
    }
    return values;
}

struct dpe_interval dpe_bootstrap_mean(const double *values, size_t n, double level, int rounds,
                                       uint64_t seed)
{
    return dpe_bootstrap_paired(values, NULL, n, level, rounds, seed);
}

struct dpe_interval dpe_bootstrap_paired(const double *a, const double *b, size_t n, double level,
                                         int rounds, uint64_t seed)
{
    size_t n_valid = 0;
    double *values = valid_differences(a, b, n, &n_valid);
    return bootstrap(values, n_valid, level, rounds, seed);
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

double dpe_sign_flip(const double *a, const double *b, size_t n, int rounds, uint64_t seed)
{
    size_t n_valid = 0;
    double *d = valid_differences(a, b, n, &n_valid);
    if (d == NULL) {
        return NAN;
    }
    size_t used = 0;
    double observed = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < n_valid; i++) {
        if (d[i] != 0.0) {
            d[used++] = d[i];
            observed += d[i];
            size += fabs(d[i]);
        }
    }
    /* Sums of the same numbers in other signs round differently: what is equal must count. */
    double threshold = fabs(observed) - 1e-12 * size;
    double p = 1.0;
    if (used > 0 && used <= EXACT_FLIPS) {
        p = exact_p(d, used, threshold);
    } else if (used > 0) {
        p = rounds < 1 ? (double)NAN : sampled_p(d, used, threshold, rounds, seed);
    }
    free(d);
    return p;
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
    for (int i = 0; i < 100; i++) {
        double middle = 0.5 * (low + high);
        if (t_inside(middle, freedom) < level) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return 0.5 * (low + high);
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
