/**
 * @file report_detect.h
 * A detection as dpe-report reads it; shared by the files that write about one.
 */
#ifndef DPE_REPORT_DETECT_H
#define DPE_REPORT_DETECT_H

#include "engine/base/base.h"
#include "outputs/datasets/kinds.h"
#include "outputs/h5/rows.h"
#include "outputs/report/report_parts.h"

/** The dataset that makes an input a detection. */
#define DETECTION "/detect/effective_length"

struct dpe_report_detection {
    const struct dpe_report_input *input;
    int64_t n_groups, n_lengths;
    const struct dpe_ranking_result *ranking;            /**< by the task that decides */
    const struct dpe_scores_result *recall, *perplexity; /**< means and intervals; NULL in them: not
                                                            there */
    const struct dpe_ranking_result
        *by_perplexity; /**< where needles decide; rank NULL: not there */
    /** effective_length [group]: by the rule of /select; NULL: those of rank 1 */
    const struct dpe_table_part *table;
    const char *rule, *rule_words;
    bool by_recall;   /**< needles decide */
    bool frequencies; /**< the scales divide frequencies, not far positions */
};
/** The subject, read once; NULL after a failure. */
const struct dpe_report_detection *dpe_detection_of(struct dpe_report *report);
/** Tokens: the length it is for, and the trained one (0 = unknown). */
double dpe_detection_length(const struct dpe_report_detection *detection);
double dpe_detection_trained(const struct dpe_report_detection *detection);
/** Methods that are ready were compared: no length was detected. */
bool dpe_detection_is_ready(const struct dpe_report_detection *detection);
/** The map of the needles found. */
void dpe_detection_recall_map(struct dpe_report *report,
                              const struct dpe_report_detection *detection);
/** The steps of the search for temperature and joint plan: what each tried and took. */
void dpe_detection_search(struct dpe_report *report, const struct dpe_report_detection *detection);

#endif
