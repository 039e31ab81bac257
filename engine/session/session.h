/**
 * @file session.h
 * A model that runs under a plan: prefill, decoding, branches, likelihoods, generation.
 *
 * Ownership in the engine:
 * - A `dpe_model` is an opened Hugging Face folder or GGUF file: memory-mapped weights and what
 * they mean. It is immutable. Any number of sessions can share it; close it after the last of them.
 * - A `dpe_session` is a model, a backend, a position plan and a KV cache. One thread may use it at
 * a time; inside, it uses several threads.
 * - A `dpe_tokenizer` is immutable once it is opened.
 * - A `dpe_plan` is plain data: make it, give it to a session (which copies what it needs), free
 * it.
 *
 * Every function that can fail returns a `dpe_status` and describes the failure in its last
 * argument, which may be NULL. Libraries never print and never exit. Unless a comment states
 * otherwise: pointers are borrowed for the call only, outputs are written only on DPE_OK, sizes are
 * counts of elements, and results are deterministic: the same inputs give the same bits, for any
 * number of threads. The engine does not depend on any benchmark or any file format of this
 * project.
 */
#ifndef DPE_SESSION_H
#define DPE_SESSION_H

#include "engine/base/base.h"
#include "engine/model/model.h"
#include "engine/ops/ops_head.h" /* the likeliest token, and the sum for probabilities */
#include "engine/ops/options.h"
#include "engine/plan/plan.h"

struct dpe_session;

/** Called once per layer and prefill chunk with q and k before rotation (after bias).
 *  q [rows][n_heads][head_dim], k [rows][n_kv_heads][head_dim], rows start at position `start`;
 *  those of all heads, with peers too.
 *  Borrowed for the call. Return non-zero to stop the prefill with that status. */
typedef dpe_status (*dpe_tap)(void *user, int64_t layer, int64_t start, int64_t rows,
                              const float *q, const float *k, struct dpe_error *err);

enum { DPE_MAX_BRANCHES = 4096 };
/** Layers with a state (dpe_config.recurrent) have one for each branch, and so many more: what a
 * branch is cut back to goes on from the nearest one, and the tokens after it run again. Cuts,
 * copies and branches may be anywhere; they cost the time of these tokens. */
enum { DPE_KEPT_STATES = 4 };

/** Bytes that a session needs. */
struct dpe_session_needs {
    uint64_t memory;  /**< that it allocates */
    uint64_t weights; /**< mapped from disk: those that this process uses */
    uint64_t file;    /**< of the file in which it keeps keys and values; 0: in memory */
};
/** What a session of this model, capacity and plan will need. Allocates nothing. */
dpe_status dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options,
                                struct dpe_session_needs *needs, struct dpe_error *err);
/** Estimate the memory and refuse with DPE_NO_MEMORY when it is not available (the message has the
 * bytes needed, the bytes free and the options that change them); then allocate everything once.
 * The plan (of the whole model, with peers too) is copied.
 * Where only keys and values do not fit into max_memory and kv_dir is given, they live in a file:
 * DPE_CANNOT_CREATE or DPE_IO when there is no room for it. Results have the same bits.
 * DPE_NO_DEVICE when the backend does not support this model, plan or type of the cache, or when
 * the results of the device differ from those of the CPU: the first session of a process on a
 * device tests this with a small model of the same kind (DPE_DEVICE_SELF_TEST in the environment:
 * "off", or the number of tokens in its prefill). DPE_USAGE when the heads cannot be divided among
 * the peers. */
dpe_status dpe_session_create(const struct dpe_model *model, const struct dpe_plan *plan,
                              const struct dpe_session_options *options,
                              struct dpe_session **session, struct dpe_error *err);
void dpe_session_destroy(struct dpe_session *session);
DPE_SCOPED_HANDLE(struct dpe_session *, dpe_session_destroy)
/** Sums over tokens of the 2-norms of the pairs of q and k before rotation. The caller sets them to
 *  zero and keeps them alive. */
struct dpe_norm_sums {
    bool products; /**< of ‖q^(j)‖·‖k^(j)‖ (in q alone, k NULL), else of each */
    double *q;     /**< [n_layers][n_heads][n_pairs] */
    double *k;     /**< [n_layers][n_kv_heads][n_pairs] */
    int64_t *rows; /**< [n_layers] tokens that were added */
};
/** A text, and where its sums are added. */
struct dpe_norm_text {
    const int32_t *ids; /**< [n] */
    int64_t n;
    struct dpe_norm_sums sums;
};
/** A prompt for another program to continue. */
struct dpe_remote_text {
    const int32_t *ids; /**< [n] */
    int64_t n, max_new;
    bool ignore_eos;
    struct dpe_tokens *out; /**< new tokens are appended, without the end of sequence */
};
/** A model that another program runs. */
struct dpe_session_remote {
    void *user;
    /** Run under this plan from now on. */
    dpe_status (*take_plan)(void *user, const struct dpe_plan *plan, struct dpe_error *err);
    /** Continue n texts greedily, at once where it can. */
    dpe_status (*generate)(void *user, const struct dpe_remote_text *texts, int64_t n,
                           struct dpe_error *err);
    /** nll[i] = −ln p(ids[first + i] | those before), i = 0 … n − first − 1; first ≥ 1. */
    dpe_status (*likelihood)(void *user, const int32_t *ids, int64_t n, int64_t first, double *nll,
                             struct dpe_error *err);
    /** Add the norms of n texts of a model of this configuration, at once where it can. */
    dpe_status (*norms)(void *user, const struct dpe_config *config,
                        const struct dpe_norm_text *texts, int64_t n, struct dpe_error *err);
};
/** A session whose model another program runs; `remote` is borrowed for its life. The model is here
 * for its configuration, opened with config_only perhaps. It feeds, cuts, branches, generates and
 * has likelihoods of branch 0 and norms; logits, steps and taps are DPE_USAGE or never called.
 * Generation stops by `stop` after all tokens were made. */
dpe_status dpe_session_create_remote(const struct dpe_model *model, const struct dpe_plan *plan,
                                     const struct dpe_session_options *options,
                                     const struct dpe_session_remote *remote,
                                     struct dpe_session **session, struct dpe_error *err);
/** Before another thread goes on with the sessions of this one: frees the OpenMP team of this
 * thread. libgomp would count its threads with those of the other's team, and lets threads sleep at
 * once where it counts more of them than cores. */
void dpe_session_hand_over(void);
/** Replace the plan; this empties the cache (hidden states depend on the plan). A plan that is
 * refused (DPE_USAGE, DPE_NO_DEVICE, over max_memory) changes nothing; when memory runs out while
 * its tables are made, the session has no plan until the next call succeeds. */
dpe_status dpe_session_set_plan(struct dpe_session *session, const struct dpe_plan *plan,
                                struct dpe_error *err);
void dpe_session_set_tap(struct dpe_session *session, dpe_tap tap, void *user);
/** Run each of n texts from position 0 on and add its norms to its sums, wherever the model runs.
 * The cache then holds the last one, or anything. On failure some texts may have been added. */
dpe_status dpe_session_norms(struct dpe_session *session, const struct dpe_norm_text *texts,
                             int64_t n, struct dpe_error *err);
/** Called before every layer of every chunk or token, and while a new plan's tables are made; NULL:
 * no call. Any status other than DPE_OK stops the pass with that status. Unlike a tap it does not
 * copy q and k. */
typedef dpe_status (*dpe_poll)(void *user, struct dpe_error *err);
void dpe_session_set_poll(struct dpe_session *session, dpe_poll poll, void *user);

/** Rows of a prefill chunk. The same calls give the same bits, for any number of threads. However
 *  tokens are divided into calls, results agree to rounding; they agree bit for bit when the calls
 *  end at multiples of this chunk. To reuse a prefix bit for bit, cut the cache to the last
 * multiple within the common prefix and feed from there. */
int64_t dpe_session_chunk(const struct dpe_session *session);
/** The number of leading tokens that the cache (with branches: their common prefix) and these
 * tokens have in common. A cut to at most this many tokens keeps what a new prompt can reuse. */
int64_t dpe_session_common(const struct dpe_session *session, const int32_t *tokens, int64_t n);
/** Cut the cache back to its first `keep` tokens (0 ≤ keep ≤ length) and end branching: with
 *  several branches only the common prefix can be kept (keep ≤ prefix, else DPE_USAGE). */
dpe_status dpe_session_cut(struct dpe_session *session, int64_t keep, struct dpe_error *err);
/** Run tokens after those in the cache (of branch 0, when there are several). `logits` [vocab] of
 *  the last token, or NULL: then the LM head does not run at all. DPE_USAGE when the cache is full;
 * DPE_BAD_DATA on an id outside the vocabulary; DPE_NONFINITE with layer and position. On failure
 * the cache is cut back to where it was. */
dpe_status dpe_session_feed(struct dpe_session *session, const int32_t *tokens, int64_t n,
                            float *logits, struct dpe_error *err);
/** Run tokens like dpe_session_feed and write nll[i] = −ln p(tokens[i+1] | … tokens[i]) in nats for
 *  i = 0 … n−2 (the log-sum-exp is computed in double; LM head in row blocks, never vocab × n at
 * once). n ≥ 2. On failure `nll` may be partly written. */
dpe_status dpe_session_nll(struct dpe_session *session, const int32_t *tokens, int64_t n,
                           double *nll, struct dpe_error *err);

/* Branches. Several continuations of one cached context (questions about a text), or several texts
 * with nothing in common (a prefix of 0 tokens), are decoded together as one batch: a weight is
 * read once for all of them. A session without branches is the case n = 1, prefix 0, room =
 * capacity, and everything above is about its one branch.
 *
 * The cache holds a common prefix of P tokens in rows 0 … P−1; the own tokens of branch b stand at
 * positions P, P+1, … and lie in rows P + b·room … P + (b+1)·room − 1. A query of branch b sees the
 * prefix and its own branch, nothing else. What a branch computes agrees to rounding with what a
 * session would that was fed the prefix and that branch alone, and does not depend on what the
 * other branches hold. */

/** Make what is in the cache (0 tokens or more) the common prefix of `n` empty branches of at most
 *  `room` own tokens each. DPE_USAGE when n exceeds dpe_session_options.branches, when P + room
 *  exceeds its positions or P + n·room its capacity, or when there are several branches already
 *  (dpe_session_cut ends them). */
dpe_status dpe_session_branch(struct dpe_session *session, int64_t n, int64_t room,
                              struct dpe_error *err);
/** dpe_session_feed to one branch: many tokens at once, like a prefill. */
dpe_status dpe_session_branch_feed(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, float *logits,
                                   struct dpe_error *err);
/** Called with the logits [n][vocab] after tokens[first … first+n−1] of a call; borrowed. */
typedef void (*dpe_rows)(void *user, int64_t first, int64_t n, const float *logits);
/** dpe_session_branch_feed that gives the logits after every token, in order and a block at a time.
 */
dpe_status dpe_session_branch_rows(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, dpe_rows rows, void *user,
                                   struct dpe_error *err);
/** Cut one branch back to its first `keep` tokens (prefix ≤ keep ≤ its length); the others stay as
 *  they are. DPE_USAGE when there is no such branch or it has fewer tokens. */
dpe_status dpe_session_branch_cut(struct dpe_session *session, int64_t branch, int64_t keep,
                                  struct dpe_error *err);
/** Make the first n tokens of branch `to` those of branch `from`, without running them; what `to`
 * held after the prefix goes. prefix ≤ n ≤ the length of `from`, different branches, else
 * DPE_USAGE. Without a prefix and a selection the CPU devices do not copy: `to` reads the rows of
 * `from` until that is cut back, and steps of both read them from memory once. The results have the
 * same bits either way. */
dpe_status dpe_session_branch_copy(struct dpe_session *session, int64_t from, int64_t to, int64_t n,
                                   struct dpe_error *err);
/* Keys and values of a branch, for a file: those of layer 0, 1, …, keys before values, head by
 * head, of each the rows of the first tokens as the cache has them. Only of the CPU devices, in
 * memory, without peers, prefix and selection. */
struct dpe_saved_shape {
    const char *model, *device; /**< fingerprint, name of the backend: what decides the numbers, */
    char plan[65];              /**< digest of the plan, */
    int64_t chunk;              /**< and dpe_session_chunk */
    enum dpe_kv_type type;
    int64_t layers, heads; /**< KV heads */
    int64_t row_bytes;     /**< of a token, in one head */
};
/** DPE_USAGE where this session's cannot be moved, with the reason. */
dpe_status dpe_session_saved_shape(const struct dpe_session *session, struct dpe_saved_shape *shape,
                                   struct dpe_error *err);
/** Called with n bytes of the cache, which are those from byte `at` of all of them on; in several
 * threads at once and in any order, unless `in_order`. */
struct dpe_saved_mover {
    dpe_status (*move)(void *user, uint64_t at, void *bytes, size_t n, struct dpe_error *err);
    void *user;
    bool in_order;
};
/** Show the mover those of a branch's first n tokens. The status of the mover; DPE_USAGE. */
dpe_status dpe_session_move_saved(struct dpe_session *session, int64_t branch, int64_t n,
                                  const struct dpe_saved_mover *mover, struct dpe_error *err);
/** Let the mover fill them in: the branch holds the tokens ids [n] afterwards, and goes on with the
 * bits that it would have had. After a failure it is empty. */
dpe_status dpe_session_restore(struct dpe_session *session, int64_t branch, const int32_t *ids,
                               int64_t n, const struct dpe_saved_mover *mover,
                               struct dpe_error *err);

/** What a session can hold: its options, resolved. */
struct dpe_session_limits {
    int64_t capacity, positions, branches;
    int64_t chunk; /**< dpe_session_chunk */
    int threads;
    int64_t full_chunk; /**< the chunk before it was halved for lack of device memory */
    int64_t vocab;      /**< logits of a token */
};
struct dpe_session_limits dpe_session_limits(const struct dpe_session *session);

/** What the session has computed since it was made. */
struct dpe_session_work {
    int64_t fed;     /**< tokens that went through the layers many at a time: prompts, texts */
    int64_t decoded; /**< tokens that did so one of a branch at a time */
    int64_t steps;   /**< passes that these took */
    double seconds;  /**< that these took; of a step of several sessions, in the first one's */
};
struct dpe_session_work dpe_session_work(const struct dpe_session *session);

/** One token to each of n different branches, as one batch: tokens[i] goes to branches[i], and
 *  logits [n][vocab] (or NULL: none are computed) are those after it. Errors as dpe_session_feed;
 *  if one branch fails (DPE_NONFINITE), the whole step fails and no branch grows. */
dpe_status dpe_session_step(struct dpe_session *session, int64_t n, const int64_t *branches,
                            const int32_t *tokens, float *logits, struct dpe_error *err);

/** The branches of a session that take part in a step. */
struct dpe_session_part {
    struct dpe_session *session;
    int64_t n;
    const int64_t *branches; /**< [n] different ones */
};
/** One token to each branch of each part, the parts' sessions being beside each other
 * (dpe_session_options.beside), each with a context and a plan of its own: the weights are read
 * once for all of them, the common prefix of a session once for its branches. tokens [rows], in the
 * order of the parts; logits [rows][vocab] or NULL; best [rows] or NULL: the likeliest next tokens.
 * The results are those of steps of one session of as many rows; taps are not called where there
 * are several. Errors as dpe_session_step; DPE_USAGE when sessions share no buffers, or the rows
 * are more than a chunk and than the branches of the session that the others are beside. If one
 * branch fails, the whole step fails and no branch grows. */
dpe_status dpe_session_step_parts(const struct dpe_session_part *parts, int64_t n_parts,
                                  const int32_t *tokens, float *logits, int32_t *best,
                                  struct dpe_error *err);

/** dpe_session_step as greedy generation makes it: the likeliest next token of each branch (ties to
 * the lower id) instead of logits. */
dpe_status dpe_session_step_best(struct dpe_session *session, int64_t n, const int64_t *branches,
                                 const int32_t *tokens, int32_t *best, struct dpe_error *err);

/** How tokens are drawn. */
struct dpe_sampling {
    double temperature; /**< divides the logits; 0: the likeliest token, always */
    double top_p; /**< drawn from the fewest likeliest tokens with this share, 0 < top_p ≤ 1 */
    struct dpe_rng *rng; /**< borrowed, advanced by every draw */
};

/** A token drawn from `vocab` ≥ 1 finite logits. −1: out of memory. */
int32_t dpe_sample(const float *logits, int64_t vocab, const struct dpe_sampling *sampling);

/** Called after every generated token with all tokens generated so far; true stops. */
typedef bool (*dpe_stop)(void *user, const int32_t *generated, size_t n);

struct dpe_generate_options {
    int64_t max_new;
    dpe_stop stop; /**< NULL: only end of sequence and max_new */
    void *user;
    bool ignore_eos;
    const struct dpe_sampling *sampling; /**< how tokens are drawn; NULL: the likeliest, always */
};
/** Feed the prompt, then append tokens (the likeliest, ties to the lower id, or drawn ones) to
 * `out` until an end-of-sequence id of the model (not appended), `stop`, or max_new. The cache must
 * have room for the prompt (n ≥ 1) and max_new − 1 tokens; afterwards it holds the prompt and the
 * new tokens but the last. On failure `out` may hold some of them. */
dpe_status dpe_session_generate(struct dpe_session *session, const int32_t *prompt, int64_t n,
                                const struct dpe_generate_options *options, struct dpe_tokens *out,
                                struct dpe_error *err);

/** One of the sequences that dpe_session_generate_branches continues. */
struct dpe_continuation {
    const int32_t *prompt; /**< [n], fed after what the branch holds; n ≥ 1 */
    int64_t n;
    struct dpe_generate_options options;
    struct dpe_tokens *out; /**< new tokens are appended; no two share one */
};
/** dpe_session_generate for all branches at once, item b in branch b: prompts are fed one after
 *  another, then every step generates one token of each branch that has not ended. Each gets what
 *  dpe_session_generate would give it alone, up to rounding. n = the branches there are. On failure
 *  the outputs may hold some tokens. */
dpe_status dpe_session_generate_branches(struct dpe_session *session,
                                         const struct dpe_continuation *items, int64_t n,
                                         struct dpe_error *err);

/** The continuations of a session's branches. */
struct dpe_generation {
    struct dpe_session *session;
    const struct dpe_continuation *items; /**< [n] */
    int64_t n;                            /**< the branches there are */
};
/** dpe_session_generate_branches for all branches of n sessions beside each other, whose steps are
 * one as far as dpe_session_step_parts allows. */
dpe_status dpe_session_generate_parts(const struct dpe_generation *parts, int64_t n,
                                      struct dpe_error *err);

/* Parts of a session's work, timed one at a time (dpe-bench). */

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
    uint64_t file; /**< in which it keeps keys and values; 0: they are in memory. Once reading or
                        writing it has failed, every call that runs tokens returns DPE_IO */
};
struct dpe_session_memory dpe_session_memory(const struct dpe_session *session);

#endif
