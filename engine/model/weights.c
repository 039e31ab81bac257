/* Which tensor of a checkpoint is which weight. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json_strict.h"
#include "engine/base/halves.h"
#include "engine/model/family.h"
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
    const char *prefix; /* of the language model's tensors but the head's */
    const char *head;   /* the name of the head */
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

/* A shape as it is written in messages. */
static void shape_text(char *text, size_t room, const int64_t *shape, int rank)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < rank && used < room; i++) {
        used += (size_t)snprintf(text + used, room - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    }
}

static dpe_status bad_shape(const struct binder *binder, const struct dpe_shard_tensor *found,
                            const int64_t *want, int rank)
{
    char shape[DPE_SAFETENSORS_RANK * 22 + 4];
    char expected[DPE_SAFETENSORS_RANK * 22 + 4];
    shape_text(shape, sizeof shape, found->shape, found->rank);
    shape_text(expected, sizeof expected, want, rank);
    return dpe_fail(binder->err, DPE_BAD_DATA,
                    "%s: tensor %s: expected shape [%s] by config.json, found [%s]",
                    binder->model->shards[found->shard].path, found->name, expected, shape);
}

/* Misaligned data is read into memory of ours; file mappings begin at page boundaries, so offset
 * and address are misaligned together. */
static void *new_copy(struct binder *binder, const char *name, size_t bytes)
{
    struct dpe_model *model = binder->model;
    void *copy = dpe_alloc(bytes, 1);
    void **grown =
        copy == NULL ? NULL : realloc(model->copies, (model->n_copies + 1) * sizeof *model->copies);
    if (grown == NULL) {
        free(copy);
        dpe_fail(binder->err, DPE_NO_MEMORY, "%s: tensor %s: no memory for a copy of %zu bytes",
                 model->folder, name, bytes);
        return NULL;
    }
    model->copies = grown;
    model->copies[model->n_copies++] = copy;
    return copy;
}

static dpe_status take_data(struct binder *binder, const struct dpe_shard_tensor *found,
                            size_t size, const void **data)
{
    struct dpe_model *model = binder->model;
    const struct dpe_shard *shard = model->shards + found->shard;
    if (found->begin % size == 0) {
        *data = shard->map + found->begin;
        return DPE_OK;
    }
    void *copy = new_copy(binder, found->name, (size_t)(found->end - found->begin));
    if (copy == NULL) {
        return DPE_NO_MEMORY;
    }
    *data = copy;
    return dpe_shard_read(shard, found->begin, found->end, copy, binder->err);
}

/* shape: planes, rows, columns; 0 planes mean a matrix, and 0 rows a vector. Planes become rows of
 * the tensor. A missing tensor is noted and is not an error yet. */
static dpe_status bind_shape(struct binder *binder, const char *name, const int64_t shape[3],
                             struct dpe_tensor *tensor)
{
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found == NULL) {
        dpe_name_list_add(&binder->missing, name);
        return DPE_OK;
    }
    int rank = shape[0] > 0 ? 3 : shape[1] > 0 ? 2 : 1;
    const int64_t *want = shape + (3 - rank);
    if (found->rank != rank || memcmp(found->shape, want, (size_t)rank * sizeof *want) != 0) {
        return bad_shape(binder, found, want, rank);
    }
    size_t size = 0;
    if (!known_dtype(found->dtype, &tensor->dtype, &size)) {
        char quoted[96];
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor %s: expected dtype F32, F16 or BF16, found %s",
                        binder->model->shards[found->shard].path, name,
                        dpe_json_quote(quoted, found->dtype, strlen(found->dtype)));
    }
    tensor->rows = rank == 3 ? shape[0] * shape[1] : rank == 2 ? shape[1] : 1;
    tensor->cols = shape[2];
    return take_data(binder, found, size, &tensor->data);
}

/* rows 0 means a vector of `cols`. */
static dpe_status bind(struct binder *binder, const char *name, int64_t rows, int64_t cols,
                       struct dpe_tensor *tensor)
{
    return bind_shape(binder, name, (const int64_t[]){0, rows, cols}, tensor);
}

/* ------------------------------------------------------------ other orders than the engine's own */

static float element(const struct dpe_tensor *tensor, int64_t at)
{
    uint16_t half = 0;
    if (tensor->dtype == DPE_F32) {
        return ((const float *)tensor->data)[at];
    }
    memcpy(&half, (const uint16_t *)tensor->data + at, sizeof half);
    return tensor->dtype == DPE_F16 ? dpe_from_f16(half) : dpe_from_bf16(half);
}

/* A vector as factor · (shift + itself), in float. */
static dpe_status shift_vector(struct binder *binder, const char *name, double shift, double factor,
                               struct dpe_tensor *tensor)
{
    if (tensor->data == NULL || (shift == 0.0 && factor == 1.0)) {
        return DPE_OK;
    }
    float *copy = new_copy(binder, name, (size_t)tensor->cols * sizeof *copy);
    if (copy == NULL) {
        return DPE_NO_MEMORY;
    }
    for (int64_t i = 0; i < tensor->cols; i++) {
        copy[i] = (float)(factor * (double)((float)shift + element(tensor, i)));
    }
    tensor->data = copy;
    tensor->dtype = DPE_F32;
    return DPE_OK;
}

/* Which component of a checkpoint's head is component i of the engine's: the pairs that rotate come
 * first, pair j as components j and j + head_dim/2; what does not rotate fills the other pairs. */
static int64_t component(const struct dpe_config *config, int64_t i)
{
    int64_t half = config->head_dim / 2;
    int64_t pairs = dpe_config_pairs(config);
    int64_t j = i % half;
    int64_t side = i / half;
    if (j >= pairs) {
        return 2 * pairs + side * (half - pairs) + j - pairs;
    }
    return dpe_family_of(config)->interleaved ? 2 * j + side : j + side * pairs;
}

static bool reordered(const struct dpe_config *config)
{
    return dpe_family_of(config)->interleaved || 2 * dpe_config_pairs(config) != config->head_dim;
}

/* The rows of q or k (the elements of their biases and norms: width 1) in the engine's order of
 * components, as a copy. */
static dpe_status reorder_heads(struct binder *binder, const char *name, int64_t rows,
                                int64_t width, struct dpe_tensor *tensor)
{
    const struct dpe_config *config = &binder->model->config;
    if (tensor->data == NULL || !reordered(config)) {
        return DPE_OK;
    }
    size_t bytes = (size_t)width * (tensor->dtype == DPE_F32 ? 4 : 2);
    char *copy = new_copy(binder, name, (size_t)rows * bytes);
    if (copy == NULL) {
        return DPE_NO_MEMORY;
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t head = r / config->head_dim * config->head_dim;
        int64_t from = head + component(config, r - head);
        memcpy(copy + (size_t)r * bytes, (const char *)tensor->data + (size_t)from * bytes, bytes);
    }
    tensor->data = copy;
    return DPE_OK;
}

/* -------------------------------------------------------------------------------------- layers */

/* Rows of a tensor that holds those of several weights. */
struct part {
    const char *name; /* NULL: the weight's own */
    int64_t first, whole;
};

static struct part part_of(const struct dpe_config *config, enum dpe_weight which)
{
    const struct dpe_family *family = dpe_family_of(config);
    int64_t q = config->n_heads * config->head_dim;
    int64_t k = config->n_kv_heads * config->head_dim;
    bool gates = which == DPE_WEIGHT_GATE || which == DPE_WEIGHT_UP;
    if (family->gate_up_fused && gates) {
        return (struct part){"mlp.gate_up_proj", which == DPE_WEIGHT_UP ? config->intermediate : 0,
                             2 * config->intermediate};
    }
    if (family->qkv_fused && (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K ||
                              which == DPE_WEIGHT_V)) {
        int64_t first = which == DPE_WEIGHT_Q ? 0 : which == DPE_WEIGHT_K ? q : q + k;
        return (struct part){"self_attn.qkv_proj", first, q + 2 * k};
    }
    return (struct part){0};
}

/* One tensor of a layer, a weight or a bias; `there`: the configuration has it. */
static dpe_status bind_part(struct binder *binder, int64_t index, const char *own, const char *suffix,
                            int64_t rows, int64_t cols, bool there, struct dpe_tensor *tensor)
{
    char name[128];
    snprintf(name, sizeof name, "%slayers.%lld.%s%s", binder->prefix, (long long)index, own, suffix);
    if (there) {
        return bind(binder, name, rows, cols, tensor);
    }
    /* Leaving it out would give another model than the one that was trained. */
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found != NULL) {
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor %s: config.json describes a model without this %s; correct "
                        "config.json, or use the weights that belong to it",
                        binder->model->shards[found->shard].path, name,
                        suffix[0] == '.' ? suffix + 1 : "tensor");
    }
    return DPE_OK;
}

static dpe_status bind_weight(struct binder *binder, int64_t index, enum dpe_weight which,
                              struct dpe_tensor *tensor)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_layer_shape shape = dpe_layer_shape(config, which);
    const char *name = dpe_layer_name(config, which);
    struct part part = part_of(config, which);
    if (name == NULL) {
        return DPE_OK;
    }
    if (part.name == NULL) {
        return bind_part(binder, index, name, which == DPE_WEIGHT_SINKS ? "" : ".weight",
                         shape.vector ? 0 : shape.rows, shape.cols, shape.rows > 0, tensor);
    }
    dpe_status status =
        bind_part(binder, index, part.name, ".weight", part.whole, shape.cols, true, tensor);
    if (status == DPE_OK && tensor->data != NULL) {
        int64_t size = tensor->dtype == DPE_F32 ? 4 : 2;
        tensor->data = (const char *)tensor->data + part.first * shape.cols * size;
        tensor->rows = shape.rows;
    }
    return status;
}

/* Norms with their 1, q and k in the engine's order. */
static dpe_status arrange(struct binder *binder, enum dpe_weight which,
                          struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_layer_shape shape = dpe_layer_shape(config, which);
    struct dpe_tensor *weight = &layer->weight[which];
    const char *name = dpe_layer_name(config, which);
    dpe_status status = DPE_OK;
    if (shape.vector && which != DPE_WEIGHT_SINKS && dpe_family_of(config)->norm_plus_one) {
        status = shift_vector(binder, name, 1.0, 1.0, weight);
    }
    if (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K) {
        status = reorder_heads(binder, name, shape.rows, shape.cols, weight);
        if (status == DPE_OK) {
            status = reorder_heads(binder, name, shape.rows, 1, &layer->bias[which]);
        }
    } else if (status == DPE_OK && (which == DPE_WEIGHT_Q_NORM || which == DPE_WEIGHT_K_NORM)) {
        status = reorder_heads(binder, name, shape.cols, 1, weight);
    }
    return status;
}

static dpe_status bind_expert(struct binder *binder, int64_t index, int64_t expert,
                              struct dpe_expert *out)
{
    const struct dpe_config *config = &binder->model->config;
    const struct {
        const char *name;
        int64_t rows, cols;
        struct dpe_tensor *tensor;
    } parts[] = {
        {"gate_proj", config->intermediate, config->hidden, &out->gate},
        {"up_proj", config->intermediate, config->hidden, &out->up},
        {"down_proj", config->hidden, config->intermediate, &out->down},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == DPE_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "mlp.experts.%lld.%s", (long long)expert, parts[i].name);
        status = bind_part(binder, index, name, ".weight", parts[i].rows, parts[i].cols, true,
                           parts[i].tensor);
    }
    return status;
}

/* Every `step`-th element from `first` on of a row of a stacked tensor, as a vector. */
static dpe_status cut_bias(struct binder *binder, const struct dpe_tensor *all, int64_t expert,
                           int64_t first, int64_t step, struct dpe_tensor *out)
{
    int64_t n = all->cols / step;
    float *copy = new_copy(binder, "experts", (size_t)n * sizeof *copy);
    if (copy == NULL) {
        return DPE_NO_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        copy[i] = element(all, expert * all->cols + first + i * step);
    }
    *out = (struct dpe_tensor){.data = copy, .dtype = DPE_F32, .rows = 1, .cols = n};
    return DPE_OK;
}

/* Every `step`-th column from `first` on of an expert's matrix [cols][rows of the weight · step],
 * as the rows of a weight. */
static dpe_status cut_expert(struct binder *binder, const struct dpe_tensor *all, int64_t expert,
                             int64_t first, int64_t step, int64_t cols, struct dpe_tensor *out)
{
    int64_t rows = all->cols / step;
    int64_t size = all->dtype == DPE_F32 ? 4 : 2;
    char *copy = new_copy(binder, "experts", (size_t)(rows * cols * size));
    if (copy == NULL) {
        return DPE_NO_MEMORY;
    }
    const char *from = (const char *)all->data + expert * cols * all->cols * size;
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(copy + (r * cols + c) * size, from + (c * all->cols + first + r * step) * size,
                   (size_t)size);
        }
    }
    *out = (struct dpe_tensor){.data = copy, .dtype = all->dtype, .rows = rows, .cols = cols};
    return DPE_OK;
}

/* All experts of a layer from tensors of all, [experts · inputs][outputs]. */
static dpe_status bind_stacked(struct binder *binder, int64_t index, struct dpe_expert *experts)
{
    const struct dpe_config *config = &binder->model->config;
    int64_t n = config->n_experts;
    int64_t h = config->hidden;
    int64_t m = config->intermediate;
    struct dpe_tensor in = {0};
    struct dpe_tensor in_bias = {0};
    struct dpe_tensor out = {0};
    struct dpe_tensor out_bias = {0};
    const struct {
        const char *name;
        int64_t planes, rows, cols;
        struct dpe_tensor *tensor;
    } parts[] = {
        {"mlp.experts.gate_up_proj", n, h, 2 * m, &in},
        {"mlp.experts.gate_up_proj_bias", 0, n, 2 * m, &in_bias},
        {"mlp.experts.down_proj", n, m, h, &out},
        {"mlp.experts.down_proj_bias", 0, n, h, &out_bias},
    };
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == DPE_OK; i++) {
        char name[128];
        snprintf(name, sizeof name, "%slayers.%lld.%s", binder->prefix, (long long)index,
                 parts[i].name);
        status = bind_shape(binder, name,
                            (const int64_t[]){parts[i].planes, parts[i].rows, parts[i].cols},
                            parts[i].tensor);
    }
    bool there = in.data != NULL && in_bias.data != NULL && out.data != NULL &&
                 out_bias.data != NULL;
    for (int64_t e = 0; there && e < n && status == DPE_OK; e++) {
        struct dpe_expert *x = &experts[e];
        if ((status = cut_expert(binder, &in, e, 0, 2, h, &x->gate)) != DPE_OK ||
            (status = cut_expert(binder, &in, e, 1, 2, h, &x->up)) != DPE_OK ||
            (status = cut_expert(binder, &out, e, 0, 1, m, &x->down)) != DPE_OK ||
            (status = cut_bias(binder, &in_bias, e, 0, 2, &x->gate_bias)) != DPE_OK ||
            (status = cut_bias(binder, &in_bias, e, 1, 2, &x->up_bias)) != DPE_OK) {
            break;
        }
        status = cut_bias(binder, &out_bias, e, 0, 1, &x->down_bias);
    }
    return status;
}

static dpe_status bind_experts(struct binder *binder, int64_t index,
                               struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    layer->experts = dpe_alloc_zero((size_t)config->n_experts, sizeof *layer->experts);
    if (layer->experts == NULL) {
        return dpe_fail(binder->err, DPE_NO_MEMORY, "%s: no memory for %lld experts",
                        binder->model->folder, (long long)config->n_experts);
    }
    if (dpe_family_of(config)->experts == DPE_EXPERTS_STACKED) {
        return bind_stacked(binder, index, layer->experts);
    }
    dpe_status status = DPE_OK;
    for (int64_t e = 0; e < config->n_experts && status == DPE_OK; e++) {
        status = bind_expert(binder, index, e, &layer->experts[e]);
    }
    return status;
}

static dpe_status bind_layer(struct binder *binder, int64_t index, struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    dpe_status status = DPE_OK;
    for (int i = 0; i < DPE_WEIGHTS_PER_LAYER && status == DPE_OK; i++) {
        enum dpe_weight which = (enum dpe_weight)i;
        struct dpe_layer_shape shape = dpe_layer_shape(config, which);
        const char *name = dpe_layer_name(config, which);
        status = bind_weight(binder, index, which, &layer->weight[which]);
        if (status == DPE_OK && name != NULL && part_of(config, which).name == NULL) {
            status = bind_part(binder, index, name, ".bias", 0, shape.bias, shape.bias > 0,
                               &layer->bias[which]);
        }
        if (status == DPE_OK && shape.rows > 0) {
            status = arrange(binder, which, layer);
        }
    }
    return status == DPE_OK && config->n_experts > 0
               ? bind_experts(binder, index, layer)
               : status;
}

static const struct dpe_shard_tensor *find_embedding(const struct binder *binder,
                                                     const char *prefix)
{
    char name[96];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    return dpe_shard_table_find(binder->table, name);
}

/* Where a checkpoint that holds more than the language model keeps it: both orders are common. */
static void find_prefix(struct binder *binder)
{
    static const char *const inside[] = {"language_model.model.", "model.language_model."};
    binder->prefix = "model.";
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        if (find_embedding(binder, inside[i]) != NULL) {
            binder->prefix = inside[i];
        }
    }
    const char *nested = "language_model.lm_head.weight";
    binder->head = dpe_shard_table_find(binder->table, nested) != NULL ? nested : "lm_head.weight";
}

/* Tied: the head is the embedding. A checkpoint that is marked as tied and contains another head is
 * read differently by different versions of the reference, so it is refused. */
static dpe_status bind_head(struct binder *binder, struct dpe_weights *weights)
{
    const struct dpe_config *config = &binder->model->config;
    if (!config->tied_embeddings) {
        return bind(binder, binder->head, config->vocab, config->hidden, &weights->lm_head);
    }
    weights->lm_head = weights->embedding;
    const struct dpe_shard_tensor *head = dpe_shard_table_find(binder->table, binder->head);
    const struct dpe_shard_tensor *embedding = find_embedding(binder, binder->prefix);
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
                        "%s: tensor %s: config.json sets tie_word_embeddings, so "
                        "expected a copy of the embedding or no such tensor, found other "
                        "values; to use them, set tie_word_embeddings to false",
                        shards[head->shard].path, binder->head);
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
        for (int64_t e = 0; e < config->n_experts; e++) {
            dtype = wider(dtype, weights->layers[i].experts[e].gate.dtype);
            dtype = wider(dtype, weights->layers[i].experts[e].down.dtype);
        }
    }
    return dtype;
}

static dpe_status check_layers_end(const struct binder *binder)
{
    const struct dpe_config *config = &binder->model->config;
    const char *norm = dpe_layer_name(config, DPE_WEIGHT_ATTENTION_NORM);
    norm = norm != NULL ? norm : dpe_layer_name(config, DPE_WEIGHT_ATTENTION_AFTER);
    char name[128];
    snprintf(name, sizeof name, "%slayers.%lld.%s.weight", binder->prefix,
             (long long)config->n_layers, norm);
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
    find_prefix(&binder);
    char name[96];
    snprintf(name, sizeof name, "%sembed_tokens.weight", binder.prefix);
    dpe_status status = bind(&binder, name, config->vocab, config->hidden, &weights->embedding);
    for (int64_t i = 0; i < config->n_layers && status == DPE_OK; i++) {
        status = bind_layer(&binder, i, weights->layers + i);
    }
    if (status != DPE_OK) {
        return status;
    }
    /* A factor of the logits is one of what the head multiplies. */
    double factor = config->logits_multiplier > 0.0 ? config->logits_multiplier : 1.0;
    double shift = dpe_family_of(config)->norm_plus_one ? 1.0 : 0.0;
    snprintf(name, sizeof name, "%snorm.weight", binder.prefix);
    if ((status = bind(&binder, name, 0, config->hidden, &weights->final_norm)) != DPE_OK ||
        (status = shift_vector(&binder, name, shift, factor, &weights->final_norm)) != DPE_OK ||
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
