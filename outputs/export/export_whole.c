/* Forms that hold all of a DPE table: HDF5, /table and /model (outputs/SCHEMA.md), JSON, and a
 * Hugging Face config. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/model/config/config_parse.h"
#include "engine/text/json.h"
#include "outputs/export/export.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"
#include "outputs/storage/storage.h"
#include "outputs/table/fields.h"

/* ----------------------------------------------------------------------------------------- HDF5 */

/* Several entries: each in a folder that is called by its length. */
static void put_entries(struct dpe_h5 *file, const struct dpe_table *table, unsigned parts)
{
    int64_t n = dpe_table_count(table);
    int64_t lengths[DPE_TABLE_ENTRIES];
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = dpe_table_values(dpe_table_entry(table, i))->length;
    }
    if (n > 1) {
        dpe_h5_put_scale(file, "/table/length", DPE_COL_I64, lengths, n,
                         "lengths that the entries are for", "tokens");
    }
    for (int64_t i = 0; i < n; i++) {
        char folder[40] = "/table";
        if (n > 1) {
            snprintf(folder, sizeof folder, "/table/%lld", (long long)lengths[i]);
        }
        dpe_h5_put_entry(file, folder, dpe_table_values(dpe_table_entry(table, i)), parts);
    }
}

static void put_table(struct dpe_h5 *file, const struct dpe_table *table)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    const unsigned parts = dpe_table_parts_of(table);
    dpe_h5_put_count(file, "/group", values->n_groups, "group of pairs");
    dpe_h5_put_count(file, "/edge", values->n_groups + 1, "edge between groups");
    dpe_h5_put_count(file, "/layer", values->n_layers, "layer");
    dpe_h5_put_count(file, "/head", values->n_heads, "query head");
    dpe_h5_put_count(file, "/pair", values->n_pairs, "pair of head dimensions");
    put_entries(file, table, parts);
    dpe_h5_attr_text(file, "/", "title", "DPE table");
    dpe_h5_put_conventions(file, values, parts);
    dpe_h5_attr_text(file, "/table", "adapter_required",
                     dpe_export_needs_adapter(table) ? "true" : "false");
    dpe_h5_put_model(file, values);
}

/* The parts that every table of ours has, without rows here, and the table. */
static dpe_status put_all(struct dpe_h5 *file, const struct export_table *table,
                          struct dpe_error *err)
{
    char hash[65];
    const struct dpe_identity none = {0};
    DPE_TRY(dpe_identity_hash(&table->origin, hash, err));
    const struct dpe_h5_common common = {
        .identity = &table->origin, .hash = hash, .plans = &none, .complete = true};
    dpe_h5_write_common(file, &common, NULL);
    dpe_h5_write_run(file, &common, NULL);
    put_table(file, table->table);
    return dpe_h5_failed(file, err);
}

dpe_status dpe_export_write_h5(const struct export_table *table, const char *path,
                               struct dpe_error *err)
{
    DPE_OWNED char *target = NULL;
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file written = {.fd = -1};
    DPE_SCOPED(dpe_h5_close_scoped) struct dpe_h5 *file = NULL;
    DPE_TRY(dpe_follow_links(path, &target, err));
    DPE_TRY(dpe_new_file_open(&written, target, NULL, err));
    DPE_TRY(dpe_h5_create(&file, err));
    DPE_TRY(put_all(file, table, err));
    const dpe_status status = dpe_h5_finish(file, &written, err);
    file = NULL;
    DPE_TRY(status);
    return dpe_new_file_finish(&written, err);
}

/* ----------------------------------------------------------------------------------------- JSON */

/* Numbers that read back as the same double. */
static const size_t json_flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);

static json_t *number(const struct dpe_table_field *field, double value)
{
    return field->type == DPE_FIELD_REAL   ? json_real(value)
           : field->type == DPE_FIELD_FLAG ? json_boolean(value != 0.0)
                                           : json_integer((json_int_t)value);
}

/* A number, or a list of them. */
static json_t *numbers(const struct dpe_table_field *field, const struct dpe_table_values *values)
{
    const void *data = dpe_field_data(field, values);
    size_t n = dpe_field_count(field, values);
    if (field->type == DPE_FIELD_TEXT) {
        return json_string(data);
    }
    if (dpe_field_rank(field) == 0) {
        return number(field, dpe_field_get(field, data, 0));
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, number(field, dpe_field_get(field, data, i)));
    }
    return list;
}

static json_t *key_pairs(const struct dpe_table_values *values)
{
    const uint8_t *mask = values->mask;
    json_t *layers = json_array();
    for (int64_t layer = 0; layer < values->n_layers; layer++) {
        json_t *heads = json_array();
        for (int64_t head = 0; head < values->n_heads; head++, mask += values->n_pairs) {
            json_t *pairs = json_array();
            for (int64_t j = 0; j < values->n_pairs; j++) {
                if (mask[j] != 0) {
                    json_array_append_new(pairs, json_integer(j));
                }
            }
            json_array_append_new(heads, pairs);
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

static void add_conventions(json_t *object, const struct dpe_table_values *values)
{
    bool frequencies = values->frequencies != 0;
    if (frequencies) {
        json_object_set_new(object, "moves", json_string("frequencies"));
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        json_object_set_new(
            object, dpe_table_conventions[i].name,
            json_string(dpe_table_convention(&dpe_table_conventions[i], frequencies)));
    }
}

/* What an entry has, appended to `entry`; its key pairs last. */
static void add_entry(json_t *entry, const struct dpe_table_values *values, unsigned parts)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->type != DPE_FIELD_MARKS && dpe_field_written(field, values, parts)) {
            json_object_set_new(entry, field->name, numbers(field, values));
        }
    }
    json_object_set_new(entry, "key_pairs", key_pairs(values));
}

/* The table, its model and its conventions. NULL: out of memory. */
static json_t *header(const struct dpe_table *table)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    json_t *model = json_object();
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const void *at = (const char *)values + dpe_model_fields[i].at;
        json_object_set_new(model, dpe_model_fields[i].name,
                            dpe_model_fields[i].text ? json_string(*(const char *const *)at)
                                                     : json_integer(*(const int64_t *)at));
    }
    json_t *root = json_pack("{s:s, s:s, s:b, s:o}", "schema_name", "dpe-table", "schema_version",
                             DPE_TABLE_SCHEMA, "adapter_required",
                             (int)dpe_export_needs_adapter(table), "model", model);
    if (root != NULL) {
        add_conventions(root, values);
    }
    return root;
}

static void put_json(struct dpe_text *out, const json_t *value, size_t flags)
{
    DPE_OWNED char *dumped = json_dumps(value, flags);
    out->failed = out->failed || dumped == NULL;
    if (dumped != NULL) {
        dpe_text_put_bytes(out, dumped, strlen(dumped));
    }
}

/* The table as one block, NULL: out of memory. */
static json_t *block(const struct dpe_table *table)
{
    const int64_t n = dpe_table_count(table);
    const unsigned parts = dpe_table_parts_of(table);
    json_t *root = header(table);
    if (root != NULL && n == 1) {
        add_entry(root, dpe_table_values(table), parts);
        return root;
    }
    json_t *list = json_array();
    for (int64_t i = 0; i < n && root != NULL; i++) {
        json_t *entry = json_object();
        add_entry(entry, dpe_table_values(dpe_table_entry(table, i)), parts);
        json_array_append_new(list, entry);
    }
    json_object_set_new(root, "entries", list);
    return root;
}

static void put_object(struct dpe_text *out, json_t *object, int indent);

/* A line for each element: a layer's key pairs, or an entry. */
static void put_list(struct dpe_text *out, json_t *list, int indent)
{
    dpe_text_put(out, "[");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *element = json_array_get(list, i);
        dpe_text_put(out, "%s\n%*s", i > 0 ? "," : "", indent + 2, "");
        if (json_is_object(element)) {
            put_object(out, element, indent + 2);
        } else {
            put_json(out, element, json_flags);
        }
    }
    dpe_text_put(out, "\n%*s]", indent, "");
}

/* A line for each member, and for each layer of its key pairs: readable, and short enough for a
 * diff. jansson's own layouts are one line for all, or one for each number. */
static void put_object(struct dpe_text *out, json_t *object, int indent)
{
    const char *key = NULL;
    const char *end = "";
    json_t *value = NULL;
    dpe_text_put(out, "{");
    json_object_foreach(object, key, value)
    {
        dpe_text_put(out, "%s\n%*s\"%s\": ", end, indent + 2, "", key);
        if (strcmp(key, "key_pairs") == 0 || strcmp(key, "entries") == 0) {
            put_list(out, value, indent + 2);
        } else {
            put_json(out, value, json_flags);
        }
        end = ",";
    }
    dpe_text_put(out, "\n%*s}", indent, "");
}

dpe_status dpe_export_json(const struct dpe_table *table, struct dpe_text *out,
                           struct dpe_error *err)
{
    json_auto_t *root = block(table);
    DPE_TRY(DPE_MADE(root, err, "out of memory for JSON"));
    put_object(out, root, 0);
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
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
    json_auto_t *config = NULL;
    DPE_TRY(dpe_json_parse("config.json", config_json, strlen(config_json), &config, err));
    json_auto_t *rope = block(table);
    DPE_TRY(DPE_MADE(rope, err, "out of memory for JSON"));
    json_object_set_new(rope, "rope_type", json_string("dpe"));
    /* The checkpoint's own block is kept inside: the adapter restores it for what DPE leaves alone.
     */
    json_t *text = json_object_get(config, "text_config");
    json_t *model = json_is_object(text) ? text : config;
    const char *name =
        json_object_get(model, "rope_parameters") != NULL ? "rope_parameters" : "rope_scaling";
    json_t *native = json_object_get(model, name);
    json_t *scaling = json_object_get(model, "rope_scaling");
    json_auto_t *both = native_block(native, scaling);
    json_object_set(rope, "native", both != NULL ? both : native != NULL ? native : json_null());
    json_object_del(model, "rope_scaling");
    json_object_set(model, name, rope);
    put_json(out, config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
}
