/* A detection and a profile of key pairs from their tables. */
#include "eval/compare/ablation.h"
#include "outputs/h5/h5.h"
#include "outputs/read/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/table/dpe_table.h"

static dpe_status take_values(const struct dpe_table_values *values,
                              struct dpe_ablation_source *source, struct dpe_error *err)
{
    if (dpe_table_has_method(values) != 0) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "expected a table with a plan of DPE, found the plan of another method, which "
            "validation showed to be better; dpe-detect --against none keeps DPE's");
    }
    source->trained_length = values->trained_length;
    source->length = values->length;
    source->window = values->window;
    source->n_groups = (int)values->n_groups;
    source->n_layers = values->n_layers;
    source->n_heads = values->n_heads;
    source->n_pairs = values->n_pairs;
    source->temperature = dpe_table_temperature(values);
    snprintf(source->fingerprint, sizeof source->fingerprint, "%s", values->model_fingerprint);
    size_t groups = (size_t)values->n_groups;
    size_t marks = (size_t)values->n_layers * (size_t)values->n_heads * (size_t)values->n_pairs;
    bool all = values->top_k >= values->n_pairs;
    source->edges = dpe_alloc(groups + 1, sizeof *source->edges);
    source->scale = dpe_alloc(groups, sizeof *source->scale);
    source->mask = all ? NULL : dpe_alloc(marks, 1);
    if (source->edges == NULL || source->scale == NULL || (!all && source->mask == NULL)) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a table");
    }
    memcpy(source->edges, values->group_edge, (groups + 1) * sizeof *source->edges);
    memcpy(source->scale, values->scale_factor, groups * sizeof *source->scale);
    if (!all) {
        memcpy(source->mask, values->mask, marks);
    }
    return DPE_OK;
}

static dpe_status read_values(const char *path, struct dpe_ablation_source *source,
                              struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    dpe_status status = dpe_table_load(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    status = take_values(dpe_table_values(table), source, err);
    dpe_table_close(table);
    if (status == DPE_BAD_DATA) {
        dpe_fail_prefix(err, "%s", path);
    }
    return status;
}

static dpe_status read_ranks(struct dpe_h5 *table, struct dpe_ablation_source *source,
                             struct dpe_error *err)
{
    void *lengths = NULL;
    void *ranks = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    bool detection = dpe_h5_has(table, "/detect/rank");
    dpe_status status = dpe_h5_answered(table, err);
    if (status != DPE_OK) {
        return status;
    }
    if (!detection) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a detection of dpe-detect, found a table without /detect/rank");
    }
    status = dpe_h5_get(table, "/length", DPE_COL_I64, &lengths, &rank, dims, err);
    source->lengths = lengths;
    if (status != DPE_OK) {
        return status;
    }
    if (rank != 1) {
        return dpe_fail(err, DPE_BAD_DATA, "/length: expected one axis, found %d", rank);
    }
    source->n_lengths = (int)dims[0];
    status = dpe_h5_get(table, "/detect/rank", DPE_COL_I32, &ranks, &rank, dims, err);
    source->rank = ranks;
    if (status != DPE_OK) {
        return status;
    }
    if (rank != 2 || dims[0] != source->n_groups || dims[1] != source->n_lengths) {
        return dpe_fail(err, DPE_BAD_DATA, "/detect/rank: expected the shape groups by lengths");
    }
    for (int t = 0; t < source->n_lengths; t++) {
        if (source->lengths[t] < 1) {
            return dpe_fail(err, DPE_BAD_DATA, "/length holds %lld", (long long)source->lengths[t]);
        }
    }
    return DPE_OK;
}

static dpe_status read_ranking(const char *path, struct dpe_ablation_source *source,
                               struct dpe_error *err)
{
    const struct dpe_profile_model model = {source->fingerprint, source->n_layers, source->n_heads,
                                            source->n_pairs};
    struct dpe_profile profile;
    dpe_status status = dpe_profile_read(path, &model, false, &profile, err);
    if (status == DPE_OK) {
        source->ranking = profile.ranking;
        profile.ranking = NULL;
    }
    dpe_profile_free(&profile);
    return status;
}

dpe_status dpe_ablation_read(const char *path, const char *norms,
                             struct dpe_ablation_source *source, struct dpe_error *err)
{
    struct dpe_h5 *table = NULL;
    dpe_status status = read_values(path, source, err);
    if (status != DPE_OK) {
        return status;
    }
    status = dpe_h5_open(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    status = read_ranks(table, source, err);
    bool own_profile = dpe_h5_has(table, "/norms/top_k_index");
    if (status == DPE_OK) {
        status = dpe_h5_answered(table, err);
    }
    dpe_h5_close(table);
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    if (norms == NULL && !own_profile) {
        return DPE_OK;
    }
    return read_ranking(norms != NULL ? norms : path, source, err);
}
