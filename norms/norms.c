/* Streaming 2-norm profile of queries and keys, and what is cut from it. */
#include "norms/norms.h"
#include "engine/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

struct dpe_norms {
    enum dpe_contribution kind;
    int n_threads;
    int64_t n_layers, n_heads, n_kv_heads, n_pairs;
    int64_t rotating; /* the first so many pairs; the others have no part in positions: 0 */
    /* Sums over tokens: of ‖q‖ [layer][head][pair] and ‖k‖ [layer][kv_head][pair], or, for means of
     * products, of ‖q‖·‖k‖ in sum_q alone. */
    double *sum_q, *sum_k;
    int64_t *tokens; /* [layer] */
};

const char *dpe_contribution_name(enum dpe_contribution kind)
{
    return kind == DPE_PRODUCT_OF_MEANS ? "product-of-means" : "mean-of-products";
}

bool dpe_contribution_parse(const char *name, enum dpe_contribution *kind)
{
    for (int i = DPE_PRODUCT_OF_MEANS; i <= DPE_MEAN_OF_PRODUCTS; i++) {
        if (strcmp(name, dpe_contribution_name((enum dpe_contribution)i)) == 0) {
            *kind = (enum dpe_contribution)i;
            return true;
        }
    }
    return false;
}

dpe_status dpe_norms_create(const struct dpe_config *config, enum dpe_contribution kind,
                            int n_threads, struct dpe_norms **norms, struct dpe_error *err)
{
    struct dpe_norms *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the norm profile");
    }
    made->kind = kind;
    made->n_threads = n_threads > 0 ? n_threads : dpe_limit_processors(omp_get_max_threads());
    made->n_layers = config->n_layers;
    made->n_heads = config->n_heads;
    made->n_kv_heads = config->n_kv_heads;
    made->n_pairs = config->head_dim / 2;
    made->rotating = dpe_config_pairs(config);
    size_t per_layer = (size_t)(made->n_heads * made->n_pairs);
    size_t per_layer_k = (size_t)(made->n_kv_heads * made->n_pairs);
    made->sum_q = dpe_alloc_zero((size_t)made->n_layers, per_layer * sizeof *made->sum_q);
    made->sum_k = dpe_alloc_zero((size_t)made->n_layers, per_layer_k * sizeof *made->sum_k);
    made->tokens = dpe_alloc_zero((size_t)made->n_layers, sizeof *made->tokens);
    if (made->sum_q == NULL || made->sum_k == NULL || made->tokens == NULL) {
        dpe_norms_destroy(made);
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for the norm profile");
    }
    *norms = made;
    return DPE_OK;
}

void dpe_norms_destroy(struct dpe_norms *norms)
{
    if (norms != NULL) {
        free(norms->sum_q);
        free(norms->sum_k);
        free(norms->tokens);
        free(norms);
    }
}

int64_t dpe_norms_size(const struct dpe_norms *norms)
{
    return norms->n_layers * norms->n_heads * norms->n_pairs;
}

void dpe_norms_reset(struct dpe_norms *norms)
{
    size_t size_q = (size_t)dpe_norms_size(norms);
    size_t size_k = (size_t)(norms->n_layers * norms->n_kv_heads * norms->n_pairs);
    memset(norms->sum_q, 0, size_q * sizeof *norms->sum_q);
    memset(norms->sum_k, 0, size_k * sizeof *norms->sum_k);
    memset(norms->tokens, 0, (size_t)norms->n_layers * sizeof *norms->tokens);
}

/* Square roots of eight pairs at once where the processor can: at the baseline's four they are the
 * larger part of what the profile adds to a prefill. Contraction is off, so both give the same
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

dpe_status dpe_norms_tap(void *user, int64_t layer, int64_t start, int64_t rows, const float *q,
                         const float *k, struct dpe_error *err)
{
    (void)start, (void)err;
    struct dpe_norms *norms = user;
    int64_t n_pairs = norms->n_pairs;
    int64_t head_dim = 2 * n_pairs;
    int64_t n_heads = norms->n_heads;
    int64_t n_kv_heads = norms->n_kv_heads;
    int64_t group = n_heads / n_kv_heads;
    bool products = norms->kind == DPE_MEAN_OF_PRODUCTS;
    int64_t jobs = products ? n_heads : n_heads + n_kv_heads;
    double *sum_q = norms->sum_q + layer * n_heads * n_pairs;
    double *sum_k = norms->sum_k + layer * n_kv_heads * n_pairs;
    /* Waking threads takes as long as some 100,000 norms. */
    bool many = jobs * rows * n_pairs > 1 << 18;
#pragma omp parallel for schedule(static) num_threads(norms->n_threads) if (many)
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
    norms->tokens[layer] += rows;
    return DPE_OK;
}

void dpe_norms_attach(struct dpe_norms *norms, struct dpe_session *session)
{
    bool products = norms->kind == DPE_MEAN_OF_PRODUCTS;
    const struct dpe_norm_sums sums = {products, norms->sum_q, products ? NULL : norms->sum_k,
                                       norms->tokens};
    bool by_itself = dpe_session_set_norm_sums(session, &sums);
    dpe_session_set_tap(session, by_itself ? NULL : dpe_norms_tap, norms);
}

dpe_status dpe_norms_finish(const struct dpe_norms *norms, double *scores, struct dpe_error *err)
{
    int64_t group = norms->n_heads / norms->n_kv_heads;
    for (int64_t layer = 0; layer < norms->n_layers; layer++) {
        if (norms->tokens[layer] == 0) {
            return dpe_fail(err, DPE_INTERNAL, "layer %lld received no token", (long long)layer);
        }
        double n = (double)norms->tokens[layer];
        for (int64_t head = 0; head < norms->n_heads; head++) {
            int64_t at = (layer * norms->n_heads + head) * norms->n_pairs;
            const double *k =
                norms->sum_k + (layer * norms->n_kv_heads + head / group) * norms->n_pairs;
            for (int64_t j = 0; j < norms->n_pairs; j++) {
                double mean_q = norms->sum_q[at + j] / n;
                double score = norms->kind == DPE_MEAN_OF_PRODUCTS ? mean_q : mean_q * (k[j] / n);
                if (!isfinite(score)) {
                    dpe_fail(err, DPE_NONFINITE, "layer %lld, head %lld: a norm is not finite",
                             (long long)layer, (long long)head);
                    if (err != NULL) {
                        err->layer = (int)layer;
                    }
                    return DPE_NONFINITE;
                }
                scores[at + j] = j < norms->rotating ? score : 0.0;
            }
        }
    }
    return DPE_OK;
}

void dpe_norms_mean(const double *const *tables, size_t n, int64_t size, double *mean, double *sem)
{
    for (int64_t i = 0; i < size; i++) {
        double sum = 0.0;
        size_t valid = 0;
        for (size_t t = 0; t < n; t++) {
            if (tables[t] != NULL) {
                sum += tables[t][i];
                valid++;
            }
        }
        mean[i] = valid > 0 ? sum / (double)valid : (double)NAN;
        double squares = 0.0;
        for (size_t t = 0; t < n; t++) {
            if (tables[t] != NULL) {
                squares += (tables[t][i] - mean[i]) * (tables[t][i] - mean[i]);
            }
        }
        sem[i] = valid > 1 ? sqrt(squares / (double)(valid - 1) / (double)valid) : (double)NAN;
    }
}

struct ranked {
    double score;
    uint16_t pair;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return (x->pair > y->pair) - (x->pair < y->pair);
}

void dpe_norms_rank(const double *mean, int64_t n_rows, int64_t n_pairs, uint16_t *ranking)
{
    /* A head has at most 512 pairs (head_dim ≤ 1024): a bound of the configuration reader. */
    struct ranked order[512];
    for (int64_t row = 0; row < n_rows; row++) {
        for (int64_t j = 0; j < n_pairs; j++) {
            order[j] = (struct ranked){mean[row * n_pairs + j], (uint16_t)j};
        }
        qsort(order, (size_t)n_pairs, sizeof order[0], by_score);
        for (int64_t j = 0; j < n_pairs; j++) {
            ranking[row * n_pairs + j] = order[j].pair;
        }
    }
}

double dpe_norms_entropy(const double *scores, int64_t n_pairs)
{
    double total = 0.0;
    for (int64_t j = 0; j < n_pairs; j++) {
        total += scores[j];
    }
    double entropy = 0.0;
    for (int64_t j = 0; j < n_pairs && total > 0.0; j++) {
        double share = scores[j] / total;
        entropy -= share > 0.0 ? share * log2(share) : 0.0;
    }
    return entropy;
}

double dpe_norms_share(const double *scores, const uint16_t *ranking, int64_t n_pairs, int64_t k)
{
    double total = 0.0;
    double held = 0.0;
    for (int64_t i = 0; i < n_pairs; i++) {
        total += scores[ranking[i]];
        held += i < k ? scores[ranking[i]] : 0.0;
    }
    return total > 0.0 ? held / total : (double)NAN;
}
