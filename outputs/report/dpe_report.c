/* dpe-report: result tables become one page that anybody can read, and figures as files. The page:
 * its inputs, its sections, its files. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "engine/base/base.h"
#include "engine/system/folder.h"
#include "engine/tool/tool.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/page/page.h"
#include "outputs/report/report_page.h"
#include "outputs/report/report_parts.h"
#include "outputs/storage/storage.h"

/* ------------------------------------------------------------------------------ before any work */

/* A page under the name of another kind of file misleads programs, and whoever opens it. */
static dpe_status check_ending(const char *path, struct dpe_error *err)
{
    const char *end = strrchr(dpe_last_part(path), '.');
    return end == NULL || strcasecmp(end, ".html") == 0 || strcasecmp(end, ".htm") == 0
               ? DPE_OK
               : dpe_fail(
                     err, DPE_USAGE,
                     "-o: expected a name that ends in .html, found '%s'; --figures DIR writes "
                     "the numbers as CSV",
                     path);
}

/* An existing report is replaced; any other file at its path is kept. */
static dpe_status check_output(const struct dpe_report_arguments *args, struct dpe_error *err)
{
    struct stat info;
    char begin[1024] = "";
    DPE_TRY(dpe_tool_check_folder(args->output, err));
    DPE_TRY(dpe_tool_check_new(args->output, true, err));
    if (stat(args->output, &info) != 0) {
        return check_ending(args->output, err);
    }
    for (size_t i = 0; i < args->n + (args->runtimes != NULL); i++) {
        struct stat input;
        if (stat(i < args->n ? args->inputs[i] : args->runtimes, &input) == 0 &&
            input.st_dev == info.st_dev && input.st_ino == info.st_ino) {
            return dpe_fail(err, DPE_CANNOT_CREATE,
                            "%s is an input; give another name for the report", args->output);
        }
    }
    FILE *file = fopen(args->output, "rb");
    size_t n = file != NULL ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    begin[n] = '\0';
    bool ours = strstr(begin, "content=\"dpe-report\"") != NULL;
    return ours || args->force || info.st_size == 0
               ? check_ending(args->output, err)
               : dpe_fail(
                     err, DPE_MISMATCH,
                     "%s: exists and is not a report; give another name, or --force to replace it",
                     args->output);
}

static void check_models(struct dpe_report *report)
{
    const struct dpe_report_input *first = NULL;
    for (const struct dpe_report_input *input = report->inputs; input < report->inputs + report->n;
         input++) {
        first = first == NULL && input->fingerprint != NULL ? input : first;
        if (input->fingerprint != NULL && strcmp(first->fingerprint, input->fingerprint) != 0) {
            dpe_report_ok(
                report,
                dpe_fail(report->err, DPE_MISMATCH,
                         "tables of different models: %s was measured on %.12s, %s on %.12s; give "
                         "tables of one model, or --mixed-models to accept them",
                         first->path, first->fingerprint, input->path, input->fingerprint));
            return;
        }
    }
}

/* A signal, too, ends what comes next. */
static bool goes_on(struct dpe_report *report)
{
    return report->status == DPE_OK && dpe_report_ok(report, dpe_signals_poll(NULL, report->err));
}

/* All tables of a folder, in the order of their names. */
static void open_folder(const char *folder, struct dpe_report *report)
{
    struct dirent **names = NULL;
    const int n = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *end = strrchr(names[i]->d_name, '.');
        const char *path = dpe_page_text(&report->page, "%s/%s", folder, names[i]->d_name);
        if (end != NULL && strcmp(end, ".h5") == 0 && report->n < DPE_REPORT_MOST_INPUTS &&
            goes_on(report)) {
            dpe_input_open(report, path);
        }
        free(names[i]);
    }
    free(names);
}

static void open_inputs(const struct dpe_report_arguments *args, struct dpe_report *report)
{
    report->inputs = dpe_page_alloc(&report->page, DPE_REPORT_MOST_INPUTS, sizeof *report->inputs);
    for (size_t i = 0; i < args->n && goes_on(report); i++) {
        if (dpe_is_folder(args->inputs[i])) {
            open_folder(args->inputs[i], report);
        } else if (report->n < DPE_REPORT_MOST_INPUTS) {
            dpe_input_open(report, args->inputs[i]);
        }
    }
    if (report->status == DPE_OK && report->n == 0 && args->runtimes == NULL) {
        dpe_report_ok(report, dpe_fail(report->err, DPE_NO_INPUT,
                                       "%s: holds no result table (NAME.h5)", args->inputs[0]));
    }
    if (report->status == DPE_OK && !args->mixed) {
        check_models(report);
    }
}

/* -------------------------------------------------------------------------------------- content */

static char *model_title(struct dpe_report *report, const char *type)
{
    if (report->n == 0) {
        return dpe_draw_format_text("What runtimes compute");
    }
    int n = 0;
    const char *folder = dpe_report_model(report, NULL);
    if (folder != NULL) {
        const char *name = dpe_folder_name(folder, &n);
        return dpe_draw_format_text("%.*s: context extension", n, name);
    }
    return dpe_draw_format_text("Context extension of a %s model", type);
}

static void name_document(const struct dpe_report_arguments *args, struct dpe_report *report)
{
    const char *type = NULL, *model = NULL;
    int64_t parameters = 0;
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (type == NULL) {
            type = dpe_page_clean(&report->page,
                                  dpe_input_words(report, input, "/model", "model_type"), 40);
            parameters = dpe_input_read_whole(input, "/model", "parameters", 0);
        }
        model = model == NULL ? input->fingerprint : model;
    }
    type = type != NULL ? type : "language";
    struct dpe_page *page = &report->page;
    page->title =
        args->title != NULL ? dpe_draw_clean_text(args->title, 0) : model_title(report, type);
    char now[32], size[64] = "";
    dpe_time_text(now);
    if (parameters > 0) {
        bool billions = parameters >= 1000000000;
        snprintf(size, sizeof size, "%.3g %s parameters, ",
                 (double)parameters / (billions ? 1e9 : 1e6), billions ? "billion" : "million");
    }
    page->subtitle =
        report->n == 0
            ? dpe_draw_format_text("written %.10s", now)
            : dpe_draw_format_text("%s, %smodel fingerprint %.12s, %zu table%s, written %.10s",
                                   type, size, model != NULL ? model : "unknown", report->n,
                                   report->n == 1 ? "" : "s", now);
}

static void compose(const struct dpe_report_arguments *args, struct dpe_report *report)
{
    static const struct dpe_section sections[] = {
        {dpe_comparison_headline},
        {dpe_detection_result, DETECTION},
        {dpe_comparison_glance, "/method", "/ablate"},
        {dpe_comparison_section, "/method", "/ablate"},
        {dpe_sections_tune, "/tune/method"},
        {dpe_detection_section, DETECTION},
        {dpe_comparison_ablations},
        {dpe_sections_grid, "/eval/niah_grid/mean"},
        {dpe_sections_kld, "/kld/method"},
        {dpe_sections_norms, "/norms/mean"},
        {dpe_sections_tables},
        {dpe_sections_runtimes},
        {dpe_sections_time},
        {dpe_sections_provenance},
    };
    name_document(args, report);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && goes_on(report); i++) {
        dpe_report_write_section(report, &sections[i]);
    }
    /* A section is missing when its dataset is not there, not when HDF5 could not tell. */
    for (size_t i = 0; i < report->n && report->status == DPE_OK; i++) {
        dpe_report_ok(report, dpe_h5_answered(report->inputs[i].table, report->err));
    }
}

/* -------------------------------------------------------------------------------------- writing */

static dpe_status write_file(const struct dpe_report_arguments *args, const char *name,
                             const char *ending, const struct dpe_text *content,
                             struct dpe_error *err)
{
    DPE_OWNED char *path = dpe_draw_format_text("%s/%s%s", args->figures, name, ending);
    DPE_TRY(dpe_text_done(content, err));
    return dpe_extend_file(path, content->bytes, content->n, args->force, err);
}

/* *png: whether PNG files are written; false from the first figure on that finds no converter. */
static dpe_status write_figure(const struct dpe_report_arguments *args,
                               const struct dpe_block *figure, bool *png, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text svg = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text image = {0};
    dpe_draw_put_svg(&svg, figure, true);
    DPE_TRY(write_file(args, figure->sheet->id, ".svg", &svg, err));
    if (!*png) {
        return DPE_OK;
    }
    const dpe_status status = dpe_draw_figure_png(figure, &image, err);
    if (status == DPE_NO_INPUT) {
        dpe_log_warning("figures are written as SVG only: rsvg-convert is not installed; for PNG "
                        "install it (Debian: librsvg2-bin)");
        *png = false;
        return DPE_OK;
    }
    DPE_TRY(status);
    return write_file(args, figure->sheet->id, ".png", &image, err);
}

static dpe_status write_sheet(const struct dpe_report_arguments *args,
                              const struct dpe_sheet *sheet, struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text csv = {0};
    dpe_draw_sheet_csv(sheet, &csv);
    return write_file(args, sheet->id, ".csv", &csv, err);
}

static dpe_status write_figures(const struct dpe_report_arguments *args,
                                const struct dpe_page *page, struct dpe_error *err)
{
    if (args->figures == NULL) {
        return DPE_OK;
    }
    bool png = true;
    DPE_TRY(dpe_make_folder(args->figures, err));
    for (size_t i = 0; i < page->n; i++) {
        const struct dpe_block *block = &page->blocks[i];
        if (block->kind == BLOCK_FIGURE) {
            DPE_TRY(write_figure(args, block, &png, err));
        }
        if (block->sheet != NULL) {
            DPE_TRY(write_sheet(args, block->sheet, err));
        }
    }
    return DPE_OK;
}

static dpe_status write_page(const struct dpe_report_arguments *args, const struct dpe_page *page,
                             struct dpe_error *err)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text html = {0};
    dpe_page_html(page, &html);
    DPE_TRY(dpe_text_done(&html, err));
    return dpe_write_atomic(args->output, html.bytes, html.n, err);
}

dpe_status dpe_report_write(const struct dpe_report_arguments *args, struct dpe_error *err)
{
    DPE_SCOPED(dpe_report_free)
    struct dpe_report report = {
        .top_k = args->top_k, .runtimes = args->runtimes, .length = args->length, .err = err};
    DPE_TRY(check_output(args, err));
    open_inputs(args, &report);
    DPE_TRY(report.status);
    compose(args, &report);
    DPE_TRY(report.status);
    /* Without figures the page shows the tables of their numbers. */
    for (size_t i = 0; i < report.page.n && args->no_figures; i++) {
        dpe_text_free(&report.page.blocks[i].figure.body);
    }
    DPE_TRY(write_figures(args, &report.page, err));
    return write_page(args, &report.page, err);
}

/* ------------------------------------------------------------------------------------- the tool */

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

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct dpe_report_arguments *args = state->input;
    switch (key) {
    case KEY_TOP_K:
        /* A share is kept negative until the number of pairs is known. */
        args->top_k = dpe_parse_top_k(state, "--top-k", arg, NULL);
        args->top_k *= args->top_k < 1.0 ? -1.0 : 1.0;
        return 0;
    case DPE_LINE_WORD:
        if (args->n == DPE_REPORT_MOST_INPUTS) {
            dpe_line_error(state, "expected at most %d tables", DPE_REPORT_MOST_INPUTS);
        }
        args->inputs[args->n++] = arg;
        return 0;
    case DPE_LINE_END:
        if (args->n == 0 && args->runtimes == NULL) {
            dpe_line_error(state, "nothing to read: give RESULT.h5 or FOLDER, or --runtimes MODEL");
        }
        if (args->length > 0 && args->runtimes == NULL) {
            dpe_line_error(state, "--length goes with --runtimes");
        }
        if (args->output == NULL && args->n == 1 && dpe_is_folder(args->inputs[0])) {
            static char inside[4096];
            snprintf(inside, sizeof inside, "%s/report.html", args->inputs[0]);
            args->output = inside;
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
        .args_doc = "[RESULT.h5|FOLDER...]",
        .doc =
            "Make one HTML page from result tables: detections, profiles, comparisons and "
            "ablations, in any order.\v"
            "The page is one file: it loads nothing else, has light and dark colours, and can be "
            "printed. It has a section for each kind of table that is given; of a FOLDER that is "
            "every NAME.h5 in it, and the page is FOLDER/report.html unless -o names another. "
            "Tables are only read.\n\n"
            "Exit status: 0 written; 64 usage, 65 bad table, 66 missing input, 73 cannot "
            "create, 74 rsvg-convert failed or disk full, 78 tables of different models, or "
            "FILE is not a report.\n\n"
            "Examples:\n"
            "  dpe-report calibrated\n"
            "  dpe-report detect.h5 norms.h5 compare.h5 -o report.html\n"
            "  dpe-report norms.h5 -o norms.html --figures figures\n"
            "  dpe-report --runtimes config.json --length 128k -o runtimes.html",
    };
    dpe_tool_start(argv);
    struct dpe_report_arguments args = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    const struct dpe_tool_options talk = {.quiet = args.quiet};
    dpe_tool_configure(&talk);
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
