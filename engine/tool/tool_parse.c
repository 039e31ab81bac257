/* A command line against the option tables of a tool, read by getopt_long. */
#include "engine/tool/tool_internal.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_VALUE = 0x100 /* of long options: behind the letters */ };

/* The options of all sets as getopt_long takes them. `option` of an index is that of its long one.
 */
struct spelled {
    struct option longs[DPE_LINE_MOST_OPTIONS + 1];
    char letters[2 * DPE_LINE_MOST_OPTIONS + 3];
    const struct dpe_option *options[DPE_LINE_MOST_OPTIONS]; /* all, also those without a name */
    const struct dpe_line_set *sets[DPE_LINE_MOST_OPTIONS];
    int n, n_longs;
};

static bool is_letter(int key)
{
    return key > ' ' && key < 127 && key != '?'; /* getopt answers '?' to what it does not know */
}

static void spell_option(struct spelled *spelled, const struct dpe_option *option,
                         const struct dpe_line_set *set)
{
    int at = spelled->n;
    if (at == DPE_LINE_MOST_OPTIONS) {
        abort(); /* a constant is too small: any run of the tool shows it */
    }
    spelled->options[at] = option;
    spelled->sets[at] = set;
    spelled->n++;
    int takes = option->arg == NULL                   ? no_argument
                : (option->flags & DPE_OPTIONAL) != 0 ? optional_argument
                                                      : required_argument;
    if (option->name != NULL) {
        spelled->longs[spelled->n_longs++] =
            (struct option){option->name, takes, NULL, FIRST_VALUE + at};
    }
    if (is_letter(option->key)) {
        size_t n = strlen(spelled->letters);
        spelled->letters[n++] = (char)option->key;
        if (takes == required_argument) {
            spelled->letters[n++] = ':';
        }
        spelled->letters[n] = '\0';
    }
}

/* Errors are ours (':'); words come last, or end the options (`flags`). */
static void spell(struct spelled *spelled, const struct dpe_command_line *line, unsigned flags)
{
    *spelled = (struct spelled){0};
    strcpy(spelled->letters, (flags & DPE_LINE_IN_ORDER) != 0 ? "+:" : ":");
    for (int i = 0; i < line->n_sets; i++) {
        for (const struct dpe_option *at = line->sets[i].set->options; dpe_option_there(at); at++) {
            if (at->key != 0 || at->name != NULL) {
                spell_option(spelled, at, &line->sets[i]);
            }
        }
    }
}

/* What getopt_long returned as an index of `options`; -1: none. */
static int find_option(const struct spelled *spelled, int value)
{
    if (value >= FIRST_VALUE && value < FIRST_VALUE + spelled->n) {
        return value - FIRST_VALUE;
    }
    for (int i = 0; i < spelled->n; i++) {
        if (spelled->options[i]->key == value) {
            return i;
        }
    }
    return -1;
}

/* --------------------------------------------------------------------------------------- errors */

void dpe_line_error(const struct dpe_command_line *state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = dpe_format_list(format, args);
    va_end(args);
    dpe_tool_refuse_as(state->name, text != NULL ? text : format);
}

void dpe_line_failure(const struct dpe_command_line *state, int code, const char *why)
{
    dpe_tool_fail_as(state->name, why);
    exit(code);
}

static bool find_name(const struct spelled *spelled, const char *name)
{
    int i = 0;
    while (i < spelled->n_longs && strcmp(spelled->longs[i].name, name) != 0) {
        i++;
    }
    return i < spelled->n_longs;
}

/* Names that other programs give to options which the tools have under names of their own. */
static const struct {
    const char *theirs;  /* of llama.cpp, vLLM, SGLang, or the Hugging Face tools */
    const char *ours[3]; /* the first that the tool has is meant */
} foreign[] = {
    {"ctx-size", {"context", "length"}},
    {"max-model-len", {"length"}},
    {"context-length", {"length", "context"}},
    {"max-length", {"length"}},
    {"n-predict", {"max-new"}},
    {"predict", {"max-new"}},
    {"max-tokens", {"max-new"}},
    {"max-new-tokens", {"max-new"}},
    {"n-gpu-layers", {"device"}},
    {"gpu-layers", {"device"}},
    {"main-gpu", {"device"}},
    {"gpu-memory-utilization", {"max-memory"}},
    {"mem-fraction-static", {"max-memory"}},
    {"tensor-parallel-size", {"tensor-parallel"}},
    {"tp-size", {"tensor-parallel"}},
    {"rope-scaling", {"method", "against"}},
    {"rope-scale", {"method", "against"}},
    {"rope-freq-base", {"method", "against"}},
    {"rope-freq-scale", {"method", "against"}},
    {"yarn-orig-ctx", {"trained-length"}},
    {"yarn-ext-factor", {"method"}},
    {"yarn-attn-factor", {"method"}},
    {"grp-attn-n", {"method"}},
    {"grp-attn-w", {"method"}},
    {"hf-overrides", {"method"}},
    {"json-model-override-args", {"method"}},
    {"cache-type-k", {"kv-cache-dtype"}},
    {"cache-type-v", {"kv-cache-dtype"}},
    {"batch-size", {"chunk", "batch"}},
    {"ubatch-size", {"chunk"}},
    {"max-num-batched-tokens", {"chunk"}},
    {"chunked-prefill-size", {"chunk"}},
    {"max-num-seqs", {"slots", "batch"}},
    {"parallel", {"slots"}},
    {"temp", {"temperature"}},
    {"conversation", {"chat"}},
    {"interactive", {"chat"}},
    {"system-prompt", {"system"}},
    {"file", {"prompt-file"}},
    {"perplexity", {"nll"}},
    {"model-path", {"model"}},
    {"hf-repo", {"model"}},
    {"alias", {"name"}},
    {"served-model-name", {"name"}},
    {"api-key", {"api-key-file"}},
};

/* The option of the tool that other programs call by the `n` bytes of `name`; NULL: none. */
static const char *find_foreign(const struct spelled *spelled, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (strlen(foreign[i].theirs) != n || strncmp(foreign[i].theirs, name, n) != 0) {
            continue;
        }
        for (size_t k = 0; k < 3 && foreign[i].ours[k] != NULL; k++) {
            if (find_name(spelled, foreign[i].ours[k])) {
                return foreign[i].ours[k];
            }
        }
    }
    return NULL;
}

/* How many names begin with the first n bytes of `word`; 1 where one is the whole of it. */
static int count_meant(const struct spelled *spelled, const char *word, size_t n)
{
    int count = 0;
    for (int i = 0; i < spelled->n_longs; i++) {
        if (strncmp(spelled->longs[i].name, word, n) == 0) {
            if (spelled->longs[i].name[n] == '\0') {
                return 1;
            }
            count++;
        }
    }
    return count;
}

/* The nearest name: no table has the long option `word`. */
static void refuse_unknown(const struct spelled *spelled, const struct dpe_command_line *line,
                           const char *word)
{
    struct dpe_text names = {0};
    for (int i = 0; i < spelled->n; i++) {
        const struct dpe_option *option = spelled->options[i];
        if (option->name != NULL && (option->flags & DPE_HIDDEN) == 0) {
            dpe_text_put(&names, "%s ", option->name);
        }
    }
    size_t given = strcspn(word + 2, "=");
    const char *name = find_foreign(spelled, word + 2, given);
    const bool known = name != NULL;
    size_t n = known         ? strlen(name)
               : names.n > 0 ? dpe_nearest(word + 2, given, names.bytes, &name)
                             : 0;
    dpe_line_error(line, "unrecognized option '%.80s'%s%.*s%s", word,
                   known   ? "; here it is '--"
                   : n > 0 ? "; did you mean '--"
                           : "",
                   (int)n, n > 0 ? name : "",
                   known   ? "'"
                   : n > 0 ? "'?"
                           : "");
}

static void refuse_ambiguous(const struct spelled *spelled, const struct dpe_command_line *line,
                             const char *word)
{
    char list[1024] = "";
    size_t n = strcspn(word + 2, "=");
    for (int i = 0; i < spelled->n_longs; i++) {
        if (strncmp(spelled->longs[i].name, word + 2, n) == 0) {
            dpe_append(list, sizeof list, " '--%s'", spelled->longs[i].name);
        }
    }
    dpe_line_error(line, "option '%.80s' is ambiguous; possibilities:%s", word, list);
}

/* getopt_long has answered '?' or ':' to the word before argv[optind], or to a letter in it. */
static void refuse_option(const struct spelled *spelled, const struct dpe_command_line *line,
                          int answer)
{
    const char *word = line->argv[optind - 1];
    int found = find_option(spelled, optopt);
    if (answer == ':' && optopt >= FIRST_VALUE && found >= 0) {
        dpe_line_error(line, "option '--%s' requires an argument", spelled->options[found]->name);
    } else if (answer == ':') {
        dpe_line_error(line, "option requires an argument -- '%c'", optopt);
    } else if (optopt >= FIRST_VALUE && found >= 0) {
        dpe_line_error(line, "option '--%s' doesn't allow an argument",
                       spelled->options[found]->name);
    } else if (optopt != 0) {
        dpe_line_error(line, "invalid option -- '%c'", optopt);
    } else if (count_meant(spelled, word + 2, strcspn(word + 2, "=")) > 1) {
        refuse_ambiguous(spelled, line, word);
    }
    refuse_unknown(spelled, line, word);
}

/* --------------------------------------------------------------------------------------- values */

enum { MOST_CHOICES = 16, MOST_CHOICE_BYTES = 256 };

/* The index of `text` in the choices, or in the words of the option's argument. */
static int64_t read_choice(const struct dpe_command_line *line, const struct dpe_option *option,
                           const char *typed, const char *text)
{
    char words[MOST_CHOICE_BYTES];
    const char *choices[MOST_CHOICES + 1] = {NULL};
    if (option->value.choices != NULL) {
        return dpe_parse_choice(line, typed, text, option->value.choices);
    }
    snprintf(words, sizeof words, "%s", option->arg);
    int n = 0;
    for (char *word = strtok(words, "|"); word != NULL && n < MOST_CHOICES;
         word = strtok(NULL, "|")) {
        choices[n++] = word;
    }
    return dpe_parse_choice(line, typed, text, choices);
}

static double read_number(const struct dpe_command_line *line, const struct dpe_option *option,
                          const char *typed, const char *text)
{
    double value = 0.0;
    double low = option->value.low; /* of a time: 0 or 1 */
    bool seconds = option->value.type == DPE_VALUE_SECONDS;
    if (seconds && (!dpe_parse_seconds(text, &value) || value < low)) {
        dpe_line_error(line, "%s: expected a time%s such as 90, 30m or 2h, found '%s'", typed,
                       low > 0.0 ? " of at least a second" : "", text);
    } else if (!seconds && !dpe_parse_real(text, low, option->value.high, &value)) {
        dpe_line_error(line, "%s: expected a number from %g to %g, found '%s'", typed, low,
                       option->value.high, text);
    }
    return value;
}

static void put_whole(void *at, size_t size, int64_t value)
{
    if (size == sizeof(bool)) {
        *(bool *)at = value != 0;
    } else if (size == sizeof(int)) {
        *(int *)at = (int)value;
    } else {
        *(int64_t *)at = value;
    }
}

/* Read the argument of an option that has a place, into its place. */
static void put_value(const struct dpe_command_line *line, const struct dpe_option *option,
                      const char *text)
{
    void *at = (char *)line->input + option->value.at;
    const size_t size = option->value.size;
    const int64_t low = (int64_t)option->value.low;
    const int64_t high = (int64_t)option->value.high;
    char typed[80];
    snprintf(typed, sizeof typed, "--%s", option->name);
    switch (option->value.type) {
    case DPE_VALUE_OWN:
        return;
    case DPE_VALUE_SWITCH:
        put_whole(at, size, 1);
        break;
    case DPE_VALUE_COUNT:
        put_whole(at, size, dpe_parse_count(line, typed, text, low, high));
        break;
    case DPE_VALUE_TOKENS:
        put_whole(at, size, dpe_parse_tokens(line, typed, text, low, high));
        break;
    case DPE_VALUE_CHOICE:
        put_whole(at, size, read_choice(line, option, typed, text));
        break;
    case DPE_VALUE_TEXT:
        *(const char **)at = text;
        break;
    case DPE_VALUE_PATH:
        *(const char **)at = dpe_tool_path(line, typed, text);
        break;
    case DPE_VALUE_MODEL:
        *(const char **)at = dpe_tool_model(text);
        break;
    case DPE_VALUE_TABLE:
        *(const char **)at = dpe_tool_table(text);
        break;
    case DPE_VALUE_REAL:
    case DPE_VALUE_SECONDS:
        *(double *)at = read_number(line, option, typed, text);
        break;
    case DPE_VALUE_BYTES:
        if (!dpe_parse_bytes(text, at)) {
            dpe_line_error(line, "%s: expected bytes such as 8G, found '%s'", typed, text);
        }
        break;
    }
    if (option->given != 0) {
        *((bool *)line->input + option->given) = true;
    }
}

/* -------------------------------------------------------------------------------------- reading */

static int call(struct dpe_command_line *line, int i, int key, char *arg)
{
    struct dpe_line_set *set = &line->sets[i];
    line->input = set->input;
    line->child_inputs = set->child_inputs;
    return set->set->parser != NULL ? set->set->parser(key, arg, line) : DPE_LINE_UNKNOWN;
}

/* Append a set, and behind it its children. */
static void add_set(struct dpe_command_line *line, const struct dpe_option_set *set, int parent,
                    int child)
{
    if (line->n_sets == DPE_LINE_MOST_SETS) {
        abort(); /* as above */
    }
    int at = line->n_sets++;
    line->sets[at] = (struct dpe_line_set){.set = set, .parent = parent, .child = child};
    for (int i = 0; set->children != NULL && set->children[i] != NULL; i++) {
        add_set(line, set->children[i], at, i);
    }
}

static void begin(struct dpe_command_line *line)
{
    for (int i = 0; i < line->n_sets; i++) {
        struct dpe_line_set *set = &line->sets[i];
        if (set->parent >= 0) {
            set->input = line->sets[set->parent].child_inputs[set->child];
        }
        call(line, i, DPE_LINE_BEGIN, NULL);
    }
}

/* The next option, or -1 where the words begin; `*typed` is its letter, or 0. */
static int next_option(const struct spelled *spelled, const struct dpe_command_line *line,
                       char *typed)
{
    int long_index = -1;
    optopt = 0;
    int value = getopt_long(line->argc, line->argv, spelled->letters, spelled->longs, &long_index);
    *typed = (char)(long_index < 0 && value > 0 && value < FIRST_VALUE ? value : 0);
    return value;
}

/* Long options that no table has are refused before anything is done. */
static void check_names(const struct spelled *spelled, struct dpe_command_line *line)
{
    char typed = 0;
    int value = 0;
    opterr = 0;
    optind = 0; /* from the beginning, also in a second command line of this process */
    while ((value = next_option(spelled, line, &typed)) != -1) {
        const char *word = line->argv[optind - 1];
        if (value == '?' && optopt == 0 &&
            count_meant(spelled, word + 2, strcspn(word + 2, "=")) == 0) {
            refuse_unknown(spelled, line, word);
        }
    }
}

static void read_options(const struct spelled *spelled, struct dpe_command_line *line)
{
    int value = 0;
    optind = 0;
    while ((value = next_option(spelled, line, &line->letter)) != -1) {
        if (value == '?' && optopt == '?') {
            optopt = 0; /* the letter itself, which is one of help */
        } else if (value == '?' || value == ':') {
            refuse_option(spelled, line, value);
        }
        int found = find_option(spelled, value);
        const struct dpe_option *option = spelled->options[found];
        const struct dpe_line_set *set = spelled->sets[found];
        if (option->value.type == DPE_VALUE_OWN) {
            call(line, (int)(set - line->sets), option->key, optarg);
        } else {
            line->input = set->input;
            put_value(line, option, optarg);
        }
    }
    line->letter = 0;
}

/* A word goes to the first set that takes it. */
static void read_words(const struct spelled *spelled, struct dpe_command_line *line)
{
    bool took[DPE_LINE_MOST_SETS] = {false};
    for (line->next = optind; line->next < line->argc;) {
        char *word = line->argv[line->next++];
        int i = 0;
        while (i < line->n_sets && call(line, i, DPE_LINE_WORD, word) == DPE_LINE_UNKNOWN) {
            i++;
        }
        if (i == line->n_sets) {
            dpe_line_error(line, "unexpected argument '%s'%s", word,
                           find_name(spelled, "model") ? " (the model is --model DIR)" : "");
        }
        took[i] = true;
    }
    for (int i = 0; i < line->n_sets; i++) {
        if (!took[i]) {
            call(line, i, DPE_LINE_NO_WORD, NULL);
        }
    }
}

void dpe_tool_parse(const struct dpe_option_set *tool, int argc, char **argv, unsigned flags,
                    void *input)
{
    struct dpe_command_line line = {.name = dpe_last_part(argv[0]), .argc = argc, .argv = argv};
    struct spelled spelled;
    add_set(&line, tool, -1, 0);
    line.sets[0].input = input;
    add_set(&line, &dpe_tool_help_option_set, -1, 0);
    spell(&spelled, &line, flags);
    check_names(&spelled, &line);
    begin(&line);
    read_options(&spelled, &line);
    read_words(&spelled, &line);
    for (int i = line.n_sets - 1; i >= 0; i--) {
        call(&line, i, DPE_LINE_END, NULL);
    }
}

const char *dpe_tool_typed(const struct dpe_command_line *state, const char *option, char text[64])
{
    if (state->letter != 0) {
        snprintf(text, 64, "-%c", state->letter);
    } else {
        snprintf(text, 64, "%s", option);
    }
    return text;
}
