/**
 * @file detect_table.h
 * What a sweep found, as groups of an HDF5 table.
 */
#ifndef DPE_DETECT_TABLE_H
#define DPE_DETECT_TABLE_H

#include "detect/report/report.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"

/** What the sweep found of one task; all is borrowed. */
void dpe_detect_cells_of(const struct dpe_detect_report *report,
                         const struct dpe_detect_result *result, struct dpe_scores_result *scores,
                         struct dpe_ranking_result *ranking);
/** What its validation found, and what that borrows besides the report's. */
struct dpe_detect_validated {
    struct dpe_scores_result scores;
    const char *plan[DPE_DETECT_MOST_VALIDATED], *verdict[DPE_DETECT_MOST_VALIDATED];
    double mean[DPE_DETECT_MOST_VALIDATED], low[DPE_DETECT_MOST_VALIDATED],
        high[DPE_DETECT_MOST_VALIDATED];
    int64_t n_valid[DPE_DETECT_MOST_VALIDATED];
};
void dpe_detect_validated_of(const struct dpe_detect_report *report,
                             const struct dpe_detect_result *result,
                             struct dpe_detect_validated *validated);
/** What the search tried, tried [search.n]. */
void dpe_detect_tried_of(const struct dpe_detect_report *report, struct dpe_searched_plan *tried);
/** "better", "not distinguishable", "worse", "unknown". */
const char *dpe_detect_verdict_text(enum dpe_detect_verdict verdict);
/** Write the report's groups (outputs/SCHEMA.md, "Detection") into a table open for writing;
 *  /table only when `complete`. */
dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err);

#endif
