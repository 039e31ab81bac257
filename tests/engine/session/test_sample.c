/* Tokens drawn from logits: the likeliest, the shares of a softmax, the nucleus of top_p. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "engine/session/session.h"

enum { VOCAB = 200, DRAWS = 40000 };

/* Four tokens that matter, far apart, and the others without weight. */
static const int32_t tokens[4] = {3, 64, 131, 199};
static const double shares[4] = {0.4, 0.3, 0.2, 0.1};

static void make_logits(double temperature, float logits[VOCAB])
{
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = -1e4f;
    }
    for (int i = 0; i < 4; i++) {
        logits[tokens[i]] = (float)(temperature * log(shares[i]) + 7.0);
    }
}

static void count(const float *logits, double temperature, double top_p, uint64_t seed,
                  int counts[4])
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, seed, 0);
    const struct dpe_sampling sampling = {temperature, top_p, &rng};
    for (int i = 0; i < 4; i++) {
        counts[i] = 0;
    }
    for (int n = 0; n < DRAWS; n++) {
        int32_t id = dpe_sample(logits, VOCAB, &sampling);
        int at = 0;
        while (at < 3 && tokens[at] != id) {
            at++;
        }
        assert_int_equal(tokens[at], id);
        counts[at]++;
    }
}

/* Within five standard deviations. */
static void assert_share(int found, double share)
{
    assert_true(fabs(found - DRAWS * share) <= 5.0 * sqrt(DRAWS * share * (1.0 - share)));
}

static void temperature_zero_takes_the_likeliest(void **state)
{
    (void)state;
    float logits[VOCAB];
    make_logits(1.0, logits);
    const struct dpe_sampling sampling = {0.0, 1.0, NULL};
    assert_int_equal(dpe_sample(logits, VOCAB, &sampling), 3);
    logits[131] = logits[64] = 9.0f;
    assert_int_equal(dpe_sample(logits, VOCAB, &sampling), 64);
    assert_int_equal(dpe_likeliest(logits + 65, 70), 131 - 65);
    assert_int_equal(dpe_likeliest(logits, 1), 0);
}

static void draws_have_the_shares_of_a_softmax(void **state)
{
    (void)state;
    float logits[VOCAB];
    int counts[4];
    int again[4];
    for (int t = 0; t < 2; t++) {
        double temperature = t == 0 ? 1.0 : 0.25;
        make_logits(temperature, logits);
        count(logits, temperature, 1.0, 5, counts);
        for (int i = 0; i < 4; i++) {
            assert_share(counts[i], shares[i]);
        }
    }
    count(logits, 0.25, 1.0, 5, again);
    assert_memory_equal(counts, again, sizeof counts);
    count(logits, 0.25, 1.0, 6, again);
    assert_memory_not_equal(counts, again, sizeof counts);
}

static void top_p_keeps_the_fewest_likeliest(void **state)
{
    (void)state;
    float logits[VOCAB];
    int counts[4];
    make_logits(1.0, logits);
    count(logits, 1.0, 0.3, 1, counts);
    assert_int_equal(counts[0], DRAWS);
    count(logits, 1.0, 0.6, 1, counts); /* 0.4 and 0.3 are the first two to reach it */
    assert_share(counts[0], 0.4 / 0.7);
    assert_int_equal(counts[0] + counts[1], DRAWS);
    count(logits, 1.0, 0.85, 1, counts);
    assert_share(counts[2], 0.2 / 0.9);
    assert_int_equal(counts[3], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_likeliest),
        cmocka_unit_test(draws_have_the_shares_of_a_softmax),
        cmocka_unit_test(top_p_keeps_the_fewest_likeliest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
