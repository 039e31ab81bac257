/**
 * @file detect_table_internal.h
 * Parts of a detection's table that have files of their own, and the writer that they share.
 */
#ifndef DPE_DETECT_TABLE_INTERNAL_H
#define DPE_DETECT_TABLE_INTERNAL_H

#include "detect/report/report.h"
#include "engine/base/base.h"
#include "engine/plan/plan.h"
#include "outputs/datasets/datasets.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_put.h"
#include "outputs/table/dpe_table.h"

/** Remembers the first failure: after it the calls below do nothing, so only the end is checked. */
struct table_writer {
    struct dpe_h5 *table;
    dpe_status status;
    struct dpe_error *err;
};
/** Fail with DPE_NO_MEMORY: "out of memory for N WHAT". */
void dpe_detect_put_no_memory(struct table_writer *w, const char *what, size_t n);
/** As dpe_h5_put_count, dpe_h5_put_scale, dpe_h5_table_put_all, dpe_h5_table_put, dpe_datasets_put,
 * dpe_h5_attr_*. */
void dpe_detect_put_count(struct table_writer *w, const char *path, int64_t n,
                          const char *long_name);
void dpe_detect_put_scale(struct table_writer *w, const char *path, enum dpe_column_type type,
                          const void *values, int64_t n, const char *long_name, const char *units);
void dpe_detect_put_entries(struct table_writer *w, const char *folder,
                            const struct table_entry *entries, size_t n_entries,
                            const struct table_axis *axes, int n_axes);
void dpe_detect_put_entry(struct table_writer *w, const char *folder,
                          const struct table_entry *entry, const struct table_axis *axes,
                          int n_axes);
void dpe_detect_put_kind(struct table_writer *w, const char *folder,
                         const struct dpe_dataset_kind *kind, const void *result);
void dpe_detect_put_text(struct table_writer *w, const char *object, const char *name,
                         const char *value);
void dpe_detect_put_i64(struct table_writer *w, const char *object, const char *name,
                        int64_t value);
void dpe_detect_put_f64(struct table_writer *w, const char *object, const char *name, double value);

/** The rule that selected the lengths, what it selected, and every comparison it made: /select. */
void dpe_detect_put_selection(struct table_writer *w, const struct dpe_detect_report *report);
/** What a search tried and took: /search; nothing without one. */
void dpe_detect_put_search(struct table_writer *w, const struct dpe_detect_report *report);
/** What a race dropped, when and on what grounds: /race. */
void dpe_detect_put_race(struct table_writer *w, const struct dpe_detect_report *report);

#endif
