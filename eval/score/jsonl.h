/**
 * @file jsonl.h
 * Files with one JSON object a line, read with checks: predictions and official benchmark data.
 * Used inside eval/ only.
 *
 * A file is opened once (where its lines are is noted, a line is read on request), so a
 * file may be larger than memory. Lines of white space are passed over. What a line holds is read
 * member by member without a tree: only the requested fields are kept, the rest is
 * checked and skipped. Limits: a line has at most 256 MiB, nesting at most 128 levels.
 */
#ifndef DPE_JSONL_H
#define DPE_JSONL_H

#include <jansson.h>

#include "engine/base/base.h"

struct dpe_jsonl;

/** Note the lines of a regular file. Errors: DPE_NO_INPUT, DPE_PERMISSION, DPE_IO, DPE_NO_MEMORY.
 */
dpe_status dpe_jsonl_open(const char *path, struct dpe_jsonl **jsonl, struct dpe_error *err);
void dpe_jsonl_close(struct dpe_jsonl *jsonl);
DPE_SCOPED_HANDLE(struct dpe_jsonl *, dpe_jsonl_close)
/** Lines that are not blank. */
int64_t dpe_jsonl_size(const struct dpe_jsonl *jsonl);
/** 1-based number in the file of line i (0 ≤ i < size). */
int64_t dpe_jsonl_number(const struct dpe_jsonl *jsonl, int64_t i);
const char *dpe_jsonl_path(const struct dpe_jsonl *jsonl);
/** Line i without its line end into `text`, which is reused. Thread-safe. Errors: DPE_BAD_DATA
 *  (longer than the limit; file and line named), DPE_IO (the file changed), DPE_NO_MEMORY. */
dpe_status dpe_jsonl_read(const struct dpe_jsonl *jsonl, int64_t i, struct dpe_text *text,
                          struct dpe_error *err);

enum dpe_json_kind {
    DPE_JSON_ABSENT,
    DPE_JSON_STRING,
    DPE_JSON_INTEGER, /**< a number without point and exponent */
    DPE_JSON_REAL,
    DPE_JSON_BOOL,
    DPE_JSON_NULL,
    DPE_JSON_OBJECT,
    DPE_JSON_LIST,
};

/** A string (decoded), or a number as it is written; NUL-terminated, borrowed from the line. A NUL
 *  inside a string stands there as U+0001, so that texts are C strings. */
struct dpe_json_item {
    enum dpe_json_kind kind;
    char *text; /**< "" for other kinds */
};

/** A requested field. Zero-initialise but for the name; reused from line to line. */
struct dpe_json_field {
    const char *name;
    struct dpe_json_item value; /**< kind LIST: see items */
    struct dpe_json_item *items;
    size_t n;
};
/** Their names stay. */
void dpe_json_fields_free(struct dpe_json_field *fields, size_t n);
/** "a string", "a list", … for messages. */
const char *dpe_json_kind_name(enum dpe_json_kind kind);

/** Why a line is not what was expected. */
enum dpe_jsonl_problem {
    DPE_JSONL_GOOD,
    DPE_JSONL_NO_OBJECT, /**< not JSON, not UTF-8, or JSON but no object */
    DPE_JSONL_TWICE,     /**< a requested field is given twice */
};
/** Read an object of n bytes at `line` (changed; line[n] must be '\0') into the fields. Python's
 *  additions to JSON are taken (NaN, lone surrogates). Returns DPE_BAD_DATA with *problem set and a
 *  message without file and line, or DPE_NO_MEMORY. */
dpe_status dpe_jsonl_object(char *line, size_t n, struct dpe_json_field *fields, size_t n_fields,
                            enum dpe_jsonl_problem *problem, struct dpe_error *err);

/** Append a JSON value and a newline. Takes `line` over, also after a failure; NULL (jansson could
 *  not make it) is DPE_BAD_DATA. */
dpe_status dpe_jsonl_append(struct dpe_text *out, json_t *line, struct dpe_error *err);

#endif
