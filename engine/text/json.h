/**
 * @file json.h
 * The JSON of strangers.
 */
#ifndef DPE_JSON_H
#define DPE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/base.h"

/* Reading JSON files of strangers (inside the engine, and templates and JSON lines of eval/).
 * Parsing is jansson's with duplicate keys refused, UTF-8 checked first so that the offset is known
 * (and the first call gives jansson an allocator over malloc that notices failures), integers
 * beyond int64 ("no limit" in files of transformers) read as real numbers, and members read
 * through a reader whose first failure sticks, so that a list of reads is checked once at its end.
 */

/** Parse n bytes as one JSON object. `where` names the file in messages. *value is a new reference
 *  (json_decref). Errors: DPE_BAD_DATA with byte offset or line and column, also when a nesting of
 *  2048 is exceeded; DPE_NO_MEMORY. What Python's json reads beside JSON is read: an integer beyond
 *  int64 is a real number in *value; NaN, Infinity and a real number beyond a double's range are a
 *  string of the same text, so that who wants a number refuses it by name. */
dpe_status dpe_json_parse(const char *where, const char *bytes, size_t n, json_t **value,
                          struct dpe_error *err);
/** The same where values are handed on (templates, scores): a number that jansson cannot hold is
 * read as well, as a string of a kind of its own, which the two functions below tell apart. */
dpe_status dpe_json_parse_exact(const char *where, const char *bytes, size_t n, json_t **value,
                                struct dpe_error *err);
/** The text of such a number, borrowed; NULL: the value is none. */
const char *dpe_json_number_text(const json_t *value);
/** Whether it is a string, and no such number. */
bool dpe_json_is_text(const json_t *value);
/** The object in a file of at most 256 MiB, as dpe_json_parse; *value NULL where there is no such
 * file. */
dpe_status dpe_json_read(const char *path, json_t **value, struct dpe_error *err);
/** Put `text` (n bytes, any content) into `out` fit for a message: control characters become '?',
 *  long texts are cut at a character and end in "...". Returns out. */
const char *dpe_json_quote(char out[96], const char *text, size_t n);

/** Whether a member says no more than its absence: NULL, null, false, 0, "", [] or {}. */
bool dpe_json_is_nothing(const json_t *value);

/** Reads typed members; after the first failure every read returns its fallback and changes
 *  nothing. Messages have file, key, expected, found. */
struct dpe_json_reader {
    const char *file;
    const char *object; /**< prefix of keys in messages, "" or "rope_scaling." */
    json_t *from;       /**< the object read from; NULL reads as an object without members */
    struct dpe_error *err;
    dpe_status status; /**< DPE_OK until a read fails */
};

/** The member, NULL when absent or null. */
json_t *dpe_json_member(const struct dpe_json_reader *reader, const char *key);
/** An integer in min…max; `fallback` when absent or null; a fallback < min makes it required. */
int64_t dpe_json_integer(struct dpe_json_reader *reader, const char *key, int64_t min, int64_t max,
                         int64_t fallback);
/** A finite number (integer or real) > min, or ≥ min when `or_equal`, and ≤ max unless that is 0;
 *  `fallback` when absent or null; required when `required`. */
struct dpe_json_bound {
    double min;
    bool or_equal, required;
    double max; /**< 0: any */
};
double dpe_json_number(struct dpe_json_reader *reader, const char *key, struct dpe_json_bound bound,
                       double fallback);
bool dpe_json_bool(struct dpe_json_reader *reader, const char *key, bool fallback);
/** A string without NUL, borrowed from the JSON value; `fallback` (may be NULL) when absent. */
const char *dpe_json_string(struct dpe_json_reader *reader, const char *key, const char *fallback);
/** An object, NULL when absent or null. */
json_t *dpe_json_object(struct dpe_json_reader *reader, const char *key);
/** Record "file: key: expected WHAT, found VALUE" unless something failed before. */
void dpe_json_expected(struct dpe_json_reader *reader, const char *key, const char *what);

#endif
