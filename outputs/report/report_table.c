/* An exported DPE table: what a runtime does with each group and head, and what other runtimes
 * apply of it and compute from a model's configuration. */
#include <math.h>
#include <stdio.h>

#include "outputs/export/rope_forms.h"
#include "outputs/read/read.h"
#include "outputs/report/report_parts.h"
#include "outputs/runtimes/runtimes.h"
#include "outputs/table/dpe_table.h"

/* Share of the key pairs among a group's pairs, of one layer or (−1) of all. */
static double key_share(const struct dpe_table_values *v, int64_t layer, int64_t group)
{
    double sum = 0.0;
    double n = 0.0;
    int64_t first = layer < 0 ? 0 : layer;
    int64_t last = layer < 0 ? v->n_layers - 1 : layer;
    const int32_t *edge = v->group_edge;
    for (int64_t row = first * v->n_heads; row < (last + 1) * v->n_heads; row++) {
        for (int32_t j = edge[group]; j < edge[group + 1]; j++) {
            sum += v->mask[row * v->n_pairs + j];
            n += 1.0;
        }
    }
    return sum / n;
}

static const char one_entry[] = "/table/mask";
static const char several_entries[] = "/table/length";

static void add_groups(struct dpe_report *report, const struct dpe_table_values *v)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "table-groups",
        "group:0|effective length:0|scale:2|first pair:0|last pair:0|key pairs, %:1", "Groups");
    for (int64_t g = 0; g < v->n_groups; g++) {
        const double effective = v->effective_length[g];
        dpe_draw_row(sheet, g, effective < 0.0 ? (double)NAN : effective, v->scale_factor[g],
                     v->group_edge[g], v->group_edge[g + 1] - 1, 100.0 * key_share(v, -1, g));
    }
    dpe_page_add(&report->page, sheet);
}

static void add_map(struct dpe_report *report, const struct dpe_table_values *v)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "table-pairs", "layer:0|group:0|share:4", "Key pairs by layer and group");
    const struct dpe_plot plot = {
        .kind = PLOT_HEAT,
        DPE_ENDS(0.0, 1.0),
        .digits = 2,
        DPE_TITLES("frequency group (0 turns fastest)", "layer", "share")};
    for (int64_t i = 0; i < v->n_layers * v->n_groups; i++) {
        const int64_t layer = i / v->n_groups;
        const int64_t group = i % v->n_groups;
        dpe_draw_row(sheet, layer, group, key_share(v, layer, group));
    }
    dpe_page_figure(&report->page, sheet, &plot,
                    "The share of a group's pairs that are key pairs, over the heads of each "
                    "layer. Only key pairs are scaled. A dark column is a frequency group that "
                    "mostly keeps its true positions, whatever its scale.");
}

/* The rule by which a runtime positions keys. */
static void add_rule(struct dpe_report *report, const struct dpe_table_values *v,
                     const char *opening)
{
    const char *other = " The table holds the plan of another method than DPE: ";
    bool moves = v->applied_inv_freq == NULL;
    for (int64_t g = 0; g < v->n_groups; g++) {
        moves = moves || v->scale_factor[g] != 1.0;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text rule = {0};
    if (moves) {
        dpe_text_put(&rule,
                     " Keys nearer than %lld tokens keep their true distance. For farther keys, "
                     "the %lld key pairs of each head (of %lld) use the distance divided by the "
                     "scale of their group.",
                     (long long)v->window, (long long)v->top_k, (long long)v->n_pairs);
    } else {
        dpe_text_put(&rule, " Every key keeps its true distance.");
    }
    if (moves && v->unrounded != 0) {
        dpe_text_put(&rule, "%sthese distances are not rounded.", other);
    }
    if (v->applied_inv_freq != NULL) {
        dpe_text_put(&rule,
                     "%sall pairs rotate by frequencies of the table in place of the model's own.",
                     other);
    }
    dpe_page_say(&report->page, BLOCK_TEXT, "%s%s The model was trained at %lld tokens.", opening,
                 rule.failed ? "" : rule.bytes, (long long)v->trained_length);
}

/* One entry, under its heading. */
static void add_entry(struct dpe_report *report, const struct dpe_table_values *v,
                      const char *opening)
{
    char evidence[DPE_TABLE_EVIDENCE];
    add_rule(report, v, opening);
    if (dpe_table_evidence(v, evidence)[0] != '\0') {
        dpe_page_say(&report->page, BLOCK_TEXT, "Measured under it: %s.", evidence);
    }
    if (dpe_table_facts(v, evidence)[0] != '\0') {
        dpe_page_say(&report->page, BLOCK_TEXT, "Made from: %s.", evidence);
    }
    add_groups(report, v);
    add_map(report, v);
}

/* A table of several entries: which runs which text, and then each of them. */
static void add_several(struct dpe_report *report, const struct dpe_table *table)
{
    const int64_t n = dpe_table_count(table);
    const int64_t trained = dpe_table_values(table)->trained_length;
    dpe_page_section(&report->page, "The table for %lld lengths", (long long)n);
    dpe_page_say(
        &report->page, BLOCK_TEXT,
        "A runtime loads this table and chooses an entry once for each text, by the tokens of "
        "its prompt and of what may be generated. Up to %lld tokens, the trained length, the "
        "model is run unchanged. Beyond the largest length the largest entry is used; such "
        "distances were not measured.",
        (long long)trained);
    int64_t before = trained;
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *v = dpe_table_values(dpe_table_entry(table, i));
        char opening[80];
        snprintf(report->page.suffix, sizeof report->page.suffix, "%lld", (long long)v->length);
        snprintf(opening, sizeof opening, "Texts of %lld to %lld tokens:", (long long)before + 1,
                 (long long)v->length);
        add_entry(report, v, opening);
        before = v->length;
    }
}

void dpe_sections_tables(struct dpe_report *report)
{
    for (size_t i = 0; i < report->n && report->page.status == DPE_OK; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        const bool several = dpe_h5_has(input->table, several_entries);
        struct dpe_table *table = NULL;
        dpe_report_about(report, input, several ? several_entries : one_entry);
        if (!dpe_input_has_table(input) ||
            !dpe_page_ok(&report->page, dpe_table_load(input->path, &table, report->page.err))) {
            continue;
        }
        if (several) {
            add_several(report, table);
        } else {
            dpe_page_section(&report->page, "The table for %s tokens",
                             DPE_LENGTH_TEXT((double)dpe_table_values(table)->length));
            add_entry(report, dpe_table_values(table), "A runtime loads this table.");
        }
        dpe_table_close(table);
    }
    dpe_report_about(report, NULL, NULL);
}

/* ------------------------------------------------------------------------------- other runtimes */

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
    return dpe_page_text(&report->page, "%s %s%s%s", reading->runtime->name,
                         reading->runtime->versions, refused(reading) ? "" : ": ",
                         refused(reading) ? "" : letter);
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
    struct dpe_sheet *sheet = dpe_page_sheet(
        &report->page, "runtimes-list",
        "runtime:t|version:t|reading:t|rotation:t|base:0|logits ×:4|switches after:0|"
        "longest text:0|queries grow:t|where it departs:t|known by:t",
        "What each runtime computes");
    for (int i = 0; i < readings->n; i++) {
        add_row(sheet, readings, &readings->of[i]);
    }
    dpe_page_add(&report->page, sheet);
}

/* Radians a token, a row for each pair and a column for each runtime that runs the model. */
static struct dpe_sheet *list_pairs(struct dpe_report *report, const char *id, const char *title,
                                    const struct dpe_readings *readings)
{
    struct dpe_sheet *sheet = dpe_page_sheet(&report->page, id, "pair:0", "%s", title);
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
        return dpe_page_text(&report->page, "refused: %s", reading->refused);
    }
    if (reading->switch_length > 0) {
        snprintf(switches, sizeof switches, ", switches after %lld tokens",
                 (long long)reading->switch_length);
    }
    if ((double)readings->length > reading->longest) {
        snprintf(longest, sizeof longest, ", texts to %.0f", reading->longest);
    }
    return dpe_page_text(&report->page, "logits × %.4g%s%s%s", reading->factor * reading->factor,
                         switches, reading->growth > 0.0 ? ", queries grow" : "", longest);
}

static void draw(struct dpe_report *report, struct dpe_figure *figure,
                 const struct dpe_readings *readings)
{
    const size_t n = (size_t)readings->n;
    const struct dpe_reading *first = find_first(readings);
    struct dpe_panel *panels = dpe_page_alloc(&report->page, n, sizeof *panels);
    if (figure == NULL || panels == NULL || first == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        double *ratio = NULL;
        if (!refused(reading)) {
            ratio = dpe_page_alloc(&report->page, (size_t)readings->n_pairs, sizeof *ratio);
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
    if (report->page.status == DPE_OK) {
        dpe_draw_panels(figure, &all);
    }
}

static void add_figure(struct dpe_report *report, const char *id, const char *title,
                       const struct dpe_readings *readings)
{
    struct dpe_figure *figure = dpe_page_figure(
        &report->page, list_pairs(report, id, title, readings), NULL,
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
        dpe_page_sheet(&report->page, "runtimes-table", "runtime:t|version:t|applies:t",
                       "What each applies of %s, entry of %lld tokens", report->about.input->name,
                       (long long)applied->values->length);
    for (int i = 0; i < applied->readings.n; i++) {
        const struct dpe_runtime *runtime = applied->readings.of[i].runtime;
        dpe_draw_row(sheet, runtime->name, runtime->versions, dpe_applied_text(applied, i, text));
    }
    dpe_page_add(&report->page, sheet);
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
    if (!dpe_page_ok(&report->page, dpe_table_load(input->path, &table, report->page.err))) {
        return;
    }
    dpe_status status = dpe_applied_make(report->runtimes, input->path, table, which,
                                         report->length, &applied, report->page.err);
    if (status == DPE_OK && applied.values != NULL) {
        add_applied(report, &applied);
    } else if (status == DPE_BAD_DATA || status == DPE_USAGE) {
        /* It has no form without an adapter, or belongs to another model. */
        dpe_page_say(&report->page, BLOCK_NOTE, "What each applies of %s is not shown: %s",
                     input->name, report->page.err->text);
    } else {
        dpe_page_ok(&report->page, status);
    }
    dpe_applied_free(&applied);
    dpe_table_close(table);
}

static void add_readings(struct dpe_report *report, const struct dpe_readings *readings)
{
    const char *file = dpe_page_clean(&report->page, report->runtimes, 60);
    dpe_page_section(&report->page, "What runtimes compute");
    dpe_page_say(&report->page, BLOCK_TEXT,
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
    if (dpe_page_ok(&report->page, dpe_readings_open(report->runtimes, which, report->length,
                                                     &readings, report->page.err))) {
        add_readings(report, &readings);
    }
    for (size_t i = 0; i < report->n && report->page.status == DPE_OK; i++) {
        if (dpe_input_has_table(&report->inputs[i])) {
            dpe_report_about(report, &report->inputs[i], "/table/mask");
            write_applied(report);
        }
    }
    dpe_report_about(report, NULL, NULL);
}
