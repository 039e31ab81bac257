/* JSON read member by member, in place. */
#include "engine/text/json_scan.h"

#include <string.h>

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
    if (place >= scan->n) {
        return '\0';
    }
    return scan->text[place];
}

/* The next character that is not white space; '\0' at the end and after a problem. */
static char peek(struct dpe_json_scan *scan)
{
    while (scan->at < scan->n && strchr(" \t\n\r", scan->text[scan->at]) != NULL &&
           scan->text[scan->at] != '\0') {
        scan->at++;
    }
    if (scan->problem != NULL) {
        return '\0';
    }
    return at(scan, scan->at);
}

static bool take(struct dpe_json_scan *scan, char c)
{
    if (peek(scan) != c) {
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
        static const char known[] = "0123456789abcdef0123456789ABCDEF";
        char c = at(scan, from + i);
        const char *digit = c == '\0' ? NULL : strchr(known, c);
        if (digit == NULL) {
            return UINT32_MAX;
        }
        value = value * 16 + (uint32_t)((digit - known) % 16);
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
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    to[0] = (char)(lead[n] | c);
    return n;
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
    char c = peek(scan);
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
    char c = peek(scan);
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
    if ((c == '-' && !infinity) || (c >= '0' && c <= '9')) {
        return skip_number(scan);
    }
    return skip_word(scan);
}

bool dpe_json_scan_skip(struct dpe_json_scan *scan)
{
    return skip_value(scan, 1);
}

bool dpe_json_scan_end(struct dpe_json_scan *scan)
{
    peek(scan);
    return scan->problem == NULL &&
           (scan->at == scan->n || problem(scan, "expected nothing after the JSON value"));
}
