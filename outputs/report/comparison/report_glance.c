/* All benchmarks of a comparison in one table: a line for each method, a column for each suite. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SUITES = 16 };

/** The suites of one input, read. */
struct glance {
    struct suite suites[MAX_SUITES];
    size_t n;
};

static dpe_status take_suite(void *user, struct suite *suite, struct dpe_error *err)
{
    (void)err;
    struct glance *glance = user;
    if (glance->n < MAX_SUITES) {
        glance->suites[glance->n++] = *suite;
        *suite = (struct suite){0};
    }
    return DPE_OK;
}

/* Where the category "overall" of a length lies in category_mean of method 0; −1 = nowhere. */
static int64_t overall_at(const struct suite *s, double length)
{
    for (size_t l = 0; l < s->n_category_lengths; l++) {
        if ((double)s->r.category_length[l] == length && s->n_categories > 0) {
            return (int64_t)((s->n_categories - 1) * s->n_category_lengths + l);
        }
    }
    return -1;
}

static void add_column(struct sheet *sheet, const struct suite *s)
{
    char *name = dpe_draw_format_text("%s at %s%s", dpe_comparison_suite_title(s),
                                      DPE_LENGTH_TEXT(dpe_comparison_suite_longest(s)),
                                      s->low_is_better ? "" : ", %");
    dpe_draw_sheet_column(sheet, name != NULL ? name : "", s->low_is_better ? "i2" : "i1");
    free(name);
}

/* The overall score where there is one (it has no interval), the only task's where there is one,
 * else the mean of the tasks. */
static struct sheet_cell value_cell(const struct suite *s, size_t method)
{
    double length = dpe_comparison_suite_longest(s);
    int64_t overall = overall_at(s, length);
    if (overall >= 0) {
        size_t each = s->n_categories * s->n_category_lengths;
        return dpe_number_cell(s->r.category_mean[method * each + (size_t)overall] * s->scale);
    }
    if (dpe_comparison_suite_is_single(s)) {
        int64_t task = dpe_comparison_suite_task(s, s->r.task_label[0], length);
        return dpe_scaled_cell(&s->r.mean[method * s->n_tasks + (size_t)(task < 0 ? 0 : task)],
                               s->scale);
    }
    double sum = 0.0;
    double n = 0.0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        if ((double)s->r.task_length[t] == length) {
            sum += s->r.mean[method * s->n_tasks + t].mean;
            n += 1.0;
        }
    }
    return dpe_number_cell(sum / n * s->scale);
}

static void add_table(struct report *report, const struct glance *glance)
{
    struct sheet *sheet =
        dpe_report_sheet(report, "glance", "method:@", "Methods on all benchmarks");
    for (size_t i = 0; i < glance->n; i++) {
        add_column(sheet, &glance->suites[i]);
    }
    for (size_t m = 0; m < glance->suites[0].n_methods; m++) {
        dpe_draw_cell(sheet, dpe_text_cell(glance->suites[0].r.method[m]));
        for (size_t i = 0; i < glance->n; i++) {
            dpe_draw_cell(sheet, value_cell(&glance->suites[i], m));
        }
    }
    dpe_report_add(report, sheet);
}

dpe_status dpe_comparison_glance(struct report *report, const struct input *input,
                                 struct dpe_error *err)
{
    struct glance glance = {.n = 0};
    dpe_status status = dpe_comparison_suites(input, take_suite, &glance, err);
    bool whole = status == DPE_OK && glance.n > 1;
    for (size_t s = 0; s < glance.n; s++) {
        whole = whole && glance.suites[s].n_methods > 0 && glance.suites[s].n_tasks > 0;
    }
    if (whole) {
        dpe_report_section(report, "Methods at a glance");
        dpe_report_say(report, BLOCK_TEXT,
                       "Each benchmark at the longest length that was measured, with its "
                       "95\u00a0%% interval if it has one. Lower is better for "
                       "perplexity, higher for the others. The sections below explain "
                       "what each measures and how many differences are distinguishable "
                       "from 0.");
        add_table(report, &glance);
    }
    for (size_t s = 0; s < glance.n; s++) {
        dpe_comparison_suite_free(&glance.suites[s]);
    }
    return status;
}
