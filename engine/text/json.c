/* JSON of strangers: parsing and typed members with messages; JSON read member by member, in place.
 */
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

static bool is_token(const char *bytes, size_t n, const char *token)
{
    return strlen(token) == n && memcmp(bytes, token, n) == 0;
}

/* What Python's json reads and jansson does not hold. */
enum foreign { FOREIGN_NONE, FOREIGN_INTEGER, FOREIGN_REAL };

static enum foreign foreign_token(const char *bytes, size_t n)
{
    if (is_token(bytes, n, "NaN") || is_token(bytes, n, "Infinity") ||
        is_token(bytes, n, "-Infinity")) {
        return FOREIGN_REAL;
    }
    size_t sign = bytes[0] == '-';
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
            dpe_text_put(out, "\"%s%.*s\"", exact ? DPE_JSON_EXACT_MARK : "", (int)length,
                         bytes + i);
        } else {
            dpe_text_put(out, "%.*se2", (int)length - 2, bytes + i);
        }
    }
    return foreign;
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
        dpe_json_expected(reader, key, what);
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
    if (reader->status != DPE_OK || value == NULL) {
        return fallback;
    }
    if (!json_is_boolean(value)) {
        dpe_json_expected(reader, key, "true or false");
        return fallback;
    }
    return json_is_true(value);
}

const char *dpe_json_string(struct dpe_json_reader *reader, const char *key, const char *fallback)
{
    json_t *value = dpe_json_member(reader, key);
    if (reader->status != DPE_OK || value == NULL) {
        return fallback;
    }
    const char *text = json_string_value(value);
    if (text == NULL || strlen(text) != json_string_length(value)) {
        dpe_json_expected(reader, key, "a string");
        return fallback;
    }
    return text;
}

json_t *dpe_json_object(struct dpe_json_reader *reader, const char *key)
{
    json_t *value = dpe_json_member(reader, key);
    if (reader->status != DPE_OK || value == NULL) {
        return NULL;
    }
    if (!json_is_object(value)) {
        dpe_json_expected(reader, key, "an object");
        return NULL;
    }
    return value;
}

/* ----------------------------------------------------------------------------- member by member */

enum { MAX_DEPTH = 128 };

static bool problem(struct dpe_json_scan *scan, const char *what)
{
    if (scan->problem == NULL) {
        scan->problem = what;
    }
    return false;
}

/* The character at a place, '\0' after the end (a NUL in the text is not JSON either, so that the
 * two need not be distinguished). */
static char at(const struct dpe_json_scan *scan, size_t place)
{
    return place >= scan->n ? '\0' : scan->text[place];
}

bool dpe_json_scan_is(const struct dpe_json_scan_text *text, const char *word)
{
    return is_token(text->bytes, text->n, word);
}

char dpe_json_scan_peek(struct dpe_json_scan *scan)
{
    while (scan->at < scan->n && strchr(" \t\n\r", scan->text[scan->at]) != NULL &&
           scan->text[scan->at] != '\0') {
        scan->at++;
    }
    return scan->problem != NULL ? '\0' : at(scan, scan->at);
}

static bool take(struct dpe_json_scan *scan, char c)
{
    if (dpe_json_scan_peek(scan) != c) {
        return false;
    }
    scan->at++;
    return true;
}

bool dpe_json_scan_open(struct dpe_json_scan *scan, char c)
{
    return take(scan, c) || problem(scan, c == '{' ? "expected '{'" : "expected '['");
}

static bool next(struct dpe_json_scan *scan, bool *first, char close)
{
    if (take(scan, close)) {
        return false;
    }
    if (!*first && !take(scan, ',')) {
        return problem(scan, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    *first = false;
    return scan->problem == NULL;
}

bool dpe_json_scan_key(struct dpe_json_scan *scan, bool *first, struct dpe_json_scan_text *key)
{
    return next(scan, first, '}') && dpe_json_scan_string(scan, key) &&
           (take(scan, ':') || problem(scan, "expected ':'"));
}

bool dpe_json_scan_element(struct dpe_json_scan *scan, bool *first)
{
    return next(scan, first, ']');
}

/* Four hexadecimal digits from a place on, or a value above 0xffff. */
static uint32_t hex4(const struct dpe_json_scan *scan, size_t from)
{
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = dpe_hex_digit(at(scan, from + i));
        if (digit < 0) {
            return UINT32_MAX;
        }
        value = value * 16 + (uint32_t)digit;
    }
    return value;
}

/* What stands after "\u" at scan->at, as UTF-8 at `to`, which has room: an escape is longer than
 * what it stands for. Returns the bytes written, 0 on a problem. */
static size_t decode_unicode(struct dpe_json_scan *scan, char *to)
{
    uint32_t c = hex4(scan, scan->at);
    scan->at += 4;
    if (c >= 0xd800 && c < 0xdc00 && at(scan, scan->at) == '\\' && at(scan, scan->at + 1) == 'u') {
        uint32_t low = hex4(scan, scan->at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            scan->at += 6;
        }
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000 && !scan->python)) {
        problem(scan, "expected four hexadecimal digits of a character after \\u");
        return 0;
    }
    return dpe_utf8_put(c, to);
}

/* The escape whose '\\' has been passed. Returns the bytes written at `to`, 0 on a problem. */
static size_t decode_escape(struct dpe_json_scan *scan, char *to)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    char c = at(scan, scan->at);
    const char *simple = c == '\0' ? NULL : strchr(from, c);
    if (simple != NULL) {
        scan->at++;
        *to = into[simple - from];
        return 1;
    }
    if (c == 'u') {
        scan->at++;
        return decode_unicode(scan, to);
    }
    problem(scan, "expected an escape that JSON has");
    return 0;
}

bool dpe_json_scan_string(struct dpe_json_scan *scan, struct dpe_json_scan_text *text)
{
    if (!take(scan, '"')) {
        return problem(scan, "expected a string");
    }
    char *start = scan->text + scan->at;
    char *to = start;
    while (scan->at < scan->n && scan->problem == NULL) {
        char c = scan->text[scan->at];
        if (c == '"') {
            scan->at++;
            *to = '\0';
            *text = (struct dpe_json_scan_text){start, (size_t)(to - start)};
            return true;
        }
        if ((unsigned char)c < 0x20) {
            return problem(scan, "expected no control character inside a string");
        }
        scan->at++;
        if (c == '\\') {
            to += decode_escape(scan, to);
        } else {
            *to++ = c;
        }
    }
    return problem(scan, "expected the end of a string");
}

static size_t digits(const struct dpe_json_scan *scan, size_t from)
{
    size_t n = 0;
    while (at(scan, from + n) >= '0' && at(scan, from + n) <= '9') {
        n++;
    }
    return n;
}

bool dpe_json_scan_unsigned(struct dpe_json_scan *scan, uint64_t *number)
{
    char c = dpe_json_scan_peek(scan);
    size_t n = digits(scan, scan->at);
    char after = at(scan, scan->at + n);
    if (n == 0 || (c == '0' && n > 1) || (after != '\0' && strchr(".eE", after) != NULL)) {
        return problem(scan, "expected an integer >= 0");
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(scan->text[scan->at + i] - '0');
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return problem(scan, "expected an integer below 2^64");
        }
    }
    scan->at += n;
    *number = value;
    return true;
}

static bool skip_number(struct dpe_json_scan *scan)
{
    size_t end = scan->at + (at(scan, scan->at) == '-');
    size_t whole = digits(scan, end);
    bool good = whole == 1 || (whole > 1 && at(scan, end) != '0');
    end += whole;
    if (good && at(scan, end) == '.') {
        size_t n = digits(scan, end + 1);
        good = n > 0;
        end += 1 + n;
    }
    if (good && (at(scan, end) == 'e' || at(scan, end) == 'E')) {
        end++;
        end += at(scan, end) == '+' || at(scan, end) == '-';
        size_t n = digits(scan, end);
        good = n > 0;
        end += n;
    }
    if (!good) {
        return problem(scan, "expected a JSON value");
    }
    scan->at = end;
    return true;
}

static bool skip_word(struct dpe_json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    size_t n_words = scan->python ? sizeof words / sizeof words[0] : 3;
    for (size_t i = 0; i < n_words; i++) {
        size_t n = strlen(words[i]);
        if (scan->n - scan->at >= n && memcmp(scan->text + scan->at, words[i], n) == 0) {
            scan->at += n;
            return true;
        }
    }
    return problem(scan, "expected a JSON value");
}

static bool skip_value(struct dpe_json_scan *scan, int depth)
{
    struct dpe_json_scan_text text;
    bool first = true;
    char c = dpe_json_scan_peek(scan);
    if (depth > MAX_DEPTH) {
        return problem(scan, "expected at most 128 levels of nesting");
    }
    if (c == '{') {
        scan->at++;
        while (dpe_json_scan_key(scan, &first, &text)) {
            skip_value(scan, depth + 1);
        }
        return scan->problem == NULL;
    }
    if (c == '[') {
        scan->at++;
        while (dpe_json_scan_element(scan, &first)) {
            skip_value(scan, depth + 1);
        }
        return scan->problem == NULL;
    }
    if (c == '"') {
        return dpe_json_scan_string(scan, &text);
    }
    bool infinity = scan->python && c == '-' && at(scan, scan->at + 1) == 'I';
    return (c == '-' && !infinity) || (c >= '0' && c <= '9') ? skip_number(scan) : skip_word(scan);
}

bool dpe_json_scan_skip(struct dpe_json_scan *scan)
{
    return skip_value(scan, 1);
}

bool dpe_json_scan_end(struct dpe_json_scan *scan)
{
    dpe_json_scan_peek(scan);
    return scan->problem == NULL &&
           (scan->at == scan->n || problem(scan, "expected nothing after the JSON value"));
}
