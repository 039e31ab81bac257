/* A GGUF file copied with other factors of its rotation: the header is written anew, the tensors
 * are copied as they are, and rope_freqs.weight is behind them (or in the place of the one that is
 * there). What llama.cpp reads of it: get_rope_factors and rope_attn_factor in its sources. */
#include "outputs/export/rope_forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/gguf/gguf.h"
#include "engine/text/json.h"
#include "outputs/storage/storage.h"

enum { LONGEST_KEY = 96 };

/* Architectures whose rotation llama.cpp reads rope_freqs.weight for, and which dpe has. */
static const char *const architectures[] = {"llama", "mistral3", "granite"};
static const char rope_tensor[] = "rope_freqs.weight";

/* The file that is copied. */
struct source {
    struct dpe_gguf *gguf;
    struct dpe_json_reader reader; /* of its metadata */
    const char *architecture;
    const struct dpe_gguf_tensor *rope; /* NULL: it has none */
    uint64_t alignment, data_size;
};

/* --------------------------------------------------------------------------------- does it fit */

static double number_of(struct source *source, const char *name, double fallback)
{
    char key[LONGEST_KEY];
    snprintf(key, sizeof key, "%s.%s", source->architecture, name);
    return dpe_json_number(&source->reader, key, dpe_gguf_any, fallback);
}

static dpe_status find_architecture(struct source *source, struct dpe_error *err)
{
    const char *text = dpe_json_string(&source->reader, "general.architecture", NULL);
    if (text == NULL) {
        dpe_json_expected(&source->reader, "general.architecture", "a text");
        return source->reader.status;
    }
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        if (strcmp(text, architectures[i]) == 0) {
            source->architecture = architectures[i];
            return DPE_OK;
        }
    }
    char quoted[96];
    return dpe_fail(err, DPE_BAD_DATA,
                    "%s: llama.cpp reads no factors of frequencies for the architecture %s: it "
                    "does for llama, mistral3 and granite; write --format llama.cpp-flags, its "
                    "options for YaRN, "
                    "one scale or another base, or longrope for another runtime",
                    source->gguf->path, dpe_json_quote(quoted, text, strlen(text)));
}

/* The rest of a source whose file and reader are there. */
static dpe_status read_source(const char *path, struct source *source, struct dpe_error *err)
{
    source->alignment = (uint64_t)dpe_gguf_whole(&source->reader, "general.alignment", 32);
    source->data_size =
        source->gguf->size > source->gguf->data ? source->gguf->size - source->gguf->data : 0;
    if (dpe_gguf_whole(&source->reader, "split.count", 1) > 1) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: expected a GGUF file with one file of the whole model (llama-gguf-split "
            "--merge makes one)",
            path);
    }
    for (size_t i = 0; i < source->gguf->n_tensors; i++) {
        if (strcmp(source->gguf->tensors[i].name, rope_tensor) == 0) {
            source->rope = &source->gguf->tensors[i];
        }
    }
    DPE_TRY(source->reader.status);
    return find_architecture(source, err);
}

static dpe_status check_shape(struct source *source, const struct dpe_table_values *values,
                              int64_t n, struct dpe_error *err)
{
    double heads = number_of(source, "attention.head_count", -1.0);
    double width = number_of(source, "attention.key_length",
                             number_of(source, "embedding_length", -1.0) / heads);
    const struct {
        const char *name;
        double found, expected;
    } sizes[] = {
        {"block_count", number_of(source, "block_count", -1.0), (double)values->n_layers},
        {"attention.head_count", heads, (double)values->n_heads},
        {"rope.dimension_count", number_of(source, "rope.dimension_count", width), 2.0 * (double)n},
    };
    if (source->reader.status != DPE_OK) {
        return source->reader.status;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].found != sizes[i].expected) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "%s: the table is for another model: %s is %g there, the table's model "
                            "has %g",
                            source->gguf->path, sizes[i].name, sizes[i].found, sizes[i].expected);
        }
    }
    if (values->length > UINT32_MAX || values->trained_length > UINT32_MAX) {
        return dpe_fail(err, DPE_BAD_DATA,
                        "a GGUF file holds lengths up to %lld, the table is for %lld tokens of a "
                        "model trained at %lld",
                        (long long)UINT32_MAX, (long long)values->length,
                        (long long)values->trained_length);
    }
    const struct dpe_gguf_tensor *rope = source->rope;
    if (rope != NULL && (rope->dtype != DPE_F32 || rope->rank != 1 || rope->shape[0] != n)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: %s: expected %lld numbers of float32",
                        source->gguf->path, rope_tensor, (long long)n);
    }
    return DPE_OK;
}

/* Without a scaling of its own the file rotates as the table's model does. */
static dpe_status check_base(struct source *source, const struct dpe_rope_factors *factors,
                             double base, struct dpe_error *err)
{
    char key[LONGEST_KEY];
    snprintf(key, sizeof key, "%s.rope.scaling.type", source->architecture);
    double scale =
        number_of(source, "rope.scaling.factor", number_of(source, "rope.scale_linear", 0));
    bool scaled = scale != 0.0 && scale != 1.0 && !dpe_gguf_text_is(&source->reader, key, "none");
    scaled = scaled || source->rope != NULL;
    for (int64_t j = 0; j < factors->n && !scaled; j++) {
        if (!(fabs(factors->short_factor[j] - 1.0) <= 1e-4)) {
            return dpe_fail(
                err, DPE_BAD_DATA,
                "%s: the table is for another model: with the base %g pair %lld rotates "
                "%g times as far as in the table's model",
                source->gguf->path, base, (long long)j, factors->short_factor[j]);
        }
    }
    return source->reader.status;
}

/* ------------------------------------------------------------------------------------- writing */

static void put_u64(struct dpe_text *out, uint64_t value, size_t bytes)
{
    unsigned char stored[8];
    dpe_store_u64(stored, value, bytes);
    dpe_text_put_bytes(out, stored, bytes);
}

/* n, or the next multiple of a power of two. */
static uint64_t align(uint64_t n, uint64_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

/* Zeros, from n bytes of a file to where they are aligned. */
static void put_padding(struct dpe_text *out, uint64_t n, uint64_t alignment)
{
    for (const uint64_t end = align(n, alignment); n < end && !out->failed; n++) {
        dpe_text_put_bytes(out, "", 1);
    }
}

static void put_text(struct dpe_text *out, const void *text, size_t n)
{
    put_u64(out, n, 8);
    dpe_text_put_bytes(out, text, n);
}

static void put_key(struct dpe_text *out, const char *key, uint64_t type)
{
    put_text(out, key, strlen(key));
    put_u64(out, type, 4);
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
    "rope.scaling.type",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "context_length",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_log_multiplier",
};
enum { N_PUT = 4, N_SHORT = 3 };
static const char short_prefix[] = "dpe.short_text.";

static bool is_replaced(const struct source *source, const char *key)
{
    size_t prefix = strlen(source->architecture);
    if (strncmp(key, short_prefix, sizeof short_prefix - 1) == 0) {
        return true; /* of an earlier copy */
    }
    return strncmp(key, source->architecture, prefix) == 0 && key[prefix] == '.' &&
           DPE_NAMED(replaced, key + prefix + 1) != NULL;
}

/* What llama.cpp also takes as the step in which mistral3's queries grow: then the source's own. */
static double original_length(struct source *source, const struct dpe_table_values *values)
{
    double length = (double)values->trained_length;
    return number_of(source, "attention.temperature_scale", 0.0) == 0.0
               ? length
               : number_of(source, "rope.scaling.original_context_length",
                           number_of(source, "context_length", length));
}

/* A number of 4 bytes, named PREFIX + NAME. */
static void put_number(struct dpe_text *out, const char *prefix, const char *name, uint64_t type,
                       uint64_t bits)
{
    char key[LONGEST_KEY];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    put_key(out, key, type);
    put_u64(out, bits, 4);
}

/* N_PUT values. */
static void put_own_values(struct dpe_text *out, struct source *source,
                           const struct dpe_table_values *values,
                           const struct dpe_rope_factors *factors)
{
    const char *own = source->architecture;
    char key[LONGEST_KEY];
    snprintf(key, sizeof key, "%s.rope.scaling.type", own);
    put_key(out, key, DPE_GGUF_STRING);
    put_text(out, "none", 4);
    put_number(out, own, ".rope.scaling.attn_factor", DPE_GGUF_F32,
               float_bits(factors->attention_factor));
    put_number(out, own, ".rope.scaling.original_context_length", DPE_GGUF_U32,
               (uint64_t)original_length(source, values));
    put_number(out, own, ".context_length", DPE_GGUF_U32, (uint64_t)values->length);
}

/* What a short text loses under these factors, which llama.cpp applies to every text: N_SHORT
 * values. */
static void put_short_text(struct dpe_text *out, const struct dpe_short_text *text)
{
    if (text->tokens > 0) {
        put_number(out, short_prefix, "tokens", DPE_GGUF_U32, (uint64_t)text->tokens);
        put_number(out, short_prefix, "nll", DPE_GGUF_F32, float_bits(text->own));
        put_number(out, short_prefix, "nll_with_factors", DPE_GGUF_F32, float_bits(text->applied));
    }
}

/* A value of the source as it was. */
static void put_value(struct dpe_text *out, const struct dpe_gguf_value *value)
{
    put_key(out, value->key, value->array ? DPE_GGUF_ARRAY : value->type);
    if (value->array) {
        put_u64(out, value->type, 4);
        put_u64(out, value->n, 8);
    }
    if (value->type == DPE_GGUF_STRING && !value->array) {
        put_text(out, value->bytes, value->n_bytes);
    } else {
        dpe_text_put_bytes(out, value->bytes, value->n_bytes);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct dpe_gguf_value *x = *(const struct dpe_gguf_value *const *)a;
    const struct dpe_gguf_value *y = *(const struct dpe_gguf_value *const *)b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The values that stay, in the order of the source. */
static void put_kept_values(struct dpe_text *out, const struct source *source)
{
    const struct dpe_gguf *gguf = source->gguf;
    DPE_OWNED const struct dpe_gguf_value **order = dpe_alloc(gguf->n_values, sizeof(void *));
    if (order == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < gguf->n_values; i++) {
        order[i] = &gguf->values[i];
    }
    qsort(order, gguf->n_values, sizeof *order, by_place);
    for (size_t i = 0; i < gguf->n_values; i++) {
        if (!is_replaced(source, order[i]->key)) {
            put_value(out, order[i]);
        }
    }
}

static void put_rope_tensor(struct dpe_text *out, const struct source *source, int64_t n)
{
    const uint64_t numbers[][2] = {
        {1, 4}, {(uint64_t)n, 8}, {0, 4}, {align(source->data_size, source->alignment), 8}};
    put_text(out, rope_tensor, strlen(rope_tensor));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        put_u64(out, numbers[i][0], (size_t)numbers[i][1]);
    }
}

static void put_header(struct dpe_text *out, struct source *source,
                       const struct dpe_table_values *values,
                       const struct dpe_rope_factors *factors,
                       const struct dpe_short_text *short_text)
{
    const struct dpe_gguf *gguf = source->gguf;
    bool adds = source->rope == NULL;
    uint64_t kept = 0;
    for (size_t i = 0; i < gguf->n_values; i++) {
        kept += !is_replaced(source, gguf->values[i].key);
    }
    dpe_text_put_bytes(out, gguf->header, 8);
    put_u64(out, gguf->n_tensors + adds, 8);
    put_u64(out, kept + N_PUT + (short_text->tokens > 0 ? N_SHORT : 0), 8);
    put_kept_values(out, source);
    put_own_values(out, source, values, factors);
    put_short_text(out, short_text);
    dpe_text_put_bytes(out, gguf->header + gguf->tensors_at, gguf->n_header - gguf->tensors_at);
    if (adds) {
        put_rope_tensor(out, source, factors->n);
    }
    put_padding(out, out->n, source->alignment);
}

/* The tensors' data from one of their bytes to another. */
static dpe_status copy_data(const struct dpe_gguf *gguf, uint64_t begin, uint64_t end,
                            struct dpe_new_file *to, struct dpe_error *err)
{
    enum { BLOCK = 1 << 20 };
    DPE_OWNED unsigned char *block = NULL;
    DPE_TRY(DPE_NEW(&block, BLOCK, err, "out of memory"));
    for (size_t n = 0; begin < end; begin += n) {
        n = end - begin < BLOCK ? (size_t)(end - begin) : BLOCK;
        DPE_TRY(dpe_read_range(gguf->fd, gguf->path, block, n, gguf->data + begin, err));
        DPE_TRY(dpe_new_file_write(to, block, n, err));
    }
    return DPE_OK;
}

static dpe_status write_copy(struct source *source, const struct dpe_table_values *values,
                             const struct dpe_rope_factors *factors, const char *path,
                             const struct dpe_short_text *short_text, struct dpe_error *err)
{
    DPE_SCOPED(dpe_new_file_drop) struct dpe_new_file written = {.fd = -1};
    DPE_SCOPED(dpe_text_free) struct dpe_text header = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text tensor = {0};
    DPE_OWNED char *target = NULL;
    const struct dpe_gguf *gguf = source->gguf;
    /* The factors are in the place of the tensor that is there, or behind all tensors. */
    uint64_t before = source->data_size, after = before;
    if (source->rope != NULL) {
        before = source->rope->begin - gguf->data;
        after = before + (uint64_t)factors->n * 4;
    } else {
        put_padding(&tensor, before, source->alignment);
    }
    for (int64_t j = 0; j < factors->n; j++) {
        put_u64(&tensor, float_bits(factors->long_factor[j]), 4);
    }
    put_header(&header, source, values, factors, short_text);
    DPE_TRY(dpe_follow_links(path, &target, err));
    DPE_TRY(dpe_new_file_open(&written, target, NULL, err));
    DPE_TRY(dpe_text_done(&header, err));
    DPE_TRY(dpe_text_done(&tensor, err));
    DPE_TRY(dpe_new_file_write(&written, header.bytes, header.n, err));
    DPE_TRY(copy_data(gguf, 0, before, &written, err));
    DPE_TRY(dpe_new_file_write(&written, tensor.bytes, tensor.n, err));
    DPE_TRY(copy_data(gguf, after, source->data_size, &written, err));
    return dpe_new_file_finish(&written, err);
}

dpe_status dpe_export_gguf(const struct dpe_table_values *values, const char *from,
                           const char *path, const struct dpe_short_text *short_text,
                           struct dpe_error *err)
{
    DPE_SCOPED(dpe_gguf_close_scoped) struct dpe_gguf *gguf = NULL;
    DPE_SCOPED(dpe_rope_factors_free) struct dpe_rope_factors factors = {0};
    DPE_TRY(dpe_gguf_open(from, &gguf, err));
    struct source source = {.gguf = gguf, .reader = dpe_gguf_reader(gguf, err)};
    DPE_TRY(read_source(from, &source, err));
    double base = number_of(&source, "rope.freq_base", 10000.0);
    DPE_TRY(source.reader.status);
    if (!(base > 1.0)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: rope.freq_base: expected a number above 1",
                        gguf->path);
    }
    DPE_TRY(dpe_rope_factors_make(values, base, &factors, err));
    DPE_TRY(check_shape(&source, values, factors.n, err));
    DPE_TRY(check_base(&source, &factors, base, err));
    return write_copy(&source, values, &factors, path, short_text, err);
}
