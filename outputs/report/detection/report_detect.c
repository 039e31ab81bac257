/* A detection: the result first, then the maps of its cells. */
#include "outputs/report/detection/report_detect.h"
#include "outputs/h5/h5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- maps
 */

/* Names of lengths, or of groups ("flat" where lengths are not distinguishable), owned: free the
 * result. NULL without memory. */
static const char **make_names(int64_t n, const int64_t *length, const uint8_t *signal)
{
    size_t list = ((size_t)n + 1) * sizeof(char *);
    char *block = dpe_alloc_zero(1, list + (size_t)n * 32);
    const char **names = (const char **)(void *)block;
    for (int64_t i = 0; names != NULL && i < n; i++) {
        char *text = block + list + (size_t)i * 32;
        if (length != NULL) {
            dpe_draw_length_text((double)length[i], text);
        } else {
            bool flat = signal != NULL && signal[i] == 0;
            snprintf(text, 32, "%s%lld", flat ? "flat " : "", (long long)i);
        }
        names[i] = text;
    }
    return names;
}

static const double *mean_of(const struct dpe_scores_result *measured)
{
    return measured->recall_mean != NULL ? measured->recall_mean : measured->perplexity;
}

/* One row for each cell: group, length, value with interval, rank. */
static struct sheet *cells_sheet(const struct detection *d, const char *id, const char *title,
                                 const char *what, const struct dpe_scores_result *measured,
                                 const int32_t *rank, double scale, int digits)
{
    struct sheet *sheet = dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, what, COLUMN_INTERVAL, digits);
    dpe_draw_sheet_column(sheet, "rank", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    for (int64_t i = 0; i < d->n_groups * d->n_lengths; i++) {
        int32_t place = rank != NULL ? rank[i] : 0;
        dpe_draw_sheet_number(sheet, (double)(i / d->n_lengths));
        dpe_draw_sheet_number(sheet, (double)d->ranking.length[i % d->n_lengths]);
        dpe_draw_sheet_interval(sheet, scale * mean_of(measured)[i],
                                scale * (measured->low != NULL ? measured->low[i] : (double)NAN),
                                scale * (measured->high != NULL ? measured->high[i] : (double)NAN));
        dpe_draw_sheet_number(sheet, place < 1 ? (double)NAN : (double)place);
        dpe_draw_sheet_number(sheet, measured->n_valid != NULL ? (double)measured->n_valid[i]
                                                               : (double)NAN);
    }
    return sheet;
}

/** One map of a detection. */
struct map {
    const char *id, *title, *what, *bar;
    const struct dpe_scores_result *measured; /**< for the sheet */
    const double *value;                      /**< [groups][lengths] */
    const int32_t *rank;                      /**< its rank 1 is outlined; NULL: none */
    const uint8_t *signal; /**< [groups], 0 = flat; of the same task; NULL: unknown */
    double low, high;
    bool log, low_is_good;
    int digits, sheet_digits;
    double scale; /**< of the sheet's values: 100 makes percent */
};

static void add_map(struct report *report, const struct detection *d, const struct map *map,
                    char *caption)
{
    const char **rows = make_names(d->n_groups, NULL, map->signal);
    const char **columns = make_names(d->n_lengths, d->ranking.length, NULL);
    size_t n = (size_t)(d->n_groups * d->n_lengths);
    unsigned char *mark = calloc(n + 1, 1);
    char *id = dpe_input_report_id(report, d->input, DETECTION, map->id);
    struct sheet *numbers = id == NULL ? NULL
                                       : cells_sheet(d, id, map->title, map->what, map->measured,
                                                     map->rank, map->scale, map->sheet_digits);
    struct figure *figure = dpe_draw_figure_new(id, map->title, caption, numbers);
    for (size_t i = 0; mark != NULL && i < n && map->rank != NULL; i++) {
        mark[i] = map->rank[i] == 1;
    }
    if (figure != NULL && rows != NULL && columns != NULL && mark != NULL) {
        const struct heat heat = {.n_rows = d->n_groups,
                                  .n_columns = d->n_lengths,
                                  .value = map->value,
                                  .low = map->low,
                                  .high = map->high,
                                  .log = map->log,
                                  .low_is_good = map->low_is_good,
                                  .digits = map->digits,
                                  .row_names = rows,
                                  .column_names = columns,
                                  .x_title = "detecting length, tokens",
                                  .y_title = "frequency group (0 turns fastest)",
                                  .bar_title = map->bar,
                                  .mark = mark};
        dpe_draw_heat(figure, &heat);
    }
    report->document.failed =
        report->document.failed || rows == NULL || columns == NULL || mark == NULL;
    dpe_draw_add_figure(&report->document, figure);
    free(rows);
    free(columns);
    free(mark);
    free(id);
}

/* Ranks with NaN for "none", owned. */
static double *rank_values(const int32_t *rank, size_t n)
{
    double *values = dpe_alloc(n + 1, sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++) {
        values[i] = rank[i] < 1 ? (double)NAN : (double)rank[i];
    }
    return values;
}

static void add_rank_map(struct report *report, const struct detection *d, const char *id,
                         const char *title, const char *what,
                         const struct dpe_scores_result *measured, const int32_t *rank,
                         const uint8_t *signal, bool decides)
{
    double *values = rank != NULL ? rank_values(rank, (size_t)(d->n_groups * d->n_lengths)) : NULL;
    if (values == NULL) {
        report->document.failed = report->document.failed || rank != NULL;
        return;
    }
    const struct map map = {.id = id,
                            .title = title,
                            .what = what,
                            .bar = "rank",
                            .measured = measured,
                            .value = values,
                            .rank = rank,
                            .signal = signal,
                            .low = 1.0,
                            .high = (double)d->n_lengths,
                            .low_is_good = true,
                            .digits = 0,
                            .sheet_digits = strstr(what, "%") != NULL ? 1 : 3,
                            .scale = strstr(what, "%") != NULL ? 100.0 : 1.0};
    add_map(report, d, &map,
            dpe_draw_format_text(
                "The same cells, ranked within each group: 1 is the best length of its row; of "
                "equal values, the larger length comes first. %s",
                decides ? "The length of rank 1 is the group's effective length. In a row called "
                          "flat the ranks may be chance."
                        : "These ranks are for comparison: the lengths are chosen by needles."));
    free(values);
}

/* Recall in percent, owned. */
static double *percents(const double *share, size_t n)
{
    double *values = dpe_alloc(n + 1, sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++) {
        values[i] = 100.0 * share[i];
    }
    return values;
}

void dpe_detection_recall_map(struct report *report, const struct detection *d)
{
    char length[32];
    const size_t n = (size_t)(d->n_groups * d->n_lengths);
    const uint8_t *informative = d->ranking.informative;
    double *values = d->recall.recall_mean != NULL ? percents(d->recall.recall_mean, n) : NULL;
    bool flat = false;
    for (int64_t g = 0; informative != NULL && g < d->n_groups; g++) {
        flat = flat || informative[g] == 0;
    }
    dpe_draw_length_text(dpe_detection_length(d), length);
    if (values == NULL) {
        report->document.failed = report->document.failed || d->recall.recall_mean != NULL;
        return;
    }
    const struct map map = {.id = "detect-recall",
                            .title = "Needles found, by group and detecting length",
                            .what = "recall, %",
                            .bar = "needles found, %",
                            .measured = &d->recall,
                            .value = values,
                            .rank = d->ranking.rank,
                            .signal = informative,
                            .low = 0.0,
                            .high = 100.0,
                            .digits = 0,
                            .sheet_digits = 1,
                            .scale = 100.0};
    add_map(report, d, &map,
            dpe_draw_format_text(
                "Each cell is the percentage of needles found at %s tokens when one frequency "
                "group is scaled to a detecting length and all other groups %s. The length of "
                "rank 1 has a frame.%s",
                length, d->frequencies ? "stay as in the base" : "to half the trained length",
                flat ? " In a group called flat the lengths are not distinguishable from each "
                       "other."
                     : ""));
    free(values);
}

static void detection_maps(struct report *report, const struct detection *d)
{
    if (d->recall.recall_mean != NULL) {
        add_rank_map(report, d, "detect-rank", "Ranks of the detecting lengths", "recall, %",
                     &d->recall, d->ranking.rank, d->ranking.informative, d->by_recall);
    }
    if (d->perplexity.perplexity != NULL) {
        const struct dpe_ranking_result *ranking = d->by_recall ? &d->by_perplexity : &d->ranking;
        const struct map map = {.id = "detect-perplexity",
                                .title = "Perplexity, by group and detecting length",
                                .what = "perplexity",
                                .bar = "perplexity",
                                .measured = &d->perplexity,
                                .value = d->perplexity.perplexity,
                                .rank = ranking->rank,
                                .signal = ranking->informative,
                                .low = (double)NAN,
                                .high = (double)NAN,
                                .log = true,
                                .low_is_good = true,
                                .digits = 3,
                                .sheet_digits = 4,
                                .scale = 1.0};
        add_map(report, d, &map,
                dpe_draw_format_text(
                    "Perplexity per token over the books, under the same plans; lower is better "
                    "and brighter. The colour scale covers only the values that occur, so a large "
                    "difference in colour can be a small one in perplexity. The length of rank 1 "
                    "has a frame. Intervals are in the table of numbers.%s",
                    d->by_recall ? " The lengths are chosen by needles, not by perplexity." : ""));
        add_rank_map(report, d, "detect-perplexity-rank", "Ranks by perplexity", "perplexity",
                     &d->perplexity, ranking->rank, ranking->informative, !d->by_recall);
    }
}

/* Lengths that a race dropped were measured on fewer samples. */
static void add_race(struct report *report, const struct detection *d)
{
    size_t dropped = 0;
    for (size_t i = 0; i < d->dropped.n; i++) {
        dropped += d->dropped.values[i] >= 0.0;
    }
    if (dropped > 0) {
        dpe_draw_add_text(
            &report->document, BLOCK_NOTE,
            dpe_draw_format_text(
                "The sweep was a race: %zu of %zu cells were dropped early, when they "
                "could no longer become rank 1. They have fewer samples (see the "
                "table of numbers) and rank after all cells that were not dropped.",
                dropped, d->dropped.n));
    }
}

/* --------------------------------------------------------------------------------------- sections
 */

typedef dpe_status (*write_detection)(struct report *report, const struct detection *detection,
                                      struct dpe_error *err);

static dpe_status each_detection(struct report *report, write_detection write,
                                 struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        if (dpe_h5_has(input->table, DETECTION)) {
            struct detection detection;
            status = dpe_detection_read(input, &detection, err);
            if (status == DPE_OK) {
                status = write(report, &detection, err);
            }
            dpe_detection_free(&detection);
        }
    }
    return status;
}

static dpe_status write_maps(struct report *report, const struct detection *detection,
                             struct dpe_error *err)
{
    char length[32];
    if (dpe_detection_is_ready(detection)) {
        dpe_input_add_unfinished(report, detection->input);
        return DPE_OK;
    }
    dpe_draw_length_text(dpe_detection_length(detection), length);
    dpe_draw_add_text(&report->document, BLOCK_SECTION,
                      dpe_input_section_title(report, detection->input, DETECTION,
                                              "Detection at %s tokens", length));
    dpe_input_add_unfinished(report, detection->input);
    add_race(report, detection);
    detection_maps(report, detection);
    return dpe_detection_positions(report, detection, err);
}

dpe_status dpe_detection_answers(struct report *report, struct dpe_error *err)
{
    return each_detection(report, dpe_detection_answer, err);
}

dpe_status dpe_detection_sections(struct report *report, struct dpe_error *err)
{
    return each_detection(report, write_maps, err);
}
