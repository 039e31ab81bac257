/**
 * @file module.h
 * What libdpe_cuda.so exports: one function, found by name with dlsym.
 */
#ifndef DPE_MODULE_H
#define DPE_MODULE_H

#include "engine/base/base.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"

/** Rates of a device, measured now (dpe-bench). */
struct dpe_device_rates {
    char name[256];
    int major, minor, processors;
    uint64_t memory;
    double copy;    /**< bytes read and written per second by a device-to-device copy; of the CPU
                         (dpe-bench): bytes read */
    double product; /**< FLOP/s of an 8192 × 8192 × 8192 product in bfloat16, random data */
};

/** What the module has to offer. */
struct dpe_cuda_module {
    uint32_t version; /**< DPE_CUDA_MODULE_VERSION of the tool and the module have to be equal */
    const struct dpe_ops *ops;
    /** DPE_OK when a session on "cuda" or "cuda:N" can be made; else DPE_NO_DEVICE with why. */
    dpe_status (*available)(const char *device, struct dpe_error *err);
    dpe_status (*measure)(const char *device, struct dpe_device_rates *rates,
                          struct dpe_error *err);
    /** As dpe_device_describe. */
    dpe_status (*describe)(const char *device, struct dpe_device_info *info, struct dpe_error *err);
};
/** Changes with struct dpe_ops and everything that its slots are handed. */
enum { DPE_CUDA_MODULE_VERSION = 13 };

#define DPE_CUDA_MODULE_SYMBOL "dpe_cuda_module"
__attribute__((visibility("default"))) const struct dpe_cuda_module *dpe_cuda_module(void);

/** As in the struct above. */
dpe_status dpe_cuda_available(const char *device, struct dpe_error *err);

#endif
