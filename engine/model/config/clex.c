/* Frequencies of CLEX (Chen et al. 2024) as its released code has them: the logarithms of the
 * frequencies at t times the trained length are those at 1 plus an integral over a network, by the
 * 3/8 rule of Runge and Kutta. Here in double. */
#include "engine/model/config/clex.h"
#include "engine/text/json.h"

#include <math.h>
#include <string.h>

/* How fast the logarithms x [n] change at t, to out [n]; room [n + width]. */
static void slope(const struct dpe_clex *clex, double t, const double *x, double *room, double *out)
{
    const double base = 10000.0; /* the released code's, whatever the model's is */
    int64_t n = clex->n;
    const double *up = clex->values + n;
    const double *down = up + n * clex->width;
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
            hidden[w] += room[j] * up[j * clex->width + w];
        }
    }
    for (int64_t w = 0; w < clex->width; w++) {
        double h = clex->tanh ? tanh(hidden[w]) : hidden[w] / (1.0 + exp(-hidden[w]));
        for (int64_t j = 0; j < n; j++) {
            out[j] += h * down[w * n + j];
        }
    }
}

/* One step of length h from t; k [4][n], at [n]. */
static void step(const struct dpe_clex *clex, double t, double h, double *x, double *k, double *at,
                 double *room)
{
    int64_t n = clex->n;
    double *k1 = k;
    double *k2 = k + n;
    double *k3 = k + 2 * n;
    double *k4 = k + 3 * n;
    slope(clex, t, x, room, k1);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * k1[j] / 3.0;
    }
    slope(clex, t + h / 3.0, at, room, k2);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * (k2[j] - k1[j] / 3.0);
    }
    slope(clex, t + 2.0 * h / 3.0, at, room, k3);
    for (int64_t j = 0; j < n; j++) {
        at[j] = x[j] + h * (k1[j] - k2[j] + k3[j]);
    }
    slope(clex, t + h, at, room, k4);
    for (int64_t j = 0; j < n; j++) {
        x[j] += h * (k1[j] + 3.0 * (k2[j] + k3[j]) + k4[j]) / 8.0;
    }
}

dpe_status dpe_clex_frequencies(const struct dpe_clex *clex, int64_t n, int64_t trained,
                                int64_t length, double *inv_freq, double *attention_factor,
                                struct dpe_error *err)
{
    if (clex == NULL || clex->values == NULL || n != clex->n || n < 2 || trained < 2) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "rope scaling: clex expects the network among the weights, heads of 4 or "
                        "more components and a trained length of 2 or more");
    }
    double t = fmin(ceil((double)length / (double)trained), floor(clex->most));
    DPE_OWNED double *x = NULL;
    DPE_TRY(DPE_NEW(&x, (size_t)(7 * n + clex->width), err,
                    "rope scaling: out of memory for the network of clex"));
    for (int64_t j = 0; j < n; j++) {
        x[j] = log(clex->values[j]);
    }
    int64_t steps = t > 1.0 ? (int64_t)ceil((t - 1.0) / clex->step - 1e-9) : 0;
    for (int64_t i = 0; i < steps; i++) {
        double h = (t - 1.0) / (double)steps;
        step(clex, 1.0 + h * (double)i, h, x, x + n, x + 5 * n, x + 6 * n);
    }
    for (int64_t j = 0; j < n; j++) {
        inv_freq[j] = exp(x[j]);
        if (!(inv_freq[j] > 0.0 && isfinite(inv_freq[j]))) {
            return dpe_fail(err, DPE_BAD_DATA,
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
    return DPE_OK;
}

struct dpe_clex *dpe_clex_read(struct dpe_json_reader *top, struct dpe_json_reader *rope, int64_t n)
{
    const struct dpe_json_bound times = {1.0, true, true, 1024.0};
    const struct dpe_json_bound small = {0.0, false, true, 1.0};
    struct dpe_clex *clex = dpe_alloc_zero(1, sizeof *clex);
    if (clex == NULL) {
        rope->status = dpe_fail(rope->err, DPE_NO_MEMORY, "%s: out of memory", rope->file);
        return NULL;
    }
    double most = dpe_json_number(rope, "max_factor", times, 1.0);
    double dt = dpe_json_number(rope, "time_dt", small, 1.0);
    double wide = dpe_json_number(rope, "param_factor", times, 1.0);
    const char *act = dpe_json_string(rope, "act", "");
    bool is_tanh = act != NULL && strcmp(act, "tanh") == 0;
    if (rope->status == DPE_OK && wide != floor(wide)) {
        dpe_json_expected(rope, "param_factor", "a whole number");
    } else if (rope->status == DPE_OK && dt < 1e-3) {
        dpe_json_expected(rope, "time_dt", "at least 0.001");
    } else if (rope->status == DPE_OK && !is_tanh && strcmp(act, "silu") != 0) {
        dpe_json_expected(rope, "act", "tanh or silu");
    }
    *clex = (struct dpe_clex){.most = most,
                              .step = dt,
                              .n = n,
                              .width = (int64_t)(wide * 2.0 * (double)n),
                              .tanh = is_tanh,
                              .log_scale = dpe_json_bool(top, "log_scale", true)};
    return clex;
}
