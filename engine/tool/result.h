/**
 * @file result.h
 * A tool's result for scripts: one JSON document on standard output, in place of the text for
 * people. A result has fields, and lists of rows with fields of their own; numbers that are not
 * finite are null.
 */
#ifndef DPE_TOOL_RESULT_H
#define DPE_TOOL_RESULT_H

#include "engine/base/base.h"
#include "engine/tool/command_line.h"

/** Options for `children` with the input bool: --json. */
extern const struct dpe_option_set dpe_result_option_set;

/** A result that is being made. Failures for lack of memory are reported by dpe_result_print. */
struct dpe_result;
/** Begin with the field "tool" and the version of the program. Free by dpe_result_print. */
struct dpe_result *dpe_result_begin(const char *tool);
/** Fields of the result, or of the row that was begun last. A NULL text is null; bytes that are not
 *  UTF-8 are written as \xHH. */
void dpe_result_text(struct dpe_result *result, const char *name, const char *value);
void dpe_result_flag(struct dpe_result *result, const char *name, bool value);
void dpe_result_whole(struct dpe_result *result, const char *name, int64_t value);
void dpe_result_number(struct dpe_result *result, const char *name, double value);
/** Lists of n numbers. */
void dpe_result_wholes(struct dpe_result *result, const char *name, const int64_t *values,
                       size_t n);
void dpe_result_numbers(struct dpe_result *result, const char *name, const double *values,
                        size_t n);
/** Begin a row of the list `name`; what is added next are its fields. NULL: fields of the result
 * again. */
void dpe_result_row(struct dpe_result *result, const char *name);
/** Print and free. DPE_NO_MEMORY. */
dpe_status dpe_result_print(struct dpe_result *result, struct dpe_error *err);
/** Free without printing, after a failure. */
void dpe_result_free(struct dpe_result *result);

#endif
