/* The types of a row: numbers to bytes and back. */
#include "engine/kv/kv_internal.h"

#include <math.h>
#include <string.h>

#include "engine/base/halves.h"

const char *const dpe_kv_type_names[] = {"f32", "bf16", "int8", NULL};

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

void dpe_kv_pack(enum dpe_kv_type type, const float *row, const float *channels, int64_t width,
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

void dpe_kv_unpack(enum dpe_kv_type type, const unsigned char *rows, const float *channels,
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
