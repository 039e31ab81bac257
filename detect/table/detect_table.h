/**
 * @file detect_table.h
 * What a sweep found, as groups of an HDF5 table.
 */
#ifndef DPE_DETECT_TABLE_H
#define DPE_DETECT_TABLE_H

#include "detect/report/report.h"
#include "outputs/h5/h5.h"

/** Write the report's groups (outputs/SCHEMA.md, "Detection") into a table open for writing;
 *  /table only when `complete`. */
dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err);

#endif
