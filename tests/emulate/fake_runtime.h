/**
 * @file fake_runtime.h
 * What a test reads from the fake CUDA runtime.
 */
#ifndef DPE_FAKE_RUNTIME_H
#define DPE_FAKE_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_counts {
    uint64_t calls;       /**< that reached the device */
    uint64_t allocations; /**< tried */
    uint64_t live, bytes; /**< allocations there are now */
    uint64_t damaged;     /**< writes beside an allocation, found so far */
    uint64_t launches;    /**< of kernels and products, one by one */
    uint64_t graphs;      /**< of a step, tried to make */
    uint64_t graph_runs;
};
__attribute__((visibility("default"))) struct fake_counts fake_counts_read(void);

#ifdef __cplusplus
}
#endif
#endif
