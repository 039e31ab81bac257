/* The pairs that move during a detection: all of them, or the key pairs of a profile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "outputs/h5/h5.h"

static dpe_status check_profile(const struct detect_inputs *inputs, struct dpe_h5 *norms,
                                char **identity, struct dpe_error *err)
{
    char *fingerprint = NULL;
    int64_t complete = 0;
    const char *path = inputs->args->scale_pairs;
    if (!dpe_h5_has(norms, "/norms/top_k_index")) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected a profile written by dpe-norms, found no /norms", path);
    }
    dpe_status status = dpe_h5_get_attr_text(norms, "/model", "fingerprint", &fingerprint, err);
    if (status == DPE_OK && strcmp(fingerprint, dpe_model_fingerprint(inputs->job.model)) != 0) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: this profile belongs to the model %s, but --model is %s", path,
                          fingerprint, dpe_model_fingerprint(inputs->job.model));
    }
    free(fingerprint);
    if (status == DPE_OK) {
        status = dpe_h5_get_attr_i64(norms, "/", "complete", &complete, err);
    }
    if (status == DPE_OK && complete != 1) {
        status = dpe_fail(
            err, DPE_BAD_DATA,
            "%s: the profile is not complete; repeat its dpe-norms command to finish it", path);
    }
    return status == DPE_OK ? dpe_h5_get_attr_text(norms, "/", "identity", identity, err) : status;
}

/* The first k of each head's ranking. */
static dpe_status make_mask(struct detect_inputs *inputs, struct dpe_h5 *norms, int64_t k,
                            struct dpe_error *err)
{
    const struct dpe_config *config = dpe_model_config(inputs->job.model);
    int64_t rows = config->n_layers * config->n_heads;
    int64_t n_pairs = config->head_dim / 2;
    void *data = NULL;
    int rank = 0;
    int64_t dims[5] = {0};
    dpe_status status =
        dpe_h5_get(norms, "/norms/top_k_index", DPE_COL_U16, &data, &rank, dims, err);
    if (status != DPE_OK) {
        return status;
    }
    inputs->mask = dpe_alloc((size_t)rows, (size_t)n_pairs);
    if (inputs->mask == NULL) {
        status = dpe_fail(err, DPE_NO_MEMORY, "out of memory for key pairs");
    } else if (rank != 3 || dims[0] != config->n_layers || dims[1] != config->n_heads ||
               dims[2] != n_pairs) {
        status = dpe_fail(err, DPE_BAD_DATA,
                          "%s: the shape of /norms/top_k_index is not that of the model",
                          inputs->args->scale_pairs);
    }
    if (status == DPE_OK) {
        status = dpe_plan_mask_ranked(data, rows, n_pairs, k, false, inputs->mask, err);
        if (status != DPE_OK) {
            dpe_fail_prefix(err, "%s: /norms/top_k_index", inputs->args->scale_pairs);
        }
    }
    free(data);
    return status;
}

dpe_status dpe_detect_inputs_key_pairs(struct detect_inputs *inputs, struct dpe_error *err)
{
    const struct detect_arguments *args = inputs->args;
    int64_t n_pairs = dpe_model_config(inputs->job.model)->head_dim / 2;
    snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "all");
    if (args->scale_pairs == NULL) {
        return DPE_OK;
    }
    double asked = args->top_k < 1.0 ? floor(args->top_k * (double)n_pairs + 0.5) : args->top_k;
    if (asked < 1.0 || asked > (double)n_pairs) {
        return dpe_fail(err, DPE_USAGE,
                        "--top-k: expected 1 to %lld of the model's pairs, found %g",
                        (long long)n_pairs, args->top_k);
    }
    int64_t k = (int64_t)asked;
    struct dpe_h5 *norms = NULL;
    char *identity = NULL;
    dpe_status status = dpe_h5_open(args->scale_pairs, &norms, err);
    if (status != DPE_OK) {
        return status;
    }
    status = check_profile(inputs, norms, &identity, err);
    if (status == DPE_OK) {
        snprintf(inputs->key_pairs, sizeof inputs->key_pairs, "top %lld of profile %s",
                 (long long)k, identity);
        status = make_mask(inputs, norms, k, err);
    }
    free(identity);
    dpe_h5_close(norms);
    return status;
}
