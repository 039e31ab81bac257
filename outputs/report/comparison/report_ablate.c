/* Ablations: the score when one thing about the table changes. Steps of several files that vary the
 * same thing stand in one figure, top-k and last-k beside each other. */
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A step of an ablation on one task. */
struct step {
    size_t input;  /**< index into the report's */
    char axis[32]; /**< rank, top-k, last-k, window, scaled-length, scaled-by-k, base, rope */
    char line[32]; /**< what its line is called: the axis, or a scaled length */
    char suite[64], label[64];
    char measure[64]; /**< what a mean is: "recall" */
    double length, value, mean, low, high;
    bool low_is_better;
};

struct steps {
    struct step *steps;
    size_t n, capacity;
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
enum { AXES = sizeof axes / sizeof axes[0], MAX_LINES = 16 };

static bool append(struct steps *steps, const struct step *step)
{
    if (steps->n == steps->capacity) {
        size_t capacity = steps->capacity == 0 ? 64 : steps->capacity * 2;
        void *grown = realloc(steps->steps, capacity * sizeof *steps->steps);
        if (grown == NULL) {
            return false;
        }
        steps->steps = grown;
        steps->capacity = capacity;
    }
    steps->steps[steps->n++] = *step;
    return true;
}

static dpe_status collect_suite(const struct report *report, size_t i, const struct suite *suite,
                                const struct dpe_ablate_result *varied, struct steps *steps,
                                struct dpe_error *err)
{
    double scale = suite->low_is_better ? 1.0 : 100.0;
    for (size_t m = 0; m < suite->n_methods; m++) {
        for (size_t t = 0; t < suite->n_tasks; t++) {
            size_t at = m * suite->n_tasks + t;
            struct step step = {.input = i,
                                .length = (double)suite->r.task_length[t],
                                .value = varied->value[m],
                                .mean = scale * suite->r.mean[at].mean,
                                .low = scale * suite->r.mean[at].low,
                                .high = scale * suite->r.mean[at].high,
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
            if (!append(steps, &step)) {
                return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", report->inputs[i].path);
            }
        }
    }
    return DPE_OK;
}

static dpe_status collect(const struct report *report, size_t i, struct steps *steps,
                          struct dpe_error *err)
{
    const struct input *input = &report->inputs[i];
    struct dpe_ablate_result varied = {0};
    char **suites = NULL;
    size_t n = 0;
    dpe_status status = dpe_input_get(input, &dpe_ablate_kind, &varied, "/ablate", NULL, err);
    if (status == DPE_OK) {
        status = dpe_h5_list(input->table, "/eval", &suites, &n, err);
    }
    for (size_t s = 0; s < n && status == DPE_OK; s++) {
        char *path = dpe_draw_format_text("/eval/%s/task_label", suites[s]);
        struct suite suite = {0};
        if (path != NULL && dpe_h5_has(input->table, path)) {
            status = dpe_comparison_suite_read(input, suites[s], &suite, err);
            if (status == DPE_OK) {
                status = collect_suite(report, i, &suite, &varied, steps, err);
            }
        }
        dpe_comparison_suite_free(&suite);
        free(path);
    }
    dpe_strings_free(suites, n);
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

/** Points of one line. */
struct line {
    const char *name;
    int64_t n;
    double *x, *y, *low, *high;
};

/* Steps of one axis on one task, by value. `room` holds 4 × steps->n numbers. */
static struct line make_line(const struct steps *steps, const struct step *like, const char *axis,
                             double *room)
{
    struct line line = {axis, 0, room, room + steps->n, room + 2 * steps->n, room + 3 * steps->n};
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (!same_task(step, like) || strcmp(step->line, axis) != 0) {
            continue;
        }
        int64_t k = line.n++;
        for (; k > 0 && line.x[k - 1] > step->value; k--) {
            line.x[k] = line.x[k - 1];
            line.y[k] = line.y[k - 1];
            line.low[k] = line.low[k - 1];
            line.high[k] = line.high[k - 1];
        }
        line.x[k] = step->value;
        line.y[k] = step->mean;
        line.low[k] = step->low;
        line.high[k] = step->high;
    }
    return line;
}

static struct sheet *line_sheet(const char *id, const char *title, const struct curve *curves,
                                size_t n, bool low_is_better)
{
    struct sheet *sheet = id == NULL || title == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "varied", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "value", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, low_is_better ? "perplexity" : "score, %", COLUMN_INTERVAL,
                          low_is_better ? 3 : 1);
    for (size_t c = 0; c < n; c++) {
        /* Something to compare with is one value, drawn from side to side. */
        int64_t rows = curves[c].plain && curves[c].n > 0 ? 1 : curves[c].n;
        for (int64_t i = 0; i < rows; i++) {
            dpe_draw_sheet_text(sheet, curves[c].name);
            dpe_draw_sheet_number(sheet, curves[c].plain ? (double)NAN : curves[c].x[i]);
            dpe_draw_sheet_interval(sheet, curves[c].y[i],
                                    curves[c].low != NULL ? curves[c].low[i] : (double)NAN,
                                    curves[c].low != NULL ? curves[c].high[i] : (double)NAN);
        }
    }
    return sheet;
}

/* The reference as a level line over the range of x; `room` holds 4 numbers. */
static bool make_level(const struct steps *steps, const struct step *like, const char *axis,
                       double low, double high, double *room)
{
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (same_task(step, like) && step->input == like->input && strcmp(step->axis, axis) == 0) {
            room[0] = low;
            room[1] = high;
            room[2] = room[3] = step->mean;
            return isfinite(step->mean);
        }
    }
    return false;
}

/* A line for each name among the steps of the axis on the task, in their order. `room` holds
 * 4 × MAX_LINES × steps->n numbers. */
static size_t make_curves(const struct steps *steps, const struct axis *axis,
                          const struct step *like, struct curve *curves, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < steps->n && n < MAX_LINES; i++) {
        const struct step *step = &steps->steps[i];
        bool seen = !on_axis(step, axis) || !same_task(step, like);
        for (size_t k = 0; k < n && !seen; k++) {
            seen = strcmp(curves[k].name, step->line) == 0;
        }
        if (!seen) {
            struct line line = make_line(steps, like, step->line, room + 4 * n * steps->n);
            curves[n++] =
                (struct curve){line.name, line.n, line.x, line.y, line.low, line.high, false, true};
        }
    }
    for (size_t k = 0; k < n; k++) {
        curves[k].strong = n < 3;
    }
    return n;
}

static void add_axis(struct report *report, const struct steps *steps, const struct axis *axis,
                     const struct step *like, size_t number)
{
    struct curve curves[MAX_LINES + 2];
    double levels[8];
    double least = (double)INFINITY;
    double most = -(double)INFINITY;
    double *room = dpe_alloc(steps->n, 4 * MAX_LINES * sizeof *room);
    size_t n = room == NULL ? 0 : make_curves(steps, axis, like, curves, room);
    for (size_t k = 0; k < n; k++) {
        least = fmin(least, curves[k].x[0]);
        most = fmax(most, curves[k].x[curves[k].n - 1]);
    }
    static const char *const references[2][2] = {{"base", "base: all groups at half"},
                                                 {"rope", "rope: the unchanged model"}};
    for (size_t k = 0; k < 2; k++) {
        if (make_level(steps, like, references[k][0], least, most, levels + 4 * k)) {
            curves[n++] = (struct curve){
                references[k][1], 2, levels + 4 * k, levels + 4 * k + 2, NULL, NULL, true, false};
        }
    }
    char tokens[32];
    dpe_draw_length_text(like->length, tokens);
    char *id = number == 0 ? dpe_draw_format_text("%s", axis->id)
                           : dpe_draw_format_text("%s-%zu", axis->id, number + 1);
    char *title = dpe_draw_format_text("%s, %s at %s tokens", axis->title, like->label, tokens);
    struct figure *figure = dpe_draw_figure_new(
        room != NULL ? id : NULL, title != NULL ? title : "",
        dpe_draw_format_text("%s Bars are 95\u00a0%% intervals; values whose bars overlap "
                             "widely may differ by chance.",
                             axis->caption),
        line_sheet(id, title, curves, n, like->low_is_better));
    if (figure != NULL) {
        bool log = axis->log && least > 0.0;
        char y_title[80];
        snprintf(y_title, sizeof y_title, "%s%s", like->measure,
                 like->low_is_better ? "" : ", %");
        const struct curves all = {.curves = curves,
                                   .n = n,
                                   .log_x = log,
                                   .log_y = like->low_is_better,
                                   .y_low = like->low_is_better ? (double)NAN : -2.0,
                                   .y_high = like->low_is_better ? (double)NAN : 104.0,
                                   .x_title = axis->x_title,
                                   .y_title = y_title,
                                   .x_line = (double)NAN};
        dpe_draw_curves(figure, &all);
    }
    report->document.failed = report->document.failed || room == NULL || title == NULL;
    dpe_draw_add_figure(&report->document, figure);
    free(room);
    free(id);
    free(title);
}

dpe_status dpe_comparison_ablations(struct report *report, struct dpe_error *err)
{
    struct steps steps = {0};
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            status = collect(report, i, &steps, err);
        }
    }
    if (status == DPE_OK && steps.n > 0) {
        dpe_draw_add_text(&report->document, BLOCK_SECTION, dpe_draw_format_text("Ablations"));
        for (size_t i = 0; i < report->n; i++) {
            if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
                dpe_input_add_unfinished(report, &report->inputs[i]);
            }
        }
    }
    for (size_t a = 0; a < AXES && status == DPE_OK; a++) {
        size_t number = 0;
        for (size_t i = 0; i < steps.n; i++) {
            const struct step *step = &steps.steps[i];
            bool seen = !on_axis(step, &axes[a]);
            for (size_t k = 0; k < i && !seen; k++) {
                seen = on_axis(&steps.steps[k], &axes[a]) && same_task(&steps.steps[k], step);
            }
            if (!seen) {
                add_axis(report, &steps, &axes[a], step, number++);
            }
        }
    }
    free(steps.steps);
    return status;
}
