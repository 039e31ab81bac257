/**
 * @file nccl_module.h
 * What libdpe_nccl.so exports: sums over the devices of several processes through NCCL, found by
 * name with dlsym. A library of its own, so that the CUDA module loads where there is no NCCL.
 */
#ifndef DPE_NCCL_MODULE_H
#define DPE_NCCL_MODULE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DPE_NCCL_ID = 128, DPE_NCCL_VERSION = 2 };

/** Calls return an NCCL code, 0 = good. */
struct dpe_nccl_module {
    uint32_t version; /**< DPE_NCCL_VERSION of both sides have to be equal */
    /** What all who join the same sums have to know, made by one of them. */
    int (*id)(char id[DPE_NCCL_ID]);
    /** Join as `index` of `size`, with the calling thread's device; waits for all of them. */
    int (*join)(void **sums, const char id[DPE_NCCL_ID], int index, int size);
    /** x [n] on the device = the sum over all processes, after all that was put on `stream`
     * (cudaStream_t); in an order of NCCL's own, with the same bits everywhere. */
    int (*sum)(void *sums, float *x, uint64_t n, void *stream);
    void (*leave)(void *sums);
    /** What a code means. */
    const char *(*text)(int code);
};

#define DPE_NCCL_SYMBOL "dpe_nccl_module"
__attribute__((visibility("default"))) const struct dpe_nccl_module *dpe_nccl_module(void);

#ifdef __cplusplus
}
#endif
#endif
