/* Running tokens through a session: feed, likelihood, greedy generation. */
#include "session_internal.h"

#include <inttypes.h>
#include <math.h>

/* What is done with a piece whose rows are in the cache and whose wanted hidden states are in
 * `normed`: tokens[done … done+rows−1] of the call. */
struct run {
    const int32_t *tokens;
    int64_t n;
    float *logits; /* feed: of the last token, or NULL */
    double *nll;   /* nll: [n − 1], or NULL */
};

dpe_status dpe_session_cut(struct dpe_session *s, int64_t keep, struct dpe_error *err)
{
    if (keep < 0 || keep > s->length) {
        return dpe_fail(err, DPE_USAGE,
                        "session: cannot keep %" PRId64 " tokens of a cache of %" PRId64, keep,
                        s->length);
    }
    s->length = keep;
    return DPE_OK;
}

static dpe_status check_tokens(const struct dpe_session *s, const struct run *run,
                               struct dpe_error *err)
{
    if (!s->has_plan) {
        return dpe_fail(err, DPE_USAGE,
                        "session: it has no plan since dpe_session_set_plan failed");
    }
    if (run->n < 0 || run->n > s->options.capacity - s->length) {
        return dpe_fail(err, DPE_USAGE,
                        "session: %" PRId64 " tokens do not fit behind %" PRId64
                        " in a cache of %" PRId64,
                        run->n, s->length, s->options.capacity);
    }
    for (int64_t i = 0; i < run->n; i++) {
        if (run->tokens[i] < 0 || run->tokens[i] >= s->config->vocab) {
            return dpe_fail(err, DPE_BAD_DATA,
                            "token %" PRId64 ": expected an id from 0 to %" PRId64 ", found %d; "
                            "the tokenizer belongs to another model",
                            i, s->config->vocab - 1, run->tokens[i]);
        }
    }
    return dpe_model_verify(s->model, err);
}

static dpe_status logits_nonfinite(const struct dpe_session *s, int64_t position,
                                   struct dpe_error *err)
{
    dpe_fail(err, DPE_NONFINITE,
             "NaN or infinity in the logits at position %" PRId64 " (behind the last layer)",
             position);
    if (err != NULL) {
        err->layer = (int)s->config->n_layers;
        err->position = position;
    }
    return DPE_NONFINITE;
}

/* −ln softmax(logits)[target] in double; NaN when a logit is not finite. */
static double row_nll(const float *logits, int64_t vocab, int32_t target)
{
    float largest = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    double total = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        /* −∞ would vanish in the sum; infinity and NaN make it NaN by themselves. */
        total += isfinite(logits[i]) ? exp((double)logits[i] - (double)largest) : (double)NAN;
    }
    return (double)largest + log(total) - (double)logits[target];
}

/* Likelihoods of the tokens that follow those of a piece, a block of LM-head rows at a time. */
static dpe_status piece_nll(struct dpe_session *s, const struct run *run, int64_t done,
                            int64_t rows, struct dpe_error *err)
{
    int64_t vocab = s->config->vocab;
    /* The call's last token has no successor. */
    int64_t with_next = done + rows == run->n ? rows - 1 : rows;
    for (int64_t r = 0; r < with_next; r += s->bytes.logit_rows) {
        int64_t n = with_next - r < s->bytes.logit_rows ? with_next - r : s->bytes.logit_rows;
        s->ops->logits(s->backend, (float *)s->normed + r * s->config->hidden, n, s->logits);
#pragma omp parallel for num_threads(s->options.n_threads)                                         \
    schedule(static) if (n * vocab > (1 << 16))
        for (int64_t i = 0; i < n; i++) {
            int64_t at = done + r + i;
            run->nll[at] = row_nll(s->logits + i * vocab, vocab, run->tokens[at + 1]);
        }
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(run->nll[done + r + i])) {
                return logits_nonfinite(s, s->length + r + i, err);
            }
        }
    }
    return DPE_OK;
}

static dpe_status last_logits(struct dpe_session *s, const struct run *run, int64_t position,
                              struct dpe_error *err)
{
    s->ops->logits(s->backend, s->normed, 1, run->logits);
    for (int64_t i = 0; i < s->config->vocab; i++) {
        if (!isfinite(run->logits[i])) {
            return logits_nonfinite(s, position, err);
        }
    }
    return DPE_OK;
}

/* Tokens go through in pieces that end at the lines of a grid from position 0, so that what a
 * position's key and value come from does not depend on how the calls were cut there. */
static dpe_status run_tokens(struct dpe_session *s, const struct run *run, struct dpe_error *err)
{
    dpe_status status = check_tokens(s, run, err);
    int64_t before = s->length;
    int64_t chunk = s->options.prefill_chunk;
    int64_t rows = 0;
    for (int64_t done = 0; status == DPE_OK && done < run->n; done += rows) {
        int64_t to_line = chunk - s->length % chunk;
        rows = run->n - done < to_line ? run->n - done : to_line;
        bool last = done + rows == run->n;
        int64_t wanted = run->nll != NULL ? rows : (run->logits != NULL && last ? 1 : 0);
        status = dpe_forward(s, run->tokens + done, rows, wanted, err);
        if (status == DPE_OK && run->nll != NULL) {
            status = piece_nll(s, run, done, rows, err);
        } else if (status == DPE_OK && wanted == 1) {
            status = last_logits(s, run, s->length + rows - 1, err);
        }
        s->length += rows;
    }
    if (status != DPE_OK) {
        s->length = before;
    }
    return status;
}

dpe_status dpe_session_feed(struct dpe_session *session, const int32_t *tokens, int64_t n,
                            float *logits, struct dpe_error *err)
{
    if (n == 0 && logits != NULL) {
        return dpe_fail(err, DPE_USAGE, "session: logits of no token were asked for");
    }
    const struct run run = {.tokens = tokens, .n = n, .logits = logits};
    return run_tokens(session, &run, err);
}

dpe_status dpe_session_nll(struct dpe_session *session, const int32_t *tokens, int64_t n,
                           double *nll, struct dpe_error *err)
{
    if (n < 2) {
        return dpe_fail(err, DPE_USAGE,
                        "session: a likelihood needs at least 2 tokens, found %" PRId64, n);
    }
    const struct run run = {.tokens = tokens, .n = n, .nll = nll};
    return run_tokens(session, &run, err);
}

static int32_t argmax(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t)best;
}

static bool ends_sequence(const struct dpe_config *config, int32_t token)
{
    bool end = false;
    for (int i = 0; i < config->n_eos; i++) {
        end = end || config->eos_ids[i] == token;
    }
    return end;
}

dpe_status dpe_session_generate(struct dpe_session *s, const int32_t *prompt, int64_t n,
                                const struct dpe_generate_options *options, struct dpe_tokens *out,
                                struct dpe_error *err)
{
    int64_t room = s->options.capacity - s->length;
    /* The last new token is not fed. */
    if (n < 1 || options->max_new < 0 || n > room || options->max_new - 1 > room - n) {
        return dpe_fail(err, DPE_USAGE,
                        "session: a prompt of %" PRId64 " tokens (expected at least 1) and "
                        "%" PRId64 " new ones do not fit behind %" PRId64 " in a cache of %" PRId64,
                        n, options->max_new, s->length, s->options.capacity);
    }
    size_t first = out->n;
    float *logits = options->max_new > 0 ? s->logits : NULL;
    dpe_status status = dpe_session_feed(s, prompt, n, logits, err);
    for (int64_t i = 0; status == DPE_OK && i < options->max_new; i++) {
        int32_t token = argmax(s->logits, s->config->vocab);
        if (!options->ignore_eos && ends_sequence(s->config, token)) {
            break;
        }
        status = dpe_tokens_append(out, &token, 1, err);
        if (status != DPE_OK || (options->stop != NULL &&
                                 options->stop(options->user, out->ids + first, out->n - first))) {
            break;
        }
        if (i + 1 < options->max_new) {
            status = dpe_session_feed(s, &token, 1, s->logits, err);
        }
    }
    return status;
}
