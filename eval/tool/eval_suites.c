/* Suites on the command line: NAME[:KEY=VALUE,...], and which options go with which. */
#include <stdlib.h>
#include <string.h>

#include "eval/niah/niah.h"
#include "eval/tool/comparison.h"
#include "outputs/read/read.h"

enum { EVERY = -1 };

const struct dpe_suite_kind *dpe_eval_kind_of(const struct dpe_eval_suite *suite)
{
    static const struct dpe_suite_kind unknown = {0};
    const struct dpe_suite_kind *kind = dpe_suite_find(suite->name);
    return kind != NULL ? kind : &unknown;
}

/* "ruler and infinitebench": the suites that take it. */
static const char *takers(unsigned takes, char text[128])
{
    const char *names[EVAL_MAX_SUITES];
    size_t n = 0;
    for (size_t i = 0; dpe_suite_kind(i) != NULL && n < EVAL_MAX_SUITES; i++) {
        if ((dpe_suite_kind(i)->takes & takes) != 0) {
            names[n++] = dpe_suite_kind(i)->name;
        }
    }
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        dpe_append(text, 128, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", names[i]);
    }
    return text;
}

/* An override by its name: as an option, and as a key after a suite's name. */
static const struct entry {
    const char *name;
    int takes;   /* DPE_SUITE_…, or EVERY */
    size_t at;   /* in struct dpe_suite_given, 0 or NULL where it is not given */
    bool number; /* int64_t, else a text */
} entries[] = {
#define MEMBER(name) offsetof(struct dpe_suite_given, name)
    {"samples", EVERY, MEMBER(samples), true},
    {"chat-template", DPE_SUITE_CHAT_TEMPLATE, MEMBER(chat_template), false},
    {"niah", DPE_SUITE_NEEDLES, MEMBER(niah), false},
    {"stride", DPE_SUITE_WINDOW, MEMBER(stride), true},
    {"max-tokens", DPE_SUITE_WINDOW, MEMBER(max_tokens), true},
    {"tasks", DPE_SUITE_TASKS, MEMBER(tasks), false},
    {"data", DPE_SUITE_TASKS, MEMBER(data), false},
    {"template", DPE_SUITE_TASKS, MEMBER(template_file), false},
    {"squad", DPE_SUITE_QUESTIONS, MEMBER(squad), false},
    {"hotpotqa", DPE_SUITE_QUESTIONS, MEMBER(hotpotqa), false},
    {"scorer", DPE_SUITE_SCORER, MEMBER(scorer), false},
#undef MEMBER
};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

static bool takes(const struct dpe_eval_suite *suite, const struct entry *entry)
{
    return entry->takes == EVERY || (dpe_eval_kind_of(suite)->takes & (unsigned)entry->takes) != 0;
}

static bool given(const struct dpe_suite_given *of, const struct entry *entry)
{
    const void *value = (const char *)of + entry->at;
    return entry->number ? *(const int64_t *)value != 0 : *(const char *const *)value != NULL;
}

/* Which is an option alone: a suite takes its parameters one by one. */
static bool is_niah(const struct entry *entry)
{
    return entry->at == offsetof(struct dpe_suite_given, niah);
}

struct dpe_suite_given dpe_eval_overrides_of(const struct dpe_eval_arguments *args, int suite)
{
    struct dpe_suite_given merged = args->suites[suite].own;
    for (const struct entry *entry = entries; entry < entries + N_ENTRIES; entry++) {
        const void *general = (const char *)&args->general + entry->at;
        void *own = (char *)&merged + entry->at;
        if (!takes(&args->suites[suite], entry) || given(&merged, entry)) {
            continue;
        }
        if (entry->number) {
            *(int64_t *)own = *(const int64_t *)general;
        } else {
            *(const char **)own = *(const char *const *)general;
        }
    }
    return merged;
}

/* -------------------------------------------------------------------------------------- reading */

/* Whether the needle task has a parameter with the name that begins the item KEY=VALUE. */
static bool is_parameter(const char *item)
{
    size_t n = strcspn(item, "=");
    for (const char *at = dpe_niah_keys; at != NULL; at = strchr(at, ' ')) {
        at += at != dpe_niah_keys;
        if (strcspn(at, ",") == n && strncmp(at, item, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Names the keys that a suite takes. */
static void refuse_key(struct dpe_command_line *state, const struct dpe_eval_suite *suite,
                       const char *item)
{
    bool needles = (dpe_eval_kind_of(suite)->takes & DPE_SUITE_NEEDLES) != 0;
    char known[256] = "";
    for (const struct entry *entry = entries; entry < entries + N_ENTRIES; entry++) {
        if (takes(suite, entry) && !is_niah(entry)) {
            dpe_append(known, sizeof known, "%s%s=", known[0] == '\0' ? "" : ", ", entry->name);
        }
    }
    char names[512];
    char meant[96];
    snprintf(names, sizeof names, "%s, %s", known, needles ? dpe_niah_keys : "");
    dpe_line_error(state, "--suite: %s takes %s%s%s%s; found '%s'%s", suite->name, known,
                   needles ? " and the keys of --niah (" : "", needles ? dpe_niah_keys : "",
                   needles ? ")" : "", item, dpe_suggest(item, names, meant));
}

/* The value of an override. */
static void take(struct dpe_command_line *state, struct dpe_eval_suite *suite,
                 const struct entry *entry, const char *value)
{
    char option[64];
    void *own = (char *)&suite->own + entry->at;
    snprintf(option, sizeof option, "--suite: %s: %s", suite->name, entry->name);
    if (given(&suite->own, entry)) {
        dpe_line_error(state, "%s is given twice", option);
    }
    if (!entry->number) {
        *(const char **)own = value;
        return;
    }
    *(int64_t *)own = dpe_parse_tokens(state, option, value, 1, DPE_MOST_COUNT);
    if (suite->own.samples > EVAL_MAX_SAMPLES) {
        dpe_line_error(state, "%s: at most %d, found '%s'", option, EVAL_MAX_SAMPLES, value);
    }
}

/* The override that begins KEY=VALUE; NULL: the suite takes none of that name. */
static const struct entry *entry_of(const struct dpe_eval_suite *suite, const char *item)
{
    const struct entry *entry = entries;
    while (entry < entries + N_ENTRIES &&
           (strncmp(item, entry->name, strlen(entry->name)) != 0 ||
            item[strlen(entry->name)] != '=' || !takes(suite, entry) || is_niah(entry))) {
        entry++;
    }
    return entry < entries + N_ENTRIES ? entry : NULL;
}

/* One KEY=VALUE of a suite. What is not an option of dpe-eval may be a parameter of the needle
 * task, which checks its own: those are joined in suite->parameters. */
static void read_item(struct dpe_command_line *state, struct dpe_eval_suite *suite,
                      const char *item)
{
    const struct entry *entry = entry_of(suite, item);
    const bool needles = (dpe_eval_kind_of(suite)->takes & DPE_SUITE_NEEDLES) != 0;
    if (entry != NULL) {
        take(state, suite, entry, strchr(item, '=') + 1);
        return;
    }
    if (strchr(item, '=') == NULL || !needles || !is_parameter(item)) {
        refuse_key(state, suite, item);
    }
    strcat(suite->parameters, suite->parameters[0] == '\0' ? "" : ",");
    strcat(suite->parameters, item);
    suite->own.niah = suite->parameters;
}

/* A suite whose name are the first `name` of n bytes. */
static struct dpe_eval_suite *add_suite(struct dpe_command_line *state,
                                        struct dpe_eval_arguments *args, const char *text,
                                        size_t name, size_t n)
{
    if (args->n_suites == EVAL_MAX_SUITES) {
        dpe_line_error(state, "--suite: more than %d suites", EVAL_MAX_SUITES);
    }
    struct dpe_eval_suite *suite = &args->suites[args->n_suites];
    suite->text = strndup(text, n);
    suite->parameters = dpe_alloc_zero(n + 1, 1);
    if (suite->text == NULL || suite->parameters == NULL) {
        dpe_line_failure(state, DPE_NO_MEMORY, "out of memory");
    }
    suite->text[name] = '\0';
    suite->name = suite->text;
    for (int i = 0; i < args->n_suites; i++) {
        if (strcmp(args->suites[i].name, suite->name) == 0) {
            dpe_line_error(state, "--suite: %s is given twice", suite->name);
        }
    }
    args->n_suites++;
    return suite;
}

/* NAME:KEY=VALUE,...; the name is `n` bytes long. */
static void add_with_overrides(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                               const char *text, size_t n)
{
    if (memchr(text, ',', n) != NULL) {
        dpe_line_error(state, "--suite: a suite with ':' needs a --suite of its own, found '%s'",
                       text);
    }
    struct dpe_eval_suite *suite = add_suite(state, args, text, n, strlen(text));
    const bool known = dpe_suite_find(suite->name) != NULL;
    for (char *item = suite->text + n + 1, *next; known && item != NULL; item = next) {
        next = strchr(item, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        read_item(state, suite, item);
    }
}

void dpe_eval_add_suites(struct dpe_command_line *state, struct dpe_eval_arguments *args,
                         const char *text)
{
    const char *colon = strchr(text, ':');
    if (colon != NULL) {
        add_with_overrides(state, args, text, (size_t)(colon - text));
        return;
    }
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        if (n > 0) {
            add_suite(state, args, text, n, n);
        }
        text += n + (text[n] == ',');
    }
}

void dpe_eval_suites_free(struct dpe_eval_arguments *args)
{
    for (int i = 0; i < args->n_suites; i++) {
        free(args->suites[i].text);
        free(args->suites[i].parameters);
    }
    args->n_suites = 0;
}

/* ------------------------------------------------------------------------------------- checking */

static bool has_parameter(const char *niah)
{
    static const char *const of_grid[] = {"keys", "values", "queries", "depth", "asked"};
    size_t n = 0;
    for (size_t i = 0; niah != NULL && i < sizeof of_grid / sizeof of_grid[0]; i++) {
        if (dpe_niah_find(niah, of_grid[i], &n) != NULL) {
            return true;
        }
    }
    return false;
}

/* Two options for all suites about the same thing. */
static void refuse_contradictions(struct dpe_command_line *state,
                                  const struct dpe_eval_arguments *args)
{
    size_t n = 0;
    const char *own =
        args->general.niah != NULL ? dpe_niah_find(args->general.niah, "special", &n) : NULL;
    const char *general = args->special_given ? dpe_special_names[args->special] : NULL;
    if (own != NULL && general != NULL && (strlen(general) != n || memcmp(own, general, n) != 0)) {
        dpe_line_error(state, "--special-in-text %s and --niah special=%.*s contradict each other",
                       general, (int)n, own);
    }
    bool table = false;
    for (int i = 0; i < args->n_methods; i++) {
        table = table || args->is_table[i] ||
                (args->methods[i] != NULL && dpe_plan_table_of_spec(args->methods[i]) != NULL);
    }
    if (args->other_model && !table) {
        dpe_line_error(state, "--other-model goes with --table");
    }
    if (args->norms != NULL && args->what != NULL &&
        (strcmp(args->what, "rank") == 0 || strcmp(args->what, "window") == 0)) {
        dpe_line_error(state, "--norms goes with --what top-k, last-k and scaled-length");
    }
}

/* General options that none of the suites takes. */
static void refuse_unused(struct dpe_command_line *state, const struct dpe_eval_arguments *args)
{
    unsigned any = 0;
    bool predictions = false;
    for (int i = 0; i < args->n_suites; i++) {
        any |= dpe_eval_kind_of(&args->suites[i])->takes;
        predictions = predictions || dpe_eval_kind_of(&args->suites[i])->predictions;
    }
    char text[128];
    for (const struct entry *entry = entries; entry < entries + N_ENTRIES; entry++) {
        if (given(&args->general, entry) && entry->takes != EVERY &&
            (any & (unsigned)entry->takes) == 0) {
            dpe_line_error(state, "--%s goes with %s", entry->name,
                           takers((unsigned)entry->takes, text));
        }
    }
    if (args->n_depths > 0 && (any & DPE_SUITE_DEPTHS) == 0) {
        dpe_line_error(state, "--depths goes with --grid (or --suite %s)",
                       takers(DPE_SUITE_DEPTHS, text));
    }
    if (args->predictions != NULL && !predictions) {
        dpe_line_error(state, "--predictions goes with %s", takers(DPE_SUITE_TASKS, text));
    }
}

/* Whether --template words the prompts of a suite that reads --data. */
static bool words_data(const struct dpe_eval_arguments *args)
{
    bool words = false;
    for (int i = 0; i < args->n_suites; i++) {
        const struct dpe_suite_kind *kind = dpe_eval_kind_of(&args->suites[i]);
        words = words || ((kind->takes & DPE_SUITE_TASKS) != 0 && !kind->generates);
    }
    return words;
}

/* What one suite cannot use, of its own keys and of the options. */
static void refuse_overrides(struct dpe_command_line *state, const struct dpe_eval_arguments *args,
                             int suite)
{
    const struct dpe_suite_given all = dpe_eval_overrides_of(args, suite);
    const struct dpe_suite_given *own = &args->suites[suite].own;
    const struct dpe_suite_kind *kind = dpe_eval_kind_of(&args->suites[suite]);
    if ((kind->takes & DPE_SUITE_DEPTHS) != 0 &&
        (has_parameter(own->niah) || (args->n_suites == 1 && has_parameter(args->general.niah)))) {
        dpe_line_error(state, "--niah: a grid has one needle at the depths of --depths, found '%s'",
                       has_parameter(own->niah) ? own->niah : args->general.niah);
    }
    if (all.max_tokens == 1) {
        dpe_line_error(state, "--max-tokens: expected a whole number of at least 2, found '1'");
    }
    if (all.max_tokens > 0 && all.stride == 0) {
        dpe_line_error(state, "--max-tokens goes with --stride");
    }
    if (kind->generates && all.data != NULL) {
        if (all.squad != NULL || all.hotpotqa != NULL) {
            dpe_line_error(state, "--%s goes with a generated %s, without --data",
                           all.squad != NULL ? "squad" : "hotpotqa", kind->name);
        }
        if (own->template_file != NULL || (all.template_file != NULL && !words_data(args))) {
            dpe_line_error(state,
                           "--template words generated prompts; the prompts of --data are used "
                           "as they are: leave one of the two");
        }
    }
}

void dpe_eval_check_suites(struct dpe_command_line *state, const struct dpe_eval_arguments *args)
{
    bool data = false;
    refuse_unused(state, args);
    refuse_contradictions(state, args);
    for (int i = 0; i < args->n_suites; i++) {
        refuse_overrides(state, args, i);
        data = data || dpe_eval_overrides_of(args, i).data != NULL;
    }
    if (args->skip_bad && !data) {
        dpe_line_error(state, "--skip-bad goes with --data");
    }
}
