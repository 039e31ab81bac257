/* Sequences beside the thread that runs them: their queue, how those that left it end, which branch
 * of the session each gets, and new tokens as text, up to a stop string, and log-probabilities. */
#include <math.h>
#include <string.h>

#include "engine/session/session.h"
#include "eval/serve/engine/serve_engine_internal.h"

void dpe_serve_queue_finish(struct dpe_serve_engine *engine, struct dpe_serve_sequence *sequence,
                            const char *how, const struct dpe_error *err)
{
    struct dpe_serve_request *request = sequence->request;
    bool failed = err != NULL && err->status != DPE_OK;
    pthread_mutex_lock(&engine->lock);
    sequence->finish = failed ? "error" : how;
    sequence->ended = dpe_clock();
    if (failed && request->error.status == DPE_OK) {
        request->error = *err;
    }
    engine->counts.running -= sequence->taken;
    /* Those of a cancelled request are counted already. */
    engine->counts.failed += failed && !request->cancelled;
    if (!failed && !request->cancelled) {
        engine->counts.finished++;
        if (sequence->first > 0.0) { /* without new tokens: norms, slots that are moved */
            engine->counts.first_seconds += sequence->first - sequence->begun;
        }
        engine->counts.seconds += sequence->ended - sequence->begun;
    }
    request->unfinished--;
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&engine->lock);
}

void dpe_serve_queue_drop(struct dpe_serve_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct dpe_serve_sequence *gone = NULL;
    struct dpe_serve_sequence **at = &engine->head;
    engine->tail = NULL;
    while (*at != NULL) {
        struct dpe_serve_sequence *sequence = *at;
        if (sequence->request->cancelled) {
            *at = sequence->next;
            sequence->next = gone;
            gone = sequence;
            engine->counts.waiting--;
        } else {
            engine->tail = sequence;
            at = &sequence->next;
        }
    }
    pthread_mutex_unlock(&engine->lock);
    while (gone != NULL) {
        struct dpe_serve_sequence *next = gone->next;
        dpe_serve_queue_finish(engine, gone, "error", NULL);
        gone = next;
    }
}

struct dpe_serve_sequence *dpe_serve_queue_pop(struct dpe_serve_engine *engine)
{
    struct dpe_serve_sequence *sequence = engine->head;
    engine->head = sequence->next;
    engine->tail = engine->head != NULL ? engine->tail : NULL;
    engine->counts.waiting--;
    engine->counts.running++;
    sequence->taken = true;
    return sequence;
}

int64_t dpe_serve_engine_most(const struct dpe_serve_engine *engine)
{
    return engine->n_slots + engine->world->args->queue;
}

bool dpe_serve_engine_submit(struct dpe_serve_engine *engine, struct dpe_serve_request *request)
{
    pthread_mutex_lock(&engine->lock);
    int64_t there = engine->counts.running + engine->counts.waiting;
    bool room = !engine->stop && there + request->n_sequences <= dpe_serve_engine_most(engine);
    engine->counts.requests++;
    engine->counts.refused += !room;
    for (int64_t i = 0; room && i < request->n_sequences; i++) {
        struct dpe_serve_sequence *sequence = &request->sequences[i];
        sequence->begun = dpe_clock();
        if (engine->tail != NULL) {
            engine->tail->next = sequence;
        } else {
            engine->head = sequence;
        }
        engine->tail = sequence;
        engine->counts.waiting++;
    }
    int64_t seconds = engine->world->args->request_timeout;
    request->deadline = seconds > 0 ? dpe_clock() + (double)seconds : 0.0;
    request->unfinished = room ? request->n_sequences : 0;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    return room;
}

void dpe_serve_engine_cancel(struct dpe_serve_engine *engine, struct dpe_serve_request *request,
                             const struct dpe_error *err)
{
    if (request->cancelled || request->unfinished == 0) {
        return;
    }
    request->cancelled = true;
    if (err == NULL) {
        engine->counts.cancelled++;
        return;
    }
    engine->counts.failed += request->unfinished;
    request->error = request->error.status == DPE_OK ? *err : request->error;
}

struct dpe_serve_counts dpe_serve_engine_counts(struct dpe_serve_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct dpe_serve_counts counts = engine->counts;
    pthread_mutex_unlock(&engine->lock);
    return counts;
}

/* --------------------------------------------------------------------------------------- slots */

enum { WORTH_WAITING = 64 /* tokens */ };

static int64_t common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t most = n_a < n_b ? n_a : n_b;
    int64_t n = 0;
    while (n < most && a[n] == b[n]) {
        n++;
    }
    return n;
}

/* The prompt tokens that a slot's cache can save. The last one is always run: its logits are the
 * first answer. A prompt whose own log-probabilities are asked for is run as a whole. */
static int64_t saved(const struct dpe_serve_slot *slot, const struct dpe_serve_sequence *sequence)
{
    const struct dpe_tokens *prompt = sequence->prompt;
    if ((sequence->request->echo && sequence->request->scored) ||
        memcmp(slot->share, sequence->request->share, sizeof slot->share) != 0) {
        return 0;
    }
    return common(slot->tokens, slot->n, prompt->ids, (int64_t)prompt->n - 1);
}

/* Of the free slots, or of the running ones, that whose cache saves most, if more than *most, which
 * it becomes; among equals the one that was used least recently. NULL: none. */
static struct dpe_serve_slot *best(struct dpe_serve_engine *engine,
                                   const struct dpe_serve_sequence *sequence, bool runs,
                                   int64_t *most)
{
    struct dpe_serve_slot *found = NULL;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        struct dpe_serve_slot *slot = &engine->slots[i];
        int64_t n = saved(slot, sequence);
        bool better = n > *most || (found != NULL && n == *most && slot->used < found->used);
        if ((slot->sequence != NULL) == runs && better) {
            found = slot;
            *most = n;
        }
    }
    return found;
}

bool dpe_serve_slot_waits(const struct dpe_serve_engine *engine,
                          const struct dpe_serve_sequence *sequence)
{
    int64_t now = 0;
    for (int64_t i = 0; i < engine->n_slots; i++) {
        int64_t n = saved(&engine->slots[i], sequence);
        now = n > now ? n : now;
    }
    for (int64_t i = 0; i < engine->n_slots; i++) {
        const struct dpe_serve_slot *slot = &engine->slots[i];
        if (slot->sequence == NULL) {
            continue;
        }
        const struct dpe_tokens *prompt = slot->sequence->prompt;
        struct dpe_serve_slot soon = {.tokens = prompt->ids, .n = (int64_t)prompt->n};
        memcpy(soon.share, slot->share, sizeof soon.share);
        if (saved(&soon, sequence) >= now + WORTH_WAITING) {
            return true;
        }
    }
    return false;
}

struct dpe_serve_slot *dpe_serve_slot_take(struct dpe_serve_engine *engine,
                                           struct dpe_serve_sequence *sequence,
                                           struct dpe_error *err)
{
    int64_t keep = -1; /* a slot that saves nothing will do */
    struct dpe_serve_slot *slot = best(engine, sequence, false, &keep);
    if (slot == NULL) {
        return NULL;
    }
    int64_t branch = slot - engine->slots;
    const struct dpe_serve_slot *from = best(engine, sequence, true, &keep);
    dpe_status status =
        from == NULL
            ? dpe_session_branch_cut(engine->session, branch, keep, err)
            : dpe_session_branch_copy(engine->session, from - engine->slots, branch, keep, err);
    if (status != DPE_OK) {
        slot->n = 0; /* what its branch holds now is not known */
        return NULL;
    }
    if (from != NULL) {
        memcpy(slot->tokens, from->tokens, (size_t)keep * sizeof *slot->tokens);
    }
    slot->n = keep;
    memcpy(slot->share, sequence->request->share, sizeof slot->share);
    slot->sequence = sequence;
    slot->used = ++engine->clock;
    sequence->cached = keep;
    return slot;
}

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
