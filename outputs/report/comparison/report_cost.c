/* A comparison's recall, or perplexity, over the time that a sample takes. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/rows/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Mean seconds of the samples of every method and task, [method][task]; NaN: none was timed. */
static dpe_status read_seconds(const struct suite *s, double *seconds, struct dpe_error *err)
{
    size_t cells = s->methods.n * s->labels.n;
    struct names plans = {0};
    struct names tasks = {0};
    struct dpe_row *rows = NULL;
    size_t n = 0;
    char *plan = dpe_draw_format_text("/eval/%s/plan", s->name);
    char *task = dpe_draw_format_text("/eval/%s/task", s->name);
    double *count = dpe_alloc_zero(cells + 1, sizeof *count);
    dpe_status status = plan != NULL && task != NULL && count != NULL
                            ? dpe_input_read_names(s->input, plan, (int64_t)cells, &plans, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", s->input->path);
    if (status == DPE_OK) {
        status = dpe_input_read_names(s->input, task, (int64_t)s->labels.n, &tasks, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_get_rows(s->input->table, &rows, &n, err);
    }
    for (size_t i = 0; i < cells; i++) {
        seconds[i] = 0.0;
    }
    for (size_t r = 0; r < n; r++) {
        const struct dpe_row *row = &rows[r];
        for (size_t i = 0; i < cells && row->status == DPE_ROW_OK && row->seconds >= 0.0; i++) {
            if (strcmp(plans.names[i], row->plan) == 0 &&
                strcmp(tasks.names[i % s->labels.n], row->task) == 0) {
                seconds[i] += row->seconds;
                count[i] += 1.0;
            }
        }
        dpe_row_free(&rows[r]);
    }
    for (size_t i = 0; i < cells && status == DPE_OK; i++) {
        seconds[i] = count[i] > 0.0 ? seconds[i] / count[i] : (double)NAN;
    }
    free(rows);
    free(count);
    free(plan);
    free(task);
    dpe_input_names_free(&plans);
    dpe_input_names_free(&tasks);
    return status;
}

static struct sheet *numbers(const struct suite *s, const char *id, const char *title,
                             const double *seconds, double scale)
{
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "seconds of a sample", COLUMN_NUMBER, 3);
    dpe_draw_sheet_column(sheet, s->low_is_better ? "perplexity" : "recall, %", COLUMN_INTERVAL,
                          s->low_is_better ? 3 : 1);
    for (size_t i = 0; i < s->methods.n * s->labels.n; i++) {
        dpe_draw_sheet_text(sheet, s->methods.names[i / s->labels.n]);
        dpe_draw_sheet_number(sheet, s->lengths.values[i % s->labels.n]);
        dpe_draw_sheet_number(sheet, seconds[i]);
        dpe_draw_sheet_interval(sheet, scale * s->values.mean.values[i],
                                scale * s->values.low.values[i], scale * s->values.high.values[i]);
    }
    if (sheet != NULL) {
        sheet->shown = 60;
    }
    return sheet;
}

/* Methods that are better at the last task; more lines than these cannot be distinguished. */
enum { MANY = 8 };

static size_t better(const struct suite *s, const double *value, size_t method)
{
    size_t last = s->labels.n - 1;
    double own = value[method * s->labels.n + last];
    size_t n = 0;
    for (size_t m = 0; m < s->methods.n; m++) {
        double other = value[m * s->labels.n + last];
        bool above = s->low_is_better ? other < own : other > own;
        n += above || isnan(own) || (other == own && m < method);
    }
    return n;
}

/* One line for each method through its lengths. */
static void draw(struct figure *figure, const struct suite *s, const double *seconds,
                 const double *value, struct curve *all)
{
    size_t n = 0;
    for (size_t m = 0; m < s->methods.n; m++) {
        if (better(s, value, m) < MANY) {
            all[n++] = (struct curve){.name = s->methods.names[m],
                                      .n = (int64_t)s->labels.n,
                                      .strong = dpe_comparison_method_is_dpe(s->methods.names[m]),
                                      .x = seconds + m * s->labels.n,
                                      .y = value + m * s->labels.n};
        }
    }
    const struct curves curves = {.curves = all,
                                  .n = n,
                                  .log_x = true,
                                  .log_y = s->low_is_better,
                                  .y_low = s->low_is_better ? (double)NAN : -2.0,
                                  .y_high = s->low_is_better ? (double)NAN : 104.0,
                                  .x_title = "seconds of a sample",
                                  .y_title = s->low_is_better ? "perplexity per token" : "recall, %",
                                  .x_line = (double)NAN};
    dpe_draw_curves(figure, &curves);
}

dpe_status dpe_comparison_suite_cost(struct report *report, const struct suite *s,
                                     struct dpe_error *err)
{
    size_t cells = s->methods.n * s->labels.n;
    double scale = s->low_is_better ? 1.0 : 100.0;
    if (s->methods.n < 2 || !dpe_comparison_suite_is_single(s) ||
        !dpe_h5_has(s->input->table, "/run/seconds")) {
        return DPE_OK;
    }
    double *seconds = dpe_alloc(2 * cells, sizeof *seconds);
    struct curve *all = dpe_alloc_zero(s->methods.n, sizeof *all);
    char *id = dpe_comparison_suite_id(report, s, "time");
    dpe_status status = seconds != NULL && all != NULL && id != NULL
                            ? read_seconds(s, seconds, err)
                            : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", s->input->path);
    for (size_t i = 0; i < cells && status == DPE_OK; i++) {
        seconds[cells + i] = scale * s->values.mean.values[i];
    }
    if (status == DPE_OK) {
        const char *title = s->low_is_better ? "Perplexity over time" : "Needles found over time";
        struct figure *figure = dpe_draw_figure_new(
            id, title,
            dpe_draw_format_text(
                "One line for each method (of more than eight, for the eight that are best at the last "
                "length), one point for each length: the mean time of a sample, its answer included, "
                "and what was found. %s is better. Times depend on the machine and "
                "on what else it does.",
                s->low_is_better ? "Further left and further down" : "Further left and further up"),
            numbers(s, id, title, seconds, scale));
        if (figure != NULL) {
            draw(figure, s, seconds, seconds + cells, all);
        }
        dpe_draw_add_figure(&report->document, figure);
    }
    free(seconds);
    free(all);
    free(id);
    return status;
}
