/* Help and completion, printed from the option tables. */
#include "engine/tool/tool_internal.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DOC_COLUMN = 29,   /* of what an option does */
    LONG_COLUMN = 6,   /* of options without a letter */
    MOST_COLUMNS = 100 /* longer lines are hard to read */
};

/* ------------------------------------------------------------------------------------------- list
 */

static bool add_options(const struct argp *argp, struct dpe_option_list *list)
{
    int group = 0;
    for (const struct argp_option *at = argp->options;
         at != NULL && (at->key != 0 || at->name != NULL || at->doc != NULL || at->group != 0);
         at++) {
        if (list->n == list->capacity) {
            size_t capacity = 2 * list->capacity + 64;
            struct dpe_listed_option *grown = realloc(list->at, capacity * sizeof *grown);
            if (grown == NULL) {
                return false;
            }
            list->at = grown;
            list->capacity = capacity;
        }
        group = at->group != 0 ? at->group : at->name == NULL && at->key == 0 ? group + 1 : group;
        list->at[list->n++] = (struct dpe_listed_option){at, argp, group < 0 ? INT_MAX : group};
    }
    for (const struct argp_child *child = argp->children; child != NULL && child->argp != NULL;
         child++) {
        if (!add_options(child->argp, list)) {
            return false;
        }
    }
    return true;
}

static bool is_header(const struct argp_option *option)
{
    return option->name == NULL && option->key == 0;
}

static int by_group_and_name(const void *a, const void *b)
{
    const struct dpe_listed_option *x = a;
    const struct dpe_listed_option *y = b;
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    if (is_header(x->option) != is_header(y->option)) {
        return is_header(x->option) ? -1 : 1;
    }
    const char *of_x = x->option->name != NULL ? x->option->name : "";
    const char *of_y = y->option->name != NULL ? y->option->name : "";
    return strcmp(of_x, of_y);
}

bool dpe_tool_list_options(const struct argp *argp, struct dpe_option_list *list)
{
    if (!add_options(argp, list)) {
        return false;
    }
    qsort(list->at, list->n, sizeof *list->at, by_group_and_name);
    return true;
}

/* ------------------------------------------------------------------------------------------- text
 */

/* Columns of the first n bytes: characters, for those of Latin and the like. */
static int columns(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)text[i] & 0xC0U) != 0x80U;
    }
    return count;
}

static int page_width(void)
{
    int64_t columns = 0;
    const char *text = getenv("COLUMNS");
    if (text == NULL || isatty(STDOUT_FILENO) || !dpe_parse_int(text, 1, 10000, &columns)) {
        columns = dpe_terminal_width(stdout);
        columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns;
    }
    return columns < 41 ? 40 : (int)columns - 1;
}

/* Print words from column `at` on, up to `width`; further lines begin at `indent`. Words of a command
 * are broken before an option, with a backslash, so that the text can be pasted. */
static void print_words(const char *text, size_t n, int at, int indent, int width, bool command)
{
    const char *end = text + n;
    bool first = true;
    while (text < end) {
        size_t spaces = strspn(text, " ");
        text += spaces;
        size_t word = 0;
        while (text + word < end && text[word] != ' ') {
            word++;
        }
        /* An option of a command and its value stay together. */
        size_t unit = word;
        bool option = command && text[0] == '-';
        if (option && text + word + 1 < end && text[word + 1] != '-') {
            size_t value = word + 1;
            while (text + value < end && text[value] != ' ') {
                value++;
            }
            unit = value;
        }
        if (!first && at + 1 + columns(text, unit) + (command ? 2 : 0) > width &&
            (!command || option)) {
            printf(command ? " \\\n%*s" : "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            putchar(' ');
            at++;
        }
        fwrite(text, 1, word, stdout);
        at += columns(text, word);
        text += word;
        first = false;
    }
}

/* Print a text with its lines; one that begins with spaces is a command or a row of a list. */
static void print_text(const char *text, int width)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        int spaces = (int)strspn(text, " ");
        bool command = spaces > 0 && strncmp(text + spaces, "dpe-", 4) == 0;
        int hang = spaces + (command ? 4 : 0);
        const char *gap = spaces > 0 && !command ? strstr(text + spaces, "  ") : NULL;
        if (gap != NULL && gap < text + n) { /* NAME   what it is */
            int name = (int)(gap - text);
            int doc = name + (int)strspn(gap, " ");
            printf("%.*s", doc, text);
            print_words(text + doc, n - (size_t)doc, doc, doc, width, false);
        } else {
            printf("%*s", spaces, "");
            print_words(text + spaces, n - (size_t)spaces, spaces, hang, width, command);
        }
        putchar('\n');
        text += n + (text[n] == '\n');
    }
}

/* ------------------------------------------------------------------------------------------- help
 */

/* What the filter of a parser makes of a text: owned by the caller, NULL: nothing to print. The C
 * library does not tell a parser's input to others: filters get NULL. */
static char *filtered(const struct argp *argp, int key, const char *text)
{
    char *result = NULL;
    if (argp->help_filter != NULL) {
        result = argp->help_filter(key, text, NULL);
        return result == text && text != NULL ? strdup(text) : result;
    }
    return text != NULL ? strdup(text) : NULL;
}

static void print_option(const struct dpe_listed_option *listed, int width)
{
    const struct argp_option *option = listed->option;
    char left[256] = "";
    bool letter = option->key > ' ' && option->key < 127;
    bool optional = (option->flags & OPTION_ARG_OPTIONAL) != 0;
    if (letter && option->name != NULL) {
        snprintf(left, sizeof left, "  -%c, --%s", option->key, option->name);
    } else if (letter) {
        snprintf(left, sizeof left, "  -%c", option->key);
    } else {
        snprintf(left, sizeof left, "%*s--%s", LONG_COLUMN, "", option->name);
    }
    if (option->arg != NULL) {
        size_t used = strlen(left);
        snprintf(left + used, sizeof left - used, optional ? "[=%s]" : "=%s", option->arg);
    }
    char *doc = filtered(listed->argp, option->key, option->doc);
    int at = columns(left, strlen(left));
    fputs(left, stdout);
    if (doc != NULL) {
        if (at + 1 > DOC_COLUMN) {
            putchar('\n');
            at = 0;
        }
        printf("%*s", DOC_COLUMN - at, "");
        print_words(doc, strlen(doc), DOC_COLUMN, DOC_COLUMN, width, false);
    }
    putchar('\n');
    free(doc);
}

static bool is_shown(const struct argp_option *option, bool all)
{
    return (option->flags & OPTION_HIDDEN) == 0 && (all || (option->flags & DPE_BASIC) != 0);
}

/* Options by group, under the headers of groups that have any. Returns how many were left out. */
static int print_options(const struct dpe_option_list *list, bool all, int width)
{
    const char *header = NULL;
    int header_group = 0;
    int group = 0;
    int left_out = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct argp_option *option = list->at[i].option;
        if (is_header(option)) {
            header = option->doc;
            header_group = list->at[i].group;
            continue;
        }
        if (!is_shown(option, all)) {
            left_out += (option->flags & OPTION_HIDDEN) == 0;
            continue;
        }
        if (list->at[i].group != group) {
            group = list->at[i].group;
            putchar('\n');
            if (header != NULL && group == header_group) {
                printf("%s\n", header);
            }
        }
        print_option(&list->at[i], width);
    }
    return left_out;
}

/* The part of the long text that shows how to use the tool: from "Example" on. */
static const char *find_examples(const char *text)
{
    const char *at = text != NULL ? strstr(text, "Example") : NULL;
    while (at != NULL && at != text && at[-1] != '\n') {
        at = strstr(at + 1, "Example");
    }
    return at;
}

void dpe_tool_print_help(const struct argp_state *state, bool all)
{
    const struct argp *tool = state->root_argp->children[0].argp;
    struct dpe_option_list list = {0};
    if (!dpe_tool_list_options(state->root_argp, &list)) {
        argp_failure(state, DPE_NO_MEMORY, 0, "out of memory");
    }
    bool basics = false;
    for (size_t i = 0; i < list.n; i++) {
        basics = basics || (list.at[i].argp != state->root_argp->children[1].argp &&
                            is_shown(list.at[i].option, false));
    }
    all = all || !basics;
    int width = page_width();
    const char *doc = tool->doc != NULL ? tool->doc : "";
    const char *more = strchr(doc, '\v');
    char *before = strndup(doc, more != NULL ? (size_t)(more - doc) : strlen(doc));
    char *after = filtered(tool, ARGP_KEY_HELP_POST_DOC, more != NULL ? more + 1 : NULL);
    printf("Usage: %s [OPTION...]%s%s\n", state->name, tool->args_doc != NULL ? " " : "",
           tool->args_doc != NULL ? tool->args_doc : "");
    print_text(before != NULL ? before : "", width);
    if (!all && find_examples(after) != NULL) {
        putchar('\n');
        print_text(find_examples(after), width);
    }
    int left_out = print_options(&list, all, width);
    if (left_out > 0) {
        printf("\n%d more options: %s --help=all\n", left_out, state->name);
    } else if (after != NULL && after[0] != '\0') {
        putchar('\n');
        print_text(after, width);
    }
    free(before);
    free(after);
    free(list.at);
}

/* ------------------------------------------------------------------------------------- completion
 */

/* A line for each of the choices "a|b|c" of an argument. Other texts are names of what is given. */
static void print_choices(const struct argp_option *option)
{
    const char *at = option->arg;
    while (at != NULL && strchr(option->arg, '|') != NULL && *at != '\0') {
        size_t n = strcspn(at, "|");
        bool word = n > 0;
        for (size_t i = 0; i < n; i++) {
            word = word && (islower((unsigned char)at[i]) || isdigit((unsigned char)at[i]) ||
                            strchr("-_.", at[i]) != NULL);
        }
        if (word) {
            printf("--%s=%.*s\t\n", option->name, (int)n, at);
        }
        at += n + (at[n] == '|');
    }
}

void dpe_tool_print_completion(const struct argp_state *state)
{
    struct dpe_option_list list = {0};
    if (!dpe_tool_list_options(state->root_argp, &list)) {
        argp_failure(state, DPE_NO_MEMORY, 0, "out of memory");
    }
    for (size_t i = 0; i < list.n; i++) {
        const struct argp_option *option = list.at[i].option;
        if (option->name == NULL || (option->flags & OPTION_HIDDEN) != 0) {
            continue;
        }
        char *doc = filtered(list.at[i].argp, option->key, option->doc);
        bool argument = option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0;
        printf("--%s%s\t%s\n", option->name, argument ? "=" : "", doc != NULL ? doc : "");
        print_choices(option);
        free(doc);
    }
    free(list.at);
}
