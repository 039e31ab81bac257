/* dpe-report's parts: hostile text, sheets, colours, axes and figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/base.h"
#include "engine/tool/tool.h"
#include "outputs/page/page.h"
#include "outputs/page/page_svg.h"

/* ------------------------------------------------------------------------------------------- text
 */

static void assert_clean(const char *from, size_t columns, const char *to)
{
    char *text = dpe_draw_clean_text(from, columns);
    assert_non_null(text);
    assert_string_equal(text, to);
    free(text);
}

static void test_clean(void **state)
{
    (void)state;
    assert_clean("", 0, "");
    assert_clean("plain ü 日本 𝔘", 0, "plain ü 日本 𝔘");
    assert_clean("a\nb\tc\rd", 0, "a b c d");
    assert_clean("\x01\x1b[31m\x7f", 0, "\xEF\xBF\xBD\xEF\xBF\xBD[31m\xEF\xBF\xBD");
    assert_clean("\xC2\x85 \xE2\x80\xA8 \xE2\x80\xAE \xEF\xBF\xBF", 0,
                 "\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD");
    /* Overlong, surrogate, cut off, lone continuation: one mark for each byte. */
    assert_clean("\xC0\x80", 0, "\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_clean("\xED\xA0\x80", 0, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_clean("x\xE2\x82", 0, "x\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_clean("\x80", 0, "\xEF\xBF\xBD");
    /* Cut in the middle, by characters and not by bytes. */
    assert_clean("0123456789", 10, "0123456789");
    assert_clean("0123456789a", 10, "012345…89a");
    assert_clean("ääääääääääää", 4, "ää…ä");
}

static void assert_put(void (*put_it)(struct dpe_text *, const char *), const char *from,
                       const char *to)
{
    struct dpe_text out = {0};
    put_it(&out, from);
    assert_false(out.failed);
    assert_string_equal(out.bytes, to);
    dpe_text_free(&out);
}

static void test_escapes(void **state)
{
    (void)state;
    assert_put(dpe_draw_put_html, "<script>alert(\"1\" & '2')</script>",
               "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
    assert_put(dpe_draw_put_html, "100%s &amp;", "100%s &amp;amp;");
}

static void test_numbers(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(dpe_length_text(512.0, text), "512");
    assert_string_equal(dpe_length_text(1000.0, text), "1000");
    assert_string_equal(dpe_length_text(1024.0, text), "1k");
    assert_string_equal(dpe_length_text(1536.0, text), "1536");
    assert_string_equal(dpe_length_text(16384.0, text), "16k");
    assert_string_equal(dpe_length_text(131072.0, text), "128k");
    assert_string_equal(dpe_length_text(16385.0, text), "16385");
    assert_string_equal(dpe_p_text(0.0004, text), "p < 0.001");
    assert_string_equal(dpe_p_text(0.25, text), "p = 0.250");
    assert_string_equal(dpe_p_text((double)NAN, text), "p unknown");
}

/* ----------------------------------------------------------------------------------------- sheets
 */

static struct dpe_sheet *new_sheet(const char *id, const char *title, const char *columns)
{
    struct dpe_sheet *sheet = dpe_draw_sheet_new(dpe_draw_format_text("%s", id),
                                                 dpe_draw_format_text("%s", title), columns);
    assert_non_null(sheet);
    return sheet;
}

static struct dpe_sheet *example(void)
{
    const double nan_ = (double)NAN;
    struct dpe_sheet *sheet =
        new_sheet("example", "An <example>", "name, \"quoted\":t|n:1|recall:i2");
    dpe_draw_row(sheet, dpe_text_cell("a,b\"c"), dpe_number_cell(0.1),
                 dpe_interval_cell(1.0 / 3.0, -0.25, 0.5));
    dpe_draw_row(sheet, dpe_text_cell("<b>"), dpe_number_cell(nan_),
                 dpe_interval_cell(nan_, nan_, nan_));
    return sheet;
}

static void test_csv(void **state)
{
    (void)state;
    struct dpe_sheet *sheet = example();
    struct dpe_text out = {0};
    dpe_draw_sheet_csv(sheet, &out);
    assert_false(out.failed);
    assert_string_equal(
        out.bytes, "\"name, \"\"quoted\"\"\",\"n\",\"recall\",\"recall_low\",\"recall_high\"\r\n"
                   "\"a,b\"\"c\",\"0.10000000000000001\",\"0.33333333333333331\",\"-0.25\","
                   "\"0.5\"\r\n"
                   "\"<b>\",\"NaN\",\"NaN\",\"NaN\",\"NaN\"\r\n");
    dpe_text_free(&out);
    dpe_draw_sheet_free(sheet);
}

/* A spreadsheet would run these as formulas; numbers stay numbers. */
static void test_csv_formulas(void **state)
{
    (void)state;
    static const char *const formulas[] = {"=1+2",
                                           "+cmd|' /C calc'!A0",
                                           "-2+3",
                                           "@SUM(1)",
                                           "\t=1",
                                           "\r=1",
                                           "-",
                                           "=HYPERLINK(\"x\")",
                                           "\xef\xbc\x9d"
                                           "1+2",
                                           "\xef\xbc\xa0"
                                           "SUM(1)",
                                           "\xef\xbc\x8d"
                                           "1",
                                           "\xef\xbc\x8b"
                                           "1"};
    static const char *const others[] = {"-2.5e-3",
                                         "+7",
                                         "a=b",
                                         "",
                                         "rope",
                                         "-inf",
                                         "\xef\xbc\xa1",
                                         "\xef\xbc\x9e"
                                         "1"};
    struct dpe_sheet *sheet =
        dpe_draw_sheet_new(dpe_draw_format_text("id"), dpe_draw_format_text("t"), "=name:t|n:2");
    assert_non_null(sheet);
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++) {
        dpe_draw_row(sheet, dpe_text_cell(formulas[i]), dpe_number_cell(-1.0));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dpe_draw_row(sheet, dpe_text_cell(others[i]), dpe_number_cell(-1.0));
    }
    struct dpe_text out = {0};
    dpe_draw_sheet_csv(sheet, &out);
    assert_false(out.failed);
    int quoted = 0;
    for (const char *at = out.bytes; *at != '\0'; at++) {
        bool begins = *at == '"' && (at == out.bytes || at[-1] == '\n' || at[-1] == ',');
        quoted += begins && at[1] == '\'';
        assert_true(!begins || strchr("=@\t\r", at[1]) == NULL);
    }
    /* Of the tabs and returns spaces were made. */
    assert_int_equal(quoted, 1 + sizeof formulas / sizeof *formulas - 2);
    assert_non_null(strstr(out.bytes, "\"-2.5e-3\",\"-1\""));
    dpe_text_free(&out);
    dpe_draw_sheet_free(sheet);
}

static void test_html_table(void **state)
{
    (void)state;
    struct dpe_sheet *sheet = example();
    struct dpe_text out = {0};
    sheet->shown = 1;
    dpe_draw_sheet_html(sheet, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.bytes, "aria-label=\"An &lt;example&gt;\""));
    assert_non_null(strstr(out.bytes, "a,b&quot;c"));
    assert_non_null(strstr(out.bytes, "0.33 <small>−0.25 to 0.50</small>"));
    assert_null(strstr(out.bytes, "&lt;b&gt;"));
    assert_non_null(strstr(out.bytes, "1 of 2 rows"));
    dpe_text_free(&out);
    dpe_draw_sheet_free(sheet);
}

/* P-values look as everywhere in HTML, and are numbers in CSV. */
static void test_p_column(void **state)
{
    (void)state;
    struct dpe_sheet *sheet = new_sheet("p", "p", "p:p");
    const double p[] = {0.0004, 0.0123, 1.0, (double)NAN};
    for (int i = 0; i < 4; i++) {
        dpe_draw_cell(sheet, dpe_number_cell(p[i]));
    }
    struct dpe_text out = {0};
    dpe_draw_sheet_html(sheet, &out);
    assert_non_null(strstr(out.bytes, ">&lt; 0.001<"));
    assert_non_null(strstr(out.bytes, ">0.012<"));
    assert_non_null(strstr(out.bytes, ">1.000<"));
    dpe_text_free(&out);
    out = (struct dpe_text){0};
    dpe_draw_sheet_csv(sheet, &out);
    assert_non_null(strstr(out.bytes, "\"0.01"));
    dpe_text_free(&out);
    dpe_draw_sheet_free(sheet);
}

/* ---------------------------------------------------------------------------------------- colours
 */

static double lightness(unsigned rgb)
{
    double sum = 0.0;
    const double weights[3] = {0.2126, 0.7152, 0.0722};
    for (int c = 0; c < 3; c++) {
        double byte = (rgb >> (16 - 8 * c) & 255) / 255.0;
        sum += weights[c] * (byte <= 0.04045 ? byte / 12.92 : pow((byte + 0.055) / 1.055, 2.4));
    }
    return sum;
}

/* As WCAG defines it. */
static double contrast(unsigned a, unsigned b)
{
    double one = lightness(a);
    double other = lightness(b);
    return (fmax(one, other) + 0.05) / (fmin(one, other) + 0.05);
}

/* Order must be seen without hue: brighter at every step, and labels in contrast everywhere. */
static void test_colors(void **state)
{
    (void)state;
    double before = -1.0;
    for (int i = 0; i <= 1000; i++) {
        unsigned rgb = dpe_draw_color_at(i / 1000.0);
        double now = lightness(rgb);
        assert_true(i % 10 != 0 || now > before);
        assert_true(contrast(rgb, dpe_draw_color_is_bright(rgb) ? 0x000000 : 0xFFFFFF) >= 4.5);
        before = i % 10 == 0 ? now : before;
    }
    assert_int_equal(dpe_draw_color_at(-1.0), dpe_draw_color_at(0.0));
    assert_int_equal(dpe_draw_color_at(2.0), dpe_draw_color_at(1.0));
    assert_int_equal(dpe_draw_color_at((double)NAN), 0xE6EAEF);
}

static unsigned color_of(const char *name, bool dark)
{
    const char *text = dpe_svg_color(name, dark);
    assert_non_null(text);
    assert_int_equal(strlen(text), 7);
    return (unsigned)strtoul(text + 1, NULL, 16);
}

/* Texts can be read and lines be seen on the page, in light and in dark. */
static void test_palette(void **state)
{
    (void)state;
    for (int dark = 0; dark < 2; dark++) {
        unsigned page = color_of("page", dark != 0);
        assert_true(contrast(color_of(DPE_INK, dark != 0), page) >= 4.5);
        assert_true(contrast(color_of(DPE_QUIET, dark != 0), page) >= 4.5);
        assert_true(contrast(color_of(DPE_QUIET, dark != 0), color_of(DPE_MISSING, dark != 0)) >=
                    4.5);
        for (size_t i = 0; i < DPE_SERIES_COLORS; i++) {
            assert_true(contrast(color_of(dpe_svg_series(i), dark != 0), page) >= 3.0);
            for (size_t k = 0; k < i; k++) {
                assert_int_not_equal(color_of(dpe_svg_series(i), dark != 0),
                                     color_of(dpe_svg_series(k), dark != 0));
            }
        }
    }
    assert_null(dpe_svg_color("s99", false));
    struct dpe_text out = {0};
    dpe_svg_rules(&out, true);
    assert_non_null(strstr(out.bytes, ".plot .s0{color:#6cb6ff}"));
    dpe_text_free(&out);
}

/* ------------------------------------------------------------------------------------------- axes
 */

static void assert_ticks(struct dpe_axis axis, double gap, const char *expected)
{
    struct dpe_ticks ticks;
    char found[512] = "";
    dpe_axis_ticks(&axis, gap, &ticks);
    for (size_t i = 0; i < ticks.n; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%s", i > 0 ? " " : "", ticks.ticks[i].text);
    }
    assert_string_equal(found, expected);
}

static void test_ticks(void **state)
{
    (void)state;
    assert_ticks((struct dpe_axis){0.0, 1.0, false, 0.0, 200.0}, 26.0, "0.0 0.2 0.4 0.6 0.8 1.0");
    assert_ticks((struct dpe_axis){-0.02, 1.04, false, 200.0, 0.0}, 60.0, "0.0 0.5 1.0");
    assert_ticks((struct dpe_axis){-3.0, 117.0, false, 0.0, 200.0}, 40.0, "0 50 100");
    assert_ticks((struct dpe_axis){0.9, 60.0, true, 0.0, 200.0}, 20.0, "1 2 5 10 20 50");
    assert_ticks((struct dpe_axis){2.0, 5.0, true, 0.0, 400.0}, 20.0, "2 2.5 3 4 5");
    assert_ticks((struct dpe_axis){1.0, 1e9, true, 0.0, 100.0}, 30.0, "1 1000 1e+06 1e+09");
    /* Too short for round values of its own. */
    assert_ticks((struct dpe_axis){2.01, 2.03, true, 0.0, 200.0}, 90.0, "2.01 2.02 2.03");
    /* Nothing is outside, whatever the numbers. */
    const double low[] = {1e-12, 1.0, 3.0, 1e150, 12345.0};
    const double high[] = {1e-3, 1.0001, 4.0, 1e180, 12346.0};
    for (int i = 0; i < 10; i++) {
        struct dpe_axis axis = {low[i % 5], high[i % 5], i >= 5, 50.0, 250.0};
        struct dpe_ticks ticks;
        dpe_axis_ticks(&axis, 26.0, &ticks);
        assert_in_range(ticks.n, 1, 11);
        for (size_t t = 0; t < ticks.n; t++) {
            double at = dpe_axis_at(&axis, ticks.ticks[t].value);
            assert_true(at >= 50.0 && at <= 250.0);
            assert_true(t == 0 || at > dpe_axis_at(&axis, ticks.ticks[t - 1].value));
        }
    }
}

static void test_length_ticks(void **state)
{
    (void)state;
    struct dpe_axis axis = {500.0, 150000.0, true, 50.0, 400.0};
    struct dpe_ticks ticks;
    dpe_axis_lengths(&axis, NULL, 0, &ticks);
    assert_int_equal(ticks.n, 9);
    assert_string_equal(ticks.ticks[0].text, "512");
    assert_string_equal(ticks.ticks[1].text, "1k");
    assert_string_equal(ticks.ticks[8].text, "128k");
    /* Texts that would touch are left out. */
    const double near[] = {1000.0, 1001.0, 100000.0};
    dpe_axis_lengths(&axis, near, 3, &ticks);
    assert_int_equal(ticks.n, 2);
    assert_string_equal(ticks.ticks[1].text, "100000");
}

/* ---------------------------------------------------------------------------------------- figures
 */

/* What dpe_draw_put_svg writes; the caller frees it. */
static char *svg_of(const struct dpe_block *figure, bool standalone)
{
    struct dpe_text out = {0};
    dpe_draw_put_svg(&out, figure, standalone);
    assert_false(out.failed);
    return out.bytes;
}

static void test_svg(void **state)
{
    (void)state;
    struct dpe_page page = {0};
    struct dpe_figure *painted =
        dpe_page_figure(&page, new_sheet("fig-1", "A <title>", "n:0"), NULL, "A \"caption\"");
    const struct dpe_block *figure = &page.blocks[0];
    dpe_svg_text(&painted->body, 10.0, 20.0, -90.0, DPE_SVG_MIDDLE, 11, DPE_INK, "<b>&\n", 0);
    char *inside = svg_of(figure, false);
    assert_non_null(strstr(inside, "role=\"img\" aria-labelledby=\"fig-1-title\""));
    assert_non_null(strstr(inside, "<title id=\"fig-1-title\">A &lt;title&gt;</title>"));
    assert_non_null(strstr(inside, "class=\"ink\">&lt;b&gt;&amp; </text>"));
    assert_null(strstr(inside, "<style>")); /* the page has it */
    char *file = svg_of(figure, true);
    assert_non_null(strstr(file, "<desc>A &quot;caption&quot;</desc>"));
    assert_non_null(strstr(file, "@media screen and (prefers-color-scheme:dark)"));
    free(inside);
    free(file);
    dpe_page_free(&page);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text++) {
        n++;
    }
    return n;
}

/* The sheet as it is drawn; frees both. The caller frees the text. */
static char *drawn(struct dpe_sheet *sheet, const struct dpe_plot *plot)
{
    struct dpe_figure figure = {0};
    dpe_draw_plot(&figure, sheet, plot);
    assert_false(figure.body.failed);
    dpe_draw_sheet_free(sheet);
    return figure.body.bytes;
}

/* A gap in a curve is a gap, an interval is a bar, what cannot be shown is left out, and so is a
 * row that is for the numbers alone; the order of rows does not matter. */
static void test_curves(void **state)
{
    (void)state;
    const double nan_ = (double)NAN;
    const struct dpe_plot plot = {.kind = PLOT_CURVES,
                                  .x = 1,
                                  .value = 2,
                                  .log_x = true,
                                  .log = true,
                                  .sorted = true,
                                  .x_title = "length",
                                  .y_title = "value",
                                  .x_line = 1024.0,
                                  .x_line_title = "trained"};
    struct dpe_sheet *sheet = new_sheet("c", "c", "name:t|x:0|y:i1");
    const double points[][4] = {{512.0, 1.0, 0.5, 1.5},
                                {2048.0, 3.0, 2.0, 4.0},
                                {1024.0, nan_, nan_, nan_},
                                {4096.0, (double)INFINITY, 0.0, 1e300}};
    for (int i = 0; i < 4; i++) {
        dpe_draw_row(sheet, dpe_text_cell("one"), dpe_number_cell(points[i][0]),
                     dpe_interval_cell(points[i][1], points[i][2], points[i][3]));
        dpe_draw_row_mark(sheet, ROW_STRONG);
    }
    dpe_draw_row(sheet, dpe_text_cell("two"), dpe_number_cell(512.0), dpe_number_cell(1.0));
    dpe_draw_row_mark(sheet, ROW_UNDRAWN);
    dpe_draw_row(sheet, dpe_text_cell("level"), dpe_number_cell(nan_), dpe_number_cell(2.0));
    dpe_draw_row_mark(sheet, ROW_PLAIN);
    char *svg = drawn(sheet, &plot);
    assert_int_equal(count(svg, "<circle "), 3);   /* two points, one in the legend */
    assert_int_equal(count(svg, "h5m-2.5 0V"), 2); /* error bars */
    assert_int_equal(count(svg, ">one</text>") + count(svg, ">level</text>"), 2);
    assert_int_equal(count(svg, ">trained</text>"), 1);
    assert_int_equal(count(svg, ">4k</text>"), 1);
    assert_null(strstr(svg, ">two</text>"));
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    free(svg);
}

static void test_heat(void **state)
{
    (void)state;
    const struct dpe_plot plot = {.kind = PLOT_HEAT,
                                  .x = 1,
                                  .value = 2,
                                  .framed = 3,
                                  .digits = 1,
                                  .x_title = "x",
                                  .y_title = "y",
                                  .bar_title = "bar"};
    struct dpe_sheet *sheet = new_sheet("h", "h", "row:t|column:0|value:1|first:0");
    struct dpe_sheet_cell half = dpe_number_cell(1.0);
    half.text = (char[]){"half"};
    dpe_draw_row(sheet, dpe_text_cell("a"), dpe_number_cell(2048.0), dpe_number_cell(1.0),
                 dpe_number_cell(1.0));
    dpe_draw_row(sheet, dpe_text_cell("a"), half, dpe_number_cell(0.0), dpe_number_cell(2.0));
    dpe_draw_row(sheet, dpe_text_cell("b"), dpe_number_cell(2048.0), dpe_number_cell(0.5),
                 dpe_number_cell(2.0));
    char *svg = drawn(sheet, &plot);
    assert_int_equal(count(svg, "class=\"on-dark\">0.0</text>"), 1);
    assert_int_equal(count(svg, "class=\"on-bright\">1.0</text>"), 1);
    assert_int_equal(count(svg, "class=\"quiet\">–</text>"), 1);
    assert_int_equal(count(svg, "class=\"missing\" fill"), 1);
    assert_int_equal(count(svg, "class=\"ink\" stroke=\"currentColor\" stroke-width=\"2\"/>"), 1);
    /* Columns with numbers stand in their order, with names of their own. */
    assert_true(strstr(svg, ">half</text>") < strstr(svg, ">2k</text>"));
    free(svg);
}

/* Places that are no number, as a table of another program may have them, are one place. */
static void test_heat_without_places(void **state)
{
    (void)state;
    const struct dpe_plot plot = {.kind = PLOT_HEAT,
                                  .x = 1,
                                  .value = 2,
                                  .digits = 1,
                                  .x_title = "x",
                                  .y_title = "y",
                                  .bar_title = "bar"};
    struct dpe_sheet *sheet = new_sheet("h", "h", "row:0|column:0|value:1");
    const double places[] = {(double)NAN, 0.5, (double)NAN, (double)INFINITY};
    for (int i = 0; i < 16; i++) {
        dpe_draw_row(sheet, dpe_number_cell(places[i / 4]), dpe_number_cell(places[i % 4]),
                     dpe_number_cell(i));
    }
    char *svg = drawn(sheet, &plot);
    assert_int_equal(count(svg, "<rect ") - 40, 9); /* three places each way; 40 make the bar */
    free(svg);
}

/* A hundred lines of one point, none of which is drawn: nothing is. */
static void test_nothing_drawn(void **state)
{
    (void)state;
    for (int kind = PLOT_CURVES; kind <= PLOT_HEAT; kind++) {
        const struct dpe_plot plot = {.kind = (enum dpe_plot_kind)kind, .x = 1, .value = 2};
        struct dpe_sheet *sheet = new_sheet("n", "n", "name:t|x:0|y:0");
        for (int i = 0; i < 100; i++) {
            dpe_draw_row(sheet, dpe_text_cell("one"), dpe_number_cell(i), dpe_number_cell(i));
            dpe_draw_row_mark(sheet, ROW_UNDRAWN);
        }
        assert_null(drawn(sheet, &plot));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_formulas),
        cmocka_unit_test(test_html_table),
        cmocka_unit_test(test_p_column),
        cmocka_unit_test(test_colors),
        cmocka_unit_test(test_palette),
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_length_ticks),
        cmocka_unit_test(test_svg),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_heat),
        cmocka_unit_test(test_heat_without_places),
        cmocka_unit_test(test_nothing_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
