/**
 * @file price.h
 * What rows cost: tokens, operations and time, for a dry run and for a budget. One estimator prices
 * every study.
 */
#ifndef DPE_JOB_PRICE_H
#define DPE_JOB_PRICE_H

#include "engine/selection/selection.h"
#include "outputs/job/estimate.h"
#include "outputs/job/job.h"

/** What one row costs, on average over those that are made together. */
struct dpe_price {
    double prompt; /**< tokens of its text */
    double read;   /**< of these, tokens that are read: rows may share a context */
    double pairs;  /**< pairs of tokens that attention meets, as n² of a text of n tokens */
    double room;   /**< tokens that are generated at most */
    double steps, branches;     /**< its share of a batch's decode steps, and branches of a step */
    double head;                /**< what the LM head adds to reading, as a factor */
    double products, attention; /**< floating-point operations */
};
/** A text of `length` tokens that is read `windows` times; `scored`: all of its tokens go through
 * the LM head. */
void dpe_price_text(const struct dpe_config *config, int64_t length, double windows, bool scored,
                    struct dpe_price *price);
/** Samples that are answered together, as counted by their task. */
struct dpe_price_answers {
    int64_t samples;
    int64_t prompts, read;  /**< tokens of all prompts, and of these tokens that are read */
    double pairs;           /**< of a token that is read and one at or before it, in all */
    int64_t decoded, steps; /**< tokens that are fed one by one, and passes that these take */
    int64_t room;           /**< tokens that one answer has at most */
};
void dpe_price_of_answers(const struct dpe_config *config, const struct dpe_price_answers *answers,
                          struct dpe_price *price);

/** What a list of rows comes to. Zero-initialise. */
struct dpe_bill {
    double rows, tokens;
    double products, attention;
    struct dpe_job_range time;
    struct dpe_job_speed speed; /**< that was measured last; tokens 0: none */
    bool untimed;               /**< the time of some of the rows is not known */
};
/** Add `rows` rows, of which at least `least` run. `selection`: of the plan, or NULL. speed->tokens
 * 0: the time is not known. */
void dpe_bill_add(struct dpe_bill *bill, const struct dpe_price *price, double least, double rows,
                  const struct dpe_selection *selection, const struct dpe_job_speed *speed);
/** Add another bill; `bill` may be NULL. */
void dpe_bill_sum(struct dpe_bill *bill, const struct dpe_bill *more);
/** The lines of a dry run: of the rows of a task, of what all of them come to, and how long it
 * takes here. */
void dpe_price_print(const char *name, double rows, bool most, const struct dpe_price *price);
void dpe_bill_print(const struct dpe_bill *bill);
void dpe_bill_print_time(const struct dpe_bill *bill);
/** The line of the memory that a session of `capacity` tokens under `plan` needs, "memory  BEFORE
 * …". Errors of dpe_session_estimate. */
dpe_status dpe_price_print_memory(const struct dpe_job *job, const struct dpe_plan *plan,
                                  int64_t capacity, const char *before, struct dpe_error *err);
/** dpe_job_measure_here for rows that the bill will get. Where it fails, speed->tokens is 0, the
 * bill is untimed, and the reason is printed once unless the job is silent. */
void dpe_bill_measure(struct dpe_bill *bill, const struct dpe_job *job, const struct dpe_plan *plan,
                      int64_t length, struct dpe_job_speed *speed);

#endif
