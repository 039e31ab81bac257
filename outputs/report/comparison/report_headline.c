/* What a comparison says at a glance: its best values, and the figure of the first screen. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
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
        struct table_part part = {0};
        if (strcmp(report->inputs[i].name, file) != 0 ||
            dpe_input_table(&report->inputs[i], "length evaluated_length", &part, NULL) != DPE_OK) {
            dpe_input_table_free(&part);
            continue;
        }
        longest = part.evaluated_length != NULL ? fmax(longest, *part.evaluated_length) : longest;
        for (int64_t k = 0; part.length != NULL && k < part.n[TABLE_ENTRY]; k++) {
            longest = fmax(longest, part.length[k]);
        }
        dpe_input_table_free(&part);
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

static void add_figure(struct report *report, const struct suite *s,
                       const struct dpe_headline *shown)
{
    const int64_t *chosen = shown->worth.method;
    struct plot plot = dpe_comparison_suite_plot(s, shown->n > 1 ? PLOT_CURVES : PLOT_DOTS);
    char at[64] = ", by length", tokens[32];
    if (shown->n == 1) {
        snprintf(at, sizeof at, " at %s tokens",
                 dpe_length_text((double)s->r.task_length[shown->order[0]], tokens));
        plot.x_title = "needles found, %";
        plot.digits = 1;
    }
    plot.x = 1;
    plot.value = 2;
    plot.y_title = "needles found, %";
    struct sheet *sheet = dpe_report_sheet(report, "headline", "method:@|length:0|recall, %:i1",
                                           "Needles found%s", at);
    for (int c = 0; c < DPE_WORTHS; c++) {
        for (size_t i = 0; i < shown->n && chosen[c] >= 0; i++) {
            const size_t task = shown->order[i];
            dpe_draw_row(sheet, dpe_text_cell(s->r.method[chosen[c]]),
                         dpe_number_cell((double)s->r.task_length[task]),
                         dpe_scaled_cell(&s->r.mean[(size_t)chosen[c] * s->n_tasks + task], 100.0));
            dpe_draw_row_mark(sheet, c == DPE_WORTH_TABLE ? ROW_STRONG : 0);
        }
    }
    dpe_report_figure(
        report, sheet, &plot, "%s%s%s, on samples of their own, with 95\u00a0%% intervals.",
        chosen[DPE_WORTH_ALONE] >= 0 ? "The model alone (rope) and the calibrated table ("
                                     : "The table (",
        s->r.method[chosen[DPE_WORTH_TABLE]],
        chosen[DPE_WORTH_RIVAL] >= 0 ? "), beside the best of the other methods" : ")");
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
    if (status != DPE_OK || s->n_methods == 0 || s->n_tasks == 0) {
        return status;
    }
    const int64_t task =
        dpe_comparison_suite_task(s, s->r.task_label[0], dpe_comparison_suite_longest(s));
    shown->n = task >= 0 ? sort_tasks(s, shown->order, DPE_SHOWN_LENGTHS) : 0;
    if (task >= 0) {
        dpe_worth_of(&s->r, task, s->low_is_better, (int64_t)s->against, &shown->worth);
        /* An unfinished run may have nothing of the table yet. */
        shown->n = isfinite(shown->worth.value[DPE_WORTH_TABLE].mean) ? shown->n : 0;
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
            dpe_comparison_short(report, &s, &shown.worth);
            if (!s.low_is_better) {
                add_figure(report, &s, &shown);
            }
        }
        dpe_comparison_suite_free(&s);
    }
    return status;
}
