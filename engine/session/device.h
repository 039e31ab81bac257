/**
 * @file device.h
 * Devices by name: what a name resolves to, what a device is and has, its backend.
 */
#ifndef DPE_DEVICE_H
#define DPE_DEVICE_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/ops.h"
#include "engine/ops/options.h"

/** What a device name comes to on this machine: "auto" becomes "cuda" when a CUDA device can be
 * used and "cpu" else, NULL becomes "cpu", other names stay as they are. For "cuda" and "cuda:N"
 *  DPE_NO_DEVICE with the reason (no module, no driver, too old a one, no device). *resolved
 *  is a constant or `device` itself. */
dpe_status dpe_device_resolve(const char *device, const char **resolved, struct dpe_error *err);
/** As dpe_device_resolve; NULL is "cpu". */
dpe_status dpe_device_describe(const char *device, struct dpe_device_info *info,
                               struct dpe_error *err);
/** Bytes that sessions on a device can still get; UINT64_MAX when that is not known. */
uint64_t dpe_device_memory(const char *device);
/** What weights and activations of a model are rounded to on a device before they are multiplied;
 *  sums are float. */
enum dpe_dtype dpe_device_dtype(const char *device, const struct dpe_config *config);

/** "cpu-bf16" where this processor multiplies faster in it than in float, with what rounding adds;
 *  "cpu" where it has both and float is faster; `otherwise` where it has float alone. Measured in a
 *  few milliseconds, once for each machine and version (dpe_verdict_keep). */
const char *dpe_device_fastest(const char *otherwise);

/* For sessions and dpe-bench. */

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
