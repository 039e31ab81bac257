/* The HDF5 form of a DPE table: /table and /model (outputs/SCHEMA.md). */
#include <stdlib.h>
#include <string.h>

#include "engine/base/base.h"
#include "outputs/export/export_tool.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/h5_file.h"
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

/* A dataset of a table and where it lies in the values. */
struct entry {
    const char *path, *long_name, *units;
    enum dpe_column_type type;
    const void *data;
};

static dpe_status put_scalars(struct dpe_h5 *file, const struct dpe_table_values *v,
                              struct dpe_error *err)
{
    const struct entry entries[] = {
        {"/table/local_window", "keys nearer than this keep their distance", "tokens", DPE_COL_I64,
         &v->window},
        {"/table/trained_length", "trained length", "tokens", DPE_COL_I64, &v->trained_length},
        {"/table/evaluated_length", "length that the table is for", "tokens", DPE_COL_I64,
         &v->length},
        {"/table/top_k", "key pairs of each head", "1", DPE_COL_I64, &v->top_k},
        {"/table/attention_scaling", "factor on queries and on keys; logits carry its square", "1",
         DPE_COL_F64, &v->attention_scaling},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0] && status == DPE_OK; i++) {
        const struct dpe_column column = {.path = entries[i].path,
                                          .type = entries[i].type,
                                          .data = entries[i].data,
                                          .long_name = entries[i].long_name,
                                          .units = entries[i].units};
        status = dpe_h5_put(file, &column, err);
    }
    return status;
}

static dpe_status put_lists(struct dpe_h5 *file, const struct dpe_table_values *v,
                            const int64_t *effective, struct dpe_error *err)
{
    const struct {
        struct entry entry;
        const char *scale;
        int64_t n;
    } lists[] = {
        {{"/table/scale_factor", "scale of the group's far positions", "1", DPE_COL_F64,
          v->scale_factor},
         "/group",
         v->n_groups},
        {{"/table/effective_length", "effective length of the group, -1 = none found", "tokens",
          DPE_COL_I64, effective},
         "/group",
         v->n_groups},
        {{"/table/group_edge", "group g holds pairs edge[g] to edge[g+1] - 1", "1", DPE_COL_I32,
          v->group_edge},
         "/edge",
         v->n_groups + 1},
        {{"/table/inv_freq", "rotation frequency", "radians/token", DPE_COL_F64, v->inv_freq},
         "/pair",
         v->n_pairs},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && status == DPE_OK; i++) {
        const struct dpe_column column = {.path = lists[i].entry.path,
                                          .type = lists[i].entry.type,
                                          .rank = 1,
                                          .dims = {lists[i].n},
                                          .scales = {lists[i].scale},
                                          .data = lists[i].entry.data,
                                          .long_name = lists[i].entry.long_name,
                                          .units = lists[i].entry.units};
        status = dpe_h5_put(file, &column, err);
    }
    return status;
}

static dpe_status put_columns(struct dpe_h5 *file, const struct dpe_table_values *v,
                              struct dpe_error *err)
{
    int64_t *effective = dpe_alloc((size_t)v->n_groups, sizeof *effective);
    if (effective == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the groups");
    }
    for (int64_t g = 0; g < v->n_groups; g++) {
        effective[g] = (int64_t)v->effective_length[g];
    }
    const struct dpe_column mask = {.path = "/table/mask",
                                    .type = DPE_COL_U8,
                                    .rank = 3,
                                    .dims = {v->n_layers, v->n_heads, v->n_pairs},
                                    .scales = {"/layer", "/head", "/pair"},
                                    .data = v->mask,
                                    .long_name = "whether a pair is a key pair of its head",
                                    .units = "1",
                                    .flag_meanings = "no yes"};
    dpe_status status = put_lists(file, v, effective, err);
    if (status == DPE_OK) {
        status = dpe_h5_put(file, &mask, err);
    }
    if (status == DPE_OK) {
        status = put_scalars(file, v, err);
    }
    free(effective);
    return status;
}

static dpe_status put_texts(struct dpe_h5 *file, const struct dpe_table_values *values,
                            struct dpe_error *err)
{
    const struct {
        const char *object, *name, *value;
    } texts[] = {
        {"/", "title", "DPE table"},
        {"/table", "near_rule", "distance < local_window"},
        {"/table", "rounding", "separable: floor(m/s) - floor(n/s) + w - floor(w/s)"},
        {"/table", "angle_precision", "f32"},
        {"/table", "pair_layout",
         "half-split: components j and j + head_dim/2; interleaved runtimes permute"},
        {"/table", "adapter_required", "true"},
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
    struct dpe_h5 *file = NULL;
    struct dpe_new_file written = {.fd = -1};
    char *target = NULL;
    dpe_status status = dpe_follow_links(path, &target, err);
    if (status != DPE_OK || (status = dpe_new_file_open(&written, target, NULL, err)) != DPE_OK ||
        (status = dpe_h5_create(&file, err)) != DPE_OK ||
        (status = put_common(file, &table->origin, err)) != DPE_OK ||
        (status = put_axes(file, values, err)) != DPE_OK ||
        (status = put_columns(file, values, err)) != DPE_OK ||
        (status = put_texts(file, values, err)) != DPE_OK) {
        goto done;
    }
    const struct dpe_temperature temperature = {values->log_n_length, values->log_n_power,
                                                values->log_n_decay, values->logit_scale};
    status = dpe_h5_put_temperature(file, &temperature, err);
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
