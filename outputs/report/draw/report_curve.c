/* Curves with bands, and dots with intervals. */
#include "outputs/report/draw/report_color.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TICKS = 10, MAX_SERIES = 64 };

static const double character = 6.6; /* pixels of one at size 11, on the wide side */

static void put_frame(struct writer *out, const struct figure *figure, double left, double right,
                      double top, double bottom)
{
    put(out,
        "unset key\nset lmargin at screen %.5f\nset rmargin at screen %.5f\n"
        "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
        left / figure->width, right / figure->width, 1.0 - top / figure->height,
        1.0 - bottom / figure->height);
}

static void put_at(struct writer *out, const struct figure *figure, double x, double y,
                   const char *more, const char *color, const char *text, size_t columns)
{
    put(out, "set label ");
    put_quoted(out, text, columns);
    put(out, " at screen %.5f,%.5f %s textcolor rgb '%s'\n", x / figure->width,
        1.0 - y / figure->height, more, color);
}

/* ----------------------------------------------------------------------------------------- curves
 */

/** Ranges of the axes. */
struct ranges {
    double x_low, x_high, y_low, y_high;
    double ticks[MAX_TICKS]; /**< the x that occur, when they are few */
    int n_ticks;             /**< −1: too many */
};

static void see_tick(struct ranges *ranges, double x)
{
    for (int i = 0; i < ranges->n_ticks; i++) {
        if (ranges->ticks[i] == x) {
            return;
        }
    }
    if (ranges->n_ticks >= 0 && ranges->n_ticks < MAX_TICKS) {
        ranges->ticks[ranges->n_ticks++] = x;
    } else {
        ranges->n_ticks = -1;
    }
}

/* What an axis can show: no infinity, no logarithm of nothing, room to widen the range. */
static bool can_show(double value, bool log)
{
    return fabs(value) < 1e200 && (!log || value > 1e-200);
}

static void see_y(struct ranges *ranges, double y, bool log)
{
    if (can_show(y, log)) {
        ranges->y_low = fmin(ranges->y_low, y);
        ranges->y_high = fmax(ranges->y_high, y);
    }
}

static void widen(double *low, double *high, bool log, double share)
{
    if (!(*low <= *high)) {
        *low = log ? 1.0 : 0.0;
        *high = log ? 10.0 : 1.0;
    }
    if (log) {
        double factor = *high > *low ? pow(*high / *low, share) : 1.5;
        *low /= factor;
        *high *= factor;
    } else {
        double room = *high > *low ? (*high - *low) * share : fmax(fabs(*high) * 0.1, 0.5);
        *low -= room;
        *high += room;
    }
}

static struct ranges find_ranges(const struct curves *curves)
{
    struct ranges ranges = {
        (double)INFINITY, -(double)INFINITY, (double)INFINITY, -(double)INFINITY, {0}, 0};
    for (size_t c = 0; c < curves->n; c++) {
        const struct curve *curve = &curves->curves[c];
        for (int64_t i = 0; i < curve->n; i++) {
            if (!can_show(curve->x[i], curves->log_x)) {
                continue;
            }
            ranges.x_low = fmin(ranges.x_low, curve->x[i]);
            ranges.x_high = fmax(ranges.x_high, curve->x[i]);
            see_tick(&ranges, curve->x[i]);
            see_y(&ranges, curve->y[i], curves->log_y);
            if (curve->low != NULL) {
                see_y(&ranges, curve->low[i], curves->log_y);
                see_y(&ranges, curve->high[i], curves->log_y);
            }
        }
    }
    widen(&ranges.x_low, &ranges.x_high, curves->log_x, 0.04);
    widen(&ranges.y_low, &ranges.y_high, curves->log_y, 0.06);
    ranges.y_low = isnan(curves->y_low) ? ranges.y_low : curves->y_low;
    ranges.y_high = isnan(curves->y_high) ? ranges.y_high : curves->y_high;
    return ranges;
}

/* Names with their marks above the plot, as many in a line as fit. Returns the height it took. */
static double put_legend(struct writer *out, const struct figure *figure,
                         const struct curves *curves)
{
    double x = 14.0;
    double y = 12.0;
    size_t named = 0;
    for (size_t c = 0; c < curves->n; c++) {
        named += !curves->curves[c].plain;
    }
    if (named < 2) {
        return 8.0;
    }
    for (size_t c = 0; c < curves->n; c++) {
        if (curves->curves[c].plain) {
            continue; /* named where it is */
        }
        char *name = clean_text(curves->curves[c].name, 30);
        if (name == NULL) {
            out->failed = true;
            return y;
        }
        double need = 22.0 + character * (double)strlen(name);
        if (x > 14.0 && x + need > FIGURE_WIDTH) {
            x = 14.0;
            y += 17.0;
        }
        if (figure != NULL) {
            char more[128];
            snprintf(more, sizeof more,
                     "left offset 0.6,-0.2 font ',11' point pt %d ps 0.55 lc rgb '%s'",
                     series_mark(c), series_color(c));
            put_at(out, figure, x, y, more, INK, name, 30);
        }
        x += need;
        free(name);
    }
    return y + 14.0;
}

static void put_x_ticks(struct writer *out, const struct curves *curves,
                        const struct ranges *ranges, double pixels)
{
    put(out, "set xtics nomirror out scale 0.5 offset 0,0.3 font ',11' textcolor rgb '" INK "'");
    if (ranges->n_ticks > 0) {
        put(out, " (");
        double span =
            curves->log_x ? log(ranges->x_high / ranges->x_low) : ranges->x_high - ranges->x_low;
        double last = -(double)INFINITY;
        int written = 0;
        double sorted[MAX_TICKS];
        memcpy(sorted, ranges->ticks, sizeof sorted);
        for (int i = 1; i < ranges->n_ticks; i++) {
            for (int k = i; k > 0 && sorted[k] < sorted[k - 1]; k--) {
                double swap = sorted[k];
                sorted[k] = sorted[k - 1];
                sorted[k - 1] = swap;
            }
        }
        for (int i = 0; i < ranges->n_ticks; i++) {
            double place =
                curves->log_x ? log(sorted[i] / ranges->x_low) : sorted[i] - ranges->x_low;
            char text[32];
            length_text(sorted[i], text);
            if (fmod(sorted[i], 1.0) != 0.0) {
                snprintf(text, sizeof text, "%.3g", sorted[i]);
            }
            if ((place / span - last) * pixels > 8.0 + character * (double)strlen(text)) {
                put(out, "%s'%s' %.17g", written++ > 0 ? ", " : "", text, sorted[i]);
                last = place / span;
            }
        }
        put(out, ")");
    }
    put(out, "\n");
}

/* Powers of ten are too few where values span less than two of them. */
static void put_log_axis(struct writer *out, char axis, double low, double high)
{
    static const double fine[] = {1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0};
    static const double medium[] = {1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0};
    static const double coarse[] = {1.0, 2.0, 5.0};
    double span = high / low;
    const double *steps = span < 3.0 ? fine : span < 12.0 ? medium : coarse;
    size_t n = span < 3.0    ? sizeof fine / sizeof fine[0]
               : span < 12.0 ? sizeof medium / sizeof medium[0]
                             : sizeof coarse / sizeof coarse[0];
    put(out, "set logscale %c 10\n", axis);
    if (span > 1e3) {
        return;
    }
    const char *comma = "";
    put(out, "set %ctics (", axis);
    for (double decade = pow(10.0, floor(log10(low))); decade <= high; decade *= 10.0) {
        for (size_t i = 0; i < n; i++) {
            if (decade * steps[i] >= low && decade * steps[i] <= high) {
                put(out, "%s%.6g", comma, decade * steps[i]);
                comma = ",";
            }
        }
    }
    put(out, ")\n");
}

static void put_axes(struct writer *out, const struct figure *figure, const struct curves *curves,
                     const struct ranges *ranges, double top)
{
    double bottom = figure->height - 44.0;
    put_frame(out, figure, 58.0, FIGURE_WIDTH - 12.0, top, bottom);
    put(out,
        "set border 1 lc rgb '" AXIS "'\n"
        "set ytics nomirror scale 0 font ',11' textcolor rgb '" INK "'\n"
        "set grid ytics lt 1 lw 0.75 lc rgb '" GRID "'\nset format y '%%g'\n"
        "set xrange [%.17g:%.17g]\nset yrange [%.17g:%.17g]\n",
        ranges->x_low, ranges->x_high, ranges->y_low, ranges->y_high);
    if (curves->log_x) {
        put(out, "set logscale x 2\n");
    }
    if (curves->log_y) {
        put_log_axis(out, 'y', ranges->y_low, ranges->y_high);
    }
    put_x_ticks(out, curves, ranges, FIGURE_WIDTH - 70.0);
    put_at(out, figure, (58.0 + FIGURE_WIDTH - 12.0) / 2.0, figure->height - 10.0, "center", QUIET,
           curves->x_title, 0);
    put_at(out, figure, 10.0, (top + bottom) / 2.0, "center rotate by 90", QUIET, curves->y_title,
           0);
    if (curves->x_line >= ranges->x_low && curves->x_line <= ranges->x_high) {
        put(out,
            "set arrow from first %.17g, graph 0 to first %.17g, graph 1 nohead back dt (6,4) "
            "lw 1 lc rgb '" AXIS "'\nset label ",
            curves->x_line, curves->x_line);
        put_quoted(out, curves->x_line_title, 0);
        put(out,
            " at first %.17g, graph 0.04 left rotate by 90 offset 0.8,0 font ',10' "
            "textcolor rgb '" QUIET "'\n",
            curves->x_line);
    }
}

/* Curves with bars stand beside each other, so that intervals do not hide each other. */
static double moved(const struct curves *curves, const struct ranges *ranges, size_t index,
                    double x)
{
    if (ranges->n_ticks < 0 || curves->n < 2 || curves->curves[index].low == NULL) {
        return x;
    }
    double step = ((double)index - ((double)curves->n - 1.0) / 2.0) * 0.008;
    return curves->log_x ? x * pow(ranges->x_high / ranges->x_low, step)
                         : x + step * (ranges->x_high - ranges->x_low);
}

static void put_data(struct writer *out, const struct curves *curves, const struct ranges *ranges,
                     size_t index)
{
    const struct curve *curve = &curves->curves[index];
    put(out, "$curve%zu << END_OF_CURVE\n", index);
    for (int64_t i = 0; i < curve->n; i++) {
        double low = curve->low != NULL ? curve->low[i] : (double)NAN;
        double high = curve->low != NULL ? curve->high[i] : (double)NAN;
        if (can_show(curve->x[i], curves->log_x) && can_show(curve->y[i], curves->log_y)) {
            put(out, "%.17g %.17g %.17g %.17g\n", moved(curves, ranges, index, curve->x[i]),
                curve->y[i], can_show(low, curves->log_y) ? low : curve->y[i],
                can_show(high, curves->log_y) ? high : curve->y[i]);
        } else {
            put(out, "\n"); /* a gap */
        }
    }
    put(out, "END_OF_CURVE\n");
}

static bool has_points(const struct curve *curve)
{
    for (int64_t i = 0; i < curve->n; i++) {
        if (can_show(curve->x[i], false) && can_show(curve->y[i], false)) {
            return true;
        }
    }
    return false;
}

/* Something to compare with is named at its line: a level one at its right end, above and below in
 * turn; another beside its middle. */
static void put_plain_name(struct writer *out, const struct curve *curve, size_t index)
{
    int64_t last = curve->n - 1;
    bool level = curve->n > 0 && curve->y[0] == curve->y[last];
    int64_t at = level ? last : last / 2;
    if (curve->n == 0 || !can_show(curve->x[at], false) || !can_show(curve->y[at], false)) {
        return;
    }
    put(out, "set label ");
    put_quoted(out, curve->name, 30);
    put(out, " at first %.17g,%.17g %s font ',10' textcolor rgb '" QUIET "'\n", curve->x[at],
        curve->y[at],
        !level           ? "left offset 1.2,-0.4"
        : index % 2 == 0 ? "right offset 0,0.55"
                         : "right offset 0,-0.55");
}

/* Many points make a line with a band, few make marks with bars. */
static void put_plot(struct writer *out, const struct curve *curve, size_t index, bool dense)
{
    const char *color = series_color(index);
    const char *width = curve->strong ? "3" : "1.75";
    if (curve->plain) {
        put(out, ", $curve%zu using 1:2 with lines dt (6,5) lw 1.25 lc rgb '" QUIET "'", index);
        return;
    }
    if (curve->low != NULL && dense) {
        put(out,
            ", $curve%zu using 1:3:4 with filledcurves fs transparent solid 0.18 noborder lc rgb "
            "'%s'",
            index, color);
    } else if (curve->low != NULL) {
        put(out, ", $curve%zu using 1:3:(0):($4-$3) with vectors nohead lw 1.5 lc rgb '%s'", index,
            color);
    }
    if (dense) {
        put(out, ", $curve%zu using 1:2 with lines lw %s lc rgb '%s'", index, width, color);
    } else {
        put(out, ", $curve%zu using 1:2 with linespoints pt %d ps 0.55 lw %s lc rgb '%s'", index,
            series_mark(index), width, color);
    }
}

void draw_curves(struct figure *figure, const struct curves *all)
{
    struct curves curves = *all;
    curves.n = curves.n > MAX_SERIES ? MAX_SERIES : curves.n;
    struct ranges ranges = find_ranges(&curves);
    struct writer *out = &figure->script;
    double top = put_legend(out, NULL, &curves);
    figure->width = FIGURE_WIDTH;
    figure->height = (int)top + 250;
    put_legend(out, figure, &curves);
    put_axes(out, figure, &curves, &ranges, top);
    for (size_t c = 0; c < curves.n; c++) {
        put_data(out, &curves, &ranges, c);
        if (curves.curves[c].plain) {
            put_plain_name(out, &curves.curves[c], c);
        }
    }
    put(out, "plot NaN notitle");
    for (size_t c = 0; c < curves.n; c++) {
        if (has_points(&curves.curves[c])) {
            put_plot(out, &curves.curves[c], c, ranges.n_ticks < 0);
        }
    }
    put(out, "\n");
}

/* ------------------------------------------------------------------------------------------- dots
 */

/* 1, 2 or 5 times a power of ten: at most so many steps in the range. */
static double tick_step(double range, double most)
{
    double least = range / fmax(most, 1.0);
    if (!(least > 0.0) || !isfinite(least)) {
        return 1.0;
    }
    double power = pow(10.0, floor(log10(least)));
    double step = least / power;
    return power * (step <= 1.0 ? 1.0 : step <= 2.0 ? 2.0 : step <= 5.0 ? 5.0 : 10.0);
}

static void find_dots(const struct dots *dots, double *low, double *high)
{
    *low = (double)INFINITY;
    *high = -(double)INFINITY;
    for (size_t i = 0; i < dots->n; i++) {
        const double seen[3] = {dots->value[i], dots->low[i], dots->high[i]};
        for (int k = 0; k < 3; k++) {
            *low = can_show(seen[k], dots->log) ? fmin(*low, seen[k]) : *low;
            *high = can_show(seen[k], dots->log) ? fmax(*high, seen[k]) : *high;
        }
    }
    widen(low, high, dots->log, 0.05);
    *low = isnan(dots->x_low) ? *low : dots->x_low;
    *high = isnan(dots->x_high) ? *high : dots->x_high;
}

void draw_dots(struct figure *figure, const struct dots *dots)
{
    enum { NAME = 26 };
    const double row = 24.0;
    double names = 0.0;
    for (size_t i = 0; i < dots->n; i++) {
        names = fmax(names, fmin((double)strlen(dots->names[i]), NAME));
    }
    double left = 18.0 + 6.9 * names;
    double right = FIGURE_WIDTH - 54.0;
    double low = 0.0;
    double high = 0.0;
    find_dots(dots, &low, &high);
    figure->width = FIGURE_WIDTH;
    figure->height = (int)(12.0 + row * (double)dots->n + 44.0);
    struct writer *out = &figure->script;
    put_frame(out, figure, left, right, 10.0, figure->height - 46.0);
    put(out,
        "set border 1 lc rgb '" AXIS "'\nunset ytics\n"
        "set xtics nomirror scale 0 offset 0,0.3 font ',11' textcolor rgb '" INK "'\n"
        "set format x '%%g'\nset grid xtics lt 1 lw 0.75 lc rgb '" GRID "'\n"
        "set xrange [%.17g:%.17g]\nset yrange [%zu.5:-0.5]\n",
        low, high, dots->n - 1);
    if (dots->log) {
        put_log_axis(out, 'x', low, high);
    } else {
        put(out, "set xtics %.17g\n", tick_step(high - low, (right - left) / 34.0));
    }
    put_at(out, figure, (left + right) / 2.0, figure->height - 10.0, "center", QUIET, dots->x_title,
           0);
    put(out, "$dots << END_OF_DOTS\n");
    for (size_t i = 0; i < dots->n; i++) {
        bool interval = can_show(dots->low[i], dots->log) && can_show(dots->high[i], dots->log);
        unsigned rgb = dots->strong != NULL && dots->strong[i] != 0 ? 0xC2480B : 0x0B62A8;
        if (can_show(dots->value[i], dots->log)) {
            put(out, "%.17g %zu %.17g %.17g %u\n", dots->value[i], i,
                interval ? dots->low[i] : dots->value[i], interval ? dots->high[i] : dots->value[i],
                rgb);
        }
    }
    put(out, "END_OF_DOTS\n");
    for (size_t i = 0; i < dots->n; i++) {
        char text[32] = "–";
        double y = 10.0 + row * ((double)i + 0.5);
        if (isfinite(dots->value[i])) {
            snprintf(text, sizeof text, "%.*f", dots->digits, dots->value[i]);
        }
        put_at(out, figure, left - 8.0, y, "right font ',11'", INK, dots->names[i], NAME);
        put_at(out, figure, right + 8.0, y, "left font ',11'", INK, text, 0);
    }
    put(out, "plot $dots using 3:2:($4-$3):(0):5 with vectors nohead lw 2.25 lc rgb variable, "
             "$dots using 1:2:5 with points pt 7 ps 0.75 lc rgb variable\n");
}
