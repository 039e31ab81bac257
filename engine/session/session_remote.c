/* A session whose model another program runs: it keeps what it was fed, and sends it when something
 * is asked. */
#include "engine/session/session_internal.h"

#include <inttypes.h>
#include <string.h>

enum { CHUNK = 512 /* there are none: prompts are sent whole */ };

dpe_status dpe_session_create_remote(const struct dpe_model *model, const struct dpe_plan *plan,
                                     const struct dpe_session_options *options,
                                     const struct dpe_session_remote *remote,
                                     struct dpe_session **session, struct dpe_error *err)
{
    static const struct dpe_peers alone = {.size = 1};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *s = NULL;
    DPE_TRY(DPE_NEW(&s, 1, err, "session: out of memory"));
    s->model = model;
    s->base = s;
    s->config = dpe_model_config(model);
    s->remote = remote;
    s->options = *options;
    s->options.peers = &alone;
    s->options.device = "engine";
    s->options.branches = options->branches > 1 ? options->branches : 1;
    s->options.positions = options->positions > 0 ? options->positions : options->capacity;
    s->options.prefill_chunk = s->full_chunk = CHUNK;
    s->length = dpe_alloc_zero((size_t)s->options.branches, sizeof *s->length);
    s->lent = dpe_alloc_zero((size_t)s->options.branches, sizeof *s->lent);
    s->tokens = dpe_alloc((size_t)s->options.capacity, sizeof *s->tokens);
    DPE_TRY(DPE_MADE(s->length != NULL && s->lent != NULL ? s->tokens : NULL, err,
                     "session: out of memory for %" PRId64 " tokens", s->options.capacity));
    DPE_TRY(remote->take_plan(remote->user, plan, err));
    dpe_session_join(s, 0);
    s->has_plan = true;
    *session = s;
    s = NULL;
    return DPE_OK;
}

dpe_status dpe_session_remote_plan(struct dpe_session *s, const struct dpe_plan *plan,
                                   struct dpe_error *err)
{
    dpe_status status = s->remote->take_plan(s->remote->user, plan, err);
    s->has_plan = status == DPE_OK;
    dpe_session_join(s, 0);
    return status;
}

dpe_status dpe_session_remote_feed(struct dpe_session *s, int64_t branch, const int32_t *tokens,
                                   int64_t n, double *nll, struct dpe_error *err)
{
    int64_t at = s->length[branch];
    int32_t *place = s->tokens + at + branch * s->room;
    if (n > 0) {
        memcpy(place, tokens, (size_t)n * sizeof *tokens);
    }
    if (nll != NULL && branch == 0) {
        DPE_TRY(s->remote->likelihood(s->remote->user, s->tokens, at + n, at + 1, nll, err));
    } else if (nll != NULL) {
        return dpe_fail(err, DPE_USAGE, "session: an engine has likelihoods of whole texts only");
    }
    s->length[branch] += n;
    s->work.fed += n;
    return DPE_OK;
}

/* Appended to the caller's tokens, up to where its own reason to stop comes. */
static dpe_status take_tokens(const struct dpe_continuation *item, const struct dpe_tokens *made,
                              struct dpe_error *err)
{
    size_t n = 0;
    bool stop = false;
    while (n < made->n && n < (size_t)item->options.max_new && !stop) {
        n++;
        stop = item->options.stop != NULL && item->options.stop(item->options.user, made->ids, n);
    }
    return dpe_tokens_append(item->out, made->ids, n, err);
}

/* What branch i holds, and what the item adds. */
static dpe_status append_prompt(const struct dpe_session *s, int64_t i,
                                const struct dpe_continuation *item, struct dpe_tokens *prompt,
                                struct dpe_error *err)
{
    int64_t prefix = s->prefix < s->length[i] ? s->prefix : s->length[i];
    const int32_t *own = s->tokens + prefix + i * s->room;
    DPE_TRY(dpe_tokens_append(prompt, s->tokens, (size_t)prefix, err));
    DPE_TRY(dpe_tokens_append(prompt, own, (size_t)(s->length[i] - prefix), err));
    return dpe_tokens_append(prompt, item->prompt, (size_t)item->n, err);
}

/* `prompts` and `made` are empty at first. */
static dpe_status continue_all(struct dpe_session *s, const struct dpe_continuation *items,
                               int64_t n, struct dpe_remote_text *texts, struct dpe_tokens *prompts,
                               struct dpe_tokens *made, struct dpe_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        const struct dpe_continuation *item = &items[i];
        DPE_TRY(append_prompt(s, i, item, &prompts[i], err));
        texts[i] =
            (struct dpe_remote_text){prompts[i].ids, (int64_t)prompts[i].n, item->options.max_new,
                                     item->options.ignore_eos, &made[i]};
    }
    DPE_TRY(s->remote->generate(s->remote->user, texts, n, err));
    for (int64_t i = 0; i < n; i++) {
        s->work.fed += items[i].n;
        s->work.decoded += (int64_t)made[i].n;
        DPE_TRY(take_tokens(&items[i], &made[i], err));
    }
    return DPE_OK;
}

dpe_status dpe_session_remote_generate(struct dpe_session *s, const struct dpe_continuation *items,
                                       int64_t n, struct dpe_error *err)
{
    DPE_OWNED struct dpe_remote_text *texts = dpe_alloc_zero((size_t)n, sizeof *texts);
    DPE_OWNED struct dpe_tokens *prompts = dpe_alloc_zero(2 * (size_t)n, sizeof *prompts);
    DPE_TRY(DPE_MADE(texts != NULL ? prompts : NULL, err,
                     "session: out of memory for %" PRId64 " texts", n));
    const dpe_status status = continue_all(s, items, n, texts, prompts, prompts + n, err);
    for (int64_t i = 0; i < 2 * n; i++) {
        dpe_tokens_free(&prompts[i]);
    }
    return status;
}
