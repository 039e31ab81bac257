/**
 * @file kv.h
 * The key/value cache of a session where it is not plain float in memory: other types of its
 * elements, and a file for what does not fit into memory. Keys are stored before rotation, so one
 * cache serves every plan. Whoever reads gets float rows in its own buffer and does not know where
 * they came from.
 *
 * Types. BF16: each number rounded to the nearest bfloat16, ties to even. INT8: a row (one token,
 * one head) of `width` codes from −127 to 127 and one scale; a number is code · scale · channel,
 * with a constant for each channel of a head (dpe_kv_set_channels). So what a row becomes depends
 * on the row alone: not on later tokens, on how a text was cut into calls, or on what was cut from
 * the cache.
 *
 * The file. It has no name: a process that ends in any way leaves nothing. All of it is reserved
 * when it is made, so a full disk is found then. Rows are read and written by pread and pwrite,
 * never through a mapping, whose read errors would be signals. How much of it is in memory, beside
 * the process's own, the system decides.
 *
 * Threads may read at the same time, and write or copy rows that no other thread uses.
 */
#ifndef DPE_KV_H
#define DPE_KV_H

#include "engine/base/base.h"

enum dpe_kv_type { DPE_KV_F32, DPE_KV_BF16, DPE_KV_INT8 };
/** "f32", "bf16", "int8", NULL: for messages, options and identities. */
extern const char *const dpe_kv_type_names[];

enum dpe_kv_part {
    DPE_KV_KEYS,
    DPE_KV_VALUES,
    DPE_KV_QUERIES, /**< that a selection keeps; always F32 */
    DPE_KV_PARTS,
};

struct dpe_kv_shape {
    enum dpe_kv_type type;
    int64_t layers, heads, capacity, width; /**< rows of a head, numbers of a row */
    int64_t query_heads;                    /**< 0: no queries are kept */
};

/** Bytes of all rows, in memory or in a file. */
uint64_t dpe_kv_bytes(const struct dpe_kv_shape *shape);

struct dpe_kv;

/** Rows in memory (folder NULL), or in a file in `folder`. DPE_NO_MEMORY; DPE_CANNOT_CREATE when
 *  there can be no file in the folder, or its file system is memory itself; DPE_IO when the disk is
 *  full. */
dpe_status dpe_kv_create(const struct dpe_kv_shape *shape, const char *folder, struct dpe_kv **kv,
                         struct dpe_error *err);
void dpe_kv_destroy(struct dpe_kv *kv);
DPE_SCOPED_HANDLE(struct dpe_kv *, dpe_kv_destroy)
/** Constants [heads][width] above 0 by which a layer's keys are divided before they are rounded to
 * 8 bits; 1 without this call. Nothing for other types. */
dpe_status dpe_kv_set_channels(struct dpe_kv *kv, int64_t layer, const float *channels,
                               struct dpe_error *err);

/** Rows of one head of a layer. */
struct dpe_kv_rows {
    enum dpe_kv_part part;
    int64_t layer, head, row, count;
};
/** Bytes of one row, whatever its numbers are. */
uint64_t dpe_kv_row_bytes(enum dpe_kv_type type, int64_t width);
/** The first of these rows in a cache in memory, for whoever moves them as they are; the others
 * follow it. */
unsigned char *dpe_kv_at(struct dpe_kv *kv, const struct dpe_kv_rows *rows);
/** From `from`, whose rows lie `stride` numbers apart. */
void dpe_kv_write(struct dpe_kv *kv, const struct dpe_kv_rows *rows, const float *from,
                  int64_t stride);
/** Into `out` [count][width]. */
void dpe_kv_read(struct dpe_kv *kv, const struct dpe_kv_rows *rows, float *out);
/** Rows that lie at `rows` also become those from row `to` on; they do not overlap. */
void dpe_kv_copy(struct dpe_kv *kv, const struct dpe_kv_rows *rows, int64_t to);
/** DPE_IO once reading or writing the file has failed; what was read since then is zeros. */
dpe_status dpe_kv_status(const struct dpe_kv *kv, struct dpe_error *err);

#endif
