/* Forms of tensors. safetensors holds a table: numbers and masks as tensors, the rest as metadata.
 * The engine's reader (engine/model/weights/safetensors.h) is for weights: it maps a file, hashes
 * it and skips __metadata__, where most of a table is. So a table has its own small reader. A score
 * tensor is written as torch.save does: a zip of a pickled tensor and its raw storage. */
#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>

#include "engine/base/bytes.h"
#include "outputs/export/export_tool.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

/* ------------------------------------------------------------------------- safetensors, written */

static const char *dtype_of(const struct dpe_table_field *field)
{
    return field->type == DPE_FIELD_REAL ? "F64" : field->type == DPE_FIELD_EDGE ? "I32" : "U8";
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

static void put_text(json_t *object, const char *prefix, const char *name, const char *text)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    json_object_set_new(object, full, json_string(text));
}

static void put_entry(json_t *object, const struct dpe_table_values *values, unsigned parts,
                      int64_t n)
{
    char prefix[32];
    char text[32];
    entry_prefix(values, n, prefix);
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (dpe_field_rank(field) == 0 && dpe_field_written(field, values, parts)) {
            const void *data = dpe_field_data(field, values);
            snprintf(text, sizeof text, "%.17g", dpe_field_get(field, data, 0));
            put_text(object, prefix, field->name, field->type == DPE_FIELD_TEXT ? data : text);
        }
    }
}

static json_t *metadata(const struct dpe_table *table)
{
    int64_t n = dpe_table_count(table);
    const struct dpe_table_values *values = dpe_table_values(table);
    char lengths[DPE_TABLE_ENTRIES * 24] = "";
    json_t *object = json_object();
    put_text(object, "", "schema_name", "dpe-table");
    put_text(object, "", "schema_version", DPE_TABLE_SCHEMA);
    put_text(object, "", "adapter_required", "true");
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        put_text(object, "", dpe_table_conventions[i].name, dpe_table_conventions[i].positions);
    }
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        const void *at = (const char *)values + field->at;
        char number[32];
        if (!field->text) {
            snprintf(number, sizeof number, "%lld", (long long)*(const int64_t *)at);
        }
        put_text(object, "", field->metadata, field->text ? *(const char *const *)at : number);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_table_values *entry = dpe_table_values(dpe_table_entry(table, i));
        dpe_append(lengths, sizeof lengths, "%s%lld", i > 0 ? "," : "", (long long)entry->length);
        put_entry(object, entry, dpe_table_parts_of(table), n);
    }
    if (n > 1) {
        put_text(object, "", "entries", lengths);
    }
    return object;
}

/* A tensor: its place into the header, its bytes after those that are there. */
static void put_field(const struct dpe_table_field *field, const struct dpe_table_values *values,
                      int64_t n_entries, json_t *header, struct dpe_text *data)
{
    char name[64], prefix[32];
    const size_t begin = data->n;
    const size_t n = dpe_field_count(field, values) * dpe_field_size(field);
    json_t *shape = json_array();
    for (int d = 0; d < dpe_field_rank(field); d++) {
        json_array_append_new(shape, json_integer(dpe_field_extent(field->axes[d], values)));
    }
    entry_prefix(values, n_entries, prefix);
    snprintf(name, sizeof name, "%s%s", prefix, field->name);
    json_object_set_new(header, name,
                        json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_of(field), "shape", shape,
                                  "data_offsets", (json_int_t)begin, (json_int_t)(begin + n)));
    dpe_text_put_bytes(data, dpe_field_data(field, values), n);
}

/* The widest first, so that all are aligned; a field after the other, of every entry. */
static void put_fields(const struct dpe_table *table, json_t *header, struct dpe_text *data)
{
    const unsigned parts = dpe_table_parts_of(table);
    const int64_t n = dpe_table_count(table);
    for (size_t width = sizeof(double); width > 0; width /= 2) {
        for (size_t i = 0; i < dpe_n_table_fields; i++) {
            const struct dpe_table_field *field = &dpe_table_fields[i];
            bool fits = dpe_field_rank(field) > 0 && dpe_field_size(field) == width;
            for (int64_t k = 0; fits && k < n; k++) {
                const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, k));
                if (dpe_field_written(field, values, parts)) {
                    put_field(field, values, n, header, data);
                }
            }
        }
    }
}

dpe_status dpe_export_safetensors(const struct dpe_table *table, struct dpe_text *out,
                                  struct dpe_error *err)
{
    json_auto_t *header = json_object();
    DPE_SCOPED(dpe_text_free) struct dpe_text data = {0};
    json_object_set_new(header, "__metadata__", metadata(table));
    put_fields(table, header, &data);
    DPE_OWNED char *text = json_dumps(header, JSON_COMPACT);
    DPE_TRY(DPE_MADE(text, err, "out of memory for a safetensors header"));
    DPE_TRY(dpe_text_done(&data, err));
    size_t n = strlen(text);
    size_t padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    dpe_store_u64(length, padded, sizeof length);
    dpe_text_put_bytes(out, length, sizeof length);
    dpe_text_put_bytes(out, text, n);
    dpe_text_put_bytes(out, "        ", padded - n);
    dpe_text_put_bytes(out, data.bytes, data.n);
    return dpe_text_done(out, err);
}

/* ---------------------------------------------------------------- reading back */

/* A file is read as the JSON form of its table, whose reader checks everything else. */
struct reader {
    const char *name;
    json_t *root, *metadata;
    const char *data; /* [n] the bytes after the header */
    size_t n;
    json_int_t extents[DPE_AXES]; /* of the model's axes; 0: any */
    struct dpe_error *err;
};

static json_t *find(json_t *object, const char *prefix, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return json_object_get(object, full);
}

json_t *dpe_export_value(enum dpe_field_type type, json_t *text)
{
    double real = 0.0;
    int64_t whole = 0;
    const char *value = json_is_string(text) ? json_string_value(text) : "";
    if (type == DPE_FIELD_REAL && dpe_parse_real(value, -DBL_MAX, DBL_MAX, &real)) {
        return json_real(real);
    }
    if (type == DPE_FIELD_WHOLE && dpe_parse_int(value, INT64_MIN, INT64_MAX, &whole)) {
        return json_integer(whole);
    }
    if (type == DPE_FIELD_FLAG && dpe_parse_int(value, 0, 1, &whole)) {
        return json_boolean(whole != 0);
    }
    return json_incref(text);
}

/* The elements of a tensor as JSON has them; NULL: it is no tensor of the field inside the file. */
static json_t *list_of(const struct reader *reader, const struct dpe_table_field *field,
                       json_t *tensor)
{
    const char *dtype = NULL;
    json_int_t dims[DPE_FIELD_RANK] = {0}, begin = -1, end = -1, n = 1;
    json_t *shape = NULL;
    const json_int_t size = (json_int_t)dpe_field_size(field);
    bool fits = json_unpack(tensor, "{s:s, s:o, s:[I,I!]}", "dtype", &dtype, "shape", &shape,
                            "data_offsets", &begin, &end) == 0 &&
                strcmp(dtype, dtype_of(field)) == 0 && begin >= 0 && end >= begin &&
                (uint64_t)end <= reader->n &&
                json_array_size(shape) == (size_t)dpe_field_rank(field);
    for (size_t i = 0; fits && i < json_array_size(shape); i++) {
        const json_int_t extent = reader->extents[field->axes[i]];
        dims[i] = json_integer_value(json_array_get(shape, i));
        fits = dims[i] > 0 && (extent == 0 || dims[i] == extent) &&
               !__builtin_mul_overflow(n, dims[i], &n);
    }
    fits = fits && (end - begin) / size == n && (end - begin) % size == 0;
    /* Aligned: they may lie at any place. */
    DPE_OWNED unsigned char *data = fits ? dpe_alloc((size_t)n, (size_t)size) : NULL;
    if (data == NULL) {
        return NULL;
    }
    memcpy(data, reader->data + begin, (size_t)(end - begin));
    if (field->type == DPE_FIELD_MARKS) {
        while (n > 0 && data[n - 1] <= 1) {
            n--;
        }
        const struct dpe_table_values marked = {
            .mask = data, .n_layers = dims[0], .n_heads = dims[1], .n_pairs = dims[2]};
        return n == 0 ? dpe_table_key_pairs(&marked) : NULL;
    }
    json_auto_t *list = json_array();
    for (size_t i = 0; i < (size_t)n; i++) {
        const double value = dpe_field_get(field, data, i);
        json_array_append_new(list, field->type == DPE_FIELD_REAL
                                        ? json_real(value)
                                        : json_integer((json_int_t)value));
    }
    /* JSON has no NaN and no infinity. */
    return json_array_size(list) == (size_t)n ? json_incref(list) : NULL;
}

/* The fields of an entry, with `prefix` before their names, into `entry`. */
static dpe_status add_entry(const struct reader *reader, const char *prefix, json_t *entry)
{
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const bool list = dpe_field_rank(field) > 0;
        json_t *from = find(list ? reader->root : reader->metadata, prefix, field->name);
        json_t *value = list ? list_of(reader, field, from) : dpe_export_value(field->type, from);
        if (from != NULL &&
            json_object_set_new(entry, field->json != NULL ? field->json : field->name, value)) {
            return dpe_fail(reader->err, DPE_BAD_DATA,
                            "%s: %s%s: expected numbers of the table's shape inside the file",
                            reader->name, prefix, field->name);
        }
    }
    return json_object_size(entry) > 0
               ? DPE_OK
               : dpe_fail(reader->err, DPE_BAD_DATA, "%s: %s: expected the fields of an entry",
                          reader->name, prefix);
}

/* The entries that the metadata list by their lengths. */
static dpe_status add_entries(const struct reader *reader, const char *at, json_t *entries)
{
    for (bool more = true; more; at++) {
        char prefix[24];
        const size_t digits = strspn(at, "0123456789");
        if (digits < 1 || digits > 18 || (at[digits] != ',' && at[digits] != '\0') ||
            json_array_size(entries) == DPE_TABLE_ENTRIES) {
            return dpe_fail(reader->err, DPE_BAD_DATA,
                            "%s: entries: expected at most 64 lengths, separated by commas",
                            reader->name);
        }
        snprintf(prefix, sizeof prefix, "%.*s.", (int)digits, at);
        json_array_append_new(entries, json_object());
        DPE_TRY(add_entry(reader, prefix, json_array_get(entries, json_array_size(entries) - 1)));
        at += digits;
        more = *at == ',';
    }
    return DPE_OK;
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
    json_auto_t *root = json_loadb(bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a JSON object as the header: %s", name,
                        why.text);
    }
    json_t *metadata = json_object_get(root, "__metadata__");
    struct reader reader = {.name = name,
                            .data = bytes + 8 + length,
                            .n = n - 8 - (size_t)length,
                            .root = root,
                            .metadata = metadata,
                            .err = err};
    const char *several = json_string_value(json_object_get(metadata, "entries"));
    json_t *entries = several != NULL ? json_array() : NULL;
    json_t *model = json_object();
    json_auto_t *made = json_object();
    json_object_update(made, metadata); /* name, version, conventions */
    json_object_del(made, "moves");     /* of frequencies there is no such form */
    json_object_set_new(made, "model", model);
    json_object_set_new(made, "entries", entries);
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        json_t *text = json_object_get(metadata, field->metadata);
        json_object_set_new(model, field->name,
                            dpe_export_value(field->text ? DPE_FIELD_TEXT : DPE_FIELD_WHOLE, text));
    }
    json_unpack(model, "{s:I, s:I, s:I}", "n_layers", &reader.extents[DPE_AXIS_LAYER], "n_heads",
                &reader.extents[DPE_AXIS_HEAD], "head_dim", &reader.extents[DPE_AXIS_PAIR]);
    reader.extents[DPE_AXIS_PAIR] /= 2;
    DPE_TRY(several != NULL ? add_entries(&reader, several, entries)
                            : add_entry(&reader, "", made));
    char message[DPE_TABLE_MESSAGE] = "";
    const int error = dpe_table_of_json(name, made, table, message);
    return error == DPE_TABLE_OK ? DPE_OK : dpe_fail(err, dpe_table_status(error), "%s", message);
}

/* ---------------------------------------------------------------- torch: the pickle, protocol 2 */

/* LONG1: little-endian two's complement; nine bytes hold every int64. */
static void put_int(struct dpe_text *out, int64_t value)
{
    unsigned char code[10] = {0x8a, 8};
    dpe_store_u64(code + 2, (uint64_t)value, 8);
    dpe_text_put_bytes(out, code, sizeof code);
}

static void put_tuple(struct dpe_text *out, const int64_t values[5])
{
    dpe_text_put_bytes(out, "(", 1);
    for (int i = 0; i < 5; i++) {
        put_int(out, values[i]);
    }
    dpe_text_put_bytes(out, "t", 1);
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()), where the
 * storage is named by a persistent id ("storage", torch.FloatStorage, "0", "cpu", count). */
static void put_tensor(struct dpe_text *out, const int64_t *dims, const int64_t *strides,
                       int64_t count)
{
    static const char begin[] = "\x80\x02"
                                "ctorch._utils\n_rebuild_tensor_v2\n"
                                "(("
                                "X\x07\0\0\0storage"
                                "ctorch\nFloatStorage\n"
                                "X\x01\0\0\0"
                                "0"
                                "X\x03\0\0\0"
                                "cpu";
    static const char end[] = "\x89"
                              "ccollections\nOrderedDict\n)R"
                              "tR.";
    dpe_text_put_bytes(out, begin, sizeof begin - 1);
    put_int(out, count);
    dpe_text_put_bytes(out, "tQ", 2);
    put_int(out, 0);
    put_tuple(out, dims);
    put_tuple(out, strides);
    dpe_text_put_bytes(out, end, sizeof end - 1);
}

/* ---------------------------------------------------------------- the zip */

/* A stored entry with a fixed time, so that equal scores give equal files. The bytes are borrowed
 * until the archive is closed. */
static bool add_file(zip_t *archive, const char *name, const void *bytes, size_t n)
{
    zip_source_t *source = zip_source_buffer(archive, bytes, n, 0);
    if (source == NULL) {
        return false;
    }
    zip_int64_t index = zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return false;
    }
    /* 1980-01-01 00:00 in DOS form. */
    return zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
           zip_file_set_dostime(archive, (zip_uint64_t)index, 0, 0x21, 0) == 0;
}

/* What was written into `target`, appended to `out`. */
static dpe_status take_bytes(zip_source_t *target, struct dpe_text *out, struct dpe_error *err)
{
    const bool opened = zip_source_open(target) == 0;
    char block[8192];
    zip_int64_t n = 0;
    dpe_status status = DPE_OK;
    do {
        n = opened ? zip_source_read(target, block, sizeof block) : -1;
        status = n >= 0 ? dpe_text_append(out, block, (size_t)n, err)
                        : dpe_fail(err, DPE_INTERNAL, "the zip archive cannot be read back");
    } while (status == DPE_OK && n > 0);
    zip_source_close(target);
    return status;
}

DPE_SCOPED_HANDLE(zip_source_t *, zip_source_free)

static dpe_status write_zip(const struct dpe_text *pickle, const float *scores, size_t bytes,
                            struct dpe_text *out, struct dpe_error *err)
{
    DPE_SCOPED(zip_error_fini) zip_error_t why = {0};
    DPE_SCOPED(zip_source_free_scoped)
    zip_source_t *target = zip_source_buffer_create(NULL, 0, 0, &why);
    DPE_TRY(DPE_MADE(target, err, "out of memory for a zip archive"));
    zip_t *archive = zip_open_from_source(target, ZIP_TRUNCATE, &why);
    if (archive == NULL) {
        return dpe_fail(err, DPE_INTERNAL, "zip: %s", zip_error_strerror(&why));
    }
    zip_source_keep(target); /* the archive lets go of it once */
    if (!add_file(archive, "archive/data.pkl", pickle->bytes, pickle->n) ||
        !add_file(archive, "archive/byteorder", "little", 6) ||
        !add_file(archive, "archive/data/0", scores, bytes) ||
        !add_file(archive, "archive/version", "3\n", 2) || zip_close(archive) != 0) {
        const dpe_status status = dpe_fail(err, DPE_INTERNAL, "zip: %s", zip_strerror(archive));
        zip_discard(archive);
        return status;
    }
    return take_bytes(target, out, err);
}

dpe_status dpe_export_pt(const float *scores, const int64_t dims[5], struct dpe_text *out,
                         struct dpe_error *err)
{
    int64_t strides[5];
    int64_t count = 1;
    for (int i = 4; i >= 0; i--) {
        strides[i] = count;
        if (dims[i] < 1 || __builtin_mul_overflow(count, dims[i], &count) ||
            count > INT64_MAX / (int64_t)sizeof *scores) {
            return dpe_fail(err, DPE_BAD_DATA, "the score tensor's axis %d is %lld long", i,
                            (long long)dims[i]);
        }
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text pickle = {0};
    put_tensor(&pickle, dims, strides, count);
    DPE_TRY(dpe_text_done(&pickle, err));
    return write_zip(&pickle, scores, (size_t)count * sizeof *scores, out, err);
}
