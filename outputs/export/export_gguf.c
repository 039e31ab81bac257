/* A GGUF file copied with other factors of its rotation: the header is written anew, the tensors are
 * copied as they are, and rope_freqs.weight is behind them (or in the place of the one that is
 * there). What llama.cpp reads of it: get_rope_factors and rope_attn_factor in its sources. */
#include "outputs/export/rope_forms.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/bytes.h"
#include "outputs/export/gguf_read.h"
#include "outputs/storage/storage.h"

/* Architectures whose rotation llama.cpp reads rope_freqs.weight for, and which dpe has. */
static const char *const architectures[] = {"llama", "mistral3", "granite"};

/* --------------------------------------------------------------------------------- does it fit
 */

static dpe_status check_architecture(const struct dpe_gguf *file, struct dpe_error *err)
{
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        if (dpe_gguf_is(file->architecture, architectures[i])) {
            return DPE_OK;
        }
    }
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: llama.cpp reads no factors of frequencies for the architecture %.*s: it "
                    "does for llama, mistral3 and granite; write --format longrope for another "
                    "runtime",
                    file->path, (int)(file->architecture.n < 64 ? file->architecture.n : 64),
                    file->architecture.at);
}

static dpe_status check_shape(struct dpe_gguf *file, const struct dpe_table_values *values, int64_t n,
                              struct dpe_error *err)
{
    double heads = dpe_gguf_number(file, "attention.head_count", -1.0);
    double width = dpe_gguf_number(file, "attention.key_length",
                               dpe_gguf_number(file, "embedding_length", -1.0) / heads);
    const struct {
        const char *name;
        double found, expected;
    } sizes[] = {
        {"block_count", dpe_gguf_number(file, "block_count", -1.0), (double)values->n_layers},
        {"attention.head_count", heads, (double)values->n_heads},
        {"rope.dimension_count", dpe_gguf_number(file, "rope.dimension_count", width), 2.0 * (double)n},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].found != sizes[i].expected) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: the table is for another model: %s is %g there, the table's model "
                            "has %g",
                            file->path, sizes[i].name, sizes[i].found, sizes[i].expected);
        }
    }
    if (file->rope_at >= 0 && (file->rope_pairs != (uint64_t)n ||
                               (uint64_t)file->rope_at > file->data_size ||
                               file->data_size - (uint64_t)file->rope_at < (uint64_t)n * 4)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected %lld numbers of float32", file->path,
                        DPE_GGUF_ROPE, (long long)n);
    }
    return DPE_OK;
}

/* Without a scaling of its own the file rotates as the table's model does. */
static dpe_status check_base(struct dpe_gguf *file, const struct dpe_rope_factors *factors, double base,
                             struct dpe_error *err)
{
    struct dpe_gguf_value type;
    bool scaled = dpe_gguf_find(file, "rope.scaling.type", &type) && type.type == DPE_GGUF_STRING &&
                  !dpe_gguf_is(type.text, "none");
    scaled = scaled || file->rope_at >= 0;
    for (int64_t j = 0; j < factors->n && !scaled; j++) {
        if (!(fabs(factors->short_factor[j] - 1.0) <= 1e-4)) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: the table is for another model: with the base %g pair %lld rotates "
                            "%g times as far as in the table's model",
                            file->path, base, (long long)j, factors->short_factor[j]);
        }
    }
    return DPE_OK;
}

/* --------------------------------------------------------------------------------------- writing
 */

static dpe_status put(struct dpe_text *out, const void *bytes, size_t n, struct dpe_error *err)
{
    return dpe_text_append(out, bytes, n, err);
}

static dpe_status put_u64(struct dpe_text *out, uint64_t value, size_t bytes, struct dpe_error *err)
{
    unsigned char stored[8];
    dpe_store_u64(stored, value, bytes);
    return put(out, stored, bytes, err);
}

/* "ARCHITECTURE.NAME" and the type of its value. */
static dpe_status put_key(const struct dpe_gguf *file, const char *name, uint64_t type,
                          struct dpe_text *out, struct dpe_error *err)
{
    uint64_t prefix = file->architecture.n;
    dpe_status status = put_u64(out, prefix + 1 + strlen(name), 8, err);
    status = status == DPE_OK ? put(out, file->architecture.at, (size_t)prefix, err) : status;
    status = status == DPE_OK ? put(out, ".", 1, err) : status;
    status = status == DPE_OK ? put(out, name, strlen(name), err) : status;
    return status == DPE_OK ? put_u64(out, type, 4, err) : status;
}

static uint64_t float_bits(double value)
{
    float real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

/* What the copy says of its rotation: nothing else may scale it. */
static const char *const replaced[] = {
    "rope.scaling.type",   "rope.scaling.attn_factor", "rope.scaling.original_context_length",
    "context_length",      "rope.scaling.factor",      "rope.scaling.finetuned",
    "rope.scale_linear",
};
enum { N_REPLACED = sizeof replaced / sizeof replaced[0], N_PUT = 4 };

static bool is_replaced(const struct dpe_gguf *file, struct dpe_gguf_text key)
{
    for (size_t i = 0; i < N_REPLACED; i++) {
        if (dpe_gguf_is_key(file, key, replaced[i])) {
            return true;
        }
    }
    return false;
}

static dpe_status put_own_values(const struct dpe_gguf *file, const struct dpe_table_values *values,
                                 const struct dpe_rope_factors *factors, struct dpe_text *out,
                                 struct dpe_error *err)
{
    const struct {
        const char *name;
        uint64_t type, bits;
    } numbers[] = {
        {"rope.scaling.attn_factor", DPE_GGUF_F32, float_bits(factors->attention_factor)},
        {"rope.scaling.original_context_length", DPE_GGUF_U32, (uint64_t)values->trained_length},
        {"context_length", DPE_GGUF_U32, (uint64_t)values->length},
    };
    dpe_status status = put_key(file, "rope.scaling.type", DPE_GGUF_STRING, out, err);
    status = status == DPE_OK ? put_u64(out, 4, 8, err) : status;
    status = status == DPE_OK ? put(out, "none", 4, err) : status;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
        status = put_key(file, numbers[i].name, numbers[i].type, out, err);
        status = status == DPE_OK ? put_u64(out, numbers[i].bits, 4, err) : status;
    }
    return status;
}

/* The values that stay, and how many. */
static dpe_status put_kept_values(struct dpe_gguf *file, struct dpe_text *out, uint64_t *kept,
                                  struct dpe_error *err)
{
    dpe_status status = DPE_OK;
    *kept = 0;
    file->at = file->values_at;
    for (uint64_t i = 0; i < file->n_values && status == DPE_OK; i++) {
        size_t from = file->at;
        struct dpe_gguf_value value = dpe_gguf_take(file);
        if (!is_replaced(file, value.key)) {
            status = put(out, file->bytes + from, file->at - from, err);
            (*kept)++;
        }
    }
    return status;
}

static dpe_status put_header(struct dpe_gguf *file, const struct dpe_table_values *values,
                             const struct dpe_rope_factors *factors, struct dpe_text *out,
                             struct dpe_error *err)
{
    struct dpe_text kept = {0};
    uint64_t n_kept = 0;
    bool adds = file->rope_at < 0;
    dpe_status status = put_kept_values(file, &kept, &n_kept, err);
    status = status == DPE_OK ? put(out, file->bytes, 8, err) : status;
    status = status == DPE_OK ? put_u64(out, file->n_tensors + adds, 8, err) : status;
    status = status == DPE_OK ? put_u64(out, n_kept + N_PUT, 8, err) : status;
    status = status == DPE_OK ? put(out, kept.bytes, kept.n, err) : status;
    status = status == DPE_OK ? put_own_values(file, values, factors, out, err) : status;
    status = status == DPE_OK
                 ? put(out, file->bytes + file->infos_at, file->end - file->infos_at, err)
                 : status;
    if (adds && status == DPE_OK) {
        const uint64_t numbers[][2] = {{1, 4},
                                       {(uint64_t)factors->n, 8},
                                       {0, 4},
                                       {dpe_gguf_align(file->data_size, file->alignment), 8}};
        status = put_u64(out, strlen(DPE_GGUF_ROPE), 8, err);
        status = status == DPE_OK ? put(out, DPE_GGUF_ROPE, strlen(DPE_GGUF_ROPE), err) : status;
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == DPE_OK; i++) {
            status = put_u64(out, numbers[i][0], (size_t)numbers[i][1], err);
        }
    }
    while (status == DPE_OK && out->n % file->alignment != 0) {
        status = put(out, "", 1, err);
    }
    dpe_text_free(&kept);
    return status;
}

/* The tensors, with the factors in their place or behind them. */
static dpe_status copy_data(int fd, const struct dpe_gguf *file, const unsigned char *factors, size_t n,
                            struct dpe_new_file *to, struct dpe_error *err)
{
    enum { BLOCK = 1 << 20 };
    uint64_t rope = file->rope_at < 0 ? dpe_gguf_align(file->data_size, file->alignment)
                                      : (uint64_t)file->rope_at;
    uint64_t size = file->rope_at < 0 ? rope + n : file->data_size;
    unsigned char *block = dpe_alloc(BLOCK, 1);
    dpe_status status = block == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory") : DPE_OK;
    for (uint64_t at = 0; at < size && status == DPE_OK;) {
        size_t wanted = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        size_t there = at >= file->data_size                ? 0
                       : file->data_size - at < (uint64_t)wanted ? (size_t)(file->data_size - at)
                                                                 : wanted;
        memset(block, 0, wanted);
        for (size_t done = 0; done < there;) {
            ssize_t got = pread(fd, block + done, there - done, (off_t)(file->data_at + at + done));
            if (got == 0 || (got < 0 && errno != EINTR)) {
                status = dpe_fail_errno(err, got < 0 ? errno : EIO, file->path, "read");
                break;
            }
            done += got > 0 ? (size_t)got : 0;
        }
        for (size_t i = 0; i < wanted; i++) {
            block[i] = at + i >= rope && at + i < rope + n ? factors[at + i - rope] : block[i];
        }
        status = status == DPE_OK ? dpe_new_file_write(to, block, wanted, err) : status;
        at += wanted;
    }
    free(block);
    return status;
}

static dpe_status write_copy(int fd, struct dpe_gguf *file, const struct dpe_table_values *values,
                             const struct dpe_rope_factors *factors, const char *path,
                             struct dpe_error *err)
{
    struct dpe_new_file written = {.fd = -1};
    struct dpe_text header = {0};
    char *target = NULL;
    unsigned char *bytes = dpe_alloc((size_t)factors->n, 4);
    dpe_status status = bytes == NULL ? dpe_fail(err, DPE_NO_MEMORY, "out of memory") : DPE_OK;
    if (status != DPE_OK || (status = dpe_follow_links(path, &target, err)) != DPE_OK ||
        (status = put_header(file, values, factors, &header, err)) != DPE_OK ||
        (status = dpe_new_file_open(&written, target, NULL, err)) != DPE_OK) {
        goto done;
    }
    for (int64_t j = 0; j < factors->n; j++) {
        dpe_store_u64(bytes + 4 * j, float_bits(factors->long_factor[j]), 4);
    }
    status = dpe_new_file_write(&written, header.bytes, header.n, err);
    if (status == DPE_OK) {
        status = copy_data(fd, file, bytes, (size_t)factors->n * 4, &written, err);
    }
    if (status == DPE_OK) {
        status = dpe_new_file_finish(&written, err);
    }
done:
    dpe_new_file_drop(&written);
    dpe_text_free(&header);
    free(target);
    free(bytes);
    return status;
}

dpe_status dpe_export_gguf(const struct dpe_table_values *values, const char *from, const char *path,
                           struct dpe_error *err)
{
    struct dpe_gguf file = {.path = from};
    struct dpe_rope_factors factors = {0};
    struct stat info;
    dpe_status status = DPE_OK;
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = errno == ENOENT ? dpe_fail(err, DPE_NO_INPUT, "%s: %s", from, strerror(errno))
                                 : dpe_fail_errno(err, errno, from, "open");
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: expected a GGUF file, found a folder or device",
                          from);
        goto done;
    }
    status = dpe_gguf_read(fd, (uint64_t)info.st_size, &file, err);
    if (status != DPE_OK || (status = check_architecture(&file, err)) != DPE_OK) {
        goto done;
    }
    double base = dpe_gguf_number(&file, "rope.freq_base", 10000.0);
    if (!(base > 1.0) || !isfinite(base)) {
        status = dpe_fail(err, DPE_BAD_DATA, "%s: rope.freq_base: expected a number above 1", from);
        goto done;
    }
    status = dpe_rope_factors_make(values, base, &factors, err);
    if (status != DPE_OK || (status = check_shape(&file, values, factors.n, err)) != DPE_OK ||
        (status = check_base(&file, &factors, base, err)) != DPE_OK) {
        goto done;
    }
    status = write_copy(fd, &file, values, &factors, path, err);
done:
    dpe_rope_factors_free(&factors);
    free(file.bytes);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
