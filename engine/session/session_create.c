/* Opening a session: the test of its device, then the session itself. */
#include "engine/device/device_ops.h"
#include "engine/session/session_internal.h"

dpe_status dpe_session_create(const struct dpe_model *model, const struct dpe_plan *plan,
                              const struct dpe_session_options *options,
                              struct dpe_session **session, struct dpe_error *err)
{
    const struct dpe_ops *ops = NULL;
    const struct dpe_peers *peers = options->peers;
    /* dpe_session_create_untested reports an unknown device. */
    bool found = dpe_ops_find(options->device, &ops, NULL) == DPE_OK;
    /* What the device does not carry is refused without a test. */
    bool carried = found && ops->supports(dpe_model_config(model), plan, NULL) == DPE_OK &&
                   (ops->reads_kv || options->kv_type == DPE_KV_F32);
    int64_t tokens = carried ? ops->self_test_tokens : 0;
    dpe_status status = DPE_OK;
    struct dpe_session_options with = *options;
    if (tokens > 0) {
        status = dpe_session_check_device(dpe_model_config(model), &plan->selection, options,
                                          tokens, &with.ways, err);
    }
    if (status != DPE_OK) {
        return peers == NULL ? status : peers->meet(peers->user, NULL, 0, status, err);
    }
    return dpe_session_create_untested(model, plan, &with, session, err);
}
