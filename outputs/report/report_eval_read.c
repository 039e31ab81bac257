/* One suite of a comparison: read, and what can be asked of it. */
#include "outputs/report/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Means and their axes are there together, or they are not shown. */
static void take_axes(struct dpe_report_suite *s)
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

/* What follows from the values; tables of other programs may not say what differences are to: the
 * first method. */
static void derive(struct dpe_report_suite *s)
{
    double any = 0.0;
    take_axes(s);
    s->single = true;
    for (size_t m = 0; m < s->n_methods; m++) {
        s->against = dpe_input_says(s->input, "/eval", "against", s->r->method[m]) ? m : s->against;
    }
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

static const char *words_of(struct dpe_report *report, const struct dpe_report_suite *s,
                            const char *folder, const char *name, const char *otherwise)
{
    const char *words = dpe_input_words(report, s->input, folder, name);
    return words != NULL ? words : otherwise;
}

static void read_suite(struct dpe_report *report, const char *name, struct dpe_report_suite *s)
{
    const char *folder = dpe_report_text(report, "/eval/%s", name);
    s->name = dpe_report_clean(report, name, 0);
    s->has = dpe_report_text(report, "/eval/%s/mean", name);
    s->r = dpe_input_get(report, s->input, &dpe_suite_kinds[0], folder, NULL);
    if (s->r == NULL) {
        return;
    }
    s->low_is_better = dpe_input_says(s->input, folder, "better", "lower");
    s->scale = s->low_is_better ? 1.0 : 100.0;
    s->title = words_of(report, s, folder, "title", s->name);
    s->unit = words_of(report, s, folder, "unit",
                       s->low_is_better ? "perplexity per token" : "score (1 = all right)");
    const char *bracket = strstr(s->unit, " (");
    s->measure = dpe_report_text(
        report, "%.*s", (int)(bracket != NULL ? (size_t)(bracket - s->unit) : strlen(s->unit)),
        s->unit);
    s->explanation =
        words_of(report, s, folder, "explanation",
                 "Scores follow the rules of the benchmark: 1 when all answers are right, 0 when "
                 "none is. All methods read the same samples.");
    s->together = dpe_input_read_whole(s->input, folder, "samples_together", 1);
    derive(s);
}

const struct dpe_report_suite *dpe_comparison_suites(struct dpe_report *report,
                                                     const struct dpe_report_input *of, size_t *n)
{
    struct dpe_report_input *input = &report->inputs[of - report->inputs];
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    if (!input->has_suites && report->status == DPE_OK &&
        dpe_report_ok(report,
                      dpe_h5_list(input->table, "/eval", &names.at, &names.n, report->err))) {
        input->suites = dpe_report_alloc(report, names.n, sizeof *input->suites);
        input->has_suites = true;
    }
    for (size_t i = 0; i < names.n && report->status == DPE_OK; i++) {
        const char *label = dpe_report_text(report, "/eval/%s/task_label", names.at[i]);
        if (label != NULL && dpe_h5_has(input->table, label)) {
            struct dpe_report_suite *suite = &input->suites[input->n_suites++];
            suite->input = input;
            read_suite(report, names.at[i], suite);
        }
    }
    *n = report->status == DPE_OK ? input->n_suites : 0;
    return input->suites;
}

/* --------------------------------------------------------------------------------------- asking */

int64_t dpe_comparison_suite_task(const struct dpe_report_suite *s, double length)
{
    for (size_t t = 0; t < s->n_tasks; t++) {
        if (strcmp(s->r->task_label[t], s->r->task_label[0]) == 0 &&
            (double)s->r->task_length[t] == length) {
            return (int64_t)t;
        }
    }
    return -1;
}

struct dpe_sheet_cell dpe_comparison_suite_cell(const struct dpe_report_suite *s, size_t method,
                                                size_t task)
{
    return dpe_scaled_cell(&s->r->mean[method * s->n_tasks + task], s->scale);
}

size_t dpe_comparison_suite_rank(const struct dpe_report_suite *s, size_t method, size_t task)
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

size_t dpe_comparison_suite_ranked(const struct dpe_report_suite *s, size_t rank, size_t task)
{
    size_t m = 0;
    while (m + 1 < s->n_methods && dpe_comparison_suite_rank(s, m, task) != rank) {
        m++;
    }
    return m;
}

void dpe_comparison_suite_about(struct dpe_report *report, const struct dpe_report_suite *s)
{
    struct dpe_report_subject *about = &report->about;
    *about = (struct dpe_report_subject){.input = s->input, .has = s->has};
    snprintf(about->prefix, sizeof about->prefix, "%s", s->name);
    for (char *c = about->prefix; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        *c = (char)(plain ? *c : '-');
    }
}

struct dpe_plot dpe_comparison_suite_plot(const struct dpe_report_suite *s, enum dpe_plot_kind kind)
{
    const bool lines = kind == PLOT_CURVES, low = s->low_is_better;
    return (struct dpe_plot){
        .kind = kind,
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
        DPE_LINE((double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1),
                 "trained length")};
}
