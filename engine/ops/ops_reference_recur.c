/* The reference of layers with a state: token by token, directly from the definition
 * (engine/model/config/recurrent.h). */
#include <math.h>
#include <string.h>

#include "engine/ops/ops_host.h"

void dpe_reference_output_gate(struct dpe_backend *backend, dpe_mem out, dpe_mem gate, int64_t n,
                               int64_t each)
{
    (void)backend;
    float *to = out;
    const float *from = gate;
    for (int64_t i = 0; i < n * each; i++) {
        to[i] = (float)((double)to[i] / (1.0 + exp(-(double)from[i / each])));
    }
}

void dpe_reference_copy_state(struct dpe_backend *backend, dpe_mem to, dpe_mem from, uint64_t bytes)
{
    (void)backend;
    if (from == NULL) {
        memset(to, 0, (size_t)bytes);
    } else {
        memcpy(to, from, (size_t)bytes);
    }
}

/* A token's q, k and v after the convolution, and what its state gives k. */
uint64_t dpe_reference_recur_workspace(const struct dpe_config *config, int64_t rows, int n_threads)
{
    const struct dpe_recurrent *r = &config->recurrent;
    (void)rows, (void)n_threads;
    return (uint64_t)(2 * dpe_recurrent_keys(r) + dpe_recurrent_values(r) + r->value_dim) *
           sizeof(double);
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* The channels of x [n] of a token, convolved with those before it in the tail (whose rows have
 * `channels` numbers and end with the last token), which x then joins. */
static void convolve(const struct dpe_recurrent *r, const struct dpe_tensor *weight, const float *x,
                     int64_t n, float *tail, int64_t channels, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < r->width; t++) {
            float w = 0.0F;
            dpe_tensor_read(weight, i * r->width + t, 1, &w);
            float *before = tail + t * channels + i;
            sum += (double)w * (double)(t + 1 < r->width ? *before : x[i]);
            if (t + 1 < r->width) {
                *before = t + 2 < r->width ? before[channels] : x[i];
            }
        }
        out[i] = silu(sum);
    }
}

static void normalise(double *x, int64_t n, double factor)
{
    double squares = 1e-6;
    for (int64_t i = 0; i < n; i++) {
        squares += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] *= factor / sqrt(squares);
    }
}

/* One token of one value head: the state's numbers are rounded to float once. */
static void update(const struct dpe_recurrent *r, float *state, const double *q, const double *k,
                   const double *v, double kept, double beta, double *read, float *out)
{
    for (int64_t j = 0; j < r->value_dim; j++) {
        read[j] = 0.0;
        for (int64_t i = 0; i < r->key_dim; i++) {
            read[j] += kept * (double)state[i * r->value_dim + j] * k[i];
        }
    }
    for (int64_t j = 0; j < r->value_dim; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < r->key_dim; i++) {
            float *s = &state[i * r->value_dim + j];
            double after = kept * (double)*s + k[i] * beta * (v[j] - read[j]);
            sum += after * q[i];
            *s = (float)after;
        }
        out[j] = (float)sum;
    }
}

static void gate_head(const struct dpe_recurrent *r, const struct dpe_tensor *norm,
                      const float *gate, float *out)
{
    double squares = 0.0;
    for (int64_t j = 0; j < r->value_dim; j++) {
        squares += (double)out[j] * (double)out[j];
    }
    const double scale = 1.0 / sqrt(squares / (double)r->value_dim + r->eps);
    for (int64_t j = 0; j < r->value_dim; j++) {
        float w = 0.0F;
        dpe_tensor_read(norm, j, 1, &w);
        out[j] = (float)((double)out[j] * scale * (double)w * silu((double)gate[j]));
    }
}

/* Token `row` of a call, after those before it. */
static void recur_token(struct dpe_backend *backend, const struct dpe_recurrence *args, int64_t row)
{
    const struct dpe_recurrent *r = &backend->config->recurrent;
    const struct dpe_tensor *w = backend->weights->layers[args->layer].weight;
    const int64_t keys = dpe_recurrent_keys(r);
    const int64_t values = dpe_recurrent_values(r);
    const int64_t channels = 2 * keys + values;
    float *tail = (float *)args->states +
                  (args->which != NULL ? args->which[row] : args->state) * dpe_recurrent_floats(r);
    double *q = args->workspace;
    double *k = q + keys;
    double *v = k + keys;
    convolve(r, &w[DPE_WEIGHT_CONVOLUTION_Q], (const float *)args->q + row * keys, keys, tail,
             channels, q);
    convolve(r, &w[DPE_WEIGHT_CONVOLUTION_K], (const float *)args->k + row * keys, keys,
             tail + keys, channels, k);
    convolve(r, &w[DPE_WEIGHT_CONVOLUTION_V], (const float *)args->v + row * values, values,
             tail + 2 * keys, channels, v);
    for (int64_t h = 0; h < r->key_heads; h++) {
        normalise(q + h * r->key_dim, r->key_dim, 1.0 / sqrt((double)r->key_dim));
        normalise(k + h * r->key_dim, r->key_dim, 1.0);
    }
    for (int64_t i = 0; i < r->value_heads; i++) {
        const int64_t of = i % r->key_heads;
        const int64_t key = of * r->key_dim;
        const int64_t h = dpe_recurrent_head(r, of, i / r->key_heads);
        const int64_t at = row * values + h * r->value_dim;
        float rate = 0.0F;
        float step = 0.0F;
        dpe_tensor_read(&w[DPE_WEIGHT_RATE], h, 1, &rate);
        dpe_tensor_read(&w[DPE_WEIGHT_STEP], h, 1, &step);
        const double decay =
            (double)((const float *)args->decay)[row * r->value_heads + h] + (double)step;
        const double softplus = decay > 20.0 ? decay : log1p(exp(decay));
        const double beta =
            (r->doubled ? 2.0 : 1.0) /
            (1.0 + exp(-(double)((const float *)args->beta)[row * r->value_heads + h]));
        float *out = (float *)args->out + at;
        update(r, tail + dpe_recurrent_tail(r) + h * r->key_dim * r->value_dim, q + key, k + key,
               v + h * r->value_dim, exp((double)rate * softplus), beta, v + values, out);
        gate_head(r, &w[DPE_WEIGHT_OUTPUT_NORM], (const float *)args->gate + at, out);
    }
}

void dpe_reference_recur(struct dpe_backend *backend, const struct dpe_recurrence *args)
{
    for (int64_t row = 0; row < args->rows; row++) {
        recur_token(backend, args, row);
    }
}
