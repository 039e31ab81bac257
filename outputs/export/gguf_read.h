/**
 * @file gguf_read.h
 * The header of a GGUF file, as far as a copy with other factors needs it.
 */
#ifndef DPE_GGUF_READ_H
#define DPE_GGUF_READ_H

#include "engine/base/base.h"

/** Types of values; F32 of a tensor is 0. */
enum dpe_gguf_type {
    DPE_GGUF_U16 = 2,
    DPE_GGUF_U32 = 4,
    DPE_GGUF_I32 = 5,
    DPE_GGUF_F32 = 6,
    DPE_GGUF_STRING = 8,
    DPE_GGUF_ARRAY = 9,
    DPE_GGUF_U64 = 10,
    DPE_GGUF_I64 = 11,
    DPE_GGUF_TYPES = 13,
};
#define DPE_GGUF_ROPE "rope_freqs.weight"

/** A text in the header: not ended by a zero. */
struct dpe_gguf_text {
    const char *at;
    uint64_t n;
};
bool dpe_gguf_is(struct dpe_gguf_text text, const char *expected);

/** A value of the header, in its bytes. */
struct dpe_gguf_value {
    struct dpe_gguf_text key;
    uint64_t type;
    const unsigned char *at; /**< of a number */
    struct dpe_gguf_text text;
};

/** The header: bytes of the file from its beginning, and what is known of them. */
struct dpe_gguf {
    const char *path;     /**< borrowed, for messages */
    unsigned char *bytes; /**< [n], owned: free() */
    size_t n, at;         /**< `at`: where reading is */
    bool cut;             /**< more bytes were needed than there are */
    const char *wrong;    /**< what is not as the format has it */
    uint64_t version, n_tensors, n_values, alignment;
    struct dpe_gguf_text architecture;
    size_t values_at, infos_at, end; /**< values, tensor infos, and the end of these */
    uint64_t data_at, data_size;     /**< of the tensors in the file */
    int64_t rope_at;                 /**< where in these DPE_GGUF_ROPE is; -1: nowhere */
    uint64_t rope_pairs;             /**< its numbers, 0 where it is no list of float32 */
};
/** Read the header of an open file of `size` bytes; gguf->path is set. DPE_BAD_DATA says what is not
 *  as expected; DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_gguf_read(int fd, uint64_t size, struct dpe_gguf *gguf, struct dpe_error *err);
/** The value at gguf->at, which moves behind it. */
struct dpe_gguf_value dpe_gguf_take(struct dpe_gguf *gguf);
/** Whether a key is "ARCHITECTURE.NAME". */
bool dpe_gguf_is_key(const struct dpe_gguf *gguf, struct dpe_gguf_text key, const char *name);
/** The value of that key. */
bool dpe_gguf_find(struct dpe_gguf *gguf, const char *name, struct dpe_gguf_value *found);
/** The same of a number; NaN where it is none, `fallback` where there is no such key. */
double dpe_gguf_number(struct dpe_gguf *gguf, const char *name, double fallback);
/** n, or the next multiple of a power of two. */
uint64_t dpe_gguf_align(uint64_t n, uint64_t alignment);

#endif
