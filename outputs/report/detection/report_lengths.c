/* The chosen lengths of a detection, and in which groups they may be chance. */
#include "engine/base/p_text.h"
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double two_pi = 6.283185307179586;

/* "6 to 11": tokens in which the group's fastest and slowest pair rotate once. */
static void turn_text(const struct detection *d, int64_t group, char text[64])
{
    snprintf(text, 64, "–");
    if (d->edge.n == 0 || d->inv_freq.n == 0) {
        return;
    }
    double first = d->edge.values[group];
    double last = d->edge.values[group + 1] - 1.0;
    /* Some models rotate a part of the head: its last pairs have no frequency. */
    while (last > first && last < (double)d->inv_freq.n &&
           d->inv_freq.values[(size_t)last] == 0.0) {
        last -= 1.0;
    }
    if (first >= 0.0 && last >= first && last < (double)d->inv_freq.n) {
        double fast = two_pi / d->inv_freq.values[(size_t)first];
        double slow = two_pi / d->inv_freq.values[(size_t)last];
        snprintf(text, 64, "%.*f to %.*f", fast < 20.0 ? 1 : 0, fast, fast < 20.0 ? 1 : 0, slow);
    }
}

static void add_lengths(struct report *report, const struct detection *d)
{
    char *id = dpe_input_report_id(report, d->input, DETECTION, "effective-lengths");
    bool selected = dpe_detection_is_selected(d);
    const uint8_t *informative = d->ranking.informative;
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, "The chosen lengths");
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, selected ? "chosen length" : "effective length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "scale", COLUMN_NUMBER, 0);
    if (selected) {
        dpe_draw_sheet_column(sheet, "rank 1", COLUMN_NUMBER, 0);
    }
    dpe_draw_sheet_column(sheet, "lengths differ?", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "wavelength, tokens", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "pairs", COLUMN_TEXT, 0);
    for (int64_t g = 0; g < d->n_groups; g++) {
        char pairs[64] = "–";
        char turns[64];
        char signal[64] = "–";
        char p[32] = "";
        if (d->edge.n > 0) {
            snprintf(pairs, sizeof pairs, "%.0f–%.0f", d->edge.values[g],
                     d->edge.values[g + 1] - 1.0);
        }
        turn_text(d, g, turns);
        const double rank_1 = (double)d->ranking.effective[g];
        const double chosen = selected ? d->chosen.values[g] : rank_1;
        if (informative != NULL) {
            const double *p_value = d->ranking.p_value;
            snprintf(signal, sizeof signal, "%s (%s)",
                     informative[g] != 0 ? "yes" : "not distinguishable",
                     p_value != NULL ? dpe_p_text(p_value[g], p) : "p unknown");
        }
        dpe_draw_sheet_number(sheet, (double)g);
        dpe_draw_sheet_number(sheet, chosen < 0.0 ? (double)NAN : chosen);
        dpe_draw_sheet_number(sheet,
                              d->scale_factor.n > 0 ? d->scale_factor.values[g] : (double)NAN);
        if (selected) {
            dpe_draw_sheet_number(sheet, rank_1 < 0.0 ? (double)NAN : rank_1);
        }
        dpe_draw_sheet_text(sheet, signal);
        dpe_draw_sheet_text(sheet, turns);
        dpe_draw_sheet_text(sheet, pairs);
    }
    dpe_draw_add_sheet(&report->document, sheet);
    if (informative != NULL) {
        dpe_draw_add_text(&report->document, BLOCK_TEXT,
                          dpe_draw_format_text(
                              "p is of a permutation test that the best and the worst length of "
                              "a group do not differ; not of the chosen length against another."));
    }
    free(id);
}

/* "0, 1 and 6". */
static void put_list(struct writer *out, const int64_t *items, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dpe_draw_put(out, "%s%lld", i == 0 ? "" : i + 1 == n ? " and " : ", ", (long long)items[i]);
    }
}

static void add_noise(struct report *report, const struct detection *d)
{
    int64_t *flat = dpe_alloc((size_t)d->n_groups, sizeof *flat);
    int64_t n = 0;
    if (flat == NULL || d->ranking.informative == NULL) {
        report->document.failed = report->document.failed || flat == NULL;
        free(flat);
        return;
    }
    for (int64_t g = 0; g < d->n_groups; g++) {
        if (d->ranking.informative[g] == 0) {
            flat[n++] = g;
        }
    }
    struct writer out = {0};
    if (n == d->n_groups) {
        dpe_draw_put(
            &out, "In no group are the lengths distinguishable from each other, so the choice is "
                  "arbitrary. Measure more samples, or a length at which the model finds some "
                  "needles and misses others.");
    } else if (n > 0) {
        dpe_draw_put(&out, "In group%s ", n > 1 ? "s" : "");
        put_list(&out, flat, n);
        dpe_draw_put(
            &out,
            " the lengths are not distinguishable from each other: the chosen length%s there may "
            "be first by chance. In %lld of %lld groups the lengths differ.",
            n > 1 ? "s" : "", (long long)(d->n_groups - n), (long long)d->n_groups);
    }
    if (n > 0) {
        dpe_draw_add_text(&report->document, BLOCK_NOTE, out.failed ? NULL : out.text.bytes);
    }
    if (out.failed || n == 0) {
        dpe_text_free(&out.text);
    }
    free(flat);
}

void dpe_detection_lengths(struct report *report, const struct detection *d)
{
    add_lengths(report, d);
    if (d->rule == NULL || strcmp(d->rule, "joint") != 0) {
        add_noise(report, d);
    }
}
