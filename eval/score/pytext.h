/**
 * @file pytext.h
 * Text as Python's str methods see it, because the scorers of the benchmarks are Python programs
 * and their numbers are wanted to the last digit. Used inside eval/ only.
 *
 * Texts are UTF-8 in which lone surrogates may stand (JSON can write them), NUL-terminated where n
 * is not given. A byte that is not UTF-8 counts as a character of its own.
 */
#ifndef DPE_PYTEXT_H
#define DPE_PYTEXT_H

#include "engine/base/base.h"
#include "engine/text/unicode.h"

/** A piece of a text, borrowed. */
struct dpe_span {
    const char *s;
    size_t n;
};

/** Character at s (s < end) and its length in bytes. */
uint32_t dpe_py_next(const char *s, const char *end, size_t *n);
/** Start of the character that ends before s; start < s. */
const char *dpe_py_before(const char *start, const char *s);

/** Bytes of the white space character at s (str.isspace), 0 when it is something else. */
size_t dpe_py_space(const char *s, const char *end);
/** Whether `\w` of the re module matches: isalnum or '_'. */
bool dpe_py_word(uint32_t point);
/** Value of a decimal digit as `\d` matches and int() reads it, −1 for other characters. */
int dpe_py_digit(uint32_t point);

/** str.strip() */
struct dpe_span dpe_py_strip(struct dpe_span text);
/** The next of str.split(): false when none is left. *rest starts as the text. */
bool dpe_py_split(struct dpe_span *rest, struct dpe_span *word);
/** What str.lower(), upper(), title() and capitalize() make of a text. */
enum dpe_py_letters { DPE_PY_LOWER, DPE_PY_UPPER, DPE_PY_TITLE, DPE_PY_CAPITAL };
/** Append it. DPE_NO_MEMORY. */
dpe_status dpe_py_case(struct dpe_span text, enum dpe_py_letters letters, struct dpe_text *out);
/** Bytes of the line's end at s as str.splitlines() has it, 0 for other characters. */
size_t dpe_py_line_end(const char *s, const char *end);
/** Whether repr() writes the character as it is. */
bool dpe_py_printable(uint32_t point);
enum { DPE_PY_REAL = 64 };
/** repr() of a float: the fewest digits that read back, with a point or an exponent. In `text`, or
 * a constant. */
const char *dpe_py_real(double real, char text[DPE_PY_REAL]);

/** Offset of the first `part` in `text`, SIZE_MAX when it is not there; an empty part is at 0.
 * O(text + part). */
size_t dpe_span_find(struct dpe_span text, struct dpe_span part);
bool dpe_span_equal(struct dpe_span a, struct dpe_span b);
bool dpe_span_starts(struct dpe_span text, struct dpe_span with);
struct dpe_span dpe_span_of(const char *text);
struct dpe_span dpe_span_of_text(const struct dpe_text *text);

/* ------------------------------------------------------------------ tables (case_tables.c) */

/** Digits that are no decimals. */
extern const struct dpe_unicode_class dpe_case_other_digits;
/** The rest is what engine/text says, but for characters that are newer than Python's tables,
 * and with characters of other categories that are small or capital. */
extern const struct dpe_unicode_class dpe_case_new, dpe_case_other_small, dpe_case_other_capital;
/** What the final sigma looks past. */
extern const struct dpe_unicode_class dpe_case_ignorable;

#endif
