/* The fast CPU backend: the reference's slots, overridden by vectorised ones
 * that use all threads. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/attention/attention_cpu.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/kernels/cpu_kernels.h"
#include "engine/cpu/product.h"
#include "engine/cpu/recur_cpu.h"
#include "engine/model/config/layer_weights.h"
#include "engine/ops/ops_host.h"

static struct dpe_ops cpu_ops;
static struct dpe_ops bf16_ops;

enum { SMALL_WORK = 1 << 14 /* elements for which no second thread is woken */ };

struct dpe_cpu_state {
    const struct dpe_cpu_kernels *kernels;
    struct dpe_cpu_products products;
    float *norm; /* [norm_width] a norm's weight as float */
};

/* The longest norm: of the stream or of all heads. */
static int64_t norm_width(const struct dpe_config *config)
{
    int64_t heads = dpe_most(dpe_config_most_queries(config), config->input_width);
    return config->hidden > heads ? config->hidden : heads;
}

static void cpu_close(struct dpe_backend *backend)
{
    if (backend != NULL && backend->cpu != NULL) {
        dpe_cpu_products_free(&backend->cpu->products);
        free(backend->cpu->norm);
        free(backend->cpu);
    }
    dpe_ops_reference()->close(backend);
}
DPE_SCOPED_HANDLE(struct dpe_backend *, cpu_close)

static dpe_status open_with(const struct dpe_cpu_bf16 *bf16, const struct dpe_model *model,
                            const struct dpe_session_options *options, struct dpe_backend **backend,
                            struct dpe_error *err)
{
    DPE_SCOPED(cpu_close_scoped) struct dpe_backend *made = NULL;
    DPE_TRY(dpe_ops_reference()->open(model, options, &made, err));
    made->ops = bf16 == NULL ? &cpu_ops : &bf16_ops;
    DPE_TRY(DPE_NEW(&made->cpu, 1, err, "cpu backend: out of memory"));
    struct dpe_cpu_state *cpu = made->cpu;
    cpu->kernels = dpe_cpu_kernels_choose();
    DPE_TRY(
        DPE_NEW(&cpu->norm, (size_t)norm_width(made->config), err, "cpu backend: out of memory"));
    DPE_TRY(dpe_cpu_products_make(cpu->kernels, bf16, made->config, options->n_threads,
                                  &cpu->products, err));
    *backend = made;
    made = NULL;
    return DPE_OK;
}

static dpe_status cpu_open(const struct dpe_model *model, const struct dpe_session_options *options,
                           struct dpe_backend **backend, struct dpe_error *err)
{
    return open_with(NULL, model, options, backend, err);
}

static dpe_status bf16_open(const struct dpe_model *model,
                            const struct dpe_session_options *options, struct dpe_backend **backend,
                            struct dpe_error *err)
{
    return open_with(dpe_cpu_bf16_choose(), model, options, backend, err);
}

static dpe_status bf16_supports(const struct dpe_config *config, const struct dpe_plan *plan,
                                struct dpe_error *err)
{
    (void)config, (void)plan;
    if (dpe_cpu_bf16_choose() == NULL) {
        return dpe_fail(
            err, DPE_NO_DEVICE,
            "device cpu-bf16 needs a processor with AVX512-BF16 (ARM: BF16), which this one is not "
            "(or DPE_CPU names other kernels); use --dtype f32");
    }
    return DPE_OK;
}

static uint64_t cpu_state_bytes(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options)
{
    (void)plan;
    uint64_t own = sizeof(struct dpe_backend) + sizeof(struct dpe_cpu_state);
    own += (uint64_t)norm_width(config) * sizeof(float);
    uint64_t products =
        dpe_cpu_products_bytes(dpe_cpu_kernels_choose(), config, options->n_threads);
    return dpe_bytes_plus(products, own);
}

static void cpu_rmsnorm(struct dpe_backend *backend, enum dpe_weight which, int64_t layer,
                        int64_t width, dpe_mem x, int64_t rows, dpe_mem out)
{
    const struct dpe_cpu_state *cpu = backend->cpu;
    const struct dpe_tensor *weight = dpe_norm_weight(backend->weights, which, layer);
    float eps = (float)dpe_norm_eps(backend->config, which);
    cpu->kernels->widen(weight->data, weight->dtype, width, cpu->norm);
    if (rows * width <= SMALL_WORK || backend->n_threads == 1) {
        for (int64_t r = 0; r < rows; r++) {
            cpu->kernels->rmsnorm((const float *)x + r * width, cpu->norm, width, eps,
                                  (float *)out + r * width);
        }
        return;
    }
#pragma omp parallel for num_threads(backend->n_threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        cpu->kernels->rmsnorm((const float *)x + r * width, cpu->norm, width, eps,
                              (float *)out + r * width);
    }
}

static void cpu_linear(struct dpe_backend *backend, int64_t layer, enum dpe_weight which, dpe_mem x,
                       int64_t rows, dpe_mem out, bool accumulate)
{
    const struct dpe_layer_weights *weights = &backend->weights->layers[layer];
    struct dpe_cpu_product product = {
        &weights->weight[which], &weights->bias[which], x, rows, out, accumulate};
    dpe_cpu_product(&backend->cpu->products, &product);
}

static void cpu_project(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows,
                        dpe_mem q, dpe_mem k, dpe_mem v)
{
    const struct dpe_layer_weights *w = &backend->weights->layers[layer];
    const struct dpe_cpu_product several[] = {
        {&w->weight[DPE_WEIGHT_Q], &w->bias[DPE_WEIGHT_Q], x, rows, q, false},
        {&w->weight[DPE_WEIGHT_K], &w->bias[DPE_WEIGHT_K], x, rows, k, false},
        {&w->weight[DPE_WEIGHT_V], &w->bias[DPE_WEIGHT_V], x, rows, v, false}};
    dpe_cpu_product_several(&backend->cpu->products, several, 3);
}

static void cpu_logits(struct dpe_backend *backend, dpe_mem x, int64_t rows, float *logits)
{
    struct dpe_cpu_product product = {&backend->weights->lm_head, NULL, x, rows, logits, false};
    dpe_cpu_product(&backend->cpu->products, &product);
}

static void cpu_activate(struct dpe_backend *backend, dpe_mem gate_rows, dpe_mem up_rows,
                         int64_t rows, int64_t width)
{
    float *gate = gate_rows;
    const float *up = up_rows;
    const enum dpe_activation kind = backend->config->activation;
    const struct dpe_cpu_kernels *kernels = backend->cpu->kernels;
    if (rows * width <= SMALL_WORK || backend->n_threads == 1) {
        for (int64_t r = 0; r < rows; r++) {
            kernels->activate(kind, gate + r * width, up + r * width, width);
        }
        return;
    }
#pragma omp parallel for num_threads(backend->n_threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        kernels->activate(kind, gate + r * width, up + r * width, width);
    }
}

static void cpu_gate(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows,
                     dpe_mem gate, dpe_mem up)
{
    const struct dpe_layer_weights *w = &backend->weights->layers[layer];
    const struct dpe_cpu_product several[] = {
        {&w->weight[DPE_WEIGHT_GATE], &w->bias[DPE_WEIGHT_GATE], x, rows, gate, false},
        {&w->weight[DPE_WEIGHT_UP], &w->bias[DPE_WEIGHT_UP], x, rows, up, false}};
    dpe_cpu_product_several(&backend->cpu->products, several, 2);
    cpu_activate(backend, gate, up, rows, w->weight[DPE_WEIGHT_UP].rows);
}

/* Experts together: those whose rows have room at once are a batch, multiplied as one list of
 * products. What a batch is depends on the rows that chose its experts alone. */
struct expert_run {
    const struct dpe_expert *expert;
    int64_t index, first, rows; /* of the batch */
};
enum { EXPERT_RUNS = DPE_CPU_MAX_PRODUCTS / 2, SCATTER_COLUMNS = 64 };

/* The rows of every expert, one expert after the other; ends[e] is where those of e end. */
static void sort_rows(const struct dpe_config *c, const struct dpe_experts *args, int32_t *ends)
{
    const float *scores = args->scores;
    int32_t *routes = args->routes;
    int32_t n = 0;
    for (int64_t e = 0; e < c->n_experts; e++) {
        for (int64_t r = 0; r < args->rows; r++) {
            if (scores[r * c->n_experts + e] != 0.0F) {
                routes[n++] = (int32_t)r;
            }
        }
        ends[e] = n;
    }
}

/* The weight of a row's expert. */
static float weight_of(const struct dpe_config *c, const struct dpe_experts *args, int32_t row,
                       int64_t expert)
{
    return ((const float *)args->scores)[row * c->n_experts + expert];
}

/* Rows of a run times the weights of its expert, where these come before it. */
static void scale_rows(const struct dpe_config *c, const struct dpe_experts *args,
                       const int32_t *routes, const struct expert_run *run)
{
    for (int64_t r = run->first; c->router.before && r < run->first + run->rows; r++) {
        const float weight = weight_of(c, args, routes[r], run->index);
        float *row = (float *)args->made + r * c->hidden;
        for (int64_t k = 0; k < c->hidden; k++) {
            row[k] *= weight;
        }
    }
}

static void gather_rows(const struct dpe_backend *backend, const struct dpe_experts *args,
                        const int32_t *routes, int64_t n)
{
    const int64_t width = backend->config->hidden;
#pragma omp parallel for num_threads(backend->n_threads)                                           \
    schedule(static) if (n * width > SMALL_WORK)
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)args->made + i * width, (const float *)args->x + routes[i] * width,
               (size_t)width * sizeof(float));
    }
}

/* A thread has some columns of all rows: a row gets its experts in their order. */
static void scatter_rows(const struct dpe_backend *backend, const struct dpe_experts *args,
                         const int32_t *routes, const struct expert_run *runs, int n_runs)
{
    const struct dpe_config *c = backend->config;
    const int64_t width = c->hidden;
    const int64_t rows = runs[n_runs - 1].first + runs[n_runs - 1].rows;
#pragma omp parallel for num_threads(backend->n_threads)                                           \
    schedule(static) if (rows * width > SMALL_WORK)
    for (int64_t from = 0; from < width; from += SCATTER_COLUMNS) {
        const int64_t n = dpe_least(SCATTER_COLUMNS, width - from);
        for (int i = 0; i < n_runs; i++) {
            for (int64_t r = runs[i].first; r < runs[i].first + runs[i].rows; r++) {
                const float weight =
                    c->router.before ? 1.0F : weight_of(c, args, routes[r], runs[i].index);
                const float *made = (const float *)args->made + r * width + from;
                float *out = (float *)args->out + routes[r] * width + from;
                for (int64_t k = 0; k < n; k++) {
                    out[k] += weight * made[k];
                }
            }
        }
    }
}

static void add_experts(struct dpe_backend *backend, const struct dpe_experts *args,
                        const int32_t *routes, const struct expert_run *runs, int n_runs)
{
    const struct dpe_config *c = backend->config;
    struct dpe_cpu_product products[DPE_CPU_MAX_PRODUCTS];
    const int64_t rows = runs[n_runs - 1].first + runs[n_runs - 1].rows;
    gather_rows(backend, args, routes, rows);
    for (int i = 0; i < n_runs; i++) {
        const struct dpe_expert *expert = runs[i].expert;
        scale_rows(c, args, routes, &runs[i]);
        const float *x = (const float *)args->made + runs[i].first * c->hidden;
        const int64_t at = runs[i].first * c->expert_width;
        products[2 * i] = (struct dpe_cpu_product){&expert->gate, &expert->gate_bias,       x,
                                                   runs[i].rows,  (float *)args->gate + at, false};
        products[2 * i + 1] = (struct dpe_cpu_product){&expert->up,  &expert->up_bias,       x,
                                                       runs[i].rows, (float *)args->up + at, false};
    }
    dpe_cpu_product_several(&backend->cpu->products, products, 2 * n_runs);
    cpu_activate(backend, args->gate, args->up, rows, c->expert_width);
    for (int i = 0; i < n_runs; i++) {
        const struct dpe_expert *expert = runs[i].expert;
        products[i] =
            (struct dpe_cpu_product){&expert->down,
                                     &expert->down_bias,
                                     (const float *)args->gate + runs[i].first * c->expert_width,
                                     runs[i].rows,
                                     (float *)args->made + runs[i].first * c->hidden,
                                     false};
    }
    dpe_cpu_product_several(&backend->cpu->products, products, n_runs);
    scatter_rows(backend, args, routes, runs, n_runs);
}

static void choose_experts(struct dpe_backend *backend, const struct dpe_layer_weights *w,
                           float *scores, int64_t rows)
{
    const struct dpe_config *c = backend->config;
#pragma omp parallel for num_threads(backend->n_threads)                                           \
    schedule(static) if (rows * c->n_experts > SMALL_WORK / 8)
    for (int64_t r = 0; r < rows; r++) {
        dpe_experts_choose(c, &w->weight[DPE_WEIGHT_ROUTER_SHIFT],
                           &w->weight[DPE_WEIGHT_EXPERT_SCALE], scores + r * c->n_experts);
    }
}

static void cpu_experts(struct dpe_backend *backend, int64_t layer, const struct dpe_experts *args)
{
    const struct dpe_config *c = backend->config;
    const struct dpe_layer_weights *w = &backend->weights->layers[layer];
    const struct dpe_cpu_product router = {&w->weight[DPE_WEIGHT_ROUTER],
                                           &w->bias[DPE_WEIGHT_ROUTER],
                                           args->routed,
                                           args->rows,
                                           args->scores,
                                           false};
    int32_t ends[DPE_MOST_EXPERTS];
    struct expert_run runs[EXPERT_RUNS];
    int64_t from = 0;
    int n_runs = 0;
    dpe_cpu_product(&backend->cpu->products, &router);
    choose_experts(backend, w, args->scores, args->rows);
    sort_rows(c, args, ends);
    for (int64_t e = 0; e <= c->n_experts; e++) {
        const int64_t begin = e > 0 ? ends[e - 1] : 0;
        const int64_t n = e < c->n_experts ? ends[e] - begin : 0;
        const bool full = n_runs == EXPERT_RUNS || begin + n - from > args->room;
        if (n_runs > 0 && (full || e == c->n_experts)) {
            add_experts(backend, args, (const int32_t *)args->routes + from, runs, n_runs);
            from = begin;
            n_runs = 0;
        }
        if (n > 0) {
            runs[n_runs++] = (struct expert_run){&w->experts[e], e, begin - from, n};
        }
    }
}

static uint64_t cpu_attention_workspace(const struct dpe_config *config,
                                        const struct dpe_plan *plan, int64_t keys, int64_t rows,
                                        int n_threads)
{
    return dpe_cpu_attention_workspace(dpe_cpu_kernels_choose(), NULL, config, plan, keys, rows,
                                       n_threads);
}

static uint64_t bf16_attention_workspace(const struct dpe_config *config,
                                         const struct dpe_plan *plan, int64_t keys, int64_t rows,
                                         int n_threads)
{
    return dpe_cpu_attention_workspace(dpe_cpu_kernels_choose(), dpe_cpu_bf16_choose(), config,
                                       plan, keys, rows, n_threads);
}

static void cpu_represent(struct dpe_backend *backend, const struct dpe_attention *args)
{
    dpe_cpu_represent(backend->cpu->kernels, args);
}

static void cpu_attention(struct dpe_backend *backend, const struct dpe_attention *args, int64_t n)
{
    dpe_cpu_attention(backend->cpu->kernels, backend->cpu->products.bf16, args, n);
}

static void cpu_output_gate(struct dpe_backend *backend, dpe_mem out, dpe_mem gate, int64_t n,
                            int64_t each)
{
    const int64_t step = each > 1 ? 1 : 1 << 12;
#pragma omp parallel for num_threads(backend->n_threads) schedule(static) if (n * each > SMALL_WORK)
    for (int64_t i = 0; i < n; i += step) {
        if (each == 1) {
            backend->cpu->kernels->sigmoid((float *)out + i, (const float *)gate + i,
                                           dpe_least(step, n - i));
            continue;
        }
        const float by = 1.0F / (1.0F + expf(-((const float *)gate)[i]));
        for (int64_t k = 0; k < each; k++) {
            ((float *)out)[i * each + k] *= by;
        }
    }
}

static void cpu_recur(struct dpe_backend *backend, const struct dpe_recurrence *args)
{
    dpe_cpu_recur(backend->cpu->kernels, backend->config, &backend->weights->layers[args->layer],
                  args, backend->n_threads);
}

static uint64_t cpu_recur_workspace(const struct dpe_config *config, int64_t rows, int n_threads)
{
    (void)rows;
    return dpe_cpu_recur_workspace(config, n_threads);
}

static void fill_ops(void)
{
    cpu_ops = *dpe_ops_reference();
    cpu_ops.name = "cpu";
    cpu_ops.reads_kv = true;
    cpu_ops.side_by_side = true;
    cpu_ops.open = cpu_open;
    cpu_ops.close = cpu_close;
    cpu_ops.state_bytes = cpu_state_bytes;
    cpu_ops.rmsnorm = cpu_rmsnorm;
    cpu_ops.linear = cpu_linear;
    cpu_ops.project = cpu_project;
    cpu_ops.gate = cpu_gate;
    cpu_ops.keeps_marks = true;
    cpu_ops.represent = cpu_represent;
    cpu_ops.attention_workspace = cpu_attention_workspace;
    cpu_ops.attention = cpu_attention;
    cpu_ops.output_gate = cpu_output_gate;
    cpu_ops.recur = cpu_recur;
    cpu_ops.recur_workspace = cpu_recur_workspace;
    cpu_ops.activate = cpu_activate;
    cpu_ops.expert_rows = 704; /* a pack less than products take at a time */
    cpu_ops.experts = cpu_experts;
    cpu_ops.logits = cpu_logits;
    bf16_ops = cpu_ops;
    bf16_ops.name = "cpu-bf16";
    bf16_ops.logit_rows = 256;
    bf16_ops.open = bf16_open;
    bf16_ops.supports = bf16_supports;
    bf16_ops.attention_workspace = bf16_attention_workspace;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

const struct dpe_ops *dpe_ops_cpu(void)
{
    pthread_once(&once, fill_ops);
    return &cpu_ops;
}

const struct dpe_ops *dpe_ops_cpu_bf16(void)
{
    pthread_once(&once, fill_ops);
    return &bf16_ops;
}

bool dpe_cpu_has_bf16(void)
{
    return dpe_cpu_bf16_choose() != NULL;
}

bool dpe_cpu_bf16_pays_here(void)
{
    const struct dpe_cpu_bf16 *bf16 = dpe_cpu_bf16_choose();
    return bf16 != NULL && dpe_cpu_bf16_pays(dpe_cpu_kernels_choose(), bf16);
}
