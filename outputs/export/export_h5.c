/* The HDF5 form of a DPE table: /table and /model (outputs/SCHEMA.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_file.h"
#include "outputs/h5/h5_put.h"
#include "outputs/read/read.h"
#include "outputs/rows/rows.h"
#include "outputs/storage/storage.h"
#include "outputs/table/fields.h"

static dpe_status put_axes(struct dpe_h5 *file, const struct dpe_table_values *values,
                           struct dpe_error *err)
{
    const struct {
        const char *path, *long_name;
        int64_t n;
    } axes[] = {
        {"/group", "group of pairs", values->n_groups},
        {"/edge", "edge between groups", values->n_groups + 1},
        {"/layer", "layer", values->n_layers},
        {"/head", "query head", values->n_heads},
        {"/pair", "pair of head dimensions", values->n_pairs},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0] && status == DPE_OK; i++) {
        status = dpe_h5_put_count(file, axes[i].path, axes[i].n, axes[i].long_name, err);
    }
    return status;
}

/* Several entries: each in a folder that is called by its length. */
static dpe_status put_entries(struct dpe_h5 *file, const struct dpe_table *table, unsigned parts,
                              struct dpe_error *err)
{
    int64_t n = dpe_table_count(table);
    int64_t lengths[DPE_TABLE_ENTRIES];
    if (n == 1) {
        return dpe_h5_put_entry(file, "/table", dpe_table_values(table), parts, err);
    }
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = dpe_table_values(dpe_table_entry(table, i))->length;
    }
    dpe_status status = dpe_h5_put_scale(file, "/table/length", DPE_COL_I64, lengths, n,
                                         "lengths that the entries are for", "tokens", err);
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        char folder[40];
        snprintf(folder, sizeof folder, "/table/%lld", (long long)lengths[i]);
        status =
            dpe_h5_put_entry(file, folder, dpe_table_values(dpe_table_entry(table, i)), parts, err);
    }
    return status;
}

static dpe_status put_model(struct dpe_h5 *file, const struct dpe_table_values *values,
                            struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < dpe_n_model_fields && status == DPE_OK; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        const void *at = (const char *)values + field->at;
        status =
            field->text
                ? dpe_h5_attr_text(file, "/model", field->attribute, *(const char *const *)at, err)
                : dpe_h5_attr_i64(file, "/model", field->attribute, *(const int64_t *)at, err);
    }
    return status;
}

static dpe_status put_table(struct dpe_h5 *file, const struct dpe_table *table,
                            struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    const unsigned parts = dpe_table_parts_of(table);
    dpe_status status = put_axes(file, values, err);
    if (status != DPE_OK || (status = put_entries(file, table, parts, err)) != DPE_OK ||
        (status = dpe_h5_attr_text(file, "/", "title", "DPE table", err)) != DPE_OK ||
        (status = dpe_h5_put_conventions(file, values, parts, err)) != DPE_OK ||
        (status = dpe_h5_attr_text(file, "/table", "adapter_required",
                                   dpe_export_needs_adapter(table) ? "true" : "false", err)) !=
            DPE_OK) {
        return status;
    }
    return put_model(file, values, err);
}

/* The parts that every table of ours has; without rows here. */
static dpe_status put_common(struct dpe_h5 *file, const struct dpe_identity *origin,
                             struct dpe_error *err)
{
    char hash[65];
    const struct dpe_identity none = {0};
    dpe_status status = dpe_identity_hash(origin, hash, err);
    const struct dpe_h5_common common = {
        .identity = origin, .hash = hash, .plans = &none, .complete = true};
    if (status == DPE_OK) {
        status = dpe_h5_write_common(file, &common, err);
    }
    return status == DPE_OK ? dpe_h5_write_run(file, &common, err) : status;
}

dpe_status dpe_export_write_h5(const struct export_table *table, const char *path,
                               struct dpe_error *err)
{
    struct dpe_h5 *file = NULL;
    struct dpe_new_file written = {.fd = -1};
    char *target = NULL;
    dpe_status status = dpe_follow_links(path, &target, err);
    if (status != DPE_OK || (status = dpe_new_file_open(&written, target, NULL, err)) != DPE_OK ||
        (status = dpe_h5_create(&file, err)) != DPE_OK ||
        (status = put_common(file, &table->origin, err)) != DPE_OK ||
        (status = put_table(file, table->table, err)) != DPE_OK) {
        goto done;
    }
    status = dpe_h5_finish(file, &written, err);
    file = NULL;
    if (status == DPE_OK) {
        status = dpe_new_file_finish(&written, err);
    }
done:
    dpe_h5_close(file);
    dpe_new_file_drop(&written);
    free(target);
    return status;
}
