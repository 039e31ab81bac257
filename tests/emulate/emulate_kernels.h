/**
 * @file emulate_kernels.h
 * The launches of emulate_kernels.cu; each returns what dpe_launch does.
 */
#ifndef DPE_EMULATE_KERNELS_H
#define DPE_EMULATE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum emulate_wrong_kind {
    EMULATE_WRONG_BARRIER, /**< seven threads wait for the others, which have ended */
    EMULATE_WRONG_SHUFFLE, /**< a lane of the mask never comes */
    EMULATE_WRONG_AFTER,   /**< a write after the end of the shared memory */
    EMULATE_WRONG_COUNT,   /**< two warps come to a barrier with two counts */
};

int emulate_block_sum(const float *x, int blocks, int n, int threads, float *sums);
int emulate_reverse(const int *x, int *y, int blocks, int n, bool with_barrier);
/** counted [steps][threads]: threads t with (t + step) % 3 == 0. */
int emulate_count_votes(int steps, int threads, int *counted, bool with_barrier);
int emulate_wrong(enum emulate_wrong_kind kind);
int emulate_hand_over(int steps, int *seen);
/** out [32 * 6 + 1] */
int emulate_lanes(uint32_t *out);
/** n a multiple of 32; back [2n]: through bfloat16, through half. */
int emulate_halves(const float *x, int n, uint16_t *bf16, uint16_t *half, float *back);

#ifdef __cplusplus
}
#endif
#endif
