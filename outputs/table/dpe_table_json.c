/* The JSON form of a DPE table (dpe_table.schema.json), and the choice between the two forms. */
#include "outputs/table/dpe_table_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

struct reader {
    const char *path;
    char *message;
    int error;
    char entry[32]; /* what stands before a member's name: "", or "entries[1]." */
};

static void bad(struct reader *reader, const char *name, const char *expected)
{
    if (reader->error == DPE_TABLE_OK) {
        reader->error =
            dpe_table_fail(reader->message, DPE_TABLE_BAD_FILE, "%s: \"%s%s\": expected %s",
                           reader->path, reader->entry, name, expected);
    }
}

static int64_t get_int(struct reader *reader, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) {
        bad(reader, name, "a whole number");
        return 0;
    }
    return json_integer_value(value);
}

static double get_double(struct reader *reader, const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value)) {
        bad(reader, name, "a number");
        return 0.0;
    }
    return json_number_value(value);
}

static char *get_text(struct reader *reader, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (text == NULL) {
        bad(reader, name, "a string");
        return NULL;
    }
    char *copy = strdup(text);
    if (copy == NULL && reader->error == DPE_TABLE_OK) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
    }
    return copy;
}

static void expect_text(struct reader *reader, const json_t *root, const char *name,
                        const char *expected)
{
    const char *text = json_string_value(json_object_get(root, name));
    if (reader->error == DPE_TABLE_OK && (text == NULL || strcmp(text, expected) != 0)) {
        reader->error =
            dpe_table_fail(reader->message, DPE_TABLE_VERSION,
                           "%s: \"%s\" is '%s', this library supports only '%s'", reader->path,
                           name, text != NULL ? text : "missing", expected);
    }
}

/* Numbers of a list of exactly n, as doubles or 32-bit integers; owned, NULL after a failure. */
static void *get_list(struct reader *reader, const json_t *root, const char *name, int64_t n,
                      bool whole)
{
    const json_t *list = json_object_get(root, name);
    if (reader->error != DPE_TABLE_OK) {
        return NULL;
    }
    if (!json_is_array(list) || (int64_t)json_array_size(list) != n) {
        char expected[64];
        snprintf(expected, sizeof expected, "a list of %lld numbers", (long long)n);
        bad(reader, name, expected);
        return NULL;
    }
    size_t size = whole ? sizeof(int32_t) : sizeof(double);
    void *data = calloc((size_t)n, size);
    if (data == NULL) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        json_int_t integer = json_integer_value(value);
        if (whole ? !json_is_integer(value) || integer < 0 || integer > INT32_MAX
                  : !json_is_number(value)) {
            bad(reader, name, whole ? "whole numbers" : "numbers");
        } else if (whole) {
            ((int32_t *)data)[i] = (int32_t)integer;
        } else {
            ((double *)data)[i] = json_number_value(value);
        }
    }
    return data;
}

/* "key_pairs": [layer][head] = pair indices. */
static void get_mask(struct reader *reader, const json_t *root, struct dpe_table_values *values)
{
    const json_t *layers = json_object_get(root, "key_pairs");
    if (reader->error != DPE_TABLE_OK) {
        return;
    }
    if ((int64_t)json_array_size(layers) != values->n_layers) {
        bad(reader, "key_pairs", "one list for each layer");
        return;
    }
    values->mask = calloc((size_t)(values->n_layers * values->n_heads), (size_t)values->n_pairs);
    if (values->mask == NULL) {
        reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        return;
    }
    for (int64_t layer = 0; layer < values->n_layers; layer++) {
        const json_t *heads = json_array_get(layers, (size_t)layer);
        if ((int64_t)json_array_size(heads) != values->n_heads) {
            bad(reader, "key_pairs", "one list for each head of each layer");
            return;
        }
        for (int64_t head = 0; head < values->n_heads; head++) {
            const json_t *pairs = json_array_get(heads, (size_t)head);
            uint8_t *row = values->mask + (layer * values->n_heads + head) * values->n_pairs;
            for (size_t i = 0; i < json_array_size(pairs); i++) {
                const json_t *pair = json_array_get(pairs, i);
                json_int_t j = json_integer_value(pair);
                if (!json_is_integer(pair) || j < 0 || j >= values->n_pairs || row[j] != 0) {
                    bad(reader, "key_pairs", "distinct pair indices below head_dim / 2");
                    return;
                }
                row[j] = 1;
            }
        }
    }
}

static void read_conventions(struct reader *reader, const json_t *root,
                             struct dpe_table_values *values)
{
    expect_text(reader, root, "schema_name", "dpe-table");
    values->schema_version = get_text(reader, root, "schema_version");
    if (values->schema_version != NULL && !dpe_table_knows_version(values->schema_version)) {
        reader->error =
            dpe_table_fail(reader->message, DPE_TABLE_VERSION,
                           "%s: expected schema version " DPE_TABLE_VERSIONS ", found %s",
                           reader->path, values->schema_version);
    }
    bool frequencies = values->schema_version != NULL &&
                       dpe_table_version_has_frequencies(values->schema_version);
    if (frequencies) {
        expect_text(reader, root, "moves", "frequencies");
    }
    expect_text(reader, root, "near_rule",
                frequencies ? DPE_TABLE_NO_RULE : "distance < local_window");
    expect_text(reader, root, "rounding", frequencies ? DPE_TABLE_NO_RULE : "separable");
    expect_text(reader, root, "angle_precision", "f32");
    expect_text(reader, root, "pair_layout", "half-split");
}

/* Versions from 2 on have all of a temperature. In version 1, which readers apply without one, there
 * must be none of it. */
static void read_temperature(struct reader *reader, const json_t *root,
                             struct dpe_table_values *values)
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
        values->schema_version != NULL && dpe_table_version_has_temperature(values->schema_version);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (has) {
            *numbers[i].value = get_double(reader, root, numbers[i].name);
        } else if (json_object_get(root, numbers[i].name) != NULL) {
            bad(reader, numbers[i].name, "none in a table of schema version 1");
        }
    }
}

/* One list of the rows of all bands, one after another; a list of none of an entry without bands. */
static void read_bands(struct reader *reader, const json_t *root, struct dpe_table_values *values)
{
    const json_t *list = json_object_get(root, "bands");
    if (reader->error != DPE_TABLE_OK) { /* the number of pairs may be no number of a model */
        return;
    }
    if (values->schema_version == NULL || !dpe_table_version_has_bands(values->schema_version)) {
        if (list != NULL) {
            bad(reader, "bands", "none in a table of a schema version before 6");
        }
        return;
    }
    int64_t row = 2 * dpe_table_band_row(values);
    int64_t n = (int64_t)json_array_size(list);
    if (!json_is_array(list) || n % row != 0 || n / row > DPE_TABLE_MOST_BANDS) {
        bad(reader, "bands", "a list of the numbers of at most 4 bands");
    } else if (n > 0) {
        values->n_bands = n / row;
        values->bands = get_list(reader, root, "bands", n, false);
    }
}

/* What only version 5 has. */
static void read_method(struct reader *reader, const json_t *root, struct dpe_table_values *values)
{
    static const char *const names[] = {"unrounded", "applied_inv_freq"};
    if (values->schema_version != NULL && dpe_table_version_has_methods(values->schema_version)) {
        const json_t *unrounded = json_object_get(root, names[0]);
        values->unrounded = json_is_true(unrounded);
        if (!json_is_boolean(unrounded)) {
            bad(reader, names[0], "true or false");
        }
        values->applied_inv_freq = get_list(reader, root, names[1], values->n_pairs, false);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (json_object_get(root, names[i]) != NULL) {
            bad(reader, names[i], "none in a table of a schema version before 5");
        }
    }
}

static void read_model(struct reader *reader, const json_t *model, struct dpe_table_values *values)
{
    values->model_type = get_text(reader, model, "model_type");
    values->model_fingerprint = get_text(reader, model, "fingerprint");
    values->n_layers = get_int(reader, model, "n_layers");
    values->n_heads = get_int(reader, model, "n_heads");
    values->n_kv_heads = get_int(reader, model, "n_kv_heads");
    values->head_dim = get_int(reader, model, "head_dim");
    values->n_pairs = values->head_dim / 2;
}

/* An entry, after its model. */
static void read_values(struct reader *reader, const json_t *root, struct dpe_table_values *values)
{
    values->trained_length = get_int(reader, root, "trained_length");
    values->length = get_int(reader, root, "evaluated_length");
    values->window = get_int(reader, root, "local_window");
    values->frequencies = values->schema_version != NULL &&
                          dpe_table_version_has_frequencies(values->schema_version);
    values->top_k = get_int(reader, root, "top_k");
    values->attention_scaling = get_double(reader, root, "attention_scaling");
    read_temperature(reader, root, values);
    values->n_groups = (int64_t)json_array_size(json_object_get(root, "scale_factor"));
    if (values->n_groups < 1) {
        bad(reader, "scale_factor", "a list of one number or more");
    }
    if (values->n_layers < 1 || values->n_layers > 1 << 16 || values->n_heads < 1 ||
        values->n_heads > 1 << 16 || values->n_pairs < 1 || values->n_pairs > 1 << 15) {
        bad(reader, "model", "positive counts of layers, heads and pairs");
    }
    values->group_edge = get_list(reader, root, "group_edge", values->n_groups + 1, true);
    values->scale_factor = get_list(reader, root, "scale_factor", values->n_groups, false);
    values->effective_length = get_list(reader, root, "effective_length", values->n_groups, false);
    values->inv_freq = get_list(reader, root, "inv_freq", values->n_pairs, false);
    read_method(reader, root, values);
    read_bands(reader, root, values);
    get_mask(reader, root, values);
}

/* The table itself: of a config.json made by `dpe-export --format hf` the block of type "dpe", which is
 * in text_config where the model has one. */
static json_t *table_of(json_t *root)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    json_t *text = json_object_get(root, "text_config");
    for (int i = 0; i < 4; i++) {
        json_t *block = json_object_get(i < 2 ? text : root, names[i % 2]);
        const char *type = json_string_value(json_object_get(block, "rope_type"));
        if (type != NULL && strcmp(type, "dpe") == 0) {
            return block;
        }
    }
    return root;
}

static void read_entries(struct reader *reader, const json_t *root, const char *version,
                         struct dpe_table_list *list)
{
    const json_t *entries = json_object_get(root, "entries");
    if (!json_is_array(entries)) {
        bad(reader, "entries", "a list");
        return;
    }
    reader->error =
        dpe_table_list_make(list, (int64_t)json_array_size(entries), reader->path, reader->message);
    for (int64_t i = 0; i < list->n && reader->error == DPE_TABLE_OK; i++) {
        list->values[i].schema_version = strdup(version);
        if (list->values[i].schema_version == NULL) {
            reader->error = dpe_table_fail(reader->message, DPE_TABLE_MEMORY, "out of memory");
        }
        reader->entry[0] = '\0';
        read_model(reader, json_object_get(root, "model"), &list->values[i]);
        snprintf(reader->entry, sizeof reader->entry, "entries[%lld].", (long long)i);
        read_values(reader, json_array_get(entries, (size_t)i), &list->values[i]);
    }
}

static void read_table(struct reader *reader, const json_t *root, struct dpe_table_list *list)
{
    struct dpe_table_values header = {0};
    read_conventions(reader, root, &header);
    if (reader->error != DPE_TABLE_OK) {
        /* reported */
    } else if (dpe_table_version_has_entries(header.schema_version) ||
               (dpe_table_version_has_methods(header.schema_version) &&
                json_object_get(root, "entries") != NULL)) {
        read_entries(reader, root, header.schema_version, list);
    } else if (json_object_get(root, "entries") != NULL) {
        bad(reader, "entries", "none in a table of schema version 1, 2 or 4");
    } else {
        reader->error = dpe_table_list_make(list, 1, reader->path, reader->message);
        if (reader->error == DPE_TABLE_OK) {
            list->values[0] = header;
            header = (struct dpe_table_values){0};
            read_model(reader, json_object_get(root, "model"), &list->values[0]);
            read_values(reader, root, &list->values[0]);
        }
    }
    dpe_table_values_free(&header);
}

int dpe_table_read_json(const char *path, struct dpe_table_list *list, char *message)
{
    struct reader reader = {.path = path, .message = message};
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        reader.error = dpe_table_fail(message, DPE_TABLE_BAD_FILE, "%s: line %d: %s", path,
                                      root == NULL ? why.line : 1,
                                      root == NULL ? why.text : "expected an object at the top");
    } else {
        read_table(&reader, table_of(root), list);
    }
    json_decref(root);
    return reader.error;
}

/* By its first bytes: other forms of a table begin with a comment, a name or a number. */
static bool begins_as_json(const char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", bytes[i]) != NULL && bytes[i] != '\0') {
        i++;
    }
    return i == n || bytes[i] == '{' || bytes[i] == '[';
}

static int open_table(const char *path, bool unchecked, struct dpe_table **table, char *message)
{
    char magic[8] = {0};
    struct stat info;
    /* Without waiting, as it would on a FIFO. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return dpe_table_fail(message, DPE_TABLE_NO_FILE, "%s: cannot be opened: %s",
                              path[0] != '\0' ? path : "\"\"", strerror(errno));
    }
    bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    bool folder = !regular && S_ISDIR(info.st_mode);
    ssize_t n = regular ? pread(fd, magic, sizeof magic, 0) : 0;
    close(fd);
    if (!regular && !folder) {
        return dpe_table_fail(message, DPE_TABLE_NO_FILE,
                              "%s: expected a regular file, found something else", path);
    }
    if (n <= 0) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "%s: is empty or a folder; expected a DPE table (HDF5 or JSON)",
                              path);
    }
    bool hdf5 = n == sizeof magic && memcmp(magic, "\211HDF\r\n\032\n", sizeof magic) == 0;
    if (!hdf5 && !begins_as_json(magic, (size_t)n)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                              "%s: expected a DPE table as HDF5 or JSON, found another form; give "
                              "the table that it was made from, which dpe-export TABLE.h5 "
                              "--format json writes as JSON",
                              path);
    }
    struct dpe_table_list list = {0};
    int error = hdf5 ? dpe_table_read_h5(path, unchecked, &list, message)
                     : dpe_table_read_json(path, &list, message);
    if (error != DPE_TABLE_OK) {
        dpe_table_list_free(&list);
        return error;
    }
    char why[DPE_TABLE_MESSAGE];
    error = dpe_table_adopt_list(&list, table, why);
    return error == DPE_TABLE_OK
               ? error
               : dpe_table_fail(message, (enum dpe_table_error)error, "%s: %.400s", path, why);
}

int dpe_table_open(const char *path, struct dpe_table **table, char *message)
{
    return open_table(path, false, table, message);
}

int dpe_table_open_unchecked(const char *path, struct dpe_table **table, char *message)
{
    return open_table(path, true, table, message);
}
