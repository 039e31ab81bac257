/* A suite of a comparison: what can be asked of it, sentences, tables, and figures: over lengths,
 * at the longest one, by task, by position; and what it costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "outputs/datasets/worth.h"
#include "outputs/words/words.h"

/* Means and their axes are there together, or they are not shown. */
static void take_axes(struct dpe_suite_words *s)
{
    const int64_t *n = s->r->n;
    const bool positions = s->r->position != NULL && s->r->position_mean != NULL;
    const bool categories =
        s->r->category != NULL && s->r->category_length != NULL && s->r->category_mean != NULL;
    s->n_methods = (size_t)n[DPE_SUITE_METHOD];
    s->n_tasks = (size_t)n[DPE_SUITE_TASK];
    s->n_positions = positions ? (size_t)n[DPE_SUITE_POSITION] : 0;
    s->n_categories = categories ? (size_t)n[DPE_SUITE_CATEGORY] : 0;
    s->n_category_lengths = categories ? (size_t)n[DPE_SUITE_CATEGORY_LENGTH] : 0;
}

void dpe_words_derive(struct dpe_page *page, struct dpe_suite_words *s)
{
    const char *bracket = strstr(s->unit, " (");
    double any = 0.0;
    take_axes(s);
    s->single = true;
    s->scale = s->low_is_better ? 1.0 : 100.0;
    s->measure = dpe_page_text(
        page, "%.*s", (int)(bracket != NULL ? (size_t)(bracket - s->unit) : strlen(s->unit)),
        s->unit);
    for (size_t t = 0; t < s->n_tasks; t++) {
        const double length = (double)s->r->task_length[t];
        s->single = s->single && strcmp(s->r->task_label[t], s->r->task_label[0]) == 0;
        any = fmax(any, length);
        for (size_t m = 0; m < s->n_methods; m++) {
            const bool there = !isnan(s->r->mean[m * s->n_tasks + t].mean);
            s->longest = there ? fmax(s->longest, length) : s->longest;
        }
    }
    s->longest = s->longest > 0.0 ? s->longest : any;
}

/* --------------------------------------------------------------------------------------- asking */

int64_t dpe_words_task(const struct dpe_suite_words *s, double length)
{
    for (size_t t = 0; t < s->n_tasks; t++) {
        if (strcmp(s->r->task_label[t], s->r->task_label[0]) == 0 &&
            (double)s->r->task_length[t] == length) {
            return (int64_t)t;
        }
    }
    return -1;
}

struct dpe_sheet_cell dpe_words_cell(const struct dpe_suite_words *s, size_t method, size_t task)
{
    return dpe_scaled_cell(&s->r->mean[method * s->n_tasks + task], s->scale);
}

/* How many methods are better at a task: of equal ones the earlier is, of one without a value all
 * are. */
static size_t rank_of(const struct dpe_suite_words *s, size_t method, size_t task)
{
    const double own = s->r->mean[method * s->n_tasks + task].mean;
    size_t n = 0;
    for (size_t m = 0; m < s->n_methods; m++) {
        const double other = s->r->mean[m * s->n_tasks + task].mean;
        const bool above = s->low_is_better ? other < own : other > own;
        n += above || isnan(own) || (other == own && m < method);
    }
    return n;
}

/* The method of a rank. */
static size_t ranked(const struct dpe_suite_words *s, size_t rank, size_t task)
{
    size_t m = 0;
    while (m + 1 < s->n_methods && rank_of(s, m, task) != rank) {
        m++;
    }
    return m;
}

struct dpe_plot dpe_words_plot(const struct dpe_suite_words *s, enum dpe_plot_kind kind)
{
    const bool lines = kind == PLOT_CURVES, low = s->low_is_better;
    return (struct dpe_plot){.kind = kind,
                             .value = 3,
                             .log_x = true,
                             .log = low,
                             .low_is_good = low,
                             /* Two equal ends: as the values have them. */
                             DPE_ENDS(low || !lines ? 0.0 : -2.0, low     ? 0.0
                                                                  : lines ? 104.0
                                                                          : 100.0),
                             DPE_TITLES("length, tokens",
                                        !lines ? "method"
                                        : low  ? "perplexity per token"
                                               : "recall, %",
                                        low ? "perplexity" : "percent"),
                             DPE_LINE((double)s->trained, "trained length")};
}

/* A set of enum dpe_sheet_mark for a value: the best of its task, one whose interval overlaps that
 * of the best, one of a table at a length beyond those that it was made for. */
static unsigned marks_of(const struct dpe_suite_words *s, size_t method, size_t task)
{
    const struct dpe_interval *all = s->r->mean + task;
    const struct dpe_interval *own = &all[method * s->n_tasks];
    const struct dpe_interval *best = &all[ranked(s, 0, task) * s->n_tasks];
    const double longest = s->made_for != NULL ? s->made_for[method] : 0.0;
    const unsigned outside =
        longest > 0.0 && (double)s->r->task_length[task] > longest ? MARK_OUTSIDE : 0;
    size_t measured = 0;
    for (size_t m = 0; m < s->n_methods; m++) {
        measured += isfinite(all[m * s->n_tasks].mean) ? 1 : 0;
    }
    if (!isfinite(own->mean) || measured < 2) {
        return outside;
    }
    const bool tied = own->low <= best->high && best->low <= own->high;
    return outside | (own->mean == best->mean ? MARK_BEST : tied ? MARK_TIED : 0);
}

/* ------------------------------------------------------------------------------------ sentences */

/* "44 % (30 to 59 %)" of a share, "2.31 (2.12 to 2.50)" of a perplexity; a single context has no
 * interval. */
static void value_text(const struct dpe_interval *v, bool share, char text[96])
{
    const double scale = share ? 100.0 : 1.0;
    const int digits = share ? 0 : 2;
    const char *unit = share ? "\u00a0%" : "";
    snprintf(text, 96, "no valid sample");
    if (!isnan(v->mean)) {
        snprintf(text, 96, "%.*f%s", digits, v->mean * scale, unit);
    }
    if (!isnan(v->mean) && !isnan(v->low)) {
        dpe_append(text, 96, " (%.*f\u00a0to\u00a0%.*f%s)", digits, v->low * scale, digits,
                   v->high * scale, unit);
    }
}

/* The best method and those that follow, at the longest length; only for suites of one task. */
static void add_lead(struct dpe_page *page, const struct dpe_suite_words *s)
{
    enum { NAMED = 4 };
    const int64_t task = dpe_words_task(s, s->longest);
    const struct dpe_interval *mean = s->r->mean + (task < 0 ? 0 : task);
    DPE_SCOPED(dpe_text_free) struct dpe_text out = {0};
    size_t n = 0;
    for (size_t m = 0; m < s->n_methods && task >= 0; m++) {
        n += isnan(mean[m * s->n_tasks].mean) ? 0 : 1;
    }
    dpe_text_put(&out, "At %s tokens", DPE_LENGTH_TEXT(s->longest));
    for (size_t i = 0; i < n; i++) {
        const size_t m = ranked(s, i, (size_t)task);
        char value[96];
        value_text(&mean[m * s->n_tasks], !s->low_is_better, value);
        if (i < NAMED) {
            dpe_text_put(&out, "%s%s ", i > 0 && (i + 1 == n || i + 1 == NAMED) ? " and " : ", ",
                         dpe_page_clean(page, s->r->method[m], 40));
            dpe_text_put(&out, i == 0 ? "has a %s of %s" : "%.0s%s", s->measure, value);
        } else if (dpe_worth_is_table(s->r->method[m])) {
            dpe_text_put(&out, ", %s with %s", s->r->method[m], value);
        }
        dpe_text_put(&out, "%s", i + 1 == NAMED && n > NAMED ? "; the others follow" : "");
    }
    dpe_text_put(&out, "%s.", n == 0 ? " nothing was measured" : "");
    dpe_page_say(page, BLOCK_LEAD, "%s", dpe_draw_text(&out));
}

/* How many differences to the method `against` are not distinguishable from 0: the interval
 * contains 0, or the sign-flip test does not reject it. */
static void add_noise(struct dpe_page *page, const struct dpe_suite_words *s)
{
    size_t compared = 0;
    size_t noise = 0;
    bool few = false; /* p of five is 2/32 or more */
    for (size_t i = 0; s->r->difference != NULL && i < s->n_methods * s->n_tasks; i++) {
        const struct dpe_difference *of = &s->r->difference[i];
        if (i / s->n_tasks == s->against) {
            continue;
        }
        bool inside = of->minus.low <= 0.0 && of->minus.high >= 0.0;
        compared += of->p >= 0.0;
        noise += of->p >= 0.05 || (of->p >= 0.0 && inside);
        few = few || (of->p >= 0.05 && !inside && of->minus.n < 6 * dpe_most(s->together, 1));
    }
    if (compared == 0) {
        return;
    }
    dpe_page_say(
        page, BLOCK_NOTE,
        "Of %zu difference%s to %s, %zu %s not distinguishable from 0: the "
        "95\u00a0%% interval contains 0, or p\u00a0≥\u00a00.05 in a sign-flip test over the "
        "same %s; p is not corrected for the number of comparisons.%s",
        compared, compared == 1 ? "" : "s", s->r->method[s->against], noise,
        noise == 1 ? "is" : "are",
        s->together > 1    ? "contexts"
        : s->low_is_better ? "books"
                           : "samples",
        few ? " Of fewer than six it is never below 0.05: more --samples." : "");
}

/* --------------------------------------------------------------------------------------- tables */

/* What a task is called where tasks are beside each other. */
static const char *task_name(struct dpe_page *page, const struct dpe_suite_words *s, size_t task)
{
    const char *tokens = DPE_LENGTH_TEXT((double)s->r->task_length[task]);
    return s->single ? dpe_page_text(page, "%s", tokens)
                     : dpe_page_text(page, "%s at %s", s->r->task_label[task], tokens);
}

/* A line for each method; where there are more tasks than fit on a page, a line for each task. */
static void add_table(struct dpe_page *page, const struct dpe_suite_words *s)
{
    enum { WIDE = 8, FEW = 4 };
    bool by_task = s->n_tasks > WIDE && s->n_methods < s->n_tasks;
    size_t columns = by_task ? s->n_methods : s->n_tasks;
    size_t rows = by_task ? s->n_tasks : s->n_methods;
    bool intervals = columns <= (by_task ? FEW : WIDE);
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "table", by_task ? "task:t" : "method:@", "%s: %s by %s", s->title,
                       s->low_is_better ? "perplexity" : "score in percent",
                       by_task     ? "task and method"
                       : s->single ? "method and length in tokens"
                                   : "method and task");
    const char *kind = s->low_is_better ? "i3" : "i1";
    for (size_t c = 0; c < columns; c++) {
        dpe_draw_sheet_column(sheet, by_task ? s->r->method[c] : task_name(page, s, c),
                              intervals ? kind : kind + 1);
    }
    for (size_t i = 0; i < rows * columns; i++) {
        size_t method = by_task ? i % columns : i / columns;
        size_t task = by_task ? i / columns : i % columns;
        if (i % columns == 0) {
            dpe_draw_cell(sheet,
                          dpe_text_cell(by_task ? task_name(page, s, task) : s->r->method[method]));
        }
        struct dpe_sheet_cell cell = dpe_words_cell(s, method, task);
        cell.mark = marks_of(s, method, task);
        dpe_draw_cell(sheet, cell);
    }
    dpe_page_add(page, sheet);
    dpe_page_say(page, BLOCK_TEXT,
                 "Bold: the best method of a task. ≈: its interval overlaps that of the best; a "
                 "paired test may still tell the two apart. Grey: a table at a length that it was "
                 "not made for.");
}

/* The next number that the suite's kind declares of a comparison besides the difference itself;
 * NULL: there is none. */
static const struct dpe_dataset *next_number(const struct dpe_dataset *after)
{
    const struct dpe_dataset_kind *kind = &dpe_suite_kinds[0];
    const struct dpe_dataset *d = after != NULL ? after + 1 : kind->datasets;
    while (d < kind->datasets + kind->n &&
           (d->array != offsetof(struct dpe_suite_result, difference) ||
            d->at < sizeof(struct dpe_interval))) {
        d++;
    }
    return d < kind->datasets + kind->n ? d : NULL;
}

static void add_differences(struct dpe_page *page, const struct dpe_suite_words *s)
{
    if (s->n_methods < 2 || s->r->difference == NULL) {
        return;
    }
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, "differences",
        s->low_is_better ? "method:@|task:t|length:0|difference:i3|pairs:0"
                         : "method:@|task:t|length:0|difference, percentage points:i1|pairs:0",
        "%s: difference to %s%s", s->title, s->r->method[s->against],
        s->low_is_better ? ", nats per token (negative is better)" : "");
    for (const struct dpe_dataset *d = NULL; (d = next_number(d)) != NULL;) {
        const bool p = strcmp(d->name, "p_value") == 0;
        dpe_draw_sheet_column(sheet, p ? "p" : d->name, p ? "p" : s->low_is_better ? "3" : "1");
    }
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        const struct dpe_difference *of = &s->r->difference[i];
        if (i / s->n_tasks == s->against) {
            continue;
        }
        dpe_draw_row(sheet, s->r->method[i / s->n_tasks], s->r->task_label[i % s->n_tasks],
                     s->r->task_length[i % s->n_tasks], dpe_scaled_cell(&of->minus, s->scale),
                     of->minus.n);
        for (const struct dpe_dataset *d = NULL; (d = next_number(d)) != NULL;) {
            const double value = *(const double *)(const void *)((const char *)of + d->at);
            dpe_draw_cell(sheet, dpe_number_cell(value * (d->units == NULL ? s->scale : 1.0)));
        }
    }
    dpe_draw_shown(sheet, 200, sheet->n_cells > 12 * sheet->n_columns);
    dpe_page_add(page, sheet);
    for (const struct dpe_dataset *d = next_number(NULL); (d = next_number(d)) != NULL;) {
        dpe_page_say(page, BLOCK_TEXT, "%s: %s.", d->name, d->long_name); /* all but p */
    }
}

/* -------------------------------------------------------------------------------------- figures */

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

static void add_figures(struct dpe_page *page, const struct dpe_suite_words *s)
{
    add_values(page, s);
    if (s->r->memory != NULL && s->single && s->n_methods > 1) {
        add_memory(page, s);
    }
}

/* -------------------------------------------------------------------------------------- section */

void dpe_words_suite(struct dpe_page *page, const struct dpe_suite_words *s)
{
    snprintf(page->prefix, sizeof page->prefix, "%s", s->name);
    for (char *c = page->prefix; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        *c = (char)(plain ? *c : '-');
    }
    dpe_page_section(page, "%s: methods compared", s->title);
    if (s->single) {
        add_lead(page, s);
    }
    dpe_page_say(page, BLOCK_TEXT, "%s", s->explanation);
    add_noise(page, s);
    add_figures(page, s);
    add_table(page, s);
    add_differences(page, s);
}

/* ---------------------------------------------------------------------------------- all suites */

/* The overall score where there is one (it has no interval), the only task's where there is one,
 * else the mean of the tasks. */
static struct dpe_sheet_cell value_cell(const struct dpe_suite_words *s, size_t method)
{
    for (size_t l = 0; l < s->n_category_lengths && s->n_categories > 0; l++) {
        if ((double)s->r->category_length[l] == s->longest) { /* the last category is of all */
            const size_t at = (method + 1) * s->n_categories * s->n_category_lengths;
            return dpe_number_cell(s->r->category_mean[at - s->n_category_lengths + l] * s->scale);
        }
    }
    if (s->single) {
        const int64_t task = dpe_words_task(s, s->longest);
        return dpe_words_cell(s, method, (size_t)(task < 0 ? 0 : task));
    }
    double sum = 0.0;
    double n = 0.0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        if ((double)s->r->task_length[t] == s->longest) {
            sum += s->r->mean[method * s->n_tasks + t].mean;
            n += 1.0;
        }
    }
    return dpe_number_cell(sum / n * s->scale);
}

void dpe_words_glance(struct dpe_page *page, const struct dpe_suite_words *const *suites, size_t n)
{
    dpe_page_section(page, "Methods at a glance");
    dpe_page_say(page, BLOCK_TEXT,
                 "Each benchmark at the longest length that was measured, with its 95\u00a0%% "
                 "interval if it has one. Lower is better for perplexity, higher for the others.");
    struct dpe_sheet *sheet =
        dpe_page_sheet(page, "glance", "method:@", "Methods on all benchmarks");
    for (size_t i = 0; i < n; i++) {
        const struct dpe_suite_words *s = suites[i];
        dpe_draw_sheet_column(sheet,
                              dpe_page_text(page, "%s at %s%s", s->title,
                                            DPE_LENGTH_TEXT(s->longest),
                                            s->low_is_better ? "" : ", %"),
                              s->low_is_better ? "i2" : "i1");
    }
    for (size_t m = 0; m < suites[0]->n_methods; m++) {
        dpe_draw_cell(sheet, dpe_text_cell(suites[0]->r->method[m]));
        for (size_t i = 0; i < n; i++) {
            dpe_draw_cell(sheet, value_cell(suites[i], m));
        }
    }
    dpe_page_add(page, sheet);
}
