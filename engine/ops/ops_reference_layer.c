/* The reference of what a layer does around attention: sums of norms, the cache, sinks,
 * activations, experts. */
#include <math.h>
#include <string.h>

#include "engine/ops/ops_host.h"

/* ----------------------------------------------------------------------------- small operations */

void dpe_reference_scale(struct dpe_backend *backend, dpe_mem x, int64_t n, double factor)
{
    (void)backend;
    float *to = x;
    for (int64_t i = 0; i < n; i++) {
        to[i] = factor == 0.0 ? 0.0F : (float)((double)to[i] * factor);
    }
}

void dpe_reference_scale_part(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width,
                              int64_t from, int64_t n, double factor)
{
    for (int64_t r = 0; r < rows; r++) {
        dpe_reference_scale(backend, (float *)x + r * width + from, n, factor);
    }
}

void dpe_reference_centre(struct dpe_backend *backend, dpe_mem x, int64_t rows, int64_t width)
{
    (void)backend;
    for (int64_t r = 0; r < rows; r++) {
        float *row = (float *)x + r * width;
        double sum = 0.0;
        for (int64_t i = 0; i < width; i++) {
            sum += (double)row[i];
        }
        for (int64_t i = 0; i < width; i++) {
            row[i] = (float)((double)row[i] - sum / (double)width);
        }
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

void dpe_reference_activate(struct dpe_backend *backend, dpe_mem gate, dpe_mem up, int64_t rows,
                            int64_t width)
{
    int64_t n = rows * width;
    float *g = gate;
    const float *u = up;
    for (int64_t i = 0; i < n; i++) {
        g[i] = (float)activated(backend->config->activation, (double)g[i], (double)u[i]);
    }
}

/* -------------------------------------------------------------------------------------- experts */

/* The two largest of a group's keys, added up. */
static double group_score(const float *keys, int64_t n)
{
    double first = -(double)INFINITY;
    double second = -(double)INFINITY;
    for (int64_t e = 0; e < n; e++) {
        const double key = (double)keys[e];
        second = fmax(second, fmin(first, key));
        first = fmax(first, key);
    }
    return first + second;
}

/* Keys of the groups that are not chosen become −∞. */
static void choose_groups(const struct dpe_router *router, int64_t n, float *keys)
{
    double scores[DPE_MOST_ROUTER_GROUPS];
    const int64_t each = n / router->groups;
    for (int64_t g = 0; g < router->groups; g++) {
        scores[g] = group_score(keys + g * each, each);
    }
    for (int64_t g = 0; g < router->groups; g++) {
        int64_t before = 0;
        for (int64_t h = 0; h < router->groups; h++) {
            before += scores[h] > scores[g] || (scores[h] == scores[g] && h < g);
        }
        for (int64_t e = 0; before >= router->of_these && e < each; e++) {
            keys[g * each + e] = -INFINITY;
        }
    }
}

static void weigh(const struct dpe_router *router, int64_t n, float *scores)
{
    double total = 0.0;
    float largest = -INFINITY;
    for (int64_t e = 0; !router->sigmoid && e < n; e++) {
        largest = scores[e] > largest ? scores[e] : largest;
    }
    for (int64_t e = 0; !router->sigmoid && e < n; e++) {
        total += exp((double)scores[e] - (double)largest);
    }
    for (int64_t e = 0; e < n; e++) {
        const double score = (double)scores[e];
        scores[e] = (float)(router->sigmoid ? 1.0 / (1.0 + exp(-score))
                                            : exp(score - (double)largest) / total);
    }
}

void dpe_experts_choose(const struct dpe_config *config, const struct dpe_tensor *shift,
                        const struct dpe_tensor *factors, float *scores)
{
    const struct dpe_router *router = &config->router;
    const double scale = router->scale > 0.0 ? router->scale : 1.0;
    int64_t n = config->n_experts;
    float keys[DPE_MOST_EXPERTS];
    double chosen = 0.0;
    memcpy(keys, scores, (size_t)n * sizeof *keys);
    weigh(router, n, scores);
    if (shift->data != NULL) {
        dpe_tensor_read(shift, 0, n, keys);
    }
    for (int64_t e = 0; e < n && !router->before; e++) {
        keys[e] = shift->data != NULL ? keys[e] + scores[e] : scores[e];
    }
    if (router->groups > 1) {
        choose_groups(router, n, keys);
    }
    /* The keys of the chosen become ∞. One that is no number counts as chosen, so that it is found
     * (of a row's experts no more than it takes). */
    for (int64_t i = 0; i < config->experts_per_token; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n; e++) {
            best = keys[e] < INFINITY && (best < 0 || keys[e] > keys[best]) ? e : best;
        }
        if (best < 0) {
            break;
        }
        chosen += (double)scores[best];
        keys[best] = INFINITY;
    }
    for (int64_t e = 0, left = config->experts_per_token; e < n; e++) {
        const double of = config->experts_normalised ? chosen + 1e-20 : 1.0;
        const bool taken = !(keys[e] < INFINITY) && left-- > 0;
        float factor = 1.0F;
        if (factors->data != NULL) {
            dpe_tensor_read(factors, e, 1, &factor);
        }
        scores[e] = taken ? (float)((double)scores[e] / of * scale * (double)factor) : 0.0F;
    }
}

static double dot(const struct dpe_tensor *weight, const struct dpe_tensor *bias, int64_t row,
                  const float *x)
{
    float b = 0.0F;
    if (bias->data != NULL) {
        dpe_tensor_read(bias, row, 1, &b);
    }
    return dpe_reference_dot(weight, row, x, (double)b);
}

void dpe_reference_experts(struct dpe_backend *backend, int64_t layer,
                           const struct dpe_experts *args)
{
    const struct dpe_config *c = backend->config;
    const struct dpe_layer_weights *weights = &backend->weights->layers[layer];
    float *scores = args->scores;
    float *hidden = args->gate;
    const struct dpe_tensor *shift = &weights->weight[DPE_WEIGHT_ROUTER_SHIFT];
    const struct dpe_tensor *factors = &weights->weight[DPE_WEIGHT_EXPERT_SCALE];
    for (int64_t r = 0; r < args->rows; r++) {
        const float *x = (const float *)args->x + r * c->hidden;
        const float *routed = (const float *)args->routed + r * c->hidden;
        float *out = (float *)args->out + r * c->hidden;
        for (int64_t e = 0; e < c->n_experts; e++) {
            scores[e] = (float)dot(&weights->weight[DPE_WEIGHT_ROUTER],
                                   &weights->bias[DPE_WEIGHT_ROUTER], e, routed);
        }
        dpe_experts_choose(c, shift, factors, scores);
        for (int64_t e = 0; e < c->n_experts; e++) {
            const struct dpe_expert *expert = &weights->experts[e];
            if (scores[e] == 0.0F) {
                continue;
            }
            /* what it reads times a weight: without biases its products times that weight */
            const double in = c->router.before ? (double)scores[e] : 1.0;
            const double after = c->router.before ? 1.0 : (double)scores[e];
            for (int64_t i = 0; i < c->expert_width; i++) {
                hidden[i] = (float)activated(c->activation,
                                             in * dot(&expert->gate, &expert->gate_bias, i, x),
                                             in * dot(&expert->up, &expert->up_bias, i, x));
            }
            for (int64_t i = 0; i < c->hidden; i++) {
                double made = dot(&expert->down, &expert->down_bias, i, hidden);
                out[i] = (float)((double)out[i] + after * made);
            }
        }
    }
}

/* ----------------------------------- the cache: what a batch adds to it, and copies within it */

/* Keys, values and the queries that are kept: their heads, where a batch has them and where they
 * go. */
struct moved {
    int64_t heads;
    const float *from;
    float *cache;
};

static int list_moved(const struct dpe_backend *backend, const struct dpe_store *args,
                      struct moved moved[DPE_KV_PARTS])
{
    const int64_t kv_heads = dpe_config_kv_heads(backend->config, args->layer);
    const bool queries = args->kv != NULL ? args->keeps_queries : args->cache_q != NULL;
    moved[DPE_KV_KEYS] = (struct moved){kv_heads, args->k, args->cache_k};
    moved[DPE_KV_VALUES] = (struct moved){kv_heads, args->v, args->cache_v};
    moved[DPE_KV_QUERIES] = (struct moved){backend->config->n_heads, args->q, args->cache_q};
    return queries ? DPE_KV_PARTS : DPE_KV_QUERIES;
}

/* Runs of a branch, or single rows of several. */
void dpe_reference_store_kv(struct dpe_backend *backend, const struct dpe_batch *batch,
                            const struct dpe_store *args)
{
    struct moved moved[DPE_KV_PARTS];
    const int n = list_moved(backend, args, moved);
    const int64_t d = dpe_config_head_dim(backend->config, args->layer);
    const int64_t run = batch->positions != NULL ? 1 : batch->rows;
    for (int64_t r = 0; r < batch->rows; r += run) {
        int64_t row = batch->positions != NULL ? batch->positions[r] + batch->offsets[r]
                                               : batch->start + batch->offset;
        for (int part = 0; part < n; part++) {
            const struct moved *m = &moved[part];
            for (int64_t h = 0; h < m->heads; h++) {
                const struct dpe_kv_rows rows = {(enum dpe_kv_part)part, args->kv_layer, h, row,
                                                 run};
                const float *from = m->from + (r * m->heads + h) * d;
                if (args->kv != NULL) {
                    dpe_kv_write(args->kv, &rows, from, m->heads * d);
                }
                for (int64_t i = 0; args->kv == NULL && i < run; i++) {
                    memcpy(m->cache + (h * args->capacity + row + i) * d, from + i * m->heads * d,
                           (size_t)d * sizeof *from);
                }
            }
        }
    }
}

void dpe_reference_copy_kv(struct dpe_backend *backend, const struct dpe_store *args, int64_t from,
                           int64_t to, int64_t rows)
{
    struct moved moved[DPE_KV_PARTS];
    const int n = list_moved(backend, args, moved);
    const int64_t d = dpe_config_head_dim(backend->config, args->layer);
    for (int part = 0; part < n; part++) {
        for (int64_t h = 0; h < moved[part].heads; h++) {
            const struct dpe_kv_rows all = {(enum dpe_kv_part)part, args->kv_layer, h, from, rows};
            if (args->kv != NULL) {
                dpe_kv_copy(args->kv, &all, to);
            } else {
                float *head = moved[part].cache + h * args->capacity * d;
                memcpy(head + to * d, head + from * d, (size_t)(rows * d) * sizeof *head);
            }
        }
    }
}

/* ------------------------------------------------------------------------------ sums of norms */

/* sum[j] += ‖x^(j)‖ over rows in their order; x is one head of the first row. The norm itself is a
 * float (its rounding averages out); the sum is not. Square roots of eight pairs at once where the
 * processor can: at the baseline's four they are the larger part of what the sums add to a prefill.
 */
DPE_WIDE("avx2")
static void add_norms(const float *x, int64_t stride, int64_t rows, int64_t n_pairs, double *sum)
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
DPE_WIDE("avx2")
static void add_products(const float *q, int64_t q_stride, const float *k, int64_t k_stride,
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
