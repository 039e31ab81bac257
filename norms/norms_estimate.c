/* What a profile would cost, and how long it would take here. */
#include "norms/norms_tool.h"

/* Of a session that holds the longest excerpt. */
static struct dpe_session_options session_options(const struct profile *profile)
{
    return dpe_job_session_options(&profile->job, profile->excerpts.length);
}

static dpe_status time_feed(struct dpe_session *session, const int32_t *ids, int64_t n,
                            double *seconds, struct dpe_error *err)
{
    dpe_status status = dpe_session_cut(session, 0, err);
    double begin = dpe_clock();
    if (status == DPE_OK) {
        status = dpe_session_feed(session, ids, n, NULL, err);
    }
    *seconds = dpe_clock() - begin;
    return status;
}

/* Seconds per operation from the beginning of an excerpt; its first run, which touches weights for
 * the first time, does not count. */
static dpe_status measure(const struct profile *profile, double *per_operation,
                          struct dpe_error *err)
{
    enum { MOST = 512 };
    int64_t n = profile->excerpts.length < MOST ? profile->excerpts.length : MOST;
    struct dpe_session_options options = session_options(profile);
    options.capacity = n;
    struct dpe_session *session = NULL;
    double seconds = 0.0;
    double products = 0.0;
    double attention = 0.0;
    dpe_status status =
        dpe_session_create(profile->job.model, &profile->plan, &options, &session, err);
    for (int round = 0; round < 2 && status == DPE_OK; round++) {
        status = time_feed(session, profile->excerpts.ids, n, &seconds, err);
    }
    dpe_config_flops(dpe_model_config(profile->job.model), 0, n, 0, &products, &attention);
    *per_operation = seconds / (products + attention);
    dpe_session_destroy(session);
    return status;
}

static void print_time(const struct profile *profile, uint64_t weights, double operations)
{
    char buffer[32];
    double per_operation = 0.0;
    struct dpe_error err = {0};
    if (weights > dpe_memory_available() / 2) {
        printf("time             not measured: the weights would fill this machine's memory\n");
    } else if (profile->job.peers.size > 1) {
        printf("time             not measured: the model is split over several processes\n");
    } else if (measure(profile, &per_operation, &err) != DPE_OK) {
        printf("time             not measured: %s\n", err.text);
    } else {
        printf("time             about %s\n",
               dpe_format_seconds(operations * per_operation, buffer));
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
    double operations = 0.0;
    printf("norms            %lld excerpts of", (long long)profile->args->job.samples);
    for (int i = 0; i < profile->n_lengths; i++) {
        double products = 0.0;
        double attention = 0.0;
        dpe_config_flops(config, 0, profile->lengths[i], 0, &products, &attention);
        tokens += samples * (double)profile->lengths[i];
        operations += samples * (products + attention);
        printf("%s %lld", i > 0 ? "," : "", (long long)profile->lengths[i]);
    }
    char memory[200];
    printf(" tokens\ntokens           %.4g\noperations       %.3g\n", tokens, operations);
    printf("memory           %s\n", dpe_job_memory_text(&profile->job, bytes, weights, memory));
    fflush(stdout);
    print_time(profile, weights, operations);
    return DPE_OK;
}
