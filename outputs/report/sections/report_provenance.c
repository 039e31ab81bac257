/* Where the numbers come from: files, identities, models, commands, versions. */
#include "outputs/report/sections/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_files(struct report *report)
{
    struct sheet *sheet = dpe_report_sheet(
        report, "files", "file:t|made by:t|complete:t|rows:0|software:t|written:t|identity:t",
        "Files");
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        char *version = dpe_input_read_words(input, "/", "software_version");
        char *git = dpe_input_read_words(input, "/", "git");
        char *written = dpe_input_read_words(input, "/run", "modified");
        char *identity = dpe_input_read_words(input, "/", "identity");
        char *software = dpe_draw_format_text("dpe %s%s%s", version != NULL ? version : "?",
                                              git != NULL && git[0] != '\0' ? ", git " : "",
                                              git != NULL ? git : "");
        const bool complete = dpe_input_read_whole(input, "/", "complete", 0) != 0;
        dpe_draw_row(sheet, input->name, input->kind, complete ? "yes" : "no, unfinished",
                     (double)dpe_input_read_whole(input, "/", "n_rows", 0), software,
                     written != NULL ? written : "–", identity != NULL ? identity : "–");
        free(version);
        free(git);
        free(written);
        free(identity);
        free(software);
    }
    dpe_report_add(report, sheet);
}

/* Fields that decide a result, one table for all files: equal values stand once. */
static void add_identities(struct report *report)
{
    struct sheet *sheet =
        dpe_report_sheet(report, "identity", "field:t|value:t|files:t", "Fields of the identity");
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_identity *own = &report->inputs[i].identity;
        for (size_t f = 0; f < own->n; f++) {
            struct dpe_text files = {0};
            bool first = true;
            for (size_t k = 0; k < report->n; k++) {
                const char *value =
                    dpe_identity_get(&report->inputs[k].identity, own->fields[f].name);
                if (value == NULL || strcmp(value, own->fields[f].value) != 0) {
                    continue;
                }
                first = first && k >= i;
                dpe_text_put(&files, "%s%s", files.n > 0 ? ", " : "", report->inputs[k].name);
            }
            if (first) {
                dpe_draw_row(sheet, own->fields[f].name, own->fields[f].value, files.bytes);
            }
            report->document.failed = report->document.failed || files.failed;
            dpe_text_free(&files);
        }
    }
    dpe_report_add(report, sheet);
}

/* The processes of a run: their commands and machines. */
static dpe_status add_sessions_of(const struct input *input, struct sheet *sheet,
                                  struct dpe_error *err)
{
    static const char *const fields[] = {
        "started", "command", "software", "device",       "gpu", "driver",   "kernels",
        "cpu",     "threads", "cores",    "memory_bytes", "os",  "compiler", "hdf5"};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    char **values[FIELDS] = {0};
    size_t n[FIELDS] = {0};
    dpe_status status = DPE_OK;
    for (int f = 0; f < FIELDS && status == DPE_OK; f++) {
        char path[64];
        snprintf(path, sizeof path, "/run/sessions/%s", fields[f]);
        if (dpe_h5_has(input->table, path)) {
            status = dpe_h5_get_strings(input->table, path, &values[f], &n[f], err);
        }
    }
    for (size_t s = 0; s < n[0] && status == DPE_OK; s++) {
        struct dpe_text machine = {0};
        for (int f = 2; f < FIELDS; f++) {
            const char *value = s < n[f] ? values[f][s] : "";
            if (value[0] != '\0' && strcmp(value, "0") != 0) {
                dpe_text_put(&machine, "%s%s: %s", machine.n > 0 ? "; " : "", fields[f], value);
            }
        }
        dpe_draw_row(sheet, input->name, values[0][s], s < n[1] ? values[1][s] : "", machine.bytes);
        dpe_text_free(&machine);
    }
    for (int f = 0; f < FIELDS; f++) {
        dpe_strings_free(values[f], n[f]);
    }
    return status;
}

dpe_status dpe_sections_provenance(struct report *report, struct dpe_error *err)
{
    if (report->n == 0) {
        return DPE_OK;
    }
    dpe_report_section(report, "Origin of the numbers");
    dpe_report_say(
        report, BLOCK_TEXT,
        "The identity of a result is all that decides its numbers: model, tokenizer, corpus, "
        "task and seed, among others. Equal identities give equal numbers, bit for bit. Times "
        "and machines, which may differ between such runs, are listed separately. A share in "
        "which all samples agree has a Wilson score interval, because a bootstrap interval "
        "would have no width.");
    struct sheet *sheet = dpe_report_sheet(
        report, "sessions", "file:t|started:t|command:t|ran on:t", "Commands and machines");
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        status = add_sessions_of(&report->inputs[i], sheet, err);
    }
    dpe_report_add(report, sheet);
    add_files(report);
    add_identities(report);
    return status;
}
