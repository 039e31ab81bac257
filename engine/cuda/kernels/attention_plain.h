/**
 * @file attention_plain.h
 * Attention in plain float arithmetic: any dtype, any head dimension, any plan. The path of fp32
 * models and of head dimensions that no faster kernel has, and the oracle of those on the device.
 */
#ifndef DPE_ATTENTION_PLAIN_H
#define DPE_ATTENTION_PLAIN_H

#include "engine/cuda/kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Tiles that the walk of a call is to be made for: any head_dim up to 1024. */
struct dpe_tile_shape dpe_attention_plain_shape(int64_t head_dim);
/** One call (attention.h), also with dtype DPE_F32 and strides that are not multiples of 8.
 *  Asynchronous; the CUDA error code of the launch, 0 = launched. */
int dpe_attention_plain(const struct dpe_flash *call, void *stream);

#ifdef __cplusplus
}
#endif
#endif
