/* The HDF5 form of a DPE table: /table and what it needs of /model. */
#include "outputs/table/dpe_table_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "engine/base/base.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

/* The first member is the form. */
struct reader {
    struct dpe_table_form form;
    hid_t file;
    char entry[40]; /* the group that the datasets are in: "/table", or one below it */
    char at[96];
    int64_t lengths[DPE_TABLE_ENTRIES]; /* of entries that have groups; they are called by it */
    int64_t length;                     /* of the entry, by its group; 0: not said */
};

static struct reader *reader_of(struct dpe_table_form *form)
{
    return (struct reader *)form;
}

static void bad(struct reader *reader, const char *path, const char *expected)
{
    dpe_form_fail(&reader->form, DPE_TABLE_BAD_FILE, "%s: expected %s; re-export the table", path,
                  expected);
}

static void refuse(struct dpe_table_form *form, const char *object, const char *name,
                   const char *expected)
{
    dpe_form_fail(form, DPE_TABLE_BAD_FILE, "%s: %s: expected %s; re-export the table",
                  object != NULL ? object : reader_of(form)->entry, name, expected);
}

/* HDF5, or what it would have to do, is the reason. */
static void not_read(struct reader *reader, const char *path, enum dpe_inside found)
{
    const char *words = dpe_inside_words();
    dpe_form_fail(&reader->form,
                  found == DPE_INSIDE_LARGE || dpe_inside_no_memory() ? DPE_TABLE_MEMORY
                                                                      : DPE_TABLE_BAD_FILE,
                  "%s: %s%s%s%s", path, dpe_inside_text(found), words[0] == '\0' ? "" : " (", words,
                  words[0] == '\0' ? "" : ")");
}

/* An object of this kind that lies in the file; negative after a failure. */
static hid_t open_object(struct reader *reader, const char *path, H5I_type_t kind,
                         const char *expected)
{
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    hid_t object = dpe_inside_open(reader->file, path, &found);
    if (object >= 0 && H5Iget_type(object) == kind) {
        return object;
    }
    dpe_inside_close(object);
    if (object < 0 && found != DPE_INSIDE_ABSENT) {
        not_read(reader, path, found);
    }
    bad(reader, path, expected);
    return -1;
}

/* Whether there is such an object, or a link to one, which opening it refuses. */
static bool has_path(const struct reader *reader, const char *path)
{
    enum dpe_inside found = dpe_inside_look(reader->file, path);
    return found == DPE_INSIDE_THERE || found == DPE_INSIDE_POINTS;
}

/* The path of an object of the entry, until the next one. */
static const char *in_entry(struct reader *reader, const char *name)
{
    snprintf(reader->at, sizeof reader->at, "%s/%s", reader->entry, name);
    return reader->at;
}

/* A group, if it is there, where an attribute may be. /run only explains. */
static hid_t open_group(struct dpe_table_form *form, const char *object)
{
    struct reader *reader = reader_of(form);
    const char *path = object != NULL ? object : reader->entry;
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    if (strcmp(path, "/run") == 0) {
        return dpe_inside_open(reader->file, path, &found);
    }
    return has_path(reader, path) ? open_object(reader, path, H5I_GROUP, "a group") : -1;
}

static bool has_attribute(struct dpe_table_form *form, const char *object, const char *name)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_group(form, object);
    return id >= 0 && H5Aexists(id, name) > 0;
}

static char *get_text(struct dpe_table_form *form, const char *object, const char *name)
{
    char *text = NULL;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_group(form, object);
    return id >= 0 && dpe_inside_string(id, name, &text) == DPE_INSIDE_THERE ? text : NULL;
}

static bool get_whole(struct dpe_table_form *form, const char *object, const char *name,
                      int64_t *value)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_group(form, object);
    return id >= 0 && dpe_inside_whole(id, name, value) == DPE_INSIDE_THERE;
}

static bool has_numbers(hid_t set, bool whole)
{
    size_t bytes = 0;
    H5T_class_t kind = dpe_inside_class(set, &bytes);
    return kind == H5T_INTEGER || (kind == H5T_FLOAT && !whole);
}

static bool has_shape(hid_t set, int rank, const hsize_t *dims)
{
    hsize_t found[H5S_MAX_RANK] = {0};
    return dpe_inside_dims(set, found) == rank &&
           memcmp(found, dims, (size_t)rank * sizeof *dims) == 0;
}

/* A numeric dataset of the entry, of exactly these dimensions, into data. HDF5 takes numbers that a
 * type cannot hold as its largest, which the checks refuse. */
static void read_numbers(struct reader *reader, const char *name, enum dpe_field_type type,
                         int rank, const hsize_t *dims, void *data)
{
    const hid_t memory[] = {
        [DPE_FIELD_WHOLE] = H5T_NATIVE_INT64, [DPE_FIELD_REAL] = H5T_NATIVE_DOUBLE,
        [DPE_FIELD_EDGE] = H5T_NATIVE_INT32,  [DPE_FIELD_FLAG] = H5T_NATIVE_INT,
        [DPE_FIELD_MARKS] = H5T_NATIVE_UINT8,
    };
    const bool whole = type != DPE_FIELD_REAL; /* HDF5 would convert 32.9 to 32 */
    char expected[128];
    int n = snprintf(expected, sizeof expected, "%s", whole ? "whole numbers" : "numbers");
    for (int i = 0; i < rank; i++) {
        n += snprintf(expected + n, sizeof expected - (size_t)n, "%s%llu", i == 0 ? ", " : " x ",
                      (unsigned long long)dims[i]);
    }
    const char *path = in_entry(reader, name);
    DPE_SCOPED(dpe_inside_close_scoped)
    hid_t set = open_object(reader, path, H5I_DATASET, expected);
    enum dpe_inside read = DPE_INSIDE_THERE;
    if (set < 0) {
        return;
    }
    if (!has_shape(set, rank, dims) || !has_numbers(set, whole)) {
        bad(reader, path, expected);
    } else if ((read = dpe_inside_read(set, memory[type], H5P_DEFAULT, data)) != DPE_INSIDE_THERE) {
        not_read(reader, path, read);
    }
}

/* The length of a dataset of rank 1. */
static int64_t read_extent(struct reader *reader, const char *name)
{
    DPE_SCOPED(dpe_inside_close_scoped)
    hid_t set = open_object(reader, in_entry(reader, name), H5I_DATASET, "a list");
    hsize_t extent[H5S_MAX_RANK] = {0};
    if (set < 0 || dpe_inside_dims(set, extent) != 1 || extent[0] > INT32_MAX) {
        bad(reader, in_entry(reader, name), "a list");
    }
    return (int64_t)extent[0];
}

/* No /table: a run that was stopped has rows alone. */
static void refuse_without_table(struct dpe_table_form *form)
{
    int64_t complete = 1, planned = 0, missing = 0;
    char samples[96] = "";
    if (!get_whole(form, "/", "complete", &complete) || complete != 0) {
        bad(reader_of(form), "/table",
            "a DPE table (a finished one of dpe-detect, or one of dpe-export)");
        return;
    }
    if (get_whole(form, "/", "n_planned", &planned) &&
        get_whole(form, "/", "n_missing", &missing) && missing >= 0 && planned >= missing) {
        snprintf(samples, sizeof samples, "%lld of %lld samples; ", (long long)(planned - missing),
                 (long long)planned);
    }
    dpe_form_fail(form, DPE_TABLE_BAD_FILE,
                  "this run is not finished: %srun the same command to finish it", samples);
}

static int64_t count_entries(struct dpe_table_form *form)
{
    struct reader *reader = reader_of(form);
    if (!has_path(reader, "/table")) {
        refuse_without_table(form);
        return 0;
    }
    if (!has_path(reader, "/table/length")) {
        return 1;
    }
    const int64_t n = read_extent(reader, "length");
    int64_t before = 0;
    if (n > 0 && n <= DPE_TABLE_ENTRIES) {
        const hsize_t dims[1] = {(hsize_t)n};
        read_numbers(reader, "length", DPE_FIELD_WHOLE, 1, dims, reader->lengths);
        for (int64_t i = 0; i < n; before = reader->lengths[i++]) {
            if (reader->lengths[i] <= before) {
                bad(reader, "/table/length", "lengths from 1 on that increase");
            }
        }
    }
    return n;
}

static void enter(struct dpe_table_form *form, int64_t i)
{
    struct reader *reader = reader_of(form);
    reader->length = reader->lengths[i];
    if (reader->length != 0) {
        snprintf(reader->entry, sizeof reader->entry, "/table/%lld", (long long)reader->length);
    }
    if (!has_path(reader, reader->entry)) {
        bad(reader, reader->entry, "the entry that /table/length lists");
    }
}

static int64_t count_field(struct dpe_table_form *form, const struct dpe_table_field *field)
{
    struct reader *reader = reader_of(form);
    if (field->type == DPE_FIELD_TEXT) {
        return has_attribute(form, NULL, field->name) ? 1 : -1;
    }
    return !has_path(reader, in_entry(reader, field->name)) ? -1
           : dpe_field_rank(field) != 1                     ? 1
                                                            : read_extent(reader, field->name);
}

static void read_field(struct dpe_table_form *form, const struct dpe_table_field *field,
                       const struct dpe_table_values *values, void *data, size_t n)
{
    struct reader *reader = reader_of(form);
    hsize_t dims[DPE_FIELD_RANK] = {0};
    (void)n;
    for (int i = 0; i < DPE_FIELD_RANK; i++) {
        dims[i] = (hsize_t)dpe_field_extent(field->axes[i], values);
    }
    read_numbers(reader, field->name, field->type, dpe_field_rank(field), dims, data);
    if (field->at == offsetof(struct dpe_table_values, length) && reader->length != 0 &&
        reader->length != *(const int64_t *)data) {
        bad(reader, in_entry(reader, field->name), "the length in the name of its group");
    }
}

int dpe_table_read_h5(const char *path, int fd, bool unchecked, struct dpe_table **table,
                      char *message)
{
    /* HDF5 must not see a damaged file: see trailer.h. */
    char words[DPE_TRAILER_WORDS];
    const enum dpe_trailer_state state = dpe_trailer_check(fd, words);
    if (state != DPE_TRAILER_WHOLE && !(state == DPE_TRAILER_NONE && unchecked)) {
        return dpe_table_fail(
            message, state == DPE_TRAILER_UNREADABLE ? DPE_TABLE_NO_FILE : DPE_TABLE_BAD_FILE,
            "%s: %s%s", path, words,
            state == DPE_TRAILER_NONE ? "; dpe-export --unchecked FILE -o NEW.h5 writes it anew"
                                      : "");
    }
    struct reader reader = {
        .form = {.attributes = true,
                 .refuse = refuse,
                 .has = has_attribute,
                 .text = get_text,
                 .whole = get_whole,
                 .entries = count_entries,
                 .enter = enter,
                 .count = count_field,
                 .read = read_field},
        .entry = "/table",
    };
    /* HDF5 prints its error stack by default; the caller gets a message instead. */
    H5E_auto2_t printer = NULL;
    void *printer_data = NULL;
    H5Eget_auto2(H5E_DEFAULT, &printer, &printer_data);
    dpe_inside_listen();
    reader.file = dpe_inside_file(path);
    if (reader.file < 0) {
        dpe_form_fail(&reader.form, dpe_inside_no_memory() ? DPE_TABLE_MEMORY : DPE_TABLE_BAD_FILE,
                      "cannot be read as HDF5 (%s)", dpe_inside_words());
    } else {
        dpe_table_read(&reader.form, table);
        H5Fclose(reader.file);
    }
    H5Eset_auto2(H5E_DEFAULT, printer, printer_data);
    return reader.form.error == DPE_TABLE_OK
               ? DPE_TABLE_OK
               : dpe_table_fail(message, (enum dpe_table_error)reader.form.error, "%s: %.400s",
                                path, reader.form.message);
}
