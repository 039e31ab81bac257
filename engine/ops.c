/* What every backend needs: how it is found, weights by meaning, and as float. */
#include "ops_host.h"

#include <stdio.h>

dpe_status dpe_ops_find(const char *device, const struct dpe_ops **ops, struct dpe_error *err)
{
    /* The first is the default. */
    const struct dpe_ops *const all[] = {
        dpe_ops_cpu(),
        dpe_ops_reference(),
    };
    size_t n = sizeof all / sizeof all[0];
    char known[256] = "";
    for (size_t i = 0; i < n; i++) {
        if (device == NULL || strcmp(device, all[i]->name) == 0) {
            *ops = all[i];
            return DPE_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", all[i]->name);
    }
    return dpe_fail(err, DPE_NO_DEVICE, "unknown device \"%.64s\"; there are %s", device, known);
}

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

void dpe_tensor_read(const struct dpe_tensor *tensor, int64_t first, int64_t n, float *out)
{
    const uint16_t *half = (const uint16_t *)tensor->data + first;
    switch (tensor->dtype) {
    case DPE_F32:
        memcpy(out, (const float *)tensor->data + first, (size_t)n * sizeof *out);
        break;
    case DPE_F16:
        for (int64_t i = 0; i < n; i++) {
            out[i] = dpe_from_f16(half[i]);
        }
        break;
    case DPE_BF16:
        for (int64_t i = 0; i < n; i++) {
            out[i] = dpe_from_bf16(half[i]);
        }
        break;
    }
}
