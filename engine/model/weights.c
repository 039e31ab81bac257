/* Which tensor of a checkpoint is which weight. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json_strict.h"
#include "engine/model/layer_weights.h"
#include "engine/model/model.h"
#include "engine/model/model_internal.h"

void dpe_name_list_add(struct dpe_name_list *list, const char *name)
{
    list->n++;
    char quoted[96];
    dpe_json_quote(quoted, name, strlen(name));
    size_t room = sizeof list->text - list->used;
    size_t need = strlen(quoted) + 2;
    /* The last 40 bytes are kept for the count of what did not fit. */
    if (need + 40 > room) {
        return;
    }
    list->used +=
        (size_t)snprintf(list->text + list->used, room, "%s%s", list->used > 0 ? ", " : "", quoted);
    list->reported++;
}

const char *dpe_name_list_text(struct dpe_name_list *list)
{
    if (list->reported < list->n) {
        snprintf(list->text + list->used, sizeof list->text - list->used, " and %zu more",
                 list->n - list->reported);
    }
    return list->text;
}

struct binder {
    struct dpe_model *model;
    const struct dpe_shard_table *table;
    struct dpe_name_list missing;
    struct dpe_error *err;
};

static bool known_dtype(const char *name, enum dpe_dtype *dtype, size_t *size)
{
    static const char *const names[] = {[DPE_F32] = "F32", [DPE_F16] = "F16", [DPE_BF16] = "BF16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            *dtype = (enum dpe_dtype)i;
            *size = *dtype == DPE_F32 ? 4 : 2;
            return true;
        }
    }
    return false;
}

static dpe_status bad_shape(const struct binder *binder, const struct dpe_shard_tensor *found,
                            int64_t rows, int64_t cols)
{
    char shape[DPE_SAFETENSORS_RANK * 22 + 4] = "";
    size_t used = 0;
    for (int i = 0; i < found->rank; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)found->shape[i]);
    }
    char want[64];
    if (rows > 0) {
        snprintf(want, sizeof want, "%lld, %lld", (long long)rows, (long long)cols);
    } else {
        snprintf(want, sizeof want, "%lld", (long long)cols);
    }
    return dpe_fail(binder->err, DPE_BAD_DATA,
                    "%s: tensor %s: expected shape [%s] by config.json, found [%s]",
                    binder->model->shards[found->shard].path, found->name, want, shape);
}

/* Misaligned data is read into memory of ours; file mappings begin at page boundaries, so offset
 * and address are misaligned together. */
static dpe_status take_data(struct binder *binder, const struct dpe_shard_tensor *found,
                            size_t size, const void **data)
{
    struct dpe_model *model = binder->model;
    const struct dpe_shard *shard = model->shards + found->shard;
    if (found->begin % size == 0) {
        *data = shard->map + found->begin;
        return DPE_OK;
    }
    size_t bytes = (size_t)(found->end - found->begin);
    void *copy = dpe_alloc(bytes, 1);
    void **grown =
        copy == NULL ? NULL : realloc(model->copies, (model->n_copies + 1) * sizeof *model->copies);
    if (grown == NULL) {
        free(copy);
        return dpe_fail(binder->err, DPE_NO_MEMORY,
                        "%s: tensor %s: no memory to align its %zu bytes", shard->path, found->name,
                        bytes);
    }
    model->copies = grown;
    model->copies[model->n_copies++] = copy;
    *data = copy;
    return dpe_shard_read(shard, found->begin, found->end, copy, binder->err);
}

/* rows 0 means a vector of `cols`. A missing tensor is noted and is not an error yet. */
static dpe_status bind(struct binder *binder, const char *name, int64_t rows, int64_t cols,
                       struct dpe_tensor *tensor)
{
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found == NULL) {
        dpe_name_list_add(&binder->missing, name);
        return DPE_OK;
    }
    bool vector = rows == 0;
    if (found->rank != (vector ? 1 : 2) || found->shape[vector ? 0 : 1] != cols ||
        (!vector && found->shape[0] != rows)) {
        return bad_shape(binder, found, rows, cols);
    }
    size_t size = 0;
    if (!known_dtype(found->dtype, &tensor->dtype, &size)) {
        char quoted[96];
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor %s: expected dtype F32, F16 or BF16, found %s",
                        binder->model->shards[found->shard].path, name,
                        dpe_json_quote(quoted, found->dtype, strlen(found->dtype)));
    }
    tensor->rows = vector ? 1 : rows;
    tensor->cols = cols;
    return take_data(binder, found, size, &tensor->data);
}

/* One tensor of a layer, a weight or a bias; `there`: the configuration has it. */
static dpe_status bind_part(struct binder *binder, int64_t index, enum dpe_weight which,
                            const char *part, int64_t rows, int64_t cols, bool there,
                            struct dpe_tensor *tensor)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%lld.%s.%s", (long long)index,
             dpe_layer_tensors[which].name, part);
    if (there) {
        return bind(binder, name, rows, cols, tensor);
    }
    /* Leaving it out would give another model than the one that was trained. */
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found != NULL) {
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor %s: config.json describes a model without this %s; correct "
                        "config.json, or use the weights that belong to it",
                        binder->model->shards[found->shard].path, name, part);
    }
    return DPE_OK;
}

static dpe_status bind_layer(struct binder *binder, int64_t index, struct dpe_layer_weights *layer)
{
    dpe_status status = DPE_OK;
    for (int i = 0; i < DPE_WEIGHTS_PER_LAYER && status == DPE_OK; i++) {
        enum dpe_weight which = (enum dpe_weight)i;
        struct dpe_layer_shape shape = dpe_layer_shape(&binder->model->config, which);
        status = bind_part(binder, index, which, "weight", shape.vector ? 0 : shape.rows,
                           shape.cols, shape.rows > 0, &layer->weight[which]);
        if (status == DPE_OK) {
            status = bind_part(binder, index, which, "bias", 0, shape.bias, shape.bias > 0,
                               &layer->bias[which]);
        }
    }
    return status;
}

/* Tied: the head is the embedding. A checkpoint that is marked as tied and contains another head is
 * read differently by different versions of the reference, so it is refused. */
static dpe_status bind_head(struct binder *binder, struct dpe_weights *weights)
{
    const struct dpe_config *config = &binder->model->config;
    if (!config->tied_embeddings) {
        return bind(binder, "lm_head.weight", config->vocab, config->hidden, &weights->lm_head);
    }
    weights->lm_head = weights->embedding;
    const struct dpe_shard_tensor *head = dpe_shard_table_find(binder->table, "lm_head.weight");
    const struct dpe_shard_tensor *embedding =
        dpe_shard_table_find(binder->table, "model.embed_tokens.weight");
    if (head == NULL || embedding == NULL) {
        return DPE_OK;
    }
    const struct dpe_shard *shards = binder->model->shards;
    uint64_t bytes = embedding->end - embedding->begin;
    bool equal = strcmp(head->dtype, embedding->dtype) == 0 && head->end - head->begin == bytes &&
                 memcmp(shards[head->shard].map + head->begin,
                        shards[embedding->shard].map + embedding->begin, (size_t)bytes) == 0;
    if (!equal) {
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor lm_head.weight: config.json sets tie_word_embeddings, so "
                        "expected a copy of the embedding or no such tensor, found other "
                        "values; to use them, set tie_word_embeddings to false",
                        shards[head->shard].path);
    }
    return DPE_OK;
}

/* F16 and BF16 together have no common width but F32's. */
static enum dpe_dtype wider(enum dpe_dtype a, enum dpe_dtype b)
{
    return a == b ? a : DPE_F32;
}

static enum dpe_dtype widest(const struct dpe_config *config, const struct dpe_weights *weights)
{
    enum dpe_dtype dtype = wider(weights->embedding.dtype, weights->lm_head.dtype);
    for (int64_t i = 0; i < config->n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            struct dpe_layer_shape shape = dpe_layer_shape(config, (enum dpe_weight)which);
            bool matrix = !shape.vector && shape.rows > 0;
            dtype = matrix ? wider(dtype, weights->layers[i].weight[which].dtype) : dtype;
        }
    }
    return dtype;
}

static dpe_status check_layers_end(const struct binder *binder)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%lld.input_layernorm.weight",
             (long long)binder->model->config.n_layers);
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found == NULL) {
        return DPE_OK;
    }
    return dpe_fail(
        binder->err, DPE_BAD_DATA,
        "%s: tensor %s: expected tensors of the %lld layers in config.json, found one of a "
        "further layer",
        binder->model->shards[found->shard].path, name, (long long)binder->model->config.n_layers);
}

dpe_status dpe_model_bind(struct dpe_model *model, const struct dpe_shard_table *table,
                          struct dpe_error *err)
{
    struct binder binder = {.model = model, .table = table, .err = err};
    struct dpe_weights *weights = &model->weights;
    struct dpe_config *config = &model->config;
    weights->layers = dpe_alloc_zero((size_t)config->n_layers, sizeof *weights->layers);
    if (weights->layers == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for %lld layers", model->folder,
                        (long long)config->n_layers);
    }
    dpe_status status = bind(&binder, "model.embed_tokens.weight", config->vocab, config->hidden,
                             &weights->embedding);
    for (int64_t i = 0; i < config->n_layers && status == DPE_OK; i++) {
        status = bind_layer(&binder, i, weights->layers + i);
    }
    if (status != DPE_OK ||
        (status = bind(&binder, "model.norm.weight", 0, config->hidden, &weights->final_norm)) !=
            DPE_OK ||
        (status = bind_head(&binder, weights)) != DPE_OK ||
        (status = check_layers_end(&binder)) != DPE_OK) {
        return status;
    }
    if (binder.missing.n > 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %zu tensors are missing: %s", model->folder,
                        binder.missing.n, dpe_name_list_text(&binder.missing));
    }
    config->dtype = widest(config, weights);
    return status;
}
