/* Choosing the number of key pairs on hand-made rows: ties, one number, rows without a value, no
 * recall at all, too few samples, curves with a hole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/search/key_pairs.h"

enum { CANDIDATES = DPE_DETECT_CANDIDATES, MOST = 400 };
static const int64_t ladder[CANDIDATES] = {16, 20, 24, 28, 32};

/* values [CANDIDATES][n]: candidate i finds everything of the first right[i] samples and nothing
 * else. */
static void set_values(double *values, int n, const int *right)
{
    for (int i = 0; i < CANDIDATES; i++) {
        for (int s = 0; s < n; s++) {
            values[i * n + s] = s < right[i] ? 1.0 : 0.0;
        }
    }
}

static struct dpe_detect_top_k choose(const double *values, int n_candidates, int n,
                                      enum dpe_detect_criterion criterion)
{
    struct dpe_detect_top_k choice;
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_choose_top_k(ladder, values, n_candidates, n, 1, criterion, &choice, &err),
        DPE_OK);
    assert_in_range(choice.chosen, 0, choice.against);
    return choice;
}

static int chosen_of(int n, const int *right)
{
    static double values[CANDIDATES * MOST];
    set_values(values, n, right);
    return (int)ladder[choose(values, CANDIDATES, n, DPE_DETECT_RECALL).chosen];
}

/* ---------------------------------------------------------------------------------------- ladder
 */

static void the_ladder_has_whole_pairs_once(void **state)
{
    (void)state;
    static const struct {
        int64_t pairs;
        int n;
        int64_t k[CANDIDATES];
    } expected[] = {{0, 0, {0}},
                    {1, 1, {1}},
                    {2, 2, {1, 2}},
                    {3, 2, {2, 3}},
                    {4, 3, {2, 3, 4}},
                    {8, 5, {4, 5, 6, 7, 8}},
                    {32, 5, {16, 20, 24, 28, 32}},
                    {64, 5, {32, 40, 48, 56, 64}},
                    {20, 5, {10, 13, 15, 18, 20}}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        int64_t k[CANDIDATES] = {0};
        assert_int_equal(dpe_detect_top_k_candidates(expected[i].pairs, k), expected[i].n);
        for (int r = 0; r < expected[i].n; r++) {
            assert_int_equal(k[r], expected[i].k[r]);
        }
    }
}

/* ------------------------------------------------------------------------------------------ rule
 */

static void a_loss_beyond_the_margin_ends_it(void **state)
{
    (void)state;
    assert_int_equal(chosen_of(100, (const int[]){24, 40, 41, 86, 93}), 32);
    /* 28 loses nothing, 24 a lot: what is below a number that fails is not looked at. */
    assert_int_equal(chosen_of(100, (const int[]){93, 93, 41, 93, 93}), 28);
    assert_int_equal(chosen_of(100, (const int[]){20, 30, 93, 93, 93}), 24);
}

static void the_best_need_not_be_all_pairs(void **state)
{
    (void)state;
    assert_int_equal(chosen_of(100, (const int[]){50, 60, 95, 90, 80}), 24);
    assert_int_equal(chosen_of(100, (const int[]){50, 95, 95, 90, 80}), 20);
    /* What is held against moves with the best: 20 find what 32 do, and not what 24 do. */
    assert_int_equal(chosen_of(100, (const int[]){50, 80, 95, 90, 80}), 24);
    /* But not on a chance: of 4 samples one more, of 100 three fewer and then two more. */
    assert_int_equal(chosen_of(4, (const int[]){0, 1, 3, 3, 2}), 32);
    assert_int_equal(chosen_of(100, (const int[]){50, 60, 95, 90, 93}), 32);
}

static void ties_go_down_only_when_samples_suffice(void **state)
{
    (void)state;
    assert_int_equal(chosen_of(100, (const int[]){90, 90, 90, 90, 90}), 16);
    assert_int_equal(chosen_of(16, (const int[]){14, 14, 14, 14, 14}), 32);
    assert_int_equal(chosen_of(1, (const int[]){1, 1, 1, 1, 1}), 32);
    /* Without any difference the bound is t / sqrt(N (N - 1)), N = n + 2; Student's t of 56 degrees
     * of freedom is 1.6725: 0.0296 at N = 57, and 0.0301 at N = 56. */
    int least = 2;
    while (chosen_of(least, (const int[]){400, 400, 400, 400, 400}) == 32) {
        least++;
    }
    assert_int_equal(least, 55);
}

static void a_bound_is_that_of_its_formula(void **state)
{
    (void)state;
    static double values[CANDIDATES * 98];
    set_values(values, 98, (const int[]){0, 0, 0, 90, 95});
    struct dpe_detect_top_k choice = choose(values, CANDIDATES, 98, DPE_DETECT_RECALL);
    assert_int_equal(choice.n_contexts, 98);
    assert_true(fabs(choice.margin - 0.03 * 95.0 / 98.0) < 1e-12);
    assert_true(isnan(choice.candidates[4].loss) && isnan(choice.candidates[4].at_most));
    assert_true(fabs(choice.candidates[3].loss - 5.0 / 98.0) < 1e-12);
    /* 5 of 98 lost, one more sample of half a loss and half a gain, one of none: mean 5 / 100,
     * square 6 / 100; Student's 0.95 quantile of 99 degrees of freedom is 1.66039. */
    double expected = 0.05 + 1.66039115 * sqrt((0.06 - 0.0025) / 99.0);
    assert_true(fabs(choice.candidates[3].at_most - expected) < 1e-7);
}

static void nothing_found_keeps_every_pair(void **state)
{
    (void)state;
    assert_int_equal(chosen_of(400, (const int[]){0, 0, 0, 0, 0}), 32);
    /* 3 % of next to nothing is nothing: a number that finds none is no equal of one that does. */
    assert_int_equal(chosen_of(400, (const int[]){0, 0, 0, 0, 4}), 32);
}

static void one_number_is_chosen(void **state)
{
    (void)state;
    const double values[3] = {0.5, 0.25, 1.0};
    struct dpe_detect_top_k choice = choose(values, 1, 3, DPE_DETECT_RECALL);
    assert_int_equal(choice.chosen, 0);
    assert_true(fabs(choice.candidates[0].mean - 1.75 / 3.0) < 1e-12);
}

/* ------------------------------------------------------------------------------------------ gaps
 */

static void samples_without_a_value_are_left_out(void **state)
{
    (void)state;
    static double values[CANDIDATES * 120];
    set_values(values, 120, (const int[]){0, 0, 110, 110, 110});
    for (int s = 0; s < 10; s++) {
        values[4 * 120 + s] = NAN;     /* of all pairs */
        values[3 * 120 + 5 + s] = NAN; /* of 28, half of them others */
    }
    struct dpe_detect_top_k choice = choose(values, CANDIDATES, 120, DPE_DETECT_RECALL);
    assert_int_equal(choice.n_contexts, 105);
    assert_int_equal(choice.candidates[4].n_valid, 110);
    assert_true(fabs(choice.candidates[2].mean - 95.0 / 105.0) < 1e-12);
    assert_int_equal(ladder[choice.chosen], 24);
}

static void a_number_that_mostly_fails_is_not_compared(void **state)
{
    (void)state;
    static double values[CANDIDATES * 100];
    set_values(values, 100, (const int[]){90, 90, 90, 90, 90});
    for (int s = 0; s < 51; s++) {
        values[2 * 100 + s] = NAN;
    }
    struct dpe_detect_top_k choice = choose(values, CANDIDATES, 100, DPE_DETECT_RECALL);
    assert_false(choice.candidates[2].compared);
    assert_true(isnan(choice.candidates[2].mean) && isnan(choice.candidates[2].at_most));
    assert_int_equal(choice.n_contexts, 100);
    assert_int_equal(ladder[choice.chosen], 28); /* not past it */
    for (int s = 0; s < 100; s++) {
        values[4 * 100 + s] = NAN;
    }
    choice = choose(values, CANDIDATES, 100, DPE_DETECT_RECALL);
    assert_int_equal(ladder[choice.against], 28);
}

/* Samples of a context are one, their mean over those that are valid under all that are compared.
 */
static void contexts_are_what_is_counted(void **state)
{
    (void)state;
    enum { SAMPLES = 240, EACH = 4 };
    static double values[CANDIDATES * SAMPLES];
    static double means[CANDIDATES * SAMPLES / EACH];
    for (int i = 0; i < CANDIDATES; i++) {
        for (int s = 0; s < SAMPLES; s++) {
            values[i * SAMPLES + s] = (s / EACH + s % EACH * i) % 5 == 0 ? 0.5 : 1.0;
            means[(i * SAMPLES + s) / EACH] += values[i * SAMPLES + s] / EACH;
        }
    }
    struct dpe_detect_top_k choice, expected;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_choose_top_k(ladder, values, CANDIDATES, SAMPLES, EACH,
                                             DPE_DETECT_RECALL, &choice, &err),
                     DPE_OK);
    expected = choose(means, CANDIDATES, SAMPLES / EACH, DPE_DETECT_RECALL);
    assert_int_equal(choice.n_contexts, SAMPLES / EACH);
    assert_int_equal(choice.chosen, expected.chosen);
    for (int i = 0; i < CANDIDATES; i++) {
        assert_true(choice.candidates[i].mean == expected.candidates[i].mean);
        assert_true(i == choice.against ||
                    choice.candidates[i].at_most == expected.candidates[i].at_most);
    }
    /* A sample that one number lacks is left out of all; a context without any is none. */
    values[0] = NAN;
    for (int s = EACH; s < 2 * EACH; s++) {
        values[SAMPLES + s] = NAN;
    }
    assert_int_equal(dpe_detect_choose_top_k(ladder, values, CANDIDATES, SAMPLES, EACH,
                                             DPE_DETECT_RECALL, &choice, &err),
                     DPE_OK);
    assert_int_equal(choice.n_contexts, SAMPLES / EACH - 1);
    double sum = 0.0;
    for (int c = 2; c < SAMPLES / EACH; c++) {
        sum += means[4 * SAMPLES / EACH + c];
    }
    double first =
        (values[4 * SAMPLES + 1] + values[4 * SAMPLES + 2] + values[4 * SAMPLES + 3]) / 3;
    assert_true(fabs(choice.candidates[4].mean - (first + sum) / (SAMPLES / EACH - 1)) < 1e-12);
}

static void without_a_common_sample_there_is_no_choice(void **state)
{
    (void)state;
    double values[CANDIDATES * 2];
    struct dpe_detect_top_k choice;
    struct dpe_error err = {0};
    for (int i = 0; i < CANDIDATES * 2; i++) {
        values[i] = NAN;
    }
    for (int n = 2; n >= 0; n -= 2) {
        assert_int_equal(dpe_detect_choose_top_k(ladder, values, CANDIDATES, n, 1,
                                                 DPE_DETECT_RECALL, &choice, &err),
                         DPE_NONFINITE);
        assert_int_equal(choice.chosen, -1);
    }
    for (int i = 0; i < CANDIDATES; i++) {
        values[i * 2 + i % 2] = 1.0; /* each has one, none the same */
    }
    assert_int_equal(
        dpe_detect_choose_top_k(ladder, values, CANDIDATES, 2, 1, DPE_DETECT_RECALL, &choice, &err),
        DPE_NONFINITE);
    assert_int_equal(
        dpe_detect_choose_top_k(ladder, values, 0, 2, 1, DPE_DETECT_RECALL, &choice, &err),
        DPE_INTERNAL);
    const int64_t unordered[2] = {32, 16};
    assert_int_equal(
        dpe_detect_choose_top_k(unordered, values, 2, 2, 1, DPE_DETECT_RECALL, &choice, &err),
        DPE_INTERNAL);
}

/* ------------------------------------------------------------------------------------ perplexity
 */

static void perplexity_may_lose_a_hundredth_of_a_nat(void **state)
{
    (void)state;
    static const double worse[CANDIDATES] = {0.1, 0.02, 0.004, 0.0, 0.001};
    double values[CANDIDATES * 10];
    for (int i = 0; i < CANDIDATES; i++) {
        for (int s = 0; s < 10; s++) {
            values[i * 10 + s] = 2.0 + 0.1 * s + worse[i] + (s % 2 == 0 ? 1e-4 : -1e-4) * i;
        }
    }
    struct dpe_detect_top_k choice = choose(values, CANDIDATES, 10, DPE_DETECT_PERPLEXITY);
    assert_int_equal(ladder[choice.against], 28);
    assert_int_equal(ladder[choice.chosen], 24);
    assert_true(fabs(choice.candidates[2].loss - 0.004) < 1e-12);
    /* One book does not show how books differ. */
    for (int i = 0; i < CANDIDATES; i++) {
        values[i] = 2.0 + worse[i];
    }
    choice = choose(values, CANDIDATES, 1, DPE_DETECT_PERPLEXITY);
    assert_int_equal(ladder[choice.chosen], 32);
    assert_true(isnan(choice.candidates[2].at_most));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ladder_has_whole_pairs_once),
        cmocka_unit_test(a_loss_beyond_the_margin_ends_it),
        cmocka_unit_test(the_best_need_not_be_all_pairs),
        cmocka_unit_test(ties_go_down_only_when_samples_suffice),
        cmocka_unit_test(a_bound_is_that_of_its_formula),
        cmocka_unit_test(nothing_found_keeps_every_pair),
        cmocka_unit_test(one_number_is_chosen),
        cmocka_unit_test(samples_without_a_value_are_left_out),
        cmocka_unit_test(a_number_that_mostly_fails_is_not_compared),
        cmocka_unit_test(contexts_are_what_is_counted),
        cmocka_unit_test(without_a_common_sample_there_is_no_choice),
        cmocka_unit_test(perplexity_may_lose_a_hundredth_of_a_nat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
