/* Where the numbers come from: files, identities, models, commands, versions. */
#include "outputs/report/sections/sections.h"

#include <stdio.h>
#include <string.h>

static const char *or_else(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

static void add_files(struct dpe_report *report)
{
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, "files", "file:t|made by:t|complete:t|rows:0|software:t|written:t|identity:t",
        "Files");
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        const char *git = or_else(dpe_input_words(report, input, "/", "git"), "");
        const char *version = dpe_input_words(report, input, "/", "software_version");
        const bool complete = dpe_input_read_whole(input, "/", "complete", 0) != 0;
        dpe_draw_row(sheet, input->name, input->kind, complete ? "yes" : "no, unfinished",
                     dpe_input_read_whole(input, "/", "n_rows", 0),
                     dpe_report_text(report, "dpe %s%s%s", or_else(version, "?"),
                                     git[0] != '\0' ? ", git " : "", git),
                     or_else(dpe_input_words(report, input, "/run", "modified"), "–"),
                     or_else(dpe_input_words(report, input, "/", "identity"), "–"));
    }
    dpe_report_add(report, sheet);
}

/* Names of the files with a value of a field; "" where a file before `first` has it. */
static const char *files_with(struct dpe_report *report, size_t first, const char *field,
                              const char *value)
{
    const char *files = "";
    for (size_t i = 0; i < report->n; i++) {
        const char *own = dpe_identity_get(&report->inputs[i].identity, field);
        if (own != NULL && strcmp(own, value) == 0 && i < first) {
            return "";
        }
        if (own != NULL && strcmp(own, value) == 0) {
            files = dpe_report_text(report, "%s%s%s", files, i > first ? ", " : "",
                                    report->inputs[i].name);
        }
    }
    return files;
}

/* Fields that decide a result, one table for all files: equal values stand once. */
static void add_identities(struct dpe_report *report)
{
    struct dpe_sheet *sheet =
        dpe_report_sheet(report, "identity", "field:t|value:t|files:t", "Fields of the identity");
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_identity *own = &report->inputs[i].identity;
        for (size_t f = 0; f < own->n && report->status == DPE_OK; f++) {
            const char *files = files_with(report, i, own->fields[f].name, own->fields[f].value);
            if (files != NULL && files[0] != '\0') {
                dpe_draw_row(sheet, own->fields[f].name, own->fields[f].value, files);
            }
        }
    }
    dpe_report_add(report, sheet);
}

/* The processes of a run: their commands and machines. */
static void add_sessions_of(struct dpe_report *report, const struct dpe_report_input *input,
                            struct dpe_sheet *sheet)
{
    static const char *const fields[] = {"started",      "command", "software", "device",  "gpu",
                                         "driver",       "kernels", "cpu",      "threads", "cores",
                                         "memory_bytes", "os",      "compiler", "hdf5"};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    char **values[FIELDS] = {0};
    size_t n[FIELDS] = {0};
    for (int f = 0; f < FIELDS; f++) {
        char path[64];
        snprintf(path, sizeof path, "/run/sessions/%s", fields[f]);
        values[f] = dpe_input_names(report, input, path, -1, &n[f]);
    }
    for (size_t s = 0; s < n[0]; s++) {
        const char *machine = "";
        for (int f = 2; f < FIELDS && machine != NULL; f++) {
            const char *value = s < n[f] ? values[f][s] : "";
            if (value[0] != '\0' && strcmp(value, "0") != 0) {
                machine = dpe_report_text(report, "%s%s%s: %s", machine,
                                          machine[0] != '\0' ? "; " : "", fields[f], value);
            }
        }
        dpe_draw_row(sheet, input->name, values[0][s], s < n[1] ? values[1][s] : "", machine);
    }
}

void dpe_sections_provenance(struct dpe_report *report)
{
    if (report->n == 0) {
        return;
    }
    dpe_report_section(report, "Origin of the numbers");
    dpe_report_say(
        report, BLOCK_TEXT,
        "The identity of a result is all that decides its numbers: model, tokenizer, corpus, "
        "task and seed, among others. Equal identities give equal numbers, bit for bit. Times "
        "and machines, which may differ between such runs, are listed separately. A share in "
        "which all samples agree has a Wilson score interval, because a bootstrap interval "
        "would have no width.");
    struct dpe_sheet *sheet = dpe_report_sheet(
        report, "sessions", "file:t|started:t|command:t|ran on:t", "Commands and machines");
    for (size_t i = 0; i < report->n; i++) {
        add_sessions_of(report, &report->inputs[i], sheet);
    }
    dpe_report_add(report, sheet);
    add_files(report);
    add_identities(report);
}
