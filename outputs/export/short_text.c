/* The likelihood of a short text: the model as it is, and under what a form makes of it. */
#include "outputs/export/rope_forms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/tool.h"
#include "outputs/read/read.h"

enum { MOST_TOKENS = 160, LEAST_TOKENS = 8 };

static const char short_text[] =
    "The capital of France is Paris. It lies on both banks of the Seine, a river that rises in the "
    "hills "
    "of Burgundy and reaches the sea near Le Havre. In the morning the bakers open first, then the "
    "cafes, "
    "and by nine o'clock the streets are full of people who are late for work. A visitor with one "
    "day "
    "should walk from the cathedral along the river to the tower, and should not try to see every "
    "museum. "
    "When it rains, the bookshops are dry and nobody minds if you only read. The last train of the "
    "underground leaves a little after midnight; after that there are buses, taxis and your own "
    "two feet.";

struct measured {
    struct dpe_model *model;
    struct dpe_tokens tokens;
    int64_t n; /* of the tokens, those that are read */
    int threads;
};

/* Mean −ln p of the tokens after the first, under one plan. */
static dpe_status mean_nll(const struct measured *on, const struct dpe_plan *plan, double *mean,
                           struct dpe_error *err)
{
    const struct dpe_session_options options = {.capacity = on->n, .n_threads = on->threads};
    struct dpe_session *session = NULL;
    double nll[MOST_TOKENS];
    dpe_status status = dpe_session_create(on->model, plan, &options, &session, err);
    if (status == DPE_OK) {
        dpe_session_set_poll(session, dpe_signals_poll, NULL);
        status = dpe_session_nll(session, on->tokens.ids, on->n, nll, err);
    }
    double sum = 0.0;
    for (int64_t i = 0; status == DPE_OK && i < on->n - 1; i++) {
        sum += nll[i];
    }
    *mean = round(1e3 * sum / (double)(on->n - 1)) / 1e3;
    dpe_session_destroy(session);
    return status;
}

static dpe_status measure_plans(const struct measured *on, struct dpe_plan *own,
                                const struct dpe_plan *applied, struct dpe_short_text *text,
                                struct dpe_error *err)
{
    DPE_TRY(mean_nll(on, own, &text->own, err));
    DPE_TRY(mean_nll(on, applied, &text->applied, err));
    own->temperature.logit_scale = applied->temperature.logit_scale;
    DPE_TRY(mean_nll(on, own, &text->factor, err));
    text->tokens = on->n - 1;
    return DPE_OK;
}

static dpe_status measure(const struct measured *on, const struct dpe_table_values *values,
                          struct dpe_short_text *text, struct dpe_error *err)
{
    const struct dpe_plan_context context = {.config = dpe_model_config(on->model),
                                             .trained_length = values->trained_length,
                                             .length = on->n};
    struct dpe_plan own = {0};
    struct dpe_plan applied = {0};
    dpe_status status = dpe_plan_make_unchanged(&context, &own, err);
    if (status == DPE_OK) {
        status = dpe_plan_of_table(values, &context, &applied, err);
    }
    if (status == DPE_OK) {
        status = measure_plans(on, &own, &applied, text, err);
    }
    dpe_plan_free(&own);
    dpe_plan_free(&applied);
    return status;
}

static dpe_status read_tokens(const char *path, const struct dpe_table_values *values,
                              struct measured *on, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.add_special = true, .special = DPE_SPECIAL_LITERAL};
    struct dpe_tokenizer *tokenizer = NULL;
    dpe_status status = dpe_tokenizer_open(path, &tokenizer, err);
    if (status == DPE_OK) {
        status = dpe_tokenizer_encode(tokenizer, short_text, sizeof short_text - 1, &options,
                                      &on->tokens, err);
    }
    dpe_tokenizer_close(tokenizer);
    on->n = dpe_least((int64_t)on->tokens.n, dpe_least(values->trained_length, MOST_TOKENS));
    return status == DPE_OK && on->n < LEAST_TOKENS
               ? dpe_fail(err, DPE_BAD_DATA, "a text of %lld tokens is too short to measure",
                          (long long)on->n)
               : status;
}

dpe_status dpe_short_text_measure(const struct dpe_table_values *values, const char *model,
                                  int threads, struct dpe_short_text *text, struct dpe_error *err)
{
    struct measured on = {.threads = threads};
    struct dpe_error why = {0};
    *text = (struct dpe_short_text){0};
    dpe_status status = dpe_model_open(model, NULL, &on.model, &why);
    if (status == DPE_OK) {
        status = read_tokens(model, values, &on, &why);
    }
    if (status == DPE_OK) {
        status = measure(&on, values, text, &why);
    }
    dpe_tokens_free(&on.tokens);
    dpe_model_close(on.model);
    if (status == DPE_INCOMPLETE || status == DPE_NO_MEMORY) {
        return dpe_fail(err, status, "%s", why.text);
    }
    if (status != DPE_OK) {
        snprintf(text->why, sizeof text->why, "%.*s", (int)sizeof text->why - 1, why.text);
    }
    return DPE_OK;
}

void dpe_short_text_log(const struct dpe_table_values *values, const struct dpe_short_text *text,
                        const char *what)
{
    if (text->tokens == 0) {
        dpe_log_info("what texts of up to %lld tokens lose with %s was not measured: %s",
                     (long long)values->trained_length, what, text->why);
        return;
    }
    dpe_log_warning(
        "texts of up to %lld tokens change with %s too: on one of %lld tokens the mean -ln p is "
        "%.3f with the model as it is, %.3f with the factors, which vLLM and llama.cpp apply to "
        "every text, and %.3f with the factor on the logits alone, as in transformers; run such "
        "texts without it",
        (long long)values->trained_length, what, (long long)text->tokens, text->own, text->applied,
        text->factor);
}
