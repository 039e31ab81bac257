/* What other runtimes compute from a model's configuration, and apply of a table. */
#include <math.h>
#include <stdio.h>

#include "outputs/words/words.h"

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

/* Not what the first runtime does. */
static bool departs(const struct dpe_readings *readings, const struct dpe_reading *reading)
{
    const struct dpe_reading *first = find_first(readings);
    return !refused(reading) && first != NULL && reading->kind != first->kind;
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

static const char *name_of(struct dpe_page *page, const struct dpe_readings *readings,
                           const struct dpe_reading *reading)
{
    char letter[8];
    letter_of(readings, reading, letter);
    return dpe_page_text(page, "%s %s%s%s", reading->runtime->name, reading->runtime->versions,
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

static void add_list(struct dpe_page *page, const struct dpe_readings *readings)
{
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, "runtimes-list",
        "runtime:t|version:t|reading:t|rotation:t|base:0|logits ×:4|switches after:0|"
        "longest text:0|queries grow:t|where it departs:t|known by:t",
        "What each runtime computes");
    for (int i = 0; i < readings->n; i++) {
        add_row(sheet, readings, &readings->of[i]);
    }
    dpe_page_add(page, sheet);
}

/* Radians a token, a row for each pair and a column for each runtime that runs the model. */
static struct dpe_sheet *list_pairs(struct dpe_page *page, const char *id, const char *title,
                                    const struct dpe_readings *readings)
{
    struct dpe_sheet *sheet = dpe_page_sheet(page, id, "pair:0", "%s", title);
    for (int i = 0; i < readings->n; i++) {
        if (!refused(&readings->of[i])) {
            dpe_draw_sheet_column(sheet, name_of(page, readings, &readings->of[i]), "9");
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
    for (int64_t j = 0; j < n_pairs; j++) {
        double plain = pow(base, -(double)j / rotating);
        ratio[j] = reading->inv_freq[j] > 0.0 ? reading->inv_freq[j] / plain : (double)NAN;
    }
}

/* A line for each rotation, which is called by its letter and the first that makes it. */
static void draw_lines(struct dpe_page *page, const struct dpe_readings *readings,
                       struct dpe_sheet *sheet)
{
    const struct dpe_reading *first = find_first(readings);
    double *ratio = dpe_page_alloc(page, (size_t)readings->n_pairs, sizeof *ratio);
    struct dpe_sheet *drawn = dpe_draw_instead(sheet, "runtime:t|pair:0|frequency:4");
    int64_t seen = -1;
    for (int i = 0; i < readings->n && first != NULL; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        if (refused(reading) || reading->kind <= seen) {
            continue;
        }
        seen = reading->kind;
        relate(reading, first->base, readings->n_pairs, ratio);
        for (int64_t j = 0; j < readings->n_pairs; j++) {
            dpe_draw_row(drawn, name_of(page, readings, reading), j, ratio[j]);
        }
    }
}

static void add_figure(struct dpe_page *page, const char *id, const char *title,
                       const struct dpe_readings *readings)
{
    const struct dpe_plot plot = {
        .kind = PLOT_CURVES,
        .log = true,
        DPE_TITLES("pair of head dimensions (0 turns fastest)", "times a plain rotation", NULL)};
    struct dpe_sheet *sheet = list_pairs(page, id, title, readings);
    draw_lines(page, readings, sheet);
    dpe_page_figure(page, sheet, &plot,
                    "The frequency of every pair over that of a plain rotation: 0.25 turns a "
                    "quarter as far with each token. A line for each rotation, whose letter stands "
                    "in the list; ≠: not that of the first which runs the model.");
}

/* -------------------------------------------------------------------------------------- section */

void dpe_words_applied(struct dpe_page *page, const char *table, const struct dpe_applied *applied)
{
    char text[DPE_APPLIED_TEXT];
    struct dpe_sheet *sheet = dpe_page_sheet(
        page, "runtimes-table", "runtime:t|version:t|applies:t",
        "What each applies of %s, entry of %lld tokens", table, (long long)applied->values->length);
    for (int i = 0; i < applied->readings.n; i++) {
        const struct dpe_runtime *runtime = applied->readings.of[i].runtime;
        dpe_draw_row(sheet, runtime->name, runtime->versions, dpe_applied_text(applied, i, text));
    }
    dpe_page_add(page, sheet);
    if (!dpe_applied_agree(applied)) {
        dpe_page_say(page, BLOCK_NOTE, "Of this table they do not apply the same.");
    }
    if (!applied->adapter) {
        add_figure(page, "runtimes-exported", "Frequencies of the table's config.json",
                   &applied->readings);
    }
}

/* A class that nobody here knows; those that take no text of that length. */
static void put_doubts(const struct dpe_readings *readings, struct dpe_text *out)
{
    if (readings->unknown[0] != '\0') {
        dpe_text_put(out, " %s is no class that dpe knows: what is left out has general defaults.",
                     readings->unknown);
    }
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        if (!refused(reading) && (double)readings->length > reading->longest) {
            dpe_text_put(out, " %s %s takes at most %.0f tokens.", reading->runtime->name,
                         reading->runtime->versions, reading->longest);
        }
    }
}

void dpe_words_runtimes(struct dpe_page *page, const char *file,
                        const struct dpe_readings *readings)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text doubts = {0};
    put_doubts(readings, &doubts);
    dpe_page_section(page, "What runtimes compute");
    dpe_page_say(page, BLOCK_LEAD,
                 "The rotation that each runtime makes of %s for a text of %lld tokens%s. %s%s",
                 file, (long long)readings->length,
                 readings->gguf ? " (llama.cpp reads the GGUF file; the others a config.json "
                                  "that says the same)"
                                : "",
                 readings->agree ? "All agree." : "They do not agree.", dpe_draw_text(&doubts));
    add_figure(page, "runtimes", "Frequencies in each runtime", readings);
    add_list(page, readings);
}
