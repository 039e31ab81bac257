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

static dpe_status put_axis(struct dpe_h5 *file, const char *path, int64_t n, const char *long_name,
                           struct dpe_error *err)
{
    int64_t *values = dpe_alloc((size_t)n, sizeof *values);
    if (values == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for an axis");
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = i;
    }
    const struct dpe_column column = {.path = path,
                                      .type = DPE_COL_I64,
                                      .rank = 1,
                                      .dims = {n},
                                      .data = values,
                                      .long_name = long_name,
                                      .units = "1",
                                      .is_scale = true};
    dpe_status status = dpe_h5_put(file, &column, err);
    free(values);
    return status;
}

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
        status = put_axis(file, axes[i].path, axes[i].n, axes[i].long_name, err);
    }
    return status;
}

static dpe_status put_scalars(struct dpe_h5 *file, const char *folder,
                              const struct dpe_table_values *v, struct dpe_error *err)
{
    const struct table_entry entries[] = {
        {"/local_window", DPE_COL_I64, &v->window, "keys nearer than this keep their distance",
         "tokens", NULL},
        {"/trained_length", DPE_COL_I64, &v->trained_length, "trained length", "tokens", NULL},
        {"/evaluated_length", DPE_COL_I64, &v->length, "length that the table is for", "tokens",
         NULL},
        {"/top_k", DPE_COL_I64, &v->top_k, "key pairs of each head", "1", NULL},
        {"/attention_scaling", DPE_COL_F64, &v->attention_scaling,
         "factor on queries and on keys; logits carry its square", "1", NULL},
    };
    return dpe_h5_table_put_all(file, folder, entries, COUNT(entries), NULL, 0, err);
}

static dpe_status put_lists(struct dpe_h5 *file, const char *folder,
                            const struct dpe_table_values *v, const int64_t *effective,
                            struct dpe_error *err)
{
    const struct {
        struct table_entry entry;
        struct table_axis axis;
    } lists[] = {
        {{"/scale_factor", DPE_COL_F64, v->scale_factor, "scale of the group's far positions", "1",
          NULL},
         {"/group", v->n_groups}},
        {{"/effective_length", DPE_COL_I64, effective,
          "effective length of the group, -1 = none found", "tokens", NULL},
         {"/group", v->n_groups}},
        {{"/group_edge", DPE_COL_I32, v->group_edge, "group g holds pairs edge[g] to edge[g+1] - 1",
          "1", NULL},
         {"/edge", v->n_groups + 1}},
        {{"/inv_freq", DPE_COL_F64, v->inv_freq, "rotation frequency", "radians/token", NULL},
         {"/pair", v->n_pairs}},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < COUNT(lists) && status == DPE_OK; i++) {
        status = dpe_h5_table_put(file, folder, &lists[i].entry, &lists[i].axis, 1, err);
    }
    return status;
}

/* The datasets of an entry. */
static dpe_status put_columns(struct dpe_h5 *file, const char *folder,
                              const struct dpe_table_values *v, struct dpe_error *err)
{
    const struct table_entry mask = {
        "/mask", DPE_COL_U8, v->mask, "whether a pair is a key pair of its head", "1", "no yes"};
    const struct table_axis axes[] = {
        {"/layer", v->n_layers}, {"/head", v->n_heads}, {"/pair", v->n_pairs}};
    int64_t *effective = dpe_alloc((size_t)v->n_groups, sizeof *effective);
    if (effective == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the groups");
    }
    for (int64_t g = 0; g < v->n_groups; g++) {
        effective[g] = (int64_t)v->effective_length[g];
    }
    dpe_status status = put_lists(file, folder, v, effective, err);
    if (status == DPE_OK) {
        status = dpe_h5_table_put(file, folder, &mask, axes, 3, err);
    }
    if (status == DPE_OK) {
        status = put_scalars(file, folder, v, err);
    }
    free(effective);
    return status;
}

/* Several entries: each in a folder that is called by its length. */
static dpe_status put_entries(struct dpe_h5 *file, const struct dpe_table *table,
                              struct dpe_error *err)
{
    int64_t n = dpe_table_count(table);
    const bool methods = dpe_export_methods(dpe_table_values(table));
    const bool bands = dpe_export_bands(dpe_table_values(table));
    int64_t lengths[DPE_TABLE_ENTRIES];
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = dpe_table_values(dpe_table_entry(table, i))->length;
    }
    const struct dpe_column axis = {.path = "/table/length",
                                    .type = DPE_COL_I64,
                                    .rank = 1,
                                    .dims = {n},
                                    .data = lengths,
                                    .long_name = "lengths that the entries are for",
                                    .units = "tokens",
                                    .is_scale = true};
    dpe_status status = dpe_h5_put(file, &axis, err);
    for (int64_t i = 0; i < n && status == DPE_OK; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i));
        char folder[40];
        snprintf(folder, sizeof folder, "/table/%lld", (long long)lengths[i]);
        status = put_columns(file, folder, values, err);
        if (status == DPE_OK) {
            status = dpe_h5_put_later_in(file, folder, values, methods, err);
        }
    }
    return status == DPE_OK
               ? dpe_h5_set_version(file, bands     ? DPE_SCHEMA_BANDS
                                          : methods ? DPE_SCHEMA_METHODS
                                                    : DPE_SCHEMA_ENTRIES,
                                    err)
               : status;
}

static dpe_status put_texts(struct dpe_h5 *file, const struct dpe_table *table,
                            struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    const bool methods = dpe_table_count(table) > 1 ? dpe_export_methods(values)
                                                    : dpe_table_has_method(values) != 0;
    const struct {
        const char *object, *name, *value;
    } texts[] = {
        {"/", "title", "DPE table"},
        {"/table", "near_rule", dpe_table_near_text(values)},
        {"/table", "rounding", dpe_table_rounding_text(values, methods)},
        {"/table", "angle_precision", "f32"},
        {"/table", "pair_layout",
         "half-split: components j and j + head_dim/2; interleaved runtimes permute"},
        {"/table", "adapter_required", dpe_export_needs_adapter(table) ? "true" : "false"},
        {"/model", "fingerprint", values->model_fingerprint},
        {"/model", "model_type", values->model_type},
    };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"layers", values->n_layers},
        {"heads", values->n_heads},
        {"kv_heads", values->n_kv_heads},
        {"head_dim", values->head_dim},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && status == DPE_OK; i++) {
        status = dpe_h5_attr_text(file, texts[i].object, texts[i].name, texts[i].value, err);
    }
    if (status == DPE_OK && values->frequencies != 0) {
        status = dpe_h5_attr_text(file, "/table", "moves", "frequencies", err);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
        status = dpe_h5_attr_i64(file, "/model", numbers[i].name, numbers[i].value, err);
    }
    return status;
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
    const struct dpe_table_values *values = dpe_table_values(table->table);
    const bool several = dpe_table_count(table->table) > 1;
    struct dpe_h5 *file = NULL;
    struct dpe_new_file written = {.fd = -1};
    char *target = NULL;
    dpe_status status = dpe_follow_links(path, &target, err);
    if (status != DPE_OK || (status = dpe_new_file_open(&written, target, NULL, err)) != DPE_OK ||
        (status = dpe_h5_create(&file, err)) != DPE_OK ||
        (status = put_common(file, &table->origin, err)) != DPE_OK ||
        (status = put_axes(file, values, err)) != DPE_OK) {
        goto done;
    }
    status = several ? put_entries(file, table->table, err)
                     : put_columns(file, "/table", values, err);
    if (status != DPE_OK || (status = put_texts(file, table->table, err)) != DPE_OK) {
        goto done;
    }
    status = several ? DPE_OK : dpe_h5_put_later(file, values, err);
    if (status != DPE_OK) {
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
