/**
 * @file serve_tool.h
 * Inside of dpe-serve: requests from JSON, answers to JSON, HTTP. No library.
 */
#ifndef DPE_SERVE_TOOL_H
#define DPE_SERVE_TOOL_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "eval/serve/engine/serve_engine.h"
#include "eval/serve/guard.h"

enum {
    SERVE_MOST_SEQUENCES = 128,  /* prompts times n of one request */
    SERVE_STOP_BYTES = 1024,     /* of one stop string */
    SERVE_MOST_TOP = 20,         /* alternatives of a token in logprobs */
    SERVE_MOST_SCORES = 1 << 22, /* log-probabilities in an answer */
    SERVE_SCORE_BYTES = 100,     /* that one of them takes while the answer is written */
};

/* ---------------------------------------------------------------------------------- requests */

/** A refusal in the words of the interface; `status` 0: none. */
struct dpe_serve_refusal {
    unsigned status;  /**< of HTTP */
    const char *code; /**< by which clients know what happened; NULL: none but that of the status */
    char param[64];   /**< the member that is wrong, or "" */
    char text[1100];
};
/** Record a refusal, with a code or NULL, unless there is one; returns false. */
bool dpe_serve_refuse_as(struct dpe_serve_refusal *refusal, unsigned status, const char *code,
                         const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
#define dpe_serve_refuse(refusal, status, param, ...)                                              \
    dpe_serve_refuse_as((refusal), (status), NULL, (param), __VA_ARGS__)
/** The same, of a failed call: 400 for what the client can change, 504 when its time was used up,
 * else 500. */
bool dpe_serve_refuse_error(struct dpe_serve_refusal *refusal, const char *param,
                            const struct dpe_error *err);

/** Typed members of a request; after the first refusal all return their
 * fallback. null is absent. */
int64_t dpe_serve_whole(const json_t *body, const char *key, int64_t low, int64_t high,
                        int64_t fallback, struct dpe_serve_refusal *refusal);
double dpe_serve_real(const json_t *body, const char *key, double low, double high, double fallback,
                      struct dpe_serve_refusal *refusal);
bool dpe_serve_flag(const json_t *body, const char *key, bool fallback,
                    struct dpe_serve_refusal *refusal);
/** A list of token ids of this model. */
bool dpe_serve_ids(const struct dpe_serve_world *world, const json_t *list, const char *key,
                   struct dpe_tokens *ids, struct dpe_serve_refusal *refusal);
/** The ids of a text. */
bool dpe_serve_encode(const struct dpe_serve_world *world, const json_t *text, const char *key,
                      bool special, struct dpe_tokens *ids, struct dpe_serve_refusal *refusal);

/** A request from its JSON; false with a refusal. Free it in both cases. `memory` bounds the
 * log-probabilities of its answer. */
bool dpe_serve_request_parse(const struct dpe_serve_world *world, enum dpe_serve_kind kind,
                             const json_t *body, uint64_t memory, struct dpe_serve_request *request,
                             struct dpe_serve_refusal *refusal);
/** Bytes that the request holds, those of its answer's log-probabilities included. */
uint64_t dpe_serve_request_bytes(const struct dpe_serve_request *request);
/** Refuse members that these kinds of request (bits 1 << kind) do not read and that may change an
 * answer. */
bool dpe_serve_check_members(const struct dpe_serve_world *world, const json_t *body,
                             unsigned kinds, struct dpe_serve_refusal *refusal);
void dpe_serve_request_free(struct dpe_serve_request *request);
/** The same of POST PATH?action=…, PATH "/slots/N", and its answer. */
bool dpe_serve_slot_parse(const struct dpe_serve_world *world, const char *path, const char *action,
                          const json_t *body, struct dpe_serve_request *request,
                          struct dpe_serve_refusal *refusal);
json_t *dpe_serve_slot_answer(const struct dpe_serve_request *request);
/** The prompt of a chat, rendered with the folder's template. */
bool dpe_serve_chat_prompt(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_tokens *ids, struct dpe_serve_refusal *refusal);

/* ----------------------------------------------------------------------------------- answers */

/** The whole answer of a finished request. */
json_t *dpe_serve_answer(const struct dpe_serve_world *world,
                         const struct dpe_serve_request *request);
/** The characters of a text that comes in pieces of bytes. */
struct dpe_serve_counted {
    int64_t characters;
    struct dpe_text waiting; /**< bytes of a character that is not whole */
};
/** How far the tokens with log-probabilities were given to the client, and where the next one
 * begins. */
struct dpe_serve_places {
    int64_t n;      /**< tokens */
    int64_t prompt; /**< characters of the prompt that is echoed */
    struct dpe_serve_counted counted;
    bool begun;
};
void dpe_serve_places_free(struct dpe_serve_places *places);
/** The log-probabilities of the tokens from places->n to end−1 of a sequence, which moves the
 * places on; null when they were not asked for. A token whose bytes are no text by themselves (part
 * of a character) is written "bytes:\\xf0\\x9f"; text_offset counts characters of the text of the
 * choice. */
json_t *dpe_serve_logprobs(const struct dpe_serve_world *world,
                           const struct dpe_serve_sequence *sequence,
                           struct dpe_serve_places *places, int64_t end);
/** What a streaming client has got of a sequence. */
struct dpe_serve_sent {
    size_t bytes;
    struct dpe_serve_places places;
    bool begun, finished;
};
/** The next piece of a sequence for a streaming client, NULL: nothing is new.
 * With the lock held. */
json_t *dpe_serve_piece(const struct dpe_serve_world *world,
                        const struct dpe_serve_request *request, int64_t index,
                        struct dpe_serve_sent *sent);
/** The piece with the numbers of tokens, after all others. */
json_t *dpe_serve_usage_piece(const struct dpe_serve_world *world,
                              const struct dpe_serve_request *request);
json_t *dpe_serve_error(const struct dpe_serve_refusal *refusal);
json_t *dpe_serve_models(const struct dpe_serve_world *world);
json_t *dpe_serve_tokenizer_info(const struct dpe_serve_world *world);
/** Put the JSON of the answer; false with a refusal. `digest`: of the bytes of the body. */
bool dpe_serve_tokenize(const struct dpe_serve_world *world, const json_t *body, const char *digest,
                        struct dpe_text *answer, struct dpe_serve_refusal *refusal);
bool dpe_serve_detokenize(const struct dpe_serve_world *world, const json_t *body,
                          const char *digest, struct dpe_text *answer,
                          struct dpe_serve_refusal *refusal);
/** Who the engine is, for tools of this project. */
json_t *dpe_serve_about(const struct dpe_serve_world *world);
/** Take the plan in the body, a table of one entry; put the digest and the model's fingerprint. */
bool dpe_serve_take_plan(const struct dpe_serve_world *world, const json_t *body,
                         const char *digest, struct dpe_text *answer,
                         struct dpe_serve_refusal *refusal);
json_t *dpe_serve_state(const struct dpe_serve_world *world, const struct dpe_serve_counts *counts);
void dpe_serve_metrics(const struct dpe_serve_counts *counts, struct dpe_text *text);

struct dpe_serve_bytes {
    const void *bytes;
    size_t n;
};
extern const struct dpe_serve_bytes dpe_serve_page;

/* -------------------------------------------------------------------------------------- HTTP */

enum { WAIT_NANOSECONDS = 100000000 };

enum { SERVE_CONNECTIONS = 256 };

/** A client may send its request byte by byte and never be silent: its time as a whole is limited.
 */
struct dpe_serve_client {
    bool open;
    int socket;
    double since; /**< when it began to send a request, or might have; INFINITY: one is answered */
};

struct dpe_serve_http {
    const struct dpe_serve_world *world;
    struct dpe_serve_engine *engine;
    struct MHD_Daemon *daemon;
    bool local; /* it listens on a loopback address: names of this machine alone are hosts */
    size_t body_limit;
    uint64_t memory; /* bytes that all requests may hold */
    atomic_uint_fast64_t
        held; /* of them: bodies, what is parsed from them, and what is asked for in them */
    atomic_int answering; /* requests from their first line to their last byte */
    atomic_bool draining;
    atomic_bool stopped;  /* what is still being answered is cancelled: its time is up */
    pthread_mutex_t lock; /* of the clients */
    struct dpe_serve_client clients[SERVE_CONNECTIONS];
};

/** A request from its first line to the last byte of its answer, as the thread of its connection
 * sees it. */
struct dpe_serve_exchange {
    struct dpe_serve_http *http;
    struct MHD_Connection *connection;
    const char *path;    /* while the answer is made */
    const char *foreign; /* the origin of another site that may ask; NULL: none */
    bool close;          /* the connection ends after the answer */
    struct dpe_text body;
    uint64_t held; /* bytes of http->held */
    struct dpe_serve_refusal refusal;
    bool has_request;
    struct dpe_serve_request request;
    struct dpe_serve_sent *sent; /* [sequences], of a stream */
    struct dpe_text out;         /* of a stream */
    size_t out_taken;            /* bytes of it that the connection took */
    bool done_sent;
};

/** Decide from the head whether the request is taken: a refusal is left in the exchange. False: it
 * is answered, with *result. */
bool dpe_serve_check_head(struct dpe_serve_exchange *exchange, const char *method,
                          const char *version, enum MHD_Result *result);

/** The most bytes of a body when all requests may hold `memory`. */
size_t dpe_serve_body_limit(const struct dpe_serve_world *world, uint64_t memory);
/** Add n bytes to the body. */
enum MHD_Result dpe_serve_body_add(struct dpe_serve_exchange *exchange, const char *bytes,
                                   size_t n);
/** The body's JSON; a new reference, NULL with a refusal. Its text is gone then. */
json_t *dpe_serve_body_json(struct dpe_serve_exchange *exchange);
/** Give up the JSON; what was made of it holds `bytes` until the request ends. False with a
 * refusal. */
bool dpe_serve_body_made(struct dpe_serve_exchange *exchange, json_t *body, uint64_t bytes);
void dpe_serve_body_free(struct dpe_serve_exchange *exchange);

/** Answer with a text, which it takes; no type: without a content. A text that failed ends the
 * connection. */
enum MHD_Result dpe_serve_reply(struct dpe_serve_exchange *exchange, unsigned status,
                                const char *type, struct dpe_text content);
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

dpe_status dpe_serve_http_start(const struct dpe_serve_world *world,
                                struct dpe_serve_engine *engine, struct dpe_serve_http **http,
                                struct dpe_error *err);
/** The port that it listens on. */
int64_t dpe_serve_http_port(const struct dpe_serve_http *http);
/** Called about four times a second: ends connections that send their request too slowly. */
void dpe_serve_http_watch(struct dpe_serve_http *http);
/** Accept nothing more, finish what is being answered, but for at most --stop-timeout, close. */
void dpe_serve_http_stop(struct dpe_serve_http *http);

#endif
