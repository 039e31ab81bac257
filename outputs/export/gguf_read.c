/* The header of a GGUF file: values and tensor infos, bounds-checked. The format: ggml's gguf.md. */
#include "outputs/export/gguf_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "outputs/storage/storage.h"

static const uint8_t type_size[DPE_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
enum { LONGEST_NAME = 1024, MOST_DIMENSIONS = 4 };
static const size_t largest_header = (size_t)1 << 30;

bool dpe_gguf_is(struct dpe_gguf_text text, const char *expected)
{
    return text.n == strlen(expected) && memcmp(text.at, expected, text.n) == 0;
}

static const unsigned char *take(struct dpe_gguf *file, uint64_t n)
{
    if (file->cut || n > file->n - file->at) {
        file->cut = true;
        return NULL;
    }
    const unsigned char *from = file->bytes + file->at;
    file->at += (size_t)n;
    return from;
}

static uint64_t take_u64(struct dpe_gguf *file, size_t bytes)
{
    const unsigned char *from = take(file, bytes);
    return from != NULL ? dpe_load_u64(from, bytes) : 0;
}

static struct dpe_gguf_text take_text(struct dpe_gguf *file)
{
    uint64_t n = take_u64(file, 8);
    const unsigned char *from = take(file, n);
    return (struct dpe_gguf_text){(const char *)from, from != NULL ? n : 0};
}

static void skip_value(struct dpe_gguf *file, uint64_t type);

static void skip_array(struct dpe_gguf *file)
{
    uint64_t type = take_u64(file, 4);
    uint64_t n = take_u64(file, 8);
    if (type >= DPE_GGUF_TYPES || type == DPE_GGUF_ARRAY) {
        file->wrong = "an array of a known type";
    } else if (type != DPE_GGUF_STRING && n > UINT64_MAX / 8) {
        file->cut = true;
    } else if (type != DPE_GGUF_STRING) {
        take(file, n * type_size[type]);
    }
    for (uint64_t i = 0; type == DPE_GGUF_STRING && i < n && !file->cut; i++) {
        take_text(file);
    }
}

static void skip_value(struct dpe_gguf *file, uint64_t type)
{
    if (type == DPE_GGUF_ARRAY) {
        skip_array(file);
    } else if (type == DPE_GGUF_STRING) {
        take_text(file);
    } else if (type < DPE_GGUF_TYPES) {
        take(file, type_size[type]);
    } else {
        file->wrong = "values of known types";
    }
}

/* ----------------------------------------------------------------------------------- what is in it
 */

struct dpe_gguf_value dpe_gguf_take(struct dpe_gguf *file)
{
    struct dpe_gguf_value value = {.key = take_text(file), .type = take_u64(file, 4)};
    size_t at = file->at;
    if (value.type == DPE_GGUF_STRING) {
        value.text = take_text(file);
    } else {
        skip_value(file, value.type);
    }
    value.at = file->cut ? NULL : file->bytes + at;
    return value;
}

/* "ARCHITECTURE.NAME"? */
bool dpe_gguf_is_key(const struct dpe_gguf *file, struct dpe_gguf_text key, const char *name)
{
    size_t prefix = (size_t)file->architecture.n;
    return key.n == prefix + 1 + strlen(name) &&
           memcmp(key.at, file->architecture.at, prefix) == 0 && key.at[prefix] == '.' &&
           memcmp(key.at + prefix + 1, name, strlen(name)) == 0;
}

bool dpe_gguf_find(struct dpe_gguf *file, const char *name, struct dpe_gguf_value *found)
{
    file->at = file->values_at;
    for (uint64_t i = 0; i < file->n_values; i++) {
        *found = dpe_gguf_take(file);
        if (dpe_gguf_is_key(file, found->key, name)) {
            return true;
        }
    }
    return false;
}

double dpe_gguf_number(struct dpe_gguf *file, const char *name, double fallback)
{
    struct dpe_gguf_value value;
    float real = 0.0F;
    if (!dpe_gguf_find(file, name, &value)) {
        return fallback;
    }
    switch (value.type) {
    case DPE_GGUF_U32:
    case DPE_GGUF_I32:
        return (double)dpe_load_u64(value.at, 4);
    case DPE_GGUF_U64:
    case DPE_GGUF_I64:
        return (double)dpe_load_u64(value.at, 8);
    case DPE_GGUF_F32: {
        uint32_t bits = (uint32_t)dpe_load_u64(value.at, 4);
        memcpy(&real, &bits, sizeof real);
        return (double)real;
    }
    default:
        return (double)NAN;
    }
}

static void read_values(struct dpe_gguf *file)
{
    file->values_at = file->at;
    file->alignment = 32;
    for (uint64_t i = 0; i < file->n_values && !file->cut && file->wrong == NULL; i++) {
        struct dpe_gguf_value value = dpe_gguf_take(file);
        if (file->cut || file->wrong != NULL) {
            return;
        }
        if (dpe_gguf_is(value.key, "general.architecture") && value.type == DPE_GGUF_STRING) {
            file->architecture = value.text;
        } else if (dpe_gguf_is(value.key, "general.alignment") && value.type == DPE_GGUF_U32) {
            file->alignment = dpe_load_u64(value.at, 4);
        } else if (dpe_gguf_is(value.key, "split.count") && value.type == DPE_GGUF_U16 &&
                   dpe_load_u64(value.at, 2) > 1) {
            file->wrong = "one file of the whole model (llama-gguf-split --merge makes one)";
        }
    }
}

static void read_infos(struct dpe_gguf *file)
{
    file->infos_at = file->at;
    file->rope_at = -1;
    for (uint64_t i = 0; i < file->n_tensors && !file->cut; i++) {
        struct dpe_gguf_text name = take_text(file);
        uint64_t dims = take_u64(file, 4);
        uint64_t first = 0;
        if (dims > MOST_DIMENSIONS || name.n > LONGEST_NAME) {
            file->wrong = "tensors of at most four dimensions, with names";
            return;
        }
        for (uint64_t d = 0; d < dims; d++) {
            uint64_t extent = take_u64(file, 8);
            first = d == 0 ? extent : first;
        }
        uint64_t type = take_u64(file, 4);
        uint64_t offset = take_u64(file, 8);
        if (!file->cut && dpe_gguf_is(name, DPE_GGUF_ROPE)) {
            file->rope_at = offset > INT64_MAX ? INT64_MAX : (int64_t)offset;
            file->rope_pairs = dims == 1 && type == 0 ? first : 0;
        }
    }
    file->end = file->at;
}

uint64_t dpe_gguf_align(uint64_t n, uint64_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

/* From the bytes that there are; `cut` asks for more. */
static void read_header(struct dpe_gguf *file)
{
    file->at = 0;
    file->cut = false;
    const unsigned char *magic = take(file, 4);
    file->version = take_u64(file, 4);
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0) {
        file->wrong = "the letters GGUF at its beginning";
        return;
    }
    if (file->version != 2 && file->version != 3) {
        file->wrong = "version 2 or 3, little-endian";
        return;
    }
    file->n_tensors = take_u64(file, 8);
    file->n_values = take_u64(file, 8);
    read_values(file);
    if (!file->cut && file->wrong == NULL) {
        read_infos(file);
    }
    bool power = file->alignment >= 8 && file->alignment <= 1 << 20 &&
                 (file->alignment & (file->alignment - 1)) == 0;
    if (!file->cut && file->wrong == NULL && !power) {
        file->wrong = "an alignment that is a power of two";
    } else if (!file->cut && file->wrong == NULL && file->architecture.n == 0) {
        file->wrong = "general.architecture";
    }
}

dpe_status dpe_gguf_read(int fd, uint64_t size, struct dpe_gguf *file, struct dpe_error *err)
{
    size_t room = 1 << 20;
    for (;;) {
        size_t wanted = room < size ? room : (size_t)size;
        unsigned char *more = realloc(file->bytes, wanted > 0 ? wanted : 1);
        if (more == NULL) {
            return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a header of %zu bytes", wanted);
        }
        file->bytes = more;
        while (file->n < wanted) {
            ssize_t n = pread(fd, file->bytes + file->n, wanted - file->n, (off_t)file->n);
            if (n == 0 || (n < 0 && errno != EINTR)) {
                return dpe_fail_errno(err, n < 0 ? errno : EIO, file->path, "read");
            }
            file->n += n > 0 ? (size_t)n : 0;
        }
        read_header(file);
        if (file->wrong != NULL) {
            return dpe_fail(err, DPE_BAD_DATA, "%s: expected a GGUF file with %s", file->path,
                            file->wrong);
        }
        if (!file->cut) {
            break;
        }
        if (wanted == size || room >= largest_header) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: the file is cut off or damaged: its header does not end in its "
                            "%zu bytes",
                            file->path, wanted);
        }
        room *= 4;
    }
    file->data_at = dpe_gguf_align(file->end, file->alignment);
    file->data_size = size > file->data_at ? size - file->data_at : 0;
    return DPE_OK;
}

