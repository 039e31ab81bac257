/* Matrices of 8-bit floats with scales, as bfloat16 copies: what the libraries that wrote them
 * unpack them to. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/halves.h"
#include "engine/model/weights/bind_internal.h"

/* Sign, four bits of exponent with a bias of 7, three of fraction; all ones are NaN, and there is
 * no infinity. */
static float from_e4m3(unsigned char bits)
{
    int exponent = (bits >> 3) & 15;
    int fraction = bits & 7;
    float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    size = (bits & 127) == 127 ? NAN : size;
    return (bits & 128) != 0 ? -size : size;
}

/* The scales of a matrix: one for so many rows and columns. */
struct scales {
    struct dpe_tensor tensor;
    int64_t rows, cols; /* that a scale is for */
};

static const struct dpe_shard_tensor *find_scales(const struct dpe_binder *binder, const char *name)
{
    static const char *const endings[] = {"_scale", "_scale_inv"};
    char scale[192];
    const struct dpe_shard_tensor *found = NULL;
    for (size_t i = 0; i < 2 && found == NULL; i++) {
        snprintf(scale, sizeof scale, "%s%s", name, endings[i]);
        found = dpe_shard_table_find(binder->table, scale);
    }
    return found;
}

static dpe_status bad_scales(const struct dpe_binder *binder, const char *name, const char *what)
{
    return dpe_fail(
        binder->err, DPE_BAD_DATA,
        "%s: tensor %s of type F8_E4M3: expected %s_scale or %s_scale_inv as F32, F16 or BF16 "
        "with one number, one for each row, or one for each block of equal size; %s",
        binder->model->folder, name, name, name, what);
}

/* How many of n lie in each of `parts` equal pieces, of which only the last may be shorter; 0: no
 * such number. */
static int64_t piece(const struct dpe_binder *binder, int64_t n, int64_t parts, int at)
{
    int64_t size = binder->model->config.fp8_block[at];
    size = size > 0 && parts == (n + size - 1) / size ? size : 0;
    if (size == 0 && parts > 0 && n % parts == 0) {
        size = n / parts;
    }
    return size;
}

static dpe_status read_scales(struct dpe_binder *binder, const char *name, int64_t rows,
                              int64_t cols, struct scales *scales)
{
    const struct dpe_shard_tensor *found = find_scales(binder, name);
    if (found == NULL) {
        return bad_scales(binder, name, "found neither");
    }
    int64_t down = found->rank > 0 ? found->shape[0] : 1;
    int64_t across = found->rank > 1 ? found->shape[1] : 1;
    const int64_t whole[] = {0, found->rank > 1 ? down : 0, found->rank > 1 ? across : down};
    scales->rows = found->rank > 2 ? 0 : piece(binder, rows, down, 0);
    scales->cols = found->rank > 2 ? 0 : piece(binder, cols, across, 1);
    bool narrow = strcmp(found->dtype, "F32") == 0 || strcmp(found->dtype, "F16") == 0 ||
                  strcmp(found->dtype, "BF16") == 0;
    if (scales->rows == 0 || scales->cols == 0 || !narrow) {
        return bad_scales(binder, name, "found another shape or type");
    }
    if (found->rank == 0) {
        /* A single number is no vector to the binder. */
        struct dpe_shard_tensor one = *found;
        one.rank = 1;
        one.shape[0] = 1;
        return dpe_bind_found(binder, &one, (const int64_t[]){0, 0, 1}, &scales->tensor);
    }
    return dpe_bind_found(binder, found, whole, &scales->tensor);
}

dpe_status dpe_bind_fp8(struct dpe_binder *binder, const char *name,
                        const struct dpe_shard_tensor *found, struct dpe_tensor *tensor)
{
    int64_t rows = found->shape[0];
    int64_t cols = found->shape[1];
    struct scales scales = {0};
    float values[256];
    DPE_TRY(read_scales(binder, name, rows, cols, &scales));
    uint16_t *copy = NULL;
    DPE_TRY(dpe_bind_copy(binder, name, (size_t)(rows * cols) * sizeof *copy, &copy));
    for (int i = 0; i < 256; i++) {
        values[i] = from_e4m3((unsigned char)i);
    }
    const unsigned char *bytes = binder->model->shards[found->shard].map + found->begin;
    int64_t across = (cols + scales.cols - 1) / scales.cols;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            float scale =
                dpe_bind_element(&scales.tensor, r / scales.rows * across + c / scales.cols);
            copy[r * cols + c] = dpe_to_bf16(values[bytes[r * cols + c]] * scale);
        }
    }
    *tensor = (struct dpe_tensor){.data = copy, .dtype = DPE_BF16, .rows = rows, .cols = cols};
    return DPE_OK;
}
