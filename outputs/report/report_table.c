/* An exported DPE table: what a runtime does with each group and head, and what other runtimes
 * apply of it and compute from a model's configuration. */
#include <math.h>
#include <stdio.h>

#include "outputs/export/rope_forms.h"
#include "outputs/export/runtimes.h"
#include "outputs/read/read.h"
#include "outputs/report/report_parts.h"
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
                 dpe_draw_text(&rule), (long long)v->trained_length);
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
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        const bool several = dpe_h5_has(input->table, several_entries);
        dpe_report_about(report, input, several ? several_entries : one_entry);
        if (several) {
            add_several(report, input->dpe);
        } else if (dpe_input_has_table(input)) {
            dpe_page_section(&report->page, "The table for %s tokens",
                             DPE_LENGTH_TEXT((double)dpe_table_values(input->dpe)->length));
            add_entry(report, dpe_table_values(input->dpe), "A runtime loads this table.");
        }
    }
    dpe_report_about(report, NULL, NULL);
}

/* ------------------------------------------------------------------------------- other runtimes */

static const char which[] = "current";

/* Of the table that the subject is. */
static void write_applied(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    struct dpe_applied applied = {0};
    dpe_status status = dpe_applied_make(report->runtimes, input->path, input->dpe, which,
                                         report->length, &applied, report->err);
    if (status == DPE_OK && applied.values != NULL) {
        dpe_words_applied(&report->page, input->name, &applied);
    } else if (status == DPE_BAD_DATA || status == DPE_USAGE || status == DPE_NO_INPUT) {
        /* It has no form without an adapter, or is of another model, or of one without weights. */
        dpe_page_say(&report->page, BLOCK_NOTE, "What each applies of %s is not shown: %s",
                     input->name, report->err->text);
    } else {
        dpe_report_ok(report, status);
    }
    dpe_applied_free(&applied);
}

void dpe_sections_runtimes(struct dpe_report *report)
{
    DPE_SCOPED(dpe_readings_free) struct dpe_readings readings = {0};
    if (report->runtimes == NULL) {
        return;
    }
    if (dpe_report_ok(report, dpe_readings_open(report->runtimes, which, 0, report->length,
                                                &readings, report->err))) {
        dpe_words_runtimes(&report->page, dpe_page_clean(&report->page, report->runtimes, 60),
                           &readings);
    }
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        if (dpe_input_has_table(&report->inputs[i])) {
            dpe_report_about(report, &report->inputs[i], "/table/mask");
            write_applied(report);
        }
    }
    dpe_report_about(report, NULL, NULL);
}
