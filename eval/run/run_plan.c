/* For programs elsewhere: a plan as a JSON document (outputs/transformers/dpe_plan.py applies it);
 * what other runtimes compute from a configuration, and what they apply of a table. */
#include <math.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/tool/result.h"
#include "eval/run/run_tool.h"
#include "outputs/export/rope_forms.h"

static const char *const band_kinds[] = {"distance", "chunk", "key"};

struct map_names {
    const char *floored, *period, *cap, *scale, *offset, *groups;
};

/* What is infinite is null. */
static void add_map(struct dpe_result *result, const struct map_names *names,
                    const struct dpe_position_map *map, size_t n_pairs)
{
    dpe_result_flag(result, names->floored, map->floored);
    dpe_result_number(result, names->period, map->period);
    dpe_result_number(result, names->cap, map->cap);
    dpe_result_numbers(result, names->scale, map->scale, n_pairs);
    dpe_result_numbers(result, names->offset, map->offset, n_pairs);
    const double groups[3] = {map->group_most, map->group_rate, map->group_from};
    dpe_result_numbers(result, names->groups, groups, 3);
}

static void add_bands(struct dpe_result *result, const struct dpe_plan *plan)
{
    const struct map_names query = {"query_floored", "query_period", "query_cap",
                                    "query_scale",   "query_offset", "query_groups"};
    const struct map_names key = {"key_floored", "key_period", "key_cap",
                                  "key_scale",   "key_offset", "key_groups"};
    size_t n_pairs = (size_t)plan->n_pairs;
    for (int b = 0; b < plan->n_bands; b++) {
        const struct dpe_band *band = &plan->bands[b];
        dpe_result_row(result, "bands");
        dpe_result_text(result, "kind", band_kinds[band->kind]);
        dpe_result_whole(result, "low", band->lo);
        dpe_result_number(result, "high",
                          band->hi == INT64_MAX ? (double)INFINITY : (double)band->hi);
        dpe_result_flag(result, "per_head", band->per_head);
        add_map(result, &query, &band->q, n_pairs);
        add_map(result, &key, &band->k, n_pairs);
    }
    dpe_result_row(result, NULL);
}

/* The pairs of each head that the mask marks. */
static void add_mask(struct dpe_result *result, const struct dpe_plan *plan, int64_t *room)
{
    const uint8_t *mark = plan->mask;
    for (int64_t row = 0; mark != NULL && row < plan->n_layers * plan->n_heads; row++) {
        size_t n = 0;
        for (int64_t j = 0; j < plan->n_pairs; j++) {
            if (*mark++ != 0) {
                room[n++] = j;
            }
        }
        dpe_result_row(result, "heads");
        dpe_result_whole(result, "layer", row / plan->n_heads);
        dpe_result_whole(result, "head", row % plan->n_heads);
        dpe_result_wholes(result, "key_pairs", room, n);
    }
    dpe_result_row(result, NULL);
}

static void add_heads(struct dpe_result *result, const struct dpe_temperature *temperature)
{
    for (int i = 0; i < temperature->n_heads; i++) {
        dpe_result_row(result, "head_scales");
        dpe_result_whole(result, "layer", temperature->heads[i].layer);
        dpe_result_whole(result, "head", temperature->heads[i].head);
        dpe_result_number(result, "factor", temperature->heads[i].factor);
    }
    dpe_result_row(result, NULL);
}

static void add_model(struct dpe_result *result, const struct run *run, const double *own, double a)
{
    const struct dpe_config *config = dpe_model_config(run->model);
    dpe_result_text(result, "model_type", config->model_type);
    dpe_result_text(result, "fingerprint", dpe_model_fingerprint(run->model));
    dpe_result_whole(result, "n_layers", config->n_layers);
    dpe_result_whole(result, "n_heads", config->n_heads);
    dpe_result_whole(result, "n_kv_heads", config->n_kv_heads);
    dpe_result_whole(result, "head_dim", config->head_dim);
    dpe_result_numbers(result, "model_inv_freq", own, (size_t)config->head_dim / 2);
    dpe_result_number(result, "attention_scaling", a);
}

static void add_plan(struct dpe_result *result, const struct dpe_plan *plan)
{
    dpe_result_text(result, "angle_precision", plan->angle == DPE_ANGLE_F32 ? "f32" : "f64");
    dpe_result_flag(result, "exact", plan->exact);
    dpe_result_flag(result, "selects", dpe_selects(&plan->selection));
    dpe_result_numbers(result, "inv_freq", plan->inv_freq, (size_t)plan->n_pairs);
    dpe_result_number(result, "logit_factor", plan->temperature.logit_scale);
    dpe_result_numbers(result, "logit_depth", plan->temperature.depth, 3);
    dpe_result_number(result, "log_n_length", plan->temperature.log_n_length);
    dpe_result_number(result, "log_n_power", plan->temperature.log_n_power);
    dpe_result_number(result, "log_n_decay", plan->temperature.log_n_decay);
    dpe_result_whole(result, "n_still", plan->n_still);
    dpe_result_number(result, "still_factor", plan->still_factor > 0.0 ? plan->still_factor : 1.0);
    dpe_result_whole(result, "chunk", plan->chunk);
}

dpe_status dpe_run_tool_plan_json(const struct run *run, const struct dpe_plan *plan,
                                  int64_t length, struct dpe_error *err)
{
    char key[33];
    double a = 1.0;
    DPE_OWNED double *own = NULL;
    DPE_OWNED int64_t *room = NULL;
    DPE_TRY(DPE_NEW(&own, (size_t)plan->n_pairs, err, "out of memory for a plan"));
    DPE_TRY(DPE_NEW(&room, (size_t)plan->n_pairs, err, "out of memory for a plan"));
    DPE_TRY(dpe_rope_native(dpe_model_config(run->model), length, own, &a, err));
    DPE_TRY(dpe_plan_key(plan, key, err));
    struct dpe_result *result = dpe_result_begin("dpe-run");
    dpe_result_text(result, "schema_name", "dpe-plan");
    dpe_result_text(result, "schema_version", "1.0.0");
    dpe_result_text(result, "name", plan->name);
    dpe_result_text(result, "key", key);
    dpe_result_whole(result, "trained_length", run->trained_length);
    dpe_result_whole(result, "evaluated_length", length);
    add_model(result, run, own, a);
    add_plan(result, plan);
    add_bands(result, plan);
    add_mask(result, plan, room);
    add_heads(result, &plan->temperature);
    return dpe_result_print(result, run->args->result, err);
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
