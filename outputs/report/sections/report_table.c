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
    int64_t layers, heads, pairs, groups;
    struct numbers mask;                   /**< [layer][head][pair], 1 = moves */
    struct numbers edge, scale, effective; /**< [groups + 1], [group], [group] */
    struct numbers window, length, trained, top_k;
    double *share; /**< [layer][group], of the group's pairs over all heads; owned */
};

static void dpe_free(struct dpe *d)
{
    struct numbers *const all[] = {&d->mask,   &d->edge,   &d->scale,   &d->effective,
                                   &d->window, &d->length, &d->trained, &d->top_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dpe_input_numbers_free(all[i]);
    }
    free(d->share);
}

static dpe_status read_dpe(const struct input *input, struct dpe *d, struct dpe_error *err)
{
    *d = (struct dpe){.input = input};
    const struct wanted axes[] = {
        {"/table/mask", 3, {-1, -1, -1}, true, &d->mask},
        {"/table/scale_factor", 1, {-1}, true, &d->scale},
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
        {"/table/group_edge", 1, {d->groups + 1}, true, &d->edge},
        {"/table/effective_length", 1, {d->groups}, true, &d->effective},
        {"/table/local_window", 0, {0}, true, &d->window},
        {"/table/evaluated_length", 0, {0}, true, &d->length},
        {"/table/trained_length", 0, {0}, true, &d->trained},
        {"/table/top_k", 0, {0}, true, &d->top_k},
    };
    status = dpe_input_read_wanted(input, rest, sizeof rest / sizeof rest[0], err);
    bool ordered = status == DPE_OK && d->edge.values[0] == 0.0 &&
                   d->edge.values[d->groups] == (double)d->pairs;
    for (int64_t g = 0; status == DPE_OK && g < d->groups; g++) {
        ordered = ordered && d->edge.values[g] < d->edge.values[g + 1];
    }
    return status != DPE_OK || ordered
               ? status
               : dpe_fail(err, DPE_BAD_DATA,
                          "%s: /table/group_edge: expected edges that increase from 0 to %lld",
                          input->path, (long long)d->pairs);
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

static void add_groups(struct report *report, const struct dpe *d)
{
    char *id = dpe_input_report_id(report, d->input, "/table/mask", "table-groups");
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
    char *id = dpe_input_report_id(report, d->input, "/table/mask", "table-pairs");
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

dpe_status dpe_sections_tables(struct report *report, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        struct input *input = &report->inputs[i];
        /* A detection of key pairs has a mask as well, and sections of its own. */
        if (!dpe_h5_has(input->table, "/table/mask") || dpe_h5_has(input->table, "/detect")) {
            continue;
        }
        struct dpe d;
        status = read_dpe(input, &d, err);
        if (status == DPE_OK) {
            d.share = dpe_alloc((size_t)(d.layers * d.groups), sizeof *d.share);
            report->document.failed = report->document.failed || d.share == NULL;
        }
        for (int64_t c = 0; d.share != NULL && c < d.layers * d.groups; c++) {
            d.share[c] = key_share(&d, c / d.groups, c % d.groups);
        }
        if (status == DPE_OK && d.share != NULL) {
            char length[32];
            dpe_draw_length_text(d.length.values[0], length);
            dpe_draw_add_text(&report->document, BLOCK_SECTION,
                              dpe_input_section_title(report, input, "/table/mask",
                                                      "The table for %s tokens", length));
            dpe_draw_add_text(&report->document, BLOCK_TEXT,
                              dpe_draw_format_text(
                                  "A runtime loads this table. Keys nearer than %.0f tokens keep "
                                  "their true distance. For farther keys, the %.0f key pairs of "
                                  "each head (of %lld) use the distance divided by the scale of "
                                  "their group. The model was trained at %.0f tokens.",
                                  d.window.values[0], d.top_k.values[0], (long long)d.pairs,
                                  d.trained.values[0]));
            add_groups(report, &d);
            add_map(report, &d);
        }
        dpe_free(&d);
    }
    return status;
}
