/* Text made safe for where it goes; elements of figures, their colours, and the figure as a whole:
 * as SVG, and as PNG, which librsvg's program makes of that. */
#include "outputs/page/page_svg.h"
#include "engine/base/base.h"
#include "engine/system/child.h"
#include "engine/text/unicode.h"
#include "engine/tool/tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- colours */

static const struct color {
    const char *name, *light, *dark;
} palette[] = {
    {"page", "#ffffff", "#0d1117"},
    {DPE_INK, "#1f2328", "#e6edf3"},
    {DPE_QUIET, "#59636e", "#9da7b1"},
    {DPE_AXIS, "#8c959f", "#7d8590"},
    {DPE_GRID, "#d8dee4", "#30363d"},
    {DPE_MISSING, "#e6eaef", "#2a3038"},
    /* Blue, vermilion, green, purple, ochre, sky, grey and brown stay apart in the three common
     * kinds of colour blindness, by hue or by lightness; marks differ besides. */
    {"s0", "#0b62a8", "#6cb6ff"},
    {"s1", "#c2480b", "#f69d50"},
    {"s2", "#0a7f5b", "#57c99a"},
    {"s3", "#93308a", "#e09be0"},
    {"s4", "#8a6a00", "#dcb83c"},
    {"s5", "#3d8fb8", "#96d0ec"},
    {"s6", "#5c6570", "#b0b9c2"},
    {"s7", "#6b3410", "#c79a7b"},
};
enum { PALETTE = sizeof palette / sizeof palette[0], FIRST_SERIES = 6 };

const char *dpe_svg_series(size_t index)
{
    return palette[FIRST_SERIES + index % DPE_SERIES_COLORS].name;
}

static char *same_name, *same_as;

void dpe_draw_same_method(const char *name, const char *other)
{
    free(same_name);
    free(same_as);
    same_name = dpe_draw_need(strdup(name));
    same_as = dpe_draw_need(strdup(other));
}

/* Names get numbers in the order in which the page first shows them. */
size_t dpe_svg_series_of(const char *name)
{
    enum { MOST = 256 };
    static char *names[MOST];
    static size_t n;
    char word[96];
    size_t i = 0;
    if (same_name != NULL && strcmp(name, same_name) == 0) {
        name = same_as;
    }
    /* "unchanged (rope)" is rope. */
    const char *open = strrchr(name, '(');
    size_t length = open != NULL ? strcspn(open, ")") : 0;
    if (length > 1 && open[length] == ')' && open[length + 1] == '\0') {
        snprintf(word, sizeof word, "%.*s", (int)length - 1, open + 1);
        name = word;
    }
    while (i < n && strcmp(names[i], name) != 0) {
        i++;
    }
    if (i == n && n < MOST) {
        names[n++] = dpe_draw_need(strdup(name));
    }
    return i;
}

const char *dpe_svg_color(const char *name, bool dark)
{
    const struct color *color = DPE_NAMED(palette, name);
    return color == NULL ? NULL : dark ? color->dark : color->light;
}

/* Values and no variables, so that programs without a browser's CSS show them as well. */
void dpe_svg_rules(struct dpe_text *out, bool dark)
{
    for (size_t i = 1; i < PALETTE; i++) {
        dpe_text_put(out, ".plot .%s{color:%s}\n", palette[i].name,
                     dark ? palette[i].dark : palette[i].light);
    }
    dpe_text_put(out, ".plot .hollow{fill:%s}\n", dpe_svg_color("page", dark));
}

/* Dark blue over green to yellow, even steps of lightness (CIE L* 15 to 92) so that order is seen
 * without hue, in grey print as well. */
unsigned dpe_draw_color_at(double share)
{
    static const unsigned char stops[][3] = {
        {68, 1, 84},    {71, 45, 123}, {59, 82, 139},  {44, 114, 142}, {33, 145, 140},
        {40, 174, 128}, {94, 201, 98}, {173, 220, 48}, {253, 231, 37},
    };
    enum { STEPS = sizeof stops / sizeof stops[0] - 1 };
    if (isnan(share)) {
        return 0xE6EAEF; /* missing */
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

bool dpe_draw_color_is_bright(unsigned rgb)
{
    double luminance = 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) +
                       0.0722 * linear(rgb & 255);
    /* Where contrast with black and with white is the same (WCAG): 4.58. */
    return luminance > 0.179;
}

/* -------------------------------------------------------------------------------- hostile names */

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Bytes of the valid character at `text`, 0 if it is invalid. */
static size_t character(const char *text, size_t n)
{
    unsigned char first = (unsigned char)text[0];
    size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return length <= n && dpe_utf8_check(text, length) == length ? length : 0;
}

/* C0 and C1 controls, and the two noncharacters: not allowed in XML, harmful in a terminal.
 * U+2028, U+2029 break lines in some readers; marks that reverse the direction of text (U+202A to
 * U+202E, U+2066 to U+2069) can make a name read as another one. */
static bool is_unwanted(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point < 0xA0) ||
           (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069) ||
           point == 0xFFFE || point == 0xFFFF;
}

static void put_clean(struct dpe_text *out, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t length = character(text + i, n - i);
        if (length == 0 || is_unwanted(dpe_utf8_next(text + i, &length))) {
            bool space = text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
            dpe_text_put(out, "%s", space ? " " : replacement);
            i += length == 0 ? 1 : length;
        } else {
            dpe_text_put_bytes(out, text + i, length);
            i += length;
        }
    }
}

/* The byte at which character `index` of clean text begins; *n are those before it. */
static size_t character_offset(const char *text, size_t index, size_t *n)
{
    size_t i = 0;
    for (*n = 0; text[i] != '\0'; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80 && (*n)++ == index) {
            return i;
        }
    }
    return i;
}

char *dpe_draw_clean_text(const char *text, size_t columns)
{
    struct dpe_text out = {0};
    put_clean(&out, text);
    dpe_text_put_bytes(&out, "", 0); /* the empty text is one, too */
    size_t n = 0, unused = 0;
    dpe_draw_need(out.failed ? NULL : out.bytes);
    if (character_offset(out.bytes, SIZE_MAX, &n) > 0 && columns > 2 && n > columns) {
        /* Names differ at their beginning more often than at their end. */
        size_t head = (columns - 1) * 2 / 3;
        size_t tail = n - (columns - 1 - head);
        struct dpe_text cut = {0};
        dpe_text_put_bytes(&cut, out.bytes, character_offset(out.bytes, head, &unused));
        dpe_text_put(&cut, "…%s", out.bytes + character_offset(out.bytes, tail, &unused));
        free(out.bytes);
        out = cut;
    }
    return dpe_draw_need(out.failed ? NULL : out.bytes);
}

void dpe_draw_put_html(struct dpe_text *out, const char *text)
{
    DPE_OWNED char *clean = dpe_draw_clean_text(text, 0);
    for (const char *c = clean; *c != '\0'; c++) {
        const char *entity = *c == '&'    ? "&amp;"
                             : *c == '<'  ? "&lt;"
                             : *c == '>'  ? "&gt;"
                             : *c == '"'  ? "&quot;"
                             : *c == '\'' ? "&#39;"
                                          : NULL;
        if (entity != NULL) {
            dpe_text_put_bytes(out, entity, strlen(entity));
        } else {
            dpe_text_put_bytes(out, c, 1);
        }
    }
}

/* ------------------------------------------------------------------------------------- elements */

/* Widths in a wide sans-serif (DejaVu Sans), in parts of the size. */
static double character_width(const char *c)
{
    unsigned char first = (unsigned char)c[0];
    if (first < 0x80) {
        return strchr("ijlI|.,:;'!", first) != NULL      ? 0.36
               : strchr(" ft()[]{}r/\\-", first) != NULL ? 0.42
               : strchr("mwMW%@", first) != NULL         ? 0.95
                                                         : 0.64;
    }
    return (first & 0xC0) == 0x80 ? 0.0 : first >= 0xE3 ? 1.0 : 0.7;
}

double dpe_svg_text_width(const char *text, int size, size_t columns)
{
    DPE_OWNED char *clean = dpe_draw_clean_text(text, columns);
    double width = 0.0;
    for (const char *c = clean; *c != '\0'; c++) {
        width += character_width(c);
    }
    return width * size;
}

void dpe_svg_text(struct dpe_text *out, double x, double y, double degrees,
                  enum dpe_svg_anchor anchor, int size, const char *color, const char *text,
                  size_t columns)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    DPE_OWNED char *clean = dpe_draw_clean_text(text, columns);
    /* Half of a digit's height below the middle: dominant-baseline is not understood everywhere. */
    double down = 0.36 * size;
    if (degrees == 0.0) {
        dpe_text_put(out, "<text x=\"%.5g\" y=\"%.5g\"", x, y + down);
    } else {
        dpe_text_put(out, "<text transform=\"translate(%.5g %.5g) rotate(%g)\" y=\"%.3g\"", x, y,
                     degrees, down);
    }
    dpe_text_put(out, " font-size=\"%d\"%s class=\"%s\">", size, anchors[anchor], color);
    dpe_draw_put_html(out, clean);
    dpe_text_put(out, "</text>\n");
}

void dpe_svg_label(struct dpe_text *out, double x, double y, enum dpe_svg_anchor anchor,
                   const char *color, const char *text, size_t columns)
{
    dpe_svg_text(out, x, y, 0.0, anchor, 11, color, text, columns);
}

void dpe_svg_title(struct dpe_text *out, double x, double y, double degrees, const char *text)
{
    dpe_svg_text(out, x, y, degrees, DPE_SVG_MIDDLE, 12, DPE_QUIET, text, 0);
}

void dpe_svg_line(struct dpe_text *out, double x0, double y0, double x1, double y1,
                  const char *color, double width, const char *more)
{
    dpe_text_put(out,
                 "<path d=\"M%.5g %.5gL%.5g %.5g\" class=\"%s\" stroke=\"currentColor\" "
                 "stroke-width=\"%g\"%s%s/>\n",
                 x0, y0, x1, y1, color, width, more[0] != '\0' ? " " : "", more);
}

void dpe_svg_rect(struct dpe_text *out, double x, double y, double width, double height,
                  const char *paint)
{
    dpe_text_put(out, "<rect x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" height=\"%.5g\" %s/>\n", x, y,
                 width, height, paint);
}

void dpe_svg_cell(struct dpe_text *out, double x, double y, double width, double height,
                  unsigned rgb)
{
    char paint[32];
    snprintf(paint, sizeof paint, "fill=\"#%06x\"", rgb);
    dpe_svg_rect(out, x, y, width, height, paint);
}

void dpe_svg_mark(struct dpe_text *out, double x, double y, double radius, size_t index,
                  const char *color)
{
    enum { CIRCLE, SQUARE, UP, DIAMOND, DOWN, SHAPES };
    static const struct {
        int shape;
        bool hollow;
    } marks[DPE_SERIES_COLORS] = {{CIRCLE, false},  {SQUARE, false}, {UP, false},
                                  {DIAMOND, false}, {DOWN, false},   {CIRCLE, true},
                                  {SQUARE, true},   {UP, true}};
    /* Unit outlines whose areas look alike. */
    static const double outlines[SHAPES][4][2] = {
        [SQUARE] = {{-0.88, -0.88}, {0.88, -0.88}, {0.88, 0.88}, {-0.88, 0.88}},
        [UP] = {{0.0, -1.2}, {1.15, 0.8}, {-1.15, 0.8}, {0.0, -1.2}},
        [DIAMOND] = {{0.0, -1.25}, {1.25, 0.0}, {0.0, 1.25}, {-1.25, 0.0}},
        [DOWN] = {{0.0, 1.2}, {1.15, -0.8}, {-1.15, -0.8}, {0.0, 1.2}},
    };
    int shape = marks[index % DPE_SERIES_COLORS].shape;
    bool hollow = marks[index % DPE_SERIES_COLORS].hollow;
    const char *paint =
        hollow ? "stroke=\"currentColor\" stroke-width=\"1.4\"" : "fill=\"currentColor\"";
    dpe_text_put(out, "<g class=\"%s\">", color);
    if (shape == CIRCLE) {
        dpe_text_put(out, "<circle cx=\"%.5g\" cy=\"%.5g\" r=\"%.3g\"", x, y, radius);
    } else {
        dpe_text_put(out, "<path d=\"");
        for (int i = 0; i < 4; i++) {
            dpe_text_put(out, "%c%.5g %.5g", i == 0 ? 'M' : 'L', x + radius * outlines[shape][i][0],
                         y + radius * outlines[shape][i][1]);
        }
        dpe_text_put(out, "z\"");
    }
    dpe_text_put(out, "%s %s/></g>\n", hollow ? " class=\"hollow\"" : "", paint);
}

/* ----------------------------------------------------------------------------------- the figure */

/* A file has light and dark colours. The rules for dark screens come last; a program that does
 * not support the condition skips them. */
static void put_style(struct dpe_text *out)
{
    dpe_text_put(out,
                 "<style>\n"
                 ".plot text{fill:currentColor;font-family:system-ui,-apple-system,\"Segoe UI\","
                 "Roboto,\"Helvetica Neue\",Arial,sans-serif;font-variant-numeric:tabular-nums}\n"
                 ".plot image{image-rendering:pixelated}\n"
                 ".plot .on-dark{color:#fff}\n.plot .on-bright{color:#000}\n"
                 ".plot{background:#fff}\n");
    dpe_svg_rules(out, false);
    dpe_text_put(out, "@media screen and (prefers-color-scheme:dark){\n.plot{background:%s}\n",
                 dpe_svg_color("page", true));
    dpe_svg_rules(out, true);
    dpe_text_put(out, "}\n</style>\n");
}

void dpe_draw_put_svg(struct dpe_text *out, const struct dpe_block *block, bool standalone)
{
    const struct dpe_figure *figure = &block->figure;
    const char *id = block->sheet->id;
    if (standalone) {
        dpe_text_put(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    }
    dpe_text_put(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                 "class=\"plot\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" fill=\"none\" "
                 "role=\"img\" aria-labelledby=\"%s-title\">\n<title id=\"%s-title\">",
                 figure->width, figure->height, figure->width, figure->height, id, id);
    dpe_draw_put_html(out, block->sheet->title);
    dpe_text_put(out, "</title>\n");
    if (standalone) { /* in a page the caption follows */
        dpe_text_put(out, "<desc>");
        dpe_draw_put_html(out, block->text);
        dpe_text_put(out, "</desc>\n");
        put_style(out);
    }
    dpe_text_put_bytes(out, figure->body.bytes, figure->body.n);
    dpe_text_put(out, "</svg>\n");
    out->failed = out->failed || figure->body.failed;
}

static dpe_status poll_signals(void *user, struct dpe_error *err)
{
    (void)user;
    return dpe_signals_asked() == DPE_STOP_NONE
               ? DPE_OK
               : dpe_fail(err, DPE_INCOMPLETE, "stopped by a signal; the report is not written");
}

dpe_status dpe_draw_figure_png(const struct dpe_block *figure, struct dpe_text *png,
                               struct dpe_error *err)
{
    static const unsigned char magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    char program[] = "rsvg-convert";
    char format[] = "--format=png";
    char zoom[] = "--zoom=2";
    char background[] = "--background-color=#ffffff";
    char *const argv[] = {program, format, zoom, background, NULL};
    /* An end to a hang; a figure takes a tenth of a second. */
    const struct dpe_child_limits limits = {.seconds = 120.0, .poll = poll_signals};
    DPE_SCOPED(dpe_text_free) struct dpe_text svg = {0};
    dpe_draw_put_svg(&svg, figure, true);
    dpe_status status = svg.failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory")
                                   : dpe_child_filter(argv, svg.bytes, svg.n, &limits, png, err);
    if (status == DPE_OK &&
        (png->n < sizeof magic || memcmp(png->bytes, magic, sizeof magic) != 0)) {
        status = dpe_fail(err, DPE_IO, "expected a PNG from rsvg-convert, found %zu other bytes",
                          png->n);
    }
    if (status != DPE_OK && status != DPE_INCOMPLETE) {
        dpe_fail_prefix(err, "figure %s as PNG", figure->sheet->id);
    }
    return status;
}
