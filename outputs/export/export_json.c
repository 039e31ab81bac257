/* JSON forms of a DPE table: the complete one, and a Hugging Face config. */
#include "outputs/export/export.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/json/json_strict.h"
#include "engine/model/config/config_parse.h"

/* Numbers that read back as the same double. */
static const size_t json_flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);

static json_t *doubles(const double *values, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(list, json_real(values[i]));
    }
    return list;
}

static json_t *edges(const struct dpe_table_values *values)
{
    json_t *list = json_array();
    for (int64_t g = 0; g <= values->n_groups; g++) {
        json_array_append_new(list, json_integer(values->group_edge[g]));
    }
    return list;
}

static json_t *key_pairs_of_layer(const struct dpe_table_values *values, int64_t layer)
{
    json_t *heads = json_array();
    for (int64_t head = 0; head < values->n_heads; head++) {
        const uint8_t *mask = values->mask + (layer * values->n_heads + head) * values->n_pairs;
        json_t *pairs = json_array();
        for (int64_t j = 0; j < values->n_pairs; j++) {
            if (mask[j] != 0) {
                json_array_append_new(pairs, json_integer(j));
            }
        }
        json_array_append_new(heads, pairs);
    }
    return heads;
}

static json_t *key_pairs(const struct dpe_table_values *values)
{
    json_t *layers = json_array();
    for (int64_t layer = 0; layer < values->n_layers; layer++) {
        json_array_append_new(layers, key_pairs_of_layer(values, layer));
    }
    return layers;
}

static void add_conventions(json_t *object, const struct dpe_table_values *values)
{
    bool frequencies = values->frequencies != 0;
    if (frequencies) {
        json_object_set_new(object, "moves", json_string("frequencies"));
    }
    json_object_set_new(object, "near_rule",
                        json_string(frequencies ? "none" : "distance < local_window"));
    json_object_set_new(object, "rounding", json_string(frequencies ? "none" : "separable"));
    json_object_set_new(object, "angle_precision", json_string("f32"));
    json_object_set_new(object, "pair_layout", json_string("half-split"));
}

/* What an entry has but for its key pairs, appended to `entry`; `only`: it is the whole table, with
 * the conventions among its members. */
static void add_entry(json_t *entry, const struct dpe_table_values *values, bool only)
{
    json_object_set_new(entry, "trained_length", json_integer(values->trained_length));
    json_object_set_new(entry, "evaluated_length", json_integer(values->length));
    json_object_set_new(entry, "local_window", json_integer(values->window));
    json_object_set_new(entry, "top_k", json_integer(values->top_k));
    if (only) {
        add_conventions(entry, values);
    }
    json_object_set_new(entry, "group_edge", edges(values));
    json_object_set_new(entry, "effective_length",
                        doubles(values->effective_length, values->n_groups));
    json_object_set_new(entry, "scale_factor", doubles(values->scale_factor, values->n_groups));
    json_object_set_new(entry, "attention_scaling", json_real(values->attention_scaling));
    if (dpe_export_temperature(values)) {
        json_object_set_new(entry, "logit_scale", json_real(values->logit_scale));
        json_object_set_new(entry, "log_n_length", json_real(values->log_n_length));
        json_object_set_new(entry, "log_n_power", json_real(values->log_n_power));
        json_object_set_new(entry, "log_n_decay", json_real(values->log_n_decay));
    }
    json_object_set_new(entry, "inv_freq", doubles(values->inv_freq, values->n_pairs));
    if (dpe_export_methods(values)) {
        const double *applied = values->applied_inv_freq;
        json_object_set_new(entry, "unrounded", json_boolean(values->unrounded != 0));
        json_object_set_new(entry, "applied_inv_freq",
                            doubles(applied != NULL ? applied : values->inv_freq, values->n_pairs));
    }
    if (dpe_export_bands(values)) {
        json_object_set_new(entry, "bands", doubles(values->bands, dpe_export_band_count(values)));
    }
}

/* The table and its model. NULL: out of memory. */
static json_t *header(const struct dpe_table *table)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    return json_pack("{s:s, s:s, s:b, s:{s:s, s:s, s:I, s:I, s:I, s:I}}", "schema_name",
                     "dpe-table", "schema_version", values->schema_version, "adapter_required",
                     (int)dpe_export_needs_adapter(table), "model", "model_type", values->model_type, "fingerprint",
                     values->model_fingerprint, "n_layers", (json_int_t)values->n_layers, "n_heads",
                     (json_int_t)values->n_heads, "n_kv_heads", (json_int_t)values->n_kv_heads,
                     "head_dim", (json_int_t)values->head_dim);
}

/** Text being written; after the first error nothing more is. */
struct lines {
    struct dpe_text *out;
    dpe_status status;
    struct dpe_error *err;
};

static void put_text(struct lines *lines, const char *text)
{
    if (lines->status == DPE_OK) {
        lines->status = dpe_text_append(lines->out, text, strlen(text), lines->err);
    }
}

/* Takes the value over. */
static void put_json(struct lines *lines, json_t *value, size_t flags)
{
    char *dumped = value != NULL && lines->status == DPE_OK ? json_dumps(value, flags) : NULL;
    if (dumped != NULL) {
        put_text(lines, dumped);
    } else if (lines->status == DPE_OK) {
        lines->status = dpe_fail(lines->err, DPE_NO_MEMORY, "out of memory for JSON");
    }
    free(dumped);
    json_decref(value);
}

/* A line for each member of an object and for each layer of its key pairs: readable, and short
 * enough for a diff. jansson's own layouts are one line for all, or one for each number. */
static void put_members(struct lines *lines, json_t *object, const char *indent)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value)
    {
        put_text(lines, indent);
        put_json(lines, json_string(key), json_flags);
        put_text(lines, ": ");
        put_json(lines, json_incref(value), json_flags);
        put_text(lines, ",\n");
    }
}

static void put_key_pairs(struct lines *lines, const struct dpe_table_values *values,
                          const char *indent)
{
    put_text(lines, indent);
    put_text(lines, "\"key_pairs\": [\n");
    for (int64_t layer = 0; layer < values->n_layers; layer++) {
        put_text(lines, indent);
        put_text(lines, "  ");
        put_json(lines, key_pairs_of_layer(values, layer), json_flags);
        put_text(lines, layer + 1 < values->n_layers ? ",\n" : "\n");
    }
    put_text(lines, indent);
    put_text(lines, "]\n");
}

static void put_entries(struct lines *lines, const struct dpe_table *table)
{
    int64_t n = dpe_table_count(table);
    put_text(lines, "  \"entries\": [\n");
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        json_t *entry = json_object();
        add_entry(entry, values, false);
        put_text(lines, "    {\n");
        put_members(lines, entry, "      ");
        put_key_pairs(lines, values, "      ");
        put_text(lines, i + 1 < n ? "    },\n" : "    }\n");
        json_decref(entry);
    }
    put_text(lines, "  ]\n");
}

dpe_status dpe_export_json(const struct dpe_table *table, struct dpe_text *out,
                           struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    struct lines lines = {.out = out, .err = err};
    json_t *root = header(table);
    if (root == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for JSON");
    }
    put_text(&lines, "{\n");
    if (dpe_table_count(table) > 1) {
        add_conventions(root, values);
        put_members(&lines, root, "  ");
        put_entries(&lines, table);
    } else {
        add_entry(root, values, true);
        put_members(&lines, root, "  ");
        put_key_pairs(&lines, values, "  ");
    }
    put_text(&lines, "}\n");
    json_decref(root);
    return lines.status;
}

/* The table as one block. */
static json_t *block(const struct dpe_table *table)
{
    int64_t n = dpe_table_count(table);
    json_t *root = header(table);
    json_t *list = n > 1 ? json_array() : NULL;
    if (root != NULL && n == 1) {
        add_entry(root, dpe_table_values(table), true);
        json_object_set_new(root, "key_pairs", key_pairs(dpe_table_values(table)));
    } else if (root != NULL) {
        add_conventions(root, dpe_table_values(table));
        json_object_set(root, "entries", list);
    }
    for (int64_t i = 0; i < n && list != NULL; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        json_t *entry = json_object();
        add_entry(entry, values, false);
        json_object_set_new(entry, "key_pairs", key_pairs(values));
        json_array_append_new(list, entry);
    }
    json_decref(list);
    return root;
}

/* rope_parameters with the members of rope_scaling, which win; a new reference, NULL where only one
 * of them is there. */
static json_t *native_block(json_t *parameters, json_t *scaling)
{
    json_t *full = json_object_get(parameters, "full_attention");
    if (!json_is_object(parameters) || !json_is_object(scaling) || parameters == scaling) {
        return NULL;
    }
    json_t *both = dpe_rope_unite(scaling, json_is_object(full) ? full : parameters);
    if (json_is_object(full)) {
        json_t *typed = json_copy(parameters);
        json_object_set_new(typed, "full_attention", both);
        both = typed;
    }
    return both;
}

dpe_status dpe_export_hf(const struct dpe_table *table, const char *config_json,
                         struct dpe_text *out, struct dpe_error *err)
{
    json_t *config = NULL;
    dpe_status status =
        dpe_json_parse("config.json", config_json, strlen(config_json), &config, err);
    if (status != DPE_OK) {
        return status;
    }
    struct lines lines = {.out = out, .err = err};
    json_t *rope = block(table);
    if (rope == NULL) {
        lines.status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for JSON");
        goto done;
    }
    json_object_set_new(rope, "rope_type", json_string("dpe"));
    /* The checkpoint's own block is kept inside: the adapter restores it for what DPE leaves alone.
     */
    json_t *text = json_object_get(config, "text_config");
    json_t *model = json_is_object(text) ? text : config;
    const char *name =
        json_object_get(model, "rope_parameters") != NULL ? "rope_parameters" : "rope_scaling";
    json_t *native = json_object_get(model, name);
    json_t *scaling = json_object_get(model, "rope_scaling");
    json_t *both = native_block(native, scaling);
    json_object_set(rope, "native", both != NULL ? both : native != NULL ? native : json_null());
    json_decref(both);
    json_object_del(model, "rope_scaling");
    json_object_set(model, name, rope);
    put_json(&lines, json_incref(config), JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    put_text(&lines, "\n");
done:
    json_decref(rope);
    json_decref(config);
    return lines.status;
}
