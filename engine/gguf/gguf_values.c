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

void dpe_gguf_expected(struct dpe_gguf_reader *reader, const char *key, const char *what)
{
    static const char *const names[DPE_GGUF_TYPES] = {
        "an unsigned byte", "a byte",         "an unsigned short", "a short",  "a whole number",
        "a whole number",   "a number",       "true or false",     "a string", "an array",
        "a whole number",   "a whole number", "a number"};
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    char found[128] = "nothing";
    char quoted[96];
    if (reader->status != DPE_OK) {
        return;
    }
    if (value != NULL && value->array) {
        snprintf(found, sizeof found, "an array of %llu", (unsigned long long)value->n);
    } else if (value != NULL && value->type == DPE_GGUF_STRING) {
        snprintf(found, sizeof found, "\"%s\"",
                 dpe_json_quote(quoted, (const char *)value->bytes, value->n_bytes));
    } else if (value != NULL && value->type == DPE_GGUF_BOOL) {
        snprintf(found, sizeof found, "%s", value->bytes[0] != 0 ? "true" : "false");
    } else if (value != NULL) {
        snprintf(found, sizeof found, "%s, %.9g", names[value->type], dpe_gguf_number_at(value, 0));
    }
    reader->status = dpe_fail(reader->err, DPE_BAD_DATA, "%s: %s: expected %s, found %s",
                              reader->file->path, key, what, found);
}

int64_t dpe_gguf_whole(struct dpe_gguf_reader *reader, const char *key, int64_t fallback)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    if (value == NULL || reader->status != DPE_OK) {
        return fallback;
    }
    double number = value->array ? (double)NAN : dpe_gguf_number_at(value, 0);
    if (is_real(value->type) || value->type == DPE_GGUF_BOOL || !(number >= 0.0) ||
        number > (double)most_whole) {
        dpe_gguf_expected(reader, key, "a whole number from 0 to 2^53");
        return fallback;
    }
    return (int64_t)number;
}

int64_t dpe_gguf_token_id(struct dpe_gguf_reader *reader, const char *key)
{
    static const struct {
        const char *key;
        int64_t id;
    } usual[] = {{"tokenizer.ggml.bos_token_id", 1},
                 {"tokenizer.ggml.eos_token_id", 2},
                 {"tokenizer.ggml.unknown_token_id", 0}};
    int64_t fallback = -1;
    const struct dpe_gguf_value *tokens = dpe_gguf_find(reader->file, "tokenizer.ggml.tokens");
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        bool has = tokens != NULL && tokens->array && tokens->n > (uint64_t)usual[i].id;
        if (has && strcmp(key, usual[i].key) == 0 &&
            dpe_gguf_text_is(reader, "tokenizer.ggml.model", "llama")) {
            fallback = usual[i].id;
        }
    }
    return dpe_gguf_whole(reader, key, fallback);
}

double dpe_gguf_number(struct dpe_gguf_reader *reader, const char *key, double fallback)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    if (value == NULL || reader->status != DPE_OK) {
        return fallback;
    }
    double number = value->array ? (double)NAN : dpe_gguf_number_at(value, 0);
    if (value->type == DPE_GGUF_BOOL || !isfinite(number)) {
        dpe_gguf_expected(reader, key, "a finite number");
        return fallback;
    }
    return number;
}

bool dpe_gguf_flag(struct dpe_gguf_reader *reader, const char *key, bool fallback)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    if (value == NULL || reader->status != DPE_OK) {
        return fallback;
    }
    if (value->array || value->type != DPE_GGUF_BOOL || value->bytes[0] > 1) {
        dpe_gguf_expected(reader, key, "true or false");
        return fallback;
    }
    return value->bytes[0] != 0;
}

const char *dpe_gguf_text(struct dpe_gguf_reader *reader, const char *key, size_t *n)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    *n = 0;
    if (value == NULL || reader->status != DPE_OK) {
        return NULL;
    }
    const char *text = (const char *)value->bytes;
    if (value->array || value->type != DPE_GGUF_STRING ||
        memchr(text, '\0', value->n_bytes) != NULL ||
        dpe_utf8_check(text, value->n_bytes) != value->n_bytes) {
        dpe_gguf_expected(reader, key, "a string of UTF-8 without NUL");
        return NULL;
    }
    *n = value->n_bytes;
    return text;
}

bool dpe_gguf_text_is(struct dpe_gguf_reader *reader, const char *key, const char *text)
{
    size_t n = 0;
    const char *found = dpe_gguf_text(reader, key, &n);
    return found != NULL && n == strlen(text) && memcmp(found, text, n) == 0;
}

const struct dpe_gguf_value *dpe_gguf_array(struct dpe_gguf_reader *reader, const char *key,
                                            enum dpe_gguf_type type)
{
    const struct dpe_gguf_value *value = dpe_gguf_find(reader->file, key);
    if (value == NULL || reader->status != DPE_OK) {
        return NULL;
    }
    bool text = value->type == DPE_GGUF_STRING || value->type == DPE_GGUF_BOOL;
    bool fits = value->type == type || (type == DPE_GGUF_I32 && !text && !is_real(value->type)) ||
                (type == DPE_GGUF_F32 && !text);
    if (!value->array || !fits) {
        dpe_gguf_expected(reader, key,
                          type == DPE_GGUF_STRING ? "an array of strings"
                          : type == DPE_GGUF_F32  ? "an array of numbers"
                                                  : "an array of whole numbers");
        return NULL;
    }
    return value;
}

void dpe_gguf_next_string(const struct dpe_gguf_value *array, size_t *at, const char **text,
                          size_t *n)
{
    *n = (size_t)dpe_load_u64(array->bytes + *at, 8);
    *text = (const char *)array->bytes + *at + 8;
    *at += 8 + *n;
}
