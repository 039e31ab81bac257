/* Forms that hold all of a DPE table: HDF5, /table and /model (outputs/SCHEMA.md), JSON, and a
 * Hugging Face config. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/base.h"
#include "engine/text/json.h"
#include "outputs/export/export.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
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

dpe_status dpe_export_json(const struct dpe_table *table, struct dpe_text *out,
                           struct dpe_error *err)
{
    DPE_OWNED char *text = dpe_table_json(table);
    DPE_TRY(DPE_MADE(text, err, "out of memory for JSON"));
    dpe_text_put(out, "%s", text);
    return dpe_text_done(out, err);
}

dpe_status dpe_export_hf(const struct dpe_table *table, const char *config_json,
                         struct dpe_text *out, struct dpe_error *err)
{
    json_auto_t *config = NULL;
    DPE_TRY(dpe_json_parse("config.json", config_json, strlen(config_json), &config, err));
    DPE_OWNED char *text = dpe_table_json(table);
    json_auto_t *rope = text != NULL ? json_loads(text, 0, NULL) : NULL;
    DPE_TRY(DPE_MADE(rope, err, "out of memory for JSON"));
    json_object_set_new(rope, "rope_type", json_string("dpe"));
    /* The model's own file, by which the tools and the adapter read the model. */
    json_object_set_new(rope, "config", json_string(config_json));
    json_t *inner = json_object_get(config, "text_config");
    json_t *model = json_is_object(inner) ? inner : config;
    const char *name =
        json_object_get(model, "rope_parameters") != NULL ? "rope_parameters" : "rope_scaling";
    json_object_del(model, "rope_scaling");
    json_object_set(model, name, rope);
    DPE_OWNED char *dumped = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    DPE_TRY(DPE_MADE(dumped, err, "out of memory for JSON"));
    dpe_text_put(out, "%s", dumped);
    dpe_text_put(out, "\n");
    return dpe_text_done(out, err);
}
