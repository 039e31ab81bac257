/* Comparisons among the inputs: their suites read, to be told by outputs/words. */
#include <math.h>
#include <string.h>

#include "outputs/report/report_parts.h"

/* The longest length that the table of this name was made for, 0 when no input is that table. */
static double made_for(struct dpe_report *report, const char *method)
{
    const char *file = dpe_last_part(strncmp(method, "table:", 6) == 0 ? method + 6 : method);
    double longest = 0.0;
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (strcmp(input->name, file) == 0 && input->dpe != NULL) {
            longest = fmax(longest, (double)dpe_table_values(input->dpe)->length);
        }
    }
    return longest;
}

static const char *words_of(struct dpe_report *report, const struct dpe_report_input *input,
                            const char *folder, const char *name, const char *otherwise)
{
    const char *words = dpe_input_words(report, input, folder, name);
    return words != NULL ? words : otherwise;
}

/* Tables of other programs may not say what differences are to: the first method. */
static void read_methods(struct dpe_report *report, const struct dpe_report_input *input,
                         struct dpe_suite_words *s)
{
    double *made = dpe_page_alloc(&report->page, s->n_methods, sizeof *made);
    for (size_t m = 0; m < s->n_methods; m++) {
        s->against = dpe_input_says(input, "/eval", "against", s->r->method[m]) ? m : s->against;
        made[m] = made_for(report, s->r->method[m]);
    }
    s->made_for = made;
}

static void read_suite(struct dpe_report *report, const char *name, struct dpe_report_suite *suite)
{
    const struct dpe_report_input *input = suite->input;
    const char *folder = dpe_page_text(&report->page, "/eval/%s", name);
    struct dpe_suite_words *s = &suite->of;
    s->name = dpe_page_clean(&report->page, name, 0);
    suite->has = dpe_page_text(&report->page, "/eval/%s/mean", name);
    s->r = dpe_input_get(report, input, &dpe_suite_kinds[0], folder, NULL);
    if (s->r == NULL) {
        return;
    }
    s->low_is_better = dpe_input_says(input, folder, "better", "lower");
    s->title = words_of(report, input, folder, "title", s->name);
    s->unit = words_of(report, input, folder, "unit",
                       s->low_is_better ? "perplexity per token" : "score (1 = all right)");
    s->explanation =
        words_of(report, input, folder, "explanation",
                 "Scores follow the rules of the benchmark: 1 when all answers are right, 0 when "
                 "none is. All methods read the same samples.");
    s->together = dpe_input_read_whole(input, folder, "samples_together", 1);
    s->trained = dpe_input_read_whole(input, "/eval", "trained_length", -1);
    dpe_words_derive(&report->page, s);
    read_methods(report, input, s);
}

const struct dpe_report_suite *dpe_comparison_suites(struct dpe_report *report,
                                                     const struct dpe_report_input *of, size_t *n)
{
    struct dpe_report_input *input = &report->inputs[of - report->inputs];
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    if (!input->has_suites && report->status == DPE_OK &&
        dpe_report_ok(report,
                      dpe_h5_list(input->table, "/eval", &names.at, &names.n, report->err))) {
        input->suites = dpe_page_alloc(&report->page, names.n, sizeof *input->suites);
        input->has_suites = true;
    }
    for (size_t i = 0; i < names.n && report->status == DPE_OK; i++) {
        const char *label = dpe_page_text(&report->page, "/eval/%s/task_label", names.at[i]);
        if (dpe_h5_has(input->table, label)) {
            struct dpe_report_suite *suite = &input->suites[input->n_suites++];
            suite->input = input;
            read_suite(report, names.at[i], suite);
        }
    }
    *n = report->status == DPE_OK ? input->n_suites : 0;
    return input->suites;
}

/* An ablation is a comparison as well, and has its own section. */
void dpe_comparison_section(struct dpe_report *report)
{
    size_t n = 0;
    const struct dpe_report_suite *suites = dpe_comparison_suites(report, report->about.input, &n);
    for (const struct dpe_report_suite *s = suites; s < suites + n; s++) {
        if (s->of.n_methods > 0 && s->of.n_tasks > 0) {
            dpe_report_about(report, s->input, s->has);
            dpe_words_suite(&report->page, &s->of);
        }
    }
}

void dpe_comparison_glance(struct dpe_report *report)
{
    enum { MOST = 16 };
    size_t n = 0;
    const struct dpe_report_suite *suites = dpe_comparison_suites(report, report->about.input, &n);
    const struct dpe_suite_words *of[MOST];
    bool whole = n > 1;
    n = n > MOST ? MOST : n;
    for (size_t i = 0; i < n; i++) {
        of[i] = &suites[i].of;
        whole = whole && of[i]->n_methods > 0 && of[i]->n_tasks > 0;
    }
    if (whole) {
        dpe_words_glance(&report->page, of, n);
    }
}
