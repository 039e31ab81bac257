/* The reference of what comes after attention: sinks, activations, experts. */
#include <math.h>
#include <string.h>

#include "engine/ops/ops_host.h"
#include "engine/ops/ops_reference.h"

/* ----------------------------------------------------------------------------- small operations */

void dpe_reference_scale(struct dpe_backend *backend, dpe_mem x, int64_t n, double factor)
{
    (void)backend;
    float *to = x;
    for (int64_t i = 0; i < n; i++) {
        to[i] = (float)((double)to[i] * factor);
    }
}

void dpe_reference_scale_part(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width,
                              int64_t from, int64_t n, double factor)
{
    for (int64_t r = 0; r < rows; r++) {
        dpe_reference_scale(backend, (float *)x + r * width + from, n, factor);
    }
}

void dpe_reference_add(struct dpe_backend *backend, dpe_mem x, dpe_mem y, int64_t n)
{
    (void)backend;
    float *to = x;
    const float *from = y;
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

void dpe_reference_sinks(struct dpe_backend *backend, int64_t layer, const float *lse, int64_t rows,
                         dpe_mem out)
{
    const struct dpe_config *c = backend->config;
    const struct dpe_tensor *sinks = &backend->weights->layers[layer].weight[DPE_WEIGHT_SINKS];
    float *to = out;
    for (int64_t i = 0; i < rows * c->n_heads; i++) {
        float sink = 0.0F;
        dpe_tensor_read(sinks, i % c->n_heads, 1, &sink);
        double share = 1.0 / (1.0 + exp((double)sink - (double)lse[i]));
        for (int64_t j = 0; j < c->head_dim; j++) {
            to[i * c->head_dim + j] = (float)((double)to[i * c->head_dim + j] * share);
        }
    }
}

static double activated(enum dpe_activation kind, double gate, double up)
{
    switch (kind) {
    case DPE_SWIGLU:
        return gate / (1.0 + exp(-gate)) * up;
    case DPE_GEGLU_TANH: {
        double inner = 0.79788456080286535588 * (gate + 0.044715 * gate * gate * gate);
        return 0.5 * gate * (1.0 + tanh(inner)) * up;
    }
    case DPE_SWIGLU_CLAMPED: {
        double g = fmin(gate, 7.0);
        return g / (1.0 + exp(-1.702 * g)) * (fmin(fmax(up, -7.0), 7.0) + 1.0);
    }
    }
    return 0.0;
}

void dpe_reference_activate(struct dpe_backend *backend, dpe_mem gate, dpe_mem up, int64_t rows)
{
    int64_t n = rows * backend->config->intermediate;
    float *g = gate;
    const float *u = up;
    for (int64_t i = 0; i < n; i++) {
        g[i] = (float)activated(backend->config->activation, (double)g[i], (double)u[i]);
    }
}

/* -------------------------------------------------------------------------------------- experts */

void dpe_experts_choose(const struct dpe_config *config, float *scores)
{
    int64_t n = config->n_experts;
    double total = 0.0;
    double chosen = 0.0;
    float largest = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        largest = scores[e] > largest ? scores[e] : largest;
    }
    for (int64_t e = 0; e < n; e++) {
        total += exp((double)scores[e] - (double)largest);
    }
    /* The chosen become -1 - weight, so that they are not chosen again; scores are then all > 0. */
    for (int64_t e = 0; e < n; e++) {
        scores[e] = (float)(exp((double)scores[e] - (double)largest) / total);
    }
    for (int64_t i = 0; i < config->experts_per_token; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; e++) {
            best = scores[e] >= 0.0F && (best < 0 || scores[e] > scores[best]) ? e : best;
        }
        if (best < 0) {
            break; /* scores that are not numbers */
        }
        chosen += (double)scores[best];
        scores[best] = -1.0F - scores[best];
    }
    for (int64_t e = 0; e < n; e++) {
        double weight = -1.0 - (double)scores[e];
        bool taken = !(scores[e] >= 0.0F);
        weight = config->experts_normalised ? weight / chosen : weight;
        scores[e] = taken ? (float)weight : 0.0F;
    }
}

static double dot(const struct dpe_tensor *weight, const struct dpe_tensor *bias, int64_t row,
                  const float *x)
{
    double sum = 0.0;
    float w = 0.0F;
    if (bias->data != NULL) {
        dpe_tensor_read(bias, row, 1, &w);
        sum = (double)w;
    }
    for (int64_t i = 0; i < weight->cols; i++) {
        dpe_tensor_read(weight, row * dpe_tensor_stride(weight) + i, 1, &w);
        sum += (double)w * (double)x[i];
    }
    return sum;
}

void dpe_reference_experts(struct dpe_backend *backend, int64_t layer,
                           const struct dpe_experts *args)
{
    const struct dpe_config *c = backend->config;
    const struct dpe_layer_weights *weights = &backend->weights->layers[layer];
    float *scores = args->scores;
    float *hidden = args->gate;
    for (int64_t r = 0; r < args->rows; r++) {
        const float *x = (const float *)args->x + r * c->hidden;
        float *out = (float *)args->out + r * c->hidden;
        for (int64_t e = 0; e < c->n_experts; e++) {
            scores[e] = (float)dot(&weights->weight[DPE_WEIGHT_ROUTER],
                                   &weights->bias[DPE_WEIGHT_ROUTER], e, x);
        }
        dpe_experts_choose(c, scores);
        for (int64_t e = 0; e < c->n_experts; e++) {
            const struct dpe_expert *expert = &weights->experts[e];
            if (scores[e] == 0.0F) {
                continue;
            }
            for (int64_t i = 0; i < c->intermediate; i++) {
                hidden[i] =
                    (float)activated(c->activation, dot(&expert->gate, &expert->gate_bias, i, x),
                                     dot(&expert->up, &expert->up_bias, i, x));
            }
            for (int64_t i = 0; i < c->hidden; i++) {
                double made = dot(&expert->down, &expert->down_bias, i, hidden);
                out[i] = (float)((double)out[i] + (double)scores[e] * made);
            }
        }
    }
}
