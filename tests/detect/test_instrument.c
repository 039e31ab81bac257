/* What a task says about plans, of made-up rows whose numbers are computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "detect/search/search.h"
#include "detect_case.h"

enum { PROMPT = 1000, ANSWER = 10 };

/* Rows of plans on contexts of `together` questions; recall [plan][sample]. */
static void fill(struct dpe_detect_scores *scores, int plans, int64_t samples, int64_t together,
                 const double *recall)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_scores_init(scores, plans, samples, &err), DPE_OK);
    scores->together = together;
    for (int i = 0; i < plans; i++) {
        for (int64_t s = 0; s < samples; s++) {
            scores->prompt_tokens[i * samples + s] = PROMPT;
            scores->new_tokens[i * samples + s] = ANSWER;
            set_recall(scores, i, s, recall[i * samples + s]);
        }
    }
}

static void near(double found, double expected)
{
    assert_true(fabs(found - expected) <= 1e-12 * fmax(1.0, fabs(expected)));
}

/* Two plans, two contexts of two questions with four values. Means 0.5 and 0.25, of contexts (0.75,
 * 0.25) and (0, 0.5): of both 0.375 and 0.375. Residuals are ±0.25: 4 · 0.0625 / ((2 − 1)(2 − 1)).
 */
static void test_by_hand(void **state)
{
    (void)state;
    const double recall[] = {0.5, 1.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.5};
    const unsigned char live[] = {1, 1};
    struct dpe_detect_scores scores = {0};
    struct dpe_detect_reading reading;
    fill(&scores, 2, 4, 2, recall);
    dpe_detect_read(&scores, live, 4, &reading);
    near(reading.mean, 0.375);
    double p[2] = {9.0 / 18.0, 5.0 / 18.0};
    double sensitivity = (p[0] * (1.0 - p[0]) + p[1] * (1.0 - p[1])) / 2.0;
    near(reading.sensitivity, sensitivity);
    near(reading.noise, 0.25);
    assert_int_equal(reading.tokens, PROMPT + 5 * 2 * ANSWER);
    near(reading.per_million, 1e6 * sensitivity * sensitivity / 0.25 / 1100.0);
    near(reading.reliability, 0.0); /* 2 · (0.125² + 0.125²) = 0.0625 is less than noise makes */
    near(dpe_detect_reading_shows(&reading, 8.0), (1.96 + 0.8416) * sqrt(2.0 * 0.25 / 8.0));
    dpe_detect_scores_free(&scores);
}

/* SmolLM2-135M at twice its trained length finds 15 % of four values, 21 % of two, and most of one:
 * a search that measures with four sees nothing, however little a few contexts say about the
 * noise. */
static void test_faint(void **state)
{
    (void)state;
    const struct dpe_detect_reading four = {.mean = 0.153, .per_million = 60.0};
    const struct dpe_detect_reading two = {.mean = 0.208, .per_million = 40.0};
    const struct dpe_detect_reading one = {.mean = 0.7, .per_million = 30.0};
    const struct dpe_detect_reading most = {.mean = 0.9, .per_million = 20.0};
    assert_true(dpe_detect_reading_better(&two, &four, true));
    assert_true(dpe_detect_reading_better(&one, &two, true));
    assert_false(dpe_detect_reading_better(&most, &one, true));
    assert_false(dpe_detect_reading_better(&two, &four, false));
    assert_true(dpe_detect_reading_better(&one, &most, false));
}

/* Two plans that differ by 0.6 in each of two contexts of 50 questions, of which what is left is
 * ±0.1: of plans 2 · (0.3² + 0.3²) = 0.36, of noise 4 · 0.01 = 0.04. A margin breaks ties of steps,
 * and weighs nothing beside them. */
static void test_reliability(void **state)
{
    (void)state;
    static double recall[200];
    const double means[4] = {0.9, 0.7, 0.1, 0.3};
    const unsigned char live[] = {1, 1};
    struct dpe_detect_scores scores = {0};
    struct dpe_detect_reading reading;
    for (int i = 0; i < 200; i++) {
        recall[i] = means[i / 50];
    }
    fill(&scores, 2, 100, 50, recall);
    dpe_detect_read(&scores, live, 4, &reading);
    near(reading.noise, 0.04);
    near(reading.reliability, 1.0 - 0.04 / 0.36);
    assert_true(dpe_detect_goodness(&scores, DPE_DETECT_RECALL, 0) == 0.9);
    scores.margin[0] = 0.8;
    scores.margin[1] = 0.7;
    double more = dpe_detect_goodness(&scores, DPE_DETECT_RECALL, 0);
    double less = dpe_detect_goodness(&scores, DPE_DETECT_RECALL, 1);
    assert_true(more > less && more - less < 1e-6 && fabs(more - 0.9) < 1e-6);
    assert_true(dpe_detect_value(&scores, DPE_DETECT_RECALL, 0) == 0.9);
    dpe_detect_scores_free(&scores);
}

/* Three plans find everything, the last one by the widest margin: a choice takes it, and nothing is
 * claimed of it. */
static void test_ties(void **state)
{
    (void)state;
    enum { PLANS = 3, SAMPLES = 24 };
    static const int64_t lengths[PLANS] = {256, 128, 64};
    double recall[PLANS * SAMPLES];
    struct dpe_detect_scores scores = {0};
    struct dpe_detect_validation v;
    struct dpe_detect_ranking ranking;
    struct dpe_detect_choice choice;
    struct dpe_error err = {0};
    for (int i = 0; i < PLANS * SAMPLES; i++) {
        recall[i] = 1.0;
    }
    fill(&scores, PLANS, SAMPLES, 1, recall);
    for (int i = 0; i < PLANS * SAMPLES; i++) {
        scores.margin[i] = 0.3 * (1 + i / SAMPLES);
    }
    assert_int_equal(dpe_detect_validate(&scores, NULL, DPE_DETECT_RECALL, NULL, &v, &err), DPE_OK);
    for (int i = 0; i < PLANS; i++) {
        assert_true(v.minus[i].minus.mean == 0.0 && v.minus[i].p == 1.0);
    }
    assert_true(v.too_easy && v.needed == 0 && v.kept_needed[DPE_DETECT_ROPE] == 0);
    assert_int_equal(dpe_detect_rank(&scores, 1, lengths, PLANS, DPE_DETECT_RECALL, &ranking, &err),
                     DPE_OK);
    assert_int_equal(ranking.effective[0], 64);
    assert_true(ranking.p_value[0] == 1.0 && ranking.informative[0] == 0);
    dpe_detect_ranking_free(&ranking);
    for (int tested = 0; tested < 2; tested++) {
        assert_int_equal(dpe_detect_choose(&scores, DPE_DETECT_RECALL, 0, PLANS, 0,
                                           tested ? 0.05 : 1.0, &choice, &err),
                         DPE_OK);
        assert_int_equal(choice.to, tested ? 0 : 2);
        assert_true(choice.p[2] == 1.0);
    }
    dpe_detect_scores_free(&scores);
}

/* Two plans on two contexts of two questions. Of questions is left: plan 0 (0.5, 1, 0, 0.5), plan 1
 * (0, 0, 0.5, 0.5), context means 0.75, 0.25 and 0, 0.5; question means 0.25, 0.5, 0.25, 0.5. In
 * the first context ±0.125 for both plans and questions, in the second the same: 8 · 0.125² / (1 ·
 * 2 · 1). */
static void test_questions(void **state)
{
    (void)state;
    const double recall[] = {0.5, 1.0, 0.0, 0.5, 0.0, 0.0, 0.5, 0.5};
    const unsigned char live[] = {1, 1};
    struct dpe_detect_scores scores = {0};
    struct dpe_detect_reading reading;
    fill(&scores, 2, 4, 2, recall);
    dpe_detect_read(&scores, live, 4, &reading);
    near(reading.within, 8.0 * 0.125 * 0.125 / 2.0);
    assert_int_equal(reading.decoded, ANSWER);
    dpe_detect_scores_free(&scores);
    /* b = 0.01, w = 0.04, P = 1000, D = 5 · 10: √(1000 · 0.04 / (50 · 0.01)) = 8.9. */
    reading = (struct dpe_detect_reading){
        .noise = 0.01 + 0.04 / 4.0, .within = 0.04, .decoded = 10, .tokens = 1000 + 4 * 50};
    assert_int_equal(dpe_detect_questions(&reading, 4, 16), 8);
    assert_int_equal(dpe_detect_questions(&reading, 4, 4), 4);
    reading.noise = 1.0 + 0.04 / 4.0; /* contexts differ: √(0.8) */
    assert_int_equal(dpe_detect_questions(&reading, 4, 16), 1);
    reading.noise = 0.01; /* they do not */
    assert_int_equal(dpe_detect_questions(&reading, 4, 16), 16);
    reading.within = 0.0; /* nothing was seen */
    assert_int_equal(dpe_detect_questions(&reading, 4, 16), 4);
}

/* The same answers of two plans have no residual: the noise is that of independent values. One plan
 * is left out, and its rows that were never run do not matter. */
static void test_floor(void **state)
{
    (void)state;
    const double recall[] = {0.5, 0.5, 0.5, 0.5, NAN, NAN, NAN, NAN, 0.5, 0.5, 0.5, 0.5};
    const unsigned char live[] = {1, 0, 1};
    struct dpe_detect_scores scores = {0};
    struct dpe_detect_reading reading;
    fill(&scores, 3, 4, 2, recall);
    dpe_detect_read(&scores, live, 4, &reading);
    near(reading.mean, 0.5);
    near(reading.noise, 0.25 / 8.0);
    dpe_detect_scores_free(&scores);
}

/* The middle of the scale says most, both ends least; more questions on one context say more for
 * its tokens. */
static void test_order(void **state)
{
    (void)state;
    const double shares[] = {0.0, 0.25, 0.5, 1.0};
    double said[4];
    const unsigned char live[] = {1, 1};
    struct dpe_detect_reading reading;
    for (int k = 0; k < 4; k++) {
        double recall[8];
        for (int i = 0; i < 8; i++) {
            recall[i] = shares[k];
        }
        struct dpe_detect_scores scores = {0};
        fill(&scores, 2, 4, 2, recall);
        dpe_detect_read(&scores, live, 4, &reading);
        said[k] = reading.per_million;
        scores.together = 1;
        dpe_detect_read(&scores, live, 4, &reading);
        assert_true(reading.per_million < said[k]);
        dpe_detect_scores_free(&scores);
    }
    assert_true(said[0] > 0.0 && said[0] < said[1] && said[1] < said[2]);
    near(said[3], said[0]);
}

static void test_best(void **state)
{
    (void)state;
    const double recall[] = {0.5, 0.5, 0.25, 0.25, 0.75, 0.75, 0.5, 0.5, 1.0, 1.0};
    unsigned char live[] = {1, 1, 1, 1, 0};
    struct dpe_detect_scores scores = {0};
    fill(&scores, 5, 2, 1, recall);
    assert_true(dpe_detect_reading_best(&scores, 2, live)); /* of a tie the earlier one */
    const unsigned char expected[] = {1, 0, 1, 0, 0};
    assert_memory_equal(live, expected, sizeof live);
    dpe_detect_scores_free(&scores);

    const double nothing[] = {0.0, 0.0, 0.0};
    unsigned char all[] = {1, 1, 1};
    fill(&scores, 3, 1, 1, nothing);
    assert_false(dpe_detect_reading_best(&scores, 2, all));
    assert_true(all[0] && all[1] && all[2]);
    dpe_detect_scores_free(&scores);
}

/* What follows from recalls of rope, base, joint plan and two methods. */
static void test_advice(void **state)
{
    (void)state;
    static const struct {
        double mean[5], ceiling;
        int what, plan;
        double gain;
    } cases[] = {
        {{0.90, 0.20, 0.20, 0.50, 0.40}, 0.94, DPE_DETECT_ADVICE_NOTHING, 3, 0.44},
        {{0.00, 0.20, 0.20, 0.50, 0.91}, 0.94, DPE_DETECT_ADVICE_TAKE, 4, 0.03},
        {{0.00, 0.60, 0.60, 0.50, 0.40}, 0.94, DPE_DETECT_ADVICE_CALIBRATE, DPE_DETECT_BASE, 0.34},
        {{0.00, 0.20, 0.20, 0.22, 0.10}, 0.22, DPE_DETECT_ADVICE_TASK, 3, 0.0},
        {{0.00, 0.97, 0.97, 0.50, 0.40}, NAN, DPE_DETECT_ADVICE_TAKE, DPE_DETECT_BASE, 0.03},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_detect_validation validation = {.n_plans = 5};
        const struct dpe_interval ceiling = {.mean = cases[i].ceiling,
                                             .n = isnan(cases[i].ceiling) ? 0 : 32};
        for (int v = 0; v < 5; v++) {
            validation.value[v].mean = cases[i].mean[v];
            validation.value[v].n = 16;
        }
        const struct dpe_detect_advice advice = dpe_detect_advise(&validation, &ceiling);
        assert_int_equal(advice.what, cases[i].what);
        assert_int_equal(advice.plan, cases[i].plan);
        assert_true(fabs(advice.gain - cases[i].gain) < 1e-9);
    }
}

/* A method that was dropped after few samples is not advised, whatever it found of these; nor kept.
 */
static void test_final(void **state)
{
    (void)state;
    const double mean[6] = {0.0, NAN, NAN, 0.9, 0.6, 0.5};
    const int64_t n[6] = {8, 0, 0, 8, 16, 15};
    bool tables[6] = {true, true, true, true, true, true};
    struct dpe_detect_validation validation = {.n_plans = 6};
    const struct dpe_interval ceiling = {.mean = 0.95, .n = 8};
    for (int v = 0; v < 6; v++) {
        validation.value[v].mean = mean[v];
        validation.value[v].n = n[v];
    }
    for (int v = 0; v < 6; v++) {
        assert_true(dpe_detect_in_final(&validation, v) == (v >= 4));
    }
    assert_int_equal(dpe_detect_advise(&validation, &ceiling).plan, 4);
    assert_int_equal(dpe_detect_ready_kept(&validation, tables, 0), 4);
    /* The plan of DPE, unless another finds clearly more. */
    validation.kept = 5;
    for (int clear = 0; clear < 2; clear++) {
        validation.value[5].mean = clear != 0 ? 0.49 : 0.51;
        assert_int_equal(dpe_detect_ready_kept(&validation, tables, 5), clear != 0 ? 4 : 5);
        assert_int_equal(dpe_detect_advise(&validation, &ceiling).plan, clear != 0 ? 4 : 5);
    }
    assert_int_equal(dpe_detect_ready_kept(&validation, tables, 3), 4); /* it was dropped */
    validation.value[5].mean = 0.6;
    tables[5] = false;
    assert_int_equal(dpe_detect_ready_kept(&validation, tables, 5), 4);
    tables[5] = true;
    tables[4] = false;
    assert_int_equal(dpe_detect_ready_kept(&validation, tables, 0), 5);
    tables[5] = false;
    assert_int_equal(dpe_detect_ready_kept(&validation, tables, 0), DPE_DETECT_JOINT);
}

/* All plans read a context, the better half of them another one where there are more, two the rest.
 */
static void test_race_of_ready(void **state)
{
    (void)state;
    static const int left[][4] = {/* plans, contexts: that read the first, second, third one */
                                  {6, 6, 2, 2},
                                  {7, 7, 2, 2},
                                  {2, 2, 2, 2},
                                  {1, 1, 1, 1}};
    for (int i = 0; i < 4; i++) {
        for (int64_t c = 0; c < 3; c++) {
            assert_int_equal(dpe_detect_ready_left(left[i][0], c, 2), left[i][c + 1]);
        }
    }
    assert_int_equal(dpe_detect_ready_left(7, 1, 3), 4);
    assert_int_equal(dpe_detect_ready_left(7, 2, 3), 2);
    assert_int_equal(dpe_detect_ready_left(3, 1, 8), 2);

    /* Six plans on a context of four questions; the second is not run. */
    static const double recall[] = {0, 0, 0, 0.25, /**/ 1, 1, 1, 1, /**/ 0.5,  0.5, 0.5, 0.5,
                                    1, 1, 0, 0,    /**/ 1, 0, 1, 0, /**/ 0.25, 0,   0,   0};
    struct dpe_detect_scores scores;
    unsigned char live[6] = {1, 0, 1, 1, 1, 1};
    fill(&scores, 6, 4, 4, recall);
    dpe_detect_ready_race(&scores, 2, 0, live);
    const unsigned char two[6] = {0, 0, 1, 1, 0, 0}; /* of a tie the earlier ones */
    assert_memory_equal(live, two, sizeof live);
    /* Of two contexts, no plan reads the second where the best found clearly more than the next. */
    unsigned char clear[6] = {1, 0, 1, 0, 0, 1};
    dpe_detect_ready_race(&scores, 2, 0, clear);
    assert_null(memchr(clear, 1, sizeof clear));
    unsigned char close[6] = {1, 0, 0, 0, 0, 1};
    dpe_detect_ready_race(&scores, 2, 0, close);
    const unsigned char both[6] = {1, 0, 0, 0, 0, 1};
    assert_memory_equal(close, both, sizeof close);
    unsigned char many[6] = {1, 0, 1, 1, 1, 1};
    dpe_detect_ready_race(&scores, 8, 0, many);
    const unsigned char three[6] = {0, 0, 1, 1, 1, 0};
    assert_memory_equal(many, three, sizeof many);
    /* The plan of DPE stays, and the choice is clear only where it is that plan. */
    unsigned char own[6] = {1, 0, 1, 1, 0, 1};
    dpe_detect_ready_race(&scores, 2, 5, own);
    const unsigned char beside[6] = {0, 0, 1, 0, 0, 1};
    assert_memory_equal(own, beside, sizeof own);
    unsigned char leads[6] = {1, 0, 1, 0, 0, 1};
    dpe_detect_ready_race(&scores, 2, 2, leads);
    assert_null(memchr(leads, 1, sizeof leads));
    dpe_detect_scores_free(&scores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),       cmocka_unit_test(test_questions),
        cmocka_unit_test(test_reliability),   cmocka_unit_test(test_faint),
        cmocka_unit_test(test_ties),          cmocka_unit_test(test_floor),
        cmocka_unit_test(test_order),         cmocka_unit_test(test_best),
        cmocka_unit_test(test_advice),        cmocka_unit_test(test_final),
        cmocka_unit_test(test_race_of_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
