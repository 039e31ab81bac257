/* Weights on their way to the device. */
#include "engine/cuda/host/backend.h"

#include <string.h>

#include "engine/base/halves.h"
#include "engine/gguf/blocks.h"
#include "engine/model/config/family.h"

enum { BLOCK = 4 << 20 /* bytes */ };

static uint64_t element_of(const struct dpe_config *config)
{
    return dpe_config_unpacked(config) == DPE_F32 ? 4 : 2;
}

static uint64_t expert_bytes(const struct dpe_config *c)
{
    const uint64_t bias = dpe_family_of(c)->experts_biased ? sizeof(float) : 0;
    const uint64_t biases = dpe_bytes_plus(dpe_bytes_of(c->expert_width, 2, 1, bias),
                                           dpe_bytes_of(c->hidden, 1, 1, bias));
    return dpe_bytes_plus(dpe_bytes_of(c->expert_width, c->hidden, 1, 3 * element_of(c)),
                          dpe_bytes_plus(biases, 3 * sizeof(struct dpe_cuda_matrix)));
}

uint64_t dpe_cuda_weight_bytes(const struct dpe_config *c)
{
    uint64_t e = element_of(c);
    uint64_t all = dpe_bytes_of(dpe_config_routed(c), c->n_experts, 1, expert_bytes(c));
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
            struct dpe_layer_shape shape = dpe_layer_shape(c, layer, (enum dpe_weight)which);
            all = dpe_bytes_plus(
                all, dpe_bytes_of(shape.rows, shape.cols, 1, shape.vector ? sizeof(float) : e));
            all = dpe_bytes_plus(all, dpe_bytes_of(shape.bias, 1, 1, sizeof(float)));
        }
    }
    all = dpe_bytes_plus(all, dpe_bytes_of(c->vocab, c->hidden, 1, c->tied_embeddings ? e : 2 * e));
    return dpe_bytes_plus(all, dpe_bytes_of(c->hidden, 1, 1, sizeof(float)));
}

/* Rows first … first+n−1 of a tensor, one after the other, as `dtype`. `row` is room for one. */
static void gather_rows(const struct dpe_tensor *tensor, int64_t first, int64_t n,
                        enum dpe_dtype dtype, float *row, char *out)
{
    int64_t cols = tensor->cols;
    for (int64_t r = 0; r < n; r++) {
        int64_t at = (first + r) * dpe_tensor_stride(tensor);
        if (tensor->dtype == dtype) {
            int64_t bytes = dpe_dtype_bytes(dtype, cols);
            memcpy(out + r * bytes, (const char *)tensor->data + dpe_dtype_bytes(dtype, at),
                   (size_t)bytes);
        } else if (dtype == DPE_F32) {
            dpe_dtype_read(tensor->dtype, tensor->data, at, cols, (float *)(void *)out + r * cols);
        } else {
            dpe_dtype_read(tensor->dtype, tensor->data, at, cols, row);
            for (int64_t i = 0; i < cols; i++) {
                ((uint16_t *)(void *)out)[r * cols + i] = dpe_to_bf16(row[i]);
            }
        }
    }
}

/* A tensor that is not on disk as it is to be on the device, some rows at a time. */
static dpe_status upload_rows(struct dpe_backend *b, const struct dpe_tensor *tensor,
                              enum dpe_dtype dtype, char *to, struct dpe_error *err)
{
    int64_t row = tensor->cols * (dtype == DPE_F32 ? 4 : 2);
    int64_t rows = row < BLOCK ? BLOCK / row : 1;
    rows = rows < tensor->rows ? rows : tensor->rows;
    DPE_OWNED char *block = dpe_alloc((size_t)rows, (size_t)row);
    DPE_OWNED float *floats = dpe_alloc((size_t)tensor->cols, sizeof *floats);
    DPE_TRY(DPE_MADE(block != NULL ? floats : NULL, err,
                     "cuda: out of host memory while weights are uploaded"));
    for (int64_t r = 0; r < tensor->rows; r += rows) {
        int64_t some = tensor->rows - r < rows ? tensor->rows - r : rows;
        gather_rows(tensor, r, some, dtype, floats, block);
        DPE_CUDA_TRY(b, dpe_rt_up(to + r * row, block, (uint64_t)(some * row)));
    }
    return dpe_cuda_status(b, err);
}

/* One tensor; `dtype` is what it is to be on the device. */
static dpe_status upload(struct dpe_backend *b, const struct dpe_tensor *tensor,
                         enum dpe_dtype dtype, void **memory, struct dpe_error *err)
{
    int64_t n = tensor->rows * tensor->cols;
    uint64_t size = dtype == DPE_F32 ? 4 : 2;
    DPE_TRY(dpe_cuda_own(b, (uint64_t)n * size, memory, err));
    if (tensor->data == NULL) {
        /* Norms near 1 and matrices that keep the size of what they multiply. */
        float deviation = tensor->rows == 1 ? 1.0f : 0.02f;
        DPE_CUDA_TRY(b, dpe_kernel_random(dtype, *memory, n, deviation, b->n_owned));
        return dpe_cuda_status(b, err);
    }
    /* What differs from the type of the others becomes float; beside matrices in blocks, as these,
     * bfloat16. */
    if (tensor->dtype != dtype || dpe_tensor_stride(tensor) != tensor->cols) {
        return upload_rows(b, tensor, dtype, *memory, err);
    }
    DPE_CUDA_TRY(b, dpe_rt_up(*memory, tensor->data, (uint64_t)n * size));
    return dpe_cuda_status(b, err);
}

/* Vectors are float on the device, whatever the matrices are. */
static dpe_status upload_layer(struct dpe_backend *b, int64_t layer, struct dpe_error *err)
{
    const struct dpe_layer_weights *from = &b->weights->layers[layer];
    struct dpe_cuda_layer *to = &b->layers[layer];
    for (int i = 0; i < DPE_WEIGHTS_PER_LAYER; i++) {
        bool vector = dpe_layer_shape(b->config, layer, (enum dpe_weight)i).vector;
        if (from->weight[i].cols > 0) {
            DPE_TRY(upload(b, &from->weight[i], vector ? DPE_F32 : b->dtype, &to->weight[i], err));
        }
        if (i == DPE_WEIGHT_RATE && from->weight[i].cols > 0 && from->weight[i].data == NULL) {
            /* Random ones would let states grow: each −0.093. */
            const uint64_t bytes = (uint64_t)from->weight[i].cols * sizeof(float);
            DPE_CUDA_TRY(b, dpe_rt_fill(to->weight[i], 0xbd, bytes));
        }
        if (from->bias[i].cols > 0) {
            DPE_TRY(upload(b, &from->bias[i], DPE_F32, &to->bias[i], err));
        }
    }
    return DPE_OK;
}

static dpe_status upload_experts(struct dpe_backend *b, const struct dpe_expert *from,
                                 struct dpe_cuda_layer *to, struct dpe_error *err)
{
    const int64_t n = from != NULL ? b->config->n_experts : 0;
    if (n == 0) {
        return DPE_OK;
    }
    DPE_OWNED struct dpe_cuda_matrix *made = NULL;
    DPE_TRY(DPE_NEW(&made, (size_t)n, err, "cuda: out of host memory"));
    for (int part = 0; part < 3; part++) {
        for (int64_t e = 0; e < n; e++) {
            const struct dpe_tensor *weight[] = {&from[e].gate, &from[e].up, &from[e].down};
            const struct dpe_tensor *bias[] = {&from[e].gate_bias, &from[e].up_bias,
                                               &from[e].down_bias};
            made[e] = (struct dpe_cuda_matrix){0};
            DPE_TRY(upload(b, weight[part], b->dtype, &made[e].weight, err));
            if (bias[part]->cols > 0) {
                DPE_TRY(upload(b, bias[part], DPE_F32, &made[e].bias, err));
            }
        }
        const uint64_t bytes = (uint64_t)n * sizeof *made;
        void *memory = NULL;
        DPE_TRY(dpe_cuda_own(b, bytes, &memory, err));
        to->experts[part] = memory;
        DPE_CUDA_TRY(b, dpe_rt_up(memory, made, bytes));
    }
    return dpe_cuda_status(b, err);
}

dpe_status dpe_cuda_upload(struct dpe_backend *b, struct dpe_error *err)
{
    const struct dpe_weights *w = b->weights;
    DPE_TRY(DPE_NEW(&b->layers, (size_t)b->config->n_layers, err, "cuda: out of host memory"));
    DPE_TRY(upload(b, &w->embedding, b->dtype, &b->embedding, err));
    for (int64_t i = 0; i < b->config->n_layers; i++) {
        DPE_TRY(upload_layer(b, i, err));
        DPE_TRY(upload_experts(b, w->layers[i].experts, &b->layers[i], err));
    }
    DPE_TRY(upload(b, &w->final_norm, DPE_F32, &b->final_norm, err));
    b->lm_head = b->embedding;
    if (!b->config->tied_embeddings) {
        DPE_TRY(upload(b, &w->lm_head, b->dtype, &b->lm_head, err));
    }
    /* Uploads overlap; a failure of one may show only now. */
    DPE_CUDA_TRY(b, dpe_rt_wait());
    return dpe_cuda_status(b, err);
}
