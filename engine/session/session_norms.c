/* 2-norms of queries and keys, summed over the tokens of texts: by the backend, or by the program
 * that runs the model. */
#include "engine/session/session_internal.h"

static dpe_status run_text(struct dpe_session *s, const struct dpe_norm_text *text,
                           struct dpe_error *err)
{
    s->sums = text->sums;
    dpe_status status = dpe_session_cut(s, 0, err);
    if (status == DPE_OK) {
        status = dpe_session_feed(s, text->ids, text->n, NULL, err);
    }
    s->sums = (struct dpe_norm_sums){0};
    return status;
}

dpe_status dpe_session_norms(struct dpe_session *session, const struct dpe_norm_text *texts,
                             int64_t n, struct dpe_error *err)
{
    if (session->remote != NULL) {
        return session->remote->norms(session->remote->user, session->config, texts, n, err);
    }
    for (int64_t i = 0; i < n; i++) {
        DPE_TRY(run_text(session, &texts[i], err));
    }
    return DPE_OK;
}
