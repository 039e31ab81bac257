/* What other runtimes compute from a model's configuration, and what they apply of a table. */
#include "outputs/export/rope_forms.h"
#include "outputs/read/read.h"
#include "outputs/report/report_parts.h"
#include "outputs/runtimes/runtimes.h"
#include "outputs/table/dpe_table.h"

#include <math.h>
#include <stdio.h>

static const char which[] = "current";

static bool refused(const struct dpe_reading *reading)
{
    return reading->refused[0] != '\0';
}

/* The first that runs the model, which the others are compared with; NULL: none does. */
static const struct dpe_reading *find_first(const struct dpe_readings *readings)
{
    for (int i = 0; i < readings->n; i++) {
        if (!refused(&readings->of[i]) && readings->of[i].base > 0.0) {
            return &readings->of[i];
        }
    }
    return NULL;
}

/* Not what the first runtime does, or too short for the text. */
static bool departs(const struct dpe_readings *readings, const struct dpe_reading *reading)
{
    const struct dpe_reading *first = find_first(readings);
    return !refused(reading) && first != NULL &&
           (reading->kind != first->kind || (double)readings->length > reading->longest);
}

/* "A", or "B ≠" where it departs. */
static void letter_of(const struct dpe_readings *readings, const struct dpe_reading *reading,
                      char letter[8])
{
    snprintf(letter, 8, "%c%s", (char)('A' + reading->kind),
             departs(readings, reading) ? " ≠" : "");
    if (refused(reading)) {
        snprintf(letter, 8, "–");
    }
}

static const char *name_of(struct dpe_report *report, const struct dpe_readings *readings,
                           const struct dpe_reading *reading)
{
    char letter[8];
    letter_of(readings, reading, letter);
    return dpe_report_text(report, "%s %s%s%s", reading->runtime->name, reading->runtime->versions,
                           refused(reading) ? "" : ": ", refused(reading) ? "" : letter);
}

/* --------------------------------------------------------------------------------------- sheets */

static void add_row(struct dpe_sheet *sheet, const struct dpe_readings *readings,
                    const struct dpe_reading *reading)
{
    const double none = (double)NAN;
    const bool runs = !refused(reading);
    const bool switches = reading->switch_length > 0;
    char letter[8];
    char grow[64] = "";
    char notes[DPE_READING_ALL_NOTES];
    letter_of(readings, reading, letter);
    if (reading->growth > 0.0) {
        snprintf(grow, sizeof grow, "%.6g after %.0f", reading->growth, reading->growth_length);
    }
    dpe_draw_row(sheet, reading->runtime->name, reading->runtime->versions, letter,
                 runs ? reading->type : "refused", runs ? reading->base : none,
                 runs ? reading->factor * reading->factor : none,
                 switches ? (double)reading->switch_length : none, runs ? reading->longest : none,
                 grow, runs ? dpe_reading_notes(reading, notes) : reading->refused,
                 reading->runtime->known_by);
}

static void add_list(struct dpe_report *report, const struct dpe_readings *readings)
{
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, "runtimes-list",
        "runtime:t|version:t|reading:t|rotation:t|base:0|logits ×:4|switches after:0|"
        "longest text:0|queries grow:t|where it departs:t|known by:t",
        "What each runtime computes");
    for (int i = 0; i < readings->n; i++) {
        add_row(sheet, readings, &readings->of[i]);
    }
    dpe_report_add(report, sheet);
}

/* Radians a token, a row for each pair and a column for each runtime that runs the model. */
static struct dpe_sheet *list_pairs(struct dpe_report *report, const char *id, const char *title,
                                    const struct dpe_readings *readings)
{
    struct dpe_sheet *sheet = dpe_report_sheet(report, id, "pair:0", "%s", title);
    for (int i = 0; i < readings->n; i++) {
        if (!refused(&readings->of[i])) {
            dpe_draw_sheet_column(sheet, name_of(report, readings, &readings->of[i]), "9");
        }
    }
    for (int64_t j = 0; j < readings->n_pairs; j++) {
        dpe_draw_cell(sheet, dpe_number_cell((double)j));
        for (int i = 0; i < readings->n; i++) {
            if (!refused(&readings->of[i])) {
                dpe_draw_cell(sheet, dpe_number_cell(readings->of[i].inv_freq[j]));
            }
        }
    }
    return sheet;
}

/* --------------------------------------------------------------------------------------- figure */

/* Frequencies over those of a plain rotation of the same base, by pair; NaN: it does not rotate. */
static void relate(const struct dpe_reading *reading, double base, int64_t n_pairs, double *ratio)
{
    double rotating = 0.0;
    for (int64_t j = 0; j < n_pairs; j++) {
        rotating += reading->inv_freq[j] > 0.0;
    }
    for (int64_t j = 0; j < n_pairs && ratio != NULL; j++) {
        double plain = pow(base, -(double)j / rotating);
        ratio[j] = reading->inv_freq[j] > 0.0 ? reading->inv_freq[j] / plain : (double)NAN;
    }
}

static const char *facts_of(struct dpe_report *report, const struct dpe_readings *readings,
                            const struct dpe_reading *reading)
{
    char switches[64] = "", longest[64] = "";
    if (refused(reading)) {
        return dpe_report_text(report, "refused: %s", reading->refused);
    }
    if (reading->switch_length > 0) {
        snprintf(switches, sizeof switches, ", switches after %lld tokens",
                 (long long)reading->switch_length);
    }
    if ((double)readings->length > reading->longest) {
        snprintf(longest, sizeof longest, ", texts to %.0f", reading->longest);
    }
    return dpe_report_text(report, "logits × %.4g%s%s%s", reading->factor * reading->factor,
                           switches, reading->growth > 0.0 ? ", queries grow" : "", longest);
}

static void draw(struct dpe_report *report, struct dpe_figure *figure,
                 const struct dpe_readings *readings)
{
    const size_t n = (size_t)readings->n;
    const struct dpe_reading *first = find_first(readings);
    struct dpe_panel *panels = dpe_report_alloc(report, n, sizeof *panels);
    if (figure == NULL || panels == NULL || first == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        double *ratio = NULL;
        if (!refused(reading)) {
            ratio = dpe_report_alloc(report, (size_t)readings->n_pairs, sizeof *ratio);
            relate(reading, first->base, readings->n_pairs, ratio);
        }
        panels[i] = (struct dpe_panel){.name = name_of(report, readings, reading),
                                       .facts = facts_of(report, readings, reading),
                                       .y = ratio,
                                       .marked = refused(reading) || departs(readings, reading)};
    }
    const struct dpe_panels all = {.panels = panels,
                                   .n = n,
                                   .n_points = readings->n_pairs,
                                   .reference = panels[first - readings->of].y,
                                   .log_y = true,
                                   .x_title = "pair of head dimensions (0 turns fastest)"};
    if (report->status == DPE_OK) {
        dpe_draw_panels(figure, &all);
    }
}

static void add_figure(struct dpe_report *report, const char *id, const char *title,
                       const struct dpe_readings *readings)
{
    struct dpe_figure *figure = dpe_report_figure(
        report, list_pairs(report, id, title, readings), NULL,
        "The frequency of every pair over that of a plain rotation, in each runtime: 1 is the "
        "model as it was before any extension, 0.25 turns a quarter as far with each token. The "
        "same letter is the same rotation; ≠ marks what is not that of the first which runs the "
        "model, dashed there.");
    draw(report, figure, readings);
}

/* -------------------------------------------------------------------------------------- section */

static void add_applied(struct dpe_report *report, const struct dpe_applied *applied)
{
    char text[DPE_APPLIED_TEXT];
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, "runtimes-table", "runtime:t|version:t|applies:t",
                         "What each applies of %s, entry of %lld tokens", report->about.input->name,
                         (long long)applied->values->length);
    for (int i = 0; i < applied->readings.n; i++) {
        const struct dpe_runtime *runtime = applied->readings.of[i].runtime;
        dpe_draw_row(sheet, runtime->name, runtime->versions, dpe_applied_text(applied, i, text));
    }
    dpe_report_add(report, sheet);
    if (!applied->adapter) {
        add_figure(report, "runtimes-exported", "Frequencies of the table's config.json",
                   &applied->readings);
    }
}

/* Of the table that the subject is. */
static void write_applied(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    struct dpe_applied applied = {0};
    struct dpe_table *table = NULL;
    if (!dpe_report_ok(report, dpe_table_load(input->path, &table, report->err))) {
        return;
    }
    dpe_status status = dpe_applied_make(report->runtimes, input->path, table, which,
                                         report->length, &applied, report->err);
    if (status == DPE_OK && applied.values != NULL) {
        add_applied(report, &applied);
    } else if (status == DPE_BAD_DATA || status == DPE_USAGE) {
        /* It has no form without an adapter, or belongs to another model. */
        dpe_report_say(report, BLOCK_NOTE, "What each applies of %s is not shown: %s", input->name,
                       report->err->text);
    } else {
        dpe_report_ok(report, status);
    }
    dpe_applied_free(&applied);
    dpe_table_close(table);
}

static void add_readings(struct dpe_report *report, const struct dpe_readings *readings)
{
    const char *file = dpe_report_clean(report, report->runtimes, 60);
    dpe_report_section(report, "What runtimes compute");
    dpe_report_say(report, BLOCK_TEXT,
                   "The rotation that each runtime makes of %s for a text of %lld tokens%s. %s",
                   file != NULL ? file : "the configuration", (long long)readings->length,
                   readings->gguf ? " (llama.cpp reads the GGUF file; the others a config.json "
                                    "that says the same)"
                                  : "",
                   readings->agree ? "All agree." : "They do not agree.");
    add_figure(report, "runtimes", "Frequencies in each runtime", readings);
    add_list(report, readings);
}

void dpe_sections_runtimes(struct dpe_report *report)
{
    DPE_SCOPED(dpe_readings_free) struct dpe_readings readings = {0};
    if (report->runtimes == NULL) {
        return;
    }
    if (dpe_report_ok(report, dpe_readings_open(report->runtimes, which, report->length, &readings,
                                                report->err))) {
        add_readings(report, &readings);
    }
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        if (dpe_input_has_table(&report->inputs[i])) {
            report->about =
                (struct dpe_report_subject){.input = &report->inputs[i], .has = "/table/mask"};
            write_applied(report);
        }
    }
    report->about = (struct dpe_report_subject){0};
}
