/**
 * @file instrument.h
 * How well a task tells good plans apart for the tokens that it costs.
 */
#ifndef DPE_DETECT_INSTRUMENT_H
#define DPE_DETECT_INSTRUMENT_H

#include "detect/sweep/ranking.h"

/** What some contexts of a task show of plans. */
struct dpe_detect_reading {
    double mean;        /**< recall of the plans that count */
    double sensitivity; /**< what it changes by when their skill does, in logits: p (1 − p) */
    double noise;       /**< variance of a context's recall that plans do not share */
    double within; /**< variance of a question's recall beside the others of its context, that plans
                      do not share; 0: one question each */
    int64_t decoded;    /**< tokens that a question decodes on average */
    int64_t tokens;     /**< a context costs: those read, and those decoded weighed */
    double reliability; /**< share of the variance of plans' means that is not noise, 0 … 1 */
    double per_million; /**< sensitivity² / noise for a million of these tokens */
};
/** The difference of two plans' recall that so many contexts show in four of five sets, by a
 *  two-sided test of 5 %. */
double dpe_detect_reading_shows(const struct dpe_detect_reading *reading, double contexts);

/** Below this good plans find too little: what is better and what is worse
 * both end near nothing. */
#define DPE_DETECT_FAINT 0.35

/** Whether a search measures better with the task of `tried` than with that of `now`: it says more
 * for its tokens, or it is `easier`, with as many questions on a context, and good plans find less
 * than DPE_DETECT_FAINT of `now`, whatever the noise of a few contexts says. */
bool dpe_detect_reading_better(const struct dpe_detect_reading *tried,
                               const struct dpe_detect_reading *now, bool easier);

/** How many questions on each context, a power of two of at most `most`, say most for the tokens
 * they cost, when the reading is of contexts with `asked` of them. A context's mean has the
 * variance b + w/m of m questions, b between contexts and w within them, and costs P + m·D tokens
 * read and decoded, so m = √(P·w/(D·b)); b is what the noise is more than w/asked. `asked` where
 * nothing was seen within contexts. */
int dpe_detect_questions(const struct dpe_detect_reading *reading, int asked, int most);

/** Of the plans with live[i], those with the `n` best means, ties to the earlier: live[i] becomes 0
 * for the others. False, and nothing changes, when no plan finds anything. */
bool dpe_detect_reading_best(const struct dpe_detect_scores *scores, int n, unsigned char *live);

/** Read the scores (recall) of plans [n_cells], of which those with live[i] count, on contexts of
 *  scores->together questions with so many values each.
 *
 *  A plan's skill moves the logit of finding a value, so the mean recall p moves by p (1 − p): at
 *  both ends of the scale plans do not differ. p is taken as (found + 1) / (values + 2), so that
 * few values are never certain. The noise is the residual variance of contexts after means of plans
 * and contexts, and at least that of independent values, because of a few contexts its estimate may
 * be anything. Decoding a token costs as much as reading DPE_DETECT_DECODED (detect/README.md,
 *  "Savings"). Rows that are not valid do not count. */
void dpe_detect_read(const struct dpe_detect_scores *scores, const unsigned char *live, int values,
                     struct dpe_detect_reading *reading);
#define DPE_DETECT_DECODED 5.0

#endif
