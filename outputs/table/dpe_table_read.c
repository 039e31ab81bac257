/* Reading a table, whatever its form: version, conventions, model, and the fields of each entry. */
#include "outputs/table/dpe_table_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dpe_form_fail(struct dpe_table_form *form, enum dpe_table_error error, const char *format, ...)
{
    if (form->error == DPE_TABLE_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(form->message, sizeof form->message, format, args);
        va_end(args);
        form->error = error;
    }
}

static bool failed(const struct dpe_table_form *form)
{
    return form->error != DPE_TABLE_OK;
}

static char *needed_text(struct dpe_table_form *form, const char *object, const char *name,
                         const char *expected)
{
    char *text = failed(form) ? NULL : form->text(form, object, name);
    if (text == NULL) {
        form->refuse(form, object, name, expected);
    }
    return text;
}

/* A convention is implemented in one way only: anything else must not be half-applied. Where it is
 * `explained`, a colon and words may follow. */
static void expect(struct dpe_table_form *form, const char *object, const char *name,
                   const char *expected, bool explained)
{
    char *text = failed(form) ? NULL : form->text(form, object, name);
    const size_t n = strlen(expected);
    if (text == NULL && form->attributes) {
        form->refuse(form, object, name, expected);
    } else if (text == NULL || strncmp(text, expected, n) != 0 ||
               (text[n] != '\0' && !(explained && text[n] == ':'))) {
        dpe_form_fail(form, form->attributes && !explained ? DPE_TABLE_BAD_FILE : DPE_TABLE_VERSION,
                      "%s is '%s', this library supports only '%s'", name,
                      text != NULL ? text : "missing", expected);
    }
    free(text);
}

static char *read_version(struct dpe_table_form *form)
{
    char why[DPE_TABLE_MESSAGE];
    expect(form, "/", "schema_name", "dpe-table", false);
    char *version = needed_text(form, "/", "schema_version", "a string");
    char *history = failed(form) ? NULL : form->text(form, "/run", "history");
    if (version != NULL && dpe_table_check_version(version, history, why) != DPE_TABLE_OK) {
        dpe_form_fail(form, DPE_TABLE_VERSION, "%s", why);
    }
    free(history);
    return version;
}

/* Whether the table is one of frequencies. */
static bool read_conventions(struct dpe_table_form *form)
{
    const bool frequencies = !failed(form) && form->has(form, "/table", "moves");
    if (frequencies) {
        expect(form, "/table", "moves", "frequencies", false);
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        expect(form, "/table", dpe_table_conventions[i].name,
               dpe_table_convention(&dpe_table_conventions[i], frequencies), form->attributes);
    }
    return frequencies;
}

static void read_model(struct dpe_table_form *form, struct dpe_table_values *values)
{
    for (size_t i = 0; i < dpe_n_model_fields && !failed(form); i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        const char *name = form->attributes ? field->attribute : field->name;
        void *at = (char *)values + field->at;
        if (field->text) {
            *(char **)at = needed_text(form, "/model", name, "a string");
        } else if (!form->whole(form, "/model", name, at)) {
            form->refuse(form, "/model", name, "a whole number");
        }
    }
    values->n_pairs = values->head_dim / 2;
}

/* Before any product of counts, and any memory for one. */
static void check_counts(struct dpe_table_form *form, const struct dpe_table_values *values,
                         int64_t entries)
{
    enum { MOST_LAYERS = 1 << 16, MOST_PAIRS = 1 << 15, MOST_MARKS = 1 << 26 };
    bool fits = values->n_layers >= 1 && values->n_layers <= MOST_LAYERS && values->n_heads >= 1 &&
                values->n_heads <= MOST_LAYERS && values->n_pairs >= 1 &&
                values->n_pairs <= MOST_PAIRS && values->n_groups <= values->n_pairs &&
                values->n_layers * values->n_heads <= MOST_MARKS / values->n_pairs / entries;
    if (!fits) {
        dpe_form_fail(form, DPE_TABLE_BAD_FILE,
                      "expected counts that a model can have, found %lld layers, %lld heads, "
                      "%lld pairs, %lld groups, in %lld entries",
                      (long long)values->n_layers, (long long)values->n_heads,
                      (long long)values->n_pairs, (long long)values->n_groups, (long long)entries);
    }
}

/* Only how many bands there are says how long their list is. */
static void count_bands(struct dpe_table_form *form, const struct dpe_table_field *field,
                        struct dpe_table_values *values)
{
    int64_t n = form->count(form, field);
    int64_t band = 2 * dpe_table_band_row(values);
    if (n < 0 || n % band != 0 || n / band > DPE_TABLE_MOST_BANDS) {
        dpe_form_fail(form, DPE_TABLE_BAD_FILE,
                      "%s: expected two rows of %lld numbers for each of at most %d bands, "
                      "found %lld numbers",
                      field->name, (long long)(band / 2), DPE_TABLE_MOST_BANDS, (long long)n);
        n = 0;
    }
    values->n_bands = n / band;
}

static void read_field(struct dpe_table_form *form, const struct dpe_table_field *field,
                       struct dpe_table_values *values)
{
    void *data = (char *)values + field->at;
    if (field->type == DPE_FIELD_TEXT) {
        *(char **)data = needed_text(form, NULL, field->name, "a string");
        return;
    }
    if (field->axes[0] == DPE_AXIS_BAND_NUMBER) {
        count_bands(form, field, values);
    }
    const size_t n = dpe_field_count(field, values);
    if (n > 0 && dpe_field_rank(field) > 0) {
        data = *dpe_field_array(field, values) = calloc(n, dpe_field_size(field));
    }
    if (data == NULL) {
        dpe_form_fail(form, DPE_TABLE_MEMORY, "out of memory for %s", field->name);
    } else if (n > 0) {
        form->read(form, field, values, data, n);
    }
}

/* Without key pairs (a detection of all pairs) every pair of every head is one. */
static void set_all_pairs(struct dpe_table_form *form, struct dpe_table_values *values)
{
    size_t n = (size_t)(values->n_layers * values->n_heads * values->n_pairs);
    values->top_k = values->n_pairs;
    values->mask = malloc(n);
    if (values->mask == NULL) {
        dpe_form_fail(form, DPE_TABLE_MEMORY, "out of memory for key pairs");
    } else {
        memset(values->mask, 1, n);
    }
}

/* The parts of which the entry has a field. */
static unsigned parts_there(struct dpe_table_form *form)
{
    unsigned parts = 1u << DPE_PART_CORE;
    for (size_t i = 0; i < dpe_n_table_fields && !failed(form); i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if ((parts >> field->part & 1) == 0 && form->count(form, field) >= 0) {
            parts |= 1u << field->part;
        }
    }
    return parts;
}

/* One of so many entries: its fields, after its model. */
static void read_fields(struct dpe_table_form *form, struct dpe_table_values *values,
                        int64_t entries)
{
    values->n_groups = form->count(form, dpe_table_field_named("scale_factor"));
    if (values->n_groups < 1) {
        form->refuse(form, NULL, "scale_factor", "a list of one number or more");
    }
    check_counts(form, values, entries);
    const unsigned parts = failed(form) ? 0 : parts_there(form);
    for (size_t i = 0; i < dpe_n_table_fields && !failed(form); i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const bool missing = field->fact != NULL && form->count(form, field) < 0;
        if ((parts >> field->part & 1) != 0 && !missing) {
            read_field(form, field, values);
        } else if (!dpe_field_owned(field)) {
            dpe_field_set(field, (char *)values + field->at, 0, field->absent);
        }
    }
    if (!failed(form) && (parts >> DPE_PART_KEYS & 1) == 0) {
        set_all_pairs(form, values);
    }
}

static void read_entries(struct dpe_table_form *form, const char *version, bool frequencies,
                         struct dpe_table *table)
{
    const int64_t n = dpe_table_count(table);
    for (int64_t i = 0; i < n && !failed(form); i++) {
        struct dpe_table_values *values = dpe_table_entry_values(table, i);
        values->frequencies = frequencies;
        values->schema_version = strdup(version);
        if (values->schema_version == NULL) {
            dpe_form_fail(form, DPE_TABLE_MEMORY, "out of memory");
        }
        read_model(form, values);
        form->enter(form, i);
        if (!failed(form)) {
            read_fields(form, values, n);
        }
    }
}

int dpe_table_read(struct dpe_table_form *form, struct dpe_table **table)
{
    char *version = read_version(form);
    const int64_t n = failed(form) ? 0 : form->entries(form);
    const bool frequencies = read_conventions(form);
    *table = NULL;
    if (!failed(form)) {
        form->error = dpe_table_new(n, table, form->message);
    }
    if (!failed(form)) {
        read_entries(form, version, frequencies, *table);
    }
    if (!failed(form)) {
        form->error = dpe_table_finish(*table, form->message);
    }
    if (failed(form)) {
        dpe_table_close(*table);
        *table = NULL;
    }
    free(version);
    return form->error;
}
