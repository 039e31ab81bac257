/* What each saving saves, computed before anything runs (--dry-run). */
#include "detect/tool/detect_tool.h"

static void line(const char *what, double tokens, double before)
{
    dpe_print("  %-38s %10.4g tokens", what, tokens);
    if (before > 0.0) {
        dpe_print("  1 / %.2f", before / tokens);
    }
    dpe_print("\n");
}

/* Every length but each group's best and L0/2 goes as soon as a test on whole rounds can say so. */
double dpe_detect_least_rows(const struct detect_inputs *inputs, int64_t samples)
{
    const struct dpe_detect_grid *grid = &inputs->grid;
    int64_t needed = dpe_detect_inputs_race_needs(inputs);
    needed = needed < samples ? needed : samples;
    int64_t left = grid->params.n_groups + 1;
    left = left < grid->n_configs ? left : grid->n_configs;
    return (double)(grid->n_configs * needed + left * (samples - needed));
}

static void print_sharing(const struct detect_inputs *inputs, double read, double naive,
                          double share)
{
    if (dpe_detect_inputs_together(inputs) == 1) {
        dpe_print("  %-38s not given: --keys-per-context M reads about 1/M, --haystack shared=N "
                  "(N+1)/2N\n",
                  "shared contexts");
    } else if (share < 1.0) {
        line("shared contexts read once", read, naive);
    } else {
        dpe_print("  %-38s read again for each sample: %s\n", "shared contexts",
                  inputs->args->batch == 1    ? "--batch 1 (but for whole prefill chunks)"
                  : inputs->n_samples[0] == 1 ? "there is only one sample"
                                              : "memory holds one sample at a time");
    }
}

void dpe_detect_print_savings(const struct detect_inputs *inputs,
                              const struct dpe_answering *answering)
{
    const struct dpe_detect_params *params = &inputs->grid.params;
    double samples = (double)inputs->n_samples[0];
    double times = samples / (double)answering->samples; /* of one configuration */
    double configs = (double)inputs->grid.n_configs;
    double prompts = (double)answering->prompts * times;
    double share = (double)answering->read / (double)answering->prompts;
    double naive = (double)(params->n_groups * params->n_lengths) * prompts;
    double steps = (double)dpe_detect_inputs_steps(inputs) * prompts;
    double searched = (double)dpe_detect_inputs_searched(inputs);
    if (searched > 0.0) {
        double all = (double)inputs->args->job.samples / samples;
        double fresh = (double)(dpe_detect_inputs_validated(inputs) * inputs->n_validated[0]);
        dpe_print("prompts to read in all\n");
        line("the paper's: every cell on all samples", naive * all, 0.0);
        line("sweep and validation", (configs * samples + fresh) / samples * prompts * share,
             naive * all);
        line("the search, at most", searched / samples * prompts * share, 0.0);
    }
    dpe_print("prompts to read in the sweep\n");
    line("every cell, sample by sample", naive, 0.0);
    line("distinct configurations (always)", configs * prompts, naive);
    print_sharing(inputs, configs * prompts * share, naive, share);
    if (inputs->args->race) {
        line("--race, at best",
             dpe_detect_least_rows(inputs, inputs->n_samples[0]) / samples * prompts * share,
             naive);
    } else {
        dpe_print("  %-38s not given: --race drops lengths\n", "racing");
    }
    if (steps > 0.0) {
        line("--select sequential adds at most", steps * share, 0.0);
        configs += (double)dpe_detect_inputs_steps(inputs);
    }
    dpe_print("tokens to generate in the sweep\n");
    dpe_print("  %-38s %10.4g tokens\n", "at most, less where answers end early",
              configs * (double)answering->decoded * times);
    dpe_print("  %-38s %10.4g steps\n", inputs->job.batch > 1 ? "decoded together" : "one by one",
              configs * (double)answering->steps * times);
}
