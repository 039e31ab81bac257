/* What other runtimes apply of a table; and what that does to short texts: their likelihood under
 * the model as it is, and under what a form makes of it. */
#include <math.h>
#include <stdio.h>

#include "engine/model/model.h"
#include "engine/plan/methods/methods.h"
#include "engine/session/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tool/tool.h"
#include "outputs/export/rope_forms.h"
#include "outputs/read/read.h"

/* Whether a reading is the table. */
static bool is_table(const struct dpe_applied *applied, const struct dpe_reading *reading)
{
    const struct dpe_rope_factors *factors = &applied->factors;
    double n = (double)factors->n;
    bool equal = fabs(reading->factor / factors->attention_factor - 1.0) < 2e-6;
    for (int64_t j = 0; j < factors->n && equal; j++) {
        double want = pow(applied->base, -(double)j / n) / factors->long_factor[j];
        equal = fabs(reading->inv_freq[j] / want - 1.0) < 2e-6;
    }
    return equal && (double)applied->readings.length <= reading->longest;
}

const char *dpe_applied_text(const struct dpe_applied *applied, int i, char text[DPE_APPLIED_TEXT])
{
    const struct dpe_reading *reading = &applied->readings.of[i];
    const char *adapter = reading->runtime->adapter;
    char notes[DPE_READING_ALL_NOTES];
    if (applied->adapter) {
        snprintf(text, DPE_APPLIED_TEXT,
                 adapter != NULL ? "all of it, through %s; without it nothing, as above"
                                 : "nothing: it runs the model as above",
                 adapter);
    } else if (reading->refused[0] != '\0') {
        snprintf(text, DPE_APPLIED_TEXT, "refuses its config.json: %s", reading->refused);
    } else if (is_table(applied, reading)) {
        snprintf(text, DPE_APPLIED_TEXT, "all of it, from its config.json");
    } else {
        snprintf(text, DPE_APPLIED_TEXT, "other numbers: %s%s", dpe_reading_notes(reading, notes),
                 reading->runtime->reads_gguf ? "; a copy of dpe-export --gguf holds the table"
                                              : "");
    }
    return text;
}

bool dpe_applied_agree(const struct dpe_applied *applied)
{
    return applied->values == NULL || (!applied->adapter && applied->readings.agree);
}

/* The readings of the config.json that a table of frequencies is exported as. */
static dpe_status read_exported(const char *folder, const char *path, const char *which,
                                int64_t length, struct dpe_applied *applied, struct dpe_error *err)
{
    const int64_t trained = applied->values->trained_length;
    const struct dpe_short_text none = {0};
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_text_free) struct dpe_text config = {0};
    DPE_TRY(dpe_model_open(folder, &(struct dpe_model_options){true, .trained_length = trained},
                           &model, err));
    applied->base = dpe_model_config(model)->rope.theta;
    DPE_TRY(dpe_export_longrope(applied->values, folder, model, &none, &config, err));
    DPE_TRY(dpe_rope_factors_make(applied->values, applied->base, &applied->factors, err));
    return dpe_readings_make(path, config.bytes, config.n, which, trained, length,
                             &applied->readings, err);
}

dpe_status dpe_applied_make(const char *model, const char *path, const struct dpe_table *table,
                            const char *which, int64_t length, struct dpe_applied *applied,
                            struct dpe_error *err)
{
    *applied = (struct dpe_applied){0};
    int64_t tokens = length > 0 ? length : dpe_table_values(table)->length;
    const struct dpe_table *entry = dpe_table_choose(table, tokens);
    if (entry == NULL) {
        return DPE_OK;
    }
    applied->values = dpe_table_values(entry);
    applied->adapter = dpe_table_needs_adapter(applied->values) != 0;
    return applied->adapter ? dpe_readings_open(model, which, applied->values->trained_length,
                                                tokens, &applied->readings, err)
                            : read_exported(model, path, which, tokens, applied, err);
}

void dpe_applied_free(struct dpe_applied *applied)
{
    dpe_rope_factors_free(&applied->factors);
    dpe_readings_free(&applied->readings);
    *applied = (struct dpe_applied){0};
}

/* ---------------------------------------------------------------------------------- short texts */

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
    const struct dpe_model *model;
    const int32_t *ids;
    int64_t n;
    int threads;
};

/* Mean −ln p of the tokens after the first, under one plan. */
static dpe_status mean_nll(const struct measured *on, const struct dpe_plan *plan, double *mean,
                           struct dpe_error *err)
{
    const struct dpe_session_options options = {.capacity = on->n, .n_threads = on->threads};
    DPE_SCOPED(dpe_session_destroy_scoped) struct dpe_session *session = NULL;
    double nll[MOST_TOKENS];
    DPE_TRY(dpe_session_create(on->model, plan, &options, &session, err));
    dpe_session_set_poll(session, dpe_signals_poll, NULL);
    DPE_TRY(dpe_session_nll(session, on->ids, on->n, nll, err));
    double sum = 0.0;
    for (int64_t i = 0; i < on->n - 1; i++) {
        sum += nll[i];
    }
    *mean = round(1e3 * sum / (double)(on->n - 1)) / 1e3;
    return DPE_OK;
}

static dpe_status read_tokens(const char *path, struct dpe_tokens *tokens, struct dpe_error *err)
{
    const struct dpe_encode_options options = {.add_special = true, .special = DPE_SPECIAL_LITERAL};
    DPE_SCOPED(dpe_tokenizer_close_scoped) struct dpe_tokenizer *tokenizer = NULL;
    DPE_TRY(dpe_tokenizer_open(path, &tokenizer, err));
    return dpe_tokenizer_encode(tokenizer, short_text, sizeof short_text - 1, &options, tokens,
                                err);
}

static dpe_status measure(const struct dpe_table_values *values, const char *path, int threads,
                          struct dpe_short_text *text, struct dpe_error *err)
{
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens tokens = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan own = {0};
    DPE_SCOPED(dpe_plan_free) struct dpe_plan applied = {0};
    const struct dpe_model_options options = {.trained_length = values->trained_length};
    DPE_TRY(dpe_model_open(path, &options, &model, err));
    DPE_TRY(read_tokens(path, &tokens, err));
    const int64_t n = dpe_least((int64_t)tokens.n, dpe_least(values->trained_length, MOST_TOKENS));
    if (n < LEAST_TOKENS) {
        return dpe_fail(err, DPE_BAD_DATA, "a text of %lld tokens is too short to measure",
                        (long long)n);
    }
    const struct measured on = {model, tokens.ids, n, threads};
    const struct dpe_plan_context context = {
        .config = dpe_model_config(model), .trained_length = values->trained_length, .length = n};
    DPE_TRY(dpe_plan_make_unchanged(&context, &own, err));
    DPE_TRY(dpe_plan_of_table(values, &context, &applied, err));
    DPE_TRY(mean_nll(&on, &own, &text->own, err));
    DPE_TRY(mean_nll(&on, &applied, &text->applied, err));
    own.temperature.logit_scale = applied.temperature.logit_scale;
    DPE_TRY(mean_nll(&on, &own, &text->factor, err));
    text->tokens = n - 1;
    return DPE_OK;
}

dpe_status dpe_short_text_measure(const struct dpe_table_values *values, const char *model,
                                  int threads, struct dpe_short_text *text, struct dpe_error *err)
{
    struct dpe_error why = {0};
    *text = (struct dpe_short_text){0};
    const dpe_status status = measure(values, model, threads, text, &why);
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
        "texts of up to %lld tokens change with %s too: in a text of %lld tokens the mean -ln p is "
        "%.3f with the model as it is, %.3f with the factors, which vLLM and llama.cpp apply to "
        "every text, and %.3f with the factor on the logits alone, as in transformers; run such "
        "texts without it",
        (long long)values->trained_length, what, (long long)text->tokens, text->own, text->applied,
        text->factor);
}
