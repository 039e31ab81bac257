/* An exported DPE table: what a runtime does with each group and head. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/report/sections/sections.h"
#include "outputs/table/dpe_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An entry of a table. */
struct dpe {
    const struct input *input;
    char suffix[32]; /**< of the names of its sheets and figures: "", or "-1024" */
    const struct dpe_table_values *v;
    double *share; /**< [layer][group], of the group's pairs over all heads; owned */
};

/* Share of the key pairs among a group's pairs, of one layer or (−1) of all. */
static double key_share(const struct dpe *d, int64_t layer, int64_t group)
{
    double sum = 0.0;
    double n = 0.0;
    int64_t first = layer < 0 ? 0 : layer;
    int64_t last = layer < 0 ? d->v->n_layers - 1 : layer;
    const int32_t *edge = d->v->group_edge;
    for (int64_t row = first * d->v->n_heads; row < (last + 1) * d->v->n_heads; row++) {
        for (int32_t j = edge[group]; j < edge[group + 1]; j++) {
            sum += d->v->mask[row * d->v->n_pairs + j];
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
    for (int64_t g = 0; g < d->v->n_groups; g++) {
        const double effective = d->v->effective_length[g];
        dpe_draw_sheet_number(sheet, (double)g);
        dpe_draw_sheet_number(sheet, effective < 0.0 ? (double)NAN : effective);
        dpe_draw_sheet_number(sheet, d->v->scale_factor[g]);
        dpe_draw_sheet_number(sheet, d->v->group_edge[g]);
        dpe_draw_sheet_number(sheet, d->v->group_edge[g + 1] - 1);
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
    const int64_t layers = d->v->n_layers;
    const int64_t groups = d->v->n_groups;
    char *id = entry_id(report, d, "table-pairs");
    const char **names = counted(layers > groups ? layers : groups);
    struct sheet *sheet =
        id == NULL ? NULL : dpe_draw_sheet_new(id, "Key pairs by layer and group");
    dpe_draw_sheet_column(sheet, "layer", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "group", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "share", COLUMN_NUMBER, 4);
    for (int64_t i = 0; i < layers * groups; i++) {
        dpe_draw_sheet_number(sheet, (double)(i / groups));
        dpe_draw_sheet_number(sheet, (double)(i % groups));
        dpe_draw_sheet_number(sheet, d->share[i]);
    }
    struct figure *figure = dpe_draw_figure_new(
        id, "Key pairs by layer and group",
        dpe_draw_format_text("The share of a group's pairs that are key pairs, over the heads of "
                             "each layer. Only key pairs are scaled. A dark column is a frequency "
                             "group that mostly keeps its true positions, whatever its scale."),
        sheet);
    if (figure != NULL && names != NULL) {
        const struct heat heat = {.n_rows = layers,
                                  .n_columns = groups,
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

static bool moves(const struct dpe_table_values *v)
{
    bool any = false;
    for (int64_t g = 0; g < v->n_groups; g++) {
        any = any || v->scale_factor[g] != 1.0;
    }
    return any;
}

/* The rule by which a runtime positions keys. */
static char *rule_words(const struct dpe_table_values *v, const char *opening)
{
    const char *rotation = v->applied_inv_freq != NULL
                               ? " The table holds the plan of another method than DPE: all pairs rotate by "
                                 "frequencies of the table in place of the model's own."
                               : "";
    if (rotation[0] != '\0' && !moves(v)) {
        return dpe_draw_format_text("%s Every key keeps its true distance.%s The model was trained at %lld tokens.",
                                    opening, rotation, (long long)v->trained_length);
    }
    const char *rounding = v->unrounded != 0
                               ? " The table holds the plan of another method than DPE: these distances are "
                                 "not rounded."
                               : "";
    return dpe_draw_format_text("%s Keys nearer than %lld tokens keep "
                                "their true distance. For farther keys, the %lld key pairs of "
                                "each head (of %lld) use the distance divided by the scale of "
                                "their group.%s%s The model was trained at %lld tokens.",
                                opening, (long long)v->window, (long long)v->top_k,
                                (long long)v->n_pairs, rounding, rotation, (long long)v->trained_length);
}

/* One entry, under its heading. */
static void add_entry(struct report *report, struct dpe *d, const char *opening)
{
    const int64_t cells = d->v->n_layers * d->v->n_groups;
    char evidence[DPE_TABLE_EVIDENCE];
    d->share = dpe_alloc((size_t)cells, sizeof *d->share);
    if (d->share == NULL) {
        report->document.failed = true;
        return;
    }
    for (int64_t c = 0; c < cells; c++) {
        d->share[c] = key_share(d, c / d->v->n_groups, c % d->v->n_groups);
    }
    dpe_draw_add_text(&report->document, BLOCK_TEXT, rule_words(d->v, opening));
    if (dpe_table_evidence(d->v, evidence)[0] != '\0') {
        dpe_draw_add_text(&report->document, BLOCK_TEXT,
                          dpe_draw_format_text("Measured under it: %s.", evidence));
    }
    add_groups(report, d);
    add_map(report, d);
    free(d->share);
}

static void add_single(struct report *report, const struct input *input,
                       const struct dpe_table *table)
{
    struct dpe d = {.input = input, .v = dpe_table_values(table)};
    char text[32];
    dpe_draw_length_text((double)d.v->length, text);
    dpe_draw_add_text(
        &report->document, BLOCK_SECTION,
        dpe_input_section_title(report, input, one_entry, "The table for %s tokens", text));
    add_entry(report, &d, "A runtime loads this table.");
}

/* A table of several entries: which runs which text, and then each of them. */
static void add_several(struct report *report, const struct input *input,
                        const struct dpe_table *table)
{
    const int64_t n = dpe_table_count(table);
    const int64_t trained = dpe_table_values(table)->trained_length;
    dpe_draw_add_text(&report->document, BLOCK_SECTION,
                      dpe_input_section_title(report, input, several_entries,
                                              "The table for %lld lengths", (long long)n));
    dpe_draw_add_text(
        &report->document, BLOCK_TEXT,
        dpe_draw_format_text(
            "A runtime loads this table and chooses an entry once for each text, by the tokens of "
            "its prompt and of what may be generated. Up to %lld tokens, the trained length, the "
            "model is run unchanged. Beyond the largest length the largest entry is used; such "
            "distances were not measured.",
            (long long)trained));
    int64_t before = trained;
    for (int64_t i = 0; i < n; i++) {
        struct dpe d = {.input = input, .v = dpe_table_values(dpe_table_entry(table, i))};
        char opening[80];
        snprintf(d.suffix, sizeof d.suffix, "-%lld", (long long)d.v->length);
        snprintf(opening, sizeof opening, "Texts of %lld to %lld tokens:", (long long)before + 1,
                 (long long)d.v->length);
        add_entry(report, &d, opening);
        before = d.v->length;
    }
}

dpe_status dpe_sections_tables(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        const struct input *input = &report->inputs[i];
        const bool several = dpe_h5_has(input->table, several_entries);
        struct dpe_table *table = NULL;
        /* A detection of key pairs has a mask as well, and sections of its own. */
        if (!several &&
            (!dpe_h5_has(input->table, one_entry) || dpe_h5_has(input->table, "/detect"))) {
            continue;
        }
        status = dpe_table_load(input->path, &table, err);
        if (status == DPE_OK && several) {
            add_several(report, input, table);
        } else if (status == DPE_OK) {
            add_single(report, input, table);
        }
        dpe_table_close(table);
    }
    return status;
}
