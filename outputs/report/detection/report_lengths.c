/* The chosen lengths of a detection, and in which groups they may be chance. */
#include "engine/base/p_text.h"
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double two_pi = 6.283185307179586;

/* "6 to 11": tokens in which the group's fastest and slowest pair rotate once. */
static void turn_text(const struct detection *d, int64_t group, char text[64])
{
    const struct table_part *t = &d->table;
    snprintf(text, 64, "–");
    if (t->group_edge == NULL || t->inv_freq == NULL) {
        return;
    }
    const double n = (double)t->n[TABLE_PAIR];
    double first = t->group_edge[group];
    double last = t->group_edge[group + 1] - 1.0;
    /* Some models rotate a part of the head: its last pairs have no frequency. */
    while (last > first && last < n && t->inv_freq[(size_t)last] == 0.0) {
        last -= 1.0;
    }
    if (first >= 0.0 && last >= first && last < n) {
        double fast = two_pi / t->inv_freq[(size_t)first];
        double slow = two_pi / t->inv_freq[(size_t)last];
        snprintf(text, 64, "%.*f to %.*f", fast < 20.0 ? 1 : 0, fast, fast < 20.0 ? 1 : 0, slow);
    }
}

static struct sheet_cell length_cell(double tokens)
{
    return dpe_number_cell(tokens < 0.0 ? (double)NAN : tokens);
}

static void add_lengths(struct report *report, const struct detection *d)
{
    const bool selected = dpe_detection_is_selected(d);
    const uint8_t *informative = d->ranking.informative;
    const struct table_part *t = &d->table;
    struct sheet *sheet =
        dpe_report_sheet(report, "effective-lengths",
                         selected ? "group:0|chosen length:0|scale:0|rank 1:0|lengths differ?:t|"
                                    "wavelength, tokens:t|pairs:t"
                                  : "group:0|effective length:0|scale:0|lengths differ?:t|"
                                    "wavelength, tokens:t|pairs:t",
                         "The chosen lengths");
    for (int64_t g = 0; g < d->n_groups; g++) {
        char pairs[64] = "–", signal[64] = "–", turns[64], p[32];
        const double rank_1 = (double)d->ranking.effective[g];
        if (t->group_edge != NULL) {
            snprintf(pairs, sizeof pairs, "%.0f–%.0f", t->group_edge[g],
                     t->group_edge[g + 1] - 1.0);
        }
        turn_text(d, g, turns);
        if (informative != NULL) {
            const double *p_value = d->ranking.p_value;
            snprintf(signal, sizeof signal, "%s (%s)",
                     informative[g] != 0 ? "yes" : "not distinguishable",
                     p_value != NULL ? dpe_p_text(p_value[g], p) : "p unknown");
        }
        dpe_draw_row(sheet, dpe_number_cell((double)g),
                     length_cell(selected ? t->effective_length[g] : rank_1),
                     dpe_number_cell(t->scale_factor != NULL ? t->scale_factor[g] : (double)NAN));
        if (selected) {
            dpe_draw_cell(sheet, length_cell(rank_1));
        }
        dpe_draw_row(sheet, dpe_text_cell(signal), dpe_text_cell(turns), dpe_text_cell(pairs));
    }
    dpe_report_add(report, sheet);
    if (informative != NULL) {
        dpe_report_say(report, BLOCK_TEXT,
                       "p is of a permutation test that the best and the worst length of "
                       "a group do not differ; not of the chosen length against another.");
    }
}

void dpe_detection_lengths(struct report *report, const struct detection *d)
{
    add_lengths(report, d);
    dpe_report_lines(report, BLOCK_NOTE, "/detect", "words");
}
