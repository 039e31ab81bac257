/* The slots that compute, except attention: embedding, norms, products, the head, norm sums, routed
 * experts. */
#include "engine/cuda/host/backend.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/ops/ops_head.h"

#include <math.h>

void dpe_cuda_embed(struct dpe_backend *b, const struct dpe_batch *batch, dpe_mem x)
{
    DPE_CUDA_LAUNCH(
        b, dpe_kernel_embed(b->dtype, b->embedding, b->tokens, batch->rows, b->config->hidden, x));
}

void dpe_cuda_rmsnorm(struct dpe_backend *b, enum dpe_weight which, int64_t layer, int64_t width,
                      dpe_mem x, int64_t rows, dpe_mem out)
{
    const float *weight =
        which == DPE_WEIGHT_FINAL_NORM ? b->final_norm : b->layers[layer].weight[which];
    const float eps = (float)dpe_norm_eps(b->config, which);
    const bool heads = which == DPE_WEIGHT_Q_NORM || which == DPE_WEIGHT_K_NORM ||
                       which == DPE_WEIGHT_V_NORM || which == DPE_WEIGHT_INPUT_NORM;
    if (rows > 0 && heads) { /* of the model's dtype, in place */
        DPE_CUDA_LAUNCH(b, dpe_kernel_head_norm(b->dtype, out, weight, rows, width, eps));
    } else if (rows > 0) {
        struct dpe_cuda_pending *p = &b->pending;
        /* Whether the layer before asks for what is not finite in these rows. */
        const bool asked = p->x == x && p->rows == rows && p->width == width;
        p->x = asked ? NULL : p->x;
        DPE_CUDA_LAUNCH(b, dpe_kernel_rmsnorm(b->dtype, x, weight, rows, width, eps, out, p->layer,
                                              asked ? b->nonfinite : NULL));
    }
}

void dpe_cuda_add_inputs(struct dpe_backend *b, const struct dpe_batch *batch, int64_t layer,
                         int64_t first, dpe_mem x)
{
    const int64_t width = b->config->input_width;
    DPE_CUDA_LAUNCH(b, dpe_kernel_add_rows(b->dtype, x,
                                           b->layers[layer].weight[DPE_WEIGHT_INPUT_TABLE],
                                           b->tokens + first, batch->rows - first, width,
                                           (float)sqrt(0.5 * (double)width)));
}

/* A product by cuBLAS, or of few rows by a kernel of our own. */
static void product_of(struct dpe_backend *b, const struct dpe_rt_product *p)
{
    if (b->ways.few && p->rows <= DPE_FEW_ROWS && p->k % 8 == 0) {
        const struct dpe_few_product few = {
            .dtype = p->dtype,
            .out_float = p->out_float,
            .accumulate = p->accumulate,
            .x = p->x,
            .rows = p->rows,
            .k = p->k,
            .n_weights = 1,
            .weights = {{.w = p->w, .out = p->out, .n = p->n}},
        };
        DPE_CUDA_LAUNCH(b, dpe_kernel_product_few(&few));
    } else {
        DPE_CUDA_LAUNCH(b, dpe_rt_product(b->blas, p));
    }
}

void dpe_cuda_linear(struct dpe_backend *b, int64_t layer, enum dpe_weight which, dpe_mem x,
                     int64_t rows, dpe_mem out, bool accumulate)
{
    struct dpe_layer_shape shape = dpe_layer_shape(b->config, layer, which);
    bool residual =
        which == DPE_WEIGHT_O || which == DPE_WEIGHT_DOWN || which == DPE_WEIGHT_INPUT_OUT;
    const struct dpe_rt_product p = {
        .dtype = b->dtype,
        .out_float = residual,
        .accumulate = accumulate,
        .w = b->layers[layer].weight[which],
        .x = x,
        .out = out,
        .rows = rows,
        .n = shape.rows,
        .k = shape.cols,
    };
    product_of(b, &p);
    if (b->layers[layer].bias[which] != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_bias(residual ? DPE_F32 : b->dtype, out,
                                           b->layers[layer].bias[which], rows, shape.rows));
    }
}

/* Whether several products are one launch. */
static bool is_one_launch(const struct dpe_backend *b, int64_t rows)
{
    return b->ways.few && rows <= DPE_FEW_ROWS && b->config->hidden % 8 == 0;
}

static struct dpe_few_weight few_weight(const struct dpe_backend *b, int64_t layer,
                                        enum dpe_weight which, dpe_mem out)
{
    return (struct dpe_few_weight){.w = b->layers[layer].weight[which],
                                   .bias = b->layers[layer].bias[which],
                                   .out = out,
                                   .n = dpe_layer_shape(b->config, layer, which).rows};
}

void dpe_cuda_project(struct dpe_backend *b, int64_t layer, dpe_mem x, int64_t rows, dpe_mem q,
                      dpe_mem k, dpe_mem v)
{
    if (!is_one_launch(b, rows)) {
        dpe_cuda_linear(b, layer, DPE_WEIGHT_Q, x, rows, q, false);
        dpe_cuda_linear(b, layer, DPE_WEIGHT_K, x, rows, k, false);
        dpe_cuda_linear(b, layer, DPE_WEIGHT_V, x, rows, v, false);
        return;
    }
    const struct dpe_few_product few = {
        .dtype = b->dtype,
        .x = x,
        .rows = rows,
        .k = b->config->hidden,
        .n_weights = 3,
        .weights = {few_weight(b, layer, DPE_WEIGHT_Q, q), few_weight(b, layer, DPE_WEIGHT_K, k),
                    few_weight(b, layer, DPE_WEIGHT_V, v)},
    };
    DPE_CUDA_LAUNCH(b, dpe_kernel_product_few(&few));
}

void dpe_cuda_gate(struct dpe_backend *b, int64_t layer, dpe_mem x, int64_t rows, dpe_mem gate,
                   dpe_mem up)
{
    if (!is_one_launch(b, rows)) {
        dpe_cuda_linear(b, layer, DPE_WEIGHT_GATE, x, rows, gate, false);
        dpe_cuda_linear(b, layer, DPE_WEIGHT_UP, x, rows, up, false);
        dpe_cuda_activate(b, gate, up, rows, dpe_layer_shape(b->config, layer, DPE_WEIGHT_UP).rows);
        return;
    }
    const struct dpe_few_product few = {
        .dtype = b->dtype,
        .x = x,
        .rows = rows,
        .k = b->config->hidden,
        .n_weights = 2,
        .weights = {few_weight(b, layer, DPE_WEIGHT_GATE, gate),
                    few_weight(b, layer, DPE_WEIGHT_UP, up)},
    };
    if (b->config->activation == DPE_SWIGLU) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_gated_few(&few));
    } else {
        DPE_CUDA_LAUNCH(b, dpe_kernel_product_few(&few));
        dpe_cuda_activate(b, gate, up, rows, few.weights[1].n);
    }
}

dpe_mem dpe_cuda_narrow(struct dpe_backend *b, dpe_mem x, int64_t n, dpe_mem room)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_narrow(b->dtype, x, n, room));
    return room;
}

void dpe_cuda_scale(struct dpe_backend *b, dpe_mem x, int64_t n, double factor)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_scale(x, n, (float)factor));
}

void dpe_cuda_scale_part(struct dpe_backend *b, dpe_mem x, int64_t rows, int64_t width,
                         int64_t from, int64_t n, double factor)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_scale_part(b->dtype, x, rows, width, from, n, (float)factor));
}

void dpe_cuda_centre(struct dpe_backend *b, dpe_mem x, int64_t rows, int64_t width)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_centre(x, rows, width));
}

void dpe_cuda_add(struct dpe_backend *b, dpe_mem x, dpe_mem y, int64_t n)
{
    DPE_CUDA_LAUNCH(b, dpe_kernel_add(b->dtype, x, y, n));
}

void dpe_cuda_activate(struct dpe_backend *b, dpe_mem gate, dpe_mem up, int64_t rows, int64_t width)
{
    DPE_CUDA_LAUNCH(b,
                    dpe_kernel_activate(b->config->activation, b->dtype, gate, up, rows * width));
}

void dpe_cuda_sinks(struct dpe_backend *b, int64_t layer, const float *lse, int64_t rows,
                    dpe_mem out)
{
    DPE_CUDA_LAUNCH(b,
                    dpe_kernel_sinks(b->dtype, out, lse, b->layers[layer].weight[DPE_WEIGHT_SINKS],
                                     rows, b->config->n_heads, b->config->head_dim));
}

int64_t dpe_cuda_logit_rows(const struct dpe_config *config, int64_t rows)
{
    const int64_t least = DPE_CUDA_LEAST_LOGITS;
    const int64_t most = 2048;
    int64_t fit = (INT64_C(512) << 20) / (config->vocab * (int64_t)sizeof(float));
    fit = fit < least ? least : (fit > most ? most : fit);
    return rows < fit ? rows : fit;
}

/* Logits of at most logit_rows rows from `first` on, on the device. */
static int64_t lm_head(struct dpe_backend *b, dpe_mem x, int64_t first, int64_t rows)
{
    int64_t some = rows - first < b->logit_rows ? rows - first : b->logit_rows;
    const struct dpe_rt_product p = {
        .dtype = b->dtype,
        .out_float = true,
        .w = b->lm_head,
        .x = (const char *)x + first * b->config->hidden * (int64_t)b->element,
        .out = b->logits,
        .rows = some,
        .n = b->config->vocab,
        .k = b->config->hidden,
    };
    product_of(b, &p);
    return some;
}

void dpe_cuda_logits(struct dpe_backend *b, dpe_mem x, int64_t rows, float *logits)
{
    int64_t vocab = b->config->vocab;
    for (int64_t r = 0; r < rows; r += b->logit_rows) {
        int64_t some = lm_head(b, x, r, rows);
        DPE_CUDA_TRY(b, dpe_rt_down(logits + r * vocab, b->logits,
                                    (uint64_t)(some * vocab) * sizeof *logits));
    }
}

void dpe_cuda_best(struct dpe_backend *b, dpe_mem x, int64_t rows,
                   const struct dpe_logit_room *room, int32_t *tokens)
{
    (void)room; /* logits stay on the device, here and below */
    for (int64_t r = 0; r < rows; r += b->logit_rows) {
        int64_t some = lm_head(b, x, r, rows);
        DPE_CUDA_LAUNCH(b, dpe_kernel_argmax(b->logits, some, b->config->vocab, b->best + r));
    }
    b->best_to = tokens;
    b->n_best = rows;
}

void dpe_cuda_likelihood(struct dpe_backend *b, dpe_mem x, int64_t rows,
                         const struct dpe_logit_room *room, const int32_t *targets, double *nll)
{
    _Static_assert(sizeof *nll == sizeof *b->positions, "likelihoods go where positions were");
    double *on_device = (double *)(void *)b->positions;
    if (b->config->logit_cap > 0.0) { /* which the kernel does not know */
        dpe_head_likelihood(dpe_cuda_ops(), b, b->config, x, rows, room, targets, nll);
        return;
    }
    DPE_CUDA_TRY(b, dpe_rt_up(b->tokens, targets, (uint64_t)rows * sizeof *targets));
    for (int64_t r = 0; r < rows; r += b->logit_rows) {
        int64_t some = lm_head(b, x, r, rows);
        DPE_CUDA_TRY(
            b, dpe_kernel_nll(b->logits, b->tokens + r, some, b->config->vocab, on_device + r));
    }
    DPE_CUDA_TRY(b, dpe_rt_down(nll, on_device, (uint64_t)rows * sizeof *nll));
}

/* Sums of the norms of queries and keys stay on the device: a profile does not copy q and k. */
static int64_t sums_of(const struct dpe_config *c)
{
    return (c->n_heads + c->n_kv_heads) * (c->head_dim / 2);
}

uint64_t dpe_cuda_norm_bytes(const struct dpe_config *config)
{
    return (uint64_t)sums_of(config) * (DPE_NORM_PARTS + 1) * sizeof(double);
}

void dpe_cuda_sum_norms(struct dpe_backend *b, dpe_mem q, dpe_mem k, int64_t rows, bool products,
                        double *sum_q, double *sum_k)
{
    const struct dpe_config *c = b->config;
    const struct dpe_norm_shape shape = {.rows = rows,
                                         .n_heads = c->n_heads,
                                         .n_kv_heads = c->n_kv_heads,
                                         .n_pairs = c->head_dim / 2,
                                         .products = products};
    int64_t n_q = c->n_heads * shape.n_pairs;
    int64_t n = products ? n_q : sums_of(c);
    if (b->norms == NULL && !b->failed) {
        size_t sums = (size_t)sums_of(c);
        b->failed =
            DPE_NEW(&b->norms_host, sums, &b->failure, "cuda: out of host memory") != DPE_OK ||
            dpe_cuda_own(b, dpe_cuda_norm_bytes(c), (void **)&b->norms, &b->failure) != DPE_OK;
    }
    DPE_CUDA_TRY(b, dpe_kernel_norms(b->dtype, q, k, &shape, b->norms));
    DPE_CUDA_TRY(b, dpe_rt_down(b->norms_host, b->norms, (uint64_t)n * sizeof *b->norms_host));
    for (int64_t i = 0; i < n && !b->failed; i++) {
        double *sum = i < n_q ? sum_q + i : sum_k + (i - n_q);
        *sum += b->norms_host[i];
    }
}

/* ----------------------------------------------------------------------------- routed experts */

/* All at once, so many rows at a time as there is room for: which rows an expert has is known to
 * the device alone. */
static void grouped(struct dpe_backend *b, int64_t layer, int part, const struct dpe_experts *args,
                    const float *weights, dpe_mem x, int64_t most, dpe_mem out)
{
    const struct dpe_config *c = b->config;
    const bool down = part == 2;
    const struct dpe_grouped call = {
        .dtype = b->dtype,
        .out_float = down,
        .gathers = !down,
        .tiles = b->ways.few,
        .matrices = b->layers[layer].experts[part],
        .counts = (const int32_t *)args->routes + most,
        .routes = args->routes,
        .n_experts = c->n_experts,
        .most = most,
        .x = x,
        .out = out,
        .n = down ? c->hidden : c->expert_width,
        .k = down ? c->expert_width : c->hidden,
        .weights = weights,
    };
    DPE_CUDA_LAUNCH(b, dpe_kernel_grouped(&call));
}

static void add_experts(struct dpe_backend *b, int64_t layer, const struct dpe_experts *args,
                        dpe_mem x, int64_t rows, float *weights, float *out)
{
    const struct dpe_config *c = b->config;
    const int64_t most = rows * c->experts_per_token;
    int32_t *counts = (int32_t *)args->routes + most;
    const struct dpe_routing choice = {
        .scores = weights,
        .shift = b->layers[layer].weight[DPE_WEIGHT_ROUTER_SHIFT],
        .factors = b->layers[layer].weight[DPE_WEIGHT_EXPERT_SCALE],
        .rows = rows,
        .n_experts = c->n_experts,
        .per_token = c->experts_per_token,
        .router = c->router,
        .normalised = c->experts_normalised,
    };
    /* What experts read times a weight: without biases their products times it. */
    const float *before = c->router.before ? weights : NULL;
    DPE_CUDA_LAUNCH(b, dpe_kernel_choose_experts(&choice));
    DPE_CUDA_LAUNCH(b, dpe_kernel_route(weights, rows, c->n_experts, most, counts, args->routes));
    grouped(b, layer, 0, args, before, x, most, args->gate);
    grouped(b, layer, 1, args, before, x, most, args->up);
    dpe_cuda_activate(b, args->gate, args->up, most, c->expert_width);
    grouped(b, layer, 2, args, NULL, args->gate, most, args->made);
    const struct dpe_combined combined = {
        .made = args->made,
        .weights = weights,
        .counts = counts,
        .routes = args->routes,
        .n_experts = c->n_experts,
        .rows = rows,
        .most = most,
        .width = c->hidden,
        .out = out,
        .weighed = c->router.before,
    };
    DPE_CUDA_LAUNCH(b, dpe_kernel_combine(&combined));
}

void dpe_cuda_experts(struct dpe_backend *b, int64_t layer, const struct dpe_experts *args)
{
    const struct dpe_config *c = b->config;
    const int64_t at_once = args->room / c->experts_per_token;
    const struct dpe_rt_product router = {
        .dtype = b->dtype,
        .out_float = true,
        .w = b->layers[layer].weight[DPE_WEIGHT_ROUTER],
        .x = args->routed,
        .out = args->scores,
        .rows = args->rows,
        .n = c->n_experts,
        .k = c->hidden,
    };
    product_of(b, &router);
    if (b->layers[layer].bias[DPE_WEIGHT_ROUTER] != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_bias(DPE_F32, args->scores,
                                           b->layers[layer].bias[DPE_WEIGHT_ROUTER], args->rows,
                                           c->n_experts));
    }
    for (int64_t r = 0; r < args->rows; r += at_once) {
        add_experts(b, layer, args, (char *)args->x + r * c->hidden * (int64_t)b->element,
                    dpe_least(at_once, args->rows - r), (float *)args->scores + r * c->n_experts,
                    (float *)args->out + r * c->hidden);
    }
}
