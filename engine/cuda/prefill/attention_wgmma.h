/**
 * @file attention_wgmma.h
 * The attention kernel of Hopper cards (sm_90a): tensor copies and warpgroup products. head_dim 64,
 * 128 and 256, bfloat16 and half. What a call computes is described in attention.h.
 *
 * The kernel exists in a few variants (tile sizes and schedules) that compute the same; 0 is the
 * one to use, the others are for the benchmark to compare.
 */
#ifndef DPE_ATTENTION_WGMMA_H
#define DPE_ATTENTION_WGMMA_H

#include "engine/cuda/kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Tiles that the walk of a call, with a cap or without one, is to be made for; rows 0 after the
 * last variant of a head_dim, and for variant 0 when the kernel does not support that head_dim. */
struct dpe_tile_shape dpe_attention_wgmma_shape(int64_t head_dim, bool capped, int variant);
/** One call. Keys and positions are below 2^30, head strides of keys and values at least head_dim
 *  times the keys. `counters`: two device integers, 0 before the first call and left at 0 by every
 *  call, not shared by calls that run at the same time; NULL: work is dealt in turn, a little
 *  slower. Asynchronous on dpe_rt_stream(). The CUDA error code of the launch, 0 = launched,
 *  cudaErrorInvalidValue (1) when there is no such variant or a tensor cannot be mapped. */
int dpe_attention_wgmma(const struct dpe_flash *call, int variant, int32_t *counters);

#ifdef __cplusplus
}
#endif
#endif
