/* A detection: the result first, then the maps of its cells. */
#include "outputs/report/detection/report_detect.h"
#include "outputs/h5/h5.h"

#include <math.h>
#include <stdio.h>

/** One map of a detection: its values, or the ranks of these. */
struct map {
    const char *id, *title, *bar;
    const struct dpe_scores_result *measured;
    const struct dpe_ranking_result *ranking; /**< of the same task; rank 1 is outlined */
    bool ranks;
};

static double or_none(const double *values, int64_t i)
{
    return values != NULL ? values[i] : (double)NAN;
}

/* A row for each cell: group, length, value with interval, rank. */
static void add_map(struct dpe_report *report, const struct dpe_report_detection *d,
                    const struct map *map, const char *caption)
{
    const struct dpe_scores_result *measured = map->measured;
    const uint8_t *informative = map->ranking->informative;
    const int32_t *rank = map->ranking->rank;
    const bool recall = measured->recall_mean != NULL, ranks = map->ranks;
    const double *mean = recall ? measured->recall_mean : measured->perplexity;
    const double scale = recall ? 100.0 : 1.0;
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, map->id,
                         recall  ? "group:0|length:0|recall, %:i1|rank:0|samples:0"
                         : ranks ? "group:0|length:0|perplexity:i3|rank:0|samples:0"
                                 : "group:0|length:0|perplexity:i4|rank:0|samples:0",
                         "%s", map->title);
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        const int64_t g = i / d->n_lengths;
        const bool flat = informative != NULL && informative[g] == 0;
        char name[32];
        struct dpe_sheet_cell group = dpe_number_cell((double)g);
        snprintf(name, sizeof name, "%s%lld", flat ? "flat " : "", (long long)g);
        group.text = name;
        dpe_draw_row(sheet, group, d->ranking->length[i % d->n_lengths],
                     dpe_interval_cell(scale * mean[i], scale * or_none(measured->low, i),
                                       scale * or_none(measured->high, i)),
                     rank != NULL && rank[i] >= 1 ? (double)rank[i] : (double)NAN,
                     measured->n_valid != NULL ? (double)measured->n_valid[i] : (double)NAN);
    }
    const struct dpe_plot plot = {
        .kind = PLOT_HEAT,
        DPE_COLUMNS(0, 1, ranks ? 3 : 2),
        .framed = rank != NULL ? 3 : 0,
        DPE_ENDS(ranks ? 1.0 : 0.0, ranks    ? (double)d->n_lengths
                                    : recall ? 100.0
                                             : 0.0),
        .log = !ranks && !recall,
        .low_is_good = ranks || !recall,
        .digits = ranks || recall ? 0 : 3,
        DPE_TITLES("detecting length, tokens", "frequency group (0 turns fastest)", map->bar)};
    dpe_report_figure(report, sheet, &plot, "%s", caption);
}

static void add_rank_map(struct dpe_report *report, const struct dpe_report_detection *d,
                         const struct map *map, bool decides)
{
    if (map->ranking->rank != NULL) {
        add_map(report, d, map,
                decides
                    ? "The same cells, ranked within each group: 1 is the best length of its row; "
                      "of equal values, the larger length comes first. The length of rank 1 is the "
                      "group's effective length. In a row called flat the ranks may be chance."
                    : "The same cells, ranked within each group: 1 is the best length of its row; "
                      "of equal values, the larger length comes first. These ranks are for "
                      "comparison: the lengths are chosen by needles.");
    }
}

void dpe_detection_recall_map(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const uint8_t *informative = d->ranking->informative;
    bool flat = false;
    for (int64_t g = 0; informative != NULL && g < d->n_groups; g++) {
        flat = flat || informative[g] == 0;
    }
    if (d->recall->recall_mean == NULL) {
        return;
    }
    const struct map map = {"detect-recall",    "Needles found, by group and detecting length",
                            "needles found, %", d->recall,
                            d->ranking,         false};
    add_map(report, d, &map,
            dpe_report_text(
                report,
                "Each cell is the percentage of needles found at %s tokens when one frequency "
                "group is scaled to a detecting length and all other groups %s. The length of rank "
                "1 has a frame.%s",
                DPE_LENGTH_TEXT(dpe_detection_length(d)),
                d->frequencies ? "stay as in the base" : "to half the trained length",
                flat ? " In a group called flat the lengths are not distinguishable from each "
                       "other."
                     : ""));
}

static void detection_maps(struct dpe_report *report, const struct dpe_report_detection *d)
{
    const struct dpe_ranking_result *by_books = d->by_recall ? d->by_perplexity : d->ranking;
    const struct map needles = {
        "detect-rank", "Ranks of the detecting lengths", "rank", d->recall, d->ranking, true};
    const struct map books = {"detect-perplexity",
                              "Perplexity, by group and detecting length",
                              "perplexity",
                              d->perplexity,
                              by_books,
                              false};
    const struct map ranks = {
        "detect-perplexity-rank", "Ranks by perplexity", "rank", d->perplexity, by_books, true};
    if (d->recall->recall_mean != NULL) {
        add_rank_map(report, d, &needles, d->by_recall);
    }
    if (d->perplexity->perplexity != NULL) {
        add_map(report, d, &books,
                dpe_report_text(
                    report,
                    "Perplexity per token over the books, under the same plans; lower is better "
                    "and brighter. The colour scale covers only the values that occur, so a large "
                    "difference in colour can be a small one in perplexity. The length of rank 1 "
                    "has a frame. Intervals are in the table of numbers.%s",
                    d->by_recall ? " The lengths are chosen by needles, not by perplexity." : ""));
        add_rank_map(report, d, &ranks, !d->by_recall);
    }
}

void dpe_detection_section(struct dpe_report *report)
{
    const struct dpe_report_detection *d = dpe_detection_of(report);
    if (d != NULL && !dpe_detection_is_ready(d)) {
        dpe_report_section(report, "Detection at %s tokens",
                           DPE_LENGTH_TEXT(dpe_detection_length(d)));
        dpe_report_unfinished(report);
        dpe_report_lines(report, BLOCK_NOTE, "/race", "words");
        detection_maps(report, d);
        dpe_detection_positions(report, d);
    } else if (d != NULL) {
        dpe_report_unfinished(report);
    }
}
