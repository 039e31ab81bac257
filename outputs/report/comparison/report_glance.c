/* All benchmarks of a comparison in one table: a line for each method, a column for each suite. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SUITES = 16 };

/** The suites of one input, read. */
struct glance {
    struct suite suites[MAX_SUITES];
    size_t n;
};

static void glance_free(struct glance *glance)
{
    for (size_t i = 0; i < glance->n; i++) {
        dpe_comparison_suite_free(&glance->suites[i]);
    }
    glance->n = 0;
}

static dpe_status read_glance(const struct input *input, struct glance *glance,
                              struct dpe_error *err)
{
    char **names = NULL;
    size_t n = 0;
    dpe_status status = dpe_h5_list(input->table, "/eval", &names, &n, err);
    for (size_t i = 0; i < n && glance->n < MAX_SUITES && status == DPE_OK; i++) {
        char *path = dpe_draw_format_text("/eval/%s/task_label", names[i]);
        if (path != NULL && dpe_h5_has(input->table, path)) {
            struct suite *suite = &glance->suites[glance->n];
            status = dpe_comparison_suite_read(input, names[i], suite, err);
            glance->n++; /* a failed read is freed as well */
        }
        free(path);
    }
    dpe_strings_free(names, n);
    return status;
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
    char tokens[32];
    dpe_draw_length_text(dpe_comparison_suite_longest(s), tokens);
    char *name = dpe_draw_format_text("%s at %s%s", dpe_comparison_suite_title(s), tokens,
                                      s->low_is_better ? "" : ", %");
    if (name == NULL || sheet == NULL) {
        free(name);
        return;
    }
    dpe_draw_sheet_column(sheet, name, COLUMN_INTERVAL, s->low_is_better ? 2 : 1);
    free(name);
}

/* The overall score where there is one (it has no interval), the only task's where there is one,
 * else the mean of the tasks. */
static void add_value(struct sheet *sheet, const struct suite *s, size_t method)
{
    double length = dpe_comparison_suite_longest(s);
    double scale = s->low_is_better ? 1.0 : 100.0;
    int64_t overall = overall_at(s, length);
    if (overall >= 0) {
        size_t each = s->n_categories * s->n_category_lengths;
        dpe_draw_sheet_number(sheet,
                              s->r.category_mean[method * each + (size_t)overall] * scale);
        return;
    }
    if (dpe_comparison_suite_is_single(s)) {
        int64_t task = dpe_comparison_suite_task(s, s->r.task_label[0], length);
        size_t at = method * s->n_tasks + (size_t)(task < 0 ? 0 : task);
        dpe_draw_sheet_interval(sheet, s->r.mean[at].mean * scale,
                                s->r.mean[at].low * scale,
                                s->r.mean[at].high * scale);
        return;
    }
    double sum = 0.0;
    double n = 0.0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        if ((double)s->r.task_length[t] == length) {
            sum += s->r.mean[method * s->n_tasks + t].mean;
            n += 1.0;
        }
    }
    dpe_draw_sheet_number(sheet, sum / n * scale);
}

static void add_table(struct report *report, const struct input *input, const struct glance *glance)
{
    char *id = dpe_input_report_id(report, input, "/method", "glance");
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, "Methods on all benchmarks");
    dpe_draw_sheet_column(sheet, "method", COLUMN_TEXT, 0);
    for (size_t i = 0; i < glance->n; i++) {
        add_column(sheet, &glance->suites[i]);
    }
    for (size_t m = 0; sheet != NULL && m < glance->suites[0].n_methods; m++) {
        dpe_draw_sheet_text(sheet, glance->suites[0].r.method[m]);
        dpe_draw_sheet_mark(sheet, MARK_SERIES);
        for (size_t i = 0; i < glance->n; i++) {
            add_value(sheet, &glance->suites[i], m);
        }
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

dpe_status dpe_comparison_glances(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        if (!dpe_h5_has(input->table, "/method") || dpe_h5_has(input->table, "/ablate")) {
            continue;
        }
        struct glance glance = {.n = 0};
        status = read_glance(input, &glance, err);
        bool same = glance.n > 1;
        for (size_t s = 0; s < glance.n; s++) {
            same = same && glance.suites[s].n_methods > 0 && glance.suites[s].n_tasks > 0;
        }
        if (status == DPE_OK && same) {
            dpe_draw_add_text(
                &report->document, BLOCK_SECTION,
                dpe_input_section_title(report, input, "/method", "Methods at a glance"));
            dpe_draw_add_text(
                &report->document, BLOCK_TEXT,
                dpe_draw_format_text(
                    "Each benchmark at the longest length that was measured, with its "
                    "95\u00a0%% interval if it has one. Lower is better for "
                    "perplexity, higher for the others. The sections below explain "
                    "what each measures and how many differences are distinguishable "
                    "from 0."));
            add_table(report, input, &glance);
        }
        glance_free(&glance);
    }
    return status;
}
