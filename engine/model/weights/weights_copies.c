/* Weights that a checkpoint holds in another form or order than the engine's own, as copies. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/weights/bind_internal.h"

float dpe_bind_element(const struct dpe_tensor *tensor, int64_t at)
{
    float value = 0.0F;
    dpe_dtype_read(tensor->dtype, tensor->data, at, 1, &value);
    return value;
}

dpe_status dpe_bind_floats(struct dpe_binder *binder, const char *name, struct dpe_tensor *tensor,
                           float **copy)
{
    *copy = NULL;
    if (tensor->data == NULL) {
        return DPE_OK;
    }
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)tensor->cols * sizeof **copy, copy));
    dpe_dtype_read(tensor->dtype, tensor->data, 0, tensor->cols, *copy);
    tensor->data = *copy;
    tensor->dtype = DPE_F32;
    return DPE_OK;
}

dpe_status dpe_bind_shift(struct dpe_binder *binder, const char *name, double shift, double factor,
                          struct dpe_tensor *tensor)
{
    float *copy = NULL;
    if (shift != 0.0 || factor != 1.0) {
        DPE_TRY(dpe_bind_floats(binder, name, tensor, &copy));
    }
    for (int64_t i = 0; copy != NULL && i < tensor->cols; i++) {
        copy[i] = (float)(factor * (double)((float)shift + copy[i]));
    }
    return DPE_OK;
}

dpe_status dpe_bind_ones(struct dpe_binder *binder, int64_t n, struct dpe_tensor *tensor)
{
    float *ones = NULL;
    DPE_TRY(dpe_bind_copy(binder, "a norm without weights", (size_t)n * sizeof *ones, &ones));
    for (int64_t i = 0; i < n; i++) {
        ones[i] = 1.0F;
    }
    *tensor = (struct dpe_tensor){.data = ones, .dtype = DPE_F32, .rows = 1, .cols = n};
    return DPE_OK;
}

/* Which component of a checkpoint's head is component i of the engine's: the pairs that rotate come
 * first, pair j as components j and j + head_dim/2; what does not rotate fills the other pairs. */
static int64_t component(const struct dpe_config *config, int64_t i)
{
    int64_t half = config->head_dim / 2;
    int64_t pairs = dpe_config_pairs(config);
    int64_t j = i % half;
    int64_t side = i / half;
    if (j >= pairs) {
        return 2 * pairs + side * (half - pairs) + j - pairs;
    }
    return dpe_family_of(config)->interleaved ? 2 * j + side : j + side * pairs;
}

static bool reordered(const struct dpe_config *config)
{
    if (dpe_family_of(config)->mixed) {
        return false; /* what does not rotate stands in the halves' ends, as here */
    }
    return dpe_family_of(config)->interleaved || 2 * dpe_config_pairs(config) != config->head_dim;
}

/* The rows of q or k (the elements of their biases and norms: width 1) in the engine's order of
 * components, as a copy. */
static dpe_status reorder_heads(struct dpe_binder *binder, const char *name, int64_t rows,
                                int64_t width, struct dpe_tensor *tensor)
{
    const struct dpe_config *config = &binder->model->config;
    if (tensor->data == NULL || !reordered(config)) {
        return DPE_OK;
    }
    size_t bytes = (size_t)dpe_dtype_bytes(tensor->dtype, width);
    char *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)rows * bytes, &copy));
    for (int64_t r = 0; r < rows; r++) {
        int64_t head = r / config->head_dim * config->head_dim;
        int64_t from = head + component(config, r - head);
        memcpy(copy + (size_t)r * bytes, (const char *)tensor->data + (size_t)from * bytes, bytes);
    }
    tensor->data = copy;
    return DPE_OK;
}

/* Norms after rotation: a weight that both sides of a pair have can come before it. So each norm
 * gets the root mean square of its pair's weights, and rotated queries what is left of the products
 * of both norms' weights. */
static dpe_status part_late(struct dpe_binder *binder, struct dpe_layer_weights *layer)
{
    const int64_t d = binder->model->config.head_dim;
    const struct dpe_tensor *from[] = {&layer->weight[DPE_WEIGHT_Q_NORM],
                                       &layer->weight[DPE_WEIGHT_K_NORM]};
    float *copy = NULL;
    if (from[0]->data == NULL || from[1]->data == NULL) {
        return DPE_OK; /* the missing one is noted */
    }
    DPE_TRY(dpe_bind_copy(binder, "norms of q and k", (size_t)(3 * d) * sizeof *copy, &copy));
    for (int64_t i = 0; i < d; i++) {
        double left = 1.0;
        for (int side = 0; side < 2; side++) {
            const double own = (double)dpe_bind_element(from[side], i);
            const double other = (double)dpe_bind_element(from[side], (i + d / 2) % d);
            const double both = sqrt((own * own + other * other) / 2.0);
            copy[side * d + i] = (float)both;
            left = both > 0.0 ? left * own / both : 0.0;
        }
        copy[2 * d + i] = (float)left;
    }
    static const enum dpe_weight to[] = {DPE_WEIGHT_Q_NORM, DPE_WEIGHT_K_NORM, DPE_WEIGHT_LATE};
    for (int i = 0; i < 3; i++) {
        layer->weight[to[i]] =
            (struct dpe_tensor){.data = copy + i * d, .dtype = DPE_F32, .rows = 1, .cols = d};
    }
    return DPE_OK;
}

dpe_status dpe_bind_arrange(struct dpe_binder *binder, int64_t index, enum dpe_weight which,
                            struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    struct dpe_layer_shape shape = dpe_layer_shape(config, index, which);
    struct dpe_tensor *weight = &layer->weight[which];
    const char *name = dpe_layer_name(config, index, which);
    const bool norm = shape.vector && !dpe_layer_bare(which) && which < DPE_WEIGHT_RATE;
    if (norm && dpe_family_of(config)->norm_plus_one) {
        DPE_TRY(dpe_bind_shift(binder, name, 1.0, 1.0, weight));
    }
    if (which == DPE_WEIGHT_ROUTER_NORM) {
        return dpe_bind_shift(binder, name, 0.0, 1.0 / sqrt((double)config->hidden), weight);
    }
    if (which == DPE_WEIGHT_RATE && !dpe_family_of(config)->recurrent->rates) {
        float *copy = NULL;
        DPE_TRY(dpe_bind_floats(binder, name, weight, &copy));
        for (int64_t i = 0; copy != NULL && i < weight->cols; i++) {
            copy[i] = -expf(copy[i]);
        }
    }
    if (!dpe_config_attends(config, index)) {
        return DPE_OK;
    }
    if (which == DPE_WEIGHT_LATE) {
        return part_late(binder, layer);
    }
    if (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K) {
        DPE_TRY(reorder_heads(binder, name, shape.rows, shape.cols, weight));
        return reorder_heads(binder, name, shape.rows, 1, &layer->bias[which]);
    }
    return which == DPE_WEIGHT_Q_NORM || which == DPE_WEIGHT_K_NORM
               ? reorder_heads(binder, name, shape.cols, 1, weight)
               : DPE_OK;
}

/* --------------------------------------------------------------------- the experts of a layer */

/* In either layout of checkpoints. */

static dpe_status bind_expert(struct dpe_binder *binder, int64_t index, int64_t expert,
                              struct dpe_expert *out)
{
    const struct dpe_config *config = &binder->model->config;
    const char *const *names = dpe_family_names_of(config)->expert;
    const int64_t width = config->expert_width;
    const struct {
        const char *name;
        int64_t rows, cols;
        struct dpe_tensor *tensor, *bias;
    } parts[] = {
        {names[1], width, config->hidden, &out->gate, &out->gate_bias},
        {names[2], width, config->hidden, &out->up, &out->up_bias},
        {names[3], config->hidden, width, &out->down, &out->down_bias},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%lld.%s", names[0], (long long)expert, parts[i].name);
        DPE_TRY(dpe_bind_part(binder, index, name, ".weight", parts[i].rows, parts[i].cols, true,
                              parts[i].tensor));
        if (dpe_family_of(config)->experts_biased) {
            DPE_TRY(
                dpe_bind_part(binder, index, name, ".bias", 0, parts[i].rows, true, parts[i].bias));
        }
    }
    return DPE_OK;
}

/* Every `step`-th element from `first` on of a row of a stacked tensor, as a vector. */
static dpe_status cut_bias(struct dpe_binder *binder, const struct dpe_tensor *all, int64_t expert,
                           int64_t first, int64_t step, struct dpe_tensor *out)
{
    int64_t n = all->cols / step;
    float *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, "experts", (size_t)n * sizeof *copy, &copy));
    for (int64_t i = 0; i < n; i++) {
        copy[i] = dpe_bind_element(all, expert * all->cols + first + i * step);
    }
    *out = (struct dpe_tensor){.data = copy, .dtype = DPE_F32, .rows = 1, .cols = n};
    return DPE_OK;
}

/* `rows` columns, every `step`-th from `first` on, of an expert's matrix [cols][columns], as the
 * rows of a weight. */
static dpe_status cut_expert(struct dpe_binder *binder, const struct dpe_tensor *all,
                             int64_t expert, int64_t first, int64_t step, int64_t rows,
                             int64_t cols, struct dpe_tensor *out)
{
    int64_t size = all->dtype == DPE_F32 ? 4 : 2;
    char *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, "experts", (size_t)(rows * cols * size), &copy));
    const char *from = (const char *)all->data + expert * cols * all->cols * size;
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(copy + (r * cols + c) * size, from + (c * all->cols + first + r * step) * size,
                   (size_t)size);
        }
    }
    *out = (struct dpe_tensor){.data = copy, .dtype = all->dtype, .rows = rows, .cols = cols};
    return DPE_OK;
}

static struct dpe_tensor rows_of(const struct dpe_tensor *all, int64_t first, int64_t n)
{
    struct dpe_tensor part = *all;
    part.data = dpe_tensor_at(all, first * all->cols);
    part.rows = n;
    return part;
}

/* All experts of a layer from tensors of all: matrices as the engine has them, all rows of gates
 * before the others', or [inputs][outputs]. *found is whether the checkpoint is such. */
static dpe_status bind_stacked(struct dpe_binder *binder, int64_t index, struct dpe_expert *experts,
                               bool *found)
{
    const struct dpe_config *config = &binder->model->config;
    const char *own = dpe_family_names_of(config)->expert[0];
    const bool turns = dpe_family_of(config)->experts == DPE_EXPERTS_STACKED;
    const bool as_here = dpe_family_of(config)->experts == DPE_EXPERTS_APART;
    int64_t n = config->n_experts;
    int64_t h = config->hidden;
    int64_t m = config->expert_width;
    struct dpe_tensor in = {0};
    struct dpe_tensor in_bias = {0};
    struct dpe_tensor out = {0};
    struct dpe_tensor out_bias = {0};
    const struct {
        const char *name;
        int64_t planes, outputs, inputs;
        struct dpe_tensor *tensor;
    } parts[] = {
        {"gate_up_proj", n, 2 * m, h, &in},
        {"down_proj", n, h, m, &out},
        {"gate_up_proj_bias", 0, 2 * m, n, &in_bias},
        {"down_proj_bias", 0, h, n, &out_bias},
    };
    for (size_t i = 0; i < (turns ? 4 : 2); i++) {
        char name[128];
        bool packed = false;
        snprintf(name, sizeof name, "%slayers.%lld.%s.%s", binder->prefix, (long long)index, own,
                 parts[i].name);
        *found = !as_here || dpe_shard_table_find(binder->table, name) != NULL || i > 0;
        if (!*found) {
            return DPE_OK;
        }
        const int64_t shape[] = {parts[i].planes, as_here ? parts[i].outputs : parts[i].inputs,
                                 as_here ? parts[i].inputs : parts[i].outputs};
        if (parts[i].planes > 0 && turns) {
            DPE_TRY(dpe_bind_mxfp4(binder, name, n, parts[i].outputs, parts[i].inputs,
                                   parts[i].tensor, &packed));
        }
        DPE_TRY(packed ? DPE_OK : dpe_bind_shape(binder, name, shape, parts[i].tensor));
    }
    bool there = in.data != NULL && out.data != NULL &&
                 (!turns || (in_bias.data != NULL && out_bias.data != NULL));
    for (int64_t e = 0; there && e < n; e++) {
        struct dpe_expert *x = &experts[e];
        if (as_here || in.dtype == DPE_MXFP4) {
            x->gate = rows_of(&in, 2 * e * m, m);
            x->up = rows_of(&in, (2 * e + 1) * m, m);
        } else {
            DPE_TRY(cut_expert(binder, &in, e, 0, turns ? 2 : 1, m, h, &x->gate));
            DPE_TRY(cut_expert(binder, &in, e, turns ? 1 : m, turns ? 2 : 1, m, h, &x->up));
        }
        if (as_here || out.dtype == DPE_MXFP4) {
            x->down = rows_of(&out, e * h, h);
        } else {
            DPE_TRY(cut_expert(binder, &out, e, 0, 1, h, m, &x->down));
        }
        if (!turns) {
            continue;
        }
        DPE_TRY(cut_bias(binder, &in_bias, e, 0, 2, &x->gate_bias));
        DPE_TRY(cut_bias(binder, &in_bias, e, 1, 2, &x->up_bias));
        DPE_TRY(cut_bias(binder, &out_bias, e, 0, 1, &x->down_bias));
    }
    return DPE_OK;
}

dpe_status dpe_bind_experts(struct dpe_binder *binder, int64_t index,
                            struct dpe_layer_weights *layer)
{
    const struct dpe_config *config = &binder->model->config;
    bool found = false;
    DPE_TRY(DPE_NEW(&layer->experts, (size_t)config->n_experts, binder->err,
                    "%s: no memory for %lld experts", binder->model->folder,
                    (long long)config->n_experts));
    DPE_TRY(bind_stacked(binder, index, layer->experts, &found));
    for (int64_t e = 0; !found && e < config->n_experts; e++) {
        DPE_TRY(bind_expert(binder, index, e, &layer->experts[e]));
    }
    return DPE_OK;
}
