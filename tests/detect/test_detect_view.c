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
    fill_nats(&picture->scores);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heat_maps_fit_any_terminal),
        cmocka_unit_test(cells_are_legible),
        cmocka_unit_test(cells_print_their_values),
        cmocka_unit_test(colours_follow_the_environment),
        cmocka_unit_test(live_lines_fit_and_keep_what_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
