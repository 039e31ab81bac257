/* The HDF5 form of a DPE table: /table and what it needs of /model. */
#include "outputs/table/dpe_table_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "outputs/table/inside.h"
#include "outputs/table/trailer.h"

/* One file being read; the first failure wins and everything after it is skipped. */
struct reader {
    hid_t file;
    const char *path;
    char entry[40]; /* the group that the datasets are in: "/table", or one below it */
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
        reader->error = dpe_table_fail(
            reader->message, dpe_inside_no_memory() ? DPE_TABLE_MEMORY : DPE_TABLE_BAD_FILE,
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
    if (object >= 0) {
        H5Oclose(object);
    }
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

/* The same in the entry. */
static bool has_object(struct reader *reader, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", reader->entry, name);
    return has_path(reader, path);
}

static void bad_in_entry(struct reader *reader, const char *name, const char *expected)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", reader->entry, name);
    bad(reader, path, expected);
}

/* A dataset of the entry; negative after a failure. */
static hid_t open_set(struct reader *reader, const char *name, const char *expected)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", reader->entry, name);
    return open_object(reader, path, H5I_DATASET, expected);
}

/* An attribute of a group; negative when it has none of that name. */
static hid_t open_attribute(struct reader *reader, const char *object, const char *name)
{
    hid_t id = open_object(reader, object, H5I_GROUP, name);
    hid_t attribute =
        id >= 0 && H5Aexists(id, name) > 0 ? H5Aopen(id, name, H5P_DEFAULT) : (hid_t)-1;
    if (id >= 0) {
        H5Oclose(id);
    }
    return attribute;
}

/* Whether HDF5 converts what is stored without losing any of it: it would make 32 of 32.9. Numbers
 * that a type cannot hold become its largest, which the checks refuse. */
static bool converts_whole(hid_t stored, hid_t type)
{
    H5T_class_t from = stored < 0 ? H5T_NO_CLASS : H5Tget_class(stored);
    return from == H5T_INTEGER || (from == H5T_FLOAT && H5Tget_class(type) == H5T_FLOAT);
}

/* A numeric dataset of the entry, of exactly these dimensions, converted to `type`; NULL after a
 * failure. */
static void *read_array(struct reader *reader, const char *name, hid_t type, size_t size, int rank,
                        const hsize_t *dims)
{
    if (reader->error != DPE_TABLE_OK) {
        return NULL;
    }
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(count, (size_t)dims[i], &count) || count > SIZE_MAX / size) {
            bad_in_entry(reader, name, "a size that fits into memory");
            return NULL;
        }
    }
    char expected[96];
    snprintf(expected, sizeof expected, "a dataset of rank %d with %llu %snumbers", rank,
             (unsigned long long)count, H5Tget_class(type) == H5T_INTEGER ? "whole " : "");
    hsize_t found[8] = {0};
    enum dpe_inside read = DPE_INSIDE_UNKNOWN;
    hid_t set = open_set(reader, name, expected);
    hid_t space = set >= 0 ? H5Dget_space(set) : -1;
    hid_t stored = set >= 0 ? H5Dget_type(set) : -1;
    int found_rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool fits = found_rank == rank && H5Sget_simple_extent_dims(space, found, NULL) == rank;
    for (int i = 0; i < rank && fits; i++) {
        fits = found[i] == dims[i];
    }
    fits = fits && converts_whole(stored, type);
    void *data = fits ? malloc(count * size) : NULL;
    if (!fits) {
        bad_in_entry(reader, name, expected);
    } else if (data == NULL) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
    } else if ((read = dpe_inside_read(set, type, H5P_DEFAULT, data)) != DPE_INSIDE_THERE) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", reader->entry, name);
        not_read(reader, path, read);
        free(data);
        data = NULL;
    }
    if (stored >= 0) {
        H5Tclose(stored);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (set >= 0) {
        H5Dclose(set);
    }
    return data;
}

/* A scalar dataset of 8 bytes. */
static void read_scalar(struct reader *reader, const char *name, hid_t type, void *value)
{
    void *data = read_array(reader, name, type, sizeof(double), 0, NULL);
    if (data != NULL) {
        memcpy(value, data, sizeof(double));
        free(data);
    }
}

/* The length of a dataset of rank 1. */
static int64_t read_extent(struct reader *reader, const char *name)
{
    hid_t set = open_set(reader, name, "a list");
    hid_t space = set >= 0 ? H5Dget_space(set) : -1;
    hsize_t extent = 0;
    if (space < 0 || H5Sget_simple_extent_ndims(space) != 1 ||
        H5Sget_simple_extent_dims(space, &extent, NULL) != 1 || extent > INT32_MAX) {
        bad_in_entry(reader, name, "a list");
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (set >= 0) {
        H5Dclose(set);
    }
    return (int64_t)extent;
}

static void read_number(struct reader *reader, const char *object, const char *name, hid_t type,
                        void *value)
{
    if (reader->error != DPE_TABLE_OK) {
        return;
    }
    hid_t attribute = open_attribute(reader, object, name);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    hid_t stored = attribute >= 0 ? H5Aget_type(attribute) : -1;
    if (space < 0 || H5Sget_simple_extent_npoints(space) != 1 || !converts_whole(stored, type) ||
        H5Aread(attribute, type, value) < 0) {
        bad(reader, object, name);
    }
    if (stored >= 0) {
        H5Tclose(stored);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
}

/* A UTF-8 string attribute, variable or fixed length; owned, NULL after a failure. */
static char *read_text(struct reader *reader, const char *object, const char *name)
{
    if (reader->error != DPE_TABLE_OK) {
        return NULL;
    }
    char *text = NULL;
    hid_t attribute = open_attribute(reader, object, name);
    hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    bool single = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 && type >= 0 &&
                  H5Tget_class(type) == H5T_STRING;
    if (single && H5Tis_variable_str(type) > 0) {
        char *borrowed = NULL;
        if (H5Aread(attribute, type, &borrowed) >= 0 && borrowed != NULL) {
            text = strdup(borrowed);
            H5free_memory(borrowed);
        }
    } else if (single && H5Tget_size(type) < 4096) {
        text = calloc(1, H5Tget_size(type) + 1);
        if (text != NULL && H5Aread(attribute, type, text) < 0) {
            free(text);
            text = NULL;
        }
    }
    if (text == NULL) {
        bad(reader, object, name);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    return text;
}

/* A convention this library implements in one way only: anything else must not be half-applied.
 * What follows a colon explains. */
static void expect_text(struct reader *reader, const char *name, const char *expected)
{
    char *text = read_text(reader, "/table", name);
    size_t n = strlen(expected);
    if (text != NULL && (strncmp(text, expected, n) != 0 || (text[n] != '\0' && text[n] != ':'))) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_VERSION,
                                       "%s: /table: %s is '%s', this library supports only '%s'",
                                       reader->path, name, text, expected);
    }
    free(text);
}

/* An integer on "/"; false when there is none. */
static bool read_count(struct reader *reader, const char *name, long long *value)
{
    hid_t attribute = open_attribute(reader, "/", name);
    hid_t space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    bool read = space >= 0 && type >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                H5Tget_class(type) == H5T_INTEGER &&
                H5Aread(attribute, H5T_NATIVE_LLONG, value) >= 0;
    if (type >= 0) {
        H5Tclose(type);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    return read;
}

/* A run that was stopped has rows and no /table yet. */
static void refuse_unfinished(struct reader *reader)
{
    long long complete = 1, planned = 0, missing = 0;
    if (reader->error != DPE_TABLE_OK || has_path(reader, "/table") ||
        !read_count(reader, "complete", &complete) || complete != 0) {
        return;
    }
    char samples[96] = "";
    if (read_count(reader, "n_planned", &planned) && read_count(reader, "n_missing", &missing) &&
        missing >= 0 && planned >= missing) {
        snprintf(samples, sizeof samples, "%lld of %lld samples; ", planned - missing, planned);
    }
    reader->error = dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE,
                                   "%s: this run is not finished: %srun the same command to finish "
                                   "it",
                                   reader->path, samples);
}

static void read_version(struct reader *reader, struct dpe_table_values *values)
{
    char *schema = read_text(reader, "/", "schema_name");
    if (schema != NULL && strcmp(schema, "dpe-table") != 0) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE,
                                       "%s: expected schema_name 'dpe-table', found '%s'",
                                       reader->path, schema);
    }
    free(schema);
    values->schema_version = read_text(reader, "/", "schema_version");
    if (values->schema_version != NULL && !dpe_table_knows_version(values->schema_version)) {
        reader->error =
            dpe_table_fail(reader->message, DPE_TABLE_VERSION,
                           "%s: expected schema version " DPE_TABLE_VERSIONS ", found %s",
                           reader->path, values->schema_version);
    }
    refuse_unfinished(reader);
    if (reader->error == DPE_TABLE_OK && !has_path(reader, "/table")) {
        bad(reader, "/table", "a DPE table (a finished one of dpe-detect, or one of dpe-export)");
    }
    bool frequencies = reader->error == DPE_TABLE_OK &&
                       dpe_table_version_has_frequencies(values->schema_version);
    if (frequencies) {
        expect_text(reader, "moves", "frequencies");
    }
    expect_text(reader, "near_rule", frequencies ? DPE_TABLE_NO_RULE : "distance < local_window");
    expect_text(reader, "rounding", frequencies ? DPE_TABLE_NO_RULE : "separable");
    expect_text(reader, "angle_precision", "f32");
    expect_text(reader, "pair_layout", "half-split");
}

/* Versions from 2 on have all of a temperature. In version 1, which readers apply without one, there
 * must be none of it. */
static void read_temperature(struct reader *reader, struct dpe_table_values *values)
{
    const struct {
        const char *name;
        double *value;
    } numbers[] = {
        {"logit_scale", &values->logit_scale},
        {"log_n_length", &values->log_n_length},
        {"log_n_power", &values->log_n_power},
        {"log_n_decay", &values->log_n_decay},
    };
    dpe_table_no_temperature(values);
    bool has =
        reader->error == DPE_TABLE_OK && dpe_table_version_has_temperature(values->schema_version);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (has) {
            read_scalar(reader, numbers[i].name, H5T_NATIVE_DOUBLE, numbers[i].value);
        } else if (reader->error == DPE_TABLE_OK && has_object(reader, numbers[i].name)) {
            bad_in_entry(reader, numbers[i].name, "none in a table of schema version 1");
        }
    }
}

/* The rows of all bands; an entry without bands has none. */
static void read_bands(struct reader *reader, struct dpe_table_values *values)
{
    if (reader->error != DPE_TABLE_OK || !has_object(reader, "bands")) {
        return;
    }
    if (!dpe_table_version_has_bands(values->schema_version)) {
        bad_in_entry(reader, "bands", "none in a table of a schema version before 6");
        return;
    }
    const int64_t row = dpe_table_band_row(values);
    const int64_t n = read_extent(reader, "bands");
    const hsize_t count[1] = {(hsize_t)n};
    if (reader->error == DPE_TABLE_OK &&
        (n < 1 || n % (2 * row) != 0 || n / (2 * row) > DPE_TABLE_MOST_BANDS)) {
        bad_in_entry(reader, "bands", "the numbers of 1 to 4 bands");
    }
    values->bands = read_array(reader, "bands", H5T_NATIVE_DOUBLE, sizeof(double), 1, count);
    values->n_bands = values->bands != NULL ? n / (2 * row) : 0;
}

/* What only version 5 has. */
static void read_method(struct reader *reader, struct dpe_table_values *values)
{
    static const char *const names[] = {"unrounded", "applied_inv_freq"};
    const hsize_t pairs[1] = {(hsize_t)values->n_pairs};
    if (reader->error != DPE_TABLE_OK) {
        return;
    }
    if (dpe_table_version_has_methods(values->schema_version)) {
        int64_t unrounded = 0;
        read_scalar(reader, names[0], H5T_NATIVE_INT64, &unrounded);
        values->unrounded = unrounded >= 0 && unrounded < INT32_MAX ? (int)unrounded : -1;
        values->applied_inv_freq =
            read_array(reader, names[1], H5T_NATIVE_DOUBLE, sizeof(double), 1, pairs);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (has_object(reader, names[i])) {
            bad_in_entry(reader, names[i], "none in a table of a schema version before 5");
        }
    }
}

/* Without a mask (a detection of all pairs) every pair of every head is a key pair. */
static void read_mask(struct reader *reader, struct dpe_table_values *values)
{
    const hsize_t dims[3] = {(hsize_t)values->n_layers, (hsize_t)values->n_heads,
                             (hsize_t)values->n_pairs};
    if (reader->error != DPE_TABLE_OK) {
        return;
    }
    if (has_object(reader, "mask")) {
        read_scalar(reader, "top_k", H5T_NATIVE_INT64, &values->top_k);
        values->mask = read_array(reader, "mask", H5T_NATIVE_UINT8, 1, 3, dims);
        return;
    }
    size_t count = 0;
    if (dims[0] > 1 << 16 || dims[1] > 1 << 16 || dims[2] > 1 << 15 ||
        __builtin_mul_overflow((size_t)(dims[0] * dims[1]), (size_t)dims[2], &count)) {
        bad(reader, "/model", "counts that a model can have");
        return;
    }
    values->top_k = values->n_pairs;
    values->mask = malloc(count);
    if (values->mask == NULL) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        return;
    }
    memset(values->mask, 1, count);
}

/* An entry: reader->entry of the file, and the model. */
static void read_values(struct reader *reader, struct dpe_table_values *values)
{
    values->model_type = read_text(reader, "/model", "model_type");
    values->model_fingerprint = read_text(reader, "/model", "fingerprint");
    const struct {
        const char *object, *name;
        int64_t *value;
    } numbers[] = {
        {"/model", "layers", &values->n_layers},
        {"/model", "heads", &values->n_heads},
        {"/model", "kv_heads", &values->n_kv_heads},
        {"/model", "head_dim", &values->head_dim},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        read_number(reader, numbers[i].object, numbers[i].name, H5T_NATIVE_INT64, numbers[i].value);
    }
    read_scalar(reader, "trained_length", H5T_NATIVE_INT64, &values->trained_length);
    read_scalar(reader, "evaluated_length", H5T_NATIVE_INT64, &values->length);
    read_scalar(reader, "local_window", H5T_NATIVE_INT64, &values->window);
    values->frequencies = values->schema_version != NULL &&
                          dpe_table_version_has_frequencies(values->schema_version);
    read_scalar(reader, "attention_scaling", H5T_NATIVE_DOUBLE, &values->attention_scaling);
    read_temperature(reader, values);
    if (reader->error != DPE_TABLE_OK) {
        return;
    }
    values->n_pairs = values->head_dim / 2;
    values->n_groups = read_extent(reader, "scale_factor");
    if (values->n_layers < 1 || values->n_heads < 1 || values->n_pairs < 1 ||
        values->n_groups < 1) {
        bad(reader, "/model", "positive counts of layers, heads, pairs and groups");
    }
    const hsize_t groups[1] = {(hsize_t)values->n_groups};
    const hsize_t edges[1] = {(hsize_t)values->n_groups + 1};
    const hsize_t pairs[1] = {(hsize_t)values->n_pairs};
    values->group_edge =
        read_array(reader, "group_edge", H5T_NATIVE_INT32, sizeof(int32_t), 1, edges);
    values->scale_factor =
        read_array(reader, "scale_factor", H5T_NATIVE_DOUBLE, sizeof(double), 1, groups);
    values->effective_length =
        read_array(reader, "effective_length", H5T_NATIVE_DOUBLE, sizeof(double), 1, groups);
    values->inv_freq = read_array(reader, "inv_freq", H5T_NATIVE_DOUBLE, sizeof(double), 1, pairs);
    read_method(reader, values);
    read_bands(reader, values);
    read_mask(reader, values);
}

/* The lengths of a table's entries, whose groups are called by them. */
static void read_entries(struct reader *reader, const struct dpe_table_values *header,
                         struct dpe_table_list *list)
{
    int64_t n = read_extent(reader, "length");
    if (reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_list_make(list, n, reader->path, reader->message);
    }
    const hsize_t dims[1] = {(hsize_t)n};
    int64_t *lengths = read_array(reader, "length", H5T_NATIVE_INT64, sizeof *lengths, 1, dims);
    for (int64_t i = 1; i < n && reader->error == DPE_TABLE_OK; i++) {
        if (lengths[i] <= lengths[i - 1]) {
            bad(reader, "/table/length", "lengths that increase");
        }
    }
    for (int64_t i = 0; i < n && reader->error == DPE_TABLE_OK; i++) {
        struct dpe_table_values *values = &list->values[i];
        snprintf(reader->entry, sizeof reader->entry, "/table/%lld", (long long)lengths[i]);
        values->schema_version = strdup(header->schema_version);
        if (values->schema_version == NULL) {
            reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        } else if (!has_path(reader, reader->entry)) {
            bad(reader, reader->entry, "the entry that /table/length lists");
        } else {
            read_values(reader, values);
        }
        if (reader->error == DPE_TABLE_OK && values->length != lengths[i]) {
            bad_in_entry(reader, "evaluated_length", "the length in the name of its group");
        }
    }
    free(lengths);
}

static void read_table(struct reader *reader, struct dpe_table_list *list)
{
    struct dpe_table_values header = {0};
    read_version(reader, &header);
    if (reader->error != DPE_TABLE_OK) {
        /* reported */
    } else if (dpe_table_version_has_entries(header.schema_version) ||
               (dpe_table_version_has_methods(header.schema_version) && has_object(reader, "length"))) {
        read_entries(reader, &header, list);
    } else if (has_object(reader, "length")) {
        bad_in_entry(reader, "length", "none in a table of schema version 1, 2 or 4");
    } else {
        reader->error = dpe_table_list_make(list, 1, reader->path, reader->message);
        if (reader->error == DPE_TABLE_OK) {
            list->values[0] = header;
            header = (struct dpe_table_values){0};
            read_values(reader, &list->values[0]);
        }
    }
    dpe_table_values_free(&header);
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
