/* The summary of a table: what --show prints. */
#include <stdio.h>

#include "engine/plan/plan.h"
#include "outputs/export/export_tool.h"
#include "outputs/read/read.h"

static void show_model(const struct dpe_table_values *values)
{
    /* These texts come from the file and may hold control characters. */
    char version[64];
    char type[64];
    char fingerprint[160];
    dpe_printable(values->schema_version, version, sizeof version);
    dpe_printable(values->model_type, type, sizeof type);
    dpe_printable(values->model_fingerprint, fingerprint, sizeof fingerprint);
    dpe_print(
        "DPE table %s for a %s model, %lld layers, %lld query and %lld key/value heads of %lld\n",
        version, type, (long long)values->n_layers, (long long)values->n_heads,
        (long long)values->n_kv_heads, (long long)values->head_dim);
    dpe_print("model fingerprint  %s\n", fingerprint);
    dpe_print("trained length     %lld\n", (long long)values->trained_length);
}

static void show_entry(const struct dpe_table_values *values)
{
    dpe_print("evaluated length   %lld\n", (long long)values->length);
    if (values->frequencies != 0) {
        dpe_print("moves              frequencies: each is divided by its group's scale\n");
    } else if (dpe_table_needs_adapter(values) != 0 && values->n_bands == 0) {
        dpe_print("window             %lld (nearer keys keep their distance)\n",
                  (long long)values->window);
        dpe_print("key pairs          %lld of %lld of each head\n", (long long)values->top_k,
                  (long long)values->n_pairs);
    }
    if (values->unrounded != 0) {
        dpe_print("far positions      not rounded, as Leaky ReRoPE has them\n");
    }
    if (values->n_bands > 0) {
        dpe_print("bands              %lld, in place of a window and scales\n",
                  (long long)values->n_bands);
    }
    if (values->applied_inv_freq != NULL) {
        dpe_print("frequencies        of the table in place of the model's own\n");
    }
    dpe_print("attention scaling  %g\n", values->attention_scaling);
    if (dpe_table_has_temperature(values)) {
        const struct dpe_temperature temperature = dpe_table_temperature(values);
        char text[DPE_TEMPERATURE_TEXT];
        dpe_temperature_text(&temperature, text);
        dpe_print("temperature        %s\n", text);
    }
    char evidence[DPE_TABLE_EVIDENCE];
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_print("measured           %s\n", evidence);
    }
    if (dpe_table_facts(values, evidence)[0] != '\0') {
        dpe_print("made from          %s\n", evidence);
    }
    dpe_print("%5s  %11s  %16s  %6s\n", "group", "pairs", "effective length", "scale");
    for (int64_t g = 0; g < values->n_groups; g++) {
        char pairs[32];
        char effective[32];
        snprintf(pairs, sizeof pairs, "%d..%d", values->group_edge[g],
                 values->group_edge[g + 1] - 1);
        snprintf(effective, sizeof effective, "%.0f", values->effective_length[g]);
        dpe_print("%5lld  %11s  %16s  %6g\n", (long long)g, pairs,
                  values->effective_length[g] < 0.0 ? "none found" : effective,
                  values->scale_factor[g]);
    }
}

void dpe_export_show(const struct dpe_table *table, const char *selection)
{
    int64_t n = dpe_table_count(table);
    int64_t before = dpe_table_values(table)->trained_length;
    show_model(dpe_table_values(table));
    if (selection[0] != '\0') {
        dpe_print("found under        the selection %s, which the table alone does not apply\n",
                  selection);
    }
    if (n > 1) {
        char lengths[DPE_TABLE_NOTE];
        dpe_print("entries            %lld, for %s tokens\n", (long long)n,
                  dpe_table_lengths(table, lengths));
    }
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        if (n > 1) {
            dpe_print("\nFor texts of %lld to %lld tokens, prompt and new ones together\n",
                      (long long)before + 1, (long long)values->length);
        }
        show_entry(values);
        before = values->length;
    }
    if (!dpe_export_needs_adapter(table)) {
        dpe_print("A runtime needs no adapter to apply this table: dpe-export --format longrope\n"
                  "(a config.json) or gguf-rope (a GGUF file).\n");
        return;
    }
    dpe_print("Up to the trained length a runtime runs the model unchanged. Beyond it, it\n"
              "needs an adapter to apply this table: see outputs/table/dpe_table.h.\n");
}
