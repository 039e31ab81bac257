/**
 * @file emulate_mma_kernels.h
 * The launches of emulate_mma_kernels.cu; each returns what dpe_launch does.
 */
#ifndef DPE_EMULATE_MMA_KERNELS_H
#define DPE_EMULATE_MMA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** c [16][8] = a [16][16] · b [16][8], 16-bit values as bits (bfloat16 or half), by one warp;
 *  `transposed`: b comes as it lies through ldmatrix.trans, else b_turned [8][16] through ldmatrix.
 */
int emulate_product(bool half, const uint16_t *a, const uint16_t *b, const uint16_t *b_turned,
                    bool transposed, float *c);
/** 32 lanes copy 16 bytes each, twice, in two groups; seen [3][64] is the first word of every copy
 *  before any wait, after the wait for the first group, after the wait for both. The last 32 are
 *  copies of nothing, which give zeros. */
int emulate_copies(const uint32_t *from, uint32_t *seen);
/** 32 lanes read 16 bytes each past level 1; seen [128] are the words that came. */
int emulate_reads(const uint32_t *from, uint32_t *seen);
/** One ldmatrix from rows `stride` bytes apart. */
int emulate_strided(int stride);

#ifdef __cplusplus
}
#endif
#endif
