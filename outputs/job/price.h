/**
 * @file price.h
 * What rows cost: tokens, operations and time, for a dry run and for a budget. One estimator prices
 * every study.
 */
#ifndef DPE_JOB_PRICE_H
#define DPE_JOB_PRICE_H

#include "engine/model/config/selection.h"
#include "outputs/job/job.h"

/* -------------------------------------------------------------------- how fast this machine is */

/** How long passes take here. Reading n tokens takes per_token·n + per_pair·n² seconds, under a
 * plan with a selection per_token·n + per_pair·2·dpe_selection_work(n). A step that decodes one
 * token in each of the session's branches takes per_step seconds, and per_step_token more for every
 * token in the contexts of all branches, which share one. */
struct dpe_job_speed {
    double per_token, per_pair;
    double per_step, per_step_token;
    double low, high; /**< of what was measured several times: fastest and slowest / median */
    int64_t tokens;   /**< of the longest text that was read */
    double seconds;   /**< that it took, the median */
    int64_t when;     /**< it was measured by an earlier dry run, seconds since 1970; 0: just now */
};
/** Read a text of at most `most` tokens several times in `session` (its cache is emptied), fewer
 * times on a slow machine, fit the two terms to the medians of its chunks, and then time steps of
 * all branches. Terms that no processor could have are moved to the nearest ones that one could.
 * `selection` is that of the session's plan. Uses token ids that every vocabulary has. DPE_USAGE
 * when `most` is too short to measure. */
dpe_status dpe_job_measure(struct dpe_session *session, const struct dpe_config *config,
                           const struct dpe_selection *selection, int64_t most,
                           struct dpe_job_speed *speed, struct dpe_error *err);
/** The longest text that is measured for texts of `length` tokens. */
int64_t dpe_job_measured_length(int64_t length);
/** Fit seconds[i] = a·(lengths: end[i] − begin[i]) + b·(end[i]² − begin[i]²), each relative to its
 * own size, n² being 2·dpe_selection_work(n) where something is selected, with a ≥ 0 and b between
 * its bounds as multiples of a. Used by dpe_job_measure. */
void dpe_job_fit(const struct dpe_selection *selection, const int64_t *begin, const int64_t *end,
                 const double *seconds, int n, double least_ratio, double most_ratio, double *a,
                 double *b);

/** Seconds that something takes, from … to. */
struct dpe_job_range {
    double low, high;
};
/** Add `times` samples, each of which reads `read` tokens with `pairs` pairs (n² of a whole text of
 * n) and decodes in `steps` steps, its share of those of a batch, with `context` tokens in all
 * branches. The lower end counts half of the steps: answers may end before their limit. */
void dpe_job_range_add(struct dpe_job_range *range, const struct dpe_job_speed *speed, double times,
                       double read, double pairs, double steps, double context);
/** "6 to 8 days", "about 40 s": two digits, rounded outwards. Returns the buffer. */
const char *dpe_job_range_text(const struct dpe_job_range *range, char text[64]);
/* Speeds are kept between dry runs in a file, "speeds" of dpe_cache_path, for a day. */

/** The speed that was kept under `key` (64 hexadecimal digits) in the file. False: none, or an old
 * one. */
bool dpe_job_speed_find(const char *path, const char *key, int64_t now,
                        struct dpe_job_speed *speed);
/** Keep one, in place of what the key had; nothing where the file cannot be written. */
void dpe_job_speed_keep(const char *path, const char *key, int64_t now,
                        const struct dpe_job_speed *speed);

/* ------------------------------------------------------------------------------- what rows cost */

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
/** How fast this machine runs texts of `length` tokens under `plan`, in the job's batches, for rows
 * that the bill will get: as kept from an earlier dry run with the same model, device, threads and
 * types, else measured and kept. Opens the weights itself. Where they would fill the machine's
 * memory, or this process alone cannot run the model, speed->tokens is 0, the bill is untimed, and
 * the reason is printed once unless the job is silent. */
void dpe_bill_measure(struct dpe_bill *bill, const struct dpe_job *job, const struct dpe_plan *plan,
                      int64_t length, struct dpe_job_speed *speed);

#endif
