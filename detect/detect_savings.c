/* What each saving spares, before anything runs (--dry-run). */
#include <stdlib.h>

#include "detect_tool.h"

/* Share of the prompts' tokens that is read when samples that are decoded together read what they
 * have in common once; from the first samples themselves. */
static dpe_status share_read(const struct detect_inputs *inputs, const struct dpe_niah *niah,
                             double *share, struct dpe_error *err)
{
    enum { MOST = 64 };
    int64_t together = (int64_t)inputs->niah.asked * inputs->niah.shared;
    int64_t batch = inputs_batch(inputs);
    together = together < batch ? together : batch;
    together = together < MOST ? together : MOST;
    struct dpe_sample samples[MOST] = {{0}};
    dpe_status status = DPE_OK;
    double all = 0.0;
    int64_t common = INT64_MAX;
    for (int64_t i = 0; i < together && status == DPE_OK; i++) {
        status = dpe_niah_sample(niah, i, &samples[i], err);
        const struct dpe_tokens *a = &samples[0].prompt;
        const struct dpe_tokens *b = &samples[i].prompt;
        int64_t n = 0;
        while (status == DPE_OK && n + 1 < (int64_t)b->n && n + 1 < (int64_t)a->n &&
               a->ids[n] == b->ids[n]) {
            n++;
        }
        common = n < common ? n : common;
        all += (double)b->n;
    }
    for (int64_t i = 0; i < together; i++) {
        dpe_sample_free(&samples[i]);
    }
    *share = together > 1 && all > 0.0 ? 1.0 - (double)((together - 1) * common) / all : 1.0;
    return status;
}

static void line(const char *what, double tokens, double before)
{
    printf("  %-38s %10.4g tokens", what, tokens);
    if (before > 0.0) {
        printf("  1 / %.2f", before / tokens);
    }
    printf("\n");
}

/* The fewest rows a race can end with: every length but each group's best and L0/2 goes as soon as
 * a test on whole rounds can say so. */
static double least_rows(const struct detect_inputs *inputs, int64_t samples)
{
    const struct dpe_detect_grid *grid = &inputs->grid;
    int64_t needed = 1; /* samples that all speak against a length: p = 2^-needed */
    while (needed < 60 && 1.0 / (double)((int64_t)1 << needed) >= inputs->args->race_level) {
        needed++;
    }
    int64_t per_round = inputs_per_round(inputs);
    needed = (needed + per_round - 1) / per_round * per_round;
    needed = needed < samples ? needed : samples;
    int64_t left = grid->params.n_groups + 1;
    left = left < grid->n_configs ? left : grid->n_configs;
    return (double)(grid->n_configs * needed + left * (samples - needed));
}

dpe_status detect_print_savings(const struct detect_inputs *inputs, int64_t prompt, int64_t room,
                                const struct dpe_niah *niah, struct dpe_error *err)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    int64_t samples = inputs->n_samples[0];
    double share = 1.0;
    dpe_status status = share_read(inputs, niah, &share, err);
    if (status != DPE_OK) {
        return status;
    }
    double cells = (double)(params->n_groups * params->n_lengths);
    double naive = cells * (double)samples * (double)prompt;
    double distinct = (double)inputs->grid.n_configs * (double)samples * (double)prompt;
    int64_t batch = inputs_batch(inputs);
    printf("prompts to read in the sweep\n");
    line("every cell, sample by sample", naive, 0.0);
    line("distinct configurations (always)", distinct, naive);
    if (share < 1.0) {
        line("shared contexts read once", distinct * share, naive);
    } else {
        printf("  %-38s not given: --keys-per-context M reads about 1/M, --haystack shared=N "
               "(N+1)/2N\n",
               "shared contexts");
    }
    if (inputs->args->race) {
        line("--race, at best", least_rows(inputs, samples) * (double)prompt * share, naive);
    } else {
        printf("  %-38s not given: --race drops lengths as the rows allow\n", "racing");
    }
    printf("tokens to generate in the sweep\n");
    double answers = (double)inputs->grid.n_configs * (double)samples * (double)room;
    printf("  %-38s %10.4g tokens\n", "at most, less where answers end early", answers);
    printf("  %-38s %10.4g steps\n", batch > 1 ? "decoded together" : "one by one (--batch 1)",
           answers / (double)batch);
    return DPE_OK;
}
