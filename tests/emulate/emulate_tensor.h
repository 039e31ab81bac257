/**
 * @file emulate_tensor.h
 * Tensor maps on the CPU, in the place of the driver's.
 */
#ifndef DPE_EMULATE_TENSOR_H
#define DPE_EMULATE_TENSOR_H

#include <stdint.h>

/** A tensor of 2-byte elements, copied with the 128-byte swizzle. Innermost dimension first. */
struct alignas(64) CUtensorMap {
    uint64_t magic;
    const unsigned char *base;
    uint64_t strides[3]; /**< bytes, of dimensions 1 … 3 */
    uint32_t dims[4];
    uint32_t box[4];
};

/** 0, or 1 where the driver would refuse: misaligned map, base or strides, a box side of 0 or above
 *  256, an inner box that is wider than the swizzle or no multiple of 16 bytes. */
int dpe_tensor_map_4d(struct CUtensorMap *map, bool bf16, const void *base, const uint64_t dims[4],
                      const uint64_t strides[3], const uint32_t box[4]);

/** What dpe_multiprocessors() answers. */
extern int emulate_multiprocessors;

#endif
