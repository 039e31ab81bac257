/**
 * @file model.h
 * What an opened model is made of (inside the engine).
 */
#ifndef DPE_MODEL_INTERNAL_H
#define DPE_MODEL_INTERNAL_H

#include "engine/base/base.h"
#include "engine/model/family.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"

struct dpe_model {
    struct dpe_config config;
    struct dpe_weights weights; /**< layers NULL when opened with config_only */
    char *folder, *config_json;
    struct dpe_shard *shards; /**< [n_shards], in name order */
    int n_shards;
    void **copies; /**< [n_copies] aligned copies of misaligned tensors */
    size_t n_copies;
    char fingerprint[65];
    /* Of a GGUF file. */
    struct dpe_family own_family; /**< the family with the weights as they lie there */
    char types[256];              /**< of its tensors, "" for a folder */
};

/** Find the shards of model->folder, open them in name order into model->shards, collect their
 *  tensors in *table (sorted) and add them to *hash. With an index every name of its weight_map has
 *  to be in the shard that the index names. */
dpe_status dpe_model_open_shards(struct dpe_model *model, struct dpe_shard_table *table,
                                 struct dpe_sha256 *hash, struct dpe_error *err);

/** Bind every tensor that model->config describes, by name, shape and dtype, into model->weights,
 *  and set config.dtype to the widest dtype among the matrices. All missing tensors are reported at
 *  once. */
dpe_status dpe_model_bind(struct dpe_model *model, const struct dpe_shard_table *table,
                          struct dpe_error *err);

/** a, b, c and 12 more: names collected for one message. */
struct dpe_name_list {
    char text[640];
    size_t used, reported, n;
};
void dpe_name_list_add(struct dpe_name_list *list, const char *name);
/** The text, with the number of names that did not fit. */
const char *dpe_name_list_text(struct dpe_name_list *list);

#endif
