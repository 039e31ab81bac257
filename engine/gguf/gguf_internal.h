/**
 * @file gguf_internal.h
 * A header while it is read.
 */
#ifndef DPE_GGUF_INTERNAL_H
#define DPE_GGUF_INTERNAL_H

#include "engine/gguf/gguf.h"

/** A place in the part of the file that is in memory. */
struct dpe_gguf_cursor {
    struct dpe_gguf *gguf;
    size_t n, at;
    bool more; /**< the header goes on behind what is in memory */
    struct dpe_error *err;
};

/** The next number; false, and `more`, when it is not in memory. */
bool dpe_gguf_take_u32(struct dpe_gguf_cursor *cursor, uint32_t *value);
bool dpe_gguf_take_u64(struct dpe_gguf_cursor *cursor, uint64_t *value);
/** A name: 1 … 255 bytes of UTF-8 without NUL, as a copy. DPE_OK with *name NULL: `more`. */
dpe_status dpe_gguf_take_name(struct dpe_gguf_cursor *cursor, const char *what, char **name);
/** Bytes of a number of a type; 0 for strings and arrays. */
size_t dpe_gguf_width(enum dpe_gguf_type type);

/** Read `n` descriptions of tensors. */
dpe_status dpe_gguf_take_tensors(struct dpe_gguf_cursor *cursor, uint64_t n);
/** Their places in the file, once all of the header is read. */
dpe_status dpe_gguf_place_tensors(struct dpe_gguf *gguf, struct dpe_error *err);

#endif
