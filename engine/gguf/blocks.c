/* The table of types, and reading them number by number. */
#include "engine/gguf/blocks.h"

#include <string.h>

#include "engine/gguf/unpack.h"

const struct dpe_block_type dpe_block_types[DPE_DTYPES] = {
    [DPE_F32] = {"F32", 1, 4, 0},        [DPE_F16] = {"F16", 1, 2, 1},
    [DPE_BF16] = {"BF16", 1, 2, 30},     [DPE_Q8_0] = {"Q8_0", 32, 34, 8},
    [DPE_Q4_0] = {"Q4_0", 32, 18, 2},    [DPE_Q4_1] = {"Q4_1", 32, 20, 3},
    [DPE_Q5_0] = {"Q5_0", 32, 22, 6},    [DPE_Q5_1] = {"Q5_1", 32, 24, 7},
    [DPE_Q4_K] = {"Q4_K", 256, 144, 12}, [DPE_Q5_K] = {"Q5_K", 256, 176, 13},
    [DPE_Q6_K] = {"Q6_K", 256, 210, 14}, [DPE_MXFP4] = {"MXFP4", 32, 17, 39},
};

enum dpe_dtype dpe_dtype_named(const char *name)
{
    int i = 0;
    while (i < DPE_DTYPES && strcmp(dpe_block_types[i].name, name) != 0) {
        i++;
    }
    return (enum dpe_dtype)i;
}

enum dpe_dtype dpe_dtype_of_gguf(uint32_t number)
{
    int i = 0;
    while (i < DPE_DTYPES && dpe_block_types[i].gguf != number) {
        i++;
    }
    return (enum dpe_dtype)i;
}

static void read_numbers(enum dpe_dtype dtype, const char *from, int64_t n, float *out)
{
    if (dtype == DPE_F32) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = 0;
        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = dtype == DPE_F16 ? dpe_from_f16(half) : dpe_from_bf16(half);
    }
}

void dpe_dtype_read(enum dpe_dtype dtype, const void *data, int64_t first, int64_t n, float *out)
{
    const char *from = data;
    if (!dpe_dtype_blocks(dtype)) {
        read_numbers(dtype, from + dpe_dtype_bytes(dtype, first), n, out);
        return;
    }
    int64_t size = dpe_block_types[dtype].elements;
    int64_t group = dpe_block_group(dtype);
    struct dpe_unpacked block;
    for (int64_t at = first; at < first + n;) {
        int64_t begin = at / size * size;
        int64_t end = begin + size < first + n ? begin + size : first + n;
        dpe_unpack(dtype, (const unsigned char *)from + dpe_dtype_bytes(dtype, begin), &block);
        for (; at < end; at++) {
            int64_t i = at - begin;
            float product = block.scale[i / group] * (float)block.q[i];
            *out++ = product + block.shift[i / group];
        }
    }
}
