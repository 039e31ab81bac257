/**
 * @file slice.h
 * The part of a model that one of several processes computes (tensor parallel; inside the engine).
 *
 * Slice `index` of `size` has, of every layer, the rows of q, k and v (and their biases) of its
 * heads and the columns of o after them, its rows of gate and up and the columns of down after
 * those. So each slice makes a share of what a layer adds to the residual stream, and the sum of
 * all is the layer. Biases of o and down are with slice 0, as is the stream itself: the others add
 * nothing to it. Embedding, norms and LM head are whole in every slice. Nothing is copied: rows are
 * views into the mapped files, columns are views with a stride.
 */
#ifndef DPE_SLICE_H
#define DPE_SLICE_H

#include "engine/base/base.h"
#include "engine/model/weights/opened.h"

/** What size and index there can be: DPE_USAGE names the numbers that do not fit. */
dpe_status dpe_slice_check(const struct dpe_config *config, int index, int size,
                           struct dpe_error *err);
/** The configuration of a slice: its heads and its width of the MLP. Borrows what `config` has. */
struct dpe_config dpe_slice_config(const struct dpe_config *config, int size);
/** A model whose configuration and weights are those of a slice; borrows all data from `model`, and
 *  has no files. Free with dpe_slice_free. DPE_NO_MEMORY. */
dpe_status dpe_slice_make(const struct dpe_model *model, int index, int size,
                          struct dpe_model *slice, struct dpe_error *err);
void dpe_slice_free(struct dpe_model *slice);

#endif
