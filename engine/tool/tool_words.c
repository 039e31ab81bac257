/* Lines that fit. */
#include "engine/tool/tool_internal.h"

#include <string.h>
#include <unistd.h>

int dpe_tool_columns(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)text[i] & 0xC0U) != 0x80U;
    }
    return count;
}

void dpe_tool_put_words(FILE *file, const char *text, size_t n, int at, int indent, int width, bool command)
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

void dpe_tool_line(FILE *file, const char *text, int at, int indent)
{
    const int width = dpe_terminal_width(file) - 1;
    const size_t n = strlen(text);
    if (isatty(fileno(file)) && at + dpe_tool_columns(text, n) > width) {
        dpe_tool_put_words(file, text, n, at, indent, width, false);
    } else {
        fputs(text, file);
    }
    fputc('\n', file);
}
