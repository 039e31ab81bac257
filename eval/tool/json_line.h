/**
 * @file json_line.h
 * Pieces of a JSON line that dpe-eval writes. No library.
 */
#ifndef DPE_JSON_LINE_H
#define DPE_JSON_LINE_H

#include "engine/base/base.h"

/** Append a C string as it is. */
dpe_status json_line_append(struct dpe_text *out, const char *text, struct dpe_error *err);
/** Append n bytes of UTF-8 as a JSON string. */
dpe_status json_line_string(struct dpe_text *out, const char *text, size_t n,
                            struct dpe_error *err);

#endif
