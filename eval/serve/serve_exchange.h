/**
 * @file serve_exchange.h
 * Inside of dpe-serve: a request from its first line to the last byte of its answer, as the thread
 * of its connection sees it.
 */
#ifndef DPE_SERVE_EXCHANGE_H
#define DPE_SERVE_EXCHANGE_H

#include <stdatomic.h>

#include "eval/serve/guard/guard.h"
#include "eval/serve/serve_tool.h"

enum { WAIT_NANOSECONDS = 100000000 };

/** The open connections, in a list. */
struct dpe_serve_clients {
    pthread_mutex_t lock;
    struct dpe_serve_client *first;
};

struct dpe_serve_http {
    const struct dpe_serve_world *world;
    struct dpe_serve_engine *engine;
    struct MHD_Daemon *daemon;
    struct dpe_guard_rules rules;
    size_t body_limit;
    uint64_t memory; /* bytes that all requests may hold */
    atomic_uint_fast64_t
        held; /* of them: bodies, what is parsed from them, and what is asked for in them */
    atomic_int answering; /* requests from their first line to their last byte */
    atomic_bool draining;
    atomic_bool stopped; /* what is still being answered is cancelled: its time is up */
    struct dpe_serve_clients clients;
};

/* A request from its first line to its last byte. */
struct dpe_serve_exchange {
    struct dpe_serve_http *http;
    struct MHD_Connection *connection;
    const char *path;    /* while the answer is made */
    const char *foreign; /* the origin of another site that may ask; NULL: none */
    bool close;          /* the connection ends after the answer */
    char *body;
    size_t n, capacity, announced;
    uint64_t held; /* bytes of http->held */
    struct dpe_serve_refusal refusal;
    bool has_request;
    struct dpe_serve_request request;
    struct dpe_serve_sent *sent; /* [sequences], of a stream */
    char *out;                   /* bytes of a stream that were not taken yet */
    size_t out_n, out_taken;
    bool done_sent;
};

/** Decide from the head whether the request is taken: a refusal is left in the exchange. False: it
 * is answered, with *result. */
bool dpe_serve_check_head(struct dpe_serve_exchange *exchange, const char *method,
                          const char *version, enum MHD_Result *result);

/** The most bytes of a body when all requests may hold `memory`. */
size_t dpe_serve_body_limit(const struct dpe_serve_world *world, uint64_t memory);
/** Hold memory for a body of this Content-Length; false with a refusal. */
bool dpe_serve_body_announce(struct dpe_serve_exchange *exchange, const char *length);
/** Add n bytes to the body. */
enum MHD_Result dpe_serve_body_add(struct dpe_serve_exchange *exchange, const char *bytes,
                                   size_t n);
/** The body's JSON; a new reference, NULL with a refusal. Its text is gone then. */
json_t *dpe_serve_body_json(struct dpe_serve_exchange *exchange);
/** Give up the JSON; what was made of it holds `bytes` until the request ends. False with a
 * refusal. */
bool dpe_serve_body_made(struct dpe_serve_exchange *exchange, json_t *body, uint64_t bytes);
void dpe_serve_body_free(struct dpe_serve_exchange *exchange);

/** Answer with n bytes, which it takes; no type: without a content. */
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
/** While the engine works, silence is not the client's. Counting begins anew
 * when it is set again. */
void dpe_serve_count_silence(struct dpe_serve_exchange *exchange, bool count);

#endif
