/* dpe-eval: position methods on the same samples, side by side. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_tool.h"

enum option_key {
    KEY_CORPUS = 0x2000,
    KEY_SPLIT,
    KEY_METHOD,
    KEY_TABLE,
    KEY_NIAH,
    KEY_CHAT,
    KEY_SAMPLES,
    KEY_SEED,
    KEY_TRAINED_LENGTH,
    KEY_OFFICIAL,
};

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "What to compare:", 1},
    {"model", 'm', "DIR", 0, "Hugging Face folder: config.json, safetensors, tokenizer.json", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", 0,
     "Position method; repeat it for more (dpe-run --method help lists them)", 1},
    {"table", KEY_TABLE, "FILE", 0, "A DPE table as a method; may be repeated", 1},
    {"length", 'l', "L", 0, "Length in tokens, prompt and answer together", 1},
    {"trained-length", KEY_TRAINED_LENGTH, "L0", 0,
     "Trained length (default: max_position_embeddings)", 1},
    {"official", KEY_OFFICIAL, "0|1", 0,
     "Switches that official codes of the methods carry silently (default 1)", 1},
    {NULL, 0, NULL, 0, "On what:", 2},
    {"corpus", KEY_CORPUS, "PATH", 0, "PG-19 folder, folder of .txt files, or one text file", 2},
    {"split", KEY_SPLIT, "NAME", 0, "PG-19: train, validation or test (default)", 2},
    {"niah", KEY_NIAH, "K=V,...", 0, "Parameters of the needle task, as in dpe-detect", 2},
    {"chat-template", KEY_CHAT, "FILE", 0, "Wrap prompts in a chat template", 2},
    {"samples", KEY_SAMPLES, "N", 0, "Samples, or most books (default 100)", 2},
    {"seed", KEY_SEED, "S", 0, "Seed of everything random (default 0)", 2},
    {"output", 'o', "OUT.h5", 0, "Table to write; an unfinished one is continued", 2},
    {0},
};

static int64_t parse_number(struct argp_state *state, const char *option, const char *text,
                            int64_t low)
{
    int64_t value = 0;
    if (!dpe_parse_int(text, low, INT64_C(1) << 40, &value)) {
        argp_error(state, "%s: expected a whole number of %lld or more, found '%s'", option,
                   (long long)low, text);
    }
    return value;
}

static void add_method(struct argp_state *state, struct eval_arguments *args, const char *spec,
                       bool table)
{
    if (args->n_methods == EVAL_MAX_METHODS) {
        argp_error(state, "more than %d methods", EVAL_MAX_METHODS);
    }
    args->methods[args->n_methods] = spec;
    args->is_table[args->n_methods++] = table;
}

static error_t parse_values(int key, char *arg, struct argp_state *state,
                            struct eval_arguments *args)
{
    switch (key) {
    case 'l':
        args->length = parse_number(state, "--length", arg, 16);
        return 0;
    case KEY_SAMPLES:
        args->samples = parse_number(state, "--samples", arg, 1);
        return 0;
    case KEY_SEED:
        args->seed = (uint64_t)parse_number(state, "--seed", arg, 0);
        return 0;
    case KEY_TRAINED_LENGTH:
        args->trained_length = parse_number(state, "--trained-length", arg, 1);
        return 0;
    case KEY_OFFICIAL:
        if (strcmp(arg, "0") != 0 && strcmp(arg, "1") != 0) {
            argp_error(state, "--official: expected 0 or 1, found '%s'", arg);
        }
        args->official = arg[0] == '1';
        return 0;
    case KEY_METHOD:
        add_method(state, args, arg, false);
        return 0;
    case KEY_TABLE:
        add_method(state, args, arg, true);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
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
    case KEY_NIAH:
        args->niah = arg;
        return 0;
    case KEY_CHAT:
        args->chat_template = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0 || (strcmp(arg, "niah") != 0 && strcmp(arg, "ppl") != 0)) {
            argp_error(state, "expected one of niah, ppl, found '%s'", arg);
        }
        args->suite = arg;
        return 0;
    case ARGP_KEY_END:
        if (args->suite == NULL || args->model == NULL || args->corpus == NULL ||
            args->output == NULL || args->length == 0 || args->n_methods == 0) {
            argp_error(state, "%s is missing",
                       args->suite == NULL    ? "what to run (niah or ppl)"
                       : args->model == NULL  ? "--model DIR"
                       : args->corpus == NULL ? "--corpus PATH"
                       : args->output == NULL ? "-o OUT.h5"
                       : args->length == 0    ? "--length L"
                                              : "--method NAME (or --table FILE)");
        }
        return 0;
    default:
        return parse_values(key, arg, state, args);
    }
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&dpe_tool_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = options_table,
        .parser = parse_option,
        .args_doc = "niah|ppl",
        .doc = "Compare position methods on the same samples: niah (needles in a haystack, recall) "
               "or ppl (perplexity of books).\v"
               "A run that was stopped goes on with the same command; methods and samples that are "
               "added later run alone.\n\n"
               "Example:\n"
               "  dpe-eval niah -m DIR --corpus pg19 -l 4096 --method rope --method self-extend "
               "--table detect.h5 -o compare.h5",
        .children = children,
    };
    dpe_tool_start(argv[0]);
    struct eval_arguments args = {.samples = 100, .official = true, .argc = argc, .argv = argv};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    dpe_tool_configure(&args.tool);
    dpe_signals_install();
    struct dpe_error err = {0};
    struct comparison comparison = {0};
    dpe_status status = comparison_open(&comparison, &args, &err);
    if (status == DPE_OK) {
        status = comparison_run(&comparison, &err);
    }
    comparison_close(&comparison);
    return dpe_tool_end(status, &err);
}
