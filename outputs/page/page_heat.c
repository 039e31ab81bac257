/* Heat maps: cells with their numbers, and images of many cells. */
#include "outputs/page/page_svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include <openssl/evp.h>
#include <png.h>

enum { NAME = 20 }; /* characters of a name */

/* What of a title has room beside few rows: all of it, without what is in brackets, or its last
 * word. */
static const char *fitting(const char *title, double room, char text[64])
{
    if (dpe_svg_text_width(title, 12, 0) <= room) {
        return title;
    }
    const char *bracket = strstr(title, " (");
    snprintf(text, 64, "%.*s", bracket != NULL ? (int)(bracket - title) : 63, title);
    const char *space = strrchr(text, ' ');
    return dpe_svg_text_width(text, 12, 0) <= room || space == NULL ? text : space + 1;
}

/* The figure is given its size, `below` more than the cells need. */
static void put_titles(struct dpe_figure *figure, const struct frame *frame, double below,
                       const char *x_title, const char *y_title)
{
    const double height = floor(frame->bottom + below);
    const double middle = (frame->top + frame->bottom) / 2.0;
    char room[64];
    figure->width = FIGURE_WIDTH;
    figure->height = (int)height;
    dpe_svg_title(&figure->body, (frame->left + frame->right) / 2.0, height - 9.0, 0.0, x_title);
    dpe_svg_title(&figure->body, 10.0, middle, -90.0,
                  fitting(y_title, 2.0 * fmin(middle, height - middle), room));
}

/* The colour scale as a strip with its ends named, above the cells. */
static void put_bar(struct dpe_text *out, const struct frame *frame, const char *title,
                    const char *low, const char *high, bool reversed)
{
    enum { STEPS = 40 };
    const double width = 120.0;
    const double top = 7.0;
    const double line = top + 5.0;
    double right = frame->right - dpe_svg_text_width(high, 11, 0) - 6.0;
    double left = right - width;
    for (int i = 0; i < STEPS; i++) {
        double share = (i + 0.5) / STEPS;
        /* A little overlap hides the seams. */
        dpe_svg_cell(out, left + width * i / STEPS, top,
                     width / STEPS + (i + 1 < STEPS ? 0.5 : 0.0), 10.0,
                     dpe_draw_color_at(reversed ? 1.0 - share : share));
    }
    dpe_svg_label(out, left - 6.0, line, DPE_SVG_END, DPE_QUIET, low, 0);
    dpe_svg_label(out, right + 6.0, line, DPE_SVG_START, DPE_QUIET, high, 0);
    dpe_svg_text(out, left - 18.0 - dpe_svg_text_width(low, 11, 0), line, 0.0, DPE_SVG_END, 12,
                 DPE_INK, title, 0);
}

/* ---------------------------------------------------------------------------------------- cells */

static void find_ends(const double *value, int64_t n, bool log, double *low, double *high)
{
    struct dpe_axis axis = dpe_axis_begin(log);
    for (int64_t i = 0; i < n; i++) {
        dpe_axis_see(&axis, value[i]);
    }
    *low = isnan(*low) ? axis.low : *low;
    *high = isnan(*high) ? axis.high : *high;
    if (!isfinite(*low) || !isfinite(*high)) {
        *low = log ? 1.0 : 0.0;
        *high = log ? 10.0 : 1.0;
    }
    /* Differences by rounding alone do not make a scale. */
    if (*high - *low <= 1e-9 * fabs(*high)) {
        *high = *low;
    }
}

/* Place on the scale, bright is good; NaN stays. */
static double share_of(const struct dpe_plot *heat, double value, double low, double high)
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

static void put_cells(struct dpe_text *out, const struct frame *frame, const struct dpe_plot *how,
                      const struct heat *heat, double low, double high)
{
    double width = (frame->right - frame->left) / (double)heat->n_columns;
    double height = (frame->bottom - frame->top) / (double)heat->n_rows;
    double gap = width > 8.0 && height > 8.0 ? 1.5 : 0.5;
    int room = (int)((width - 4.0) / 6.6);
    for (int64_t i = 0; i < heat->n_rows * heat->n_columns; i++) {
        double x = frame->left + (double)(i % heat->n_columns) * width;
        double y = frame->top + (double)(i / heat->n_columns) * height;
        double share = share_of(how, heat->value[i], low, high);
        bool marked = heat->mark[i] != 0;
        double inset = gap / 2.0 + (marked ? 2.5 : 0.0);
        const double w = width - 2.0 * inset, h = height - 2.0 * inset;
        if (isnan(share)) {
            dpe_svg_rect(out, x + inset, y + inset, w, h,
                         "class=\"" DPE_MISSING "\" fill=\"currentColor\"");
        } else {
            dpe_svg_cell(out, x + inset, y + inset, w, h, dpe_draw_color_at(share));
        }
        if (marked) {
            dpe_svg_rect(out, x + 1.0, y + 1.0, width - 2.0, height - 2.0,
                         "class=\"" DPE_INK "\" stroke=\"currentColor\" stroke-width=\"2\"");
        }
        char text[32] = "–";
        if (isfinite(heat->value[i])) {
            number_text(heat->value[i], how->digits, room, text);
        }
        dpe_svg_label(out, x + width / 2.0, y + height / 2.0, DPE_SVG_MIDDLE,
                      isnan(share)                                         ? DPE_QUIET
                      : dpe_draw_color_is_bright(dpe_draw_color_at(share)) ? "on-bright"
                                                                           : "on-dark",
                      text, 0);
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

/* A row or column is called as its cell says, or as a length. */
static const char *name_of(const struct dpe_sheet_cell *cell, char room[32])
{
    return cell->text != NULL ? cell->text : dpe_length_text(cell->number[0], room);
}

/* Width of the longest name. */
static double longest(const struct dpe_sheet_cell *const *cells, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        char room[32];
        most = fmax(most, dpe_svg_text_width(name_of(cells[i], room), 11, NAME));
    }
    return most;
}

/* Names under the columns stand at a slant when they are wider than a cell. */
static bool is_slanted(const struct heat *heat, double cell)
{
    double most = longest(heat->columns, heat->n_columns);
    return most > 42.0 && most > cell;
}

static void put_names(struct dpe_text *out, const struct frame *frame, const struct heat *heat)
{
    double cell_x = (frame->right - frame->left) / (double)heat->n_columns;
    double cell_y = (frame->bottom - frame->top) / (double)heat->n_rows;
    bool slanted = is_slanted(heat, cell_x);
    int64_t step_x = name_step(heat->n_columns, cell_x,
                               slanted ? 14.0 : longest(heat->columns, heat->n_columns) + 6.0);
    int64_t step_y = name_step(heat->n_rows, cell_y, 13.0);
    char room[32];
    for (int64_t c = 0; c < heat->n_columns; c += step_x) {
        double x = frame->left + ((double)c + 0.5) * cell_x;
        if (slanted) {
            dpe_svg_text(out, x + 4.0, frame->bottom + 8.0, -40.0, DPE_SVG_END, 11, DPE_INK,
                         name_of(heat->columns[c], room), NAME);
        } else {
            dpe_svg_label(out, x, frame->bottom + 11.0, DPE_SVG_MIDDLE, DPE_INK,
                          name_of(heat->columns[c], room), NAME);
        }
    }
    for (int64_t r = 0; r < heat->n_rows; r += step_y) {
        dpe_svg_label(out, frame->left - 6.0, frame->top + ((double)r + 0.5) * cell_y, DPE_SVG_END,
                      DPE_INK, name_of(heat->rows[r], room), NAME);
    }
}

void dpe_draw_heat(struct dpe_figure *figure, const struct dpe_plot *how, const struct heat *heat)
{
    double left = 30.0 + longest(heat->rows, heat->n_rows);
    double cell_width = (FIGURE_WIDTH - 6.0 - left) / (double)heat->n_columns;
    double cell_height = fmin(fmax(cell_width * 0.72, 20.0), 34.0);
    if (heat->n_rows > 24) {
        cell_height = fmax(480.0 / (double)heat->n_rows, 3.0);
    }
    double names =
        is_slanted(heat, cell_width) ? 0.65 * longest(heat->columns, heat->n_columns) : 0.0;
    const struct frame frame = {left, FIGURE_WIDTH - 6.0, 30.0,
                                30.0 + cell_height * (double)heat->n_rows};
    struct dpe_text *out = &figure->body;
    double low = how->low, high = how->high;
    char least[32], most[32];
    find_ends(heat->value, heat->n_rows * heat->n_columns, how->log, &low, &high);
    number_text(low, how->digits, 8, least);
    number_text(high, how->digits, 8, most);
    put_bar(out, &frame, how->bar_title, least, most, how->low_is_good);
    put_titles(figure, &frame, 40.0 + names, how->x_title, how->y_title);
    put_names(out, &frame, heat);
    put_cells(out, &frame, how, heat, low, high);
}

/* --------------------------------------------------------------------------------------- images */

/* The cells as a PNG, a pixel each. *n bytes, owned. */
static void *field_png(const struct dpe_field *field, size_t *n)
{
    size_t cells = (size_t)(field->n_rows * field->n_columns);
    DPE_OWNED unsigned char *pixels = dpe_draw_need(malloc(cells * 3));
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)field->n_columns,
                       .height = (png_uint_32)field->n_rows,
                       .format = PNG_FORMAT_RGB};
    for (size_t i = 0; i < cells; i++) {
        double value = field->value[i];
        double span = field->high - field->low;
        unsigned rgb =
            dpe_draw_color_at(span > 0.0 || isnan(value) ? (value - field->low) / span : 0.5);
        pixels[3 * i] = (unsigned char)(rgb >> 16);
        pixels[3 * i + 1] = (unsigned char)(rgb >> 8 & 255);
        pixels[3 * i + 2] = (unsigned char)(rgb & 255);
    }
    /* Without memory libpng fails. */
    png_alloc_size_t size = 0;
    bool made = png_image_write_get_memory_size(image, size, 0, pixels, 0, NULL) != 0;
    void *bytes = dpe_draw_need(made ? malloc(size) : NULL);
    made = png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL) != 0;
    png_image_free(&image);
    *n = size;
    return dpe_draw_need(made ? bytes : NULL);
}

static void put_image(struct dpe_text *out, const struct frame *frame,
                      const struct dpe_field *field)
{
    size_t n = 0;
    DPE_OWNED unsigned char *png = field_png(field, &n);
    DPE_OWNED unsigned char *text = dpe_draw_need(malloc(4 * ((n + 2) / 3) + 1));
    int length = EVP_EncodeBlock(text, png, (int)n); /* base64 */
    dpe_text_put(out,
                 "<image x=\"%.5g\" y=\"%.5g\" width=\"%.5g\" height=\"%.5g\" "
                 "preserveAspectRatio=\"none\" href=\"data:image/png;base64,",
                 frame->left, frame->top, frame->right - frame->left, frame->bottom - frame->top);
    dpe_text_put_bytes(out, (const char *)text, (size_t)length);
    dpe_text_put(out, "\"/>\n");
}

/* Lines that divide the rows, group edges under the image, and the cut. White lines lie on the
 * image, whose colours are the same everywhere. */
static void put_marks(struct dpe_text *out, const struct frame *frame,
                      const struct dpe_field *field)
{
    double cell_x = (frame->right - frame->left) / (double)field->n_columns;
    double cell_y = (frame->bottom - frame->top) / (double)field->n_rows;
    int64_t step = field->row_step > 0 ? field->row_step : field->n_rows;
    int64_t named = name_step(field->n_rows / step, cell_y * (double)step, 13.0);
    for (int64_t r = 0; r < field->n_rows; r += step) {
        char text[24];
        double y = frame->top + (double)r * cell_y;
        snprintf(text, sizeof text, "%lld", (long long)(r / step));
        if (r / step % named == 0) {
            dpe_svg_label(out, frame->left - 6.0, y + 0.5 * (double)step * cell_y, DPE_SVG_END,
                          DPE_INK, text, 0);
        }
        if (r > 0 && cell_y * (double)step > 5.0) {
            dpe_svg_line(out, frame->left, y, frame->right, y, "on-dark", 1.0, "");
        }
    }
    for (int64_t e = 0; e < field->n_x_edges; e++) {
        char text[24];
        double x = frame->left + (double)field->x_edges[e] * cell_x;
        snprintf(text, sizeof text, "%lld", (long long)field->x_edges[e]);
        dpe_svg_line(out, x, frame->bottom, x, frame->bottom + 4.0, DPE_AXIS, 1.0, "");
        dpe_svg_label(out, x, frame->bottom + 12.0, DPE_SVG_MIDDLE, DPE_INK, text, 0);
    }
    if (!isnan(field->cut)) {
        double x = frame->left + field->cut * cell_x;
        dpe_svg_line(out, x, frame->bottom, x, frame->top, "on-dark", 2.0, "");
        dpe_svg_line(out, x, frame->top, x, frame->top - 6.0, DPE_INK, 2.0, "");
        double half = dpe_svg_text_width(field->cut_title, 11, 0) / 2.0;
        dpe_svg_label(out, fmin(x, FIGURE_WIDTH - 2.0 - half), frame->top - 13.0, DPE_SVG_MIDDLE,
                      DPE_INK, field->cut_title, 0);
    }
}

void dpe_draw_field(struct dpe_figure *figure, const struct dpe_field *field)
{
    const double height = fmin(fmax(16.0 * (double)field->n_rows, 120.0), 420.0);
    const double top = isnan(field->cut) ? 30.0 : 50.0;
    const struct frame frame = {44.0, FIGURE_WIDTH - 10.0, top, top + height};
    struct dpe_text *out = &figure->body;
    char least[32], most[32];
    snprintf(least, sizeof least, "%.3g", field->low);
    snprintf(most, sizeof most, "%.3g", field->high);
    put_bar(out, &frame, field->bar_title, least, most, false);
    put_titles(figure, &frame, 42.0, field->x_title, field->y_title);
    put_image(out, &frame, field);
    put_marks(out, &frame, field);
}
