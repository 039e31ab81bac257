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
#include "outputs/export/export.h"
#include "outputs/read/read.h"
#include "outputs/table/fields.h"

/* ------------------------------------------------------------------------- safetensors, written */

/* A tensor of the file. */
struct part {
    const struct dpe_table_field *field;
    const struct dpe_table_values *values;
};

static const char *dtype_of(const struct dpe_table_field *field)
{
    return field->type == DPE_FIELD_REAL ? "F64" : field->type == DPE_FIELD_EDGE ? "I32" : "U8";
}

static size_t part_bytes(const struct part *part)
{
    return dpe_field_count(part->field, part->values) * dpe_field_size(part->field);
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

/* Call `each` for all tensors in the order of their data: the widest first, so that all are
 * aligned; a field after the other, of every entry. */
static void for_parts(const struct dpe_table *table, void (*each)(const struct part *, void *),
                      void *user)
{
    const unsigned parts = dpe_table_parts_of(table);
    for (size_t width = sizeof(double); width > 0; width /= 2) {
        for (size_t i = 0; i < dpe_n_table_fields; i++) {
            const struct dpe_table_field *field = &dpe_table_fields[i];
            bool fits = dpe_field_rank(field) > 0 && dpe_field_size(field) == width;
            for (int64_t k = 0; fits && k < dpe_table_count(table); k++) {
                const struct dpe_table_values *values = dpe_table_values(dpe_table_entry(table, k));
                if (dpe_field_written(field, values, parts)) {
                    each(&(struct part){field, values}, user);
                }
            }
        }
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

/* The header as it grows. */
struct header {
    json_t *root;
    size_t offset;
    int64_t n_entries;
};

static void describe_part(const struct part *part, void *user)
{
    struct header *header = user;
    char prefix[32];
    char name[64];
    size_t end = header->offset + part_bytes(part);
    json_t *shape = json_array();
    for (int d = 0; d < dpe_field_rank(part->field); d++) {
        json_array_append_new(shape,
                              json_integer(dpe_field_extent(part->field->axes[d], part->values)));
    }
    entry_prefix(part->values, header->n_entries, prefix);
    snprintf(name, sizeof name, "%s%s", prefix, part->field->name);
    json_object_set_new(header->root, name,
                        json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_of(part->field), "shape",
                                  shape, "data_offsets", (json_int_t)header->offset,
                                  (json_int_t)end));
    header->offset = end;
}

static char *header_text(const struct dpe_table *table)
{
    struct header header = {.root = json_object(), .n_entries = dpe_table_count(table)};
    json_object_set_new(header.root, "__metadata__", metadata(table));
    for_parts(table, describe_part, &header);
    char *text = json_dumps(header.root, JSON_COMPACT);
    json_decref(header.root);
    return text;
}

static void put_part(const struct part *part, void *user)
{
    dpe_text_put_bytes(user, dpe_field_data(part->field, part->values), part_bytes(part));
}

dpe_status dpe_export_safetensors(const struct dpe_table *table, struct dpe_text *out,
                                  struct dpe_error *err)
{
    DPE_OWNED char *header = header_text(table);
    DPE_TRY(DPE_MADE(header, err, "out of memory for a safetensors header"));
    size_t n = strlen(header);
    size_t padded = (n + 7) / 8 * 8;
    unsigned char length[8];
    dpe_store_u64(length, padded, sizeof length);
    dpe_text_put_bytes(out, length, sizeof length);
    dpe_text_put_bytes(out, header, n);
    dpe_text_put_bytes(out, "        ", padded - n);
    for_parts(table, put_part, out);
    return dpe_text_done(out, err);
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

/* The same, owned. */
static char *own_text(struct reader *reader, const char *name)
{
    char *text = strdup(get_text(reader, name));
    if (reader->status == DPE_OK) {
        reader->status = DPE_MADE(text, reader->err, "out of memory");
    }
    return text;
}

/* A tensor of exactly this type and shape, into data. */
static void get_tensor(struct reader *reader, const struct part *part, void *data)
{
    const struct dpe_table_field *field = part->field;
    const json_t *entry = find(reader, reader->root, field->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t rank = (size_t)dpe_field_rank(field);
    bool fits = dtype != NULL && strcmp(dtype, dtype_of(field)) == 0 &&
                json_array_size(shape) == rank && json_array_size(offsets) == 2;
    for (size_t i = 0; i < rank && fits; i++) {
        fits = json_integer_value(json_array_get(shape, i)) ==
               dpe_field_extent(field->axes[i], part->values);
    }
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    if (!fits || begin < 0 || end < begin || (uint64_t)end > reader->n ||
        (size_t)(end - begin) != part_bytes(part)) {
        bad(reader, field->name, "a tensor of the table's shape inside the file");
    } else {
        memcpy(data, reader->data + begin, part_bytes(part));
    }
}

static void get_number(struct reader *reader, const struct dpe_table_field *field, void *data)
{
    double real = 0.0;
    int64_t whole = 0;
    const char *text = get_text(reader, field->name);
    if (field->type == DPE_FIELD_REAL) {
        if (!dpe_parse_real(text, -DBL_MAX, DBL_MAX, &real)) {
            bad(reader, field->name, "a number");
        }
        dpe_field_set(field, data, 0, real);
    } else {
        if (!dpe_parse_int(text, INT32_MIN, INT64_C(1) << 53, &whole)) {
            bad(reader, field->name, "a whole number");
        }
        dpe_field_set(field, data, 0, (double)whole);
    }
}

static void read_conventions(struct reader *reader)
{
    char why[DPE_TABLE_MESSAGE];
    const char *version = get_text(reader, "schema_version");
    if (reader->status == DPE_OK && dpe_table_check_version(version, NULL, why) != DPE_TABLE_OK) {
        bad(reader, "schema_version", why + strlen("expected "));
    }
    for (size_t i = 0; i < dpe_n_table_conventions; i++) {
        const struct dpe_table_convention *convention = &dpe_table_conventions[i];
        if (strcmp(get_text(reader, convention->name), convention->positions) != 0) {
            bad(reader, convention->name, convention->positions);
        }
    }
    if (strcmp(get_text(reader, "schema_name"), "dpe-table") != 0) {
        bad(reader, "schema_name", "dpe-table");
    }
}

static void read_model(struct reader *reader, struct dpe_table_values *values)
{
    reader->prefix[0] = '\0';
    values->schema_version = own_text(reader, "schema_version");
    for (size_t i = 0; i < dpe_n_model_fields; i++) {
        const struct dpe_model_field *field = &dpe_model_fields[i];
        void *at = (char *)values + field->at;
        if (field->text) {
            *(char **)at = own_text(reader, field->metadata);
        } else if (!dpe_parse_int(get_text(reader, field->metadata), 1, INT32_MAX, at)) {
            bad(reader, field->metadata, "a positive whole number");
        }
    }
    values->n_pairs = values->head_dim / 2;
}

static int64_t count_field(void *self, const struct dpe_table_field *field)
{
    const struct reader *reader = self;
    if (dpe_field_rank(field) == 0) {
        return find(reader, reader->metadata, field->name) != NULL ? 1 : -1;
    }
    const json_t *tensor = find(reader, reader->root, field->name);
    const json_t *shape = json_object_get(tensor, "shape");
    return tensor == NULL ? -1 : json_integer_value(json_array_get(shape, 0));
}

static int read_field(void *self, const struct dpe_table_field *field,
                      const struct dpe_table_values *values, void *data, size_t n)
{
    struct reader *reader = self;
    (void)n;
    if (field->type == DPE_FIELD_TEXT) {
        *(char **)data = own_text(reader, field->name);
    } else if (dpe_field_rank(field) > 0) {
        get_tensor(reader, &(struct part){field, values}, data);
    } else {
        get_number(reader, field, data);
    }
    return reader->status == DPE_OK ? DPE_TABLE_OK : DPE_TABLE_BAD_FILE;
}

/* What the library of tables said of an entry. */
static void take_error(struct reader *reader, int error, const char *prefix, const char *why)
{
    if (error != DPE_TABLE_OK && reader->status == DPE_OK) {
        reader->status =
            dpe_fail(reader->err, dpe_table_status(error), "%s: %s%s", reader->name, prefix, why);
    }
}

/* The model, of which the metadata have one, and an entry: with `prefix` before its names. */
static void read_values(struct reader *reader, const char *prefix, struct dpe_table_values *values)
{
    const struct dpe_field_source source = {reader, count_field, read_field};
    char why[DPE_TABLE_MESSAGE] = "";
    read_model(reader, values);
    snprintf(reader->prefix, sizeof reader->prefix, "%s", prefix);
    const json_t *scales = json_object_get(find(reader, reader->root, "scale_factor"), "shape");
    values->n_groups = json_integer_value(json_array_get(scales, 0));
    if (reader->status != DPE_OK) {
        return;
    }
    take_error(reader, dpe_table_read_fields(&source, values, why), prefix, why);
}

static void read_entry(struct reader *reader, const char *prefix, struct dpe_table **table)
{
    DPE_SCOPED(dpe_table_values_free) struct dpe_table_values values = {0};
    char message[DPE_TABLE_MESSAGE];
    read_values(reader, prefix, &values);
    if (reader->status == DPE_OK) {
        take_error(reader, dpe_table_make(&values, table, message), prefix, message);
    }
}

/* The entries that the metadata list by their lengths. */
static void read_entries(struct reader *reader, struct dpe_table **table)
{
    DPE_SCOPED(dpe_tables_close) struct dpe_table *entries[DPE_TABLE_ENTRIES] = {0};
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
    if (reader->status == DPE_OK) {
        const int error =
            dpe_table_join((const struct dpe_table *const *)entries, n, table, message);
        take_error(reader, error, "", message);
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
    json_auto_t *root = json_loadb(bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a JSON object as the header: %s", name,
                        why.text);
    }
    struct reader reader = {.name = name,
                            .data = bytes + 8 + length,
                            .n = n - 8 - (size_t)length,
                            .root = root,
                            .metadata = json_object_get(root, "__metadata__"),
                            .err = err};
    read_conventions(&reader);
    if (reader.status == DPE_OK && find(&reader, reader.metadata, "entries") != NULL) {
        read_entries(&reader, table);
    } else if (reader.status == DPE_OK) {
        read_entry(&reader, "", table);
    }
    return reader.status;
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
static bool add_entry(zip_t *archive, const char *name, const void *bytes, size_t n)
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
    if (!add_entry(archive, "archive/data.pkl", pickle->bytes, pickle->n) ||
        !add_entry(archive, "archive/byteorder", "little", 6) ||
        !add_entry(archive, "archive/data/0", scores, bytes) ||
        !add_entry(archive, "archive/version", "3\n", 2) || zip_close(archive) != 0) {
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
