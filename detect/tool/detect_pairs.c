/* The pairs that move during a detection: all of them, the key pairs of a profile, or as many of
 * these as the search finds. */
#include <math.h>
#include <stdio.h>

#include "detect/tool/detect_tool.h"
#include "outputs/read/read.h"

/* The numbers of pairs whose masks are needed: the one that was asked for, or those smaller than
 * all that the search tries. */
static dpe_status numbers(struct detect_inputs *inputs, int64_t k[DPE_DETECT_CANDIDATES], int *n,
                          struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    int64_t rotating = dpe_config_pairs(dpe_model_config(inputs->job.model));
    if (args->top_k <= 0.0) {
        *n = dpe_detect_top_k_candidates(rotating, k) - 1; /* the last one is all of them */
        inputs->n_fewer = *n;
        return DPE_OK;
    }
    double asked = args->top_k < 1.0 ? floor(args->top_k * (double)rotating + 0.5) : args->top_k;
    if (asked < 1.0 || asked > (double)rotating) {
        return dpe_fail(err, DPE_USAGE,
                        "--top-k: expected 1 to %lld of the model's pairs, found %g",
                        (long long)rotating, args->top_k);
    }
    k[0] = (int64_t)asked;
    *n = 1;
    return DPE_OK;
}

/* What decides the masks, for the identity. */
static void name_pairs(struct detect_inputs *inputs, const struct dpe_profile *profile)
{
    if (inputs->n_fewer > 0) {
        snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "searched in profile %s",
                 profile->identity);
    } else {
        snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "top %lld of profile %s",
                 (long long)inputs->fewer[0], profile->identity);
    }
}

dpe_status dpe_detect_inputs_key_pairs(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct dpe_detect_arguments *args = inputs->args;
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    int64_t n_pairs = config->head_dim / 2;
    int64_t rows = config->n_layers * config->n_heads;
    int n = 0;
    snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "all");
    if (args->scale_pairs == NULL) {
        return DPE_OK;
    }
    dpe_status status = numbers(inputs, inputs->fewer, &n, err);
    if (status != DPE_OK) {
        return status;
    }
    /* Without its weights, in a dry run, a model has another fingerprint. */
    const char *fingerprint = args->job.dry_run ? NULL : dpe_job_fingerprint(&inputs->job);
    const struct dpe_profile_model model = {fingerprint, config->n_layers, config->n_heads,
                                            n_pairs};
    struct dpe_profile profile;
    status = dpe_profile_read(args->scale_pairs, &model, false, &profile, err);
    if (status != DPE_OK) {
        goto done;
    }
    name_pairs(inputs, &profile);
    size_t size = (size_t)rows * (size_t)n_pairs;
    inputs->mask = dpe_alloc_zero((size_t)n + 1, size);
    if (inputs->mask == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for key pairs");
        goto done;
    }
    for (int i = 0; i < n && status == DPE_OK; i++) {
        status = dpe_plan_mask_ranked(profile.ranking, rows, n_pairs, inputs->fewer[i], false,
                                      inputs->mask + (size_t)i * size, err);
    }
done:
    dpe_profile_free(&profile);
    return status;
}

void dpe_detect_inputs_put_pairs(const struct detect_inputs *inputs,
                                 struct dpe_detect_params *params)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    size_t size = (size_t)(config->n_layers * config->n_heads) * (size_t)(config->head_dim / 2);
    params->mask = inputs->n_fewer > 0 ? NULL : inputs->mask;
    params->n_fewer = inputs->n_fewer;
    for (int i = 0; i < inputs->n_fewer; i++) {
        params->fewer[i] =
            (struct dpe_detect_key_pairs){inputs->fewer[i], inputs->mask + (size_t)i * size};
    }
}
