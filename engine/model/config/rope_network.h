/**
 * @file rope_network.h
 * Rotations whose frequencies a network among the weights makes of the length. Each has a reader
 * here and a row in the table of rope types (config_rope.c); nothing else knows which one a model
 * has.
 */
#ifndef DPE_ROPE_NETWORK_H
#define DPE_ROPE_NETWORK_H

#include "engine/base/base.h"

struct dpe_json_reader;

/** A tensor that a network reads. */
struct dpe_network_tensor {
    const char *name;   /**< without the language model's prefix; NULL ends the list */
    int64_t rows, cols; /**< rows 0: a vector */
};

enum { DPE_NETWORK_SETTINGS = 5 };

struct dpe_rope_network {
    double settings[DPE_NETWORK_SETTINGS]; /**< its numbers in config.json */
    struct dpe_network_tensor tensors[4];
    int64_t n_values; /**< numbers of all tensors */
    double *values;   /**< [n_values], one tensor after another, owned; NULL without the weights */
    /** inv_freq [n_pairs] of a length and the attention factor; `trained` is the model's own
     * length. DPE_BAD_DATA: the network's tensors are missing, or it makes
     * a frequency that is not a positive number.
     * DPE_NO_MEMORY. */
    dpe_status (*frequencies)(const struct dpe_rope_network *network, int64_t n_pairs,
                              int64_t trained, int64_t length, double *inv_freq,
                              double *attention_factor, struct dpe_error *err);
};

/** Reads the settings of a network in config.json, or in its rotation, for so many pairs. Owned by
 * the caller; NULL: `rope` has failed. */
typedef struct dpe_rope_network *
dpe_rope_network_read(struct dpe_json_reader *top, struct dpe_json_reader *rope, int64_t n_pairs);
/** CLEX (Chen et al. 2024): the network says how fast the logarithms of the frequencies change with
 * the length's multiple of the trained length. */
dpe_rope_network_read dpe_rope_network_clex;

#endif
