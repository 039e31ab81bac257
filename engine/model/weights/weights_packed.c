/* Matrices that a folder holds as packed integers, or as floats of 4 or 8 bits, with scales: GPTQ,
 * AWQ, compressed-tensors, ModelOpt's NVFP4, F8_E4M3, and the MXFP4 of gpt-oss. They become blocks
 * of GGUF where these mean the same to the last bit, else bfloat16. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/halves.h"
#include "engine/model/weights/bind_internal.h"

enum layout { GPTQ, AWQ, ROWS, FP4, FP8 }; /* from ROWS on by row, from FP4 on floats */

/* A packed matrix of rows × cols; the numbers of a word are its 32 bits. */
struct packed {
    struct dpe_binder *binder;
    char base[160]; /* the weight's name without ".weight" */
    enum layout layout;
    const struct dpe_shard_tensor *codes, *scales, *zeros, *order, *global;
    int64_t rows, cols, groups;
    int64_t each, size; /* rows that a scale is for, columns of a group */
    int64_t n_scales;   /* in the file; one is for all */
    bool by_row;        /* they stand by row, then group */
    int bits;
    float number[256]; /* of each code, before its zero point is taken away */
    int above;         /* GPTQ: added to a stored zero point */
    float *scale;      /* [groups][rows] */
    float *zero;
    int32_t *group; /* [cols] of each column */
    bool divides;   /* the global scale */
};

static void free_packed(struct packed *p)
{
    free(p->scale);
    free(p->zero);
    free(p->group);
}

/* The message that is there is about a tensor of the file. */
static dpe_status about(const struct packed *p, const struct dpe_shard_tensor *tensor)
{
    return dpe_fail_prefix(p->binder->err, "%s: tensor %s",
                           p->binder->model->shards[tensor->shard].path, tensor->name);
}
/* DPE_BAD_DATA with the message that follows. */
#define BAD(p, tensor, ...)                                                                        \
    (dpe_fail((p)->binder->err, DPE_BAD_DATA, __VA_ARGS__), about((p), (tensor)))

static const unsigned char *bytes_of(const struct packed *p, const struct dpe_shard_tensor *tensor)
{
    return p->binder->model->shards[tensor->shard].map + tensor->begin;
}

static uint32_t word(const unsigned char *bytes, int64_t at)
{
    uint32_t value = 0;
    memcpy(&value, bytes + 4 * at, sizeof value);
    return value;
}

/* Number i of a stream of `bits` each, whose words stand `stride` apart. */
static uint32_t in_stream(const unsigned char *bytes, int64_t i, int bits, int64_t stride)
{
    int64_t bit = i * bits;
    int shift = (int)(bit % 32);
    uint64_t pair = word(bytes, bit / 32 * stride);
    if (shift + bits > 32) {
        pair |= (uint64_t)word(bytes, (bit / 32 + 1) * stride) << 32;
    }
    return (uint32_t)(pair >> shift) & ((1U << bits) - 1U);
}

/* Number i of words that hold as many whole numbers as fit. */
static uint32_t in_words(const unsigned char *bytes, int64_t i, int bits, int64_t stride)
{
    int64_t each = 32 / bits;
    return word(bytes, i / each * stride) >> (i % each * bits) & ((1U << bits) - 1U);
}

/* AWQ's words have the numbers of eight columns in an order of their own. */
static uint32_t in_awq(const unsigned char *bytes, int64_t i)
{
    static const int place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return word(bytes, i / 8) >> (4 * place[i % 8]) & 15U;
}

static uint32_t code(const struct packed *p, const unsigned char *bytes, int64_t r, int64_t c)
{
    switch (p->layout) {
    case GPTQ:
        return in_stream(bytes + 4 * r, c, p->bits, p->rows);
    case AWQ:
        return in_awq(bytes + c * p->rows / 2, r);
    case ROWS:
        return in_words(bytes + 4 * r * p->codes->shape[1], c, p->bits, 1);
    case FP8:
        return bytes[r * p->cols + c];
    case FP4:
        break;
    }
    return (unsigned)bytes[(r * p->cols + c) / 2] >> (c % 2 * 4) & 15U;
}

/* Sign, four bits of exponent with a bias of 7, three of fraction; all ones are NaN, and there is
 * no infinity. */
static float of_e4m3(int bits)
{
    int exponent = (bits >> 3) & 15;
    int fraction = bits & 7;
    float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    size = (bits & 127) == 127 ? NAN : size;
    return (bits & 128) != 0 ? -size : size;
}

static void set_numbers(struct packed *p)
{
    static const float sizes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    for (int i = 0; i < 256; i++) {
        p->number[i] = p->layout == FP8   ? of_e4m3(i)
                       : p->layout != FP4 ? (float)i
                       : i % 16 > 7       ? -sizes[i % 8]
                                          : sizes[i % 8];
    }
}

/* ------------------------------------------------------------------------- what is beside them */

static const struct dpe_shard_tensor *beside(const struct packed *p, const char *ending)
{
    char name[192];
    snprintf(name, sizeof name, "%s%s", p->base, ending);
    return dpe_shard_table_find(p->binder->table, name);
}

/* Refuses a tensor of another type or shape; 0 columns: a vector. */
static dpe_status expect(const struct packed *p, const struct dpe_shard_tensor *tensor,
                         const char *dtype, int64_t rows, int64_t cols)
{
    char second[32] = "";
    if (strcmp(tensor->dtype, dtype) == 0 && tensor->rank == (cols > 0 ? 2 : 1) &&
        tensor->shape[0] == rows && (cols == 0 || tensor->shape[1] == cols)) {
        return DPE_OK;
    }
    if (cols > 0) {
        snprintf(second, sizeof second, ", %lld", (long long)cols);
    }
    return BAD(p, tensor,
               "expected %s of the shape [%lld%s] for a matrix of %lld rows and %lld columns",
               dtype, (long long)rows, second, (long long)p->rows, (long long)p->cols);
}

/* Where the scale of a row and a group stands in the file. One number is for all. */
static int64_t scale_at(const struct packed *p, int64_t r, int64_t g)
{
    return p->n_scales == 1 ? 0 : p->by_row ? r / p->each * p->groups + g : g * p->rows + r;
}

/* The scales as floats, by group and row. */
static dpe_status read_scales(struct packed *p)
{
    const struct dpe_shard_tensor *t = p->scales;
    bool fp8 = strcmp(t->dtype, "F8_E4M3") == 0;
    enum dpe_dtype dtype = dpe_dtype_named(t->dtype);
    if ((!fp8 && dtype > DPE_BF16) || (fp8 && p->layout != FP4)) {
        return BAD(p, t, "expected scales as F32, F16 or BF16");
    }
    int64_t first = p->by_row ? (p->rows + p->each - 1) / p->each : p->groups;
    int64_t second = p->by_row ? p->groups : p->rows;
    if (p->n_scales != 1 && (p->n_scales != first * second || t->shape[0] != first)) {
        return fp8 ? expect(p, t, t->dtype, first, second)
                   : expect(p, t, t->dtype, first, second == 1 && t->rank == 1 ? 0 : second);
    }
    float global = 1.0F;
    if (p->global != NULL && (strcmp(p->global->dtype, "F32") != 0 ||
                              p->global->end - p->global->begin != sizeof global)) {
        return BAD(p, p->global, "expected one number of F32");
    }
    if (p->global != NULL) {
        memcpy(&global, bytes_of(p, p->global), sizeof global);
    }
    for (int64_t g = 0; g < p->groups; g++) {
        for (int64_t r = 0; r < p->rows; r++) {
            int64_t at = scale_at(p, r, g);
            float value = 0.0F;
            if (fp8) {
                value = of_e4m3(bytes_of(p, t)[at]);
            } else {
                dpe_dtype_read(dtype, bytes_of(p, t), at, 1, &value);
            }
            p->scale[g * p->rows + r] = p->divides ? value / global : value * global;
        }
    }
    return DPE_OK;
}

/* The zero points as floats; without them the middle of the range, of floats 0. */
static dpe_status read_zeros(struct packed *p)
{
    const struct dpe_shard_tensor *t = p->zeros;
    const int64_t middle = INT64_C(1) << (p->bits - 1);
    const int64_t each = 32 / p->bits;
    const bool signs = t != NULL && strcmp(t->dtype, "I8") == 0; /* compressed-tensors, unpacked */
    const int64_t n = t != NULL ? (int64_t)(t->end - t->begin) : 0;
    if (t != NULL && p->layout == ROWS && signs && n != 1) {
        DPE_TRY(expect(p, t, "I8", p->rows, p->groups));
    } else if (t != NULL && p->layout == ROWS && !signs) {
        DPE_TRY(expect(p, t, "I32", (p->rows + each - 1) / each, p->groups));
    } else if (t != NULL && p->layout != ROWS) {
        DPE_TRY(expect(p, t, "I32", p->groups, (p->rows * p->bits + 31) / 32));
    }
    for (int64_t g = 0; g < p->groups; g++) {
        for (int64_t r = 0; r < p->rows; r++) {
            int64_t zero = p->layout >= FP4 ? 0 : middle;
            const unsigned char *bytes = t != NULL ? bytes_of(p, t) : NULL;
            if (t != NULL && p->layout == GPTQ) {
                bytes += 4 * g * t->shape[1];
                zero = (int64_t)in_stream(bytes, r, p->bits, 1) + p->above;
            } else if (t != NULL && p->layout == AWQ) {
                zero = in_awq(bytes + 4 * g * t->shape[1], r);
            } else if (t != NULL && signs) {
                zero += (int8_t)bytes[n == 1 ? 0 : r * p->groups + g];
            } else if (t != NULL) {
                zero = in_words(bytes + 4 * g, r, p->bits, p->groups);
            }
            if (zero < 0 || zero >= 2 * middle) {
                return BAD(
                    p, t, "zero point of row %lld, group %lld: expected 0 to %lld, found %lld",
                    (long long)r, (long long)g, (long long)(2 * middle - 1), (long long)zero);
            }
            p->zero[g * p->rows + r] = (float)zero;
        }
    }
    return DPE_OK;
}

/* The group of each column: as the file orders them, or one after another. */
static dpe_status read_groups(struct packed *p)
{
    const struct dpe_shard_tensor *t = p->order;
    if (t != NULL) {
        DPE_TRY(expect(p, t, "I32", p->cols, 0));
    } else if (p->size == 0) {
        return BAD(p, p->scales,
                   "expected scales of groups of equal size, found %lld groups for %lld columns",
                   (long long)p->groups, (long long)p->cols);
    }
    for (int64_t c = 0; c < p->cols; c++) {
        int64_t group = t != NULL ? (int32_t)word(bytes_of(p, t), c) : c / p->size;
        if (group < 0 || group >= p->groups) {
            return BAD(p, t, "column %lld: expected a group from 0 to %lld, found %lld",
                       (long long)c, (long long)p->groups - 1, (long long)group);
        }
        p->group[c] = (int32_t)group;
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------------------ unpacking */

static float value_of(const struct packed *p, const unsigned char *bytes, int64_t r, int64_t c)
{
    int64_t at = p->group[c] * p->rows + r;
    return (p->number[code(p, bytes, r, c)] - p->zero[at]) * p->scale[at];
}

/* Whether blocks of GGUF say the same: 32 columns of one scale, an F16, around the middle. */
static enum dpe_dtype as_blocks(const struct packed *p)
{
    enum { BLOCK = 32 };
    bool same = p->layout < FP4 && p->global == NULL && (p->bits == 4 || p->bits == 8) &&
                p->cols % BLOCK == 0 && strcmp(p->scales->dtype, "F16") == 0;
    for (int64_t i = 0; same && i < p->groups * p->rows; i++) {
        same = p->zero[i] == (p->bits == 4 ? 8.0F : 128.0F);
    }
    for (int64_t c = 0; same && c < p->cols; c++) {
        same = p->group[c] == p->group[c / BLOCK * BLOCK];
    }
    return !same ? DPE_BF16 : p->bits == 4 ? DPE_Q4_0 : DPE_Q8_0;
}

/* 32 columns from c on of a row as a block: its scale's two bytes, then the numbers. */
static void put_block(const struct packed *p, const unsigned char *bytes, int64_t r, int64_t c,
                      unsigned char *out)
{
    memcpy(out, bytes_of(p, p->scales) + 2 * scale_at(p, r, p->group[c]), 2);
    for (int64_t i = 0; i < (p->bits == 4 ? 16 : 32); i++) {
        uint32_t low = code(p, bytes, r, c + i);
        out[2 + i] =
            (unsigned char)(p->bits == 4 ? low | code(p, bytes, r, c + 16 + i) << 4 : low ^ 128U);
    }
}

static dpe_status unpack(struct packed *p, struct dpe_tensor *tensor)
{
    enum { TILE = 64, BLOCK = 32 };
    enum dpe_dtype dtype = as_blocks(p);
    int64_t row = dpe_dtype_bytes(dtype, p->cols);
    int64_t step = dtype == DPE_BF16 ? 1 : BLOCK;
    const unsigned char *bytes = bytes_of(p, p->codes);
    unsigned char *copy = NULL;
    DPE_TRY(dpe_bind_copy(p->binder, p->codes->name, (size_t)(p->rows * row), &copy));
    for (int64_t r0 = 0; r0 < p->rows; r0 += TILE) {
        int64_t end = dpe_least(r0 + TILE, p->rows);
        for (int64_t c = 0; c < p->cols; c += step) {
            for (int64_t r = r0; r < end; r++) {
                unsigned char *to = copy + r * row;
                if (dtype == DPE_BF16) {
                    uint16_t value = dpe_to_bf16(value_of(p, bytes, r, c));
                    memcpy(to + 2 * c, &value, sizeof value);
                } else {
                    put_block(p, bytes, r, c, to + dpe_dtype_bytes(dtype, c));
                }
            }
        }
    }
    *tensor = (struct dpe_tensor){.data = copy, .dtype = dtype, .rows = p->rows, .cols = p->cols};
    return DPE_OK;
}

/* ----------------------------------------------------------------------------------- the layouts
 */

/* How many bits a number has by the shape, of those that the layout may have; 0: none fits. */
static int find_bits(const struct packed *p)
{
    int64_t wanted = p->layout == GPTQ ? p->codes->shape[0] : p->codes->shape[1];
    for (int bits = 8; bits > 0; bits--) {
        bool may = p->layout == ROWS || bits == 8 || (bits > 1 && bits < 5);
        int64_t each = 32 / bits;
        int64_t words =
            p->layout == GPTQ ? (p->cols * bits + 31) / 32 : (p->cols + each - 1) / each;
        if (may && words == wanted) {
            return bits;
        }
    }
    return 0;
}

/* How many of n lie in each of `parts` pieces, of which only the last may be shorter: so many as
 * config.json says, or equal pieces. 0: no such number. */
static int64_t piece(int64_t n, int64_t parts, int64_t said)
{
    if (said > 0 && parts == (n + said - 1) / said) {
        return said;
    }
    return parts > 0 && n % parts == 0 ? n / parts : 0;
}

/* Finds the tensors and what they have to be. */
static dpe_status read_layout(struct packed *p)
{
    const struct dpe_shard_tensor *t = p->codes;
    if (p->layout < FP4 && (t->rank != 2 || strcmp(t->dtype, "I32") != 0)) {
        return BAD(p, t, "expected a matrix of I32");
    }
    if (p->scales == NULL && p->layout != FP8) {
        return BAD(p, t, "expected its scales beside it, found none");
    }
    if (p->scales == NULL) {
        return BAD(
            p, t, "of type F8_E4M3: expected %s.weight_scale or %s.weight_scale_inv, found neither",
            p->base, p->base);
    }
    if ((p->layout == AWQ && p->rows % 8 != 0) || (p->layout == FP4 && p->cols % 2 != 0)) {
        return BAD(p, t,
                   p->layout == AWQ ? "expected a number of rows that 8 divides"
                                    : "expected an even number of columns");
    }
    if (p->layout >= FP4) {
        p->bits = p->layout == FP4 ? 4 : 8;
        DPE_TRY(expect(p, t, p->layout == FP4 ? "U8" : "F8_E4M3", p->rows, p->cols * p->bits / 8));
    } else if (p->layout == AWQ) {
        p->bits = 4;
        DPE_TRY(expect(p, t, "I32", p->cols, p->rows / 8));
    } else {
        p->bits = find_bits(p);
        DPE_TRY(p->bits > 0 ? DPE_OK
                            : expect(p, t, "I32", p->layout == GPTQ ? p->cols / 8 : p->rows,
                                     p->layout == GPTQ ? p->rows : p->cols / 8));
        DPE_TRY(p->layout == GPTQ ? expect(p, t, "I32", t->shape[0], p->rows)
                                  : expect(p, t, "I32", p->rows, t->shape[1]));
    }
    const int64_t *shape = p->scales->shape;
    int rank = p->scales->rank;
    p->by_row = p->layout >= ROWS;
    p->groups = p->by_row ? (rank == 2 ? shape[1] : 1) : rank > 0 ? shape[0] : 0;
    p->n_scales = 1;
    for (int i = 0; i < rank; i++) {
        p->n_scales *= shape[i];
    }
    if (p->groups < 1 || p->groups > p->cols) {
        return BAD(p, p->scales, "expected a scale for each row of each group of columns");
    }
    const int64_t *block = p->binder->model->config.fp8_block;
    const bool blocks = p->layout == FP8;
    p->each = blocks ? piece(p->rows, rank > 0 ? shape[0] : 1, block[0]) : 1;
    p->size = piece(p->cols, p->groups, blocks ? block[1] : 0);
    return !blocks || (rank <= 2 && p->each > 0 && p->size > 0)
               ? DPE_OK
               : BAD(p, p->scales,
                     "expected one number, one for each row, or one for each block of equal size");
}

dpe_status dpe_bind_packed(struct dpe_binder *binder, const char *name, int64_t rows, int64_t cols,
                           struct dpe_tensor *tensor, bool *found)
{
    DPE_SCOPED(free_packed) struct packed p = {.binder = binder, .rows = rows, .cols = cols};
    size_t n = strlen(name);
    *found = false;
    if (n < 8 || strcmp(name + n - 7, ".weight") != 0) {
        return DPE_OK;
    }
    snprintf(p.base, sizeof p.base, "%.*s", (int)(n - 7), name);
    const struct dpe_shard_tensor *whole = beside(&p, ".weight");
    if (whole != NULL) { /* 8-bit floats and ModelOpt's NVFP4 keep the name */
        p.layout = strcmp(whole->dtype, "F8_E4M3") == 0 ? FP8 : FP4;
        p.codes = p.layout == FP8 || strcmp(whole->dtype, "U8") == 0 ? whole : NULL;
        p.global = p.layout == FP4 ? beside(&p, ".weight_scale_2") : NULL;
    } else if ((p.codes = beside(&p, ".qweight")) != NULL) {
        bool awq = p.codes->rank == 2 && p.codes->shape[0] == cols; /* GPTQ packs the columns */
        p.layout = awq ? AWQ : GPTQ;
        p.zeros = beside(&p, ".qzeros");
        p.order = beside(&p, ".g_idx");
        p.above = !awq && !binder->model->config.zeros_whole;
    } else if ((p.codes = beside(&p, ".weight_packed")) != NULL) {
        p.layout = strcmp(p.codes->dtype, "U8") == 0 ? FP4 : ROWS;
        p.zeros = p.layout == ROWS ? beside(&p, ".weight_zero_point") : NULL;
        p.order = beside(&p, ".weight_g_idx");
        p.global = beside(&p, ".weight_global_scale");
        p.divides = true;
    }
    if (p.codes == NULL) {
        return DPE_OK;
    }
    *found = true;
    p.scales = beside(&p, p.layout < ROWS ? ".scales" : ".weight_scale");
    if (p.layout == FP8 && p.scales == NULL) {
        p.scales = beside(&p, ".weight_scale_inv");
    }
    DPE_TRY(read_layout(&p));
    set_numbers(&p);
    size_t each = (size_t)(p.groups * rows);
    DPE_TRY(DPE_NEW(&p.scale, each, binder->err, "%s: no memory for its scales", name));
    DPE_TRY(DPE_NEW(&p.zero, each, binder->err, "%s: no memory for its zero points", name));
    DPE_TRY(DPE_NEW(&p.group, (size_t)cols, binder->err, "%s: no memory for its groups", name));
    DPE_TRY(read_scales(&p));
    DPE_TRY(read_zeros(&p));
    DPE_TRY(read_groups(&p));
    return unpack(&p, tensor);
}

/* ---------------------------------------------------------------------------------------- MXFP4 */

dpe_status dpe_bind_mxfp4(struct dpe_binder *binder, const char *name, int64_t experts,
                          int64_t outputs, int64_t inputs, struct dpe_tensor *tensor, bool *found)
{
    enum { BLOCK = 32, HALF = BLOCK / 2 };
    const struct packed p = {.binder = binder, .rows = outputs, .cols = inputs};
    char whole[192];
    snprintf(whole, sizeof whole, "%s_blocks", name);
    const struct dpe_shard_tensor *blocks = dpe_shard_table_find(binder->table, whole);
    snprintf(whole, sizeof whole, "%s_scales", name);
    const struct dpe_shard_tensor *scales = dpe_shard_table_find(binder->table, whole);
    *found = blocks != NULL;
    if (blocks == NULL) {
        return DPE_OK;
    }
    const int64_t shape[] = {experts, outputs, inputs / BLOCK, HALF};
    bool same = blocks->rank == 4 && memcmp(blocks->shape, shape, sizeof shape) == 0 &&
                inputs % BLOCK == 0 && strcmp(blocks->dtype, "U8") == 0;
    if (!same || scales == NULL || scales->rank != 3 ||
        memcmp(scales->shape, shape, 3 * sizeof shape[0]) != 0 ||
        strcmp(scales->dtype, "U8") != 0) {
        return BAD(&p, blocks,
                   "expected U8 of the shape [%lld, %lld, %lld, 16], and scales of U8 beside it "
                   "without the last number",
                   (long long)experts, (long long)outputs, (long long)(inputs / BLOCK));
    }
    /* Of the file a byte has two columns that follow each other, of a block two that are 16 apart.
     * The rows of gates and of what they are multiplied with take turns in the file. */
    bool turns = strstr(name, "gate_up_proj") != NULL;
    int64_t row = inputs / BLOCK;
    unsigned char *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)(experts * outputs * row * (HALF + 1)), &copy));
    for (int64_t i = 0; i < experts * outputs * row; i++) {
        int64_t r = i / row % outputs;
        int64_t from = turns ? (r < outputs / 2 ? 2 * r : 2 * r - outputs + 1) : r;
        from = (i / (row * outputs) * outputs + from) * row + i % row;
        const unsigned char *bytes = bytes_of(&p, blocks) + from * HALF;
        unsigned char *to = copy + i * (HALF + 1);
        to[0] = bytes_of(&p, scales)[from];
        for (int k = 0; k < HALF; k++) {
            unsigned low = (unsigned)bytes[k / 2] >> (k % 2 * 4) & 15U;
            unsigned high = (unsigned)bytes[HALF / 2 + k / 2] >> (k % 2 * 4) & 15U;
            to[1 + k] = (unsigned char)(low | high << 4);
        }
    }
    *tensor = (struct dpe_tensor){
        .data = copy, .dtype = DPE_MXFP4, .rows = experts * outputs, .cols = inputs};
    return DPE_OK;
}
