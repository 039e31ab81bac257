/* The guard on perplexity: which plan it keeps, and when it says that perplexity was traded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "detect_case.h"

enum { PLANS = 4, SAMPLES = 40, BOOKS = 4 };

/* Needles of four plans, each value the share of samples that is found; samples that are hard are
 * hard for all. The chosen one is `kept`. */
static struct dpe_detect_validation needles_of(const double found[PLANS], int kept)
{
    struct dpe_detect_validation validation;
    struct dpe_detect_scores scores;
    struct dpe_error err = {0};
    scores_of(&scores, PLANS, SAMPLES);
    for (int i = 0; i < PLANS; i++) {
        for (int64_t s = 0; s < SAMPLES; s++) {
            set_recall(&scores, i, s, (double)(s * 7 % SAMPLES) < found[i] * SAMPLES ? 1.0 : 0.0);
        }
    }
    assert_int_equal(dpe_detect_validate(&scores, NULL, DPE_DETECT_RECALL, NULL, &validation, &err),
                     DPE_OK);
    assert_int_equal(dpe_detect_validate_keep(&scores, NULL, kept, &validation, &err), DPE_OK);
    dpe_detect_scores_free(&scores);
    return validation;
}

/* Perplexities of `from` … BOOKS − 1; NaN: no valid text. */
static void set_books(struct dpe_detect_scores *scores, int plan, int64_t from, double perplexity)
{
    for (int64_t at = plan * BOOKS + from; at < (plan + 1) * BOOKS && isfinite(perplexity); at++) {
        scores->status[at] = DPE_ROW_OK;
        scores->n_tokens[at] = 100;
        scores->nll_sum[at] = 100.0 * log(perplexity);
    }
}

/* Plan 1 fails in the first `failed` books. */
static struct dpe_detect_validation texts_of(const double perplexity[PLANS], int64_t failed)
{
    struct dpe_detect_validation validation;
    struct dpe_detect_scores scores;
    struct dpe_error err = {0};
    scores_of(&scores, PLANS, BOOKS);
    for (int i = 0; i < PLANS; i++) {
        set_books(&scores, i, i == 1 ? failed : 0, perplexity[i]);
    }
    assert_int_equal(
        dpe_detect_validate(&scores, NULL, DPE_DETECT_PERPLEXITY, NULL, &validation, &err), DPE_OK);
    dpe_detect_scores_free(&scores);
    return validation;
}

static struct dpe_detect_guard guard_of(const double found[PLANS], const double users[PLANS],
                                        int kept, const double perplexity[PLANS],
                                        const bool tables[PLANS], double share)
{
    static const double nothing[PLANS];
    const struct dpe_detect_validation one = needles_of(found, kept);
    const struct dpe_detect_validation two = needles_of(users != NULL ? users : nothing, kept);
    const struct dpe_detect_validation texts = texts_of(perplexity, 0);
    const struct dpe_detect_validation *const needles[2] = {&one, users != NULL ? &two : NULL};
    return dpe_detect_guard(needles, &texts, tables, share);
}

static const bool all[PLANS] = {true, true, true, true};

/* 2.08 is 4 % over 2.00. */
static void within_the_guard_needles_decide(void **state)
{
    (void)state;
    const double found[PLANS] = {0.1, 0.6, 0.7, 0.6};
    const double texts[PLANS] = {9.0, 2.0, 2.08, 2.5};
    const struct dpe_detect_guard guard = guard_of(found, NULL, 2, texts, all, 0.05);
    assert_int_equal(guard.kept, 2);
    assert_int_equal(guard.best, 1);
    assert_false(guard.traded);
    assert_true(fabs(guard.loss - 0.04) < 1e-9);
}

/* 10 % over the best, and not shown to find more than plan 3: of the plans within, which are 1 and
 * 3, 3 finds more. */
static void a_plan_beyond_it_gives_way(void **state)
{
    (void)state;
    const double found[PLANS] = {0.1, 0.5, 0.65, 0.6};
    const double texts[PLANS] = {9.0, 2.0, 2.2, 2.06};
    struct dpe_detect_guard guard = guard_of(found, NULL, 2, texts, all, 0.05);
    assert_int_equal(guard.chosen, 2);
    assert_int_equal(guard.kept, 3);
    assert_false(guard.traded);
    assert_true(fabs(guard.loss - 0.03) < 1e-9);
    /* No table can hold plan 3, and plan 1 is shown to find less (6 of 40 samples, p = 2 / 64). */
    const bool not_3[PLANS] = {true, true, true, false};
    guard = guard_of(found, NULL, 2, texts, not_3, 0.05);
    assert_int_equal(guard.kept, 2);
    assert_true(guard.traded);
    assert_int_equal(guard.found, 1);
    /* With a wider guard there is nothing to do. */
    guard = guard_of(found, NULL, 2, texts, all, 0.11);
    assert_int_equal(guard.kept, 2);
    assert_false(guard.traded);
}

/* Where the search has another task, what it shows there is no reason to lose perplexity for. */
static void the_users_task_shows_it(void **state)
{
    (void)state;
    const double same[PLANS] = {0.6, 0.6, 0.6, 0.6};
    const double differs[PLANS] = {0.3, 0.3, 0.8, 0.3};
    const double texts[PLANS] = {2.0, 2.1, 3.0, 2.05};
    struct dpe_detect_guard guard = guard_of(same, differs, 2, texts, all, 0.05);
    assert_int_equal(guard.kept, 2);
    assert_true(guard.traded);
    assert_true(fabs(guard.loss - 0.5) < 1e-9);
    guard = guard_of(differs, same, 2, texts, all, 0.05);
    assert_int_equal(guard.kept, 0);
    assert_false(guard.traded);
}

/* A plan that finds as much on both tasks and predicts texts better takes the place of the kept
 * one; what one task alone loses has to be made good by the other. */
static void a_dominated_plan_is_not_kept(void **state)
{
    (void)state;
    static const struct {
        double found[PLANS], users[PLANS], texts[PLANS];
        int kept;
    } cases[] = {
        {{0.1, 0.6, 0.6, 0.5}, {0.1, 0.8, 0.8, 0.9}, {9.0, 2.0, 2.1, 2.2}, 1},
        {{0.1, 0.5, 0.6, 0.8}, {0.1, 0.8, 0.8, 0.8}, {9.0, 2.0, 2.1, 2.05}, 3},
        {{0.1, 0.7, 0.6, 0.5}, {0.1, 0.6, 0.8, 0.9}, {9.0, 2.0, 2.1, 2.2}, 2},
        {{0.1, 0.7, 0.6, 0.5}, {0.1, 0.8, 0.8, 0.9}, {9.0, 2.2, 2.1, NAN}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dpe_detect_validation one = needles_of(cases[i].found, 2);
        const struct dpe_detect_validation two = needles_of(cases[i].users, 2);
        const struct dpe_detect_validation texts = texts_of(cases[i].texts, 0);
        const struct dpe_detect_validation *const needles[2] = {&one, &two};
        const bool none[PLANS] = {false};
        assert_int_equal(dpe_detect_undominated(needles, &texts, all, 2), cases[i].kept);
        assert_int_equal(dpe_detect_undominated(needles, &texts, none, 2), 2);
    }
}

static void the_best_within_the_guard(void **state)
{
    (void)state;
    const double value[5] = {0.9, 0.7, 0.6, 0.8, 0.99};
    const double nll[5] = {log(2.2), log(2.09), log(2.0), log(2.11), NAN};
    const double none[2] = {NAN, NAN};
    assert_int_equal(dpe_detect_guarded(value, nll, 5, 0.05), 1);
    assert_int_equal(dpe_detect_guarded(value, nll, 5, 0.06), 3);
    assert_int_equal(dpe_detect_guarded(value, nll, 5, 0.5), 0);
    assert_int_equal(dpe_detect_guarded(value, none, 2, 0.5), -1);
}

static void without_perplexities_it_is_off(void **state)
{
    (void)state;
    const double found[PLANS] = {0.1, 0.6, 0.7, 0.6};
    const double none[PLANS] = {NAN, NAN, NAN, NAN};
    const double others[PLANS] = {2.0, NAN, NAN, NAN};
    struct dpe_detect_guard guard = guard_of(found, NULL, 2, none, all, 0.05);
    assert_int_equal(guard.best, -1);
    assert_int_equal(guard.kept, 2);
    /* The chosen plan has none: that is beyond any guard; rope is shown to find less. */
    guard = guard_of(found, NULL, 2, others, all, 0.05);
    assert_int_equal(guard.kept, 2);
    assert_true(guard.traded);
}

/* Perplexities of other texts are not compared: plan 1 predicts best the two of four that it
 * predicts. */
static void a_plan_that_fails_in_a_text_has_no_perplexity(void **state)
{
    (void)state;
    const double found[PLANS] = {0.1, 0.7, 0.6, 0.6};
    const double perplexity[PLANS] = {9.0, 1.5, 2.0, 2.05};
    const struct dpe_detect_validation needles = needles_of(found, 1);
    const struct dpe_detect_validation *const both[2] = {&needles, NULL};
    for (int64_t failed = 0; failed < 3; failed++) {
        const struct dpe_detect_validation texts = texts_of(perplexity, failed);
        const struct dpe_detect_guard guard = dpe_detect_guard(both, &texts, all, 0.05);
        assert_int_equal(guard.best, failed == 0 ? 1 : 2);
        assert_int_equal(guard.chosen, 1);
        assert_int_equal(guard.kept, failed == 0 ? 1 : 2);
    }
    struct dpe_detect_scores scores;
    double nll[PLANS];
    scores_of(&scores, PLANS, BOOKS);
    set_books(&scores, 0, 0, 3.0);
    set_books(&scores, 1, 1, 2.0);
    set_books(&scores, 3, 0, 4.0);
    dpe_detect_texts(&scores, nll);
    assert_true(fabs(nll[0] - log(3.0)) < 1e-12 && isnan(nll[1]) && isnan(nll[2]) &&
                fabs(nll[3] - log(4.0)) < 1e-12);
    dpe_detect_scores_free(&scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_guard_needles_decide),
        cmocka_unit_test(a_plan_beyond_it_gives_way),
        cmocka_unit_test(the_users_task_shows_it),
        cmocka_unit_test(a_dominated_plan_is_not_kept),
        cmocka_unit_test(the_best_within_the_guard),
        cmocka_unit_test(without_perplexities_it_is_off),
        cmocka_unit_test(a_plan_that_fails_in_a_text_has_no_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
