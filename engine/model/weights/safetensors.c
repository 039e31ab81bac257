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
    int index;    /* of the shard */
    struct dpe_json_scan scan;
    struct dpe_error *err;
};

static dpe_status bad_json(const struct header *header)
{
    return dpe_fail(header->err, DPE_BAD_DATA, "%s: header: at byte %zu of its JSON: %s",
                    header->shard->path, header->scan.at, header->scan.problem);
}

static dpe_status bad_tensor(const struct header *header, const char *name, const char *what)
{
    char quoted[96];
    return dpe_fail(header->err, DPE_BAD_DATA, "%s: tensor %s: %s", header->shard->path,
                    dpe_json_quote(quoted, name, strlen(name)), what);
}

static dpe_status read_shape(struct header *header, struct dpe_shard_tensor *tensor)
{
    bool first = true;
    dpe_json_scan_open(&header->scan, '[');
    while (dpe_json_scan_element(&header->scan, &first)) {
        uint64_t size = 0;
        if (tensor->rank == DPE_SAFETENSORS_RANK) {
            return bad_tensor(header, tensor->name, "expected at most 8 dimensions, found more");
        }
        if (dpe_json_scan_unsigned(&header->scan, &size) && size > INT64_MAX) {
            return bad_tensor(header, tensor->name, "a size of its shape is above 2^63");
        }
        tensor->shape[tensor->rank++] = (int64_t)size;
    }
    return DPE_OK;
}

static dpe_status read_offsets(struct header *header, struct dpe_shard_tensor *tensor)
{
    uint64_t offsets[2] = {0};
    size_t n = 0;
    bool first = true;
    dpe_json_scan_open(&header->scan, '[');
    while (dpe_json_scan_element(&header->scan, &first)) {
        uint64_t offset = 0;
        dpe_json_scan_unsigned(&header->scan, &offset);
        if (n < 2) {
            offsets[n] = offset;
        }
        n++;
    }
    if (header->scan.problem != NULL) {
        return bad_json(header);
    }
    if (n != 2 || offsets[1] < offsets[0]) {
        return bad_tensor(header, tensor->name, "expected data_offsets [begin, end], begin <= end");
    }
    uint64_t bytes = header->shard->size - header->shard->data;
    if (offsets[1] > bytes) {
        char what[128];
        snprintf(what, sizeof what,
                 "ends at byte %llu of the data, which has %llu: the file is truncated",
                 (unsigned long long)offsets[1], (unsigned long long)bytes);
        return bad_tensor(header, tensor->name, what);
    }
    tensor->begin = header->shard->data + offsets[0];
    tensor->end = header->shard->data + offsets[1];
    return DPE_OK;
}

/* A dtype that is not known has no size to compare; whoever needs the tensor refuses it. */
static dpe_status check_size(struct header *header, const struct dpe_shard_tensor *tensor)
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

/* The object of one tensor; members outside the format are skipped, as its
 * reference implementation does. */
static dpe_status read_tensor(struct header *header, struct dpe_shard_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    bool first = true;
    struct dpe_json_scan_text key = {0};
    struct dpe_json_scan_text dtype = {0};
    dpe_json_scan_open(&header->scan, '{');
    while (dpe_json_scan_key(&header->scan, &first, &key)) {
        unsigned member = 0;
        if (dpe_json_scan_is(&key, "dtype")) {
            member = DTYPE;
            dpe_json_scan_string(&header->scan, &dtype);
        } else if (dpe_json_scan_is(&key, "shape")) {
            member = SHAPE;
            tensor->rank = 0;
            DPE_TRY(read_shape(header, tensor));
        } else if (dpe_json_scan_is(&key, "data_offsets")) {
            member = OFFSETS;
            DPE_TRY(read_offsets(header, tensor));
        } else {
            dpe_json_scan_skip(&header->scan);
        }
        if ((seen & member) != 0) {
            return bad_tensor(header, tensor->name, "a member occurs twice");
        }
        seen |= member;
    }
    if (header->scan.problem != NULL) {
        return bad_json(header);
    }
    if (seen != (DTYPE | SHAPE | OFFSETS)) {
        return bad_tensor(header, tensor->name, "expected dtype, shape and data_offsets");
    }
    if (strlen(dtype.bytes) != dtype.n) {
        return bad_tensor(header, tensor->name, "its dtype goes on after a NUL character");
    }
    tensor->dtype = dtype.bytes;
    return check_size(header, tensor);
}

static dpe_status skip_metadata(struct header *header)
{
    bool first = true;
    struct dpe_json_scan_text text;
    dpe_json_scan_open(&header->scan, '{');
    while (dpe_json_scan_key(&header->scan, &first, &text)) {
        dpe_json_scan_string(&header->scan, &text);
    }
    return header->scan.problem == NULL ? DPE_OK : bad_json(header);
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

static dpe_status read_tensors(struct header *header)
{
    bool first = true;
    bool metadata = false;
    struct dpe_json_scan_text name;
    struct dpe_shard_table *table = header->table;
    dpe_json_scan_open(&header->scan, '{');
    while (dpe_json_scan_key(&header->scan, &first, &name)) {
        if (dpe_json_scan_is(&name, "__metadata__") && !metadata) {
            metadata = true;
            DPE_TRY(skip_metadata(header));
            continue;
        }
        if (strlen(name.bytes) != name.n) {
            return bad_tensor(header, name.bytes, "its name goes on after a NUL character");
        }
        DPE_TRY(DPE_ROOM(&table->tensors, table->n, header->err,
                         "%s: out of memory for its tensors", header->shard->path));
        struct dpe_shard_tensor *tensor = &table->tensors[table->n++];
        *tensor = (struct dpe_shard_tensor){.name = name.bytes, .shard = header->index};
        DPE_TRY(read_tensor(header, tensor));
    }
    return dpe_json_scan_end(&header->scan) ? check_cover(header) : bad_json(header);
}

/* The header's bytes, NUL-terminated, and its length; the shard owns them. */
static dpe_status read_header(struct dpe_shard *shard, uint64_t *n, struct dpe_error *err)
{
    unsigned char length[8], first[64];
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
    *n = dpe_load_u64(length, sizeof length);
    if (*n > max_header || *n > shard->size - sizeof length) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: header of %llu bytes: expected at most %llu, in a file of %llu: not "
                        "a safetensors file, or a truncated one",
                        shard->path, (unsigned long long)*n, (unsigned long long)max_header,
                        (unsigned long long)shard->size);
    }
    shard->data = sizeof length + *n;
    DPE_TRY(DPE_NEW(&shard->header, (size_t)*n + 1, err,
                    "%s: no memory for its header of %llu bytes", shard->path,
                    (unsigned long long)*n));
    shard->header[*n] = '\0';
    DPE_TRY(dpe_shard_read(shard, sizeof length, shard->data, shard->header, err));
    size_t good = dpe_utf8_check(shard->header, (size_t)*n);
    if (good < *n) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: header: expected UTF-8, found an invalid byte at %zu", shard->path,
                        good);
    }
    return DPE_OK;
}

dpe_status dpe_shard_open(const char *folder, const char *name, int index, struct dpe_shard *shard,
                          struct dpe_shard_table *table, struct dpe_sha256 *hash,
                          struct dpe_error *err)
{
    shard->name = strdup(name);
    shard->path = dpe_folder_join(folder, name);
    DPE_TRY(DPE_MADE(shard->name != NULL ? shard->path : NULL, err, "%s: out of memory", name));
    uint64_t n = 0;
    unsigned char size[8];
    DPE_TRY(dpe_open_regular(shard->path, &shard->fd, &shard->size, err));
    DPE_TRY(read_header(shard, &n, err));
    dpe_store_u64(size, shard->size, sizeof size);
    dpe_sha256_add(hash, shard->name, strlen(shard->name) + 1);
    dpe_sha256_add(hash, size, sizeof size);
    dpe_sha256_add(hash, shard->header, (size_t)n);
    struct header header = {.shard = shard,
                            .table = table,
                            .first = table->n,
                            .index = index,
                            .scan = {.text = shard->header, .n = (size_t)n},
                            .err = err};
    DPE_TRY(read_tensors(&header));
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
    free(shard->header);
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
