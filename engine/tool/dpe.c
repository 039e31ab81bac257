/* dpe: which tools there are, and the start of one by its name: dpe eval … is dpe-eval …. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/system/platform.h"
#include "engine/tool/tool.h"

static const struct {
    const char *name, *does;
} tools[] = {
    {"ask", "a question about a document that is longer than the trained length"},
    {"run", "what a model is; generates, chats, shows what a table does to a long text"},
    {"calibrate", "everything for a model and a length: table, check and report"},
    {"detect", "the plan for a length, in minutes; --select paper: the sweep of groups"},
    {"norms", "the key pairs of each head"},
    {"export", "joins both into one table; writes it for other runtimes"},
    {"eval", "position methods on the same samples: needles, perplexity, benchmarks"},
    {"report", "result tables as one page"},
    {"serve", "a server with a table or method, in the form of OpenAI's API"},
    {"bench", "what a model's shape costs on this machine"},
};
enum { N_TOOLS = sizeof tools / sizeof tools[0] };

/* Puts "FOLDER OF dpe/dpe-NAME" into `path`. */
static bool tool_path(const char *name, char *path, size_t size)
{
    const size_t folder = dpe_program_folder(path, size) ? strlen(path) : size;
    return snprintf(path + folder, size - folder, "dpe-%s", name) < (int)(size - folder);
}

static const char *list_tools(int key, const char *text, const void *input, char *room, size_t size)
{
    char path[PATH_MAX + 1];
    (void)input;
    if (key != DPE_LINE_AFTER) {
        return text;
    }
    snprintf(room, size, "Tools:");
    for (int i = 0; i < N_TOOLS; i++) {
        /* a build may lack dpe-serve */
        if (tool_path(tools[i].name, path, sizeof path) && access(path, X_OK) == 0) {
            dpe_append(room, size, "\n  %-10s  %s", tools[i].name, tools[i].does);
        }
    }
    dpe_append(room, size, "\n\nExample:\n  dpe run -m data/reference --info");
    return room;
}

/* Takes the place of this process; returns only with an error. */
static void start(struct dpe_command_line *state, const char *name, char **argv)
{
    char path[PATH_MAX + 1];
    char names[256] = "";
    char meant[96];
    for (int i = 0; i < N_TOOLS; i++) {
        dpe_append(names, sizeof names, "%s%s", i > 0 ? ", " : "", tools[i].name);
        if (strcmp(tools[i].name, name) == 0 && tool_path(name, path, sizeof path)) {
            argv[0] = path;
            execv(path, argv);
            char why[2 * PATH_MAX];
            snprintf(why, sizeof why, "%s: cannot be started: %s", path, strerror(errno));
            dpe_line_failure(state, DPE_NO_INPUT, why);
        }
    }
    dpe_line_error(state, "unknown tool '%.80s'; tools: %s%s", name, names,
                   dpe_suggest(name, names, meant));
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    switch (key) {
    case DPE_LINE_WORD:
        start(state, strncmp(arg, "dpe-", 4) == 0 ? arg + 4 : arg, state->argv + state->next - 1);
        return 0;
    case DPE_LINE_NO_WORD:
        dpe_line_error(state, "a tool is missing, as in dpe run -m MODEL --info");
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe)
{
    static const struct dpe_option_set options = {
        .parser = parse_option,
        .args_doc = "TOOL [OPTION...]",
        .doc = "Run a RoPE language model far past its trained length. Starts a tool: dpe run is "
               "dpe-run.\v",
        .about = list_tools};
    char help[] = "--help";
    char *alone[] = {argv[0], help, NULL};
    if (argc == 1) { /* the list is what was asked for */
        argc = 2;
        argv = alone;
    }
    /* Options behind the tool's name are the tool's. */
    dpe_tool_start(argv);
    dpe_tool_parse(&options, argc, argv, DPE_LINE_IN_ORDER, NULL);
    return 0;
}
