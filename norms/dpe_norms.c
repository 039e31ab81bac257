/* dpe-norms: measure the 2-norm profile of every head on real text. */
#include "norms/norms_study.h"

enum option_key { KEY_CONTRIBUTION = DPE_KEY_PROGRAM };

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to measure:", 1},
    {"contribution", KEY_CONTRIBUTION, "NAME", 0,
     "product-of-means (default, the paper) or mean-of-products (its released code)", 1},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print the cost (tokens, operations, memory, time) and run nothing", 1,
     DPE_SWITCH(struct dpe_norms_arguments, job.dry_run)},
    {NULL, 0, NULL, 0, "Excerpts:", 2},
    {"lengths", 0, "A,B,...", DPE_BASIC,
     "Tokens of an excerpt (default auto: powers of two from min(2048, L0/4) to L0)", 2,
     DPE_TEXT(struct dpe_norms_arguments, lengths)},
    {"special-in-text", 0, "error|literal", 0,
     "Special tokens spelled out in the text (default: error)", 2,
     DPE_CHOICE(struct dpe_norms_arguments, special, NULL)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_norms_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->job;
        state->child_inputs[1] = &args->job;
        state->child_inputs[2] = &args->job;
        return 0;
    case KEY_CONTRIBUTION:
        if (!dpe_contribution_parse(arg, &args->contribution)) {
            dpe_line_error(state,
                           "--contribution: expected product-of-means or mean-of-products, "
                           "found '%s'",
                           arg);
        }
        return 0;
    case DPE_LINE_END:
        dpe_job_require(state, &args->job, false, "-o OUT.h5");
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe_norms)
{
    static const struct dpe_option_set *const children[] = {
        &dpe_job_option_set, &dpe_job_rows_option_set, &dpe_job_engine_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Measure which pairs of each head carry its logits (2-norms of queries and keys).\v"
               "The table holds every score by length and sample, so any top-k can be chosen "
               "later. If a run is stopped, run the same command to continue.\n\n"
               "Example:\n"
               "  dpe-norms -m data/reference --corpus data/sample -o norms.h5",
        .children = children,
    };
    dpe_tool_start(&argc, &argv);
    struct dpe_norms_arguments args = {.job = {.samples = DPE_NORMS_SAMPLES,
                                               .seed = DPE_NORMS_SEED,
                                               .knobs = {.length = "--lengths"},
                                               .argc = argc,
                                               .argv = argv}};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_study_main(&dpe_norms_study, &args, &args.job);
}
