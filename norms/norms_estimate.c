/* What a profile would cost, and how long it would take here. */
#include "norms/norms_tool.h"
#include "outputs/job/estimate.h"

/* Of a session that holds the longest excerpt. */
static struct dpe_session_options session_options(const struct profile *profile)
{
    return dpe_job_session_options(&profile->job, profile->excerpts.length);
}

/* A short prefill under the model's own rotation. */
static dpe_status measure(const struct profile *profile, struct dpe_job_speed *speed,
                          struct dpe_error *err)
{
    enum { MOST = 512 };
    struct dpe_session_options options = session_options(profile);
    options.capacity = MOST; /* also for shorter excerpts: fewer tokens measure the overhead */
    struct dpe_session *session = NULL;
    dpe_status status =
        dpe_session_create(profile->job.model, &profile->plan, &options, &session, err);
    if (status == DPE_OK) {
        status = dpe_job_measure(session, dpe_model_config(profile->job.model), options.capacity,
                                 1.0, speed, err);
    }
    dpe_session_destroy(session);
    return status;
}

static void print_time(const struct profile *profile, uint64_t weights, double products,
                       double attention)
{
    char buffer[32];
    struct dpe_job_speed speed = {0};
    struct dpe_error err = {0};
    if (weights > dpe_memory_available() / 2) {
        printf("time             not measured: the weights would fill this machine's memory\n");
    } else if (profile->job.peers.size > 1) {
        printf("time             not measured: the model is split over several processes\n");
    } else if (measure(profile, &speed, &err) != DPE_OK) {
        printf("time             not measured: %s\n", err.text);
    } else {
        printf("time             about %s\n",
               dpe_format_seconds(products * speed.per_product + attention * speed.per_attention,
                                  buffer));
    }
}

dpe_status dpe_norms_dry_run(const struct profile *profile, struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    const struct dpe_session_options options = session_options(profile);
    uint64_t bytes = 0;
    uint64_t weights = 0;
    dpe_status status =
        dpe_session_estimate(config, &profile->plan, &options, &bytes, &weights, err);
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
    char memory[200];
    printf(" tokens\ntokens           %.4g\noperations       %.3g\n", tokens, products + attention);
    printf("memory           %s\n", dpe_job_memory_text(&profile->job, bytes, weights, memory));
    fflush(stdout);
    print_time(profile, weights, products, attention);
    return DPE_OK;
}
