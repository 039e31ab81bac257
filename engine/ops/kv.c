/* A key/value cache: rows of numbers as bytes of its types, in memory or in a file. */
#include "engine/ops/kv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/vfs.h>
#endif

#include "engine/base/halves.h"
#include "engine/model/config/config.h"
#include "engine/system/platform.h"

const char *const dpe_kv_type_names[] = {"f32", "bf16", "int8", NULL};

/* ---------------------------------------------------------------------------------------- rows */

enum { CODES = 127 };

uint64_t dpe_kv_row_bytes(enum dpe_kv_type type, int64_t width)
{
    switch (type) {
    case DPE_KV_F32:
        return (uint64_t)width * sizeof(float);
    case DPE_KV_BF16:
        return (uint64_t)width * sizeof(uint16_t);
    case DPE_KV_INT8:
        return (uint64_t)width + sizeof(float);
    }
    return 0;
}

/* Codes, then their scale. A row that is not finite has a scale that is not, and is so again when
 * it is unpacked. */
static void pack_int8(const float *row, const float *channels, int64_t width, unsigned char *out)
{
    float largest = 0.0F;
    bool finite = true;
    for (int64_t c = 0; c < width; c++) {
        float x = fabsf(channels != NULL ? row[c] / channels[c] : row[c]);
        largest = x > largest ? x : largest;
        finite = finite && isfinite(x);
    }
    float scale = finite ? largest / CODES : (float)NAN;
    float inverse = finite && largest > 0.0F ? CODES / largest : 0.0F;
    /* 127 over a subnormal overflows: such a row is as good as 0. */
    inverse = isfinite(inverse) ? inverse : 0.0F;
    for (int64_t c = 0; c < width; c++) {
        float x = finite ? (channels != NULL ? row[c] / channels[c] : row[c]) * inverse : 0.0F;
        out[c] = (unsigned char)(signed char)lrintf(x);
    }
    memcpy(out + width, &scale, sizeof scale);
}

static void pack(enum dpe_kv_type type, const float *row, const float *channels, int64_t width,
                 unsigned char *out)
{
    switch (type) {
    case DPE_KV_F32:
        memcpy(out, row, (size_t)width * sizeof *row);
        return;
    case DPE_KV_BF16:
        for (int64_t c = 0; c < width; c++) {
            uint16_t half = dpe_to_bf16(row[c]);
            memcpy(out + 2 * c, &half, sizeof half);
        }
        return;
    case DPE_KV_INT8:
        pack_int8(row, channels, width, out);
    }
}

static void unpack_int8(const unsigned char *row, const float *channels, int64_t width, float *out)
{
    const signed char *codes = (const signed char *)row;
    float scale = 0.0F;
    memcpy(&scale, row + width, sizeof scale);
    if (channels == NULL) {
        for (int64_t c = 0; c < width; c++) {
            out[c] = (float)codes[c] * scale;
        }
        return;
    }
    for (int64_t c = 0; c < width; c++) {
        out[c] = (float)codes[c] * scale * channels[c];
    }
}

static void unpack(enum dpe_kv_type type, const unsigned char *rows, const float *channels,
                   int64_t count, int64_t width, float *out)
{
    switch (type) {
    case DPE_KV_F32:
        memcpy(out, rows, (size_t)(count * width) * sizeof *out);
        return;
    case DPE_KV_BF16:
        for (int64_t i = 0; i < count * width; i++) {
            uint16_t half = 0;
            memcpy(&half, rows + 2 * i, sizeof half);
            out[i] = dpe_from_bf16(half);
        }
        return;
    case DPE_KV_INT8:
        for (int64_t r = 0; r < count; r++) {
            unpack_int8(rows + (uint64_t)r * dpe_kv_row_bytes(type, width), channels, width,
                        out + r * width);
        }
    }
}

/* ------------------------------------------------------------------------------------ the file */

/* A file system that keeps its files in memory: the file would take what it is there to save. */
static bool in_memory(int fd)
{
#if defined(__linux__)
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };
    struct statfs of;
    return fstatfs(fd, &of) == 0 && ((int)of.f_type == TMPFS || (int)of.f_type == RAMFS);
#else
    (void)fd;
    return false;
#endif
}

static int reserve(int fd, uint64_t bytes)
{
#if defined(__APPLE__)
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
#else
    int code = 0;
    do {
        code = posix_fallocate(fd, 0, (off_t)bytes);
    } while (code == EINTR);
    return code;
#endif
}

/* A file without a name in `folder`, with `bytes` reserved. The caller closes *fd ≥ 0, also after a
 * failure. */
static dpe_status make_file(const char *folder, uint64_t bytes, int *fd, struct dpe_error *err)
{
    *fd = dpe_nameless_file(folder);
    if (*fd < 0) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: cannot create a file for keys and values: %s; name another folder in TMPDIR",
            folder, strerror(errno));
    }
    if (in_memory(*fd)) {
        return dpe_fail(
            err, DPE_CANNOT_CREATE,
            "%s: its files lie in memory, where keys and values do not fit; name a folder "
            "on a disk in TMPDIR",
            folder);
    }
    int code = reserve(*fd, bytes);
    if (code != 0) {
        return dpe_fail(
            err, DPE_IO,
            "%s: cannot reserve %.1f MiB for keys and values: %s; free space there, name "
            "another folder in TMPDIR, or use a smaller --kv-cache-dtype",
            folder, (double)bytes / 0x1p20, strerror(code));
    }
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- cache */

enum { ROOM = 1 << 14 /* bytes of the rows that are moved at a time */ };
_Static_assert(2 * DPE_MOST_PAIRS * sizeof(float) <= ROOM, "every row has room");

/* Keys, values or queries. */
struct part {
    enum dpe_kv_type type;
    int64_t heads;
    uint64_t row_bytes, at; /* at: bytes before it */
};

struct dpe_kv {
    struct dpe_kv_shape shape;
    struct part parts[DPE_KV_PARTS];
    unsigned char *memory; /* NULL: a file */
    int fd;                /* −1: memory */
    atomic_int failed;     /* errno, negative when it was reading that failed; 0: nothing did */
    float *channels;       /* [layers][heads][width], NULL: all 1 */
    char *folder;          /* of the file, for messages */
};

/* The bytes of all parts. */
static uint64_t lay_out(const struct dpe_kv_shape *shape, struct part parts[DPE_KV_PARTS])
{
    uint64_t bytes = 0;
    for (int i = 0; i < DPE_KV_PARTS; i++) {
        const bool queries = i == DPE_KV_QUERIES;
        const enum dpe_kv_type type = queries ? DPE_KV_F32 : shape->type;
        const int64_t heads = queries ? shape->query_heads : shape->heads;
        const uint64_t row_bytes = dpe_kv_row_bytes(type, shape->width);
        parts[i] = (struct part){type, heads, row_bytes, bytes};
        bytes =
            dpe_bytes_plus(bytes, dpe_bytes_of(shape->layers, heads, shape->capacity, row_bytes));
    }
    return bytes;
}

uint64_t dpe_kv_bytes(const struct dpe_kv_shape *shape)
{
    struct part parts[DPE_KV_PARTS];
    return lay_out(shape, parts);
}

dpe_status dpe_kv_create(const struct dpe_kv_shape *shape, const char *folder, struct dpe_kv **made,
                         struct dpe_error *err)
{
    DPE_SCOPED(dpe_kv_destroy_scoped) struct dpe_kv *kv = NULL;
    DPE_TRY(DPE_NEW(&kv, 1, err, "out of memory"));
    kv->shape = *shape;
    kv->fd = -1;
    const uint64_t bytes = lay_out(shape, kv->parts);
    if (folder == NULL) {
        kv->memory = dpe_alloc(bytes, 1);
    } else {
        kv->folder = strdup(folder);
        DPE_TRY(make_file(folder, bytes, &kv->fd, err));
    }
    DPE_TRY(DPE_MADE(folder == NULL ? (void *)kv->memory : kv->folder, err,
                     "out of memory: %.1f MiB of keys and values", (double)bytes / 0x1p20));
    *made = kv;
    kv = NULL;
    return DPE_OK;
}

void dpe_kv_destroy(struct dpe_kv *kv)
{
    if (kv != NULL) {
        dpe_close_fd(&kv->fd);
        free(kv->memory);
        free(kv->channels);
        free(kv->folder);
        free(kv);
    }
}

/* Bytes before the first of these rows. */
static uint64_t place(const struct dpe_kv *kv, const struct dpe_kv_rows *rows)
{
    const struct part *part = &kv->parts[rows->part];
    const int64_t head = rows->layer * part->heads + rows->head;
    return part->at + (uint64_t)(head * kv->shape.capacity + rows->row) * part->row_bytes;
}

unsigned char *dpe_kv_at(struct dpe_kv *kv, const struct dpe_kv_rows *rows)
{
    return kv->memory + place(kv, rows);
}

/* The first failure is the one that is told. */
static void fail(struct dpe_kv *kv, bool reading)
{
    const int code = errno != 0 ? errno : EIO;
    int none = 0;
    atomic_compare_exchange_strong(&kv->failed, &none, reading ? -code : code);
}

/* n bytes: where they are, or in `room`. */
static const unsigned char *get(struct dpe_kv *kv, uint64_t at, size_t n, unsigned char *room)
{
    if (kv->memory != NULL) {
        return kv->memory + at;
    }
    if (atomic_load(&kv->failed) != 0 || dpe_read_at(kv->fd, room, n, at) != n) {
        fail(kv, true);
        memset(room, 0, n);
    }
    return room;
}

static void put(struct dpe_kv *kv, uint64_t at, size_t n, const unsigned char *bytes)
{
    if (kv->memory != NULL) {
        memcpy(kv->memory + at, bytes, n);
    } else if (dpe_write_at(kv->fd, bytes, n, at) != n) {
        fail(kv, false);
    }
}

/* How many of the rows from `done` on are moved at once. */
static int64_t some_of(const struct dpe_kv *kv, const struct dpe_kv_rows *rows, int64_t done)
{
    const int64_t most = (int64_t)(ROOM / kv->parts[rows->part].row_bytes);
    return dpe_least(most, rows->count - done);
}

static const float *channels_of(const struct dpe_kv *kv, const struct dpe_kv_rows *rows)
{
    return rows->part == DPE_KV_KEYS && kv->channels != NULL
               ? kv->channels + (rows->layer * kv->shape.heads + rows->head) * kv->shape.width
               : NULL;
}

void dpe_kv_write(struct dpe_kv *kv, const struct dpe_kv_rows *rows, const float *from,
                  int64_t stride)
{
    unsigned char room[ROOM];
    const struct part *part = &kv->parts[rows->part];
    const float *channels = channels_of(kv, rows);
    const uint64_t at = place(kv, rows);
    for (int64_t done = 0, n = 0; done < rows->count; done += n) {
        n = some_of(kv, rows, done);
        const uint64_t first = at + (uint64_t)done * part->row_bytes;
        unsigned char *to = kv->memory != NULL ? kv->memory + first : room;
        for (int64_t i = 0; i < n; i++) {
            pack(part->type, from + (done + i) * stride, channels, kv->shape.width,
                 to + (uint64_t)i * part->row_bytes);
        }
        if (to == room) {
            put(kv, first, (size_t)n * part->row_bytes, room);
        }
    }
}

void dpe_kv_read(struct dpe_kv *kv, const struct dpe_kv_rows *rows, float *out)
{
    unsigned char room[ROOM];
    const struct part *part = &kv->parts[rows->part];
    const float *channels = channels_of(kv, rows);
    const uint64_t at = place(kv, rows);
    const int64_t width = kv->shape.width;
    if (kv->memory == NULL && part->type == DPE_KV_F32) { /* as they are, in one call */
        get(kv, at, (size_t)rows->count * part->row_bytes, (unsigned char *)out);
        return;
    }
    for (int64_t done = 0, n = 0; done < rows->count; done += n) {
        n = some_of(kv, rows, done);
        const unsigned char *bytes =
            get(kv, at + (uint64_t)done * part->row_bytes, (size_t)n * part->row_bytes, room);
        unpack(part->type, bytes, channels, n, width, out + done * width);
    }
}

void dpe_kv_copy(struct dpe_kv *kv, const struct dpe_kv_rows *rows, int64_t to)
{
    unsigned char room[ROOM];
    const uint64_t row_bytes = kv->parts[rows->part].row_bytes;
    const uint64_t at = place(kv, rows);
    /* Unsigned: it wraps where `to` is before the row. */
    const uint64_t ahead = (uint64_t)(to - rows->row) * row_bytes;
    for (int64_t done = 0, n = 0; done < rows->count; done += n) {
        n = some_of(kv, rows, done);
        const uint64_t from = at + (uint64_t)done * row_bytes;
        const size_t bytes = (size_t)n * row_bytes;
        put(kv, from + ahead, bytes, get(kv, from, bytes, room));
    }
}

dpe_status dpe_kv_set_channels(struct dpe_kv *kv, int64_t layer, const float *channels,
                               struct dpe_error *err)
{
    size_t n = (size_t)(kv->shape.heads * kv->shape.width);
    if (kv->shape.type != DPE_KV_INT8) {
        return DPE_OK;
    }
    if (kv->channels == NULL) {
        size_t all = (size_t)kv->shape.layers * n;
        DPE_TRY(DPE_NEW(&kv->channels, all, err, "out of memory"));
        for (size_t i = 0; i < all; i++) {
            kv->channels[i] = 1.0F;
        }
    }
    memcpy(kv->channels + (size_t)layer * n, channels, n * sizeof *channels);
    return DPE_OK;
}

dpe_status dpe_kv_status(const struct dpe_kv *kv, struct dpe_error *err)
{
    const int failed = kv != NULL ? atomic_load(&kv->failed) : 0;
    return failed == 0
               ? DPE_OK
               : dpe_fail(err, DPE_IO,
                          "%s: %s the file of keys and values failed: %s; nothing that was "
                          "reported is lost, the same command starts this text again",
                          kv->folder, failed < 0 ? "reading" : "writing", strerror(abs(failed)));
}
