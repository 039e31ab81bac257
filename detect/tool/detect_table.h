/**
 * @file detect_table.h
 * What a sweep found, as groups of an HDF5 table.
 */
#ifndef DPE_DETECT_TABLE_H
#define DPE_DETECT_TABLE_H

#include "detect/tool/report.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/h5.h"
#include "outputs/words/words.h"

/** Set what the sweep found of one task as it is told. */
void dpe_detect_tell_cells(const struct dpe_detect_report *report,
                           struct dpe_detect_result *result);
/** A report as outputs/words tells it; what is not here is the report's. */
struct dpe_detect_told {
    struct dpe_detect_words words;
    struct dpe_search_result search;
    struct dpe_searched_plan tried[DPE_DETECT_MOST_TRIED]; /**< its plans */
    struct dpe_detect_validated {
        struct dpe_scores_result scores;
        const char *plan[DPE_DETECT_MOST_VALIDATED], *verdict[DPE_DETECT_MOST_VALIDATED];
        double mean[DPE_DETECT_MOST_VALIDATED], low[DPE_DETECT_MOST_VALIDATED],
            high[DPE_DETECT_MOST_VALIDATED];
        int64_t n_valid[DPE_DETECT_MOST_VALIDATED];
        int64_t short_length[2];
        struct dpe_interval shorter[2];
    } validated[DPE_DETECT_RESULTS]; /**< of a result that is not validated: nothing */
};
void dpe_detect_tell(const struct dpe_detect_report *report, struct dpe_detect_told *told);
/** Write the report's groups (outputs/SCHEMA.md, "Detection") into a table open for writing;
 *  /table only when `complete`. */
dpe_status dpe_detect_write(const struct dpe_detect_report *report, bool complete,
                            struct dpe_h5 *table, struct dpe_error *err);

#endif
