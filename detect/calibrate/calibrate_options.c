/* The command line of dpe-calibrate: that of dpe-detect's sweep, and what the other parts have. */
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
    KEY_SEED,
};

static const int64_t most_seed = (INT64_C(1) << 40) - CALIBRATE_SEEDS;

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to calibrate:", 1},
    {"top-k", KEY_TOP_K, "K", DPE_BASIC,
     "Key pairs of each head: auto (default: the fewest that are shown to keep 97 % of the "
     "recall), a count, or a share (the paper's is 0.75)",
     1},
    {"output", 'o', "DIR", DPE_BASIC, "Folder for all results; run the same command to continue",
     1},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print what every part would cost, and run nothing. How fast the model runs here is measured "
     "once and kept for a day in ~/.cache/dpe/speeds ($XDG_CACHE_HOME)",
     1, DPE_SWITCH(struct calibrate_arguments, detect.job.dry_run)},
    {"samples", 0, "N", DPE_BASIC,
     "Samples per configuration of the sweep, and of the check (default 100)", 2,
     DPE_COUNT(struct calibrate_arguments, detect.job.samples, 1, 1000000),
     DPE_GIVEN(struct calibrate_arguments, detect.job.samples_given)},
    {"seed", KEY_SEED, "S", 0,
     "Seed of sweep, search and profile (default: 0, of the profile 1); the check adds 1000 to it, "
     "--top-k auto 2000",
     2},
    {0},
};

void dpe_calibrate_defaults(struct calibrate_arguments *args)
{
    *args = (struct calibrate_arguments){.norm_samples = DPE_NORMS_SAMPLES};
    dpe_detect_defaults(&args->detect);
    args->detect.rule = DPE_DETECT_BOTH;
    args->detect.job.most_lengths = DPE_JOB_LENGTHS;
}

static void complete(struct dpe_command_line *state, struct calibrate_arguments *args)
{
    struct dpe_detect_arguments *detect = &args->detect;
    dpe_job_require(state, &detect->job, true, "--output DIR");
    if (dpe_detect_budgeted(&detect->budget) && detect->job.n_lengths > 1) {
        dpe_line_error(state, "--budget takes one length; run it once for each");
    }
    args->chat_template = detect->job.chat_template;
    dpe_detect_complete(state, detect);
    args->top_k_given = args->top_k != NULL;
    args->top_k = args->top_k != NULL ? args->top_k : CALIBRATE_AUTO;
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct calibrate_arguments *args = state->input;
    struct dpe_job_options *job = &args->detect.job;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->detect;
        state->child_inputs[1] = job;
        state->child_inputs[2] = job;
        state->child_inputs[3] = job;
        state->child_inputs[4] = &job->tool;
        return 0;
    case 'o':
        if (strcmp(arg, "-") == 0) {
            dpe_line_error(state, "--output: expected a folder, found '-'");
        }
        job->output = dpe_tool_path(state, "--output", arg);
        return 0;
    case KEY_TOP_K:
        if (strcmp(arg, CALIBRATE_AUTO) != 0) {
            dpe_parse_top_k(state, "--top-k", arg, CALIBRATE_AUTO);
        }
        args->top_k = arg;
        return 0;
    case DPE_LINE_END:
        complete(state, args);
        return 0;
    case KEY_SEED: {
        /* The parts after the sweep add to it. */
        const int64_t seed = dpe_parse_count(state, "--seed", arg, 0, DPE_MOST_COUNT);
        if (seed > most_seed) {
            dpe_line_error(state, "--seed: expected at most %lld, found '%s'", (long long)most_seed,
                           arg);
        }
        job->seed = (uint64_t)seed;
        args->seed_given = true;
        return 0;
    }
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static const struct dpe_option_set *const children[] = {
    &dpe_detect_option_set,     &dpe_job_option_set,         &dpe_job_prompt_option_set,
    &dpe_job_engine_option_set, &dpe_tool_output_option_set, NULL};
const struct dpe_option_set dpe_calibrate_option_set = {
    .options = options_table,
    .parser = parse_option,
    .doc =
        "Calibrate a RoPE language model for one or several lengths (-l 2k,4k,8k): effective "
        "lengths, the plan, key pairs, and the DPE table that a runtime loads.\v"
        "Into DIR: detect.h5 (dpe-detect: the sweep of groups and the search), norms.h5 "
        "(dpe-norms), with --top-k auto ablate.h5 "
        "(dpe-eval), table.h5 and its forms "
        "table.json, table.yaml with scores.pt, table.safetensors, config.json, table.csv "
        "(dpe-export), check.h5 with what the table finds (dpe-eval), of a GGUF kld-trained.h5 and "
        "kld.h5 with how far it is from the unchanged model (dpe-eval kld), report.html "
        "(dpe-report). With several lengths the table has an entry for each, and a runtime chooses "
        "by the length of the text: then DIR/LENGTH has detect.h5, ablate.h5, table.h5, "
        "table.yaml and table.csv of its entry, and everything else is in DIR once. A table that "
        "holds another method than DPE, because that one is shown to be "
        "better, has no ablate.h5, table.yaml and table.csv; one of frequencies alone has the "
        "config.json of longrope. Finished parts are kept: after a kill, a signal or a full disk, "
        "run the same command to continue. With --budget the sweep, the choice of key pairs and "
        "the "
        "divergence are left out where they do not fit, which is said. --time-budget covers all "
        "parts together. mpirun -n 8 "
        "dpe-calibrate ... distributes the samples over processes.\n\n"
        "Exit status: 0 complete, 75 stopped and resumable, else as in dpe-detect --help.\n\n"
        "Example:\n"
        "  dpe-calibrate -m data/reference -l 1k --corpus data/sample --budget 5m -o calibrated",
    .children = children,
};
