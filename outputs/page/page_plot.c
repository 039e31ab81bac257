/* Figures from the rows of sheets: which of them are points of a line, or cells; and axes:
 * where values lie, and which of them are named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/page/page_svg.h"

/* ----------------------------------------------------------------------------------------- axes */

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

/* ---------------------------------------------------------------------------------------- plots */

static const struct dpe_sheet_cell *cell_at(const struct dpe_sheet *sheet, size_t row, int column)
{
    return &sheet->cells[row * sheet->n_columns + (size_t)column];
}

/* The next row that is drawn; the number of rows when there is none. */
static size_t next_row(const struct dpe_sheet *sheet, size_t row)
{
    const size_t n = sheet->n_cells / sheet->n_columns;
    while (row < n && (cell_at(sheet, row, 0)->mark & ROW_UNDRAWN) != 0) {
        row++;
    }
    return row;
}

/* --------------------------------------------------------------------------------------- curves */

/* The smallest and the largest x, for what is drawn from side to side. */
static void find_sides(const struct dpe_sheet *data, const struct dpe_plot *plot, double sides[2])
{
    const size_t rows = data->n_cells / data->n_columns;
    sides[0] = (double)INFINITY;
    sides[1] = -(double)INFINITY;
    for (size_t r = next_row(data, 0); r < rows; r = next_row(data, r + 1)) {
        sides[0] = fmin(sides[0], cell_at(data, r, plot->x)->number[0]);
        sides[1] = fmax(sides[1], cell_at(data, r, plot->x)->number[0]);
    }
}

static void add_point(const struct dpe_plot *plot, struct curve *curve, double x,
                      const double value[3])
{
    const double none = (double)NAN;
    const double least = plot->least > 0.0 ? plot->least : -(double)INFINITY;
    const bool there = !(value[0] < least);
    const bool range = there && !(value[1] < least);
    int64_t k = curve->n++;
    for (; k > 0 && plot->sorted && curve->points[k - 1].x > x; k--) {
        curve->points[k] = curve->points[k - 1];
    }
    curve->points[k] = (struct curve_point){x, there ? value[0] : none, range ? value[1] : none,
                                            range ? value[2] : none};
}

static bool has_x(const struct curve *curve, double x)
{
    bool has = false;
    for (int64_t i = 0; i < curve->n; i++) {
        has = has || curve->points[i].x == x;
    }
    return has;
}

/* The line that goes on with a row: the last of its name, unless that has a point at its x; else a
 * new one, of which *curves has one more. */
static struct curve *line_of(const struct dpe_sheet *data, const struct dpe_plot *plot, size_t row,
                             struct curve **curves, size_t *n)
{
    const size_t rows = data->n_cells / data->n_columns;
    const char *name = cell_at(data, row, plot->name)->text;
    const unsigned marks = cell_at(data, row, 0)->mark;
    size_t k = *n;
    while (k > 0 && strcmp((*curves)[k - 1].name, name) != 0) {
        k--;
    }
    if (k > 0 &&
        (plot->sorted || !has_x(&(*curves)[k - 1], cell_at(data, row, plot->x)->number[0]))) {
        return &(*curves)[k - 1];
    }
    const bool plain = (marks & ROW_PLAIN) != 0;
    dpe_draw_room(curves, *n, sizeof **curves);
    (*curves)[*n] = (struct curve){
        .name = name,
        .points = dpe_draw_need(dpe_alloc(rows, 2 * sizeof(struct curve_point))),
        .band = !plain && !plot->bare && data->columns[plot->value].kind == COLUMN_INTERVAL,
        .plain = plain,
        .strong = (marks & ROW_STRONG) != 0};
    return &(*curves)[(*n)++];
}

static void draw_curves(struct dpe_figure *figure, const struct dpe_sheet *data,
                        const struct dpe_plot *plot)
{
    const size_t rows = data->n_cells / data->n_columns;
    DPE_OWNED struct curve *curves = NULL;
    double sides[2];
    size_t n = 0;
    bool any = false;
    find_sides(data, plot, sides);
    for (size_t r = next_row(data, 0); r < rows; r = next_row(data, r + 1)) {
        const double x = cell_at(data, r, plot->x)->number[0];
        const double *value = cell_at(data, r, plot->value)->number;
        struct curve *curve = line_of(data, plot, r, &curves, &n);
        const bool level = curve->plain && isnan(x);
        for (int side = 0; side < (level ? 2 : 1); side++) {
            add_point(plot, curve, level ? sides[side] : x, value);
        }
        any = any || plot->least <= 0.0 || value[0] >= plot->least;
    }
    if (any) {
        dpe_draw_curves(figure, plot, curves, n);
    }
    for (size_t k = 0; k < n; k++) {
        free(curves[k].points);
    }
}

/* ---------------------------------------------------------------------------------------- cells */

static bool same_cell(const struct dpe_sheet_cell *a, const struct dpe_sheet_cell *b, bool text)
{
    return text ? strcmp(a->text, b->text) == 0
                : a->number[0] == b->number[0] || (isnan(a->number[0]) && isnan(b->number[0]));
}

/* The place of such a cell among n different ones; n: there is none. */
static size_t find_end(const struct dpe_sheet_cell *const *ends, size_t n,
                       const struct dpe_sheet_cell *cell, bool text)
{
    size_t k = 0;
    while (k < n && !same_cell(ends[k], cell, text)) {
        k++;
    }
    return k;
}

static bool is_text(const struct dpe_sheet *data, int column)
{
    return data->columns[column].kind <= COLUMN_METHOD;
}

/* The different cells of a column, rows or columns of a map, into `ends` [rows of the sheet]; how
 * many there are. */
static size_t find_ends(const struct dpe_sheet *data, int column,
                        const struct dpe_sheet_cell **ends)
{
    const size_t rows = data->n_cells / data->n_columns;
    const bool text = is_text(data, column);
    size_t n = 0;
    for (size_t r = next_row(data, 0); r < rows; r = next_row(data, r + 1)) {
        const struct dpe_sheet_cell *cell = cell_at(data, r, column);
        if (find_end(ends, n, cell, text) < n) {
            continue;
        }
        size_t k = n++;
        for (; k > 0 && !text && ends[k - 1]->number[0] > cell->number[0]; k--) {
            ends[k] = ends[k - 1];
        }
        ends[k] = cell;
    }
    return n;
}

static void draw_heat(struct dpe_figure *figure, const struct dpe_sheet *data,
                      const struct dpe_plot *plot)
{
    const size_t rows = data->n_cells / data->n_columns;
    DPE_OWNED const struct dpe_sheet_cell **down = dpe_draw_need(dpe_alloc(rows, sizeof *down));
    DPE_OWNED const struct dpe_sheet_cell **across = dpe_draw_need(dpe_alloc(rows, sizeof *across));
    const size_t n_rows = find_ends(data, plot->name, down);
    const size_t n_columns = find_ends(data, plot->x, across);
    DPE_OWNED double *value = dpe_draw_need(dpe_alloc(n_rows * n_columns, sizeof *value));
    DPE_OWNED unsigned char *framed = dpe_draw_need(dpe_alloc_zero(n_rows * n_columns, 1));
    for (size_t i = 0; i < n_rows * n_columns; i++) {
        value[i] = (double)NAN;
    }
    for (size_t r = next_row(data, 0); r < rows; r = next_row(data, r + 1)) {
        size_t row =
            find_end(down, n_rows, cell_at(data, r, plot->name), is_text(data, plot->name));
        size_t i = row * n_columns +
                   find_end(across, n_columns, cell_at(data, r, plot->x), is_text(data, plot->x));
        value[i] = cell_at(data, r, plot->value)->number[0];
        framed[i] = plot->framed != 0 && cell_at(data, r, plot->framed)->number[0] == 1.0;
    }
    const struct heat heat = {.n_rows = (int64_t)n_rows,
                              .n_columns = (int64_t)n_columns,
                              .value = value,
                              .rows = down,
                              .columns = across,
                              .mark = framed};
    dpe_draw_heat(figure, plot, &heat);
}

void dpe_draw_plot(struct dpe_figure *figure, const struct dpe_sheet *data,
                   const struct dpe_plot *plot)
{
    struct dpe_plot ends = *plot;
    data = data->drawn != NULL ? data->drawn : data;
    if (next_row(data, 0) * data->n_columns >= data->n_cells) {
        return;
    }
    if (ends.value == 0) {
        ends.x = 1;
        ends.value = 2;
    }
    if (ends.low == ends.high) {
        ends.low = ends.high = (double)NAN;
    }
    if (plot->kind == PLOT_CURVES) {
        draw_curves(figure, data, &ends);
    } else {
        draw_heat(figure, data, &ends);
    }
}
