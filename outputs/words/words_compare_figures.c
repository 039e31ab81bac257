/* Figures of a comparison: over lengths, at the longest one, by task, by position, over what it
 * costs. */
#include "outputs/datasets/worth.h"
#include "outputs/words/words_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void mark_row(struct dpe_sheet *sheet, const struct dpe_suite_words *s, size_t method,
                     bool drawn)
{
    dpe_draw_row_mark(sheet, (dpe_worth_is_table(s->r->method[method]) ? ROW_STRONG : 0) |
                                 (drawn ? 0 : ROW_UNDRAWN));
}

/* Every value with its interval: method, task, length. Drawn are those of a label (NULL: of all) at
 * a length (0: at all). */
static struct dpe_sheet *fill_values(struct dpe_sheet *sheet, const struct dpe_suite_words *s,
                                     const char *label, double length)
{
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        const size_t task = i % s->n_tasks;
        const double tokens = (double)s->r->task_length[task];
        dpe_draw_row(sheet, s->r->method[i / s->n_tasks], s->r->task_label[task], tokens,
                     dpe_words_cell(s, i / s->n_tasks, task), s->r->mean[i].n);
        mark_row(sheet, s, i / s->n_tasks,
                 (label == NULL || strcmp(s->r->task_label[task], label) == 0) &&
                     (length <= 0.0 || tokens == length));
    }
    dpe_draw_shown(sheet, 60, false);
    return sheet;
}

/* A value of each method at each of n x, `stride` from method to method; drawn from `first` on. */
static void fill_lines(struct dpe_sheet *sheet, const struct dpe_suite_words *s, const int64_t *x,
                       size_t n, const double *value, size_t stride, double scale, size_t first)
{
    for (size_t i = 0; i < s->n_methods * n; i++) {
        dpe_draw_row(sheet, s->r->method[i / n], x[i % n], scale * value[i / n * stride + i % n]);
        mark_row(sheet, s, i / n, i % n >= first);
    }
}

static const char *value_columns(const struct dpe_suite_words *s)
{
    return s->low_is_better ? "method:@|task:t|length:0|perplexity:i3|samples:0"
                            : "method:@|task:t|length:0|score, %:i1|samples:0";
}

/* Lines of more methods than these cannot be distinguished: a map takes their place. */
enum { MANY = 8 };

static void add_lengths(struct dpe_page *page, const struct dpe_suite_words *s)
{
    const bool many = s->n_methods > MANY;
    struct dpe_plot plot = dpe_words_plot(s, many ? PLOT_HEAT : PLOT_CURVES);
    plot.x = 2;
    plot.sorted = true;
    plot.digits = s->low_is_better ? 2 : 0;
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "lengths", value_columns(s), "%s",
                       s->low_is_better ? "Perplexity by length" : "Needles found by length");
    fill_values(sheet, s, s->r->task_label[0], 0.0);
    if (many) {
        dpe_page_figure(page, sheet, &plot, "%s Intervals are in the table of numbers.",
                        s->low_is_better
                            ? "Lower is better and brighter; the colour scale is logarithmic."
                            : "A row that stays bright further to the right is a method that "
                              "works at longer lengths.");
        return;
    }
    dpe_page_figure(page, sheet, &plot,
                    "One line for each method, with 95\u00a0%% intervals. The length axis "
                    "is logarithmic. Marks are shifted sideways a little so that "
                    "intervals do not hide each other. %s",
                    s->low_is_better
                        ? "Lower is better; the scale is logarithmic."
                        : "A line that stays high is a method that works at longer lengths.");
}

static void add_dots(struct dpe_page *page, const struct dpe_suite_words *s)
{
    struct dpe_plot plot = dpe_words_plot(s, PLOT_DOTS);
    plot.digits = s->low_is_better ? 2 : 1;
    plot.x_title = s->low_is_better ? s->unit : "percent of what was expected";
    struct dpe_sheet *sheet = dpe_page_sheet(page, "methods", value_columns(s), "%s at %s tokens",
                                             s->low_is_better ? "Perplexity" : "Needles found",
                                             DPE_LENGTH_TEXT(s->longest));
    fill_values(sheet, s, s->r->task_label[0], s->longest);
    dpe_page_figure(
        page, sheet, &plot,
        "Each method on the same samples%s. Whether two methods differ is not visible from this; "
        "the table of paired differences below compares them sample by sample.",
        dpe_draw_bounded(sheet, 3) ? ", with its 95\u00a0% interval" : "");
}

/* ----------------------------------------------------------------------------------- many tasks */

/* Methods × tasks at the longest length. */
static void add_tasks(struct dpe_page *page, const struct dpe_suite_words *s)
{
    struct dpe_plot plot = dpe_words_plot(s, PLOT_HEAT);
    plot.name = 1;
    plot.x = 0;
    plot.x_title = "method";
    plot.y_title = "task";
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "tasks", value_columns(s), "%s at %s tokens, by task", s->title,
                       DPE_LENGTH_TEXT(s->longest));
    dpe_page_figure(page, fill_values(sheet, s, NULL, s->longest), &plot,
                    "Percentage of the expected answers that the model gives, for each "
                    "task (row) and method (column, in the order of the table below). "
                    "Intervals are in the table of numbers.");
}

static void add_categories(struct dpe_page *page, const struct dpe_suite_words *s)
{
    const size_t lengths = s->n_category_lengths;
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "categories", "method:t|length:0", "By category, percent");
    for (size_t c = 0; c < s->n_categories; c++) {
        dpe_draw_sheet_column(sheet, s->r->category[c], "2");
    }
    for (size_t i = 0; i < s->n_methods * lengths; i++) {
        const size_t m = i / lengths;
        dpe_draw_row(sheet, s->r->method[m], s->r->category_length[i % lengths]);
        for (size_t c = 0; c < s->n_categories; c++) {
            const size_t at = (m * s->n_categories + c) * lengths + i % lengths;
            dpe_draw_cell(sheet, dpe_number_cell(s->r->category_mean[at] * 100.0));
        }
    }
    dpe_page_add(page, sheet);
}

/* The mean of all tasks over lengths; it is the last category. */
static void add_overall(struct dpe_page *page, const struct dpe_suite_words *s)
{
    const size_t n = s->n_category_lengths;
    const bool many = s->n_methods > MANY;
    struct dpe_plot plot = dpe_words_plot(s, many ? PLOT_HEAT : PLOT_CURVES);
    plot.value = 0;
    plot.low = 0.0;
    plot.high = many ? 100.0 : (double)NAN;
    plot.y_title = many ? "method" : "mean score, percent";
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "lengths", "method:t|length:0|overall, percent:2",
                       "%s, mean of the tasks by length", s->title);
    fill_lines(sheet, s, s->r->category_length, n, s->r->category_mean + (s->n_categories - 1) * n,
               s->n_categories * n, 100.0, 0);
    dpe_page_figure(page, sheet, &plot,
                    "One line for each method. A mean of tasks has no interval: those of the tasks "
                    "are in the table below.");
}

/* ---------------------------------------------------------------------------------- by position */

static void add_positions(struct dpe_page *page, const struct dpe_suite_words *s)
{
    /* The first tokens have no context: their perplexity of thousands would flatten the rest. */
    const size_t first = s->n_positions > 6 ? 3 : 0;
    const size_t n = s->n_positions;
    const bool many = s->n_methods > MANY;
    const size_t task = (size_t)dpe_words_task(s, s->longest);
    struct dpe_plot plot = dpe_words_plot(s, many ? PLOT_HEAT : PLOT_CURVES);
    plot.value = 0;
    plot.digits = 2;
    plot.x_title = many ? "from position, tokens" : "position in the text, tokens";
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "positions", "method:t|from position:0|perplexity:3",
                       "Perplexity by position in the text");
    fill_lines(sheet, s, s->r->position, n, s->r->position_mean + task * n, s->n_tasks * n, 1.0,
               first);
    dpe_draw_shown(sheet, 80, false);
    dpe_page_figure(page, sheet, &plot,
                    "Tokens are put together by where they stand: the perplexity of those from a "
                    "position to twice it (the very first have no context and are in the numbers "
                    "only). More context should lower it; where it rises a method ceases to "
                    "work. No intervals are kept by position: small steps may be chance.");
}

/* ------------------------------------------------------------------------ over time and memory */

/* What values are drawn over. */
struct cost {
    const char *id, *column; /**< of the figure and in its title; of its numbers and axis */
    const char *what, *note; /**< parts of its caption */
    int digits;
};

/* The figure of costs [method][task]: one line for each method through its lengths. */
static void add_cost(struct dpe_page *page, const struct dpe_suite_words *s,
                     const struct cost *cost, const double *costs)
{
    struct dpe_plot plot = dpe_words_plot(s, PLOT_CURVES);
    char columns[96];
    plot.x = 2;
    plot.bare = true;
    plot.x_title = cost->column;
    plot.x_line_title = NULL;
    snprintf(columns, sizeof columns, "method:t|length:0|%s:%d|%s", cost->column, cost->digits,
             s->low_is_better ? "perplexity:i3" : "recall, %:i1");
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, cost->id, columns, "%s over %s",
                       s->low_is_better ? "Perplexity" : "Needles found", cost->id);
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        const size_t m = i / s->n_tasks;
        dpe_draw_row(sheet, s->r->method[m], s->r->task_length[i % s->n_tasks], costs[i],
                     dpe_words_cell(s, m, i % s->n_tasks));
        mark_row(sheet, s, m, dpe_words_rank(s, m, s->n_tasks - 1) < MANY);
    }
    dpe_draw_shown(sheet, 60, false);
    dpe_page_figure(
        page, sheet, &plot,
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

static const struct cost of_time = {"time", "seconds of a sample",
                                    "the mean time of a sample, its answer included",
                                    "Times depend on the machine and on what else it does.", 3};
static const struct cost of_memory = {
    "memory", "MiB of a sample",
    "what one text of that length needs beside the weights (keys, values, what a selection keeps, "
    "tables, activations; one thread)",
    "It is computed from the model, the method and the length.", 1};

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

/* The values over the seconds and over the memory of a sample, where the table has them and more
 * than one method. */
static void add_costs(struct dpe_page *page, const struct dpe_suite_words *s)
{
    const size_t cells = s->n_methods * s->n_tasks;
    double *costs = dpe_page_alloc(page, cells, sizeof *costs);
    if (costs == NULL || s->n_methods < 2 || !s->single) {
        return;
    }
    /* With one length there is no line, and the table of times says the same. */
    if (s->n_tasks > 1 && s->seconds != NULL) {
        add_cost(page, s, &of_time, s->seconds);
    }
    for (size_t i = 0; i < cells && s->r->memory != NULL; i++) {
        double bytes = (double)s->r->memory[i];
        costs[i] = bytes > 0.0 ? bytes / 0x1p20 : (double)NAN;
    }
    /* Methods that need the same differ in nothing here. */
    if (page->status == DPE_OK && s->r->memory != NULL &&
        (s->n_tasks > 1 || spread(costs, cells) > 1.05)) {
        add_cost(page, s, &of_memory, costs);
    }
}

/* ------------------------------------------------------------------------------------- section */

static void add_values(struct dpe_page *page, const struct dpe_suite_words *s)
{
    if (!s->single) {
        if (s->n_category_lengths > 0) {
            add_categories(page, s);
        }
        add_tasks(page, s);
        if (s->n_category_lengths > 1) {
            add_overall(page, s);
        }
        return;
    }
    bool one_length = true;
    for (size_t t = 1; t < s->n_tasks; t++) {
        one_length = one_length && s->r->task_length[t] == s->r->task_length[0];
    }
    if (!one_length) {
        add_lengths(page, s);
    }
    add_dots(page, s);
    if (s->low_is_better && s->n_positions > 0 && dpe_words_task(s, s->longest) >= 0) {
        add_positions(page, s);
    }
}

void dpe_words_suite_figures(struct dpe_page *page, const struct dpe_suite_words *s)
{
    add_values(page, s);
    add_costs(page, s);
}
