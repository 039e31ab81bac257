/**
 * @file layer_weights.h
 * The tensors of a layer by meaning.
 */
#ifndef DPE_LAYER_WEIGHTS_H
#define DPE_LAYER_WEIGHTS_H

#include "engine/model/model.h"

/** A weight matrix by meaning. */
enum dpe_weight {
    DPE_WEIGHT_Q,
    DPE_WEIGHT_K,
    DPE_WEIGHT_V,
    DPE_WEIGHT_O,
    DPE_WEIGHT_GATE,
    DPE_WEIGHT_UP,
    DPE_WEIGHT_DOWN,
    DPE_WEIGHTS_PER_LAYER,
};

/** Elements from a row of a tensor to the next. */
static inline int64_t dpe_tensor_stride(const struct dpe_tensor *tensor)
{
    return tensor->stride != 0 ? tensor->stride : tensor->cols;
}

/** The tensor and bias (data NULL when absent) of a weight of a layer. */
struct dpe_tensor dpe_layer_matrix(const struct dpe_layer_weights *layer, enum dpe_weight which);
struct dpe_tensor dpe_layer_bias(const struct dpe_layer_weights *layer, enum dpe_weight which);

#endif
