/* The head of a report with a comparison of a DPE table: what the table is worth at its longest
 * length, in a few sentences, and how it is used. */
#include "engine/base/p_text.h"
#include "outputs/datasets/uses.h"
#include "outputs/report/comparison/report_eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A comparison that has a table at its longest length. */
struct worth {
    const struct suite *s;
    const struct dpe_headline *shown;
    size_t task;
    double trained, length, ceiling; /* NaN: unknown */
};

static const struct dpe_interval *value_of(const struct worth *w, int64_t method)
{
    return &w->s->r.mean[(size_t)method * w->s->n_tasks + w->task];
}

/* What the model finds of such needles within its trained length, by the detection for this length.
 */
static double find_ceiling(const struct report *report, double length)
{
    double found = (double)NAN;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        const char *own = dpe_identity_get(&input->identity, "length");
        const char *folder =
            dpe_h5_has(input->table, "/validate/user") ? "/validate/user" : "/validate/niah";
        struct dpe_dataset datasets[DPE_VALIDATED_DATASETS];
        const struct dpe_dataset_kind kind = dpe_validated_datasets(true, datasets);
        struct dpe_scores_result r = {0};
        if (own != NULL && strtod(own, NULL) == length &&
            dpe_input_get(input, &kind, &r, folder, "ceiling", NULL) == DPE_OK &&
            r.ceiling != NULL) {
            found = *r.ceiling;
        }
        dpe_datasets_free(&kind, &r);
    }
    return found;
}

/* "table:FILE" is FILE. */
static const char *table_name(const struct worth *w)
{
    const char *name = w->s->r.method[w->shown->method[DPE_SHOWN_TABLE]];
    return strncmp(name, "table:", 6) == 0 ? name + 6 : name;
}

static void add_lead(struct report *report, const struct worth *w)
{
    char table[96], alone[96], length[32], times[64] = "", possible[128] = "";
    const int64_t *methods = w->shown->method;
    dpe_report_value(value_of(w, methods[DPE_SHOWN_TABLE]), !w->s->low_is_better, table);
    dpe_length_text(w->length, length);
    if (w->trained > 0.0) {
        snprintf(times, sizeof times, ", %.3g times its trained length,", w->length / w->trained);
    }
    if (isfinite(w->ceiling) && !w->s->low_is_better) {
        snprintf(possible, sizeof possible,
                 " %.0f\u00a0%% are possible: what it finds of such needles at its trained length.",
                 100.0 * w->ceiling);
    }
    if (methods[DPE_SHOWN_ALONE] >= 0) {
        dpe_report_value(value_of(w, methods[DPE_SHOWN_ALONE]), !w->s->low_is_better, alone);
    }
    dpe_report_say(
        report, BLOCK_LEAD,
        w->s->low_is_better ? "At %s tokens%s the model has a perplexity of %s with %s%s%s.%s"
                            : "At %s tokens%s the model finds %s of the needles with %s%s%s.%s",
        length, times, table, table_name(w), methods[DPE_SHOWN_ALONE] >= 0 ? ", and as it is " : "",
        methods[DPE_SHOWN_ALONE] >= 0 ? alone : "", possible);
}

/* The best of the other methods, and whether the table was worth it. */
static void add_rival(struct report *report, const struct worth *w)
{
    const int64_t rival = w->shown->method[DPE_SHOWN_OTHER];
    if (rival < 0) {
        return;
    }
    const size_t at = (size_t)rival * w->s->n_tasks + w->task;
    const char *name = w->s->r.method[rival];
    char value[96], p[DPE_P_TEXT];
    char verdict[384] = ".";
    dpe_report_value(value_of(w, rival), !w->s->low_is_better, value);
    if ((int64_t)w->s->against == w->shown->method[DPE_SHOWN_TABLE] && w->s->r.p_value != NULL) {
        const double difference = w->s->r.difference[at].mean * (w->s->low_is_better ? -1.0 : 1.0);
        const bool real = w->s->r.p_value[at] < 0.05;
        dpe_p_text(w->s->r.p_value[at], p);
        snprintf(verdict, sizeof verdict,
                 !real            ? ", which is not shown to differ (%s): --method %.200s needs no "
                                    "calibration."
                 : difference < 0 ? ": the table is better (%s).%.0s"
                                  : ": it is better than the table (%s). Use --method %.200s.",
                 p, name);
    }
    dpe_report_say(report, BLOCK_TEXT, "The best of the other methods, %s, has %s%s", name, value,
                   verdict);
}

/* The finished table among the inputs; `*factors`: runtimes need no adapter for it. */
static const struct input *find_table(const struct report *report, bool *factors)
{
    const struct input *found = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        if ((dpe_h5_has(input->table, "/table/mask") ||
             dpe_h5_has(input->table, "/table/length")) &&
            !dpe_h5_has(input->table, "/detect")) {
            char *adapter = dpe_input_read_words(input, "/table", "adapter_required");
            *factors = adapter != NULL && strcmp(adapter, "false") == 0;
            free(adapter);
            found = input;
        }
    }
    return found;
}

/* The command with the table's name in place of TABLE; owned. */
static char *command_text(const char *command, const char *table)
{
    struct dpe_text out = {0};
    for (const char *at = command; *at != '\0';) {
        const char *next = strstr(at, "TABLE");
        bool word = next != NULL && next[5] != '='; /* DPE_TABLE= stays */
        size_t n = next == NULL ? strlen(at) : (size_t)(next - at) + (word ? 0 : 5);
        dpe_text_put_bytes(&out, at, n);
        if (next != NULL && word) {
            dpe_text_put(&out, "%s", table);
        }
        at += n + (next != NULL && word ? 5 : 0);
    }
    return out.failed ? NULL : out.bytes;
}

static void add_uses(struct report *report, const struct worth *w)
{
    bool factors = false;
    const struct input *table = find_table(report, &factors);
    if (table == NULL) {
        return;
    }
    dpe_report_say(
        report, BLOCK_TEXT,
        "Texts of up to %.0f tokens run unchanged with the table, so they lose nothing.%s To "
        "see "
        "it on a text: dpe-run -m MODEL --table %s --show --corpus TEXTS",
        w->trained,
        factors ? " Runtimes without an adapter apply the factors to every text; dpe-export "
                  "measures what short ones lose."
                : "",
        table->name);
    struct sheet *sheet =
        dpe_report_sheet(report, "uses", "runtime:t|command:t", "Which file for which runtime");
    for (int i = 0; i < DPE_USES; i++) {
        if (dpe_uses[i].factors && !factors) {
            continue;
        }
        char *command = command_text(dpe_uses[i].command, table->name);
        dpe_draw_row(sheet, dpe_text_cell(dpe_uses[i].runtime), dpe_text_cell(command));
        free(command);
    }
    dpe_report_add(report, sheet);
}

void dpe_comparison_short(struct report *report, const struct suite *s,
                          const struct dpe_headline *shown)
{
    struct worth w = {.s = s,
                      .shown = shown,
                      .task = shown->order[shown->n - 1],
                      .trained =
                          (double)dpe_input_read_whole(s->input, "/eval", "trained_length", -1)};
    w.length = (double)s->r.task_length[w.task];
    w.ceiling = find_ceiling(report, w.length);
    dpe_report_section(report, "In short");
    add_lead(report, &w);
    add_rival(report, &w);
    add_uses(report, &w);
}
