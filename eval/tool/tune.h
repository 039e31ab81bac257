/**
 * @file tune.h
 * The settings of a method that are tuned.
 */
#ifndef DPE_EVAL_TUNE_H
#define DPE_EVAL_TUNE_H

#include "detect/search/search.h"
#include "engine/plan/methods/methods.h"

enum { TUNE_MAX_SETTINGS = 128 }; /**< of one method */

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

#endif
