/* Studies: the same steps for each. */
#include "outputs/job/study.h"

#include <stdlib.h>

enum way { COST, RUN, RUN_AND_SUGGEST };

static dpe_status run(const struct dpe_study *study, void *state, struct dpe_error *err)
{
    struct dpe_job *job = (void *)((char *)state + study->job);
    DPE_TRY(study->start(state, err));
    dpe_status status = study->rows(state, err);
    status = dpe_job_finish(job, status, study->fill, state, err);
    if (status == DPE_OK && dpe_job_leads(job) && !job->options->silent) {
        status = study->print(state, err);
    }
    return status == DPE_OK ? dpe_job_check_finite(job, err) : status;
}

static dpe_status work(const struct dpe_study *study, const void *args, enum way way,
                       struct dpe_bill *bill, struct dpe_error *err)
{
    void *state = dpe_alloc_zero(1, study->size);
    if (state == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    dpe_status status = study->open(state, args, err);
    if (status == DPE_OK && way == COST) {
        status = study->cost(state, bill, err);
    } else if (status == DPE_OK) {
        status = run(study, state, err);
    }
    if (status == DPE_OK && way == RUN_AND_SUGGEST && study->suggest != NULL) {
        study->suggest(state);
    }
    status = study->close(state, status, err);
    free(state);
    return status;
}

dpe_status dpe_study_run(const struct dpe_study *study, const void *args, struct dpe_error *err)
{
    return work(study, args, RUN, NULL, err);
}

dpe_status dpe_study_cost(const struct dpe_study *study, const void *args, struct dpe_bill *bill,
                          struct dpe_error *err)
{
    return work(study, args, COST, bill, err);
}

int dpe_study_main(const struct dpe_study *study, const void *args,
                   const struct dpe_job_options *options)
{
    struct dpe_error err = {0};
    dpe_tool_configure(&options->tool);
    dpe_signals_install();
    dpe_status status = work(study, args, options->dry_run ? COST : RUN_AND_SUGGEST, NULL, &err);
    return dpe_tool_end(status, &err);
}
