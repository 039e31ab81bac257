/**
 * @file detect_table_internal.h
 * Parts of a detection's table that have files of their own.
 */
#ifndef DPE_DETECT_TABLE_INTERNAL_H
#define DPE_DETECT_TABLE_INTERNAL_H

#include "detect/sweep/detect.h"
#include "engine/base/base.h"
#include "outputs/h5/h5.h"

/** The rule that selected the lengths, what it selected, and every comparison it made: /select. */
dpe_status dpe_detect_put_selection(const struct dpe_detect_report *report, struct dpe_h5 *table,
                                    struct dpe_error *err);
/** What a race dropped, when and on what grounds: /race. */
dpe_status dpe_detect_put_race(const struct dpe_detect_report *report, struct dpe_h5 *table,
                               struct dpe_error *err);

#endif
