/* Weights by meaning. */
#include "engine/model/layer_weights.h"
#include "engine/model/model.h"

struct dpe_tensor dpe_layer_matrix(const struct dpe_layer_weights *layer, enum dpe_weight which)
{
    const struct dpe_tensor none = {0};
    switch (which) {
    case DPE_WEIGHT_Q:
        return layer->q;
    case DPE_WEIGHT_K:
        return layer->k;
    case DPE_WEIGHT_V:
        return layer->v;
    case DPE_WEIGHT_O:
        return layer->o;
    case DPE_WEIGHT_GATE:
        return layer->gate;
    case DPE_WEIGHT_UP:
        return layer->up;
    case DPE_WEIGHT_DOWN:
        return layer->down;
    case DPE_WEIGHTS_PER_LAYER:
        break;
    }
    return none;
}

struct dpe_tensor dpe_layer_bias(const struct dpe_layer_weights *layer, enum dpe_weight which)
{
    const struct dpe_tensor none = {0};
    switch (which) {
    case DPE_WEIGHT_Q:
        return layer->q_bias;
    case DPE_WEIGHT_K:
        return layer->k_bias;
    case DPE_WEIGHT_V:
        return layer->v_bias;
    case DPE_WEIGHT_O:
        return layer->o_bias;
    case DPE_WEIGHT_GATE:
        return layer->gate_bias;
    case DPE_WEIGHT_UP:
        return layer->up_bias;
    case DPE_WEIGHT_DOWN:
        return layer->down_bias;
    case DPE_WEIGHTS_PER_LAYER:
        break;
    }
    return none;
}
