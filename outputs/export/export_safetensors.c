/* The safetensors form of a DPE table: numbers and masks as tensors, the rest as metadata.
 *
 * The engine's reader (engine/model/files/safetensors.h) is for weights: it maps a file, hashes it and
 * skips
 * __metadata__, where most of a table is. So a table has its own small reader. */
#include "outputs/export/export.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/base/bytes.h"

/* A tensor of the file, in the order of its data: the widest first, so that all are aligned. */
struct part {
    const char *name, *dtype;
    size_t width;
    int rank;
    int64_t dims[3];
    const void *data;
};
enum { PARTS = 6 };

static size_t part_bytes(const struct part *part)
{
    size_t n = part->width;
    for (int i = 0; i < part->rank; i++) {
        n *= (size_t)part->dims[i];
    }
    return n;
}

/* Returns their number. */
static int list_parts(const struct dpe_table_values *values, struct part parts[PARTS])
{
    int64_t groups = values->n_groups;
    const double *applied =
        values->applied_inv_freq != NULL ? values->applied_inv_freq : values->inv_freq;
    int n = 3;
    parts[0] = (struct part){"effective_length", "F64", 8, 1, {groups}, values->effective_length};
    parts[1] = (struct part){"inv_freq", "F64", 8, 1, {values->n_pairs}, values->inv_freq};
    parts[2] = (struct part){"scale_factor", "F64", 8, 1, {groups}, values->scale_factor};
    if (dpe_export_methods(values)) {
        parts[n++] = (struct part){"applied_inv_freq", "F64", 8, 1, {values->n_pairs}, applied};
    }
    parts[n++] = (struct part){"group_edge", "I32", 4, 1, {groups + 1}, values->group_edge};
    parts[n++] = (struct part){
        "mask", "U8", 1, 3, {values->n_layers, values->n_heads, values->n_pairs}, values->mask};
    return n;
}

/* The whole numbers among the metadata, by name: of the model, then of an entry. */
struct number {
    const char *name;
    int64_t *value;
};
enum { MODEL_NUMBERS = 4, NUMBERS = 8 };

static void list_numbers(struct dpe_table_values *values, struct number numbers[NUMBERS])
{
    const struct number list[NUMBERS] = {
        {"n_layers", &values->n_layers},
        {"n_heads", &values->n_heads},
        {"n_kv_heads", &values->n_kv_heads},
        {"head_dim", &values->head_dim},
        {"trained_length", &values->trained_length},
        {"evaluated_length", &values->length},
        {"local_window", &values->window},
        {"top_k", &values->top_k},
    };
    memcpy(numbers, list, sizeof list);
}

/* Conventions that a reader depends on; the other forms have the same. */
static const char *const conventions[][2] = {
    {"schema_name", "dpe-table"},  {"near_rule", "distance < local_window"},
    {"rounding", "separable"},     {"angle_precision", "f32"},
    {"pair_layout", "half-split"},
};
enum { CONVENTIONS = sizeof conventions / sizeof conventions[0] };

/* Readers of earlier versions check this word and not the version, so this word makes them refuse.
 */
static const char *adapter_word(const char *version)
{
    return strncmp(version, "1.", 2) == 0   ? "true"
           : strncmp(version, "2.", 2) == 0 ? "temperature"
           : strncmp(version, "3.", 2) == 0 ? "entries"
                                            : "methods";
}

/* What stands before the names of an entry's tensors and metadata: its length, where there are
 * several. */
static void entry_prefix(const struct dpe_table_values *values, int64_t n, char prefix[32])
{
    prefix[0] = '\0';
    if (n > 1) {
        snprintf(prefix, 32, "%lld.", (long long)values->length);
    }
}

/* The real numbers among the metadata, by name; the last four are there from version 2 on. */
struct real {
    const char *name;
    double *value;
};
enum { REALS = 5 };

static int list_reals(struct dpe_table_values *values, struct real reals[REALS])
{
    const struct real list[REALS] = {
        {"attention_scaling", &values->attention_scaling},
        {"logit_scale", &values->logit_scale},
        {"log_n_length", &values->log_n_length},
        {"log_n_power", &values->log_n_power},
        {"log_n_decay", &values->log_n_decay},
    };
    memcpy(reals, list, sizeof list);
    return dpe_export_temperature(values) ? REALS : 1;
}

static void put_number(json_t *object, const char *prefix, const struct number *number)
{
    char name[64];
    char text[32];
    snprintf(name, sizeof name, "%s%s", prefix, number->name);
    snprintf(text, sizeof text, "%lld", (long long)*number->value);
    json_object_set_new(object, name, json_string(text));
}

static void put_entry(json_t *object, const struct dpe_table_values *values, int64_t n)
{
    char prefix[32];
    struct dpe_table_values copy = *values;
    struct number numbers[NUMBERS];
    struct real reals[REALS];
    entry_prefix(values, n, prefix);
    list_numbers(&copy, numbers);
    for (int i = MODEL_NUMBERS; i < NUMBERS; i++) {
        put_number(object, prefix, &numbers[i]);
    }
    for (int i = 0, count = list_reals(&copy, reals); i < count; i++) {
        char name[64];
        char text[32];
        snprintf(name, sizeof name, "%s%s", prefix, reals[i].name);
        snprintf(text, sizeof text, "%.17g", *reals[i].value);
        json_object_set_new(object, name, json_string(text));
    }
    if (dpe_export_methods(values)) {
        char name[64];
        snprintf(name, sizeof name, "%sunrounded", prefix);
        json_object_set_new(object, name, json_string(values->unrounded != 0 ? "1" : "0"));
    }
}

static json_t *metadata(const struct dpe_table *table)
{
    int64_t n = dpe_table_count(table);
    struct dpe_table_values values = *dpe_table_values(table);
    struct number numbers[NUMBERS];
    char lengths[DPE_TABLE_ENTRIES * 24] = "";
    json_t *object = json_object();
    for (int i = 0; i < CONVENTIONS; i++) {
        json_object_set_new(object, conventions[i][0], json_string(conventions[i][1]));
    }
    json_object_set_new(object, "schema_version", json_string(values.schema_version));
    json_object_set_new(object, "model_type", json_string(values.model_type));
    json_object_set_new(object, "model_fingerprint", json_string(values.model_fingerprint));
    list_numbers(&values, numbers);
    for (int i = 0; i < MODEL_NUMBERS; i++) {
        put_number(object, "", &numbers[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *entry = dpe_table_values(dpe_table_entry(table, i));
        size_t used = strlen(lengths);
        snprintf(lengths + used, sizeof lengths - used, "%s%lld", i > 0 ? "," : "",
                 (long long)entry->length);
        put_entry(object, entry, n);
    }
    if (n > 1) {
        json_object_set_new(object, "entries", json_string(lengths));
    }
    json_object_set_new(object, "adapter_required",
                        json_string(adapter_word(values.schema_version)));
    return object;
}

/* All tensors in the order of their data: a kind after the other, the widest first. */
static char *header_text(const struct dpe_table *table)
{
    int64_t n = dpe_table_count(table);
    json_t *root = json_object();
    json_object_set_new(root, "__metadata__", metadata(table));
    size_t offset = 0;
    struct part parts[PARTS];
    int kinds = list_parts(dpe_table_values(table), parts);
    for (int64_t i = 0; i < kinds * n; i++) {
        const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, i % n));
        char prefix[32];
        char name[64];
        list_parts(values, parts);
        entry_prefix(values, n, prefix);
        const struct part *part = &parts[i / n];
        size_t end = offset + part_bytes(part);
        json_t *shape = json_array();
        for (int d = 0; d < part->rank; d++) {
            json_array_append_new(shape, json_integer(part->dims[d]));
        }
        json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", part->dtype, "shape", shape,
                                  "data_offsets", (json_int_t)offset, (json_int_t)end);
        snprintf(name, sizeof name, "%s%s", prefix, part->name);
        json_object_set_new(root, name, entry);
        offset = end;
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* A file being written; after the first failure nothing more is appended. */
struct sink {
    struct dpe_text *out;
    dpe_status status;
    struct dpe_error *err;
};

static void put(struct sink *sink, const void *bytes, size_t n)
{
    if (sink->status == DPE_OK) {
        sink->status = dpe_text_append(sink->out, bytes, n, sink->err);
    }
}

dpe_status dpe_export_safetensors(const struct dpe_table *table, struct dpe_text *out,
                                  struct dpe_error *err)
{
    int64_t count = dpe_table_count(table);
    char *header = header_text(table);
    if (header == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a safetensors header");
    }
    size_t n = strlen(header);
    size_t padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    dpe_store_u64(length, padded, sizeof length);
    struct sink sink = {.out = out, .err = err};
    put(&sink, length, sizeof length);
    put(&sink, header, n);
    put(&sink, "        ", padded - n);
    struct part parts[PARTS];
    int kinds = list_parts(dpe_table_values(table), parts);
    for (int64_t i = 0; i < kinds * count; i++) {
        list_parts(dpe_table_values(dpe_table_entry(table, i % count)), parts);
        put(&sink, parts[i / count].data, part_bytes(&parts[i / count]));
    }
    free(header);
    return sink.status;
}

/* ---------------------------------------------------------------- reading back */

struct reader {
    const char *name;
    const char *data; /* the bytes after the header */
    size_t n;
    json_t *root;
    const json_t *metadata;
    char prefix[32]; /* of the entry that is read */
    struct dpe_error *err;
    dpe_status status;
};

static void bad(struct reader *reader, const char *what, const char *expected)
{
    if (reader->status == DPE_OK) {
        reader->status = dpe_fail(reader->err, DPE_BAD_DATA, "%s: %s%s: expected %s", reader->name,
                                  reader->prefix, what, expected);
    }
}

/* The member of an object that is called so in the entry. */
static const json_t *find(const struct reader *reader, const json_t *object, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", reader->prefix, name);
    return json_object_get(object, full);
}

static const char *get_text(struct reader *reader, const char *name)
{
    const char *text = json_string_value(find(reader, reader->metadata, name));
    if (text == NULL) {
        bad(reader, name, "a string among the metadata");
        return "";
    }
    return text;
}

/* An owned copy of a tensor of exactly this type and shape. */
static void *get_tensor(struct reader *reader, const struct part *part)
{
    const json_t *entry = find(reader, reader->root, part->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    bool fits = dtype != NULL && strcmp(dtype, part->dtype) == 0 &&
                json_array_size(shape) == (size_t)part->rank && json_array_size(offsets) == 2;
    for (int i = 0; i < part->rank && fits; i++) {
        fits = json_integer_value(json_array_get(shape, (size_t)i)) == part->dims[i];
    }
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    size_t bytes = part_bytes(part);
    if (!fits || begin < 0 || end < begin || (uint64_t)end > reader->n ||
        (size_t)(end - begin) != bytes) {
        bad(reader, part->name, "a tensor of the table's shape inside the file");
        return NULL;
    }
    void *copy = malloc(bytes);
    if (copy == NULL) {
        reader->status = dpe_fail(reader->err, DPE_NO_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(copy, reader->data + begin, bytes);
    return copy;
}

static void read_reals(struct reader *reader, struct dpe_table_values *values)
{
    struct real reals[REALS];
    values->logit_scale = values->log_n_power = 1.0;
    int n = list_reals(values, reals);
    for (int i = 0; i < REALS; i++) {
        bool there = find(reader, reader->metadata, reals[i].name) != NULL;
        if (i >= n && there) {
            bad(reader, reals[i].name, "none in a table of schema version 1");
        } else if (i < n) {
            if (!dpe_parse_real(get_text(reader, reals[i].name), -DBL_MAX, DBL_MAX,
                                reals[i].value)) {
                bad(reader, reals[i].name, "a number");
            }
        }
    }
}

static void read_conventions(struct reader *reader)
{
    const char *version = get_text(reader, "schema_version");
    for (int i = 0; i < CONVENTIONS; i++) {
        if (strcmp(get_text(reader, conventions[i][0]), conventions[i][1]) != 0) {
            bad(reader, conventions[i][0], conventions[i][1]);
        }
    }
    if (strlen(version) < 2 || strchr("1235", version[0]) == NULL || version[1] != '.') {
        bad(reader, "schema_version", "1.x, 2.x, 3.x or 5.x");
    }
    if (strcmp(get_text(reader, "adapter_required"), adapter_word(version)) != 0) {
        bad(reader, "adapter_required", adapter_word(version));
    }
}

/* The numbers of `first` … of the list. */
static void read_numbers(struct reader *reader, struct dpe_table_values *values, int first,
                         int last)
{
    struct number numbers[NUMBERS];
    list_numbers(values, numbers);
    for (int i = first; i < last; i++) {
        if (!dpe_parse_int(get_text(reader, numbers[i].name), INT64_MIN, INT64_MAX,
                           numbers[i].value)) {
            bad(reader, numbers[i].name, "a whole number");
        }
    }
}

/* The model, of which the metadata have one, and an entry: with `prefix` before its names. */
static void read_metadata(struct reader *reader, const char *prefix,
                          struct dpe_table_values *values)
{
    reader->prefix[0] = '\0';
    values->schema_version = strdup(get_text(reader, "schema_version"));
    values->model_type = strdup(get_text(reader, "model_type"));
    values->model_fingerprint = strdup(get_text(reader, "model_fingerprint"));
    if (values->schema_version == NULL || values->model_type == NULL ||
        values->model_fingerprint == NULL) {
        reader->status = dpe_fail(reader->err, DPE_NO_MEMORY, "out of memory");
        return;
    }
    read_numbers(reader, values, 0, MODEL_NUMBERS);
    snprintf(reader->prefix, sizeof reader->prefix, "%s", prefix);
    read_numbers(reader, values, MODEL_NUMBERS, NUMBERS);
    read_reals(reader, values);
    values->n_pairs = values->head_dim / 2;
    const json_t *scales = json_object_get(find(reader, reader->root, "scale_factor"), "shape");
    values->n_groups = json_integer_value(json_array_get(scales, 0));
    /* Bounds before any product of counts: every mask byte must be in the file. */
    if (values->n_groups < 1 || values->n_pairs < 1 || values->n_groups > values->n_pairs ||
        values->n_pairs > 1 << 15 || values->n_layers < 1 || values->n_layers > 1 << 16 ||
        values->n_heads < 1 || values->n_heads > 1 << 16) {
        bad(reader, "__metadata__", "counts that a model can have");
    }
}

/* The tensor of that name; NULL where the table's version has none. */
static void *take(struct reader *reader, const struct dpe_table_values *values, const char *name)
{
    struct part parts[PARTS];
    int n = list_parts(values, parts);
    for (int i = 0; i < n; i++) {
        if (strcmp(parts[i].name, name) == 0) {
            return get_tensor(reader, &parts[i]);
        }
    }
    return NULL;
}

static void read_tensors(struct reader *reader, struct dpe_table_values *values)
{
    values->effective_length = take(reader, values, "effective_length");
    values->inv_freq = take(reader, values, "inv_freq");
    values->scale_factor = take(reader, values, "scale_factor");
    values->group_edge = take(reader, values, "group_edge");
    values->mask = take(reader, values, "mask");
    values->applied_inv_freq = take(reader, values, "applied_inv_freq");
    const char *unrounded =
        dpe_export_methods(values) ? get_text(reader, "unrounded") : "0";
    values->unrounded = strcmp(unrounded, "1") == 0;
    if (strcmp(unrounded, "0") != 0 && strcmp(unrounded, "1") != 0) {
        bad(reader, "unrounded", "0 or 1");
    }
}

static void values_free(struct dpe_table_values *values)
{
    free(values->schema_version);
    free(values->model_type);
    free(values->model_fingerprint);
    free(values->effective_length);
    free(values->inv_freq);
    free(values->applied_inv_freq);
    free(values->scale_factor);
    free(values->group_edge);
    free(values->mask);
}

static void read_entry(struct reader *reader, const char *prefix, struct dpe_table **table)
{
    struct dpe_table_values values = {0};
    char message[DPE_TABLE_MESSAGE];
    read_metadata(reader, prefix, &values);
    if (reader->status == DPE_OK) {
        read_tensors(reader, &values);
    }
    if (reader->status == DPE_OK && dpe_table_make(&values, table, message) != DPE_TABLE_OK) {
        reader->status =
            dpe_fail(reader->err, DPE_BAD_DATA, "%s: %s%s", reader->name, prefix, message);
    }
    values_free(&values);
}

/* The entries that the metadata list by their lengths. */
static void read_entries(struct reader *reader, struct dpe_table **table)
{
    struct dpe_table *entries[DPE_TABLE_ENTRIES] = {0};
    const char *at = get_text(reader, "entries");
    int64_t n = 0;
    while (reader->status == DPE_OK && (n == 0 || *at == ',')) {
        char prefix[24];
        at += n > 0;
        size_t digits = strspn(at, "0123456789");
        if (digits < 1 || digits > 18 || n == DPE_TABLE_ENTRIES ||
            (at[digits] != ',' && at[digits] != '\0')) {
            bad(reader, "entries", "at most 64 lengths, separated by commas");
            break;
        }
        snprintf(prefix, sizeof prefix, "%.*s.", (int)digits, at);
        at += digits;
        read_entry(reader, prefix, &entries[n]);
        n += reader->status == DPE_OK;
    }
    char message[DPE_TABLE_MESSAGE];
    if (reader->status == DPE_OK && dpe_table_join((const struct dpe_table *const *)entries, n,
                                                   table, message) != DPE_TABLE_OK) {
        reader->status = dpe_fail(reader->err, DPE_BAD_DATA, "%s: %s", reader->name, message);
    }
    for (int64_t i = 0; i < n; i++) {
        dpe_table_close(entries[i]);
    }
}

dpe_status dpe_import_safetensors(const char *name, const char *bytes, size_t n,
                                  struct dpe_table **table, struct dpe_error *err)
{
    uint64_t length = dpe_load_u64(bytes, n < 8 ? n : 8);
    if (n < 8 || length > n - 8) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: expected a safetensors header, found one longer than the file (%zu bytes)", name,
            n);
    }
    json_error_t why;
    struct reader reader = {
        .name = name, .data = bytes + 8 + length, .n = n - 8 - (size_t)length, .err = err};
    reader.root = json_loadb(bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(reader.root)) {
        json_decref(reader.root);
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a JSON object as the header: %s", name,
                        why.text);
    }
    reader.metadata = json_object_get(reader.root, "__metadata__");
    read_conventions(&reader);
    const char *version = reader.status == DPE_OK ? get_text(&reader, "schema_version") : "";
    if (version[0] == '3' || (version[0] == '5' && find(&reader, reader.metadata, "entries") != NULL)) {
        read_entries(&reader, table);
    } else if (reader.status == DPE_OK) {
        read_entry(&reader, "", table);
    }
    json_decref(reader.root);
    return reader.status;
}
