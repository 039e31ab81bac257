/* dpe-report: result tables become one page that anybody can read, and figures as files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/base.h"
#include "engine/system/folder.h"
#include "engine/tool/tool.h"
#include "outputs/h5/unchecked.h"
#include "outputs/report/comparison/report_eval.h"
#include "outputs/report/detection/report_detect.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/report/sections/sections.h"
#include "outputs/storage/durable.h"
#include "outputs/storage/storage.h"

enum option_key {
    KEY_TOP_K = DPE_KEY_PROGRAM,
};

enum { MAX_INPUTS = 256 };

/** The command line. */
struct arguments {
    const char *inputs[MAX_INPUTS];
    size_t n;
    const char *output, *figures, *title;
    double top_k;
    bool no_figures, mixed, force, quiet, unchecked, check_options;
};

static const struct dpe_option options_table[] = {
    {NULL, 0, NULL, 0, "What to write:", 1},
    {"output", 'o', "FILE", DPE_BASIC, "The page, one self-contained HTML file", 1,
     DPE_PATH(struct arguments, output)},
    {"figures", 0, "DIR", DPE_BASIC,
     "Also write each figure as ID.svg and its numbers as ID.csv; ID.png too if rsvg-convert is "
     "installed (Debian: librsvg2-bin)",
     1, DPE_PATH(struct arguments, figures)},
    {"no-figures", 0, NULL, 0, "Tables of numbers instead of figures", 1,
     DPE_SWITCH(struct arguments, no_figures)},
    {"title", 0, "TEXT", 0, "Title of the page", 1, DPE_TEXT(struct arguments, title)},
    {"top-k", KEY_TOP_K, "K", 0,
     "Key pairs of each head to mark in a profile: a count, or a share such as 0.75 (default: "
     "the table's, else 0.75)",
     1},
    {"mixed-models", 0, NULL, 0, "Accept tables of different models in one report", 1,
     DPE_SWITCH(struct arguments, mixed)},
    {"unchecked", 0, NULL, 0,
     "Read tables without a checksum, which other programs wrote, in a child process", 1,
     DPE_SWITCH(struct arguments, unchecked)},
    {"force", 0, NULL, DPE_BASIC,
     "Replace FILE even if it is not a report, and existing figure files", 1,
     DPE_SWITCH(struct arguments, force)},
    {"quiet", 0, NULL, 0, "Only warnings and errors on stderr", 1,
     DPE_SWITCH(struct arguments, quiet)},
    {"check-options", 0, NULL, DPE_HIDDEN, NULL, 1, DPE_SWITCH(struct arguments, check_options)},
    {0},
};

/* ----------------------------------------------------------------------------------- command line
 */

/* A share is kept negative until the number of pairs is known. */
static double parse_k(struct dpe_command_line *state, const char *text)
{
    double value = dpe_parse_top_k(state, "--top-k", text, NULL);
    return value < 1.0 ? -value : value;
}

static int parse_option(int key, char *arg, struct dpe_command_line *state)
{
    struct arguments *args = state->input;
    switch (key) {
    case KEY_TOP_K:
        args->top_k = parse_k(state, arg);
        return 0;
    case DPE_LINE_WORD:
        if (args->n == MAX_INPUTS) {
            dpe_line_error(state, "expected at most %d tables", MAX_INPUTS);
        }
        args->inputs[args->n++] = arg;
        return 0;
    case DPE_LINE_END:
        if (args->n == 0) {
            dpe_line_error(state, "nothing to read: give RESULT.h5");
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

/* --------------------------------------------------------------------------------- before any work
 */

/* An existing report is replaced; any other file at its path is kept. */
static dpe_status check_output(const struct arguments *args, struct dpe_error *err)
{
    struct stat info;
    char begin[1024] = "";
    dpe_status status = dpe_tool_check_folder(args->output, err);
    status = status == DPE_OK ? dpe_tool_check_new(args->output, true, err) : status;
    if (status != DPE_OK || stat(args->output, &info) != 0) {
        return status;
    }
    for (size_t i = 0; i < args->n; i++) {
        struct stat input;
        if (stat(args->inputs[i], &input) == 0 && input.st_dev == info.st_dev &&
            input.st_ino == info.st_ino) {
            return dpe_fail(err, DPE_CANNOT_CREATE,
                            "%s is an input; give another name for the "
                            "report",
                            args->output);
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
               ? DPE_OK
               : dpe_fail(
                     err, DPE_MISMATCH,
                     "%s: exists and is not a report; give another name, or --force to replace it",
                     args->output);
}

static dpe_status check_models(const struct report *report, struct dpe_error *err)
{
    const struct input *first = NULL;
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        if (input->fingerprint == NULL) {
            continue;
        }
        if (first == NULL) {
            first = input;
        } else if (strcmp(first->fingerprint, input->fingerprint) != 0) {
            return dpe_fail(
                err, DPE_MISMATCH,
                "tables of different models: %s was measured on %.12s, %s on %.12s; give "
                "tables of one model, or --mixed-models to accept them",
                first->path, first->fingerprint, input->path, input->fingerprint);
        }
    }
    return DPE_OK;
}

static dpe_status open_inputs(const struct arguments *args, struct report *report,
                              struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    report->inputs = dpe_alloc_zero(args->n, sizeof *report->inputs);
    if (report->inputs == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < args->n && status == DPE_OK; i++) {
        status = dpe_input_open(&report->inputs[i], args->inputs[i], err);
        report->n += status == DPE_OK;
    }
    if (status == DPE_OK && !args->mixed) {
        status = check_models(report, err);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------
 * content
 */

/* The last part of the folder of the model, as the first table that knows it was made with; owned. */
static char *model_title(const struct report *report, const char *type)
{
    char *title = NULL;
    for (size_t i = 0; i < report->n && title == NULL; i++) {
        struct names folders;
        if (dpe_input_read_names(&report->inputs[i], "/run/sessions/model_folder", -1, &folders,
                                 NULL) == DPE_OK &&
            folders.n > 0) {
            int n = 0;
            const char *name = dpe_folder_name(folders.names[folders.n - 1], &n);
            title = n == 0 || (n == 1 && name[0] == '.')
                        ? NULL
                        : dpe_draw_format_text("%.*s: context extension", n, name);
        }
        dpe_input_names_free(&folders);
    }
    return title != NULL ? title : dpe_draw_format_text("Context extension of a %s model", type);
}

static void name_document(const struct arguments *args, struct report *report)
{
    const char *type = NULL;
    char *found = NULL;
    int64_t parameters = 0;
    for (size_t i = 0; i < report->n && found == NULL; i++) {
        found = dpe_input_read_words(&report->inputs[i], "/model", "model_type");
        parameters = dpe_input_read_whole(&report->inputs[i], "/model", "parameters", 0);
    }
    char *type_name = found != NULL ? dpe_draw_clean_text(found, 40) : NULL;
    type = type_name != NULL ? type_name : "language";
    report->document.title = args->title != NULL
                                 ? dpe_draw_clean_text(args->title, 0)
                                 : model_title(report, type);
    char now[32];
    dpe_time_text(now);
    const char *model = "unknown";
    for (size_t i = 0; i < report->n; i++) {
        if (report->inputs[i].fingerprint != NULL) {
            model = report->inputs[i].fingerprint;
            break;
        }
    }
    char size[64] = "";
    if (parameters > 0) {
        bool billions = parameters >= 1000000000;
        snprintf(size, sizeof size, "%.3g %s parameters, ",
                 (double)parameters / (billions ? 1e9 : 1e6), billions ? "billion" : "million");
    }
    report->document.subtitle =
        dpe_draw_format_text("%s, %smodel fingerprint %.12s, %zu table%s, written %.10s", type,
                             size, model, report->n, report->n == 1 ? "" : "s", now);
    free(found);
    free(type_name);
}

static dpe_status compose(const struct arguments *args, struct report *report,
                          struct dpe_error *err)
{
    dpe_status (*const sections[])(struct report *, struct dpe_error *) = {
        dpe_comparison_headline,  dpe_detection_answers,  dpe_comparison_glances,
        dpe_comparison_sections,  dpe_comparison_tunings, dpe_detection_sections,
        dpe_comparison_ablations, dpe_comparison_grids,   dpe_sections_norms,
        dpe_sections_tables,      dpe_sections_time,      dpe_sections_provenance};
    dpe_status status = DPE_OK;
    name_document(args, report);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0] && status == DPE_OK; i++) {
        status = sections[i](report, err);
    }
    struct document *document = &report->document;
    bool failed = document->failed || document->title == NULL || document->subtitle == NULL;
    return status == DPE_OK && failed ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for the report")
                                      : status;
}

/* Without figures the page shows the tables of their numbers. */
static void drop_figures(struct document *document)
{
    for (size_t i = 0; i < document->n; i++) {
        if (document->blocks[i].figure != NULL) {
            dpe_text_free(&document->blocks[i].figure->body.text);
        }
    }
}

/* ------------------------------------------------------------------------------------------
 * writing
 */

static dpe_status write_file(const struct arguments *args, const char *name, const char *ending,
                             const struct writer *content, struct dpe_error *err)
{
    char *path =
        content->failed ? NULL : dpe_draw_format_text("%s/%s%s", args->figures, name, ending);
    dpe_status status =
        path == NULL
            ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for %s%s", name, ending)
            : dpe_extend_file(path, content->text.bytes, content->text.n, args->force, err);
    free(path);
    return status;
}

/* *png: whether PNG files are written; false from the first figure on that finds no converter. */
static dpe_status write_figure(const struct arguments *args, const struct figure *figure, bool *png,
                               struct dpe_error *err)
{
    struct writer svg = {0};
    struct writer image = {0};
    dpe_draw_put_svg(&svg, figure, true);
    dpe_status status = write_file(args, figure->id, ".svg", &svg, err);
    if (status != DPE_OK || !*png) {
        goto done;
    }
    status = dpe_draw_figure_png(figure, &image.text, err);
    if (status == DPE_NO_INPUT) {
        dpe_log_warning("figures are written as SVG only: rsvg-convert is not installed; for PNG "
                        "install it (Debian: librsvg2-bin)");
        *png = false;
        status = DPE_OK;
    } else if (status == DPE_OK) {
        status = write_file(args, figure->id, ".png", &image, err);
    }
done:
    dpe_text_free(&svg.text);
    dpe_text_free(&image.text);
    return status;
}

static dpe_status write_sheet(const struct arguments *args, const struct sheet *sheet,
                              struct dpe_error *err)
{
    struct writer csv = {0};
    dpe_draw_sheet_csv(sheet, &csv);
    dpe_status status = write_file(args, sheet->id, ".csv", &csv, err);
    dpe_text_free(&csv.text);
    return status;
}

static dpe_status write_figures(const struct arguments *args, const struct document *document,
                                struct dpe_error *err)
{
    if (args->figures == NULL) {
        return DPE_OK;
    }
    if (mkdir(args->figures, 0777) != 0 && errno != EEXIST) {
        return dpe_fail_errno(err, errno, args->figures, "cannot be made");
    }
    dpe_status status = DPE_OK;
    bool png = true;
    for (size_t i = 0; i < document->n && status == DPE_OK; i++) {
        const struct block *block = &document->blocks[i];
        if (block->figure != NULL) {
            status = write_figure(args, block->figure, &png, err);
        }
        const struct sheet *sheet = block->figure != NULL ? block->figure->numbers : block->sheet;
        if (status == DPE_OK && sheet != NULL) {
            status = write_sheet(args, sheet, err);
        }
    }
    return status;
}

static dpe_status write_page(const struct arguments *args, const struct document *document,
                             struct dpe_error *err)
{
    struct writer page = {0};
    dpe_draw_document_html(document, &page);
    dpe_status status = page.failed
                            ? dpe_fail(err, DPE_NO_MEMORY, "out of memory for the page")
                            : dpe_write_atomic(args->output, page.text.bytes, page.text.n, err);
    dpe_text_free(&page.text);
    return status;
}

static dpe_status work(const struct arguments *args, struct report *report, struct dpe_error *err)
{
    dpe_status status = check_output(args, err);
    if (status == DPE_OK) {
        status = open_inputs(args, report, err);
    }
    if (status == DPE_OK) {
        status = compose(args, report, err);
    }
    /* A section is missing when its dataset is not there, not when HDF5 could not tell. */
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        status = dpe_h5_answered(report->inputs[i].table, err);
    }
    if (args->no_figures) {
        drop_figures(&report->document);
    }
    if (status == DPE_OK) {
        status = write_figures(args, &report->document, err);
    }
    return status == DPE_OK ? write_page(args, &report->document, err) : status;
}

int main(int argc, char **argv)
{
    static const struct dpe_option_set options = {
        .options = options_table,
        .parser = parse_option,
        .args_doc = "RESULT.h5...",
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
            "  dpe-report norms.h5 -o norms.html --figures figures",
    };
    dpe_tool_start(&argc, &argv);
    struct arguments args = {0};
    dpe_tool_parse(&options, argc, argv, 0, &args);
    const struct dpe_tool_options talk = {.quiet = args.quiet, .check_options = args.check_options};
    dpe_tool_configure(&talk);
    dpe_signals_install();
    struct report report = {.top_k = args.top_k};
    struct dpe_error err = {0};
    if (args.unchecked && !dpe_h5_is_unchecked()) {
        int code = 0;
        dpe_status run = dpe_h5_unchecked_run(argv, args.inputs, args.n, &code, &err);
        int failed = dpe_tool_end(run, &err);
        return run == DPE_OK ? code : failed;
    }
    dpe_status status = work(&args, &report, &err);
    if (status == DPE_OK) {
        dpe_log_info("%s is written; open it in a browser", args.output);
    }
    for (size_t i = 0; i < report.n; i++) {
        dpe_input_close(&report.inputs[i]);
    }
    free(report.inputs);
    dpe_draw_document_free(&report.document);
    return dpe_tool_end(status, &err);
}
