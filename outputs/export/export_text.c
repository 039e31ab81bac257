/* Text forms of a DPE table: the YAML of the paper's code through libyaml, CSV through libcsv. */
#include "outputs/export/export.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <csv.h>
#include <math.h>
#include <yaml.h>

/* printf at the end of a text; 256 bytes are enough for every call here. */
static dpe_status append(struct dpe_text *out, struct dpe_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static dpe_status append(struct dpe_text *out, struct dpe_error *err, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return dpe_text_append(out, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1, err);
}

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
    /* libyaml writes no comments. */
    dpe_status status =
        append(out, err,
               "# DPE settings for the paper's released code. adapter_required: true\n"
               "# schema_version: %.32s, model fingerprint: %.64s\n"
               "# trained length %lld, evaluated length %lld, top-k %lld of %lld pairs\n",
               values->schema_version, values->model_fingerprint, (long long)values->trained_length,
               (long long)values->length, (long long)values->top_k, (long long)values->n_pairs);
    char evidence[DPE_TABLE_EVIDENCE];
    if (status == DPE_OK && dpe_table_evidence(values, evidence)[0] != '\0') {
        status = append(out, err, "# Measured with the key pairs and temperature of the table: %s\n", evidence);
    }
    if (status == DPE_OK && !windows_divide(values)) {
        status = append(out, err,
                        "# A scale does not divide the window: that code's prefill and "
                        "decode differ by up to one position there.\n");
    }
    if (status == DPE_OK && dpe_table_has_temperature(values)) {
        status = append(
            out, err,
            "# Left out, because that code has none: the attention temperature logit-scale "
            "%.17g, log-n %.17g,\n# power %.17g, decay %.17g.\n",
            values->logit_scale, values->log_n_length, values->log_n_power, values->log_n_decay);
    }
    if (status != DPE_OK) {
        return status;
    }
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

static dpe_status append_field(struct dpe_text *out, const char *text, bool last,
                               struct dpe_error *err)
{
    char field[128];
    size_t n = csv_write(field, sizeof field, text, strlen(text));
    dpe_status status = dpe_text_append(out, field, n < sizeof field ? n : sizeof field, err);
    return status == DPE_OK ? append(out, err, "%s", last ? "\r\n" : ",") : status;
}

static dpe_status append_row(struct dpe_text *out, const struct dpe_table_values *values,
                             int64_t row, int64_t pair, int64_t group, struct dpe_error *err)
{
    bool key_pair = values->mask[row * values->n_pairs + pair] != 0;
    char fields[7][32];
    snprintf(fields[0], sizeof fields[0], "%lld", (long long)(row / values->n_heads));
    snprintf(fields[1], sizeof fields[1], "%lld", (long long)(row % values->n_heads));
    snprintf(fields[2], sizeof fields[2], "%lld", (long long)pair);
    snprintf(fields[3], sizeof fields[3], "%lld", (long long)group);
    snprintf(fields[4], sizeof fields[4], "%d", key_pair);
    snprintf(fields[5], sizeof fields[5], "%.17g", key_pair ? values->scale_factor[group] : 1.0);
    snprintf(fields[6], sizeof fields[6], "%.17g", values->inv_freq[pair]);
    dpe_status status = DPE_OK;
    for (int i = 0; i < 7 && status == DPE_OK; i++) {
        status = append_field(out, fields[i], i == 6, err);
    }
    return status;
}

dpe_status dpe_export_csv(const struct dpe_table_values *values, struct dpe_text *out,
                          struct dpe_error *err)
{
    static const char *const names[] = {"layer",    "head",  "pair",    "group",
                                        "key_pair", "scale", "inv_freq"};
    dpe_status status = DPE_OK;
    for (int i = 0; i < 7 && status == DPE_OK; i++) {
        status = append_field(out, names[i], i == 6, err);
    }
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        for (int64_t g = 0; g < values->n_groups; g++) {
            for (int64_t j = values->group_edge[g];
                 j < values->group_edge[g + 1] && status == DPE_OK; j++) {
                status = append_row(out, values, row, j, g, err);
            }
        }
    }
    return status;
}
