/* dpe-detect: a model folder goes in, a table of effective lengths comes out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "detect_tool.h"

enum option_key {
    KEY_CORPUS = 0x2000,
    KEY_SPLIT,
    KEY_TASK,
    KEY_NIAH,
    KEY_SAMPLES,
    KEY_GROUPS,
    KEY_LENGTHS,
    KEY_WINDOW,
    KEY_SCALE_PAIRS,
    KEY_TOP_K,
    KEY_TRAINED_LENGTH,
    KEY_CHAT_TEMPLATE,
    KEY_SEED,
    KEY_DRY_RUN,
};

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "What to sweep:", 1},
    {"model", 'm', "DIR", 0, "Hugging Face folder: config.json, safetensors, tokenizer.json", 1},
    {"length", 'l', "L", 0, "Length in tokens that the model shall work at", 1},
    {"corpus", KEY_CORPUS, "PATH", 0,
     "Texts: a PG-19 folder (with metadata.csv), a folder of .txt files, or a text file", 1},
    {"output", 'o', "OUT.h5", 0, "Table to write; the same command continues an unfinished one", 1},
    {"split", KEY_SPLIT, "NAME", 0, "Split of a PG-19 folder: test (default), validation, train",
     1},
    {"dry-run", KEY_DRY_RUN, NULL, 0,
     "Print configurations, tokens, operations, memory and time, and run nothing", 1},
    {NULL, 0, NULL, 0, "Task:", 2},
    {"task", KEY_TASK, "TASK", 0,
     "niah (default): needles in a haystack; ppl: perplexity of books; both: niah decides", 2},
    {"niah", KEY_NIAH, "K=V,...", 0,
     "keys=1, values=4, queries=1, digits=7, depth=, template=FILE, repeat=0, special=error|literal"
     "|parse",
     2},
    {"samples", KEY_SAMPLES, "N", 0, "Samples (or books) per configuration (default 100)", 2},
    {"chat-template", KEY_CHAT_TEMPLATE, "FILE", 0, "Wrap prompts in a chat template", 2},
    {"seed", KEY_SEED, "S", 0, "Seed of everything random (default 0)", 2},
    {NULL, 0, NULL, 0, "Grid:", 3},
    {"groups", KEY_GROUPS, "C", 0, "Equal groups of frequency pairs (default 8)", 3},
    {"lengths", KEY_LENGTHS, "LIST", 0,
     "Detecting lengths a,b,... or auto (default): L/128 ... L by powers of two, none shorter than "
     "the window",
     3},
    {"window", KEY_WINDOW, "W", 0,
     "Keys nearer than W tokens keep their distance (default min(1024, L0/8))", 3},
    {"scale-pairs", KEY_SCALE_PAIRS, "NORMS.h5", 0,
     "Move only the key pairs of a profile by dpe-norms (default: all pairs, as the paper)", 3},
    {"top-k", KEY_TOP_K, "K", 0, "Key pairs of each head: a count, or a share such as 0.75", 3},
    {"trained-length", KEY_TRAINED_LENGTH, "L0", 0,
     "Trained length (default: max_position_embeddings)", 3},
    {0},
};

static void parse_count(struct argp_state *state, const char *option, const char *text,
                        int64_t *value)
{
    if (!dpe_parse_int(text, 1, INT64_C(1) << 40, value)) {
        argp_error(state, "%s: expected a positive whole number, found '%s'", option, text);
    }
}

static void parse_task(struct argp_state *state, const char *text, struct detect_arguments *args)
{
    bool both = strcmp(text, "both") == 0;
    args->use_niah = both || strcmp(text, "niah") == 0;
    args->use_ppl = both || strcmp(text, "ppl") == 0;
    if (!args->use_niah && !args->use_ppl) {
        argp_error(state, "--task: expected niah, ppl or both, found '%s'", text);
    }
}

static error_t parse_numbers(int key, char *arg, struct argp_state *state,
                             struct detect_arguments *args)
{
    int64_t seed = 0;
    char *end = NULL;
    switch (key) {
    case 'l':
        parse_count(state, "--length", arg, &args->length);
        return 0;
    case KEY_SAMPLES:
        parse_count(state, "--samples", arg, &args->samples);
        if (args->samples > 1000000) {
            argp_error(state, "--samples: expected at most 1000000, found '%s'", arg);
        }
        return 0;
    case KEY_GROUPS:
        parse_count(state, "--groups", arg, &args->groups);
        return 0;
    case KEY_WINDOW:
        parse_count(state, "--window", arg, &args->window);
        return 0;
    case KEY_TOP_K:
        args->top_k = strtod(arg, &end);
        if (end == arg || *end != '\0' || !(args->top_k > 0.0) || args->top_k > 65536.0 ||
            (args->top_k >= 1.0 && args->top_k != floor(args->top_k))) {
            argp_error(state, "--top-k: expected a count or a share below 1, found '%s'", arg);
        }
        return 0;
    case KEY_TRAINED_LENGTH:
        parse_count(state, "--trained-length", arg, &args->trained_length);
        return 0;
    case KEY_SEED:
        if (!dpe_parse_int(arg, 0, INT64_MAX, &seed)) {
            argp_error(state, "--seed: expected a whole number from 0 on, found '%s'", arg);
        }
        args->seed = (uint64_t)seed;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct detect_arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->tool;
        return 0;
    case 'm':
        args->model = arg;
        return 0;
    case 'o':
        args->output = arg;
        return 0;
    case KEY_CORPUS:
        args->corpus = arg;
        return 0;
    case KEY_SPLIT:
        args->split = arg;
        return 0;
    case KEY_TASK:
        parse_task(state, arg, args);
        return 0;
    case KEY_NIAH:
        args->niah = arg;
        return 0;
    case KEY_LENGTHS:
        args->lengths = arg;
        return 0;
    case KEY_SCALE_PAIRS:
        args->scale_pairs = arg;
        return 0;
    case KEY_CHAT_TEMPLATE:
        args->chat_template = arg;
        return 0;
    case KEY_DRY_RUN:
        args->dry_run = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s' (the model is --model DIR)", arg);
        return 0;
    case ARGP_KEY_END:
        if (args->model == NULL || args->corpus == NULL || args->length == 0 ||
            (args->output == NULL && !args->dry_run)) {
            argp_error(state, "%s is missing",
                       args->model == NULL    ? "--model DIR"
                       : args->length == 0    ? "--length L"
                       : args->corpus == NULL ? "--corpus PATH"
                                              : "--output OUT.h5");
        }
        if ((args->scale_pairs != NULL) != (args->top_k > 0.0)) {
            argp_error(state, "--scale-pairs NORMS.h5 and --top-k K go together");
        }
        return 0;
    default:
        return parse_numbers(key, arg, state, args);
    }
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&dpe_tool_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = options_table,
        .parser = parse_option,
        .doc = "Find the effective length of every frequency group of a RoPE language model.\v"
               "One group of frequency pairs at a time is given each detecting length, all others "
               "stay at half the trained length; what the model then still finds in L tokens ranks "
               "the lengths. The result goes to standard output and, with everything needed to "
               "know how it was made, into OUT.h5.\n\n"
               "Every finished sample is safe at once: after a kill, a signal or a full disk the "
               "same command continues. SIGUSR1 ends after the sample in flight, SIGTERM and "
               "SIGINT without it.\n\n"
               "Exit status: 0 complete, 64 usage, 65 bad data, 66 missing input, 69 no such "
               "device, 70 non-finite logits or our mistake, 71 memory, 73 cannot create, 74 "
               "input or output, 75 stopped and resumable, 77 permission, 78 another run's table."
               "\n\nExample:\n"
               "  dpe-detect -m DIR -l 131072 --corpus pg19 -o effective.h5",
        .children = children,
    };
    dpe_tool_start(argv[0]);
    double begin = dpe_clock();
    struct detect_arguments args = {.lengths = "auto",
                                    .samples = 100,
                                    .groups = 8,
                                    .use_niah = true,
                                    .argc = argc,
                                    .argv = argv};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    dpe_tool_configure(&args.tool);
    dpe_signals_install();
    struct dpe_error err = {0};
    struct detect_inputs inputs = {0};
    struct dpe_detect_report report = {0};
    dpe_status status = inputs_open(&inputs, &args, args.dry_run, &err);
    if (status == DPE_OK && args.dry_run) {
        status = detect_dry_run(&inputs, &err);
    } else if (status == DPE_OK) {
        detect_announce(&inputs);
        status = detect_run(&inputs, begin, &report, &err);
        if (status == DPE_OK) {
            status = detect_print(&inputs, &report, &err);
        }
    }
    dpe_detect_report_free(&report);
    inputs_close(&inputs);
    return dpe_tool_end(status, &err);
}
