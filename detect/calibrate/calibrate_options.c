/* The command line of dpe-calibrate. Most of it is for the tools that it starts, and handed on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect/calibrate/calibrate_tool.h"

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
    KEY_HANDED, /* and the following: handed_on[key - KEY_HANDED] */
    KEY_TASK = KEY_HANDED,
    KEY_NIAH,
    KEY_SAMPLES,
    KEY_MOVE,
    KEY_GROUPS,
    KEY_LENGTHS,
    KEY_WINDOW,
    KEY_TEMPERATURE,
    KEY_SELECT,
    KEY_ROUNDS,
    KEY_AGAINST,
    KEY_TUNE_BUDGET,
    KEY_BATCH,
    KEY_HAYSTACK,
    KEY_KEYS,
    KEY_RACE,
    KEY_RACE_LEVEL,
    KEY_RACE_INDIFFERENCE,
    KEY_SEED,
    KEY_NORM_SAMPLES,
    KEY_NORM_LENGTHS,
    KEY_CONTRIBUTION,
    KEY_SPECIAL,
    KEY_END,
};
_Static_assert((int)KEY_END - (int)KEY_HANDED == (int)CALIBRATE_HANDED, "one place for each");

enum { TEXT = -1, FLAG = -2 };
static const int64_t MOST_BUDGET = 1000000; /* of dpe-eval tune */
static const int64_t MOST_SEED = (INT64_C(1) << 40) - CALIBRATE_SEEDS;

static const struct handed {
    const char *name; /* on our command line */
    const char *as;   /* on the tool's; NULL: the same */
    int parts;
    /* Of a number, which is checked here: the tool would give it its own name. TEXT or FLAG. */
    int64_t least;
} handed_on[CALIBRATE_HANDED] = {
    {"--task", NULL, CALIBRATE_SWEEP, TEXT},
    {"--niah", NULL, CALIBRATE_SWEEP, TEXT},
    {"--samples", NULL, CALIBRATE_SWEEP | CALIBRATE_PAIRS | CALIBRATE_CHECK, 1},
    {"--move", NULL, CALIBRATE_SWEEP, TEXT},
    {"--groups", NULL, CALIBRATE_SWEEP, 1},
    {"--lengths", NULL, CALIBRATE_SWEEP, TEXT},
    {"--window", NULL, CALIBRATE_SWEEP, 1},
    {"--temperature", NULL, CALIBRATE_SWEEP, TEXT},
    {"--select", NULL, CALIBRATE_SWEEP, TEXT},
    {"--rounds", NULL, CALIBRATE_SWEEP, 1},
    {"--against", NULL, CALIBRATE_SWEEP, TEXT},
    {"--tune-budget", "--budget", CALIBRATE_TUNE, 1},
    {"--batch", NULL, CALIBRATE_SWEEP, 1},
    {"--haystack", NULL, CALIBRATE_SWEEP, TEXT},
    {"--keys-per-context", NULL, CALIBRATE_SWEEP, 1},
    {"--race", NULL, CALIBRATE_SWEEP, FLAG},
    {"--race-level", NULL, CALIBRATE_SWEEP, TEXT},
    {"--race-indifference", NULL, CALIBRATE_SWEEP, TEXT},
    {"--seed", NULL, CALIBRATE_SWEEP | CALIBRATE_PROFILE, 0},
    {"--norm-samples", "--samples", CALIBRATE_PROFILE, 1},
    {"--norm-lengths", "--lengths", CALIBRATE_PROFILE, TEXT},
    {"--contribution", NULL, CALIBRATE_PROFILE, TEXT},
    {"--special-in-text", NULL, CALIBRATE_PROFILE, TEXT},
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to calibrate:", 1},
    {"top-k", KEY_TOP_K, "K", DPE_BASIC,
     "Key pairs of each head: auto (default: the fewest that are shown to keep 97 % of the "
     "recall), a count, or a share (the paper's is 0.75)",
     1},
    {"output", 'o', "DIR", DPE_BASIC, "Folder for all results; run the same command to continue",
     1},
    {"start", 0, "shorter|scratch", 0,
     "Detecting lengths and temperatures that a longer entry tries: those near the ones that the "
     "shorter entry chose (default), or all",
     1, DPE_CHOICE(struct calibrate_arguments, scratch, NULL)},
    {"launch", 0, "COMMAND", 0,
     "Start the measuring tools as several ranks, e.g. --launch 'mpirun -n 8'", 1,
     DPE_TEXT(struct calibrate_arguments, launch)},
    {"dry-run", 0, NULL, DPE_BASIC, "Print what the measuring tools would cost, and run nothing", 1,
     DPE_SWITCH(struct calibrate_arguments, job.dry_run)},
    {NULL, 0, NULL, 0, "Sweep (dpe-detect):", 2},
    {"task", KEY_TASK, "TASK", 0,
     "auto (default: as hard as tells good plans apart), user, niah, ppl or both", 2},
    {"niah", KEY_NIAH, "K=V,...", 0, "Settings of the needles (see dpe-detect --help)", 2},
    {"samples", KEY_SAMPLES, "N", DPE_BASIC, "Samples per configuration (default 100)", 2},
    {"move", KEY_MOVE, "WHAT", 0,
     "positions (default): DPE. frequencies: a factor for each pair and a temperature, which "
     "runtimes "
     "read without an adapter (see dpe-detect --help); no profile and no key pairs, one length",
     2},
    {"groups", KEY_GROUPS, "C", 0, "Equal groups of frequency pairs (default 8)", 2},
    {"lengths", KEY_LENGTHS, "LIST", 0, "Detecting lengths a,b,... or auto (default)", 2},
    {"window", KEY_WINDOW, "W", 0,
     "Keys nearer than W tokens keep their distance (default min(1024, L0/8))", 2},
    {"temperature", KEY_TEMPERATURE, "auto[:K=V,...]|off|K=V,...", 0,
     "Attention temperature of every plan but rope: auto (default) searches it (see dpe-detect "
     "--help)",
     2},
    {"select", KEY_SELECT, "RULE", 0,
     "How the plan is chosen: joint (default), paper, guarded, sequential", 2},
    {"rounds", KEY_ROUNDS, "R", 0, "sequential, joint: passes over everything", 2},
    {"against", KEY_AGAINST, "METHOD", 0,
     "Hold the sweep's result against this method (once; see dpe-detect --help); tuned: against "
     "yarn, "
     "self-extend, leaky-rerope and lampe with the settings that dpe-eval tune finds for them",
     2},
    {"tune-budget", KEY_TUNE_BUDGET, "ROWS", 0,
     "--against tuned: samples that the settings of each method may take (default: as dpe-eval "
     "tune, "
     "400)",
     2},
    {"batch", KEY_BATCH, "N", 0, "Samples decoded together (default 4)", 2},
    {"haystack", KEY_HAYSTACK, "own|shared[=N]", 0,
     "shared: N samples share the first half of their context", 2},
    {"keys-per-context", KEY_KEYS, "M", DPE_BASIC,
     "M keys in each context; each is a sample of its own", 2},
    {"race", KEY_RACE, NULL, DPE_BASIC, "Stop sampling lengths that cannot become rank 1", 2},
    {"race-level", KEY_RACE_LEVEL, "P", 0, "Level of that test (default 0.05)", 2},
    {"race-indifference", KEY_RACE_INDIFFERENCE, "D", 0,
     "Drop a length also when it is not better by D (default 0)", 2},
    {"seed", KEY_SEED, "S", 0,
     "Seed of sweep and profile (default: 0 for the sweep, 1 for the profile); --against tuned "
     "adds "
     "500 to it, the check 1000, --top-k auto 2000",
     2},
    {NULL, 0, NULL, 0, "Profile (dpe-norms):", 3},
    {"norm-samples", KEY_NORM_SAMPLES, "N", 0, "Excerpts of each length (default 10)", 3},
    {"norm-lengths", KEY_NORM_LENGTHS, "LIST", 0, "Tokens of an excerpt a,b,... or auto (default)",
     3},
    {"contribution", KEY_CONTRIBUTION, "NAME", 0, "product-of-means (default) or mean-of-products",
     3},
    {"special-in-text", KEY_SPECIAL, "WHAT", 0,
     "Spelling of a special token in the excerpts: error (default) or literal", 3},
    {0},
};

static int parse_handed(struct dpe_command_line *state, int key, const char *arg,
                        struct calibrate_arguments *args)
{
    const struct handed *option = &handed_on[key - KEY_HANDED];
    if (option->least >= 0) {
        int64_t value =
            key == KEY_WINDOW
                ? dpe_parse_tokens(state, option->name, arg, option->least, DPE_MOST_COUNT)
                : dpe_parse_count(state, option->name, arg, option->least, DPE_MOST_COUNT);
        if (key == KEY_TUNE_BUDGET && value > MOST_BUDGET) {
            dpe_line_error(state, "--tune-budget: expected at most %lld, found '%s'",
                           (long long)MOST_BUDGET, arg);
        }
        /* The parts after the sweep add to it, and would refuse the sum. */
        if (key == KEY_SEED && value > MOST_SEED) {
            dpe_line_error(state, "--seed: expected at most %lld, found '%s'", (long long)MOST_SEED,
                           arg);
        }
    }
    bool tunes = key == KEY_AGAINST && strcmp(arg, "tuned") == 0;
    if (key == KEY_AGAINST) {
        args->tunes = tunes;
    }
    args->handed[key - KEY_HANDED] = tunes ? NULL : arg != NULL ? arg : "";
    return 0;
}

/* Tuning comes before the sweep, and knows needles alone. */
static void check_tuning(struct dpe_command_line *state, const struct calibrate_arguments *args)
{
    const char *task = dpe_calibrate_value(args, "--task");
    if (args->tunes && !dpe_calibrate_needles(args)) {
        dpe_line_error(state, "--against tuned needs a task of needles, found '%s'", task);
    }
    if (!args->tunes && dpe_calibrate_value(args, "--tune-budget") != NULL) {
        dpe_line_error(state, "--tune-budget needs --against tuned");
    }
}

/* What only positions have. */
static void check_frequencies(struct dpe_command_line *state,
                              const struct calibrate_arguments *args)
{
    const char *given = args->top_k != NULL ? "--top-k" : NULL;
    for (int i = 0; i < CALIBRATE_HANDED && given == NULL; i++) {
        bool of_profile = handed_on[i].parts == CALIBRATE_PROFILE;
        given = of_profile && args->handed[i] != NULL ? handed_on[i].name : NULL;
    }
    if (given != NULL) {
        dpe_line_error(state,
                       "--move frequencies has no profile of the heads and no key pairs: a "
                       "frequency holds for every head; leave out %s",
                       given);
    }
    if (args->job.n_lengths > 1) {
        dpe_line_error(state,
                       "--move frequencies takes one length: runtimes read one list of factors; "
                       "run it once for each length, with a folder of its own");
    }
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct calibrate_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = &args->job;
        state->child_inputs[1] = &args->job;
        state->child_inputs[2] = &args->job.tool;
        return 0;
    case 'o':
        if (strcmp(arg, "-") == 0) {
            dpe_line_error(state, "--output: expected a folder, found '-'");
        }
        args->job.output = dpe_tool_path(state, "--output", arg);
        return 0;
    case KEY_TOP_K:
        if (strcmp(arg, CALIBRATE_AUTO) != 0) {
            dpe_parse_top_k(state, "--top-k", arg, CALIBRATE_AUTO);
        }
        args->top_k = arg;
        return 0;
    case DPE_LINE_END:
        dpe_job_require(state, &args->job, true, "--output DIR");
        if (dpe_calibrate_frequencies(args)) {
            check_frequencies(state, args);
        }
        check_tuning(state, args);
        args->top_k = args->top_k != NULL ? args->top_k : CALIBRATE_AUTO;
        return 0;
    default:
        return key >= KEY_HANDED && key < KEY_END ? parse_handed(state, key, arg, args)
                                                  : DPE_LINE_UNKNOWN;
    }
}

const char *dpe_calibrate_value(const struct calibrate_arguments *args, const char *name)
{
    for (int i = 0; i < CALIBRATE_HANDED; i++) {
        if (strcmp(handed_on[i].name, name) == 0) {
            return args->handed[i];
        }
    }
    return NULL;
}

bool dpe_calibrate_frequencies(const struct calibrate_arguments *args)
{
    const char *moved = dpe_calibrate_value(args, "--move");
    return moved != NULL && strcmp(moved, "frequencies") == 0;
}

bool dpe_calibrate_needles(const struct calibrate_arguments *args)
{
    const char *task = dpe_calibrate_value(args, "--task");
    return task == NULL || strcmp(task, "ppl") != 0;
}

void dpe_calibrate_argv_add_handed(struct argv *argv, const struct calibrate_arguments *args,
                                   int parts)
{
    for (int i = 0; i < CALIBRATE_HANDED; i++) {
        if (args->handed[i] != NULL && (handed_on[i].parts & parts) != 0) {
            dpe_calibrate_argv_add(argv,
                                   handed_on[i].as != NULL ? handed_on[i].as : handed_on[i].name);
            if (handed_on[i].least != FLAG) {
                dpe_calibrate_argv_add(argv, args->handed[i]);
            }
        }
    }
}

static const struct dpe_option_set *const children[] = {
    &dpe_job_option_set, &dpe_job_prompt_option_set, &dpe_tool_output_option_set, NULL};
const struct dpe_option_set dpe_calibrate_option_set = {
    .options = options_table,
    .parser = parse_option,
    .doc =
        "Calibrate a RoPE language model for one or several lengths (-l 2k,4k,8k): effective "
        "lengths, key pairs, and the DPE table that a runtime loads.\v"
        "Into DIR: with --against tuned tune.h5 (dpe-eval), detect.h5 (dpe-detect), norms.h5 "
        "(dpe-norms), with --top-k auto ablate.h5 "
        "(dpe-eval), table.h5 and its forms "
        "table.json, table.yaml with scores.pt, table.safetensors, config.json, table.csv "
        "(dpe-export), check.h5 with what the table finds (dpe-eval), report.html "
        "(dpe-report). With several lengths the table has an entry for each, and a runtime "
        "chooses by the length of the text: then DIR/LENGTH has tune.h5, detect.h5, ablate.h5, "
        "table.h5, "
        "table.yaml and table.csv of its entry, and everything else is in DIR once. With --move "
        "frequencies: detect.h5, table.h5, table.json, config.json (longrope), check.h5 and "
        "report.html. A table that holds another method than DPE, because that one is shown to be "
        "better, has no ablate.h5, table.yaml and table.csv; one of frequencies alone has the "
        "config.json of longrope. Finished "
        "parts are kept: after a kill, a signal or a full disk, run the "
        "same command to continue. Signals are passed on to the running tool; "
        "--time-budget covers all parts together.\n\n"
        "Exit status: 0 complete, 75 stopped and resumable, else that of the tool that failed, "
        "as in dpe-detect --help.\n\n"
        "Example:\n"
        "  dpe-calibrate -m data/reference -l 2k --corpus data/sample --keys-per-context 4 --race "
        "-o calibrated",
    .children = children,
};
