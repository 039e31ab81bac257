/* A comparison's recall, or perplexity, over the time that a sample takes and over the memory that
 * it needs. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mean seconds of the samples of every method and task, [method][task]; NaN: none was timed. False
 * after a failure. */
static bool read_seconds(struct dpe_report *report, const struct dpe_report_suite *s,
                         double *seconds)
{
    const size_t cells = s->n_methods * s->n_tasks;
    double *count = dpe_report_alloc(report, cells + 1, sizeof *count);
    struct dpe_row *rows = NULL;
    size_t n = 0;
    if (count == NULL ||
        !dpe_report_ok(report, dpe_h5_get_rows(s->input->table, &rows, &n, report->err))) {
        return false;
    }
    for (size_t r = 0; r < n; r++) {
        const struct dpe_row *row = &rows[r];
        for (size_t i = 0; i < cells && row->status == DPE_ROW_OK && row->seconds >= 0.0; i++) {
            if (strcmp(s->r->plan[i], row->plan) == 0 &&
                strcmp(s->r->task[i % s->n_tasks], row->task) == 0) {
                seconds[i] += row->seconds;
                count[i] += 1.0;
            }
        }
        dpe_row_free(&rows[r]);
    }
    for (size_t i = 0; i < cells; i++) {
        seconds[i] = count[i] > 0.0 ? seconds[i] / count[i] : (double)NAN;
    }
    free(rows);
    return true;
}

/* What values are drawn over. */
struct cost {
    const char *id, *title,
        *column;             /**< of the figure, the end of its title, of its numbers and axis */
    const char *what, *note; /**< parts of its caption */
    int digits;
};

/* More lines than these cannot be distinguished. */
enum { MANY = 8 };

/* The figure of costs [method][task]: one line for each method through its lengths. */
static void add_figure(struct dpe_report *report, const struct dpe_report_suite *s,
                       const struct cost *cost, const double *costs)
{
    struct dpe_plot plot = dpe_comparison_suite_plot(s, PLOT_CURVES);
    char columns[96];
    plot.x = 2;
    plot.bare = true;
    plot.x_title = cost->column;
    plot.x_line_title = NULL;
    snprintf(columns, sizeof columns, "method:t|length:0|%s:%d|%s", cost->column, cost->digits,
             s->low_is_better ? "perplexity:i3" : "recall, %:i1");
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, cost->id, columns, "%s over %s",
                         s->low_is_better ? "Perplexity" : "Needles found", cost->title);
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        const size_t m = i / s->n_tasks;
        dpe_draw_row(sheet, s->r->method[m], s->r->task_length[i % s->n_tasks], costs[i],
                     dpe_comparison_suite_cell(s, m, i % s->n_tasks));
        dpe_draw_row_mark(
            sheet, (dpe_comparison_suite_rank(s, m, s->n_tasks - 1) < MANY ? 0 : ROW_UNDRAWN) |
                       (dpe_worth_is_table(s->r->method[m]) ? ROW_STRONG : 0));
    }
    dpe_draw_shown(sheet, 60, false);
    dpe_report_figure(
        report, sheet, &plot,
        s->n_tasks > 1 ? "One line for each method%s, one point for each length: %s, and "
                         "what was found. %s is better. %s"
                       : "One point for each method%s: %s, and what was found. %s is better. %s",
        s->n_methods <= MANY ? ""
        : s->n_tasks > 1     ? " of the eight that are best at the last length"
                             : " of the eight best",
        cost->what,
        s->low_is_better ? "Further left and further down" : "Further left and further up",
        cost->note);
}

static const struct cost of_time = {"time",
                                    "time",
                                    "seconds of a sample",
                                    "the mean time of a sample, its answer included",
                                    "Times depend on the machine and on what else it does.",
                                    3};
static const struct cost of_memory = {
    "memory",
    "memory",
    "MiB of a sample",
    "what one text of that length needs beside the weights (keys, values, what a selection keeps, "
    "tables, activations; one thread)",
    "It is computed from the model, the method and the length.",
    1};

/* The largest over the smallest of those that are known. */
static double spread(const double *costs, size_t n)
{
    double low = (double)INFINITY;
    double high = 0.0;
    for (size_t i = 0; i < n; i++) {
        low = costs[i] > 0.0 ? fmin(low, costs[i]) : low;
        high = costs[i] > 0.0 ? fmax(high, costs[i]) : high;
    }
    return low > 0.0 ? high / low : 1.0;
}

void dpe_comparison_suite_cost(struct dpe_report *report, const struct dpe_report_suite *s)
{
    const size_t cells = s->n_methods * s->n_tasks;
    double *costs = dpe_report_alloc(report, cells, sizeof *costs);
    if (costs == NULL || s->n_methods < 2 || !s->single) {
        return;
    }
    /* With one length there is no line, and the table of times says the same. */
    if (s->n_tasks > 1 && s->r->plan != NULL && s->r->task != NULL &&
        dpe_h5_has(s->input->table, "/run/seconds") && read_seconds(report, s, costs)) {
        add_figure(report, s, &of_time, costs);
    }
    for (size_t i = 0; i < cells && s->r->memory != NULL; i++) {
        double bytes = (double)s->r->memory[i];
        costs[i] = bytes > 0.0 ? bytes / 0x1p20 : (double)NAN;
    }
    /* Methods that need the same differ in nothing here. */
    if (report->status == DPE_OK && s->r->memory != NULL &&
        (s->n_tasks > 1 || spread(costs, cells) > 1.05)) {
        add_figure(report, s, &of_memory, costs);
    }
}
