/* What a profile would cost, and how long it would take here. */
#include "norms/norms_tool.h"
#include "outputs/job/price.h"

static dpe_status print_memory(const struct profile *profile, struct dpe_error *err)
{
    const struct dpe_session_options options =
        dpe_job_session_options(&profile->job, profile->excerpts.length);
    struct dpe_session_needs needs = {0};
    char memory[DPE_JOB_MEMORY];
    dpe_status status = dpe_session_estimate(dpe_model_config(profile->job.model), &profile->plan,
                                             &options, &needs, err);
    if (status == DPE_OK) {
        printf("memory           %s\n", dpe_job_memory_text(&profile->job, &needs, memory));
        fflush(stdout);
    }
    return status;
}

/* Every excerpt at every length; speed->tokens 0: without the time. */
static void add(const struct profile *profile, const struct dpe_job_speed *speed,
                struct dpe_bill *bill)
{
    double samples = (double)profile->args->job.samples;
    for (int i = 0; i < profile->n_lengths; i++) {
        struct dpe_price price;
        dpe_price_text(dpe_model_config(profile->job.model), profile->lengths[i], 1.0, false,
                       &price);
        dpe_bill_add(bill, &price, samples, samples, NULL, speed);
    }
}

dpe_status dpe_norms_cost(const struct profile *profile, struct dpe_bill *sum,
                          struct dpe_error *err)
{
    struct dpe_job_speed speed = {0};
    struct dpe_bill bill = {0};
    struct dpe_error why = {0};
    const bool print = !profile->args->job.silent;
    dpe_status status = DPE_OK;
    add(profile, &speed, &bill);
    if (print) {
        printf("norms            %lld excerpts of", (long long)profile->args->job.samples);
        for (int i = 0; i < profile->n_lengths; i++) {
            printf("%s %lld", i > 0 ? "," : "", (long long)profile->lengths[i]);
        }
        printf(" tokens\n");
        dpe_bill_print(&bill);
        status = print_memory(profile, err);
    }
    dpe_status measured =
        dpe_job_measure_here(&profile->job, &profile->plan, profile->excerpts.length, &speed, &why);
    bill = (struct dpe_bill){0};
    add(profile, &speed, &bill);
    if (print && measured != DPE_OK) {
        printf("time             not measured: %s\n", why.text);
    } else if (print) {
        dpe_bill_print_time(&bill);
    }
    dpe_bill_sum(sum, &bill);
    return status;
}
