/* Sums of the 2-norms of the pairs of queries and keys, on the host. */
#include "engine/ops/ops_host.h"
#include "engine/ops/ops_reference.h"

#include <math.h>

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

void dpe_norms_add(const struct dpe_config *config, int n_threads, const float *q, const float *k,
                   int64_t rows, bool products, double *sum_q, double *sum_k)
{
    int64_t n_pairs = config->head_dim / 2;
    int64_t head_dim = 2 * n_pairs;
    int64_t n_heads = config->n_heads;
    int64_t n_kv_heads = config->n_kv_heads;
    int64_t group = n_heads / n_kv_heads;
    int64_t jobs = products ? n_heads : n_heads + n_kv_heads;
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
}

void dpe_reference_sum_norms(struct dpe_backend *backend, dpe_mem q, dpe_mem k, int64_t rows,
                             bool products, double *sum_q, double *sum_k)
{
    dpe_norms_add(backend->config, backend->n_threads, q, k, rows, products, sum_q, sum_k);
}
