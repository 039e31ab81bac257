/* All benchmarks of a comparison in one table: a line for each method, a column for each suite. */
#include "outputs/report/comparison/report_eval.h"

/* The overall score where there is one (it has no interval), the only task's where there is one,
 * else the mean of the tasks. */
static struct dpe_sheet_cell value_cell(const struct dpe_report_suite *s, size_t method)
{
    for (size_t l = 0; l < s->n_category_lengths && s->n_categories > 0; l++) {
        if ((double)s->r->category_length[l] == s->longest) { /* the last category is of all */
            const size_t at = (method + 1) * s->n_categories * s->n_category_lengths;
            return dpe_number_cell(s->r->category_mean[at - s->n_category_lengths + l] * s->scale);
        }
    }
    if (s->single) {
        const int64_t task = dpe_comparison_suite_task(s, s->longest);
        return dpe_comparison_suite_cell(s, method, (size_t)(task < 0 ? 0 : task));
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

void dpe_comparison_glance(struct dpe_report *report)
{
    enum { MOST = 16 };
    size_t n = 0;
    const struct dpe_report_suite *suites = dpe_comparison_suites(report, report->about.input, &n);
    bool whole = n > 1;
    n = n > MOST ? MOST : n;
    for (size_t i = 0; i < n; i++) {
        whole = whole && suites[i].n_methods > 0 && suites[i].n_tasks > 0;
    }
    if (!whole) {
        return;
    }
    dpe_report_section(report, "Methods at a glance");
    dpe_report_say(report, BLOCK_TEXT,
                   "Each benchmark at the longest length that was measured, with its 95\u00a0%% "
                   "interval if it has one. Lower is better for perplexity, higher for the others. "
                   "The sections below explain what each measures and how many differences are "
                   "distinguishable from 0.");
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, "glance", "method:@", "Methods on all benchmarks");
    for (size_t i = 0; i < n; i++) {
        const struct dpe_report_suite *s = &suites[i];
        dpe_draw_sheet_column(sheet,
                              dpe_report_text(report, "%s at %s%s", s->title,
                                              DPE_LENGTH_TEXT(s->longest),
                                              s->low_is_better ? "" : ", %"),
                              s->low_is_better ? "i2" : "i1");
    }
    for (size_t m = 0; m < suites[0].n_methods; m++) {
        dpe_draw_cell(sheet, dpe_text_cell(suites[0].r->method[m]));
        for (size_t i = 0; i < n; i++) {
            dpe_draw_cell(sheet, value_cell(&suites[i], m));
        }
    }
    dpe_report_add(report, sheet);
}
