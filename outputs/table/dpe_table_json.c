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

/* The first member is the form. */
struct reader {
    struct dpe_table_form form;
    const json_t *root, *entry;
    char prefix[32]; /* what stands before a name in the entry: "", or "entries[1]." */
};

static struct reader *reader_of(struct dpe_table_form *form)
{
    return (struct reader *)form;
}

/* The object of a form that has few. */
static const json_t *object_of(struct dpe_table_form *form, const char *object)
{
    const json_t *root = reader_of(form)->root;
    return object == NULL                  ? reader_of(form)->entry
           : strcmp(object, "/model") == 0 ? json_object_get(root, "model")
           : strcmp(object, "/run") == 0   ? NULL
                                           : root;
}

static void refuse(struct dpe_table_form *form, const char *object, const char *name,
                   const char *expected)
{
    dpe_form_fail(form, DPE_TABLE_BAD_FILE, "\"%s%s\": expected %s",
                  object == NULL ? reader_of(form)->prefix : "", name, expected);
}

static bool has_member(struct dpe_table_form *form, const char *object, const char *name)
{
    return json_object_get(object_of(form, object), name) != NULL;
}

static char *get_text(struct dpe_table_form *form, const char *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object_of(form, object), name));
    char *copy = text != NULL ? strdup(text) : NULL;
    if (text != NULL && copy == NULL) {
        dpe_form_fail(form, DPE_TABLE_MEMORY, "out of memory");
    }
    return copy;
}

static bool get_whole(struct dpe_table_form *form, const char *object, const char *name,
                      int64_t *value)
{
    const json_t *number = json_object_get(object_of(form, object), name);
    *value = json_integer_value(number);
    return json_is_integer(number);
}

static int64_t count_entries(struct dpe_table_form *form)
{
    const json_t *entries = json_object_get(reader_of(form)->root, "entries");
    if (entries != NULL && !json_is_array(entries)) {
        refuse(form, "/", "entries", "a list");
    }
    return entries != NULL ? (int64_t)json_array_size(entries) : 1;
}

static void enter(struct dpe_table_form *form, int64_t i)
{
    struct reader *reader = reader_of(form);
    const json_t *entries = json_object_get(reader->root, "entries");
    reader->entry = entries != NULL ? json_array_get(entries, (size_t)i) : reader->root;
    if (entries != NULL) {
        snprintf(reader->prefix, sizeof reader->prefix, "entries[%lld].", (long long)i);
    }
}

static const json_t *member(struct dpe_table_form *form, const struct dpe_table_field *field)
{
    return json_object_get(reader_of(form)->entry, field->json != NULL ? field->json : field->name);
}

static int64_t count_field(struct dpe_table_form *form, const struct dpe_table_field *field)
{
    const json_t *value = member(form, field);
    if (value != NULL && !json_is_array(value) && dpe_field_rank(field) > 0) {
        refuse(form, NULL, field->name, "a list");
    }
    return value == NULL ? -1 : json_is_array(value) ? (int64_t)json_array_size(value) : 1;
}

/* One number of a field. */
static void get_number(struct dpe_table_form *form, const struct dpe_table_field *field,
                       const json_t *value, void *data, size_t i)
{
    json_int_t whole = json_integer_value(value);
    if (field->type == DPE_FIELD_FLAG) {
        dpe_field_set(field, data, i, json_is_true(value));
        if (!json_is_boolean(value)) {
            refuse(form, NULL, field->name, "true or false");
        }
    } else if (field->type == DPE_FIELD_REAL) {
        dpe_field_set(field, data, i, json_number_value(value));
        if (!json_is_number(value)) {
            refuse(form, NULL, field->name, dpe_field_rank(field) == 0 ? "a number" : "numbers");
        }
    } else if (!json_is_integer(value) || whole < INT32_MIN ||
               whole > (field->type == DPE_FIELD_EDGE ? INT32_MAX : INT64_C(1) << 53)) {
        refuse(form, NULL, field->name,
               dpe_field_rank(field) == 0 ? "a whole number" : "whole numbers");
    } else {
        dpe_field_set(field, data, i, (double)whole);
    }
}

/* "key_pairs": [layer][head] = pair indices. */
static void get_marks(struct dpe_table_form *form, const struct dpe_table_values *values,
                      const json_t *layers, uint8_t *mask)
{
    if ((int64_t)json_array_size(layers) != values->n_layers) {
        refuse(form, NULL, "key_pairs", "one list for each layer");
        return;
    }
    for (int64_t row = 0; row < values->n_layers * values->n_heads; row++) {
        const json_t *heads = json_array_get(layers, (size_t)(row / values->n_heads));
        if ((int64_t)json_array_size(heads) != values->n_heads) {
            refuse(form, NULL, "key_pairs", "one list for each head of each layer");
            return;
        }
        const json_t *pairs = json_array_get(heads, (size_t)(row % values->n_heads));
        uint8_t *marks = mask + row * values->n_pairs;
        for (size_t i = 0; i < json_array_size(pairs); i++) {
            const json_t *pair = json_array_get(pairs, i);
            json_int_t j = json_integer_value(pair);
            if (!json_is_integer(pair) || j < 0 || j >= values->n_pairs || marks[j] != 0) {
                refuse(form, NULL, "key_pairs", "distinct pair indices below head_dim / 2");
                return;
            }
            marks[j] = 1;
        }
    }
}

static void read_field(struct dpe_table_form *form, const struct dpe_table_field *field,
                       const struct dpe_table_values *values, void *data, size_t n)
{
    const json_t *value = member(form, field);
    char expected[64];
    snprintf(expected, sizeof expected, "a list of %zu numbers", n);
    if (field->type == DPE_FIELD_MARKS) {
        get_marks(form, values, value, data);
    } else if (dpe_field_rank(field) == 0) {
        get_number(form, field, value, data, 0);
    } else if (!json_is_array(value) || json_array_size(value) != n) {
        refuse(form, NULL, field->name, expected);
    } else {
        for (size_t i = 0; i < n; i++) {
            get_number(form, field, json_array_get(value, i), data, i);
        }
    }
}

/* The table itself: of a config.json made by `dpe-export --format hf` the block of type "dpe",
 * which is in text_config where the model has one. */
static const json_t *table_of(const json_t *root)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    const json_t *text = json_object_get(root, "text_config");
    for (int i = 0; i < 4; i++) {
        const json_t *block = json_object_get(i < 2 ? text : root, names[i % 2]);
        const char *type = json_string_value(json_object_get(block, "rope_type"));
        if (type != NULL && strcmp(type, "dpe") == 0) {
            return block;
        }
    }
    return root;
}

/* Of a root that was read, or NULL and why it was not; a message with the name. */
static int read_json(const char *name, const json_t *root, const json_error_t *why,
                     struct dpe_table **table, char *message)
{
    if (!json_is_object(root)) {
        return dpe_table_fail(message, DPE_TABLE_BAD_FILE, "%s: line %d: %s", name,
                              root == NULL ? why->line : 1,
                              root == NULL ? why->text : "expected an object at the top");
    }
    struct reader reader = {
        .form = {.refuse = refuse,
                 .has = has_member,
                 .text = get_text,
                 .whole = get_whole,
                 .entries = count_entries,
                 .enter = enter,
                 .count = count_field,
                 .read = read_field},
        .root = table_of(root),
    };
    const int error = dpe_table_read(&reader.form, table);
    return error == DPE_TABLE_OK ? error
                                 : dpe_table_fail(message, (enum dpe_table_error)error,
                                                  "%s: %.400s", name, reader.form.message);
}

int dpe_table_of_json(const char *name, const struct json_t *root, struct dpe_table **table,
                      char *message)
{
    return read_json(name, root, NULL, table, message);
}

int dpe_table_parse(const char *name, const char *bytes, size_t n, struct dpe_table **table,
                    char *message)
{
    json_error_t why;
    json_auto_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    return read_json(name, root, &why, table, message);
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
    bool hdf5 = n == sizeof magic && memcmp(magic, "\211HDF\r\n\032\n", sizeof magic) == 0;
    int error = DPE_TABLE_OK;
    if (!regular && !folder) {
        error = dpe_table_fail(message, DPE_TABLE_NO_FILE,
                               "%s: expected a regular file, found something else", path);
    } else if (n <= 0) {
        error =
            dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                           "%s: is empty or a folder; expected a DPE table (HDF5 or JSON)", path);
    } else if (hdf5) {
        error = dpe_table_read_h5(path, fd, unchecked, table, message);
    } else if (begins_as_json(magic, (size_t)n)) {
        json_error_t why;
        json_auto_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
        error = read_json(path, root, &why, table, message);
    } else {
        error = dpe_table_fail(message, DPE_TABLE_BAD_FILE,
                               "%s: expected a DPE table as HDF5 or JSON, found another form; give "
                               "the table that it was made from, which dpe-export TABLE.h5 "
                               "--format json writes as JSON",
                               path);
    }
    close(fd);
    return error;
}

int dpe_table_open(const char *path, struct dpe_table **table, char *message)
{
    return open_table(path, false, table, message);
}

int dpe_table_open_unchecked(const char *path, struct dpe_table **table, char *message)
{
    return open_table(path, true, table, message);
}

/* ------------------------------------------------------------------------------------- writing */

/* Numbers that read back as the same double. */
static const size_t json_flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);

static json_t *number(const struct dpe_table_field *field, double value)
{
    return field->type == DPE_FIELD_REAL   ? json_real(value)
           : field->type == DPE_FIELD_FLAG ? json_boolean(value != 0.0)
                                           : json_integer((json_int_t)value);
}

/* A number, or a list of them. */
static json_t *numbers_of(const struct dpe_table_field *field,
                          const struct dpe_table_values *values)
{
    const void *data = dpe_field_data(field, values);
    size_t n = dpe_field_count(field, values);
    if (field->type == DPE_FIELD_TEXT) {
        return json_string(data);
    }
    if (dpe_field_rank(field) == 0) {
        return number(field, dpe_field_get(field, data, 0));
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, number(field, dpe_field_get(field, data, i)));
    }
    return list;
}

json_t *dpe_table_key_pairs(const struct dpe_table_values *values)
{
    const uint8_t *mask = values->mask;
    json_t *layers = json_array();
    for (int64_t layer = 0; layer < values->n_layers; layer++) {
        json_t *heads = json_array();
        for (int64_t head = 0; head < values->n_heads; head++, mask += values->n_pairs) {
            json_t *pairs = json_array();
            for (int64_t j = 0; j < values->n_pairs; j++) {
                if (mask[j] != 0) {
                    json_array_append_new(pairs, json_integer(j));
                }
            }
            json_array_append_new(heads, pairs);
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

static void add_conventions(json_t *object, const struct dpe_table_values *values)
{
    bool frequencies = values->frequencies != 0;
    if (frequencies) {
        json_object_set_new(object, "moves", json_string("frequencies"));
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        json_object_set_new(
            object, dpe_table_conventions[i].name,
            json_string(dpe_table_convention(&dpe_table_conventions[i], frequencies)));
    }
}

/* What an entry has, appended to `entry`; its key pairs last. */
static void add_entry(json_t *entry, const struct dpe_table_values *values, unsigned parts)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->type != DPE_FIELD_MARKS && dpe_field_written(field, values, parts)) {
            json_object_set_new(entry, field->name, numbers_of(field, values));
        }
    }
    if ((parts >> DPE_PART_KEYS & 1) != 0) {
        json_object_set_new(entry, "key_pairs", dpe_table_key_pairs(values));
    }
}

/* The table, its model and its conventions. NULL: out of memory. */
static json_t *header(const struct dpe_table *table)
{
    const struct dpe_table_values *values = dpe_table_values(table);
    json_t *model = json_object();
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const void *at = (const char *)values + dpe_model_fields[i].at;
        json_object_set_new(model, dpe_model_fields[i].name,
                            dpe_model_fields[i].text ? json_string(*(const char *const *)at)
                                                     : json_integer(*(const int64_t *)at));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:b, s:o}", "schema_name", "dpe-table", "schema_version", DPE_TABLE_SCHEMA,
        "adapter_required",
        (int)(dpe_table_count(table) > 1 || dpe_table_needs_adapter(values) != 0), "model", model);
    if (root != NULL) {
        add_conventions(root, values);
    }
    return root;
}

/* The table as one block, NULL: out of memory. */
static json_t *block(const struct dpe_table *table)
{
    const int64_t n = dpe_table_count(table);
    unsigned parts = dpe_table_parts_of(table) & ~(1u << DPE_PART_KEYS);
    for (int64_t i = 0; i < n; i++) { /* without them every pair is one */
        const bool masks = dpe_table_masks(dpe_table_values(dpe_table_entry(table, i)));
        parts |= masks ? 1u << DPE_PART_KEYS : 0;
    }
    json_t *root = header(table);
    if (root != NULL && n == 1) {
        add_entry(root, dpe_table_values(table), parts);
        return root;
    }
    json_t *list = json_array();
    for (int64_t i = 0; i < n && root != NULL; i++) {
        json_t *entry = json_object();
        add_entry(entry, dpe_table_values(dpe_table_entry(table, i)), parts);
        json_array_append_new(list, entry);
    }
    json_object_set_new(root, "entries", list);
    return root;
}

static bool put_object(FILE *out, json_t *object, int indent);

/* A line for each element: a layer's key pairs, or an entry. False: out of memory. */
static bool put_list(FILE *out, json_t *list, int indent)
{
    bool whole = true;
    fprintf(out, "[");
    for (size_t i = 0; i < json_array_size(list) && whole; i++) {
        json_t *element = json_array_get(list, i);
        fprintf(out, "%s\n%*s", i > 0 ? "," : "", indent + 2, "");
        whole = json_is_object(element) ? put_object(out, element, indent + 2)
                                        : json_dumpf(element, out, json_flags) == 0;
    }
    fprintf(out, "\n%*s]", indent, "");
    return whole;
}

/* A line for each member, and for each layer of its key pairs: readable, and short enough for a
 * diff. jansson's own layouts are one line for all, or one for each number. */
static bool put_object(FILE *out, json_t *object, int indent)
{
    const char *key = NULL;
    const char *end = "";
    json_t *value = NULL;
    bool whole = true;
    fprintf(out, "{");
    json_object_foreach(object, key, value)
    {
        fprintf(out, "%s\n%*s\"%s\": ", end, indent + 2, "", key);
        const bool list = strcmp(key, "key_pairs") == 0 || strcmp(key, "entries") == 0;
        whole =
            (list ? put_list(out, value, indent + 2) : json_dumpf(value, out, json_flags) == 0) &&
            whole;
        end = ",";
    }
    fprintf(out, "\n%*s}", indent, "");
    return whole;
}

char *dpe_table_json(const struct dpe_table *table)
{
    char *text = NULL;
    size_t n = 0;
    json_t *root = block(table);
    FILE *out = root != NULL ? open_memstream(&text, &n) : NULL;
    if (out != NULL) {
        const bool whole = put_object(out, root, 0) && fprintf(out, "\n") > 0 && ferror(out) == 0;
        if (fclose(out) != 0 || !whole) {
            free(text);
            text = NULL;
        }
    }
    json_decref(root);
    return text;
}
