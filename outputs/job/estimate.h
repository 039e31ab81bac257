/**
 * @file estimate.h
 * How fast this machine runs a model, for the estimates of --dry-run.
 */
#ifndef DPE_JOB_ESTIMATE_H
#define DPE_JOB_ESTIMATE_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/session/session.h"

/** How long passes take here. Reading n tokens takes per_token·n + per_pair·n² seconds, under a
 * plan with a selection per_token·n + per_pair·2·dpe_selection_work(n). A step that decodes one
 * token in each of the measured number of branches takes per_step seconds, and per_step_token more
 * for every token in the contexts of all branches. */
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
 * one branch. Terms that no processor could have are moved to the nearest ones that one could.
 * `selection` is that of the session's plan. Uses token ids that every vocabulary has. DPE_USAGE
 * when `most` is too short to measure. */
dpe_status dpe_job_measure(struct dpe_session *session, const struct dpe_config *config,
                           const struct dpe_selection *selection, int64_t most,
                           struct dpe_job_speed *speed, struct dpe_error *err);
/** Put the time of a step of so many branches in place of that of one. The cache is emptied. */
dpe_status dpe_job_measure_batch(struct dpe_session *session, const struct dpe_config *config,
                                 int64_t branches, struct dpe_job_speed *speed,
                                 struct dpe_error *err);
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
/* Speeds are kept between dry runs in a file, "speeds" of dpe_cache_path, a line each, for a day.
 */

/** The speed that was kept under `key` (64 hexadecimal digits) in the file. False: none, or an old
 * one. */
bool dpe_job_speed_find(const char *path, const char *key, int64_t now,
                        struct dpe_job_speed *speed);
/** Keep one, in place of what the key had; nothing where the file cannot be written. */
void dpe_job_speed_keep(const char *path, const char *key, int64_t now,
                        const struct dpe_job_speed *speed);

#endif
