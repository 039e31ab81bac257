/* The pairs that move during a detection: all of them, or the key pairs of a profile. */
#include <math.h>
#include <stdio.h>

#include "detect/tool/detect_tool.h"
#include "outputs/read/profile.h"

dpe_status dpe_detect_inputs_key_pairs(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct detect_arguments *args = inputs->args;
    int64_t n_pairs = dpe_model_config(inputs->job.model)->head_dim / 2;
    snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "all");
    if (args->scale_pairs == NULL) {
        return DPE_OK;
    }
    int64_t rotating = dpe_config_pairs(dpe_model_config(inputs->job.model));
    double asked = args->top_k < 1.0 ? floor(args->top_k * (double)rotating + 0.5) : args->top_k;
    if (asked < 1.0 || asked > (double)rotating) {
        return dpe_fail(err, DPE_USAGE,
                        "--top-k: expected 1 to %lld of the model's pairs, found %g",
                        (long long)rotating, args->top_k);
    }
    int64_t k = (int64_t)asked;
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    const struct dpe_profile_model model = {dpe_model_fingerprint(inputs->job.model),
                                            config->n_layers, config->n_heads, n_pairs};
    int64_t rows = config->n_layers * config->n_heads;
    struct dpe_profile profile;
    dpe_status status = dpe_profile_read(args->scale_pairs, &model, false, &profile, err);
    if (status != DPE_OK) {
        goto done;
    }
    snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "top %lld of profile %s", (long long)k,
             profile.identity);
    inputs->mask = dpe_alloc((size_t)rows, (size_t)n_pairs);
    status = inputs->mask == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for key pairs")
                                  : dpe_plan_mask_ranked(profile.ranking, rows, n_pairs, k, false,
                                                         inputs->mask, err);
done:
    dpe_profile_free(&profile);
    return status;
}
