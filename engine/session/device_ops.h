/**
 * @file device_ops.h
 * The backend of a device, for sessions and dpe-bench.
 */
#ifndef DPE_DEVICE_OPS_H
#define DPE_DEVICE_OPS_H

#include "engine/base/base.h"
#include "engine/ops/ops.h"

/** By device name ("cpu", "reference"); NULL name = "cpu". DPE_NO_DEVICE lists what there is. */
dpe_status dpe_ops_find(const char *device, const struct dpe_ops **ops, struct dpe_error *err);

struct dpe_cuda_module;

/** The CUDA module, loaded on the first call and never unloaded. DPE_NO_DEVICE with the reason when
 *  there is none for this program; whether a device is there is another question (its `available`).
 *  Thread-safe. */
dpe_status dpe_cuda_load(const struct dpe_cuda_module **module, struct dpe_error *err);
/** Whether a device name selects CUDA: "cuda", "cuda:N". */
bool dpe_cuda_is_name(const char *device);

#endif
