/* The result of dpe-norms for scripts: a row for each head. */
#include "norms/norms_tool.h"

dpe_status dpe_norms_print_result(const struct profile *profile,
                                  const struct dpe_norms_result *result, struct dpe_error *err)
{
    int64_t pairs = result->n[DPE_NORMS_PAIR];
    static const char *const names[] = {"top_25", "top_50", "top_75"};
    const struct dpe_config *config = dpe_model_config(profile->job.model);
    struct dpe_result *out = dpe_result_begin("dpe-norms");
    dpe_result_text(out, "model", profile->args->job.model);
    dpe_result_text(out, "fingerprint", dpe_job_fingerprint(&profile->job));
    dpe_result_text(out, "table", profile->args->job.output);
    dpe_result_text(out, "contribution", dpe_contribution_name(profile->args->contribution));
    dpe_result_whole(out, "samples", profile->args->job.samples);
    dpe_result_wholes(out, "lengths", profile->lengths, (size_t)profile->n_lengths);
    dpe_result_whole(out, "pairs", pairs);
    for (int64_t row = 0; row < config->n_layers * config->n_heads; row++) {
        int64_t at = row * pairs;
        dpe_result_row(out, "heads");
        dpe_result_whole(out, "layer", row / config->n_heads);
        dpe_result_whole(out, "head", row % config->n_heads);
        dpe_result_number(out, "entropy_bits", dpe_norms_entropy(result->mean + at, pairs));
        for (int i = 0; i < 3; i++) {
            dpe_result_number(out, names[i],
                              dpe_norms_share(result->mean + at, result->ranking + at, pairs,
                                              pairs * (i + 1) / 4));
        }
    }
    return dpe_result_print(out, profile->args->job.result, err);
}
