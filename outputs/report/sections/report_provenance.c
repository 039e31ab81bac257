/* Where the numbers come from: files, identities, models, commands, versions. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/report/sections/sections.h"
#include "outputs/rows/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_files(struct report *report)
{
    struct sheet *sheet = dpe_draw_sheet_new("files", "Files");
    dpe_draw_sheet_column(sheet, "file", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "made by", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "complete", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "rows", COLUMN_NUMBER, 0);
    dpe_draw_sheet_column(sheet, "software", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "written", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "identity", COLUMN_TEXT, 0);
    for (size_t i = 0; i < report->n; i++) {
        const struct input *input = &report->inputs[i];
        char *version = dpe_input_read_words(input, "/", "software_version");
        char *git = dpe_input_read_words(input, "/", "git");
        char *written = dpe_input_read_words(input, "/run", "modified");
        char *identity = dpe_input_read_words(input, "/", "identity");
        char *software = dpe_draw_format_text("dpe %s%s%s", version != NULL ? version : "?",
                                              git != NULL && git[0] != '\0' ? ", git " : "",
                                              git != NULL ? git : "");
        dpe_draw_sheet_text(sheet, input->name);
        dpe_draw_sheet_text(sheet, input->kind);
        dpe_draw_sheet_text(
            sheet, dpe_input_read_whole(input, "/", "complete", 0) != 0 ? "yes" : "no, unfinished");
        dpe_draw_sheet_number(sheet, (double)dpe_input_read_whole(input, "/", "n_rows", 0));
        dpe_draw_sheet_text(sheet, software != NULL ? software : "");
        dpe_draw_sheet_text(sheet, written != NULL ? written : "–");
        dpe_draw_sheet_text(sheet, identity != NULL ? identity : "–");
        free(version);
        free(git);
        free(written);
        free(identity);
        free(software);
    }
    dpe_draw_add_sheet(&report->document, sheet);
}

/* Fields that decide a result, one table for all files: equal values stand once. */
static void add_identities(struct report *report)
{
    struct sheet *sheet = dpe_draw_sheet_new("identity", "Fields of the identity");
    dpe_draw_sheet_column(sheet, "field", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "value", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "files", COLUMN_TEXT, 0);
    for (size_t i = 0; i < report->n; i++) {
        const struct dpe_identity *own = &report->inputs[i].identity;
        for (size_t f = 0; f < own->n; f++) {
            struct writer files = {0};
            bool first = true;
            for (size_t k = 0; k < report->n; k++) {
                const char *value =
                    dpe_identity_get(&report->inputs[k].identity, own->fields[f].name);
                if (value == NULL || strcmp(value, own->fields[f].value) != 0) {
                    continue;
                }
                first = first && k >= i;
                dpe_draw_put(&files, "%s%s", files.text.n > 0 ? ", " : "", report->inputs[k].name);
            }
            if (first) {
                dpe_draw_sheet_text(sheet, own->fields[f].name);
                dpe_draw_sheet_text(sheet, own->fields[f].value);
                dpe_draw_sheet_text(sheet, files.text.bytes != NULL ? files.text.bytes : "");
            }
            report->document.failed = report->document.failed || files.failed;
            dpe_text_free(&files.text);
        }
    }
    dpe_draw_add_sheet(&report->document, sheet);
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
        struct writer machine = {0};
        for (int f = 2; f < FIELDS; f++) {
            const char *value = s < n[f] ? values[f][s] : "";
            if (value[0] != '\0' && strcmp(value, "0") != 0) {
                dpe_draw_put(&machine, "%s%s: %s", machine.text.n > 0 ? "; " : "", fields[f],
                             value);
            }
        }
        dpe_draw_sheet_text(sheet, input->name);
        dpe_draw_sheet_text(sheet, values[0][s]);
        dpe_draw_sheet_text(sheet, s < n[1] ? values[1][s] : "");
        dpe_draw_sheet_text(sheet, machine.text.bytes != NULL ? machine.text.bytes : "");
        dpe_text_free(&machine.text);
    }
    for (int f = 0; f < FIELDS; f++) {
        dpe_strings_free(values[f], n[f]);
    }
    return status;
}

dpe_status dpe_sections_provenance(struct report *report, struct dpe_error *err)
{
    dpe_draw_add_text(&report->document, BLOCK_SECTION, dpe_draw_format_text("Origin of the numbers"));
    dpe_draw_add_text(
        &report->document, BLOCK_TEXT,
        dpe_draw_format_text(
            "The identity of a result is all that decides its numbers: model, tokenizer, corpus, "
            "task and seed, among others. Equal identities give equal numbers, bit for bit. Times "
            "and machines, which may differ between such runs, are listed separately. A share in "
            "which all samples agree has a Wilson score interval, because a bootstrap interval "
            "would have no width."));
    struct sheet *sheet = dpe_draw_sheet_new("sessions", "Commands and machines");
    dpe_draw_sheet_column(sheet, "file", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "started", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "command", COLUMN_TEXT, 0);
    dpe_draw_sheet_column(sheet, "ran on", COLUMN_TEXT, 0);
    dpe_status status = DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK; i++) {
        status = add_sessions_of(&report->inputs[i], sheet, err);
    }
    dpe_draw_add_sheet(&report->document, sheet);
    add_files(report);
    add_identities(report);
    return status;
}
