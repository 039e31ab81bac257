/* What a comparison says at a glance: its best values, and the figure of the first screen. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- marks
 */

/* The longest length that the table of this name was made for, 0 when no input is that table. */
static double made_for(const struct report *report, const char *method)
{
    const char *file = strncmp(method, "table:", 6) == 0 ? method + 6 : method;
    const char *slash = strrchr(file, '/');
    file = slash != NULL ? slash + 1 : file;
    double longest = 0.0;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        struct numbers length;
        const int64_t any[] = {-1};
        if (strcmp(input->name, file) != 0) {
            continue;
        }
        static const char *const paths[] = {"/table/evaluated_length", "/table/length"};
        for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++) {
            for (int rank = 0; rank < 2; rank++) {
                if (dpe_input_read_numbers(input, paths[p], rank, any, &length, NULL) == DPE_OK) {
                    for (size_t k = 0; k < length.n; k++) {
                        longest = fmax(longest, length.values[k]);
                    }
                }
                dpe_input_numbers_free(&length);
            }
        }
    }
    return longest;
}

static bool is_outside(const struct report *report, const struct suite *s, size_t method,
                       size_t task)
{
    double longest = made_for(report, s->r.method[method]);
    return longest > 0.0 && (double)s->r.task_length[task] > longest;
}

unsigned dpe_comparison_suite_marks(const struct report *report, const struct suite *s,
                                    size_t method, size_t task)
{
    const struct dpe_interval *all = s->r.mean;
    size_t at = method * s->n_tasks + task;
    size_t best = at;
    size_t measured = 0;
    unsigned outside = is_outside(report, s, method, task) ? MARK_OUTSIDE : 0;
    for (size_t m = 0; m < s->n_methods; m++) {
        size_t other = m * s->n_tasks + task;
        bool better = s->low_is_better ? all[other].mean < all[best].mean : all[other].mean > all[best].mean;
        measured += isfinite(all[other].mean) ? 1 : 0;
        best = better ? other : best;
    }
    if (!isfinite(all[at].mean) || measured < 2) {
        return outside;
    }
    if (all[at].mean == all[best].mean) {
        return outside | MARK_BEST;
    }
    return all[at].low <= all[best].high && all[best].low <= all[at].high ? outside | MARK_TIED : outside;
}

/* ---------------------------------------------------------------------------------------- headline
 */

/* The methods of the figure, -1: there is none. */
static void choose_methods(const struct suite *s, int64_t chosen[DPE_SHOWN])
{
    double longest = dpe_comparison_suite_longest(s);
    int64_t task = dpe_comparison_suite_task(s, s->r.task_label[0], longest);
    double best = (double)NAN;
    chosen[DPE_SHOWN_ALONE] = chosen[DPE_SHOWN_TABLE] = chosen[DPE_SHOWN_OTHER] = -1;
    for (size_t m = 0; m < s->n_methods && task >= 0; m++) {
        double value = s->r.mean[m * s->n_tasks + (size_t)task].mean;
        if (strcmp(s->r.method[m], "rope") == 0) {
            chosen[DPE_SHOWN_ALONE] = (int64_t)m;
        } else if (dpe_comparison_method_is_dpe(s->r.method[m])) {
            chosen[DPE_SHOWN_TABLE] =
                (int64_t)m; /* the last: a finished table stands behind its detection */
        } else if (isnan(best) || (s->low_is_better ? value < best : value > best)) {
            best = value;
            chosen[DPE_SHOWN_OTHER] = (int64_t)m;
        }
    }
}

/* Tasks by length, ascending; at most `size`. */
static size_t sort_tasks(const struct suite *s, size_t *order, size_t size)
{
    size_t n = 0;
    for (size_t t = 0; t < s->n_tasks && n < size; t++) {
        size_t k = n++;
        for (; k > 0 && (double)s->r.task_length[order[k - 1]] > (double)s->r.task_length[t]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = t;
    }
    return n;
}

static struct sheet *headline_sheet(const struct suite *s, const char *id, const char *title,
                                    const int64_t chosen[DPE_SHOWN], const size_t *order, size_t n)
{
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "recall, %", COLUMN_INTERVAL, 1);
    for (int c = 0; c < DPE_SHOWN; c++) {
        for (size_t i = 0; i < n && chosen[c] >= 0; i++) {
            size_t at = (size_t)chosen[c] * s->n_tasks + order[i];
            dpe_draw_sheet_text(sheet, s->r.method[chosen[c]]);
            dpe_draw_sheet_mark(sheet, MARK_SERIES);
            dpe_draw_sheet_number(sheet, (double)s->r.task_length[order[i]]);
            dpe_draw_sheet_interval(sheet, 100.0 * s->r.mean[at].mean,
                                    100.0 * s->r.mean[at].low,
                                    100.0 * s->r.mean[at].high);
        }
    }
    return sheet;
}

static void draw_headline(struct figure *figure, const struct suite *s,
                          const int64_t chosen[DPE_SHOWN], const size_t *order, size_t n,
                          double (*numbers)[4][32])
{
    struct curve all[DPE_SHOWN];
    const char *names[DPE_SHOWN];
    double dots[3][DPE_SHOWN];
    unsigned char strong[DPE_SHOWN];
    size_t k = 0;
    for (int c = 0; c < DPE_SHOWN; c++) {
        if (chosen[c] < 0) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            size_t at = (size_t)chosen[c] * s->n_tasks + order[i];
            numbers[k][0][i] = (double)s->r.task_length[order[i]];
            numbers[k][1][i] = 100.0 * s->r.mean[at].mean;
            numbers[k][2][i] = 100.0 * s->r.mean[at].low;
            numbers[k][3][i] = 100.0 * s->r.mean[at].high;
        }
        names[k] = s->r.method[chosen[c]];
        strong[k] = c == DPE_SHOWN_TABLE;
        for (int p = 0; p < 3; p++) {
            dots[p][k] = numbers[k][p + 1][0];
        }
        all[k] = (struct curve){.name = names[k],
                                .n = (int64_t)n,
                                .x = numbers[k][0],
                                .y = numbers[k][1],
                                .low = numbers[k][2],
                                .high = numbers[k][3],
                                .strong = c == DPE_SHOWN_TABLE};
        k++;
    }
    if (n == 1) {
        const struct dots one = {.n = k,
                                 .names = names,
                                 .value = dots[0],
                                 .low = dots[1],
                                 .high = dots[2],
                                 .strong = strong,
                                 .methods = true,
                                 .x_low = 0.0,
                                 .x_high = 100.0,
                                 .digits = 1,
                                 .x_title = "needles found, %"};
        dpe_draw_dots(figure, &one);
        return;
    }
    const struct curves curves = {
        .curves = all,
        .n = k,
        .log_x = true,
        .y_low = -2.0,
        .y_high = 104.0,
        .x_title = "length, tokens",
        .y_title = "needles found, %",
        .x_line = (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
        .x_line_title = "trained length"};
    dpe_draw_curves(figure, &curves);
}

static void add_figure(struct report *report, const struct suite *s,
                       const struct dpe_headline *shown)
{
    double numbers[DPE_SHOWN][4][DPE_SHOWN_LENGTHS];
    const int64_t *chosen = shown->method;
    char tokens[32];
    dpe_draw_length_text((double)s->r.task_length[shown->order[0]], tokens);
    char *title = shown->n > 1 ? dpe_draw_format_text("Needles found, by length")
                               : dpe_draw_format_text("Needles found at %s tokens", tokens);
    char *caption = dpe_draw_format_text(
        "%s%s%s, on samples of their own, with 95\u00a0%% intervals.",
        chosen[DPE_SHOWN_ALONE] >= 0 ? "The model alone (rope) and the calibrated table ("
                                     : "The table (",
        s->r.method[chosen[DPE_SHOWN_TABLE]],
        chosen[DPE_SHOWN_OTHER] >= 0 ? "), beside the best of the other methods" : ")");
    struct figure *figure = title == NULL
                                ? NULL
                                : dpe_draw_figure_new("headline", title, caption,
                                                      headline_sheet(s, "headline", title, chosen,
                                                                     shown->order, shown->n));
    if (figure != NULL) {
        draw_headline(figure, s, chosen, shown->order, shown->n, numbers);
    }
    dpe_draw_add_figure(&report->document, figure);
    free(title);
}

/* What an input shows of a table, at how many lengths: n 0, nothing. `s` is to be freed. */
static dpe_status read_shown(const struct input *input, const char *name, struct suite *s,
                             struct dpe_headline *shown, struct dpe_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/eval/%s/task_label", name);
    *s = (struct suite){0};
    shown->n = 0;
    if (!dpe_h5_has(input->table, path) || dpe_h5_has(input->table, "/ablate")) {
        return DPE_OK;
    }
    dpe_status status = dpe_comparison_suite_read(input, name, s, err);
    if (status == DPE_OK && s->n_methods > 0 && s->n_tasks > 0) {
        choose_methods(s, shown->method);
        shown->n = shown->method[DPE_SHOWN_TABLE] >= 0
                       ? sort_tasks(s, shown->order, DPE_SHOWN_LENGTHS)
                       : 0;
    }
    /* An unfinished run may have nothing of the table yet. */
    if (shown->n > 0 && !isfinite(s->r.mean[(size_t)shown->method[DPE_SHOWN_TABLE] * s->n_tasks +
                                            shown->order[shown->n - 1]]
                                      .mean)) {
        shown->n = 0;
    }
    return status;
}

dpe_status dpe_comparison_headline(struct report *report, struct dpe_error *err)
{
    static const char *const names[] = {"niah", "ppl"};
    dpe_status status = DPE_OK;
    const struct input *widest = NULL;
    const char *name = NULL;
    size_t most = 0;
    struct suite s;
    struct dpe_headline shown;
    for (size_t k = 0; k < 2 && most == 0; k++) {
        for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
            status = read_shown(&report->inputs[i], names[k], &s, &shown, err);
            dpe_comparison_suite_free(&s);
            if (shown.n > most) {
                widest = &report->inputs[i];
                name = names[k];
                most = shown.n;
            }
        }
    }
    if (status == DPE_OK && widest != NULL) {
        status = read_shown(widest, name, &s, &shown, err);
        if (status == DPE_OK && shown.n > 0) {
            dpe_comparison_short(report, &s, &shown);
            if (!s.low_is_better) {
                add_figure(report, &s, &shown);
            }
        }
        dpe_comparison_suite_free(&s);
    }
    return status;
}
