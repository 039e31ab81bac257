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
    source->trained_length = values->trained_length;
    source->length = values->length;
    source->window = values->window;
    source->n_groups = (int)values->n_groups;
    source->n_layers = values->n_layers;
    source->n_heads = values->n_heads;
    source->n_pairs = values->n_pairs;
    source->temperature = (struct dpe_temperature){values->log_n_length, values->log_n_power,
                                                   values->log_n_decay, values->logit_scale};
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
    return status;
}

static dpe_status read_ranks(struct dpe_h5 *table, struct dpe_ablation_source *source,
                             struct dpe_error *err)
{
    void *lengths = NULL;
    void *ranks = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    if (!dpe_h5_has(table, "/detect/rank")) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "expected a detection of dpe-detect, found a table without /detect/rank");
    }
    dpe_status status = dpe_h5_get(table, "/length", DPE_COL_I64, &lengths, &rank, dims, err);
    source->lengths = lengths;
    if (status == DPE_OK && rank != 1) {
        status = dpe_fail(err, DPE_BAD_DATA, "/length: expected one axis, found %d", rank);
    }
    source->n_lengths = status == DPE_OK ? (int)dims[0] : 0;
    if (status == DPE_OK) {
        status = dpe_h5_get(table, "/detect/rank", DPE_COL_I32, &ranks, &rank, dims, err);
    }
    source->rank = ranks;
    if (status == DPE_OK &&
        (rank != 2 || dims[0] != source->n_groups || dims[1] != source->n_lengths)) {
        status = dpe_fail(err, DPE_BAD_DATA, "/detect/rank: expected the shape groups by lengths");
    }
    for (int t = 0; t < source->n_lengths && status == DPE_OK; t++) {
        if (source->lengths[t] < 1) {
            status =
                dpe_fail(err, DPE_BAD_DATA, "/length holds %lld", (long long)source->lengths[t]);
        }
    }
    return status;
}

static dpe_status check_ranking(const struct dpe_ablation_source *source, int rank,
                                const int64_t dims[5], struct dpe_error *err)
{
    if (rank != 3 || dims[0] != source->n_layers || dims[1] != source->n_heads ||
        dims[2] != source->n_pairs) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "/norms/top_k_index: expected the shape of the detection's model");
    }
    uint8_t seen[4096];
    for (int64_t row = 0; row < source->n_layers * source->n_heads; row++) {
        memset(seen, 0, sizeof seen);
        for (int64_t i = 0; i < source->n_pairs; i++) {
            uint16_t pair = source->ranking[row * source->n_pairs + i];
            if (pair >= source->n_pairs || pair >= sizeof seen || seen[pair]++ != 0) {
                return dpe_fail(err, DPE_BAD_DATA,
                                "/norms/top_k_index: row %lld: expected every pair once",
                                (long long)row);
            }
        }
    }
    return DPE_OK;
}

static dpe_status read_ranking(struct dpe_h5 *table, struct dpe_ablation_source *source,
                               struct dpe_error *err)
{
    char *fingerprint = NULL;
    void *ranking = NULL;
    int rank = 0;
    int64_t complete = 0;
    int64_t dims[5] = {0};
    dpe_status status = dpe_h5_get_attr_i64(table, "/", "complete", &complete, err);
    if (status == DPE_OK && complete != 1) {
        status =
            dpe_fail(err, DPE_BAD_DATA, "the profile is not complete; finish it with dpe-norms");
    }
    if (status == DPE_OK && !dpe_h5_has(table, "/norms/top_k_index")) {
        status =
            dpe_fail(err, DPE_BAD_DATA,
                     "expected a profile of dpe-norms, found a table without /norms/top_k_index");
    }
    if (status == DPE_OK) {
        status = dpe_h5_get_attr_text(table, "/model", "fingerprint", &fingerprint, err);
    }
    if (status == DPE_OK && strcmp(fingerprint, source->fingerprint) != 0) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "expected a profile of the detection's model %.16s…, found one of %.16s…",
                          source->fingerprint, fingerprint);
    }
    free(fingerprint);
    if (status == DPE_OK) {
        status = dpe_h5_get(table, "/norms/top_k_index", DPE_COL_U16, &ranking, &rank, dims, err);
    }
    source->ranking = ranking;
    return status == DPE_OK ? check_ranking(source, rank, dims, err) : status;
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
    if (status == DPE_OK && norms == NULL && dpe_h5_has(table, "/norms/top_k_index")) {
        status = read_ranking(table, source, err);
    }
    dpe_h5_close(table);
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s", path);
    }
    if (norms == NULL) {
        return DPE_OK;
    }
    status = dpe_h5_open(norms, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    status = read_ranking(table, source, err);
    dpe_h5_close(table);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "%s", norms);
}
