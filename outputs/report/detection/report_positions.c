/* A detection by position in the text. */
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first tokens have hardly any context: their perplexity of hundreds would flatten the rest. */
static int64_t first_shown(int64_t n)
{
    return n > 6 ? 3 : 0;
}

/* All cells, as numbers. */
static struct dpe_sheet *positions_sheet(const struct dpe_report *report,
                                         const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    const int64_t n = r->n[DPE_CELLS_POSITION];
    struct dpe_sheet *sheet = dpe_report_sheet(report, "detect-positions",
                                               "group:0|length:0|from position:0|perplexity:3",
                                               "Perplexity by position, group by group");
    for (int64_t i = 0; i < d->n_groups * d->n_lengths * n; i++) {
        dpe_draw_row(sheet, i / n / d->n_lengths, d->ranking->length[i / n % d->n_lengths],
                     r->position[i % n], r->perplexity_at[i]);
    }
    dpe_draw_shown(sheet, 80, false);
    return sheet;
}

/* Ranks by perplexity; NULL: there are none. */
static const int32_t *rank_of(const struct dpe_report_detection *d)
{
    return d->by_recall ? d->by_perplexity->rank : d->ranking->rank;
}

/* The cell of a group's length of rank 1 by perplexity; -1: none. */
static int64_t best_of(const struct dpe_report_detection *d, int64_t group)
{
    const int32_t *rank = rank_of(d);
    int64_t best = -1;
    for (int64_t i = group * d->n_lengths; i < (group + 1) * d->n_lengths; i++) {
        best = rank[i] == 1 ? i : best;
    }
    return best;
}

/* Perplexities of a cell in which the groups are at half the trained length; NULL: there is none.
 */
static const double *base_of(const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    for (int64_t t = 0; t < d->n_lengths; t++) {
        if ((double)d->ranking->length[t] == dpe_detection_trained(d) / 2.0) {
            return r->perplexity_at +
                   ((d->n_groups - 1) * d->n_lengths + t) * r->n[DPE_CELLS_POSITION];
        }
    }
    return NULL;
}

/* What is drawn: groups at their best lengths ("3 at 256"). Against the base a change of a few
 * percent shows; without one there are the values themselves. */
static void add_best(struct dpe_sheet *drawn, const struct dpe_report_detection *d)
{
    const struct dpe_scores_result *r = d->perplexity;
    const double *base = base_of(d);
    const int64_t n = r->n[DPE_CELLS_POSITION];
    for (int64_t g = 0; g < d->n_groups; g++) {
        const int64_t best = best_of(d, g);
        struct dpe_sheet_cell group = dpe_number_cell((double)g);
        char name[64], tokens[32] = "–";
        if (best >= 0) {
            dpe_length_text((double)d->ranking->length[best % d->n_lengths], tokens);
        }
        snprintf(name, sizeof name, "%lld at %s", (long long)g, tokens);
        group.text = name;
        for (int64_t b = first_shown(n); b < n; b++) {
            const double value = best < 0 ? (double)NAN : r->perplexity_at[best * n + b];
            dpe_draw_row(drawn, group, r->position[b],
                         base == NULL ? value : 100.0 * (value / base[b] - 1.0));
        }
    }
}

static void add_groups(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const bool relative = base_of(d) != NULL;
    const struct dpe_plot plot = {.kind = PLOT_HEAT,
                                  .log = !relative,
                                  .low_is_good = true,
                                  .digits = relative ? 1 : 3,
                                  DPE_TITLES("from position, tokens", "group, at its best length",
                                             relative ? "change, percent" : "perplexity")};
    struct dpe_sheet *sheet = positions_sheet(report, d);
    add_best(dpe_draw_instead(sheet, "group:0|from position:0|value:0"), d);
    dpe_report_figure(report, sheet, &plot,
                      "The %s of the tokens from each position to twice that position when one "
                      "group goes from %s to the length that perplexity ranks first and the other "
                      "groups keep theirs. Near positions are inside the window, which no length "
                      "changes. There are no intervals by position: small changes may be chance. "
                      "All lengths are in the table of numbers.",
                      relative ? "change in perplexity (less is better)" : "perplexity",
                      DPE_LENGTH_TEXT(dpe_detection_trained(d) / 2.0));
}

/* The model as it is, every group at half the trained length, and the detection. */
static void add_plans(struct dpe_report *report, const struct dpe_report_detection *d,
                      const struct dpe_scores_result *r)
{
    const int64_t n = r->n[DPE_VALIDATED_POSITION];
    const struct dpe_plot plot = {
        .kind = PLOT_CURVES,
        .log_x = true,
        .log = true,
        DPE_TITLES("position in the text, tokens", "perplexity per token", NULL),
        DPE_LINE(dpe_detection_trained(d), "trained length")};
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, "validate-positions", "plan:t|from position:0|perplexity:3",
                         "Perplexity by position, the chosen lengths together");
    for (int64_t i = 0; i < r->n[DPE_VALIDATED_PLAN] * n; i++) {
        const char *name = r->plan[i / n];
        dpe_draw_row(sheet, name, r->position[i % n], r->perplexity_at[i]);
        dpe_draw_row_mark(sheet, (strcmp(name, "joint") == 0 ? ROW_STRONG : 0) |
                                     (strcmp(name, "rope") == 0 ? ROW_PLAIN : 0) |
                                     (i % n < first_shown(n) ? ROW_UNDRAWN : 0));
    }
    dpe_report_figure(
        report, sheet, &plot,
        "Books under three plans: rope, the unchanged model; base, %s; joint, the chosen lengths. "
        "Each point is the perplexity of the tokens from its position to twice that position. More "
        "context should lower it; a line that rises shows where a plan stops working.",
        dpe_detection_base(d));
}

void dpe_detection_positions(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const bool guard = dpe_h5_has(d->input->table, "/validate/guard");
    const char *folder = guard ? "/validate/guard" : "/validate/ppl";
    if (d->perplexity->perplexity_at != NULL && rank_of(d) != NULL) {
        add_groups(report, d);
    }
    if (!dpe_h5_has(d->input->table, folder)) {
        return;
    }
    const struct dpe_scores_result *r =
        dpe_input_get(report, d->input, &dpe_validated_scores_kinds[1], folder, "perplexity_at");
    if (r != NULL && r->perplexity_at != NULL) {
        add_plans(report, d, r);
    }
}
