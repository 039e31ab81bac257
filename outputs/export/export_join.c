/* Tables of several entries: put together, and taken apart. */
#include <stdio.h>

#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"

dpe_status dpe_export_choose_entry(const char *path, int64_t length, struct export_table *table,
                                   struct dpe_error *err)
{
    char text[DPE_TABLE_NOTE];
    char why[DPE_TABLE_MESSAGE];
    const struct dpe_table *found = NULL;
    struct dpe_table *chosen = NULL;
    for (int64_t i = 0; i < dpe_table_count(table->table); i++) {
        const struct dpe_table *entry = dpe_table_entry(table->table, i);
        found = dpe_table_values(entry)->length == length ? entry : found;
    }
    if (found == NULL) {
        return dpe_fail(err, DPE_USAGE, "%s: --entry %lld: the table's entries are for %s tokens",
                        path, (long long)length, dpe_table_lengths(table->table, text));
    }
    int error = dpe_table_join(&found, 1, &chosen, why);
    if (error != DPE_TABLE_OK) {
        return dpe_fail(err, error == DPE_TABLE_MEMORY ? DPE_NO_MEMORY : DPE_BAD_DATA, "%s: %s",
                        path, why);
    }
    dpe_table_close(table->table);
    table->table = chosen;
    return dpe_identity_addf(&table->origin, err, "entry", "%lld", (long long)length);
}

/* What decides a table that others were joined into: each of them, by its identity where its form
 * has one. */
static dpe_status add_joined(const char *path, int number, struct export_table *table,
                             struct dpe_error *err)
{
    struct dpe_h5 *file = NULL;
    char name[32];
    snprintf(name, sizeof name, "table %d", number);
    if (dpe_h5_open(path, &file, NULL) != DPE_OK) {
        return dpe_identity_add(&table->origin, name, "in a form without an identity", err);
    }
    dpe_status status = dpe_export_add_identity(file, name, table, err);
    snprintf(name, sizeof name, "table %d selection", number);
    if (status == DPE_OK) {
        status = dpe_export_add_selection(file, name, table, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "--join: %s", path);
        }
    }
    dpe_h5_close(file);
    return status;
}

dpe_status dpe_export_join(const struct dpe_export_arguments *args, struct export_table *table,
                           struct dpe_error *err)
{
    struct dpe_table *tables[DPE_TABLE_ENTRIES] = {0};
    char why[DPE_TABLE_MESSAGE];
    dpe_status status = dpe_identity_add(&table->origin, "kind", "table", err);
    for (int i = 0; i < args->n_inputs && status == DPE_OK; i++) {
        struct export_table one = {0};
        status = dpe_export_read_table(args->inputs[i], &one, err);
        tables[i] = one.table;
        if (status == DPE_OK) {
            status = add_joined(args->inputs[i], i + 1, table, err);
        }
    }
    if (status == DPE_OK) {
        int error = dpe_table_join((const struct dpe_table *const *)tables, args->n_inputs,
                                   &table->table, why);
        status = error == DPE_TABLE_OK       ? DPE_OK
                 : error == DPE_TABLE_MEMORY ? dpe_fail(err, DPE_NO_MEMORY, "%s", why)
                                             : dpe_fail(err, DPE_BAD_DATA, "--join: %s", why);
    }
    for (int i = 0; i < args->n_inputs; i++) {
        dpe_table_close(tables[i]);
    }
    return status;
}
