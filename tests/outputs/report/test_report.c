/* dpe-report's parts: hostile text, sheets, gnuplot's SVG, and programs that misbehave. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/base.h"
#include "engine/tool/tool.h"
#include "outputs/report/draw/page.h"

/* ------------------------------------------------------------------------------------------- text
 */

static void assert_clean(const char *from, size_t columns, const char *to)
{
    char *text = clean_text(from, columns);
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

static void assert_put(void (*put_it)(struct writer *, const char *), const char *from,
                       const char *to)
{
    struct writer out = {0};
    put_it(&out, from);
    assert_false(out.failed);
    assert_string_equal(out.text.bytes, to);
    dpe_text_free(&out.text);
}

static void quoted(struct writer *out, const char *text)
{
    put_quoted(out, text, 0);
}

static void test_escapes(void **state)
{
    (void)state;
    assert_put(put_html, "<script>alert(\"1\" & '2')</script>",
               "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
    assert_put(put_html, "100%s &amp;", "100%s &amp;amp;");
    assert_put(quoted, "it's @x {y}_2^3 %d", "\"it's @x {y}_2^3 %d\"");
    assert_put(quoted, "a\"b\\n`date`", "\"a\\042b\\134n\\140date\\140\"");
    assert_put(quoted, "line\nbreak", "\"line break\"");
    assert_put(quoted, "", "\"\"");
    assert_put(put_common, "naïve β Ж … – ≥ \xEF\xBF\xBD 日本 𝔘 א x",
               "naïve β Ж … – ≥ \xEF\xBF\xBD ?? ? ? x");
}

static void test_numbers(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(length_text(512.0, text), "512");
    assert_string_equal(length_text(8192.0, text), "8192");
    assert_string_equal(length_text(16384.0, text), "16k");
    assert_string_equal(length_text(131072.0, text), "128k");
    assert_string_equal(length_text(16385.0, text), "16385");
    assert_string_equal(p_text(0.0004, text), "p < 0.001");
    assert_string_equal(p_text(0.25, text), "p = 0.250");
    assert_string_equal(p_text((double)NAN, text), "p unknown");
}

/* ----------------------------------------------------------------------------------------- sheets
 */

static struct sheet *example(void)
{
    struct sheet *sheet = sheet_new("example", "An <example>");
    sheet_column(sheet, "name, \"quoted\"", COLUMN_TEXT, 0);
    sheet_column(sheet, "n", COLUMN_NUMBER, 1);
    sheet_column(sheet, "recall", COLUMN_INTERVAL, 2);
    sheet_text(sheet, "a,b\"c");
    sheet_number(sheet, 0.1);
    sheet_interval(sheet, 1.0 / 3.0, -0.25, 0.5);
    sheet_text(sheet, "<b>");
    sheet_number(sheet, (double)NAN);
    sheet_interval(sheet, (double)NAN, (double)NAN, (double)NAN);
    return sheet;
}

static void test_csv(void **state)
{
    (void)state;
    struct sheet *sheet = example();
    struct writer out = {0};
    sheet_csv(sheet, &out);
    assert_false(out.failed);
    assert_string_equal(
        out.text.bytes,
        "\"name, \"\"quoted\"\"\",\"n\",\"recall\",\"recall_low\",\"recall_high\"\r\n"
        "\"a,b\"\"c\",\"0.10000000000000001\",\"0.33333333333333331\",\"-0.25\","
        "\"0.5\"\r\n"
        "\"<b>\",\"NaN\",\"NaN\",\"NaN\",\"NaN\"\r\n");
    dpe_text_free(&out.text);
    sheet_free(sheet);
}

static void test_html_table(void **state)
{
    (void)state;
    struct sheet *sheet = example();
    struct writer out = {0};
    sheet->shown = 1;
    sheet_html(sheet, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.text.bytes, "aria-label=\"An &lt;example&gt;\""));
    assert_non_null(strstr(out.text.bytes, "a,b&quot;c"));
    assert_non_null(strstr(out.text.bytes, "0.33 <small>−0.25 to 0.50</small>"));
    assert_null(strstr(out.text.bytes, "&lt;b&gt;"));
    assert_non_null(strstr(out.text.bytes, "1 of 2 rows"));
    dpe_text_free(&out.text);
    sheet_free(sheet);
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

/* Order must be seen without hue: brighter at every step, and labels in contrast everywhere. */
static void test_colors(void **state)
{
    (void)state;
    double before = -1.0;
    for (int i = 0; i <= 100; i++) {
        unsigned rgb = color_at(i / 100.0);
        double now = lightness(rgb);
        double label = color_is_bright(rgb) ? 0.0056 /* #111111 */ : 1.0;
        double contrast = (fmax(now, label) + 0.05) / (fmin(now, label) + 0.05);
        assert_true(now > before);
        assert_true(contrast >= 4.0);
        before = now;
    }
    assert_int_equal(color_at(-1.0), color_at(0.0));
    assert_int_equal(color_at(2.0), color_at(1.0));
    assert_int_equal(color_at((double)NAN), 0xE6EAEF);
}

/* -------------------------------------------------------------------------------------------- SVG
 */

static void test_svg(void **state)
{
    (void)state;
    struct figure *figure =
        figure_new("fig-1", "A <title>", format_text("caption"), sheet_new("fig-1", "numbers"));
    assert_non_null(figure);
    figure->width = 10;
    figure->height = 20;
    static const char svg[] =
        "<?xml version=\"1.0\"?>\n<svg width=\"10\">\n<title>Gnuplot</title>\n"
        "<g id=\"gnuplot_canvas\">\n<defs>\n\t<path id='gpPt0' d='M1'/>\n"
        "\t<circle id='gpPt5' r='1'/>\n\t<use xlink:href='#gpPt5' id='gpPt6'/>\n</defs>\n"
        "<g fill=\"none\">\n</g>\n"
        "<g fill=\"none\">\n\t<text>rgb( 1, 2, 3) 'kept' gpPt6</text>\n</g>\n"
        "\t<g id=\"fig_plot_1\" ><title>secret</title>\n"
        "<path stroke='rgb(  1,  2,  3)' d='M0,0\n L1,1 '/>\n"
        "<use xlink:href='#gpPt6' color='rgb( 11,  98, 168)'/>\n</g>\n</g>\n</svg>\n";
    assert_int_equal(dpe_text_append(&figure->svg, svg, sizeof svg - 1, NULL), DPE_OK);
    struct writer out = {0};
    put_svg(&out, figure, false);
    assert_false(out.failed);
    assert_non_null(strstr(out.text.bytes, "<title id=\"fig-1-title\">A &lt;title&gt;</title>"));
    assert_null(strstr(out.text.bytes, "secret"));
    assert_null(strstr(out.text.bytes, "Gnuplot"));
    assert_null(strstr(out.text.bytes, "gpPt0")); /* not used */
    assert_non_null(strstr(out.text.bytes, "id=\"fig-1-gpPt5\""));
    assert_non_null(strstr(out.text.bytes, "href=\"#fig-1-gpPt6\""));
    assert_non_null(strstr(out.text.bytes, "id=\"fig-1-fig_plot_1\""));
    assert_non_null(strstr(out.text.bytes, "stroke=\"rgb(1,2,3)\" d=\"M0,0\n L1,1 \""));
    assert_non_null(strstr(out.text.bytes, "<text>rgb( 1, 2, 3) 'kept' gpPt6</text>"));
    assert_null(strstr(out.text.bytes, "<g fill=\"none\">\n</g>"));
    dpe_text_free(&out.text);
    figure_free(figure);
}

/* --------------------------------------------------------------------------------------- programs
 */

static void test_run_program(void **state)
{
    (void)state;
    const char *const cat[] = {"cat", NULL};
    struct dpe_text output = {0};
    struct dpe_error err = {0};
    size_t n = (size_t)3 << 20; /* more than any pipe holds: both ways at once */
    char *input = malloc(n);
    assert_non_null(input);
    for (size_t i = 0; i < n; i++) {
        input[i] = (char)('a' + i % 26);
    }
    assert_int_equal(run_program(cat, input, n, 30.0, &output, &err), DPE_OK);
    assert_int_equal(output.n, n);
    assert_memory_equal(output.bytes, input, n);
    dpe_text_free(&output);
    /* One that does not read what it is told, and still ends well. */
    const char *const deaf[] = {"true", NULL};
    assert_int_equal(run_program(deaf, input, n, 30.0, &output, &err), DPE_OK);
    dpe_text_free(&output);
    free(input);
}

static void fails(const char *const *argv, double seconds, dpe_status status, const char *words)
{
    struct dpe_text output = {0};
    struct dpe_error err = {0};
    double begin = dpe_clock();
    dpe_status got = run_program(argv, "x\n", 2, seconds, &output, &err);
    if (got != status || strstr(err.text, words) == NULL) {
        fail_msg("expected %d and '%s', found %d and '%s'", (int)status, words, (int)got, err.text);
    }
    assert_true(dpe_clock() - begin < seconds + 5.0);
    dpe_text_free(&output);
}

static void test_bad_programs(void **state)
{
    (void)state;
    const char *const missing[] = {"no-such-gnuplot-anywhere", NULL};
    fails(missing, 10.0, DPE_NO_INPUT, "gnuplot-nox");
    const char *const folder[] = {"/", NULL};
    fails(folder, 10.0, DPE_NO_INPUT, "/: ");
    const char *const failing[] = {"sh", "-c", "echo 'what <went> wrong' >&2; exit 3", NULL};
    fails(failing, 10.0, DPE_IO, "exit status 3: what <went> wrong");
    const char *const killed[] = {"sh", "-c", "kill -SEGV $$", NULL};
    fails(killed, 10.0, DPE_IO, "signal 11");
    /* Hanging: asleep; with its streams closed; with a child that keeps them open. */
    const char *const hanging[] = {"sleep", "100", NULL};
    fails(hanging, 0.3, DPE_IO, "did not finish in time");
    const char *const closed[] = {"sh", "-c", "exec >&- 2>&-; sleep 100", NULL};
    fails(closed, 0.3, DPE_IO, "did not finish in time");
    const char *const child[] = {"sh", "-c", "sleep 100 & exit 0", NULL};
    fails(child, 0.3, DPE_IO, "did not finish in time");
    const char *const endless[] = {"yes", NULL};
    fails(endless, 30.0, DPE_IO, "more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_csv),
        cmocka_unit_test(test_html_table),   cmocka_unit_test(test_colors),
        cmocka_unit_test(test_svg),          cmocka_unit_test(test_run_program),
        cmocka_unit_test(test_bad_programs),
    };
    signal(SIGPIPE, SIG_IGN); /* as dpe_tool_start does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
