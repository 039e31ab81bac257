/* The experts of a layer, in either layout of checkpoints. */
#include <stdio.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/weights/bind_internal.h"

static dpe_status bind_expert(struct dpe_binder *binder, int64_t index, int64_t expert,
                              struct dpe_expert *out)
{
    const struct dpe_config *config = &binder->model->config;
    const struct {
        const char *name;
        int64_t rows, cols;
        struct dpe_tensor *tensor, *bias;
    } parts[] = {
        {"gate_proj", config->intermediate, config->hidden, &out->gate, &out->gate_bias},
        {"up_proj", config->intermediate, config->hidden, &out->up, &out->up_bias},
        {"down_proj", config->hidden, config->intermediate, &out->down, &out->down_bias},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "mlp.experts.%lld.%s", (long long)expert, parts[i].name);
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

/* Every `step`-th column from `first` on of an expert's matrix [cols][rows of the weight · step],
 * as the rows of a weight. */
static dpe_status cut_expert(struct dpe_binder *binder, const struct dpe_tensor *all,
                             int64_t expert, int64_t first, int64_t step, int64_t cols,
                             struct dpe_tensor *out)
{
    int64_t rows = all->cols / step;
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

/* All experts of a layer from tensors of all, [experts · inputs][outputs]. */
static dpe_status bind_stacked(struct dpe_binder *binder, int64_t index, struct dpe_expert *experts)
{
    const struct dpe_config *config = &binder->model->config;
    int64_t n = config->n_experts;
    int64_t h = config->hidden;
    int64_t m = config->intermediate;
    struct dpe_tensor in = {0};
    struct dpe_tensor in_bias = {0};
    struct dpe_tensor out = {0};
    struct dpe_tensor out_bias = {0};
    const struct {
        const char *name;
        int64_t planes, rows, cols;
        struct dpe_tensor *tensor;
    } parts[] = {
        {"mlp.experts.gate_up_proj", n, h, 2 * m, &in},
        {"mlp.experts.gate_up_proj_bias", 0, n, 2 * m, &in_bias},
        {"mlp.experts.down_proj", n, m, h, &out},
        {"mlp.experts.down_proj_bias", 0, n, h, &out_bias},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%slayers.%lld.%s", binder->prefix, (long long)index,
                 parts[i].name);
        const int64_t shape[] = {parts[i].planes, parts[i].rows, parts[i].cols};
        DPE_TRY(dpe_bind_shape(binder, name, shape, parts[i].tensor));
    }
    bool there =
        in.data != NULL && in_bias.data != NULL && out.data != NULL && out_bias.data != NULL;
    for (int64_t e = 0; there && e < n; e++) {
        struct dpe_expert *x = &experts[e];
        DPE_TRY(cut_expert(binder, &in, e, 0, 2, h, &x->gate));
        DPE_TRY(cut_expert(binder, &in, e, 1, 2, h, &x->up));
        DPE_TRY(cut_expert(binder, &out, e, 0, 1, m, &x->down));
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
    DPE_TRY(DPE_NEW(&layer->experts, (size_t)config->n_experts, binder->err,
                    "%s: no memory for %lld experts", binder->model->folder,
                    (long long)config->n_experts));
    if (dpe_family_of(config)->experts == DPE_EXPERTS_STACKED) {
        return bind_stacked(binder, index, layer->experts);
    }
    for (int64_t e = 0; e < config->n_experts; e++) {
        DPE_TRY(bind_expert(binder, index, e, &layer->experts[e]));
    }
    return DPE_OK;
}
