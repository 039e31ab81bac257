/* The plain reference of every operation: obvious loops, sums in double, one rounding to float at
 * the end of each operation. What faster backends are tested against. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "engine/model/model.h"
#include "engine/ops/ops_head.h"
#include "engine/ops/ops_host.h"

enum { BLOCK = 128 };

void dpe_tensor_read(const struct dpe_tensor *tensor, int64_t first, int64_t n, float *out)
{
    dpe_dtype_read(tensor->dtype, tensor->data, first, n, out);
}

static dpe_status reference_open(const struct dpe_model *model,
                                 const struct dpe_session_options *options,
                                 struct dpe_backend **backend, struct dpe_error *err)
{
    struct dpe_backend *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "reference backend: out of memory"));
    made->ops = dpe_ops_reference();
    made->config = dpe_model_config(model);
    made->weights = dpe_model_weights(model);
    made->peers = options->peers;
    made->n_threads = options->n_threads;
    *backend = made;
    return DPE_OK;
}

static void reference_close(struct dpe_backend *backend)
{
    free(backend);
}

static uint64_t reference_state_bytes(const struct dpe_config *config, const struct dpe_plan *plan,
                                      const struct dpe_session_options *options)
{
    (void)config, (void)plan, (void)options;
    return sizeof(struct dpe_backend);
}

static dpe_mem reference_allocate(struct dpe_backend *backend, uint64_t bytes)
{
    (void)backend;
    return dpe_alloc(bytes, 1);
}

static void reference_release(struct dpe_backend *backend, dpe_mem memory)
{
    (void)backend;
    free(memory);
}

static void reference_code(struct dpe_backend *backend, char text[64])
{
    (void)backend;
    text[0] = '\0';
}

static uint64_t reference_element_bytes(const struct dpe_config *config)
{
    (void)config;
    return sizeof(float);
}

static uint64_t reference_memory_available(const struct dpe_session_options *options)
{
    (void)options;
    return dpe_memory_available();
}

static const float *reference_read(struct dpe_backend *backend, dpe_mem from, int64_t n,
                                   float *room)
{
    (void)backend, (void)n, (void)room;
    return from;
}

static dpe_status reference_set_plan(struct dpe_backend *backend, int kind,
                                     const struct dpe_plan *plan,
                                     const struct dpe_rotation *rotation, struct dpe_error *err)
{
    (void)backend, (void)kind, (void)plan, (void)rotation, (void)err;
    return DPE_OK;
}

static void reference_embed(struct dpe_backend *backend, const struct dpe_batch *batch, dpe_mem x)
{
    const struct dpe_tensor *embedding = &backend->weights->embedding;
    int64_t width = embedding->cols;
    for (int64_t r = 0; r < batch->rows; r++) {
        dpe_tensor_read(embedding, batch->tokens[r] * width, width, (float *)x + r * width);
    }
}

static void reference_add_inputs(struct dpe_backend *backend, const struct dpe_batch *batch,
                                 int64_t layer, int64_t first, dpe_mem x)
{
    const struct dpe_tensor *table =
        &backend->weights->layers[layer].weight[DPE_WEIGHT_INPUT_TABLE];
    const int64_t width = backend->config->input_width;
    const double factor = sqrt(0.5 * (double)width);
    for (int64_t r = first; r < batch->rows; r++) {
        float *to = (float *)x + (r - first) * width;
        for (int64_t i = 0, n = 0; i < width; i += n) {
            float row[256];
            n = dpe_least(width - i, (int64_t)(sizeof row / sizeof row[0]));
            dpe_tensor_read(table, batch->tokens[r] * dpe_tensor_stride(table) + i, n, row);
            for (int64_t j = 0; j < n; j++) {
                to[i + j] = (float)((double)to[i + j] + factor * (double)row[j]);
            }
        }
    }
}

static void reference_rmsnorm(struct dpe_backend *backend, enum dpe_weight which, int64_t layer,
                              int64_t width, dpe_mem x, int64_t rows, dpe_mem out)
{
    const struct dpe_tensor *weight = dpe_norm_weight(backend->weights, which, layer);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = (const float *)x + r * width;
        float *to = (float *)out + r * width;
        double squares = 0.0;
        for (int64_t i = 0; i < width; i++) {
            squares += (double)from[i] * (double)from[i];
        }
        double scale = 1.0 / sqrt(squares / (double)width + dpe_norm_eps(backend->config, which));
        for (int64_t i = 0; i < width; i++) {
            float w = 0.0f;
            dpe_tensor_read(weight, i, 1, &w);
            to[i] = (float)((double)from[i] * scale * (double)w);
        }
    }
}

double dpe_reference_dot(const struct dpe_tensor *weight, int64_t row, const float *x, double sum)
{
    float block[BLOCK];
    for (int64_t i = 0; i < weight->cols; i += BLOCK) {
        int64_t n = weight->cols - i < BLOCK ? weight->cols - i : BLOCK;
        dpe_tensor_read(weight, row * dpe_tensor_stride(weight) + i, n, block);
        for (int64_t c = 0; c < n; c++) {
            sum += (double)block[c] * (double)x[i + c];
        }
    }
    return sum;
}

static void reference_linear(struct dpe_backend *backend, int64_t layer, enum dpe_weight which,
                             dpe_mem x, int64_t rows, dpe_mem out, bool accumulate)
{
    struct dpe_tensor weight = backend->weights->layers[layer].weight[which];
    struct dpe_tensor bias = backend->weights->layers[layer].bias[which];
#pragma omp parallel for num_threads(                                                              \
    dpe_threads_for(backend->n_threads, rows *weight.rows *weight.cols)) schedule(static)
    for (int64_t o = 0; o < weight.rows; o++) {
        float b = 0.0f;
        if (bias.data != NULL) {
            dpe_tensor_read(&bias, o, 1, &b);
        }
        for (int64_t r = 0; r < rows; r++) {
            float *to = (float *)out + r * weight.rows + o;
            double sum =
                dpe_reference_dot(&weight, o, (const float *)x + r * weight.cols, 0.0) + (double)b;
            *to = (float)(accumulate ? (double)*to + sum : sum);
        }
    }
}

static void reference_project(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows,
                              dpe_mem q, dpe_mem k, dpe_mem v)
{
    backend->ops->linear(backend, layer, DPE_WEIGHT_Q, x, rows, q, false);
    backend->ops->linear(backend, layer, DPE_WEIGHT_K, x, rows, k, false);
    backend->ops->linear(backend, layer, DPE_WEIGHT_V, x, rows, v, false);
}

static void reference_gate(struct dpe_backend *backend, int64_t layer, dpe_mem x, int64_t rows,
                           dpe_mem gate, dpe_mem up)
{
    backend->ops->linear(backend, layer, DPE_WEIGHT_GATE, x, rows, gate, false);
    backend->ops->linear(backend, layer, DPE_WEIGHT_UP, x, rows, up, false);
    backend->ops->activate(backend, gate, up, rows,
                           dpe_layer_shape(backend->config, layer, DPE_WEIGHT_UP).rows);
}

/* ---------------------------------------------------------------------------------- attention */

/* What one thread needs: a logit per key, the query rotated for every band, the output row; and a
 * place per key. */
static uint64_t thread_doubles(const struct dpe_plan *plan, int64_t keys, int64_t head_dim)
{
    return (uint64_t)keys + (DPE_MAX_BANDS + 1) * (uint64_t)head_dim +
           (dpe_selects(&plan->selection) ? dpe_reference_place_doubles(keys, head_dim) : 0);
}

static uint64_t reference_attention_workspace(const struct dpe_config *config,
                                              const struct dpe_plan *plan, int64_t keys,
                                              int64_t rows, int n_threads)
{
    (void)rows;
    return (uint64_t)n_threads * thread_doubles(plan, keys, config->head_dim) * sizeof(double);
}

/* The band whose maps a pair of a query head uses inside band b. */
static int map_band(const struct dpe_attention *args, int64_t head, int64_t pair, int b)
{
    const struct dpe_plan *plan = args->plan;
    int64_t at = (args->layer * plan->n_heads + head) * plan->n_pairs + pair;
    bool outside = plan->bands[b].per_head && plan->mask != NULL && plan->mask[at] == 0;
    return outside ? 0 : b;
}

static void rotate_query(const struct dpe_attention *args, int64_t head, int64_t m, int b,
                         const float *q, double *out)
{
    int64_t n_pairs = args->plan->n_pairs;
    for (int64_t j = 0; j < n_pairs; j++) {
        int table = args->rotation->q_table[map_band(args, head, j, b)];
        double c = (double)args->rotation->cos[table][m * n_pairs + j];
        double s = (double)args->rotation->sin[table][m * n_pairs + j];
        double x = (double)q[j];
        double y = (double)q[j + n_pairs];
        out[j] = x * c - y * s;
        out[j + n_pairs] = x * s + y * c;
    }
    for (int64_t i = 0; args->late != NULL && i < 2 * n_pairs; i++) {
        out[i] *= (double)args->late[i];
    }
}

/* Σ over pairs of ⟨rotated q, R(θ pk(n)) k⟩. */
static double separable_dot(const struct dpe_attention *args, int64_t head, int64_t at, int b,
                            const double *q, const float *k)
{
    int64_t n_pairs = args->plan->n_pairs;
    double sum = 0.0;
    for (int64_t j = 0; j < n_pairs; j++) {
        int table = args->rotation->k_table[map_band(args, head, j, b)];
        double c = (double)args->rotation->cos[table][at * n_pairs + j];
        double s = (double)args->rotation->sin[table][at * n_pairs + j];
        double x = (double)k[j];
        double y = (double)k[j + n_pairs];
        sum += q[j] * (x * c - y * s) + q[j + n_pairs] * (x * s + y * c);
    }
    return sum;
}

/* One query row and head. */
struct query {
    const struct dpe_attention *args;
    int64_t head, m, offset;
    struct dpe_lent lent;
    const float *q;
    const double *places; /* of the keys 0 … m, −1 where it is not seen; NULL: their positions */
    int64_t place;        /* of the query */
};

/* The key at position n, or its value, in a cache of one layer. */
static const float *cache_row(const struct query *query, const float *cache, int64_t n)
{
    const struct dpe_attention *args = query->args;
    int64_t kv_head = query->head / (args->n_heads / args->n_kv_heads);
    int64_t row = n < query->lent.positions ? n + query->lent.offset
                  : n < args->prefix        ? n
                                            : n + query->offset;
    return cache + (kv_head * args->capacity + row) * args->head_dim;
}

/* Logits over the keys 0 … m; −INFINITY where masked. */
static void query_logits(const struct query *query, double *rotated, double *logits)
{
    const struct dpe_attention *args = query->args;
    const struct dpe_plan *plan = args->plan;
    const float *q = query->q;
    int64_t head = query->head;
    int64_t m = query->m;
    int64_t d = args->head_dim;
    double scale = dpe_plan_query_scale(plan, args->layer, m);
    double cap = plan->attention_cap;
    for (int b = 0; b < plan->n_bands; b++) {
        rotate_query(args, head, query->place, b, q, rotated + b * d);
    }
    for (int64_t n = 0; n <= m; n++) {
        int64_t at = query->places != NULL ? (int64_t)query->places[n] : n;
        int b = dpe_plan_band(plan, query->place, at);
        if (b < 0) {
            logits[n] = -INFINITY;
        } else {
            logits[n] = scale * separable_dot(args, head, at, b, rotated + b * d,
                                              cache_row(query, args->k, n));
        }
        if (b >= 0 && cap > 0.0) {
            logits[n] = cap * tanh(logits[n] / cap);
        }
    }
}

/* softmax(logits) · v into out [head_dim] and the log-sum-exp; a row that sees no key is 0, −∞. */
static double weigh_values(const struct query *query, const double *logits, double *sums,
                           float *out)
{
    int64_t d = query->args->head_dim;
    double largest = -INFINITY;
    for (int64_t n = 0; n <= query->m; n++) {
        largest = logits[n] > largest ? logits[n] : largest;
    }
    double total = 0.0;
    memset(sums, 0, (size_t)d * sizeof *sums);
    for (int64_t n = 0; n <= query->m; n++) {
        if (logits[n] == (double)-INFINITY) {
            continue;
        }
        double p = exp(logits[n] - largest);
        total += p;
        const float *v = cache_row(query, query->args->v, n);
        for (int64_t i = 0; i < d; i++) {
            sums[i] += p * (double)v[i];
        }
    }
    for (int64_t i = 0; i < d; i++) {
        out[i] = total == 0.0 ? 0.0f : (float)(sums[i] / total);
    }
    return largest + log(total);
}

static void attend(const struct dpe_attention *args)
{
    int64_t d = args->head_dim;
    int64_t keys = dpe_attention_keys(args);
    int64_t stride = (int64_t)thread_doubles(args->plan, keys, d);
    int64_t items = args->rows * args->n_heads;
#pragma omp parallel for num_threads(dpe_threads_for(args->n_threads, items *d *keys))             \
    schedule(static)
    for (int64_t item = 0; item < items; item++) {
        double *logits = (double *)args->workspace + omp_get_thread_num() * stride;
        double *rotated = logits + keys;
        double *sums = rotated + DPE_MAX_BANDS * d;
        int64_t row = item / args->n_heads;
        struct query query = {
            .args = args,
            .head = item % args->n_heads,
            .m = dpe_attention_position(args, row),
            .offset = dpe_attention_offset(args, row),
            .lent = dpe_attention_lent(args, row),
            .q = args->q + item * d,
        };
        query.place = query.m;
        if (dpe_selects(&args->plan->selection)) {
            query.places = sums + d;
            if (args->compressed != NULL) {
                dpe_reference_compressed(args, row, query.head, keys, sums + d,
                                         args->compressed + item * d);
            }
            query.place = dpe_reference_places(args, row, query.head, keys, sums + d);
        }
        query_logits(&query, rotated, logits);
        double lse = weigh_values(&query, logits, sums, args->out + item * d);
        if (args->lse != NULL) {
            args->lse[item] = (float)lse;
        }
    }
}

static void reference_attention(struct dpe_backend *backend, const struct dpe_attention *args,
                                int64_t n)
{
    (void)backend;
    for (int64_t i = 0; i < n; i++) {
        attend(&args[i]);
    }
}

/* --------------------------------------------------------------------------- after attention */

static dpe_status reference_all_reduce(struct dpe_backend *backend, dpe_mem x, int64_t n,
                                       struct dpe_error *err)
{
    return backend->peers->meet(backend->peers->user, x, n, DPE_OK, err);
}

static void reference_logits(struct dpe_backend *backend, dpe_mem x, int64_t rows, float *logits)
{
    const struct dpe_tensor *head = &backend->weights->lm_head;
#pragma omp parallel for num_threads(                                                              \
    dpe_threads_for(backend->n_threads, rows * head->rows * head->cols)) schedule(static)
    for (int64_t o = 0; o < head->rows; o++) {
        for (int64_t r = 0; r < rows; r++) {
            logits[r * head->rows + o] =
                (float)dpe_reference_dot(head, o, (const float *)x + r * head->cols, 0.0);
        }
    }
}

static void reference_best(struct dpe_backend *backend, dpe_mem x, int64_t rows,
                           const struct dpe_logit_room *room, int32_t *tokens)
{
    dpe_head_best(backend->ops, backend, backend->config, x, rows, room, tokens);
}

static void reference_likelihood(struct dpe_backend *backend, dpe_mem x, int64_t rows,
                                 const struct dpe_logit_room *room, const int32_t *targets,
                                 double *nll)
{
    dpe_head_likelihood(backend->ops, backend, backend->config, x, rows, room, targets, nll);
}

static int64_t reference_first_nonfinite(struct dpe_backend *backend, int64_t layer, dpe_mem x,
                                         int64_t rows, int64_t width)
{
    (void)backend, (void)layer;
    int64_t bad = dpe_first_nonfinite(x, rows * width);
    return bad < 0 ? bad : bad / width;
}

static dpe_status reference_finish(struct dpe_backend *backend, int64_t *layer, int64_t *row,
                                   struct dpe_error *err)
{
    (void)backend, (void)err;
    *layer = -1;
    *row = -1;
    return DPE_OK;
}

const struct dpe_ops *dpe_ops_reference(void)
{
    static const struct dpe_ops ops = {
        .name = "reference",
        .lends = true,
        .default_chunk = 2048, /* of the cpu backend: keys are packed again for every chunk */
        .code = reference_code,
        .element_bytes = reference_element_bytes,
        .memory_available = reference_memory_available,
        .open = reference_open,
        .close = reference_close,
        .state_bytes = reference_state_bytes,
        .allocate = reference_allocate,
        .release = reference_release,
        .read = reference_read,
        .set_plan = reference_set_plan,
        .embed = reference_embed,
        .add_inputs = reference_add_inputs,
        .rmsnorm = reference_rmsnorm,
        .linear = reference_linear,
        .project = reference_project,
        .gate = reference_gate,
        .store_kv = dpe_reference_store_kv,
        .copy_kv = dpe_reference_copy_kv,
        .attention_workspace = reference_attention_workspace,
        .attention = reference_attention,
        .output_gate = dpe_reference_output_gate,
        .recur = dpe_reference_recur,
        .recur_workspace = dpe_reference_recur_workspace,
        .copy_state = dpe_reference_copy_state,
        .activate = dpe_reference_activate,
        .experts = dpe_reference_experts,
        .scale = dpe_reference_scale,
        .scale_part = dpe_reference_scale_part,
        .centre = dpe_reference_centre,
        .add = dpe_reference_add,
        .sinks = dpe_reference_sinks,
        .merge = dpe_reference_merge,
        .sum_norms = dpe_reference_sum_norms,
        .all_reduce = reference_all_reduce,
        .logits = reference_logits,
        .best = reference_best,
        .likelihood = reference_likelihood,
        .first_nonfinite = reference_first_nonfinite,
        .finish = reference_finish,
    };
    return &ops;
}
