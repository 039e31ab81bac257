/* A detection as a study. */
#include "detect/tool/detect_tool.h"

struct detection {
    struct detect_arguments args; /* a copy: tables of dpe-eval tune become what they chose */
    struct detect_inputs inputs;
    struct dpe_detect_report report;
};

static dpe_status detection_open(void *state, const void *asked, struct dpe_error *err)
{
    struct detection *detection = state;
    detection->args = *(const struct detect_arguments *)asked;
    dpe_status status = dpe_detect_against_read(&detection->args, err);
    return status == DPE_OK ? dpe_detect_inputs_open(&detection->inputs, &detection->args, err)
                            : status;
}

static dpe_status detection_cost(void *state, struct dpe_bill *bill, struct dpe_error *err)
{
    struct detection *detection = state;
    return dpe_detect_cost(&detection->inputs, bill, err);
}

static dpe_status detection_run(void *state, struct dpe_error *err)
{
    struct detection *detection = state;
    const struct dpe_job_options *job = &detection->args.job;
    dpe_detect_announce(&detection->inputs);
    dpe_status status = dpe_detect_run(&detection->inputs, &detection->report, err);
    if (status != DPE_OK || job->silent) {
        return status;
    }
    return job->result != DPE_RESULT_TEXT
               ? dpe_detect_print_result(&detection->inputs, &detection->report, err)
               : dpe_detect_print(&detection->inputs, &detection->report, err);
}

static void suggest(const void *state)
{
    const struct detection *detection = state;
    dpe_detect_suggest(&detection->inputs, &detection->report);
}

static dpe_status detection_close(void *state, dpe_status status, struct dpe_error *err)
{
    struct detection *detection = state;
    dpe_detect_report_free(&detection->report);
    status = dpe_detect_inputs_close(&detection->inputs, status, err);
    dpe_detect_against_free(&detection->args);
    return status;
}

const struct dpe_study dpe_detect_study = {
    .tool = "dpe-detect",
    .size = sizeof(struct detection),
    .open = detection_open,
    .cost = detection_cost,
    .run = detection_run,
    .suggest = suggest,
    .close = detection_close,
};
