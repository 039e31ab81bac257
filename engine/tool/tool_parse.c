/* A command line against the option tables of a tool: argp, with help of our own (tool_help.c), -h and
 * -v, and suggestions for options that no table has. */
#include "engine/tool/tool_internal.h"

#include <stdlib.h>
#include <string.h>

enum option_key {
    KEY_USAGE = DPE_KEY_HELP,
    KEY_COMPLETION,
};

static const struct argp_option help_table[] = {
    {"help", 'h', "all", OPTION_ARG_OPTIONAL | DPE_BASIC,
     "Print the most used options; --help=all prints all options", -1},
    {"usage", KEY_USAGE, NULL, OPTION_HIDDEN, NULL, -1},
    {NULL, '?', NULL, OPTION_HIDDEN, NULL, -1},
    {"version", 'v', NULL, DPE_BASIC, "Print the version", -1},
    {NULL, 'V', NULL, OPTION_HIDDEN, NULL, -1},
    {"completion", KEY_COMPLETION, NULL, OPTION_HIDDEN, NULL, -1},
    {0},
};

struct root {
    void *input; /* of the tool's own argp */
};

static void print_and_end(const struct argp_state *state, bool all)
{
    dpe_tool_print_help(state, all);
    exit(0);
}

static error_t parse_help(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case 'h':
    case '?':
        if (arg != NULL && strcmp(arg, "all") != 0) {
            argp_error(state, "--help: expected all or nothing, found '%s'", arg);
        }
        print_and_end(state, arg != NULL);
        return 0;
    case 'v':
    case 'V':
        puts(dpe_version());
        exit(0);
    case KEY_USAGE:
        argp_state_help(state, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
        return 0;
    case KEY_COMPLETION:
        dpe_tool_print_completion(state);
        exit(0);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_root(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key == ARGP_KEY_INIT) {
        const struct root *root = state->input;
        state->child_inputs[0] = root->input;
    }
    return key == ARGP_KEY_INIT ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp help_argp = {.options = help_table, .parser = parse_help};

/* -------------------------------------------------------------------------------- unknown options
 */

/* The option that the word "--name" or "--name=…" is, or one that it begins, which getopt refuses if
 * there are several; NULL: none. */
static const struct argp_option *find_long(const struct dpe_option_list *list, const char *word)
{
    size_t n = strcspn(word + 2, "=");
    const struct argp_option *found = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->at[i].option->name;
        if (name == NULL || strncmp(name, word + 2, n) != 0) {
            continue;
        }
        if (name[n] == '\0') {
            return list->at[i].option;
        }
        found = list->at[i].option;
    }
    return found;
}

static bool takes_argument(const struct argp_option *option)
{
    return option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0;
}

/* Whether the word "-abc" leaves its argument to the next word. */
static bool short_takes_next(const struct dpe_option_list *list, const char *word)
{
    for (const char *at = word + 1; *at != '\0'; at++) {
        for (size_t i = 0; i < list->n; i++) {
            const struct argp_option *option = list->at[i].option;
            if (option->key == (unsigned char)*at && takes_argument(option)) {
                return at[1] == '\0';
            }
        }
    }
    return false;
}

/* End with the nearest name: no table has the long option `word`. */
static void refuse_word(const struct argp *argp, const struct dpe_option_list *list,
                        const char *program, const char *word)
{
    struct dpe_text names = {0};
    for (size_t i = 0; i < list->n; i++) {
        const struct argp_option *option = list->at[i].option;
        if (option->name != NULL && (option->flags & OPTION_HIDDEN) == 0 &&
            (dpe_text_append(&names, option->name, strlen(option->name), NULL) != DPE_OK ||
             dpe_text_append(&names, " ", 1, NULL) != DPE_OK)) {
            break;
        }
    }
    size_t given = strcspn(word + 2, "=");
    const char *name = dpe_tool_foreign(list, word + 2, given);
    const bool known = name != NULL;
    size_t n = known         ? strlen(name)
               : names.n > 0 ? dpe_nearest(word + 2, given, names.bytes, &name)
                             : 0;
    char text[256];
    snprintf(text, sizeof text, "unrecognized option '%.80s'%s%.*s%s", word,
             known   ? "; here it is '--"
             : n > 0 ? "; did you mean '--"
                     : "",
             (int)n, n > 0 ? name : "",
             known   ? "'"
             : n > 0 ? "'?"
                     : "");
    dpe_text_free(&names);
    dpe_tool_refuse_as(argp, program, text);
}

static void refuse_unknown(const struct argp *argp, const struct dpe_option_list *list, int argc,
                           char **argv, unsigned flags)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--", 2) == 0) {
            const struct argp_option *option = find_long(list, word);
            if (option == NULL) {
                refuse_word(argp, list, argv[0], word);
            }
            i += takes_argument(option) && strchr(word, '=') == NULL;
        } else if (word[0] == '-' && word[1] != '\0') {
            i += short_takes_next(list, word);
        } else if ((flags & ARGP_IN_ORDER) != 0) {
            break; /* a command; what follows are its own options */
        }
    }
}

void dpe_tool_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
    const struct argp_child children[] = {{argp, 0, NULL, 0}, {&help_argp, 0, NULL, -1}, {0}};
    const struct argp whole = {.parser = parse_root,
                               .args_doc = argp->args_doc,
                               .children = children};
    struct dpe_option_list list = {0};
    struct root root = {.input = input};
    if (dpe_tool_list_options(&whole, &list)) {
        refuse_unknown(argp, &list, argc, argv, flags);
    }
    free(list.at);
    argp_parse(&whole, argc, argv, flags | ARGP_NO_HELP, NULL, &root);
}

/* ---------------------------------------------------------------------------------- as it is typed
 */

const char *dpe_tool_typed(const struct argp_state *state, const char *option, const char *arg,
                           char text[64])
{
    const char *word = state->next > 0 ? state->argv[state->next - 1] : "";
    if (word == arg && state->next > 1) {
        word = state->argv[state->next - 2];
    }
    bool letter = word[0] == '-' && word[1] != '-' && word[1] != '\0';
    if (letter && word + 2 <= arg && arg <= word + strlen(word)) {
        snprintf(text, 64, "-%c", arg[-1]); /* -l16 */
    } else if (letter) {
        snprintf(text, 64, "-%c", word[strlen(word) - 1]);
    } else {
        snprintf(text, 64, "%s", option);
    }
    return text;
}
