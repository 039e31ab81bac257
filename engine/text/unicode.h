/**
 * @file unicode.h
 * Character classes as the reference tokenizer has them, and UTF-8 by the code point. Internal to
 * the engine's tokenizer. utf8proc has the categories; where the reference has others is in
 * unicode_tables.h, made by unicode_tables.py.
 */
#ifndef DPE_UNICODE_H
#define DPE_UNICODE_H

#include "engine/base/base.h"

/** A set of code points: those of the general categories (bit 1 << utf8proc_category_t) as the
 * reference's regular expressions have them (Unicode 16), and `n` inclusive ranges, ascending,
 * neither overlapping nor touching. */
struct dpe_unicode_class {
    const uint32_t (*ranges)[2];
    size_t n;
    uint32_t categories;
};

extern const struct dpe_unicode_class dpe_unicode_L, dpe_unicode_Lu, dpe_unicode_Ll, dpe_unicode_Lt,
    dpe_unicode_Lm, dpe_unicode_Lo, dpe_unicode_M, dpe_unicode_N, dpe_unicode_Nd, dpe_unicode_P,
    dpe_unicode_S;
/** \s, which is also what lstrip and rstrip of added tokens take. */
extern const struct dpe_unicode_class dpe_unicode_space;
/** What the Digits pre-tokenizer isolates. */
extern const struct dpe_unicode_class dpe_unicode_numeric;
/** What may not stand beside a single_word added token. */
extern const struct dpe_unicode_class dpe_unicode_word;
/** Characters without a combining class that NFC may join to the one before. */
extern const struct dpe_unicode_class dpe_unicode_nfc_second;
/** Characters that a later Unicode than that of the reference's normaliser changes, moves or joins.
 */
extern const struct dpe_unicode_class dpe_unicode_nfc_unknown;

/** Whether `point` is in the class; O(log n). */
bool dpe_unicode_has(const struct dpe_unicode_class *set, uint32_t point);
/** Whether str.isspace of Python takes it: \s and four control characters. */
bool dpe_unicode_blank(uint32_t point);
/** The next range of a class that has either categories or ranges, ascending: *at is 0 before the
 * first. False: there is none. */
bool dpe_unicode_range(const struct dpe_unicode_class *set, size_t *at, uint32_t range[2]);
/** The class that \p{name} means, NULL when it is not known here. */
const struct dpe_unicode_class *dpe_unicode_category(const char *name, size_t n);

/** The value of a hexadecimal digit, −1 for another character. */
int dpe_hex_digit(char c);
/** Code point at s, which must be valid UTF-8; *n is its length in bytes. */
uint32_t dpe_utf8_next(const char *s, size_t *n);
/** Start of the character that ends before s; s must stand after a character of valid UTF-8. */
const char *dpe_utf8_before(const char *s);
/** Length of the UTF-8 form of `point` written to `out`. */
size_t dpe_utf8_put(uint32_t point, char out[4]);
/** Append n bytes to `out`, each maximal subpart that is not UTF-8 replaced by U+FFFD. */
dpe_status dpe_utf8_repair(const char *bytes, size_t n, struct dpe_text *out,
                           struct dpe_error *err);

#endif
