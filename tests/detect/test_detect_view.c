/* What people see of a sweep: heat maps, tables, the live line, the verdict in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detect/report/view.h"
#include "tests/detect/detect_case.h"

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
                dpe_detect_heatmap(&picture.grid, &picture.ranking, width,
                                   (enum dpe_detect_colour)colour, &text);
                assert_true(widest(text.bytes, &stars) <= width);
                assert_int_equal(stars, 8);
                assert_int_equal(strchr(text.bytes, '\033') != NULL, colour != DPE_DETECT_MONO);
                dpe_text_free(&text);
            }
            struct dpe_text text = {0};
            int stars = 0;
            dpe_detect_rank_table(&picture.grid, &picture.ranking, width, &text);
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
        dpe_detect_heatmap(&picture.grid, &picture.ranking, 80, (enum dpe_detect_colour)colour,
                           &text);
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
    dpe_detect_heatmap(&picture.grid, &picture.ranking, 80, DPE_DETECT_MONO, &text);
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

static void validation_reports_when_it_did_not_help(void **state)
{
    (void)state;
    static const char base[] = "what the base is";
    struct dpe_detect_validation validation = {
        .value = {{0.1, 0.05, 0.2, 16}, {0.74, 0.6, 0.8, 16}, {0.69, 0.5, 0.8, 16}},
        .minus[DPE_DETECT_BASE] = {{-0.05, -0.1, 0.02, 16}, .p = 0.3},
        .minus[DPE_DETECT_ROPE] = {{0.59, 0.4, 0.7, 16}, .p = 0.001},
        .verdict = DPE_DETECT_WORSE,
        .kept = DPE_DETECT_JOINT};
    struct dpe_text text = {0};
    dpe_detect_validation_table(&validation, NULL, base, 80, &text);
    assert_non_null(strstr(text.bytes, "worse than the base; --select joint (the default)"));
    assert_non_null(strstr(text.bytes, base));
    assert_non_null(strstr(text.bytes, "0.690 [0.500, 0.800]"));
    assert_non_null(strstr(text.bytes, "-0.050 [-0.100, +0.020]"));
    text.n = 0;
    validation.verdict = DPE_DETECT_INDISTINCT;
    validation.needed = 1234;
    dpe_detect_validation_table(&validation, NULL, base, 80, &text);
    assert_non_null(strstr(text.bytes, "not distinguishable from the base with 16 samples."));
    assert_non_null(strstr(text.bytes, "About 1300 samples would show"));
    assert_null(strstr(text.bytes, "worse than"));
    text.n = 0;
    validation.needed = 0;
    dpe_detect_validation_table(&validation, NULL, base, 80, &text);
    assert_null(strstr(text.bytes, "About"));
    text.n = 0;
    validation.minus[DPE_DETECT_BASE].minus = (struct dpe_interval){0.0, 0.0, 0.0, 16};
    dpe_detect_validation_table(&validation, NULL, base, 80, &text);
    assert_non_null(strstr(text.bytes, "The joint plan and the base are the same plan."));
    assert_null(strstr(text.bytes, "not distinguishable"));
    text.n = 0;
    validation.too_easy = true;
    dpe_detect_validation_table(&validation, NULL, base, 80, &text);
    assert_non_null(strstr(text.bytes, "too easy at this length"));
    assert_non_null(strstr(text.bytes, "--keys-per-context 4"));
    assert_null(strstr(text.bytes, "not distinguishable"));
    dpe_text_free(&text);
}

/* Why the table holds a plan although another one finds more: no table holds that one, or the task
 * that the user named decides. */
static void a_better_plan_that_is_not_kept_is_explained(void **state)
{
    (void)state;
    enum { OTHER = DPE_DETECT_N_VALIDATED };
    struct dpe_config config = config_of(256, 512);
    struct dpe_detect_grid grid;
    struct dpe_detect_params params = params_of(2048, 512, 64, 4, "256,512");
    grid_of(&params, &config, &grid);
    static struct dpe_detect_report report;
    report = (struct dpe_detect_report){.grid = &grid,
                                        .rule = DPE_DETECT_GUARDED,
                                        .n_validated = OTHER + 1,
                                        .names = {"rope", "base", "joint", "other"},
                                        .keys = {"r", "b", "j", "o"}};
    struct dpe_detect_result *deciding = &report.results[0];
    *deciding = (struct dpe_detect_result){.used = true, .validated = true};
    deciding->validation.n_plans = OTHER + 1;
    deciding->validation.kept = DPE_DETECT_JOINT;
    deciding->validation.kept_minus[OTHER] =
        (struct dpe_difference){{-0.13, -0.25, -0.02, 32}, .p = 0.027};
    report.users.validation = deciding->validation;
    report.users.validation.value[DPE_DETECT_JOINT].mean = 0.98;
    static const struct {
        bool table, users;
        double finds;
        const char *reason;
    } cases[] = {{false, false, 0.0, "a table cannot hold that plan: --method other"},
                 {true, true, 0.86, "on your task that plan finds less"},
                 {true, true, 0.99, NULL},
                 {true, false, 0.0, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpe_text text = {0};
        report.tables[OTHER] = cases[i].table;
        report.users.validated = cases[i].users;
        report.users.validation.value[OTHER].mean = cases[i].finds;
        dpe_detect_words(&report, &text);
        assert_non_null(strstr(text.bytes, "worse than other: -0.130"));
        for (size_t k = 0; k < 2; k++) {
            assert_true((strstr(text.bytes, cases[k].reason) != NULL) == (k == i));
        }
        dpe_text_free(&text);
    }
    dpe_detect_grid_free(&grid);
}

/* Of methods that are ready the one that the table holds is held against the best other one, which
 * may find more where no table can hold it. */
static void ready_methods_are_held_against_the_best(void **state)
{
    (void)state;
    enum { OTHER = DPE_DETECT_N_VALIDATED, PLANS = OTHER + 3 };
    static struct dpe_detect_report report;
    report = (struct dpe_detect_report){.rule = DPE_DETECT_READY,
                                        .n_validated = PLANS,
                                        .names = {"rope", "base", "joint", "a", "b", "c"}};
    struct dpe_detect_result *deciding = &report.results[0];
    *deciding = (struct dpe_detect_result){.used = true, .validated = true};
    struct dpe_detect_validation *v = &deciding->validation;
    v->n_plans = PLANS;
    for (int i = 0; i < PLANS; i++) {
        v->value[i] = (struct dpe_interval){0.1 * i, 0.0, 1.0, 16};
        v->kept_minus[i] = (struct dpe_difference){.minus = {0.1, -0.2, 0.4, 16}, .p = 0.4};
    }
    for (int kept = OTHER; kept < PLANS; kept++) {
        struct dpe_text text = {0};
        char expected[64];
        v->kept = report.kept.plan = kept;
        snprintf(expected, sizeof expected, "\n  %s - %s: ",
                 kept == OTHER       ? "the table's and the best, a"
                 : kept == OTHER + 1 ? "the table's and the best, b"
                                     : "the best two, c",
                 kept == PLANS - 1 ? "b" : "c");
        dpe_detect_ready_words(&report, &text);
        assert_non_null(strstr(text.bytes, expected));
        dpe_text_free(&text);
    }
}

/* What the guard on perplexity did. Of plans that predict equally well each predicts best. */
static void the_guard_says_what_it_did(void **state)
{
    (void)state;
    static const struct {
        struct dpe_detect_guard guard;
        const char *says;
    } rows[] = {
        {{.chosen = 2, .kept = 2, .best = 1, .loss = 0.0}, "joint predicts texts best"},
        {{.chosen = 1, .kept = 1, .best = 1, .loss = 0.0}, "base predicts texts best"},
        {{.chosen = 2, .kept = 2, .best = 1, .loss = 0.04},
         "joint loses 4.0 % of perplexity to base (the guard allows 5 %)"},
        {{.chosen = 0, .kept = 2, .best = 2, .loss = 0.0},
         "joint takes the place of rope, which loses 50.0 % of perplexity to joint (the guard "
         "allows "
         "5 %) and is not shown to find more"},
        {{.chosen = 0, .kept = 0, .best = 2, .found = -1, .loss = 0.5, .traded = true},
         "rope loses 50.0 % of perplexity to joint (the guard allows 5 %); no plan that a table "
         "can "
         "hold loses less"},
    };
    static struct dpe_detect_report report;
    report = (struct dpe_detect_report){.names = {"rope", "base", "joint"}, .guard_share = 0.05};
    report.texts.validated = true;
    report.texts.validation.value[0].mean = 3.0;
    report.texts.validation.value[2].mean = 2.0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[512];
        report.guard = rows[i].guard;
        dpe_detect_guard_words(&report, words, sizeof words);
        assert_string_equal(words, rows[i].says);
    }
}

/* A step whose plan has a length for each of many groups is shown whole. */
static void long_plans_are_not_cut(void **state)
{
    (void)state;
    struct dpe_config config = config_of(256, 8192);
    struct dpe_detect_grid grid;
    struct dpe_detect_params params = params_of(1048576, 8192, 1024, 128, "8192,1048576");
    grid_of(&params, &config, &grid);
    struct dpe_detect_tried tried = {.point.window = 1024, .point.temperature.logit_scale = 1.0};
    for (int g = 0; g < 128; g++) {
        tried.point.at[g] = g < 127;
    }
    struct dpe_detect_step step = {.tested = true, .n = 1, .best = -1, .tried = &tried};
    const struct dpe_detect_report report = {.grid = &grid,
                                             .search = {.n_steps = 1, .steps = &step}};
    struct dpe_text text = {0};
    dpe_detect_search_table(&report, &text);
    assert_non_null(strstr(text.bytes, " 1048576 1048576 8192\n"));
    dpe_text_free(&text);
    dpe_detect_grid_free(&grid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heat_maps_fit_any_terminal),
        cmocka_unit_test(cells_are_legible),
        cmocka_unit_test(cells_print_their_values),
        cmocka_unit_test(colours_follow_the_environment),
        cmocka_unit_test(live_lines_fit_and_keep_what_matters),
        cmocka_unit_test(validation_reports_when_it_did_not_help),
        cmocka_unit_test(ready_methods_are_held_against_the_best),
        cmocka_unit_test(the_guard_says_what_it_did),
        cmocka_unit_test(a_better_plan_that_is_not_kept_is_explained),
        cmocka_unit_test(long_plans_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
