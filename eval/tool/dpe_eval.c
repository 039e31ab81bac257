/* dpe-eval: position methods on the same samples, side by side. Here: its commands, which pieces of
 * the command line each has, and main. */
#include <stdlib.h>
#include <string.h>

#include "eval/tool/comparison.h"
#include "eval/tool/eval_commands.h"

/* ------------------------------------------------------------------------------------- commands */

enum { MAX_PIECES = 10 };

struct command {
    const char *name, *about, *doc;
    const char *suite;                               /* NULL: --suite names it */
    const struct dpe_option_set *pieces[MAX_PIECES]; /* of input struct dpe_eval_arguments */
    const struct dpe_study *study;                   /* NULL: that of comparisons */
    int (*main)(int argc, char **argv);              /* in place of all but name and about */
};

static const struct command commands[] = {
    {"niah",
     "needles in a haystack, or one needle by depth and length",
     "Compare position methods on needles in a haystack. The score is the share of the values of "
     "a key that the answer holds.\v"
     "Example:\n"
     "  dpe-eval niah -m data/reference --corpus data/sample -l 512,1k --samples 20 --method rope "
     "--method self-extend -o niah.h5\n"
     "  dpe-eval niah --grid -m data/reference --corpus data/sample -l 256,512 --samples 10 "
     "--method rope -o grid.h5",
     "niah",
     {&dpe_eval_method_option_set, &dpe_eval_needle_option_set, &dpe_eval_grid_option_set,
      &dpe_eval_depth_option_set}},
    {"ppl",
     "perplexity of books, their beginnings or a sliding window",
     "Compare position methods by the perplexity of books, by token, by word and by position.\v"
     "Example:\n"
     "  dpe-eval ppl -m data/reference --corpus data/sample -l 1k --method rope --method yarn "
     "-o ppl.h5\n"
     "  dpe-eval ppl -m data/reference --corpus data/sample -l 256 --stride 128 --max-tokens 2k "
     "--method rope -o sliding.h5",
     "ppl",
     {&dpe_eval_method_option_set, &dpe_eval_book_option_set, &dpe_eval_special_option_set}},
    {"ruler",
     "13 tasks of finding, following, counting and answering",
     "Compare position methods on the 13 tasks of RULER, generated from your texts or read from "
     "official data.\v"
     "Generated samples need --corpus for their essays; qa_1 needs --squad, qa_2 needs --hotpotqa. "
     "Without --tasks, a task whose input is not given is left out, with a warning. "
     "Use --tasks to leave tasks out.\n\n"
     "Example:\n"
     "  dpe-eval ruler -m DIR --corpus pg19 -l 131072 --squad dev-v2.0.json --hotpotqa "
     "hotpot_dev_distractor_v1.json --method rope --table detect.h5 -o ruler.h5\n"
     "  dpe-eval ruler -m DIR --data ruler-131072 -l 131072 --tasks NIAH,vt --method rope -o "
     "ruler.h5",
     "ruler",
     {&dpe_eval_method_option_set, &dpe_eval_special_option_set, &dpe_eval_chat_option_set,
      &dpe_eval_benchmark_option_set, &dpe_eval_ruler_option_set}},
    {"ruler2",
     "12 tasks of copying, finding and solving among many",
     "Compare position methods on the 12 tasks of RULER v2, read from the files that "
     "NVIDIA-NeMo/Skills prepares. Its prompts have the length that it was given; --length is that "
     "and the tokens of an answer, up to 1024.\v"
     "Example:\n"
     "  dpe-eval ruler2 -m DIR --data ruler2/model_32768 -l 33792 --tasks mk_niah,qa_hard --method "
     "rope --table detect.h5 -o ruler2.h5",
     "ruler2",
     {&dpe_eval_method_option_set, &dpe_eval_chat_option_set, &dpe_eval_benchmark_option_set}},
    {"infinitebench",
     "8 tasks over 100K tokens",
     "Compare position methods on 8 tasks of InfiniteBench, read from its official files. Prompts "
     "that are too long keep their first and last half.\v"
     "Example:\n"
     "  dpe-eval infinitebench -m DIR --data InfiniteBench -l 131072 --method rope --table "
     "detect.h5 -o infinitebench.h5",
     "infinitebench",
     {&dpe_eval_method_option_set, &dpe_eval_chat_option_set, &dpe_eval_benchmark_option_set,
      &dpe_eval_infinitebench_option_set}},
    {"compare",
     "one or more suites in one table",
     "Compare position methods on the same samples of one or more suites.\v"
     "Example:\n"
     "  dpe-eval compare -m data/reference --corpus data/sample --suite niah,ppl -l 512,1k "
     "--method rope "
     "--method yarn --method self-extend --table detect.h5 -o compare.h5",
     NULL,
     {&dpe_eval_method_option_set, &dpe_eval_suite_option_set, &dpe_eval_needle_option_set,
      &dpe_eval_depth_option_set, &dpe_eval_book_option_set, &dpe_eval_special_option_set,
      &dpe_eval_benchmark_option_set, &dpe_eval_ruler_option_set,
      &dpe_eval_infinitebench_option_set}},
    {"check",
     "a table on another quantisation or fine-tune",
     "Hold a table against another model of the same shape, a quantisation or a fine-tune, with "
     "few "
     "samples: recall with the table and without it at its longest length, and what is possible.\v"
     "Without -o the result goes to check.h5; without --samples there are 20.\n\n"
     "Example:\n"
     "  dpe-eval check calibrated/table.h5 -m data/reference --corpus data/sample",
     "niah",
     {&dpe_eval_check_option_set, &dpe_eval_needle_option_set}},
    {"ablate",
     "the settings of a detection, varied one at a time",
     "Vary the settings of a detection one at a time, and compare them with the unchanged model "
     "(rope) and with every group at half the trained length (base).\v"
     "rank: every group at its n-th best length, for every n. top-k, last-k: only the k key pairs "
     "of each head that contribute most or least are moved; k goes up in eighths of a head's "
     "pairs. window: the near window, L0/32 to L0/2. scaled-length: all groups at one length, "
     "L0/4, "
     "L0/2 and L0; with --norms, each of them with every k. The default length is that of the "
     "detection, the default suite is niah.\n\n"
     "Example:\n"
     "  dpe-eval ablate -m data/reference --corpus data/sample --table paper.h5 --what rank -o "
     "rank.h5\n"
     "  dpe-eval ablate -m data/reference --corpus data/sample --table detect.h5 --norms norms.h5 "
     "--what top-k -o top.h5",
     NULL,
     {&dpe_eval_ablate_option_set, &dpe_eval_suite_option_set, &dpe_eval_needle_option_set,
      &dpe_eval_book_option_set, &dpe_eval_special_option_set, &dpe_eval_benchmark_option_set,
      &dpe_eval_ruler_option_set, &dpe_eval_infinitebench_option_set}},
    {"tune",
     "settings of each method, found with as many rows for each",
     "Find a setting for each method on needles in a haystack, with the same number of rows for "
     "each, and compare what was chosen on fresh samples.\v"
     "All settings of a method read the first samples, the better third of them twice as many, and "
     "so on to the last two, until the budget is spent. The one with the best mean is chosen, the "
     "defaults where they are within its standard error. Then the method at its defaults and the "
     "chosen setting run on --samples fresh "
     "samples.\n\n"
     "Example:\n"
     "  dpe-eval tune -m DIR --corpus pg19 -l 32768 --method yarn --method self-extend --method "
     "lampe:window=256/512,map=4096/6144 --temperature grid -o tune.h5 --dry-run",
     "niah",
     {&dpe_eval_tune_option_set, &dpe_eval_needle_option_set},
     &dpe_eval_tune_study},
    {"kld",
     "divergence of the next token from that of a base, by position",
     "Compare what a model expects next with what a base does, token by token and by position: "
     "another position method, type of cache or product, or file of the model.\v"
     "KL(base, method) is the Kullback-Leibler divergence of the two distributions of the next "
     "token, in nats: 0 where they agree. The first --length tokens of each text are read once by "
     "both.\n\n"
     "Example:\n"
     "  dpe-eval kld -m data/reference --corpus data/sample -l 1k --samples 4 --method yarn "
     "--table "
     "detect.h5 -o kld.h5\n"
     "  dpe-eval kld -m model-Q4_K_M.gguf --base-model model-BF16.gguf --corpus pg19 -l 4k "
     "--method "
     "rope -o quant.h5",
     NULL,
     {&dpe_eval_method_option_set, &dpe_eval_kld_option_set, &dpe_eval_special_option_set},
     &dpe_eval_kld_study},
    {"score", "score predictions of other programs by the benchmark's rules",
     .main = dpe_eval_score_main},
    {"data", "write the samples of ruler as JSON lines", .main = dpe_eval_data_main},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void require(struct dpe_command_line *state, const struct dpe_eval_arguments *args,
                    const struct command *command)
{
    const bool ablate = args->what != NULL;
    const bool kld = command->study == &dpe_eval_kld_study;
    const bool tune = command->study == &dpe_eval_tune_study;
    bool corpus = kld;
    for (int i = 0; i < args->n_suites; i++) {
        corpus = corpus || dpe_eval_kind_of(&args->suites[i])->needs_corpus;
    }
    const char *missing = args->job.model == NULL                           ? "--model DIR"
                          : args->n_suites == 0 && !kld                     ? "--suite NAME"
                          : corpus && args->job.corpus == NULL              ? "--corpus PATH"
                          : !ablate && !args->check && args->n_lengths == 0 ? "--length L"
                          : ablate && args->n_methods == 0                  ? "--table FILE"
                          : args->n_methods == 0
                              ? (tune ? "--method NAME" : "--method NAME (or --table FILE)")
                          : args->job.output == NULL && !args->job.dry_run ? "-o OUT.h5"
                                                                           : NULL;
    if (missing != NULL) {
        dpe_line_error(state, "%s is missing", missing);
    }
}

/* What a command line comes to once all of it was read. */
static void complete(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                     const struct command *command)
{
    const bool ablate = strcmp(command->name, "ablate") == 0;
    if (args->check && !args->is_table[args->n_methods - 1]) {
        dpe_line_error(state, "TABLE is missing");
    }
    if (args->check) {
        args->other_model = true;
        args->job.output = args->job.output != NULL ? args->job.output : "check.h5";
    }
    if (ablate && args->what == NULL) {
        dpe_line_error(state, "--what rank, top-k, last-k, window or scaled-length is missing");
    }
    if (ablate && args->n_methods > 1) {
        dpe_line_error(state, "--table is given twice; an ablation varies one detection");
    }
    if (command->suite != NULL) {
        dpe_eval_add_suites(state, args, args->grid ? "niah_grid" : command->suite);
    } else if (ablate && args->n_suites == 0) {
        dpe_eval_add_suites(state, args, "niah");
    }
    dpe_eval_check_suites(state, args);
    if (command->study == &dpe_eval_kld_study && (args->against != NULL || args->details)) {
        dpe_line_error(state, "%s: kld compares every method with --base",
                       args->details ? "--details" : "--against");
    }
    dpe_eval_default_depths(args);
    require(state, args, command);
    for (int i = 0; i < args->n_suites; i++) {
        args->inputs[i] = dpe_eval_overrides_of(args, i).data;
    }
    args->job.inputs = args->inputs;
    args->job.n_inputs = (size_t)args->n_suites;
}

static const struct dpe_option_set *const of_job[] = {&dpe_job_option_set, &dpe_job_rows_option_set,
                                                      &dpe_job_dry_run_option_set,
                                                      &dpe_job_engine_option_set};
enum { OF_JOB = sizeof of_job / sizeof of_job[0] };

/* What every command's own parser is: it hands its input to the pieces. */
struct parse {
    const struct command *command;
    struct dpe_eval_arguments *args;
    int n_pieces;
};

static int parse_command(int key, char *arg, struct dpe_command_line *state)
{
    struct parse *parse = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        for (int i = 0; i < parse->n_pieces; i++) {
            state->child_inputs[i] = parse->args;
        }
        for (int i = 0; i < OF_JOB; i++) {
            state->child_inputs[parse->n_pieces + i] = &parse->args->job;
        }
        return 0;
    case DPE_LINE_WORD:
        if (parse->args->check && !parse->args->is_table[parse->args->n_methods - 1]) {
            dpe_eval_add_method(state, parse->args, dpe_tool_table(arg), true);
            return 0;
        }
        dpe_line_error(state, "unexpected argument '%s' (the model is --model DIR)", arg);
        return 0;
    case DPE_LINE_END:
        complete(state, parse->args, parse->command);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static void parse_options(const struct command *command, int argc, char **argv,
                          struct dpe_eval_arguments *args)
{
    struct parse parse = {.command = command, .args = args};
    const struct dpe_option_set *children[MAX_PIECES + OF_JOB + 1] = {NULL};
    while (parse.n_pieces < MAX_PIECES && command->pieces[parse.n_pieces] != NULL) {
        children[parse.n_pieces] = command->pieces[parse.n_pieces];
        parse.n_pieces++;
    }
    memcpy(children + parse.n_pieces, of_job, sizeof of_job);
    args->check = strcmp(command->name, "check") == 0;
    if (args->check) {
        args->job.samples = 20;
        args->methods[args->n_methods++] = "rope"; /* before what the line adds */
    }
    args->job.dry_run_result = command->study == &dpe_eval_tune_study;
    const struct dpe_option_set options = {
        .parser = parse_command, .doc = command->doc, .children = children};
    dpe_tool_parse(&options, argc, argv, 0, &parse);
}

/* ------------------------------------------------------------------------------------- dpe-eval */

struct top {
    const struct command *command;
    int at; /* of the command in argv */
};

static int parse_top(int key, char *arg, struct dpe_command_line *state)
{
    struct top *top = state->input;
    char names[256] = "";
    char meant[96];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (key == DPE_LINE_WORD && strcmp(commands[i].name, arg) == 0) {
            *top = (struct top){&commands[i], state->next - 1};
            state->next = state->argc;
            return 0;
        }
        dpe_append(names, sizeof names, "%s%s", i > 0 ? ", " : "", commands[i].name);
    }
    if (key == DPE_LINE_WORD) {
        dpe_line_error(state, "unknown command '%s'; commands: %s%s", arg, names,
                       dpe_suggest(arg, names, meant));
    } else if (key == DPE_LINE_NO_WORD) {
        dpe_line_error(state, "a command is missing: %s", names);
    }
    return DPE_LINE_UNKNOWN;
}

static const char *list_suites(int key, const char *text, const void *input, char *room,
                               size_t size)
{
    (void)input;
    if (key != DPE_LINE_AFTER) {
        return text;
    }
    snprintf(room, size, "Suites of compare and ablate:");
    for (size_t i = 0; dpe_suite_kind(i) != NULL; i++) {
        dpe_append(room, size, "\n  %-14s %s", dpe_suite_kind(i)->name, dpe_suite_kind(i)->about);
    }
    return room;
}

/* Options before the command are those of dpe-eval itself. */
static struct top find_command(int argc, char **argv)
{
    char doc[2048] = "Compare position methods on the same samples. Commands:\n";
    struct top top = {0};
    const struct dpe_option_set options = {
        .parser = parse_top, .args_doc = "COMMAND [OPTION...]", .doc = doc, .about = list_suites};
    for (int i = 0; i < N_COMMANDS; i++) {
        dpe_append(doc, sizeof doc, "\n  %-14s %s", commands[i].name, commands[i].about);
    }
    dpe_append(doc, sizeof doc,
               "\n\ndpe-eval COMMAND --help lists the options of a command. If a run is stopped, "
               "run the same command to continue; if methods, lengths or samples are added, only "
               "those run.\v");
    dpe_tool_parse(&options, argc, argv, DPE_LINE_IN_ORDER, &top);
    return top;
}

/* Usage and errors name the command; argv itself is kept for the record. */
static void parse_line(const struct top *top, int argc, char **argv,
                       struct dpe_eval_arguments *args)
{
    const size_t rest = (size_t)(argc - top->at);
    char name[64];
    DPE_OWNED char **own = dpe_alloc(rest + 1, sizeof *own);
    if (own == NULL) {
        exit(DPE_NO_MEMORY);
    }
    memcpy(own, argv + top->at, (rest + 1) * sizeof *own);
    snprintf(name, sizeof name, "dpe-eval %s", top->command->name);
    own[0] = name;
    parse_options(top->command, (int)rest, own, args);
}

DPE_MAIN(dpe_eval)
{
    dpe_tool_start(argv);
    const struct top top = find_command(argc, argv);
    if (top.command->main != NULL) {
        return top.command->main(argc - top.at, argv + top.at);
    }
    struct dpe_eval_arguments args = {.job = {.samples = 100, .argc = argc, .argv = argv},
                                      .official = true};
    parse_line(&top, argc, argv, &args);
    int code =
        dpe_study_main(top.command->study != NULL ? top.command->study : &dpe_eval_comparison_study,
                       &args, &args.job);
    dpe_eval_suites_free(&args);
    return code;
}
