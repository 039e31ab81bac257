/* Heat maps: cells with their numbers, and images of many cells. */
#include "report_color.h"

#include <math.h>
#include <string.h>

enum { NAME = 20 }; /* characters of a name */

/** Where things are, in pixels from the upper left corner. */
struct frame {
    double left, right, top, bottom; /**< of the cells */
    double width, height;            /**< of the figure */
};

static double at_x(const struct frame *frame, double pixels)
{
    return pixels / frame->width;
}

static double at_y(const struct frame *frame, double pixels)
{
    return 1.0 - pixels / frame->height;
}

static void put_label(struct writer *out, const struct frame *frame, double x, double y,
                      const char *side, const char *color, int size, const char *text,
                      size_t columns)
{
    put(out, "set label ");
    put_quoted(out, text, columns);
    put(out, " at screen %.5f,%.5f %s font ',%d' textcolor rgb '%s'\n", at_x(frame, x),
        at_y(frame, y), side, size, color);
}

static void put_opening(struct writer *out, const struct frame *frame)
{
    put(out,
        "unset key\nunset border\nunset xtics\nunset ytics\n"
        "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
        "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
        at_x(frame, frame->left), at_x(frame, frame->right), at_y(frame, frame->top),
        at_y(frame, frame->bottom));
}

static void put_titles(struct writer *out, const struct frame *frame, const char *x_title,
                       const char *y_title)
{
    put_label(out, frame, (frame->left + frame->right) / 2.0, frame->height - 9.0, "center", QUIET,
              12, x_title, 0);
    put_label(out, frame, 10.0, (frame->top + frame->bottom) / 2.0, "center rotate by 90", QUIET,
              12, y_title, 0);
}

/* The colour scale as a strip with its ends named, above the cells. */
static void put_bar(struct writer *out, const struct frame *frame, const char *title,
                    const char *low, const char *high, bool reversed)
{
    enum { STEPS = 40 };
    const double width = 120.0;
    const double top = 7.0;
    const double bottom = 17.0;
    double right = frame->right - 7.0 * (double)strlen(high) - 6.0;
    double left = right - width;
    for (int i = 0; i < STEPS; i++) {
        double share = (i + 0.5) / STEPS;
        /* A little overlap hides the seams. */
        put(out,
            "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb '#%06x' "
            "fs solid 1 noborder\n",
            at_x(frame, left + width * i / STEPS), at_y(frame, bottom),
            at_x(frame, left + width * (i + 1) / STEPS + (i + 1 < STEPS ? 0.5 : 0.0)),
            at_y(frame, top), color_at(reversed ? 1.0 - share : share));
    }
    double line = (top + bottom) / 2.0;
    put_label(out, frame, left - 6.0, line, "right", QUIET, 11, low, 0);
    put_label(out, frame, right + 6.0, line, "left", QUIET, 11, high, 0);
    put_label(out, frame, left - 16.0 - 7.0 * (double)strlen(low), line, "right", INK, 12, title,
              0);
}

/* ------------------------------------------------------------------------------------------ cells
 */

static void find_ends(const double *value, int64_t n, bool log, double *low, double *high)
{
    double least = (double)INFINITY;
    double most = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(value[i]) && (!log || value[i] > 0.0)) {
            least = fmin(least, value[i]);
            most = fmax(most, value[i]);
        }
    }
    *low = isnan(*low) ? least : *low;
    *high = isnan(*high) ? most : *high;
    if (!isfinite(*low) || !isfinite(*high)) {
        *low = log ? 1.0 : 0.0;
        *high = log ? 10.0 : 1.0;
    }
    /* What rounding leaves of equal numbers is no scale. */
    if (*high - *low <= 1e-9 * fabs(*high)) {
        *high = *low;
    }
}

/* Place on the scale, bright is good; NaN stays. */
static double share_of(const struct heat *heat, double value, double low, double high)
{
    if (!isfinite(value)) {
        return (double)NAN;
    }
    double share = 0.5;
    if (heat->log && value > 0.0 && high > low) {
        share = log(value / low) / log(high / low);
    } else if (high > low) {
        share = (value - low) / (high - low);
    }
    return heat->low_is_good ? 1.0 - share : share;
}

static void number_text(double value, int digits, int room, char text[32])
{
    if (fabs(value) >= 1e5) {
        snprintf(text, 32, "%.0e", value);
        return;
    }
    for (int d = digits; d >= 0; d--) {
        /* No minus before what is rounded to zero. */
        bool zero = fabs(value) < 0.5 * pow(10.0, -d);
        snprintf(text, 32, "%.*f", d, zero ? 0.0 : value);
        if ((int)strlen(text) <= room) {
            return;
        }
    }
}

static void put_cells(struct writer *out, const struct heat *heat, double low, double high,
                      double cell_width, double cell_height)
{
    double half_x = 0.5 - 0.75 / cell_width;
    double half_y = 0.5 - 0.75 / cell_height;
    int room = (int)((cell_width - 4.0) / 6.2);
    int64_t n = heat->n_rows * heat->n_columns;
    put(out, "$cells << END_OF_CELLS\n");
    for (int64_t i = 0; i < n; i++) {
        bool marked = heat->mark != NULL && heat->mark[i] != 0;
        double inset_x = marked ? 2.5 / cell_width : 0.0;
        double inset_y = marked ? 2.5 / cell_height : 0.0;
        put(out, "%lld %lld %.5f %.5f %u\n", (long long)(i % heat->n_columns),
            (long long)(i / heat->n_columns), half_x - inset_x, half_y - inset_y,
            color_at(share_of(heat, heat->value[i], low, high)));
    }
    put(out, "END_OF_CELLS\n");
    for (int64_t i = 0; i < n; i++) {
        double x = (double)(i % heat->n_columns);
        double y = (double)(i / heat->n_columns);
        if (heat->mark != NULL && heat->mark[i] != 0) {
            put(out,
                "set object rectangle center first %g,%g size first %.5f,%.5f fs empty border "
                "lc rgb '" INK "' lw 2\n",
                x, y, 2.0 * half_x, 2.0 * half_y);
        }
        if (room < 2 || cell_height < 12.0) {
            continue;
        }
        char text[32] = "–";
        if (isfinite(heat->value[i])) {
            number_text(heat->value[i], heat->digits, room, text);
        }
        double share = share_of(heat, heat->value[i], low, high);
        const char *color = isnan(share)                       ? QUIET
                            : color_is_bright(color_at(share)) ? "#000000"
                                                               : "#ffffff";
        put(out, "set label '%s' at first %g,%g center front font ',11' textcolor rgb '%s'\n", text,
            x, y, color);
    }
}

/* Every so many names, so that they do not run into each other. */
static int64_t name_step(int64_t n, double cell, double need)
{
    int64_t step = 1;
    while (cell * (double)step < need && step < n) {
        step *= 2;
    }
    return step;
}

/* Characters of the longest name, at most NAME. */
static double longest(const char *const *names, int64_t n)
{
    size_t most = 1;
    for (int64_t i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        most = length > most ? length : most;
    }
    return most > NAME ? NAME : (double)most;
}

/* Names under the columns stand at a slant when they are wider than a cell. */
static bool is_slanted(const struct heat *heat, double cell)
{
    return longest(heat->column_names, heat->n_columns) > 6.0 &&
           longest(heat->column_names, heat->n_columns) * 6.4 > cell;
}

static void put_names(struct writer *out, const struct frame *frame, const struct heat *heat)
{
    double cell_x = (frame->right - frame->left) / (double)heat->n_columns;
    double cell_y = (frame->bottom - frame->top) / (double)heat->n_rows;
    bool slanted = is_slanted(heat, cell_x);
    int64_t step_x = name_step(heat->n_columns, cell_x, slanted ? 14.0 : 30.0);
    int64_t step_y = name_step(heat->n_rows, cell_y, 13.0);
    for (int64_t c = 0; c < heat->n_columns; c += step_x) {
        put_label(out, frame, frame->left + ((double)c + 0.5) * cell_x + (slanted ? 4.0 : 0.0),
                  frame->bottom + (slanted ? 8.0 : 11.0), slanted ? "right rotate by 40" : "center",
                  INK, 11, heat->column_names[c], slanted ? NAME : 8);
    }
    for (int64_t r = 0; r < heat->n_rows; r += step_y) {
        put_label(out, frame, frame->left - 6.0, frame->top + ((double)r + 0.5) * cell_y, "right",
                  INK, 11, heat->row_names[r], NAME);
    }
}

void draw_heat(struct figure *figure, const struct heat *heat)
{
    double left = 30.0 + 6.4 * longest(heat->row_names, heat->n_rows);
    double cell_width = (FIGURE_WIDTH - 6.0 - left) / (double)heat->n_columns;
    double cell_height = fmin(fmax(cell_width * 0.72, 20.0), 34.0);
    if (heat->n_rows > 24) {
        cell_height = fmax(480.0 / (double)heat->n_rows, 3.0);
    }
    double bottom = 30.0 + cell_height * (double)heat->n_rows;
    double names =
        is_slanted(heat, cell_width) ? 4.2 * longest(heat->column_names, heat->n_columns) : 0.0;
    struct frame frame = {.left = left,
                          .right = FIGURE_WIDTH - 6.0,
                          .top = 30.0,
                          .bottom = bottom,
                          .width = FIGURE_WIDTH,
                          .height = floor(bottom + 40.0 + names)};
    figure->width = FIGURE_WIDTH;
    figure->height = (int)frame.height;
    struct writer *out = &figure->script;
    double low = heat->low;
    double high = heat->high;
    find_ends(heat->value, heat->n_rows * heat->n_columns, heat->log, &low, &high);
    char least[32];
    char most[32];
    number_text(low, heat->digits, 8, least);
    number_text(high, heat->digits, 8, most);
    put_opening(out, &frame);
    put(out, "set xrange [-0.5:%lld.5]\nset yrange [%lld.5:-0.5]\n", (long long)heat->n_columns - 1,
        (long long)heat->n_rows - 1);
    put_bar(out, &frame, heat->bar_title, least, most, heat->low_is_good);
    put_titles(out, &frame, heat->x_title, heat->y_title);
    put_names(out, &frame, heat);
    put_cells(out, heat, low, high, cell_width, cell_height);
    put(out, "plot $cells using 1:2:3:4:5 with boxxyerror fs solid 1 noborder lc rgb variable\n");
}

/* ----------------------------------------------------------------------------------------- images
 */

static void put_image(struct writer *out, const struct field *field)
{
    put(out, "$cells << END_OF_CELLS\n");
    for (int64_t i = 0; i < field->n_rows * field->n_columns; i++) {
        double value = field->value[i];
        double span = field->high - field->low;
        unsigned rgb = color_at(span > 0.0 || isnan(value) ? (value - field->low) / span : 0.5);
        put(out, "%lld %lld %u %u %u\n", (long long)(i % field->n_columns),
            (long long)(i / field->n_columns), rgb >> 16, rgb >> 8 & 255, rgb & 255);
    }
    put(out, "END_OF_CELLS\n");
}

/* Lines that divide the rows, group edges under the image, and the cut. */
static void put_marks(struct writer *out, const struct frame *frame, const struct field *field)
{
    double cell_x = (frame->right - frame->left) / (double)field->n_columns;
    double cell_y = (frame->bottom - frame->top) / (double)field->n_rows;
    int64_t step = field->row_step > 0 ? field->row_step : field->n_rows;
    int64_t named = name_step(field->n_rows / step, cell_y * (double)step, 13.0);
    for (int64_t r = 0; r < field->n_rows; r += step) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)(r / step));
        if (r / step % named == 0) {
            put_label(out, frame, frame->left - 6.0,
                      frame->top + ((double)r + 0.5 * (double)step) * cell_y, "right", INK, 11,
                      text, 0);
        }
        if (r > 0 && cell_y * (double)step > 5.0) {
            put(out,
                "set arrow from first -0.5,%g to first %lld.5,%g nohead front lw 1 lc rgb "
                "'#ffffff'\n",
                (double)r - 0.5, (long long)field->n_columns - 1, (double)r - 0.5);
        }
    }
    for (int64_t e = 0; e < field->n_x_edges; e++) {
        char text[24];
        double x = frame->left + (double)field->x_edges[e] * cell_x;
        snprintf(text, sizeof text, "%lld", (long long)field->x_edges[e]);
        put(out,
            "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lw 1 lc rgb '" AXIS "'\n",
            at_x(frame, x), at_y(frame, frame->bottom), at_x(frame, x),
            at_y(frame, frame->bottom + 4.0));
        put_label(out, frame, x, frame->bottom + 12.0, "center", INK, 11, text, 0);
    }
    if (!isnan(field->cut)) {
        double x = frame->left + field->cut * cell_x;
        put(out,
            "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead front lw 2 lc rgb "
            "'#ffffff'\n"
            "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead front lw 2 lc rgb '" INK
            "'\n",
            at_x(frame, x), at_y(frame, frame->bottom), at_x(frame, x), at_y(frame, frame->top),
            at_x(frame, x), at_y(frame, frame->top), at_x(frame, x), at_y(frame, frame->top - 6.0));
        put_label(out, frame, x, frame->top - 13.0, "center", INK, 11, field->cut_title, 0);
    }
}

void draw_field(struct figure *figure, const struct field *field)
{
    double height = fmin(fmax(16.0 * (double)field->n_rows, 120.0), 420.0);
    double top = isnan(field->cut) ? 30.0 : 50.0;
    struct frame frame = {.left = 44.0,
                          .right = FIGURE_WIDTH - 10.0,
                          .top = top,
                          .bottom = top + height,
                          .width = FIGURE_WIDTH,
                          .height = floor(top + height + 42.0)};
    figure->width = FIGURE_WIDTH;
    figure->height = (int)frame.height;
    struct writer *out = &figure->script;
    char least[32];
    char most[32];
    snprintf(least, sizeof least, "%.3g", field->low);
    snprintf(most, sizeof most, "%.3g", field->high);
    put_opening(out, &frame);
    put(out, "set xrange [-0.5:%lld.5]\nset yrange [%lld.5:-0.5]\n",
        (long long)field->n_columns - 1, (long long)field->n_rows - 1);
    put_bar(out, &frame, field->bar_title, least, most, false);
    put_titles(out, &frame, field->x_title, field->y_title);
    put_image(out, field);
    put_marks(out, &frame, field);
    put(out, "plot $cells using 1:2:3:4:5 with rgbimage\n");
}
