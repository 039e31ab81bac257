/* Comparisons: sentences and tables. */
#include "outputs/report/comparison/report_eval.h"
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- words
 */

static void value_text(const struct suite *s, size_t at, char text[96])
{
    double scale = s->low_is_better ? 1.0 : 100.0;
    int digits = s->low_is_better ? 2 : 0;
    const char *unit = s->low_is_better ? "" : "\u00a0%";
    if (isnan(s->r.mean[at].low)) { /* a single context */
        snprintf(text, 96, "%.*f%s", digits, s->r.mean[at].mean * scale, unit);
        return;
    }
    snprintf(text, 96, "%.*f%s (%.*f\u00a0to\u00a0%.*f%s)", digits,
             s->r.mean[at].mean * scale, unit, digits, s->r.mean[at].low * scale,
             digits, s->r.mean[at].high * scale, unit);
}

/* Methods by their value at a task, best first; those without one are left out. Owned, *n long. */
static size_t *best_first(const struct suite *s, size_t task, size_t *n)
{
    size_t *order = dpe_alloc(s->n_methods, sizeof *order);
    *n = 0;
    for (size_t m = 0; order != NULL && m < s->n_methods; m++) {
        double value = s->r.mean[m * s->n_tasks + task].mean;
        if (isnan(value)) {
            continue;
        }
        size_t k = (*n)++;
        for (; k > 0; k--) {
            double other = s->r.mean[order[k - 1] * s->n_tasks + task].mean;
            if (s->low_is_better ? other <= value : other >= value) {
                break;
            }
            order[k] = order[k - 1];
        }
        order[k] = m;
    }
    return order;
}

/* The best method and those that follow, at the longest length; only for suites of one task. */
static void add_lead(struct report *report, const struct suite *s)
{
    double length = dpe_comparison_suite_longest(s);
    char measure[64];
    dpe_comparison_suite_measure(s, measure, sizeof measure);
    int64_t task = dpe_comparison_suite_task(s, s->r.task_label[0], length);
    size_t n = 0;
    size_t *order = task < 0 ? NULL : best_first(s, (size_t)task, &n);
    struct writer out = {0};
    char tokens[32];
    dpe_draw_length_text(length, tokens);
    dpe_draw_put(&out, "At %s tokens", tokens);
    for (size_t i = 0; order != NULL && i < n && i < 4; i++) {
        char value[96];
        char *name = dpe_draw_clean_text(s->r.method[order[i]], 40);
        value_text(s, order[i] * s->n_tasks + (size_t)task, value);
        dpe_draw_put(&out, "%s%s ",
                     i == 0                 ? ", "
                     : i + 1 == n || i == 3 ? " and "
                                            : ", ",
                     name != NULL ? name : "");
        if (i == 0) {
            dpe_draw_put(&out, "has a %s of ", measure);
        }
        dpe_draw_put(&out, "%s", value);
        free(name);
    }
    dpe_draw_put(&out, "%s", n == 0 ? " nothing was measured" : n > 4 ? "; the others follow" : "");
    for (size_t i = 4; order != NULL && i < n; i++) {
        if (dpe_comparison_method_is_dpe(s->r.method[order[i]])) {
            char value[96];
            value_text(s, order[i] * s->n_tasks + (size_t)task, value);
            dpe_draw_put(&out, ", %s with %s", s->r.method[order[i]], value);
        }
    }
    dpe_draw_put(&out, ".");
    dpe_draw_add_text(&report->document, BLOCK_LEAD, out.failed ? NULL : out.text.bytes);
    if (out.failed) {
        dpe_text_free(&out.text);
    }
    free(order);
}

/* How many differences to the method `against` are not distinguishable from 0: the interval contains 0,
 * or the sign-flip test does not reject it. */
static void add_noise(struct report *report, const struct suite *s)
{
    size_t compared = 0;
    size_t noise = 0;
    bool tested = s->r.difference != NULL && s->r.p_value != NULL;
    for (size_t i = 0; tested && i < s->n_methods * s->n_tasks; i++) {
        if (i / s->n_tasks == s->against) {
            continue;
        }
        bool inside =
            s->r.difference[i].low <= 0.0 && s->r.difference[i].high >= 0.0;
        compared += s->r.p_value[i] >= 0.0;
        noise += s->r.p_value[i] >= 0.05 || (s->r.p_value[i] >= 0.0 && inside);
    }
    if (compared == 0) {
        return;
    }
    dpe_draw_add_text(
        &report->document, BLOCK_NOTE,
        dpe_draw_format_text(
            "Of %zu differences to %s, %zu %s not distinguishable from 0: the "
            "95\u00a0%% interval contains 0, or p\u00a0≥\u00a00.05 in a sign-flip test over the "
            "same %s. Where methods do not differ, p is below 0.05 in one of twenty comparisons; "
            "the values are not corrected for that.",
            compared, s->r.method[s->against], noise, noise == 1 ? "is" : "are",
            s->together > 1    ? "contexts"
            : s->low_is_better ? "books"
                               : "samples"));
}

/* ------------------------------------------------------------------------------------------ tables
 */

/* What a task is called where tasks are beside each other; owned. */
static char *task_name(const struct suite *s, size_t task)
{
    char tokens[32];
    dpe_draw_length_text((double)s->r.task_length[task], tokens);
    return dpe_comparison_suite_is_single(s)
               ? dpe_draw_format_text("%s", tokens)
               : dpe_draw_format_text("%s at %s", s->r.task_label[task], tokens);
}

static void add_column(struct sheet *sheet, char *name, bool intervals, int digits)
{
    if (name != NULL) {
        dpe_draw_sheet_column(sheet, name, intervals ? COLUMN_INTERVAL : COLUMN_NUMBER, digits);
    } else if (sheet != NULL) {
        sheet->failed = true;
    }
    free(name);
}

/* What the cells of a table carry besides their values, all together: for the words below it. */
static unsigned add_cell(struct sheet *sheet, const struct report *report, const struct suite *s,
                         size_t method, size_t task)
{
    size_t at = method * s->n_tasks + task;
    double scale = s->low_is_better ? 1.0 : 100.0;
    unsigned marks = dpe_comparison_suite_marks(report, s, method, task);
    dpe_draw_sheet_interval(sheet, scale * s->r.mean[at].mean,
                            scale * s->r.mean[at].low, scale * s->r.mean[at].high);
    dpe_draw_sheet_mark(sheet, marks);
    return marks;
}

/* The signs that occur. */
static void explain_marks(struct report *report, unsigned marks)
{
    if (marks != 0) {
        dpe_draw_add_text(
            &report->document, BLOCK_TEXT,
            dpe_draw_format_text(
                "%s%s%s", (marks & MARK_BEST) != 0 ? "Bold: the best method of a task." : "",
                (marks & MARK_TIED) != 0
                    ? " ≈: its interval overlaps that of the best; a paired test may still tell "
                      "the two apart."
                    : "",
                (marks & MARK_OUTSIDE) != 0
                    ? " Grey: a table at a length that it was not made for."
                    : ""));
    }
}

/* A line for each method; where there are more tasks than fit on a page, a line for each task. */
static void add_table(struct report *report, const struct suite *s)
{
    enum { WIDE = 8, FEW = 4 };
    bool by_task = s->n_tasks > WIDE && s->n_methods < s->n_tasks;
    size_t columns = by_task ? s->n_methods : s->n_tasks;
    size_t rows = by_task ? s->n_tasks : s->n_methods;
    bool intervals = columns <= (by_task ? FEW : WIDE);
    char *id = dpe_comparison_suite_id(report, s, "table");
    char *title = dpe_draw_format_text(
        "%s: %s by %s", dpe_comparison_suite_title(s),
        s->low_is_better ? "perplexity" : "score in percent",
        by_task                             ? "task and method"
        : dpe_comparison_suite_is_single(s) ? "method and length in tokens"
                                            : "method and task");
    struct sheet *sheet = id == NULL || title == NULL ? NULL : dpe_draw_sheet_new(id, title);
    unsigned marks = 0;
    dpe_draw_sheet_column(sheet, by_task ? "task" : "method", COLUMN_TEXT, 0);
    for (size_t c = 0; sheet != NULL && c < columns; c++) {
        add_column(sheet,
                   by_task ? dpe_draw_format_text("%s", s->r.method[c]) : task_name(s, c),
                   intervals, s->low_is_better ? 3 : 1);
    }
    for (size_t r = 0; r < rows; r++) {
        char *name = by_task ? task_name(s, r) : dpe_draw_format_text("%s", s->r.method[r]);
        dpe_draw_sheet_text(sheet, name != NULL ? name : "");
        dpe_draw_sheet_mark(sheet, by_task ? 0 : MARK_SERIES);
        for (size_t c = 0; c < columns; c++) {
            marks |= add_cell(sheet, report, s, by_task ? c : r, by_task ? r : c);
        }
        free(name);
    }
    dpe_draw_add_sheet(&report->document, sheet);
    explain_marks(report, marks);
    free(id);
    free(title);
}

static void add_differences(struct report *report, const struct suite *s)
{
    if (s->n_methods < 2 || s->r.difference == NULL || s->r.p_value == NULL) {
        return;
    }
    char *id = dpe_comparison_suite_id(report, s, "differences");
    char *title =
        dpe_draw_format_text("%s: difference to %s%s", dpe_comparison_suite_title(s),
                             s->r.method[s->against],
                             s->low_is_better ? ", nats per token (negative is better)" : "");
    struct sheet *sheet = id == NULL || title == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "task", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    double scale = s->low_is_better ? 1.0 : 100.0;
    dpe_draw_sheet_column(sheet, s->low_is_better ? "difference" : "difference, percentage points",
                          COLUMN_INTERVAL, s->low_is_better ? 3 : 1);
    dpe_draw_sheet_column(sheet, "p", COLUMN_P, 4);
    dpe_draw_sheet_column(sheet, "pairs", COLUMN_NUMBER, 0);
    for (size_t i = 0; i < s->n_methods * s->n_tasks; i++) {
        if (i / s->n_tasks == s->against) {
            continue;
        }
        dpe_draw_sheet_text(sheet, s->r.method[i / s->n_tasks]);
        dpe_draw_sheet_mark(sheet, MARK_SERIES);
        dpe_draw_sheet_text(sheet, s->r.task_label[i % s->n_tasks]);
        dpe_draw_sheet_number(sheet, (double)s->r.task_length[i % s->n_tasks]);
        dpe_draw_sheet_interval(sheet, scale * s->r.difference[i].mean,
                                scale * s->r.difference[i].low,
                                scale * s->r.difference[i].high);
        dpe_draw_sheet_number(sheet, s->r.p_value[i]);
        dpe_draw_sheet_number(sheet, (double)s->r.difference[i].n);
    }
    if (sheet != NULL) {
        sheet->folded = sheet->n_cells > 12 * sheet->n_columns;
        sheet->shown = 200;
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
    free(title);
}

/* ---------------------------------------------------------------------------------------- section
 */

static const char *explanation(const struct suite *s)
{
    return s->explanation != NULL
               ? s->explanation
               : "Scores follow the rules of the benchmark: 1 when all answers are right, 0 when "
                 "none is. All methods read the same samples.";
}

static dpe_status write_suite(struct report *report, const struct input *input, const char *name,
                              struct dpe_error *err)
{
    struct suite s;
    dpe_status status = dpe_comparison_suite_read(input, name, &s, err);
    if (status == DPE_OK && s.n_methods > 0 && s.n_tasks > 0) {
        char *has = dpe_draw_format_text("/eval/%s/mean", name);
        dpe_draw_add_text(&report->document, BLOCK_SECTION,
                          dpe_input_section_title(report, input, has != NULL ? has : "/",
                                                  "%s: methods compared",
                                                  dpe_comparison_suite_title(&s)));
        free(has);
        dpe_input_add_unfinished(report, input);
        if (dpe_comparison_suite_is_single(&s)) {
            add_lead(report, &s);
        }
        dpe_draw_add_text(&report->document, BLOCK_TEXT,
                          dpe_draw_format_text("%s", explanation(&s)));
        add_noise(report, &s);
        dpe_comparison_suite_figures(report, &s);
        status = dpe_comparison_suite_cost(report, &s, err);
        add_table(report, &s);
        add_differences(report, &s);
    }
    dpe_comparison_suite_free(&s);
    return status;
}

dpe_status dpe_comparison_sections(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        char **suites = NULL;
        size_t n = 0;
        /* An ablation is a comparison as well, and has its own section. */
        bool wanted = dpe_h5_has(input->table, "/method") && !dpe_h5_has(input->table, "/ablate");
        if (wanted) {
            status = dpe_h5_list(input->table, "/eval", &suites, &n, err);
        }
        for (size_t s = 0; s < n && status == DPE_OK; s++) {
            char *path = dpe_draw_format_text("/eval/%s/task_label", suites[s]);
            if (path != NULL && dpe_h5_has(input->table, path)) {
                status = write_suite(report, input, suites[s], err);
            }
            free(path);
        }
        dpe_strings_free(suites, n);
    }
    return status;
}
