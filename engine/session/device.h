/**
 * @file device.h
 * Devices by name: what a name resolves to, what a device is and has.
 */
#ifndef DPE_DEVICE_H
#define DPE_DEVICE_H

#include "engine/base/base.h"
#include "engine/model/model.h"
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

#endif
