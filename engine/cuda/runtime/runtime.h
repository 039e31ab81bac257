/**
 * @file runtime.h
 * The few calls of the CUDA runtime and of cuBLAS that the backend makes, under names of our own:
 * runtime.c is the real thing, tests/emulate/fake_runtime.cpp one that has its device in host
 * memory, runs kernels in the emulator, multiplies matrices in plain loops and fails where a test
 * wants it to. Everything runs on one stream of the device, in order. Calls return a CUDA error
 * code, 0 = good.
 */
#ifndef DPE_RUNTIME_H
#define DPE_RUNTIME_H

#include "engine/base/base.h"
#include "engine/cuda/ptx/launch.h"
#include "engine/model/config/config.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a device is. */
struct dpe_cuda_info {
    char name[256];
    char id[64];      /**< no other device of any machine has it */
    int major, minor; /**< compute capability */
    int processors;
    uint64_t memory; /**< bytes in all */
    uint64_t shared; /**< bytes of shared memory that one thread block can get */
};

/** CUDA versions as 1000 · major + 10 · minor: of the driver (0: none is installed) and the one the
 *  module was built with. */
int dpe_rt_versions(int *driver, int *runtime);
int dpe_rt_count(int *n);
int dpe_rt_info(int device, struct dpe_cuda_info *info);
/** The device of all calls that follow on this thread, and its stream. */
int dpe_rt_use(int device);
/** That stream (cudaStream_t). */
void *dpe_rt_stream(void);
/** The most seconds that the following calls wait for the device; 0: no limit. After a wait that
 *  exceeds it the device hangs: from then on no call of the process uses any device, since a call
 * of the driver may then not return; all of them return DPE_RT_HANGS at once. */
void dpe_rt_set_timeout(double seconds);
enum { DPE_RT_HANGS = 300000 };
int dpe_rt_memory(uint64_t *available, uint64_t *total);
/** 256-byte aligned, bytes ≥ 1. A failure for lack of memory leaves the device in order. */
int dpe_rt_allocate(void **memory, uint64_t bytes);
int dpe_rt_release(void *memory);
/** Host → device; `from` may be changed as soon as the call returns. Up to 32 KiB go through pinned
 *  memory, and the host does not wait. */
int dpe_rt_up(void *to, const void *from, uint64_t bytes);
/** Device → host; waits. */
int dpe_rt_down(void *to, const void *from, uint64_t bytes);
int dpe_rt_copy(void *to, const void *from, uint64_t bytes);
int dpe_rt_fill(void *at, int byte, uint64_t bytes);
/** Wait for everything. */
int dpe_rt_wait(void);
/** "cudaErrorIllegalAddress: an illegal memory access was encountered". */
const char *dpe_rt_text(int code);
/** What the kernel is that this thread launched last: ten times the architecture of its machine
 * code, and of the PTX that this was made from; 0, 0: none, or not known. */
void dpe_rt_code(int *machine, int *ptx);
/** Whether the code means out of memory. */
bool dpe_rt_is_memory(int code);

/** Several launches as one: a CUDA graph. */
struct dpe_launches;
struct dpe_rt_graph;
/** Nothing runs. An error leaves the stream in order and *graph NULL: the launches can be made one
 * by one. */
int dpe_rt_graph_make(const struct dpe_launches *launches, struct dpe_rt_graph **graph);
int dpe_rt_graph_run(struct dpe_rt_graph *graph);
void dpe_rt_graph_free(struct dpe_rt_graph *graph);

/** cuBLAS, opened. */
struct dpe_rt_blas;
/** DPE_NO_DEVICE when the library is not found or cannot start. */
dpe_status dpe_rt_blas_open(struct dpe_rt_blas **blas, struct dpe_error *err);
void dpe_rt_blas_close(struct dpe_rt_blas *blas);
/** out [rows][n] = x [rows][k] · w [n][k]ᵀ, or added to what is in out; sums in float. Without
 * padding, so that launches can be compared. */
struct dpe_rt_product {
    enum dpe_dtype dtype; /**< of w and x */
    uint16_t out_float;   /**< 1: out is float; 0: of that dtype */
    uint16_t accumulate;  /**< 1: added */
    const void *w, *x;
    void *out;
    int64_t rows, n, k; /**< each below 2^31 */
};
/** A launch, which can be kept and be part of a graph. A failure of cuBLAS is its code +
 * DPE_RT_BLAS; dpe_rt_text has their names as well. */
int dpe_rt_product(struct dpe_rt_blas *blas, const struct dpe_rt_product *product);
enum { DPE_RT_BLAS = 100000 };

struct dpe_nccl_module;
/** Sums over devices (nccl_module.h), loaded on the first call; NULL: this machine has no NCCL. A
 * failure is its code + DPE_RT_NCCL; dpe_rt_text has their names as well. */
const struct dpe_nccl_module *dpe_rt_nccl(void);
enum { DPE_RT_NCCL = 200000 };

/* ------------------------------------------------------------------------------------ launches */

/* Kept with copies of their arguments (launches.c): so many of them can be compared with those of
 * another time, and made later. */

/** Zeros: none. */
struct dpe_launches {
    unsigned char *memory;
    size_t used, room;
};

/** Launches of this thread go to the end of `list` from now on and are not made; NULL: they are
 *  made. */
void dpe_launches_keep(struct dpe_launches *list);
/** Whether a launch is kept; then *code is 0, or 2 (cudaErrorMemoryAllocation). */
bool dpe_launches_take(const struct dpe_kernel_launch *launch, int *code);
/** Whether two lists have the same launches: kernels, shapes and arguments, byte by byte (a byte of
 *  padding that differs makes them different ones). */
bool dpe_launches_equal(const struct dpe_launches *a, const struct dpe_launches *b);
/** Call `make` for each, in order, until one returns a code that is not 0: that code, or 0. */
int dpe_launches_each(const struct dpe_launches *list,
                      int (*make)(const struct dpe_kernel_launch *launch));
/** 0, or 2: no memory, and `to` is as it was. */
int dpe_launches_copy(struct dpe_launches *to, const struct dpe_launches *from);
void dpe_launches_free(struct dpe_launches *list);

#ifdef __cplusplus
}
#endif

#endif
