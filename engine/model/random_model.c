/* Models of a shape with random weights. */
#include "engine/model/model.h"

#include <math.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/weights/opened.h"

/* Shapes from their config.json files. */
static const struct {
    const char *name;
    int64_t n_layers, hidden, intermediate, n_heads, n_kv_heads, vocab, max_position;
    double theta;
    bool qkv_bias;
} shapes[] = {
    {"llama3-8b", 32, 4096, 14336, 32, 8, 128256, 8192, 5e5, false},
    {"llama3-70b-layer", 1, 8192, 28672, 64, 8, 128256, 8192, 5e5, false},
    {"mistral-7b", 32, 4096, 14336, 32, 8, 32768, 32768, 1e6, false},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 152064, 32768, 1e6, true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

bool dpe_known_shape(const char *name, struct dpe_config *config)
{
    size_t i = 0;
    while (i < N_SHAPES && strcmp(shapes[i].name, name) != 0) {
        i++;
    }
    if (i == N_SHAPES) {
        return false;
    }
    *config = (struct dpe_config){
        .model_type = "llama",
        .n_layers = shapes[i].n_layers,
        .hidden = shapes[i].hidden,
        .intermediate = shapes[i].intermediate,
        .n_heads = shapes[i].n_heads,
        .n_kv_heads = shapes[i].n_kv_heads,
        .head_dim = 128,
        .vocab = shapes[i].vocab,
        .max_position = shapes[i].max_position,
        .rms_eps = 1e-5,
        .qkv_bias = shapes[i].qkv_bias,
        .bos_id = -1,
        .dtype = DPE_BF16,
        .rope = dpe_rope_plain,
    };
    config->rope.theta = shapes[i].theta;
    return true;
}

struct maker {
    struct dpe_model *model;
    struct dpe_rng rng;
    bool on_host;
    int next; /* the type of the last matrix */
    struct dpe_error *err;
};

static uint16_t to_half(float value, enum dpe_dtype dtype)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == DPE_BF16) {
        return (uint16_t)(bits >> 16);
    }
    /* Towards zero; of what is smaller than a normal half the fraction alone. */
    uint32_t size = bits & 0x7fffffffU;
    uint32_t half =
        size < 0x38800000U ? (uint32_t)(fabsf(value) * 0x1p24F) : (size - 0x38000000U) >> 13;
    return (uint16_t)((bits >> 16 & 0x8000U) | half);
}

/* Three uniform numbers have the variance of a quarter. */
static void fill(struct maker *maker, struct dpe_tensor *tensor, void *data, float mean,
                 float deviation)
{
    int64_t n = tensor->rows * tensor->cols;
    for (int64_t i = 0; i < n; i++) {
        double sum =
            dpe_rng_unit(&maker->rng) + dpe_rng_unit(&maker->rng) + dpe_rng_unit(&maker->rng) - 1.5;
        float value = mean + (float)(2.0 * sum) * deviation;
        if (tensor->dtype == DPE_F32) {
            ((float *)data)[i] = value;
        } else {
            ((uint16_t *)data)[i] = to_half(value, tensor->dtype);
        }
    }
}

/* Where the scale of a block stands, and what is added to its numbers or, 0: nothing is; how large
 * numbers of random bits are with a scale of 1, and the middle of what is scaled. */
static const struct {
    int scale, shift;
    float size, middle;
} block_fields[DPE_DTYPES] = {
    [DPE_Q8_0] = {0, 0, 74.0F, 0.0F},   [DPE_Q4_0] = {0, 0, 4.6F, 0.0F},
    [DPE_Q4_1] = {0, 2, 4.6F, -7.5F},   [DPE_Q5_0] = {0, 0, 9.2F, 0.0F},
    [DPE_Q5_1] = {0, 2, 9.2F, -15.5F},  [DPE_Q4_K] = {0, 2, 260.0F, 7.5F},
    [DPE_Q5_K] = {0, 2, 529.0F, 15.5F}, [DPE_Q6_K] = {208, 0, 1369.0F, 0.0F},
    [DPE_MXFP4] = {0, 0, 2.9F, 0.0F},
};

static void put_half(unsigned char *at, float value)
{
    const uint16_t half = to_half(value, DPE_F16);
    memcpy(at, &half, sizeof half);
}

/* Blocks of random bits, of about the same deviation. */
static void fill_blocks(struct maker *maker, struct dpe_tensor *tensor, unsigned char *data,
                        float deviation)
{
    const int64_t n = dpe_dtype_bytes(tensor->dtype, tensor->rows * tensor->cols);
    const float scale = deviation / block_fields[tensor->dtype].size;
    for (int64_t i = 0; i < n; i++) {
        data[i] = (unsigned char)dpe_rng_below(&maker->rng, 256);
    }
    for (int64_t i = 0; i < n; i += dpe_block_types[tensor->dtype].bytes) {
        unsigned char *at = data + i + block_fields[tensor->dtype].scale;
        if (tensor->dtype == DPE_MXFP4) {
            at[0] = (unsigned char)(127 + ilogbf(scale));
            continue;
        }
        put_half(at, scale);
        if (block_fields[tensor->dtype].shift > 0) {
            put_half(data + i + block_fields[tensor->dtype].shift,
                     scale * block_fields[tensor->dtype].middle);
        }
    }
}

/* What a matrix of so many columns is: of the model's types of blocks the next that fits. */
static enum dpe_dtype dtype_of(struct maker *maker, int64_t rows, int64_t cols)
{
    const struct dpe_config *c = &maker->model->config;
    for (int i = 0; i < DPE_DTYPES && rows > 1; i++) {
        maker->next = (maker->next + 1) % DPE_DTYPES;
        if ((c->blocks >> maker->next & 1U) != 0 &&
            cols % dpe_block_types[maker->next].elements == 0) {
            return (enum dpe_dtype)maker->next;
        }
    }
    return c->dtype;
}

static dpe_status make(struct maker *maker, int64_t rows, int64_t cols, struct dpe_tensor *tensor)
{
    *tensor = (struct dpe_tensor){.dtype = dtype_of(maker, rows, cols), .rows = rows, .cols = cols};
    if (!maker->on_host) {
        return DPE_OK;
    }
    void *data = dpe_model_own(maker->model, (size_t)dpe_dtype_bytes(tensor->dtype, rows * cols));
    DPE_TRY(DPE_MADE(data, maker->err, "random weights: out of memory"));
    const bool vector = rows == 1;
    const float deviation = vector ? 0.1F : (float)(1.0 / sqrt((double)cols));
    if (dpe_dtype_blocks(tensor->dtype)) {
        fill_blocks(maker, tensor, data, deviation);
    } else {
        fill(maker, tensor, data, vector ? 1.0F : 0.0F, deviation);
    }
    tensor->data = data;
    return DPE_OK;
}

static dpe_status make_experts(struct maker *maker, struct dpe_layer_weights *layer)
{
    const struct dpe_config *c = &maker->model->config;
    const int64_t h = c->hidden;
    const int64_t m = c->expert_width;
    DPE_TRY(DPE_NEW(&layer->experts, (size_t)c->n_experts, maker->err,
                    "random weights: out of memory"));
    for (int64_t e = 0; e < c->n_experts; e++) {
        struct dpe_expert *x = &layer->experts[e];
        const struct {
            struct dpe_tensor *weight, *bias;
            int64_t rows, cols;
        } parts[] = {{&x->gate, &x->gate_bias, m, h},
                     {&x->up, &x->up_bias, m, h},
                     {&x->down, &x->down_bias, h, m}};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            DPE_TRY(make(maker, parts[i].rows, parts[i].cols, parts[i].weight));
            if (dpe_family_of(c)->experts_biased) {
                DPE_TRY(make(maker, 1, parts[i].rows, parts[i].bias));
            }
        }
    }
    return DPE_OK;
}

/* Vectors that are float in every model. Rates are below 0: a state that grew would not be one of a
 * trained model. */
static dpe_status make_float(struct maker *maker, bool rates, struct dpe_tensor *vector)
{
    float *made = dpe_model_own(maker->model, (size_t)vector->cols * sizeof *made);
    DPE_TRY(DPE_MADE(made, maker->err, "random weights: out of memory"));
    dpe_dtype_read(vector->dtype, vector->data, 0, vector->cols, made);
    for (int64_t i = 0; rates && i < vector->cols; i++) {
        made[i] = -0.1F * fabsf(made[i]);
    }
    vector->data = made;
    vector->dtype = DPE_F32;
    return DPE_OK;
}

static dpe_status make_layer(struct maker *maker, int64_t index)
{
    struct dpe_layer_weights *layer = &maker->model->weights.layers[index];
    for (int which = 0; which < DPE_WEIGHTS_PER_LAYER; which++) {
        struct dpe_layer_shape shape =
            dpe_layer_shape(&maker->model->config, index, (enum dpe_weight)which);
        if (shape.rows > 0) {
            DPE_TRY(make(maker, shape.rows, shape.cols, &layer->weight[which]));
            const bool rates = which == DPE_WEIGHT_RATE;
            if ((rates || which == DPE_WEIGHT_LATE) && maker->on_host) {
                DPE_TRY(make_float(maker, rates, &layer->weight[which]));
            }
        }
        if (shape.bias > 0) {
            DPE_TRY(make(maker, 1, shape.bias, &layer->bias[which]));
        }
    }
    return dpe_config_routes(&maker->model->config, index) ? make_experts(maker, layer) : DPE_OK;
}

/* Kinds of layers are the model's own. */
static dpe_status copy_kinds(const struct dpe_config *config, struct dpe_model *made,
                             struct dpe_error *err)
{
    const size_t n = (size_t)config->n_layers;
    if (config->layer_kinds == NULL) {
        return DPE_OK;
    }
    DPE_TRY(DPE_NEW(&made->config.layer_kinds, n, err, "random weights: out of memory"));
    memcpy(made->config.layer_kinds, config->layer_kinds, n);
    return DPE_OK;
}

static dpe_status make_all(struct maker *maker, const struct dpe_config *config)
{
    struct dpe_weights *w = &maker->model->weights;
    DPE_TRY(DPE_MADE(w->layers != NULL ? maker->model->folder : NULL, maker->err,
                     "random weights: out of memory"));
    DPE_TRY(make(maker, config->vocab, config->hidden, &w->embedding));
    DPE_TRY(copy_kinds(config, maker->model, maker->err));
    for (int64_t i = 0; i < config->n_layers; i++) {
        DPE_TRY(make_layer(maker, i));
    }
    DPE_TRY(make(maker, 1, config->hidden, &w->final_norm));
    w->lm_head = w->embedding;
    return config->tied_embeddings ? DPE_OK
                                   : make(maker, config->vocab, config->hidden, &w->lm_head);
}

dpe_status dpe_random_model(const struct dpe_config *config, bool on_host, uint64_t seed,
                            struct dpe_model **model, struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *made = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "random weights: out of memory"));
    made->config = *config;
    made->config.rope.short_factor = NULL;
    made->config.rope.long_factor = NULL;
    made->config.rope.network = NULL;
    made->config.layer_kinds = NULL;
    struct maker maker = {.model = made, .on_host = on_host, .err = err};
    dpe_rng_seed(&maker.rng, seed, 1);
    made->weights.layers = dpe_alloc_zero((size_t)config->n_layers, sizeof *made->weights.layers);
    made->folder = strdup("random weights");
    DPE_TRY(make_all(&maker, config));
    *model = made;
    made = NULL;
    return DPE_OK;
}
