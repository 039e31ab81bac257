/* Figures of a comparison: over lengths, at the longest one, by task, by position. */
#include "engine/base/base.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What values are multiplied by: shares are shown in percent. */
static double scale_of(const struct suite *s)
{
    return s->low_is_better ? 1.0 : 100.0;
}

/* Every value with its interval: method, task, length. */
static struct sheet *values_sheet(const struct suite *s, const char *id, const char *title)
{
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "task", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, s->low_is_better ? "perplexity" : "score, %", COLUMN_INTERVAL,
                          s->low_is_better ? 3 : 1);
    dpe_draw_sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        dpe_draw_sheet_text(sheet, s->r.method[i / s->n_tasks]);
        dpe_draw_sheet_mark(sheet, MARK_SERIES);
        dpe_draw_sheet_text(sheet, s->r.task_label[i % s->n_tasks]);
        dpe_draw_sheet_number(sheet, (double)s->r.task_length[i % s->n_tasks]);
        dpe_draw_sheet_interval(sheet, scale_of(s) * s->r.mean[i].mean,
                                scale_of(s) * s->r.mean[i].low,
                                scale_of(s) * s->r.mean[i].high);
        dpe_draw_sheet_number(sheet, (double)s->r.mean[i].n);
    }
    if (sheet != NULL) {
        sheet->shown = 60;
    }
    return sheet;
}

/* Values of the tasks with the first label in order of length: x, mean, low, high, each [n]. */
static size_t *by_length(const struct suite *s, size_t *n)
{
    size_t *order = dpe_alloc(s->n_tasks, sizeof *order);
    *n = 0;
    for (size_t t = 0; order != NULL && t < s->n_tasks; t++) {
        if (strcmp(s->r.task_label[t], s->r.task_label[0]) != 0) {
            continue;
        }
        size_t k = (*n)++;
        for (; k > 0 && (double)s->r.task_length[order[k - 1]] > (double)s->r.task_length[t]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = t;
    }
    return order;
}

/* Lines of more methods than these cannot be distinguished. */
enum { MANY = 8 };

/* Methods × lengths, or positions: a map in place of lines. `percent`: values are percent. */
static void draw_map(struct figure *figure, const struct suite *s, const double *x, size_t n,
                     double *value, const char *x_title, bool percent)
{
    char text[32][32];
    const char *columns[32];
    for (size_t i = 0; i < n && i < 32; i++) {
        columns[i] = dpe_draw_length_text(x[i], text[i]);
    }
    const struct heat heat = {.n_rows = (int64_t)s->n_methods,
                              .n_columns = (int64_t)(n < 32 ? n : 32),
                              .value = value,
                              .low = s->low_is_better ? (double)NAN : 0.0,
                              .high = s->low_is_better ? (double)NAN
                                      : percent        ? 100.0
                                                       : 1.0,
                              .log = s->low_is_better,
                              .low_is_good = s->low_is_better,
                              .digits = percent ? 0 : 2,
                              .row_names = (const char *const *)s->r.method,
                              .column_names = columns,
                              .x_title = x_title,
                              .y_title = "method",
                              .bar_title = s->low_is_better ? "perplexity"
                                           : percent        ? "percent"
                                                            : "recall"};
    dpe_draw_heat(figure, &heat);
}

/* Every method's value at every length, lengths in order. */
static void add_lengths_map(struct report *report, const struct suite *s)
{
    size_t n = 0;
    size_t *order = by_length(s, &n);
    double *value = dpe_alloc(n * s->n_methods + 1, sizeof *value);
    double *x = dpe_alloc(n + 1, sizeof *x);
    char *id = dpe_comparison_suite_id(report, s, "lengths");
    const char *title = s->low_is_better ? "Perplexity by length" : "Needles found by length";
    bool ok = order != NULL && value != NULL && x != NULL && id != NULL;
    n = n < 32 ? n : 32;
    for (size_t i = 0; ok && i < n * s->n_methods; i++) {
        size_t task = order[i % n];
        x[i % n] = (double)s->r.task_length[task];
        value[i] = scale_of(s) * s->r.mean[i / n * s->n_tasks + task].mean;
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, title,
        dpe_draw_format_text("%s Intervals are in the table of numbers.",
                             s->low_is_better
                                 ? "Lower is better and brighter; the colour scale is logarithmic."
                                 : "A row that stays bright further to the right is a method that "
                                   "works at longer lengths."),
        ok ? values_sheet(s, id, title) : NULL);
    if (figure != NULL && ok) {
        draw_map(figure, s, x, n, value, "length, tokens", !s->low_is_better);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(order);
    free(value);
    free(x);
    free(id);
}

static void add_lengths(struct report *report, const struct suite *s)
{
    size_t n = 0;
    size_t *order = by_length(s, &n);
    double *block = dpe_alloc(n * s->n_methods + 1, 4 * sizeof *block);
    struct curve *all = dpe_alloc_zero(s->n_methods, sizeof *all);
    char *id = dpe_comparison_suite_id(report, s, "lengths");
    const char *title = s->low_is_better ? "Perplexity by length" : "Needles found by length";
    bool ok = order != NULL && block != NULL && all != NULL && id != NULL;
    for (size_t m = 0; ok && m < s->n_methods; m++) {
        double *x = block + 4 * n * m;
        all[m] = (struct curve){.name = s->r.method[m],
                                .n = (int64_t)n,
                                .strong = dpe_comparison_method_is_dpe(s->r.method[m]),
                                .x = x,
                                .y = x + n,
                                .low = x + 2 * n,
                                .high = x + 3 * n};
        for (size_t i = 0; i < n; i++) {
            size_t at = m * s->n_tasks + order[i];
            x[i] = (double)s->r.task_length[order[i]];
            x[n + i] = scale_of(s) * s->r.mean[at].mean;
            x[2 * n + i] = scale_of(s) * s->r.mean[at].low;
            x[3 * n + i] = scale_of(s) * s->r.mean[at].high;
        }
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, title,
        dpe_draw_format_text("One line for each method, with 95\u00a0%% intervals. The length axis "
                             "is logarithmic. Marks are shifted sideways a little so that "
                             "intervals do not hide each other. %s",
                             s->low_is_better ? "Lower is better; the scale is logarithmic."
                                              : "A line that stays high is a method that works at "
                                                "longer lengths."),
        ok ? values_sheet(s, id, title) : NULL);
    if (figure != NULL && ok) {
        const struct curves curves = {
            .curves = all,
            .n = s->n_methods,
            .log_x = true,
            .log_y = s->low_is_better,
            .y_low = s->low_is_better ? (double)NAN : -2.0,
            .y_high = s->low_is_better ? (double)NAN : 104.0,
            .x_title = "length, tokens",
            .y_title = s->low_is_better ? "perplexity per token" : "recall, %",
            .x_line = (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
            .x_line_title = "trained length"};
        dpe_draw_curves(figure, &curves);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(order);
    free(block);
    free(all);
    free(id);
}

static void add_dots(struct report *report, const struct suite *s)
{
    double length = dpe_comparison_suite_longest(s);
    int64_t task = dpe_comparison_suite_task(s, s->r.task_label[0], length);
    double *block = dpe_alloc(s->n_methods, 3 * sizeof *block);
    unsigned char *strong = dpe_alloc(s->n_methods, 1);
    char *id = dpe_comparison_suite_id(report, s, "methods");
    char tokens[32];
    dpe_draw_length_text(length, tokens);
    char *title = dpe_draw_format_text("%s at %s tokens",
                                       s->low_is_better ? "Perplexity" : "Needles found", tokens);
    bool ok = block != NULL && strong != NULL && id != NULL && title != NULL;
    for (size_t m = 0; ok && task >= 0 && m < s->n_methods; m++) {
        size_t at = m * s->n_tasks + (size_t)task;
        block[m] = scale_of(s) * s->r.mean[at].mean;
        block[s->n_methods + m] = scale_of(s) * s->r.mean[at].low;
        block[2 * s->n_methods + m] = scale_of(s) * s->r.mean[at].high;
        strong[m] = dpe_comparison_method_is_dpe(s->r.method[m]);
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, ok ? title : "",
        dpe_draw_format_text(
            "Each method on the same samples, with its 95\u00a0%% interval. Whether two methods "
            "differ is not visible from these intervals; the table of paired differences below "
            "compares them sample by sample."),
        ok ? values_sheet(s, id, title) : NULL);
    if (figure != NULL && ok && task >= 0) {
        const struct dots dots = {.n = s->n_methods,
                                  .names = (const char *const *)s->r.method,
                                  .value = block,
                                  .low = block + s->n_methods,
                                  .high = block + 2 * s->n_methods,
                                  .strong = strong,
                                  .methods = true,
                                  .x_low = s->low_is_better ? (double)NAN : 0.0,
                                  .x_high = s->low_is_better ? (double)NAN : 100.0,
                                  .log = s->low_is_better,
                                  .digits = s->low_is_better ? 2 : 1,
                                  .x_title = s->low_is_better ? dpe_comparison_suite_unit(s)
                                                              : "percent of what was expected"};
        dpe_draw_dots(figure, &dots);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(block);
    free(strong);
    free(id);
    free(title);
}

/* --------------------------------------------------------------------------------- many tasks */

/* Methods × tasks at the longest length. */
static void add_tasks(struct report *report, const struct suite *s)
{
    double length = dpe_comparison_suite_longest(s);
    const char **columns = dpe_alloc(s->n_tasks, sizeof *columns);
    double *value = dpe_alloc(s->n_methods * s->n_tasks + 1, sizeof *value);
    char *id = dpe_comparison_suite_id(report, s, "tasks");
    char tokens[32];
    dpe_draw_length_text(length, tokens);
    char *title =
        dpe_draw_format_text("%s at %s tokens, by task", dpe_comparison_suite_title(s), tokens);
    bool ok = columns != NULL && value != NULL && id != NULL && title != NULL;
    size_t n = 0;
    for (size_t t = 0; ok && t < s->n_tasks; t++) {
        if ((double)s->r.task_length[t] == length) {
            columns[n++] = s->r.task_label[t];
        }
    }
    for (size_t m = 0; ok && m < s->n_methods; m++) {
        for (size_t c = 0; c < n; c++) {
            int64_t task = dpe_comparison_suite_task(s, columns[c], length);
            value[c * s->n_methods + m] =
                s->r.mean[m * s->n_tasks + (size_t)task].mean * 100.0;
        }
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, ok ? title : "",
        dpe_draw_format_text("Percentage of the expected answers that the model gives, for each "
                             "task (row) and method (column, in the order of the table below). "
                             "Intervals are in the table of numbers."),
        ok ? values_sheet(s, id, title) : NULL);
    if (figure != NULL && ok) {
        const struct heat heat = {.n_rows = (int64_t)n,
                                  .n_columns = (int64_t)s->n_methods,
                                  .value = value,
                                  .low = 0.0,
                                  .high = 100.0,
                                  .digits = 0,
                                  .row_names = columns,
                                  .column_names = (const char *const *)s->r.method,
                                  .x_title = "method",
                                  .y_title = "task",
                                  .bar_title = "percent"};
        dpe_draw_heat(figure, &heat);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(columns);
    free(value);
    free(id);
    free(title);
}

static void add_categories(struct report *report, const struct suite *s)
{
    size_t lengths = s->n_category_lengths;
    char *id = dpe_comparison_suite_id(report, s, "categories");
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, "By category, percent");
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    for (size_t c = 0; c < s->n_categories; c++) {
        dpe_draw_sheet_column(sheet, s->r.category[c], COLUMN_NUMBER, 2);
    }
    for (size_t m = 0; m < s->n_methods; m++) {
        for (size_t l = 0; l < lengths; l++) {
            dpe_draw_sheet_text(sheet, s->r.method[m]);
            dpe_draw_sheet_number(sheet, (double)s->r.category_length[l]);
            for (size_t c = 0; c < s->n_categories; c++) {
                dpe_draw_sheet_number(
                    sheet,
                    s->r.category_mean[(m * s->n_categories + c) * lengths + l] * 100.0);
            }
        }
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

static struct sheet *overall_sheet(const struct suite *s, const char *id, const char *title,
                                   const double *value)
{
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "overall, percent", COLUMN_NUMBER, 2);
    for (size_t i = 0; i < s->n_methods * s->n_category_lengths; i++) {
        dpe_draw_sheet_text(sheet, s->r.method[i / s->n_category_lengths]);
        dpe_draw_sheet_number(sheet, (double)s->r.category_length[i % s->n_category_lengths]);
        dpe_draw_sheet_number(sheet, value[i]);
    }
    return sheet;
}

/* The mean of all tasks over lengths; it is the last category. */
static void add_overall(struct report *report, const struct suite *s)
{
    size_t n = s->n_category_lengths;
    double *value = dpe_alloc(s->n_methods * n, sizeof *value);
    struct curve *all = dpe_alloc_zero(s->n_methods, sizeof *all);
    char *id = dpe_comparison_suite_id(report, s, "lengths");
    char *title =
        dpe_draw_format_text("%s, mean of the tasks by length", dpe_comparison_suite_title(s));
    bool ok = value != NULL && all != NULL && id != NULL && title != NULL;
    for (size_t m = 0; ok && m < s->n_methods; m++) {
        const double *own = s->r.category_mean + ((m + 1) * s->n_categories - 1) * n;
        for (size_t l = 0; l < n; l++) {
            value[m * n + l] = own[l] * 100.0;
        }
        all[m] = (struct curve){.name = s->r.method[m],
                                .n = (int64_t)n,
                                .strong = dpe_comparison_method_is_dpe(s->r.method[m]),
                                .x = s->category_lengths,
                                .y = value + m * n};
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, ok ? title : "",
        dpe_draw_format_text(
            "One line for each method. A mean of tasks has no interval: those of the tasks "
            "are in the table below."),
        ok ? overall_sheet(s, id, title, value) : NULL);
    if (figure != NULL && ok && s->n_methods > MANY) {
        draw_map(figure, s, s->category_lengths, n, value, "length, tokens", true);
    } else if (figure != NULL && ok) {
        const struct curves curves = {
            .curves = all,
            .n = s->n_methods,
            .log_x = true,
            .y_low = 0.0,
            .y_high = (double)NAN,
            .x_title = "length, tokens",
            .y_title = "mean score, percent",
            .x_line = (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
            .x_line_title = "trained length"};
        dpe_draw_curves(figure, &curves);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(value);
    free(all);
    free(id);
    free(title);
}

/* ------------------------------------------------------------------------------------- by position
 */

static struct sheet *positions_sheet(const struct suite *s, size_t task, const char *id,
                                     const char *title)
{
    size_t n = s->n_positions;
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "from position", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "perplexity", COLUMN_NUMBER, 3);
    for (size_t i = 0; i < s->n_methods * n; i++) {
        dpe_draw_sheet_text(sheet, s->r.method[i / n]);
        dpe_draw_sheet_number(sheet, (double)s->r.position[i % n]);
        dpe_draw_sheet_number(sheet,
                              s->r.position_mean[(i / n * s->n_tasks + task) * n + i % n]);
    }
    if (sheet != NULL) {
        sheet->shown = 80;
    }
    return sheet;
}

/* `value` [method][n − first] begins at position `first`. */
static void draw_positions(struct figure *figure, const struct suite *s, size_t first,
                           double *value, struct curve *all)
{
    size_t n = s->n_positions - first;
    if (s->n_methods > MANY) {
        draw_map(figure, s, s->positions + first, n, value, "from position, tokens", false);
        return;
    }
    for (size_t m = 0; m < s->n_methods; m++) {
        all[m] = (struct curve){.name = s->r.method[m],
                                .n = (int64_t)n,
                                .strong = dpe_comparison_method_is_dpe(s->r.method[m]),
                                .x = s->positions + first,
                                .y = value + m * n};
    }
    const struct curves curves = {
        .curves = all,
        .n = s->n_methods,
        .log_x = true,
        .log_y = true,
        .y_low = (double)NAN,
        .y_high = (double)NAN,
        .x_title = "position in the text, tokens",
        .y_title = "perplexity per token",
        .x_line = (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
        .x_line_title = "trained length"};
    dpe_draw_curves(figure, &curves);
}

static void add_positions(struct report *report, const struct suite *s)
{
    /* The first tokens have no context: their perplexity of thousands would flatten the rest. */
    size_t first = s->n_positions > 6 ? 3 : 0;
    size_t n = s->n_positions - first;
    size_t task =
        (size_t)dpe_comparison_suite_task(s, s->r.task_label[0], dpe_comparison_suite_longest(s));
    struct curve *all = dpe_alloc_zero(s->n_methods, sizeof *all);
    double *value = dpe_alloc(s->n_methods * n + 1, sizeof *value);
    char *id = dpe_comparison_suite_id(report, s, "positions");
    const char *title = "Perplexity by position in the text";
    bool ok = all != NULL && value != NULL && id != NULL;
    for (size_t i = 0; ok && i < s->n_methods * n; i++) {
        const double *own = s->r.position_mean + (i / n * s->n_tasks + task) * s->n_positions;
        value[i] = own[first + i % n];
    }
    struct figure *figure = dpe_draw_figure_new(
        ok ? id : NULL, title,
        dpe_draw_format_text("Tokens are put together by where they stand: the perplexity of "
                             "those from a position to twice it (the very first have no context "
                             "and are in the numbers only). More context should lower it; where "
                             "it rises a method ceases to work. No intervals are kept by "
                             "position: small steps may be chance."),
        ok ? positions_sheet(s, task, id, title) : NULL);
    if (figure != NULL && ok) {
        draw_positions(figure, s, first, value, all);
    }
    report->document.failed = report->document.failed || !ok;
    dpe_draw_add_figure(&report->document, figure);
    free(all);
    free(value);
    free(id);
}

void dpe_comparison_suite_figures(struct report *report, const struct suite *s)
{
    if (!dpe_comparison_suite_is_single(s)) {
        if (s->n_category_lengths > 0) {
            add_categories(report, s);
        }
        add_tasks(report, s);
        if (s->n_category_lengths > 1 && s->n_category_lengths > 0) {
            add_overall(report, s);
        }
        return;
    }
    size_t n = 0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        n += dpe_comparison_suite_first_length(s, t);
    }
    if (n > 1 && s->n_methods > MANY) {
        add_lengths_map(report, s);
    } else if (n > 1) {
        add_lengths(report, s);
    }
    add_dots(report, s);
    if (s->low_is_better && s->n_positions > 0 &&
        dpe_comparison_suite_task(s, s->r.task_label[0], dpe_comparison_suite_longest(s)) >= 0) {
        add_positions(report, s);
    }
}
