/**
 * @file steps.h
 * A score by steps: after the prompt and some right values, does greedy decoding name one that is
 * still missing?
 *
 * One slip early in a free answer costs all later values. Step k of V begins after the prompt and
 * k − 1 of the values, in an order drawn for the sample and written as the answer writes them, and
 * asks for any of the V − k + 1 others. The score is the share of steps that name one. Near the
 * ceiling of recall it tells plans apart with a tenth of the samples; where recall is spread,
 * recall does as well.
 */
#ifndef DPE_STEPS_H
#define DPE_STEPS_H

#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "eval/task/task.h"

/** What the steps of a sample show. */
struct dpe_steps {
    double found;       /**< share of the steps that name a missing value, 0 … 1 */
    double margin;      /**< mean over the steps of 1 / (1 + exp(−m / DPE_STEPS_SHARPNESS)) */
    int64_t new_tokens; /**< decoded */
};
#define DPE_STEPS_SHARPNESS 0.3

/** Whether a sample has steps: at least one reference, each with an answer that holds it, none
 * empty or part of another (naming one would name both; values that only begin alike are told apart
 * by what follows), and all of them written at most max_new tokens. DPE_BAD_DATA, which names
 * sample and value; free text is DPE_USAGE. */
dpe_status dpe_steps_check(const struct dpe_sample *sample, const struct dpe_tokenizer *tokenizer,
                           struct dpe_error *err);

/** One look at logits [vocab]: the likeliest token if it is one of right [n] (repeats allowed),
 * else −1; and in *log_odds ln Σ p(right) − ln p of the likeliest other token. Ties go to the
 * smaller id, as in generation. n ≥ 1; +INFINITY where every token is right. */
int32_t dpe_steps_look(const float *logits, int64_t vocab, const int32_t *right, int64_t n,
                       double *log_odds);

/** Run the steps of a sample whose prompt the session holds but for its last `rest` ≥ 1 tokens.
 * What is decoded in each step is appended to `text`, a line each. m of a step is the least
 * log-odds (dpe_steps_look) of its tokens, up to the first one that belongs to no missing value.
 * Errors of dpe_steps_check and of the session; DPE_USAGE in one without logits (--engine). */
dpe_status dpe_steps_run(struct dpe_session *session, const struct dpe_sample *sample, int64_t rest,
                         const struct dpe_tokenizer *tokenizer, struct dpe_steps *steps,
                         struct dpe_text *text, struct dpe_error *err);

#endif
