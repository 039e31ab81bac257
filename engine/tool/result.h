/**
 * @file result.h
 * A tool's result for scripts: one JSON document or one CSV table on standard output, in place of
 * the text for people. A result has fields, and lists of rows with fields of their own; numbers
 * that are not finite are null (JSON) or empty (CSV).
 */
#ifndef DPE_TOOL_RESULT_H
#define DPE_TOOL_RESULT_H

#include "engine/base/base.h"
#include "engine/tool/command_line.h"

/** How a result is printed. */
enum dpe_result_format { DPE_RESULT_TEXT, DPE_RESULT_JSON, DPE_RESULT_CSV };
/** Options for `children` with the input enum dpe_result_format: --json, and --json and --csv. */
extern const struct dpe_option_set dpe_result_json_option_set, dpe_result_option_set;

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
/** Print and free. CSV is the first list that was begun: its header is the fields of its first row,
 *  which all rows have. Without a list it is one row, the fields of the result. DPE_NO_MEMORY. */
dpe_status dpe_result_print(struct dpe_result *result, enum dpe_result_format format,
                            struct dpe_error *err);
/** Free without printing, after a failure. */
void dpe_result_free(struct dpe_result *result);

#endif
