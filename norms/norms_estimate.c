/* What a profile would cost, and how long it would take here. */
#include "norms/norms_tool.h"
#include "outputs/job/estimate.h"

/* Of a session that holds the longest excerpt. */
static struct dpe_session_options session_options(const struct profile *profile)
{
    return dpe_job_session_options(&profile->job, profile->excerpts.length);
}

static void print_time(const struct profile *profile)
{
    double samples = (double)profile->args->job.samples;
    struct dpe_job_speed speed = {0};
    struct dpe_job_range range = {0};
    struct dpe_error err = {0};
    dpe_status status = dpe_job_measure_here(&profile->job, &profile->plan,
                                             profile->excerpts.length, &speed, &err);
    if (status != DPE_OK) {
        printf("time             not measured: %s\n", err.text);
        return;
    }
    for (int i = 0; i < profile->n_lengths; i++) {
        double n = (double)profile->lengths[i];
        dpe_job_range_add(&range, &speed, samples, n, n * n, 0.0, 0.0);
    }
    dpe_job_range_print(&range, &speed);
}

dpe_status dpe_norms_dry_run(const struct profile *profile, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    const struct dpe_session_options options = session_options(profile);
    struct dpe_session_needs needs = {0};
    dpe_status status = dpe_session_estimate(config, &profile->plan, &options, &needs, err);
    if (status != DPE_OK) {
        return status;
    }
    double samples = (double)profile->args->job.samples;
    double tokens = 0.0;
    double products = 0.0;
    double attention = 0.0;
    printf("norms            %lld excerpts of", (long long)profile->args->job.samples);
    for (int i = 0; i < profile->n_lengths; i++) {
        double one[2] = {0.0, 0.0};
        dpe_config_flops(config, 0, profile->lengths[i], 0, &one[0], &one[1]);
        tokens += samples * (double)profile->lengths[i];
        products += samples * one[0];
        attention += samples * one[1];
        printf("%s %lld", i > 0 ? "," : "", (long long)profile->lengths[i]);
    }
    char memory[DPE_JOB_MEMORY];
    printf(" tokens\ntokens           %.4g\noperations       %.3g\n", tokens, products + attention);
    printf("memory           %s\n", dpe_job_memory_text(&profile->job, &needs, memory));
    fflush(stdout);
    print_time(profile);
    return DPE_OK;
}
