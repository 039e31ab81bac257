/* The command line in pieces: options that several commands have. */
#include <stddef.h>
#include <stdlib.h>

#include "eval/compare/compare.h"
#include "eval/tool/comparison.h"

enum option_key {
    KEY_METHOD = DPE_KEY_PROGRAM,
    KEY_TABLE,
    KEY_DEPTHS,
    KEY_SUITE,
    KEY_WHAT,
    KEY_VALUES,
};

/* --------------------------------------------------------------------------------------- values */

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

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
    qsort(values, (size_t)n, sizeof *values, compare_numbers);
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

void dpe_eval_add_method(struct dpe_command_line *state, struct dpe_eval_arguments *args,
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

/* --------------------------------------------------------------------------------------- pieces */

/* The parser of every piece: it gets only the keys of the piece's own table. */
static int parse_piece(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_eval_arguments *args = state->input;
    switch (key) {
    case 'l':
        parse_lengths(state, arg, args);
        return 0;
    case KEY_METHOD:
    case KEY_TABLE:
        dpe_eval_add_method(state, args, key == KEY_TABLE ? dpe_tool_table(arg) : arg,
                            key == KEY_TABLE);
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
    default:
        return DPE_LINE_UNKNOWN;
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

#define PIECE(name)                                                                                \
    const struct dpe_option_set dpe_eval_##name##_option_set = {.options = name##_table,           \
                                                                .parser = parse_piece}
PIECE(method);
PIECE(suite);
PIECE(needle);
PIECE(grid);
PIECE(depth);
PIECE(book);
PIECE(special);
PIECE(ablate);
PIECE(chat);
PIECE(benchmark);
PIECE(ruler);
PIECE(infinitebench);
PIECE(tune);
PIECE(check);
PIECE(kld);
