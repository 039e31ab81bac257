/* A text's keys and values as a safetensors file. */
#include "eval/cache/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/kv/kv.h"
#include "engine/text/json.h"
#include "outputs/storage/storage.h"

enum { MOST_HEADER = 1 << 20, LENGTH = 8 };

/* A file that is written or read. */
struct cache {
    const char *path;
    const char *owner;
    struct dpe_saved_shape shape;
    int64_t n;     /* tokens */
    uint64_t rows; /* where the bytes of the cache begin in the file */
    uint64_t sum;
    struct dpe_new_file file; /* written */
    int fd;                   /* read */
};

/* Of bytes at a place: the sum of what each eight give there, in any order. */
static uint64_t sum_of(uint64_t at, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        if (n - i >= 8) {
            memcpy(&word, from + i, 8);
        } else {
            memcpy(&word, from + i, n - i);
        }
        word =
            (word ^ ((at + i + 1) * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
        sum += word ^ (word >> 29);
    }
    return sum;
}

/* -------------------------------------------------------------------------------------- header */

static void put_tensor(struct dpe_text *out, const char *name, const char *dtype,
                       const int64_t *shape, int rank, uint64_t *at, uint64_t bytes)
{
    dpe_text_put(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    for (int i = 0; i < rank; i++) {
        dpe_text_put(out, "%s%" PRId64, i == 0 ? "" : ",", shape[i]);
    }
    dpe_text_put(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + bytes);
    *at += bytes;
}

/* The length and the header of a file, and *size, the bytes of all of it. */
static dpe_status put_header(struct cache *cache, uint64_t sum, struct dpe_text *out,
                             uint64_t *size, struct dpe_error *err)
{
    static const struct {
        const char *dtype;
        int64_t width; /* of an element, bytes */
    } types[] = {[DPE_KV_F32] = {"F32", 4}, [DPE_KV_BF16] = {"BF16", 2}, [DPE_KV_INT8] = {"U8", 1}};
    const struct dpe_saved_shape *s = &cache->shape;
    const int64_t shape[] = {s->heads, cache->n, s->row_bytes / types[s->type].width};
    uint64_t at = 0;
    dpe_text_put_bytes(out, "\0\0\0\0\0\0\0", LENGTH);
    dpe_text_put(out,
                 "{\"__metadata__\":{\"format\":\"dpe-cache\",\"version\":\"1\",\"model\":\"%s\","
                 "\"plan\":\"%s\",\"device\":\"%s\",\"type\":\"%s\",\"chunk\":\"%" PRId64
                 "\",\"owner\":\"%s\",\"n\":\"%" PRId64 "\",\"sum\":\"%016" PRIx64 "\"}",
                 s->model, s->plan, s->device, dpe_kv_type_names[s->type], s->chunk, cache->owner,
                 cache->n, sum);
    put_tensor(out, "tokens", "I32", &cache->n, 1, &at, sizeof(int32_t) * (uint64_t)cache->n);
    for (int64_t i = 0; i < 2 * s->layers; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%" PRId64, i % 2 == 0 ? "keys" : "values", i / 2);
        put_tensor(out, name, types[s->type].dtype, shape, 3, &at,
                   (uint64_t)(s->heads * cache->n * s->row_bytes));
    }
    dpe_text_put(out, "}");
    while (!out->failed && out->n % 8 != 0) {
        dpe_text_put(out, " ");
    }
    if (out->failed) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", cache->path);
    }
    dpe_store_u64(out->bytes, out->n - LENGTH, LENGTH);
    cache->rows = out->n + sizeof(int32_t) * (uint64_t)cache->n;
    *size = out->n + at;
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- saved */

static dpe_status add_sum(void *user, uint64_t at, void *bytes, size_t n, struct dpe_error *err)
{
    struct cache *cache = user;
    const uint64_t sum = sum_of(at, bytes, n);
    (void)err;
#pragma omp atomic
    cache->sum += sum;
    return DPE_OK;
}

static dpe_status write_rows(void *user, uint64_t at, void *bytes, size_t n, struct dpe_error *err)
{
    (void)at;
    return dpe_new_file_write(&((struct cache *)user)->file, bytes, n, err);
}

static void drop_file(struct cache *cache)
{
    dpe_new_file_drop(&cache->file);
}

dpe_status dpe_cache_save(const char *path, struct dpe_session *session, int64_t branch,
                          const int32_t *ids, int64_t n, const char *owner, uint64_t *bytes,
                          struct dpe_error *err)
{
    DPE_SCOPED(drop_file)
    struct cache cache = {.path = path, .owner = owner, .n = n, .file = {.fd = -1}};
    DPE_SCOPED(dpe_text_free) struct dpe_text header = {0};
    const struct dpe_saved_mover sums = {add_sum, &cache, false}, rows = {write_rows, &cache, true};
    const size_t of_ids = (size_t)n * sizeof *ids;
    DPE_TRY(dpe_session_saved_shape(session, &cache.shape, err));
    DPE_TRY(dpe_session_move_saved(session, branch, n, &sums, err));
    DPE_TRY(put_header(&cache, cache.sum + sum_of(0, ids, of_ids), &header, bytes, err));
    DPE_TRY(dpe_new_file_open(&cache.file, path, NULL, err));
    DPE_TRY(dpe_new_file_write(&cache.file, header.bytes, header.n, err));
    DPE_TRY(dpe_new_file_write(&cache.file, ids, of_ids, err));
    DPE_TRY(dpe_session_move_saved(session, branch, n, &rows, err));
    return dpe_new_file_finish(&cache.file, err);
}

/* ------------------------------------------------------------------------------------ restored */

static dpe_status damaged(const char *path, struct dpe_error *err)
{
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: expected the keys and values that dpe wrote, found others, or the file's "
                    "end: remove it, and the text is read again",
                    path);
}

static const char *text_of(const json_t *said, const char *key)
{
    const char *text = json_string_value(json_object_get(said, key));
    return text != NULL ? text : "";
}

/* Open a file: its header, and what that says of itself. */
static dpe_status open_cache(const char *path, int *fd, uint64_t *size, struct dpe_text *header,
                             json_t **said, int64_t *n, struct dpe_error *err)
{
    unsigned char length[LENGTH] = {0};
    DPE_TRY(dpe_open_regular(path, fd, size, err));
    size_t got = dpe_read_at(*fd, length, LENGTH, 0);
    const uint64_t bytes = dpe_load_u64(length, LENGTH);
    if (got != LENGTH || bytes > MOST_HEADER || bytes + LENGTH > *size) {
        return damaged(path, err);
    }
    DPE_OWNED char *text = dpe_alloc((size_t)bytes + LENGTH, 1);
    DPE_TRY(DPE_MADE(text, err, "%s: out of memory", path));
    DPE_TRY(dpe_read_at(*fd, text, (size_t)bytes + LENGTH, 0) == bytes + LENGTH
                ? DPE_OK
                : damaged(path, err));
    DPE_TRY(dpe_text_append(header, text, (size_t)bytes + LENGTH, err));
    DPE_SCOPED(json_decrefp) json_t *value = NULL;
    DPE_TRY(dpe_json_parse(path, text + LENGTH, (size_t)bytes, &value, err));
    *said = json_incref(json_object_get(value, "__metadata__"));
    const char *tokens = text_of(*said, "n");
    return strcmp(text_of(*said, "format"), "dpe-cache") == 0 &&
                   dpe_scan_int(&tokens, 1, INT32_MAX, n) && *tokens == '\0'
               ? DPE_OK
               : damaged(path, err);
}

dpe_status dpe_cache_look(const char *path, int64_t *n, char plan[65], struct dpe_error *err)
{
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    DPE_SCOPED(dpe_text_free) struct dpe_text header = {0};
    DPE_SCOPED(json_decrefp) json_t *said = NULL;
    uint64_t size = 0;
    DPE_TRY(open_cache(path, &fd, &size, &header, &said, n, err));
    snprintf(plan, 65, "%s", text_of(said, "plan"));
    return DPE_OK;
}

static dpe_status check_identity(const struct cache *cache, const json_t *said,
                                 struct dpe_error *err)
{
    char chunk[32];
    snprintf(chunk, sizeof chunk, "%" PRId64, cache->shape.chunk);
    const struct {
        const char *key, *want, *what;
    } texts[] = {{"model", cache->shape.model, "model"},
                 {"plan", cache->shape.plan, "position plan"},
                 {"device", cache->shape.device, "device"},
                 {"type", dpe_kv_type_names[cache->shape.type], "--kv-cache-dtype"},
                 {"chunk", chunk, "chunk"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *found = text_of(said, texts[i].key);
        char clean[200];
        if (strcmp(found, texts[i].want) != 0) {
            return dpe_fail(err, DPE_MISMATCH,
                            "%s: was saved with another %s: expected %.100s, found %.100s; give "
                            "another file",
                            cache->path, texts[i].what, texts[i].want,
                            dpe_printable(found, clean, sizeof clean));
        }
    }
    if (strcmp(text_of(said, "owner"), cache->owner) != 0) { /* without a word of whose it is */
        return dpe_fail(err, DPE_MISMATCH,
                        "%s: was saved for another key or cache_salt; give another file",
                        cache->path);
    }
    return DPE_OK;
}

static dpe_status read_rows(void *user, uint64_t at, void *bytes, size_t n, struct dpe_error *err)
{
    struct cache *cache = user;
    return dpe_read_at(cache->fd, bytes, n, cache->rows + at) == n
               ? add_sum(user, at, bytes, n, err)
               : damaged(cache->path, err);
}

dpe_status dpe_cache_restore(const char *path, struct dpe_session *session, int64_t branch,
                             const char *owner, int32_t *ids, int64_t most, int64_t *n,
                             uint64_t *bytes, struct dpe_error *err)
{
    DPE_SCOPED(dpe_close_fd) int fd = -1;
    DPE_SCOPED(dpe_text_free) struct dpe_text header = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text wanted = {0};
    DPE_SCOPED(json_decrefp) json_t *said = NULL;
    struct cache cache = {.path = path, .owner = owner};
    const struct dpe_saved_mover rows = {read_rows, &cache, false};
    uint64_t size = 0;
    uint64_t sum = 0;
    DPE_TRY(dpe_session_saved_shape(session, &cache.shape, err));
    DPE_TRY(open_cache(path, &fd, bytes, &header, &said, &cache.n, err));
    cache.owner = text_of(said, "owner")[0] != '\0' ? owner : ""; /* anybody's */
    DPE_TRY(check_identity(&cache, said, err));
    const size_t of_ids = (size_t)cache.n * sizeof *ids;
    cache.fd = fd;
    if (sscanf(text_of(said, "sum"), "%16" SCNx64, &sum) != 1) {
        return damaged(path, err);
    }
    DPE_TRY(put_header(&cache, sum, &wanted, &size, err));
    if (header.n != wanted.n || memcmp(header.bytes, wanted.bytes, wanted.n) != 0 ||
        size != *bytes) {
        return damaged(path, err);
    }
    if (cache.n > most) {
        return dpe_fail(err, DPE_MISMATCH,
                        "%s: holds %" PRId64 " tokens, there is room for %" PRId64, path, cache.n,
                        most);
    }
    DPE_TRY(dpe_read_at(fd, ids, of_ids, cache.rows - of_ids) == of_ids ? DPE_OK
                                                                        : damaged(path, err));
    for (int64_t i = 0; i < cache.n; i++) {
        if (ids[i] < 0 || ids[i] >= dpe_session_limits(session).vocab) {
            return damaged(path, err);
        }
    }
    DPE_TRY(dpe_session_restore(session, branch, ids, cache.n, &rows, err));
    if (cache.sum + sum_of(0, ids, of_ids) != sum) {
        DPE_TRY(dpe_session_branch_cut(session, branch, 0, err));
        return damaged(path, err);
    }
    *n = cache.n;
    return DPE_OK;
}
