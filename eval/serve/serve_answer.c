/* Answers in the form of OpenAI's interface. */
#include <stdlib.h>
#include <string.h>

#include "eval/serve/serve_tool.h"

/* n bytes that may not be UTF-8 to the last byte. */
static json_t *text_of(const char *bytes, size_t n)
{
    size_t good = n > 0 ? dpe_utf8_check(bytes, n) : 0;
    return json_stringn(good > 0 ? bytes : "", good);
}

/* ------------------------------------------------------------------------------------- wholes */

static json_t *usage(const struct dpe_serve_request *request)
{
    json_int_t prompt = 0;
    json_int_t made = 0;
    json_int_t cached = 0;
    for (int64_t i = 0; i < request->n_prompts; i++) {
        prompt += (json_int_t)request->prompts[i].n;
    }
    for (int64_t i = 0; i < request->n_sequences; i++) {
        made += request->sequences[i].n_out;
        cached += request->sequences[i].cached;
    }
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", made,
                     "total_tokens", prompt + made, "prompt_tokens_details", "cached_tokens",
                     cached);
}

/* The position plan that each sequence ran with. */
static json_t *plan_of(const struct dpe_serve_world *world,
                       const struct dpe_serve_sequence *sequence)
{
    const struct dpe_serve_plan *plan = dpe_serve_world_plan(world, sequence->plan);
    return json_pack("{s:s,s:s,s:I,s:I,s:I}", "plan", plan->plan.name, "digest", plan->digest,
                     "length", (json_int_t)plan->length, "tokens",
                     (json_int_t)sequence->prompt->n + (json_int_t)sequence->n_out, "cached_tokens",
                     (json_int_t)sequence->cached);
}

static json_t *head(const struct dpe_serve_world *world, const struct dpe_serve_request *request,
                    bool piece)
{
    const char *object = request->kind != SERVE_CHAT ? "text_completion"
                         : piece                     ? "chat.completion.chunk"
                                                     : "chat.completion";
    return json_pack("{s:s,s:s,s:I,s:s}", "id", request->id, "object", object, "created",
                     (json_int_t)request->created, "model", world->name);
}

static json_t *choice(const struct dpe_serve_world *world,
                      const struct dpe_serve_sequence *sequence, int64_t index)
{
    const struct dpe_serve_request *request = sequence->request;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    DPE_SCOPED(dpe_serve_places_free) struct dpe_serve_places places = {0};
    if (request->echo) {
        dpe_serve_echo(world, sequence, &text);
    }
    dpe_text_append(&text, sequence->text.n > 0 ? sequence->text.bytes : "", sequence->text.n,
                    NULL);
    json_t *made =
        json_pack("{s:I,s:s,s:o}", "index", (json_int_t)index, "finish_reason", sequence->finish,
                  "logprobs", dpe_serve_logprobs(world, sequence, &places, sequence->n_scores));
    if (request->kind == SERVE_CHAT) {
        json_object_set_new(
            made, "message",
            json_pack("{s:s,s:o}", "role", "assistant", "content", text_of(text.bytes, text.n)));
    } else {
        json_object_set_new(made, "text", text_of(text.bytes, text.n));
    }
    if (request->ids) {
        json_t *ids = json_array();
        for (int64_t i = 0; i < sequence->n_out; i++) {
            json_array_append_new(ids, json_integer(sequence->out[i]));
        }
        json_object_set_new(made, "token_ids", ids);
    }
    return made;
}

/* One text for each prompt. */
static json_t *ruler_answer(const struct dpe_serve_world *world,
                            const struct dpe_serve_request *request)
{
    json_t *texts = json_array();
    json_t *plans = json_array();
    for (int64_t i = 0; i < request->n_sequences; i++) {
        const struct dpe_serve_sequence *sequence = &request->sequences[i];
        json_array_append_new(texts, text_of(sequence->text.bytes, sequence->text.n));
        json_array_append_new(plans, plan_of(world, sequence));
    }
    if (request->kind == SERVE_RULER) {
        json_decref(plans);
        return texts;
    }
    return json_pack("{s:o,s:o}", "text", texts, "dpe", plans);
}

static json_t *list_of(const double *values, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n && values != NULL; i++) {
        json_array_append_new(list, json_real(values[i]));
    }
    return list;
}

static json_t *norms_answer(const struct dpe_serve_world *world,
                            const struct dpe_serve_request *request)
{
    const struct dpe_config *config = dpe_model_config(world->model);
    int64_t pairs = config->n_layers * config->head_dim / 2;
    json_t *rows = json_array();
    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        json_array_append_new(rows, json_integer(request->norms.rows[layer]));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "rows", rows, "q",
                     list_of(request->norms.q, config->n_heads * pairs), "k",
                     list_of(request->norms.k, config->n_kv_heads * pairs), "dpe",
                     plan_of(world, &request->sequences[0]));
}

json_t *dpe_serve_answer(const struct dpe_serve_world *world,
                         const struct dpe_serve_request *request)
{
    if (request->kind == SERVE_NORMS) {
        return norms_answer(world, request);
    }
    if (request->kind == SERVE_RULER || request->kind == SERVE_RULER_ONE) {
        return ruler_answer(world, request);
    }
    json_t *answer = head(world, request, false);
    json_t *choices = json_array();
    json_auto_t *plans = json_array();
    for (int64_t i = 0; i < request->n_sequences; i++) {
        json_array_append_new(choices, choice(world, &request->sequences[i], i));
        json_array_append_new(plans, plan_of(world, &request->sequences[i]));
    }
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", usage(request));
    /* One answer: an object; several: a list. */
    json_object_set(answer, "dpe", request->n_sequences == 1 ? json_array_get(plans, 0) : plans);
    return answer;
}

/* --------------------------------------------------------------------------------------- pieces */

static json_t *delta(const struct dpe_serve_request *request, const struct dpe_text *text,
                     bool first)
{
    if (request->kind != SERVE_CHAT) {
        return text_of(text->bytes, text->n);
    }
    json_t *made = json_object();
    if (first) {
        json_object_set_new(made, "role", json_string("assistant"));
    }
    json_object_set_new(made, "content", text_of(text->bytes, text->n));
    return made;
}

json_t *dpe_serve_piece(const struct dpe_serve_world *world,
                        const struct dpe_serve_request *request, int64_t index,
                        struct dpe_serve_sent *sent)
{
    const struct dpe_serve_sequence *sequence = &request->sequences[index];
    bool ended = sequence->finish != NULL;
    bool begins = !sent->begun && (sequence->first > 0.0 || ended);
    if (sent->finished || (sequence->safe == sent->bytes && !ended && !begins)) {
        return NULL;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    if (begins && request->echo) {
        dpe_serve_echo(world, sequence, &text);
    }
    if (sequence->safe > sent->bytes) {
        dpe_text_append(&text, sequence->text.bytes + sent->bytes, sequence->safe - sent->bytes,
                        NULL);
    }
    json_t *made =
        json_pack("{s:I,s:o,s:o,s:o}", "index", (json_int_t)index, "finish_reason",
                  ended ? json_string(sequence->finish) : json_null(), "logprobs",
                  dpe_serve_logprobs(world, sequence, &sent->places, sequence->n_scores),
                  request->kind == SERVE_CHAT ? "delta" : "text", delta(request, &text, begins));
    json_t *piece = head(world, request, true);
    json_object_set_new(piece, "choices", json_pack("[o]", made));
    if (ended) {
        json_object_set_new(piece, "dpe", plan_of(world, sequence));
    }
    sent->bytes = sequence->safe;
    sent->begun = true;
    sent->finished = ended;
    return piece;
}

json_t *dpe_serve_usage_piece(const struct dpe_serve_world *world,
                              const struct dpe_serve_request *request)
{
    json_t *piece = head(world, request, true);
    json_object_set_new(piece, "choices", json_array());
    json_object_set_new(piece, "usage", usage(request));
    return piece;
}

json_t *dpe_serve_error(const struct dpe_serve_refusal *refusal)
{
    const char *type = refusal->status == 401   ? "authentication_error"
                       : refusal->status == 503 ? "overloaded_error"
                       : refusal->status == 504 ? "timeout_error"
                       : refusal->status >= 500 ? "server_error"
                                                : "invalid_request_error";
    json_t *text = text_of(refusal->text, strlen(refusal->text));
    json_t *param =
        refusal->param[0] != '\0' ? text_of(refusal->param, strlen(refusal->param)) : json_null();
    const char *known = refusal->code != NULL    ? refusal->code
                        : refusal->status == 401 ? "invalid_api_key"
                                                 : NULL;
    json_t *code = known != NULL ? json_string(known) : json_null();
    return json_pack("{s:{s:o,s:s,s:o,s:o}}", "error", "message", text, "type", type, "param",
                     param, "code", code);
}
