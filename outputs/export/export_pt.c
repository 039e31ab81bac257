/* A score tensor as torch.save writes one: a zip of a pickled tensor and its raw storage. */
#include "outputs/export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zip.h>

#include "engine/base/bytes.h"

/* ---------------------------------------------------------------- the pickle, protocol 2 */

/* LONG1: little-endian two's complement; nine bytes hold every int64. */
static void put_int(struct dpe_text *out, int64_t value)
{
    unsigned char code[10] = {0x8a, 8};
    dpe_store_u64(code + 2, (uint64_t)value, 8);
    dpe_text_put_bytes(out, code, sizeof code);
}

static void put_tuple(struct dpe_text *out, const int64_t *values, int n)
{
    dpe_text_put_bytes(out, "(", 1);
    for (int i = 0; i < n; i++) {
        put_int(out, values[i]);
    }
    dpe_text_put_bytes(out, "t", 1);
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()), where the
 * storage is named by a persistent id ("storage", torch.FloatStorage, "0", "cpu", count). */
static void put_tensor(struct dpe_text *out, const int64_t *dims, const int64_t *strides,
                       int64_t count)
{
    static const char begin[] = "\x80\x02"
                                "ctorch._utils\n_rebuild_tensor_v2\n"
                                "(("
                                "X\x07\0\0\0storage"
                                "ctorch\nFloatStorage\n"
                                "X\x01\0\0\0"
                                "0"
                                "X\x03\0\0\0"
                                "cpu";
    static const char end[] = "\x89"
                              "ccollections\nOrderedDict\n)R"
                              "tR.";
    dpe_text_put_bytes(out, begin, sizeof begin - 1);
    put_int(out, count);
    dpe_text_put_bytes(out, "tQ", 2);
    put_int(out, 0);
    put_tuple(out, dims, 5);
    put_tuple(out, strides, 5);
    dpe_text_put_bytes(out, end, sizeof end - 1);
}

/* ---------------------------------------------------------------- the zip */

/* A stored entry with a fixed time, so that equal scores give equal files. The bytes are borrowed
 * until the archive is closed. */
static bool add_entry(zip_t *archive, const char *name, const void *bytes, size_t n)
{
    zip_source_t *source = zip_source_buffer(archive, bytes, n, 0);
    if (source == NULL) {
        return false;
    }
    zip_int64_t index = zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return false;
    }
    /* 1980-01-01 00:00 in DOS form. */
    return zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
           zip_file_set_dostime(archive, (zip_uint64_t)index, 0, 0x21, 0) == 0;
}

/* What was written into `target`, appended to `out`. */
static dpe_status take_bytes(zip_source_t *target, struct dpe_text *out, struct dpe_error *err)
{
    const bool opened = zip_source_open(target) == 0;
    char block[8192];
    zip_int64_t n = 0;
    dpe_status status = DPE_OK;
    do {
        n = opened ? zip_source_read(target, block, sizeof block) : -1;
        status = n >= 0 ? dpe_text_append(out, block, (size_t)n, err)
                        : dpe_fail(err, DPE_INTERNAL, "the zip archive cannot be read back");
    } while (status == DPE_OK && n > 0);
    zip_source_close(target);
    return status;
}

DPE_SCOPED_HANDLE(zip_source_t *, zip_source_free)

static dpe_status write_zip(const struct dpe_text *pickle, const float *scores, size_t bytes,
                            struct dpe_text *out, struct dpe_error *err)
{
    DPE_SCOPED(zip_error_fini) zip_error_t why = {0};
    DPE_SCOPED(zip_source_free_scoped)
    zip_source_t *target = zip_source_buffer_create(NULL, 0, 0, &why);
    if (target == NULL) {
        return dpe_fail(err, DPE_NO_MEMORY, "out of memory for a zip archive");
    }
    zip_t *archive = zip_open_from_source(target, ZIP_TRUNCATE, &why);
    if (archive == NULL) {
        return dpe_fail(err, DPE_INTERNAL, "zip: %s", zip_error_strerror(&why));
    }
    zip_source_keep(target); /* the archive lets go of it once */
    if (!add_entry(archive, "archive/data.pkl", pickle->bytes, pickle->n) ||
        !add_entry(archive, "archive/byteorder", "little", 6) ||
        !add_entry(archive, "archive/data/0", scores, bytes) ||
        !add_entry(archive, "archive/version", "3\n", 2) || zip_close(archive) != 0) {
        const dpe_status status = dpe_fail(err, DPE_INTERNAL, "zip: %s", zip_strerror(archive));
        zip_discard(archive);
        return status;
    }
    return take_bytes(target, out, err);
}

dpe_status dpe_export_pt(const float *scores, const int64_t dims[5], struct dpe_text *out,
                         struct dpe_error *err)
{
    int64_t strides[5];
    int64_t count = 1;
    for (int i = 4; i >= 0; i--) {
        strides[i] = count;
        if (dims[i] < 1 || __builtin_mul_overflow(count, dims[i], &count) ||
            count > INT64_MAX / (int64_t)sizeof *scores) {
            return dpe_fail(err, DPE_BAD_DATA, "the score tensor's axis %d is %lld long", i,
                            (long long)dims[i]);
        }
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text pickle = {0};
    put_tensor(&pickle, dims, strides, count);
    DPE_TRY(dpe_text_done(&pickle, err));
    return write_zip(&pickle, scores, (size_t)count * sizeof *scores, out, err);
}
