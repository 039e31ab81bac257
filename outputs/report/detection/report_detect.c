/* A detection: the result first, then the maps of its cells. */
#include "outputs/report/detection/report_detect.h"
#include "outputs/h5/h5.h"

#include <math.h>
#include <stdio.h>

/* ----------------------------------------------------------------------------------------- maps */

static const double *mean_of(const struct dpe_scores_result *measured)
{
    return measured->recall_mean != NULL ? measured->recall_mean : measured->perplexity;
}

/** One map of a detection: its values, or the ranks of these. */
struct map {
    const char *id, *title, *bar;
    const struct dpe_scores_result *measured;
    const int32_t *rank;   /**< its rank 1 is outlined; NULL: none */
    const uint8_t *signal; /**< [groups], 0 = flat; of the same task; NULL: unknown */
    bool ranks;
};

static double or_none(const double *values, int64_t i)
{
    return values != NULL ? values[i] : (double)NAN;
}

/* A row for each cell: group, length, value with interval, rank. */
static struct dpe_sheet *cells_sheet(const struct dpe_report *report,
                                     const struct dpe_report_detection *d, const struct map *map)
{
    const struct dpe_scores_result *measured = map->measured;
    const double scale = measured->recall_mean != NULL ? 100.0 : 1.0;
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, map->id,
        measured->recall_mean != NULL ? "group:0|length:0|recall, %:i1|rank:0|samples:0"
        : map->ranks                  ? "group:0|length:0|perplexity:i3|rank:0|samples:0"
                                      : "group:0|length:0|perplexity:i4|rank:0|samples:0",
        "%s", map->title);
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        const int64_t g = i / d->n_lengths;
        const int32_t place = map->rank != NULL ? map->rank[i] : 0;
        char name[32];
        struct dpe_sheet_cell group = dpe_number_cell((double)g);
        snprintf(name, sizeof name, "%s%lld",
                 map->signal != NULL && map->signal[g] == 0 ? "flat " : "", (long long)g);
        group.text = name;
        dpe_draw_row(sheet, group, d->ranking->length[i % d->n_lengths],
                     dpe_interval_cell(scale * mean_of(measured)[i],
                                       scale * or_none(measured->low, i),
                                       scale * or_none(measured->high, i)),
                     place < 1 ? (double)NAN : (double)place,
                     measured->n_valid != NULL ? (double)measured->n_valid[i] : (double)NAN);
    }
    return sheet;
}

static struct dpe_plot map_plot(const struct dpe_report_detection *d, const struct map *map)
{
    const bool recall = map->measured->recall_mean != NULL;
    return (struct dpe_plot){.kind = PLOT_HEAT,
                             .x = 1,
                             .value = map->ranks ? 3 : 2,
                             .framed = map->rank != NULL ? 3 : 0,
                             .low = map->ranks ? 1.0 : 0.0,
                             .high = map->ranks ? (double)d->n_lengths
                                     : recall   ? 100.0
                                                : 0.0,
                             .log = !map->ranks && !recall,
                             .low_is_good = map->ranks || !recall,
                             .digits = map->ranks || recall ? 0 : 3,
                             .x_title = "detecting length, tokens",
                             .y_title = "frequency group (0 turns fastest)",
                             .bar_title = map->bar};
}

static void add_rank_map(struct dpe_report *report, const struct dpe_report_detection *d,
                         struct map map, bool decides)
{
    map.ranks = true;
    map.bar = "rank";
    if (map.rank == NULL) {
        return;
    }
    const struct dpe_plot plot = map_plot(d, &map);
    dpe_report_figure(
        report, cells_sheet(report, d, &map), &plot,
        "The same cells, ranked within each group: 1 is the best length of its row; of "
        "equal values, the larger length comes first. %s",
        decides ? "The length of rank 1 is the group's effective length. In a row called "
                  "flat the ranks may be chance."
                : "These ranks are for comparison: the lengths are chosen by needles.");
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
    const struct map map = {.id = "detect-recall",
                            .title = "Needles found, by group and detecting length",
                            .bar = "needles found, %",
                            .measured = d->recall,
                            .rank = d->ranking->rank,
                            .signal = informative};
    const struct dpe_plot plot = map_plot(d, &map);
    dpe_report_figure(
        report, cells_sheet(report, d, &map), &plot,
        "Each cell is the percentage of needles found at %s tokens when one frequency group is "
        "scaled to a detecting length and all other groups %s. The length of rank 1 has a frame.%s",
        DPE_LENGTH_TEXT(dpe_detection_length(d)),
        d->frequencies ? "stay as in the base" : "to half the trained length",
        flat ? " In a group called flat the lengths are not distinguishable from each other." : "");
}

static void detection_maps(struct dpe_report *report, const struct dpe_report_detection *d)
{
    if (d->recall->recall_mean != NULL) {
        const struct map ranks = {.id = "detect-rank",
                                  .title = "Ranks of the detecting lengths",
                                  .measured = d->recall,
                                  .rank = d->ranking->rank,
                                  .signal = d->ranking->informative};
        add_rank_map(report, d, ranks, d->by_recall);
    }
    if (d->perplexity->perplexity != NULL) {
        const struct dpe_ranking_result *ranking = d->by_recall ? d->by_perplexity : d->ranking;
        struct map map = {.id = "detect-perplexity",
                          .title = "Perplexity, by group and detecting length",
                          .bar = "perplexity",
                          .measured = d->perplexity,
                          .rank = ranking->rank,
                          .signal = ranking->informative};
        const struct dpe_plot plot = map_plot(d, &map);
        dpe_report_figure(
            report, cells_sheet(report, d, &map), &plot,
            "Perplexity per token over the books, under the same plans; lower is better "
            "and brighter. The colour scale covers only the values that occur, so a large "
            "difference in colour can be a small one in perplexity. The length of rank 1 "
            "has a frame. Intervals are in the table of numbers.%s",
            d->by_recall ? " The lengths are chosen by needles, not by perplexity." : "");
        map.id = "detect-perplexity-rank";
        map.title = "Ranks by perplexity";
        add_rank_map(report, d, map, !d->by_recall);
    }
}

/* ------------------------------------------------------------------------------------- sections */

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
