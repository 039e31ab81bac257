/**
 * @file report_eval.h
 * One suite of a comparison as dpe-report reads it; shared by the files that write about one.
 */
#ifndef DPE_REPORT_EVAL_H
#define DPE_REPORT_EVAL_H

#include "engine/base/base.h"
#include "outputs/datasets/worth.h"
#include "outputs/report/input/input.h"

struct suite {
    const struct input *input;
    char *name;                       /**< "niah" */
    char *has;                        /**< the dataset that makes it one, "/eval/niah/mean" */
    char *title, *unit, *explanation; /**< "Needles", "recall …", what it measures; NULL: the table
                                           does not have it */
    struct dpe_suite_result r;
    size_t n_methods, n_tasks, n_positions, n_categories, n_category_lengths; /**< as in r.n */
    size_t against;                       /**< the method that differences are relative to */
    int64_t together;                     /**< samples in a row that count as one */
    bool low_is_better;                   /**< a perplexity; else a share, shown in percent */
    double scale;                         /**< what values are multiplied by: 100, or 1 */
};
dpe_status dpe_comparison_suite_read(const struct input *input, const char *name,
                                     struct suite *suite, struct dpe_error *err);
void dpe_comparison_suite_free(struct suite *suite);

/** Index of the task with that label at that length, −1 = none. */
int64_t dpe_comparison_suite_task(const struct suite *suite, const char *label, double length);
/** How many methods are better at a task: of equal ones the earlier is, of one without a value all
 *  are. And the method of a rank. */
size_t dpe_comparison_suite_rank(const struct suite *suite, size_t method, size_t task);
size_t dpe_comparison_suite_ranked(const struct suite *suite, size_t rank, size_t task);
/** Whether all tasks have one label (they then differ in length alone). */
bool dpe_comparison_suite_is_single(const struct suite *suite);
/** The longest length that has a value (of those in an unfinished run). */
double dpe_comparison_suite_longest(const struct suite *suite);
/** "recall" … what a value is, on axes and in headings. */
const char *dpe_comparison_suite_unit(const struct suite *suite);
/** Its first words alone: "recall" of "recall (share of needles found)". */
void dpe_comparison_suite_measure(const struct suite *suite, char *text, size_t size);

/** "RULER" of ruler; the suite's name when the table has no title. */
const char *dpe_comparison_suite_title(const struct suite *suite);
/** A set of enum sheet_mark for a value: the best of its task, one whose interval overlaps that of the
 *  best, one of a table at a length beyond those that it was made for. */
unsigned dpe_comparison_suite_marks(const struct report *report, const struct suite *suite,
                                    size_t method, size_t task);
/** The head of the page: what the table is worth in a few sentences, how it is used, and a figure;
 *  nothing when no input compares a table. */
dpe_status dpe_comparison_headline(struct report *report, struct dpe_error *err);

/** Figures and tables of one suite. */
void dpe_comparison_suite_figures(struct report *report, const struct suite *suite);
/** Its values over the seconds and over the memory of a sample, where the table has them and more than
 *  one method. */
dpe_status dpe_comparison_suite_cost(struct report *report, const struct suite *suite,
                                     struct dpe_error *err);
/** From now on it is what the report writes about. */
void dpe_comparison_suite_about(struct report *report, const struct suite *suite);
/** How its values are drawn: their axis, and the trained length as a line. */
struct plot dpe_comparison_suite_plot(const struct suite *suite, enum plot_kind kind);
/** Call `write` for every suite of an input. It may take what is in the suite over and leave zeros.
 */
typedef dpe_status (*dpe_suite_writer)(void *user, struct suite *suite, struct dpe_error *err);
dpe_status dpe_comparison_suites(const struct input *input, dpe_suite_writer write, void *user,
                                 struct dpe_error *err);

/** Sections of the page. */
dpe_status dpe_comparison_glance(struct report *report, const struct input *input,
                                 struct dpe_error *err);
dpe_status dpe_comparison_section(struct report *report, const struct input *input,
                                  struct dpe_error *err);
dpe_status dpe_comparison_ablations(struct report *report, struct dpe_error *err);
void dpe_comparison_grid(struct report *report, const void *result);
void dpe_comparison_tuning(struct report *report, const void *result);
void dpe_comparison_divergence(struct report *report, const void *result);

#endif
