/**
 * @file json_line.h
 * JSON lines that dpe-eval writes, through jansson. No library.
 */
#ifndef DPE_JSON_LINE_H
#define DPE_JSON_LINE_H

#include "engine/base/base.h"

#include <jansson.h>

/** Append an object (of json_pack) and a newline. Takes `line` over. DPE_BAD_DATA when it is NULL:
 *  a text was not UTF-8, a value was NULL, or memory ran out. DPE_NO_MEMORY. */
dpe_status dpe_json_line(struct dpe_text *out, json_t *line, struct dpe_error *err);

#endif
