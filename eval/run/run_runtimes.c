/* What other runtimes compute from a configuration, and what they apply of a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "eval/run/run_tool.h"
#include "outputs/export/rope_forms.h"
#include "outputs/runtimes/runtimes.h"
#include "outputs/table/dpe_table.h"

/* A table beside the configuration; readings are of the config.json that it is exported as. */
struct applied {
    const struct dpe_table_values *values; /* NULL: no table, or the text is run unchanged */
    bool adapter;                          /* it needs one */
    struct dpe_readings readings;
    struct dpe_rope_factors factors; /* what all of it is, where it needs none */
    double base;
};

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
    printf("%-13s %-13s %-8s %-13s %-11s %-11s %-14s %-9s %s\n", "runtime", "version", "reading",
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
        printf("%-13s %-13s %c%-7s ", reading->runtime->name, reading->runtime->versions,
               (char)('A' + reading->kind), differs ? " *" : "");
        if (refused) {
            printf("refused\n");
            continue;
        }
        printf("%-13s %-11s %-11s %-14s %-9s %s\n", reading->type,
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
            printf("%s %s refuses it: %s\n", row->name, row->versions, reading->refused);
        }
        for (int k = 0; k < reading->n_notes && reading->refused[0] == '\0'; k++) {
            printf("%s %s %s\n", row->name, row->versions, reading->notes[k]);
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
    printf("\nradians a token\npair ");
    for (int k = 0; k < n; k++) {
        printf("  %c%-13s", (char)('A' + columns[k]->kind), "");
    }
    printf("\n");
    for (int64_t j = 0; j < readings->n_pairs; j++) {
        printf("%4lld ", (long long)j);
        for (int k = 0; k < n; k++) {
            double first = columns[0]->inv_freq[j];
            double value = columns[k]->inv_freq[j];
            bool differs = fabs(value - first) > 2e-6 * fmax(fabs(value), fabs(first));
            printf("  %-13.7g%c", value, differs ? '*' : ' ');
        }
        printf("\n");
    }
}

/* Whether a reading is the table. */
static bool is_table(const struct applied *applied, const struct dpe_reading *reading)
{
    const struct dpe_rope_factors *factors = &applied->factors;
    double n = (double)factors->n;
    bool equal = fabs(reading->factor / factors->attention_factor - 1.0) < 2e-6;
    for (int64_t j = 0; j < factors->n && equal; j++) {
        double want = pow(applied->base, -(double)j / n) / factors->long_factor[j];
        equal = fabs(reading->inv_freq[j] / want - 1.0) < 2e-6;
    }
    return equal && (double)applied->readings.length <= reading->longest;
}

enum { NOTES = DPE_READING_NOTES * (DPE_READING_TEXT + 2) };

/* The notes of a reading in one line. */
static const char *join_notes(const struct dpe_reading *reading, char notes[NOTES])
{
    notes[0] = '\0';
    for (int k = 0; k < reading->n_notes; k++) {
        dpe_append(notes, NOTES, "%s%s", k > 0 ? "; " : "", reading->notes[k]);
    }
    return notes;
}

/* What runtime i of the table's readings does with the table. */
static const char *applies(const struct applied *applied, int i, char text[NOTES + 80])
{
    const struct dpe_reading *reading = &applied->readings.of[i];
    const char *adapter = reading->runtime->adapter;
    char notes[NOTES];
    if (applied->adapter) {
        snprintf(text, NOTES + 80,
                 adapter != NULL ? "all of it, through %s; without it nothing, as above"
                                 : "nothing: it runs the model as above",
                 adapter);
    } else if (reading->refused[0] != '\0') {
        snprintf(text, NOTES + 80, "refuses its config.json: %s", reading->refused);
    } else if (is_table(applied, reading)) {
        snprintf(text, NOTES + 80, "all of it, from its config.json");
    } else {
        snprintf(text, NOTES + 80, "other numbers: %s%s", join_notes(reading, notes),
                 reading->runtime->reads_gguf ? "; a copy of dpe-export --gguf holds the table"
                                              : "");
    }
    return text;
}

static void print_table(const struct applied *applied, const char *path)
{
    char text[NOTES + 80];
    if (applied->values == NULL) {
        return;
    }
    printf("\n%s, entry of %lld tokens: what is applied of it\n", path,
           (long long)applied->values->length);
    for (int i = 0; i < applied->readings.n; i++) {
        const struct dpe_runtime *row = applied->readings.of[i].runtime;
        printf("%-13s %-13s %s\n", row->name, row->versions, applies(applied, i, text));
    }
}

static void print_text(const struct arguments *args, const struct dpe_readings *readings,
                       const struct applied *applied, bool agree)
{
    printf("%s, a text of %lld tokens%s\n\n", args->model, (long long)readings->length,
           readings->gguf
               ? " (llama.cpp reads the GGUF file; the others a config.json that says the same)"
               : "");
    print_rows(readings);
    printf("\n");
    print_notes(readings);
    print_pairs(readings);
    print_table(applied, args->table);
    printf("\n%s\n", agree ? "They agree." : "They do not agree.");
}

static dpe_status print_json(const struct arguments *args, const struct dpe_readings *readings,
                             const struct applied *applied, bool agree, struct dpe_error *err)
{
    char text[NOTES + 80];
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "model", args->model);
    dpe_result_whole(result, "length", readings->length);
    dpe_result_flag(result, "agree", agree);
    dpe_result_whole(result, "readings", readings->n_kinds);
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        char notes[NOTES];
        bool refused = reading->refused[0] != '\0';
        dpe_result_row(result, "runtimes");
        dpe_result_text(result, "name", reading->runtime->name);
        dpe_result_text(result, "versions", reading->runtime->versions);
        dpe_result_text(result, "known_by", reading->runtime->known_by);
        dpe_result_whole(result, "reading", reading->kind);
        dpe_result_text(result, "refused", refused ? reading->refused : NULL);
        dpe_result_text(result, "notes", join_notes(reading, notes));
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
            dpe_result_text(result, "table", applies(applied, i, text));
        }
    }
    return dpe_result_print(result, args->result, err);
}

/* The readings of the config.json that a table of frequencies is exported as. */
static dpe_status read_exported(const struct arguments *args, int64_t length,
                                struct applied *applied, struct dpe_error *err)
{
    const struct dpe_model_options options = {.config_only = true};
    const struct dpe_short_text none = {0};
    struct dpe_model *model = NULL;
    struct dpe_text config = {0};
    dpe_status status = dpe_model_open(args->model, &options, &model, err);
    if (status == DPE_OK) {
        status = dpe_export_longrope(applied->values, args->model, dpe_model_config_json(model),
                                     &none, &config, err);
    }
    if (status == DPE_OK) {
        applied->base = dpe_model_config(model)->rope.theta;
        status = dpe_rope_factors_make(applied->values, applied->base, &applied->factors, err);
    }
    if (status == DPE_OK) {
        status = dpe_readings_make(args->table, config.bytes, config.n, args->runtimes, length,
                                   &applied->readings, err);
    }
    dpe_text_free(&config);
    dpe_model_close(model);
    return status;
}

/* What is applied of --table; its values are of `table`, which the caller closes. */
static dpe_status read_table(const struct arguments *args, struct dpe_table **table,
                             struct applied *applied, struct dpe_error *err)
{
    DPE_TRY(dpe_table_load(args->table, table, err));
    int64_t length = args->length > 0 ? args->length : dpe_table_values(*table)->length;
    const struct dpe_table *entry = dpe_table_choose(*table, length);
    if (entry == NULL) {
        dpe_log_info("%s: a text of %lld tokens is run unchanged", args->table, (long long)length);
        return DPE_OK;
    }
    applied->values = dpe_table_values(entry);
    applied->adapter = dpe_table_needs_adapter(applied->values) != 0;
    if (applied->adapter) {
        return dpe_readings_open(args->model, args->runtimes, length, &applied->readings, err);
    }
    return read_exported(args, length, applied, err);
}

/* Whether all do the same with the table: the form without an adapter reaches them all. */
static bool table_agrees(const struct applied *applied)
{
    return applied->values == NULL || (!applied->adapter && applied->readings.agree);
}

dpe_status dpe_run_tool_runtimes(const struct arguments *args, bool *agree, struct dpe_error *err)
{
    struct dpe_readings readings;
    struct applied applied = {0};
    struct dpe_table *table = NULL;
    *agree = false;
    dpe_status status =
        dpe_readings_open(args->model, args->runtimes, args->length, &readings, err);
    if (status == DPE_OK && args->table != NULL) {
        status = read_table(args, &table, &applied, err);
    }
    if (status == DPE_OK) {
        *agree = readings.agree && table_agrees(&applied);
        if (args->result == DPE_RESULT_JSON) {
            status = print_json(args, &readings, &applied, *agree, err);
        } else {
            print_text(args, &readings, &applied, *agree);
        }
    }
    dpe_rope_factors_free(&applied.factors);
    dpe_readings_free(&applied.readings);
    dpe_readings_free(&readings);
    dpe_table_close(table);
    return status;
}
