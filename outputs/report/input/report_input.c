/* Input tables: open, classify, and read with the expected shapes. */
#include "engine/base/base.h"
#include "outputs/h5/h5.h"
#include "outputs/report/draw/page.h"
#include "outputs/report/input/input.h"
#include "outputs/rows/rows.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return dpe_draw_clean_text(slash != NULL ? slash + 1 : path, 0);
}

dpe_status dpe_input_open(struct input *input, const char *path, struct dpe_error *err)
{
    *input = (struct input){.path = path};
    dpe_status status = dpe_h5_open(path, &input->table, err);
    if (status == DPE_OK) {
        status = dpe_h5_get_identity(input->table, &input->identity, err);
    }
    if (status != DPE_OK) {
        dpe_input_close(input);
        return status;
    }
    const char *kind = dpe_identity_get(&input->identity, "kind");
    const char *model = dpe_identity_get(&input->identity, "model");
    input->name = last_part(path);
    input->kind = dpe_draw_clean_text(kind != NULL ? kind : "table", 0);
    input->fingerprint = model != NULL ? dpe_draw_clean_text(model, 0)
                                       : dpe_input_read_words(input, "/model", "fingerprint");
    if (input->name == NULL || input->kind == NULL) {
        dpe_input_close(input);
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    }
    return DPE_OK;
}

void dpe_input_close(struct input *input)
{
    dpe_h5_close(input->table);
    dpe_identity_free(&input->identity);
    free(input->name);
    free(input->kind);
    free(input->fingerprint);
    *input = (struct input){0};
}

bool dpe_input_has_table(const struct input *input)
{
    return dpe_h5_has(input->table, "/table/length") ||
           (dpe_h5_has(input->table, "/table/mask") && !dpe_h5_has(input->table, "/detect"));
}

/* ---------------------------------------------------------------------------------------- reading
 */

#define PART(member, rank_axes)                                                                    \
    {                                                                                              \
        .name = #member, .type = DPE_COL_F64, .axes = rank_axes,                                   \
        DPE_IN_ARRAY(struct table_part, member), .optional = true                                  \
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

dpe_status dpe_input_table(const struct input *input, const char *names, struct table_part *part,
                           struct dpe_error *err)
{
    *part = (struct table_part){0};
    return dpe_input_get(input, &table_kind, part, "/table", names, err);
}

void dpe_input_table_free(struct table_part *part)
{
    dpe_datasets_free(&table_kind, part);
}

static dpe_status clean(void *user, char **text)
{
    (void)user;
    char *cleaned = dpe_draw_clean_text(*text, 0);
    if (cleaned != NULL) {
        free(*text);
        *text = cleaned;
    }
    return cleaned != NULL ? DPE_OK : DPE_NO_MEMORY;
}

dpe_status dpe_input_get(const struct input *input, const struct dpe_dataset_kind *kind, void *result,
                         const char *folder, const char *names, struct dpe_error *err)
{
    dpe_status status = dpe_datasets_get(kind, result, folder, names, input->table, err);
    if (status != DPE_OK) {
        return dpe_fail_prefix(err, "%s", input->path);
    }
    return dpe_datasets_texts(kind, result, clean, NULL) == DPE_OK
               ? DPE_OK
               : dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
}

char *dpe_input_read_words(const struct input *input, const char *object, const char *name)
{
    char *value = NULL;
    if (dpe_h5_get_attr_text(input->table, object, name, &value, NULL) != DPE_OK) {
        return NULL;
    }
    char *clean = dpe_draw_clean_text(value, 0);
    free(value);
    return clean;
}

int64_t dpe_input_read_whole(const struct input *input, const char *object, const char *name,
                             int64_t otherwise)
{
    int64_t value = 0;
    return dpe_h5_get_attr_i64(input->table, object, name, &value, NULL) == DPE_OK ? value
                                                                                   : otherwise;
}

/* ------------------------------------------------------------------------------------------ naming
 */

/* Place of the input among those that have a dataset, from 0; *n = how many have. An ablation has
 * the same datasets as a comparison and does not count as one. */
static size_t place_of(const struct report *report, size_t *n)
{
    const struct input *input = report->about.input;
    const char *has = report->about.has;
    size_t place = 0;
    bool ablation = dpe_h5_has(input->table, "/ablate");
    *n = 0;
    for (size_t i = 0; i < report->n; i++) {
        struct dpe_h5 *table = report->inputs[i].table;
        if (&report->inputs[i] == input) {
            place = *n;
        }
        *n += dpe_h5_has(table, has) && dpe_h5_has(table, "/ablate") == ablation;
    }
    return place;
}

/* The first thing in which the input differs from all others of its kind, in words: "seed 1000"; owned,
 * NULL when there is none that a reader would understand. */
static char *difference(const struct report *report, const struct input *input, const char *has)
{
    static const char *const unread[] = {"kind", "model", "tokenizer", "corpus", "end_tokens",
                                         "angle"};
    bool ablation = dpe_h5_has(input->table, "/ablate");
    for (size_t f = 0; f < input->identity.n; f++) {
        const char *name = input->identity.fields[f].name;
        const char *value = input->identity.fields[f].value;
        bool differs = strlen(value) <= 40;
        for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++) {
            differs = differs && strcmp(name, unread[i]) != 0;
        }
        for (size_t i = 0; i < report->n && differs; i++) {
            const struct input *other = &report->inputs[i];
            const char *theirs = dpe_identity_get(&other->identity, name);
            bool counts = other != input && dpe_h5_has(other->table, has) &&
                          dpe_h5_has(other->table, "/ablate") == ablation;
            differs = !counts || theirs == NULL || strcmp(theirs, value) != 0;
        }
        if (differs) {
            char *words = dpe_draw_format_text("%s %s", name, value);
            for (char *at = words; at != NULL && *at != '\0'; at++) {
                *at = (char)(*at == '_' ? ' ' : *at);
            }
            return words;
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------- the page
 */

/* A result of a kind, whatever its struct is. */
static dpe_status write_result(struct report *report, const struct section *section,
                               struct dpe_error *err)
{
    union {
        int64_t n[DPE_DATASET_AXES];
        void *arrays[64];
    } result = {.arrays = {NULL}};
    dpe_status status = dpe_input_get(report->about.input, section->kind, &result, section->folder,
                                      section->names, err);
    if (status == DPE_OK) {
        dpe_report_section(report, "%s", section->title);
        dpe_report_unfinished(report);
        section->show(report, &result);
    }
    dpe_datasets_free(section->kind, &result);
    return status;
}

dpe_status dpe_report_write_section(struct report *report, const struct section *section,
                                    struct dpe_error *err)
{
    dpe_status status = section->whole != NULL ? section->whole(report, err) : DPE_OK;
    for (size_t i = 0; i < report->n && status == DPE_OK && section->whole == NULL; i++) {
        const struct input *input = &report->inputs[i];
        if (dpe_h5_has(input->table, section->has) &&
            (section->unless == NULL || !dpe_h5_has(input->table, section->unless))) {
            report->about = (struct subject){.input = input, .has = section->has};
            status = section->write != NULL ? section->write(report, input, err)
                                            : write_result(report, section, err);
        }
    }
    report->about = (struct subject){0};
    return status;
}

void dpe_report_section(struct report *report, const char *format, ...)
{
    size_t n = 0;
    va_list args;
    va_start(args, format);
    char *title = dpe_draw_format_list(format, args);
    va_end(args);
    if (report->about.input != NULL) {
        place_of(report, &n);
    }
    if (n > 1 && title != NULL) {
        char *what = difference(report, report->about.input, report->about.has);
        char *longer =
            dpe_draw_format_text("%s (%s)", title, what != NULL ? what : report->about.input->name);
        free(what);
        free(title);
        title = longer;
    }
    dpe_draw_add(&report->document, BLOCK_SECTION, title, NULL);
}

void dpe_report_unfinished(struct report *report)
{
    const struct input *input = report->about.input;
    if (dpe_input_read_whole(input, "/", "complete", 1) == 0) {
        dpe_report_say(
            report, BLOCK_NOTE,
            "The run that wrote %s is unfinished. The values shown are correct, but not all "
            "samples are measured yet: a dash is a cell without samples, and intervals will "
            "become narrower. Run the same command to continue.",
            input->name);
    }
}

void dpe_report_say(struct report *report, enum block_kind kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dpe_draw_add(&report->document, kind, dpe_draw_format_list(format, args), NULL);
    va_end(args);
}

static void put_lines(struct report *report, enum block_kind kind, char *text)
{
    for (char *line = text, *next; line != NULL && *line != '\0'; line = next) {
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = '\0';
        char *clean = dpe_draw_clean_text(line + strspn(line, " "), 0);
        if (clean == NULL) {
            report->document.failed = true;
            return;
        }
        clean[0] = (char)toupper((unsigned char)clean[0]);
        const bool ends = clean[0] == '\0' || clean[strlen(clean) - 1] == '.';
        dpe_report_say(report, *line == ' ' ? BLOCK_TEXT : kind, ends ? "%s" : "%s.", clean);
        free(clean);
    }
}

void dpe_report_lines(struct report *report, enum block_kind kind, const char *object,
                      const char *name)
{
    char *text = NULL;
    if (dpe_h5_get_attr_text(report->about.input->table, object, name, &text, NULL) == DPE_OK) {
        put_lines(report, kind, text);
        free(text);
    }
}

void dpe_report_value(const struct dpe_interval *v, bool share, char text[96])
{
    const double scale = share ? 100.0 : 1.0;
    const int digits = share ? 0 : 2;
    const char *unit = share ? "\u00a0%" : "";
    int used = isnan(v->mean) ? snprintf(text, 96, "no valid sample")
                              : snprintf(text, 96, "%.*f%s", digits, v->mean * scale, unit);
    if (!isnan(v->mean) && !isnan(v->low) && used < 96) {
        snprintf(text + used, 96 - (size_t)used, " (%.*f\u00a0to\u00a0%.*f%s)", digits,
                 v->low * scale, digits, v->high * scale, unit);
    }
}

struct sheet *dpe_report_sheet(const struct report *report, const char *id, const char *columns,
                               const char *title, ...)
{
    const struct subject *about = &report->about;
    char number[24] = "";
    size_t n = 0;
    size_t place = about->input != NULL ? place_of(report, &n) : 0;
    if (place > 0) {
        snprintf(number, sizeof number, "-%zu", place + 1);
    }
    va_list args;
    va_start(args, title);
    struct sheet *sheet = dpe_draw_sheet_new(
        dpe_draw_format_text("%s%s%s%s%s%s", about->prefix, about->prefix[0] != '\0' ? "-" : "", id,
                             about->suffix[0] != '\0' ? "-" : "", about->suffix, number),
        dpe_draw_format_list(title, args), columns);
    va_end(args);
    return sheet;
}

void dpe_report_add(struct report *report, struct sheet *sheet)
{
    dpe_draw_add(&report->document, BLOCK_SHEET, NULL, sheet);
}

struct figure *dpe_report_figure(struct report *report, struct sheet *sheet,
                                 const struct plot *plot, const char *caption, ...)
{
    va_list args;
    va_start(args, caption);
    struct block *block =
        dpe_draw_add(&report->document, BLOCK_FIGURE, dpe_draw_format_list(caption, args), sheet);
    va_end(args);
    if (block != NULL && plot != NULL) {
        dpe_draw_plot(&block->figure, sheet, plot);
    }
    return block != NULL ? &block->figure : NULL;
}

void dpe_input_names_free(struct names *names)
{
    dpe_strings_free(names->names, names->n);
    *names = (struct names){0};
}

dpe_status dpe_input_read_names(const struct input *input, const char *path, int64_t expected,
                                struct names *names, struct dpe_error *err)
{
    *names = (struct names){0};
    if (!dpe_h5_has(input->table, path)) {
        return DPE_OK;
    }
    dpe_status status = dpe_h5_get_strings(input->table, path, &names->names, &names->n, err);
    if (status == DPE_OK && expected >= 0 && names->n != (size_t)expected) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected %lld names, found %zu", input->path,
                          path, (long long)expected, names->n);
    }
    for (size_t i = 0; i < names->n && status == DPE_OK; i++) {
        char *clean = dpe_draw_clean_text(names->names[i], 0);
        if (clean == NULL) {
            status = dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", input->path);
        } else {
            free(names->names[i]);
            names->names[i] = clean;
        }
    }
    if (status != DPE_OK) {
        dpe_input_names_free(names);
    }
    return status;
}
