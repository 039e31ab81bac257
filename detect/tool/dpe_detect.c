/* dpe-detect: a model folder goes in, a table of effective lengths comes out. The options of a
 * sweep, which dpe-calibrate has too; a table of dpe-eval tune among --against stands for the
 * settings that it chose. */
#include "detect/tool/detection.h"

#include <stdlib.h>
#include <string.h>

#include "detect/tool/detect_tool.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

enum sweep_key {
    KEY_TASK = DPE_KEY_DETECT,
    KEY_AGAINST,
    KEY_HAYSTACK,
    KEY_RACE_LEVEL,
    KEY_RACE_INDIFFERENCE,
};

static const struct dpe_option sweep_options[] = {
    {NULL, 0, NULL, 0, "Task:", 2},
    {"task", KEY_TASK, "TASK", DPE_BASIC,
     "auto (default where --niah names no keys): needles in a haystack, as many keys and values as "
     "tell good plans apart, found by a pilot; user, niah: as --niah says; ppl: perplexity of "
     "books; "
     "both: niah decides",
     2},
    {"niah", 0, "K=V,...", 0,
     "keys=1, values=4, queries=1, digits=7, depth=, template=FILE, repeat=0, score=recall|steps, "
     "special=error|literal|parse",
     2, DPE_TEXT(struct dpe_detect_arguments, niah)},
    {"score", 0, "auto|recall|steps", 0,
     "What the search measures: recall of free answers, or steps: behind some of the values, is "
     "another one named? Near the ceiling steps need a tenth of the samples; auto (default): steps "
     "where the pilot finds that they tell more. What plans find of your own task is measured as "
     "--niah score= says",
     2, DPE_CHOICE(struct dpe_detect_arguments, score, NULL)},
    {NULL, 0, NULL, 0, "Grid:", 3},
    {"move", 0, "positions|frequencies", 0,
     "positions (default): DPE, which scales far positions and needs an adapter. frequencies: the "
     "length t of a group divides its frequencies by L/t at every distance, so the table is a "
     "factor for each pair and a temperature, which runtimes read as longrope (dpe-export --format "
     "longrope, gguf-rope)",
     3, DPE_CHOICE(struct dpe_detect_arguments, frequencies, NULL)},
    {"groups", 0, "C", 0, "Equal groups of frequency pairs (default 8)", 3,
     DPE_COUNT(struct dpe_detect_arguments, groups, 1, DPE_MOST_COUNT),
     DPE_GIVEN(struct dpe_detect_arguments, groups_given)},
    {"lengths", 0, "LIST", 0,
     "Detecting lengths a,b,... or auto (default): L/128 ... L by powers of two, L0/2 and L0, none "
     "shorter than the window (--move frequencies: than L0/4)",
     3, DPE_TEXT(struct dpe_detect_arguments, lengths)},
    {"window", 0, "W", 0, "Keys nearer than W tokens keep their distance (default min(1024, L0/8))",
     3, DPE_TOKENS(struct dpe_detect_arguments, window, 1, DPE_MOST_COUNT)},
    {"temperature", 0, "auto[:K=V,...]|off|K=V,...", 0,
     "Attention temperature of every plan but rope, in the table too. auto (default): searched; "
     "auto:K=V,...: searched around one that suits a shorter length; off: none, as the paper; "
     "log-n=N, log-n-power=G, log-n-decay=B, infoscale=N, logit-scale=A (dpe-run --method help)",
     3, DPE_TEXT(struct dpe_detect_arguments, temperature)},
    {NULL, 0, NULL, 0, "Choice of the joint plan:", 4},
    {"select", 0, "RULE", 0,
     "joint (default): search temperature, lengths, window and groups, each change only where a "
     "paired test shows that it helps; the sweep then has an eighth of the samples. paper: the "
     "best length of each group. guarded: L0/2 unless a paired test shows that another is better. "
     "sequential: group after group, the others at their chosen lengths. ready: no sweep; in "
     "minutes, what the model does alone and with five methods that are ready, what is possible, "
     "and what to do. brief: the same with the best of some 20 plans of DPE, a temperature, a near "
     "window and lengths, the first step of joint: what a search mostly finds, for a seventh of "
     "its "
     "tokens",
     4, DPE_CHOICE(struct dpe_detect_arguments, rule, dpe_detect_rule_names),
     DPE_GIVEN(struct dpe_detect_arguments, rule_given)},
    {"rounds", 0, "R", 0,
     "sequential, joint: go over everything R times, or until nothing changes (default 1)", 4,
     DPE_COUNT(struct dpe_detect_arguments, rounds, 1, 100)},
    {"against", KEY_AGAINST, "METHOD", 0,
     "Hold the result against this method too, on the validation's samples, and take it if it is "
     "shown to be better and a table can hold it; may be repeated. A table of dpe-eval tune stands "
     "for the settings that it chose (joint: default yarn, self-extend, leaky-rerope and the plan "
     "of DPE that --select ready races; none: no method)",
     4},
    {"guard", 0, "SHARE", 0,
     "joint, needles: the table's plan may lose this share of perplexity to the best of the "
     "validated "
     "plans, on up to four texts of --length tokens (default 0.05; 0: no guard). A plan that loses "
     "more "
     "is kept only where it is shown to find more than all that do not, and the result says so",
     4, DPE_REAL(struct dpe_detect_arguments, guard, 0.0, 100.0),
     DPE_GIVEN(struct dpe_detect_arguments, guard_given)},
    {NULL, 0, NULL, 0, "Savings:", 5},
    {"batch", 0, "N", 0,
     "Samples decoded together; what their prompts share is read once. The answers stay the same. "
     "Default: 4, or as many as share a context; 1: one by one; --race: at most one round",
     5, DPE_COUNT(struct dpe_detect_arguments, batch, 1, 256)},
    {"haystack", KEY_HAYSTACK, "own|shared[=N]", 0,
     "shared: N samples in a row (default 4) share the first half of their context, which is read "
     "once for those that are decoded together. Such samples differ less from each other",
     5},
    {"keys-per-context", 0, "M", DPE_BASIC,
     "M keys in each context; each is a sample of its own, and M samples share one reading. For "
     "models that look values up by key",
     5, DPE_COUNT(struct dpe_detect_arguments, keys_per_context, 1, 256)},
    {"race", 0, NULL, DPE_BASIC,
     "Stop sampling a detecting length once a paired test shows that it can no longer be rank 1; "
     "tested after every round (4 samples, or as many as share a context)",
     5, DPE_SWITCH(struct dpe_detect_arguments, race)},
    {"race-level", KEY_RACE_LEVEL, "P", 0, "Level of that test, one-sided (default 0.05)", 5},
    {"race-indifference", KEY_RACE_INDIFFERENCE, "D", 0,
     "Drop a length also when it is not better by D (recall, or nats per token; default 0)", 5},
    {0},
};

static void parse_task(struct dpe_command_line *state, const char *text,
                       struct dpe_detect_arguments *args)
{
    bool both = strcmp(text, "both") == 0;
    args->task_given = true;
    args->auto_task = strcmp(text, "auto") == 0;
    args->use_niah =
        both || args->auto_task || strcmp(text, "niah") == 0 || strcmp(text, "user") == 0;
    args->use_ppl = both || strcmp(text, "ppl") == 0;
    if (!args->use_niah && !args->use_ppl) {
        dpe_line_error(state, "--task: expected auto, user, niah, ppl or both, found '%s'", text);
    }
}

static double parse_level(struct dpe_command_line *state, const char *text)
{
    double value = 0.0;
    if (!dpe_parse_real(text, 0.0, 0.5, &value) || !(value > 0.0 && value < 0.5)) {
        dpe_line_error(state, "--race-level: expected a number above 0 and below 0.5, found '%s'",
                       text);
    }
    return value;
}

static double parse_indifference(struct dpe_command_line *state, const char *text)
{
    double value = 0.0;
    if (!dpe_parse_real(text, 0.0, 100.0, &value) || !(value < 100.0)) {
        dpe_line_error(
            state, "--race-indifference: expected a number from 0 to below 100, found '%s'", text);
    }
    return value;
}

static int64_t parse_haystack(struct dpe_command_line *state, const char *text)
{
    if (strcmp(text, "own") == 0) {
        return 1;
    }
    if (strcmp(text, "shared") == 0) {
        return 4;
    }
    if (strncmp(text, "shared=", 7) != 0) {
        dpe_line_error(state, "--haystack: expected own, shared or shared=N up to 256, found '%s'",
                       text);
    }
    return dpe_parse_count(state, "--haystack shared", text + 7, 1, 256);
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

/* Settings of --niah that other options set too, or that the task does not have. */
static void check_niah(struct dpe_command_line *state, const struct dpe_detect_arguments *args)
{
    static const char *const keys[] = {"keys",   "values", "queries", "digits",   "depth", "asked",
                                       "shared", "spare",  "repeat",  "template", "score", NULL};
    const char *niah = args->niah != NULL ? args->niah : "";
    size_t n = 0;
    if (!args->use_niah && first_set(niah, keys) != NULL) {
        dpe_line_error(state, "--niah %s= needs --task niah or both", first_set(niah, keys));
    }
    if (args->shared > 0 && dpe_niah_find(niah, "shared", &n) != NULL) {
        dpe_line_error(state, "--haystack and --niah shared= cannot be combined; leave one out");
    }
    if (args->keys_per_context > 0 && dpe_niah_find(niah, "asked", &n) != NULL) {
        dpe_line_error(state,
                       "--keys-per-context and --niah asked= cannot be combined; leave one out");
    }
    const char *own = dpe_niah_find(niah, "keys", &n);
    const char *digits = own;
    int64_t own_keys = 0;
    if (own != NULL && dpe_scan_int(&digits, 0, INT64_MAX, &own_keys) &&
        own_keys < args->keys_per_context && args->keys_per_context > 1) {
        dpe_line_error(
            state, "--keys-per-context %lld needs at least as many keys, found --niah keys=%.*s",
            (long long)args->keys_per_context, (int)n, own);
    }
}

/* The first setting of --niah that says what is asked for; NULL: none does. */
static const char *asked_for(const struct dpe_detect_arguments *args)
{
    static const char *const keys[] = {"keys", "values", "queries", "asked", "depth", NULL};
    return args->niah != NULL ? first_set(args->niah, keys) : NULL;
}

/* A pilot is for a search, of samples that can show something, whose task is not named. */
static bool wants_pilot(const struct dpe_detect_arguments *args)
{
    enum { LEAST_SAMPLES = 8 };
    bool searches = args->rule == DPE_DETECT_JOINTLY && args->job.samples >= LEAST_SAMPLES;
    return (searches || !dpe_detect_sweeps(args->rule)) && args->keys_per_context == 0 &&
           args->shared == 0 && asked_for(args) == NULL;
}

/* What the pilot chooses must not be given. */
static void check_auto(struct dpe_command_line *state, const struct dpe_detect_arguments *args)
{
    if (args->auto_task && asked_for(args) != NULL) {
        dpe_line_error(
            state, "--task auto chooses keys and values; leave out --niah %s=", asked_for(args));
    }
    if (args->auto_task && args->keys_per_context > 0) {
        dpe_line_error(state,
                       "--task auto and --keys-per-context cannot be combined; leave one out");
    }
}

static void check_together(struct dpe_command_line *state, const struct dpe_detect_arguments *args)
{
    const enum dpe_detect_rule rule = args->rule;
    const bool joint = rule == DPE_DETECT_JOINTLY;
    if (args->guard_given && args->guard > 0.0 &&
        ((!joint && rule != DPE_DETECT_BRIEF) || args->use_ppl || !args->use_niah)) {
        dpe_line_error(
            state, "--guard watches over plans that needles choose: it needs --select joint (the "
                   "default) or brief, and a task of needles alone");
    }
    if (!dpe_detect_sweeps(rule) && (args->use_ppl || args->race)) {
        dpe_line_error(state,
                       "--select %s compares methods on needles, without a sweep; leave out %s",
                       dpe_detect_rule_names[rule],
                       args->race ? "--race" : "--task (dpe-eval ppl compares perplexities)");
    }
    if (args->score == DETECT_SCORE_STEPS &&
        (!args->use_niah || rule == DPE_DETECT_PAPER || !dpe_detect_sweeps(rule))) {
        dpe_line_error(state, "--score steps needs needles and a search: leave out --task ppl and "
                              "--select paper or ready (books and free text have no steps)");
    }
    check_niah(state, args);
    const struct {
        bool wrong;
        const char *why;
    } checks[] = {
        {args->frequencies && (args->window > 0 || args->scale_pairs != NULL),
         "--move frequencies has no near window and no key pairs: a frequency holds for every "
         "distance and head; leave out --window and --scale-pairs"},
        {args->frequencies && (rule == DPE_DETECT_GUARDED || rule == DPE_DETECT_SEQUENTIAL ||
                               rule == DPE_DETECT_BRIEF),
         "--move frequencies needs --select joint or paper: the other rules begin with every group "
         "at half the trained length, where frequencies find nothing"},
        {args->scale_pairs != NULL && rule == DPE_DETECT_BRIEF,
         "--select brief moves all pairs; leave out --scale-pairs, or give --select joint"},
        {args->scale_pairs == NULL && args->top_k > 0.0,
         "--top-k needs --scale-pairs NORMS.h5, which says which pairs those are"},
        {args->scale_pairs != NULL && args->top_k <= 0.0 && !joint,
         "--scale-pairs needs --top-k K; only --select joint searches the number of key pairs"},
        {args->race && args->use_niah && args->use_ppl,
         "--race needs one task: --task niah or ppl"},
        {args->race_settings && !args->race, "--race-level and --race-indifference need --race"},
        {(args->shared > 1 || args->keys_per_context > 1) && !args->use_niah,
         "--haystack shared and --keys-per-context need --task niah or both"},
        {args->job.chat_template != NULL && strcmp(args->job.chat_template, "none") != 0 &&
             !args->use_niah,
         "--chat-template needs --task niah or both"},
        {args->race && rule == DPE_DETECT_SEQUENTIAL,
         "--select sequential compares all lengths on all samples; leave out --race"},
        {args->rounds > 0 && rule != DPE_DETECT_SEQUENTIAL && !joint,
         "--rounds needs --select sequential or joint"},
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
    } else if (strcmp(method, "tuned") == 0) {
        args->against_tuned = true;
    } else if (args->n_against == DETECT_MOST_AGAINST) {
        dpe_line_error(state, "--against: expected at most %d methods", DETECT_MOST_AGAINST);
    } else {
        args->against[args->n_against++] = method;
    }
}

/* What the joint search is held against unless something else is asked for, and what is ready. */
static void default_against(struct dpe_detect_arguments *args)
{
    static const char *const usual[] = {"yarn", "self-extend", "leaky-rerope", NULL};
    static const char *const ready[] = {"yarn", "mrrope", "self-extend:logit-scale=1.2", "lampe",
                                        NULL};
    const char *const *names = !dpe_detect_sweeps(args->rule)     ? ready
                               : args->rule == DPE_DETECT_JOINTLY ? usual
                                                                  : NULL;
    if (names == NULL || args->n_against > 0 || args->no_against) {
        return;
    }
    args->usual = !args->frequencies;
    for (size_t i = 0; names[i] != NULL; i++) {
        args->against[args->n_against++] = names[i];
    }
}

static int parse_sweep_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_detect_arguments *args = state->input;
    switch (key) {
    case KEY_TASK:
        parse_task(state, arg, args);
        return 0;
    case KEY_AGAINST:
        add_against(state, arg, args);
        return 0;
    case KEY_HAYSTACK:
        args->shared = parse_haystack(state, arg);
        return 0;
    case KEY_RACE_LEVEL:
        args->race_level = parse_level(state, arg);
        args->race_settings = true;
        return 0;
    case KEY_RACE_INDIFFERENCE:
        args->race_indifference = parse_indifference(state, arg);
        args->race_settings = true;
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

void dpe_detect_settle(struct dpe_detect_arguments *args)
{
    if (!dpe_detect_sweeps(args->rule) && !args->job.samples_given) {
        args->job.samples =
            args->rule == DPE_DETECT_BRIEF ? DETECT_BRIEF_SAMPLES : DETECT_READY_SAMPLES;
    }
    if (!args->task_given) {
        args->auto_task = wants_pilot(args);
    }
    if (!args->against_tuned) {
        default_against(args);
    }
    if (args->job.chat_template == NULL) {
        args->job.chat_template = "auto";
    }
}

void dpe_detect_complete(struct dpe_command_line *state, struct dpe_detect_arguments *args)
{
    check_together(state, args);
    dpe_detect_settle(args);
    check_auto(state, args);
}

void dpe_detect_defaults(struct dpe_detect_arguments *args)
{
    *args = (struct dpe_detect_arguments){.job = {.samples = 100, .knobs = {.branches = "--batch"}},
                                          .lengths = "auto",
                                          .temperature = "auto",
                                          .rule = DPE_DETECT_JOINTLY,
                                          .groups = 8,
                                          .race_level = 0.05,
                                          .guard = 0.05,
                                          .use_niah = true};
}

const struct dpe_option_set dpe_detect_option_set = {.options = sweep_options,
                                                     .parser = parse_sweep_option};

/* ---------------------------------------------------------------------- tables of dpe-eval tune */

/* A method's name or spec never ends like this, except that of a DPE table. */
static bool is_file(const char *method)
{
    size_t n = strlen(method);
    return n > 3 && strcmp(method + n - 3, ".h5") == 0 && strncmp(method, "table:", 6) != 0;
}

static dpe_status take(struct dpe_detect_arguments *args, const char *setting,
                       struct dpe_error *err)
{
    if (args->n_against == DETECT_MOST_AGAINST) {
        return dpe_fail(err, DPE_USAGE, "expected at most %d methods with those of its tables",
                        DETECT_MOST_AGAINST);
    }
    char *copy = strdup(setting);
    DPE_TRY(DPE_MADE(copy, err, "out of memory for a method"));
    args->tuned[args->n_tuned++] = copy;
    args->against[args->n_against++] = copy;
    return DPE_OK;
}

/* The settings for this length; rope has none, and is validated anyway. */
static dpe_status take_all(struct dpe_detect_arguments *args, const struct dpe_tune_result *tune,
                           struct dpe_error *err)
{
    char there[256] = "";
    int before = args->n_against;
    for (int64_t i = 0; i < tune->n[0]; i++) {
        const struct dpe_tuned *one = &tune->tuned[i];
        if (one->length == args->job.length) {
            if (strcmp(one->chosen, "rope") != 0) {
                DPE_TRY(take(args, one->chosen, err));
            }
        } else if (i == 0 || one->length != one[-1].length) {
            dpe_append(there, sizeof there, "%s%lld", there[0] != '\0' ? ", " : "",
                       (long long)one->length);
        }
    }
    if (args->n_against == before) {
        return dpe_fail(err, DPE_USAGE,
                        "expected settings for --length %lld, found those for %s; run dpe-eval "
                        "tune at that length",
                        (long long)args->job.length, there[0] != '\0' ? there : "rope alone");
    }
    return DPE_OK;
}

static dpe_status read_file(struct dpe_detect_arguments *args, const char *path,
                            struct dpe_error *err)
{
    struct dpe_h5 *table = NULL;
    struct dpe_tune_result tune = {0};
    DPE_TRY(dpe_h5_open(path, &table, err));
    dpe_status status =
        !dpe_h5_has(table, "/tune/chosen")
            ? dpe_fail(err, DPE_BAD_DATA,
                       "expected a finished table of dpe-eval tune, found another")
            : dpe_datasets_get(&dpe_tune_kind, &tune, "/tune", "chosen length", table, err);
    if (status == DPE_OK) {
        status = take_all(args, &tune, err);
    }
    dpe_datasets_free(&dpe_tune_kind, &tune);
    dpe_h5_close(table);
    return status == DPE_OK ? DPE_OK : dpe_fail_prefix(err, "%s", path);
}

dpe_status dpe_detect_against_read(struct dpe_detect_arguments *args, struct dpe_error *err)
{
    const char *given[DETECT_MOST_AGAINST];
    int n = args->n_against;
    memcpy(given, args->against, sizeof given);
    args->n_against = 0;
    for (int i = 0; i < n; i++) {
        dpe_status status =
            is_file(given[i]) ? read_file(args, given[i], err) : take(args, given[i], err);
        if (status != DPE_OK) {
            return dpe_fail_prefix(err, "--against");
        }
    }
    return DPE_OK;
}

void dpe_detect_against_free(struct dpe_detect_arguments *args)
{
    for (int i = 0; i < args->n_tuned; i++) {
        free(args->tuned[i]);
    }
    args->n_tuned = 0;
}

/* ----------------------------------------------------------------------------------- dpe-detect */

enum { KEY_TOP_K = DPE_KEY_PROGRAM };

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to sweep:", 1},
    {"dry-run", 0, NULL, DPE_BASIC,
     "Print configurations, tokens, operations, memory and time, and run nothing", 1,
     DPE_SWITCH(struct dpe_detect_arguments, job.dry_run)},
    {"selection", 0, "K=V,...", 0,
     "A query of every plan of the sweep meets only the keys that the method select chooses with "
     "these keys (dpe-run --method help), so the table is one for them; use it as --method "
     "select:K=V,...,over=table:FILE",
     3, DPE_TEXT(struct dpe_detect_arguments, selection)},
    {"scale-pairs", 0, "NORMS.h5", 0,
     "Move only the key pairs of a profile by dpe-norms (default: all pairs, as the paper)", 3,
     DPE_TEXT(struct dpe_detect_arguments, scale_pairs)},
    {"top-k", KEY_TOP_K, "K", 0,
     "Key pairs of each head: a count, or a share such as 0.75 (default with --scale-pairs and "
     "--select joint: searched)",
     3},
    {0},
};

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_detect_arguments *args = state->input;
    switch (key) {
    case DPE_LINE_BEGIN:
        state->child_inputs[0] = args;
        for (int i = 1; i < 5; i++) {
            state->child_inputs[i] = &args->job;
        }
        return 0;
    case KEY_TOP_K:
        args->top_k = dpe_parse_top_k(state, "--top-k", arg, NULL);
        return 0;
    case DPE_LINE_END:
        if (args->against_tuned) {
            dpe_line_error(state,
                           "--against tuned is for dpe-calibrate; give the table of dpe-eval tune, "
                           "--against TUNED.h5");
        }
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
        .doc = "Find the effective length of every frequency group of a RoPE language model.\v"
               "Each group of frequency pairs in turn is given each detecting length, while all "
               "others stay at half the trained length. The lengths are ranked by what the model "
               "then finds in L tokens. The result goes to standard output and, with a record of "
               "how it was made, into OUT.h5.\n\n"
               "Every finished sample is saved at once: after a kill, a signal or a full disk, run "
               "the "
               "same command to continue. SIGUSR1 finishes the current sample first; SIGTERM "
               "and SIGINT do not.\n\n"
               "Exit status: 0 complete, 64 usage, 65 bad data, 66 missing input, 69 no such "
               "device, 70 non-finite logits or an internal error, 71 memory, 73 cannot create, 74 "
               "input or output, 75 stopped and resumable, 77 permission, 78 another run's table."
               "\n\nExample:\n"
               "  dpe-detect -m data/reference -l 1k --corpus data/sample --keys-per-context 4 "
               "--race -o detect.h5",
        .children = children,
    };
    struct dpe_detect_arguments args;
    dpe_tool_start(&argc, &argv);
    dpe_detect_defaults(&args);
    args.job.argc = argc;
    args.job.argv = argv;
    dpe_tool_parse(&options, argc, argv, 0, &args);
    return dpe_study_main(&dpe_detect_study, &args, &args.job);
}
