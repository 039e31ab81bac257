/* dpe-detect: a model folder goes in, a table with the plan for it comes out. Its options, which
 * dpe-calibrate has too. */
#include "detect/tool/detection.h"

#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"

enum sweep_key {
    KEY_AGAINST = DPE_KEY_DETECT,
    KEY_BUDGET,
};

enum { TASK_AUTO, TASK_USER, TASK_NIAH, TASK_PPL, TASK_BOTH };
static const char *const task_names[] = {"auto", "user", "niah", "ppl", "both", NULL};

static const struct dpe_option sweep_options[] = {
    {"budget", KEY_BUDGET, "TIME|TOKENS", DPE_BASIC,
     "What the search and its fresh samples may read: a time such as 20m or 2h, or tokens such as "
     "500ktok or 20Mtok (default: nine contexts of --length tokens, with the sweep 160, and "
     "fresh ones). A larger one reads the same first",
     1},
    {NULL, 0, NULL, 0, "Task:", 2},
    {"task", 0, "TASK", 0,
     "auto (default where --niah names no keys): the hardest needles in a haystack that the model "
     "as it is can do; user, niah: as --niah says; ppl: perplexity of books; both: niah decides",
     2, DPE_CHOICE(struct dpe_detect_arguments, task, task_names),
     DPE_GIVEN(struct dpe_detect_arguments, task_given)},
    {"niah", 0, "K=V,...", 0,
     "keys=1, values=4, queries=1, digits=7, depth=, template=FILE, repeat=0, score=recall|steps, "
     "special=error|literal|parse",
     2, DPE_TEXT(struct dpe_detect_arguments, niah)},
    {NULL, 0, NULL, 0, "Candidates:", 3},
    {"select", 0, "RULE", DPE_BASIC,
     "search (default): the formula of dpe, plans near it and published methods are compared, the "
     "best ones on more contexts, then what is near the best, until the budget is spent. paper: "
     "the paper's sweep of groups and detecting lengths, of which the table holds rank 1. both: "
     "the sweep first, and what it ranks first is compared too",
     3, DPE_CHOICE(struct dpe_detect_arguments, rule, dpe_detect_rule_names)},
    {"against", KEY_AGAINST, "METHOD", 0,
     "Compare this method too; may be repeated. none: plans of DPE alone", 3},
    {"temperature", 0, "auto|off|K=V,...", 0,
     "Attention temperature of plans of DPE. auto (default): searched, and none in the sweep; off: "
     "none; log-n=N, log-n-power=G, log-n-decay=B, infoscale=N, logit-scale=A (dpe-run --method "
     "help)",
     3, DPE_TEXT(struct dpe_detect_arguments, temperature)},
    {"window", 0, "W", 0,
     "Keys nearer than W tokens keep their distance (default: searched; in the sweep min(1024, "
     "L0/8))",
     3, DPE_TOKENS(struct dpe_detect_arguments, window, 1, DPE_MOST_COUNT)},
    {NULL, 0, NULL, 0, "Sweep:", 4},
    {"groups", 0, "C", 0, "Equal groups of frequency pairs (default 8)", 4,
     DPE_COUNT(struct dpe_detect_arguments, groups, 1, DPE_MOST_COUNT)},
    {"lengths", 0, "LIST", 0,
     "Detecting lengths a,b,... or auto (default): L/128 ... L by powers of two, L0/2 and L0, none "
     "shorter than the window",
     4, DPE_TEXT(struct dpe_detect_arguments, lengths)},
    {0},
};

struct dpe_detect_budget dpe_detect_parse_budget(struct dpe_command_line *state, const char *text)
{
    char *end = NULL;
    struct dpe_detect_budget budget = {0.0, 0.0};
    double value = strtod(text, &end);
    const double unit = strcmp(end, "tok") == 0    ? 1.0
                        : strcmp(end, "ktok") == 0 ? 1e3
                        : strcmp(end, "Mtok") == 0 ? 1e6
                        : strcmp(end, "Gtok") == 0 ? 1e9
                                                   : 0.0;
    if (unit > 0.0 && value > 0.0 && value < 1e12) {
        budget.tokens = value * unit;
    } else if (unit > 0.0 || !dpe_parse_seconds(text, &budget.seconds)) {
        dpe_line_error(state,
                       "--budget: expected a time such as 20m or 2h, or tokens such as 500ktok or "
                       "20Mtok, found '%s'",
                       text);
    }
    return budget;
}

/* The first of the keys (NULL ends them) that --niah sets; NULL: none. */
static const char *first_set(const char *niah, const char *const *keys)
{
    size_t n = 0;
    while (*keys != NULL && dpe_niah_find(niah, *keys, &n) == NULL) {
        keys++;
    }
    return *keys;
}

/* Settings of --niah that the task does not have. */
static void check_niah(struct dpe_command_line *state, const struct dpe_detect_arguments *args)
{
    static const char *const keys[] = {"keys",   "values", "queries", "digits",   "depth", "asked",
                                       "shared", "spare",  "repeat",  "template", "score", NULL};
    const char *niah = args->niah != NULL ? args->niah : "";
    if (!args->use_niah && first_set(niah, keys) != NULL) {
        dpe_line_error(state, "--niah %s= needs --task niah or both", first_set(niah, keys));
    }
}

/* The first setting of --niah that says what is asked for; NULL: none does. */
static const char *asked_for(const struct dpe_detect_arguments *args)
{
    static const char *const keys[] = {"keys",   "values", "queries", "asked",
                                       "shared", "depth",  NULL};
    return args->niah != NULL ? first_set(args->niah, keys) : NULL;
}

/* What the pilot chooses must not be given. */
static void check_auto(struct dpe_command_line *state, const struct dpe_detect_arguments *args)
{
    if (args->auto_task && asked_for(args) != NULL) {
        dpe_line_error(
            state, "--task auto chooses keys and values; leave out --niah %s=", asked_for(args));
    }
}

static void check_together(struct dpe_command_line *state, const struct dpe_detect_arguments *args,
                           const char *template)
{
    const bool searches = dpe_detect_searches(args->rule), sweeps = dpe_detect_sweeps(args->rule);
    check_niah(state, args);
    const struct {
        bool wrong;
        const char *why;
    } checks[] = {
        {!searches &&
             (args->n_against > 0 || args->no_against || dpe_detect_budgeted(&args->budget)),
         "--select paper compares no plans: leave out --against and --budget"},
        {template != NULL && strcmp(template, "none") != 0 && !args->use_niah,
         "--chat-template needs --task niah or both"},
        {args->use_niah && args->use_ppl && !sweeps,
         "--task both needs the sweep: --select paper or both"},
        {args->n_against > 0 && args->no_against,
         "--against none cannot be combined with a method; leave one out"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (checks[i].wrong) {
            dpe_line_error(state, "%s", checks[i].why);
        }
    }
}

static void add_against(struct dpe_command_line *state, const char *method,
                        struct dpe_detect_arguments *args)
{
    if (strcmp(method, "none") == 0) {
        args->no_against = true;
    } else if (args->n_against == DETECT_MOST_AGAINST) {
        dpe_line_error(state, "--against: expected at most %d methods", DETECT_MOST_AGAINST);
    } else {
        args->against[args->n_against++] = method;
    }
}

static int parse_sweep_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_detect_arguments *args = state->input;
    switch (key) {
    case KEY_AGAINST:
        add_against(state, arg, args);
        return 0;
    case KEY_BUDGET:
        args->budget = dpe_detect_parse_budget(state, arg);
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

void dpe_detect_settle(struct dpe_detect_arguments *args)
{
    if (!args->task_given) {
        args->task =
            dpe_detect_searches(args->rule) && asked_for(args) == NULL ? TASK_AUTO : TASK_NIAH;
    }
    args->auto_task = args->task == TASK_AUTO;
    args->use_niah = args->task != TASK_PPL;
    args->use_ppl = args->task == TASK_PPL || args->task == TASK_BOTH;
    args->job.chat_template = args->job.chat_template != NULL ? args->job.chat_template : "auto";
}

void dpe_detect_complete(struct dpe_command_line *state, struct dpe_detect_arguments *args)
{
    const char *template = args->job.chat_template;
    dpe_detect_settle(args);
    check_together(state, args, template);
    check_auto(state, args);
}

void dpe_detect_defaults(struct dpe_detect_arguments *args)
{
    *args = (struct dpe_detect_arguments){.job = {.samples = 100},
                                          .lengths = "auto",
                                          .temperature = "auto",
                                          .groups = 8,
                                          .guard = 0.05};
}

const struct dpe_option_set dpe_detect_option_set = {.options = sweep_options,
                                                     .parser = parse_sweep_option};

/* ----------------------------------------------------------------------------------- dpe-detect */

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to find a plan for:", 1},
    {"dry-run", 0, NULL, DPE_BASIC, "Print tokens, operations, memory and time, and run nothing", 1,
     DPE_SWITCH(struct dpe_detect_arguments, job.dry_run)},
    {"selection", 0, "K=V,...", 0,
     "A query of every plan of DPE meets only the keys that the method select chooses with "
     "these keys (dpe-run --method help), so the table is one for them; use it as --method "
     "select:K=V,...,over=table:FILE",
     3, DPE_TEXT(struct dpe_detect_arguments, selection)},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_detect_arguments *args = state->input;
    (void)arg;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = args;
        for (int i = 1; i < 5; i++) {
            state->child_inputs[i] = &args->job;
        }
        return 0;
    case DPE_LINE_END:
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
        .doc =
            "Find a plan under which a RoPE language model works at L tokens.\v"
            "The formula of dpe, plans near it and published methods read the same needles in a "
            "haystack of L tokens. The better ones read more. The answer, of fresh samples, goes "
            "to standard output and, with the plan and a record of how it was made, into "
            "OUT.h5.\n\n"
            "Every finished sample is saved at once: after a kill, a signal or a full disk, run "
            "the "
            "same command to continue. SIGUSR1 finishes the current sample first; SIGTERM "
            "and SIGINT do not.\n\n"
            "Exit status: 0 complete, 64 usage, 65 bad data, 66 missing input, 69 no such "
            "device, 70 non-finite logits or an internal error, 71 memory, 73 cannot create, 74 "
            "input or output, 75 stopped and resumable, 77 permission, 78 another run's table."
            "\n\nExample:\n"
            "  dpe-detect -m data/reference -l 1k --corpus data/sample -o first.h5",
        .children = children,
    };
    struct dpe_detect_arguments args;
    dpe_tool_start(argv);
    dpe_detect_defaults(&args);
    args.job.argc = argc;
    args.job.argv = argv;
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_study_main(&dpe_detect_study, &args, &args.job);
}
