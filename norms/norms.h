/**
 * @file norms.h
 * The profile of every head: which pairs of its dimensions carry its logits; and the study of
 * dpe-norms, excerpts in, the profile out.
 *
 * By Cauchy–Schwarz the share of pair j in a logit is at most ‖q^(j)‖·‖k^(j)‖, so pairs are ranked
 * by that product, averaged over tokens (the paper's section on key dimensions). The
 * sums are streamed by a session (dpe_session_norms): no q or k is kept, memory does not grow with
 * length or samples.
 */
#ifndef DPE_NORMS_H
#define DPE_NORMS_H

#include "data/data.h"
#include "engine/base/base.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "outputs/job/job.h"

/** How norms become one score per pair. */
enum dpe_contribution {
    DPE_PRODUCT_OF_MEANS, /**< mean_t ‖q_t‖ · mean_t ‖k_t‖: the paper (default) */
    DPE_MEAN_OF_PRODUCTS, /**< mean_t ‖q_t‖·‖k_t‖ at the same position: the paper's released code */
};
/** "product-of-means", "mean-of-products"; NULL ends them. */
extern const char *const dpe_contribution_names[];

/** Running sums of one sample: [n_layers][n_heads][n_pairs], in double. */
struct dpe_norms {
    const struct dpe_config *config; /**< borrowed */
    struct dpe_norm_sums sums;       /**< for dpe_session_norms or dpe_norm_sums_add */
    size_t n;                        /**< sums of q and k, which are in one room */
};
/** For models of this configuration. The k-norm of a query head is that of its KV head. Destroy it
 * also after a failure. */
dpe_status dpe_norms_create(const struct dpe_config *config, enum dpe_contribution kind,
                            struct dpe_norms *norms, struct dpe_error *err);
void dpe_norms_destroy(struct dpe_norms *norms);
/** Forget all sums. */
void dpe_norms_reset(struct dpe_norms *norms);
/** Number of scores: n_layers * n_heads * n_pairs. */
int64_t dpe_norms_size(const struct dpe_norms *norms);
/** The scores of the tokens seen since the reset, [n_layers][n_heads][n_pairs]. DPE_INTERNAL when
 *  a layer saw no token, DPE_NONFINITE (with the layer) when a score is not finite. */
dpe_status dpe_norms_finish(const struct dpe_norms *norms, double *scores, struct dpe_error *err);

/** Mean and standard error over `n` score tables of `size` scores each; tables[i] NULL = missing
 *  (never counted as zeros). sem is NaN where fewer than two are there; mean is NaN for none. */
void dpe_norms_mean(const double *const *tables, size_t n, int64_t size, double *mean, double *sem);
/** Pairs of each head by descending score, ties to the lower pair: ranking
 *  [n_layers * n_heads][n_pairs] of pair indices. Its first k are the top-k, its last k the last-k.
 */
void dpe_norms_rank(const double *mean, int64_t n_rows, int64_t n_pairs, uint16_t *ranking);
/** Entropy in bits of one head's scores taken as shares, and the share that its k largest hold. */
double dpe_norms_entropy(const double *scores, int64_t n_pairs);
double dpe_norms_share(const double *scores, const uint16_t *ranking, int64_t n_pairs, int64_t k);

/** Excerpts of a corpus for profiling: its books in seeded order, concatenated, cut into excerpts
 * of `length` tokens that do not overlap; each begins with the tokenizer's own prefix (BOS). */
struct dpe_excerpts {
    int64_t length; /**< tokens of an excerpt, prefix included */
    int64_t n;
    int32_t *ids; /**< [n][length], owned */
};
/** DPE_BAD_DATA, with the number of missing tokens, if the corpus is too short for n excerpts. */
dpe_status dpe_excerpts_make(const struct dpe_corpus *corpus, const struct dpe_tokenizer *tokenizer,
                             int64_t length, int64_t n, uint64_t seed,
                             enum dpe_special_policy special, struct dpe_excerpts *excerpts,
                             struct dpe_error *err);
void dpe_excerpts_free(struct dpe_excerpts *excerpts);

/* ----------------------------------------------------------------------- the study of dpe-norms */

/** What is asked for. */
struct dpe_norms_arguments {
    struct dpe_job_options job;
    const char *lengths; /**< of the excerpts: "A,B,…"; "auto" or NULL: powers of two up to L0 */
    enum dpe_contribution contribution;
    enum dpe_special_policy special;
};
/** Excerpts of each length and their seed, where none are given. */
enum { DPE_NORMS_SAMPLES = 10, DPE_NORMS_SEED = 1 };

/** Its args: struct dpe_norms_arguments. */
extern const struct dpe_study dpe_norms_study;

#endif
