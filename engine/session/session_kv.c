/* The cache of a session that is a dpe_kv: its shape, and the constants of the channels of keys. */
#include "engine/session/session_internal.h"

#include <math.h>
#include <stdlib.h>

#include "engine/model/config/layer_weights.h"
#include "engine/ops/ops_host.h"

struct dpe_kv_shape dpe_session_kv_shape(const struct dpe_config *c, const struct dpe_plan *plan,
                                         const struct dpe_session_options *options)
{
    bool queries = dpe_selection_keeps_queries(&plan->selection);
    return (struct dpe_kv_shape){.type = options->kv_type,
                                 .layers = c->n_layers,
                                 .heads = c->n_kv_heads,
                                 .capacity = options->capacity,
                                 .width = c->head_dim,
                                 .query_heads = queries ? c->n_heads : 0,
                                 .query_capacity = queries ? options->capacity : 0};
}

/* The size of each channel of a layer's keys that its weights lead to expect: after a norm of keys
 * that norm's weight, else what the projection makes of a normalised row whose numbers do not
 * depend on each other. A function of the weights alone, so a key's code depends on nothing but the
 * key. */
static void find_channels(const struct dpe_session *s, int64_t layer, float *row, float *channels)
{
    const struct dpe_config *c = s->config;
    const struct dpe_tensor *weight = &s->weights->layers[layer].weight[DPE_WEIGHT_K];
    const struct dpe_tensor *bias = &s->weights->layers[layer].bias[DPE_WEIGHT_K];
    int64_t width = c->n_kv_heads * c->head_dim;
    float *scale = row + weight->cols;
    bool normed = dpe_layer_name(c, DPE_WEIGHT_ATTENTION_NORM) != NULL;
    if (normed) {
        dpe_tensor_read(dpe_norm_weight(s->weights, DPE_WEIGHT_ATTENTION_NORM, layer), 0,
                        weight->cols, scale);
    }
    if (c->qk_norm != DPE_QK_NORM_NONE) {
        const struct dpe_tensor *norm = dpe_norm_weight(s->weights, DPE_WEIGHT_K_NORM, layer);
        int64_t n = c->qk_norm == DPE_QK_NORM_HEAD ? c->head_dim : width;
        for (int64_t i = 0; i < width; i += n) {
            dpe_tensor_read(norm, 0, n, channels + i);
        }
    }
    for (int64_t i = 0; i < width; i++) {
        float size = fabsf(channels[i]);
        if (c->qk_norm == DPE_QK_NORM_NONE) {
            double squares = 0.0;
            float added = 0.0F;
            dpe_tensor_read(weight, i * dpe_tensor_stride(weight), weight->cols, row);
            for (int64_t j = 0; j < weight->cols; j++) {
                double x = (double)row[j] * (normed ? (double)scale[j] : 1.0);
                squares += x * x;
            }
            if (bias->data != NULL) {
                dpe_tensor_read(bias, i, 1, &added);
            }
            size = (float)sqrt(squares) + fabsf(added);
        }
        channels[i] = size > 1e-20F && isfinite(size) ? size : 1.0F;
    }
}

dpe_status dpe_session_kv_make(struct dpe_session *s, struct dpe_error *err)
{
    const struct dpe_kv_shape shape = dpe_session_kv_shape(s->config, &s->plan, &s->options);
    const char *folder = s->bytes.file > 0 ? s->options.kv_dir : NULL;
    dpe_status status = dpe_kv_create(&shape, folder, s->bytes.kv, &s->kv, err);
    if (status != DPE_OK || shape.type != DPE_KV_INT8) {
        return status;
    }
    int64_t width = shape.heads * shape.width;
    float *row = dpe_alloc((size_t)(2 * s->config->hidden), sizeof *row);
    float *channels = dpe_alloc_zero((size_t)width, sizeof *channels);
    if (row == NULL || channels == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory: channels of keys");
    }
    for (int64_t layer = 0; layer < shape.layers && status == DPE_OK; layer++) {
        find_channels(s, layer, row, channels);
        status = dpe_kv_set_channels(s->kv, layer, channels, err);
    }
    free(row);
    free(channels);
    return status;
}
