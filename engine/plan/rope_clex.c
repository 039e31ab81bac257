/* Frequencies of CLEX (Chen et al. 2024) as its released code has them: the logarithms of the
 * frequencies at t times the trained length are those at 1 plus an integral over a network, by the
 * 3/8 rule of Runge and Kutta. Here in double. */
#include "engine/base/base.h"
#include "engine/model/config/config.h"
#include "engine/plan/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How fast the logarithms x [n] change at t, to out [n]; room [n + width]. */
static void slope(const struct dpe_rope_clex *clex, int64_t n, double t, const double *x,
                  double *room, double *out)
{
    const double base = 10000.0; /* the released code's, whatever the model's is */
    double d = 2.0 * (double)n;
    double alpha = t < 1.0 ? 1.0 : 2.0 * t - 1.0;
    double *hidden = room + n;
    for (int64_t j = 0; j < n; j++) {
        double i = 2.0 * (double)j;
        double grown = pow(base * pow(alpha, d / (d - 2.0)), -i / d);
        double change = -2.0 * i / (d - 2.0) / (pow(base, i / d) * pow(alpha, i / (d - 2.0) + 1.0));
        room[j] = x[j] + log(grown);
        out[j] = change / grown;
    }
    memset(hidden, 0, (size_t)clex->width * sizeof *hidden);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t w = 0; w < clex->width; w++) {
            hidden[w] += room[j] * clex->up[j * clex->width + w];
        }
    }
    for (int64_t w = 0; w < clex->width; w++) {
        double h = clex->tanh ? tanh(hidden[w]) : hidden[w] / (1.0 + exp(-hidden[w]));
        for (int64_t j = 0; j < n; j++) {
            out[j] += h * clex->down[w * n + j];
        }
    }
}

/* One step of length h from t; k [4][n], at [n]. */
static void step(const struct dpe_rope_clex *clex, int64_t n, double t, double h, double *x,
                 double *k, double *at, double *room)
{
    double *k1 = k;
    double *k2 = k + n;
    double *k3 = k + 2 * n;
    double *k4 = k + 3 * n;
    slope(clex, n, t, x, room, k1);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * k1[j] / 3.0;
    }
    slope(clex, n, t + h / 3.0, at, room, k2);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * (k2[j] - k1[j] / 3.0);
    }
    slope(clex, n, t + 2.0 * h / 3.0, at, room, k3);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * (k1[j] - k2[j] + k3[j]);
    }
    slope(clex, n, t + h, at, room, k4);
    for (int64_t j = 0; j < n; j++) {
        x[j] += h * (k1[j] + 3.0 * (k2[j] + k3[j]) + k4[j]) / 8.0;
    }
}

dpe_status dpe_rope_clex(const struct dpe_rope_clex *clex, int64_t n, int64_t trained,
                         int64_t length, double *inv_freq, double *attention_factor,
                         struct dpe_error *err)
{
    if (clex == NULL || clex->inv_freq == NULL || n < 2 || trained < 2) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "rope scaling: clex expects the network among the weights, heads of 4 or "
                        "more components and a trained length of 2 or more");
    }
    double t = fmin(ceil((double)length / (double)trained), floor(clex->max_factor));
    double *x = dpe_alloc((size_t)(7 * n + clex->width), sizeof *x);
    if (x == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "rope scaling: out of memory for the network of clex");
    }
    for (int64_t j = 0; j < n; j++) {
        x[j] = log(clex->inv_freq[j]);
    }
    int64_t steps = t > 1.0 ? (int64_t)ceil((t - 1.0) / clex->step - 1e-9) : 0;
    for (int64_t i = 0; i < steps; i++) {
        double h = (t - 1.0) / (double)steps;
        step(clex, n, 1.0 + h * (double)i, h, x, x + n, x + 5 * n, x + 6 * n);
    }
    dpe_status status = DPE_OK;
    for (int64_t j = 0; j < n && status == DPE_OK; j++) {
        inv_freq[j] = exp(x[j]);
        if (!(inv_freq[j] > 0.0 && isfinite(inv_freq[j]))) {
            status = dpe_fail(err, DPE_BAD_DATA,
                              "rope scaling: clex: expected positive frequencies from its network, "
                              "found %g for pair %lld at %g times the trained length",
                              inv_freq[j], (long long)j, t);
        }
    }
    *attention_factor = 1.0;
    if (clex->log_scale) {
        double keys = length > 2 ? (double)length : 2.0;
        *attention_factor = sqrt(log(keys) / log((double)trained));
    }
    free(x);
    return status;
}
