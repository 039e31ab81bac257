/* Projections that a checkpoint holds as rows of one tensor: those of layers with a state, queries
 * with the gate of attention's output, and queries, keys and values, or gate and up, where a family
 * has them fused. */
#include <stdio.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/weights/bind_internal.h"

/* Where the rows of a weight are in a tensor of several: `count` times `size` rows, from `first`
 * on, a new one every `step` rows; count 0: the weight has a tensor of its own. */
struct part {
    const char *name;
    int64_t first, size, step, count;
};

static bool is_convolution(enum dpe_weight which)
{
    return which >= DPE_WEIGHT_CONVOLUTION_Q && which <= DPE_WEIGHT_CONVOLUTION_V;
}

static struct part attention_part(const struct dpe_config *c, int64_t index, enum dpe_weight which)
{
    const struct dpe_family *family = dpe_family_of(c);
    const int64_t d = c->head_dim;
    const int64_t q = c->n_heads * d;
    const int64_t k = c->n_kv_heads * d;
    const int64_t m = c->intermediate;
    const char *name = dpe_layer_name(c, index, which);
    const bool v = which == DPE_WEIGHT_V;
    if (c->output_gate && (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_OUTPUT_GATE)) {
        return (struct part){name, which == DPE_WEIGHT_Q ? 0 : d, d, 2 * d, c->n_heads};
    }
    if (family->qkv_fused && (which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K || v)) {
        return which == DPE_WEIGHT_Q
                   ? (struct part){"self_attn.qkv_proj", 0, q, q + 2 * k, 1}
                   : (struct part){"self_attn.qkv_proj", v ? q + k : q, k, q + 2 * k, 1};
    }
    if (family->gate_up_fused && (which == DPE_WEIGHT_GATE || which == DPE_WEIGHT_UP)) {
        return (struct part){"mlp.gate_up_proj", which == DPE_WEIGHT_UP ? m : 0, m, 2 * m, 1};
    }
    return (struct part){0};
}

static struct part part_of(const struct dpe_config *c, int64_t index, enum dpe_weight which)
{
    const struct dpe_recurrent *r = &c->recurrent;
    if (dpe_config_attends(c, index)) {
        return attention_part(c, index, which);
    }
    const char *name = dpe_layer_name(c, index, which);
    const int64_t keys = dpe_recurrent_keys(r);
    const int64_t values = dpe_recurrent_values(r);
    const bool v = which == DPE_WEIGHT_V || which == DPE_WEIGHT_CONVOLUTION_V;
    const bool q = which == DPE_WEIGHT_Q || which == DPE_WEIGHT_CONVOLUTION_Q;
    const bool projected = which == DPE_WEIGHT_Q || which == DPE_WEIGHT_K || which == DPE_WEIGHT_V;
    const bool rated = which == DPE_WEIGHT_BETA || which == DPE_WEIGHT_DECAY;
    const bool gate = which == DPE_WEIGHT_OUTPUT_GATE;
    const int64_t before = v ? 2 : q ? 0 : 1;
    const enum dpe_recurrent_layout layout = dpe_family_of(c)->recurrent->layout;
    const int64_t group = r->value_heads / r->key_heads;
    const int64_t own = group * r->value_dim;
    const int64_t step = 2 * (r->key_dim + own);
    if (rated && (layout == DPE_RECURRENT_KEYS || layout == DPE_RECURRENT_SORTED)) {
        return (struct part){name, which == DPE_WEIGHT_BETA ? 0 : group, group, 2 * group,
                             r->key_heads};
    }
    if (layout == DPE_RECURRENT_KEYS && gate) {
        return (struct part){name, 2 * r->key_dim + own, own, step, r->key_heads};
    }
    if (layout == DPE_RECURRENT_KEYS && projected) {
        return (struct part){name, before * r->key_dim, v ? own : r->key_dim, step, r->key_heads};
    }
    return is_convolution(which) || (projected && layout != DPE_RECURRENT_APART)
               ? (struct part){name, before * keys, v ? values : keys, 2 * keys + values, 1}
               : (struct part){0};
}

/* The rows of a part of `whole`: where they are, or a copy where others stand between them. */
static dpe_status take_part(struct dpe_binder *binder, const char *name, const struct part *part,
                            const struct dpe_tensor *whole, struct dpe_tensor *tensor)
{
    *tensor = *whole;
    tensor->rows = part->size * part->count;
    if (part->count == 1) {
        tensor->data = dpe_tensor_at(whole, part->first * whole->cols);
        return DPE_OK;
    }
    const size_t row = (size_t)dpe_dtype_bytes(whole->dtype, whole->cols);
    const size_t bytes = (size_t)part->size * row;
    char *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, bytes * (size_t)part->count, &copy));
    for (int64_t i = 0; i < part->count; i++) {
        memcpy(copy + (size_t)i * bytes,
               (const char *)whole->data + (size_t)(part->first + i * part->step) * row, bytes);
    }
    tensor->data = copy;
    return DPE_OK;
}

/* A whole tensor. A convolution [channels][width] has one plane for each channel in a folder. */
static dpe_status bind_whole(struct dpe_binder *binder, const char *name, int64_t rows,
                             int64_t cols, bool planes, struct dpe_tensor *tensor)
{
    const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
    if (planes && found != NULL && found->rank == 3) {
        return dpe_bind_shape(binder, name, (const int64_t[]){rows, 1, cols}, tensor);
    }
    return dpe_bind(binder, name, rows, cols, tensor);
}

/* The convolution of a layer where a checkpoint has three tensors (OLMo Hybrid), one after the
 * other as a copy, as if it had one. */
static dpe_status bind_convolutions(struct dpe_binder *binder, int64_t index, int64_t rows,
                                    int64_t cols, struct dpe_tensor *whole)
{
    float *copy = NULL;
    int64_t n = 0;
    char name[128];
    DPE_TRY(dpe_bind_copy(binder, "conv1d", (size_t)(rows * cols) * sizeof *copy, &copy));
    for (const char *letter = "qkv"; *letter != '\0'; letter++) {
        snprintf(name, sizeof name, "%slayers.%lld.linear_attn.%c_conv1d.weight", binder->prefix,
                 (long long)index, *letter);
        const struct dpe_shard_tensor *found = dpe_shard_table_find(binder->table, name);
        struct dpe_tensor part = {0};
        if (found == NULL) {
            dpe_name_list_add(&binder->missing, name);
            return DPE_OK;
        }
        /* The last has what is left: transformers writes three parts of about one size. */
        int64_t own = found->shape[0];
        own = *letter == 'v' || own > rows - n ? rows - n : own;
        DPE_TRY(bind_whole(binder, name, own, cols, true, &part));
        for (int64_t i = 0; part.data != NULL && i < own * cols; i++) {
            copy[n * cols + i] = dpe_bind_element(&part, i);
        }
        n += own;
    }
    *whole = (struct dpe_tensor){.data = copy, .dtype = DPE_F32, .rows = rows, .cols = cols};
    return DPE_OK;
}

dpe_status dpe_bind_parts(struct dpe_binder *binder, int64_t index, struct dpe_layer_weights *layer)
{
    const struct dpe_config *c = &binder->model->config;
    char name[128] = "";
    char last[128] = "";
    struct dpe_tensor whole = {0};
    for (int i = 0; i < DPE_WEIGHTS_PER_LAYER; i++) {
        const enum dpe_weight which = (enum dpe_weight)i;
        const struct dpe_layer_shape shape = dpe_layer_shape(c, index, which);
        const struct part part = part_of(c, index, which);
        if (part.count == 0) {
            continue;
        }
        snprintf(name, sizeof name, "%slayers.%lld.%s.weight", binder->prefix, (long long)index,
                 part.name);
        if (strcmp(name, last) != 0) {
            const bool apart = is_convolution(which) &&
                               dpe_family_of(c)->recurrent->layout == DPE_RECURRENT_APART &&
                               dpe_shard_table_find(binder->table, name) == NULL;
            const int64_t rows = part.step * part.count;
            whole = (struct dpe_tensor){0};
            DPE_TRY(
                apart ? bind_convolutions(binder, index, rows, shape.cols, &whole)
                      : bind_whole(binder, name, rows, shape.cols, is_convolution(which), &whole));
            memcpy(last, name, sizeof last);
        }
        if (whole.data != NULL) {
            DPE_TRY(take_part(binder, name, &part, &whole, &layer->weight[which]));
        }
    }
    return DPE_OK;
}

bool dpe_bind_is_part(const struct dpe_config *c, int64_t index, enum dpe_weight which)
{
    return part_of(c, index, which).count > 0;
}
