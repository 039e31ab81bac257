/* The HDF5 form of a DPE table: /table and what it needs of /model. */
#include "outputs/table/dpe_table_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "engine/base/base.h"
#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

/* One file being read; the first failure wins and everything after it is skipped. */
struct reader {
    hid_t file;
    const char *path;
    char entry[40]; /* the group that the datasets are in: "/table", or one below it */
    char at[96];
    char *message;
    int error;
};

static void bad(struct reader *reader, const char *object, const char *expected)
{
    if (reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE,
                                       "%s: %s: expected %s; re-export the table", reader->path,
                                       object, expected);
    }
}

/* HDF5, or what it would have to do, is the reason. */
static void not_read(struct reader *reader, const char *path, enum dpe_inside found)
{
    const char *words = dpe_inside_words();
    if (reader->error == DPE_TABLE_OK) {
        reader->error =
            dpe_table_fail(reader->message,
                           found == DPE_INSIDE_LARGE || dpe_inside_no_memory() ? DPE_TABLE_MEMORY
                                                                               : DPE_TABLE_BAD_FILE,
                           "%s: %s: %s%s%s%s", reader->path, path, dpe_inside_text(found),
                           words[0] == '\0' ? "" : " (", words, words[0] == '\0' ? "" : ")");
    }
}

/* An object of this kind that lies in the file; negative after a failure. */
static hid_t open_object(struct reader *reader, const char *path, H5I_type_t kind,
                         const char *expected)
{
    enum dpe_inside found = DPE_INSIDE_UNKNOWN;
    hid_t object =
        reader->error == DPE_TABLE_OK ? dpe_inside_open(reader->file, path, &found) : (hid_t)-1;
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

static bool has_attribute(struct reader *reader, const char *object, const char *name)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_object(reader, object, H5I_GROUP, name);
    return id >= 0 && H5Aexists(id, name) > 0;
}

/* The type in memory that HDF5 converts to, and whether the file must have whole numbers: HDF5
 * would convert 32.9 to 32. */
static hid_t memory_type(enum dpe_field_type type, bool *whole)
{
    *whole = type != DPE_FIELD_REAL;
    switch (type) {
    case DPE_FIELD_WHOLE:
        return H5T_NATIVE_INT64;
    case DPE_FIELD_REAL:
        return H5T_NATIVE_DOUBLE;
    case DPE_FIELD_EDGE:
        return H5T_NATIVE_INT32;
    case DPE_FIELD_FLAG:
        return H5T_NATIVE_INT;
    case DPE_FIELD_MARKS:
        return H5T_NATIVE_UINT8;
    case DPE_FIELD_TEXT:
        break;
    }
    return -1;
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
    bool whole = false;
    hid_t memory = memory_type(type, &whole);
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
    } else if ((read = dpe_inside_read(set, memory, H5P_DEFAULT, data)) != DPE_INSIDE_THERE) {
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

/* A whole number; false when the object has no such attribute. */
static bool find_number(struct reader *reader, const char *object, const char *name, int64_t *value)
{
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_object(reader, object, H5I_GROUP, name);
    return id >= 0 && dpe_inside_whole(id, name, value) == DPE_INSIDE_THERE;
}

/* A string attribute; owned, NULL after a failure. */
static char *read_text(struct reader *reader, const char *object, const char *name)
{
    if (reader->error != DPE_TABLE_OK) {
        return NULL;
    }
    char *text = NULL;
    DPE_SCOPED(dpe_inside_close_scoped) hid_t id = open_object(reader, object, H5I_GROUP, name);
    if (id < 0 || dpe_inside_string(id, name, &text) != DPE_INSIDE_THERE) {
        bad(reader, object, name);
    }
    return text;
}

/* Whether the table is one of frequencies. A convention is implemented in one way only: anything
 * else must not be half-applied. What follows a colon explains. */
static bool read_conventions(struct reader *reader)
{
    bool frequencies = has_attribute(reader, "/table", "moves");
    if (frequencies) {
        char *text = read_text(reader, "/table", "moves");
        if (text != NULL && strcmp(text, "frequencies") != 0) {
            bad(reader, "/table: moves", "'frequencies', or none");
        }
        free(text);
    }
    for (size_t i = 0; i < dpe_n_table_conventions && reader->error == DPE_TABLE_OK; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        const char *expected = dpe_table_convention(convention, frequencies);
        char *text = read_text(reader, "/table", convention->name);
        size_t n = strlen(expected);
        if (text != NULL &&
            (strncmp(text, expected, n) != 0 || (text[n] != '\0' && text[n] != ':'))) {
            reader->error =
                dpe_table_fail(reader->message, DPE_TABLE_VERSION,
                               "%s: /table: %s is '%s', this library supports only '%s'",
                               reader->path, convention->name, text, expected);
        }
        free(text);
    }
    return frequencies;
}

/* A run that was stopped has rows and no /table yet. */
static void refuse_unfinished(struct reader *reader)
{
    int64_t complete = 1, planned = 0, missing = 0;
    if (reader->error != DPE_TABLE_OK || has_path(reader, "/table") ||
        !find_number(reader, "/", "complete", &complete) || complete != 0) {
        return;
    }
    char samples[96] = "";
    if (find_number(reader, "/", "n_planned", &planned) &&
        find_number(reader, "/", "n_missing", &missing) && missing >= 0 && planned >= missing) {
        snprintf(samples, sizeof samples, "%lld of %lld samples; ", (long long)(planned - missing),
                 (long long)planned);
    }
    reader->error = dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE,
                                   "%s: this run is not finished: %srun the same command to finish "
                                   "it",
                                   reader->path, samples);
}

static void read_version(struct reader *reader, char **version)
{
    char *schema = read_text(reader, "/", "schema_name");
    if (schema != NULL && strcmp(schema, "dpe-table") != 0) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE,
                                       "%s: expected schema_name 'dpe-table', found '%s'",
                                       reader->path, schema);
    }
    free(schema);
    *version = read_text(reader, "/", "schema_version");
    struct reader quiet = {.file = reader->file, .path = reader->path, .message = NULL};
    char *history = has_path(reader, "/run") ? read_text(&quiet, "/run", "history") : NULL;
    char why[DPE_TABLE_MESSAGE];
    if (*version != NULL && dpe_table_check_version(*version, history, why) != DPE_TABLE_OK) {
        reader->error =
            dpe_table_fail(reader->message, DPE_TABLE_VERSION, "%s: %.400s", reader->path, why);
    }
    free(history);
    refuse_unfinished(reader);
    if (reader->error == DPE_TABLE_OK && !has_path(reader, "/table")) {
        bad(reader, "/table", "a DPE table (a finished one of dpe-detect, or one of dpe-export)");
    }
}

static void read_model(struct reader *reader, struct dpe_table_values *values)
{
    for (size_t i = 0; i < dpe_n_model_fields && reader->error == DPE_TABLE_OK; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        void *at = (char *)values + field->at;
        if (field->text) {
            *(char **)at = read_text(reader, "/model", field->attribute);
        } else if (!find_number(reader, "/model", field->attribute, at)) {
            bad(reader, "/model", field->attribute);
        }
    }
    values->n_pairs = values->head_dim / 2;
}

static int64_t count_field(void *self, const struct dpe_table_field *field)
{
    if (field->type == DPE_FIELD_TEXT) {
        struct reader *reader = self;
        return has_attribute(reader, reader->entry, field->name) ? 1 : -1;
    }
    return !has_path(self, in_entry(self, field->name)) ? -1
           : field->axes[0] != DPE_AXIS_BAND_NUMBER     ? 1
                                                        : read_extent(self, field->name);
}

static int read_field(void *self, const struct dpe_table_field *field,
                      const struct dpe_table_values *values, void *data, size_t n)
{
    struct reader *reader = self;
    hsize_t dims[DPE_FIELD_RANK] = {0};
    (void)n;
    if (field->type == DPE_FIELD_TEXT) {
        *(char **)data = read_text(reader, reader->entry, field->name);
        return reader->error;
    }
    for (int i = 0; i < DPE_FIELD_RANK; i++) {
        dims[i] = (hsize_t)dpe_field_extent(field->axes[i], values);
    }
    read_numbers(reader, field->name, field->type, dpe_field_rank(field), dims, data);
    return reader->error;
}

/* An entry: reader->entry of the file, and the model. */
static void read_values(struct reader *reader, bool frequencies, struct dpe_table_values *values)
{
    const struct dpe_field_source source = {reader, count_field, read_field};
    char why[DPE_TABLE_MESSAGE] = "";
    char *message = reader->message;
    values->frequencies = frequencies;
    read_model(reader, values);
    values->n_groups = read_extent(reader, "scale_factor");
    if (reader->error == DPE_TABLE_OK) {
        reader->message = why;
        int error = dpe_table_read_fields(&source, values, why);
        reader->message = message;
        /* What names its file already came from here. */
        bool named = reader->error != DPE_TABLE_OK;
        reader->error = error == DPE_TABLE_OK
                            ? error
                            : dpe_table_fail(message, (enum dpe_table_error)error, "%s%s%.400s",
                                             named ? "" : reader->path, named ? "" : ": ", why);
    }
}

/* The lengths of a table's entries, whose groups are called by them; owned. */
static int64_t *read_lengths(struct reader *reader, struct dpe_table_list *list)
{
    int64_t n = read_extent(reader, "length");
    if (reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_list_make(list, n, reader->path, reader->message);
    }
    const hsize_t dims[1] = {(hsize_t)n};
    int64_t *lengths = reader->error == DPE_TABLE_OK ? calloc((size_t)n, sizeof *lengths) : NULL;
    if (lengths != NULL) {
        read_numbers(reader, "length", DPE_FIELD_WHOLE, 1, dims, lengths);
    } else if (reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
    }
    for (int64_t i = 1; i < n && reader->error == DPE_TABLE_OK; i++) {
        if (lengths[i] <= lengths[i - 1]) {
            bad(reader, "/table/length", "lengths that increase");
        }
    }
    return lengths;
}

static void read_entries(struct reader *reader, bool frequencies, const char *version,
                         struct dpe_table_list *list)
{
    int64_t *lengths = read_lengths(reader, list);
    for (int64_t i = 0; i < list->n && reader->error == DPE_TABLE_OK; i++) {
        struct dpe_table_values *values = &list->values[i];
        snprintf(reader->entry, sizeof reader->entry, "/table/%lld", (long long)lengths[i]);
        values->schema_version = strdup(version);
        if (values->schema_version == NULL) {
            reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        } else if (!has_path(reader, reader->entry)) {
            bad(reader, reader->entry, "the entry that /table/length lists");
        } else {
            read_values(reader, frequencies, values);
        }
        if (reader->error == DPE_TABLE_OK && values->length != lengths[i]) {
            bad(reader, in_entry(reader, "evaluated_length"),
                "the length in the name of its group");
        }
    }
    free(lengths);
}

static void read_table(struct reader *reader, struct dpe_table_list *list)
{
    char *version = NULL;
    read_version(reader, &version);
    bool frequencies = reader->error == DPE_TABLE_OK && read_conventions(reader);
    if (reader->error == DPE_TABLE_OK && has_path(reader, in_entry(reader, "length"))) {
        read_entries(reader, frequencies, version, list);
    } else if (reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_list_make(list, 1, reader->path, reader->message);
        if (reader->error == DPE_TABLE_OK) {
            list->values[0].schema_version = version;
            version = NULL;
            read_values(reader, frequencies, &list->values[0]);
        }
    }
    free(version);
}

/* HDF5 must not see a damaged file: see trailer.h. */
static int check_damage(const char *path, bool unchecked, char *message)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return dpe_table_fail(message, DPE_TABLE_NO_FILE, "%s: %s", path, strerror(errno));
    }
    uint64_t expected = 0;
    uint64_t found = 0;
    enum dpe_trailer_state state = dpe_trailer_check(fd, &expected, &found);
    int reason = errno;
    close(fd);
    if (state == DPE_TRAILER_UNREADABLE) {
        return dpe_table_fail(message, DPE_TABLE_NO_FILE, "%s: %s", path, strerror(reason));
    }
    if (state == DPE_TRAILER_DAMAGED) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "%s: damaged: expected CRC-32C %08llx, found %08llx; copy it again",
                              path, (unsigned long long)expected, (unsigned long long)found);
    }
    if (state == DPE_TRAILER_NONE && !unchecked) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "%s: has no checksum at its end: it is cut off, or another program "
                              "wrote or changed it; outputs/SCHEMA.md shows how to add a checksum; "
                              "dpe-export --unchecked FILE -o NEW.h5 writes it anew",
                              path);
    }
    return DPE_TABLE_OK;
}

int dpe_table_read_h5(const char *path, bool unchecked, struct dpe_table_list *list, char *message)
{
    int damage = check_damage(path, unchecked, message);
    if (damage != DPE_TABLE_OK) {
        return damage;
    }
    struct reader reader = {.file = -1, .path = path, .entry = "/table", .message = message};
    /* HDF5 prints its error stack by default; the caller gets a message instead. */
    H5E_auto2_t printer = NULL;
    void *printer_data = NULL;
    H5Eget_auto2(H5E_DEFAULT, &printer, &printer_data);
    dpe_inside_listen();
    reader.file = dpe_inside_file(path);
    if (reader.file < 0) {
        reader.error =
            dpe_table_fail(message, dpe_inside_no_memory() ? DPE_TABLE_MEMORY : DPE_TABLE_BAD_FILE,
                           "%s: cannot be read as HDF5 (%s)", path, dpe_inside_words());
    } else {
        read_table(&reader, list);
        H5Fclose(reader.file);
    }
    H5Eset_auto2(H5E_DEFAULT, printer, printer_data);
    return reader.error;
}
