/**
 * @file detect_table_parts.h
 * Datasets in few words, for the files that write a detection's table. Used inside detect/ only.
 */
#ifndef DPE_DETECT_TABLE_PARTS_H
#define DPE_DETECT_TABLE_PARTS_H

#include "detect/sweep/detect.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/** An axis of a dataset: the path of its scale and how long it is. */
struct table_axis {
    const char *scale;
    int64_t n;
};

/** One dataset in words; see struct dpe_column. */
struct table_entry {
    const char *path; /**< behind the folder */
    enum dpe_column_type type;
    const void *data;
    const char *long_name, *units, *flag_meanings;
};

/** Write datasets that share their axes into a folder ("/detect"). */
dpe_status table_put(struct dpe_h5 *table, const char *folder, const struct table_entry *entry,
                     const struct table_axis *axes, int n_axes, struct dpe_error *err);
dpe_status table_put_all(struct dpe_h5 *table, const char *folder,
                         const struct table_entry *entries, size_t n_entries,
                         const struct table_axis *axes, int n_axes, struct dpe_error *err);

/** The rule that selected the lengths, what it selected, and every comparison it made: /select. */
dpe_status table_put_selection(const struct dpe_detect_report *report, struct dpe_h5 *table,
                               struct dpe_error *err);
/** What a race dropped, when and on what grounds: /race. */
dpe_status table_put_race(const struct dpe_detect_report *report, struct dpe_h5 *table,
                          struct dpe_error *err);

#endif
