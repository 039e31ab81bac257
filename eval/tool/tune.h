/**
 * @file tune.h
 * Tuning: a search among the settings of a method, which fresh samples judge.
 */
#ifndef DPE_EVAL_TUNE_H
#define DPE_EVAL_TUNE_H

#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"
#include "eval/tool/comparison.h"
#include "outputs/datasets/kinds.h"

enum {
    TUNE_MAX_SETTINGS = 128,    /**< of one method */
    TUNE_FIRST_FRESH = 1 << 20, /**< fresh samples begin here: no search comes that far */
};

/** The settings of a method, as specs: the first is the method at its defaults. */
struct dpe_tune_settings {
    char (*specs)[DPE_DETECT_SPEC]; /**< owned, [n] */
    int n;
};
/** All combinations of a `--method` of tune: NAME:key=a/b/c,…; a key whose value is a list itself
 *  (dpe's scales and lengths, longrope's long and short, dope's heads) keeps it. NAME alone: the
 *  default grid of the method for this length. With `temperature`, each of them without a
 *  temperature and with each of a few, unless the spec has temperature keys. DPE_USAGE. */
dpe_status dpe_tune_expand(const char *spec, const struct dpe_plan_context *context,
                           bool temperature, struct dpe_tune_settings *settings,
                           struct dpe_error *err);
void dpe_tune_settings_free(struct dpe_tune_settings *settings);

/** A setting of a method at one length. */
struct dpe_tune_arm {
    struct dpe_raced raced; /**< as it is written; its spec is borrowed from settings, its plan is
                                 `key`, its mean NaN where no row of the search is valid */
    struct dpe_plan plan;
    char key[33];
};

/** A method at one length. */
struct dpe_tune_group {
    int length; /**< index */
    struct dpe_tune_settings settings;
    struct dpe_tune_arm *arms; /**< [n_arms], distinct plans; the first is the default */
    int n_arms, chosen;
    struct dpe_detect_search search; /**< its candidates are the arms, in their order */
    struct dpe_tuned *result;        /**< in those of the tuning */
};

struct dpe_tuning {
    struct dpe_comparison comparison; /**< job, suite, lengths */
    struct dpe_tune_group *groups;    /**< [n_groups]: by length, then as given */
    int n_groups;
    struct dpe_tune_result result; /**< of each group; intervals and differences are of fresh
                                        samples, once those ran */
    int64_t budget;                /**< rows of a method at a length */
    int64_t fresh;                 /**< samples */
};

/** The task at a length. */
const struct dpe_suite_task *dpe_tune_task(const struct dpe_tuning *tuning, int length);
/** Samples begin at this index of the stream. */
int64_t dpe_tune_first_fresh(const struct dpe_tuning *tuning);

/** What a finished tuning holds, as /tune (outputs/SCHEMA.md). Its groups are decided. */
dpe_status dpe_tune_put(const struct dpe_tuning *tuning, struct dpe_h5 *table,
                        struct dpe_error *err);
/** Print the result, as text or for scripts; `state` is a struct dpe_tuning. */
dpe_status dpe_tune_print(void *state, struct dpe_error *err);
/** Print what would run, unless it is silent: settings, rows, tokens, and as text memory and time;
 * and add it to `sum` (NULL: not wanted). */
dpe_status dpe_tune_cost(const struct dpe_tuning *tuning, struct dpe_bill *sum,
                         struct dpe_error *err);

#endif
