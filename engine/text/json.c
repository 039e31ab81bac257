/* JSON of strangers: parsing, and typed members with messages. */
#include "engine/text/json.h"
#include "engine/text/unicode.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When memory fails, jansson may report a syntax error, or nothing and leave out a character of a
 * string (2.14: "LlamaForCausalM"). Its allocator is therefore one that notices; what it hands out
 * is malloc's, so that values made before and by others stay valid. */
static _Thread_local bool memory_failed;

static void *noticing_malloc(size_t n)
{
    void *memory = malloc(n);
    memory_failed = memory_failed || memory == NULL;
    return memory;
}

static void set_allocator(void)
{
    json_set_alloc_funcs(noticing_malloc, free);
}

/* The end of the JSON string that begins at bytes[i], after its quotation mark. */
static size_t skip_string(const char *bytes, size_t n, size_t i)
{
    for (i++; i < n && bytes[i] != '"'; i++) {
        i += bytes[i] == '\\';
    }
    return i + 1;
}

/* A token outside of strings: its length. */
static size_t token_length(const char *bytes)
{
    size_t n = strspn(bytes, "0123456789+-.eE");
    if (n == 0 || (n == 1 && bytes[0] == '-')) {
        n += strspn(bytes + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    }
    return n > 0 ? n : 1;
}

/* What Python's json reads and jansson does not hold. */
enum foreign { FOREIGN_NONE, FOREIGN_INTEGER, FOREIGN_REAL };

static enum foreign foreign_token(const char *bytes, size_t n)
{
    size_t sign = bytes[0] == '-';
    if ((n == 3 && memcmp(bytes, "NaN", 3) == 0) ||
        (n == sign + 8 && memcmp(bytes + sign, "Infinity", 8) == 0)) {
        return FOREIGN_REAL;
    }
    size_t digits = strspn(bytes + sign, "0123456789");
    if (digits == 0 || n > 4300) {
        return FOREIGN_NONE;
    }
    errno = 0;
    if (sign + digits == n) {
        return digits > 2 && strtoll(bytes, NULL, 10) != 0 && errno == ERANGE ? FOREIGN_INTEGER
                                                                              : FOREIGN_NONE;
    }
    return isinf(strtod(bytes, NULL)) ? FOREIGN_REAL : FOREIGN_NONE;
}

/* U+FDD0, which Unicode leaves to programs: texts have other characters. */
static const char mark[] = "\xef\xb7\x90";

/* Puts the text with such tokens as strings: a number's text, behind the mark where `exact`. Else
 * an integer becomes the nearest real number in its place: the last two of its digits, which no
 * double holds, turn into "e2" (transformers gives a tokenizer without a limit "model_max_length":
 * 1000000000000000019884624838656). Returns how many there are. */
static size_t put_known(struct dpe_text *out, const char *bytes, size_t n, bool exact)
{
    size_t foreign = 0;
    size_t length = 0;
    for (size_t i = 0; i < n; i += length) {
        bool text = bytes[i] == '"';
        length = text ? skip_string(bytes, n, i) - i : token_length(bytes + i);
        length = length > n - i ? n - i : length;
        enum foreign kind = text ? FOREIGN_NONE : foreign_token(bytes + i, length);
        foreign += kind != FOREIGN_NONE;
        if (kind == FOREIGN_NONE) {
            dpe_text_put_bytes(out, bytes + i, length);
        } else if (kind == FOREIGN_REAL || exact) {
            dpe_text_put(out, "\"%s%.*s\"", exact ? mark : "", (int)length, bytes + i);
        } else {
            dpe_text_put(out, "%.*se2", (int)length - 2, bytes + i);
        }
    }
    return foreign;
}

const char *dpe_json_number_text(const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t n = sizeof mark - 1;
    return text != NULL && strncmp(text, mark, n) == 0 &&
                   foreign_token(text + n, strlen(text + n)) != FOREIGN_NONE
               ? text + n
               : NULL;
}

bool dpe_json_is_text(const json_t *value)
{
    return json_is_string(value) && dpe_json_number_text(value) == NULL;
}

/* As json_loadb, and again with foreign tokens in another form when they are what it refuses. */
static json_t *load(const char *bytes, size_t n, bool exact, json_error_t *error)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_t *root = json_loadb(bytes, n, flags, error);
    enum json_error_code code = root == NULL ? json_error_code(error) : json_error_unknown;
    if (root != NULL ||
        (code != json_error_numeric_overflow && code != json_error_invalid_syntax)) {
        return root;
    }
    DPE_OWNED char *ended = noticing_malloc(n + 1);
    if (ended == NULL) {
        return NULL;
    }
    memcpy(ended, bytes, n);
    ended[n] = '\0';
    DPE_SCOPED(dpe_text_free) struct dpe_text known = {0};
    size_t foreign = put_known(&known, ended, n, exact);
    memory_failed = memory_failed || dpe_text_done(&known, NULL) != DPE_OK;
    return foreign == 0 || memory_failed ? NULL : json_loadb(known.bytes, known.n, flags, error);
}

static dpe_status parse(const char *where, const char *bytes, size_t n, bool exact, json_t **value,
                        struct dpe_error *err)
{
    size_t bad = dpe_utf8_check(bytes, n);
    if (bad < n) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected UTF-8, found an invalid byte at %zu",
                        where, bad);
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    memory_failed = false;
    json_error_t error;
    DPE_SCOPED(json_decrefp) json_t *root = load(bytes, n, exact, &error);
    if (memory_failed) {
        return dpe_fail(err, DPE_NO_MEMORY, "%s: out of memory", where);
    }
    if (root == NULL) {
        char text[96];
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected JSON, found at line %d column %d: %s",
                        where, error.line, error.column,
                        dpe_json_quote(text, error.text, strlen(error.text)));
    }
    if (!json_is_object(root)) {
        return dpe_fail(err, DPE_BAD_DATA, "%s: expected a JSON object, found another value",
                        where);
    }
    *value = root;
    root = NULL;
    return DPE_OK;
}

dpe_status dpe_json_parse(const char *where, const char *bytes, size_t n, json_t **value,
                          struct dpe_error *err)
{
    return parse(where, bytes, n, false, value, err);
}

dpe_status dpe_json_parse_exact(const char *where, const char *bytes, size_t n, json_t **value,
                                struct dpe_error *err)
{
    return parse(where, bytes, n, true, value, err);
}

dpe_status dpe_json_read(const char *path, json_t **value, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    *value = NULL;
    dpe_status status = dpe_read_file(path, UINT64_C(1) << 28, &bytes, &n, err);
    return status == DPE_OK         ? dpe_json_parse(path, bytes, n, value, err)
           : status == DPE_NO_INPUT ? DPE_OK
                                    : status;
}

const char *dpe_json_quote(char out[96], const char *text, size_t n)
{
    enum { ROOM = 96 - 4 };
    size_t kept = n <= ROOM ? n : ROOM;
    /* Not in the middle of a character: continuation bytes are 10xxxxxx. */
    while (kept < n && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) {
        kept--;
    }
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = text[i];
        if (c < 0x20 || c == 0x7f) {
            out[i] = '?';
        }
    }
    memcpy(out + kept, kept < n ? "..." : "", kept < n ? 4 : 1);
    return out;
}

bool dpe_json_is_nothing(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

json_t *dpe_json_member(const struct dpe_json_reader *reader, const char *key)
{
    json_t *value = json_object_get(reader->from, key);
    return json_is_null(value) ? NULL : value;
}

void dpe_json_expected(struct dpe_json_reader *reader, const char *key, const char *what)
{
    if (reader->status != DPE_OK) {
        return;
    }
    json_t *value = json_object_get(reader->from, key);
    DPE_OWNED char *found =
        value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    char text[96];
    reader->status = dpe_fail(
        reader->err, DPE_BAD_DATA, "%s: %s%s: expected %s, found %s", reader->file, reader->object,
        key, what, found == NULL ? "nothing" : dpe_json_quote(text, found, strlen(found)));
}

int64_t dpe_json_integer(struct dpe_json_reader *reader, const char *key, int64_t min, int64_t max,
                         int64_t fallback)
{
    json_t *value = dpe_json_member(reader, key);
    if (reader->status != DPE_OK || (value == NULL && fallback >= min)) {
        return fallback;
    }
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < min || number > max) {
        char what[80];
        snprintf(what, sizeof what, "an integer from %lld to %lld", (long long)min, (long long)max);
        dpe_json_expected(reader, key, what);
        return fallback;
    }
    return number;
}

double dpe_json_number(struct dpe_json_reader *reader, const char *key, struct dpe_json_bound bound,
                       double fallback)
{
    json_t *value = dpe_json_member(reader, key);
    if (reader->status != DPE_OK || (value == NULL && !bound.required)) {
        return fallback;
    }
    double number = json_number_value(value);
    bool above = bound.or_equal ? number >= bound.min : number > bound.min;
    if (!json_is_number(value) || !isfinite(number) || !above) {
        char what[64];
        snprintf(what, sizeof what, "a number %s %g", bound.or_equal ? ">=" : ">", bound.min);
        dpe_json_expected(reader, key, isfinite(bound.min) ? what : "a finite number");
        return fallback;
    }
    if (bound.max > 0.0 && number > bound.max) {
        char what[64];
        snprintf(what, sizeof what, "a number up to %g", bound.max);
        dpe_json_expected(reader, key, what);
        return fallback;
    }
    return number;
}

bool dpe_json_bool(struct dpe_json_reader *reader, const char *key, bool fallback)
{
    json_t *value = dpe_json_member(reader, key);
    if (value != NULL && !json_is_boolean(value)) {
        dpe_json_expected(reader, key, "true or false");
    }
    return reader->status == DPE_OK && value != NULL ? json_is_true(value) : fallback;
}

const char *dpe_json_string(struct dpe_json_reader *reader, const char *key, const char *fallback)
{
    json_t *value = dpe_json_member(reader, key);
    const char *text = json_string_value(value);
    if (value != NULL && (text == NULL || strlen(text) != json_string_length(value))) {
        dpe_json_expected(reader, key, "a string");
    }
    return reader->status == DPE_OK && value != NULL ? text : fallback;
}

json_t *dpe_json_object(struct dpe_json_reader *reader, const char *key)
{
    json_t *value = dpe_json_member(reader, key);
    if (value != NULL && !json_is_object(value)) {
        dpe_json_expected(reader, key, "an object");
    }
    return reader->status == DPE_OK ? value : NULL;
}
