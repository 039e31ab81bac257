/* Suites on the command line: NAME[:KEY=VALUE,...], and which options go with which. */
#include <stdlib.h>
#include <string.h>

#include "eval/tool/eval_tool.h"

/* Suites as sets. */
enum { NIAH = 1, GRID = 2, PPL = 4, RULER = 8, INFINITEBENCH = 16, ALL = 31 };

static unsigned set_of(const char *suite)
{
    static const char *const names[] = {"niah", "niah_grid", "ppl", "ruler", "infinitebench"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], suite) == 0) {
            return 1U << i;
        }
    }
    return 0;
}

static unsigned set_of_all(const struct eval_arguments *args)
{
    unsigned set = 0;
    for (int i = 0; i < args->n_suites; i++) {
        set |= set_of(args->suites[i].name);
    }
    return set;
}

/* A wish by its name: as an option, and as a key behind a suite's name. */
struct entry {
    const char *name;
    unsigned suites; /* that take it */
    const char *goes_with;
    const char **text; /* where it is: one of the two */
    int64_t *number;   /* 0 = not said */
};
enum { MAX_ENTRIES = 16 };

static size_t list_wishes(struct eval_wishes *of, struct entry *entries)
{
    const struct entry all[] = {
        {"samples", ALL, "", NULL, &of->samples},
        {"chat-template", NIAH | GRID | RULER | INFINITEBENCH, "the suites that ask",
         &of->chat_template, NULL},
        {"niah", NIAH | GRID, "the suite niah", &of->niah, NULL},
        {"stride", PPL, "the suite ppl", NULL, &of->stride},
        {"max-tokens", PPL, "the suite ppl", NULL, &of->max_tokens},
        {"tasks", RULER | INFINITEBENCH, "ruler and infinitebench", &of->tasks, NULL},
        {"data", RULER | INFINITEBENCH, "ruler and infinitebench", &of->data, NULL},
        {"template", RULER | INFINITEBENCH, "ruler and infinitebench", &of->template_file, NULL},
        {"squad", RULER, "ruler, generated", &of->squad, NULL},
        {"hotpotqa", RULER, "ruler, generated", &of->hotpotqa, NULL},
        {"scorer", INFINITEBENCH, "infinitebench", &of->scorer, NULL},
    };
    memcpy(entries, all, sizeof all);
    return sizeof all / sizeof all[0];
}

struct eval_wishes dpe_eval_wishes_of(const struct eval_arguments *args, int suite)
{
    struct eval_wishes merged = args->suites[suite].own, general = args->general;
    struct entry own[MAX_ENTRIES], other[MAX_ENTRIES];
    unsigned set = set_of(args->suites[suite].name);
    size_t n = list_wishes(&merged, own);
    list_wishes(&general, other);
    for (size_t i = 0; i < n; i++) {
        bool takes = (own[i].suites & set) != 0;
        if (takes && own[i].text != NULL && *own[i].text == NULL) {
            *own[i].text = *other[i].text;
        } else if (takes && own[i].number != NULL && *own[i].number == 0) {
            *own[i].number = *other[i].number;
        }
    }
    return merged;
}

/* --------------------------------------------------------------------------------------- reading
 */

/* The keys that a suite takes, for who missed them. */
static void refuse_key(struct argp_state *state, const char *suite, const char *item)
{
    struct eval_wishes none = {0};
    struct entry entries[MAX_ENTRIES];
    char known[256] = "";
    size_t n = list_wishes(&none, entries);
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(known);
        if ((entries[i].suites & set_of(suite)) != 0 && entries[i].text != &none.niah) {
            snprintf(known + used, sizeof known - used, "%s%s=", used == 0 ? "" : ", ",
                     entries[i].name);
        }
    }
    argp_error(state, "--suite: %s takes %s%s; found '%s'", suite, known,
               (set_of(suite) & (NIAH | GRID)) != 0 ? " and what --niah takes" : "", item);
}

/* One KEY=VALUE of a suite. What is no option of dpe-eval may be a parameter of the needle task,
 * which knows its own: it is put together in suite->parameters. */
static void read_item(struct argp_state *state, struct eval_suite *suite, char *item)
{
    struct entry entries[MAX_ENTRIES];
    size_t n = list_wishes(&suite->own, entries);
    unsigned set = set_of(suite->name);
    char *equals = strchr(item, '=');
    for (size_t i = 0; equals != NULL && i < n; i++) {
        const struct entry *entry = &entries[i];
        if (strlen(entry->name) != (size_t)(equals - item) ||
            strncmp(entry->name, item, (size_t)(equals - item)) != 0 ||
            (entry->suites & set) == 0 || entry->text == &suite->own.niah) {
            continue;
        }
        if ((entry->text != NULL && *entry->text != NULL) ||
            (entry->number != NULL && *entry->number != 0)) {
            argp_error(state, "--suite: %s: %s is given twice", suite->name, entry->name);
        }
        if (entry->text != NULL) {
            *entry->text = equals + 1;
        } else {
            char option[64];
            snprintf(option, sizeof option, "--suite: %s: %s", suite->name, entry->name);
            *entry->number = dpe_parse_count(state, option, equals + 1, 1, DPE_MOST_COUNT);
            if (*entry->number > EVAL_MAX_SAMPLES && entry->number == &suite->own.samples) {
                argp_error(state, "%s: at most %d, found '%s'", option, EVAL_MAX_SAMPLES,
                           equals + 1);
            }
        }
        return;
    }
    if (equals == NULL || (set & (NIAH | GRID)) == 0) {
        refuse_key(state, suite->name, item);
    }
    strcat(suite->parameters, suite->parameters[0] == '\0' ? "" : ",");
    strcat(suite->parameters, item);
    suite->own.niah = suite->parameters;
}

static struct eval_suite *add_suite(struct argp_state *state, struct eval_arguments *args,
                                    const char *text, size_t n)
{
    if (args->n_suites == EVAL_MAX_SUITES) {
        argp_error(state, "--suite: more than %d suites", EVAL_MAX_SUITES);
    }
    struct eval_suite *suite = &args->suites[args->n_suites];
    suite->text = strndup(text, n);
    suite->parameters = dpe_alloc_zero(n + 1, 1);
    if (suite->text == NULL || suite->parameters == NULL) {
        argp_failure(state, DPE_NO_MEMORY, 0, "out of memory");
    }
    suite->name = suite->text;
    args->n_suites++;
    return suite;
}

static void refuse_twice(struct argp_state *state, const struct eval_arguments *args)
{
    const char *last = args->suites[args->n_suites - 1].name;
    for (int i = 0; i + 1 < args->n_suites; i++) {
        if (strcmp(args->suites[i].name, last) == 0) {
            argp_error(state, "--suite: %s is given twice", last);
        }
    }
}

/* NAME:KEY=VALUE,...; the name is `n` bytes long. */
static void add_with_wishes(struct argp_state *state, struct eval_arguments *args, const char *text,
                            size_t n)
{
    if (memchr(text, ',', n) != NULL) {
        argp_error(state, "--suite: what has ':' is a --suite of its own, found '%s'", text);
    }
    struct eval_suite *suite = add_suite(state, args, text, strlen(text));
    suite->text[n] = '\0';
    refuse_twice(state, args);
    /* Unknown names are refused when suites are opened, with a list of those that there are. */
    for (char *item = suite->text + n + 1; set_of(suite->name) != 0 && item != NULL;) {
        char *comma = strchr(item, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        read_item(state, suite, item);
        item = comma;
    }
}

void dpe_eval_add_suites(struct argp_state *state, struct eval_arguments *args, const char *text)
{
    const char *colon = strchr(text, ':');
    if (colon != NULL) {
        add_with_wishes(state, args, text, (size_t)(colon - text));
        return;
    }
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        if (n > 0) {
            add_suite(state, args, text, n);
            refuse_twice(state, args);
        }
        text += n + (text[n] == ',');
    }
}

void dpe_eval_add_suite(struct argp_state *state, struct eval_arguments *args, const char *name)
{
    add_suite(state, args, name, strlen(name));
}

void dpe_eval_suites_free(struct eval_arguments *args)
{
    for (int i = 0; i < args->n_suites; i++) {
        free(args->suites[i].text);
        free(args->suites[i].parameters);
    }
    args->n_suites = 0;
}

/* -------------------------------------------------------------------------------------- checking
 */

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
static void refuse_contradictions(struct argp_state *state, const struct eval_arguments *args)
{
    size_t n = 0;
    const char *own =
        args->general.niah != NULL ? dpe_niah_find(args->general.niah, "special", &n) : NULL;
    const char *general = args->special_text;
    if (own != NULL && general != NULL && (strlen(general) != n || memcmp(own, general, n) != 0)) {
        argp_error(state, "--special-in-text %s and --niah special=%.*s contradict each other",
                   general, (int)n, own);
    }
    bool table = false;
    for (int i = 0; i < args->n_methods; i++) {
        table = table || args->is_table[i];
    }
    if (args->other_model && !table) {
        argp_error(state, "--other-model goes with --table");
    }
    if (args->job.split != NULL && args->job.corpus == NULL) {
        argp_error(state, "--split goes with --corpus");
    }
    if (args->norms != NULL && args->what != NULL &&
        (strcmp(args->what, "rank") == 0 || strcmp(args->what, "window") == 0)) {
        argp_error(state, "--norms goes with --what top-k, last-k and scaled-length");
    }
}

/* Options for every suite that no suite takes. */
static void refuse_unused(struct argp_state *state, const struct eval_arguments *args)
{
    unsigned set = set_of_all(args);
    struct eval_wishes general = args->general;
    struct entry entries[MAX_ENTRIES];
    size_t n = list_wishes(&general, entries);
    for (size_t i = 0; i < n; i++) {
        const struct entry *entry = &entries[i];
        bool said = entry->text != NULL ? *entry->text != NULL : *entry->number != 0;
        if (said && entry->goes_with[0] != '\0' && (entry->suites & set) == 0) {
            argp_error(state, "--%s goes with %s", entry->name, entry->goes_with);
        }
    }
    if (args->n_depths > 0 && (set & GRID) == 0) {
        argp_error(state, "--depths goes with --grid (or --suite niah_grid)");
    }
    if (args->predictions != NULL && (set & (RULER | INFINITEBENCH)) == 0) {
        argp_error(state, "--predictions goes with ruler and infinitebench");
    }
}

/* What one suite cannot use, with what it gets from every side. */
static void refuse_wishes(struct argp_state *state, const struct eval_arguments *args, int suite)
{
    const struct eval_wishes wishes = dpe_eval_wishes_of(args, suite);
    const struct eval_wishes *own = &args->suites[suite].own;
    unsigned set = set_of(args->suites[suite].name);
    if (set == GRID &&
        (has_parameter(own->niah) || (args->n_suites == 1 && has_parameter(args->general.niah)))) {
        argp_error(state, "--niah: a grid has one needle at the depths of --depths, found '%s'",
                   has_parameter(own->niah) ? own->niah : args->general.niah);
    }
    if (wishes.max_tokens == 1) {
        argp_error(state, "--max-tokens: expected a whole number of at least 2, found '1'");
    }
    if (wishes.max_tokens > 0 && wishes.stride == 0) {
        argp_error(state, "--max-tokens goes with --stride");
    }
    if (set == RULER && wishes.data != NULL) {
        bool shared = (set_of_all(args) & INFINITEBENCH) != 0;
        if (wishes.squad != NULL || wishes.hotpotqa != NULL) {
            argp_error(state, "--%s goes with ruler, generated",
                       wishes.squad != NULL ? "squad" : "hotpotqa");
        }
        if (own->template_file != NULL || (wishes.template_file != NULL && !shared)) {
            argp_error(state, "--template words no prompts of --data");
        }
    }
}

void dpe_eval_check_suites(struct argp_state *state, const struct eval_arguments *args)
{
    bool data = false;
    refuse_unused(state, args);
    refuse_contradictions(state, args);
    for (int i = 0; i < args->n_suites; i++) {
        refuse_wishes(state, args, i);
        data = data || dpe_eval_wishes_of(args, i).data != NULL;
    }
    if (args->skip_bad && !data) {
        argp_error(state, "--skip-bad goes with --data");
    }
}
