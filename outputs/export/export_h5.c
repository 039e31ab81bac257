/* The HDF5 form of a DPE table: /table and /model (outputs/SCHEMA.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/storage/storage.h"
#include "outputs/table/fields.h"

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
                         "lengths that the entries are for", "tokens", NULL);
    }
    for (int64_t i = 0; i < n; i++) {
        char folder[40] = "/table";
        if (n > 1) {
            snprintf(folder, sizeof folder, "/table/%lld", (long long)lengths[i]);
        }
        dpe_h5_put_entry(file, folder, dpe_table_values(dpe_table_entry(table, i)), parts, NULL);
    }
}

static void put_table(struct dpe_h5 *file, const struct dpe_table *table)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    const unsigned parts = dpe_table_parts_of(table);
    dpe_h5_put_count(file, "/group", values->n_groups, "group of pairs", NULL);
    dpe_h5_put_count(file, "/edge", values->n_groups + 1, "edge between groups", NULL);
    dpe_h5_put_count(file, "/layer", values->n_layers, "layer", NULL);
    dpe_h5_put_count(file, "/head", values->n_heads, "query head", NULL);
    dpe_h5_put_count(file, "/pair", values->n_pairs, "pair of head dimensions", NULL);
    put_entries(file, table, parts);
    dpe_h5_attr_text(file, "/", "title", "DPE table", NULL);
    dpe_h5_put_conventions(file, values, parts, NULL);
    dpe_h5_attr_text(file, "/table", "adapter_required",
                     dpe_export_needs_adapter(table) ? "true" : "false", NULL);
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        const void *at = (const char *)values + field->at;
        if (field->text) {
            dpe_h5_attr_text(file, "/model", field->attribute, *(const char *const *)at, NULL);
        } else {
            dpe_h5_attr_i64(file, "/model", field->attribute, *(const int64_t *)at, NULL);
        }
    }
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
