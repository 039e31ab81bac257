/* InfiniteBench's rules, but for the F1 of words, in both sets. */
#include "eval/score/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/score/pytext.h"

/* Append `text` with each of the ASCII `characters` replaced by a space. */
static dpe_status put_spaced(struct dpe_span text, const char *characters, struct dpe_text *out)
{
    size_t from = out->n;
    DPE_TRY(dpe_text_append(out, text.s, text.n, NULL));
    for (size_t i = from; i < out->n; i++) {
        out->bytes[i] =
            out->bytes[i] != '\0' && strchr(characters, out->bytes[i]) ? ' ' : out->bytes[i];
    }
    return DPE_OK;
}

/* ------------------------------------------------------------------------ choice and debugging */

static bool among(struct dpe_span text, char *const *references, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (dpe_span_equal(text, dpe_span_of(references[i]))) {
            return true;
        }
    }
    return false;
}

/* The last letter A … `last` that is a word by itself, in the first line that has one, which is
 * what the regular expression of the looser set finds; '\0' if there is none. */
static char last_letter(struct dpe_span text, char last)
{
    const char *end = text.s + text.n;
    char found = '\0';
    bool word_before = false;
    size_t n = 0;
    for (const char *s = text.s; s < end; s += n) {
        uint32_t point = dpe_py_next(s, end, &n);
        if (point == '\n' && found != '\0') {
            break;
        }
        bool letter = point >= 'A' && point <= (uint32_t)last;
        if (letter && !word_before) {
            size_t next = 0;
            bool word_behind = s + n < end && dpe_py_word(dpe_py_next(s + n, end, &next));
            found = word_behind ? found : *s;
        }
        word_before = dpe_py_word(point);
    }
    return found;
}

/* Replace each run of spaces by one space, in place. */
static void collapse(struct dpe_text *text)
{
    size_t to = 0;
    for (size_t i = 0; i < text->n; i++) {
        if (text->bytes[i] != ' ' || to == 0 || text->bytes[to - 1] != ' ') {
            text->bytes[to++] = text->bytes[i];
        }
    }
    text->n = to;
    text->bytes[to] = '\0';
}

/* Whether one of the words follows the first prefix of the list that occurs, with one character
 * between them; −1 if no prefix occurs. */
static int after_prefix(const struct dpe_text *text, const char *const *prefixes,
                        char *const *words, size_t n)
{
    struct dpe_span all = dpe_span_of_text(text);
    for (; *prefixes != NULL; prefixes++) {
        size_t at = dpe_span_find(all, dpe_span_of(*prefixes));
        if (at == SIZE_MAX) {
            continue;
        }
        const char *s = text->bytes + at + strlen(*prefixes);
        const char *end = text->bytes + text->n;
        size_t skip = 0;
        if (s == end) {
            return 0;
        }
        dpe_py_next(s, end, &skip);
        for (size_t i = 0; i < n; i++) {
            struct dpe_span rest = {s + skip, (size_t)(end - s) - skip};
            if (dpe_span_starts(rest, dpe_span_of(words[i]))) {
                return 1;
            }
        }
        return 0;
    }
    return -1;
}

/* −1: out of memory. */
static int choice_behind(struct dpe_span text, char *const *references, size_t n)
{
    static const char *const prefixes[] = {"answer is:", "answer:", "answer is", "option is", NULL};
    DPE_SCOPED(dpe_text_free) struct dpe_text plain = {0};
    if (put_spaced(text, "\n\"'.,?!{}", &plain) != DPE_OK) {
        return -1;
    }
    collapse(&plain);
    int result = after_prefix(&plain, prefixes, references, n);
    struct dpe_span rest = dpe_span_of_text(&plain), word;
    while (result < 0 && dpe_py_split(&rest, &word)) {
        if (dpe_span_find(dpe_span_of("ABCD"), word) != SIZE_MAX) {
            result = among(word, references, n);
        }
    }
    return result < 0 ? 0 : result;
}

static double choice(struct dpe_span text, char *const *references, size_t n)
{
    if (text.n == 0) {
        return 0.0;
    }
    if (text.s[0] >= 'A' && text.s[0] <= 'D') {
        return among((struct dpe_span){text.s, 1}, references, n) ? 1.0 : 0.0;
    }
    if (among(text, references, n)) {
        return 1.0;
    }
    int result = choice_behind(text, references, n);
    return result < 0 ? (double)NAN : (double)result;
}

double dpe_score_choice(const char *prediction, char *const *references, size_t n)
{
    return choice(dpe_py_strip(dpe_span_of(prediction)), references, n);
}

double dpe_score_choice_string(const char *prediction, char *const *references, size_t n)
{
    struct dpe_span text = dpe_py_strip(dpe_span_of(prediction));
    char letter = last_letter(text, 'D');
    if (letter != '\0' && among((struct dpe_span){&letter, 1}, references, n)) {
        return 1.0;
    }
    return choice(text, references, n);
}

/* The prediction as the debugging rules search it: quotes, dashes, stars and "option" are spaces.
 */
static dpe_status debug_text(struct dpe_span text, struct dpe_text *out)
{
    DPE_TRY(put_spaced(text, "\n`'\"-*", out));
    for (size_t i = 0; i + 6 <= out->n; i++) {
        if (memcmp(out->bytes + i, "Option", 6) == 0 || memcmp(out->bytes + i, "option", 6) == 0) {
            memset(out->bytes + i, ' ', 6);
        }
    }
    collapse(out);
    return DPE_OK;
}

static double debug(struct dpe_span text, char *const *references, size_t n, bool loose)
{
    static const char *const prefixes[] = {
        "answer is:", "is:", "answer:", "correct option is:", NULL};
    if (n < 2) {
        return 0.0;
    }
    char *words[] = {references[1], references[0]};
    DPE_SCOPED(dpe_text_free) struct dpe_text plain = {0};
    if (debug_text(text, &plain) != DPE_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < 2 && loose; i++) {
        if (dpe_span_starts(dpe_span_of_text(&plain), dpe_span_of(words[i]))) {
            return 1.0;
        }
    }
    return after_prefix(&plain, prefixes, words, 2) > 0 ? 1.0 : 0.0;
}

/* Whether the first two characters are the label and a point or colon. */
static bool opens_with(struct dpe_span text, struct dpe_span label)
{
    size_t n = 0, size = 0;
    for (int i = 0; i < 2 && size < text.n; i++) {
        dpe_py_next(text.s + size, text.s + text.n, &n);
        size += n;
    }
    return size == label.n + 1 && dpe_span_starts(text, label) &&
           (text.s[label.n] == '.' || text.s[label.n] == ':');
}

double dpe_score_debug(const char *prediction, char *const *references, size_t n)
{
    struct dpe_span text = dpe_py_strip(dpe_span_of(prediction));
    return n >= 2 && opens_with(text, dpe_span_of(references[1]))
               ? 1.0
               : debug(text, references, n, false);
}

double dpe_score_debug_string(const char *prediction, char *const *references, size_t n)
{
    struct dpe_span text = dpe_py_strip(dpe_span_of(prediction));
    char letter = last_letter(text, 'J');
    if (n >= 2 && letter != '\0' &&
        dpe_span_equal((struct dpe_span){&letter, 1}, dpe_span_of(references[1]))) {
        return 1.0;
    }
    return debug(text, references, n, true);
}

/* ----------------------------------------------------------------------- retrieval and dialogue */

double dpe_score_integer(const char *prediction, char *const *references, size_t n)
{
    const char *start = prediction + strcspn(prediction, "0123456789");
    struct dpe_span first = {start, strspn(start, "0123456789")};
    return n > 0 && dpe_span_equal(first, dpe_span_of(references[0])) ? 1.0 : 0.0;
}

/* 1 where a word of the prediction, or its upper case, is the first reference. */
static double find_word(const char *prediction, char *const *references, size_t n, bool upper)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text own = {0};
    if (put_spaced(dpe_span_of(prediction), "\n:\"'.,?!{}", &text) != DPE_OK) {
        return (double)NAN;
    }
    struct dpe_span rest = dpe_span_of_text(&text), word;
    while (n > 0 && dpe_py_split(&rest, &word)) {
        own.n = 0;
        if (upper && dpe_py_case(word, DPE_PY_UPPER, &own) != DPE_OK) {
            return (double)NAN;
        }
        if (dpe_span_equal(upper ? dpe_span_of_text(&own) : word, dpe_span_of(references[0]))) {
            return 1.0;
        }
    }
    return 0.0;
}

double dpe_score_word(const char *prediction, char *const *references, size_t n)
{
    return find_word(prediction, references, n, false);
}

double dpe_score_dialogue(const char *prediction, char *const *references, size_t n)
{
    return find_word(prediction, references, n, true);
}

double dpe_score_dialogue_string(const char *prediction, char *const *references, size_t n)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text name = {0};
    if (dpe_py_case(dpe_py_strip(dpe_span_of(prediction)), DPE_PY_UPPER, &text) != DPE_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < n; i++) {
        name.n = 0;
        if (dpe_py_case(dpe_span_of(references[i]), DPE_PY_UPPER, &name) != DPE_OK) {
            return (double)NAN;
        }
        if (dpe_span_find(dpe_span_of_text(&text), dpe_span_of_text(&name)) != SIZE_MAX) {
            return 1.0;
        }
    }
    return 0.0;
}

/* ------------------------------------------------------------------------------------- numbers */

/* Put the decimal digits at s as ASCII; returns what follows them. */
static const char *put_digits(const char *s, const char *end, struct dpe_text *out)
{
    size_t n = 0;
    for (int digit; s < end && (digit = dpe_py_digit(dpe_py_next(s, end, &n))) >= 0; s += n) {
        dpe_text_put_bytes(out, &"0123456789"[digit], 1);
    }
    return s;
}

/* The first number of the text, digits of any script, perhaps with a point and more digits. */
static void put_number(struct dpe_span text, struct dpe_text *out)
{
    const char *s = text.s;
    const char *end = s + text.n;
    size_t n = 0;
    while (s < end && dpe_py_digit(dpe_py_next(s, end, &n)) < 0) {
        s += n;
    }
    s = put_digits(s, end, out);
    if (out->n > 0 && s + 1 < end && *s == '.' && dpe_py_digit(dpe_py_next(s + 1, end, &n)) >= 0) {
        dpe_text_put_bytes(out, ".", 1);
        put_digits(s + 1, end, out);
    }
}

/* Whether two whole numbers, the first without a sign, are equal. */
static bool same_integer(const char *a, const char *b)
{
    bool negative = *b == '-';
    b += negative;
    a += strspn(a, "0");
    b += strspn(b, "0");
    return strcmp(a, b) == 0 && (!negative || *a == '\0');
}

/* int(float(a)) == b; more than a double can hold is no match. */
static bool same_truncated(const char *a, const char *b)
{
    double value = trunc(strtod(a, NULL));
    if (!isfinite(value)) {
        return false;
    }
    char digits[400];
    snprintf(digits, sizeof digits, "%.0f", value);
    return same_integer(digits, b);
}

static double number(const char *prediction, char *const *references, size_t n, bool truncate)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    put_number(dpe_span_of(prediction), &text);
    if (text.failed) {
        return (double)NAN;
    }
    if (text.n == 0 || n == 0) {
        return 0.0;
    }
    bool real = references[0][strspn(references[0], "-0123456789")] != '\0';
    /* int() of a text with a point stops the official script; here it is no match. */
    bool same = real ? strtod(text.bytes, NULL) == strtod(references[0], NULL)
                : truncate
                    ? same_truncated(text.bytes, references[0])
                    : strchr(text.bytes, '.') == NULL && same_integer(text.bytes, references[0]);
    return same ? 1.0 : 0.0;
}

double dpe_score_number(const char *prediction, char *const *references, size_t n)
{
    return number(prediction, references, n, false);
}

double dpe_score_number_string(const char *prediction, char *const *references, size_t n)
{
    return number(prediction, references, n, true);
}
