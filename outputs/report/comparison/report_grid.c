/* One needle by depth and length: a map for each method. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void add_map(struct report *report, const struct dpe_grid_result *g, size_t method)
{
    const size_t lengths = (size_t)g->n[DPE_GRID_LENGTH];
    const size_t cells = (size_t)g->n[DPE_GRID_DEPTH] * lengths;
    const struct dpe_interval *mean = g->mean + method * cells;
    double most = 0.0;
    char id[32];
    snprintf(id, sizeof id, "grid-%zu", method + 1);
    char *name = dpe_draw_clean_text(g->method[method], 60);
    struct sheet *sheet =
        dpe_report_sheet(report, id, "depth:2|length:0|recall, %:i1|samples:0",
                         "%s: one needle by depth and length", name != NULL ? name : "");
    for (size_t i = 0; i < cells; i++) {
        char depth_text[32];
        struct sheet_cell depth = dpe_number_cell(g->depth[i / lengths]);
        snprintf(depth_text, sizeof depth_text, "%.0f %%", 100.0 * depth.number[0]);
        depth.text = depth_text;
        dpe_draw_row(sheet, depth, dpe_number_cell((double)g->length[i % lengths]),
                     dpe_scaled_cell(&mean[i], 100.0), dpe_number_cell((double)mean[i].n));
        most = fmax(most, (double)mean[i].n);
    }
    const struct plot plot = {.kind = PLOT_HEAT,
                              .x = 1,
                              .value = 2,
                              .high = 100.0,
                              .x_title = "length, tokens",
                              .y_title = "depth of the needle",
                              .bar_title = "needles found, %"};
    dpe_report_figure(report, sheet, &plot,
                      "Percentage of needles found, with %.0f sample%s in each cell.", most,
                      most == 1.0 ? "" : "s");
    free(name);
}

static dpe_status write_grid(struct report *report, const struct input *input,
                             struct dpe_error *err)
{
    struct dpe_grid_result g = {0};
    dpe_status status = dpe_input_get(input, &dpe_grid_kind, &g, "/eval/niah_grid",
                                      "mean ci_low ci_high n_valid", err);
    if (status == DPE_OK) {
        dpe_report_section(report, "One needle by depth and length");
        dpe_report_say(
            report, BLOCK_TEXT,
            "One needle is hidden at a depth of the text (0\u00a0%% is its beginning), and a "
            "question at the end asks for it. Single cells of few samples vary by chance "
            "(intervals are in the table of numbers); a dark column or band shows where a "
            "method fails.");
        for (size_t m = 0; m < (size_t)g.n[DPE_GRID_METHOD]; m++) {
            add_map(report, &g, m);
        }
    }
    dpe_datasets_free(&dpe_grid_kind, &g);
    return status;
}

dpe_status dpe_comparison_grids(struct report *report, struct dpe_error *err)
{
    return dpe_report_each(report, "/eval/niah_grid/mean", NULL, write_grid, err);
}
