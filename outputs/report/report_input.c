/* What the report owns, its inputs, and what is read of them. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/h5/rows.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/report_parts.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dpe_report_ok(struct dpe_report *report, dpe_status status)
{
    report->status = report->status == DPE_OK ? status : report->status;
    return report->status == DPE_OK;
}

void dpe_report_no_memory(struct dpe_report *report)
{
    dpe_report_ok(report, dpe_fail(report->err, DPE_NO_MEMORY, "out of memory for the report"));
}

/* From now on `bytes` are the report's. NULL without memory. */
static void *keep(struct dpe_report *report, void *bytes, const struct dpe_dataset_kind *kind)
{
    if (report->status != DPE_OK) {
        free(bytes);
        return NULL;
    }
    if (bytes == NULL || !dpe_make_room(&report->kept, report->n_kept, sizeof *report->kept)) {
        free(bytes);
        dpe_report_no_memory(report);
        return NULL;
    }
    report->kept[report->n_kept++] = (struct dpe_report_kept){bytes, kind};
    return bytes;
}

void *dpe_report_alloc(struct dpe_report *report, size_t n, size_t size)
{
    return keep(report, dpe_alloc_zero(n, size), NULL);
}

char *dpe_report_text(struct dpe_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = dpe_format_list(format, args);
    va_end(args);
    return keep(report, text, NULL);
}

char *dpe_report_clean(struct dpe_report *report, const char *text, size_t columns)
{
    return text != NULL ? keep(report, dpe_draw_clean_text(text, columns), NULL) : NULL;
}

void dpe_report_free(struct dpe_report *report)
{
    for (size_t i = 0; i < report->n; i++) {
        dpe_h5_close(report->inputs[i].table);
        dpe_identity_free(&report->inputs[i].identity);
    }
    for (size_t i = 0; i < report->n_kept; i++) {
        if (report->kept[i].kind != NULL) {
            dpe_datasets_free(report->kept[i].kind, report->kept[i].bytes);
        }
        free(report->kept[i].bytes);
    }
    free(report->kept);
    dpe_draw_document_free(&report->document);
    *report = (struct dpe_report){0};
}

/* -------------------------------------------------------------------------------------- reading */

void dpe_input_open(struct dpe_report *report, const char *path)
{
    struct dpe_report_input *input = &report->inputs[report->n];
    *input = (struct dpe_report_input){.path = path};
    if (!dpe_report_ok(report, dpe_h5_open(path, &input->table, report->err))) {
        return;
    }
    report->n++;
    if (!dpe_report_ok(report, dpe_h5_get_identity(input->table, &input->identity, report->err))) {
        return;
    }
    const char *kind = dpe_identity_get(&input->identity, "kind");
    const char *model = dpe_identity_get(&input->identity, "model");
    const char *slash = strrchr(path, '/');
    input->name = dpe_report_clean(report, slash != NULL ? slash + 1 : path, 0);
    input->kind = dpe_report_clean(report, kind != NULL ? kind : "table", 0);
    input->fingerprint = model != NULL ? dpe_report_clean(report, model, 0)
                                       : dpe_input_words(report, input, "/model", "fingerprint");
}

bool dpe_input_has_table(const struct dpe_report_input *input)
{
    return dpe_h5_has(input->table, "/table/length") ||
           (dpe_h5_has(input->table, "/table/mask") && !dpe_h5_has(input->table, "/detect"));
}

#define PART(member, rank_axes)                                                                    \
    {                                                                                              \
        .name = #member, .type = DPE_COL_F64, .axes = rank_axes,                                   \
        DPE_IN_ARRAY(struct dpe_table_part, member), .optional = true                              \
    }
static const struct dpe_dataset table_parts[] = {
    {.name = "group", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    {.name = "edge", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    {.name = "pair", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    {.name = "entry", .type = DPE_COL_I64, .array = DPE_DATASET_COUNT},
    PART(effective_length, "group"),
    PART(scale_factor, "group"),
    PART(group_edge, "edge"),
    PART(inv_freq, "pair"),
    PART(length, "entry"),
    PART(evaluated_length, ""),
    PART(trained_length, ""),
    PART(top_k, ""),
};
static const struct dpe_dataset_kind table_kind = {table_parts,
                                                   sizeof table_parts / sizeof table_parts[0]};

const struct dpe_table_part *
dpe_input_table(struct dpe_report *report, const struct dpe_report_input *input, const char *names)
{
    return dpe_input_get(report, input, &table_kind, "/table", names);
}

static dpe_status clean(char **text)
{
    char *cleaned = dpe_draw_clean_text(*text, 0);
    if (cleaned != NULL) {
        free(*text);
        *text = cleaned;
    }
    return cleaned != NULL ? DPE_OK : DPE_NO_MEMORY;
}

void *dpe_input_get(struct dpe_report *report, const struct dpe_report_input *input,
                    const struct dpe_dataset_kind *kind, const char *folder, const char *names)
{
    void *result = dpe_alloc_zero(DPE_INPUT_WORDS, sizeof(void *));
    if (keep(report, result, kind) == NULL) {
        return NULL;
    }
    dpe_status status = dpe_datasets_get(kind, result, folder, names, input->table, report->err);
    if (status != DPE_OK) {
        dpe_fail_prefix(report->err, "%s", input->path);
    } else if ((status = dpe_datasets_texts(kind, result, clean)) != DPE_OK) {
        dpe_fail(report->err, status, "%s: out of memory", input->path);
    }
    return dpe_report_ok(report, status) ? result : NULL;
}

const char *dpe_input_words(struct dpe_report *report, const struct dpe_report_input *input,
                            const char *object, const char *name)
{
    DPE_OWNED char *value = NULL;
    dpe_h5_get_attr_text(input->table, object, name, &value, NULL);
    return dpe_report_clean(report, value, 0);
}

bool dpe_input_says(const struct dpe_report_input *input, const char *object, const char *name,
                    const char *text)
{
    DPE_OWNED char *value = NULL;
    return dpe_h5_get_attr_text(input->table, object, name, &value, NULL) == DPE_OK &&
           strcmp(value, text) == 0;
}

int64_t dpe_input_read_whole(const struct dpe_report_input *input, const char *object,
                             const char *name, int64_t otherwise)
{
    int64_t value = 0;
    return dpe_h5_get_attr_i64(input->table, object, name, &value, NULL) == DPE_OK ? value
                                                                                   : otherwise;
}

char **dpe_input_names(struct dpe_report *report, const struct dpe_report_input *input,
                       const char *path, int64_t expected, size_t *n)
{
    DPE_SCOPED(dpe_strings_drop) struct dpe_strings names = {0};
    *n = 0;
    if (report->status != DPE_OK || !dpe_h5_has(input->table, path) ||
        !dpe_report_ok(report,
                       dpe_h5_get_strings(input->table, path, &names.at, &names.n, report->err))) {
        return NULL;
    }
    *n = names.n;
    char **kept = dpe_report_alloc(report, *n, sizeof *kept);
    for (size_t i = 0; kept != NULL && i < *n; i++) {
        kept[i] = dpe_report_clean(report, names.at[i], 0);
    }
    if (expected >= 0 && *n != (size_t)expected) {
        dpe_report_ok(report,
                      dpe_fail(report->err, DPE_BAD_DATA, "%s: %s: expected %lld names, found %zu",
                               input->path, path, (long long)expected, *n));
    }
    *n = report->status == DPE_OK ? *n : 0;
    return kept;
}

/* --------------------------------------------------------------------------------------- naming */

/* Whether an input is of the kind of the subject: it has the dataset, and is an ablation or not. An
 * ablation has the same datasets as a comparison and does not count as one. */
static bool is_alike(const struct dpe_report *report, const struct dpe_report_input *input)
{
    const struct dpe_report_subject *about = &report->about;
    return dpe_h5_has(input->table, about->has) &&
           dpe_h5_has(input->table, "/ablate") == dpe_h5_has(about->input->table, "/ablate");
}

/* Place of the subject among those of its kind, from 0; *n = how many there are. */
static size_t place_of(const struct dpe_report *report, size_t *n)
{
    size_t place = 0;
    *n = 0;
    for (size_t i = 0; i < report->n && report->about.input != NULL; i++) {
        place = &report->inputs[i] == report->about.input ? *n : place;
        *n += is_alike(report, &report->inputs[i]);
    }
    return place;
}

/* The first thing in which the subject differs from all others of its kind, in words: "seed 1000";
 * its file's name where there is none that a reader would understand. */
static const char *difference(struct dpe_report *report)
{
    static const char *const unread[] = {"kind",   "model",      "tokenizer",
                                         "corpus", "end_tokens", "angle"};
    const struct dpe_report_input *input = report->about.input;
    for (size_t f = 0; f < input->identity.n; f++) {
        const char *name = input->identity.fields[f].name;
        const char *value = input->identity.fields[f].value;
        bool differs = strlen(value) <= 40;
        for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++) {
            differs = differs && strcmp(name, unread[i]) != 0;
        }
        for (size_t i = 0; i < report->n && differs; i++) {
            const struct dpe_report_input *other = &report->inputs[i];
            const char *theirs = dpe_identity_get(&other->identity, name);
            differs = other == input || !is_alike(report, other) || theirs == NULL ||
                      strcmp(theirs, value) != 0;
        }
        if (differs) {
            char *words = dpe_report_text(report, "%s %s", name, value);
            for (char *at = words; at != NULL && *at != '\0'; at++) {
                *at = (char)(*at == '_' ? ' ' : *at);
            }
            return words;
        }
    }
    return input->name;
}

/* ------------------------------------------------------------------------------------- the page */

void dpe_report_write_section(struct dpe_report *report, const struct dpe_section *section)
{
    if (section->has == NULL && report->status == DPE_OK) {
        section->write(report);
    }
    for (size_t i = 0; i < report->n && section->has != NULL && report->status == DPE_OK; i++) {
        const struct dpe_report_input *input = &report->inputs[i];
        if (!dpe_h5_has(input->table, section->has) ||
            (section->unless != NULL && dpe_h5_has(input->table, section->unless))) {
            continue;
        }
        report->about = (struct dpe_report_subject){.input = input, .has = section->has};
        const void *result = section->kind != NULL ? dpe_input_get(report, input, section->kind,
                                                                   section->folder, section->names)
                                                   : NULL;
        if (result != NULL) {
            dpe_report_section(report, "%s", section->title);
            dpe_report_unfinished(report);
            section->show(report, result);
        } else if (section->kind == NULL) {
            section->write(report);
        }
    }
    report->about = (struct dpe_report_subject){0};
}

void dpe_report_section(struct dpe_report *report, const char *format, ...)
{
    size_t n = 0;
    va_list args;
    va_start(args, format);
    char *title = dpe_format_list(format, args);
    va_end(args);
    place_of(report, &n);
    if (n > 1 && title != NULL) {
        char *longer = dpe_draw_format_text("%s (%s)", title, difference(report));
        free(title);
        title = longer;
    }
    dpe_draw_add(&report->document, BLOCK_SECTION, title, NULL);
}

void dpe_report_unfinished(struct dpe_report *report)
{
    const struct dpe_report_input *input = report->about.input;
    if (dpe_input_read_whole(input, "/", "complete", 1) == 0) {
        dpe_report_say(
            report, BLOCK_NOTE,
            "The run that wrote %s is unfinished. The values shown are correct, but not all "
            "samples are measured yet: a dash is a cell without samples, and intervals will "
            "become narrower. Run the same command to continue.",
            input->name);
    }
}

void dpe_report_say(struct dpe_report *report, enum dpe_block_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dpe_draw_add(&report->document, kind, dpe_format_list(format, args), NULL);
    va_end(args);
}

void dpe_report_lines(struct dpe_report *report, enum dpe_block_kind kind, const char *object,
                      const char *name)
{
    DPE_OWNED char *text = NULL;
    dpe_h5_get_attr_text(report->about.input->table, object, name, &text, NULL);
    for (char *line = text, *next; line != NULL && *line != '\0'; line = next) {
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = '\0';
        char *clean = dpe_report_clean(report, line + strspn(line, " "), 0);
        if (clean != NULL) {
            const bool ends = clean[0] == '\0' || clean[strlen(clean) - 1] == '.';
            clean[0] = (char)toupper((unsigned char)clean[0]);
            dpe_report_say(report, *line == ' ' ? BLOCK_TEXT : kind, ends ? "%s" : "%s.", clean);
        }
    }
}

struct dpe_sheet *dpe_report_sheet(const struct dpe_report *report, const char *id,
                                   const char *columns, const char *title, ...)
{
    const struct dpe_report_subject *about = &report->about;
    char number[24] = "";
    size_t n = 0;
    size_t place = place_of(report, &n);
    if (place > 0) {
        snprintf(number, sizeof number, "-%zu", place + 1);
    }
    va_list args;
    va_start(args, title);
    struct dpe_sheet *sheet = dpe_draw_sheet_new(
        dpe_draw_format_text("%s%s%s%s%s%s", about->prefix, about->prefix[0] != '\0' ? "-" : "", id,
                             about->suffix[0] != '\0' ? "-" : "", about->suffix, number),
        dpe_format_list(title, args), columns);
    va_end(args);
    return sheet;
}

void dpe_report_add(struct dpe_report *report, struct dpe_sheet *sheet)
{
    dpe_draw_add(&report->document, BLOCK_SHEET, NULL, sheet);
}

struct dpe_figure *dpe_report_figure(struct dpe_report *report, struct dpe_sheet *sheet,
                                     const struct dpe_plot *plot, const char *caption, ...)
{
    va_list args;
    va_start(args, caption);
    char *text = dpe_format_list(caption, args);
    va_end(args);
    struct dpe_block *block = dpe_draw_add(&report->document, BLOCK_FIGURE, text, sheet);
    if (block == NULL) {
        return NULL;
    }
    if (plot != NULL) {
        dpe_draw_plot(&block->figure, sheet, plot);
    }
    return &block->figure;
}
