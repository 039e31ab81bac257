/**
 * @file launch.h
 * A launch of a kernel as plain data, so that launches can be kept, compared and made again
 * (runtime/launches.c). dpe_launch makes one (device.cuh).
 */
#ifndef DPE_LAUNCH_H
#define DPE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DPE_MOST_ARGUMENTS = 8 };
struct dpe_kernel_launch {
    const void *kernel;
    /** Emulated: calls `kernel` on the running thread. A device: NULL. */
    void (*call)(const void *kernel, const void *const *arguments);
    uint32_t grid[3], block[3];
    uint64_t shared; /**< bytes of dynamic shared memory */
    int32_t n;
    const void *const *arguments; /**< [n], of `sizes` bytes each, aligned to at most 64 */
    const uint32_t *sizes;
    /** NULL: a kernel. Else what is called with the arguments alone, and puts its work on
     * dpe_rt_stream() by itself: a product of cuBLAS. */
    int (*product)(const void *const *arguments);
};
/** Launch, or keep for later (dpe_launches_keep); the CUDA error code, 0 = good. */
int dpe_rt_launch(const struct dpe_kernel_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
