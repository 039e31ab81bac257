/**
 * @file remote_internal.h
 * Inside of remote: requests over HTTP.
 */
#ifndef DPE_REMOTE_INTERNAL_H
#define DPE_REMOTE_INTERNAL_H

#include "outputs/remote/remote.h"

/** Where requests go, and how long for. */
struct dpe_http {
    char *url; /**< without a slash at its end */
    char *key; /**< NULL: none */
    int64_t in_flight;
    double patience;
    bool met; /**< it has answered; one that never did is not waited for */
    dpe_poll poll;
    void *poll_user;
};

/** A request and its answer. */
struct dpe_http_exchange {
    const char *path;
    char *body;             /**< JSON, owned by the caller; NULL: GET */
    size_t most;            /**< bytes that the answer may have */
    bool kept;              /**< it has its answer, and is not sent */
    long status;            /**< of HTTP */
    struct dpe_text answer; /**< free it */
};
/** Run all, so many at a time. Those that a busy or broken server does not answer are tried again,
 * with growing pauses, for http->patience seconds after the last success. An answer other than 429,
 * 502 and 503 is taken as it is. DPE_IO: no answer; DPE_BAD_DATA: one that is too long;
 * the status of the poll. */
dpe_status dpe_http_run(const struct dpe_http *http, struct dpe_http_exchange *exchanges, int64_t n,
                        struct dpe_error *err);

#endif
