/* The command line: what commands share, and what each has of its own. */
#include <stdlib.h>
#include <string.h>

#include "eval_tool.h"

enum option_key {
    KEY_METHOD = 0x2000,
    KEY_TABLE,
    KEY_OTHER_MODEL,
    KEY_OFFICIAL,
    KEY_CHAT_TEMPLATE,
    KEY_NIAH,
    KEY_GRID,
    KEY_DEPTHS,
    KEY_STRIDE,
    KEY_MAX_TOKENS,
    KEY_SPECIAL,
    KEY_SUITE,
    KEY_DETAILS,
    KEY_WHAT,
    KEY_VALUES,
    KEY_NORMS,
};

/* --------------------------------------------------------------------------------------- values */

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Numbers separated by commas; sorted, each once. */
static int parse_list(struct argp_state *state, const char *option, const char *text, double low,
                      double high, bool whole, double *values, int size)
{
    int n = 0;
    const char *at = text;
    for (;;) {
        char *end = NULL;
        double value = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !(value >= low && value <= high) ||
            (whole && value != (double)(int64_t)value)) {
            argp_error(state,
                       "%s: expected %snumbers from %g to %g, separated by commas, found '%s'",
                       option, whole ? "whole " : "", low, high, text);
        }
        if (n == size) {
            argp_error(state, "%s: more than %d numbers", option, size);
        }
        values[n++] = value;
        if (*end == '\0') {
            break;
        }
        at = end + 1;
    }
    qsort(values, (size_t)n, sizeof *values, compare_numbers);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || values[i] != values[kept - 1]) {
            values[kept++] = values[i];
        }
    }
    return kept;
}

static void parse_lengths(struct argp_state *state, const char *text, struct eval_arguments *args)
{
    double values[EVAL_MAX_LENGTHS];
    args->n_lengths =
        parse_list(state, "--length", text, 16.0, 1e9, true, values, EVAL_MAX_LENGTHS);
    for (int i = 0; i < args->n_lengths; i++) {
        args->lengths[i] = (int64_t)values[i];
    }
}

/* Depths carry names of tasks: four decimals. */
static void parse_depths(struct argp_state *state, const char *text, struct eval_arguments *args)
{
    args->n_depths =
        parse_list(state, "--depths", text, 0.0, 1.0, false, args->depths, EVAL_MAX_DEPTHS);
    for (int i = 0; i < args->n_depths; i++) {
        double rounded = (double)(int64_t)(args->depths[i] * 1e4 + 0.5) / 1e4;
        if (rounded != args->depths[i]) {
            argp_error(state, "--depths: at most four decimals, found '%s'", text);
        }
    }
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

/* Names of suites, separated by commas; the list is split in place. */
static void add_suites(struct argp_state *state, struct eval_arguments *args, char *text)
{
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ",")) {
        for (int i = 0; i < args->n_suites; i++) {
            if (strcmp(args->suites[i], name) == 0) {
                argp_error(state, "--suite: %s is given twice", name);
            }
        }
        if (args->n_suites == EVAL_MAX_SUITES) {
            argp_error(state, "--suite: more than %d suites", EVAL_MAX_SUITES);
        }
        args->suites[args->n_suites++] = name;
    }
}

static void parse_special(struct argp_state *state, const char *text, struct eval_arguments *args)
{
    static const char *const names[] = {"error", "literal", "parse"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            args->special = (enum dpe_special_policy)i;
            return;
        }
    }
    argp_error(state, "--special-in-text: expected error, literal or parse, found '%s'", text);
}

/* ---------------------------------------------------------------------------------------- pieces
 */

static error_t parse_piece(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
    switch (key) {
    case 'l':
        parse_lengths(state, arg, args);
        return 0;
    case KEY_METHOD:
        add_method(state, args, arg, false);
        return 0;
    case KEY_TABLE:
        add_method(state, args, arg, true);
        return 0;
    case KEY_OTHER_MODEL:
        args->other_model = true;
        return 0;
    case KEY_OFFICIAL:
        if (strcmp(arg, "0") != 0 && strcmp(arg, "1") != 0) {
            argp_error(state, "--official: expected 0 or 1, found '%s'", arg);
        }
        args->official = arg[0] == '1';
        return 0;
    case KEY_SUITE:
        add_suites(state, args, arg);
        return 0;
    case KEY_DETAILS:
        args->details = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_suite_piece(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
    switch (key) {
    case KEY_CHAT_TEMPLATE:
        args->job.chat_template = arg;
        return 0;
    case KEY_NIAH:
        args->niah = arg;
        return 0;
    case KEY_GRID:
        args->grid = true;
        return 0;
    case KEY_DEPTHS:
        parse_depths(state, arg, args);
        return 0;
    case KEY_STRIDE:
        args->stride = dpe_job_number(state, "--stride", arg, 1);
        return 0;
    case KEY_MAX_TOKENS:
        args->max_tokens = dpe_job_number(state, "--max-tokens", arg, 2);
        return 0;
    case KEY_SPECIAL:
        parse_special(state, arg, args);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_ablate_piece(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
    switch (key) {
    case KEY_WHAT:
        if (dpe_ablation_find(arg) < 0) {
            argp_error(state,
                       "--what: expected rank, top-k, last-k, window or scaled-length, found '%s'",
                       arg);
        }
        args->what = arg;
        return 0;
    case KEY_VALUES:
        args->n_values =
            parse_list(state, "--values", arg, 0.0, 1e9, false, args->values, EVAL_MAX_METHODS);
        return 0;
    case KEY_NORMS:
        args->norms = arg;
        return 0;
    default:
        return parse_piece(key, arg, state);
    }
}

#define LENGTHS                                                                                    \
    {                                                                                              \
        "length", 'l', "L[,L...]", 0, "Lengths in tokens, prompt and answer together", 1           \
    }
#define OTHER_MODEL                                                                                \
    {                                                                                              \
        "other-model", KEY_OTHER_MODEL, NULL, 0,                                                   \
            "Apply tables that were measured on other weights of the same shape", 1                \
    }
#define DETAILS                                                                                    \
    {                                                                                              \
        "details", KEY_DETAILS, NULL, 0,                                                           \
            "Print intervals and paired differences of every task (always printed of a single "    \
            "one)",                                                                                \
            2                                                                                      \
    }

static const struct argp_option method_table[] = {
    {NULL, 0, NULL, 0, "What to compare:", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", 0,
     "Position method; repeat it for more (dpe-run --method help lists them)", 1},
    {"table", KEY_TABLE, "FILE", 0,
     "A DPE table (of dpe-detect or dpe-export) as a method; may be repeated", 1},
    OTHER_MODEL,
    LENGTHS,
    {"official", KEY_OFFICIAL, "0|1", 0,
     "Switches that official codes of the methods carry silently (default 1)", 1},
    {NULL, 0, NULL, 0, "On what:", 2},
    DETAILS,
    {0},
};
static const struct argp_option suite_table[] = {
    {"suite", KEY_SUITE, "NAME[,NAME...]", 0, "Suites to run (see dpe-eval --help)", 2},
    {0},
};
static const struct argp_option needle_table[] = {
    {"niah", KEY_NIAH, "K=V,...", 0, "Parameters of the needle task, as in dpe-detect", 2},
    {"chat-template", KEY_CHAT_TEMPLATE, "FILE", 0, "Wrap prompts in a chat template", 2},
    {0},
};
static const struct argp_option grid_table[] = {
    {"grid", KEY_GRID, NULL, 0,
     "One needle by depth and length, instead of the task (a sample a cell takes as long as one "
     "of the task: mind --samples)",
     2},
    {0},
};
static const struct argp_option depth_table[] = {
    {"depths", KEY_DEPTHS, "D[,D...]", 0, "Depths of the grid, 0 ... 1 (default 0,0.1,...,1)", 2},
    {0},
};
static const struct argp_option book_table[] = {
    {"stride", KEY_STRIDE, "S", 0,
     "Slide a window of --length tokens over whole books, S tokens at a time, and score what is "
     "new (default: the first --length tokens of each book)",
     2},
    {"max-tokens", KEY_MAX_TOKENS, "N", 0, "With --stride: at most N tokens of a book", 2},
    {"special-in-text", KEY_SPECIAL, "WHAT", 0,
     "Spelling of a special token in the text: error (default), literal or parse", 2},
    {0},
};
static const struct argp_option ablate_table[] = {
    {NULL, 0, NULL, 0, "What to vary:", 1},
    {"table", KEY_TABLE, "FILE", 0, "Finished detection of dpe-detect", 1},
    {"what", KEY_WHAT, "WHAT", 0, "rank, top-k, last-k, window or scaled-length", 1},
    {"values", KEY_VALUES, "V[,V...]", 0,
     "Ranks, pairs of a head, or tokens (default: the usual ones, see below)", 1},
    {"norms", KEY_NORMS, "FILE", 0,
     "Table of dpe-norms: the ranking of key pairs, for top-k, last-k and scaled-length", 1},
    OTHER_MODEL,
    LENGTHS,
    {NULL, 0, NULL, 0, "On what:", 2},
    DETAILS,
    {0},
};

static const struct argp method_argp = {.options = method_table, .parser = parse_piece};
static const struct argp suite_argp = {.options = suite_table, .parser = parse_piece};
static const struct argp needle_argp = {.options = needle_table, .parser = parse_suite_piece};
static const struct argp grid_argp = {.options = grid_table, .parser = parse_suite_piece};
static const struct argp depth_argp = {.options = depth_table, .parser = parse_suite_piece};
static const struct argp book_argp = {.options = book_table, .parser = parse_suite_piece};
static const struct argp ablate_argp = {.options = ablate_table, .parser = parse_ablate_piece};

/* -------------------------------------------------------------------------------------- commands
 */

enum { MAX_PIECES = 10 };

struct command {
    const char *name, *doc;
    const char *suite;                    /* NULL: --suite says */
    struct argp_child pieces[MAX_PIECES]; /* of input struct eval_arguments */
};

static const struct command commands[] = {
    {"niah",
     "Compare position methods on needles in a haystack: the share of the values of a key that "
     "the answer holds.\v"
     "Example:\n"
     "  dpe-eval niah -m DIR --corpus pg19 -l 4096,8192 --method rope --method self-extend "
     "--table detect.h5 -o niah.h5\n"
     "  dpe-eval niah --grid -m DIR --corpus pg19 -l 1024,2048,4096 --samples 10 --method rope -o "
     "grid.h5",
     "niah",
     {{&method_argp, 0, NULL, 0},
      {&needle_argp, 0, NULL, 0},
      {&grid_argp, 0, NULL, 0},
      {&depth_argp, 0, NULL, 0}}},
    {"ppl",
     "Compare position methods by the perplexity of books, by token, by word and by position.\v"
     "Example:\n"
     "  dpe-eval ppl -m DIR --corpus pg19 -l 4096 --method rope --method yarn -o ppl.h5\n"
     "  dpe-eval ppl -m DIR --corpus pg19 -l 4096 --stride 1024 --method rope -o sliding.h5",
     "ppl",
     {{&method_argp, 0, NULL, 0}, {&book_argp, 0, NULL, 0}}},
    {"ruler",
     "Compare position methods on the 13 tasks of RULER, generated from your texts or read from "
     "official data.\v"
     "Generated samples need --corpus for their essays, qa_1 needs --squad and qa_2 --hotpotqa; "
     "choose others by --tasks.\n\n"
     "Example:\n"
     "  dpe-eval ruler -m DIR --corpus pg19 -l 131072 --squad dev-v2.0.json --hotpotqa "
     "hotpot_dev_distractor_v1.json --method rope --table detect.h5 -o ruler.h5\n"
     "  dpe-eval ruler -m DIR --data ruler-131072 -l 131072 --tasks NIAH,vt --method rope -o "
     "ruler.h5",
     "ruler",
     {{&method_argp, 0, NULL, 0},
      {&eval_chat_argp, 0, NULL, 0},
      {&eval_benchmark_argp, 0, NULL, 0},
      {&eval_ruler_argp, 0, NULL, 0}}},
    {"infinitebench",
     "Compare position methods on 8 tasks of InfiniteBench, read from its official files. Prompts "
     "that are too long keep their first and last half.\v"
     "Example:\n"
     "  dpe-eval infinitebench -m DIR --data InfiniteBench -l 131072 --method rope --table "
     "detect.h5 -o infinitebench.h5",
     "infinitebench",
     {{&method_argp, 0, NULL, 0},
      {&eval_chat_argp, 0, NULL, 0},
      {&eval_benchmark_argp, 0, NULL, 0},
      {&eval_infinitebench_argp, 0, NULL, 0}}},
    {"compare",
     "Compare position methods on the same samples of one or more suites.\v"
     "Example:\n"
     "  dpe-eval compare -m DIR --corpus pg19 --suite niah,ppl -l 1024,2048,4096 --method rope "
     "--method yarn --method self-extend --table detect.h5 -o compare.h5",
     NULL,
     {{&method_argp, 0, NULL, 0},
      {&suite_argp, 0, NULL, 0},
      {&needle_argp, 0, NULL, 0},
      {&depth_argp, 0, NULL, 0},
      {&book_argp, 0, NULL, 0},
      {&eval_benchmark_argp, 0, NULL, 0},
      {&eval_ruler_argp, 0, NULL, 0},
      {&eval_infinitebench_argp, 0, NULL, 0}}},
    {"ablate",
     "Vary what a detection found, one thing at a time, beside the model as it is (rope) and every "
     "group at half the trained length (base).\v"
     "rank: every group at its n-th best length, all n. top-k, last-k: only the k pairs of each "
     "head that contribute most or least are moved, k in eighths of a head's pairs. window: the "
     "near window, L0/32 to L0/2. scaled-length: all groups at one length, L0/4, L0/2 and L0; with "
     "a profile each with every k. The length is that of the detection unless --length says "
     "otherwise, the suite is niah unless --suite does.\n\n"
     "Example:\n"
     "  dpe-eval ablate -m DIR --corpus pg19 --table detect.h5 --what rank -o rank.h5\n"
     "  dpe-eval ablate -m DIR --corpus pg19 --table detect.h5 --norms norms.h5 --what top-k -o "
     "top.h5",
     NULL,
     {{&ablate_argp, 0, NULL, 0},
      {&suite_argp, 0, NULL, 0},
      {&needle_argp, 0, NULL, 0},
      {&book_argp, 0, NULL, 0},
      {&eval_benchmark_argp, 0, NULL, 0},
      {&eval_ruler_argp, 0, NULL, 0},
      {&eval_infinitebench_argp, 0, NULL, 0}}},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void require(struct argp_state *state, const struct eval_arguments *args)
{
    bool ablate = args->what != NULL;
    bool corpus = false;
    for (int i = 0; i < args->n_suites; i++) {
        corpus = corpus || dpe_suite_needs_corpus(args->suites[i]);
    }
    const char *missing = args->job.model == NULL              ? "--model DIR"
                          : args->n_suites == 0                ? "--suite NAME"
                          : corpus && args->job.corpus == NULL ? "--corpus PATH"
                          : !ablate && args->n_lengths == 0    ? "--length L"
                          : ablate && args->n_methods == 0     ? "--table FILE"
                          : args->n_methods == 0               ? "--method NAME (or --table FILE)"
                          : args->job.output == NULL           ? "-o OUT.h5"
                                                               : NULL;
    if (missing != NULL) {
        argp_error(state, "%s is missing", missing);
    }
}

static bool has_suite(const struct eval_arguments *args, const char *name)
{
    for (int i = 0; i < args->n_suites; i++) {
        if (strcmp(args->suites[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Options that would be ignored are mistakes. */
static void refuse_idle(struct argp_state *state, const struct eval_arguments *args)
{
    static const char *const of_grid[] = {"keys=", "values=", "queries=", "depth="};
    bool grid = has_suite(args, "niah_grid");
    for (int i = 0; i < 4 && grid && args->niah != NULL && args->n_suites == 1; i++) {
        if (strstr(args->niah, of_grid[i]) != NULL) {
            argp_error(state, "--niah: a grid has one needle at the depths of --depths, found '%s'",
                       args->niah);
        }
    }
    if (args->n_depths > 0 && !grid) {
        argp_error(state, "--depths goes with --grid (or --suite niah_grid)");
    }
    if (args->niah != NULL && !grid && !has_suite(args, "niah")) {
        argp_error(state, "--niah goes with the suite niah");
    }
    if (args->stride > 0 && !has_suite(args, "ppl")) {
        argp_error(state, "--stride goes with the suite ppl");
    }
    if (args->max_tokens > 0 && args->stride == 0) {
        argp_error(state, "--max-tokens goes with --stride");
    }
    const char *idle =
        eval_benchmark_idle(args, has_suite(args, "ruler"), has_suite(args, "infinitebench"));
    if (idle != NULL) {
        argp_error(state, "%s", idle);
    }
}

/* What a command line comes to once all of it was read. */
static void complete(struct argp_state *state, struct eval_arguments *args,
                     const struct command *command)
{
    bool ablate = strcmp(command->name, "ablate") == 0;
    if (ablate && args->what == NULL) {
        argp_error(state, "--what rank, top-k, last-k, window or scaled-length is missing");
    }
    if (ablate && args->n_methods > 1) {
        argp_error(state, "--table is given twice; an ablation varies one detection");
    }
    if (command->suite != NULL) {
        args->suites[args->n_suites++] = args->grid ? "niah_grid" : command->suite;
    } else if (ablate && args->n_suites == 0) {
        args->suites[args->n_suites++] = "niah";
    }
    refuse_idle(state, args);
    if (args->n_depths == 0) {
        for (int i = 0; i <= 10; i++) {
            args->depths[args->n_depths++] = i / 10.0;
        }
    }
    require(state, args);
}

/* What every command's own parser is: it hands its input to the pieces. */
struct parse {
    const struct command *command;
    struct eval_arguments *args;
    int n_pieces;
};

static error_t parse_command(int key, char *arg, struct argp_state *state)
{
    struct parse *parse = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        for (int i = 0; i < parse->n_pieces; i++) {
            state->child_inputs[i] = parse->args;
        }
        state->child_inputs[parse->n_pieces] = &parse->args->job;
        state->child_inputs[parse->n_pieces + 1] = &parse->args->job;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s' (the model is --model DIR)", arg);
        return 0;
    case ARGP_KEY_END:
        complete(state, parse->args, parse->command);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void run_command(const struct command *command, int argc, char **argv,
                        struct eval_arguments *args)
{
    struct parse parse = {.command = command, .args = args};
    struct argp_child children[MAX_PIECES + 3] = {{0}};
    while (parse.n_pieces < MAX_PIECES && command->pieces[parse.n_pieces].argp != NULL) {
        children[parse.n_pieces] = command->pieces[parse.n_pieces];
        parse.n_pieces++;
    }
    children[parse.n_pieces].argp = &dpe_job_argp;
    children[parse.n_pieces + 1].argp = &dpe_job_rows_argp;
    const struct argp argp = {.parser = parse_command, .doc = command->doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
}

/* -------------------------------------------------------------------------------------- dpe-eval
 */

struct top {
    const struct command *command;
    int at; /* of the command in argv */
};

static error_t parse_top(int key, char *arg, struct argp_state *state)
{
    struct top *top = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        for (int i = 0; i < N_COMMANDS; i++) {
            if (strcmp(commands[i].name, arg) == 0) {
                *top = (struct top){&commands[i], state->next - 1};
                state->next = state->argc;
                return 0;
            }
        }
        argp_error(
            state,
            "'%s' is no command; there are niah, ppl, ruler, infinitebench, compare, ablate, score "
            "and data",
            arg);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a command is missing: niah, ppl, ruler, infinitebench, compare, ablate, "
                          "score or data");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static char *list_suites(int key, const char *text, void *input)
{
    (void)input;
    char list[1024] = "Suites of compare and ablate:";
    for (size_t i = 0; key == ARGP_KEY_HELP_POST_DOC && dpe_suite_name(i) != NULL; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "\n  %-14s %s", dpe_suite_name(i), dpe_suite_about(i));
    }
    /* argp frees what is not `text` itself. */
    union {
        const char *from;
        char *to;
    } same = {.from = text};
    return key == ARGP_KEY_HELP_POST_DOC ? strdup(list) : same.to;
}

void eval_parse(int argc, char **argv, struct eval_arguments *args)
{
    static const struct argp argp = {
        .parser = parse_top,
        .args_doc = "COMMAND [OPTION...]",
        .doc = "Position methods on the same samples, side by side. Commands:\n\n"
               "  niah           needles in a haystack, or one needle by depth and length\n"
               "  ppl            perplexity of books, their beginnings or a sliding window\n"
               "  ruler          13 tasks of finding, following, counting and answering\n"
               "  infinitebench  8 tasks over 100K tokens\n"
               "  compare        any suites, one result\n"
               "  ablate         a detection, varied one thing at a time\n"
               "  score          predictions made elsewhere, by the rules of their benchmark\n"
               "  data           write the samples of ruler as JSON lines\n\n"
               "dpe-eval COMMAND --help lists its options. A run that was stopped goes on with the "
               "same command; methods, lengths and samples that are added later run alone.\v",
        .help_filter = list_suites,
    };
    struct top top = {0};
    /* Options before the command are those of dpe-eval itself. */
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &top);
    /* Usage and errors name the command; argv itself is kept for the record. */
    int rest = argc - top.at;
    char name[64];
    char **own = dpe_alloc((size_t)rest + 1, sizeof *own);
    if (own == NULL) {
        exit(DPE_NO_MEMORY);
    }
    memcpy(own, argv + top.at, ((size_t)rest + 1) * sizeof *own);
    snprintf(name, sizeof name, "dpe-eval %s", top.command->name);
    own[0] = name;
    run_command(top.command, rest, own, args);
    free(own);
}
