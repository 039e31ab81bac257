/* Reading metadata by key and type; how wide a type is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/gguf/gguf.h"
#include "engine/text/json.h"

static const int64_t most_whole = INT64_C(1) << 53;

static int by_key(const void *key, const void *value)
{
    return strcmp(key, ((const struct dpe_gguf_value *)value)->key);
}

const struct dpe_gguf_value *dpe_gguf_find(const struct dpe_gguf *gguf, const char *key)
{
    return gguf->n_values == 0
               ? NULL
               : bsearch(key, gguf->values, gguf->n_values, sizeof *gguf->values, by_key);
}

size_t dpe_gguf_width(enum dpe_gguf_type type)
{
    static const unsigned char widths[DPE_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return widths[type];
}

double dpe_gguf_number_at(const struct dpe_gguf_value *value, uint64_t i)
{
    size_t width = dpe_gguf_width(value->type);
    if (width == 0) {
        return (double)NAN;
    }
    uint64_t bits = dpe_load_u64(value->bytes + i * width, width);
    float single = 0.0F;
    double real = 0.0;
    uint32_t low = (uint32_t)bits;
    switch (value->type) {
    case DPE_GGUF_I8:
        return (double)(int8_t)bits;
    case DPE_GGUF_I16:
        return (double)(int16_t)bits;
    case DPE_GGUF_I32:
        return (double)(int32_t)bits;
    case DPE_GGUF_I64:
        return (double)(int64_t)bits;
    case DPE_GGUF_F32:
        memcpy(&single, &low, sizeof single);
        return (double)single;
    case DPE_GGUF_F64:
        memcpy(&real, &bits, sizeof real);
        return real;
    default:
        return (double)bits;
    }
}

static bool is_real(enum dpe_gguf_type type)
{
    return type == DPE_GGUF_F32 || type == DPE_GGUF_F64;
}

/* What a typed read cannot take (an array, a text that is not UTF-8, a number that is not finite)
 * is a list that says so in messages. */
static json_t *as_json(const struct dpe_gguf_value *value)
{
    const double number = value->array ? (double)NAN : dpe_gguf_number_at(value, 0);
    const bool text = value->type == DPE_GGUF_STRING && !value->array;
    json_t *made = text ? json_stringn((const char *)value->bytes, value->n_bytes)
                   : value->type == DPE_GGUF_BOOL && number <= 1.0 ? json_boolean(number != 0.0)
                   : is_real(value->type) || !(fabs(number) <= 0x1p53)
                       ? json_real(number)
                       : json_integer((json_int_t)number);
    char what[48];
    snprintf(what, sizeof what, value->array ? "an array of %llu" : "not UTF-8, or not finite",
             (unsigned long long)value->n);
    return made != NULL ? made : json_pack("[s]", what);
}

dpe_status dpe_gguf_fill(struct dpe_gguf *gguf, struct dpe_error *err)
{
    gguf->metadata = json_object();
    for (size_t i = 0; i < gguf->n_values; i++) {
        if (json_object_set_new(gguf->metadata, gguf->values[i].key, as_json(&gguf->values[i])) !=
            0) {
            return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", gguf->path);
        }
    }
    return DPE_MADE(gguf->metadata, err, "%s: out of memory", gguf->path);
}

int64_t dpe_gguf_whole(struct dpe_json_reader *reader, const char *key, int64_t fallback)
{
    return dpe_json_member(reader, key) == NULL
               ? fallback
               : dpe_json_integer(reader, key, 0, most_whole, fallback);
}

int64_t dpe_gguf_token_id(const struct dpe_gguf *gguf, struct dpe_json_reader *reader,
                          const char *key)
{
    static const struct {
        const char *key;
        int64_t id;
    } usual[] = {{"tokenizer.ggml.bos_token_id", 1},
                 {"tokenizer.ggml.eos_token_id", 2},
                 {"tokenizer.ggml.unknown_token_id", 0}};
    int64_t fallback = -1;
    const struct dpe_gguf_value *tokens = dpe_gguf_find(gguf, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        bool has = tokens != NULL && tokens->array && tokens->n > (uint64_t)usual[i].id;
        if (has && strcmp(key, usual[i].key) == 0 &&
            dpe_gguf_text_is(reader, "tokenizer.ggml.model", "llama")) {
            fallback = usual[i].id;
        }
    }
    return dpe_gguf_whole(reader, key, fallback);
}

bool dpe_gguf_text_is(struct dpe_json_reader *reader, const char *key, const char *text)
{
    return strcmp(dpe_json_string(reader, key, ""), text) == 0;
}

const struct dpe_gguf_value *dpe_gguf_array(const struct dpe_gguf *gguf,
                                            struct dpe_json_reader *reader, const char *key,
                                            enum dpe_gguf_type type)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(gguf, key);
    if (value == NULL || reader->status != DPE_OK) {
        return NULL;
    }
    bool text = value->type == DPE_GGUF_STRING || value->type == DPE_GGUF_BOOL;
    bool fits = value->type == type || (type == DPE_GGUF_I32 && !text && !is_real(value->type)) ||
                (type == DPE_GGUF_F32 && !text);
    if (!value->array || !fits) {
        dpe_json_expected(reader, key,
                          type == DPE_GGUF_STRING ? "an array of strings"
                          : type == DPE_GGUF_F32  ? "an array of numbers"
                                                  : "an array of whole numbers");
        return NULL;
    }
    return value;
}

json_t *dpe_gguf_strings(const struct dpe_gguf *gguf, struct dpe_json_reader *reader,
                         const char *key, uint64_t most)
{
    const struct dpe_gguf_value *array = dpe_gguf_array(gguf, reader, key, DPE_GGUF_STRING);
    json_t *strings = array != NULL ? json_array() : NULL;
    size_t at = 0;
    if (array != NULL && array->n > most) {
        char what[64];
        snprintf(what, sizeof what, "at most %llu strings", (unsigned long long)most);
        dpe_json_expected(reader, key, what);
    }
    for (uint64_t i = 0; array != NULL && i < array->n && reader->status == DPE_OK; i++) {
        const size_t n = (size_t)dpe_load_u64(array->bytes + at, 8);
        const char *text = (const char *)array->bytes + at + 8;
        at += 8 + n;
        json_t *string = dpe_utf8_check(text, n) == n
                             ? json_stringn(text, n)
                             : json_pack("[o]", json_stringn_nocheck(text, n));
        if (json_array_append_new(strings, string) != 0) {
            reader->status =
                dpe_fail(reader->err, DPE_NO_MEMORY, "%s: out of memory", reader->file);
        }
    }
    return strings;
}
