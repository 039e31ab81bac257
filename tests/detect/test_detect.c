/* The sweep without a model: cells and configurations, order of work, ranks, effective lengths,
 * joint scales, what counts as informative, verdicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/methods/methods.h"
#include "tests/detect/detect_case.h"

/* ------------------------------------------------------------------------------------------- grid
 */

static void lengths_default_to_powers_of_two_not_below_the_window(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    int skipped = -1;
    struct dpe_detect_params params = {.length = 131072, .window = 1024};
    assert_int_equal(dpe_detect_parse_lengths("auto", &params, &skipped, &err), DPE_OK);
    assert_int_equal(params.n_lengths, 8);
    assert_int_equal(skipped, 0);
    for (int t = 0; t < 8; t++) {
        assert_int_equal(params.lengths[t], 1024 << t);
    }
    params = (struct dpe_detect_params){.length = 2048, .window = 32};
    assert_int_equal(dpe_detect_parse_lengths("auto", &params, &skipped, &err), DPE_OK);
    assert_int_equal(params.n_lengths, 7);
    assert_int_equal(skipped, 1);
    assert_int_equal(params.lengths[0], 32);
    params = (struct dpe_detect_params){.length = 5, .window = 1};
    assert_int_equal(dpe_detect_parse_lengths("auto", &params, &skipped, &err), DPE_OK);
    assert_int_equal(params.n_lengths, 3); /* 1, 2, 5 */
    assert_int_equal(skipped, 5);
    assert_int_equal(dpe_detect_default_window(8192), 1024);
    assert_int_equal(dpe_detect_default_window(131072), 1024);
    assert_int_equal(dpe_detect_default_window(256), 32);
    assert_int_equal(dpe_detect_default_window(4), 1);
}

static void listed_lengths_are_sorted_and_checked(void **state)
{
    (void)state;
    struct dpe_error err = {0};
    int skipped = 0;
    struct dpe_detect_params params = {.length = 2048, .window = 32};
    assert_int_equal(dpe_detect_parse_lengths("512,32,2048", &params, &skipped, &err), DPE_OK);
    assert_int_equal(params.n_lengths, 3);
    assert_int_equal(params.lengths[0], 32);
    assert_int_equal(params.lengths[2], 2048);
    static const struct {
        const char *spec, *message;
    } bad[] = {
        {"", "whole numbers"},         {"64,", "whole numbers"}, {"64;128", "whole numbers"},
        {"-5", "whole numbers"},       {"64,64", "twice"},       {"31", "shorter than the window"},
        {"4096", "--length"},          {"1e3", "whole numbers"}, {"99999999999999999999", "whole"},
        {"64, 128x", "whole numbers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dpe_detect_parse_lengths(bad[i].spec, &params, &skipped, &err), DPE_USAGE);
        if (strstr(err.text, bad[i].message) == NULL) {
            fail_msg("'%s': '%s' lacks '%s'", bad[i].spec, err.text, bad[i].message);
        }
    }
}

static void equal_plans_are_one_configuration(void **state)
{
    (void)state;
    struct dpe_config config = config_of(128, 8192);
    static const struct {
        int64_t length, trained, window;
        int groups;
        const char *lengths;
        int cells, distinct;
    } cases[] = {
        {131072, 8192, 1024, 8, "auto", 64, 57},
        /* L is no power of two times L0: auto adds L0/2 and L0; an odd L0 has no half */
        {131072, 6000, 750, 8, "auto", 80, 73},
        {131072, 6001, 750, 8, "auto", 72, 72},
        {131072, 40960, 1024, 8, "auto", 80, 73},
        /* L0/2 is not one of the lengths: nothing coincides */
        {131072, 6000, 750, 8, "4096,8192", 16, 16},
        {2048, 256, 32, 8, "auto", 56, 49},
        {4096, 256, 32, 8, "auto", 64, 57},
        /* one group: its cells are all different */
        {4096, 256, 32, 1, "auto", 8, 8},
        {4096, 256, 32, 64, "auto", 512, 449},
        {4096, 256, 32, 8, "128", 8, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_detect_params params = params_of(
            cases[i].length, cases[i].trained, cases[i].window, cases[i].groups, cases[i].lengths);
        struct dpe_detect_grid grid;
        grid_of(&params, &config, &grid);
        assert_int_equal(params.n_groups * params.n_lengths, cases[i].cells);
        assert_int_equal(grid.n_configs, cases[i].distinct);
        dpe_detect_grid_free(&grid);
    }
}

/* Every cell's configuration follows the definition, with far positions by hand. */
static void cells_move_one_group_only(void **state)
{
    (void)state;
    struct dpe_config config = config_of(64, 256);
    struct dpe_detect_params params = params_of(2048, 256, 32, 8, "auto");
    struct dpe_detect_grid grid;
    grid_of(&params, &config, &grid);
    for (int g = 0; g < params.n_groups; g++) {
        for (int t = 0; t < params.n_lengths; t++) {
            const struct dpe_plan *plan = &grid.configs[grid.cell[g * params.n_lengths + t]].plan;
            for (int pair = 0; pair < 32; pair++) {
                double s = pair / 4 == g ? 2048.0 / (double)params.lengths[t] : 16.0;
                struct dpe_rel rel = dpe_plan_position(plan, 1, 3, pair, 2047, 100);
                assert_true(rel.rel == floor(2047 / s) - floor(100 / s) + 32 - floor(32 / s));
                assert_true(dpe_plan_position(plan, 0, 0, pair, 131, 100).rel == 31.0);
            }
        }
    }
    dpe_detect_grid_free(&grid);
}

static void senseless_grids_are_refused(void **state)
{
    (void)state;
    struct dpe_config config = config_of(64, 256);
    static const struct {
        int64_t length, trained, window;
        int groups;
        const char *message;
    } cases[] = {
        {16, 256, 32, 8, "shorter than the window"},
        {100, 256, 32, 8, "at least half the trained length, 128 tokens, found 100"},
        {2048, 256, 0, 8, "--window"},
        {2048, 256, 32, 0, "--groups"},
        {2048, 256, 32, 33, "--groups: expected 1 to 32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_detect_params params = {.length = cases[i].length,
                                           .trained_length = cases[i].trained,
                                           .window = cases[i].window,
                                           .n_groups = cases[i].groups,
                                           .n_lengths = 1,
                                           .lengths = {cases[i].length}};
        struct dpe_plan_context context = context_of(&config, 256, cases[i].length);
        struct dpe_detect_grid grid;
        struct dpe_error err = {0};
        assert_int_equal(dpe_detect_grid_make(&params, &context, &grid, &err), DPE_USAGE);
        if (strstr(err.text, cases[i].message) == NULL) {
            fail_msg("'%s' lacks '%s'", err.text, cases[i].message);
        }
    }
}

/* The effective lengths that the paper's appendix gives for Llama-3-8B-Instruct. */
static void joint_scales_are_the_papers(void **state)
{
    (void)state;
    struct dpe_detect_params params = params_of(131072, 8192, 1024, 8, "auto");
    const int64_t effective[8] = {65536, 16384, 65536, 16384, 4096, 4096, 8192, 32768};
    const double want[8] = {2, 8, 2, 8, 32, 32, 16, 4};
    double scale[8];
    joint_scales_of(&params, effective, scale);
    for (int g = 0; g < 8; g++) {
        assert_true(scale[g] == want[g]);
    }
    /* not rounded, never below one, and a group without an answer stays where it was */
    params.n_groups = 3;
    params.length = 100000;
    const int64_t odd[3] = {30000, 100000, -1};
    joint_scales_of(&params, odd, scale);
    assert_true(scale[0] == 100000.0 / 30000.0 && scale[1] == 1.0);
    assert_true(scale[2] == 200000.0 / 8192.0);
}

static void base_plan_is_the_cell_at_half_the_trained_length(void **state)
{
    (void)state;
    struct dpe_config config = config_of(64, 256);
    struct dpe_detect_params params = params_of(2048, 256, 32, 8, "auto");
    struct dpe_detect_grid grid;
    grid_of(&params, &config, &grid);
    struct dpe_plan_context context = context_of(&config, 256, 2048);
    struct dpe_detect_config base;
    struct dpe_error err = {0};
    double scale[8];
    for (int g = 0; g < 8; g++) {
        scale[g] = dpe_detect_base_scale(&params);
    }
    assert_int_equal(dpe_detect_joint_plan(&grid, &context, scale, &base.plan, &err), DPE_OK);
    assert_int_equal(dpe_plan_key(&base.plan, base.key, &err), DPE_OK);
    for (int g = 0; g < 8; g++) { /* 128 is the third length */
        assert_string_equal(grid.configs[grid.cell[g * params.n_lengths + 2]].key, base.key);
    }
    dpe_plan_free(&base.plan);
    dpe_detect_grid_free(&grid);
}

/* ---------------------------------------------------------------------------------------- ranking
 */

static const int64_t four[4] = {64, 128, 256, 512};

static void ranks_put_accuracy_first_and_ties_to_the_longer(void **state)
{
    (void)state;
    struct dpe_detect_scores scores;
    scores_of(&scores, 8, 3);
    /* group 0: 64 and 256 tie at 2/3 through different summands, 128 is best, 512 worst */
    const double first[4][3] = {
        {1.0 / 3, 2.0 / 3, 1.0}, {1, 1, 1.0 / 3}, {1.0, 1.0 / 3, 2.0 / 3}, {0, 0, 1}};
    for (int t = 0; t < 4; t++) {
        for (int s = 0; s < 3; s++) {
            set_recall(&scores, t, s, first[t][s]);
            set_recall(&scores, 4 + t, s, 0.0); /* group 1: all zero */
        }
    }
    struct dpe_detect_ranking ranking;
    struct dpe_error err = {0};
    fill_nats(&scores);
    assert_int_equal(dpe_detect_rank(&scores, 2, four, 4, DPE_DETECT_RECALL, &ranking, &err),
                     DPE_OK);
    const int32_t want[8] = {3, 1, 2, 4, 4, 3, 2, 1};
    assert_memory_equal(ranking.rank, want, sizeof want);
    assert_int_equal(ranking.effective[0], 128);
    assert_int_equal(ranking.effective[1], 512);
    assert_int_equal(ranking.informative[1], 0);
    assert_true(ranking.p_value[1] == 1.0);
    assert_true(ranking.mean[4] == 0.0);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
}

static void rows_that_were_not_run_are_not_zeros(void **state)
{
    (void)state;
    struct dpe_detect_scores scores;
    scores_of(&scores, 12, 8);
    for (int s = 0; s < 8; s++) {
        /* group 0: 64 misses the samples that everyone else fails; compared on common samples it
         * is not better than 128, and the tie goes to the longer */
        if (s < 6) {
            set_recall(&scores, 0, s, 1.0);
        }
        set_recall(&scores, 1, s, s < 6 ? 1.0 : 0.0);
        set_recall(&scores, 2, s, s < 6 ? 0.5 : 0.0);
        /* group 1: 512 has too few rows to be ranked, though they are perfect */
        set_recall(&scores, 4, s, 0.25);
        set_recall(&scores, 5, s, 0.5);
        set_recall(&scores, 6, s, 0.25);
        if (s < 3) {
            set_recall(&scores, 7, s, 1.0);
        }
    }
    struct dpe_detect_ranking ranking;
    struct dpe_error err = {0};
    fill_nats(&scores);
    assert_int_equal(dpe_detect_rank(&scores, 3, four, 4, DPE_DETECT_RECALL, &ranking, &err),
                     DPE_OK);
    const int32_t want[12] = {2, 1, 3, -1, 3, 1, 2, -1, -1, -1, -1, -1};
    assert_memory_equal(ranking.rank, want, sizeof want);
    assert_int_equal(ranking.effective[0], 128);
    assert_int_equal(ranking.effective[1], 128);
    assert_int_equal(ranking.effective[2], -1); /* no valid row, no rank */
    assert_true(isnan(ranking.p_value[2]) && isnan(ranking.mean[8]));
    assert_int_equal(ranking.n_valid[0], 6);
    assert_int_equal(ranking.n_valid[3], 0);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
}

static void perplexity_ranks_lower_first(void **state)
{
    (void)state;
    struct dpe_detect_scores scores;
    scores_of(&scores, 4, 2);
    /* token-weighted: 128 wins by the long book, 512 by the short one */
    const double nats[4][2] = {{3.0, 3.0}, {2.0, 3.0}, {3.0, 3.0}, {2.9, 2.0}};
    for (int t = 0; t < 4; t++) {
        for (int b = 0; b < 2; b++) {
            scores.status[t * 2 + b] = DPE_ROW_OK;
            scores.n_tokens[t * 2 + b] = b == 0 ? 1000 : 100;
            scores.nll_sum[t * 2 + b] = nats[t][b] * (double)scores.n_tokens[t * 2 + b];
        }
    }
    struct dpe_detect_ranking ranking;
    struct dpe_error err = {0};
    fill_nats(&scores);
    assert_int_equal(dpe_detect_rank(&scores, 1, four, 4, DPE_DETECT_PERPLEXITY, &ranking, &err),
                     DPE_OK);
    const int32_t want[4] = {4, 1, 3, 2};
    assert_memory_equal(ranking.rank, want, sizeof want);
    assert_true(fabs(ranking.mean[1] - exp(2300.0 / 1100.0)) < 1e-9);
    dpe_detect_ranking_free(&ranking);
    dpe_detect_scores_free(&scores);
}

/* Under the null hypothesis p < 0.05 happens in about 5 % of the groups, although best and worst
 * are picked after looking; a real difference of the size that a sweep shows is found. */
static void informative_means_beyond_noise(void **state)
{
    (void)state;
    enum { GROUPS = 400, LENGTHS = 8, SAMPLES = 16 };
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 7, 0);
    double values[LENGTHS * SAMPLES];
    int64_t sample[SAMPLES];
    for (int s = 0; s < SAMPLES; s++) {
        sample[s] = s;
    }
    struct dpe_detect_common common = {LENGTHS, SAMPLES, values, sample, 1};
    int null_found = 0;
    int real_found = 0;
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < LENGTHS * SAMPLES; i++) {
            values[i] = 0.25 * dpe_rng_below(&rng, 5);
        }
        null_found += dpe_detect_spread(&common, 199, 1) < 0.05;
        for (int s = 0; s < SAMPLES; s++) { /* one length finds nothing any more */
            values[3 * SAMPLES + s] = 0.0;
        }
        real_found += dpe_detect_spread(&common, 199, 1) < 0.05;
    }
    assert_in_range(null_found, 5, 36); /* 20 expected, sd 4.4 */
    assert_true(real_found > GROUPS * 95 / 100);
    /* Repeated values of repeated contexts do not count as more contexts. */
    double twice[2 * LENGTHS * SAMPLES];
    int64_t of_context[2 * SAMPLES];
    for (int i = 0; i < LENGTHS * SAMPLES; i++) {
        values[i] = 0.25 * dpe_rng_below(&rng, 5);
        twice[2 * i] = twice[2 * i + 1] = values[i];
    }
    for (int s = 0; s < 2 * SAMPLES; s++) {
        of_context[s] = s;
    }
    struct dpe_detect_common contexts = {LENGTHS, 2 * SAMPLES, twice, of_context, 2};
    double once = dpe_detect_spread(&common, 199, 1);
    assert_true(once > 0.05 && dpe_detect_spread(&contexts, 199, 1) == once);
    contexts.together = 1;
    assert_true(dpe_detect_spread(&contexts, 199, 1) < once);
    for (int i = 0; i < LENGTHS * SAMPLES; i++) {
        values[i] = i % SAMPLES < 8 ? 1.0 : 0.3;
    }
    assert_true(dpe_detect_spread(&common, 199, 1) == 1.0);
    common.n_cells = 1;
    assert_true(dpe_detect_spread(&common, 199, 1) == 1.0);
}

/* Recall of a rival and of the kept plan, 1. */
static void validate_recalls(const double *rival, const double *kept, int n, int64_t together,
                             struct dpe_detect_validation *validation)
{
    static const char *const keys[] = {"rival", "kept"};
    struct dpe_detect_scores scores;
    scores_of(&scores, 2, n);
    scores.together = together;
    for (int s = 0; s < n; s++) {
        set_recall(&scores, 0, s, rival[s]);
        set_recall(&scores, 1, s, kept[s]);
        for (int v = 0; v < 2; v++) {
            scores.n_tokens[v * n + s] = 100;
            scores.nats[v * n + s] = scores.recall[v * n + s];
            scores.nll_sum[v * n + s] = 100.0 * scores.recall[v * n + s];
        }
    }
    dpe_detect_validate(&scores, keys, validation->criterion, 1, validation);
    dpe_detect_scores_free(&scores);
}

static enum dpe_detect_verdict verdict_of(const struct dpe_detect_validation *validation)
{
    return dpe_detect_judge(&validation->minus[0], validation->criterion);
}

static void verdicts_follow_the_paired_interval(void **state)
{
    (void)state;
    enum { N = 16 };
    static const struct {
        double gain[2]; /* of the kept plan, alternating */
        enum dpe_detect_verdict recall, nats;
    } cases[] = {
        {{0.25, 0.5}, DPE_DETECT_BETTER, DPE_DETECT_WORSE},
        {{0.0, 0.0}, DPE_DETECT_INDISTINCT, DPE_DETECT_INDISTINCT},
        {{-0.5, 0.501}, DPE_DETECT_INDISTINCT, DPE_DETECT_INDISTINCT},
        {{-0.25, -0.5}, DPE_DETECT_WORSE, DPE_DETECT_BETTER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double rival[N], kept[N];
        for (int s = 0; s < N; s++) {
            rival[s] = 0.5;
            kept[s] = 0.5 + cases[i].gain[s % 2];
        }
        struct dpe_detect_validation validation = {.criterion = DPE_DETECT_RECALL};
        validate_recalls(rival, kept, N, 1, &validation);
        assert_int_equal(verdict_of(&validation), cases[i].recall);
        double mean = (cases[i].gain[0] + cases[i].gain[1]) / 2;
        assert_true(fabs(validation.minus[0].minus.mean - mean) < 1e-12);
        assert_int_equal(validation.minus[0].minus.n, N);
        validation.criterion = DPE_DETECT_PERPLEXITY;
        validate_recalls(rival, kept, N, 1, &validation);
        assert_int_equal(verdict_of(&validation), cases[i].nats);
        assert_true(fabs(validation.value[0].mean - exp(0.5)) < 1e-12);
    }
    struct dpe_detect_validation nothing = {.criterion = DPE_DETECT_RECALL};
    const double none[2] = {NAN, NAN};
    validate_recalls(none, none, 2, 1, &nothing);
    assert_int_equal(verdict_of(&nothing), DPE_DETECT_UNKNOWN);
}

/* Twelve samples, one of which lost three needles of four: the interval has 0, and so they show
 * nothing; of contexts of two samples there are six. */
static void worse_needs_interval_and_test(void **state)
{
    (void)state;
    enum { N = 12 };
    double rival[N];
    double kept[N];
    struct dpe_detect_validation validation = {.criterion = DPE_DETECT_RECALL};
    for (int s = 0; s < N; s++) {
        rival[s] = 1.0;
        kept[s] = s == 0 ? 0.25 : 1.0;
    }
    validate_recalls(rival, kept, N, 1, &validation);
    assert_true(validation.minus[0].minus.mean < 0.0 && validation.minus[0].minus.high > 0.0);
    assert_true(validation.minus[0].p == 1.0);
    assert_int_equal(verdict_of(&validation), DPE_DETECT_INDISTINCT);
    /* Mean -1/16, variance 12/256 of -3/4 once and 0 else (by hand): 2.8² · 12 = 94.1. */
    assert_int_equal(validation.needed[0], 95);
    validate_recalls(rival, kept, N, 2, &validation);
    assert_int_equal(validation.needed[0], 2 * 48);
    for (int s = 1; s < N; s++) {
        kept[s] = s < 4 ? 0.25 : 0.5;
    }
    validate_recalls(rival, kept, N, 1, &validation);
    assert_int_equal(verdict_of(&validation), DPE_DETECT_WORSE);
    assert_int_equal(validation.needed[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_default_to_powers_of_two_not_below_the_window),
        cmocka_unit_test(listed_lengths_are_sorted_and_checked),
        cmocka_unit_test(equal_plans_are_one_configuration),
        cmocka_unit_test(cells_move_one_group_only),
        cmocka_unit_test(senseless_grids_are_refused),
        cmocka_unit_test(joint_scales_are_the_papers),
        cmocka_unit_test(base_plan_is_the_cell_at_half_the_trained_length),
        cmocka_unit_test(ranks_put_accuracy_first_and_ties_to_the_longer),
        cmocka_unit_test(rows_that_were_not_run_are_not_zeros),
        cmocka_unit_test(perplexity_ranks_lower_first),
        cmocka_unit_test(informative_means_beyond_noise),
        cmocka_unit_test(verdicts_follow_the_paired_interval),
        cmocka_unit_test(worse_needs_interval_and_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
