/* Lines that fit. */
#include "engine/tool/tool_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int dpe_tool_columns(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)text[i] & 0xC0U) != 0x80U;
    }
    return count;
}

void dpe_tool_put_words(FILE *file, const char *text, size_t n, int at, int indent, int width,
                        bool command)
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
        if (!first && at + 1 + dpe_tool_columns(text, unit) + (command ? 2 : 0) > width &&
            (!command || option)) {
            fprintf(file, command ? " \\\n%*s" : "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', file);
            at++;
        }
        fwrite(text, 1, word, file);
        at += dpe_tool_columns(text, word);
        text += word;
        first = false;
    }
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
 * else the first word. */
static size_t fitting(const char *text, size_t n, int at, int width)
{
    size_t last = 0;
    bool word = false;
    for (size_t i = 0; i < n;) {
        const size_t escape = escape_at(text + i, n - i);
        if (text[i] == ' ' && word && (last == 0 || at <= width)) {
            last = i; /* after the word, so that no line ends with a space */
        }
        word = text[i] != ' ';
        at += escape > 0 ? 0 : dpe_tool_columns(text + i, 1);
        i += escape > 0 ? escape : 1;
        if (at > width && last > 0) {
            return last;
        }
    }
    return n;
}

/* Where lines end; INT_MAX in a file, and in a terminal of no size, which mpirun gives its
 * processes and which may be a file in the end. */
static int line_width(FILE *file)
{
    struct winsize size = {0};
    return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col - 1
                                                                          : INT_MAX;
}

void dpe_tool_fit(FILE *file, const char *text, size_t n, int indent)
{
    const int width = line_width(file);
    size_t here = fitting(text, n, 0, width);
    fwrite(text, 1, here, file);
    while (here < n) {
        text += here;
        n -= here;
        const size_t spaces = strspn(text, " ");
        text += spaces < n ? spaces : n;
        n -= spaces < n ? spaces : n;
        here = fitting(text, n, indent, width);
        if (n > 0) {
            fprintf(file, "\n%*s", indent, "");
            fwrite(text, 1, here, file);
        }
    }
    fputc('\n', file);
}

/* The column where further lines of a line begin: that of the text after its
 * label, or a step in. */
static int hang_of(const char *line, size_t n)
{
    enum { MOST_LABEL = 24, STEP = 2 };
    const size_t begin = strspn(line, " ");
    for (size_t i = begin; i + 1 < n && i < MOST_LABEL; i++) {
        if (line[i] == ' ' && line[i + 1] == ' ') {
            return dpe_tool_columns(line, i + strspn(line + i, " "));
        }
    }
    return (int)begin + STEP;
}

/* Of standard output: what waits for the end of its line. */
static struct {
    char *text;
    size_t n, room;
} line;

static void print_line_of(const char *text, size_t n)
{
    for (const char *end; (end = memchr(text, '\n', n)) != NULL;
         n -= (size_t)(end + 1 - text), text = end + 1) {
        dpe_tool_fit(stdout, text, (size_t)(end - text), hang_of(text, (size_t)(end - text)));
    }
    memmove(line.text, text, n);
    line.n = n;
}

void dpe_print(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = line_width(stdout) < INT_MAX ? vsnprintf(NULL, 0, format, again) : -1;
    va_end(again);
    while (n >= 0 && line.room < line.n + (size_t)n + 1) {
        const size_t room = 2 * (line.n + (size_t)n + 1);
        char *more = realloc(line.text, room);
        if (more == NULL) {
            break;
        }
        line.text = more;
        line.room = room;
    }
    if (n < 0 || line.room < line.n + (size_t)n + 1) {
        dpe_print_end();
        vprintf(format, args);
    } else {
        vsnprintf(line.text + line.n, (size_t)n + 1, format, args);
        print_line_of(line.text, line.n + (size_t)n);
    }
    va_end(args);
}

void dpe_print_labelled(void *user, const char *label, const char *words)
{
    (void)user;
    if (label == NULL) {
        dpe_print("%s\n", words);
    } else {
        dpe_print("  %-11s  %s\n", label, words);
    }
}

void dpe_print_end(void)
{
    if (line.n > 0) {
        fwrite(line.text, 1, line.n, stdout);
    }
    free(line.text);
    line.text = NULL;
    line.n = line.room = 0;
}
