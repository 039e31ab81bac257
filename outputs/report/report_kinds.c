/* Sections of results of one kind each. Ablations: the score when one thing about the table
 * changes. Steps of several files that vary the same thing stand in one figure, top-k and last-k
 * beside each other. And tunings, needles by depth and length, divergences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/report/report_parts.h"

/** A step of an ablation on one task. */
struct step {
    const struct dpe_report_suite *suite;
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
    for (const struct dpe_report_suite *s = suites; s < suites + n; s++) {
        for (size_t at = 0; at < s->n_methods * s->n_tasks; at++) {
            const size_t m = at / s->n_tasks;
            const char *axis = varied->axis[m];
            struct step step = {s, m, at % s->n_tasks, axis, axis, varied->value[m]};
            if (varied->k != NULL && varied->k[m] >= 0 && isfinite(step.value) &&
                strcmp(step.axis, "scaled-length") == 0) {
                step.axis = "scaled-by-k";
                step.line = dpe_page_text(&report->page, "%.0f tokens", step.value);
                step.value = (double)varied->k[m];
            }
            if (!dpe_make_room(&steps->steps, steps->n, sizeof step)) {
                dpe_page_no_memory(&report->page);
                return;
            }
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
static void add_level(struct dpe_sheet *sheet, const struct steps *steps, const struct step *like,
                      const char *axis, const char *name)
{
    for (size_t i = 0; i < steps->n; i++) {
        const struct step *step = &steps->steps[i];
        if (same_task(step, like) && step->suite->input == like->suite->input &&
            strcmp(step->axis, axis) == 0) {
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
    const struct dpe_report_suite *s = like->suite;
    const bool few = count_lines(steps, axis, like) < 3; /* all are what the figure is about */
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
                         dpe_comparison_suite_cell(step->suite, step->method, step->task));
            dpe_draw_row_mark(sheet, few ? ROW_STRONG : 0);
        }
    }
    add_level(sheet, steps, like, "base", "base: all groups at half");
    add_level(sheet, steps, like, "rope", "rope: the unchanged model");
    struct dpe_plot plot = dpe_comparison_suite_plot(s, PLOT_CURVES);
    plot.value = 0;
    plot.sorted = true;
    plot.log_x = log;
    plot.x_title = axis->x_title;
    plot.y_title = dpe_page_text(&report->page, "%s%s", s->measure, s->low_is_better ? "" : ", %");
    plot.x_line_title = NULL;
    dpe_page_figure(&report->page, sheet, &plot,
                    "%s Bars are 95\u00a0%% intervals; values whose bars overlap widely may "
                    "differ by chance.",
                    axis->caption);
}

static void add_section(struct dpe_report *report, const struct steps *steps)
{
    dpe_page_section(&report->page, "Ablations");
    for (size_t i = 0; i < report->n; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            report->about.input = &report->inputs[i];
            dpe_report_unfinished(report);
        }
    }
    dpe_report_about(report, NULL, NULL); /* figures are of several */
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
    for (size_t i = 0; i < report->n && report->page.status == DPE_OK; i++) {
        if (dpe_h5_has(report->inputs[i].table, "/ablate/value")) {
            collect(report, &report->inputs[i], &steps);
        }
    }
    if (report->page.status == DPE_OK && steps.n > 0) {
        add_section(report, &steps);
    }
    free(steps.steps);
}

/* -------------------------------------------------------------------------------------- tunings */

/* Whether no method at this length has a larger mean. */
static bool is_best(const struct dpe_tune_result *t, int64_t i)
{
    bool best = !isnan(t->tuned[i].tuned.mean);
    for (int64_t k = 0; k < t->n[0]; k++) {
        best = best && !(t->tuned[k].length == t->tuned[i].length &&
                         t->tuned[k].tuned.mean > t->tuned[i].tuned.mean);
    }
    return best;
}

static void add_tuned(struct dpe_report *report, const struct dpe_tune_result *t)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "tune",
        "method:t|length:0|chosen setting:t|defaults:i1|tuned:i1|tuned - defaults:i1|p:p|"
        "rows of the race:0",
        "Recall on fresh samples, in percent");
    for (int64_t i = 0; i < t->n[0]; i++) {
        const struct dpe_tuned *one = &t->tuned[i];
        struct dpe_sheet_cell tuned = dpe_scaled_cell(&one->tuned, 100.0);
        tuned.mark = is_best(t, i) ? MARK_BEST : 0;
        dpe_draw_row(sheet, one->method, one->length, one->chosen,
                     dpe_scaled_cell(&one->plain, 100.0), tuned,
                     dpe_scaled_cell(&one->gain.minus, 100.0), one->gain.p, one->rows);
    }
    dpe_page_add(&report->page, sheet);
}

void dpe_comparison_tuning(struct dpe_report *report, const void *result)
{
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "The settings of each method raced with as many rows as those of the others. The "
        "setting with the best mean was then run on %lld fresh samples, beside the method at "
        "its defaults. 95 %% intervals; p is of a sign-flip test of the difference, not "
        "corrected for the number of methods. The largest mean of each length is bold.",
        (long long)dpe_input_read_whole(report->about.input, "/tune", "fresh_samples", 0));
    add_tuned(report, result);
}

static void add_map(struct dpe_report *report, const struct dpe_grid_result *g, size_t method)
{
    const size_t lengths = (size_t)g->n[DPE_GRID_LENGTH];
    const size_t cells = (size_t)g->n[DPE_GRID_DEPTH] * lengths;
    const struct dpe_interval *mean = g->mean + method * cells;
    double most = 0.0;
    char id[32];
    snprintf(id, sizeof id, "grid-%zu", method + 1);
    const char *name = dpe_page_clean(&report->page, g->method[method], 60);
    struct dpe_sheet *sheet =
        dpe_page_sheet(&report->page, id, "depth:2|length:0|recall, %:i1|samples:0",
                       "%s: one needle by depth and length", name != NULL ? name : "");
    for (size_t i = 0; i < cells; i++) {
        char depth_text[32];
        struct dpe_sheet_cell depth = dpe_number_cell(g->depth[i / lengths]);
        snprintf(depth_text, sizeof depth_text, "%.0f %%", 100.0 * depth.number[0]);
        depth.text = depth_text;
        dpe_draw_row(sheet, depth, g->length[i % lengths], dpe_scaled_cell(&mean[i], 100.0),
                     mean[i].n);
        most = fmax(most, (double)mean[i].n);
    }
    const struct dpe_plot plot = {
        .kind = PLOT_HEAT,
        DPE_ENDS(0.0, 100.0),
        DPE_TITLES("length, tokens", "depth of the needle", "needles found, %")};
    dpe_page_figure(&report->page, sheet, &plot,
                    "Percentage of needles found, with %.0f sample%s in each cell.", most,
                    most == 1.0 ? "" : "s");
}

void dpe_comparison_grid(struct dpe_report *report, const void *result)
{
    const struct dpe_grid_result *g = result;
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "One needle is hidden at a depth of the text (0\u00a0%% is its beginning), and a question "
        "at the end asks for it. Single cells of few samples vary by chance (intervals are in the "
        "table of numbers); a dark column or band shows where a method fails.");
    for (size_t m = 0; m < (size_t)g->n[DPE_GRID_METHOD]; m++) {
        add_map(report, g, m);
    }
}

/* What is less is rounding, and would stretch a logarithmic axis. */
static const double least_drawn = 1e-9;

static void add_row(struct dpe_sheet *sheet, const char *method, double position,
                    const struct dpe_kld_cell *cell)
{
    dpe_draw_row(sheet, method, position, dpe_scaled_cell(&cell->mean, 1.0), cell->median,
                 cell->p99, cell->p999, 100.0 * cell->same_top, 100.0 * cell->change_rms,
                 cell->ratio.mean);
}

#define COLUMNS(second)                                                                            \
    "method:t|" second                                                                             \
    "|mean:i5|median:5|99 %:4|99.9 %:4|same top token, %:2|RMS change of p, %:2|"                  \
    "perplexity / base:4"

static void add_sheets(struct dpe_report *report, const struct dpe_kld_result *k)
{
    const int64_t buckets = k->n[DPE_KLD_POSITION];
    struct dpe_sheet *whole =
        dpe_page_sheet(&report->page, "divergence", COLUMNS("tokens:0"), "Over all tokens");
    struct dpe_sheet *by = dpe_page_sheet(&report->page, "divergence-by-position",
                                          COLUMNS("from position:0"), "Divergence by position");
    for (int64_t m = 0; m < k->n[DPE_KLD_METHOD]; m++) {
        add_row(whole, k->method[m], (double)k->whole[m].n, &k->whole[m]);
        for (int64_t b = 0; b < buckets; b++) {
            add_row(by, k->method[m], (double)k->position[b], &k->at[m * buckets + b]);
        }
    }
    const struct dpe_plot plot = {
        .kind = PLOT_CURVES,
        .log_x = true,
        .log = true,
        .least = least_drawn,
        DPE_TITLES("position of the token", "KL(base, method), nats", NULL)};
    dpe_page_add(&report->page, whole);
    dpe_page_figure(
        &report->page, by, &plot,
        "Mean over the tokens from each power of two of positions to the next; less than %g "
        "is not drawn.",
        least_drawn);
}

void dpe_comparison_divergence(struct dpe_report *report, const void *result)
{
    const struct dpe_report_input *input = report->about.input;
    const char *base = dpe_input_words(report, input, "/kld", "base");
    const long long trained = dpe_input_read_whole(input, "/kld", "trained_length", 0);
    dpe_page_say(&report->page, BLOCK_TEXT,
                 "How far the distribution of the next token is from that of the base "
                 "(%s), after every token of the same texts: the Kullback-Leibler "
                 "divergence in nats, 0 where both agree. 95 %% intervals over texts.",
                 base != NULL ? base : "rope");
    if (base != NULL && strcmp(base, "rope") == 0 &&
        dpe_input_read_whole(input, "/kld", "length", 0) > trained) {
        dpe_page_say(&report->page, BLOCK_TEXT,
                     "Beyond position %lld, the trained length, the base is no yardstick: "
                     "unchanged, the model may fail there, and what differs from it may be "
                     "better.",
                     trained);
    }
    add_sheets(report, result);
}

/* -------------------------------------------------------------------------------------- profiles
 */

/* How many pairs the line is drawn at: asked for, or of a table in the report, or the paper's three
 * quarters; and the groups' edges of a table beside it. */
static void choose_k(struct dpe_report *report, int64_t pairs, struct dpe_norms_words *of)
{
    *of = (struct dpe_norms_words){.k = dpe_words_usual_k(pairs),
                                   .k_source = "three quarters, as in the paper"};
    for (size_t i = 0; i < report->n && report->page.status == DPE_OK; i++) {
        const struct dpe_table_part *part =
            dpe_input_table(report, &report->inputs[i], "top_k group_edge");
        if (part != NULL && part->top_k != NULL && *part->top_k >= 0.0 &&
            *part->top_k <= (double)pairs) {
            of->k = (int64_t)*part->top_k;
            of->k_source = "the table's";
        }
        if (of->group_edge == NULL && part != NULL && part->group_edge != NULL) {
            of->group_edge = part->group_edge;
            of->n_edges = part->n[TABLE_EDGE];
        }
    }
    if (report->top_k != 0.0) {
        of->k = report->top_k < 0.0 ? (int64_t)llround(-report->top_k * (double)pairs)
                                    : (int64_t)report->top_k;
        of->k_source = "from --top-k";
    }
    if (of->k > pairs) {
        dpe_page_ok(&report->page, dpe_fail(report->page.err, DPE_USAGE,
                                            "--top-k: a head has %lld pairs, found %lld",
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
    if (report->page.status == DPE_OK) {
        dpe_words_norms(&report->page, r, &of);
    }
}
