/* Results that are read back and told by outputs/words; and ablations: the score when one thing
 * about the table changes. Steps of several files that vary the same thing stand in one figure,
 * top-k and last-k beside each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/report/report_parts.h"

/** A step of an ablation on one task. */
struct step {
    const struct dpe_report_input *input;
    const struct dpe_suite_words *suite;
    size_t method, task;
    const char *axis; /**< rank, top-k, last-k, window, scaled-length, scaled-by-k, base, rope */
    const char *line; /**< what its line is called: the axis, or a scaled length */
    double value;
};

struct steps {
    struct step *steps;
    size_t n;
};

/** What is varied, and how its figure is labelled. */
static const struct axis {
    const char *name, *also, *id, *title, *x_title, *caption;
    bool log;
} axes[] = {
    {"rank", NULL, "ablate-rank", "The n-th best lengths", "rank n of each group",
     "Every group takes its n-th best detecting length in place of its best one. A curve that "
     "falls shows that the ranks matter; a flat one, that they are chance.",
     false},
    {"top-k", "last-k", "ablate-pairs", "Number of key pairs that are scaled",
     "k, pairs of each head",
     "Only k pairs of each head take scaled positions, the others keep their true ones: the pairs "
     "that contribute most (top-k), or least (last-k). Where the two lines differ, the profile's "
     "ranking matters.",
     false},
    {"window", NULL, "ablate-window", "The window of true positions", "window, tokens",
     "Keys nearer than the window keep their true distance. The line shows how much this setting "
     "matters.",
     true},
    {"scaled-by-k", NULL, "ablate-scaled-pairs", "One length for all groups, by key pairs",
     "k, pairs of each head",
     "All groups take the same length in place of their own, and only the k pairs of each head "
     "that contribute most take it: one line for each length. The best point of a line is the "
     "number of pairs to scale at that length.",
     false},
    {"scaled-length", NULL, "ablate-scaled", "One effective length for all groups",
     "scaled length, tokens",
     "All groups take the same length in place of their own. The best point is the most that a "
     "method without groups can reach.",
     true},
};
enum { AXES = sizeof axes / sizeof axes[0] };

/* The steps of an input. */
static void collect(struct dpe_report *report, const struct dpe_report_input *input,
                    struct steps *steps)
{
    const struct dpe_ablate_result *varied =
        dpe_input_get(report, input, &dpe_ablate_kind, "/ablate", NULL);
    size_t n = 0;
    const struct dpe_report_suite *suites = dpe_comparison_suites(report, input, &n);
    for (size_t i = 0; i < n; i++) {
        const struct dpe_suite_words *s = &suites[i].of;
        for (size_t at = 0; at < s->n_methods * s->n_tasks; at++) {
            const size_t m = at / s->n_tasks;
            const char *axis = varied->axis[m];
            struct step step = {input, s, m, at % s->n_tasks, axis, axis, varied->value[m]};
            if (varied->k != NULL && varied->k[m] >= 0 && isfinite(step.value) &&
                strcmp(step.axis, "scaled-length") == 0) {
                step.axis = "scaled-by-k";
                step.line = dpe_page_text(&report->page, "%.0f tokens", step.value);
                step.value = (double)varied->k[m];
            }
            dpe_draw_room(&steps->steps, steps->n, sizeof step);
            steps->steps[steps->n++] = step;
        }
    }
}

/* -------------------------------------------------------------------------------------- figures */

static bool same_task(const struct step *a, const struct step *b)
{
    const struct dpe_suite_result *of = a->suite->r, *other = b->suite->r;
    return of->task_length[a->task] == other->task_length[b->task] &&
           strcmp(a->suite->name, b->suite->name) == 0 &&
           strcmp(of->task_label[a->task], other->task_label[b->task]) == 0;
}

static double value_of(const struct step *step)
{
    return step->suite->r->mean[step->method * step->suite->n_tasks + step->task].mean;
}

static bool on_axis(const struct step *step, const struct axis *axis)
{
    return strcmp(step->axis, axis->name) == 0 ||
           (axis->also != NULL && strcmp(step->axis, axis->also) == 0);
}

/* What the lines are compared with: one value, drawn from side to side. */
static void add_level(struct dpe_sheet *sheet, const struct steps *steps, const struct step *like,
                      const char *axis, const char *name)
{
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (same_task(step, like) && step->input == like->input && strcmp(step->axis, axis) == 0) {
            if (isfinite(value_of(step))) {
                dpe_draw_row(sheet, name, (double)NAN, step->suite->scale * value_of(step));
                dpe_draw_row_mark(sheet, ROW_PLAIN);
            }
            return;
        }
    }
}

static void add_axis(struct dpe_report *report, const struct steps *steps, const struct axis *axis,
                     const struct step *like, size_t number)
{
    const struct dpe_suite_words *s = like->suite;
    bool log = axis->log;
    const char *id =
        number == 0 ? axis->id : dpe_page_text(&report->page, "%s-%zu", axis->id, number + 1);
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, id,
        s->low_is_better ? "varied:t|value:0|perplexity:i3" : "varied:t|value:0|score, %:i1",
        "%s, %s at %s tokens", axis->title, s->r->task_label[like->task],
        DPE_LENGTH_TEXT((double)s->r->task_length[like->task]));
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (on_axis(step, axis) && same_task(step, like)) {
            log = log && step->value > 0.0;
            dpe_draw_row(sheet, step->line, step->value,
                         dpe_words_cell(step->suite, step->method, step->task));
        }
    }
    add_level(sheet, steps, like, "base", "base: all groups at half");
    add_level(sheet, steps, like, "rope", "rope: the unchanged model");
    struct dpe_plot plot = dpe_words_plot(s, PLOT_CURVES);
    plot.value = 0;
    plot.sorted = true;
    plot.log_x = log;
    plot.x_title = axis->x_title;
    plot.y_title = dpe_page_text(&report->page, "%s%s", s->measure, s->low_is_better ? "" : ", %");
    plot.x_line_title = NULL;
    dpe_page_figure(&report->page, sheet, &plot, "%s Bars are 95\u00a0%% intervals.",
                    axis->caption);
}

static void add_section(struct dpe_report *report, const struct steps *steps)
{
    for (size_t i = 0; i < report->n; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value") &&
            dpe_input_read_whole(&report->inputs[i], "/", "complete", 1) == 0) {
            report->page.unfinished = report->inputs[i].name;
        }
    }
    dpe_page_section(&report->page, "Ablations");
    for (size_t a = 0; a < AXES; a++) {
        size_t number = 0;
        for (size_t i = 0; i < steps->n; i++) {
            const struct step *step = &steps->steps[i];
            bool seen = !on_axis(step, &axes[a]);
            for (size_t k = 0; k < i && !seen; k++) {
                seen = on_axis(&steps->steps[k], &axes[a]) && same_task(&steps->steps[k], step);
            }
            if (!seen) {
                add_axis(report, steps, &axes[a], step, number++);
            }
        }
    }
}

void dpe_comparison_ablations(struct dpe_report *report)
{
    struct steps steps = {0};
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            collect(report, &report->inputs[i], &steps);
        }
    }
    if (report->status == DPE_OK && steps.n > 0) {
        add_section(report, &steps);
    }
    free(steps.steps);
}

/* ---------------------------------------------------------------------------- results of one kind
 */

void dpe_sections_tune(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    const struct dpe_tune_result *r = dpe_input_get(report, input, &dpe_tune_kind, "/tune", NULL);
    if (r != NULL) {
        dpe_words_tune(&report->page, r, dpe_input_read_whole(input, "/tune", "fresh_samples", 0));
    }
}

void dpe_sections_grid(struct dpe_report *report)
{
    const struct dpe_grid_result *r =
        dpe_input_get(report, report->about.input, &dpe_grid_kind, "/eval/niah_grid",
                      "mean ci_low ci_high n_valid");
    if (r != NULL) {
        dpe_words_grid(&report->page, r);
    }
}

void dpe_sections_kld(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    const struct dpe_kld_result *r = dpe_input_get(report, input, &dpe_kld_kind, "/kld", NULL);
    const char *base = dpe_input_words(report, input, "/kld", "base");
    const struct dpe_kld_words of = {.base = base != NULL ? base : "rope",
                                     .length = dpe_input_read_whole(input, "/kld", "length", 0),
                                     .trained =
                                         dpe_input_read_whole(input, "/kld", "trained_length", 0)};
    if (r != NULL) {
        dpe_words_kld(&report->page, r, &of);
    }
}

/* How many pairs the line is drawn at: asked for, or of a table in the report, or the paper's three
 * quarters; and the groups' edges of a table beside it. */
static void choose_k(struct dpe_report *report, int64_t pairs, struct dpe_norms_words *of)
{
    *of = (struct dpe_norms_words){.k = dpe_words_usual_k(pairs),
                                   .k_source = "three quarters, as in the paper"};
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_table_values *v =
            report->inputs[i].dpe != NULL ? dpe_table_values(report->inputs[i].dpe) : NULL;
        if (v != NULL && v->top_k <= pairs && dpe_h5_has(report->inputs[i].table, "/table/top_k")) {
            of->k = v->top_k;
            of->k_source = "the table's";
        }
        if (of->group_edge == NULL && v != NULL) {
            of->group_edge = v->group_edge;
            of->n_edges = v->n_groups + 1;
        }
    }
    if (report->top_k != 0.0) {
        of->k = report->top_k < 0.0 ? (int64_t)llround(-report->top_k * (double)pairs)
                                    : (int64_t)report->top_k;
        of->k_source = "from --top-k";
    }
    if (of->k > pairs) {
        dpe_report_ok(report,
                      dpe_fail(report->err, DPE_USAGE, "--top-k: a head has %lld pairs, found %lld",
                               (long long)pairs, (long long)of->k));
    }
}

void dpe_sections_norms(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    const struct dpe_norms_result *r =
        dpe_input_get(report, input, &dpe_norms_kind, "/norms", "mean sem");
    struct dpe_norms_words of;
    if (r == NULL) {
        return;
    }
    choose_k(report, r->n[DPE_NORMS_PAIR], &of);
    of.contribution = dpe_input_words(report, input, "/norms", "contribution");
    if (report->status == DPE_OK) {
        dpe_words_norms(&report->page, r, &of);
    }
}
