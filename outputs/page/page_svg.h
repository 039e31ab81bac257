/**
 * @file page_svg.h
 * Inside of dpe-report: how its figures are painted. Builders append SVG elements to a figure's
 * body; dpe_draw_put_svg writes the element around them.
 *
 * Coordinates are logical pixels from the upper left corner. A colour is the name of a class, never
 * a value: one style sheet gives it its value on a light screen and on paper, another on a dark
 * screen. Only the cells of heat maps have a colour of their own, the same everywhere.
 */
#ifndef DPE_PAGE_SVG_H
#define DPE_PAGE_SVG_H

#include "outputs/page/page.h"

/** Classes of colours by what they are for. */
#define DPE_INK     "ink"
#define DPE_QUIET   "quiet"
#define DPE_AXIS    "axis"
#define DPE_GRID    "grid"
#define DPE_MISSING "missing"

enum { DPE_SERIES_COLORS = 8 };
/** Class of series `index` modulo DPE_SERIES_COLORS. The colours differ in hue or lightness in
 * every common kind of colour blindness. */
const char *dpe_svg_series(size_t index);
/** The series of a method (or plan): the same name has the same colour and mark on the whole page.
 */
size_t dpe_svg_series_of(const char *name);
/** "#rrggbb" of a class on a light page or a dark one; "page" is the page itself. NULL: no such
 *  class. */
const char *dpe_svg_color(const char *name, bool dark);
/** Rules for figures, which are in elements of the class "plot", light or dark. */
void dpe_svg_rules(struct dpe_text *out, bool dark);

enum dpe_svg_anchor { DPE_SVG_START, DPE_SVG_MIDDLE, DPE_SVG_END };

/** A text with the middle of its line at (x, y). `degrees` rotates it clockwise about that point.
 *  Longer than `columns` characters it is cut in its middle (0: never). */
void dpe_svg_text(struct dpe_text *out, double x, double y, double degrees,
                  enum dpe_svg_anchor anchor, int size, const char *color, const char *text,
                  size_t columns);
/** One of size 11, level; and the title of an axis. */
void dpe_svg_label(struct dpe_text *out, double x, double y, enum dpe_svg_anchor anchor,
                   const char *color, const char *text, size_t columns);
void dpe_svg_title(struct dpe_text *out, double x, double y, double degrees, const char *text);
/** Estimated width of such a text in pixels, for a wide font. */
double dpe_svg_text_width(const char *text, int size, size_t columns);
/** `more`: further attributes, "" for none. */
void dpe_svg_line(struct dpe_text *out, double x0, double y0, double x1, double y1,
                  const char *color, double width, const char *more);
/** A rectangle; `paint`: its attributes. */
void dpe_svg_rect(struct dpe_text *out, double x, double y, double width, double height,
                  const char *paint);
/** One that is filled with 0xRRGGBB. */
void dpe_svg_cell(struct dpe_text *out, double x, double y, double width, double height,
                  unsigned rgb);
/** The mark of series `index`, `radius` about (x, y). Its shape differs from its neighbours'. */
void dpe_svg_mark(struct dpe_text *out, double x, double y, double radius, size_t index,
                  const char *color);

/* -------------------------------------------------------------------------------------- figures */

/** Where a plot or its cells are, in pixels from the upper left corner. */
struct frame {
    double left, right, top, bottom;
};

/** One line with its band. */
struct curve {
    const char *name;
    int64_t n;
    struct curve_point {
        double x, y, low, high; /**< low and high NaN: no interval at that point */
    } * points;
    bool band;          /**< has intervals */
    bool plain, strong; /**< ROW_PLAIN, ROW_STRONG */
};
void dpe_draw_curves(struct dpe_figure *figure, const struct dpe_plot *plot,
                     const struct curve *curves, size_t n);

struct heat {
    int64_t n_rows, n_columns;
    const double *value; /**< [n_rows][n_columns], NaN = missing */
    const struct dpe_sheet_cell *const *rows, *const *columns; /**< that name them */
    const unsigned char *mark;                                 /**< [n_rows][n_columns], outlined */
};
void dpe_draw_heat(struct dpe_figure *figure, const struct dpe_plot *plot, const struct heat *heat);

/* ----------------------------------------------------------------------------------------- axes */

/** What a value's place is computed from. */
struct dpe_axis {
    double low, high; /**< values at the ends, low < high; both above 0 on a logarithmic axis */
    bool log;
    double from, to; /**< pixels of low and of high */
};
/** Pixels of a value; values outside of the axis lie at its ends. */
double dpe_axis_at(const struct dpe_axis *axis, double value);
/** Whether an axis can show it: no NaN or infinity, above 0 where it is logarithmic. */
bool dpe_axis_shows(double value, bool log);
/** Make [low, high] an axis' range: with room at both ends, and never empty. */
void dpe_axis_widen(double *low, double *high, bool log, double share);

/** The range of values that are shown: begin, see each. */
struct dpe_axis dpe_axis_begin(bool log);
void dpe_axis_see(struct dpe_axis *axis, double value);

enum { DPE_MAX_TICKS = 24 };
struct dpe_ticks {
    size_t n;
    struct dpe_tick {
        double value;
        char text[32];
    } ticks[DPE_MAX_TICKS];
};
/** Round values at least `gap` pixels apart: 1, 2 or 5 times a power of ten. */
void dpe_axis_ticks(const struct dpe_axis *axis, double gap, struct dpe_ticks *ticks);
/** Ticks at lengths: at the n ascending `values`, or where n is 0 at powers of two (round values
 *  on a linear axis). Those whose texts would touch are left out. */
void dpe_axis_lengths(const struct dpe_axis *axis, const double *values, size_t n,
                      struct dpe_ticks *ticks);

#endif
