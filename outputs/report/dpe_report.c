/* dpe-report: result tables become one page that anybody can read, and figures as files. */
#include <string.h>

#include "engine/tool/tool.h"
#include "outputs/h5/h5.h"
#include "outputs/report/report_page.h"

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to write:", 1},
    {"output", 'o', "FILE", DPE_BASIC, "The page, one self-contained HTML file", 1,
     DPE_PATH(struct dpe_report_arguments, output)},
    {"figures", 0, "DIR", DPE_BASIC,
     "Also write each figure as ID.svg and its numbers as ID.csv; ID.png too if rsvg-convert is "
     "installed (Debian: librsvg2-bin)",
     1, DPE_PATH(struct dpe_report_arguments, figures)},
    {"no-figures", 0, NULL, 0, "Tables of numbers instead of figures", 1,
     DPE_SWITCH(struct dpe_report_arguments, no_figures)},
    {"title", 0, "TEXT", 0, "Title of the page", 1, DPE_TEXT(struct dpe_report_arguments, title)},
    {"top-k", KEY_TOP_K, "K", 0,
     "Key pairs of each head to mark in a profile: a count, or a share such as 0.75 (default: "
     "the table's, else 0.75)",
     1},
    {"runtimes", 0, "MODEL", DPE_BASIC,
     "Also show what other runtimes compute from MODEL's configuration (a folder, config.json or "
     "GGUF file), and apply of a table among the inputs",
     1, DPE_PATH(struct dpe_report_arguments, runtimes)},
    {"length", 'l', "L", 0,
     "Tokens of the text that --runtimes is about (default: the model's longest)", 1,
     DPE_TOKENS(struct dpe_report_arguments, length, 1, DPE_MOST_COUNT)},
    {"mixed-models", 0, NULL, 0, "Accept tables of different models in one report", 1,
     DPE_SWITCH(struct dpe_report_arguments, mixed)},
    {"unchecked", 0, NULL, 0,
     "Read tables without a checksum, which other programs wrote, in a child process", 1,
     DPE_SWITCH(struct dpe_report_arguments, unchecked)},
    {"force", 0, NULL, DPE_BASIC,
     "Replace FILE even if it is not a report, and existing figure files", 1,
     DPE_SWITCH(struct dpe_report_arguments, force)},
    {"quiet", 0, NULL, 0, "Only warnings and errors on stderr", 1,
     DPE_SWITCH(struct dpe_report_arguments, quiet)},
    {0},
};

/* --------------------------------------------------------------------------------- command line */

/* A share is kept negative until the number of pairs is known. */
static double parse_k(struct dpe_command_line *state, const char *text)
{
    double value = dpe_parse_top_k(state, "--top-k", text, NULL);
    return value < 1.0 ? -value : value;
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_report_arguments *args = state->input;
    switch (key) {
    case KEY_TOP_K:
        args->top_k = parse_k(state, arg);
        return 0;
    case DPE_LINE_WORD:
        if (args->n == DPE_REPORT_MOST_INPUTS) {
            dpe_line_error(state, "expected at most %d tables", DPE_REPORT_MOST_INPUTS);
        }
        args->inputs[args->n++] = arg;
        return 0;
    case DPE_LINE_END:
        if (args->n == 0 && args->runtimes == NULL) {
            dpe_line_error(state, "nothing to read: give RESULT.h5, or --runtimes MODEL");
        }
        if (args->length > 0 && args->runtimes == NULL) {
            dpe_line_error(state, "--length goes with --runtimes");
        }
        if (args->output == NULL) {
            dpe_line_error(state, "nothing to write: give -o FILE");
        }
        if (strcmp(args->output, "-") == 0) {
            dpe_line_error(state, "the page cannot go to standard output; give -o FILE");
        }
        if (args->no_figures && args->figures != NULL) {
            dpe_line_error(state, "--figures DIR and --no-figures exclude each other");
        }
        return 0;
    default:
        return DPE_LINE_UNKNOWN;
    }
}

DPE_MAIN(dpe_report)
{
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .args_doc = "[RESULT.h5...]",
        .doc =
            "Make one HTML page from result tables: detections, profiles, comparisons and "
            "ablations, in any order.\v"
            "The page is one file: it loads nothing else, has light and dark colours, and can be "
            "printed. It has a section for each kind of table that is given. Tables are only "
            "read.\n\n"
            "Exit status: 0 written; 64 usage, 65 bad table, 66 missing input, 73 cannot "
            "create, 74 rsvg-convert failed or disk full, 78 tables of different models, or "
            "FILE is not a report.\n\n"
            "Examples:\n"
            "  dpe-report detect.h5 norms.h5 compare.h5 -o report.html\n"
            "  dpe-report norms.h5 -o norms.html --figures figures\n"
            "  dpe-report --runtimes config.json --length 128k -o runtimes.html",
    };
    dpe_tool_start(&argc, &argv);
    struct dpe_report_arguments args = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    const struct dpe_tool_options talk = {.quiet = args.quiet};
    dpe_tool_configure(&talk);
    dpe_signals_install();
    struct dpe_error err = {0};
    if (args.unchecked && !dpe_h5_is_unchecked()) {
        int code = 0;
        dpe_status run = dpe_h5_unchecked_run(argv, args.inputs, args.n, &code, &err);
        int failed = dpe_tool_end(run, &err);
        return run == DPE_OK ? code : failed;
    }
    dpe_status status = dpe_report_write(&args, &err);
    if (status == DPE_OK) {
        dpe_log_info("%s is written; open it in a browser", args.output);
    }
    return dpe_tool_end(status, &err);
}
