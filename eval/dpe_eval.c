/* dpe-eval: position methods on the same samples, side by side. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_tool.h"

enum option_key {
    KEY_METHOD = 0x2000,
    KEY_TABLE,
    KEY_NIAH,
    KEY_OFFICIAL,
};

static const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "What to compare:", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", 0,
     "Position method; repeat it for more (dpe-run --method help lists them)", 1},
    {"table", KEY_TABLE, "FILE", 0, "A DPE table as a method; may be repeated", 1},
    {"official", KEY_OFFICIAL, "0|1", 0,
     "Switches that official codes of the methods carry silently (default 1)", 1},
    {NULL, 0, NULL, 0, "On what:", 2},
    {"niah", KEY_NIAH, "K=V,...", 0, "Parameters of the needle task, as in dpe-detect", 2},
    {0},
};

static void add_method(struct argp_state *state, struct eval_arguments *args, const char *spec,
                       bool table)
{
    if (args->n_methods == EVAL_MAX_METHODS) {
        argp_error(state, "more than %d methods", EVAL_MAX_METHODS);
    }
    args->methods[args->n_methods] = spec;
    args->is_table[args->n_methods++] = table;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        for (int i = 0; i < 3; i++) {
            state->child_inputs[i] = &args->job;
        }
        return 0;
    case KEY_METHOD:
        add_method(state, args, arg, false);
        return 0;
    case KEY_TABLE:
        add_method(state, args, arg, true);
        return 0;
    case KEY_OFFICIAL:
        if (strcmp(arg, "0") != 0 && strcmp(arg, "1") != 0) {
            argp_error(state, "--official: expected 0 or 1, found '%s'", arg);
        }
        args->official = arg[0] == '1';
        return 0;
    case KEY_NIAH:
        args->niah = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0 || (strcmp(arg, "niah") != 0 && strcmp(arg, "ppl") != 0)) {
            argp_error(state, "expected one of niah, ppl, found '%s'", arg);
        }
        args->suite = arg;
        return 0;
    case ARGP_KEY_END:
        if (args->suite == NULL) {
            argp_error(state, "what to run (niah or ppl) is missing");
        }
        dpe_job_require(state, &args->job, true, "-o OUT.h5");
        if (args->job.length < 16) {
            argp_error(state, "--length: expected a whole number from 16 on, found '%lld'",
                       (long long)args->job.length);
        }
        if (args->n_methods == 0) {
            argp_error(state, "--method NAME (or --table FILE) is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&dpe_job_argp, 0, NULL, 0},
                                                 {&dpe_job_prompt_argp, 0, NULL, 0},
                                                 {&dpe_job_rows_argp, 0, NULL, 0},
                                                 {0}};
    static const struct argp argp = {
        .options = options_table,
        .parser = parse_option,
        .args_doc = "niah|ppl\nscore ...",
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
    if (argc > 1 && strcmp(argv[1], "score") == 0) {
        return eval_score_main(argc - 1, argv + 1);
    }
    struct eval_arguments args = {.job = {.samples = 100, .argc = argc, .argv = argv},
                                  .official = true};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    dpe_tool_configure(&args.job.tool);
    dpe_signals_install();
    struct dpe_error err = {0};
    struct comparison comparison = {0};
    dpe_status status = comparison_open(&comparison, &args, &err);
    if (status == DPE_OK) {
        status = comparison_run(&comparison, &err);
    }
    return dpe_tool_end(comparison_close(&comparison, status, &err), &err);
}
