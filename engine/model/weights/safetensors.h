/**
 * @file safetensors.h
 * Reading safetensors files of strangers, and the folders that hold a model in them (inside the
 * engine).
 *
 * A file is: 8 bytes little endian = N, N bytes of JSON {"name": {"dtype", "shape",
 * "data_offsets": [begin, end)}, …, "__metadata__": {string: string}}, then the data, to which the
 * offsets are relative. Accepted and rejected is what the format's reference implementation accepts
 * and rejects (docs of the fault rows in tests/engine/model/test_safetensors.c), and besides names
 * with NUL and ranks above 8 are rejected. All reading before mapping is by pread, so that a short
 * file is an error and never a SIGBUS.
 */
#ifndef DPE_SAFETENSORS_H
#define DPE_SAFETENSORS_H

#include <jansson.h>

#include "engine/base/base.h"

enum { DPE_SAFETENSORS_RANK = 8 };

/** A mapped file, kept open so that dpe_shard_verify can read its size. */
struct dpe_shard {
    char *name; /**< basename, NUL-terminated, owned */
    char *path; /**< for messages and opening, owned */
    int fd;     /**< −1 when not open */
    uint64_t size;
    uint64_t data;      /**< file offset where the data begins */
    unsigned char *map; /**< [size] read only, NULL when not mapped */
    json_t *header;     /**< holds the names of its tensors, owned */
};

/** One entry of a header. */
struct dpe_shard_tensor {
    const char *name;  /**< without NUL inside; in the shard's header */
    const char *dtype; /**< as written, e.g. "BF16"; in the shard's header */
    int shard;         /**< whose: index given to dpe_shard_open */
    int rank;
    int64_t shape[DPE_SAFETENSORS_RANK];
    uint64_t begin, end; /**< bytes of the file, absolute */
};

/** All tensors of a model; zero-initialise, free tensors with free(), before the shards close. */
struct dpe_shard_table {
    struct dpe_shard_tensor *tensors;
    size_t n;
};

/** Open `folder`/`name`, check it, map it, append its tensors to *table as those of shard `index`,
 *  and add its name, size and header bytes to *hash. *shard must be zeroed with fd −1; release it
 *  with dpe_shard_close on failure as well.
 *  Errors: DPE_NO_INPUT, DPE_PERMISSION, DPE_BAD_DATA, DPE_NO_MEMORY, DPE_IO; each names the file
 *  and, where one is meant, the tensor. */
dpe_status dpe_shard_open(const char *folder, const char *name, int index, struct dpe_shard *shard,
                          struct dpe_shard_table *table, struct dpe_sha256 *hash,
                          struct dpe_error *err);
/** Maps the file of an opened shard. DPE_NO_MEMORY, DPE_IO. */
dpe_status dpe_shard_map(struct dpe_shard *shard, struct dpe_error *err);
void dpe_shard_close(struct dpe_shard *shard);
/** DPE_IO when the file is shorter than it was at open. */
dpe_status dpe_shard_verify(const struct dpe_shard *shard, struct dpe_error *err);
/** Read [begin, end) of the file into `to`, which has that size. */
dpe_status dpe_shard_read(const struct dpe_shard *shard, uint64_t begin, uint64_t end, void *to,
                          struct dpe_error *err);
/** The same for a few bytes of a mapped shard. Pages that only this call brought into memory leave
 * it: a huge page cannot come where a small one is. */
dpe_status dpe_shard_sample(const struct dpe_shard *shard, uint64_t begin, uint64_t end, void *to,
                            struct dpe_error *err);

/** Sort by name; a name that occurs twice (only across shards possible) is DPE_BAD_DATA. */
dpe_status dpe_shard_table_sort(struct dpe_shard_table *table, const struct dpe_shard *shards,
                                struct dpe_error *err);
/** By name in a sorted table, NULL when there is none. */
const struct dpe_shard_tensor *dpe_shard_table_find(const struct dpe_shard_table *table,
                                                    const char *name);

/* ------------------------------------------------------------------------------------- folders */

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
    size_t reported, n;
};
void dpe_name_list_add(struct dpe_name_list *list, const char *name);
/** The text, with the number of names that did not fit. */
const char *dpe_name_list_text(struct dpe_name_list *list);

#endif
