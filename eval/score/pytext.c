/* Python's view of text: characters, white space, case. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "eval/score/pytext.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

enum { SIGMA = 0x3a3, SMALL_SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2, DOTTED_I = 0x130 };

uint32_t dpe_py_next(const char *s, const char *end, size_t *n)
{
    unsigned char lead = (unsigned char)*s;
    size_t want = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
    uint32_t point = want == 1 ? lead : lead & (0x7fu >> want);
    *n = 1;
    if (want > (size_t)(end - s)) {
        return lead;
    }
    for (size_t i = 1; i < want; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c & 0xc0) != 0x80) {
            return lead;
        }
        point = point << 6 | (c & 0x3fu);
    }
    *n = want;
    return point;
}

const char *dpe_py_before(const char *start, const char *s)
{
    size_t back = (size_t)(s - start) < 4 ? (size_t)(s - start) : 4;
    for (size_t n = 0; back > 1; back--) {
        dpe_py_next(s - back, s, &n);
        if (n == back) {
            break;
        }
    }
    return s - back;
}

size_t dpe_py_space(const char *s, const char *end)
{
    size_t n = 0;
    uint32_t point = dpe_py_next(s, end, &n);
    const bool byte = n == 1 && point >= 0x80; /* of no character */
    return !byte && dpe_unicode_blank(point) ? n : 0;
}

/* Whether the character is in a category of engine/text, and Python's older tables know it. */
static bool is_in(const struct dpe_unicode_class *category, uint32_t point)
{
    return dpe_unicode_has(category, point) && !dpe_unicode_has(&dpe_case_new, point);
}

bool dpe_py_word(uint32_t point)
{
    if (point < 0x80) {
        return point == '_' || (point >= '0' && point <= '9') || (point >= 'A' && point <= 'Z') ||
               (point >= 'a' && point <= 'z');
    }
    return is_in(&dpe_unicode_L, point) || is_in(&dpe_unicode_N, point);
}

/* Whether str.title() writes the next letter in lower case after this character. */
static bool is_cased(uint32_t point)
{
    return is_in(&dpe_unicode_Ll, point) || dpe_unicode_has(&dpe_case_other_small, point) ||
           is_in(&dpe_unicode_Lu, point) || dpe_unicode_has(&dpe_case_other_capital, point) ||
           dpe_unicode_has(&dpe_unicode_Lt, point);
}

/* Decimal digits stand in rows from 0 to 9; some rows follow each other without a gap. */
int dpe_py_digit(uint32_t point)
{
    if (point < 0x80) {
        return point >= '0' && point <= '9' ? (int)(point - '0') : -1;
    }
    int before = -1;
    while (is_in(&dpe_unicode_Nd, point - (uint32_t)(before + 1))) {
        before++;
    }
    return before < 0 ? -1 : before % 10;
}

struct dpe_span dpe_py_strip(struct dpe_span text)
{
    const char *s = text.s;
    const char *end = s + text.n;
    for (size_t n = 1; s < end && n > 0; s += n) {
        n = dpe_py_space(s, end);
    }
    while (end > s) {
        const char *last = dpe_py_before(s, end);
        if (dpe_py_space(last, end) == 0) {
            break;
        }
        end = last;
    }
    return (struct dpe_span){s, (size_t)(end - s)};
}

bool dpe_py_split(struct dpe_span *rest, struct dpe_span *word)
{
    const char *s = rest->s;
    const char *end = s + rest->n;
    for (size_t n = 1; s < end && n > 0; s += n) {
        n = dpe_py_space(s, end);
    }
    const char *start = s;
    while (s < end && dpe_py_space(s, end) == 0) {
        size_t n = 0;
        dpe_py_next(s, end, &n);
        s += n;
    }
    *word = (struct dpe_span){start, (size_t)(s - start)};
    *rest = (struct dpe_span){s, (size_t)(end - s)};
    return s > start;
}

/* --------------------------------------------------------------------------------------- case */

typedef utf8proc_int32_t (*simple_case)(utf8proc_int32_t point);

/* The case of a character, one too. Characters that are newer than Python's tables have none. */
static uint32_t moved(simple_case to, uint32_t point)
{
    const uint32_t other = (uint32_t)to((utf8proc_int32_t)point);
    return other == point || (dpe_py_printable(point) && dpe_py_printable(other)) ? other : point;
}

static dpe_status put(uint32_t point, struct dpe_text *out)
{
    char bytes[4];
    size_t n = dpe_utf8_put(point, bytes);
    return dpe_text_append(out, bytes, n, NULL);
}

/* Whether the capital sigma at s of [start, end) ends a word: ignoring case-ignorable characters, a
 * cased letter precedes it and none follows. */
static bool ends_word(const char *start, const char *s, const char *end)
{
    const char *at = s;
    uint32_t point = 0;
    size_t n = 0;
    bool found = false;
    while (at > start && !found) {
        at = dpe_py_before(start, at);
        point = dpe_py_next(at, end, &n);
        found = !is_in(&dpe_case_ignorable, point);
    }
    if (!found || !is_cased(point)) {
        return false;
    }
    dpe_py_next(s, end, &n);
    for (at = s + n; at < end; at += n) {
        point = dpe_py_next(at, end, &n);
        if (!is_in(&dpe_case_ignorable, point)) {
            return !is_cased(point);
        }
    }
    return true;
}

/* The case of a character, which may be several: those of its folding, unless it is a capital or
 * has a form of titles. There the first that has a case becomes a capital, and an iota goes below
 * it. */
static dpe_status put_case(bool title, uint32_t point, struct dpe_text *out)
{
    enum { IOTA = 0x3b9, IOTA_BELOW = 0x345, MOST = 3 };
    const simple_case to = title ? utf8proc_totitle : utf8proc_toupper;
    const uint32_t own = moved(to, point);
    utf8proc_int32_t parts[MOST];
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)point, parts, MOST, UTF8PROC_CASEFOLD, NULL);
    if (n < 2 || dpe_unicode_has(&dpe_unicode_Lu, point) ||
        (title && dpe_unicode_has(&dpe_unicode_Lt, own))) {
        return put(own, out);
    }
    bool capital = true;
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        const utf8proc_int32_t rest = parts[i] == IOTA ? IOTA_BELOW : parts[i];
        const utf8proc_int32_t cased = to(parts[i]);
        DPE_TRY(put((uint32_t)(capital || !title ? cased : rest), out));
        capital = capital && cased == parts[i];
    }
    return DPE_OK;
}

/* The small letter at s in a text: that of a sigma depends on what is around it. */
static dpe_status put_small(struct dpe_span text, const char *s, uint32_t point,
                            struct dpe_text *out)
{
    if (point == SIGMA) {
        bool final = ends_word(text.s, s, text.s + text.n);
        return put(final ? FINAL_SIGMA : SMALL_SIGMA, out);
    }
    return point == DOTTED_I ? dpe_text_append(out, "i\xcc\x87", 3, NULL)
                             : put(moved(utf8proc_tolower, point), out);
}

dpe_status dpe_py_case(struct dpe_span text, enum dpe_py_letters letters, struct dpe_text *out)
{
    const char *end = text.s + text.n;
    bool inside = false; /* behind the letter that begins a title */
    size_t n = 0;
    DPE_TRY(dpe_text_append(out, "", 0, NULL));
    for (const char *s = text.s; s < end; s += n) {
        const uint32_t point = dpe_py_next(s, end, &n);
        const bool title = letters == DPE_PY_TITLE || letters == DPE_PY_CAPITAL;
        const bool small = letters == DPE_PY_LOWER || inside;
        const bool byte = n == 1 && point >= 0x80; /* of no character */
        DPE_TRY(byte    ? dpe_text_append(out, s, n, NULL)
                : small ? put_small(text, s, point, out)
                        : put_case(title, point, out));
        inside = letters == DPE_PY_CAPITAL || (title && is_cased(point));
    }
    return DPE_OK;
}

size_t dpe_py_line_end(const char *s, const char *end)
{
    unsigned char c = (unsigned char)*s;
    if (c == '\r') {
        return s + 1 < end && s[1] == '\n' ? 2 : 1;
    }
    if (c < 0x80) {
        return (c >= 0x0a && c <= 0x0c) || (c >= 0x1c && c <= 0x1e) ? 1 : 0;
    }
    size_t n = 0;
    uint32_t point = dpe_py_next(s, end, &n);
    return n > 1 && (point == 0x85 || point == 0x2028 || point == 0x2029) ? n : 0;
}

bool dpe_py_printable(uint32_t point)
{
    return point < 0x80 ? point >= 0x20 && point < 0x7f
                        : is_in(&dpe_unicode_L, point) || is_in(&dpe_unicode_M, point) ||
                              is_in(&dpe_unicode_N, point) || is_in(&dpe_unicode_P, point) ||
                              is_in(&dpe_unicode_S, point);
}

const char *dpe_py_real(double real, char text[DPE_PY_REAL])
{
    if (!isfinite(real)) {
        return isnan(real) ? "nan" : real > 0 ? "inf" : "-inf";
    }
    int precision = 1;
    do {
        snprintf(text, DPE_PY_REAL, "%.*e", precision - 1, real);
    } while (strtod(text, NULL) != real && ++precision <= 17);
    const int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        const int decimals = precision - 1 - exponent;
        snprintf(text, DPE_PY_REAL, "%.*f", decimals > 1 ? decimals : 1, real);
    }
    return text;
}

/* -------------------------------------------------------------------------------------- spans */

struct dpe_span dpe_span_of(const char *text)
{
    return (struct dpe_span){text, strlen(text)};
}

struct dpe_span dpe_span_of_text(const struct dpe_text *text)
{
    return (struct dpe_span){text->bytes, text->n};
}

bool dpe_span_equal(struct dpe_span a, struct dpe_span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool dpe_span_starts(struct dpe_span text, struct dpe_span with)
{
    return text.n >= with.n && (with.n == 0 || memcmp(text.s, with.s, with.n) == 0);
}

size_t dpe_span_find(struct dpe_span text, struct dpe_span part)
{
    if (part.n == 0 || part.n > text.n) {
        return part.n == 0 ? 0 : SIZE_MAX;
    }
    const char *at = memmem(text.s, text.n, part.s, part.n);
    return at == NULL ? SIZE_MAX : (size_t)(at - text.s);
}
