/* Text forms of a DPE table: the YAML of the paper's code through libyaml, CSV through libcsv. */
#include "outputs/export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <csv.h>
#include <math.h>
#include <yaml.h>

static bool windows_divide(const struct dpe_table_values *values)
{
    for (int64_t g = 0; g < values->n_groups; g++) {
        double share = (double)values->window / values->scale_factor[g];
        if (share != floor(share)) {
            return false;
        }
    }
    return true;
}

/** A YAML document being made; what fails once stays failed. */
struct yaml {
    yaml_document_t document;
    bool failed;
};

static int node(struct yaml *yaml, int made)
{
    yaml->failed = yaml->failed || made == 0;
    return made;
}

/* A number or a key of ours, as it is. */
static int plain(struct yaml *yaml, const char *text)
{
    return node(yaml, yaml_document_add_scalar(&yaml->document, NULL, (const yaml_char_t *)text,
                                               (int)strlen(text), YAML_PLAIN_SCALAR_STYLE));
}

/* A text of the user's. */
static int quoted(struct yaml *yaml, const char *text)
{
    return node(yaml, yaml_document_add_scalar(&yaml->document, NULL, (const yaml_char_t *)text,
                                               (int)strlen(text), YAML_DOUBLE_QUOTED_SCALAR_STYLE));
}

static int mapping(struct yaml *yaml)
{
    return node(yaml, yaml_document_add_mapping(&yaml->document, NULL, YAML_BLOCK_MAPPING_STYLE));
}

static void set(struct yaml *yaml, int map, int key, int value)
{
    yaml->failed =
        yaml->failed || yaml_document_append_mapping_pair(&yaml->document, map, key, value) == 0;
}

static int sequence(struct yaml *yaml)
{
    return node(yaml, yaml_document_add_sequence(&yaml->document, NULL, YAML_FLOW_SEQUENCE_STYLE));
}

static void add(struct yaml *yaml, int list, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    int item = plain(yaml, text);
    yaml->failed =
        yaml->failed || yaml_document_append_sequence_item(&yaml->document, list, item) == 0;
}

/* The settings as the paper's code reads them: {model: {local_window_size, scale_factors,
 * dimension_groups_range, selected_dim_path}}. */
static void build(struct yaml *yaml, const struct dpe_table_values *values, const char *model,
                  const char *selected_dim_path)
{
    char window[32];
    snprintf(window, sizeof window, "%lld", (long long)values->window);
    int root = mapping(yaml);
    int block = mapping(yaml);
    int scales = sequence(yaml);
    int edges = sequence(yaml);
    for (int64_t g = 0; g < values->n_groups; g++) {
        add(yaml, scales, values->scale_factor[g]);
    }
    for (int64_t g = 0; g <= values->n_groups; g++) {
        add(yaml, edges, values->group_edge[g]);
    }
    set(yaml, root, quoted(yaml, model), block);
    set(yaml, block, plain(yaml, "local_window_size"), plain(yaml, window));
    set(yaml, block, plain(yaml, "scale_factors"), scales);
    set(yaml, block, plain(yaml, "dimension_groups_range"), edges);
    set(yaml, block, plain(yaml, "selected_dim_path"), quoted(yaml, selected_dim_path));
}

static int write_bytes(void *user, unsigned char *bytes, size_t n)
{
    return dpe_text_append(user, (const char *)bytes, n, NULL) == DPE_OK;
}

/* Takes the document over, as libyaml does. */
static dpe_status dump(struct yaml *yaml, struct dpe_text *out, struct dpe_error *err)
{
    yaml_emitter_t emitter;
    if (!yaml_emitter_initialize(&emitter)) {
        yaml_document_delete(&yaml->document);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    yaml_emitter_set_output(&emitter, write_bytes, out);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    bool good = yaml_emitter_dump(&emitter, &yaml->document) && yaml_emitter_flush(&emitter);
    dpe_status status = DPE_OK;
    if (!good) {
        status = dpe_fail(err, emitter.error == YAML_MEMORY_ERROR ? DPE_NO_MEMORY : DPE_BAD_DATA,
                          "YAML: %s", emitter.problem != NULL ? emitter.problem : "out of memory");
    }
    yaml_emitter_delete(&emitter);
    return status;
}

dpe_status dpe_export_yaml(const struct dpe_table_values *values, const char *model,
                           const char *selected_dim_path, struct dpe_text *out,
                           struct dpe_error *err)
{
    struct yaml yaml = {0};
    char evidence[DPE_TABLE_EVIDENCE];
    /* libyaml writes no comments. */
    dpe_text_put(out,
                 "# DPE settings for the paper's released code. adapter_required: true\n"
                 "# schema_version: %.32s, model fingerprint: %.64s\n"
                 "# trained length %lld, evaluated length %lld, top-k %lld of %lld pairs\n",
                 values->schema_version, values->model_fingerprint,
                 (long long)values->trained_length, (long long)values->length,
                 (long long)values->top_k, (long long)values->n_pairs);
    if (dpe_table_evidence(values, evidence)[0] != '\0') {
        dpe_text_put(out, "# Measured with the key pairs and temperature of the table: %s\n",
                     evidence);
    }
    if (!windows_divide(values)) {
        dpe_text_put(out, "# A scale does not divide the window: that code's prefill and "
                          "decode differ by up to one position there.\n");
    }
    if (dpe_table_has_temperature(values)) {
        dpe_text_put(
            out,
            "# Left out, because that code has none: the attention temperature logit-scale "
            "%.17g, log-n %.17g,\n# power %.17g, decay %.17g.\n",
            values->logit_scale, values->log_n_length, values->log_n_power, values->log_n_decay);
    }
    DPE_TRY(dpe_text_done(out, err));
    const char *const texts[] = {model, selected_dim_path};
    for (int i = 0; i < 2; i++) {
        if (dpe_utf8_check(texts[i], strlen(texts[i])) != strlen(texts[i])) {
            return dpe_fail(err, DPE_USAGE, "YAML: expected names in UTF-8, found '%s'", texts[i]);
        }
    }
    if (!yaml_document_initialize(&yaml.document, NULL, NULL, NULL, 1, 1)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    build(&yaml, values, model, selected_dim_path);
    if (yaml.failed) {
        yaml_document_delete(&yaml.document);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for YAML");
    }
    return dump(&yaml, out, err);
}

/* None of these needs quotes inside; libcsv adds those around. */
static void put_cell(struct dpe_text *out, const char *text, bool last)
{
    char field[128];
    size_t n = csv_write(field, sizeof field, text, strlen(text));
    dpe_text_put_bytes(out, field, n < sizeof field ? n : sizeof field);
    dpe_text_put(out, "%s", last ? "\r\n" : ",");
}

dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err)
{
    static const char *const names[] = {"layer",    "head",  "pair",    "group",
                                        "key_pair", "scale", "inv_freq"};
    enum { COLUMNS = sizeof names / sizeof names[0] };
    for (int i = 0; i < COLUMNS; i++) {
        put_cell(out, names[i], i + 1 == COLUMNS);
    }
    int64_t g = 0;
    for (int64_t at = 0; at < values->n_layers * values->n_heads * values->n_pairs; at++) {
        const int64_t row = at / values->n_pairs;
        const int64_t pair = at % values->n_pairs;
        const bool moves = values->mask[at] != 0;
        g = pair == 0 ? 0 : pair == values->group_edge[g + 1] ? g + 1 : g;
        const double numbers[COLUMNS] = {(double)(row / values->n_heads),
                                         (double)(row % values->n_heads),
                                         (double)pair,
                                         (double)g,
                                         moves,
                                         moves ? values->scale_factor[g] : 1.0,
                                         values->inv_freq[pair]};
        for (int i = 0; i < COLUMNS; i++) {
            char text[32];
            snprintf(text, sizeof text, "%.17g", numbers[i]);
            put_cell(out, text, i + 1 == COLUMNS);
        }
    }
    return dpe_text_done(out, err);
}
