/**
 * @file h5_put.h
 * Short forms of dpe_h5_put, for files that fill a table.
 */
#ifndef DPE_H5_PUT_H
#define DPE_H5_PUT_H

#include "engine/base/base.h"
#include "outputs/h5/h5.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/** An axis of a dataset: the path of its scale and how long it is. */
struct table_axis {
    const char *scale;
    int64_t n;
};

/** One dataset; see struct dpe_column. */
struct table_entry {
    const char *path; /**< relative to the folder */
    enum dpe_column_type type;
    const void *data;
    const char *long_name, *units, *flag_meanings;
};

/** Write datasets that share their axes into a folder ("/detect"). */
dpe_status dpe_h5_table_put(struct dpe_h5 *table, const char *folder,
                            const struct table_entry *entry, const struct table_axis *axes,
                            int n_axes, struct dpe_error *err);
dpe_status dpe_h5_table_put_all(struct dpe_h5 *table, const char *folder,
                                const struct table_entry *entries, size_t n_entries,
                                const struct table_axis *axes, int n_axes, struct dpe_error *err);

#endif
