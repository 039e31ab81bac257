/* Curves with bands or error bars; small plots below each other, all with the same axes. */
#include "outputs/page/page_svg.h"

#include <math.h>
#include <string.h>

enum { MAX_FEW = 10, MAX_SERIES = 64, NAME = 30 };

/* --------------------------------------------------------------------------------------- curves */

/** Curves being drawn. */
struct canvas {
    const struct dpe_plot *how;
    const struct curve *curves;
    size_t n;
    struct dpe_axis x, y;
    struct frame frame;
    double few[MAX_FEW]; /**< the x that occur, ascending, when they are few */
    size_t n_few;
    bool dense; /**< more x than those: lines and bands, no marks and bars */
};

static void see_x(struct canvas *plot, double x)
{
    size_t at = 0;
    while (at < plot->n_few && plot->few[at] < x) {
        at++;
    }
    if (plot->dense || (at < plot->n_few && plot->few[at] == x)) {
        return;
    }
    if (plot->n_few == MAX_FEW) {
        plot->dense = true;
        plot->n_few = 0;
        return;
    }
    memmove(&plot->few[at + 1], &plot->few[at], (plot->n_few - at) * sizeof plot->few[0]);
    plot->few[at] = x;
    plot->n_few++;
}

static void find_ranges(struct canvas *plot)
{
    const struct dpe_plot *how = plot->how;
    plot->x = dpe_axis_begin(how->log_x);
    plot->y = dpe_axis_begin(how->log);
    for (size_t c = 0; c < plot->n; c++) {
        const struct curve *curve = &plot->curves[c];
        for (int64_t i = 0; i < curve->n; i++) {
            const struct curve_point *point = &curve->points[i];
            if (!dpe_axis_shows(point->x, how->log_x)) {
                continue;
            }
            dpe_axis_see(&plot->x, point->x);
            see_x(plot, point->x);
            dpe_axis_see(&plot->y, point->y);
            if (curve->band) {
                dpe_axis_see(&plot->y, point->low);
                dpe_axis_see(&plot->y, point->high);
            }
        }
    }
    dpe_axis_widen(&plot->x.low, &plot->x.high, how->log_x, 0.04);
    dpe_axis_widen(&plot->y.low, &plot->y.high, how->log, 0.06);
    plot->y.low = isnan(how->low) ? plot->y.low : how->low;
    plot->y.high = isnan(how->high) ? plot->y.high : how->high;
}

static const char *color_of(const struct canvas *plot, size_t index)
{
    const struct curve *curve = &plot->curves[index];
    return curve->plain ? DPE_QUIET : dpe_svg_series(dpe_svg_series_of(curve->name));
}

/* What is only compared with is dashed, each in its own way. */
static const char *dashes_of(const struct canvas *plot, size_t index)
{
    static const char *const dashes[] = {"stroke-dasharray=\"6 4\"", "stroke-dasharray=\"2 3\"",
                                         "stroke-dasharray=\"9 3 2 3\""};
    size_t before = 0;
    for (size_t c = 0; c < index; c++) {
        before += plot->curves[c].plain;
    }
    return plot->curves[index].plain ? dashes[before % 3] : "";
}

static double width_of(const struct curve *curve)
{
    return curve->strong ? 3.0 : curve->plain ? 1.4 : 1.75;
}

/* Names with their lines above the plot, as many in a row as fit. Returns the height it takes;
 * paints it where `out` is given. */
static double put_legend(struct dpe_text *out, const struct canvas *plot)
{
    const double sample = 20.0;
    double x = 8.0;
    double y = 12.0;
    if (plot->n < 2) {
        return 8.0;
    }
    for (size_t c = 0; c < plot->n; c++) {
        const struct curve *curve = &plot->curves[c];
        double need = sample + 6.0 + dpe_svg_text_width(curve->name, 11, NAME);
        if (x > 8.0 && x + need > FIGURE_WIDTH) {
            x = 8.0;
            y += 17.0;
        }
        if (out != NULL) {
            dpe_svg_line(out, x, y, x + sample, y, color_of(plot, c), width_of(curve),
                         dashes_of(plot, c));
            if (!plot->dense && !curve->plain) {
                dpe_svg_mark(out, x + sample / 2.0, y, 3.2, dpe_svg_series_of(curve->name),
                             color_of(plot, c));
            }
            dpe_svg_label(out, x + sample + 6.0, y, DPE_SVG_START, DPE_INK, curve->name, NAME);
        }
        x += need + 14.0;
    }
    return y + 14.0;
}

static bool has_line(const struct canvas *plot)
{
    return plot->how->x_line_title != NULL && plot->how->x_line >= plot->x.low &&
           plot->how->x_line <= plot->x.high;
}

static void put_axes(struct dpe_text *out, const struct canvas *plot, int height,
                     const struct dpe_ticks *y_ticks)
{
    const struct frame *frame = &plot->frame;
    struct dpe_ticks ticks;
    for (size_t i = 0; i < y_ticks->n; i++) {
        double y = dpe_axis_at(&plot->y, y_ticks->ticks[i].value);
        dpe_svg_line(out, frame->left, y, frame->right, y, DPE_GRID, 1.0, "");
        dpe_svg_label(out, frame->left - 8.0, y, DPE_SVG_END, DPE_INK, y_ticks->ticks[i].text, 0);
    }
    dpe_axis_lengths(&plot->x, plot->few, plot->n_few, &ticks);
    for (size_t i = 0; i < ticks.n; i++) {
        double x = dpe_axis_at(&plot->x, ticks.ticks[i].value);
        dpe_svg_line(out, x, frame->bottom, x, frame->bottom + 4.0, DPE_AXIS, 1.0, "");
        dpe_svg_label(out, x, frame->bottom + 13.0, DPE_SVG_MIDDLE, DPE_INK, ticks.ticks[i].text,
                      0);
    }
    dpe_svg_line(out, frame->left, frame->bottom, frame->right, frame->bottom, DPE_AXIS, 1.0, "");
    dpe_svg_title(out, (frame->left + frame->right) / 2.0, height - 10.0, 0.0, plot->how->x_title);
    dpe_svg_title(out, 10.0, (frame->top + frame->bottom) / 2.0, -90.0, plot->how->y_title);
    if (has_line(plot)) {
        /* Its name stands above the plot, where no curve is. */
        double x = dpe_axis_at(&plot->x, plot->how->x_line);
        double half = dpe_svg_text_width(plot->how->x_line_title, 11, NAME) / 2.0;
        double at = fmin(fmax(x, frame->left + half), FIGURE_WIDTH - 2.0 - half);
        dpe_svg_line(out, x, frame->top - 3.0, x, frame->bottom, DPE_AXIS, 1.0,
                     "stroke-dasharray=\"5 4\"");
        dpe_svg_label(out, at, frame->top - 11.0, DPE_SVG_MIDDLE, DPE_QUIET,
                      plot->how->x_line_title, NAME);
    }
}

/* Curves with bars stand beside each other, so that intervals do not hide each other. */
static double x_of(const struct canvas *plot, size_t index, int64_t i)
{
    const struct curve *curve = &plot->curves[index];
    double x = dpe_axis_at(&plot->x, curve->points[i].x);
    if (plot->dense || !curve->band) {
        return x;
    }
    double step = fmin(4.0, 24.0 / (double)plot->n);
    return x + ((double)index - ((double)plot->n - 1.0) / 2.0) * step;
}

static bool shows(const struct canvas *plot, const struct curve_point *point)
{
    return dpe_axis_shows(point->x, plot->x.log) && dpe_axis_shows(point->y, plot->y.log);
}

/* An end of an interval, or the value if it has no interval. */
static double end_of(const struct canvas *plot, const struct curve_point *point, double end)
{
    return dpe_axis_at(&plot->y, dpe_axis_shows(end, plot->y.log) ? end : point->y);
}

/* The interval at each point as an area; one for each stretch without a gap. */
static void put_band(struct dpe_text *out, const struct canvas *plot, size_t index)
{
    const struct curve *curve = &plot->curves[index];
    const struct curve_point *points = curve->points;
    dpe_text_put(out, "<path class=\"%s\" fill=\"currentColor\" fill-opacity=\"0.2\" d=\"",
                 color_of(plot, index));
    for (int64_t first = 0; first < curve->n;) {
        int64_t end = first;
        while (end < curve->n && shows(plot, &points[end])) {
            dpe_text_put(out, "%c%.5g %.5g", end == first ? 'M' : 'L', x_of(plot, index, end),
                         end_of(plot, &points[end], points[end].low));
            end++;
        }
        for (int64_t i = end; i-- > first;) {
            dpe_text_put(out, "L%.5g %.5g", x_of(plot, index, i),
                         end_of(plot, &points[i], points[i].high));
        }
        dpe_text_put(out, "%s", end > first ? "z" : "");
        first = end + 1;
    }
    dpe_text_put(out, "\"/>\n");
}

static void put_bars(struct dpe_text *out, const struct canvas *plot, size_t index)
{
    const struct curve *curve = &plot->curves[index];
    dpe_text_put(out, "<path class=\"%s\" stroke=\"currentColor\" stroke-width=\"1.4\" d=\"",
                 color_of(plot, index));
    for (int64_t i = 0; i < curve->n; i++) {
        const struct curve_point *point = &curve->points[i];
        if (shows(plot, point)) {
            double x = x_of(plot, index, i);
            double low = end_of(plot, point, point->low);
            double high = end_of(plot, point, point->high);
            dpe_text_put(out, "M%.5g %.5gh5m-2.5 0V%.5gm-2.5 0h5", x - 2.5, low, high);
        }
    }
    dpe_text_put(out, "\"/>\n");
}

static void put_curve(struct dpe_text *out, const struct canvas *plot, size_t index)
{
    const struct curve *curve = &plot->curves[index];
    const char *color = color_of(plot, index);
    bool gap = true;
    if (curve->band && plot->dense) {
        put_band(out, plot, index);
    } else if (curve->band) {
        put_bars(out, plot, index);
    }
    dpe_text_put(
        out,
        "<path class=\"%s\" stroke=\"currentColor\" stroke-width=\"%g\" stroke-linejoin=\"round\" "
        "%s d=\"",
        color, width_of(curve), dashes_of(plot, index));
    for (int64_t i = 0; i < curve->n; i++) {
        const struct curve_point *point = &curve->points[i];
        bool here = shows(plot, point);
        if (here) {
            dpe_text_put(out, "%c%.5g %.5g", gap ? 'M' : 'L', x_of(plot, index, i),
                         dpe_axis_at(&plot->y, point->y));
        }
        gap = !here;
    }
    dpe_text_put(out, "\"/>\n");
    for (int64_t i = 0; i < curve->n && !plot->dense && !curve->plain; i++) {
        const struct curve_point *point = &curve->points[i];
        if (shows(plot, point)) {
            dpe_svg_mark(out, x_of(plot, index, i), dpe_axis_at(&plot->y, point->y),
                         curve->strong ? 3.8 : 3.2, dpe_svg_series_of(curve->name), color);
        }
    }
}

void dpe_draw_curves(struct dpe_figure *figure, const struct dpe_plot *how,
                     const struct curve *curves, size_t n)
{
    struct canvas plot = {.how = how, .curves = curves, .n = n > MAX_SERIES ? MAX_SERIES : n};
    struct dpe_text *out = &figure->body;
    struct dpe_ticks ticks;
    double widest = 0.0;
    find_ranges(&plot);
    double top = put_legend(NULL, &plot) + (has_line(&plot) ? 14.0 : 0.0);
    figure->width = FIGURE_WIDTH;
    figure->height = (int)top + 250;
    plot.y.from = figure->height - 44.0;
    plot.y.to = top;
    dpe_axis_ticks(&plot.y, 26.0, &ticks);
    for (size_t i = 0; i < ticks.n; i++) {
        widest = fmax(widest, dpe_svg_text_width(ticks.ticks[i].text, 11, 0));
    }
    plot.frame = (struct frame){32.0 + widest, FIGURE_WIDTH - 14.0, plot.y.to, plot.y.from};
    plot.x.from = plot.frame.left;
    plot.x.to = plot.frame.right;
    put_legend(out, &plot);
    put_axes(out, &plot, figure->height, &ticks);
    /* What the figure is about lies on top. */
    for (int strong = 0; strong < 2; strong++) {
        for (size_t c = 0; c < plot.n; c++) {
            if (plot.curves[c].strong == (strong == 1)) {
                put_curve(out, &plot, c);
            }
        }
    }
}
