/**
 * @file kld.h
 * Two sessions read the same text; how far is what the second expects next from what the first
 * does? The measure is the Kullback-Leibler divergence KL(p‖q) = Σ p ln(p/q) of the two
 * distributions over the vocabulary after every token: 0 where they agree, in nats.
 */
#ifndef DPE_KLD_H
#define DPE_KLD_H

#include "engine/session/session.h"
#include "outputs/datasets/kinds.h"

/** What is kept of a token: p is the base's distribution before it, q the other's. */
struct dpe_kld_token {
    double kl;       /**< nats */
    double change;   /**< q(token) − p(token) */
    double base_nll; /**< −ln p(token), nats */
    double nll;      /**< −ln q(token), nats */
    double same;     /**< 1 where p and q have the same likeliest token, else 0 */
};
enum { DPE_KLD_NUMBERS = sizeof(struct dpe_kld_token) / sizeof(double) };

/** Compare the logits [vocab] of both before `token`. NaN or infinity in them gives NaN. */
struct dpe_kld_token dpe_kld_compare(const float *base, const float *other, int64_t vocab,
                                     int32_t token);
struct dpe_kld_saved;
/** Where the base's logits come from: a session, a file that has the text, or both: then the
 * session reads the text and the file keeps it. What a file rounds is the same in both cases. The
 * other session itself, without a file, reads the text once and is compared with itself. */
struct dpe_kld_base {
    struct dpe_session *session;
    struct dpe_kld_saved *saved; /**< NULL: the session alone */
    int64_t text;                /**< number of the text in the file */
};
/** The base, and another session, whose caches are emptied, read ids [n], n ≥ 2, in turn and a
 * piece at a time, so that never more than DPE_KLD_BYTES of logits are held: tokens[i] is about
 * ids[i + 1], i = 0 … n − 2. Their models have a vocabulary of the same size. DPE_NONFINITE with
 * the position (the layer is −1 where it was in the logits); errors of the sessions and of the
 * file. */
dpe_status dpe_kld_read(const struct dpe_kld_base *base, struct dpe_session *other, int64_t vocab,
                        const int32_t *ids, int64_t n, struct dpe_kld_token *tokens,
                        struct dpe_error *err);
enum { DPE_KLD_BYTES = 64 << 20 };

/** The tokens of n_texts texts of n + 1 tokens each: texts[s] are the n tokens of text s, NULL
 * where it is not there. The cell of positions first … end − 1 (of the token that is expected: 1 …
 * n) over all texts. Intervals are of the mean over texts. DPE_NO_MEMORY. */
dpe_status dpe_kld_summarize(const struct dpe_kld_token *const *texts, int64_t n_texts, int64_t n,
                             int64_t first, int64_t end, uint64_t seed, struct dpe_kld_cell *cell,
                             struct dpe_error *err);
/** The buckets of positions: 1, 2, 4, … up to n. */
int64_t dpe_kld_buckets(int64_t n);

#endif
