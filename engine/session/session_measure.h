/**
 * @file session_measure.h
 * Parts of a session's work, timed one at a time (dpe-bench).
 */
#ifndef DPE_SESSION_MEASURE_H
#define DPE_SESSION_MEASURE_H

#include "engine/session/session.h"

/** *seconds: attention of a whole prefill of `length` tokens, over what the last one left in the
 *  cache, in all layers. One layer of each kind is run and its time multiplied. Rotation of queries
 * and keys is part of it. Errors as dpe_session_feed. */
dpe_status dpe_session_measure_attention(struct dpe_session *session, int64_t length,
                                         double *seconds, struct dpe_error *err);
/** *seconds: one step of `branches` branches as generation makes it; the mean of n steps after a
 *  first one, which finds everything cold. Errors as dpe_session_step. */
dpe_status dpe_session_measure_tokens(struct dpe_session *session, int64_t branches, int64_t n,
                                      double *seconds, struct dpe_error *err);
/** *seconds: one product of `rows` ≤ chunk rows with the gate matrix of layer 0. For sessions in
 * host memory. Errors as dpe_session_feed. */
dpe_status dpe_session_measure_product(struct dpe_session *session, int64_t rows, double *seconds,
                                       struct dpe_error *err);
/** Bytes that the session allocated, and of them one element of the cache. */
struct dpe_session_memory {
    uint64_t total, element;
};
struct dpe_session_memory dpe_session_memory(const struct dpe_session *session);

#endif
