/**
 * @file json_scan.h
 * JSON read member by member without building a tree (inside the engine, and the JSON lines of
 * eval/): the headers of safetensors files and their index may be 100 MB of strangers' text, of
 * which a tree takes ten times its size and, written to that end, a hundred times.
 *
 * The text is UTF-8 (checked by the caller) and is changed: strings are decoded where they stand
 * and end in NUL. The first problem sticks; then everything returns false.
 */
#ifndef DPE_JSON_SCAN_H
#define DPE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dpe_json_scan {
    char *text;
    size_t n, at;
    const char *problem; /**< NULL until something fails; then "expected …", at byte `at` */
    bool python; /**< also take what Python writes and reads: NaN, Infinity, -Infinity, and lone
                      surrogates, which become three bytes as if they were characters */
};

/** A decoded string inside the scanned text, NUL-terminated; n counts its bytes, which may hold
 *  NUL. */
struct dpe_json_scan_text {
    const char *bytes;
    size_t n;
};

/** Take the opening c ('{' or '['). */
bool dpe_json_scan_open(struct dpe_json_scan *scan, char c);
/** After an opening '{': true with the next key (its ':' is taken), false at the '}' (taken) or on
 *  a problem. *first starts as true. */
bool dpe_json_scan_key(struct dpe_json_scan *scan, bool *first, struct dpe_json_scan_text *key);
/** After an opening '[': true when an element follows, false at the ']' (taken) or on a problem. */
bool dpe_json_scan_element(struct dpe_json_scan *scan, bool *first);
bool dpe_json_scan_string(struct dpe_json_scan *scan, struct dpe_json_scan_text *text);
/** An integer from 0 to 2^64 − 1, written without sign, point or exponent. */
bool dpe_json_scan_unsigned(struct dpe_json_scan *scan, uint64_t *number);
/** Any value, checked and passed over; at most 128 levels deep. */
bool dpe_json_scan_skip(struct dpe_json_scan *scan);
/** Nothing but white space is left. */
bool dpe_json_scan_end(struct dpe_json_scan *scan);

#endif
