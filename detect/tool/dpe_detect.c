/* dpe-detect: a model folder goes in, a table of effective lengths comes out. */
#include "detect/tool/detection.h"

enum option_key { KEY_TOP_K = DPE_KEY_PROGRAM };

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to sweep:", 1},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print configurations, tokens, operations, memory and time, and run nothing", 1,
     DPE_SWITCH(struct dpe_detect_arguments, job.dry_run)},
    {"selection", 0, "K=V,...", 0,
     "A query of every plan of the sweep meets only the keys that the method select chooses with "
     "these keys (dpe-run --method help), so the table is one for them; use it as --method "
     "select:K=V,...,over=table:FILE",
     3, DPE_TEXT(struct dpe_detect_arguments, selection)},
    {"scale-pairs", 0, "NORMS.h5", 0,
     "Move only the key pairs of a profile by dpe-norms (default: all pairs, as the paper)", 3,
     DPE_TEXT(struct dpe_detect_arguments, scale_pairs)},
    {"top-k", KEY_TOP_K, "K", 0,
     "Key pairs of each head: a count, or a share such as 0.75 (default with --scale-pairs and "
     "--select joint: searched)",
     3},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_detect_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = args;
        for (int i = 1; i < 5; i++) {
            state->child_inputs[i] = &args->job;
        }
        return 0;
    case KEY_TOP_K:
        args->top_k = dpe_parse_top_k(state, "--top-k", arg, NULL);
        return 0;
    case DPE_LINE_END:
        if (args->against_tuned) {
            dpe_line_error(state,
                           "--against tuned is for dpe-calibrate; give the table of dpe-eval tune, "
                           "--against TUNED.h5");
        }
        dpe_job_require(state, &args->job, true, "--output OUT.h5");
        dpe_detect_complete(state, args);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe_detect)
{
    static const struct dpe_option_set *const children[] = {
        &dpe_detect_option_set,   &dpe_job_option_set,        &dpe_job_prompt_option_set,
        &dpe_job_rows_option_set, &dpe_job_engine_option_set, NULL};
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Find the effective length of every frequency group of a RoPE language model.\v"
               "Each group of frequency pairs in turn is given each detecting length, while all "
               "others stay at half the trained length. The lengths are ranked by what the model "
               "then finds in L tokens. The result goes to standard output and, with a record of "
               "how it was made, into OUT.h5.\n\n"
               "Every finished sample is saved at once: after a kill, a signal or a full disk, run "
               "the "
               "same command to continue. SIGUSR1 finishes the current sample first; SIGTERM "
               "and SIGINT do not.\n\n"
               "Exit status: 0 complete, 64 usage, 65 bad data, 66 missing input, 69 no such "
               "device, 70 non-finite logits or an internal error, 71 memory, 73 cannot create, 74 "
               "input or output, 75 stopped and resumable, 77 permission, 78 another run's table."
               "\n\nExample:\n"
               "  dpe-detect -m data/reference -l 1k --corpus data/sample --keys-per-context 4 "
               "--race -o detect.h5",
        .children = children,
    };
    struct dpe_detect_arguments args;
    dpe_tool_start(&argc, &argv);
    dpe_detect_defaults(&args);
    args.job.argc = argc;
    args.job.argv = argv;
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_study_main(&dpe_detect_study, &args, &args.job);
}
