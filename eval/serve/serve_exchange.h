/**
 * @file serve_exchange.h
 * Inside of dpe-serve: a request from its first line to the last byte of its answer, as the thread of
 * its connection sees it.
 */
#ifndef DPE_SERVE_EXCHANGE_H
#define DPE_SERVE_EXCHANGE_H

#include <stdatomic.h>

#include "eval/serve/serve_tool.h"

enum { WAIT_NANOSECONDS = 100000000 };

struct dpe_serve_http {
    const struct dpe_serve_world *world;
    struct dpe_serve_engine *engine;
    struct MHD_Daemon *daemon;
    size_t body_limit;
    atomic_size_t bodies;  /* bytes of the bodies that are held */
    atomic_int answering;  /* requests from their first line to their last byte */
    atomic_bool draining;
    struct dpe_serve_clients clients;
};

/* A request from its first line to its last byte. */
struct dpe_serve_exchange {
    struct dpe_serve_http *http;
    struct MHD_Connection *connection;
    const char *path; /* while the answer is made */
    char *body;
    size_t n, capacity;
    struct dpe_serve_refusal refusal;
    bool has_request;
    struct dpe_serve_request request;
    struct dpe_serve_sent *sent; /* [sequences], of a stream */
    char *out;                   /* bytes of a stream that were not taken yet */
    size_t out_n, out_taken;
    bool done_sent;
};

/** Answer with n bytes, which it takes. */
enum MHD_Result dpe_serve_reply(struct dpe_serve_exchange *exchange, unsigned status,
                                const char *type, char *bytes, size_t n);
/** Answer with a JSON value, which it takes. */
enum MHD_Result dpe_serve_reply_json(struct dpe_serve_exchange *exchange, unsigned status,
                                     json_t *value);
/** Answer with exchange->refusal. */
enum MHD_Result dpe_serve_reply_refusal(struct dpe_serve_exchange *exchange);
/** Answer with the events of exchange->request as they come. */
enum MHD_Result dpe_serve_stream(struct dpe_serve_exchange *exchange);
/** Wait until every sequence of the request has ended; `cancel`: end them. */
void dpe_serve_wait(struct dpe_serve_exchange *exchange, bool cancel);
/** While the engine works, silence is not the client's. Counting begins anew when it is set again. */
void dpe_serve_count_silence(struct dpe_serve_exchange *exchange, bool count);

#endif
