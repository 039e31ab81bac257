/**
 * @file report_page.h
 * One page of result tables: what dpe-report does.
 */
#ifndef DPE_REPORT_PAGE_H
#define DPE_REPORT_PAGE_H

#include "engine/base/base.h"

enum { DPE_REPORT_MOST_INPUTS = 256 };

/** What is asked for: the command line of dpe-report. */
struct dpe_report_arguments {
    const char *inputs[DPE_REPORT_MOST_INPUTS]; /**< [n] result tables */
    size_t n;
    const char *output, *figures,
        *title;   /**< the page; a folder for figures, or NULL; NULL: a title of its own */
    double top_k; /**< key pairs to mark: count, or minus a share; 0: the table's */
    const char
        *runtimes;  /**< what other runtimes compute from: a folder, config.json or GGUF file */
    int64_t length; /**< of the text that they read; 0: the model's longest */
    bool no_figures, mixed, force, quiet, unchecked;
};

/** Read the tables and write page and figures. DPE_MISMATCH: tables of several models, or the
 * output is no report; errors of reading and writing. */
dpe_status dpe_report_write(const struct dpe_report_arguments *args, struct dpe_error *err);

#endif
