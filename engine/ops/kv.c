/* A key/value cache: rows of numbers as bytes of its types; where they lie, in memory or in pages.
 */
#include "engine/ops/kv_internal.h"
#include "engine/ops/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/halves.h"

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

/* --------------------------------------------------------------------------------------- cache */

/* Of keys, values or queries: in a page only whole rows. */
struct part {
    enum dpe_kv_type type;
    int64_t heads, capacity;
    uint64_t row_bytes;
    int64_t page_rows, head_pages;
    uint64_t at;  /* bytes before it in memory */
    int64_t page; /* pages before it in the file */
};

struct layout {
    struct part parts[DPE_KV_PARTS];
    uint64_t bytes;
    int64_t pages;
};

struct dpe_kv {
    struct dpe_kv_shape shape;
    struct layout layout;
    unsigned char *memory;      /* NULL: pages */
    struct dpe_kv_pages *pages; /* NULL: memory */
    float *channels;            /* [layers][heads][width], NULL: all 1 */
    char *folder;               /* of the file, for messages */
};

static struct layout lay_out(const struct dpe_kv_shape *shape)
{
    struct layout layout = {.pages = 0};
    for (int i = 0; i < DPE_KV_PARTS; i++) {
        struct part *part = &layout.parts[i];
        bool queries = i == DPE_KV_QUERIES;
        part->type = queries ? DPE_KV_F32 : shape->type;
        part->heads = queries ? shape->query_heads : shape->heads;
        part->capacity = shape->capacity;
        part->row_bytes = dpe_kv_row_bytes(part->type, shape->width);
        part->page_rows = (int64_t)(DPE_KV_PAGE / part->row_bytes);
        part->page_rows = part->page_rows > 0 ? part->page_rows : 1;
        part->head_pages = (part->capacity + part->page_rows - 1) / part->page_rows;
        part->at = layout.bytes;
        part->page = layout.pages;
        uint64_t heads = (uint64_t)(shape->layers * part->heads);
        layout.bytes = dpe_bytes_plus(
            layout.bytes,
            dpe_bytes_times(heads, dpe_bytes_times((uint64_t)part->capacity, part->row_bytes)));
        layout.pages += (int64_t)heads * part->head_pages;
    }
    return layout;
}

uint64_t dpe_kv_bytes(const struct dpe_kv_shape *shape)
{
    return lay_out(shape).bytes;
}

uint64_t dpe_kv_file_bytes(const struct dpe_kv_shape *shape)
{
    return dpe_bytes_times((uint64_t)lay_out(shape).pages, DPE_KV_PAGE);
}

uint64_t dpe_kv_least_bytes(const struct dpe_kv_shape *shape)
{
    return dpe_kv_pages_bytes(lay_out(shape).pages, DPE_KV_LEAST_FRAMES);
}

dpe_status dpe_kv_create(const struct dpe_kv_shape *shape, const char *folder, uint64_t memory,
                         struct dpe_kv **made, struct dpe_error *err)
{
    DPE_SCOPED(dpe_kv_destroy_scoped) struct dpe_kv *kv = NULL;
    DPE_TRY(DPE_NEW(&kv, 1, err, "out of memory"));
    kv->shape = *shape;
    kv->layout = lay_out(shape);
    if (folder == NULL) {
        kv->memory = dpe_alloc(kv->layout.bytes, 1);
    } else {
        uint64_t least = dpe_kv_least_bytes(shape);
        int64_t frames = DPE_KV_LEAST_FRAMES;
        uint64_t each = dpe_kv_pages_bytes(0, 1) - dpe_kv_pages_bytes(0, 0);
        frames += memory > least ? (int64_t)((memory - least) / each) : 0;
        frames = dpe_least(frames, kv->layout.pages + DPE_KV_LEAST_FRAMES);
        kv->folder = strdup(folder);
        DPE_TRY(dpe_kv_pages_make(folder, kv->layout.pages, frames, &kv->pages, err));
    }
    DPE_TRY(DPE_MADE(folder == NULL ? (void *)kv->memory : kv->folder, err,
                     "out of memory: %.1f MiB of keys and values",
                     (double)kv->layout.bytes / 0x1p20));
    *made = kv;
    kv = NULL;
    return DPE_OK;
}

void dpe_kv_destroy(struct dpe_kv *kv)
{
    if (kv != NULL) {
        dpe_kv_pages_free(kv->pages);
        free(kv->memory);
        free(kv->channels);
        free(kv->folder);
        free(kv);
    }
}

/* Consecutive rows that lie one after another: in memory all, else those of a page. */
struct piece {
    unsigned char *bytes; /* NULL: the file has failed */
    int64_t count, page;
};

static struct piece hold(struct dpe_kv *kv, const struct dpe_kv_rows *rows, int64_t done,
                         bool writes)
{
    const struct part *part = &kv->layout.parts[rows->part];
    int64_t head = rows->layer * part->heads + rows->head;
    int64_t row = rows->row + done;
    int64_t left = rows->count - done;
    if (kv->memory != NULL) {
        uint64_t at = part->at + (uint64_t)(head * part->capacity + row) * part->row_bytes;
        return (struct piece){.bytes = kv->memory + at, .count = left};
    }
    int64_t in_page = row % part->page_rows;
    int64_t page = part->page + head * part->head_pages + row / part->page_rows;
    int64_t count = part->page_rows - in_page < left ? part->page_rows - in_page : left;
    unsigned char *bytes = dpe_kv_pages_pin(kv->pages, page, writes);
    bytes = bytes != NULL ? bytes + (uint64_t)in_page * part->row_bytes : NULL;
    return (struct piece){.bytes = bytes, .count = count, .page = page};
}

unsigned char *dpe_kv_at(struct dpe_kv *kv, const struct dpe_kv_rows *rows)
{
    return hold(kv, rows, 0, true).bytes;
}

static void let_go(struct dpe_kv *kv, const struct piece *piece)
{
    if (kv->pages != NULL && piece->bytes != NULL) {
        dpe_kv_pages_unpin(kv->pages, piece->page);
    }
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
    const struct part *part = &kv->layout.parts[rows->part];
    const float *channels = channels_of(kv, rows);
    for (int64_t done = 0; done < rows->count;) {
        struct piece piece = hold(kv, rows, done, true);
        for (int64_t i = 0; piece.bytes != NULL && i < piece.count; i++) {
            pack(part->type, from + (done + i) * stride, channels, kv->shape.width,
                 piece.bytes + (uint64_t)i * part->row_bytes);
        }
        let_go(kv, &piece);
        done += piece.count;
    }
}

void dpe_kv_read(struct dpe_kv *kv, const struct dpe_kv_rows *rows, float *out)
{
    const struct part *part = &kv->layout.parts[rows->part];
    const float *channels = channels_of(kv, rows);
    int64_t width = kv->shape.width;
    for (int64_t done = 0; done < rows->count;) {
        struct piece piece = hold(kv, rows, done, false);
        if (piece.bytes != NULL) {
            unpack(part->type, piece.bytes, channels, piece.count, width, out + done * width);
        } else {
            memset(out + done * width, 0, (size_t)(piece.count * width) * sizeof *out);
        }
        let_go(kv, &piece);
        done += piece.count;
    }
}

/* Rows as they are stored. */
static void put_rows(struct dpe_kv *kv, const struct dpe_kv_rows *rows, const unsigned char *bytes)
{
    uint64_t row_bytes = kv->layout.parts[rows->part].row_bytes;
    for (int64_t done = 0; done < rows->count;) {
        struct piece piece = hold(kv, rows, done, true);
        if (piece.bytes != NULL) {
            memcpy(piece.bytes, bytes + (uint64_t)done * row_bytes,
                   (uint64_t)piece.count * row_bytes);
        }
        let_go(kv, &piece);
        done += piece.count;
    }
}

/* Rows of a page are copied twice: no thread holds a page while it waits for another. */
void dpe_kv_copy(struct dpe_kv *kv, const struct dpe_kv_rows *rows, int64_t to)
{
    unsigned char page[DPE_KV_PAGE];
    uint64_t row_bytes = kv->layout.parts[rows->part].row_bytes;
    for (int64_t done = 0; done < rows->count;) {
        struct piece from = hold(kv, rows, done, false);
        const unsigned char *bytes = from.bytes;
        if (kv->pages != NULL && bytes != NULL) {
            bytes = memcpy(page, bytes, (uint64_t)from.count * row_bytes);
        }
        let_go(kv, &from);
        if (bytes != NULL) {
            struct dpe_kv_rows target = *rows;
            target.row = to + done;
            target.count = from.count;
            put_rows(kv, &target, bytes);
        }
        done += from.count;
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
    bool reads = false;
    int code = kv != NULL && kv->pages != NULL ? dpe_kv_pages_failed(kv->pages, &reads) : 0;
    return code == 0 ? DPE_OK
                     : dpe_fail(err, DPE_IO,
                                "%s: %s the file of keys and values failed: %s; nothing that was "
                                "reported is lost, the same command starts this text again",
                                kv->folder, reads ? "reading" : "writing", strerror(code));
}

struct dpe_kv_work dpe_kv_work(const struct dpe_kv *kv)
{
    return kv->pages != NULL ? dpe_kv_pages_work(kv->pages) : (struct dpe_kv_work){0};
}
