/* The sweep without a model: cells and configurations, order of work, ranks, effective lengths,
 * joint scales, what counts as informative, verdicts, and what people see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "detect.h"

/* ------------------------------------------------------------------------------------------- grid
 */

static struct dpe_config config_of(int64_t head_dim, int64_t max_position)
{
    struct dpe_config config = {
        .model_type = "llama",
        .n_layers = 2,
        .hidden = 4 * head_dim,
        .intermediate = 64,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = head_dim,
        .vocab = 512,
        .max_position = max_position,
        .rms_eps = 1e-5,
        .rope = {.type = DPE_ROPE_DEFAULT,
                 .theta = 10000.0,
                 .factor = NAN,
                 .original_max_position = NAN,
                 .attention_factor = NAN,
                 .partial_rotary_factor = 1.0},
        .bos_id = -1,
    };
    return config;
}

static struct dpe_plan_context context_of(const struct dpe_config *config, int64_t trained,
                                          int64_t length)
{
    return (struct dpe_plan_context){
        .config = config, .trained_length = trained, .length = length, .angle = DPE_ANGLE_F32};
}

static struct dpe_detect_params params_of(int64_t length, int64_t trained, int64_t window,
                                          int n_groups, const char *lengths)
{
    struct dpe_detect_params params = {
        .length = length, .trained_length = trained, .window = window, .n_groups = n_groups};
    struct dpe_error err = {0};
    int skipped = 0;
    if (dpe_detect_parse_lengths(lengths, &params, &skipped, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
    return params;
}

static void grid_of(const struct dpe_detect_params *params, const struct dpe_config *config,
                    struct dpe_detect_grid *grid)
{
    struct dpe_plan_context context = context_of(config, params->trained_length, params->length);
    struct dpe_error err = {0};
    if (dpe_detect_grid_make(params, &context, grid, &err) != DPE_OK) {
        fail_msg("%s", err.text);
    }
}

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
        /* L0/2 is none of the lengths: nothing coincides */
        {131072, 6000, 750, 8, "auto", 64, 64},
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

/* Every cell's configuration does what the definition says, with far positions by hand. */
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
        {100, 256, 32, 8, "nothing to detect"},
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
    dpe_detect_joint_scales(&params, effective, scale);
    for (int g = 0; g < 8; g++) {
        assert_true(scale[g] == want[g]);
    }
    /* rounded down, never below one, and a group without an answer stays where it was */
    params.n_groups = 3;
    params.length = 100000;
    const int64_t odd[3] = {30000, 100000, -1};
    dpe_detect_joint_scales(&params, odd, scale);
    assert_true(scale[0] == 3.0 && scale[1] == 1.0);
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
    struct dpe_plan base;
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_base_plan(&grid, &context, &base, &err), DPE_OK);
    char key[33];
    assert_int_equal(dpe_plan_key(&base, key, NULL), DPE_OK);
    for (int g = 0; g < 8; g++) { /* 128 is the third length */
        assert_string_equal(grid.configs[grid.cell[g * params.n_lengths + 2]].key, key);
    }
    dpe_plan_free(&base);
    dpe_detect_grid_free(&grid);
}

static void work_goes_in_rounds_and_comes_once(void **state)
{
    (void)state;
    struct dpe_detect_cursor cursor = {
        .per_round = 4, .n_tasks = 2, .n_plans = 5, .n_samples = {10, 3}};
    int seen[2][5][10] = {{{0}}};
    int task = 0;
    int plan = 0;
    int n = 0;
    int64_t sample = 0;
    int64_t round = 0;
    while (dpe_detect_next(&cursor, &task, &plan, &sample)) {
        seen[task][plan][sample]++;
        assert_true(sample / 4 >= round); /* no sample of a later round before an earlier one */
        round = sample / 4;
        n++;
    }
    assert_int_equal(n, 5 * 13);
    for (int p = 0; p < 5; p++) {
        for (int s = 0; s < 10; s++) {
            assert_int_equal(seen[0][p][s], 1);
            assert_int_equal(seen[1][p][s], s < 3);
        }
    }
    struct dpe_detect_cursor empty = {.per_round = 4, .n_tasks = 1, .n_plans = 5};
    assert_false(dpe_detect_next(&empty, &task, &plan, &sample));
}

/* ---------------------------------------------------------------------------------------- ranking
 */

static const int64_t four[4] = {64, 128, 256, 512};

static void scores_of(struct dpe_detect_scores *scores, int n_cells, int64_t n_samples)
{
    struct dpe_error err = {0};
    assert_int_equal(dpe_detect_scores_init(scores, n_cells, n_samples, &err), DPE_OK);
}

static void set_recall(struct dpe_detect_scores *scores, int cell, int64_t sample, double value)
{
    int64_t at = cell * scores->n_samples + sample;
    scores->status[at] = DPE_ROW_OK;
    scores->recall[at] = value;
}

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

static void rows_that_were_not_run_are_no_zeros(void **state)
{
    (void)state;
    struct dpe_detect_scores scores;
    scores_of(&scores, 12, 8);
    for (int s = 0; s < 8; s++) {
        /* group 0: 64 misses the samples that everyone else fails; compared on common samples it
         * is no better than 128, and the tie goes to the longer */
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
    int null_found = 0;
    int real_found = 0;
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < LENGTHS * SAMPLES; i++) {
            values[i] = 0.25 * dpe_rng_below(&rng, 5);
        }
        null_found += dpe_detect_spread(values, LENGTHS, SAMPLES, 199, 1) < 0.05;
        for (int s = 0; s < SAMPLES; s++) { /* one length finds nothing any more */
            values[3 * SAMPLES + s] = 0.0;
        }
        real_found += dpe_detect_spread(values, LENGTHS, SAMPLES, 199, 1) < 0.05;
    }
    assert_in_range(null_found, 5, 36); /* 20 expected, sd 4.4 */
    assert_true(real_found > GROUPS * 95 / 100);
    double flat[LENGTHS * SAMPLES];
    for (int i = 0; i < LENGTHS * SAMPLES; i++) {
        flat[i] = i % SAMPLES < 8 ? 1.0 : 0.3;
    }
    assert_true(dpe_detect_spread(flat, LENGTHS, SAMPLES, 199, 1) == 1.0);
    assert_true(dpe_detect_spread(flat, 1, SAMPLES, 199, 1) == 1.0);
}

static void verdicts_follow_the_paired_interval(void **state)
{
    (void)state;
    enum { N = 16 };
    struct dpe_detect_scores scores;
    struct dpe_detect_validation validation;
    struct dpe_error err = {0};
    scores_of(&scores, DPE_DETECT_N_VALIDATED, N);
    assert_int_equal(dpe_detect_validate(&scores, DPE_DETECT_RECALL, &validation, &err), DPE_OK);
    assert_int_equal(validation.verdict, DPE_DETECT_UNKNOWN);
    static const struct {
        double gain[2]; /* of joint over base, alternating */
        enum dpe_detect_verdict recall, nats;
    } cases[] = {
        {{0.25, 0.5}, DPE_DETECT_BETTER, DPE_DETECT_WORSE},
        {{0.0, 0.0}, DPE_DETECT_NOT_BETTER, DPE_DETECT_NOT_BETTER},
        {{-0.5, 0.501}, DPE_DETECT_NOT_BETTER, DPE_DETECT_WORSE},
        {{-0.25, -0.5}, DPE_DETECT_WORSE, DPE_DETECT_BETTER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int s = 0; s < N; s++) {
            double joint = 0.5 + cases[i].gain[s % 2];
            const double value[DPE_DETECT_N_VALIDATED] = {0.0, 0.5, joint};
            for (int v = 0; v < DPE_DETECT_N_VALIDATED; v++) {
                set_recall(&scores, v, s, value[v]);
                scores.n_tokens[v * N + s] = 100;
                scores.nll_sum[v * N + s] = 100.0 * value[v];
            }
        }
        assert_int_equal(dpe_detect_validate(&scores, DPE_DETECT_RECALL, &validation, &err),
                         DPE_OK);
        assert_int_equal(validation.verdict, cases[i].recall);
        double mean = (cases[i].gain[0] + cases[i].gain[1]) / 2;
        assert_true(fabs(validation.minus_base.mean - mean) < 1e-12);
        assert_int_equal(validation.minus_base.n, N);
        assert_int_equal(dpe_detect_validate(&scores, DPE_DETECT_PERPLEXITY, &validation, &err),
                         DPE_OK);
        assert_int_equal(validation.verdict, cases[i].nats);
        assert_true(fabs(validation.value[DPE_DETECT_BASE].mean - exp(0.5)) < 1e-12);
    }
    dpe_detect_scores_free(&scores);
}

/* -------------------------------------------------------------------------------------- rendering
 */

struct picture {
    struct dpe_config config;
    struct dpe_detect_grid grid;
    struct dpe_detect_scores scores;
    struct dpe_detect_ranking ranking;
};

static void paint(struct picture *picture, enum dpe_detect_criterion criterion)
{
    picture->config = config_of(128, 8192);
    struct dpe_detect_params params = params_of(131072, 8192, 1024, 8, "auto");
    grid_of(&params, &picture->config, &picture->grid);
    scores_of(&picture->scores, 64, 10);
    struct dpe_rng rng;
    dpe_rng_seed(&rng, 3, 0);
    for (int c = 0; c < 63; c++) { /* the last cell was not run */
        for (int s = 0; s < 10; s++) {
            set_recall(&picture->scores, c, s, c == 5 ? 1.0 : 0.25 * dpe_rng_below(&rng, 5));
            picture->scores.n_tokens[c * 10 + s] = 100;
            picture->scores.nll_sum[c * 10 + s] = 200.0 + 10.0 * c + dpe_rng_unit(&rng);
        }
    }
    struct dpe_error err = {0};
    assert_int_equal(
        dpe_detect_rank(&picture->scores, 8, params.lengths, 8, criterion, &picture->ranking, &err),
        DPE_OK);
}

static void unpaint(struct picture *picture)
{
    dpe_detect_ranking_free(&picture->ranking);
    dpe_detect_scores_free(&picture->scores);
    dpe_detect_grid_free(&picture->grid);
}

/* Widest line without escape sequences; counts '*' on the way. */
static int widest(const char *text, int *stars)
{
    int most = 0;
    int column = 0;
    *stars = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\033') {
            c += strcspn(c, "m");
        } else if (*c == '\n') {
            column = 0;
        } else {
            column++;
            *stars += *c == '*';
            most = column > most ? column : most;
        }
    }
    return most;
}

static void heat_maps_fit_any_terminal(void **state)
{
    (void)state;
    for (int criterion = 0; criterion < 2; criterion++) {
        struct picture picture;
        paint(&picture, (enum dpe_detect_criterion)criterion);
        for (int width = 20; width <= 200; width++) {
            for (int colour = DPE_DETECT_MONO; colour <= DPE_DETECT_TRUECOLOUR; colour++) {
                struct dpe_text text = {0};
                int stars = 0;
                assert_int_equal(dpe_detect_heatmap(&picture.grid, &picture.ranking, width,
                                                    (enum dpe_detect_colour)colour, &text, NULL),
                                 DPE_OK);
                assert_true(widest(text.bytes, &stars) <= width);
                assert_int_equal(stars, 8);
                assert_int_equal(strchr(text.bytes, '\033') != NULL, colour != DPE_DETECT_MONO);
                dpe_text_free(&text);
            }
            struct dpe_text text = {0};
            int stars = 0;
            assert_int_equal(
                dpe_detect_rank_table(&picture.grid, &picture.ranking, width, &text, NULL), DPE_OK);
            assert_true(widest(text.bytes, &stars) <= width);
            dpe_text_free(&text);
        }
        unpaint(&picture);
    }
}

static double luminance(const int rgb[3])
{
    double linear[3];
    for (int i = 0; i < 3; i++) {
        double c = rgb[i] / 255.0;
        linear[i] = c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
    }
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

static double contrast(const int a[3], const int b[3])
{
    double x = luminance(a);
    double y = luminance(b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* Colour of the xterm cube. */
static void cube_colour(int code, int rgb[3])
{
    static const int steps[6] = {0, 95, 135, 175, 215, 255};
    code -= 16;
    rgb[0] = steps[code / 36];
    rgb[1] = steps[code / 6 % 6];
    rgb[2] = steps[code % 6];
}

/* WCAG asks for 4.5 to 1; since both colours are set, the terminal's own do not matter. */
static void cells_are_legible(void **state)
{
    (void)state;
    struct picture picture;
    paint(&picture, DPE_DETECT_RECALL);
    for (int c = 0; c < 64; c++) { /* the whole ramp */
        picture.ranking.mean[c] = c / 63.0;
    }
    for (int colour = DPE_DETECT_256; colour <= DPE_DETECT_TRUECOLOUR; colour++) {
        struct dpe_text text = {0};
        int cells = 0;
        assert_int_equal(dpe_detect_heatmap(&picture.grid, &picture.ranking, 80,
                                            (enum dpe_detect_colour)colour, &text, NULL),
                         DPE_OK);
        for (const char *c = strchr(text.bytes, '\033'); c != NULL; c = strchr(c + 1, '\033')) {
            int front[3];
            int back[3];
            int code[2];
            const char *at = strstr(c, "38;");
            if (strncmp(c, "\033[0m", 4) == 0) {
                continue;
            }
            if (colour == DPE_DETECT_256) {
                assert_int_equal(sscanf(at, "38;5;%d;48;5;%dm", &code[0], &code[1]), 2);
                cube_colour(code[0], front);
                cube_colour(code[1], back);
            } else {
                assert_int_equal(sscanf(at, "38;2;%d;%d;%d;48;2;%d;%d;%dm", &front[0], &front[1],
                                        &front[2], &back[0], &back[1], &back[2]),
                                 6);
            }
            cells++;
            if (contrast(front, back) < 4.5) {
                fail_msg("contrast %.2f of cell %d in mode %d", contrast(front, back), cells,
                         colour);
            }
        }
        assert_int_equal(cells, 64);
        dpe_text_free(&text);
    }
    unpaint(&picture);
}

static void cells_print_their_values(void **state)
{
    (void)state;
    struct picture picture;
    paint(&picture, DPE_DETECT_RECALL);
    struct dpe_text text = {0};
    assert_int_equal(
        dpe_detect_heatmap(&picture.grid, &picture.ranking, 80, DPE_DETECT_MONO, &text, NULL),
        DPE_OK);
    assert_non_null(strstr(text.bytes, "128k"));
    assert_non_null(strstr(text.bytes, "1.000*"));    /* cell 5, the best of group 0 */
    assert_non_null(strstr(text.bytes, "     - \n")); /* the cell without rows */
    dpe_text_free(&text);
    unpaint(&picture);
}

static void colours_follow_the_environment(void **state)
{
    (void)state;
    assert_int_equal(dpe_detect_colour_of(true, NULL, "xterm-256color", NULL), DPE_DETECT_256);
    assert_int_equal(dpe_detect_colour_of(true, "", "xterm-256color", "truecolor"),
                     DPE_DETECT_TRUECOLOUR);
    assert_int_equal(dpe_detect_colour_of(true, "1", "xterm-256color", "truecolor"),
                     DPE_DETECT_MONO);
    assert_int_equal(dpe_detect_colour_of(false, NULL, "xterm-256color", NULL), DPE_DETECT_MONO);
    assert_int_equal(dpe_detect_colour_of(true, NULL, "dumb", "truecolor"), DPE_DETECT_MONO);
    assert_int_equal(dpe_detect_colour_of(true, NULL, "vt100", NULL), DPE_DETECT_MONO);
    assert_int_equal(dpe_detect_colour_of(true, NULL, NULL, NULL), DPE_DETECT_MONO);
}

static void live_lines_fit_and_keep_what_matters(void **state)
{
    (void)state;
    const int64_t best[8] = {65536, 16384, -1, 16384, 4096, 4096, 8192, 32768};
    const struct dpe_detect_progress progress = {.stage = "sweep",
                                                 .round = 2,
                                                 .rounds = 4,
                                                 .plans_done = 12,
                                                 .plans = 57,
                                                 .rows_done = 345,
                                                 .rows = 912,
                                                 .rate = 1.9,
                                                 .seconds_left = 4000,
                                                 .best = best,
                                                 .n_best = 8};
    char line[256];
    for (int width = 1; width <= 200; width++) {
        dpe_detect_live_line(&progress, width, line, sizeof line);
        assert_true((int)strlen(line) <= width);
        if (width >= 79) {
            assert_non_null(strstr(line, "12/57"));
            assert_non_null(strstr(line, "64k"));
        }
        if (width >= 20) {
            assert_non_null(strstr(line, "345/912"));
            assert_non_null(strstr(line, "1:06:40"));
        }
    }
    dpe_detect_live_line(&progress, 200, line, sizeof line);
    assert_string_equal(line,
                        "sweep round 2/4, 12/57 configurations, 345/912 samples, 1.9 samples/s, "
                        "1:06:40 left, best 64k 16k - 16k 4k 4k 8k 32k");
}

static void validation_says_plainly_when_it_did_not_help(void **state)
{
    (void)state;
    struct dpe_detect_validation validation = {
        .value = {{0.1, 0.05, 0.2, 16}, {0.74, 0.6, 0.8, 16}, {0.69, 0.5, 0.8, 16}},
        .minus_base = {-0.05, -0.1, 0.02, 16},
        .minus_rope = {0.59, 0.4, 0.7, 16},
        .p_base = 0.3,
        .p_rope = 0.001,
        .verdict = DPE_DETECT_WORSE};
    struct dpe_text text = {0};
    assert_int_equal(dpe_detect_validation_table(&validation, 80, &text, NULL), DPE_OK);
    assert_non_null(strstr(text.bytes, "WORSE than the base"));
    assert_non_null(strstr(text.bytes, "0.690 [0.500, 0.800]"));
    assert_non_null(strstr(text.bytes, "-0.050 [-0.100, +0.020]"));
    text.n = 0;
    validation.verdict = DPE_DETECT_NOT_BETTER;
    assert_int_equal(dpe_detect_validation_table(&validation, 80, &text, NULL), DPE_OK);
    assert_non_null(strstr(text.bytes, "NOT better than the base"));
    dpe_text_free(&text);
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
        cmocka_unit_test(work_goes_in_rounds_and_comes_once),
        cmocka_unit_test(ranks_put_accuracy_first_and_ties_to_the_longer),
        cmocka_unit_test(rows_that_were_not_run_are_no_zeros),
        cmocka_unit_test(perplexity_ranks_lower_first),
        cmocka_unit_test(informative_means_beyond_noise),
        cmocka_unit_test(verdicts_follow_the_paired_interval),
        cmocka_unit_test(heat_maps_fit_any_terminal),
        cmocka_unit_test(cells_are_legible),
        cmocka_unit_test(cells_print_their_values),
        cmocka_unit_test(colours_follow_the_environment),
        cmocka_unit_test(live_lines_fit_and_keep_what_matters),
        cmocka_unit_test(validation_says_plainly_when_it_did_not_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
