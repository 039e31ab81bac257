/* The header of a GGUF file: magic, counts, metadata, and the tensors: what they are and where they
 * lie; the files of a split model. */
#include "engine/gguf/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "engine/text/json.h"

enum {
    MOST_VALUES = 1 << 16,
    MOST_TENSORS = 1 << 20,
    MOST_NAME = 255,
    FIRST_READ = 1 << 20,
    MOST_ALIGNMENT = 1 << 20,
    MOST_FILES = 4096
};
/* A vocabulary of 4 million tokens with its merges is smaller. */
static const uint64_t most_header = UINT64_C(1) << 29;

/* A place in the part of the file that is in memory. */
struct cursor {
    struct dpe_gguf *gguf;
    size_t n, at;
    struct dpe_error *err;
};

/* The next n bytes, until more are taken: the length of a header stands nowhere, so more and more
 * of the file comes to memory. */
static dpe_status take(struct cursor *cursor, uint64_t n, const unsigned char **bytes)
{
    struct dpe_gguf *gguf = cursor->gguf;
    const uint64_t most = gguf->size < most_header ? gguf->size : most_header;
    if (n > most - cursor->at) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: its header does not end within %llu bytes: the file is truncated, "
                        "or a count or length in it is wrong",
                        gguf->path, (unsigned long long)most);
    }
    if (n > cursor->n - cursor->at) {
        const uint64_t grow = cursor->at + n > FIRST_READ ? 2 * (cursor->at + n) : FIRST_READ;
        const size_t want = (size_t)(grow < most ? grow : most);
        unsigned char *grown = realloc(gguf->header, want);
        DPE_TRY(DPE_MADE(grown, cursor->err, "%s: no memory for its header", gguf->path));
        gguf->header = grown;
        DPE_TRY(dpe_read_range(gguf->fd, gguf->path, grown + cursor->n, want - cursor->n, cursor->n,
                               cursor->err));
        cursor->n = want;
    }
    *bytes = gguf->header + cursor->at;
    cursor->at += (size_t)n;
    return DPE_OK;
}

static dpe_status take_u64(struct cursor *cursor, uint64_t *value)
{
    const unsigned char *bytes = NULL;
    DPE_TRY(take(cursor, 8, &bytes));
    *value = dpe_load_u64(bytes, 8);
    return DPE_OK;
}

static dpe_status take_u32(struct cursor *cursor, uint32_t *value)
{
    const unsigned char *bytes = NULL;
    DPE_TRY(take(cursor, 4, &bytes));
    *value = (uint32_t)dpe_load_u64(bytes, 4);
    return DPE_OK;
}

/* A name: 1 … 255 bytes of UTF-8 without NUL, as a copy. */
static dpe_status take_name(struct cursor *cursor, const char *what, char **name)
{
    uint64_t n = 0;
    const char *path = cursor->gguf->path;
    const unsigned char *bytes = NULL;
    DPE_TRY(take_u64(cursor, &n));
    if (n < 1 || n > MOST_NAME) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: at byte %zu: expected %s of 1 to %d bytes, found %llu", path,
                        cursor->at - 8, what, MOST_NAME, (unsigned long long)n);
    }
    DPE_TRY(take(cursor, n, &bytes));
    *name = strndup((const char *)bytes, (size_t)n);
    DPE_TRY(DPE_MADE(*name, cursor->err, "%s: out of memory", path));
    if (strlen(*name) != n || dpe_utf8_check(*name, (size_t)n) != n) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: at byte %zu: expected %s of UTF-8 without NUL, found other bytes",
                        path, cursor->at - (size_t)n, what);
    }
    return DPE_OK;
}

static dpe_status bad_value(const struct cursor *cursor, const char *key, const char *what,
                            uint64_t found)
{
    char quoted[96];
    return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: %s: expected %s, found %llu",
                    cursor->gguf->path, dpe_json_quote(quoted, key, strlen(key)), what,
                    (unsigned long long)found);
}

/* The bytes of a value whose type and count are known. */
static dpe_status take_bytes(struct cursor *cursor, struct dpe_gguf_value *value)
{
    const size_t width = dpe_gguf_width(value->type);
    const unsigned char *bytes = NULL;
    uint64_t n = 0;
    value->at = cursor->at;
    if (width > 0) {
        if (__builtin_mul_overflow(value->n, (uint64_t)width, &n) || n > cursor->gguf->size) {
            return bad_value(cursor, value->key, "an array that the file can hold", value->n);
        }
        DPE_TRY(take(cursor, n, &bytes));
    }
    for (uint64_t i = 0; width == 0 && i < value->n; i++) {
        DPE_TRY(take_u64(cursor, &n));
        if (n > cursor->gguf->size) {
            return bad_value(cursor, value->key, "a string that the file can hold", n);
        }
        value->at = value->array ? value->at : cursor->at;
        DPE_TRY(take(cursor, n, &bytes));
    }
    value->n_bytes = cursor->at - value->at;
    return DPE_OK;
}

/* One line of the metadata. */
static dpe_status take_value(struct cursor *cursor, struct dpe_gguf_value *value)
{
    uint32_t type = 0;
    DPE_TRY(take_name(cursor, "a key", &value->key));
    DPE_TRY(take_u32(cursor, &type));
    value->n = 1;
    value->array = type == DPE_GGUF_ARRAY;
    if (value->array) {
        DPE_TRY(take_u32(cursor, &type));
        DPE_TRY(take_u64(cursor, &value->n));
    }
    if (value->array && type == DPE_GGUF_ARRAY) {
        char quoted[96];
        return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: %s: arrays of arrays are not supported",
                        cursor->gguf->path, dpe_json_quote(quoted, value->key, strlen(value->key)));
    }
    if (type >= DPE_GGUF_TYPES) {
        return bad_value(cursor, value->key, "a type from 0 to 12", type);
    }
    value->type = (enum dpe_gguf_type)type;
    return take_bytes(cursor, value);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct dpe_gguf_value *)a)->key, ((const struct dpe_gguf_value *)b)->key);
}

static dpe_status sort_values(struct dpe_gguf *gguf, struct dpe_error *err)
{
    for (size_t i = 0; i < gguf->n_values; i++) {
        gguf->values[i].bytes = gguf->header + gguf->values[i].at;
    }
    if (gguf->n_values > 0) {
        qsort(gguf->values, gguf->n_values, sizeof *gguf->values, by_key);
    }
    for (size_t i = 1; i < gguf->n_values; i++) {
        if (strcmp(gguf->values[i].key, gguf->values[i - 1].key) == 0) {
            char quoted[96];
            const char *key = gguf->values[i].key;
            return dpe_fail(err, DPE_BAD_DATA, "%s: %s occurs twice", gguf->path,
                            dpe_json_quote(quoted, key, strlen(key)));
        }
    }
    return DPE_OK;
}

static dpe_status take_values(struct cursor *cursor, uint64_t n)
{
    struct dpe_gguf *gguf = cursor->gguf;
    DPE_TRY(DPE_NEW(&gguf->values, (size_t)n, cursor->err, "%s: out of memory", gguf->path));
    while (gguf->n_values < n) {
        DPE_TRY(take_value(cursor, &gguf->values[gguf->n_values++]));
    }
    return DPE_OK;
}

static dpe_status take_start(struct cursor *cursor, uint64_t *n_tensors, uint64_t *n_values)
{
    const char *path = cursor->gguf->path;
    const unsigned char *magic = NULL;
    uint32_t version = 0;
    const dpe_status status = take(cursor, 4, &magic);
    if (status == DPE_BAD_DATA || (status == DPE_OK && memcmp(magic, "GGUF", 4) != 0)) {
        return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: expected a GGUF file, found something else",
                        path);
    }
    DPE_TRY(status);
    DPE_TRY(take_u32(cursor, &version));
    if (version != 2 && version != 3) {
        return dpe_fail(
            cursor->err, DPE_BAD_DATA,
            "%s: expected GGUF version 2 or 3, found %s%u; convert the model again with "
            "a current llama.cpp",
            path, (version & 0xffffU) == 0 ? "a file of a big-endian machine: " : "", version);
    }
    DPE_TRY(take_u64(cursor, n_tensors));
    DPE_TRY(take_u64(cursor, n_values));
    if (*n_tensors > MOST_TENSORS) {
        return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: expected at most %d tensors, found %llu",
                        path, MOST_TENSORS, (unsigned long long)*n_tensors);
    }
    if (*n_values > MOST_VALUES) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: expected at most %d lines of metadata, found %llu", path, MOST_VALUES,
                        (unsigned long long)*n_values);
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ tensors */

static dpe_status bad_tensor(const struct dpe_gguf *gguf, const char *name, struct dpe_error *err,
                             const char *what, uint64_t found)
{
    char quoted[96];
    return dpe_fail(err, DPE_BAD_DATA, "%s: tensor %s: expected %s, found %" PRIu64, gguf->path,
                    dpe_json_quote(quoted, name, strlen(name)), what, found);
}

/* The types that the format has and this program does not. */
static const char *foreign_type(uint32_t number)
{
    static const char *const names[] = {
        [9] = "Q8_1",    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
        [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
        [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",
        [40] = "NVFP4"};
    const char *name = number < sizeof names / sizeof names[0] ? names[number] : NULL;
    return name != NULL ? name : "a type unknown here";
}

static dpe_status bad_type(const struct dpe_gguf *gguf, const struct dpe_gguf_tensor *tensor,
                           struct dpe_error *err)
{
    char quoted[96];
    char list[160] = "";
    for (int i = 0; i < DPE_DTYPES; i++) {
        dpe_append(list, sizeof list, "%s%s", i > 0 ? ", " : "", dpe_block_types[i].name);
    }
    return dpe_fail(err, DPE_BAD_DATA, "%s: tensor %s: expected one of the types %s, found %s (%u)",
                    gguf->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)), list,
                    foreign_type(tensor->type), tensor->type);
}

dpe_status dpe_gguf_check_types(const struct dpe_gguf *gguf, struct dpe_error *err)
{
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        if (gguf->tensors[i].dtype == DPE_DTYPES) {
            return bad_type(gguf, &gguf->tensors[i], err);
        }
    }
    return DPE_OK;
}

static dpe_status take_shape(struct cursor *cursor, struct dpe_gguf_tensor *tensor)
{
    uint32_t rank = 0;
    DPE_TRY(take_u32(cursor, &rank));
    if (rank < 1 || rank > DPE_GGUF_RANK) {
        return bad_tensor(cursor->gguf, tensor->name, cursor->err, "1 to 4 dimensions", rank);
    }
    tensor->rank = (int)rank;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        uint64_t size = 0;
        DPE_TRY(take_u64(cursor, &size));
        if (size < 1 || size > INT64_MAX) {
            return bad_tensor(cursor->gguf, tensor->name, cursor->err,
                              "dimensions from 1 to 2^63 - 1", size);
        }
        tensor->shape[i] = (int64_t)size;
    }
    return DPE_OK;
}

static dpe_status take_tensor(struct cursor *cursor, struct dpe_gguf_tensor *tensor)
{
    DPE_TRY(take_name(cursor, "the name of a tensor", &tensor->name));
    DPE_TRY(take_shape(cursor, tensor));
    DPE_TRY(take_u32(cursor, &tensor->type));
    DPE_TRY(take_u64(cursor, &tensor->begin));
    tensor->dtype = dpe_dtype_of_gguf(tensor->type);
    return DPE_OK;
}

static dpe_status take_tensors(struct cursor *cursor, uint64_t n)
{
    struct dpe_gguf *gguf = cursor->gguf;
    while (gguf->n_tensors < n) {
        DPE_TRY(DPE_ROOM(&gguf->tensors, gguf->n_tensors, cursor->err, "%s: out of memory",
                         gguf->path));
        gguf->tensors[gguf->n_tensors] = (struct dpe_gguf_tensor){0};
        DPE_TRY(take_tensor(cursor, &gguf->tensors[gguf->n_tensors++]));
    }
    return DPE_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct dpe_gguf_tensor *x = *(const struct dpe_gguf_tensor *const *)a;
    const struct dpe_gguf_tensor *y = *(const struct dpe_gguf_tensor *const *)b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_name(const void *a, const void *b)
{
    const struct dpe_gguf_tensor *x = *(const struct dpe_gguf_tensor *const *)a;
    const struct dpe_gguf_tensor *y = *(const struct dpe_gguf_tensor *const *)b;
    return strcmp(x->name, y->name);
}

/* No two of one name, no two of which one begins before the other ends. */
static dpe_status check_pairs(const struct dpe_gguf *gguf, struct dpe_error *err)
{
    DPE_OWNED const struct dpe_gguf_tensor **order = NULL;
    DPE_TRY(DPE_NEW(&order, gguf->n_tensors, err, "%s: out of memory", gguf->path));
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        order[i] = &gguf->tensors[i];
    }
    char quoted[2][96];
    qsort(order, gguf->n_tensors, sizeof *order, by_name);
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        const char *name = order[i]->name;
        if (strcmp(name, order[i - 1]->name) == 0) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: tensor %s occurs twice", gguf->path,
                            dpe_json_quote(quoted[0], name, strlen(name)));
        }
    }
    qsort(order, gguf->n_tensors, sizeof *order, by_begin);
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        const struct dpe_gguf_tensor *a = order[i - 1];
        const struct dpe_gguf_tensor *b = order[i];
        if (b->begin < a->end) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: tensor %s begins at byte %" PRIu64 ", before the end of %s at "
                            "%" PRIu64 ": they overlap",
                            gguf->path, dpe_json_quote(quoted[0], b->name, strlen(b->name)),
                            b->begin, dpe_json_quote(quoted[1], a->name, strlen(a->name)), a->end);
        }
    }
    return DPE_OK;
}

/* Its place in the file; until then begin is its offset in the data, a multiple of `unit`. A type
 * that is not known has no size. */
static dpe_status place_tensor(const struct dpe_gguf *gguf, uint64_t unit,
                               struct dpe_gguf_tensor *tensor, struct dpe_error *err)
{
    static const struct dpe_block_type unknown = {.elements = 1};
    const struct dpe_block_type *type =
        tensor->dtype == DPE_DTYPES ? &unknown : &dpe_block_types[tensor->dtype];
    const int64_t row = tensor->shape[tensor->rank - 1];
    uint64_t bytes = 1;
    bool overflow = false;
    char what[64];
    if (row % type->elements != 0) {
        snprintf(what, sizeof what, "rows that are multiples of %" PRId64 " numbers (%s)",
                 type->elements, type->name);
        return bad_tensor(gguf, tensor->name, err, what, (uint64_t)row);
    }
    if (tensor->begin % unit != 0) {
        snprintf(what, sizeof what, "an offset that is a multiple of %" PRIu64, unit);
        return bad_tensor(gguf, tensor->name, err, what, tensor->begin);
    }
    for (int i = 0; i < tensor->rank; i++) {
        overflow |= __builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes);
    }
    overflow |=
        __builtin_mul_overflow(bytes / (uint64_t)type->elements, (uint64_t)type->bytes, &bytes);
    overflow |= __builtin_add_overflow(tensor->begin, gguf->data, &tensor->begin);
    overflow |= __builtin_add_overflow(tensor->begin, bytes, &tensor->end);
    if (overflow || tensor->end > gguf->size) {
        char quoted[96];
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: tensor %s lies beyond the end of the file, which has %" PRIu64
                        " bytes: the file is truncated, or a size or offset in it is wrong",
                        gguf->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)),
                        gguf->size);
    }
    return DPE_OK;
}

/* Once all of the header is read. */
static dpe_status place_tensors(struct dpe_gguf *gguf, struct dpe_error *err)
{
    struct dpe_json_reader reader = dpe_gguf_reader(gguf, err);
    int64_t alignment = dpe_gguf_whole(&reader, "general.alignment", 32);
    if (reader.status == DPE_OK &&
        (alignment < 1 || alignment > MOST_ALIGNMENT || (alignment & (alignment - 1)) != 0)) {
        dpe_json_expected(&reader, "general.alignment", "a power of two up to 1048576");
    }
    if (reader.status != DPE_OK) {
        return reader.status;
    }
    uint64_t unit = (uint64_t)alignment;
    gguf->data = ((uint64_t)gguf->n_header + unit - 1) / unit * unit;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        DPE_TRY(place_tensor(gguf, unit, &gguf->tensors[i], err));
    }
    return gguf->n_tensors > 0 ? check_pairs(gguf, err) : DPE_OK;
}

/* --------------------------------------------------------------------------- the whole header */

static dpe_status read_header(struct dpe_gguf *gguf, struct dpe_error *err)
{
    struct cursor cursor = {.gguf = gguf, .err = err};
    uint64_t n_tensors = 0;
    uint64_t n_values = 0;
    DPE_TRY(take_start(&cursor, &n_tensors, &n_values));
    DPE_TRY(take_values(&cursor, n_values));
    gguf->tensors_at = cursor.at;
    DPE_TRY(take_tensors(&cursor, n_tensors));
    gguf->n_header = cursor.at;
    return DPE_OK;
}

dpe_status dpe_gguf_open(const char *path, struct dpe_gguf **gguf, struct dpe_error *err)
{
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *made = NULL;
    *gguf = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: out of memory", path));
    made->fd = -1;
    made->path = strdup(path);
    DPE_TRY(DPE_MADE(made->path, err, "%s: out of memory", path));
    DPE_TRY(dpe_open_regular(path, &made->fd, &made->size, err));
    DPE_TRY(read_header(made, err));
    DPE_TRY(sort_values(made, err));
    DPE_TRY(dpe_gguf_fill(made, err));
    DPE_TRY(place_tensors(made, err));
    *gguf = made;
    made = NULL;
    return DPE_OK;
}

void dpe_gguf_close(struct dpe_gguf *gguf)
{
    if (gguf == NULL) {
        return;
    }
    for (size_t i = 0; i < gguf->n_values; i++) {
        free(gguf->values[i].key);
    }
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        free(gguf->tensors[i].name);
    }
    if (gguf->fd >= 0) {
        close(gguf->fd);
    }
    json_decref(gguf->metadata);
    free(gguf->values);
    free(gguf->tensors);
    free(gguf->header);
    free(gguf->path);
    free(gguf);
}

/* --------------------------------------------------------------------------------------- splits */

dpe_status dpe_gguf_count(const struct dpe_gguf *gguf, int *n, struct dpe_error *err)
{
    struct dpe_json_reader reader = dpe_gguf_reader(gguf, err);
    int64_t count = dpe_gguf_whole(&reader, "split.count", 1);
    int64_t number = dpe_gguf_whole(&reader, "split.no", 0);
    if (reader.status == DPE_OK && count > MOST_FILES) {
        dpe_json_expected(&reader, "split.count", "at most 4096 files");
    }
    DPE_TRY(reader.status);
    *n = count < 1 ? 1 : (int)count;
    char end[40];
    snprintf(end, sizeof end, DPE_GGUF_PART, 1, *n);
    size_t length = strlen(gguf->path);
    size_t tail = strlen(end);
    if (*n > 1 && (number != 0 || length <= tail || strcmp(gguf->path + length - tail, end) != 0)) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: file %" PRId64 " of %" PRId64 " of a model; give the first, and keep "
                        "their names: NAME%s",
                        gguf->path, number + 1, count, end);
    }
    return DPE_OK;
}
