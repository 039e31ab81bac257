/* The plan that a table holds, for whoever runs it. */
#include "outputs/job/job_internal.h"
#include "outputs/read/read.h"

#include <string.h>

#include "outputs/table/dpe_table.h"

static dpe_status check_fingerprint(const struct dpe_table_values *values, const char *fingerprint,
                                    struct dpe_error *err)
{
    if (fingerprint == NULL || strcmp(values->model_fingerprint, fingerprint) == 0) {
        return DPE_OK;
    }
    return dpe_fail(
        err, DPE_BAD_DATA,
        "measured on the model %.16s…, this one is %.16s…: same shape, other weights or "
        "configuration; --other-model applies it all the same",
        values->model_fingerprint, fingerprint);
}

dpe_status dpe_job_plan_of_table(const char *path, const struct dpe_plan_context *context,
                                 const char *fingerprint, struct dpe_plan *plan,
                                 struct dpe_error *err)
{
    struct dpe_table *table = NULL;
    dpe_status status = dpe_table_load(path, &table, err);
    if (status != DPE_OK) {
        return status;
    }
    const int64_t made_for = dpe_table_values(table)->length;
    if (context->length > made_for) {
        dpe_log_warning(
            "%s was made for %lld tokens, this may reach %lld: what is farther apart was "
            "not measured",
            path, (long long)made_for, (long long)context->length);
    }
    status = dpe_plan_of_table(dpe_table_values(table), context, plan, err);
    if (status == DPE_OK) {
        status = check_fingerprint(dpe_table_values(table), fingerprint, err);
        if (status != DPE_OK) {
            dpe_plan_free(plan);
        }
    }
    dpe_table_close(table);
    return status == DPE_OK ? status : dpe_fail_prefix(err, "%s", path);
}
