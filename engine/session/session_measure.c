/* Parts of a session's work, timed one at a time. */
#include "engine/session/session_measure.h"

#include <string.h>

#include "engine/session/session_internal.h"

/* One layer's attention of a whole prefill. */
static dpe_status measure_layer(struct dpe_session *s, int64_t layer, int64_t length,
                                double *seconds, struct dpe_error *err)
{
    int64_t chunk = s->options.prefill_chunk;
    DPE_TRY(dpe_lane_wait(&s->own, err));
    double start = dpe_clock();
    for (int64_t at = 0; at < length; at += chunk) {
        const struct dpe_batch batch = {.start = at,
                                        .rows = length - at < chunk ? length - at : chunk};
        const struct dpe_attention args = dpe_forward_attention(&s->own, layer, &batch, 0);
        s->ops->attention(s->own.backend, &args);
        DPE_TRY(s->poll != NULL ? s->poll(s->poll_user, err) : DPE_OK);
    }
    DPE_TRY(dpe_lane_wait(&s->own, err));
    *seconds = dpe_clock() - start;
    return DPE_OK;
}

dpe_status dpe_session_measure_attention(struct dpe_session *s, int64_t length, double *seconds,
                                         struct dpe_error *err)
{
    const struct dpe_config *c = s->config;
    int kinds = c->layer_kinds != NULL ? c->n_kinds : 1;
    *seconds = 0.0;
    for (int kind = 0; kind < kinds; kind++) {
        int64_t last = -1;
        double layers = 0.0;
        double one = 0.0;
        for (int64_t i = 0; i < c->n_layers; i++) {
            bool same = c->layer_kinds == NULL || c->layer_kinds[i] == kind;
            last = same ? i : last;
            layers += same;
        }
        DPE_TRY(last >= 0 ? measure_layer(s, last, length, &one, err) : DPE_OK);
        *seconds += layers * one;
    }
    return DPE_OK;
}

dpe_status dpe_session_measure_tokens(struct dpe_session *s, int64_t branches, int64_t n,
                                      double *seconds, struct dpe_error *err)
{
    DPE_OWNED int64_t *which = NULL;
    DPE_OWNED int32_t *tokens = NULL;
    DPE_OWNED int32_t *best = NULL;
    double start = 0.0;
    DPE_TRY(DPE_NEW(&which, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(DPE_NEW(&tokens, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(DPE_NEW(&best, (size_t)branches, err, "out of memory for a step"));
    DPE_TRY(dpe_session_branch(s, branches, n + 1, err));
    for (int64_t i = 0; i <= n; i++) {
        for (int64_t b = 0; b < branches; b++) {
            which[b] = b;
            tokens[b] = (int32_t)((i * 7 + b) % s->config->vocab);
        }
        /* The first is not counted: it finds everything cold. */
        start = i == 1 ? dpe_clock() : start;
        DPE_TRY(dpe_session_step_best(s, branches, which, tokens, best, err));
    }
    *seconds = (dpe_clock() - start) / (double)n;
    return DPE_OK;
}

struct dpe_session_memory dpe_session_memory(const struct dpe_session *session)
{
    return (struct dpe_session_memory){.total = session->bytes.total, .element = session->element};
}

dpe_status dpe_session_measure_product(struct dpe_session *s, int64_t rows, double *seconds,
                                       struct dpe_error *err)
{
    DPE_TRY(s->ops->begin_layer(s->own.backend, 0, rows, err));
    memset(s->own.normed, 0, (size_t)rows * (size_t)s->config->hidden * s->element);
    double start = dpe_clock();
    s->ops->linear(s->own.backend, 0, DPE_WEIGHT_GATE, s->own.normed, rows, s->own.gate, false);
    *seconds = dpe_clock() - start;
    return DPE_OK;
}
