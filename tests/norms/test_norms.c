/* The norm profile against plain sums, the ranking and masks against hand-made scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops/ops_host.h"
#include "norms/norms.h"
#include "tests/lib/near.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, PAIRS = 6, TOKENS = 37 };

static const struct dpe_config config = {
    .n_layers = LAYERS, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = 2 * PAIRS};

static float q_data[LAYERS][TOKENS][HEADS][2 * PAIRS];
static float k_data[LAYERS][TOKENS][KV_HEADS][2 * PAIRS];

static void fill(void)
{
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 11, 0);
    float *q = &q_data[0][0][0][0];
    float *k = &k_data[0][0][0][0];
    for (size_t i = 0; i < sizeof q_data / sizeof *q; i++) {
        q[i] = (float)(dpe_rng_unit(&rng) * 2.0 - 1.0);
    }
    for (size_t i = 0; i < sizeof k_data / sizeof *k; i++) {
        k[i] = (float)(dpe_rng_unit(&rng) * 2.0 - 1.0);
    }
}

static double norm(const float *x, int pair)
{
    return hypot((double)x[pair], (double)x[pair + PAIRS]);
}

/* Both definitions, one token after another, in double. */
static double direct(enum dpe_contribution kind, int layer, int head, int pair)
{
    double q = 0.0;
    double k = 0.0;
    double products = 0.0;
    for (int t = 0; t < TOKENS; t++) {
        double norm_q = norm(q_data[layer][t][head], pair);
        double norm_k = norm(k_data[layer][t][head / (HEADS / KV_HEADS)], pair);
        q += norm_q / TOKENS;
        k += norm_k / TOKENS;
        products += norm_q * norm_k / TOKENS;
    }
    return kind == DPE_PRODUCT_OF_MEANS ? q * k : products;
}

/* As a session adds the rows of a layer. */
static void add(const struct dpe_norm_sums *sums, int threads, int64_t layer, int64_t start,
                int64_t rows)
{
    double *k = sums->products ? NULL : sums->k + layer * KV_HEADS * PAIRS;
    dpe_norms_add(&config, threads, &q_data[layer][start][0][0], &k_data[layer][start][0][0], rows,
                  sums->products, sums->q + layer * HEADS * PAIRS, k);
    sums->rows[layer] += rows;
}

static void profile(enum dpe_contribution kind, int threads, int64_t chunk, double *scores)
{
    struct dpe_norms norms;
    assert_int_equal(dpe_norms_create(&config, kind, &norms, NULL), DPE_OK);
    assert_int_equal(dpe_norms_finish(&norms, scores, NULL), DPE_INTERNAL);
    for (int64_t start = 0; start < TOKENS; start += chunk) {
        int64_t rows = start + chunk <= TOKENS ? chunk : TOKENS - start;
        for (int64_t layer = 0; layer < LAYERS; layer++) {
            add(&norms.sums, threads, layer, start, rows);
        }
    }
    assert_int_equal(dpe_norms_finish(&norms, scores, NULL), DPE_OK);
    dpe_norms_destroy(&norms);
}

static void scores_match_plain_sums(void **state)
{
    (void)state;
    for (int kind = DPE_PRODUCT_OF_MEANS; kind <= DPE_MEAN_OF_PRODUCTS; kind++) {
        double scores[LAYERS][HEADS][PAIRS];
        profile((enum dpe_contribution)kind, 1, TOKENS, &scores[0][0][0]);
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int head = 0; head < HEADS; head++) {
                for (int pair = 0; pair < PAIRS; pair++) {
                    double want = direct((enum dpe_contribution)kind, layer, head, pair);
                    double error = near_error(scores[layer][head][pair], want);
                    /* Each norm is rounded to float once or twice. */
                    assert_true(error <= 4.0 * 0x1p-24 * want);
                }
            }
        }
    }
}

static void same_bits_for_any_threads_and_chunks(void **state)
{
    (void)state;
    double one[LAYERS * HEADS * PAIRS];
    double other[LAYERS * HEADS * PAIRS];
    profile(DPE_PRODUCT_OF_MEANS, 1, TOKENS, one);
    for (int threads = 1; threads <= 3; threads++) {
        for (int64_t chunk = 1; chunk <= 16; chunk += 5) {
            profile(DPE_PRODUCT_OF_MEANS, threads, chunk, other);
            assert_memory_equal(one, other, sizeof one);
        }
    }
}

static void not_finite_is_an_error_with_its_layer(void **state)
{
    (void)state;
    float kept = q_data[1][3][2][4];
    double scores[LAYERS * HEADS * PAIRS];
    q_data[1][3][2][4] = NAN;
    struct dpe_norms norms;
    struct dpe_error err = {0};
    assert_int_equal(dpe_norms_create(&config, DPE_PRODUCT_OF_MEANS, &norms, NULL), DPE_OK);
    for (int64_t layer = 0; layer < LAYERS; layer++) {
        add(&norms.sums, 1, layer, 0, TOKENS);
    }
    assert_int_equal(dpe_norms_finish(&norms, scores, &err), DPE_NONFINITE);
    assert_int_equal(err.layer, 1);
    dpe_norms_destroy(&norms);
    q_data[1][3][2][4] = kept;
}

static void missing_tables_are_not_zeros(void **state)
{
    (void)state;
    const double a[2] = {1.0, 5.0};
    const double b[2] = {3.0, 5.0};
    const double *tables[3] = {a, NULL, b};
    double mean[2];
    double sem[2];
    dpe_norms_mean(tables, 3, 2, mean, sem);
    assert_true(mean[0] == 2.0 && mean[1] == 5.0);
    assert_true(sem[0] == 1.0 && sem[1] == 0.0);
    const double *none[1] = {NULL};
    dpe_norms_mean(none, 1, 2, mean, sem);
    assert_true(isnan(mean[0]) && isnan(sem[0]));
}

static void ties_go_to_the_lower_pair(void **state)
{
    (void)state;
    const double scores[2][5] = {{1, 3, 3, 0, 2}, {0, 0, 0, 0, 0}};
    const uint16_t want[2][5] = {{1, 2, 4, 0, 3}, {0, 1, 2, 3, 4}};
    uint16_t ranking[2][5];
    dpe_norms_rank(&scores[0][0], 2, 5, &ranking[0][0]);
    assert_memory_equal(ranking, want, sizeof want);
    const uint8_t top[2][5] = {{0, 1, 1, 0, 0}, {1, 1, 0, 0, 0}};
    const uint8_t last[2][5] = {{1, 0, 0, 1, 0}, {0, 0, 0, 1, 1}};
    uint8_t mask[2][5];
    assert_int_equal(dpe_plan_mask_ranked(&ranking[0][0], 2, 5, 2, false, &mask[0][0], NULL),
                     DPE_OK);
    assert_memory_equal(mask, top, sizeof top);
    assert_int_equal(dpe_plan_mask_ranked(&ranking[0][0], 2, 5, 2, true, &mask[0][0], NULL),
                     DPE_OK);
    assert_memory_equal(mask, last, sizeof last);
    ranking[1][1] = 5;
    assert_int_equal(dpe_plan_mask_ranked(&ranking[0][0], 2, 5, 2, false, &mask[0][0], NULL),
                     DPE_BAD_DATA);
    assert_int_equal(dpe_plan_mask_ranked(&ranking[0][0], 2, 5, 2, true, &mask[0][0], NULL),
                     DPE_OK);
    assert_true(dpe_norms_share(scores[0], ranking[0], 5, 2) == 6.0 / 9.0);
    const double flat[4] = {2, 2, 2, 2};
    assert_true(dpe_norms_entropy(flat, 4) == 2.0);
}

static void the_widest_head_is_ranked(void **state)
{
    (void)state;
    static double scores[DPE_MOST_PAIRS];
    static uint16_t ranking[DPE_MOST_PAIRS];
    for (int j = 0; j < DPE_MOST_PAIRS; j++) {
        scores[j] = j;
    }
    dpe_norms_rank(scores, 1, DPE_MOST_PAIRS, ranking);
    for (int j = 0; j < DPE_MOST_PAIRS; j++) {
        assert_int_equal(ranking[j], DPE_MOST_PAIRS - 1 - j);
    }
}

static int setup(void **state)
{
    (void)state;
    fill();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_match_plain_sums),
        cmocka_unit_test(same_bits_for_any_threads_and_chunks),
        cmocka_unit_test(not_finite_is_an_error_with_its_layer),
        cmocka_unit_test(missing_tables_are_not_zeros),
        cmocka_unit_test(ties_go_to_the_lower_pair),
        cmocka_unit_test(the_widest_head_is_ranked),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
