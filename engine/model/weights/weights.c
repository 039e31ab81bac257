/* Which tensor of a checkpoint is which weight. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/clex.h"
#include "engine/model/config/config_parse.h"
#include "engine/model/config/family.h"
#include "engine/model/weights/bind_internal.h"
#include "engine/text/json.h"

/* Blocks are only what a GGUF file has: of these the sizes were checked. */
static bool known_dtype(const struct dpe_model *model, const char *name, enum dpe_dtype *dtype)
{
    *dtype = dpe_dtype_named(name);
    return *dtype != DPE_DTYPES && (!dpe_dtype_blocks(*dtype) || model->types[0] != '\0');
}

/* A shape as it is written in messages. */
static void shape_text(char *text, size_t room, const int64_t *shape, int rank)
{
    text[0] = '\0';
    for (int i = 0; i < rank; i++) {
        dpe_append(text, room, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    }
}

static dpe_status bad_shape(const struct dpe_binder *binder, const struct dpe_shard_tensor *found,
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

void *dpe_model_own(struct dpe_model *model, size_t bytes)
{
    void *made = dpe_alloc(bytes, 1);
    if (made == NULL || !dpe_make_room(&model->copies, model->n_copies, sizeof *model->copies)) {
        free(made);
        return NULL;
    }
    return model->copies[model->n_copies++] = made;
}

dpe_status dpe_bind_copy(struct dpe_binder *binder, const char *name, size_t bytes, void *copy)
{
    void *made = dpe_model_own(binder->model, bytes);
    memcpy(copy, &made, sizeof made);
    return DPE_MADE(made, binder->err, "%s: tensor %s: no memory for a copy of %zu bytes",
                    binder->model->folder, name, bytes);
}

/* Misaligned data is read into memory of ours; file mappings begin at page boundaries, so offset
 * and address are misaligned together. */
static dpe_status take_data(struct dpe_binder *binder, const struct dpe_shard_tensor *found,
                            enum dpe_dtype dtype, const void **data)
{
    struct dpe_model *model = binder->model;
    const struct dpe_shard *shard = model->shards + found->shard;
    uint64_t size = (uint64_t)dpe_block_types[dtype].bytes;
    if (dpe_dtype_blocks(dtype) || found->begin % size == 0) {
        *data = shard->map + found->begin;
        return DPE_OK;
    }
    void *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, found->name, (size_t)(found->end - found->begin), &copy));
    *data = copy;
    return dpe_shard_read(shard, found->begin, found->end, copy, binder->err);
}

dpe_status dpe_bind_shape(struct dpe_binder *binder, const char *name, const int64_t shape[3],
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
    if (!known_dtype(binder->model, found->dtype, &tensor->dtype)) {
        char quoted[96];
        return dpe_fail(binder->err, DPE_BAD_DATA,
                        "%s: tensor %s: expected dtype F32, F16 or BF16, found %s",
                        binder->model->shards[found->shard].path, name,
                        dpe_json_quote(quoted, found->dtype, strlen(found->dtype)));
    }
    tensor->rows = rank == 3 ? shape[0] * shape[1] : rank == 2 ? shape[1] : 1;
    tensor->cols = shape[2];
    DPE_TRY(take_data(binder, found, tensor->dtype, &tensor->data));
    /* A vector in blocks as float: its elements are looked at one by one. */
    float *copy = NULL;
    return rank == 1 && dpe_dtype_blocks(tensor->dtype)
               ? dpe_bind_floats(binder, name, tensor, &copy)
               : DPE_OK;
}

dpe_status dpe_bind(struct dpe_binder *binder, const char *name, int64_t rows, int64_t cols,
                    struct dpe_tensor *tensor)
{
    bool packed = false;
    if (rows > 0 && binder->model->types[0] == '\0') {
        DPE_TRY(dpe_bind_packed(binder, name, rows, cols, tensor, &packed));
    }
    return packed ? DPE_OK : dpe_bind_shape(binder, name, (const int64_t[]){0, rows, cols}, tensor);
}

/* -------------------------------------------------------------------------------------- layers */

/* The name of a tensor of a layer in the checkpoint: another one, where it has that. */
static void name_of(const struct dpe_binder *binder, int64_t index, const char *own,
                    const char *suffix, char name[128])
{
    const struct dpe_family_recurrent *family = dpe_family_of(&binder->model->config)->recurrent;
    const char *const(*aliases)[2] = family != NULL ? family->aliases : NULL;
    for (int i = 0; aliases != NULL && aliases[i][0] != NULL; i++) {
        snprintf(name, 128, "%slayers.%lld.%s%s", binder->prefix, (long long)index, aliases[i][0],
                 suffix);
        if (strcmp(own, aliases[i][1]) == 0 && dpe_shard_table_find(binder->table, name) != NULL) {
            return;
        }
    }
    snprintf(name, 128, "%slayers.%lld.%s%s", binder->prefix, (long long)index, own, suffix);
}

dpe_status dpe_bind_part(struct dpe_binder *binder, int64_t index, const char *own,
                         const char *suffix, int64_t rows, int64_t cols, bool there,
                         struct dpe_tensor *tensor)
{
    char name[128];
    name_of(binder, index, own, suffix, name);
    if (there) {
        return dpe_bind(binder, name, rows, cols, tensor);
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

/* A weight of a layer and its bias. */
static dpe_status bind_weight(struct dpe_binder *binder, int64_t index, enum dpe_weight which,
                              struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_layer_shape shape = dpe_layer_shape(config, index, which);
    const char *own = dpe_layer_name(config, index, which);
    struct dpe_tensor *weight = &layer->weight[which];
    if (own == NULL) {
        return DPE_OK;
    }
    const bool norm = which == DPE_WEIGHT_Q_NORM || which == DPE_WEIGHT_K_NORM;
    if ((config->bare_norms && norm) || which == DPE_WEIGHT_V_NORM) {
        return shape.rows > 0 ? dpe_bind_ones(binder, shape.cols, weight) : DPE_OK;
    }
    if (index >= config->n_layers - config->shared_layers &&
        (which == DPE_WEIGHT_K || which == DPE_WEIGHT_V || which == DPE_WEIGHT_K_NORM)) {
        return DPE_OK; /* published files have some, which nothing reads */
    }
    DPE_TRY(dpe_bind_part(binder, index, own, dpe_layer_bare(which) ? "" : ".weight",
                          shape.vector ? 0 : shape.rows, shape.cols, shape.rows > 0, weight));
    return dpe_bind_part(binder, index, own, ".bias", 0, shape.bias, shape.bias > 0,
                         &layer->bias[which]);
}

/* What each layer gets beside the stream, from tensors of all layers: a layer's columns of the
 * table, its rows of the projection, and the one norm, times the square root of one half that the
 * sum of both is multiplied by. */
static dpe_status bind_inputs(struct dpe_binder *binder, int64_t index,
                              struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    const int64_t width = config->input_width;
    const int64_t all = config->n_layers * width;
    const struct {
        enum dpe_weight which;
        int64_t rows, cols;
    } parts[] = {{DPE_WEIGHT_INPUT_TABLE, config->input_vocab, all},
                 {DPE_WEIGHT_INPUT, all, config->hidden},
                 {DPE_WEIGHT_INPUT_NORM, 0, width}};
    for (size_t i = 0; width > 0 && i < sizeof parts / sizeof parts[0]; i++) {
        struct dpe_tensor *weight = &layer->weight[parts[i].which];
        char name[128];
        snprintf(name, sizeof name, "%s%s.weight", binder->prefix,
                 dpe_layer_name(config, index, parts[i].which));
        DPE_TRY(dpe_bind(binder, name, parts[i].rows, parts[i].cols, weight));
    }
    struct dpe_tensor *table = &layer->weight[DPE_WEIGHT_INPUT_TABLE];
    struct dpe_tensor *project = &layer->weight[DPE_WEIGHT_INPUT];
    if (table->data != NULL) {
        if (width % dpe_block_types[table->dtype].elements != 0) {
            return dpe_fail(binder->err, DPE_BAD_DATA,
                            "%s: tensor embed_tokens_per_layer: blocks of %lld numbers do not "
                            "divide a layer's %lld",
                            binder->model->folder,
                            (long long)dpe_block_types[table->dtype].elements, (long long)width);
        }
        table->data = dpe_tensor_at(table, index * width);
        table->stride = all;
        table->cols = width;
    }
    if (project->data != NULL) {
        project->data = dpe_tensor_at(project, index * width * config->hidden);
        project->rows = width;
    }
    return dpe_bind_shift(binder, "per_layer_projection_norm", 0.0, sqrt(0.5),
                          &layer->weight[DPE_WEIGHT_INPUT_NORM]);
}

static dpe_status bind_layer(struct dpe_binder *binder, int64_t index,
                             struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    DPE_TRY(dpe_bind_parts(binder, index, layer));
    DPE_TRY(bind_inputs(binder, index, layer));
    for (int i = 0; i < DPE_WEIGHTS_PER_LAYER; i++) {
        enum dpe_weight which = (enum dpe_weight)i;
        const bool input = which >= DPE_WEIGHT_INPUT_TABLE && which <= DPE_WEIGHT_INPUT_NORM;
        if (!input && !dpe_bind_is_part(config, index, which)) {
            DPE_TRY(bind_weight(binder, index, which, layer));
        }
        if (dpe_layer_shape(config, index, which).rows > 0) {
            DPE_TRY(dpe_bind_arrange(binder, index, which, layer));
        }
    }
    return dpe_config_routes(config, index) ? dpe_bind_experts(binder, index, layer) : DPE_OK;
}

static const struct dpe_shard_tensor *find_embedding(const struct dpe_binder *binder,
                                                     const char *prefix)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", prefix,
             dpe_family_names_of(&binder->model->config)->embedding);
    return dpe_shard_table_find(binder->table, name);
}

/* The first releases of NSA's code made heads of 64 whatever head_dim says, later ones read it: the
 * tensor decides. */
static void find_head_dim(const struct dpe_binder *binder, struct dpe_config *config)
{
    char name[96];
    snprintf(name, sizeof name, "%slayers.0.%s.weight", binder->prefix,
             dpe_layer_name(config, 0, DPE_WEIGHT_Q));
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    int64_t rows = found != NULL && found->rank == 2 ? found->shape[0] : 0;
    if (config->branches && rows > 0 && rows % (2 * config->n_heads) == 0 &&
        rows / config->n_heads <= DPE_CONFIG_MAX_HEAD_DIM) {
        config->head_dim = config->rotary_dim = rows / config->n_heads;
    }
}

/* Where a checkpoint keeps the language model: both orders are common where it holds more, and the
 * base model saved alone has no "model." in front. */
static void find_prefix(struct dpe_binder *binder)
{
    static const char *const inside[] = {"language_model.model.", "model.language_model.", "model.",
                                         "language_model.", ""};
    binder->prefix = "model.";
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        if (find_embedding(binder, inside[i]) != NULL) {
            binder->prefix = inside[i];
            break;
        }
    }
    const char *nested = "language_model.lm_head.weight";
    binder->head = dpe_shard_table_find(binder->table, nested) != NULL ? nested : "lm_head.weight";
}

static bool is_copy(const struct dpe_model *model, const struct dpe_shard_tensor *a,
                    const struct dpe_shard_tensor *b)
{
    uint64_t bytes = a->end - a->begin;
    return strcmp(a->dtype, b->dtype) == 0 && b->end - b->begin == bytes &&
           memcmp(model->shards[a->shard].map + a->begin, model->shards[b->shard].map + b->begin,
                  (size_t)bytes) == 0;
}

/* Tied: the head is the embedding. A head in the file decides where config.json says otherwise: one
 * that differs was trained by itself, whatever the switch says; and without one the head is the
 * embedding if the switch is on inside of text_config or beside it. */
static dpe_status bind_head(struct dpe_binder *binder, struct dpe_weights *weights)
{
    struct dpe_config *config = &binder->model->config;
    const struct dpe_shard_tensor *head = dpe_shard_table_find(binder->table, binder->head);
    const struct dpe_shard_tensor *embedding = find_embedding(binder, binder->prefix);
    bool tied = config->tied_embeddings || (config->tied_outside && head == NULL);
    if (tied && head != NULL && embedding != NULL && !is_copy(binder->model, head, embedding)) {
        config->own_head = true;
        tied = false;
    }
    config->tied_embeddings = tied;
    if (!tied) {
        return dpe_bind(binder, binder->head, config->vocab, config->hidden, &weights->lm_head);
    }
    weights->lm_head = weights->embedding;
    return DPE_OK;
}

/* A matrix's part of dpe_config.dtype and dpe_config.blocks: F16 and BF16 together have no common
 * width but F32's; blocks are multiplied as F32. */
static void note_matrix(struct dpe_config *config, const struct dpe_tensor *matrix)
{
    bool blocks = dpe_dtype_blocks(matrix->dtype);
    config->dtype = matrix->dtype == config->dtype && !blocks ? config->dtype : DPE_F32;
    config->blocks |= blocks ? UINT32_C(1) << matrix->dtype : 0;
}

static void note_matrices(struct dpe_config *config, const struct dpe_weights *weights)
{
    config->dtype = weights->embedding.dtype;
    config->blocks = 0;
    note_matrix(config, &weights->embedding);
    note_matrix(config, &weights->lm_head);
    for (int64_t i = 0; i < config->n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            struct dpe_layer_shape shape = dpe_layer_shape(config, i, (enum dpe_weight)which);
            if (!shape.vector && shape.rows > 0) {
                note_matrix(config, &weights->layers[i].weight[which]);
            }
        }
        for (int64_t e = 0; dpe_config_routes(config, i) && e < config->n_experts; e++) {
            note_matrix(config, &weights->layers[i].experts[e].gate);
            note_matrix(config, &weights->layers[i].experts[e].down);
        }
    }
}

static dpe_status check_layers_end(const struct dpe_binder *binder)
{
    const struct dpe_config *config = &binder->model->config;
    const char *norm = dpe_layer_name(config, 0, DPE_WEIGHT_ATTENTION_NORM);
    norm = norm != NULL ? norm : dpe_layer_name(config, 0, DPE_WEIGHT_ATTENTION_AFTER);
    char name[128];
    snprintf(name, sizeof name, "%slayers.%lld.%s.weight", binder->prefix,
             (long long)(config->n_layers + config->further_layers), norm);
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (found == NULL) {
        return DPE_OK;
    }
    return dpe_fail(
        binder->err, DPE_BAD_DATA,
        "%s: tensor %s: expected tensors of the %lld layers in config.json, found one of a "
        "further layer",
        binder->model->shards[found->shard].path, name,
        (long long)(config->n_layers + config->further_layers));
}

/* The values of the network that a rotation has; missing tensors are noted. */
static dpe_status bind_network(struct dpe_binder *binder, struct dpe_clex *clex)
{
    if (clex == NULL) {
        return DPE_OK;
    }
    const struct {
        const char *name;
        int64_t rows, cols;
    } parts[] = {{"clex_layer.inv_freq", 0, clex->n},
                 {"clex_layer.proj_func.ode_up_proj", clex->n, clex->width},
                 {"clex_layer.proj_func.ode_down_proj", clex->width, clex->n}};
    DPE_TRY(DPE_NEW(&clex->values, (size_t)(clex->n + 2 * clex->n * clex->width), binder->err,
                    "%s: out of memory", binder->model->folder));
    double *next = clex->values;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        char name[96];
        struct dpe_tensor tensor = {0};
        snprintf(name, sizeof name, "%s%s", binder->prefix, parts[p].name);
        DPE_TRY(dpe_bind(binder, name, parts[p].rows, parts[p].cols, &tensor));
        for (int64_t i = 0; tensor.data != NULL && i < tensor.rows * tensor.cols; i++) {
            *next++ = (double)dpe_bind_element(&tensor, i);
        }
    }
    return DPE_OK;
}

dpe_status dpe_model_bind(struct dpe_model *model, const struct dpe_shard_table *table,
                          struct dpe_error *err)
{
    struct dpe_binder binder = {.model = model, .table = table, .err = err};
    struct dpe_weights *weights = &model->weights;
    struct dpe_config *config = &model->config;
    DPE_TRY(DPE_NEW(&weights->layers, (size_t)config->n_layers, err,
                    "%s: no memory for %lld layers", model->folder, (long long)config->n_layers));
    find_prefix(&binder);
    find_head_dim(&binder, config);
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", binder.prefix,
             dpe_family_names_of(config)->embedding);
    DPE_TRY(dpe_bind(&binder, name, config->vocab, config->hidden, &weights->embedding));
    for (int64_t i = 0; i < config->n_layers; i++) {
        DPE_TRY(bind_layer(&binder, i, weights->layers + i));
    }
    /* A factor of the logits is one of what the head multiplies. */
    double factor = config->logits_multiplier > 0.0 ? config->logits_multiplier : 1.0;
    double shift = dpe_family_of(config)->norm_plus_one ? 1.0 : 0.0;
    snprintf(name, sizeof name, "%snorm.weight", binder.prefix);
    DPE_TRY(dpe_bind(&binder, name, 0, config->hidden, &weights->final_norm));
    DPE_TRY(dpe_bind_shift(&binder, name, shift, factor, &weights->final_norm));
    DPE_TRY(bind_head(&binder, weights));
    DPE_TRY(bind_network(&binder, config->rope.network));
    DPE_TRY(check_layers_end(&binder));
    if (binder.missing.n > 0) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %zu tensors are missing: %s", model->folder,
                        binder.missing.n, dpe_name_list_text(&binder.missing));
    }
    note_matrices(config, weights);
    return DPE_OK;
}
