/**
 * @file ops_module.h
 * The backend that is loaded at run time.
 */
#ifndef DPE_OPS_MODULE_H
#define DPE_OPS_MODULE_H

#include "engine/engine.h"

struct dpe_cuda_module;

/** The CUDA module, loaded on the first call and never unloaded. DPE_NO_DEVICE with the reason when
 *  there is none for this program; whether a device is there is another question (its `available`).
 *  Thread-safe. */
dpe_status dpe_cuda_load(const struct dpe_cuda_module **module, struct dpe_error *err);
/** Whether a device name asks for CUDA: "cuda", "cuda:N". */
bool dpe_cuda_is_name(const char *device);

#endif
