/**
 * @file estimate.h
 * How fast this machine runs a model, for the estimates of --dry-run.
 */
#ifndef DPE_JOB_ESTIMATE_H
#define DPE_JOB_ESTIMATE_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/session/session.h"

/** Seconds of one operation of each kind. */
struct dpe_job_speed {
    double per_product, per_attention; /**< seconds per floating-point operation of a prefill */
    double per_new_token;              /**< seconds, at about the measured length */
    int64_t tokens;                    /**< of the longest prefill */
    double seconds;                    /**< that it took */
};
/** Run prefills of doubling length in `session` (its cache is emptied) until one takes `enough`
 *  seconds or has `most` tokens, which must fit into the session; then generate a few tokens. Uses
 *  token ids that every vocabulary has. DPE_USAGE when `most` is too short to measure. */
dpe_status dpe_job_measure(struct dpe_session *session, const struct dpe_config *config,
                           int64_t most, double enough, struct dpe_job_speed *speed,
                           struct dpe_error *err);

#endif
