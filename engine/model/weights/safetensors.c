/* The safetensors container: header checks, mapping, tables of tensors. */
#include "engine/model/weights/safetensors.h"
#include "engine/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "engine/base/lfs.h"
#include "engine/system/folder.h"
#include "engine/system/platform.h"
#include "engine/text/json.h"

/* The format's own limit. */
static const uint64_t max_header = 100000000;

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    {"F32", 32},        {"F16", 16},        {"BF16", 16}, {"F64", 64},    {"I64", 64},
    {"I32", 32},        {"I16", 16},        {"I8", 8},    {"U8", 8},      {"BOOL", 8},
    {"U64", 64},        {"U32", 32},        {"U16", 16},  {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8},     {"C64", 64},        {"F4", 4},    {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

/* What one header is read with. */
struct header {
    struct dpe_shard *shard;
    struct dpe_shard_table *table;
    size_t first; /* of this file's tensors in the table */
    struct dpe_error *err;
};

static dpe_status bad_tensor(const struct header *header, const char *name, const char *what)
{
    char quoted[96];
    return dpe_fail(header->err, DPE_BAD_DATA, "%s: tensor %s: %s", header->shard->path,
                    dpe_json_quote(quoted, name, strlen(name)), what);
}

/* At most `most` integers >= 0; false: the value is something else. */
static bool read_integers(const json_t *list, size_t most, int64_t *values)
{
    size_t n = json_array_size(list);
    bool good = json_is_array(list) && n <= most;
    for (size_t i = 0; i < n && good; i++) {
        values[i] = json_integer_value(json_array_get(list, i));
        good = json_is_integer(json_array_get(list, i)) && values[i] >= 0;
    }
    return good;
}

/* A dtype that is not known has no size to compare; whoever needs the tensor refuses it. */
static dpe_status check_size(const struct header *header, const struct dpe_shard_tensor *tensor)
{
    size_t d = 0;
    while (d < sizeof dtypes / sizeof dtypes[0] && strcmp(dtypes[d].name, tensor->dtype) != 0) {
        d++;
    }
    bool known = d < sizeof dtypes / sizeof dtypes[0];
    uint64_t count = 1;
    uint64_t bits = 0;
    bool overflow = false;
    for (int i = 0; i < tensor->rank; i++) {
        overflow |= __builtin_mul_overflow(count, (uint64_t)tensor->shape[i], &count);
    }
    overflow |= __builtin_mul_overflow(count, (uint64_t)(known ? dtypes[d].bits : 1), &bits);
    if (overflow) {
        return bad_tensor(header, tensor->name, "the product of its shape overflows");
    }
    uint64_t bytes = tensor->end - tensor->begin;
    if (known && (bits % 8 != 0 || bits / 8 != bytes)) {
        char what[160];
        snprintf(what, sizeof what, "expected %llu bytes for %llu elements of %s, found %llu",
                 (unsigned long long)(bits / 8), (unsigned long long)count, tensor->dtype,
                 (unsigned long long)bytes);
        return bad_tensor(header, tensor->name, what);
    }
    return DPE_OK;
}

/* The object of one tensor; members outside the format are passed over, as its reference
 * implementation does. */
static dpe_status read_tensor(const struct header *header, const json_t *entry,
                              struct dpe_shard_tensor *tensor)
{
    const json_t *dtype = json_object_get(entry, "dtype");
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t ends[2];
    if (!json_is_string(dtype) || shape == NULL || offsets == NULL) {
        return bad_tensor(header, tensor->name, "expected dtype, shape and data_offsets");
    }
    if (strlen(json_string_value(dtype)) != json_string_length(dtype)) {
        return bad_tensor(header, tensor->name, "its dtype goes on after a NUL character");
    }
    if (!read_integers(shape, DPE_SAFETENSORS_RANK, tensor->shape)) {
        return bad_tensor(header, tensor->name,
                          "expected a shape of at most 8 dimensions, integers from 0 to 2^63 - 1");
    }
    if (json_array_size(offsets) != 2 || !read_integers(offsets, 2, ends) || ends[1] < ends[0]) {
        return bad_tensor(header, tensor->name, "expected data_offsets [begin, end], begin <= end");
    }
    uint64_t bytes = header->shard->size - header->shard->data;
    if ((uint64_t)ends[1] > bytes) {
        char what[128];
        snprintf(what, sizeof what,
                 "ends at byte %lld of the data, which has %llu: the file is truncated",
                 (long long)ends[1], (unsigned long long)bytes);
        return bad_tensor(header, tensor->name, what);
    }
    tensor->dtype = json_string_value(dtype);
    tensor->rank = (int)json_array_size(shape);
    tensor->begin = header->shard->data + (uint64_t)ends[0];
    tensor->end = header->shard->data + (uint64_t)ends[1];
    return check_size(header, tensor);
}

static dpe_status check_metadata(const struct header *header, json_t *metadata)
{
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value)
    {
        good = good && json_is_string(value);
    }
    return good ? DPE_OK
                : dpe_fail(header->err, DPE_BAD_DATA,
                           "%s: header: __metadata__: expected an object of strings",
                           header->shard->path);
}

struct span {
    uint64_t begin, end;
    size_t tensor;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a;
    const struct span *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The data is covered from its first to its last byte, without gap or overlap. */
static dpe_status check_cover(const struct header *header)
{
    size_t n = header->table->n - header->first;
    const struct dpe_shard_tensor *tensors = header->table->tensors + header->first;
    DPE_OWNED struct span *spans = NULL;
    DPE_TRY(DPE_NEW(&spans, n, header->err, "%s: out of memory for %zu tensors",
                    header->shard->path, n));
    for (size_t i = 0; i < n; i++) {
        spans[i] = (struct span){tensors[i].begin, tensors[i].end, i};
    }
    qsort(spans, n, sizeof *spans, by_begin);
    uint64_t covered = header->shard->data;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin != covered) {
            char what[128];
            snprintf(what, sizeof what, "begins at byte %llu of the data, expected %llu: %s",
                     (unsigned long long)(spans[i].begin - header->shard->data),
                     (unsigned long long)(covered - header->shard->data),
                     spans[i].begin < covered ? "it overlaps another"
                                              : "bytes before it belong to no tensor");
            return bad_tensor(header, tensors[spans[i].tensor].name, what);
        }
        covered = spans[i].end;
    }
    if (covered != header->shard->size) {
        return dpe_fail(header->err, DPE_BAD_DATA,
                        "%s: expected the file to end with its tensors at byte %llu, found "
                        "%llu bytes",
                        header->shard->path, (unsigned long long)covered,
                        (unsigned long long)header->shard->size);
    }
    return DPE_OK;
}

static dpe_status read_tensors(const struct header *header, int index)
{
    struct dpe_shard_table *table = header->table;
    const char *name;
    json_t *entry;
    json_object_foreach(header->shard->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            DPE_TRY(check_metadata(header, entry));
            continue;
        }
        DPE_TRY(DPE_ROOM(&table->tensors, table->n, header->err,
                         "%s: out of memory for its tensors", header->shard->path));
        struct dpe_shard_tensor *tensor = &table->tensors[table->n++];
        *tensor = (struct dpe_shard_tensor){.name = name, .shard = index};
        DPE_TRY(read_tensor(header, entry, tensor));
    }
    return check_cover(header);
}

/* The header, whose bytes go into the hash. */
static dpe_status read_header(struct dpe_shard *shard, struct dpe_sha256 *hash,
                              struct dpe_error *err)
{
    unsigned char length[8], first[64];
    char where[4096 + 16];
    DPE_OWNED char *bytes = NULL;
    uint64_t some = shard->size < sizeof first ? shard->size : sizeof first;
    DPE_TRY(dpe_shard_read(shard, 0, some, first, err));
    DPE_TRY(dpe_refuse_pointer(shard->path, first, (size_t)some, err));
    if (shard->size < sizeof length) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: expected at least 8 bytes, found %llu: not a safetensors file, or "
                        "a truncated one",
                        shard->path, (unsigned long long)shard->size);
    }
    memcpy(length, first, sizeof length);
    uint64_t n = dpe_load_u64(length, sizeof length);
    if (n > max_header || n > shard->size - sizeof length) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: header of %llu bytes: expected at most %llu, in a file of %llu: not "
                        "a safetensors file, or a truncated one",
                        shard->path, (unsigned long long)n, (unsigned long long)max_header,
                        (unsigned long long)shard->size);
    }
    shard->data = sizeof length + n;
    DPE_TRY(DPE_NEW(&bytes, (size_t)n + 1, err, "%s: no memory for its header of %llu bytes",
                    shard->path, (unsigned long long)n));
    DPE_TRY(dpe_shard_read(shard, sizeof length, shard->data, bytes, err));
    dpe_sha256_add(hash, bytes, (size_t)n);
    snprintf(where, sizeof where, "%s: header", shard->path);
    return dpe_json_parse(where, bytes, (size_t)n, &shard->header, err);
}

dpe_status dpe_shard_open(const char *folder, const char *name, int index, struct dpe_shard *shard,
                          struct dpe_shard_table *table, struct dpe_sha256 *hash,
                          struct dpe_error *err)
{
    shard->name = strdup(name);
    shard->path = dpe_folder_join(folder, name);
    DPE_TRY(DPE_MADE(shard->name != NULL ? shard->path : NULL, err, "%s: out of memory", name));
    unsigned char size[8];
    DPE_TRY(dpe_open_regular(shard->path, &shard->fd, &shard->size, err));
    dpe_store_u64(size, shard->size, sizeof size);
    dpe_sha256_add(hash, shard->name, strlen(shard->name) + 1);
    dpe_sha256_add(hash, size, sizeof size);
    DPE_TRY(read_header(shard, hash, err));
    struct header header = {.shard = shard, .table = table, .first = table->n, .err = err};
    DPE_TRY(read_tensors(&header, index));
    return dpe_shard_map(shard, err);
}

dpe_status dpe_shard_map(struct dpe_shard *shard, struct dpe_error *err)
{
    void *map = mmap(NULL, (size_t)shard->size, PROT_READ, MAP_PRIVATE, shard->fd, 0);
    if (map == MAP_FAILED) {
        return dpe_fail(err, errno == ENOMEM ? DPE_NO_MEMORY : DPE_IO, "%s: cannot be mapped: %s",
                        shard->path, strerror(errno));
    }
#ifdef MADV_HUGEPAGE
    /* What is not in the page cache yet comes there in huge pages where the file system has them
     * (ext4 since Linux 6.16, XFS): decoding reads those 1.5 times as fast. */
    (void)madvise(map, (size_t)shard->size, MADV_HUGEPAGE);
#endif
    shard->map = map;
    return DPE_OK;
}

void dpe_shard_close(struct dpe_shard *shard)
{
    if (shard->map != NULL) {
        munmap(shard->map, (size_t)shard->size);
    }
    if (shard->fd >= 0) {
        close(shard->fd);
    }
    free(shard->name);
    free(shard->path);
    json_decref(shard->header);
    *shard = (struct dpe_shard){.fd = -1};
}

dpe_status dpe_shard_verify(const struct dpe_shard *shard, struct dpe_error *err)
{
    struct stat info;
    if (fstat(shard->fd, &info) != 0) {
        return dpe_fail(err, DPE_IO, "%s: its size cannot be read: %s", shard->path,
                        strerror(errno));
    }
    if ((uint64_t)info.st_size < shard->size) {
        return dpe_fail(err, DPE_IO,
                        "%s: was truncated while in use: expected %llu bytes, found %llu; restore "
                        "the file and start again",
                        shard->path, (unsigned long long)shard->size,
                        (unsigned long long)info.st_size);
    }
    return DPE_OK;
}

dpe_status dpe_shard_read(const struct dpe_shard *shard, uint64_t begin, uint64_t end, void *to,
                          struct dpe_error *err)
{
    return dpe_read_range(shard->fd, shard->path, to, (size_t)(end - begin), begin, err);
}

static int by_name(const void *a, const void *b)
{
    const struct dpe_shard_tensor *x = a;
    const struct dpe_shard_tensor *y = b;
    return strcmp(x->name, y->name);
}

dpe_status dpe_shard_table_sort(struct dpe_shard_table *table, const struct dpe_shard *shards,
                                struct dpe_error *err)
{
    if (table->n > 0) {
        qsort(table->tensors, table->n, sizeof *table->tensors, by_name);
    }
    for (size_t i = 1; i < table->n; i++) {
        const struct dpe_shard_tensor *a = table->tensors + i - 1;
        const struct dpe_shard_tensor *b = table->tensors + i;
        if (strcmp(a->name, b->name) == 0) {
            char quoted[96];
            return dpe_fail(err, DPE_BAD_DATA, "%s: tensor %s: occurs a second time in %s",
                            shards[a->shard].path, dpe_json_quote(quoted, a->name, strlen(a->name)),
                            shards[b->shard].path);
        }
    }
    return DPE_OK;
}

const struct dpe_shard_tensor *dpe_shard_table_find(const struct dpe_shard_table *table,
                                                    const char *name)
{
    const struct dpe_shard_tensor key = {.name = name};
    return table->n == 0 ? NULL
                         : bsearch(&key, table->tensors, table->n, sizeof *table->tensors, by_name);
}

dpe_status dpe_shard_sample(const struct dpe_shard *shard, uint64_t begin, uint64_t end, void *to,
                            struct dpe_error *err)
{
    const uint64_t page = 4096;
    uint64_t first = begin / page * page;
    bool fresh = !dpe_page_is_there(shard->map + first);
    DPE_TRY(dpe_shard_read(shard, begin, end, to, err));
    if (fresh) {
        dpe_file_forget(shard->fd, (off_t)first, (off_t)((end - first + page - 1) / page * page));
    }
    return DPE_OK;
}
