/* The command line of benchmarks: RULER, InfiniteBench. */
#include "eval/tool/eval_tool.h"

enum option_key {
    KEY_CHAT_TEMPLATE = DPE_KEY_BENCHMARK,
    KEY_TASKS,
    KEY_DATA,
    KEY_TEMPLATE,
    KEY_SQUAD,
    KEY_HOTPOTQA,
    KEY_SCORER,
    KEY_SKIP_BAD,
    KEY_PREDICTIONS,
};

static error_t parse_benchmark_piece(int key, char *arg, struct argp_state *state)
{
    struct eval_arguments *args = state->input;
    switch (key) {
    case KEY_CHAT_TEMPLATE:
        args->general.chat_template = arg;
        return 0;
    case KEY_TASKS:
        args->general.tasks = arg;
        return 0;
    case KEY_DATA:
        args->general.data = arg;
        return 0;
    case KEY_TEMPLATE:
        args->general.template_file = arg;
        return 0;
    case KEY_SQUAD:
        args->general.squad = arg;
        return 0;
    case KEY_HOTPOTQA:
        args->general.hotpotqa = arg;
        return 0;
    case KEY_SCORER:
        args->general.scorer = arg;
        return 0;
    case KEY_PREDICTIONS:
        args->predictions = arg;
        return 0;
    case KEY_SKIP_BAD:
        args->skip_bad = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option chat_table[] = {
    {"chat-template", KEY_CHAT_TEMPLATE, "FILE", 0, "Wrap prompts in a chat template", 2},
    {0},
};
static const struct argp_option benchmark_table[] = {
    {"tasks", KEY_TASKS, "NAME[,NAME...]", 0, "Only these tasks, or categories (default: all)", 2},
    {"data", KEY_DATA, "DIR", 0,
     "Official samples, TASK.jsonl or TASK/validation.jsonl (ruler: instead of generated ones)", 2},
    {"template", KEY_TEMPLATE, "FILE", 0, "Words of the prompts (default: eval/templates)", 2},
    {"predictions", KEY_PREDICTIONS, "DIR", 0,
     "Also write every answer to DIR/METHOD-LENGTH/TASK.jsonl, which dpe-eval score and official "
     "scripts read",
     2},
    {"skip-bad", KEY_SKIP_BAD, NULL, 0, "Leave out and count lines of data that are no samples", 2},
    {0},
};
static const struct argp_option ruler_table[] = {
    {"squad", KEY_SQUAD, "FILE", 0, "qa_1, generated: questions in the format of SQuAD", 2},
    {"hotpotqa", KEY_HOTPOTQA, "FILE", 0, "qa_2, generated: questions in that of HotpotQA", 2},
    {0},
};
static const struct argp_option infinitebench_table[] = {
    {"scorer", KEY_SCORER, "NAME", 0,
     "infinitebench: official (default: the script of June 2024, 88b3daa), official-2024-08 "
     "(En.Dia as "
     "since 214808d) or string, looser",
     2},
    {0},
};
const struct argp dpe_eval_chat_argp = {.options = chat_table, .parser = parse_benchmark_piece};
const struct argp dpe_eval_benchmark_argp = {.options = benchmark_table,
                                             .parser = parse_benchmark_piece};
const struct argp dpe_eval_ruler_argp = {.options = ruler_table, .parser = parse_benchmark_piece};
const struct argp dpe_eval_infinitebench_argp = {.options = infinitebench_table,
                                                 .parser = parse_benchmark_piece};
