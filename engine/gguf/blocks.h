/**
 * @file blocks.h
 * The types that weights may have in a file, as one table: floats, halves, and the quantised blocks
 * of GGUF files. A number of a block is scale · q + shift, q a small integer; scale and shift hold
 * for a group of 16 or 32 neighbours.
 */
#ifndef DPE_BLOCKS_H
#define DPE_BLOCKS_H

#include "engine/base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpe_dtype {
    DPE_F32,
    DPE_F16,
    DPE_BF16,
    /* Blocks from here on. */
    DPE_Q8_0,
    DPE_Q4_0,
    DPE_Q4_1,
    DPE_Q5_0,
    DPE_Q5_1,
    DPE_Q4_K,
    DPE_Q5_K,
    DPE_Q6_K,
    DPE_MXFP4,
    DPE_DTYPES
};

/** One line of the table. */
struct dpe_block_type {
    const char *name; /**< as GGUF and safetensors write it, "BF16", "Q4_K" */
    int64_t elements; /**< numbers of a block; 1 where each stands alone */
    int64_t bytes;    /**< of a block */
    uint32_t gguf;    /**< the type's number in a GGUF file */
};
extern const struct dpe_block_type dpe_block_types[DPE_DTYPES];

/** Whether the type has blocks: rows are whole blocks, and single numbers have no address. */
static inline bool dpe_dtype_blocks(enum dpe_dtype dtype)
{
    return dtype > DPE_BF16;
}

/** Bytes of n numbers; n is a multiple of the block. */
static inline int64_t dpe_dtype_bytes(enum dpe_dtype dtype, int64_t n)
{
    return n / dpe_block_types[dtype].elements * dpe_block_types[dtype].bytes;
}

/** The type of a name, or of a number in a GGUF file; DPE_DTYPES when the table does not have it.
 */
enum dpe_dtype dpe_dtype_named(const char *name);
enum dpe_dtype dpe_dtype_of_gguf(uint32_t number);

/** Numbers first … first+n−1 of data as float: of halves exact, of blocks with one rounding of
 *  scale · q and one of the sum, as the format's reference has it. `data` needs no alignment. */
void dpe_dtype_read(enum dpe_dtype dtype, const void *data, int64_t first, int64_t n, float *out);

#ifdef __cplusplus
}
#endif
#endif
