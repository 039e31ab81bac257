/* dpe-eval: position methods on the same samples, side by side. Here: the pieces of its command
 * line, which of them each command has, and main. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "eval/compare/compare.h"
#include "eval/tool/comparison.h"
#include "eval/tool/eval_commands.h"

enum option_key {
    KEY_METHOD = DPE_KEY_PROGRAM,
    KEY_TABLE,
    KEY_DEPTHS,
    KEY_SUITE,
    KEY_WHAT,
    KEY_VALUES,
};

/* --------------------------------------------------------------------------------------- values */

/* Numbers separated by commas; sorted, each once. */
static int parse_list(struct dpe_command_line *state, const char *option, const char *text,
                      double high, double *values, int size)
{
    int n = 0;
    const char *at = text;
    for (bool more = true; more; at++) {
        double value = 0.0;
        if (!dpe_scan_real(&at, &value) || (*at != ',' && *at != '\0') ||
            !(value >= 0.0 && value <= high)) {
            dpe_line_error(state,
                           "%s: expected numbers from 0 to %g, separated by commas, found '%s'",
                           option, high, text);
        }
        if (n == size) {
            dpe_line_error(state, "%s: more than %d numbers", option, size);
        }
        values[n++] = value + 0.0; /* no -0, which would name another task */
        more = *at == ',';
    }
    dpe_sort(values, (size_t)n);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || values[i] != values[kept - 1]) {
            values[kept++] = values[i];
        }
    }
    return kept;
}

static void parse_lengths(struct dpe_command_line *state, const char *text,
                          struct dpe_eval_arguments *args)
{
    struct dpe_error err = {0};
    args->n_lengths =
        dpe_parse_lengths(text, 16, INT64_C(1000000000), "", args->lengths, EVAL_MAX_LENGTHS, &err);
    if (args->n_lengths == 0) {
        dpe_line_error(state, "--length: %s", err.text);
    }
}

/* Depths carry names of tasks: four decimals. */
static void parse_depths(struct dpe_command_line *state, const char *text,
                         struct dpe_eval_arguments *args)
{
    args->n_depths = parse_list(state, "--depths", text, 1.0, args->depths, EVAL_MAX_DEPTHS);
    for (int i = 0; i < args->n_depths; i++) {
        double rounded = (double)(int64_t)(args->depths[i] * 1e4 + 0.5) / 1e4;
        if (rounded != args->depths[i]) {
            dpe_line_error(state, "--depths: at most four decimals, found '%s'", text);
        }
    }
}

static void add_method(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                       const char *spec, bool table)
{
    if (args->n_methods == EVAL_MAX_METHODS) {
        dpe_line_error(state, "more than %d methods", EVAL_MAX_METHODS);
    }
    args->methods[args->n_methods] = spec;
    args->is_table[args->n_methods++] = table;
}

void dpe_eval_default_depths(struct dpe_eval_arguments *args)
{
    for (int i = 0; i <= 10 && args->n_depths == i; i++) {
        args->depths[args->n_depths++] = i / 10.0;
    }
}

#define LENGTHS                                                                                    \
    {                                                                                              \
        "length", 'l', "L[,L...]", 0, "Lengths in tokens, prompt and answer together", 1           \
    }
#define OTHER_MODEL                                                                                \
    {                                                                                              \
        "other-model", 0, NULL, 0,                                                                 \
            "Apply tables that were measured on other weights of the same shape", 1,               \
            DPE_SWITCH(struct dpe_eval_arguments, other_model)                                     \
    }
#define CHAT_TEMPLATE                                                                              \
    {                                                                                              \
        "chat-template", 0, "auto|none|FILE", 0,                                                   \
            "Chat template to wrap prompts in (auto, the default: the model's own, if it has "     \
            "one)",                                                                                \
            2, DPE_TEXT(struct dpe_eval_arguments, general.chat_template)                          \
    }
#define TEMPLATE_VARS                                                                              \
    {                                                                                              \
        "template-vars", 0, "NAME=VALUE[,...]", 0,                                                 \
            "Variables of the chat template, such as enable_thinking=false", 2,                    \
            DPE_TEXT(struct dpe_eval_arguments, job.template_vars)                                 \
    }
#define DETAILS                                                                                    \
    {                                                                                              \
        "details", 0, NULL, 0,                                                                     \
            "Print intervals and paired differences of every task (a single task always has "      \
            "them)",                                                                               \
            2, DPE_SWITCH(struct dpe_eval_arguments, details)                                      \
    }

static const struct dpe_option method_table[] = {
    {NULL, 0, NULL, 0, "What to compare:", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", DPE_BASIC,
     "Position method; repeat it for more (dpe-run --method help lists them)", 1},
    {"table", KEY_TABLE, "FILE", DPE_BASIC,
     "A DPE table (of dpe-detect or dpe-export, or a folder of dpe-calibrate) as a method; repeat "
     "it for more",
     1},
    {"against", 0, "NAME", 0,
     "Method that differences are relative to, as the result names it (default: the last --table, "
     "without one the first --method)",
     1, DPE_TEXT(struct dpe_eval_arguments, against)},
    OTHER_MODEL,
    LENGTHS,
    {"official", 0, "0|1", 0,
     "1 (default): with what the released code of a method adds to its paper; 0: without", 1,
     DPE_CHOICE(struct dpe_eval_arguments, official, NULL)},
    {NULL, 0, NULL, 0, "On what:", 2},
    DETAILS,
    {0},
};
static const struct dpe_option suite_table[] = {
    {"suite", KEY_SUITE, "NAME[:K=V,...]", DPE_BASIC,
     "Suite to run (see dpe-eval --help); repeat it for more, or NAME,NAME. K=V: tasks=T/T, "
     "samples, template, data and other options below, for this suite alone",
     2},
    {0},
};
static const struct dpe_option needle_table[] = {
    {"niah", 0, "K=V,...", DPE_BASIC, "Parameters of the needle task, as in dpe-detect", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.niah)},
    CHAT_TEMPLATE,
    TEMPLATE_VARS,
    {0},
};
static const struct dpe_option grid_table[] = {
    {"grid", 0, NULL, DPE_BASIC,
     "One needle by depth and length instead of the needle task (--samples is for each cell: "
     "begin with 10)",
     2, DPE_SWITCH(struct dpe_eval_arguments, grid)},
    {0},
};
static const struct dpe_option depth_table[] = {
    {"depths", KEY_DEPTHS, "D[,D...]", 0, "Depths of the grid, 0 ... 1 (default 0,0.1,...,1)", 2},
    {0},
};
static const struct dpe_option book_table[] = {
    {"stride", 0, "S", 0,
     "Slide a window of --length tokens over whole books, S tokens at a time, and score the "
     "tokens that are new (default: the first --length tokens of each book)",
     2, DPE_TOKENS(struct dpe_eval_arguments, general.stride, 1, DPE_MOST_COUNT)},
    {"max-tokens", 0, "N", 0, "With --stride: at most N tokens of a book", 2,
     DPE_TOKENS(struct dpe_eval_arguments, general.max_tokens, 2, DPE_MOST_COUNT)},
    {0},
};
static const struct dpe_option special_table[] = {
    {"special-in-text", 0, "error|literal|parse", 0,
     "Spelling of a special token in the text (default: error)", 2,
     DPE_CHOICE(struct dpe_eval_arguments, special, NULL),
     DPE_GIVEN(struct dpe_eval_arguments, special_given)},
    {0},
};
static const struct dpe_option ablate_table[] = {
    {NULL, 0, NULL, 0, "What to vary:", 1},
    {"table", KEY_TABLE, "FILE", DPE_BASIC, "Finished detection of dpe-detect", 1},
    {"what", KEY_WHAT, "WHAT", DPE_BASIC, "rank, top-k, last-k, window or scaled-length", 1},
    {"values", KEY_VALUES, "V[,V...]", 0, "Ranks, pairs of a head, or tokens (default: see below)",
     1},
    {"norms", 0, "FILE", DPE_BASIC,
     "Table of dpe-norms: the ranking of key pairs, for top-k, last-k and scaled-length", 1,
     DPE_TEXT(struct dpe_eval_arguments, norms)},
    {"alone", 0, NULL, 0, "Without rope and base beside the steps", 1,
     DPE_SWITCH(struct dpe_eval_arguments, alone)},
    {"temperature", 0, "off|K=V,...", 0,
     "Attention temperature of every step but rope: log-n=N, log-n-power=G, log-n-decay=B, "
     "infoscale=N, logit-scale=A (default: the detection's)",
     1, DPE_TEXT(struct dpe_eval_arguments, temperature)},
    OTHER_MODEL,
    LENGTHS,
    {NULL, 0, NULL, 0, "On what:", 2},
    DETAILS,
    {0},
};

static const struct dpe_option tune_table[] = {
    {NULL, 0, NULL, 0, "What to tune:", 1},
    {"method", KEY_METHOD, "NAME[:K=V/V,...]", DPE_BASIC,
     "Position method and the values of its keys to try, in all combinations (a list, as in "
     "dpe:scales=2/4, is one value); NAME alone: its default grid. Repeat it for more; the first "
     "is what the others are compared with",
     1},
    {"temperature", 0, "off|grid", DPE_BASIC,
     "grid: try every setting also with log-n=L0, logit-scale=1.25 and logit-scale=1.6, unless "
     "--method has temperature keys (default: off)",
     1, DPE_CHOICE(struct dpe_eval_arguments, tune_temperature, NULL)},
    LENGTHS,
    {"official", 0, "0|1", 0,
     "1 (default): with what the released code of a method adds to its paper; 0: without", 1,
     DPE_CHOICE(struct dpe_eval_arguments, official, NULL)},
    {"budget", 0, "ROWS", DPE_BASIC,
     "Rows (a sample under a setting) that each method may run at each length (default: 400, more "
     "where more than 4 samples share a context)",
     1, DPE_COUNT(struct dpe_eval_arguments, budget, 1, EVAL_MAX_SAMPLES)},
    {0},
};
static const struct dpe_option check_table[] = {
    {NULL, 0, NULL, 0, "What to compare:", 1},
    {"method", KEY_METHOD, "NAME[:K=V,...]", DPE_BASIC,
     "Another method to hold the table against; repeat it for more", 1},
    {0},
};
static const struct dpe_option kld_table[] = {
    {"base", 0, "NAME[:K=V,...]", DPE_BASIC,
     "Position method of the base (default rope: the unchanged model)", 1,
     DPE_TEXT(struct dpe_eval_arguments, base)},
    {"base-model", 0, "DIR", DPE_BASIC,
     "Model of the base: the same tokenizer, other weights, such as those that --model was "
     "quantised from (default: --model)",
     1, DPE_MODEL(struct dpe_eval_arguments, base_model)},
    {"base-dtype", 0, "same|f32|bf16", 0,
     "What the base is multiplied in on device cpu (default: same, as the methods)", 1,
     DPE_CHOICE(struct dpe_eval_arguments, base_dtype, NULL)},
    {"base-kv-cache-dtype", 0, "f32|bf16|int8", 0,
     "Type of the base's keys and values in the cache (default: f32)", 1,
     DPE_CHOICE(struct dpe_eval_arguments, base_kv, dpe_kv_type_names)},
    {"save-base", 0, "FILE", 0,
     "Keep the base's logits in FILE, in 16 bits, and read them from there where FILE has them: "
     "the "
     "base reads each text once for all methods, and for later commands",
     1, DPE_PATH(struct dpe_eval_arguments, save_base)},
    {0},
};
/* ----------------------------------------------------------------------------------- benchmarks */

static const struct dpe_option chat_table[] = {
    CHAT_TEMPLATE,
    TEMPLATE_VARS,
    {0},
};
static const struct dpe_option benchmark_table[] = {
    {"tasks", 0, "NAME[,NAME...]", DPE_BASIC, "Only these tasks, or categories (default: all)", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.tasks)},
    {"data", 0, "DIR", DPE_BASIC,
     "Official samples, TASK.jsonl or TASK/validation.jsonl (ruler: instead of generated ones)", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.data)},
    {"template", 0, "FILE", 0, "Words of the prompts (default: eval/templates)", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.template_file)},
    {"predictions", 0, "DIR", DPE_BASIC,
     "Also write every answer to DIR/METHOD-LENGTH/TASK.jsonl, which dpe-eval score and official "
     "scripts read",
     2, DPE_TEXT(struct dpe_eval_arguments, predictions)},
    {"skip-bad", 0, NULL, 0, "Leave out and count lines of data that are not samples", 2,
     DPE_SWITCH(struct dpe_eval_arguments, skip_bad)},
    {0},
};
static const struct dpe_option ruler_table[] = {
    {"squad", 0, "FILE", 0, "qa_1, generated: questions in the format of SQuAD", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.squad)},
    {"hotpotqa", 0, "FILE", 0, "qa_2, generated: questions in the format of HotpotQA", 2,
     DPE_TEXT(struct dpe_eval_arguments, general.hotpotqa)},
    {0},
};
static const struct dpe_option infinitebench_table[] = {
    {"scorer", 0, "NAME", 0,
     "infinitebench: official (default: the script of June 2024, 88b3daa), official-2024-08 "
     "(En.Dia as since 214808d) or string, looser",
     2, DPE_TEXT(struct dpe_eval_arguments, general.scorer)},
    {0},
};

/* ------------------------------------------------------------------------------------- commands */

enum { MAX_PIECES = 10 };

struct dpe_eval_command {
    const char *name, *about, *doc;
    const char *suite; /* NULL: --suite names it */
    const struct dpe_option *pieces[MAX_PIECES];
    const struct dpe_study *study;      /* NULL: that of comparisons */
    int (*main)(int argc, char **argv); /* in place of all but name and about */
};

static const struct dpe_eval_command commands[] = {
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
     {method_table, needle_table, grid_table, depth_table}},
    {"ppl",
     "perplexity of books, their beginnings or a sliding window",
     "Compare position methods by the perplexity of books, by token, by word and by position.\v"
     "Example:\n"
     "  dpe-eval ppl -m data/reference --corpus data/sample -l 1k --method rope --method yarn "
     "-o ppl.h5\n"
     "  dpe-eval ppl -m data/reference --corpus data/sample -l 256 --stride 128 --max-tokens 2k "
     "--method rope -o sliding.h5",
     "ppl",
     {method_table, book_table, special_table}},
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
     {method_table, special_table, chat_table, benchmark_table, ruler_table}},
    {"ruler2",
     "12 tasks of copying, finding and solving among many",
     "Compare position methods on the 12 tasks of RULER v2, read from the files that "
     "NVIDIA-NeMo/Skills prepares. Its prompts have the length that it was given; --length is that "
     "and the tokens of an answer, up to 1024.\v"
     "Example:\n"
     "  dpe-eval ruler2 -m DIR --data ruler2/model_32768 -l 33792 --tasks mk_niah,qa_hard --method "
     "rope --table detect.h5 -o ruler2.h5",
     "ruler2",
     {method_table, chat_table, benchmark_table}},
    {"infinitebench",
     "8 tasks over 100K tokens",
     "Compare position methods on 8 tasks of InfiniteBench, read from its official files. Prompts "
     "that are too long keep their first and last half.\v"
     "Example:\n"
     "  dpe-eval infinitebench -m DIR --data InfiniteBench -l 131072 --method rope --table "
     "detect.h5 -o infinitebench.h5",
     "infinitebench",
     {method_table, chat_table, benchmark_table, infinitebench_table}},
    {"compare",
     "one or more suites in one table",
     "Compare position methods on the same samples of one or more suites.\v"
     "Example:\n"
     "  dpe-eval compare -m data/reference --corpus data/sample --suite niah,ppl -l 512,1k "
     "--method rope "
     "--method yarn --method self-extend --table detect.h5 -o compare.h5",
     NULL,
     {method_table, suite_table, needle_table, depth_table, book_table, special_table,
      benchmark_table, ruler_table, infinitebench_table}},
    {"check",
     "a table on another quantisation or fine-tune",
     "Hold a table against another model of the same shape, a quantisation or a fine-tune, with "
     "few "
     "samples: recall with the table and without it at its longest length, and what is possible.\v"
     "Without -o the result goes to check.h5; without --samples there are 20.\n\n"
     "Example:\n"
     "  dpe-eval check calibrated/table.h5 -m data/reference --corpus data/sample",
     "niah",
     {check_table, needle_table}},
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
     {ablate_table, suite_table, needle_table, book_table, special_table, benchmark_table,
      ruler_table, infinitebench_table}},
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
     {tune_table, needle_table},
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
     {method_table, kld_table, special_table},
     &dpe_eval_kld_study},
    {"score", "score predictions of other programs by the benchmark's rules",
     .main = dpe_eval_score_main},
    {"data", "write the samples of ruler as JSON lines", .main = dpe_eval_data_main},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void require(struct dpe_command_line *state, const struct dpe_eval_arguments *args)
{
    const struct dpe_eval_command *command = args->command;
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
static void complete(struct dpe_command_line *state, struct dpe_eval_arguments *args)
{
    const struct dpe_eval_command *command = args->command;
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
    require(state, args);
    for (int i = 0; i < args->n_suites; i++) {
        args->inputs[i] = dpe_eval_overrides_of(args, i).data;
    }
    args->job.inputs = args->inputs;
    args->job.n_inputs = (size_t)args->n_suites;
}

static const struct dpe_option_set *const of_job[] = {&dpe_job_option_set, &dpe_job_rows_option_set,
                                                      &dpe_job_dry_run_option_set,
                                                      &dpe_job_engine_option_set, NULL};

static int parse_command(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_eval_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        for (int i = 0; of_job[i] != NULL; i++) {
            state->child_inputs[i] = &args->job;
        }
        return 0;
    case 'l':
        parse_lengths(state, arg, args);
        return 0;
    case KEY_METHOD:
    case KEY_TABLE:
        add_method(state, args, key == KEY_TABLE ? dpe_tool_table(arg) : arg, key == KEY_TABLE);
        return 0;
    case KEY_SUITE:
        dpe_eval_add_suites(state, args, arg);
        return 0;
    case KEY_DEPTHS:
        parse_depths(state, arg, args);
        return 0;
    case KEY_WHAT:
        if (dpe_ablation_find(arg) < 0) {
            dpe_line_error(
                state, "--what: expected rank, top-k, last-k, window or scaled-length, found '%s'",
                arg);
        }
        args->what = arg;
        return 0;
    case KEY_VALUES:
        args->n_values = parse_list(state, "--values", arg, 1e9, args->values, EVAL_MAX_METHODS);
        return 0;
    case DPE_LINE_WORD:
        if (args->check && !args->is_table[args->n_methods - 1]) {
            add_method(state, args, dpe_tool_table(arg), true);
            return 0;
        }
        dpe_line_error(state, "unexpected argument '%s' (the model is --model DIR)", arg);
        return 0;
    case DPE_LINE_END:
        complete(state, args);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

static void parse_options(const struct dpe_eval_command *command, int argc, char **argv,
                          struct dpe_eval_arguments *args)
{
    struct dpe_option options[DPE_LINE_MOST_OPTIONS] = {{0}};
    size_t n = 0;
    for (int p = 0; p < MAX_PIECES && command->pieces[p] != NULL; p++) {
        for (const struct dpe_option *at = command->pieces[p]; at->doc != NULL; at++) {
            options[n++] = *at;
        }
    }
    args->command = command;
    args->check = strcmp(command->name, "check") == 0;
    if (args->check) {
        args->job.samples = 20;
        args->methods[args->n_methods++] = "rope"; /* before what the line adds */
    }
    args->job.dry_run_result = command->study == &dpe_eval_tune_study;
    const struct dpe_option_set set = {
        .options = options, .parser = parse_command, .doc = command->doc, .children = of_job};
    dpe_tool_parse(&set, argc, argv, 0, args);
}

/* ------------------------------------------------------------------------------------- dpe-eval */

struct top {
    const struct dpe_eval_command *command;
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
    struct dpe_eval_arguments args = {
        .job = {.samples = 100, .argc = argc, .argv = argv}, .official = true, .base = "rope"};
    parse_line(&top, argc, argv, &args);
    int code =
        dpe_study_main(top.command->study != NULL ? top.command->study : &dpe_eval_comparison_study,
                       &args, &args.job);
    dpe_eval_suites_free(&args);
    return code;
}
