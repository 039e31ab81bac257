/**
 * @file export_tool.h
 * Shared by the files of an export.
 */
#ifndef DPE_EXPORT_TOOL_H
#define DPE_EXPORT_TOOL_H

#include <jansson.h>

#include "engine/base/base.h"
#include "engine/tool/tool.h"
#include "outputs/export/export.h"
#include "outputs/h5/rows.h"
#include "outputs/read/read.h"
#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

/** By the ending of a path ("config.json" is hf). */
enum dpe_export_format dpe_export_format_of_path(const char *path);

/** What was read: a checked table, where it came from, and the profile's scores. */
struct export_table {
    struct dpe_table *table;
    char selection[DPE_TABLE_SELECTION]; /**< that it was found under, "": none that is known */
    struct dpe_identity origin;          /**< what decides the table, for /identity */
    float *scores;                       /**< [score_dims], NULL without a profile */
    int64_t score_dims[5];
};
/** Read the input that the arguments name: a detection (with a profile), a table in any form, a
 *  YAML, or a method. */
dpe_status dpe_export_read(const struct dpe_export_arguments *args, struct export_table *table,
                           struct dpe_error *err);
void dpe_export_table_free(struct export_table *table);
/** A text of a file as the number of this type that it is in decimal digits; what is none stays the
 * text, which a reader of JSON refuses in place of a number. */
json_t *dpe_export_value(enum dpe_field_type type, json_t *text);
/** Write the HDF5 form, atomically. */
dpe_status dpe_export_write_h5(const struct export_table *table, const char *path,
                               struct dpe_error *err);

#endif
