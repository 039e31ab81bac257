/* The list of position methods. */
#include <string.h>

#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "eval/run/run_tool.h"

enum { NAME_COLUMNS = 16, LEAST_WIDTH = 60, MOST_WIDTH = 110 };

/* The column of the keys: the last third of the line. */
static int key_column(int width)
{
    return NAME_COLUMNS + (width - NAME_COLUMNS) * 3 / 5;
}

/* Bytes of the next line of a text that has `room` columns; breaks at a space. */
static size_t next_line(const char *text, size_t room)
{
    size_t n = strlen(text);
    if (n <= room) {
        return n;
    }
    for (n = room; n > 0 && text[n] != ' ';) {
        n--;
    }
    return n > 0 ? n : strcspn(text, " ");
}

static void print_row(const char *name, const char *about, const char *keys, int width)
{
    int column = key_column(width);
    while (*name != '\0' || *about != '\0' || *keys != '\0') {
        size_t n_about = next_line(about, (size_t)(column - NAME_COLUMNS - 2));
        size_t n_keys = next_line(keys, (size_t)(width - column));
        dpe_print("%-*s%-*.*s%.*s\n", NAME_COLUMNS, name, n_keys > 0 ? column - NAME_COLUMNS : 0,
                  (int)n_about, about, (int)n_keys, keys);
        name = "";
        about += n_about;
        about += strspn(about, " ");
        keys += n_keys;
        keys += strspn(keys, " ");
    }
}

void dpe_run_tool_methods(void)
{
    int width = dpe_terminal_width(stdout) - 1;
    width = width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
    print_row("METHOD", "WHAT IT DOES", "KEYS AND THEIR DEFAULTS", width);
    for (size_t i = 0; dpe_plan_method(i) != NULL; i++) {
        char line[1024];
        snprintf(line, sizeof line, "%s", dpe_plan_method(i));
        char *keys = strchr(line, '\t');
        *keys++ = '\0';
        char *about = strchr(keys, '\t');
        *about++ = '\0';
        dpe_print("\n");
        print_row(line, about, keys, width);
    }
    dpe_print("\nL is the evaluated length, L0 the trained length. Write other values as\n"
              "NAME:KEY=VALUE,KEY=VALUE, for example self-extend:window=1k,group=8.\n\n"
              "Every method has the keys of the attention temperature too:\n  %s\n"
              "The logits of the query at position m (0, 1, ...) are multiplied by\n"
              "logit-scale * max(1, ln(m+1) / ln(log-n))^log-n-power; log-n=0 is off. With\n"
              "log-n-decay=B ln x becomes 1 - x^-B. infoscale=N is log-n=N with power 1/2\n"
              "and decay 2/head_dim (arXiv 2501.08570). log-n and infoscale replace the\n"
              "log-n of official=1. logit-scale-first, -middle and -last (1 = none) multiply\n"
              "logit-scale by depth: a Bezier curve from the first layer to the last;\n"
              "logit-scale-heads=LAYER.HEAD:FACTOR/... multiplies it for single heads.\n\n"
              "A text of at most L0 tokens, with what may be generated, is run unchanged, as\n"
              "with a table; always=1, a key of every method, applies the method there too.\n",
              dpe_plan_temperature_keys());
}
