/* One table is written by many calls; after the first that fails the others do nothing. */
#include "detect/table/detect_table_internal.h"

void dpe_detect_put_no_memory(struct table_writer *w, const char *what, size_t n)
{
    if (w->status == DPE_OK) {
        w->status = dpe_fail(w->err, DPE_NO_MEMORY, "out of memory for %zu %s", n, what);
    }
}

void dpe_detect_put_count(struct table_writer *w, const char *path, int64_t n,
                          const char *long_name)
{
    if (w->status == DPE_OK) {
        w->status = dpe_h5_put_count(w->table, path, n, long_name, w->err);
    }
}

void dpe_detect_put_scale(struct table_writer *w, const char *path, enum dpe_column_type type,
                          const void *values, int64_t n, const char *long_name, const char *units)
{
    if (w->status == DPE_OK) {
        w->status = dpe_h5_put_scale(w->table, path, type, values, n, long_name, units, w->err);
    }
}

void dpe_detect_put_entries(struct table_writer *w, const char *folder,
                            const struct table_entry *entries, size_t n_entries,
                            const struct table_axis *axes, int n_axes)
{
    if (w->status == DPE_OK) {
        w->status =
            dpe_h5_table_put_all(w->table, folder, entries, n_entries, axes, n_axes, w->err);
    }
}

void dpe_detect_put_entry(struct table_writer *w, const char *folder,
                          const struct table_entry *entry, const struct table_axis *axes,
                          int n_axes)
{
    dpe_detect_put_entries(w, folder, entry, 1, axes, n_axes);
}

void dpe_detect_put_kind(struct table_writer *w, const char *folder,
                         const struct dpe_dataset_kind *kind, const void *result)
{
    if (w->status == DPE_OK) {
        w->status = dpe_datasets_put(kind, result, folder, w->table, w->err);
    }
}

void dpe_detect_put_text(struct table_writer *w, const char *object, const char *name,
                         const char *value)
{
    if (w->status == DPE_OK) {
        w->status = dpe_h5_attr_text(w->table, object, name, value, w->err);
    }
}

void dpe_detect_put_i64(struct table_writer *w, const char *object, const char *name, int64_t value)
{
    if (w->status == DPE_OK) {
        w->status = dpe_h5_attr_i64(w->table, object, name, value, w->err);
    }
}

void dpe_detect_put_f64(struct table_writer *w, const char *object, const char *name, double value)
{
    if (w->status == DPE_OK) {
        w->status = dpe_h5_attr_f64(w->table, object, name, value, w->err);
    }
}
