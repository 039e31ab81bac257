/**
 * @file kld.h
 * Two sessions read the same text; how far is what the second expects next from what the first
 * does? The measure is the Kullback-Leibler divergence KL(p‖q) = Σ p ln(p/q) of the two
 * distributions over the vocabulary after every token: 0 where they agree, in nats.
 */
#ifndef DPE_KLD_H
#define DPE_KLD_H

#include "engine/base/base.h"
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
                             int64_t first, int64_t end, struct dpe_kld_cell *cell,
                             struct dpe_error *err);
/** The buckets of positions: 1, 2, 4, … up to n. */
int64_t dpe_kld_buckets(int64_t n);

/* ----------------------------------------------------------------------------- a base in a file */

/* A base's distributions kept in a file, so that many methods are compared with one reading of it.
 *
 * A token's row holds ln p of the vocabulary in steps of 16 bits, from the likeliest token down to
 * where p is exp(−32) of its probability (about 1e-14); what is less likely stands at that. Which
 * token is the likeliest, and p of the token that follows, are kept exactly. The rounding is
 * measured when a row is written. Texts stand at places of their own, so that processes may write
 * different ones, and two that write the same write the same bytes. A text counts when it is
 * complete.
 * Each row has a checksum: a file that was cut or changed is DPE_BAD_DATA, never other numbers. */

/** What must be the same for a file to be read: of texts of `length` tokens, by this plan of this
 * model on this device. */
struct dpe_kld_saved_name {
    int64_t vocab, length;
    const char *plan, *model, *device, *kv_type;
};

/** Open a file, or begin one. DPE_BAD_DATA: another kind of file; DPE_MISMATCH: of another base,
 * with the difference; DPE_CANNOT_CREATE, DPE_IO, DPE_NO_MEMORY. */
dpe_status dpe_kld_saved_open(const char *path, const struct dpe_kld_saved_name *name,
                              struct dpe_kld_saved **saved, struct dpe_error *err);
/** NULL is allowed. */
void dpe_kld_saved_close(struct dpe_kld_saved *saved);
DPE_SCOPED_HANDLE(struct dpe_kld_saved *, dpe_kld_saved_close)
/** Bytes of a text. */
int64_t dpe_kld_saved_bytes(int64_t vocab, int64_t length);

/** Whether the file has text `text`, whose tokens are ids [length]. DPE_MISMATCH: it is another
 * text; DPE_BAD_DATA. */
dpe_status dpe_kld_saved_has(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             bool *has, struct dpe_error *err);
/** Keep the rows `at` … at + rows − 1: logits [rows][vocab], which become ln p as a reader gets
 * them, and nll [rows] = −ln p of next [rows]. Values that are not finite are kept as such. */
dpe_status dpe_kld_saved_put(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             const int32_t *next, float *logits, double *nll,
                             struct dpe_error *err);
/** The text is complete, and on disk. */
dpe_status dpe_kld_saved_end(struct dpe_kld_saved *saved, int64_t text, const int32_t *ids,
                             struct dpe_error *err);
/** Read rows back. DPE_BAD_DATA: they are not what was written. */
dpe_status dpe_kld_saved_get(struct dpe_kld_saved *saved, int64_t text, int64_t at, int64_t rows,
                             float *logits, double *nll, struct dpe_error *err);

/** Of the rows of texts 0 … n_texts − 1 that are complete: KL(p‖what is kept), nats, mean and
 * largest; 0 tokens: none is, or saved is NULL. */
struct dpe_kld_rounding {
    int64_t tokens;
    double mean, most;
};
dpe_status dpe_kld_saved_rounding(struct dpe_kld_saved *saved, int64_t n_texts,
                                  struct dpe_kld_rounding *rounding, struct dpe_error *err);

#endif
