/* An exported DPE table: what a runtime does with each group and head. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/report/sections/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dpe {
    const struct input *input;
    const char *folder; /**< "/table", or of one of several entries "/table/1024" */
    const char *suffix; /**< of the names of its sheets and figures: "", or "-1024" */
    int64_t layers, heads, pairs, groups;
    struct numbers mask;                   /**< [layer][head][pair], 1 = moves */
    struct numbers edge, scale, effective; /**< [groups + 1], [group], [group] */
    struct numbers window, length, trained, top_k;
    struct numbers unrounded, applied, own; /**< of the plan of another method: [], [pair], [pair] */
    double *share; /**< [layer][group], of the group's pairs over all heads; owned */
};

static void dpe_free(struct dpe *d)
{
    struct numbers *const all[] = {&d->mask,   &d->edge,   &d->scale,   &d->effective,
                                   &d->window, &d->length, &d->trained, &d->top_k,
                                   &d->unrounded, &d->applied, &d->own};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    free(d->share);
}

static dpe_status read_dpe(const struct input *input, const char *folder, const char *suffix,
                           struct dpe *d, struct dpe_error *err)
{
    static const char *const names[] = {
        "mask",         "scale_factor",     "group_edge",     "effective_length",
        "local_window", "evaluated_length", "trained_length", "top_k",
        "unrounded", "applied_inv_freq", "inv_freq"};
    char paths[sizeof names / sizeof names[0]][64];
    *d = (struct dpe){.input = input, .folder = folder, .suffix = suffix};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    }
    const struct wanted axes[] = {
        {paths[0], 3, {-1, -1, -1}, true, &d->mask},
        {paths[1], 1, {-1}, true, &d->scale},
    };
    dpe_status status = dpe_input_read_wanted(input, axes, 2, err);
    if (status != DPE_OK) {
        return status;
    }
    d->layers = d->mask.dims[0];
    d->heads = d->mask.dims[1];
    d->pairs = d->mask.dims[2];
    d->groups = d->scale.dims[0];
    const struct wanted rest[] = {
        {paths[2], 1, {d->groups + 1}, true, &d->edge},
        {paths[3], 1, {d->groups}, true, &d->effective},
        {paths[4], 0, {0}, true, &d->window},
        {paths[5], 0, {0}, true, &d->length},
        {paths[6], 0, {0}, true, &d->trained},
        {paths[7], 0, {0}, true, &d->top_k},
        {paths[8], 0, {0}, false, &d->unrounded},
        {paths[9], 1, {d->pairs}, false, &d->applied},
        {paths[10], 1, {d->pairs}, false, &d->own},
    };
    status = dpe_input_read_wanted(input, rest, sizeof rest / sizeof rest[0], err);
    bool ordered = status == DPE_OK && d->edge.values[0] == 0.0 &&
                   d->edge.values[d->groups] == (double)d->pairs;
    for (int64_t g = 0; status == DPE_OK && g < d->groups; g++) {
        ordered = ordered && d->edge.values[g] < d->edge.values[g + 1];
    }
    return status != DPE_OK || ordered
               ? status
               : dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected edges that increase from 0 to %lld",
                          input->path, paths[2], (long long)d->pairs);
}

/* Share of the key pairs among a group's pairs, of one layer or (−1) of all. */
static double key_share(const struct dpe *d, int64_t layer, int64_t group)
{
    double sum = 0.0;
    double n = 0.0;
    int64_t first = layer < 0 ? 0 : layer;
    int64_t last = layer < 0 ? d->layers - 1 : layer;
    for (int64_t row = first * d->heads; row < (last + 1) * d->heads; row++) {
        for (int64_t j = (int64_t)d->edge.values[group]; j < (int64_t)d->edge.values[group + 1];
             j++) {
            sum += d->mask.values[row * d->pairs + j] > 0.0;
            n += 1.0;
        }
    }
    return sum / n;
}

static const char one_entry[] = "/table/mask";
static const char several_entries[] = "/table/length";

/* The name of a sheet or figure: BASE, with the entry's length where there are several. */
static char *entry_id(const struct report *report, const struct dpe *d, const char *base)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", base, d->suffix);
    return dpe_input_report_id(report, d->input, d->suffix[0] != '\0' ? several_entries : one_entry,
                               name);
}

static void add_groups(struct report *report, const struct dpe *d)
{
    char *id = entry_id(report, d, "table-groups");
    struct sheet *sheet = id == NULL ? NULL : dpe_draw_sheet_new(id, "Groups");
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "effective length", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "scale", COLUMN_NUMBER, 2);
    dpe_draw_sheet_column(sheet, "first pair", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "last pair", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "key pairs, %", COLUMN_NUMBER, 1);
    for (int64_t g = 0; g < d->groups; g++) {
        dpe_draw_sheet_number(sheet, (double)g);
        dpe_draw_sheet_number(sheet,
                              d->effective.values[g] < 0.0 ? (double)NAN : d->effective.values[g]);
        dpe_draw_sheet_number(sheet, d->scale.values[g]);
        dpe_draw_sheet_number(sheet, d->edge.values[g]);
        dpe_draw_sheet_number(sheet, d->edge.values[g + 1] - 1.0);
        dpe_draw_sheet_number(sheet, 100.0 * key_share(d, -1, g));
    }
    dpe_draw_add_sheet(&report->document, sheet);
    free(id);
}

/* "0", "1", …: pointers followed by their text, owned. */
static const char **counted(int64_t n)
{
    size_t list = (size_t)n * sizeof(char *);
    char *block = dpe_alloc(1, list + (size_t)n * 24 + 1);
    const char **names = (const char **)(void *)block;
    for (int64_t i = 0; block != NULL && i < n; i++) {
        char *text = block + list + (size_t)i * 24;
        snprintf(text, 24, "%lld", (long long)i);
        names[i] = text;
    }
    return names;
}

static void add_map(struct report *report, const struct dpe *d)
{
    char *id = entry_id(report, d, "table-pairs");
    const char **names = counted(d->layers > d->groups ? d->layers : d->groups);
    struct sheet *sheet =
        id == NULL ? NULL : dpe_draw_sheet_new(id, "Key pairs by layer and group");
    dpe_draw_sheet_column(sheet, "layer", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "share", COLUMN_NUMBER, 4);
    for (int64_t i = 0; i < d->layers * d->groups; i++) {
        dpe_draw_sheet_number(sheet, (double)(i / d->groups));
        dpe_draw_sheet_number(sheet, (double)(i % d->groups));
        dpe_draw_sheet_number(sheet, d->share[i]);
    }
    struct figure *figure = dpe_draw_figure_new(
        id, "Key pairs by layer and group",
        dpe_draw_format_text("The share of a group's pairs that are key pairs, over the heads of "
                             "each layer. Only key pairs are scaled. A dark column is a frequency "
                             "group that mostly keeps its true positions, whatever its scale."),
        sheet);
    if (figure != NULL && names != NULL) {
        const struct heat heat = {.n_rows = d->layers,
                                  .n_columns = d->groups,
                                  .value = d->share,
                                  .low = 0.0,
                                  .high = 1.0,
                                  .digits = 2,
                                  .row_names = names,
                                  .column_names = names,
                                  .x_title = "frequency group (0 turns fastest)",
                                  .y_title = "layer",
                                  .bar_title = "share"};
        dpe_draw_heat(figure, &heat);
    }
    report->document.failed = report->document.failed || names == NULL;
    dpe_draw_add_figure(&report->document, figure);
    free(names);
    free(id);
}

/* Whether the pairs rotate by other frequencies than the model's own. */
static bool has_frequencies(const struct dpe *d)
{
    bool other = false;
    for (size_t j = 0; d->applied.n == d->own.n && j < d->applied.n; j++) {
        other = other || d->applied.values[j] != d->own.values[j];
    }
    return other;
}

static bool moves(const struct dpe *d)
{
    bool any = false;
    for (int64_t g = 0; g < d->groups; g++) {
        any = any || d->scale.values[g] != 1.0;
    }
    return any;
}

/* The rule by which a runtime positions keys. */
static char *rule_words(const struct dpe *d, const char *opening)
{
    const char *rotation = has_frequencies(d)
                               ? " The table holds the plan of another method than DPE: all pairs rotate by "
                                 "frequencies of the table in place of the model's own."
                               : "";
    if (rotation[0] != '\0' && !moves(d)) {
        return dpe_draw_format_text("%s Every key keeps its true distance.%s The model was trained at %.0f tokens.",
                                    opening, rotation, d->trained.values[0]);
    }
    const char *rounding = d->unrounded.n > 0 && d->unrounded.values[0] > 0.0
                               ? " The table holds the plan of another method than DPE: these distances are "
                                 "not rounded."
                               : "";
    return dpe_draw_format_text("%s Keys nearer than %.0f tokens keep "
                                "their true distance. For farther keys, the %.0f key pairs of "
                                "each head (of %lld) use the distance divided by the scale of "
                                "their group.%s%s The model was trained at %.0f tokens.",
                                opening, d->window.values[0], d->top_k.values[0], (long long)d->pairs,
                                rounding, rotation, d->trained.values[0]);
}

/* One entry, under its heading. */
static dpe_status add_entry(struct report *report, const struct input *input, const char *folder,
                            const char *suffix, const char *opening, struct dpe_error *err)
{
    struct dpe d;
    dpe_status status = read_dpe(input, folder, suffix, &d, err);
    if (status == DPE_OK) {
        d.share = dpe_alloc((size_t)(d.layers * d.groups), sizeof *d.share);
        report->document.failed = report->document.failed || d.share == NULL;
    }
    for (int64_t c = 0; d.share != NULL && c < d.layers * d.groups; c++) {
        d.share[c] = key_share(&d, c / d.groups, c % d.groups);
    }
    if (status == DPE_OK && d.share != NULL) {
        dpe_draw_add_text(&report->document, BLOCK_TEXT, rule_words(&d, opening));
        add_groups(report, &d);
        add_map(report, &d);
    }
    dpe_free(&d);
    return status;
}

static dpe_status add_single(struct report *report, const struct input *input,
                             struct dpe_error *err)
{
    struct numbers length = {0};
    const struct wanted wanted = {"/table/evaluated_length", 0, {0}, true, &length};
    dpe_status status = dpe_input_read_wanted(input, &wanted, 1, err);
    if (status == DPE_OK) {
        char text[32];
        dpe_draw_length_text(length.values[0], text);
        dpe_draw_add_text(
            &report->document, BLOCK_SECTION,
            dpe_input_section_title(report, input, one_entry, "The table for %s tokens", text));
        status = add_entry(report, input, "/table", "", "A runtime loads this table.", err);
    }
    dpe_input_numbers_free(&length);
    return status;
}

/* A table of several entries: which runs which text, and then each of them. */
static dpe_status add_several(struct report *report, const struct input *input,
                              struct dpe_error *err)
{
    struct numbers lengths = {0};
    struct numbers trained = {0};
    char path[64];
    const struct wanted wanted = {several_entries, 1, {-1}, true, &lengths};
    dpe_status status = dpe_input_read_wanted(input, &wanted, 1, err);
    if (status != DPE_OK) {
        goto done;
    }
    int64_t n = lengths.dims[0];
    snprintf(path, sizeof path, "/table/%.0f/trained_length", n > 0 ? lengths.values[0] : 0.0);
    const struct wanted first = {path, 0, {0}, true, &trained};
    status = dpe_input_read_wanted(input, &first, 1, err);
    if (status != DPE_OK) {
        goto done;
    }
    dpe_draw_add_text(&report->document, BLOCK_SECTION,
                      dpe_input_section_title(report, input, several_entries,
                                              "The table for %lld lengths", (long long)n));
    dpe_draw_add_text(
        &report->document, BLOCK_TEXT,
        dpe_draw_format_text(
            "A runtime loads this table and chooses an entry once for each text, by the tokens of "
            "its prompt and of what may be generated. Up to %.0f tokens, the trained length, the "
            "model is run unchanged. Beyond the largest length the largest entry is used; such "
            "distances were not measured.",
            trained.values[0]));
    double before = trained.values[0];
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        char folder[48];
        char suffix[32];
        char opening[80];
        snprintf(folder, sizeof folder, "/table/%.0f", lengths.values[i]);
        snprintf(suffix, sizeof suffix, "-%.0f", lengths.values[i]);
        snprintf(opening, sizeof opening, "Texts of %.0f to %.0f tokens:", before + 1.0,
                 lengths.values[i]);
        status = add_entry(report, input, folder, suffix, opening, err);
        before = lengths.values[i];
    }
done:
    dpe_input_numbers_free(&lengths);
    dpe_input_numbers_free(&trained);
    return status;
}

dpe_status dpe_sections_tables(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        const struct input *input = &report->inputs[i];
        /* A detection of key pairs has a mask as well, and sections of its own. */
        if (dpe_h5_has(input->table, several_entries)) {
            status = add_several(report, input, err);
        } else if (dpe_h5_has(input->table, one_entry) && !dpe_h5_has(input->table, "/detect")) {
            status = add_single(report, input, err);
        }
    }
    return status;
}
