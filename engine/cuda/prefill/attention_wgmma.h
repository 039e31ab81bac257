/**
 * @file attention_wgmma.h
 * The attention kernel of Hopper cards (sm_90a): tensor copies and warpgroup products. head_dim 64,
 * 128 and 256, bfloat16 and half. What a call computes is described in attention.h.
 */
#ifndef DPE_ATTENTION_WGMMA_H
#define DPE_ATTENTION_WGMMA_H

#include "engine/cuda/kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Tiles that the walk of a call, with a cap or without one, is to be made for; rows 0 when the
 * kernel does not support that head_dim. */
struct dpe_tile_shape dpe_attention_wgmma_shape(int64_t head_dim, bool capped);
/** One call. Keys and positions are below 2^30, head strides of keys and values at least head_dim
 *  times the keys. `counters`: two device integers, 0 before the first call and left at 0 by every
 *  call, not shared by calls that run at the same time. Asynchronous on dpe_rt_stream(). The CUDA
 *  error code of the launch, 0 = launched, cudaErrorInvalidValue (1) when the kernel does not
 *  support the head_dim or dtype or a tensor cannot be mapped. */
int dpe_attention_wgmma(const struct dpe_flash *call, int32_t *counters);

#ifdef __cplusplus
}
#endif
#endif
