/* One needle by depth and length: a map for each method. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grid {
    const struct input *input;
    struct names methods;
    struct numbers depth, length, mean, low, high, n_valid; /**< [method][depth][length] */
};

static void grid_free(struct grid *grid)
{
    dpe_input_names_free(&grid->methods);
    dpe_input_numbers_free(&grid->depth);
    dpe_input_numbers_free(&grid->length);
    dpe_input_numbers_free(&grid->mean);
    dpe_input_numbers_free(&grid->low);
    dpe_input_numbers_free(&grid->high);
    dpe_input_numbers_free(&grid->n_valid);
}

static dpe_status read_grid(const struct input *input, struct grid *g, struct dpe_error *err)
{
    *g = (struct grid){.input = input};
    const struct wanted axes[] = {
        {"/eval/niah_grid/depth", 1, {-1}, true, &g->depth},
        {"/eval/niah_grid/length", 1, {-1}, true, &g->length},
    };
    dpe_status status = dpe_input_read_names(input, "/method", -1, &g->methods, err);
    if (status != DPE_OK || (status = dpe_input_read_wanted(input, axes, 2, err)) != DPE_OK) {
        return status;
    }
    int64_t m = (int64_t)g->methods.n;
    int64_t d = (int64_t)g->depth.n;
    int64_t l = (int64_t)g->length.n;
    const struct wanted values[] = {
        {"/eval/niah_grid/mean", 3, {m, d, l}, true, &g->mean},
        {"/eval/niah_grid/ci_low", 3, {m, d, l}, true, &g->low},
        {"/eval/niah_grid/ci_high", 3, {m, d, l}, true, &g->high},
        {"/eval/niah_grid/n_valid", 3, {m, d, l}, true, &g->n_valid},
    };
    return dpe_input_read_wanted(input, values, 4, err);
}

static struct sheet *grid_sheet(const struct grid *g, size_t method, const char *id,
                                const char *title)
{
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "depth", COLUMN_NUMBER, 2);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "recall, %", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    size_t cells = g->depth.n * g->length.n;
    for (size_t i = 0; i < cells; i++) {
        size_t at = method * cells + i;
        dpe_draw_sheet_number(sheet, g->depth.values[i / g->length.n]);
        dpe_draw_sheet_number(sheet, g->length.values[i % g->length.n]);
        dpe_draw_sheet_interval(sheet, g->mean.values[at], g->low.values[at], g->high.values[at]);
        dpe_draw_sheet_number(sheet, g->n_valid.values[at]);
    }
    return sheet;
}

/* "30 %" for depths, "2048" for lengths: pointers followed by their text, owned. */
static const char **axis_names(const struct numbers *axis, bool percent)
{
    size_t list = axis->n * sizeof(char *);
    char *block = dpe_alloc(1, list + axis->n * 32 + 1);
    const char **names = (const char **)(void *)block;
    for (size_t i = 0; block != NULL && i < axis->n; i++) {
        char *text = block + list + i * 32;
        if (percent) {
            snprintf(text, 32, "%.0f %%", axis->values[i] * 100.0);
        } else {
            dpe_draw_length_text(axis->values[i], text);
        }
        names[i] = text;
    }
    return names;
}

static void add_map(struct report *report, const struct grid *g, size_t method,
                    const char *const *depths, const char *const *lengths)
{
    char *base = dpe_draw_format_text("grid-%zu", method + 1);
    char *id =
        base == NULL ? NULL : dpe_input_report_id(report, g->input, "/eval/niah_grid/mean", base);
    double most = 0.0;
    for (size_t i = 0; i < g->depth.n * g->length.n; i++) {
        most = fmax(most, g->n_valid.values[method * g->depth.n * g->length.n + i]);
    }
    char *name = dpe_draw_clean_text(g->methods.names[method], 60);
    char *title =
        name == NULL ? NULL : dpe_draw_format_text("%s: one needle by depth and length", name);
    bool ok = id != NULL && title != NULL;
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, ok ? title : "",
        dpe_draw_format_text("Percentage of needles found, with %.0f sample%s in each cell.", most,
                             most == 1.0 ? "" : "s"),
        ok ? grid_sheet(g, method, id, title) : NULL);
    if (figure != NULL && ok) {
        const struct heat heat = {.n_rows = (int64_t)g->depth.n,
                                  .n_columns = (int64_t)g->length.n,
                                  .value = g->mean.values + method * g->depth.n * g->length.n,
                                  .low = 0.0,
                                  .high = 100.0,
                                  .digits = 0,
                                  .row_names = depths,
                                  .column_names = lengths,
                                  .x_title = "length, tokens",
                                  .y_title = "depth of the needle",
                                  .bar_title = "needles found, %"};
        dpe_draw_heat(figure, &heat);
    }
    dpe_draw_add_figure(&report->document, figure);
    free(base);
    free(id);
    free(name);
    free(title);
}

dpe_status dpe_comparison_grids(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        if (!dpe_h5_has(input->table, "/eval/niah_grid/mean")) {
            continue;
        }
        struct grid grid;
        status = read_grid(input, &grid, err);
        for (size_t v = 0; status == DPE_OK && v < grid.mean.n; v++) { /* percent */
            grid.mean.values[v] *= 100.0;
            grid.low.values[v] *= 100.0;
            grid.high.values[v] *= 100.0;
        }
        const char **depths = status == DPE_OK ? axis_names(&grid.depth, true) : NULL;
        const char **lengths = status == DPE_OK ? axis_names(&grid.length, false) : NULL;
        if (depths != NULL && lengths != NULL) {
            dpe_draw_add_text(&report->document, BLOCK_SECTION,
                              dpe_input_section_title(report, input, "/eval/niah_grid/mean",
                                                      "One needle by depth and length"));
            dpe_draw_add_text(
                &report->document, BLOCK_TEXT,
                dpe_draw_format_text(
                    "One needle is hidden at a depth of the text (0\u00a0%% is its beginning), and "
                    "a "
                    "question at the end asks for it. Single cells of few samples vary by chance "
                    "(intervals are in the table of numbers); a dark column or band shows where a "
                    "method fails."));
            for (size_t m = 0; m < grid.methods.n; m++) {
                add_map(report, &grid, m, depths, lengths);
            }
        } else if (status == DPE_OK) {
            report->document.failed = true;
        }
        free(depths);
        free(lengths);
        grid_free(&grid);
    }
    return status;
}
