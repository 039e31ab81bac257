/**
 * @file eval_kld.h
 * Dpe-eval kld: the same texts under a base and under methods, token by token.
 */
#ifndef DPE_EVAL_KLD_H
#define DPE_EVAL_KLD_H

#include "eval/kld/kld.h"
#include "eval/kld/kld_saved.h"
#include "eval/tool/comparison/comparison.h"
#include "outputs/job/job.h"

/** Everything that is needed, in the order in which it is opened. */
struct dpe_kld {
    struct dpe_comparison comparison; /**< job, methods and their plans, at one length; no suites */
    struct dpe_model *model;          /**< --base-model; NULL: the job's */
    struct dpe_tokenizer *tokenizer;  /**< of it */
    struct dpe_plan plan;             /**< the base's */
    char key[33];
    const char *device; /**< that the base runs on */
    struct dpe_task texts;
    int64_t n_texts, length;     /**< texts of so many tokens */
    struct dpe_session *base;    /**< NULL until it is needed */
    struct dpe_kld_saved *saved; /**< of --save-base, or NULL */
};
extern const struct dpe_study dpe_eval_kld_study;

/** Fills the table of a run (dpe_run_fill); `user` is a struct dpe_kld. */
dpe_status dpe_kld_fill(void *user, struct dpe_h5 *table, struct dpe_error *err);
/** Print them, for people or scripts; `state` is a struct dpe_kld. */
dpe_status dpe_kld_print(void *state, struct dpe_error *err);

#endif
