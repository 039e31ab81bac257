/**
 * @file opened.h
 * What an opened model is made of, and how tensors become its weights (inside the engine).
 */
#ifndef DPE_OPENED_H
#define DPE_OPENED_H

#include "engine/base/base.h"
#include "engine/model/config/family.h"
#include "engine/model/config/layer_weights.h"
#include "engine/model/weights/safetensors.h"

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

/** So many bytes that the model owns until it is closed; NULL without memory. */
void *dpe_model_own(struct dpe_model *model, size_t bytes);

/** Bind every tensor that model->config describes, by name, shape and dtype, into model->weights,
 *  and set config.dtype to the widest dtype among the matrices. All missing tensors are reported at
 *  once. */
dpe_status dpe_model_bind(struct dpe_model *model, const struct dpe_shard_table *table,
                          struct dpe_error *err);

#endif
