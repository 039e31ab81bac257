/* The search for temperature and joint plan: a table for each step that tried something. */
#include "engine/base/p_text.h"
#include "outputs/h5/h5.h"
#include "outputs/report/detection/report_detect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** /search as it is read. */
struct search {
    struct numbers round, tested, chosen, p_value;                       /**< [step] */
    struct numbers step, window, samples, mean, low, high, gain, length; /**< [tried], length
                                                                              [tried][group] */
    struct numbers top_k; /**< [tried], n 0: the search did not vary it; −1: all pairs */
    struct names move, temperature;
};

static void search_free(struct search *s)
{
    struct numbers *const all[] = {&s->round, &s->tested, &s->chosen,  &s->p_value,
                                   &s->step,  &s->window, &s->samples, &s->mean,
                                   &s->low,   &s->high,   &s->gain,    &s->length,
                                   &s->top_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    dpe_input_names_free(&s->move);
    dpe_input_names_free(&s->temperature);
}

static dpe_status search_read(const struct detection *d, struct search *s, struct dpe_error *err)
{
    *s = (struct search){0};
    dpe_status status = dpe_input_read_names(d->input, "/search/move", -1, &s->move, err);
    if (status == DPE_OK) {
        status = dpe_input_read_names(d->input, "/search/temperature", -1, &s->temperature, err);
    }
    int64_t steps = (int64_t)s->move.n;
    int64_t tried = (int64_t)s->temperature.n;
    const struct wanted wanted[] = {
        {"/search/round", 1, {steps}, true, &s->round},
        {"/search/tested", 1, {steps}, true, &s->tested},
        {"/search/chosen", 1, {steps}, true, &s->chosen},
        {"/search/p_value", 1, {steps}, true, &s->p_value},
        {"/search/tried_step", 1, {tried}, true, &s->step},
        {"/search/window", 1, {tried}, true, &s->window},
        {"/search/samples", 1, {tried}, true, &s->samples},
        {"/search/mean", 1, {tried}, true, &s->mean},
        {"/search/ci_low", 1, {tried}, true, &s->low},
        {"/search/ci_high", 1, {tried}, true, &s->high},
        {"/search/gain", 1, {tried}, true, &s->gain},
        {"/search/length", 2, {tried, d->n_groups}, true, &s->length},
        {"/search/top_k", 1, {tried}, false, &s->top_k},
    };
    return status == DPE_OK && steps > 0
               ? dpe_input_read_wanted(d->input, wanted, sizeof wanted / sizeof wanted[0], err)
               : status;
}

/* "256", or "256, 128, …"; the base's where that is no detecting length. */
static void lengths_text(const struct detection *d, const struct search *s, size_t tried,
                         char *text, size_t size)
{
    const double *length = s->length.values + tried * (size_t)d->n_groups;
    bool single = true;
    for (int64_t g = 1; g < d->n_groups; g++) {
        single = single && length[g] == length[0];
    }
    text[0] = '\0';
    for (int64_t g = 0; g < (single ? 1 : d->n_groups); g++) {
        size_t used = strlen(text);
        double tokens = length[g] > 0.0 ? length[g] : (d->frequencies ? 1.0 : 0.5) * dpe_detection_trained(d);
        snprintf(text + used, size - used, "%s%.10g", g > 0 ? ", " : "", tokens);
    }
}

/* "all pairs", "24 key pairs"; nothing where the search did not vary it. */
static void pairs_text(const struct search *s, size_t tried, char *text, size_t size)
{
    text[0] = '\0';
    if (s->top_k.n > tried && s->top_k.values[tried] < 0.0) {
        snprintf(text, size, "all pairs");
    } else if (s->top_k.n > tried) {
        snprintf(text, size, "%.0f key pairs", s->top_k.values[tried]);
    }
}

static void add_step(struct report *report, const struct detection *d, const struct search *s,
                     size_t step)
{
    char base[64], title[128], p[32];
    snprintf(base, sizeof base, "search-%zu", step + 1);
    snprintf(title, sizeof title, "Step %zu: %.40s, round %.0f", step + 1, s->move.names[step],
             s->round.values[step] + 1.0);
    char *id = dpe_input_report_id(report, d->input, DETECTION, base);
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, title);
    dpe_draw_sheet_column(sheet, "plan", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "temperature", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "window", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "lengths of groups", COLUMN_TEXT, 0);
    if (s->top_k.n > 0) {
        dpe_draw_sheet_column(sheet, "pairs", COLUMN_TEXT, 0);
    }
    dpe_draw_sheet_column(sheet, d->by_recall ? "recall" : "nats per token", COLUMN_INTERVAL, 3);
    dpe_draw_sheet_column(sheet, "samples", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "gain", COLUMN_NUMBER, 3);
    bool first = true;
    for (size_t i = 0; i < s->step.n; i++) {
        char lengths[4096], pairs[64];
        if (s->step.values[i] != (double)step) {
            continue;
        }
        bool chosen = s->chosen.values[step] == (double)i;
        lengths_text(d, s, i, lengths, sizeof lengths);
        dpe_draw_sheet_text(sheet, chosen ? "taken" : first ? "before" : "tried");
        dpe_draw_sheet_text(sheet, s->temperature.names[i]);
        dpe_draw_sheet_number(sheet, s->window.values[i]);
        dpe_draw_sheet_text(sheet, lengths);
        if (s->top_k.n > 0) {
            pairs_text(s, i, pairs, sizeof pairs);
            dpe_draw_sheet_text(sheet, pairs);
        }
        dpe_draw_sheet_interval(sheet, s->mean.values[i], s->low.values[i], s->high.values[i]);
        dpe_draw_sheet_number(sheet, s->samples.values[i]);
        dpe_draw_sheet_number(sheet, s->gain.values[i]);
        first = false;
    }
    dpe_draw_add_text(&report->document, BLOCK_TEXT,
                      isnan(s->p_value.values[step])
                          ? dpe_draw_format_text("%s: no change was better on all samples.", title)
                          : dpe_draw_format_text("%s: the best change has %s in a sign-flip test.",
                                                 title, dpe_p_text(s->p_value.values[step], p)));
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

/* What the table says of lengths of groups beside one length. */
static const char *worth_words(const char *adds)
{
    return adds == NULL                      ? ""
           : strcmp(adds, "nothing") == 0    ? " Detection by groups adds nothing here: no group was shown to do better "
                                               "at a length of its own."
           : strcmp(adds, "not shown") == 0  ? " Lengths of groups of their own are not shown to be better than one "
                                               "length for all."
           : strcmp(adds, "not tried") == 0  ? " Lengths of groups of their own were not compared: the plan with one "
                                               "length loses too little for these samples to show a gain."
                                             : "";
}

/* The plan that the last step ended with. With another rule than joint the search has only found its
 * temperature. */
static void add_result(struct report *report, const struct detection *d, const struct search *s)
{
    static const char method[] = "Each step runs the plan so far on all samples and its changes by sequential halving, "
                                 "and takes one only when a test shows that it is better.";
    size_t last = s->move.n - 1;
    char lengths[4096];
    double at = s->chosen.values[last];
    if (!(at >= 0.0 && at < (double)s->temperature.n)) {
        return;
    }
    if (d->rule == NULL || strcmp(d->rule, "joint") != 0) {
        dpe_draw_add_text(&report->document, BLOCK_TEXT,
                          dpe_draw_format_text("The search ended with the attention temperature %s. %s",
                                               s->temperature.names[(size_t)at], method));
        return;
    }
    lengths_text(d, s, (size_t)at, lengths, sizeof lengths);
    char window[64] = "", pairs[64];
    pairs_text(s, (size_t)at, pairs, sizeof pairs);
    if (!d->frequencies) {
        snprintf(window, sizeof window, ", a near window of %.0f tokens",
                 s->window.values[(size_t)at]);
    }
    char *adds = dpe_input_read_words(d->input, "/validate", "groups_add");
    dpe_draw_add_text(
        &report->document, BLOCK_TEXT,
        dpe_draw_format_text("The search ended with the attention temperature %s%s%s%s and groups at %s.%s %s",
                             s->temperature.names[(size_t)at], window, pairs[0] != '\0' ? ", " : "", pairs,
                             lengths, worth_words(adds), method));
    free(adds);
}

dpe_status dpe_detection_search(struct report *report, const struct detection *d,
                                struct dpe_error *err)
{
    struct search s = {0};
    dpe_status status = DPE_OK;
    if (!dpe_h5_has(d->input->table, "/search/move")) {
        return DPE_OK;
    }
    status = search_read(d, &s, err);
    int64_t left = 0;
    if (status == DPE_OK && s.move.n > 0) {
        add_result(report, d, &s);
        for (size_t i = 0; i < s.move.n; i++) {
            left += s.tested.values[i] <= 0.0;
            if (s.tested.values[i] > 0.0) {
                add_step(report, d, &s, i);
            }
        }
    }
    if (left > 0) {
        dpe_draw_add_text(
            &report->document, BLOCK_TEXT,
            dpe_draw_format_text("%lld of %zu steps were not run: the plan before them loses too "
                                 "little for a test of these samples to show an improvement.",
                                 (long long)left, s.move.n));
    }
    search_free(&s);
    return status;
}
