/**
 * @file stats.h
 * Statistics of rows: intervals, paired tests, perplexity, races.
 */
#ifndef DPE_STATS_H
#define DPE_STATS_H

#include "engine/base/base.h"
#include "outputs/h5/interval.h"

/** How samples are counted. Those that share a context, or its first half, are not independent:
 * they change their sign as one, and the variance is that of contexts. "Contexts" below are such
 * samples in a row. */
struct dpe_resampling {
    int64_t together; /**< values in a row that belong together, ≥ 1; the last ones may be fewer */
    double level;     /**< of an interval, e.g. 0.95 */
    int rounds;       /**< random flips of a test that is not exact */
    uint64_t seed;
};
/** Mean of values in [0, 1] and its interval, within [0, 1]: Wilson's score interval (1927) of so
 * many trials as have the variance of the contexts. That variance is moderated (Smyth 2004): the
 * one that was seen, with n − 1 degrees of freedom where the mean is 0.5 and 4 p (1 − p) of them
 * elsewhere, and the one that is expected, p (1 − p) (0.3 + 0.7 / m) for m questions of which 0.3
 * is in common, with
 *  4. tests/eval/test_stats.c simulates how often it holds the truth, from two contexts on. NaN
 * values are left out. */
struct dpe_interval dpe_bootstrap_share(const double *values, size_t n,
                                        const struct dpe_resampling *how);
/** Mean of values without bounds; Student's t over contexts. */
struct dpe_interval dpe_bootstrap_mean(const double *values, size_t n,
                                       const struct dpe_resampling *how);
/** Two-sided p-value of a sign-flip permutation test of mean(a − b) = 0 over pairs where both are
 *  valid; exact for ≤ 16 contexts whose sum is not zero, else how->rounds random flips (+1 rule).
 *  1 when there is no difference at all. */
double dpe_sign_flip(const double *a, const double *b, size_t n, const struct dpe_resampling *how);
/** Compare two plans on the same samples. shares: values in [0, 1], as recall.
 *
 *  The interval is Student's t over contexts; of shares with a moderated variance (Smyth 2004):
 * that of contexts, with n − 1 degrees of freedom, and the one that is expected from that of
 * questions, σ² (0.3 + 0.7 / m) for m questions of which 0.3 is in common, with 4; that alone where
 * all contexts agree. With a == b the difference is 0 without a doubt.
 *
 *  p is that of dpe_sign_flip. But fewer than twelve contexts of several questions each can show
 * little that way (below six contexts nothing), although their questions say much: there p < 0.05
 * is where the interval leaves 0 out. tests/eval/test_stats.c simulates how often it is wrong (at
 * most 6 % where 0.3 is in common), and what it shows. */
struct dpe_difference dpe_compare(const double *a, const double *b, size_t n, bool shares,
                                  const struct dpe_resampling *how);
/** The usual size of a paired comparison at 5 %, two-sided, with a power of 80 % (1.96 + 0.84
 * standard errors): the smallest mean difference that n contexts of `together` questions show whose
 * differences have that variance; INFINITY below six contexts of one question, which never pass a
 * sign-flip test, and below two of several. And the contexts that show a mean difference, at least
 * as many. */
double dpe_shown_difference(double variance, int64_t n, int64_t together);
double dpe_showing_contexts(double variance, double mean, int64_t together);
/** The t with P(|T| ≤ t) = level of Student's t; NaN for no degree of freedom or a level outside
 *  (0, 1). */
double dpe_student_quantile(double level, int64_t freedom);
/** exp(Σ nll / Σ tokens) over books, with an interval from the delete-one-book jackknife of
 *  Σ nll / Σ tokens and Student's t with (books − 1) degrees of freedom. Books with NaN or without
 *  tokens are left out. With words in place of tokens it is the word-level perplexity. */
struct dpe_interval dpe_perplexity(const double *nll_sum, const int64_t *n_tokens, size_t n,
                                   double level);

/* Racing: what can no longer be the best of its group is not run any further. */

struct dpe_race_options {
    int64_t per_round;   /**< samples of a round, ≥ 1 */
    double level;        /**< of the test that drops an arm, in (0, 0.5) */
    double indifference; /**< an arm is dropped once it is not better by this much or more than the
                              best one of its group (in units of the score), ≥ 0 */
    int64_t most_rows;   /**< > 0: the race ends before a round that would need more rows than these
                              in all, and when one arm of every group is left; 0: it runs all
                              samples */
};

/** The rows of a race. An arm is what is run on the samples 0, 1, …; arms of a group compete. */
struct dpe_race_rows {
    int n_arms, n_groups;
    const int *group;           /**< [n_arms] */
    const unsigned char *keep;  /**< [n_arms] 1 = never dropped; NULL: none is kept */
    int64_t n_samples;          /**< of every arm, at most */
    int64_t together;           /**< samples in a row that belong together, ≥ 1 */
    const unsigned char *there; /**< [arm][sample] the row exists */
    const double *goodness;     /**< [arm][sample] larger = better; NaN: not valid */
};

/** What a race has decided. Arrays owned; free with dpe_race_free. */
struct dpe_race {
    int64_t samples;  /**< rows that every live arm has */
    int64_t *dropped; /**< [arm] samples after which it was dropped, −1 = live */
    bool complete;    /**< no live arm lacks a row that the race needs */
};

/** Replay a race on the rows that are there: after each round but the last every live arm of a
 *  group is compared with the best live one (mean over its valid rows, ties to the larger index)
 *  by a paired one-sided sign-flip test on the samples so far (those that belong together are one),
 *  and dropped when p < level. Ends where a live arm lacks a row of a round, with complete = false;
 *  samples is then where that round begins. The same rows, the same race. DPE_USAGE, DPE_NO_MEMORY.
 */
dpe_status dpe_race_replay(const struct dpe_race_options *options, const struct dpe_race_rows *rows,
                           struct dpe_race *race, struct dpe_error *err);
/** Mean of an arm's valid rows among its first n; −INFINITY when there are none. */
double dpe_race_mean(const struct dpe_race_rows *rows, int arm, int64_t n);
void dpe_race_free(struct dpe_race *race);

#endif
