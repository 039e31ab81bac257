/* A process's part of a model, as views. */
#include "engine/model/slice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

dpe_status dpe_slice_check(const struct dpe_config *config, int index, int size,
                           struct dpe_error *err)
{
    if (size < 1 || index < 0 || index >= size) {
        return dpe_fail(err, DPE_USAGE, "session: expected a process index from 0 to %d, found %d",
                        size - 1, index);
    }
    const char *beyond = config->recurrent.value_heads > 0 ? "recurrent layers"
                         : config->n_experts > 0           ? "experts"
                         : config->sinks                   ? "attention sinks"
                         : dpe_config_mixed(config) || config->input_width > 0
                             ? "layers that differ in their heads, share keys or have inputs"
                         : config->qk_norm == DPE_QK_NORM_WHOLE ? "norms over all heads"
                                                                : NULL;
    if (size > 1 && beyond != NULL) {
        return dpe_fail(err, DPE_USAGE,
                        "tensor parallel: models with %s (%s) cannot be shared by processes; run "
                        "them with one process for each model",
                        beyond, config->model_type);
    }
    if (config->n_kv_heads % size == 0 && config->intermediate % size == 0) {
        return DPE_OK;
    }
    int most = 1;
    for (int n = 2; n < size; n++) {
        most = config->n_kv_heads % n == 0 && config->intermediate % n == 0 ? n : most;
    }
    return dpe_fail(
        err, DPE_USAGE,
        "tensor parallel: %d processes cannot share the model evenly: expected a number "
        "that divides its %" PRId64 " key-value heads and the %" PRId64
        " columns of its MLP; the next smaller one is %d",
        size, config->n_kv_heads, config->intermediate, most);
}

struct dpe_config dpe_slice_config(const struct dpe_config *config, int size)
{
    struct dpe_config slice = *config;
    slice.n_heads /= size;
    slice.n_kv_heads /= size;
    slice.intermediate /= size;
    return slice;
}

static const void *element_at(const struct dpe_tensor *tensor, int64_t index)
{
    /* Tensors of a benchmark's model have a shape and no data. */
    return tensor->data == NULL ? NULL : dpe_tensor_at(tensor, index);
}

/* Rows of a matrix, columns of a bias: of a bias its `cols` are the matrix's rows. */
static void cut_rows(struct dpe_tensor *matrix, struct dpe_tensor *bias, int index, int size)
{
    matrix->rows /= size;
    matrix->data = element_at(matrix, index * matrix->rows * dpe_tensor_stride(matrix));
    bias->cols /= size;
    bias->data = element_at(bias, index * bias->cols);
}

static void cut_columns(struct dpe_tensor *matrix, struct dpe_tensor *bias, int index, int size)
{
    matrix->stride = dpe_tensor_stride(matrix);
    matrix->cols /= size;
    matrix->data = element_at(matrix, index * matrix->cols);
    if (index > 0) {
        *bias = (struct dpe_tensor){0};
    }
}

/* The columns of a process are whole blocks, or it could not find their beginning. */
static dpe_status check_blocks(const struct dpe_model *model, int size, struct dpe_error *err)
{
    for (int64_t i = 0; i < model->config.n_layers; i++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            const struct dpe_tensor *weight = &model->weights.layers[i].weight[which];
            const struct dpe_block_type *type = &dpe_block_types[weight->dtype];
            if (dpe_layer_tensors[which].sliced == DPE_SLICED_COLUMNS &&
                weight->cols % (type->elements * size) != 0) {
                return dpe_fail(err, DPE_USAGE,
                                "tensor parallel: %d processes cannot share the %" PRId64
                                " columns of layer %" PRId64
                                "'s %s: blocks of type %s have %" PRId64
                                " numbers; use fewer processes for each model",
                                size, weight->cols, i,
                                dpe_layer_name(&model->config, i, (enum dpe_weight)which),
                                type->name, type->elements);
            }
        }
    }
    return DPE_OK;
}

dpe_status dpe_slice_make(const struct dpe_model *model, int index, int size,
                          struct dpe_model *slice, struct dpe_error *err)
{
    size_t n_layers = (size_t)model->config.n_layers;
    *slice = (struct dpe_model){0};
    DPE_TRY(check_blocks(model, size, err));
    *slice = (struct dpe_model){.config = dpe_slice_config(&model->config, size),
                                .weights = model->weights};
    DPE_TRY(DPE_NEW(&slice->weights.layers, n_layers, err, "session: out of memory for %zu layers",
                    n_layers));
    memcpy(slice->weights.layers, model->weights.layers, n_layers * sizeof *slice->weights.layers);
    for (size_t i = 0; i < n_layers; i++) {
        struct dpe_layer_weights *w = &slice->weights.layers[i];
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            enum dpe_sliced sliced = dpe_layer_tensors[which].sliced;
            if (sliced == DPE_SLICED_ROWS) {
                cut_rows(&w->weight[which], &w->bias[which], index, size);
            } else if (sliced == DPE_SLICED_COLUMNS) {
                cut_columns(&w->weight[which], &w->bias[which], index, size);
            }
        }
    }
    return DPE_OK;
}

void dpe_slice_free(struct dpe_model *slice)
{
    free(slice->weights.layers);
    *slice = (struct dpe_model){0};
}
