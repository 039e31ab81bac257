/* --options FILE: a command line's options from a file, put where the option stands. */
#include "engine/tool/tool_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The words of the line, the strings of the files among them; both live as long as the process. */
struct words {
    char **at;
    size_t n;
};

static void out_of_memory(const char *tool, const char *path)
{
    char why[512];
    snprintf(why, sizeof why, "--options %.400s: out of memory", path);
    dpe_tool_fail_as(tool, why);
    exit(DPE_NO_MEMORY);
}

static void add(struct words *words, char *word, const char *tool, const char *path)
{
    if (!dpe_make_room(&words->at, words->n, sizeof *words->at)) {
        out_of_memory(tool, path);
    }
    words->at[words->n++] = word;
}

static void refuse(const char *tool, const char *path, size_t number, const char *what)
{
    char why[1024];
    snprintf(why, sizeof why,
             "--options %.400s, line %zu: %s; expected an option a line, as 'length 16k', "
             "'length = 16k' or '--length 16k'",
             path, number, what);
    dpe_tool_refuse_as(tool, why);
}

/* "  --NAME = VALUE  " as "--NAME" or "--NAME=VALUE", of a letter "-lVALUE"; NULL: nothing is
 * there. */
static char *take_line(char *line, const char *tool, const char *path, size_t number)
{
    static const char blank[] = " \t\r";
    line += strspn(line, blank);
    if (*line == '\0' || *line == '#') {
        return NULL;
    }
    line += strspn(line, "-");
    size_t n = strcspn(line, " \t\r=");
    char *value = line + n + strspn(line + n, blank);
    value += *value == '=' ? 1 : 0;
    value += strspn(value, blank);
    size_t length = strlen(value);
    while (length > 0 && strchr(blank, value[length - 1]) != NULL) {
        length--;
    }
    if (n == 0) {
        refuse(tool, path, number, "no name");
    }
    if (n == 7 && strncmp(line, "options", n) == 0) {
        refuse(tool, path, number, "another file of options");
    }
    char *word = malloc(n + length + 4);
    if (word == NULL) {
        out_of_memory(tool, path);
    }
    snprintf(word, n + length + 4, "%s%.*s%s%.*s", n == 1 ? "-" : "--", (int)n, line,
             length > 0 && n > 1 ? "=" : "", (int)length, value);
    return word;
}

static void add_file(struct words *words, const char *tool, const char *path)
{
    DPE_OWNED char *line = NULL;
    size_t size = 0;
    size_t number = 0;
    ssize_t n = 0;
    errno = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && (n = getline(&line, &size, file)) > 0) {
        number++;
        line[n - 1] = line[n - 1] == '\n' ? '\0' : line[n - 1];
        if (memchr(line, '\0', (size_t)n - 1) != NULL) {
            refuse(tool, path, number, "a byte of zero");
        }
        char *word = take_line(line, tool, path, number);
        if (word != NULL) {
            add(words, word, tool, path);
        }
    }
    if (file == NULL || ferror(file) != 0) {
        int reason = errno;
        char why[512];
        snprintf(why, sizeof why, "--options %.400s: cannot be read: %.80s", path,
                 strerror(reason));
        dpe_tool_fail_as(tool, why);
        exit(reason == EACCES ? DPE_PERMISSION : DPE_NO_INPUT);
    }
    fclose(file);
}

void dpe_tool_expand(int *argc, char ***argv)
{
    static const char option[] = "--options";
    static struct words words; /* reachable to the end */
    char **old = *argv;
    for (int i = 0; i < *argc; i++) {
        const size_t n = sizeof option - 1;
        const bool here =
            strncmp(old[i], option, n) == 0 && (old[i][n] == '\0' || old[i][n] == '=');
        if (i > 0 && strcmp(old[i], "--") == 0) {
            for (; i < *argc; i++) {
                add(&words, old[i], old[0], "");
            }
        } else if (!here) {
            add(&words, old[i], old[0], "");
        } else if (old[i][n] == '=') {
            add_file(&words, old[0], old[i] + n + 1);
        } else if (i + 1 == *argc) {
            dpe_tool_refuse_as(old[0], "option '--options' requires an argument");
        } else {
            add_file(&words, old[0], old[++i]);
        }
    }
    add(&words, NULL, old[0], "");
    *argc = (int)words.n - 1;
    *argv = words.at;
}
