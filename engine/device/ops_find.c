/* How a backend is found. */
#include "engine/ops/ops_host.h"

#include "engine/base/base.h"
#include "engine/cpu/cpu.h"
#include "engine/device/device.h"
#include "engine/device/device_ops.h"
#include "engine/ops/module.h"
#include "engine/ops/ops.h"

dpe_status dpe_ops_find(const char *device, const struct dpe_ops **ops, struct dpe_error *err)
{
    const struct dpe_ops *const all[] = {
        dpe_ops_cpu(),
        dpe_ops_reference(),
    };
    const char *name = NULL;
    dpe_status status = dpe_device_resolve(device, &name, err);
    if (status == DPE_OK && dpe_cuda_is_name(name)) {
        const struct dpe_cuda_module *module = NULL;
        status = dpe_cuda_load(&module, err);
        *ops = status == DPE_OK ? module->ops : NULL;
        return status;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == DPE_OK; i++) {
        if (strcmp(name, all[i]->name) == 0) {
            *ops = all[i];
            return DPE_OK;
        }
    }
    return status != DPE_OK
               ? status
               : dpe_fail(err, DPE_NO_DEVICE,
                          "unknown device '%.64s'; devices: auto, cpu, reference, cuda, cuda:N",
                          device);
}
