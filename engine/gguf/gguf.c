/* The header of a GGUF file: magic, counts, metadata. */
#include "engine/gguf/gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "engine/gguf/gguf_internal.h"
#include "engine/text/json.h"

enum { MOST_VALUES = 1 << 16, MOST_TENSORS = 1 << 20, MOST_NAME = 255, FIRST_READ = 1 << 20 };
/* A vocabulary of 4 million tokens with its merges is smaller. */
static const uint64_t most_header = UINT64_C(1) << 29;

/* The next n bytes; NULL, and `more`, when they are not in memory. */
static const unsigned char *take(struct dpe_gguf_cursor *cursor, uint64_t n)
{
    if (cursor->more || n > cursor->n - cursor->at) {
        cursor->more = true;
        return NULL;
    }
    const unsigned char *bytes = cursor->gguf->header + cursor->at;
    cursor->at += (size_t)n;
    return bytes;
}

bool dpe_gguf_take_u64(struct dpe_gguf_cursor *cursor, uint64_t *value)
{
    const unsigned char *bytes = take(cursor, 8);
    *value = bytes != NULL ? dpe_load_u64(bytes, 8) : 0;
    return bytes != NULL;
}

bool dpe_gguf_take_u32(struct dpe_gguf_cursor *cursor, uint32_t *value)
{
    const unsigned char *bytes = take(cursor, 4);
    *value = bytes != NULL ? (uint32_t)dpe_load_u64(bytes, 4) : 0;
    return bytes != NULL;
}

dpe_status dpe_gguf_take_name(struct dpe_gguf_cursor *cursor, const char *what, char **name)
{
    uint64_t n = 0;
    const char *path = cursor->gguf->path;
    *name = NULL;
    if (!dpe_gguf_take_u64(cursor, &n)) {
        return DPE_OK;
    }
    if (n < 1 || n > MOST_NAME) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: at byte %zu: expected %s of 1 to %d bytes, found %llu", path,
                        cursor->at - 8, what, MOST_NAME, (unsigned long long)n);
    }
    const char *bytes = (const char *)take(cursor, n);
    if (bytes == NULL) {
        return DPE_OK;
    }
    if (memchr(bytes, '\0', (size_t)n) != NULL || dpe_utf8_check(bytes, (size_t)n) != n) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: at byte %zu: expected %s of UTF-8 without NUL, found other bytes",
                        path, cursor->at - (size_t)n, what);
    }
    *name = strndup(bytes, (size_t)n);
    return *name != NULL ? DPE_OK : dpe_fail(cursor->err, DPE_NO_MEMORY, "%s: out of memory", path);
}

size_t dpe_gguf_width(enum dpe_gguf_type type)
{
    static const unsigned char widths[DPE_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return widths[type];
}

static dpe_status bad_value(const struct dpe_gguf_cursor *cursor, const char *key, const char *what,
                            uint64_t found)
{
    char quoted[96];
    return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: %s: expected %s, found %llu",
                    cursor->gguf->path, dpe_json_quote(quoted, key, strlen(key)), what,
                    (unsigned long long)found);
}

/* The bytes of a value whose type and count are known. */
static dpe_status take_bytes(struct dpe_gguf_cursor *cursor, struct dpe_gguf_value *value)
{
    size_t width = dpe_gguf_width(value->type);
    uint64_t bytes = 0;
    if (width > 0) {
        if (__builtin_mul_overflow(value->n, (uint64_t)width, &bytes) ||
            bytes > cursor->gguf->size) {
            return bad_value(cursor, value->key, "an array that the file can hold", value->n);
        }
        value->bytes = take(cursor, bytes);
        value->n_bytes = (size_t)bytes;
        return DPE_OK;
    }
    size_t begin = cursor->at;
    for (uint64_t i = 0; i < value->n && !cursor->more; i++) {
        uint64_t n = 0;
        if (dpe_gguf_take_u64(cursor, &n) && n > cursor->gguf->size) {
            return bad_value(cursor, value->key, "a string that the file can hold", n);
        }
        value->bytes = take(cursor, n);
        value->n_bytes = (size_t)n;
    }
    if (value->array && !cursor->more) {
        value->bytes = cursor->gguf->header + begin;
        value->n_bytes = cursor->at - begin;
    }
    return DPE_OK;
}

/* One line of the metadata; incomplete when the cursor wants more. */
static dpe_status take_value(struct dpe_gguf_cursor *cursor, struct dpe_gguf_value *value)
{
    uint32_t type = 0;
    DPE_TRY(dpe_gguf_take_name(cursor, "a key", &value->key));
    if (!dpe_gguf_take_u32(cursor, &type)) {
        return DPE_OK;
    }
    value->n = 1;
    value->array = type == DPE_GGUF_ARRAY;
    if (value->array &&
        (!dpe_gguf_take_u32(cursor, &type) || !dpe_gguf_take_u64(cursor, &value->n))) {
        return DPE_OK;
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

static dpe_status take_values(struct dpe_gguf_cursor *cursor, uint64_t n)
{
    struct dpe_gguf *gguf = cursor->gguf;
    DPE_TRY(DPE_NEW(&gguf->values, (size_t)n, cursor->err, "%s: out of memory", gguf->path));
    while (gguf->n_values < n && !cursor->more) {
        DPE_TRY(take_value(cursor, &gguf->values[gguf->n_values++]));
    }
    return DPE_OK;
}

static dpe_status take_start(struct dpe_gguf_cursor *cursor, uint64_t *n_tensors,
                             uint64_t *n_values)
{
    const char *path = cursor->gguf->path;
    const unsigned char *magic = take(cursor, 4);
    uint32_t version = 0;
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0) {
        return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: expected a GGUF file, found something else",
                        path);
    }
    if (!dpe_gguf_take_u32(cursor, &version)) {
        return DPE_OK;
    }
    if (version != 2 && version != 3) {
        return dpe_fail(
            cursor->err, DPE_BAD_DATA,
            "%s: expected GGUF version 2 or 3, found %s%u; convert the model again with "
            "a current llama.cpp",
            path, (version & 0xffffU) == 0 ? "a file of a big-endian machine: " : "", version);
    }
    if (dpe_gguf_take_u64(cursor, n_tensors) && *n_tensors > MOST_TENSORS) {
        return dpe_fail(cursor->err, DPE_BAD_DATA, "%s: expected at most %d tensors, found %llu",
                        path, MOST_TENSORS, (unsigned long long)*n_tensors);
    }
    if (dpe_gguf_take_u64(cursor, n_values) && *n_values > MOST_VALUES) {
        return dpe_fail(cursor->err, DPE_BAD_DATA,
                        "%s: expected at most %d lines of metadata, found %llu", path, MOST_VALUES,
                        (unsigned long long)*n_values);
    }
    return DPE_OK;
}

static void drop_lists(struct dpe_gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_values; i++) {
        free(gguf->values[i].key);
    }
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        free(gguf->tensors[i].name);
    }
    free(gguf->values);
    free(gguf->tensors);
    gguf->values = NULL;
    gguf->tensors = NULL;
    gguf->n_values = gguf->n_tensors = 0;
}

/* The whole header from what is in memory. */
static dpe_status parse(struct dpe_gguf_cursor *cursor)
{
    uint64_t n_tensors = 0;
    uint64_t n_values = 0;
    DPE_TRY(take_start(cursor, &n_tensors, &n_values));
    DPE_TRY(take_values(cursor, n_values));
    cursor->gguf->tensors_at = cursor->at;
    DPE_TRY(dpe_gguf_take_tensors(cursor, n_tensors));
    cursor->gguf->n_header = cursor->at;
    return DPE_OK;
}

static dpe_status read_bytes(struct dpe_gguf *gguf, size_t from, size_t to, struct dpe_error *err)
{
    while (from < to) {
        ssize_t n = pread(gguf->fd, gguf->header + from, to - from, (off_t)from);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return dpe_fail(err, DPE_IO, "%s: read failed at byte %zu: %s", gguf->path, from,
                            n < 0 ? strerror(errno) : "the file was truncated");
        }
        from += (size_t)n;
    }
    return DPE_OK;
}

/* The length of a header stands nowhere: it is tried with more and more of the file. */
static dpe_status read_header(struct dpe_gguf *gguf, struct dpe_error *err)
{
    uint64_t most = gguf->size < most_header ? gguf->size : most_header;
    uint64_t want = FIRST_READ;
    size_t have = 0;
    for (;; want *= 2) {
        want = want < most ? want : most;
        unsigned char *grown = realloc(gguf->header, (size_t)want + 1);
        if (grown == NULL) {
            return dpe_fail(err, DPE_NO_MEMORY, "%s: no memory for its header", gguf->path);
        }
        gguf->header = grown;
        DPE_TRY(read_bytes(gguf, have, (size_t)want, err));
        have = (size_t)want;
        struct dpe_gguf_cursor cursor = {.gguf = gguf, .n = have, .err = err};
        DPE_TRY(parse(&cursor));
        if (!cursor.more) {
            return DPE_OK;
        }
        if (want == most) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: its header does not end within %llu bytes: the file is truncated, "
                            "or a count or length in it is wrong",
                            gguf->path, (unsigned long long)most);
        }
        drop_lists(gguf);
    }
}

dpe_status dpe_gguf_open(const char *path, struct dpe_gguf **gguf, struct dpe_error *err)
{
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *made = NULL;
    *gguf = NULL;
    DPE_TRY(DPE_NEW(&made, 1, err, "%s: out of memory", path));
    made->fd = -1;
    made->path = strdup(path);
    if (made->path == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", path);
    }
    DPE_TRY(dpe_open_regular(path, &made->fd, &made->size, err));
    DPE_TRY(read_header(made, err));
    DPE_TRY(sort_values(made, err));
    DPE_TRY(dpe_gguf_place_tensors(made, err));
    *gguf = made;
    made = NULL;
    return DPE_OK;
}

void dpe_gguf_close(struct dpe_gguf *gguf)
{
    if (gguf == NULL) {
        return;
    }
    drop_lists(gguf);
    if (gguf->fd >= 0) {
        close(gguf->fd);
    }
    free(gguf->header);
    free(gguf->path);
    free(gguf);
}
