/* Weights that a checkpoint holds in another form or order than the engine's own, as copies. */
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/weights/bind_internal.h"

float dpe_bind_element(const struct dpe_tensor *tensor, int64_t at)
{
    float value = 0.0F;
    dpe_dtype_read(tensor->dtype, tensor->data, at, 1, &value);
    return value;
}

dpe_status dpe_bind_shift(struct dpe_binder *binder, const char *name, double shift, double factor,
                          struct dpe_tensor *tensor)
{
    if (tensor->data == NULL || (shift == 0.0 && factor == 1.0)) {
        return DPE_OK;
    }
    float *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)tensor->cols * sizeof *copy, &copy));
    for (int64_t i = 0; i < tensor->cols; i++) {
        copy[i] = (float)(factor * (double)((float)shift + dpe_bind_element(tensor, i)));
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
static dpe_status reorder_heads(struct dpe_binder *binder, const char *name, int64_t rows,
                                int64_t width, struct dpe_tensor *tensor)
{
    const struct dpe_config *config = &binder->model->config;
    if (tensor->data == NULL || !reordered(config)) {
        return DPE_OK;
    }
    size_t bytes = (size_t)dpe_dtype_bytes(tensor->dtype, width);
    char *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)rows * bytes, &copy));
    for (int64_t r = 0; r < rows; r++) {
        int64_t head = r / config->head_dim * config->head_dim;
        int64_t from = head + component(config, r - head);
        memcpy(copy + (size_t)r * bytes, (const char *)tensor->data + (size_t)from * bytes, bytes);
    }
    tensor->data = copy;
    return DPE_OK;
}

dpe_status dpe_bind_arrange(struct dpe_binder *binder, enum dpe_weight which,
                            struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_layer_shape shape = dpe_layer_shape(config, which);
    struct dpe_tensor *weight = &layer->weight[which];
    const char *name = dpe_layer_name(config, which);
    if (shape.vector && which != DPE_WEIGHT_SINKS && dpe_family_of(config)->norm_plus_one) {
        DPE_TRY(dpe_bind_shift(binder, name, 1.0, 1.0, weight));
    }
    if (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K) {
        DPE_TRY(reorder_heads(binder, name, shape.rows, shape.cols, weight));
        return reorder_heads(binder, name, shape.rows, 1, &layer->bias[which]);
    }
    return which == DPE_WEIGHT_Q_NORM || which == DPE_WEIGHT_K_NORM
               ? reorder_heads(binder, name, shape.cols, 1, weight)
               : DPE_OK;
}
