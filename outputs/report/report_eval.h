/**
 * @file report_eval.h
 * One suite of a comparison as dpe-report reads it; shared by the files that write about one.
 */
#ifndef DPE_REPORT_EVAL_H
#define DPE_REPORT_EVAL_H

#include "outputs/datasets/worth.h"
#include "outputs/report/report_parts.h"

struct dpe_report_suite {
    const struct dpe_report_input *input;
    const char *name;        /**< "niah" */
    const char *has;         /**< the dataset that makes it one, "/eval/niah/mean" */
    const char *title;       /**< "RULER" of ruler; the name when the table has none */
    const char *unit;        /**< "recall (share of needles found)": what a value is, on axes */
    const char *measure;     /**< its first words alone: "recall" */
    const char *explanation; /**< what it measures */
    const struct dpe_suite_result *r;
    size_t n_methods, n_tasks, n_positions, n_categories, n_category_lengths; /**< as in r->n */
    size_t against;     /**< the method that differences are relative to */
    int64_t together;   /**< samples in a row that count as one */
    bool low_is_better; /**< a perplexity; else a share, shown in percent */
    bool single;        /**< all tasks have one label (they then differ in length alone) */
    double scale;       /**< what values are multiplied by: 100, or 1 */
    double longest;     /**< the longest length that has a value (of those in an unfinished run) */
};
/** The suites of an input, *n of them, read once. */
const struct dpe_report_suite *
dpe_comparison_suites(struct dpe_report *report, const struct dpe_report_input *input, size_t *n);
/** Index of the first task's label at a length, −1 = none. */
int64_t dpe_comparison_suite_task(const struct dpe_report_suite *suite, double length);
/** The value of a method at a task, as it is shown. */
struct dpe_sheet_cell dpe_comparison_suite_cell(const struct dpe_report_suite *suite, size_t method,
                                                size_t task);
/** How many methods are better at a task: of equal ones the earlier is, of one without a value all
 *  are. And the method of a rank. */
size_t dpe_comparison_suite_rank(const struct dpe_report_suite *suite, size_t method, size_t task);
size_t dpe_comparison_suite_ranked(const struct dpe_report_suite *suite, size_t rank, size_t task);
/** A set of enum dpe_sheet_mark for a value: the best of its task, one whose interval overlaps that
 * of the best, one of a table at a length beyond those that it was made for. */
unsigned dpe_comparison_suite_marks(struct dpe_report *report, const struct dpe_report_suite *suite,
                                    size_t method, size_t task);
/** Figures of one suite. */
void dpe_comparison_suite_figures(struct dpe_report *report, const struct dpe_report_suite *suite);
/** From now on it is what the report writes about. */
void dpe_comparison_suite_about(struct dpe_report *report, const struct dpe_report_suite *suite);
/** How its values are drawn: their axis, and the trained length as a line. */
struct dpe_plot dpe_comparison_suite_plot(const struct dpe_report_suite *suite,
                                          enum dpe_plot_kind kind);

#endif
