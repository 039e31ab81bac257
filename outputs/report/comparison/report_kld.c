/* Divergence of the next token from a base's, by position. */
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdlib.h>

static void add_row(struct sheet *sheet, const char *method, double position,
                    const struct dpe_kld_cell *cell)
{
    dpe_draw_sheet_text(sheet, method);
    dpe_draw_sheet_number(sheet, position);
    dpe_draw_sheet_interval(sheet, cell->mean.mean, cell->mean.low, cell->mean.high);
    dpe_draw_sheet_number(sheet, cell->median);
    dpe_draw_sheet_number(sheet, cell->p99);
    dpe_draw_sheet_number(sheet, cell->p999);
    dpe_draw_sheet_number(sheet, 100.0 * cell->same_top);
    dpe_draw_sheet_number(sheet, 100.0 * cell->change_rms);
    dpe_draw_sheet_number(sheet, cell->ratio.mean);
}

/* Of each position, or of all of them (`whole`). */
static struct sheet *make_sheet(const char *id, const char *title, const struct dpe_kld_result *k,
                                bool whole)
{
    const int64_t buckets = k->n[DPE_KLD_POSITION];
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, whole ? "tokens" : "from position", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "mean", COLUMN_INTERVAL, 5);
    dpe_draw_sheet_column(sheet, "median", COLUMN_NUMBER, 5);
    dpe_draw_sheet_column(sheet, "99 %", COLUMN_NUMBER, 4);
    dpe_draw_sheet_column(sheet, "99.9 %", COLUMN_NUMBER, 4);
    dpe_draw_sheet_column(sheet, "same top token, %", COLUMN_NUMBER, 2);
    dpe_draw_sheet_column(sheet, "RMS change of p, %", COLUMN_NUMBER, 2);
    dpe_draw_sheet_column(sheet, "perplexity / base", COLUMN_NUMBER, 4);
    for (int64_t m = 0; m < k->n[DPE_KLD_METHOD]; m++) {
        if (whole) {
            add_row(sheet, k->method[m], (double)k->whole[m].n, &k->whole[m]);
        }
        for (int64_t b = 0; b < buckets && !whole; b++) {
            add_row(sheet, k->method[m], (double)k->position[b], &k->at[m * buckets + b]);
        }
    }
    return sheet;
}

/* What is less is rounding, and would stretch a logarithmic axis. */
static const double least_drawn = 1e-9;

/* Points [method][bucket] of the curves. */
static void draw(struct figure *figure, const struct dpe_kld_result *k)
{
    const size_t methods = (size_t)k->n[DPE_KLD_METHOD];
    const size_t buckets = (size_t)k->n[DPE_KLD_POSITION];
    const size_t n = methods * buckets;
    double *values = dpe_alloc(4, n * sizeof *values);
    struct curve *curves = dpe_alloc_zero(methods, sizeof *curves);
    bool any = false;
    for (size_t i = 0; i < n && values != NULL; i++) {
        const struct dpe_interval *mean = &k->at[i].mean;
        const bool there = mean->mean >= least_drawn;
        any = any || there;
        values[i] = (double)k->position[i % buckets];
        values[n + i] = there ? mean->mean : (double)NAN;
        values[2 * n + i] = there && mean->low >= least_drawn ? mean->low : (double)NAN;
        values[3 * n + i] = there && mean->low >= least_drawn ? mean->high : (double)NAN;
    }
    for (size_t m = 0; m < methods && curves != NULL && values != NULL; m++) {
        const double *x = values + m * buckets;
        curves[m] = (struct curve){.name = k->method[m],
                                   .n = (int64_t)buckets,
                                   .x = x,
                                   .y = x + n,
                                   .low = x + 2 * n,
                                   .high = x + 3 * n};
    }
    if (figure != NULL && curves != NULL && values != NULL && any) {
        const struct curves all = {.curves = curves,
                                   .n = methods,
                                   .log_x = true,
                                   .log_y = true,
                                   .y_low = (double)NAN,
                                   .y_high = (double)NAN,
                                   .x_title = "position of the token",
                                   .y_title = "KL(base, method), nats",
                                   .x_line = (double)NAN};
        dpe_draw_curves(figure, &all);
    }
    free(curves);
    free(values);
}

static dpe_status add_divergence(struct report *report, const struct input *input,
                                 struct dpe_error *err)
{
    struct dpe_kld_result k = {0};
    dpe_status status = dpe_input_get(input, &dpe_kld_kind, &k, "/kld", NULL, err);
    if (status == DPE_OK) {
        char *whole = dpe_input_report_id(report, input, "/kld/method", "divergence");
        char *by = dpe_input_report_id(report, input, "/kld/method", "divergence-by-position");
        char *base = dpe_input_read_words(input, "/kld", "base");
        dpe_draw_add_text(
            &report->document, BLOCK_SECTION,
            dpe_input_section_title(report, input, "/kld/method", "Divergence from the base"));
        dpe_input_add_unfinished(report, input);
        dpe_draw_add_text(&report->document, BLOCK_TEXT,
                          dpe_draw_format_text(
                              "How far the distribution of the next token is from that of the base "
                              "(%s), after every token of the same texts: the Kullback-Leibler "
                              "divergence in nats, 0 where both agree. 95 %% intervals over texts.",
                              base != NULL ? base : "rope"));
        dpe_draw_add_sheet(&report->document, make_sheet(whole, "Over all tokens", &k, true));
        struct figure *figure =
            by == NULL
                ? NULL
                : dpe_draw_figure_new(by, "Divergence by position",
                                      dpe_draw_format_text("Mean over the tokens from each power "
                                                           "of two of positions to the next; less "
                                                           "than %g is not drawn.",
                                                           least_drawn),
                                      make_sheet(by, "Divergence by position", &k, false));
        draw(figure, &k);
        dpe_draw_add_figure(&report->document, figure);
        free(whole);
        free(by);
        free(base);
    }
    dpe_datasets_free(&dpe_kld_kind, &k);
    return status;
}

dpe_status dpe_comparison_divergences(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/kld/method")) {
            status = add_divergence(report, &report->inputs[i], err);
        }
    }
    return status;
}
