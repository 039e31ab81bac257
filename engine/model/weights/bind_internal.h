/**
 * @file bind_internal.h
 * What the files that bind tensors to weights share (inside this room).
 */
#ifndef DPE_BIND_INTERNAL_H
#define DPE_BIND_INTERNAL_H

#include "engine/model/config/layer_weights.h"
#include "engine/model/weights/opened.h"
#include "engine/model/weights/safetensors.h"

/** A checkpoint that is being bound. */
struct dpe_binder {
    struct dpe_model *model;
    const struct dpe_shard_table *table;
    const char *prefix; /**< of the language model's tensors but the head's */
    const char *head;   /**< the name of the head */
    struct dpe_name_list missing;
    struct dpe_error *err;
};

/** Bytes that the model owns until it is closed, into the pointer whose address is `copy`; `name`
 * is for messages. DPE_NO_MEMORY. */
dpe_status dpe_bind_copy(struct dpe_binder *binder, const char *name, size_t bytes, void *copy);
/** Bind a tensor by its whole name. shape: planes, rows, columns; 0 planes mean a matrix, and 0
 * rows a vector. Planes become rows of the tensor. A missing tensor is noted and is not an error
 * yet. */
dpe_status dpe_bind_shape(struct dpe_binder *binder, const char *name, const int64_t shape[3],
                          struct dpe_tensor *tensor);
/** A matrix, plain or packed; rows 0: a vector of `cols`. */
dpe_status dpe_bind(struct dpe_binder *binder, const char *name, int64_t rows, int64_t cols,
                    struct dpe_tensor *tensor);
/** One tensor of a layer, a weight or a bias, by its name in the layer and its suffix; `there`: the
 *  configuration has it. rows 0: a vector. */
dpe_status dpe_bind_part(struct dpe_binder *binder, int64_t index, const char *own,
                         const char *suffix, int64_t rows, int64_t cols, bool there,
                         struct dpe_tensor *tensor);

/* weights_copies.c */

/** Element `at` of a tensor's data as float, exact. */
float dpe_bind_element(const struct dpe_tensor *tensor, int64_t at);
/** A vector as floats of the model's own, to change in *copy; NULL: the tensor is missing. */
dpe_status dpe_bind_floats(struct dpe_binder *binder, const char *name, struct dpe_tensor *tensor,
                           float **copy);
/** A vector as factor · (shift + itself), in float. */
dpe_status dpe_bind_shift(struct dpe_binder *binder, const char *name, double shift, double factor,
                          struct dpe_tensor *tensor);
/** The weight [1, n] of a norm that has none. */
dpe_status dpe_bind_ones(struct dpe_binder *binder, int64_t n, struct dpe_tensor *tensor);
/** Norms with their 1, q and k in the engine's order. */
dpe_status dpe_bind_arrange(struct dpe_binder *binder, int64_t index, enum dpe_weight which,
                            struct dpe_layer_weights *layer);

/* weights_parts.c */

/** Whether a checkpoint of the family has a weight of a layer as some rows of a tensor. */
bool dpe_bind_is_part(const struct dpe_config *config, int64_t index, enum dpe_weight which);
/** All such weights of a layer. */
dpe_status dpe_bind_parts(struct dpe_binder *binder, int64_t index,
                          struct dpe_layer_weights *layer);

/* weights_packed.c */

/** The matrix NAME ("….weight") that the checkpoint holds packed, under names beside it, or as
 * F8_E4M3 with scales beside it (one, one for each row, or one for each block of
 * dpe_config.fp8_block); *found is whether it does. The tensor is a copy in blocks of GGUF where
 * these hold the same values, else in bfloat16. DPE_BAD_DATA names file and tensor: another type or
 * shape, groups that do not divide the columns, zero points and groups out of range. */
dpe_status dpe_bind_packed(struct dpe_binder *binder, const char *name, int64_t rows, int64_t cols,
                           struct dpe_tensor *tensor, bool *found);
/** The experts of gpt-oss as published: NAME_blocks [experts][outputs][inputs/32][16] and
 * NAME_scales [experts][outputs][inputs/32], as rows of blocks of MXFP4; *found as above. */
dpe_status dpe_bind_mxfp4(struct dpe_binder *binder, const char *name, int64_t experts,
                          int64_t outputs, int64_t inputs, struct dpe_tensor *tensor, bool *found);

/** All experts of a layer. */
dpe_status dpe_bind_experts(struct dpe_binder *binder, int64_t index,
                            struct dpe_layer_weights *layer);

#endif
