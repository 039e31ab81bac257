/**
 * @file serve_engine.h
 * What dpe-serve runs: the model under its plans, and a thread that reads prompts and decodes all
 * running sequences as one batch. It knows requests and their sequences, no HTTP; requests come
 * from JSON in eval/serve.
 *
 * Threads. Every connection has a thread of libmicrohttpd's, which parses its request, encodes the
 * prompts, waits, and writes the answer. One engine thread owns the session. Both meet in struct
 * dpe_serve_engine, under its lock.
 */
#ifndef DPE_SERVE_ENGINE_H
#define DPE_SERVE_ENGINE_H

#include <jansson.h>
#include <limits.h>
#include <pthread.h>

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/tool.h"
#include "eval/chat/chat.h"
#include "outputs/table/dpe_table.h"

enum {
    SERVE_MOST_STOPS = 16,
    SERVE_MOST_SLOTS = 256,
    SERVE_MOST_TAKEN = 4096, /* plans of clients, which together take at most so many bytes: */
    SERVE_MOST_TAKEN_BYTES = 64 << 20,
    SERVE_MOST_NAMES = 32, /* of hosts, of origins */
    SERVE_STACK = 8 << 20, /* of a thread, whatever `ulimit -s` is: JSON and templates nest */
};

/* ---------------------------------------------------------------------------- what is served */

/** The command line; NULL or 0: not given. */
struct dpe_serve_arguments {
    struct dpe_tool_options tool;
    const char *model, *name, *method, *table, *host, *key_file, *chat_template, *template_vars,
        *slot_path;
    const char *given; /**< --model as it was given; `model` is the folder or file that it means */
    int64_t trained_length, length, chunk, slots, queue, port;
    int64_t answer_room;                   /**< tokens; see dpe_serve_world_room */
    int64_t client_timeout;                /**< seconds */
    int64_t stop_timeout;                  /**< seconds */
    const char *hosts[SERVE_MOST_NAMES];   /**< --allow-host */
    const char *origins[SERVE_MOST_NAMES]; /**< --allow-origin */
    int64_t n_hosts, n_origins;
    int64_t request_timeout; /**< seconds, 0: none */
    bool other_model, no_plans;
};

/** A position plan, for texts of at most `length` tokens. */
struct dpe_serve_plan {
    struct dpe_plan plan;
    int64_t length;
    char digest[65];                   /**< of the plan, in hex */
    char evidence[DPE_TABLE_EVIDENCE]; /**< what was measured under the table's entry, or "" */
};

/** A plan that a client gave while the server runs. */
struct dpe_serve_given {
    struct dpe_serve_plan plan; /**< its digest is that of the request's bytes */
    char own[65];               /**< the plan's own, which files of slots name */
    int64_t number;             /**< among all that were ever given */
    int64_t holders;            /**< requests that name it */
    uint64_t used, bytes;
};
/** Those that are kept: where there is no room for another, what was not used for longest goes. */
struct dpe_serve_taken {
    pthread_mutex_t lock;
    struct dpe_serve_given *plans[SERVE_MOST_TAKEN];
    int64_t n, given;
    uint64_t clock, bytes;
};

/** What does not change while the server runs. */
struct dpe_serve_world {
    const struct dpe_serve_arguments *args;
    const char *name; /**< of the model, for clients; UTF-8 */
    char last_part[4 * NAME_MAX + 1];
    const char *device; /**< that runs the model */
    struct dpe_model *model;
    struct dpe_tokenizer *tokenizer;
    struct dpe_chat *chat;     /**< NULL: the folder has no chat template */
    struct dpe_chat_ends ends; /**< of an answer in a chat */
    json_t *tokenizer_config;  /**< tokenizer_config.json, or an empty object */
    char **keys;               /**< [n_keys] of which clients have to send one */
    int64_t n_keys;            /**< 0: none is needed */
    const char *method;        /**< of the plans; of a table NULL */
    int64_t length;            /**< most tokens of a prompt and its answer */
    int64_t started;           /**< seconds since 1970 */
    struct dpe_serve_plan *plans;
    int64_t n_plans;               /**< by increasing length */
    struct dpe_serve_taken *taken; /**< further ones: n_plans + number is the index of one */
};
dpe_status dpe_serve_world_open(const struct dpe_serve_arguments *args,
                                struct dpe_serve_world *world, struct dpe_error *err);
void dpe_serve_world_close(struct dpe_serve_world *world);
/** The plan with this index, which is the server's own, or held. */
const struct dpe_serve_plan *dpe_serve_world_plan(const struct dpe_serve_world *world,
                                                  int64_t index);
/** The index of the plan with this digest, which stays until it is released; −1: there is none. */
int64_t dpe_serve_world_hold(const struct dpe_serve_world *world, const char *digest);
/** Nothing for a plan of the server's own, or −1. */
void dpe_serve_world_release(const struct dpe_serve_world *world, int64_t index);
/** Keep the plan of a table of one entry in its JSON form, unless one of this digest is there.
 * DPE_BAD_DATA: it is no table, or one of another model; DPE_NO_MEMORY: requests hold as many as
 * may be there. */
dpe_status dpe_serve_taken_add(const struct dpe_serve_world *world, const struct json_t *value,
                               const char *digest, struct dpe_error *err);
/** The index of the plan that a text of so many tokens is run with. */
int64_t dpe_serve_world_choose(const struct dpe_serve_world *world, int64_t tokens);
/** The most new tokens after a prompt of so many, when the client names no number: as many as the
 * plan for the prompt and args->answer_room together has length for, below 0 when the prompt is too
 * long. */
int64_t dpe_serve_world_room(const struct dpe_serve_world *world, int64_t prompt);

/* ---------------------------------------------------------------------------------- requests */

/** RULER has two clients for PUT /generate: one sends `prompts` and reads a list of texts, the
 * other sends `prompt` and reads {"text": [...]}. */
enum dpe_serve_kind {
    SERVE_COMPLETION,
    SERVE_CHAT,
    SERVE_RULER,
    SERVE_RULER_ONE,
    SERVE_NORMS,    /**< sums of 2-norms of one prompt, for tools (outputs/remote/remote.h) */
    SERVE_SLOT,     /**< a slot is saved, restored or erased */
    SERVE_TOKENIZE, /**< the last two are answered without the engine */
    SERVE_DETOKENIZE
};

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
    int64_t plan;    /**< index into the plans */
    int64_t max_new; /**< tokens */
    int32_t *out;    /**< [max_new] */
    int64_t n_out;
    struct dpe_rng rng;
    struct dpe_serve_score *scores; /**< [prompt, if echoed, + max_new], NULL: not asked for */
    struct dpe_serve_score *tops;   /**< [scores][request->top], id −1: none */
    int64_t n_scores;
    struct dpe_text text;  /**< of the new tokens */
    size_t safe;           /**< bytes of it that no stop string can still take back */
    int64_t base, decoded; /**< tokens: where decoding goes on from, and how far it came */
    int64_t cached;        /**< prompt tokens that were in the cache already */
    const char *finish;    /**< "stop", "length", "error"; NULL: it is not finished */
    bool taken;            /**< from the queue: it runs, or did */
    double begun, first, ended;
    struct dpe_serve_sequence *next; /**< in the queue */
};

/** What is done with a slot, and what came of it. */
struct dpe_serve_move {
    enum { SERVE_SAVE, SERVE_RESTORE, SERVE_ERASE } action;
    int64_t slot;
    char *path; /**< of the file */
    int64_t tokens;
    uint64_t bytes;
    double seconds;
};

/** What a client asked for. */
struct dpe_serve_request {
    enum dpe_serve_kind kind;
    char id[48];
    int64_t created;
    struct dpe_tokens *prompts; /**< [n_prompts] */
    struct dpe_text *texts;     /**< [n_prompts] as they were given; no bytes: as ids */
    int64_t n_prompts, n;       /**< n continuations of each prompt */
    int64_t max_new;            /**< −1: what is left of the length */
    double temperature, top_p;
    uint64_t seed;
    uint64_t share[2]; /**< caches are shared by requests in which this is the same */
    int64_t plan;      /**< that the client named; −1: by its length */
    bool ids;          /**< the ids of new tokens are part of the answer */
    bool echo, stream, usage, scored, ignore_eos;
    bool add_special; /**< to prompts that are texts: what the tokenizer adds (BOS) */
    int64_t top;      /**< alternatives in logprobs */
    char *stops[SERVE_MOST_STOPS];
    int64_t n_stops;
    struct dpe_serve_sequence *sequences; /**< [n_prompts · n] */
    int64_t n_sequences;
    struct dpe_norm_sums norms; /**< of SERVE_NORMS */
    struct dpe_serve_move move; /**< of SERVE_SLOT */
    /* Under the engine's lock. */
    int64_t unfinished;
    double deadline;        /**< on dpe_clock; 0: none */
    bool cancelled;         /**< by its client, or for its deadline */
    struct dpe_error error; /**< of the first sequence that failed */
    pthread_cond_t changed;
};

/* ------------------------------------------------------------------------------------ engine */

struct dpe_serve_slot {
    struct dpe_serve_sequence *sequence; /**< NULL: free */
    int32_t *tokens;                     /**< [length] what its branch holds */
    int64_t n;                           /**< of them */
    uint64_t share[2];                   /**< of the request that it was read for */
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
    float *logits;           /**< [n_slots][vocab] */
    uint64_t request_memory; /**< bytes that the requests may take beside the session */
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
/** How many sequences may be there at once, running and waiting: --slots and --queue. */
int64_t dpe_serve_engine_most(const struct dpe_serve_engine *engine);
/** Put the request's sequences into the queue; false, and none of them, when it has no room for
 * all. From then on the request's time counts. */
bool dpe_serve_engine_submit(struct dpe_serve_engine *engine, struct dpe_serve_request *request);
/** End a request before it is finished, at the next step; `err` is why, NULL: its client is gone.
 *  With the lock held; a second call does nothing. */
void dpe_serve_engine_cancel(struct dpe_serve_engine *engine, struct dpe_serve_request *request,
                             const struct dpe_error *err);
struct dpe_serve_counts dpe_serve_engine_counts(struct dpe_serve_engine *engine);

#endif
