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

static void flips_of_contexts_as_numpy(void **state)
{
    (void)state;
    enum { LONG = sizeof golden_long / sizeof golden_long[0] };
    const double nothing[LONG] = {0};
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
    struct dpe_interval once = dpe_bootstrap_mean(golden_a, N, HOW(1, 0.95, 0, 3));
    struct dpe_interval four = dpe_bootstrap_mean(a, 4 * N, HOW(4, 0.95, 0, 3));
    assert_int_equal(four.n, 4 * N);
    assert_true(four.mean == once.mean && four.low == once.low && four.high == once.high);
    assert_true(dpe_sign_flip(b, a, 4 * N, HOW(4, 0.95, 400, 3)) ==
                dpe_sign_flip(golden_b, golden_a, N, HOW(1, 0.95, 400, 3)));
    struct dpe_interval wrong = dpe_bootstrap_mean(a, 4 * N, HOW(1, 0.95, 0, 3));
    assert_true(wrong.high - wrong.low < 0.65 * (once.high - once.low));
    /* What cancels within contexts leaves no sign, only rounding. */
    double cancels[32];
    const double nothing[32] = {0};
    for (int i = 0; i < 32; i++) {
        cancels[i] = i % 2 == 0 ? 1.0 - 2.0 / 3.0 : 0.0 - 1.0 / 3.0;
    }
    assert_true(cancels[0] + cancels[1] != 0.0);
    assert_true(dpe_sign_flip(cancels, nothing, 32, HOW(2, 0.95, 400, 3)) == 1.0);
}

/* Student's t by hand: contexts with the means 1, 2 and 6 of one valid value or two. */
static void means_by_hand(void **state)
{
    (void)state;
    const double values[6] = {1.0, NAN, 1.5, 2.5, 6.0, NAN};
    struct dpe_interval got = dpe_bootstrap_mean(values, 6, HOW(2, 0.95, 0, 1));
    const double error = sqrt(7.0 / 3.0); /* squares 4 + 1 + 9, 2 degrees of freedom */
    assert_true(got.n == 4 && got.mean == 2.75);
    assert_int_equal(far("low", got.low, 2.75 - 4.302652730 * error, 1e-8), 0);
    assert_int_equal(far("high", got.high, 2.75 + 4.302652730 * error, 1e-8), 0);
}

/* Two contexts of four questions, 1 and 3 found: 4 + 4 · 0.25 degrees of freedom. */
static void shares_by_hand(void **state)
{
    (void)state;
    const double values[8] = {1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0};
    struct dpe_interval got = dpe_bootstrap_share(values, 8, HOW(4, 0.95, 0, 1));
    /* Expected 0.3 + 0.7/4, seen 2 · 0.0625 of 0.25; weighed 4 and 1. */
    const double trials = 2.0 / ((4.0 * 0.475 + 0.5) / 5.0);
    const double z2 = 2.570581836 * 2.570581836 / trials;
    const double reach = (sqrt(z2 * (0.25 + z2 / 4.0)) + 0.1 / trials) / (1.0 + z2);
    assert_true(got.n == 8 && got.mean == 0.5);
    assert_int_equal(far("low", got.low, 0.5 - reach, 1e-8), 0);
    assert_int_equal(far("high", got.high, 0.5 + reach, 1e-8), 0);
    assert_true(got.low < 0.13 && got.high > 0.87); /* and not [0.25, 0.75] */
}

static bool holds(struct dpe_interval got, double truth)
{
    return got.low <= truth && truth <= got.high;
}

/* Questions of a context, found with this share; Pólya's urn gives them the correlation. */
static void draw_context(struct dpe_rng *rng, double share, double correlation, int together,
                         double *values)
{
    const double weight = correlation > 0.0 ? 1.0 / correlation - 1.0 : 1e12;
    double found = 0.0;
    for (int q = 0; q < together; q++) {
        values[q] = dpe_rng_unit(rng) * (weight + q) < weight * share + found;
        found += values[q];
    }
}

/* How often the interval of the mean holds the truth. */
static double coverage(double share, double correlation, int contexts, int together)
{
    enum { SETS = 1000, MOST = 272 };
    double values[MOST];
    struct dpe_rng rng;
    int held = 0;
    dpe_rng_seed(&rng, 11, (uint64_t)(contexts * 100 + together));
    for (int set = 0; set < SETS; set++) {
        for (int c = 0; c < contexts; c++) {
            draw_context(&rng, share, correlation, together, values + c * together);
        }
        held += holds(dpe_bootstrap_share(values, (size_t)contexts * (size_t)together,
                                          HOW(together, 0.95, 0, 1)),
                      share);
    }
    return (double)held / SETS;
}

/* An interval of 95 % holds the truth in at least 93 of 100 sets, however few the contexts are. */
static void intervals_hold_the_truth(void **state)
{
    (void)state;
    const int contexts[] = {2, 3, 4, 6, 8, 16};
    const double shares[] = {0.03, 0.1, 0.35, 0.5, 0.8, 0.95};
    const double correlations[] = {0.0, 0.3, 0.5};
    for (int at = 0; at < 6 * 3 * 6 * 3; at++) {
        const int n = contexts[at / 54];
        const int together = 1 << 2 * (at / 18 % 3);
        const double share = shares[at / 3 % 6];
        const double correlation = correlations[at % 3];
        const double held =
            together > 1 || correlation == 0.0 ? coverage(share, correlation, n, together) : 1.0;
        if (held < 0.93) {
            fail_msg("%d contexts of %d, share %.2f, correlation %.1f: held in %.3f", n, together,
                     share, correlation, held);
        }
    }
}

static void intervals_of_nothing(void **state)
{
    (void)state;
    const double nans[2] = {NAN, NAN};
    struct dpe_interval got = dpe_bootstrap_mean(nans, 2, HOW(1, 0.95, 0, 1));
    assert_true(got.n == 0 && isnan(got.mean) && isnan(got.low) && isnan(got.high));
    const double one[1] = {0.25};
    got = dpe_bootstrap_share(one, 1, HOW(1, 0.95, 0, 1));
    assert_true(got.n == 1 && got.mean == 0.25 && isnan(got.low) && isnan(got.high));
    const double two[2] = {0.0, 0.5};
    got = dpe_bootstrap_share(two, 2, HOW(1, 1.0, 0, 1));
    assert_true(got.mean == 0.25 && isnan(got.low));
    got = dpe_bootstrap_mean(two, 2, HOW(2, 0.95, 0, 1));
    assert_true(got.n == 2 && got.mean == 0.25 && isnan(got.low));
    got = dpe_bootstrap_mean(NULL, 0, HOW(1, 0.95, 0, 1));
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

static void shares_that_agree_have_width(void **state)
{
    (void)state;
    double values[12] = {0};
    struct dpe_interval got = dpe_bootstrap_share(values, 12, HOW(1, 0.95, 0, 1));
    /* Nothing was seen of the variance: t with 4 degrees of freedom and 12 trials. */
    const double z2 = 2.776445105 * 2.776445105 / 12.0;
    assert_true(got.low == 0.0 && got.mean == 0.0 && got.n == 12);
    assert_int_equal(far("none", got.high, (z2 + 0.1 / 12.0) / (1.0 + z2), 1e-8), 0);
    /* Contexts are the trials; NaN is none. */
    const double three = dpe_bootstrap_share(values, 12, HOW(4, 0.95, 0, 1)).high;
    assert_true(three > got.high && three < 1.0);
    values[0] = NAN;
    assert_true(dpe_bootstrap_share(values, 12, HOW(1, 0.95, 0, 1)).high ==
                dpe_bootstrap_share(values + 1, 11, HOW(1, 0.95, 0, 1)).high);
    assert_true(isnan(dpe_bootstrap_share(values, 12, HOW(12, 0.95, 0, 1)).high));
    /* All found mirrors none found. */
    const double ones[3] = {1.0, 1.0, 1.0};
    const struct dpe_interval all = dpe_bootstrap_share(ones, 3, HOW(1, 0.95, 0, 1));
    const struct dpe_interval none = dpe_bootstrap_share(values + 1, 3, HOW(1, 0.95, 0, 1));
    assert_true(all.high == 1.0 && fabs(all.low - (1.0 - none.high)) < 1e-12);
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

/* Two contexts of four questions that plan a answers and plan b does not: by hand. */
static void few_contexts_by_hand(void **state)
{
    (void)state;
    const double ones[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    const double zeros[8] = {0.0};
    struct dpe_difference got = dpe_compare(ones, zeros, 8, true, HOW(4, 0.95, 100, 1));
    /* Of questions (8 + 2 - 64/10)/9 = 0.4, of a context 0.4 (0.3 + 0.7/4) = 0.19; the contexts
     * agree, so nothing is weighed with it; t with 5 degrees of freedom. */
    const double error = sqrt(0.19 / 2.0);
    assert_true(fabs(got.minus.low - (1.0 - 2.570581836 * error)) < 1e-8);
    assert_true(got.minus.high == 1.0 && got.minus.mean == 1.0 && got.minus.n == 8);
    assert_true(fabs(got.p - 0.0228366626) < 1e-9);
    /* Four times in five: t(0.95) + t(0.6) errors. */
    assert_true(fabs(got.detectable - (2.570581836 + 0.919543780) * error) < 1e-6);
    /* The other way round, and of nothing. */
    struct dpe_difference back = dpe_compare(zeros, ones, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(back.p == got.p && back.minus.high == -got.minus.low);
    got = dpe_compare(ones, ones, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(got.p == 1.0 && got.minus.low == 0.0 && got.minus.high == 0.0);
    assert_true(isnan(got.detectable)); /* nothing varies */
    assert_true(isnan(dpe_compare(ones, ones, 8, true, HOW(8, 0.95, 100, 1)).minus.low));
    const double copy[8] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    got = dpe_compare(ones, copy, 8, true, HOW(4, 0.95, 100, 1));
    assert_true(got.p > 0.999 && got.minus.low < 0.0 && got.minus.high > 0.0);
    /* Values that are not there, and contexts without any. */
    const double some[12] = {1.0, NAN, 1.0, 1.0, NAN, NAN, NAN, NAN, 1.0, 1.0, 1.0, NAN};
    const double none[12] = {0.0};
    got = dpe_compare(some, none, 12, true, HOW(4, 0.95, 100, 1));
    assert_true(got.minus.n == 6 && got.p < 0.05 && got.p > 0.01);
    /* Of many contexts, of single questions and of what is no share p is the sign-flip test's. */
    double a[48], b[48];
    for (int i = 0; i < 48; i++) {
        a[i] = i % 3 == 0 ? 0.0 : 1.0;
        b[i] = i % 5 == 0 ? 1.0 : 0.0;
    }
    const struct dpe_resampling *hows[] = {HOW(4, 0.95, 500, 7), HOW(1, 0.95, 500, 7),
                                           HOW(12, 0.95, 500, 7)};
    for (int i = 0; i < 3; i++) {
        got = dpe_compare(a, b, 48, i < 2, hows[i]);
        assert_true(got.p == dpe_sign_flip(a, b, 48, hows[i]));
    }
    /* Student's t over four contexts that differ by 2, 3, 4 and 7. */
    const double nats[8] = {1.0, 3.0, 2.0, 4.0, 4.0, 4.0, 6.0, 8.0};
    got = dpe_compare(nats, zeros, 8, false, HOW(2, 0.95, 100, 1));
    const double of_four = 3.182446305 * sqrt(14.0 / 3.0 / 4.0);
    assert_true(got.minus.mean == 4.0 && fabs(got.minus.high - 4.0 - of_four) < 1e-8 &&
                fabs(got.minus.low - 4.0 + of_four) < 1e-8);
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

/* How often the interval of a difference leaves 0 out, and what the sign-flip test alone finds. */
static double share_found(double share_a, double share_b, double spread, int contexts, int together,
                          double *flips)
{
    enum { SETS = 1000, MOST = 272 };
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
        const bool shown = got.minus.low > 0.0 || got.minus.high < 0.0;
        found += shown;
        flipped += dpe_sign_flip(a, b, n, HOW(together, 0.95, 2, 1)) < 0.05;
        assert_true(together == 1 || contexts >= 12 || shown == (got.p < 0.05));
    }
    *flips = (double)flipped / SETS;
    return (double)found / SETS;
}

/* Of two equal plans at most 5 % of sets show a difference, give or take what 1000 sets do, where
 * questions of a context have up to 0.3 of the variance in common (spread 1.7); and few contexts
 * show what is large. */
static void few_contexts_show_what_is_there(void **state)
{
    (void)state;
    const int contexts[] = {2, 3, 4, 6, 8, 17};
    double flips = 0.0;
    for (int at = 0; at < 6 * 3 * 2 * 3; at++) {
        const int together = 1 << 2 * (at / 6 % 3);
        const double spread = 1.7 * (at / 3 % 2);
        const double share = 0.1 + 0.4 * (at % 3);
        const double found = share_found(share, share, spread, contexts[at / 18], together, &flips);
        if (found > 0.07) {
            fail_msg("%d contexts of %d, spread %.2f, share %.1f: found in %.3f", contexts[at / 18],
                     together, spread, share, found);
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
        cmocka_unit_test(flips_of_contexts_as_numpy),
        cmocka_unit_test(repeated_samples_of_a_context_count_once),
        cmocka_unit_test(means_by_hand),
        cmocka_unit_test(shares_by_hand),
        cmocka_unit_test(intervals_hold_the_truth),
        cmocka_unit_test(intervals_of_nothing),
        cmocka_unit_test(sign_flip_exact),
        cmocka_unit_test(sign_flip_as_numpy),
        cmocka_unit_test(shares_that_agree_have_width),
        cmocka_unit_test(perplexity_as_numpy),
        cmocka_unit_test(perplexity_of_two_books),
        cmocka_unit_test(contexts_that_show_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
