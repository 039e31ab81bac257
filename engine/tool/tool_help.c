/* The options of every tool that print: help, completion and the version, from the option tables;
 * and lines that fit, and how wide they may be. */
#include "engine/tool/tool_internal.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ----------------------------------------------------------------------------- lines that fit */

/* Columns of the first n bytes: characters, for those of Latin and the like. */
static int columns_of(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)text[i] & 0xC0U) != 0x80U;
    }
    return count;
}

/* Bytes of the escape sequence at the beginning of a text, which take no column; 0: there is none.
 */
static size_t escape_at(const char *text, size_t n)
{
    size_t i = n > 1 && text[0] == '\033' && text[1] == '[' ? 2 : 0;
    while (i > 0 && i < n && (text[i] == ';' || (text[i] >= '0' && text[i] <= '9'))) {
        i++;
    }
    return i > 0 && i < n ? i + 1 : i;
}

/* Bytes that fit between column `at` and `width`: all, else up to the last space before the column,
 * else the first word. A command is broken before options alone. */
static size_t fitting(const char *text, size_t n, int at, int width, bool command)
{
    size_t last = 0;
    bool word = false;
    for (size_t i = 0; i < n;) {
        const size_t escape = escape_at(text + i, n - i);
        const bool breaks = text[i] == ' ' && word && (!command || text[i + 1] == '-');
        if (breaks && (last == 0 || at <= width)) {
            last = i; /* after the word, so that no line ends with a space */
        }
        word = text[i] != ' ';
        at += escape > 0 ? 0 : columns_of(text + i, 1);
        i += escape > 0 ? escape : 1;
        if (at > width && last > 0) {
            return last;
        }
    }
    return n;
}

/* Print a line from column `at` on, up to `width`; what does not fit begins further lines at
 * `indent`. Lines of a command end with a backslash, so that the text can be pasted. */
static void put_line(FILE *file, const char *text, size_t n, int at, int indent, int width,
                     bool command)
{
    width -= command ? 2 : 0;
    size_t here = fitting(text, n, at, width, command);
    fwrite(text, 1, here, file);
    while (here < n) {
        text += here;
        n -= here;
        const size_t spaces = strspn(text, " ");
        text += spaces < n ? spaces : n;
        n -= spaces < n ? spaces : n;
        here = fitting(text, n, indent, width, command);
        if (n > 0) {
            fprintf(file, command ? " \\\n%*s" : "\n%*s", indent, "");
            fwrite(text, 1, here, file);
        }
    }
    fputc('\n', file);
}

/* Columns of a terminal; `none` of a file, and of a terminal of no size, which mpirun gives its
 * processes and which may be a file in the end. */
static int columns_or(FILE *file, int none)
{
    struct winsize size = {0};
    return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : none;
}

int dpe_terminal_width(FILE *file)
{
    return columns_or(file, 80);
}

void dpe_tool_fit(FILE *file, const char *text, size_t n, int indent)
{
    put_line(file, text, n, 0, indent, columns_or(file, INT_MAX) - 1, false);
}

/* The column where further lines of a line begin: that of the text after its
 * label, or a step in. */
static int hang_of(const char *line, size_t n)
{
    enum { MOST_LABEL = 24, STEP = 2 };
    const size_t begin = strspn(line, " ");
    for (size_t i = begin; i + 1 < n && i < MOST_LABEL; i++) {
        if (line[i] == ' ' && line[i + 1] == ' ') {
            return columns_of(line, i + strspn(line + i, " "));
        }
    }
    return (int)begin + STEP;
}

/* Of standard output: what waits for the end of its line. */
static struct dpe_text waiting;

/* Prints the lines that have their end. */
static void print_whole_lines(void)
{
    char *text = waiting.bytes;
    size_t n = waiting.n;
    for (char *end; n > 0 && (end = memchr(text, '\n', n)) != NULL;
         n -= (size_t)(end + 1 - text), text = end + 1) {
        dpe_tool_fit(stdout, text, (size_t)(end - text), hang_of(text, (size_t)(end - text)));
    }
    if (n > 0) {
        memmove(waiting.bytes, text, n);
    }
    waiting.n = n;
}

void dpe_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    DPE_OWNED char *piece = columns_or(stdout, 0) > 0 ? dpe_format_list(format, args) : NULL;
    va_end(args);
    if (piece != NULL && dpe_text_append(&waiting, piece, strlen(piece), NULL) == DPE_OK) {
        print_whole_lines();
        return;
    }
    dpe_print_end();
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

void dpe_print_end(void)
{
    if (waiting.n > 0) {
        fwrite(waiting.bytes, 1, waiting.n, stdout);
    }
    dpe_text_free(&waiting);
}

/* -------------------------------------------------------------------------------------- options */

enum {
    DOC_COLUMN = 29,   /* of what an option does */
    LONG_COLUMN = 6,   /* of options without a letter */
    MOST_COLUMNS = 100 /* longer lines are hard to read */
};

/* ----------------------------------------------------------------------------------------- list */

/* An option, and the set that has it. */
struct listed {
    const struct dpe_option *option;
    const struct dpe_line_set *set;
    int group; /* as it is printed: 1, 2, …, then the group -1 of help; headers of the same group
                * come before its options */
};
/* All options and headers of a tool, sorted as help prints them. */
struct list {
    struct listed at[DPE_LINE_MOST_OPTIONS + DPE_LINE_MOST_SETS];
    size_t n;
};

static bool is_header(const struct dpe_option *option)
{
    return option->name == NULL && option->key == 0;
}

static int by_group_and_name(const void *a, const void *b)
{
    const struct listed *x = a;
    const struct listed *y = b;
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

static void list_options(const struct dpe_command_line *line, struct list *list)
{
    list->n = 0;
    for (int i = 0; i < line->n_sets; i++) {
        int group = 0;
        for (const struct dpe_option *at = line->sets[i].set->options; dpe_option_there(at); at++) {
            group = at->group != 0 ? at->group : is_header(at) ? group + 1 : group;
            list->at[list->n++] = (struct listed){at, &line->sets[i], group < 0 ? INT_MAX : group};
        }
    }
    qsort(list->at, list->n, sizeof list->at[0], by_group_and_name);
}

/* ----------------------------------------------------------------------------------------- text */

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
            put_line(stdout, text + doc, n - (size_t)doc, doc, doc, width, false);
        } else {
            printf("%*s", spaces, "");
            put_line(stdout, text + spaces, n - (size_t)spaces, spaces, hang, width, command);
        }
        text += n + (text[n] == '\n');
    }
}

/* ----------------------------------------------------------------------------------------- help */

enum { ROOM = 2048 };

/* The text as the set wants it printed: itself, or made in `room`. */
static const char *told(const struct dpe_line_set *set, int key, const char *text, char room[ROOM])
{
    return set->set->about != NULL ? set->set->about(key, text, set->input, room, ROOM) : text;
}

static void print_option(const struct listed *listed, int width)
{
    const struct dpe_option *option = listed->option;
    char left[256] = "";
    bool letter = option->key > ' ' && option->key < 127;
    bool optional = (option->flags & DPE_OPTIONAL) != 0;
    if (letter && option->name != NULL) {
        snprintf(left, sizeof left, "  -%c, --%s", option->key, option->name);
    } else if (letter) {
        snprintf(left, sizeof left, "  -%c", option->key);
    } else {
        snprintf(left, sizeof left, "%*s--%s", LONG_COLUMN, "", option->name);
    }
    if (option->arg != NULL) {
        dpe_append(left, sizeof left, optional ? "[=%s]" : "=%s", option->arg);
    }
    char room[ROOM];
    const char *doc = told(listed->set, option->key, option->doc, room);
    int at = columns_of(left, strlen(left));
    fputs(left, stdout);
    if (doc != NULL && at + 1 > DOC_COLUMN) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", doc != NULL ? DOC_COLUMN - at : 0, "");
    doc = doc != NULL ? doc : "";
    put_line(stdout, doc, strlen(doc), DOC_COLUMN, DOC_COLUMN, width, false);
}

static bool is_shown(const struct dpe_option *option, bool all)
{
    return (option->flags & DPE_HIDDEN) == 0 && (all || (option->flags & DPE_BASIC) != 0);
}

/* Options by group, under the headers of groups that have any. Returns how many were left out. */
static int print_options(const struct list *list, bool all, int width)
{
    const char *header = NULL;
    int header_group = 0;
    int group = 0;
    int left_out = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct dpe_option *option = list->at[i].option;
        if (is_header(option)) {
            header = option->doc;
            header_group = list->at[i].group;
            continue;
        }
        if (!is_shown(option, all)) {
            left_out += (option->flags & DPE_HIDDEN) == 0;
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

static void print_usage(const struct dpe_command_line *line)
{
    const struct dpe_option_set *tool = line->sets[0].set;
    printf("Usage: %s [OPTION...]%s%s\n", line->name, tool->args_doc != NULL ? " " : "",
           tool->args_doc != NULL ? tool->args_doc : "");
}

/* Whether there are options that --help prints, besides those of help itself. */
static bool has_basics(const struct list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->at[i].set->set != &dpe_tool_help_option_set &&
            is_shown(list->at[i].option, false)) {
            return true;
        }
    }
    return false;
}

/* What the tool does, an example and the options of DPE_BASIC, or all options and the whole text. A
 * tool without such options always prints all. */
static void print_help(const struct dpe_command_line *line, bool all)
{
    const struct dpe_option_set *tool = line->sets[0].set;
    struct list list;
    list_options(line, &list);
    all = all || !has_basics(&list);
    int width = page_width();
    const char *doc = tool->doc != NULL ? tool->doc : "";
    const char *more = strchr(doc, '\v');
    DPE_OWNED char *before = strndup(doc, more != NULL ? (size_t)(more - doc) : strlen(doc));
    char room[ROOM];
    const char *after = told(&line->sets[0], DPE_LINE_AFTER, more != NULL ? more + 1 : NULL, room);
    print_usage(line);
    print_text(before != NULL ? before : "", width);
    if (!all && find_examples(after) != NULL) {
        putchar('\n');
        print_text(find_examples(after), width);
    }
    int left_out = print_options(&list, all, width);
    if (left_out > 0) {
        printf("\n%d more options: %s --help=all\n", left_out, line->name);
    } else if (after != NULL && after[0] != '\0') {
        putchar('\n');
        print_text(after, width);
    }
}

/* ----------------------------------------------------------------------------------- completion */

/* A line for each of the choices "a|b|c" of an argument. Other texts are names of what is given. */
static void print_choices(const struct dpe_option *option)
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

/* A line for each option, its word, a tab, and what it does. An option with an argument ends with
 * '='; one with the choices "a|b" has a line for each of them. */
static void print_completion(const struct dpe_command_line *line)
{
    struct list list;
    list_options(line, &list);
    for (size_t i = 0; i < list.n; i++) {
        const struct dpe_option *option = list.at[i].option;
        if (option->name == NULL || (option->flags & DPE_HIDDEN) != 0) {
            continue;
        }
        char room[ROOM];
        const char *doc = told(list.at[i].set, option->key, option->doc, room);
        bool argument = option->arg != NULL && (option->flags & DPE_OPTIONAL) == 0;
        printf("--%s%s\t%s\n", option->name, argument ? "=" : "", doc != NULL ? doc : "");
        print_choices(option);
    }
}

/* --------------------------------------------------------------------------------- the options */

enum option_key { KEY_USAGE = DPE_KEY_HELP, KEY_COMPLETION };

static const struct dpe_option help_table[] = {
    {"help", 'h', "all", DPE_OPTIONAL | DPE_BASIC,
     "Print the most used options; --help=all prints all options", -1},
    {"usage", KEY_USAGE, NULL, DPE_HIDDEN, NULL, -1},
    {NULL, '?', NULL, DPE_HIDDEN, NULL, -1},
    {"version", 'v', NULL, DPE_BASIC, "Print the version", -1},
    {NULL, 'V', NULL, DPE_HIDDEN, NULL, -1},
    {"completion", KEY_COMPLETION, NULL, DPE_HIDDEN, NULL, -1},
    {0},
};

static int parse_help(int key, char *arg, struct dpe_command_line *state)
{
    switch (key) {
    case 'h':
    case '?':
        if (arg != NULL && strcmp(arg, "all") != 0) {
            dpe_line_error(state, "--help: expected all or nothing, found '%s'", arg);
        }
        print_help(state, arg != NULL);
        break;
    case 'v':
    case 'V':
        puts(dpe_version());
        break;
    case KEY_USAGE:
        print_usage(state);
        break;
    case KEY_COMPLETION:
        print_completion(state);
        break;
    default:
        return DPE_LINE_UNKNOWN;
    }
    exit(0);
}

const struct dpe_option_set dpe_tool_help_option_set = {.options = help_table,
                                                        .parser = parse_help};
