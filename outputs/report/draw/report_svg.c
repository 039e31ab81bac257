/* Colours, and gnuplot's SVG made fit for a page. */
#include "outputs/report/draw/report_color.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- colours
 */

static const struct {
    const char *light, *dark;
} palette[] = {
    {INK, "#e6edf3"},
    {QUIET, "#9da7b1"},
    {AXIS, "#7d8590"},
    {GRID, "#30363d"},
    {MISSING, "#2a3038"},
    /* Lines. Blue, vermilion, green, purple, ochre, sky, grey and brown stay apart in the three
     * common kinds of colour blindness, by hue or by lightness; marks differ besides. */
    {"#0b62a8", "#6cb6ff"},
    {"#c2480b", "#f69d50"},
    {"#0a7f5b", "#57c99a"},
    {"#93308a", "#e09be0"},
    {"#8a6a00", "#dcb83c"},
    {"#3d8fb8", "#96d0ec"},
    {"#5c6570", "#b0b9c2"},
    {"#6b3410", "#c79a7b"},
};
enum { PALETTE = sizeof palette / sizeof palette[0], FIRST_SERIES = 5 };

const char *series_color(size_t index)
{
    return palette[FIRST_SERIES + index % SERIES_COLORS].light;
}

int series_mark(size_t index)
{
    static const int marks[] = {7, 5, 9, 13, 11, 6, 4, 8, 12, 10};
    return marks[index % (sizeof marks / sizeof marks[0])];
}

/* Dark blue over green to yellow, even steps of lightness (CIE L* 15 to 92) so that order is seen
 * without hue, in grey print as well. */
unsigned color_at(double share)
{
    static const unsigned char stops[][3] = {
        {68, 1, 84},    {71, 45, 123}, {59, 82, 139},  {44, 114, 142}, {33, 145, 140},
        {40, 174, 128}, {94, 201, 98}, {173, 220, 48}, {253, 231, 37},
    };
    enum { STEPS = sizeof stops / sizeof stops[0] - 1 };
    if (isnan(share)) {
        return 0xE6EAEF; /* MISSING */
    }
    double at = fmin(fmax(share, 0.0), 1.0) * STEPS;
    int i = at >= STEPS ? STEPS - 1 : (int)at;
    unsigned rgb = 0;
    for (int c = 0; c < 3; c++) {
        double mixed = stops[i][c] + (at - i) * (stops[i + 1][c] - stops[i][c]);
        rgb = rgb << 8 | (unsigned)lround(mixed);
    }
    return rgb;
}

static double linear(unsigned byte)
{
    double c = byte / 255.0;
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

bool color_is_bright(unsigned rgb)
{
    double luminance = 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) +
                       0.0722 * linear(rgb & 255);
    /* Where contrast with black and with white is the same (WCAG). */
    return luminance > 0.179;
}

static void put_rgb(struct writer *out, const char *hex)
{
    unsigned rgb = (unsigned)strtoul(hex + 1, NULL, 16);
    put(out, "rgb(%u,%u,%u)", rgb >> 16, rgb >> 8 & 255, rgb & 255);
}

void put_dark_rules(struct writer *out, const char *selector)
{
    static const char *const properties[] = {"fill", "stroke", "color"};
    for (size_t i = 0; i < PALETTE; i++) {
        for (size_t p = 0; p < 3; p++) {
            put(out, "%s [%s=\"", selector, properties[p]);
            put_rgb(out, palette[i].light);
            put(out, "\"]{%s:%s}\n", properties[p], palette[i].dark);
        }
    }
}

/* -------------------------------------------------------------------------------------------- SVG
 */

/* Copy a line: spaces inside rgb(…) go (so that style rules need one spelling), ids get the
 * figure's name, quotes become double. Text between tags is left alone; *tag says whether a tag is
 * open, for its attributes may go on over lines. */
static void put_line(struct writer *out, const char *line, size_t n, const char *id, bool *tag)
{
    static const char *const names[] = {"gpPt", "gpDot", "gnuplot_canvas", "fig_plot_"};
    bool color = false;
    for (size_t i = 0; i < n; i++) {
        char c = line[i];
        *tag = c == '<' ? true : c == '>' ? false : *tag;
        if (!*tag) {
            put_bytes(out, &c, 1);
            continue;
        }
        color = strncmp(line + i, "rgb(", 4) == 0 || (color && c != ')');
        if (color && c == ' ') {
            continue;
        }
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            bool begins = i > 0 && strchr("'\"#", line[i - 1]) != NULL;
            if (begins && strncmp(line + i, names[k], strlen(names[k])) == 0) {
                put(out, "%s-", id);
            }
        }
        c = c == '\'' ? '"' : c;
        put_bytes(out, &c, 1);
    }
    put_bytes(out, "\n", 1);
}

/* The first place of `needle` in a line, NULL when it has none. */
static const char *find(const char *line, size_t n, const char *needle)
{
    size_t length = strlen(needle);
    for (size_t i = 0; i + length <= n; i++) {
        if (memcmp(line + i, needle, length) == 0) {
            return line + i;
        }
    }
    return NULL;
}

/* Whether a definition (a line of <defs>) is used: marks refer to each other, so anything counts.
 */
static bool is_used(const char *svg, const char *line, size_t n)
{
    const char *id = find(line, n, "id='gp");
    const char *end = id == NULL ? NULL : memchr(id + 4, '\'', n - (size_t)(id + 4 - line));
    if (end == NULL) {
        return false;
    }
    char *reference = format_text("'#%.*s'", (int)(end - id - 4), id + 4);
    bool used = reference == NULL || strstr(svg, reference) != NULL;
    free(reference);
    return used;
}

static bool starts(const char *line, size_t n, const char *with)
{
    while (n > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    return n >= strlen(with) && memcmp(line, with, strlen(with)) == 0;
}

/* The body: from gnuplot's first group on, without its titles, unused marks and empty groups. */
static void put_body(struct writer *out, const char *svg, const char *id)
{
    const char *line = strstr(svg, "<g id=\"gnuplot_canvas\">");
    bool defs = false;
    bool tag = false;
    while (line != NULL && *line != '\0') {
        const char *end = strchr(line, '\n');
        size_t n = end == NULL ? strlen(line) : (size_t)(end - line);
        const char *next = line + n + (end != NULL);
        defs = defs || starts(line, n, "<defs>");
        const char *title = find(line, n, "<title>");
        if (starts(line, n, "<g ") && starts(next, strlen(next), "</g>") && title == NULL) {
            next = strchr(next, '\n');
            line = next == NULL ? NULL : next + 1;
            continue;
        }
        bool drop = n == 0 || (defs && !starts(line, n, "<defs>") && !starts(line, n, "</defs>") &&
                               !is_used(svg, line, n));
        if (!drop) {
            put_line(out, line, title != NULL ? (size_t)(title - line) : n, id, &tag);
        }
        defs = defs && !starts(line, n, "</defs>");
        line = next;
    }
}

static void put_style(struct writer *out)
{
    put(out, "<style>\n"
             "svg{background:#fff}\n"
             "g[font-family]{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,"
             "\"Helvetica Neue\",Arial,sans-serif;font-variant-numeric:tabular-nums}\n"
             "image{image-rendering:pixelated}\n"
             "@media (prefers-color-scheme:dark){\nsvg{background:#0d1117}\n");
    put_dark_rules(out, "svg");
    put(out, "}\n</style>\n");
}

void put_svg(struct writer *out, const struct figure *figure, bool standalone)
{
    if (standalone) {
        put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    }
    put(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" "
        "class=\"plot\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
        "aria-labelledby=\"%s-title\">\n<title id=\"%s-title\">",
        figure->width, figure->height, figure->width, figure->height, figure->id, figure->id);
    put_html(out, figure->title);
    put(out, "</title>\n");
    if (standalone) {
        put_style(out);
    }
    put_body(out, figure->svg.bytes, figure->id);
}
