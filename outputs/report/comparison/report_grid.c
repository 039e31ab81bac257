/* One needle by depth and length: a map for each method. */
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
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
    struct dpe_grid_result r;
    size_t n_depths, n_lengths;
    double *percent; /**< [method][depth][length] means */
};

static void grid_free(struct grid *grid)
{
    dpe_datasets_free(&dpe_grid_kind, &grid->r);
    free(grid->percent);
}

static dpe_status read_grid(const struct input *input, struct grid *g, struct dpe_error *err)
{
    *g = (struct grid){.input = input};
    dpe_status status = dpe_input_get(input, &dpe_grid_kind, &g->r, "/eval/niah_grid",
                                      "mean ci_low ci_high n_valid", err);
    g->n_depths = (size_t)g->r.n[DPE_GRID_DEPTH];
    g->n_lengths = (size_t)g->r.n[DPE_GRID_LENGTH];
    size_t n = (size_t)g->r.n[DPE_GRID_METHOD] * g->n_depths * g->n_lengths;
    g->percent = dpe_alloc(n + 1, sizeof *g->percent);
    if (status == DPE_OK && g->percent == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
    }
    for (size_t i = 0; status == DPE_OK && i < n; i++) {
        g->percent[i] = 100.0 * g->r.mean[i].mean;
    }
    return status;
}

static struct sheet *grid_sheet(const struct grid *g, size_t method, const char *id,
                                const char *title)
{
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "depth", COLUMN_NUMBER, 2);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "recall, %", COLUMN_INTERVAL, 1);
    dpe_draw_sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    size_t cells = g->n_depths * g->n_lengths;
    for (size_t i = 0; i < cells; i++) {
        const struct dpe_interval *mean = &g->r.mean[method * cells + i];
        dpe_draw_sheet_number(sheet, g->r.depth[i / g->n_lengths]);
        dpe_draw_sheet_number(sheet, (double)g->r.length[i % g->n_lengths]);
        dpe_draw_sheet_interval(sheet, 100.0 * mean->mean, 100.0 * mean->low, 100.0 * mean->high);
        dpe_draw_sheet_number(sheet, (double)mean->n);
    }
    return sheet;
}

/* "30 %" for depths, "2048" for lengths: pointers followed by their text, owned. */
static const char **axis_names(const struct grid *g, bool depths)
{
    size_t n = depths ? g->n_depths : g->n_lengths;
    size_t list = n * sizeof(char *);
    char *block = dpe_alloc(1, list + n * 32 + 1);
    const char **names = (const char **)(void *)block;
    for (size_t i = 0; block != NULL && i < n; i++) {
        char *text = block + list + i * 32;
        if (depths) {
            snprintf(text, 32, "%.0f %%", g->r.depth[i] * 100.0);
        } else {
            dpe_draw_length_text((double)g->r.length[i], text);
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
    size_t first = method * g->n_depths * g->n_lengths;
    double most = 0.0;
    for (size_t i = 0; i < g->n_depths * g->n_lengths; i++) {
        most = fmax(most, (double)g->r.mean[first + i].n);
    }
    char *name = dpe_draw_clean_text(g->r.method[method], 60);
    char *title =
        name == NULL ? NULL : dpe_draw_format_text("%s: one needle by depth and length", name);
    bool ok = id != NULL && title != NULL;
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, ok ? title : "",
        dpe_draw_format_text("Percentage of needles found, with %.0f sample%s in each cell.", most,
                             most == 1.0 ? "" : "s"),
        ok ? grid_sheet(g, method, id, title) : NULL);
    if (figure != NULL && ok) {
        const struct heat heat = {.n_rows = (int64_t)g->n_depths,
                                  .n_columns = (int64_t)g->n_lengths,
                                  .value = g->percent + first,
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
        const char **depths = status == DPE_OK ? axis_names(&grid, true) : NULL;
        const char **lengths = status == DPE_OK ? axis_names(&grid, false) : NULL;
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
            for (size_t m = 0; m < (size_t)grid.r.n[DPE_GRID_METHOD]; m++) {
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
