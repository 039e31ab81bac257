/**
 * @file remote.h
 * A model that another program runs: an engine that takes plans (dpe-serve, vLLM with outputs/vllm
 * and DPE_ENGINE=1), or any server of OpenAI's interface, which runs what it runs. A session that
 * is made with dpe_session_create_remote uses it in place of this process's own arithmetic.
 *
 * The protocol of an engine:
 *  - GET /v1/dpe: who it is (struct dpe_remote_about);
 *  - POST /v1/dpe/plan with a plan, a table of one entry in its JSON form (dpe_table_json): answers
 *    {"plan": DIGEST, "model": FINGERPRINT}, DIGEST being the SHA-256 of the body;
 *  - POST /v1/dpe/completions: OpenAI's completions with token ids as a prompt, and besides
 * "dpe_plan": DIGEST, under which it runs, and "return_token_ids": true; the "dpe" of the answer
 * names the digest again. Another server is asked for /v1/completions;
 *  - POST /v1/dpe/norms with "prompt": token ids, "dpe_plan": DIGEST and "products": answers the
 * sums of struct dpe_norm_sums as flat lists "q" and "k", the tokens of each layer as "rows", and
 * "dpe". Every answer is that of a stranger: what is of another type, truncated, too long, or under
 * another digest is refused.
 */
#ifndef DPE_REMOTE_H
#define DPE_REMOTE_H

#include "engine/plan/plan.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"

/** What a server says of itself; "" and 0: nothing. */
struct dpe_remote_about {
    bool plans;         /**< it takes plans; else it has one, which it does not tell */
    char engine[96];    /**< "dpe-serve", "vllm 0.32.0"; of a server without plans "openai" */
    char name[256];     /**< of the model, as clients call it */
    char model[80];     /**< fingerprint of the weights */
    char tokenizer[80]; /**< fingerprint */
    char numbers[96];   /**< types of weights and cache, device */
    int64_t length;     /**< the most tokens of a text */
};

struct dpe_remote_options {
    const char *url;      /**< http://HOST:PORT, perhaps with a path before /v1 */
    const char *key_file; /**< its first line is the key; NULL: none */
    int64_t in_flight;    /**< requests at once, ≥ 1 */
    double patience;      /**< seconds for which a server that is busy or gone is tried again */
    const struct dpe_tokenizer *tokenizer; /**< borrowed, as is */
    const struct dpe_config *config;       /**< of the model */
    dpe_poll poll;                         /**< called about ten times a second; NULL: none */
    void *poll_user;
};

struct dpe_remote_engine;
/** Ask the server who it is. DPE_USAGE: no such URL; DPE_NO_INPUT: it does not answer;
 * DPE_BAD_DATA: it answers otherwise. */
dpe_status dpe_remote_open(const struct dpe_remote_options *options,
                           struct dpe_remote_engine **engine, struct dpe_error *err);
/** NULL allowed. */
void dpe_remote_close(struct dpe_remote_engine *engine);
DPE_SCOPED_HANDLE(struct dpe_remote_engine *, dpe_remote_close)
const struct dpe_remote_about *dpe_remote_about(const struct dpe_remote_engine *engine);
/** What a session needs of it; valid until it is closed. To a server without plans every plan is a
 * name for the one that it runs: tools see to it that only one is asked for. */
const struct dpe_session_remote *dpe_remote_session(const struct dpe_remote_engine *engine);

#endif
