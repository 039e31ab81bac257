/**
 * @file shards.h
 * Which files hold the weights of a folder (inside the engine).
 */
#ifndef DPE_SHARDS_H
#define DPE_SHARDS_H

#include "engine/model/files/safetensors.h"

/** Find the shards of a folder, open them in name order into *shards [*n], collect their tensors in
 *  *table (sorted) and add them to *hash. With an index every name of its weight_map has to be in
 *  the shard that the index names, and only these tensors are the model's. The caller closes and
 * frees the shards, after a failure too. */
dpe_status dpe_shards_open(const char *folder, struct dpe_shard **shards, int *n,
                           struct dpe_shard_table *table, struct dpe_sha256 *hash,
                           struct dpe_error *err);

/** Many names in one message, "a, b, c and 12 more": those so far; zero-initialise. */
struct dpe_name_list {
    char text[640];
    size_t used, reported, n;
};
void dpe_name_list_add(struct dpe_name_list *list, const char *name);
/** The text, with the number of names that did not fit. */
const char *dpe_name_list_text(struct dpe_name_list *list);

#endif
