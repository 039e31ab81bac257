/**
 * @file serve_tool.h
 * Inside of dpe-serve: what its files share. No library.
 *
 * Threads. Every connection has a thread of libmicrohttpd's, which parses its request, encodes the
 * prompts, waits, and writes the answer. One engine thread owns the session: it reads prompts and
 * decodes all running sequences as one batch. Both meet in struct dpe_serve_engine, under its lock.
 */
#ifndef DPE_SERVE_TOOL_H
#define DPE_SERVE_TOOL_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/tool.h"
#include "eval/chat/chat.h"

enum {
    SERVE_MOST_SEQUENCES = 128, /* prompts times n of one request */
    SERVE_MOST_STOPS = 16,
    SERVE_STOP_BYTES = 1024, /* of one stop string */
    SERVE_MOST_TOP = 20,     /* alternatives of a token in logprobs */
    SERVE_MOST_SLOTS = 256,
    SERVE_MOST_SCORES = 1 << 22, /* log-probabilities in an answer: about 400 MB while it is written */
    SERVE_WORTH_WAITING = 64, /* tokens */
    SERVE_STACK = 8 << 20,    /* of a thread, whatever `ulimit -s` is: JSON and templates nest */
};

/* ---------------------------------------------------------------------------- what is served */

/** The command line; NULL or 0: not given. */
struct dpe_serve_arguments {
    struct dpe_tool_options tool;
    const char *model, *name, *method, *table, *host, *key_file, *chat_template;
    int64_t trained_length, length, chunk, slots, queue, port;
    int64_t client_timeout;  /**< seconds */
    int64_t request_timeout; /**< seconds, 0: none */
    bool other_model;
};

/** A position plan, for texts of at most `length` tokens. */
struct dpe_serve_plan {
    struct dpe_plan plan;
    int64_t length;
};

/** What does not change while the server runs. */
struct dpe_serve_world {
    const struct dpe_serve_arguments *args;
    const char *name; /**< of the model, for clients */
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    struct dpe_chat *chat; /**< NULL: the folder has no chat template */
    struct dpe_chat_ends ends; /**< of an answer in a chat */
    json_t *tokenizer_config;  /**< tokenizer_config.json, or an empty object */
    char *key;                 /**< that clients have to send; NULL: none */
    int64_t length;            /**< most tokens of a prompt and its answer */
    int64_t started;           /**< seconds since 1970 */
    struct dpe_serve_plan *plans;
    int64_t n_plans; /**< by increasing length */
};
dpe_status dpe_serve_world_open(const struct dpe_serve_arguments *args,
                                struct dpe_serve_world *world, struct dpe_error *err);
void dpe_serve_world_close(struct dpe_serve_world *world);
/** The index of the plan that a text of so many tokens is run with. */
int64_t dpe_serve_world_choose(const struct dpe_serve_world *world, int64_t tokens);

/* ---------------------------------------------------------------------------------- requests */

/** RULER has two clients for PUT /generate: one sends `prompts` and reads a list of texts, the other
 *  sends `prompt` and reads {"text": [...]}. */
enum dpe_serve_kind { SERVE_COMPLETION, SERVE_CHAT, SERVE_RULER, SERVE_RULER_ONE };

/** A token of an answer, or of a prompt that is echoed with its log-probabilities. */
struct dpe_serve_score {
    int32_t id;
    double logprob; /**< nats; NAN: of a text's first token, which nothing predicts */
};

/** One continuation of one prompt. The engine thread writes it; other threads read it with the lock
 *  held. */
struct dpe_serve_sequence {
    struct dpe_serve_request *request;
    const struct dpe_tokens *prompt;
    int64_t plan;      /**< index into the plans */
    int64_t max_new;   /**< tokens */
    int32_t *out;      /**< [max_new] */
    int64_t n_out;
    struct dpe_rng rng;
    struct dpe_serve_score *scores; /**< [prompt, if echoed, + max_new], NULL: not asked for */
    struct dpe_serve_score *tops;   /**< [scores][request->top], id −1: none */
    int64_t n_scores;
    struct dpe_text text;     /**< of the new tokens */
    size_t safe;              /**< bytes of it that no stop string can still take back */
    int64_t base, decoded;    /**< tokens: where decoding goes on from, and how far it came */
    int64_t cached;           /**< prompt tokens that were in the cache already */
    const char *finish;       /**< "stop", "length", "error"; NULL: it is not finished */
    double begun, first, ended;
    struct dpe_serve_sequence *next; /**< in the queue */
};

/** What a client asked for. */
struct dpe_serve_request {
    enum dpe_serve_kind kind;
    char id[48];
    int64_t created;
    struct dpe_tokens *prompts; /**< [n_prompts] */
    char **texts;               /**< [n_prompts] as they were given; NULL: as ids */
    size_t *text_bytes;         /**< [n_prompts] */
    int64_t n_prompts, n;       /**< n continuations of each prompt */
    int64_t max_new;            /**< −1: what is left of the length */
    double temperature, top_p;
    uint64_t seed;
    bool echo, stream, usage, scored, ignore_eos;
    int64_t top; /**< alternatives in logprobs */
    char *stops[SERVE_MOST_STOPS];
    int64_t n_stops;
    struct dpe_serve_sequence *sequences; /**< [n_prompts · n] */
    int64_t n_sequences;
    /* Under the engine's lock. */
    int64_t unfinished;
    double deadline; /**< on dpe_clock; 0: none */
    bool cancelled;  /**< by its client, or for its deadline */
    struct dpe_error error; /**< of the first sequence that failed */
    pthread_cond_t changed;
};

/** A refusal in the words of the interface; `status` 0: none. */
struct dpe_serve_refusal {
    unsigned status; /**< of HTTP */
    char param[64];  /**< the member that is wrong, or "" */
    char text[1100];
};
/** Record a refusal unless there is one; returns false. */
bool dpe_serve_refuse(struct dpe_serve_refusal *refusal, unsigned status, const char *param,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
/** The same, of a failed call: 400 for what the client can change, 504 when its time was used up, else
 *  500. */
bool dpe_serve_refuse_error(struct dpe_serve_refusal *refusal, const char *param,
                            const struct dpe_error *err);

/** Typed members of a request; after the first refusal all return their fallback. null is absent. */
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

/** A request from its JSON; false with a refusal. Free it in both cases. */
bool dpe_serve_request_parse(const struct dpe_serve_world *world, enum dpe_serve_kind kind,
                             const json_t *body, struct dpe_serve_request *request,
                             struct dpe_serve_refusal *refusal);
void dpe_serve_request_free(struct dpe_serve_request *request);
/** The prompt of a chat, rendered with the folder's template. */
bool dpe_serve_chat_prompt(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_tokens *ids, struct dpe_serve_refusal *refusal);

/* ------------------------------------------------------------------------------------ engine */

struct dpe_serve_slot {
    struct dpe_serve_sequence *sequence; /**< NULL: free */
    int32_t *tokens;                     /**< [length] what its branch holds */
    int64_t n;                           /**< of them */
    uint64_t used;                       /**< when it was used last */
};

/** What /metrics and the page show. */
struct dpe_serve_counts {
    int64_t requests, refused, cancelled, failed, prompt_tokens, cached_tokens, new_tokens, steps;
    int64_t running, waiting;
    double first_seconds, seconds; /**< sums over finished sequences: to the first token, in all */
    int64_t finished;
};

struct dpe_serve_engine {
    const struct dpe_serve_world *world;
    struct dpe_session *session;
    int64_t plan; /**< of the session */
    struct dpe_serve_slot *slots;
    int64_t n_slots, turn;
    float *logits; /**< [n_slots][vocab] */
    uint64_t clock;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct dpe_serve_sequence *head, *tail; /**< those that wait */
    struct dpe_serve_counts counts;
    bool stop;
};
dpe_status dpe_serve_engine_start(const struct dpe_serve_world *world,
                                  struct dpe_serve_engine *engine, struct dpe_error *err);
/** Ends the thread; no request may be unfinished. */
void dpe_serve_engine_stop(struct dpe_serve_engine *engine);
/** Put the request's sequences into the queue; false when it is full. From then on its time counts.
 */
bool dpe_serve_engine_submit(struct dpe_serve_engine *engine, struct dpe_serve_request *request);
/** End a request before it is finished, at the next step; `err` is why, NULL: its client is gone.
 *  With the lock held; a second call does nothing. */
void dpe_serve_engine_cancel(struct dpe_serve_engine *engine, struct dpe_serve_request *request,
                             const struct dpe_error *err);
struct dpe_serve_counts dpe_serve_engine_counts(struct dpe_serve_engine *engine);

/** Take the first of the queue, which is not empty; with the lock held. */
struct dpe_serve_sequence *dpe_serve_queue_pop(struct dpe_serve_engine *engine);
/** Take cancelled sequences out of the queue: they must not keep others waiting. */
void dpe_serve_queue_drop(struct dpe_serve_engine *engine);
/** A sequence that is in no queue and no slot has ended, with an error or NULL; its request may be
 *  gone afterwards. */
void dpe_serve_queue_finish(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence,
                            const char *how, const struct dpe_error *err);

/** Whether a running sequence reads what this one begins with as well, so that it is better to wait
 *  until that is in its cache. */
bool dpe_serve_slot_waits(const struct dpe_serve_engine *engine,
                          const struct dpe_serve_sequence *sequence);
/** A free slot for a sequence, which there is. Its cache holds what it, or that of a running
 *  sequence, has in common with the prompt. NULL with an error. */
struct dpe_serve_slot *dpe_serve_slot_take(struct dpe_serve_engine *engine,
                                           struct dpe_serve_sequence *sequence,
                                           struct dpe_error *err);

/** −ln of the sum of exponentials, so that logit + this is a log-probability. */
double dpe_serve_normalizer(const float *logits, int64_t vocab);
/** The next token: the likeliest when temperature is 0 (ties to the lower id), else drawn. −1: out
 * of memory. */
int32_t dpe_serve_sample(const float *logits, int64_t vocab, double temperature, double top_p,
                         struct dpe_rng *rng);
/** Append the score of `id` and its alternatives. */
void dpe_serve_score_add(struct dpe_serve_sequence *sequence, const float *logits, int64_t vocab,
                         int32_t id);

/** Decode what is new, look for stop strings; `last`: no token follows. True: a stop string ended
 * the text. */
dpe_status dpe_serve_text_grow(const struct dpe_serve_world *world,
                               struct dpe_serve_sequence *sequence, bool last, bool *stopped,
                               struct dpe_error *err);

/* ----------------------------------------------------------------------------------- answers */

/** The whole answer of a finished request. */
json_t *dpe_serve_answer(const struct dpe_serve_world *world,
                         const struct dpe_serve_request *request);
/** What a streaming client has got of a sequence. */
struct dpe_serve_sent {
    size_t bytes;
    int64_t scores;
    bool begun, finished;
};
/** The next piece of a sequence for a streaming client, NULL: nothing is new. With the lock held. */
json_t *dpe_serve_piece(const struct dpe_serve_world *world,
                        const struct dpe_serve_request *request, int64_t index,
                        struct dpe_serve_sent *sent);
/** The piece with the numbers of tokens, after all others. */
json_t *dpe_serve_usage_piece(const struct dpe_serve_world *world,
                              const struct dpe_serve_request *request);
json_t *dpe_serve_error(const struct dpe_serve_refusal *refusal);
json_t *dpe_serve_models(const struct dpe_serve_world *world);
json_t *dpe_serve_tokenizer_info(const struct dpe_serve_world *world);
json_t *dpe_serve_tokenize(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_serve_refusal *refusal);
json_t *dpe_serve_detokenize(const struct dpe_serve_world *world, const json_t *body,
                             struct dpe_serve_refusal *refusal);
json_t *dpe_serve_state(const struct dpe_serve_world *world,
                        const struct dpe_serve_counts *counts);
char *dpe_serve_metrics(const struct dpe_serve_world *world,
                        const struct dpe_serve_counts *counts);

struct dpe_serve_bytes {
    const void *bytes;
    size_t n;
};
extern const struct dpe_serve_bytes dpe_serve_page;

/* -------------------------------------------------------------------------------------- HTTP */

/** The open connections, in a list. */
struct dpe_serve_clients {
    pthread_mutex_t lock;
    struct dpe_serve_client *first;
};
/** libmicrohttpd's MHD_NotifyConnectionCallback, with the struct above. */
void dpe_serve_clients_notify(void *clients, struct MHD_Connection *connection, void **own,
                              enum MHD_ConnectionNotificationCode what);
/** When the client began to send a request, or might have; INFINITY: one is being answered. */
void dpe_serve_clients_since(struct MHD_Connection *connection, double since);
/** End those that have been sending a request for so many seconds. */
void dpe_serve_clients_end_slow(struct dpe_serve_clients *clients, double seconds);

struct dpe_serve_http;
dpe_status dpe_serve_http_start(const struct dpe_serve_world *world,
                                struct dpe_serve_engine *engine, struct dpe_serve_http **http,
                                struct dpe_error *err);
/** The port that it listens on. */
int64_t dpe_serve_http_port(const struct dpe_serve_http *http);
/** Called about four times a second: ends connections that send their request too slowly. */
void dpe_serve_http_watch(struct dpe_serve_http *http);
/** Accept nothing more, finish what is being answered, close. */
void dpe_serve_http_stop(struct dpe_serve_http *http);

#endif
