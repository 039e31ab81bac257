/* Ablations: the score when one thing about the table changes. Steps of several files that vary the
 * same thing stand in one figure, top-k and last-k beside each other. */
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A step of an ablation on one task. */
struct step {
    const struct input *input;
    char axis[32]; /**< rank, top-k, last-k, window, scaled-length, scaled-by-k, base, rope */
    char line[32]; /**< what its line is called: the axis, or a scaled length */
    char suite[64], label[64];
    char measure[64]; /**< what a mean is: "recall" */
    double length, value, scale;
    struct dpe_interval mean;
    bool low_is_better;
};

struct steps {
    struct step *steps;
    size_t n;
    const struct dpe_ablate_result *varied; /**< of the input that is being read */
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

static dpe_status collect_suite(void *user, struct suite *suite, struct dpe_error *err)
{
    struct steps *steps = user;
    const struct dpe_ablate_result *varied = steps->varied;
    for (size_t at = 0; at < suite->n_methods * suite->n_tasks; at++) {
        const size_t m = at / suite->n_tasks;
        const size_t t = at % suite->n_tasks;
        struct step step = {.input = suite->input,
                            .length = (double)suite->r.task_length[t],
                            .value = varied->value[m],
                            .mean = suite->r.mean[at],
                            .scale = suite->scale,
                            .low_is_better = suite->low_is_better};
        bool by_k = varied->k != NULL && varied->k[m] >= 0 && isfinite(step.value) &&
                    strcmp(varied->axis[m], "scaled-length") == 0;
        snprintf(step.axis, sizeof step.axis, "%.31s", by_k ? "scaled-by-k" : varied->axis[m]);
        snprintf(step.line, sizeof step.line, "%s", step.axis);
        if (by_k) {
            snprintf(step.line, sizeof step.line, "%.0f tokens", step.value);
            step.value = (double)varied->k[m];
        }
        dpe_comparison_suite_measure(suite, step.measure, sizeof step.measure);
        snprintf(step.suite, sizeof step.suite, "%.63s", suite->name);
        snprintf(step.label, sizeof step.label, "%.63s", suite->r.task_label[t]);
        if (!dpe_make_room(&steps->steps, steps->n, sizeof *steps->steps)) {
            return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", suite->input->path);
        }
        steps->steps[steps->n++] = step;
    }
    return DPE_OK;
}

static dpe_status collect(const struct input *input, struct steps *steps, struct dpe_error *err)
{
    struct dpe_ablate_result varied = {0};
    dpe_status status = dpe_input_get(input, &dpe_ablate_kind, &varied, "/ablate", NULL, err);
    steps->varied = &varied;
    if (status == DPE_OK) {
        status = dpe_comparison_suites(input, collect_suite, steps, err);
    }
    dpe_datasets_free(&dpe_ablate_kind, &varied);
    return status;
}

/* ---------------------------------------------------------------------------------------- figures
 */

static bool same_task(const struct step *a, const struct step *b)
{
    return a->length == b->length && strcmp(a->suite, b->suite) == 0 &&
           strcmp(a->label, b->label) == 0;
}

static bool on_axis(const struct step *step, const struct axis *axis)
{
    return strcmp(step->axis, axis->name) == 0 ||
           (axis->also != NULL && strcmp(step->axis, axis->also) == 0);
}

static size_t count_lines(const struct steps *steps, const struct axis *axis,
                          const struct step *like)
{
    size_t n = 0;
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        bool seen = !on_axis(step, axis) || !same_task(step, like);
        for (size_t e = 0; e < i && !seen; e++) {
            seen =
                same_task(&steps->steps[e], like) && strcmp(steps->steps[e].line, step->line) == 0;
        }
        n += !seen;
    }
    return n;
}

/* What the lines are compared with: one value, drawn from side to side. */
static void add_level(struct sheet *sheet, const struct steps *steps, const struct step *like,
                      const char *axis, const char *name)
{
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (same_task(step, like) && step->input == like->input && strcmp(step->axis, axis) == 0) {
            if (isfinite(step->mean.mean)) {
                dpe_draw_row(sheet, name, (double)NAN, step->scale * step->mean.mean);
                dpe_draw_row_mark(sheet, ROW_PLAIN);
            }
            return;
        }
    }
}

static void add_axis(struct report *report, const struct steps *steps, const struct axis *axis,
                     const struct step *like, size_t number)
{
    const bool few = count_lines(steps, axis, like) < 3; /* all are what the figure is about */
    char id[64], tokens[32], y_title[80];
    bool log = axis->log;
    snprintf(id, sizeof id, number == 0 ? "%s" : "%s-%zu", axis->id, number + 1);
    snprintf(y_title, sizeof y_title, "%s%s", like->measure, like->low_is_better ? "" : ", %");
    struct sheet *sheet = dpe_report_sheet(
        report, id,
        like->low_is_better ? "varied:t|value:0|perplexity:i3" : "varied:t|value:0|score, %:i1",
        "%s, %s at %s tokens", axis->title, like->label, dpe_length_text(like->length, tokens));
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (on_axis(step, axis) && same_task(step, like)) {
            log = log && step->value > 0.0;
            dpe_draw_row(sheet, step->line, step->value, dpe_scaled_cell(&step->mean, step->scale));
            dpe_draw_row_mark(sheet, few ? ROW_STRONG : 0);
        }
    }
    add_level(sheet, steps, like, "base", "base: all groups at half");
    add_level(sheet, steps, like, "rope", "rope: the unchanged model");
    const struct plot plot = {.kind = PLOT_CURVES,
                              .sorted = true,
                              .log_x = log,
                              .log = like->low_is_better,
                              .low = like->low_is_better ? (double)NAN : -2.0,
                              .high = like->low_is_better ? (double)NAN : 104.0,
                              .x_title = axis->x_title,
                              .y_title = y_title};
    dpe_report_figure(report, sheet, &plot,
                      "%s Bars are 95\u00a0%% intervals; values whose bars overlap "
                      "widely may differ by chance.",
                      axis->caption);
}

static void add_section(struct report *report, const struct steps *steps)
{
    dpe_report_section(report, "Ablations");
    for (size_t i = 0; i < report->n; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            report->about.input = &report->inputs[i];
            dpe_report_unfinished(report);
        }
    }
    report->about.input = NULL; /* figures are of several */
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

dpe_status dpe_comparison_ablations(struct report *report, struct dpe_error *err)
{
    struct steps steps = {0};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            status = collect(&report->inputs[i], &steps, err);
        }
    }
    if (status == DPE_OK && steps.n > 0) {
        add_section(report, &steps);
    }
    free(steps.steps);
    return status;
}
