/* Datasets in few words. */
#include "outputs/h5/h5_put.h"

#include <stdio.h>
#include <stdlib.h>

dpe_status dpe_h5_table_put(struct dpe_h5 *table, const char *folder,
                            const struct table_entry *entry, const struct table_axis *axes,
                            int n_axes, struct dpe_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s%s", folder, entry->path);
    struct dpe_column column = {
        .path = path,
        .type = entry->type,
        .rank = n_axes,
        .data = entry->data,
        .long_name = entry->long_name,
        .units = entry->units,
        .flag_meanings = entry->flag_meanings,
    };
    for (int i = 0; i < n_axes; i++) {
        column.dims[i] = axes[i].n;
        column.scales[i] = axes[i].scale;
    }
    return dpe_h5_put(table, &column, err);
}

dpe_status dpe_h5_table_put_all(struct dpe_h5 *table, const char *folder,
                                const struct table_entry *entries, size_t n_entries,
                                const struct table_axis *axes, int n_axes, struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < n_entries && status == DPE_OK; i++) {
        status = dpe_h5_table_put(table, folder, &entries[i], axes, n_axes, err);
    }
    return status;
}
