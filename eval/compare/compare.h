/**
 * @file compare.h
 * Methods on the same samples: the steps of an ablation, which vary what a detection found one
 * thing at a time; rows of one suite under several methods as arrays, and what follows from them.
 * Used inside eval/ and by dpe-eval.
 */
#ifndef DPE_COMPARE_H
#define DPE_COMPARE_H

#include "engine/base/base.h"
#include "engine/plan/methods/methods.h"
#include "engine/plan/plan.h"
#include "eval/suite/suite.h"
#include "eval/task/stats.h"
#include "outputs/datasets/kinds.h"
#include "outputs/run/run.h"
#include "outputs/table/dpe_table.h"

enum dpe_ablation_what {
    DPE_ABLATE_RANK,          /**< every group at its n-th best length */
    DPE_ABLATE_TOP_K,         /**< only the k pairs of each head that contribute most are moved */
    DPE_ABLATE_LAST_K,        /**< only the k pairs that contribute least */
    DPE_ABLATE_WINDOW,        /**< the near window */
    DPE_ABLATE_SCALED_LENGTH, /**< all groups at one length; with a profile, of k pairs each */
};
/** The one named "rank", "top-k", …, or -1. */
int dpe_ablation_find(const char *name);

/** A detection (and a profile of key pairs) in memory. Owned. */
struct dpe_ablation_source {
    struct dpe_table *table;
    const struct dpe_table_values *values; /**< of it: a plan of DPE */
    struct dpe_temperature temperature;    /**< that of every step but rope, at first the table's */
    struct dpe_ranking_result ranks;       /**< its lengths and their ranks */
    uint16_t *ranking; /**< [layers][heads][pairs] pairs by falling contribution, NULL = unknown */
};

/** One plan of an ablation. */
struct dpe_ablation_step {
    char label[64];      /**< "rank 2", "top-k 8", "window 32", "rope", "base" */
    const char *axis;    /**< "rope", "base" or the name of what is varied */
    double value;        /**< n, k or tokens; NaN for rope and base */
    int64_t k;           /**< pairs of each head that move, −1 = all, or those of the detection */
    int64_t window;      /**< tokens */
    double *scale;       /**< [n_groups], owned; NULL for the model as it is */
    uint8_t *chosen;     /**< the pairs of k, owned; NULL without k */
    const uint8_t *mask; /**< these, or the detection's; NULL = all pairs */
};

/** The steps of an ablation: rope and base (every group at half the trained length) first. */
struct dpe_ablation {
    enum dpe_ablation_what what;
    struct dpe_ablation_source source;
    struct dpe_ablation_step *steps; /**< [n_steps] */
    int n_steps;
};

/** Read a finished detection of dpe-detect, and its profile of key pairs: `norms`, else the
 *  detection's own if it holds one. `norms` may be NULL. Errors name the file: DPE_NO_INPUT,
 *  DPE_BAD_DATA (no detection, not complete, damaged, another model's profile), DPE_NO_MEMORY.
 *  Zero-initialise `source`; free it with the ablation. */
dpe_status dpe_ablation_read(const char *table, const char *norms,
                             struct dpe_ablation_source *source, struct dpe_error *err);
/** Make the steps of what is in ablation->source. `values` [n_values] choose the steps (ranks, ks,
 *  windows or scaled lengths), n_values = 0 takes the usual ones: all ranks; k in eighths of the
 *  pairs, from 0 on; windows L0/32 … L0/2; scaled lengths L0/4, L0/2 and L0, as in the paper, each
 *  with every k when the profile is known. DPE_USAGE: values that make no sense, a profile that is
 *  needed and not there. */
dpe_status dpe_ablation_make(struct dpe_ablation *ablation, enum dpe_ablation_what what,
                             const double *values, int n_values, struct dpe_error *err);
/** The step's plan in a context. */
dpe_status dpe_ablation_plan(const struct dpe_ablation *ablation,
                             const struct dpe_ablation_step *step,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
void dpe_ablation_free(struct dpe_ablation *ablation);

/** What tables hold, and what it was computed from; m = method, t = task of the suite, s = sample,
 * b = bucket. What was not run, or gave no finite value, is NaN and −1. */
struct dpe_results {
    const struct dpe_suite *suite; /**< borrowed */
    struct dpe_suite_result r; /**< its names are borrowed; what a suite does not have is NULL */
    int n_methods, n_tasks;
    int against;       /**< the method that differences are relative to */
    int64_t n_samples; /**< of the task that has most */
    int n_positions;   /**< buckets of the row that has most, 0 = no perplexity */
};

/** Where the numbers of a method and a task are in its arrays [m][t]. */
static inline size_t dpe_results_cell(const struct dpe_results *results, int method, int task)
{
    return (size_t)method * (size_t)results->n_tasks + (size_t)task;
}

/** Collect the rows of `run` and compute everything; `seed` is of the resampling. Suite, methods
 * with their plans' keys ([m][t] in r.plan) and `against` are set, all else is 0. To be freed after
 * failures too. DPE_NO_MEMORY. */
dpe_status dpe_results_collect(struct dpe_results *results, uint64_t seed,
                               const struct dpe_run *run, struct dpe_error *err);
void dpe_results_free(struct dpe_results *results);

/** Write /eval/SUITE (outputs/SCHEMA.md, "Comparison"); /method is there. */
dpe_status dpe_results_put(const struct dpe_results *results, struct dpe_h5 *table,
                           struct dpe_error *err);
/** The suite niah_grid by depth and length: depths [n_depths] as it was opened with. All of it
 * is borrowed but the plans. To be freed, after failures too. */
dpe_status dpe_results_grid(const struct dpe_results *results, const double *depths, int n_depths,
                            struct dpe_grid_result *grid, struct dpe_error *err);
void dpe_results_grid_free(struct dpe_grid_result *grid);
/** Write /eval/SUITE of it. */
dpe_status dpe_results_put_grid(const struct dpe_results *results, const double *depths,
                                int n_depths, struct dpe_h5 *table, struct dpe_error *err);

#endif
