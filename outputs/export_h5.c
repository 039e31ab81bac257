/* The HDF5 form of a DPE table: /table and /model (outputs/SCHEMA.md). */
#include <stdlib.h>
#include <string.h>

#include "export_tool.h"
#include "outputs_internal.h"

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

static dpe_status put_columns(struct dpe_h5 *file, const struct dpe_table_values *values,
                              struct dpe_error *err)
{
    int64_t effective[1 << 10];
    for (int64_t g = 0; g < values->n_groups && g < 1 << 10; g++) {
        effective[g] = (int64_t)values->effective_length[g];
    }
    const struct dpe_column columns[] = {
        {"/table/scale_factor",
         DPE_COL_F64,
         1,
         {values->n_groups},
         {"/group"},
         values->scale_factor,
         "scale of the group's far positions",
         "1",
         NULL,
         false},
        {"/table/effective_length",
         DPE_COL_I64,
         1,
         {values->n_groups},
         {"/group"},
         effective,
         "effective length of the group, -1 = none found",
         "tokens",
         NULL,
         false},
        {"/table/group_edge",
         DPE_COL_I32,
         1,
         {values->n_groups + 1},
         {"/edge"},
         values->group_edge,
         "group g holds pairs edge[g] to edge[g+1] - 1",
         "1",
         NULL,
         false},
        {"/table/inv_freq",
         DPE_COL_F64,
         1,
         {values->n_pairs},
         {"/pair"},
         values->inv_freq,
         "rotation frequency",
         "radians/token",
         NULL,
         false},
        {"/table/mask",
         DPE_COL_U8,
         3,
         {values->n_layers, values->n_heads, values->n_pairs},
         {"/layer", "/head", "/pair"},
         values->mask,
         "whether a pair is a key pair of its head",
         "1",
         "no yes",
         false},
        {"/table/local_window",
         DPE_COL_I64,
         0,
         {0},
         {NULL},
         &values->window,
         "keys nearer than this keep their distance",
         "tokens",
         NULL,
         false},
        {"/table/trained_length",
         DPE_COL_I64,
         0,
         {0},
         {NULL},
         &values->trained_length,
         "trained length",
         "tokens",
         NULL,
         false},
        {"/table/evaluated_length",
         DPE_COL_I64,
         0,
         {0},
         {NULL},
         &values->length,
         "length that the table is for",
         "tokens",
         NULL,
         false},
        {"/table/top_k",
         DPE_COL_I64,
         0,
         {0},
         {NULL},
         &values->top_k,
         "key pairs of each head",
         "1",
         NULL,
         false},
        {"/table/attention_scaling",
         DPE_COL_F64,
         0,
         {0},
         {NULL},
         &values->attention_scaling,
         "factor on queries and on keys; logits carry its square",
         "1",
         NULL,
         false},
    };
    if (values->n_groups > 1 << 10) {
        return dpe_fail(err, DPE_INTERNAL, "%lld groups", (long long)values->n_groups);
    }
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0] && status == DPE_OK; i++) {
        status = dpe_h5_put(file, &columns[i], err);
    }
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

dpe_status export_write_h5(const struct export_table *table, const char *path,
                           struct dpe_error *err)
{
    const struct dpe_table_values *values = dpe_table_values(table->table);
    struct dpe_h5 *file = NULL;
    char *temporary = dpe_join(path, ".tmp", "");
    dpe_status status = temporary != NULL ? DPE_OK : dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    if (status == DPE_OK) {
        status = dpe_h5_create(&file, err);
    }
    if (status == DPE_OK) {
        status = put_common(file, &table->origin, err);
    }
    if (status == DPE_OK) {
        status = put_axes(file, values, err);
    }
    if (status == DPE_OK) {
        status = put_columns(file, values, err);
    }
    if (status == DPE_OK) {
        status = put_texts(file, values, err);
    }
    if (status == DPE_OK) {
        status = dpe_h5_finish(file, temporary, path, err);
    } else {
        dpe_h5_close(file);
    }
    free(temporary);
    return status;
}
