/* Figures of a comparison: over lengths, at the longest one, by task, by position; and what it
 * costs. */
#include "outputs/datasets/worth.h"
#include "outputs/words/words_parts.h"

#include <math.h>
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
    dpe_page_figure(page, sheet, &plot, "%s %s",
                    many ? "One row for each method; intervals are in the table of numbers."
                         : "One line for each method, with 95\u00a0% intervals. Marks are shifted "
                           "sideways a little so that intervals do not hide each other.",
                    s->low_is_better
                        ? "Lower is better; the scale is logarithmic."
                        : "What stays high further to the right works at longer lengths.");
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
    for (size_t i = 0; i < s->n_methods * n; i++) {
        const size_t m = i / n, p = i % n;
        dpe_draw_row(sheet, s->r->method[m], s->r->position[p],
                     s->r->position_mean[(m * s->n_tasks + task) * n + p]);
        mark_row(sheet, s, m, p >= first);
    }
    dpe_draw_shown(sheet, 80, false);
    dpe_page_figure(page, sheet, &plot,
                    "The perplexity of the tokens from a position to twice it. More context should "
                    "lower it; where it rises a method ceases to work. No intervals are kept by "
                    "position: small steps may be chance.");
}

/* ------------------------------------------------------------------------------------ over memory
 */

/* What one text of a length needs beside the weights, by the model, the method and the length. */
static void add_memory(struct dpe_page *page, const struct dpe_suite_words *s)
{
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "memory",
                       s->low_is_better ? "method:@|length:0|MiB of a sample:1|perplexity:i3"
                                        : "method:@|length:0|MiB of a sample:1|recall, %:i1",
                       "%s and the memory of one text beside the weights (one thread)",
                       s->low_is_better ? "Perplexity" : "Needles found");
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        const double bytes = (double)s->r->memory[i];
        dpe_draw_row(sheet, s->r->method[i / s->n_tasks], s->r->task_length[i % s->n_tasks],
                     bytes > 0.0 ? bytes / 0x1p20 : (double)NAN,
                     dpe_words_cell(s, i / s->n_tasks, i % s->n_tasks));
    }
    dpe_draw_shown(sheet, 60, true);
    dpe_page_add(page, sheet);
}

/* ------------------------------------------------------------------------------------- section */

static void add_values(struct dpe_page *page, const struct dpe_suite_words *s)
{
    if (!s->single) {
        if (s->n_category_lengths > 0) {
            add_categories(page, s);
        }
        add_tasks(page, s);
        return;
    }
    bool one_length = true;
    for (size_t t = 1; t < s->n_tasks; t++) {
        one_length = one_length && s->r->task_length[t] == s->r->task_length[0];
    }
    if (!one_length) {
        add_lengths(page, s);
    }
    if (s->low_is_better && s->n_positions > 0 && dpe_words_task(s, s->longest) >= 0) {
        add_positions(page, s);
    }
}

void dpe_words_suite_figures(struct dpe_page *page, const struct dpe_suite_words *s)
{
    add_values(page, s);
    if (s->r->memory != NULL && s->single && s->n_methods > 1) {
        add_memory(page, s);
    }
}
