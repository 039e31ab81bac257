/* New tokens to text, up to a stop string, and to log-probabilities. */
#include <math.h>
#include <string.h>

#include "engine/session/session.h"
#include "eval/serve/engine/serve_engine_internal.h"

/* Whether the text ends in U+FFFD, which the first bytes of a character decode to. */
static bool unfinished(const struct dpe_text *text)
{
    return text->n >= 3 && memcmp(text->bytes + text->n - 3, "\xef\xbf\xbd", 3) == 0;
}

/* Append the text of the tokens that were not decoded yet. A token's text may depend on those
 * before it (a leading space), so the last ones are decoded again with the new ones. */
static dpe_status decode(const struct dpe_serve_world *world, struct dpe_serve_sequence *sequence,
                         bool last, struct dpe_error *err)
{
    const int32_t *ids = sequence->out + sequence->base;
    DPE_SCOPED(dpe_text_free) struct dpe_text before = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text now = {0};
    DPE_TRY(dpe_tokenizer_decode(world->tokenizer, ids,
                                 (size_t)(sequence->decoded - sequence->base), true, &before, err));
    DPE_TRY(dpe_tokenizer_decode(world->tokenizer, ids, (size_t)(sequence->n_out - sequence->base),
                                 true, &now, err));
    if (now.n <= before.n || (!last && unfinished(&now))) {
        return DPE_OK;
    }
    sequence->base = sequence->decoded;
    sequence->decoded = sequence->n_out;
    return dpe_text_append(&sequence->text, now.bytes + before.n, now.n - before.n, err);
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_back(const struct dpe_text *text, const char *stop)
{
    size_t most = strlen(stop) - 1;
    for (size_t n = most < text->n ? most : text->n; n > 0; n--) {
        if (memcmp(text->bytes + text->n - n, stop, n) == 0) {
            return n;
        }
    }
    return 0;
}

dpe_status dpe_serve_text_grow(const struct dpe_serve_world *world,
                               struct dpe_serve_sequence *sequence, bool last, bool *stopped,
                               struct dpe_error *err)
{
    dpe_status status = decode(world, sequence, last, err);
    struct dpe_text *text = &sequence->text;
    const struct dpe_serve_request *request = sequence->request;
    *stopped = false;
    size_t held = 0;
    for (int64_t i = 0; i < request->n_stops && text->n > 0; i++) {
        /* What is safe holds no part of a stop string. */
        const char *found = strstr(text->bytes + sequence->safe, request->stops[i]);
        if (found != NULL) {
            text->n = (size_t)(found - text->bytes);
            text->bytes[text->n] = '\0';
            *stopped = true;
        }
    }
    for (int64_t i = 0; i < request->n_stops && !*stopped && !last; i++) {
        size_t n = held_back(text, request->stops[i]);
        held = n > held ? n : held;
    }
    sequence->safe = text->n - held;
    return status;
}

/* --------------------------------------------------------------------------- log-probabilities */

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
