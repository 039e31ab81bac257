/**
 * @file detect_table_internal.h
 * Parts of a detection's table that have files of their own. They write into a table
 * that remembers its first failure (outputs/h5/h5.h).
 */
#ifndef DPE_DETECT_TABLE_INTERNAL_H
#define DPE_DETECT_TABLE_INTERNAL_H

#include "detect/report/report.h"
#include "detect/report/view.h"
#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

/** The rule that selected the lengths, what it selected, and every comparison it made: /select. */
void dpe_detect_put_selection(struct dpe_h5 *table, const struct dpe_detect_report *report);
/** What a search tried and took: /search; nothing without one. */
void dpe_detect_put_search(struct dpe_h5 *table, const struct dpe_detect_report *report);
/** What a race dropped, when and on what grounds: /race. */
void dpe_detect_put_race(struct dpe_h5 *table, const struct dpe_detect_report *report);
/** Words as an attribute, unless there are none; frees them. */
void dpe_detect_put_words(struct dpe_h5 *table, const char *folder, const char *name,
                          struct dpe_text *words);

#endif
