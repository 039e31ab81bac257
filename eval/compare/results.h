/**
 * @file results.h
 * Rows of one suite under several methods as arrays, and what follows from them. Used inside eval/
 * and by dpe-eval.
 */
#ifndef DPE_RESULTS_H
#define DPE_RESULTS_H

#include "engine/base/base.h"
#include "eval/suite/suite.h"
#include "eval/task/stats.h"
#include "outputs/datasets/kinds.h"
#include "outputs/run/run.h"

/** What tables hold, and what it was computed from; m = method, t = task of the suite, s = sample,
 * b = bucket. What was not run, or gave no finite value, is NaN and −1. */
struct dpe_results {
    const struct dpe_suite *suite; /**< borrowed */
    struct dpe_suite_result r; /**< its names are borrowed; what a suite does not have is NULL */
    int n_methods, n_tasks;
    int against;       /**< the method that differences are relative to */
    int64_t n_samples; /**< of the task that has most */
    int64_t n_rows;    /**< that are there */
    int n_positions;   /**< buckets of the row that has most, 0 = no perplexity */
};

/** What is compared on a suite; all borrowed, as long as the results live. */
struct dpe_compared {
    const struct dpe_suite *suite;
    const char *const *method_names; /**< [n_methods] */
    const char *const *keys;         /**< [m][t]: row keys of the plans */
    int n_methods;
    int against;   /**< the method that differences are relative to */
    uint64_t seed; /**< of the resampling */
};
/** Collect the rows of `run` and compute everything. Zero-initialise `results`, free it after
 *  failures too. DPE_NO_MEMORY. */
dpe_status dpe_results_collect(struct dpe_results *results, const struct dpe_compared *compared,
                               const struct dpe_run *run, struct dpe_error *err);
void dpe_results_free(struct dpe_results *results);

/** Categories of a suite in the order of their first task, "overall" last (alone where tasks have
 *  none): at most `size` names are written (borrowed); returns how many there are, 0 for a suite of
 *  one task, whatever its lengths, and for perplexity. */
int dpe_results_categories(const struct dpe_suite *suite, const char **names, int size);
/** Mean of the means of a method's tasks in a category ("overall": all) at a length; NaN when one
 *  is missing or there are none. */
double dpe_results_category(const struct dpe_results *results, int method, const char *category,
                            int64_t length);
/** Distinct lengths of a suite's tasks, ascending: at most `size` are written; returns how many. */
int dpe_results_lengths(const struct dpe_suite *suite, int64_t *lengths, int size);

/** Write /eval/SUITE (outputs/SCHEMA.md, "Comparison"); /method is there. */
dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err);
/** The same for the suite niah_grid: depths [n_depths] as it was opened with. */
dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err);

#endif
