/* Generation: from logits to the next token, of one branch or of several as one batch. */
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ----------------------------------------------------------------------------- one token */

struct candidate {
    double weight;
    int32_t id;
};

static int by_weight(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The weight of a token, that of the likeliest being 1. */
static double weight_of(const float *logits, int64_t id, int32_t best, double temperature)
{
    return exp(((double)logits[id] - (double)logits[best]) / temperature);
}

/* Drawn from the fewest likeliest tokens with at least `top_p` of the weight. Tokens below
 * (1 − top_p) / vocab of it cannot be among them: all together they weigh less than the rest that
 * is left out. */
static int32_t draw_nucleus(const float *logits, int64_t vocab, int32_t best, double total,
                            const struct dpe_sampling *sampling)
{
    const double least = (1.0 - sampling->top_p) / (double)vocab * total;
    const double cut = (double)logits[best] + sampling->temperature * log(least);
    const double wanted = sampling->top_p * total;
    int64_t n = 0;
    int64_t kept = 0;
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        n += (double)logits[i] >= cut;
    }
    DPE_OWNED struct candidate *list = dpe_alloc((size_t)n, sizeof *list);
    if (list == NULL) {
        return -1;
    }
    for (int64_t i = 0, at = 0; i < vocab; i++) {
        if ((double)logits[i] >= cut) {
            list[at++] =
                (struct candidate){weight_of(logits, i, best, sampling->temperature), (int32_t)i};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_weight);
    while (kept < n && (kept == 0 || sum < wanted)) {
        sum += list[kept++].weight;
    }
    double left = dpe_rng_unit(sampling->rng) * sum;
    int64_t i = 0;
    while (i + 1 < kept && left >= list[i].weight) {
        left -= list[i++].weight;
    }
    return list[i].id;
}

int32_t dpe_sample(const float *logits, int64_t vocab, const struct dpe_sampling *sampling)
{
    int32_t best = dpe_likeliest(logits, vocab);
    if (sampling->temperature <= 0.0) {
        return best;
    }
    double total = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        total += weight_of(logits, i, best, sampling->temperature);
    }
    if (sampling->top_p < 1.0) {
        return draw_nucleus(logits, vocab, best, total, sampling);
    }
    double left = dpe_rng_unit(sampling->rng) * total;
    int64_t i = 0;
    for (; i + 1 < vocab; i++) {
        const double weight = weight_of(logits, i, best, sampling->temperature);
        if (left < weight) {
            break;
        }
        left -= weight;
    }
    return (int32_t)i;
}

/* ------------------------------------------------------------------------------ sequences */

static bool ends_sequence(const struct dpe_config *config, int32_t token)
{
    bool end = false;
    for (int i = 0; i < config->n_eos; i++) {
        end = end || config->eos_ids[i] == token;
    }
    return end;
}

/* A continuation on its way. */
struct growing {
    struct dpe_session *session;
    int64_t branch;
    const struct dpe_continuation *item;
    size_t first; /* new tokens begin here in its output */
};

/* What the continuations have between two steps: those that go on, and their last tokens. Those of
 * a session follow each other. */
struct front {
    struct growing *all;
    int64_t *which, *branches;      /* of `all`; of their sessions */
    int32_t *tokens, *best;         /* best: what follows them */
    struct dpe_session_part *parts; /* of a step */
    int64_t n;
};

static dpe_status check_continuation(const struct dpe_session *s, int64_t branch,
                                     const struct dpe_continuation *item, struct dpe_error *err)
{
    int64_t room = dpe_session_room(s, branch);
    int64_t max_new = item->options.max_new;
    /* The last new token is not fed. */
    if (item->n < 1 || max_new < 0 || item->n > room || max_new - 1 > room - item->n) {
        return dpe_fail(err, DPE_USAGE,
                        "session: a prompt of %" PRId64 " tokens (expected at least 1) and "
                        "%" PRId64 " new ones do not fit after %" PRId64 " in a cache of %" PRId64,
                        item->n, max_new, s->length[branch], s->length[branch] + room);
    }
    return DPE_OK;
}

/* The next token by its logits. −1: out of memory. */
static int32_t choose(const struct dpe_session *s, const struct growing *growing,
                      const float *logits)
{
    const struct dpe_sampling *sampling = growing->item->options.sampling;
    return sampling != NULL ? dpe_sample(logits, s->config->vocab, sampling)
                            : dpe_likeliest(logits, s->config->vocab);
}

/* Take the token as continuation i's next one; it is of the front unless it ends here. */
static dpe_status grow(struct front *front, int64_t i, int32_t token, struct dpe_error *err)
{
    const struct growing *growing = &front->all[i];
    const struct dpe_generate_options *options = &growing->item->options;
    struct dpe_tokens *out = growing->item->out;
    if (token < 0) {
        return dpe_fail(err, DPE_NO_MEMORY, "session: out of memory for drawing a token");
    }
    if (!options->ignore_eos && ends_sequence(growing->session->config, token)) {
        return DPE_OK;
    }
    DPE_TRY(dpe_tokens_append(out, &token, 1, err));
    size_t made = out->n - growing->first;
    bool stop =
        options->stop != NULL && options->stop(options->user, out->ids + growing->first, made);
    if (!stop && (int64_t)made < options->max_new) {
        front->which[front->n] = i;
        front->branches[front->n] = growing->branch;
        front->tokens[front->n++] = token;
    }
    return DPE_OK;
}

/* Continuations from `at` on. */
static dpe_status feed_prompts(const struct dpe_generation *part, int64_t at, struct front *front,
                               struct dpe_error *err)
{
    struct dpe_session *s = part->session;
    for (int64_t b = 0; b < part->n; b++) {
        const struct dpe_continuation *item = &part->items[b];
        struct growing *growing = &front->all[at + b];
        *growing = (struct growing){s, b, item, item->out->n};
        bool more = item->options.max_new > 0;
        DPE_TRY(dpe_session_branch_feed(s, b, item->prompt, item->n, more ? s->logits : NULL, err));
        if (more) {
            DPE_TRY(grow(front, at + b, choose(s, growing, s->logits), err));
        }
    }
    return DPE_OK;
}

/* Parts of a step of `rows` of the front from `first` on; their number. */
static int64_t find_parts(struct front *front, int64_t first, int64_t rows)
{
    int64_t n = 0;
    for (int64_t i = first; i < first + rows; i++) {
        struct dpe_session *s = front->all[front->which[i]].session;
        if (n == 0 || front->parts[n - 1].session != s) {
            front->parts[n++] = (struct dpe_session_part){s, 0, front->branches + i};
        }
        front->parts[n - 1].n++;
    }
    return n;
}

/* A token for all of the front, as many at once as there is room for. Those that go on move to the
 * front's beginning, over rows that have their token. */
static dpe_status step_front(struct front *front, struct dpe_error *err)
{
    int64_t n = front->n;
    bool greedy = true;
    for (int64_t i = 0; i < n; i++) {
        greedy = greedy && front->all[front->which[i]].item->options.sampling == NULL;
    }
    const struct dpe_session *base = front->all[front->which[0]].session->base;
    const int64_t room = greedy ? base->bytes.rows : base->bytes.logit_rows;
    front->n = 0;
    for (int64_t first = 0, rows = 0; first < n; first += rows) {
        rows = dpe_least(room, n - first);
        const int64_t parts = find_parts(front, first, rows);
        DPE_TRY(dpe_session_step_parts(front->parts, parts, front->tokens + first,
                                       greedy ? NULL : base->logits, greedy ? front->best : NULL,
                                       err));
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = front->which[first + i];
            const struct growing *growing = &front->all[at];
            const int32_t token =
                greedy ? front->best[i]
                       : choose(base, growing, base->logits + i * base->config->vocab);
            DPE_TRY(grow(front, at, token, err));
        }
    }
    return DPE_OK;
}

static dpe_status check_generation(const struct dpe_generation *part, struct dpe_error *err)
{
    if (part->n != part->session->n_branches) {
        return dpe_fail(err, DPE_USAGE,
                        "session: expected a continuation for each of %" PRId64
                        " branches, found %" PRId64,
                        part->session->n_branches, part->n);
    }
    for (int64_t b = 0; b < part->n; b++) {
        DPE_TRY(check_continuation(part->session, b, &part->items[b], err));
    }
    return DPE_OK;
}

dpe_status dpe_session_generate_parts(const struct dpe_generation *parts, int64_t n_parts,
                                      struct dpe_error *err)
{
    int64_t n = 0;
    for (int64_t p = 0; p < n_parts; p++) {
        DPE_TRY(check_generation(&parts[p], err));
        n += parts[p].n;
    }
    for (int64_t p = 0; p < n_parts && parts->session->remote != NULL; p++) {
        DPE_TRY(dpe_session_remote_generate(parts[p].session, parts[p].items, parts[p].n, err));
    }
    if (parts->session->remote != NULL) {
        return DPE_OK;
    }
    DPE_OWNED struct growing *all = dpe_alloc((size_t)n, sizeof *all);
    DPE_OWNED int64_t *which = dpe_alloc((size_t)(2 * n), sizeof *which);
    DPE_OWNED int32_t *tokens = dpe_alloc((size_t)(2 * n), sizeof *tokens);
    DPE_OWNED struct dpe_session_part *in_step = dpe_alloc((size_t)n_parts, sizeof *in_step);
    DPE_TRY(DPE_MADE(all != NULL && which != NULL && in_step != NULL ? tokens : NULL, err,
                     "session: out of memory for %" PRId64 " branches", n));
    struct front front = {all, which, which + n, tokens, tokens + n, in_step, 0};
    for (int64_t p = 0, at = 0; p < n_parts; at += parts[p++].n) {
        DPE_TRY(feed_prompts(&parts[p], at, &front, err));
    }
    while (front.n > 0) {
        DPE_TRY(step_front(&front, err));
    }
    return DPE_OK;
}

dpe_status dpe_session_generate_branches(struct dpe_session *s,
                                         const struct dpe_continuation *items, int64_t n,
                                         struct dpe_error *err)
{
    const struct dpe_generation part = {s, items, n};
    return dpe_session_generate_parts(&part, 1, err);
}

dpe_status dpe_session_generate(struct dpe_session *session, const int32_t *prompt, int64_t n,
                                const struct dpe_generate_options *options, struct dpe_tokens *out,
                                struct dpe_error *err)
{
    const struct dpe_continuation item = {prompt, n, *options, out};
    return dpe_session_generate_branches(session, &item, 1, err);
}
