/* The tensors of a GGUF file: what they are and where they lie; the files of a split model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/gguf/gguf_internal.h"
#include "engine/text/json.h"

enum { MOST_ALIGNMENT = 1 << 20, MOST_FILES = 4096 };

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

/* Bytes of a tensor, into end; begin is its offset in the data so far. */
static dpe_status check_size(const struct dpe_gguf *gguf, struct dpe_gguf_tensor *tensor,
                             struct dpe_error *err)
{
    const struct dpe_block_type *type = &dpe_block_types[tensor->dtype];
    uint64_t count = 1;
    uint64_t bytes = 0;
    bool overflow = false;
    for (int i = 0; i < tensor->rank; i++) {
        overflow |= __builtin_mul_overflow(count, (uint64_t)tensor->shape[i], &count);
    }
    int64_t row = tensor->shape[tensor->rank - 1];
    if (row % type->elements != 0) {
        char what[64];
        snprintf(what, sizeof what, "rows that are multiples of %" PRId64 " numbers (%s)",
                 type->elements, type->name);
        return bad_tensor(gguf, tensor->name, err, what, (uint64_t)row);
    }
    overflow |=
        __builtin_mul_overflow(count / (uint64_t)type->elements, (uint64_t)type->bytes, &bytes);
    if (overflow || __builtin_add_overflow(tensor->begin, bytes, &tensor->end) ||
        tensor->end > gguf->size) {
        char quoted[96];
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: tensor %s lies beyond the end of the file, which has %" PRIu64
                        " bytes: the file is truncated, or a size or offset in it is wrong",
                        gguf->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)),
                        gguf->size);
    }
    return DPE_OK;
}

static dpe_status take_shape(struct dpe_gguf_cursor *cursor, struct dpe_gguf_tensor *tensor)
{
    uint32_t rank = 0;
    if (!dpe_gguf_take_u32(cursor, &rank)) {
        return DPE_OK;
    }
    if (rank < 1 || rank > DPE_GGUF_RANK) {
        return bad_tensor(cursor->gguf, tensor->name, cursor->err, "1 to 4 dimensions", rank);
    }
    tensor->rank = (int)rank;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        uint64_t size = 0;
        if (dpe_gguf_take_u64(cursor, &size) && (size < 1 || size > INT64_MAX)) {
            return bad_tensor(cursor->gguf, tensor->name, cursor->err,
                              "dimensions from 1 to 2^63 - 1", size);
        }
        tensor->shape[i] = (int64_t)size;
    }
    return DPE_OK;
}

static dpe_status take_tensor(struct dpe_gguf_cursor *cursor, struct dpe_gguf_tensor *tensor)
{
    DPE_TRY(dpe_gguf_take_name(cursor, "the name of a tensor", &tensor->name));
    DPE_TRY(take_shape(cursor, tensor));
    if (!dpe_gguf_take_u32(cursor, &tensor->type) || !dpe_gguf_take_u64(cursor, &tensor->begin)) {
        return DPE_OK;
    }
    tensor->dtype = dpe_dtype_of_gguf(tensor->type);
    if (tensor->dtype == DPE_DTYPES) {
        tensor->end = tensor->begin;
        return DPE_OK;
    }
    return check_size(cursor->gguf, tensor, cursor->err);
}

dpe_status dpe_gguf_take_tensors(struct dpe_gguf_cursor *cursor, uint64_t n)
{
    struct dpe_gguf *gguf = cursor->gguf;
    while (gguf->n_tensors < n && !cursor->more) {
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

dpe_status dpe_gguf_place_tensors(struct dpe_gguf *gguf, struct dpe_error *err)
{
    struct dpe_gguf_reader reader = {.file = gguf, .err = err};
    int64_t alignment = dpe_gguf_whole(&reader, "general.alignment", 32);
    if (reader.status == DPE_OK &&
        (alignment < 1 || alignment > MOST_ALIGNMENT || (alignment & (alignment - 1)) != 0)) {
        dpe_gguf_expected(&reader, "general.alignment", "a power of two up to 1048576");
    }
    if (reader.status != DPE_OK) {
        return reader.status;
    }
    uint64_t unit = (uint64_t)alignment;
    gguf->data = ((uint64_t)gguf->n_header + unit - 1) / unit * unit;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        struct dpe_gguf_tensor *tensor = &gguf->tensors[i];
        if (tensor->begin % unit != 0) {
            char what[64];
            snprintf(what, sizeof what, "an offset that is a multiple of %" PRIu64, unit);
            return bad_tensor(gguf, tensor->name, err, what, tensor->begin);
        }
        tensor->begin += gguf->data;
        tensor->end += gguf->data;
        if (tensor->end > gguf->size) {
            char quoted[96];
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: tensor %s ends at byte %" PRIu64 ", the file has %" PRIu64
                            ": the file is truncated",
                            gguf->path, dpe_json_quote(quoted, tensor->name, strlen(tensor->name)),
                            tensor->end, gguf->size);
        }
    }
    return gguf->n_tensors > 0 ? check_pairs(gguf, err) : DPE_OK;
}

/* --------------------------------------------------------------------------------------- splits */

void dpe_gguf_free_paths(char ***paths)
{
    for (char **at = *paths; at != NULL && *at != NULL; at++) {
        free(*at);
    }
    free(*paths);
}

dpe_status dpe_gguf_split(const struct dpe_gguf *gguf, char ***paths, int *n, struct dpe_error *err)
{
    struct dpe_gguf_reader reader = {.file = gguf, .err = err};
    int64_t count = dpe_gguf_whole(&reader, "split.count", 1);
    int64_t number = dpe_gguf_whole(&reader, "split.no", 0);
    if (reader.status == DPE_OK && count > MOST_FILES) {
        dpe_gguf_expected(&reader, "split.count", "at most 4096 files");
    }
    if (reader.status != DPE_OK) {
        return reader.status;
    }
    count = count < 1 ? 1 : count;
    char end[40];
    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", 1, (int)count);
    size_t length = strlen(gguf->path);
    size_t tail = strlen(end);
    if (count > 1 &&
        (number != 0 || length <= tail || strcmp(gguf->path + length - tail, end) != 0)) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "%s: file %" PRId64 " of %" PRId64 " of a model; give the first, and keep "
                        "their names: NAME%s",
                        gguf->path, number + 1, count, end);
    }
    DPE_SCOPED(dpe_gguf_free_paths) char **made = NULL;
    DPE_TRY(DPE_NEW(&made, (size_t)count + 1, err, "%s: out of memory", gguf->path));
    for (int i = 0; i < (int)count; i++) {
        DPE_TRY(DPE_NEW(&made[i], length + 1, err, "%s: out of memory", gguf->path));
        memcpy(made[i], gguf->path, length + 1);
        if (count > 1) {
            snprintf(made[i] + length - tail, tail + 1, "-%05d-of-%05d.gguf", i + 1, (int)count);
        }
    }
    *n = (int)count;
    *paths = made;
    made = NULL;
    return DPE_OK;
}
