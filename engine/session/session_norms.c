/* 2-norms of queries and keys, summed over the tokens of texts: by the backend where it can, else
 * from the session's tap, or by the program that runs the model. */
#include "engine/session/session_internal.h"

#include <math.h>
#include <omp.h>

/* Square roots of eight pairs at once where the processor can: at the baseline's four they are the
 * larger part of what the sums add to a prefill. Contraction is off, so both give the same
 * bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* sum[j] += ‖x^(j)‖ over rows in their order; x is one head of the first row. The norm itself is a
 * float (its rounding averages out); the sum is not. */
WIDE static void add_norms(const float *x, int64_t stride, int64_t rows, int64_t n_pairs,
                           double *sum)
{
    for (int64_t t = 0; t < rows; t++) {
        const float *low = x + t * stride;
        const float *high = low + n_pairs;
        for (int64_t j = 0; j < n_pairs; j++) {
            sum[j] += (double)sqrtf(low[j] * low[j] + high[j] * high[j]);
        }
    }
}

/* sum[j] += ‖q^(j)‖·‖k^(j)‖ over rows in their order. */
WIDE static void add_products(const float *q, int64_t q_stride, const float *k, int64_t k_stride,
                              int64_t rows, int64_t n_pairs, double *sum)
{
    for (int64_t t = 0; t < rows; t++) {
        const float *q_low = q + t * q_stride;
        const float *q_high = q_low + n_pairs;
        const float *k_low = k + t * k_stride;
        const float *k_high = k_low + n_pairs;
        for (int64_t j = 0; j < n_pairs; j++) {
            float norm_q = sqrtf(q_low[j] * q_low[j] + q_high[j] * q_high[j]);
            float norm_k = sqrtf(k_low[j] * k_low[j] + k_high[j] * k_high[j]);
            sum[j] += (double)norm_q * (double)norm_k;
        }
    }
}

void dpe_norm_sums_add(const struct dpe_norm_sums *sums, const struct dpe_config *config,
                       int n_threads, int64_t layer, int64_t rows, const float *q, const float *k)
{
    int64_t n_pairs = config->head_dim / 2;
    int64_t head_dim = 2 * n_pairs;
    int64_t n_heads = config->n_heads;
    int64_t n_kv_heads = config->n_kv_heads;
    int64_t group = n_heads / n_kv_heads;
    bool products = sums->products;
    int64_t jobs = products ? n_heads : n_heads + n_kv_heads;
    double *sum_q = sums->q + layer * n_heads * n_pairs;
    double *sum_k = products ? NULL : sums->k + layer * n_kv_heads * n_pairs;
    /* Waking threads takes as long as some 100,000 norms. */
    bool many = jobs * rows * n_pairs > 1 << 18;
#pragma omp parallel for schedule(static) num_threads(n_threads) if (many)
    for (int64_t job = 0; job < jobs; job++) {
        if (products) {
            add_products(q + job * head_dim, n_heads * head_dim, k + job / group * head_dim,
                         n_kv_heads * head_dim, rows, n_pairs, sum_q + job * n_pairs);
        } else if (job < n_heads) {
            add_norms(q + job * head_dim, n_heads * head_dim, rows, n_pairs, sum_q + job * n_pairs);
        } else {
            int64_t kv = job - n_heads;
            add_norms(k + kv * head_dim, n_kv_heads * head_dim, rows, n_pairs,
                      sum_k + kv * n_pairs);
        }
    }
    sums->rows[layer] += rows;
}

/* A tap of its own, for backends without sums. */
struct adder {
    const struct dpe_norm_sums *sums;
    const struct dpe_config *config;
    int n_threads;
};

static dpe_status add_rows(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                           const float *k, struct dpe_error *err)
{
    const struct adder *adder = user;
    (void)start, (void)err;
    dpe_norm_sums_add(adder->sums, adder->config, adder->n_threads, layer, rows, q, k);
    return DPE_OK;
}

static dpe_status run_text(struct dpe_session *s, const struct dpe_norm_text *text,
                           struct dpe_error *err)
{
    struct adder adder = {&text->sums, dpe_model_config(s->model), s->options.n_threads};
    dpe_tap tap = s->tap;
    void *tap_user = s->tap_user;
    if (!dpe_session_set_norm_sums(s, &text->sums)) {
        dpe_session_set_tap(s, add_rows, &adder);
    }
    dpe_status status = dpe_session_cut(s, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_feed(s, text->ids, text->n, NULL, err);
    }
    dpe_session_set_norm_sums(s, NULL);
    dpe_session_set_tap(s, tap, tap_user);
    return status;
}

dpe_status dpe_session_norms(struct dpe_session *session, const struct dpe_norm_text *texts,
                             int64_t n, struct dpe_error *err)
{
    if (session->remote != NULL) {
        return session->remote->norms(session->remote->user, session->config, texts, n, err);
    }
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(run_text(session, &texts[i], err));
    }
    return DPE_OK;
}
