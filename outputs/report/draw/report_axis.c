/* Axes: where values lie, and which of them are named. */
#include "outputs/report/draw/report_svg.h"

#include <math.h>
#include <stdio.h>

bool dpe_axis_shows(double value, bool log)
{
    return fabs(value) < 1e200 && (!log || value > 1e-200);
}

double dpe_axis_at(const struct dpe_axis *axis, double value)
{
    double share = axis->log ? log(value / axis->low) / log(axis->high / axis->low)
                             : (value - axis->low) / (axis->high - axis->low);
    return axis->from + fmin(fmax(share, 0.0), 1.0) * (axis->to - axis->from);
}

void dpe_axis_widen(double *low, double *high, bool log, double share)
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

struct dpe_axis dpe_axis_begin(bool log)
{
    return (struct dpe_axis){.low = (double)INFINITY, .high = -(double)INFINITY, .log = log};
}

void dpe_axis_see(struct dpe_axis *axis, double value)
{
    if (dpe_axis_shows(value, axis->log)) {
        axis->low = fmin(axis->low, value);
        axis->high = fmax(axis->high, value);
    }
}

void dpe_axis_end(struct dpe_axis *axis, const struct dpe_plot *plot, double share)
{
    dpe_axis_widen(&axis->low, &axis->high, axis->log, share);
    axis->low = isnan(plot->low) ? axis->low : plot->low;
    axis->high = isnan(plot->high) ? axis->high : plot->high;
}

static void add_tick(struct dpe_ticks *ticks, double value, const char *text)
{
    if (ticks->n < DPE_MAX_TICKS) {
        struct dpe_tick *tick = &ticks->ticks[ticks->n++];
        tick->value = value;
        snprintf(tick->text, sizeof tick->text, "%s", text);
    }
}

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

static void linear_ticks(const struct dpe_axis *axis, double gap, struct dpe_ticks *ticks)
{
    double most = fmin(fabs(axis->to - axis->from) / gap, DPE_MAX_TICKS - 2);
    double step = tick_step(axis->high - axis->low, most);
    int digits = (int)fmax(0.0, -floor(log10(step) + 1e-9));
    bool plain = digits <= 6 && fabs(axis->low) < 1e6 && fabs(axis->high) < 1e6;
    for (double k = ceil(axis->low / step - 1e-9);
         k * step <= axis->high + 1e-9 * step && ticks->n < DPE_MAX_TICKS; k++) {
        char text[32];
        double value = k == 0.0 ? 0.0 : k * step; /* no minus before zero */
        snprintf(text, sizeof text, plain ? "%.*f" : "%.*g", plain ? digits : 4, value);
        add_tick(ticks, value, text);
    }
}

/* Powers of ten alone are too few where values span less than three of them. */
static void log_ticks(const struct dpe_axis *axis, double gap, struct dpe_ticks *ticks)
{
    static const double fine[] = {1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0};
    static const double medium[] = {1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0};
    static const double coarse[] = {1.0, 2.0, 5.0};
    static const double decades[] = {1.0};
    static const struct {
        double below;
        const double *steps;
        size_t n;
    } choices[] = {{3.0, fine, sizeof fine / sizeof fine[0]},
                   {12.0, medium, sizeof medium / sizeof medium[0]},
                   {1e3, coarse, sizeof coarse / sizeof coarse[0]},
                   {(double)INFINITY, decades, 1}};
    size_t c = 0;
    while (axis->high / axis->low >= choices[c].below && c + 1 < sizeof choices / sizeof *choices) {
        c++;
    }
    double most = fmax(fabs(axis->to - axis->from) / gap, 1.0);
    double powers = log10(axis->high) - log10(axis->low);
    double stride = c + 1 < sizeof choices / sizeof *choices ? 1.0 : ceil(powers / most);
    double last = (double)NAN;
    for (double p = floor(log10(axis->low)); p <= log10(axis->high); p += stride) {
        for (size_t i = 0; i < choices[c].n; i++) {
            double value = pow(10.0, p) * choices[c].steps[i];
            double at = dpe_axis_at(axis, value);
            char text[32];
            if (value >= axis->low && value <= axis->high && !(fabs(at - last) < gap)) {
                snprintf(text, sizeof text, "%.6g", value);
                add_tick(ticks, value, text);
                last = at;
            }
        }
    }
}

void dpe_axis_ticks(const struct dpe_axis *axis, double gap, struct dpe_ticks *ticks)
{
    ticks->n = 0;
    if (axis->log) {
        log_ticks(axis, gap, ticks);
    }
    if (ticks->n < 2) { /* also where a logarithmic axis is too short for its round values */
        ticks->n = 0;
        linear_ticks(axis, gap, ticks);
    }
}

void dpe_axis_lengths(const struct dpe_axis *axis, const double *values, size_t n,
                      struct dpe_ticks *ticks)
{
    double powers[64];
    ticks->n = 0;
    if (n == 0 && !axis->log) {
        linear_ticks(axis, 40.0, ticks);
        return;
    }
    if (n == 0) {
        for (double p = ceil(log2(axis->low)); exp2(p) <= axis->high && n < 64; p++) {
            powers[n++] = exp2(p);
        }
        values = powers;
    }
    double end = -(double)INFINITY; /* of the text before */
    for (size_t i = 0; i < n; i++) {
        char text[32];
        dpe_length_text(values[i], text);
        if (fmod(values[i], 1.0) != 0.0) {
            snprintf(text, sizeof text, "%.3g", values[i]);
        }
        double half = dpe_svg_text_width(text, 11, 0) / 2.0;
        double at = dpe_axis_at(axis, values[i]);
        if (at - half > end + 8.0) {
            add_tick(ticks, values[i], text);
            end = at + half;
        }
    }
}

void dpe_axis_put(struct dpe_text *out, const struct dpe_axis *axis, const struct dpe_ticks *ticks,
                  double top, double bottom, double title_at, const char *title)
{
    for (size_t i = 0; i < ticks->n; i++) {
        const double x = dpe_axis_at(axis, ticks->ticks[i].value);
        dpe_svg_line(out, x, top > 0.0 ? top : bottom, x, top > 0.0 ? bottom : bottom + 4.0,
                     top > 0.0 ? DPE_GRID : DPE_AXIS, 1.0, "");
        dpe_svg_label(out, x, bottom + 13.0, DPE_SVG_MIDDLE, DPE_INK, ticks->ticks[i].text, 0);
    }
    dpe_svg_line(out, axis->from, bottom, axis->to, bottom, DPE_AXIS, 1.0, "");
    dpe_svg_title(out, (axis->from + axis->to) / 2.0, title_at, 0.0, title);
}
