/**
 * @file jsonl.h
 * Files with one JSON object a line, read with checks: predictions and official benchmark data.
 * Used inside eval/ only.
 *
 * A file is opened once (where its lines are is noted, a line is read on request), so a
 * file may be larger than memory. Lines of white space are passed over. A line has at most 64 MiB.
 */
#ifndef DPE_JSONL_H
#define DPE_JSONL_H

#include <jansson.h>

#include "engine/base/base.h"
#include "eval/score/pytext.h"

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
/** Line i as an object, a new reference, read as dpe_json_parse_exact does; in a text U+0000 is
 *  U+0001, so that all are C strings, and half of a surrogate pair is U+FFFD. Thread-safe. Errors
 *  name file and line: DPE_BAD_DATA (not UTF-8, not an object, a key twice, longer than the
 *  limit), DPE_IO (the file changed), DPE_NO_MEMORY. */
dpe_status dpe_jsonl_read(const struct dpe_jsonl *jsonl, int64_t i, json_t **object,
                          struct dpe_error *err);

bool dpe_jsonl_is_number(const json_t *value);
/** Whether it is a string or a number. */
bool dpe_jsonl_has_text(const json_t *value);
enum { DPE_JSONL_NUMBER = DPE_PY_REAL };
/** A string's text, borrowed, or a number's as Python writes it, in `number`; "" of anything else.
 */
const char *dpe_jsonl_text(const json_t *value, char number[DPE_JSONL_NUMBER]);
/** "a string", "a list", … for messages; of NULL "nothing". */
const char *dpe_jsonl_kind(const json_t *value);
/** Entries of a list, 1 of any other value, which is its own entry. */
size_t dpe_jsonl_entries(const json_t *value);
const json_t *dpe_jsonl_entry(const json_t *value, size_t i);

/** Append a JSON value and a newline. Takes `line` over, also after a failure; NULL (jansson could
 *  not make it) is DPE_BAD_DATA. */
dpe_status dpe_jsonl_append(struct dpe_text *out, json_t *line, struct dpe_error *err);

#endif
