/* From logits to log-probabilities. */
#include <math.h>
#include <stdlib.h>

#include "engine/session/session.h"
#include "eval/serve/engine/serve_engine_internal.h"

/* The n largest logits, largest first, ties to the lower id. */
static void largest(const float *logits, int64_t vocab, double normalizer, int64_t n,
                    struct dpe_serve_score *top)
{
    int64_t found = 0;
    for (int64_t i = 0; i < vocab; i++) {
        double logprob = (double)logits[i] + normalizer;
        if (found == n && logprob <= top[n - 1].logprob) {
            continue;
        }
        int64_t at = found < n ? found++ : n - 1;
        for (; at > 0 && logprob > top[at - 1].logprob; at--) {
            top[at] = top[at - 1];
        }
        top[at] = (struct dpe_serve_score){(int32_t)i, logprob};
    }
}

void dpe_serve_score_add(struct dpe_serve_sequence *sequence, const float *logits, int64_t vocab,
                         int32_t id)
{
    int64_t n_top = sequence->request->top;
    struct dpe_serve_score *top = sequence->tops + sequence->n_scores * n_top;
    struct dpe_serve_score *score = &sequence->scores[sequence->n_scores];
    *score = (struct dpe_serve_score){id, NAN};
    for (int64_t i = 0; i < n_top; i++) {
        top[i].id = -1;
    }
    if (logits != NULL) {
        double normalizer = -dpe_log_sum(logits, vocab);
        score->logprob = (double)logits[id] + normalizer;
        if (n_top > 0) {
            largest(logits, vocab, normalizer, n_top < vocab ? n_top : vocab, top);
        }
    }
    sequence->n_scores++;
}
