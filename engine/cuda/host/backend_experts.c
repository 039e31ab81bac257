/* Routed experts, one after the other over the rows that chose them. The host reads which rows
 * these are, so it waits once a layer, and a step with experts does not become a graph. */
#include "engine/cuda/host/backend.h"
#include "engine/cuda/kernels/experts.h"

/* The rows that take expert `e`; a weight that is not a number counts, so that it is found. */
static int64_t rows_of(const struct dpe_config *c, const float *weights, int64_t rows, int64_t e,
                       int32_t *which)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (weights[r * c->n_experts + e] != 0.0F) {
            which[n++] = (int32_t)r;
        }
    }
    return n;
}

/* out [rows][n] = x [rows][k] · wᵀ + bias. */
static void product(struct dpe_backend *b, const struct dpe_cuda_matrix *w, dpe_mem x, int64_t rows,
                    int64_t n, int64_t k, bool out_float, dpe_mem out)
{
    const struct dpe_rt_product p = {
        .dtype = b->dtype,
        .out_float = out_float,
        .w = w->weight,
        .x = x,
        .out = out,
        .rows = rows,
        .n = n,
        .k = k,
    };
    dpe_cuda_product(b, &p);
    if (w->bias != NULL) {
        DPE_CUDA_LAUNCH(b, dpe_kernel_bias(out_float ? DPE_F32 : b->dtype, out, w->bias, rows, n));
    }
}

/* The rows that b->tokens holds now: nothing reads tokens after the embedding. */
static void add_expert(struct dpe_backend *b, const struct dpe_cuda_expert *expert,
                       const struct dpe_experts *args, int64_t e, int64_t n)
{
    const struct dpe_config *c = b->config;
    const float *weights = (const float *)args->scores + e;
    DPE_CUDA_LAUNCH(b,
                    dpe_kernel_gather(b->dtype, args->x, b->tokens, n, c->hidden, args->gathered));
    product(b, &expert->gate, args->gathered, n, c->intermediate, c->hidden, false, args->gate);
    product(b, &expert->up, args->gathered, n, c->intermediate, c->hidden, false, args->up);
    dpe_cuda_activate(b, args->gate, args->up, n);
    product(b, &expert->down, args->gate, n, c->hidden, c->intermediate, true, args->made);
    DPE_CUDA_LAUNCH(b, dpe_kernel_scatter(args->made, b->tokens, weights, c->n_experts, n,
                                          c->hidden, args->out));
}

void dpe_cuda_experts(struct dpe_backend *b, int64_t layer, const struct dpe_experts *args)
{
    const struct dpe_config *c = b->config;
    const struct dpe_cuda_matrix router = {b->layers[layer].weight[DPE_WEIGHT_ROUTER],
                                           b->layers[layer].bias[DPE_WEIGHT_ROUTER]};
    int64_t rows = args->rows;
    DPE_OWNED float *weights = dpe_alloc((size_t)(rows * c->n_experts), sizeof *weights);
    DPE_OWNED int32_t *which = dpe_alloc((size_t)rows, sizeof *which);
    if ((weights == NULL || which == NULL) && !b->failed) {
        b->failed = true;
        dpe_fail(&b->failure, DPE_NO_MEMORY, "cuda: out of host memory");
    }
    product(b, &router, args->x, rows, c->n_experts, c->hidden, true, args->scores);
    DPE_CUDA_LAUNCH(b, dpe_kernel_choose_experts(args->scores, rows, c->n_experts,
                                                 c->experts_per_token, c->experts_normalised));
    DPE_CUDA_TRY(
        b, dpe_rt_down(weights, args->scores, (uint64_t)(rows * c->n_experts) * sizeof *weights));
    for (int64_t e = 0; e < c->n_experts && !b->failed; e++) {
        int64_t n = rows_of(c, weights, rows, e, which);
        if (n > 0) {
            DPE_CUDA_TRY(b, dpe_rt_up(b->tokens, which, (uint64_t)n * sizeof *which));
            add_expert(b, &b->layers[layer].experts[e], args, e, n);
        }
    }
}
