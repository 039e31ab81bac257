/* Statistics of rows against numpy (golden/make_stats.py) and closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "engine/base/base.h"
#include "eval/task/stats.h"
#include "tests/golden/stats_golden.h"
#include "tests/lib/near.h"

enum { N = sizeof golden_a / sizeof golden_a[0], BOOKS = sizeof golden_nll / sizeof golden_nll[0] };

#define HOW(together, level, rounds, seed) (&(struct dpe_resampling){together, level, rounds, seed})

/* 0 when |got − want| ≤ tolerance · |want|; prints both when not. */
static int far(const char *what, double got, double want, double tolerance)
{
    double error = near_error(got, want);
    if (!(error <= tolerance * fabs(want))) {
        fprintf(stderr, "%s: got %.17g, expected %.17g\n", what, got, want);
        return 1;
    }
    return 0;
}

static int far_interval(const char *what, struct dpe_interval got, const double want[3])
{
    return far(what, got.mean, want[0], 1e-13) + far(what, got.low, want[1], 1e-13) +
           far(what, got.high, want[2], 1e-13);
}

static void bootstrap_as_numpy(void **state)
{
    (void)state;
    struct dpe_interval got = dpe_bootstrap_mean(golden_a, N, HOW(1, 0.95, 500, 11));
    assert_int_equal(far_interval("mean", got, golden_mean), 0);
    assert_int_equal(got.n, N);
    got = dpe_bootstrap_paired(golden_b, golden_a, N, HOW(1, 0.9, 300, 12));
    assert_int_equal(far_interval("paired", got, golden_paired), 0);
}

static void contexts_as_numpy(void **state)
{
    (void)state;
    enum { LONG = sizeof golden_long / sizeof golden_long[0] };
    const double nothing[LONG] = {0};
    struct dpe_interval got = dpe_bootstrap_paired(golden_b, golden_a, N, HOW(3, 0.9, 300, 12));
    assert_int_equal(far_interval("contexts", got, golden_contexts), 0);
    assert_int_equal(got.n, N);
    double p = dpe_sign_flip(golden_long, nothing, LONG, HOW(3, 0.95, 400, 13));
    assert_int_equal(far("flip of contexts", p, golden_flip_contexts, 1e-15), 0);
}

/* Samples that repeat the result of their context add no information. */
static void repeated_samples_of_a_context_count_once(void **state)
{
    (void)state;
    double a[4 * N];
    double b[4 * N];
    for (size_t i = 0; i < 4 * (size_t)N; i++) {
        a[i] = golden_a[i / 4];
        b[i] = golden_b[i / 4];
    }
    struct dpe_interval once = dpe_bootstrap_paired(golden_b, golden_a, N, HOW(1, 0.95, 500, 3));
    struct dpe_interval four = dpe_bootstrap_paired(b, a, 4 * N, HOW(4, 0.95, 500, 3));
    assert_int_equal(four.n, 4 * N);
    assert_true(four.mean == once.mean && four.low == once.low && four.high == once.high);
    assert_true(dpe_sign_flip(b, a, 4 * N, HOW(4, 0.95, 400, 3)) ==
                dpe_sign_flip(golden_b, golden_a, N, HOW(1, 0.95, 400, 3)));
    struct dpe_interval wrong = dpe_bootstrap_paired(b, a, 4 * N, HOW(1, 0.95, 500, 3));
    assert_true(wrong.high - wrong.low < 0.65 * (once.high - once.low));
    /* What cancels within contexts leaves no sign, only rounding. */
    double cancels[32];
    const double nothing[32] = {0};
    for (int i = 0; i < 32; i++) {
        cancels[i] = i % 2 == 0 ? 1.0 - 2.0 / 3.0 : 0.0 - 1.0 / 3.0;
    }
    assert_true(cancels[0] + cancels[1] != 0.0);
    assert_true(dpe_sign_flip(cancels, nothing, 32, HOW(2, 0.95, 400, 3)) == 1.0);
    /* Contexts of which samples are missing weigh what is left of them: (1 + 1 + 0) / 3. */
    const double some[6] = {1.0, 1.0, NAN, 0.0, NAN, NAN};
    struct dpe_interval rest = dpe_bootstrap_mean(some, 6, HOW(2, 0.95, 100, 3));
    assert_true(rest.n == 3 && rest.mean == 2.0 / 3.0 && rest.low == 0.0 && rest.high == 1.0);
}

/* Where all contexts differ by the same, the difference is as uncertain as a share of 0 or 1. */
static void equal_differences_have_an_interval(void **state)
{
    (void)state;
    const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const double zeros[8] = {0};
    const double mixed[8] = {0, 1, 0, 1, 1, 0, 0, 0};
    const double copy[8] = {0, 1, 0, 1, 1, 0, 0, 0};
    const double reach = dpe_wilson(0.0, 8, 0.95).high;
    struct dpe_interval got = dpe_bootstrap_difference(ones, zeros, 8, HOW(1, 0.95, 100, 3));
    assert_true(got.mean == 1.0 && got.high == 1.0 && fabs(got.low - (1.0 - reach)) < 1e-12);
    got = dpe_bootstrap_difference(mixed, copy, 8, HOW(1, 0.95, 100, 3));
    assert_true(got.mean == 0.0 && got.low == -got.high && fabs(got.high - reach) < 1e-12);
    got = dpe_bootstrap_difference(mixed, mixed, 8, HOW(1, 0.95, 100, 3));
    assert_true(got.mean == 0.0 && got.low == 0.0 && got.high == 0.0);
    /* Contexts are the trials. */
    got = dpe_bootstrap_difference(ones, zeros, 8, HOW(4, 0.95, 100, 3));
    assert_true(fabs(got.low - (1.0 - dpe_wilson(0.0, 2, 0.95).high)) < 1e-12);
    /* With a bootstrap of some width it is that. */
    struct dpe_interval paired = dpe_bootstrap_paired(ones, mixed, 8, HOW(1, 0.95, 100, 3));
    got = dpe_bootstrap_difference(ones, mixed, 8, HOW(1, 0.95, 100, 3));
    assert_true(paired.low < paired.high && got.low == paired.low && got.high == paired.high);
}

/* Of 400 experiments with contexts that differ, the 90 % interval holds the truth in about 90 %, as
 * long as it is computed from the contexts. */
static void intervals_of_contexts_have_their_coverage(void **state)
{
    (void)state;
    enum { EXPERIMENTS = 400, CONTEXTS = 40, EACH = 4 };
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 3, 0);
    int holds = 0;
    int without = 0;
    for (int e = 0; e < EXPERIMENTS; e++) {
        double values[CONTEXTS * EACH];
        for (int i = 0; i < CONTEXTS; i++) {
            /* Found with probability 1/10 or 9/10, as the context has it. */
            uint32_t easy = dpe_rng_below(&rng, 2) == 0 ? 1 : 9;
            for (int s = 0; s < EACH; s++) {
                values[i * EACH + s] = dpe_rng_below(&rng, 10) < easy ? 1.0 : 0.0;
            }
        }
        struct dpe_interval got = dpe_bootstrap_mean(values, CONTEXTS * EACH, HOW(4, 0.9, 199, 1));
        holds += got.low <= 0.5 && 0.5 <= got.high;
        got = dpe_bootstrap_mean(values, CONTEXTS * EACH, HOW(1, 0.9, 199, 1));
        without += got.low <= 0.5 && 0.5 <= got.high;
    }
    assert_in_range(holds, 340, 378); /* 360 expected, sd 6 */
    assert_true(without < 310);
}

static void bootstrap_is_seeded_and_leaves_nan_out(void **state)
{
    (void)state;
    const double values[6] = {NAN, 0.0, 1.0, NAN, 0.0, 1.0};
    const double packed[4] = {0.0, 1.0, 0.0, 1.0};
    struct dpe_interval a = dpe_bootstrap_mean(values, 6, HOW(1, 0.95, 1000, 5));
    struct dpe_interval b = dpe_bootstrap_mean(packed, 4, HOW(1, 0.95, 1000, 5));
    assert_int_equal(a.n, 4);
    assert_memory_equal(&a, &b, sizeof a);
    /* Resampled means of four are 0 and 1 with probability 1/16 each: beyond 2.5 %. */
    assert_true(a.mean == 0.5 && a.low == 0.0 && a.high == 1.0);
    const double other[6] = {1.0, 1.0, NAN, 1.0, 0.0, 0.0};
    struct dpe_interval paired = dpe_bootstrap_paired(values, other, 6, HOW(1, 0.95, 10, 5));
    assert_int_equal(paired.n, 3);
    assert_true(fabs(paired.mean) < 1e-15);
}

/* 100 samples at 0.925 have an interval of about ±5 (benchmarks.md): normal approximation. */
static void bootstrap_of_a_share(void **state)
{
    (void)state;
    double values[100];
    for (int i = 0; i < 100; i++) {
        values[i] = i < 7 ? 0.0 : 1.0;
    }
    struct dpe_interval got = dpe_bootstrap_mean(values, 100, HOW(1, 0.95, 4000, 3));
    double reach = 1.959964 * sqrt(0.93 * 0.07 / 100.0);
    assert_true(fabs(got.low - (0.93 - reach)) < 0.011);
    assert_true(fabs(got.high - (0.93 + reach)) < 0.011);
}

static void intervals_of_nothing(void **state)
{
    (void)state;
    const double nans[2] = {NAN, NAN};
    struct dpe_interval got = dpe_bootstrap_mean(nans, 2, HOW(1, 0.95, 100, 1));
    assert_true(got.n == 0 && isnan(got.mean) && isnan(got.low) && isnan(got.high));
    const double one[1] = {0.25};
    got = dpe_bootstrap_mean(one, 1, HOW(1, 0.95, 100, 1));
    assert_true(got.n == 1 && got.mean == 0.25 && isnan(got.low) && isnan(got.high));
    const double two[2] = {0.0, 0.5};
    got = dpe_bootstrap_mean(two, 2, HOW(1, 0.95, 0, 1));
    assert_true(got.mean == 0.25 && isnan(got.low));
    got = dpe_bootstrap_mean(two, 2, HOW(1, 1.0, 10, 1));
    assert_true(got.mean == 0.25 && isnan(got.low));
    got = dpe_bootstrap_mean(two, 2, HOW(2, 0.95, 100, 1));
    assert_true(got.n == 2 && got.mean == 0.25 && isnan(got.low));
    got = dpe_bootstrap_mean(NULL, 0, HOW(1, 0.95, 100, 1));
    assert_true(got.n == 0 && isnan(got.mean));
    got = dpe_perplexity(NULL, NULL, 0, 0.95);
    assert_true(got.n == 0 && isnan(got.mean));
}

static void sign_flip_exact(void **state)
{
    (void)state;
    const double zero[5] = {0.0, 0.0, 0.0, 0.0, 0.0};
    const double ones[5] = {1.0, 1.0, 1.0, 1.0, 1.0};
    /* All five agree: 2 of 32 sign patterns are as extreme. */
    assert_true(dpe_sign_flip(ones, zero, 5, HOW(1, 0.95, 0, 1)) == 2.0 / 32.0);
    /* 4 : 1 of equal size: |sum| ≥ 3 has 2 · (1 + 5) of 32 patterns. */
    const double mixed[5] = {1.0, 1.0, -1.0, 1.0, 1.0};
    assert_true(dpe_sign_flip(mixed, zero, 5, HOW(1, 0.95, 0, 1)) == 12.0 / 32.0);
    assert_true(dpe_sign_flip(zero, zero, 5, HOW(1, 0.95, 0, 1)) == 1.0);
    /* Ties do not count, nor do pairs with NaN; 0.1 · 3 in other orders is the same sum. */
    const double some[5] = {0.1, 0.0, 0.1, NAN, 0.1};
    assert_true(dpe_sign_flip(some, zero, 5, HOW(1, 0.95, 0, 1)) == 2.0 / 8.0);
    double sixteen[17];
    double nothing[17] = {0};
    for (int i = 0; i < 17; i++) {
        sixteen[i] = 0.25;
    }
    assert_true(dpe_sign_flip(sixteen, nothing, 16, HOW(1, 0.95, 0, 1)) == 2.0 / 65536.0);
    /* Seventeen are drawn: none of 99 reaches the observed, so the +1 rule alone is left. */
    assert_true(dpe_sign_flip(sixteen, nothing, 17, HOW(1, 0.95, 99, 1)) == 0.01);
    assert_true(isnan(dpe_sign_flip(sixteen, nothing, 17, HOW(1, 0.95, 0, 1))));
}

static void sign_flip_as_numpy(void **state)
{
    (void)state;
    assert_int_equal(far("flip", dpe_sign_flip(golden_b, golden_a, N, HOW(1, 0.95, 400, 13)),
                         golden_flip, 1e-15),
                     0);
}

/* Wilson 1927; n = 12 by hand: z^2 / (n + z^2) with z = 1.959964. */
static void shares_have_an_interval(void **state)
{
    (void)state;
    const double z2 = 1.959963984540054 * 1.959963984540054;
    struct dpe_interval none = dpe_wilson(0.0, 12, 0.95);
    struct dpe_interval all = dpe_wilson(1.0, 12, 0.95);
    assert_true(none.low == 0.0 && none.mean == 0.0 && none.n == 12);
    assert_int_equal(far("none", none.high, z2 / (12.0 + z2), 1e-12), 0);
    assert_int_equal(far("all", all.low, 12.0 / (12.0 + z2), 1e-12), 0);
    assert_true(all.high == 1.0);
    /* 7 of 10, from the closed form in Python. */
    struct dpe_interval some = dpe_wilson(0.7, 10, 0.95);
    assert_int_equal(far("some low", some.low, 0.39677814746114537, 1e-12), 0);
    assert_int_equal(far("some high", some.high, 0.8922087325936989, 1e-12), 0);
    assert_true(isnan(dpe_wilson(0.5, 0, 0.95).low) && isnan(dpe_wilson(1.5, 3, 0.95).high));
    assert_true(isnan(dpe_wilson(0.5, 3, 1.0).low));
}

static void shares_that_agree_have_width(void **state)
{
    (void)state;
    double values[12] = {0};
    struct dpe_interval got = dpe_bootstrap_share(values, 12, HOW(1, 0.95, 500, 1));
    assert_true(got.low == 0.0 && got.mean == 0.0 && got.n == 12);
    assert_true(got.high == dpe_wilson(0.0, 12, 0.95).high && got.high > 0.2);
    /* Twelve samples of three contexts are three trials; NaN is not one. */
    assert_true(dpe_bootstrap_share(values, 12, HOW(4, 0.95, 500, 1)).high ==
                dpe_wilson(0.0, 3, 0.95).high);
    values[0] = NAN;
    assert_true(dpe_bootstrap_share(values, 12, HOW(1, 0.95, 500, 1)).high ==
                dpe_wilson(0.0, 11, 0.95).high);
    /* One context has no interval, and values that differ have the bootstrap's. */
    assert_true(isnan(dpe_bootstrap_share(values, 12, HOW(12, 0.95, 500, 1)).high));
    values[3] = 1.0;
    struct dpe_interval mean = dpe_bootstrap_mean(values, 12, HOW(1, 0.95, 500, 1));
    got = dpe_bootstrap_share(values, 12, HOW(1, 0.95, 500, 1));
    assert_true(got.low == mean.low && got.high == mean.high && mean.low < mean.high);
}

static void perplexity_as_numpy(void **state)
{
    (void)state;
    struct dpe_interval got = dpe_perplexity(golden_nll, golden_tokens, BOOKS, 0.95);
    assert_int_equal(far("ppl", got.mean, golden_ppl[0], 1e-13), 0);
    assert_int_equal(far("ppl low", got.low, golden_ppl[1], 1e-11), 0);
    assert_int_equal(far("ppl high", got.high, golden_ppl[2], 1e-11), 0);
    assert_int_equal(got.n, BOOKS);
}

/* Two books of equal size: the jackknife's error is half their difference in nats per token, and
 * one degree of freedom has the quantile tan(π/2 · level). */
static void perplexity_of_two_books(void **state)
{
    (void)state;
    const double nll[4] = {200.0, NAN, 300.0, 7.0};
    const int64_t tokens[4] = {100, 100, 100, 0};
    struct dpe_interval got = dpe_perplexity(nll, tokens, 4, 0.5);
    assert_int_equal(got.n, 2);
    assert_int_equal(far("mean", got.mean, exp(2.5), 1e-14), 0);
    assert_int_equal(far("low", got.low, exp(2.5 - 0.5), 1e-12), 0);
    assert_int_equal(far("high", got.high, exp(2.5 + 0.5), 1e-12), 0);
    const double same[3] = {200.0, 400.0, 600.0};
    const int64_t sizes[3] = {100, 200, 300};
    got = dpe_perplexity(same, sizes, 3, 0.95);
    assert_int_equal(far("no width", got.low, got.high, 1e-12), 0);
    got = dpe_perplexity(same, sizes, 1, 0.95);
    assert_true(got.n == 1 && isnan(got.low) && isnan(got.high));
}

static void contexts_that_show_a_difference(void **state)
{
    (void)state;
    assert_true(isinf(dpe_shown_difference(0.25, 5, 1)));
    assert_true(fabs(dpe_shown_difference(0.25, 49, 1) - 0.2) < 1e-12);
    assert_true(dpe_showing_contexts(0.25, 0.21, 1) == 45.0);
    assert_true(dpe_showing_contexts(0.25, 0.9, 1) == 6.0);
    assert_true(isinf(dpe_shown_difference(0.25, 1, 4)) &&
                isfinite(dpe_shown_difference(0.25, 2, 4)));
    assert_true(dpe_showing_contexts(0.25, 0.9, 4) == 4.0);
    /* One is the other's inverse. */
    for (int64_t n = 6; n < 100; n++) {
        double shown = dpe_shown_difference(0.3, n, 1) * (1.0 + 1e-9);
        assert_true(dpe_showing_contexts(0.3, shown, 1) == (double)n);
    }
}

static double variance_of(const double *a, const double *b, int n)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < n; i++) {
        sum += a[i] - b[i];
        squares += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return (squares - sum * sum / n) / (n - 1);
}

/* Two contexts of four questions that plan a answers and plan b does not: by hand. */
static void few_contexts_by_hand(void **state)
{
    (void)state;
    const double ones[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    const double zeros[8] = {0.0};
    struct dpe_difference got = dpe_compare(ones, zeros, 8, true, HOW(4, 0.95, 100, 1));
    /* Of questions (8 + 2 - 64/10)/9 = 0.4, of a context 0.4 (0.3 + 0.7/4) = 0.19; none was seen,
     * so 4/5 of it; t with 5 degrees of freedom. */
    const double error = sqrt(0.19 * 0.8 / 2.0);
    assert_true(fabs(got.minus.low - (1.0 - 2.570581836 * error)) < 1e-8);
    assert_true(got.minus.high == 1.0 && got.minus.mean == 1.0 && got.minus.n == 8);
    assert_true(fabs(got.p - 0.0151020067) < 1e-9);
    /* Four times in five: t(0.95) + t(0.6) errors. */
    assert_true(fabs(got.detectable - (2.570581836 + 0.919543780) * error) < 1e-6);
    /* The other way round, and of nothing. */
    struct dpe_difference back = dpe_compare(zeros, ones, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(back.p == got.p && back.minus.high == -got.minus.low);
    got = dpe_compare(ones, ones, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(got.p == 1.0 && got.minus.low == 0.0 && got.minus.high == 0.0);
    assert_true(isnan(got.detectable)); /* nothing varies */
    const double copy[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    got = dpe_compare(ones, copy, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(got.p > 0.999 && got.minus.low < 0.0 && got.minus.high > 0.0);
    /* Values that are not there, and contexts without any. */
    const double some[12] = {1.0, NAN, 1.0, 1.0, NAN, NAN, NAN, NAN, 1.0, 1.0, 1.0, NAN};
    const double none[12] = {0.0};
    got = dpe_compare(some, none, 12, true, HOW(4, 0.95, 100, 1));
    assert_true(got.minus.n == 6 && got.p < 0.05 && got.p > 0.01);
    /* Many contexts, single questions and what is no share: as ever. */
    double a[48], b[48];
    for (int i = 0; i < 48; i++) {
        a[i] = i % 3 == 0 ? 0.0 : 1.0;
        b[i] = i % 5 == 0 ? 1.0 : 0.0;
    }
    const struct dpe_resampling *hows[] = {HOW(4, 0.95, 500, 7), HOW(1, 0.95, 500, 7),
                                           HOW(12, 0.95, 500, 7)};
    for (int i = 0; i < 3; i++) {
        got = dpe_compare(a, b, 48, i < 2, hows[i]);
        struct dpe_interval minus = i < 2 ? dpe_bootstrap_difference(a, b, 48, hows[i])
                                          : dpe_bootstrap_paired(a, b, 48, hows[i]);
        assert_true(got.minus.low == minus.low && got.p == dpe_sign_flip(a, b, 48, hows[i]));
        /* Single samples: 2.8 standard errors of 48 differences. */
        assert_true(i != 1 ||
                    fabs(got.detectable - 2.8 * sqrt(variance_of(a, b, 48) / 48.0)) < 1e-12);
    }
}

static double draw_normal(struct dpe_rng *rng)
{
    double radius = sqrt(-2.0 * log(1.0 - dpe_rng_unit(rng)));
    return radius * cos(6.283185307179586 * dpe_rng_unit(rng));
}

/* Two plans that find these shares on average, on contexts that each likes or not (spread, in
 * logits), of questions that are hard for both or not. */
static void draw_plans(struct dpe_rng *rng, const double share[2], double spread, int contexts,
                       int together, double *a, double *b)
{
    const double stretch = sqrt(1.0 + (spread * spread + 1.0) / 2.9);
    double *const to[2] = {a, b};
    for (int c = 0; c < contexts; c++) {
        double taste[2] = {spread * draw_normal(rng), spread * draw_normal(rng)};
        for (int q = 0; q < together; q++) {
            double hard = draw_normal(rng);
            for (int plan = 0; plan < 2; plan++) {
                double logit =
                    stretch * log(share[plan] / (1.0 - share[plan])) + hard + taste[plan];
                to[plan][c * together + q] = dpe_rng_unit(rng) < 1.0 / (1.0 + exp(-logit));
            }
        }
    }
}

/* How often a difference is found (p < 0.05), and by the sign-flip test alone. */
static double share_found(double share_a, double share_b, double spread, int contexts, int together,
                          double *flips)
{
    enum { SETS = 2000, MOST = 128 };
    const double share[2] = {share_a, share_b};
    double a[MOST], b[MOST];
    struct dpe_rng rng;
    int found = 0;
    int flipped = 0;
    dpe_rng_seed(&rng, 20, (uint64_t)(contexts * 100 + together));
    for (int set = 0; set < SETS; set++) {
        draw_plans(&rng, share, spread, contexts, together, a, b);
        const size_t n = (size_t)contexts * (size_t)together;
        const struct dpe_difference got = dpe_compare(a, b, n, true, HOW(together, 0.95, 2, 1));
        found += got.p < 0.05;
        flipped += dpe_sign_flip(a, b, n, HOW(together, 0.95, 2, 1)) < 0.05;
        assert_true((got.p < 0.05) == (got.minus.low > 0.0 || got.minus.high < 0.0));
    }
    *flips = (double)flipped / SETS;
    return (double)found / SETS;
}

/* Of two equal plans at most 5 % of sets show a difference, give or take what 2000 sets do, where
 * questions of a context have up to 0.3 of the variance in common (spread 1.7); and few contexts
 * show what is large. */
static void few_contexts_show_what_is_there(void **state)
{
    (void)state;
    double flips = 0.0;
    for (int contexts = 2; contexts <= 8; contexts *= 2) {
        for (int together = 4; together <= 16; together *= 2) {
            for (int spread = 0; spread < 3; spread++) {
                for (int share = 1; share < 10; share += 4) {
                    double found = share_found(0.1 * share, 0.1 * share, 0.85 * spread, contexts,
                                               together, &flips);
                    if (found > 0.065) {
                        fail_msg("%d contexts of %d, spread %.2f, share 0.%d: found in %.3f",
                                 contexts, together, 0.85 * spread, share, found);
                    }
                }
            }
        }
    }
    assert_true(share_found(0.05, 0.62, 1.0, 4, 4, &flips) > 0.7 && flips == 0.0);
    assert_true(share_found(0.05, 0.62, 1.0, 4, 16, &flips) > 0.93 && flips == 0.0);
    assert_true(share_found(0.2, 0.8, 1.0, 2, 8, &flips) > 0.3 && flips == 0.0);
    assert_true(share_found(0.2, 0.8, 1.0, 8, 4, &flips) > flips);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_contexts_by_hand),
        cmocka_unit_test(few_contexts_show_what_is_there),
        cmocka_unit_test(bootstrap_as_numpy),
        cmocka_unit_test(contexts_as_numpy),
        cmocka_unit_test(repeated_samples_of_a_context_count_once),
        cmocka_unit_test(equal_differences_have_an_interval),
        cmocka_unit_test(intervals_of_contexts_have_their_coverage),
        cmocka_unit_test(bootstrap_is_seeded_and_leaves_nan_out),
        cmocka_unit_test(bootstrap_of_a_share),
        cmocka_unit_test(intervals_of_nothing),
        cmocka_unit_test(sign_flip_exact),
        cmocka_unit_test(sign_flip_as_numpy),
        cmocka_unit_test(shares_have_an_interval),
        cmocka_unit_test(shares_that_agree_have_width),
        cmocka_unit_test(perplexity_as_numpy),
        cmocka_unit_test(perplexity_of_two_books),
        cmocka_unit_test(contexts_that_show_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
