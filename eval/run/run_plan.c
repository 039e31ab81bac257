/* For programs elsewhere: a plan as a table; what other runtimes compute from a configuration, and
 * what they apply of a table. */
#include <math.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/tool/result.h"
#include "eval/run/run_tool.h"
#include "outputs/export/rope_forms.h"

dpe_status dpe_run_tool_plan_json(const struct run *run, const struct dpe_plan *plan,
                                  int64_t length, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    const struct dpe_plan_context context = {.config = dpe_model_config(run->model),
                                             .trained_length = run->trained_length,
                                             .length = length,
                                             .official = true};
    DPE_TRY(dpe_table_for_plan(plan, &context, dpe_model_fingerprint(run->model), &table, err));
    DPE_OWNED char *text = dpe_table_json(table);
    DPE_TRY(DPE_MADE(text, err, "out of memory for a plan"));
    dpe_print("%s", text);
    return DPE_OK;
}

static const char *text_of(double value, const char *none, char text[32])
{
    if (isfinite(value)) {
        snprintf(text, 32, "%.9g", value);
    }
    return isfinite(value) ? text : none;
}

static const char *growth_of(const struct dpe_reading *reading, char text[48])
{
    snprintf(text, 48, "-");
    if (reading->growth > 0.0) {
        snprintf(text, 48, "%.6g after %.0f", reading->growth, reading->growth_length);
    }
    return text;
}

static const char *switch_of(const struct dpe_reading *reading, char text[32])
{
    snprintf(text, 32, "-");
    if (reading->switch_length > 0) {
        snprintf(text, 32, "%lld%s", (long long)reading->switch_length,
                 reading->at_start ? " (start)" : "");
    }
    return text;
}

static void print_rows(const struct dpe_readings *readings)
{
    dpe_print("%-13s %-13s %-8s %-13s %-11s %-11s %-14s %-9s %s\n", "runtime", "version", "reading",
              "rotation", "base", "logits x", "switch", "longest", "queries grow");
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        char base[32];
        char logits[32];
        char longest[32];
        char grow[48];
        char at[32];
        bool refused = reading->refused[0] != '\0';
        bool differs = reading->kind != readings->of[0].kind;
        dpe_print("%-13s %-13s %c%-7s ", reading->runtime->name, reading->runtime->versions,
                  (char)('A' + reading->kind), differs ? " *" : "");
        if (refused) {
            dpe_print("refused\n");
            continue;
        }
        dpe_print("%-13s %-11s %-11s %-14s %-9s %s\n", reading->type,
                  text_of(reading->base, "-", base),
                  text_of(reading->factor * reading->factor, "-", logits), switch_of(reading, at),
                  text_of(reading->longest, "any", longest), growth_of(reading, grow));
    }
}

static void print_notes(const struct dpe_readings *readings)
{
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        const struct dpe_runtime *row = reading->runtime;
        if (reading->refused[0] != '\0') {
            dpe_print("%s %s refuses it: %s\n", row->name, row->versions, reading->refused);
        }
        for (int k = 0; k < reading->n_notes && reading->refused[0] == '\0'; k++) {
            dpe_print("%s %s %s\n", row->name, row->versions, reading->notes[k]);
        }
    }
}

/* One column for each reading that is not refused. */
static void print_pairs(const struct dpe_readings *readings)
{
    const struct dpe_reading *columns[26];
    int n = 0;
    for (int i = 0; i < readings->n && n < 26; i++) {
        bool seen = false;
        for (int k = 0; k < n; k++) {
            seen = seen || columns[k]->kind == readings->of[i].kind;
        }
        if (!seen && readings->of[i].refused[0] == '\0') {
            columns[n++] = &readings->of[i];
        }
    }
    dpe_print("\nradians a token\npair ");
    for (int k = 0; k < n; k++) {
        dpe_print("  %c%-13s", (char)('A' + columns[k]->kind), "");
    }
    dpe_print("\n");
    for (int64_t j = 0; j < readings->n_pairs; j++) {
        dpe_print("%4lld ", (long long)j);
        for (int k = 0; k < n; k++) {
            double first = columns[0]->inv_freq[j];
            double value = columns[k]->inv_freq[j];
            bool differs = fabs(value - first) > 2e-6 * fmax(fabs(value), fabs(first));
            dpe_print("  %-13.7g%c", value, differs ? '*' : ' ');
        }
        dpe_print("\n");
    }
}

static void print_table(const struct dpe_applied *applied, const char *path)
{
    char text[DPE_APPLIED_TEXT];
    if (applied->values == NULL) {
        return;
    }
    dpe_print("\n%s, entry of %lld tokens: what is applied of it\n", path,
              (long long)applied->values->length);
    for (int i = 0; i < applied->readings.n; i++) {
        const struct dpe_runtime *row = applied->readings.of[i].runtime;
        dpe_print("%-13s %-13s %s\n", row->name, row->versions, dpe_applied_text(applied, i, text));
    }
}

static void print_text(const struct arguments *args, const struct dpe_readings *readings,
                       const struct dpe_applied *applied, bool agree)
{
    dpe_print("%s, a text of %lld tokens%s\n\n", args->model, (long long)readings->length,
              readings->gguf
                  ? " (llama.cpp reads the GGUF file; the others a config.json that says the same)"
                  : "");
    print_rows(readings);
    dpe_print("\n");
    print_notes(readings);
    print_pairs(readings);
    print_table(applied, args->table);
    dpe_print("\n%s\n", agree ? "They agree." : "They do not agree.");
}

static dpe_status print_json(const struct arguments *args, const struct dpe_readings *readings,
                             const struct dpe_applied *applied, bool agree, struct dpe_error *err)
{
    char text[DPE_APPLIED_TEXT];
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "model", args->model);
    dpe_result_whole(result, "length", readings->length);
    dpe_result_flag(result, "agree", agree);
    dpe_result_whole(result, "readings", readings->n_kinds);
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        char notes[DPE_READING_ALL_NOTES];
        bool refused = reading->refused[0] != '\0';
        dpe_result_row(result, "runtimes");
        dpe_result_text(result, "name", reading->runtime->name);
        dpe_result_text(result, "versions", reading->runtime->versions);
        dpe_result_text(result, "known_by", reading->runtime->known_by);
        dpe_result_whole(result, "reading", reading->kind);
        dpe_result_text(result, "refused", refused ? reading->refused : NULL);
        dpe_result_text(result, "notes", dpe_reading_notes(reading, notes));
        dpe_result_text(result, "rotation", reading->type);
        dpe_result_number(result, "base", reading->base);
        dpe_result_number(result, "attention_factor", refused ? (double)NAN : reading->factor);
        dpe_result_whole(result, "switch_length", reading->switch_length);
        dpe_result_flag(result, "switch_at_start", reading->at_start);
        dpe_result_number(result, "longest", reading->longest);
        dpe_result_number(result, "query_growth", reading->growth);
        dpe_result_number(result, "query_growth_length", reading->growth_length);
        dpe_result_numbers(result, "inv_freq", reading->inv_freq,
                           refused ? 0 : (size_t)readings->n_pairs);
        if (applied->values != NULL) {
            dpe_result_text(result, "table", dpe_applied_text(applied, i, text));
        }
    }
    return dpe_result_print(result, args->result, err);
}

dpe_status dpe_run_tool_runtimes(const struct arguments *args, bool *agree, struct dpe_error *err)
{
    DPE_SCOPED(dpe_table_close_scoped) struct dpe_table *table = NULL;
    DPE_SCOPED(dpe_readings_free) struct dpe_readings readings = {0};
    DPE_SCOPED(dpe_applied_free) struct dpe_applied applied = {0};
    *agree = false;
    DPE_TRY(dpe_readings_open(args->model, args->runtimes, args->length, &readings, err));
    if (args->table != NULL) {
        DPE_TRY(dpe_table_load(args->table, &table, err));
        DPE_TRY(dpe_applied_make(args->model, args->table, table, args->runtimes, args->length,
                                 &applied, err));
        if (applied.values == NULL) {
            dpe_log_info("%s: a text of %lld tokens is run unchanged", args->table,
                         (long long)args->length);
        }
    }
    *agree = readings.agree && dpe_applied_agree(&applied);
    if (args->result == DPE_RESULT_JSON) {
        return print_json(args, &readings, &applied, *agree, err);
    }
    print_text(args, &readings, &applied, *agree);
    return DPE_OK;
}
