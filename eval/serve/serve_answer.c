/* Answers in the form of OpenAI's interface, with log-probabilities: tokens as texts, and where
 * they begin. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/unicode.h"
#include "eval/serve/serve_tool.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void bytes_of(const struct dpe_serve_world *world, int32_t id, bool skip_special,
                     struct dpe_text *bytes)
{
    bytes->n = 0;
    dpe_tokenizer_bytes(world->tokenizer, id, skip_special, bytes, NULL);
}

/* The text of one token. Part of a character is none (nor is a NUL, with which a key would end):
 * "bytes:\xf0\x9f", so that different tokens have different names. */
static json_t *name_of(const struct dpe_text *bytes)
{
    if (dpe_utf8_check(bytes->bytes, bytes->n) == bytes->n &&
        memchr(bytes->bytes, '\0', bytes->n) == NULL) {
        return json_stringn(bytes->bytes, bytes->n);
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text name = {0};
    dpe_text_append(&name, "bytes:", 6, NULL);
    for (size_t i = 0; i < bytes->n; i++) {
        char code[8];
        int n = snprintf(code, sizeof code, "\\x%02x", (unsigned)(unsigned char)bytes->bytes[i]);
        dpe_text_append(&name, code, (size_t)n, NULL);
    }
    return json_stringn(name.bytes, name.n);
}

static json_t *token_text(const struct dpe_serve_world *world, int32_t id)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    bytes_of(world, id, false, &bytes);
    return bytes.bytes != NULL ? name_of(&bytes) : json_string("");
}

/* --------------------------------------------------------------------------------------- places */

/* What is not UTF-8 counts as the U+FFFD that it is shown as; the beginning of a character waits
 * for the rest. */
static void count(struct dpe_serve_counted *counted, const char *bytes, size_t n)
{
    struct dpe_text *text = &counted->waiting;
    dpe_text_append(text, bytes, n, NULL);
    size_t at = 0;
    while (at < text->n) {
        size_t good = at + dpe_utf8_check(text->bytes + at, text->n - at);
        for (; at < good; at++) {
            counted->characters += ((unsigned char)text->bytes[at] & 0xc0) != 0x80;
        }
        if (at < text->n) {
            size_t bad = dpe_utf8_part(text->bytes + at, text->n - at, NULL);
            unsigned char lead = (unsigned char)text->bytes[at];
            if (at + bad == text->n && lead >= 0xc2 && lead <= 0xf4) {
                break;
            }
            at += bad;
            counted->characters++;
        }
    }
    if (at > 0) {
        memmove(text->bytes, text->bytes + at, text->n - at);
        text->n -= at;
    }
}

static int64_t count_characters(const struct dpe_text *text)
{
    struct dpe_serve_counted counted = {0};
    if (text->n > 0) {
        count(&counted, text->bytes, text->n);
    }
    dpe_text_free(&counted.waiting);
    return counted.characters;
}

/* Leave out what a text that begins with this token loses of it: the space that stands for the
 * beginning of a text in vocabularies like Llama 2's. */
static void cut_first(const struct dpe_serve_world *world, int32_t id, struct dpe_text *bytes)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text alone = {0};
    dpe_tokenizer_decode(world->tokenizer, &id, 1, false, &alone, NULL);
    size_t lost = bytes->n > alone.n ? bytes->n - alone.n : 0;
    if (lost > 0 && memcmp(bytes->bytes + lost, alone.bytes, alone.n) == 0) {
        memmove(bytes->bytes, bytes->bytes + lost, alone.n);
        bytes->n = alone.n;
    }
}

static void put_echo(const struct dpe_serve_world *world, const struct dpe_serve_sequence *sequence,
                     struct dpe_text *text)
{
    const struct dpe_serve_request *request = sequence->request;
    int64_t i = sequence->prompt - request->prompts;
    if (request->texts[i].bytes != NULL) {
        dpe_text_append(text, request->texts[i].bytes, request->texts[i].n, NULL);
    } else {
        dpe_tokenizer_decode(world->tokenizer, sequence->prompt->ids, sequence->prompt->n, true,
                             text, NULL);
    }
}

/* The first tokens of a text that has no part of them: a prompt that came as text is shown as it
 * came, with the special tokens that it spells, and without those that the tokenizer adds. */
static bool has_no_part(const struct dpe_serve_world *world,
                        const struct dpe_serve_sequence *sequence, int64_t i)
{
    const struct dpe_serve_request *request = sequence->request;
    const char *text = request->texts[sequence->prompt - request->prompts].bytes;
    const int prefix = dpe_tokenizer_prefix_size(world->tokenizer);
    if (text == NULL || !request->add_special || i >= prefix) {
        return false;
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text added = {0};
    dpe_tokenizer_decode(world->tokenizer, sequence->prompt->ids, (size_t)prefix, false, &added,
                         NULL);
    return added.n == 0 || strncmp(text, added.bytes, added.n) != 0;
}

/* The text begins anew: with the prompt that is echoed, then with the answer. */
static void begin_text(struct dpe_serve_places *places, int64_t characters)
{
    places->counted.characters = characters;
    places->counted.waiting.n = 0;
    places->begun = false;
}

/* Where the next token with a score begins, in the text of the choice. */
static int64_t place(const struct dpe_serve_world *world, const struct dpe_serve_sequence *sequence,
                     struct dpe_serve_places *places, struct dpe_text *bytes)
{
    const struct dpe_serve_request *request = sequence->request;
    int64_t i = places->n++;
    int64_t n_prompt = request->echo ? (int64_t)sequence->prompt->n : 0;
    int32_t id = sequence->scores[i].id;
    bool prompt = i < n_prompt;
    if (i == 0 && request->echo) {
        DPE_SCOPED(dpe_text_free) struct dpe_text shown = {0};
        put_echo(world, sequence, &shown);
        places->prompt = count_characters(&shown);
    }
    if (i == n_prompt) {
        begin_text(places, places->prompt);
    }
    int64_t at = places->counted.characters;
    bytes_of(world, id,
             !prompt || request->texts[sequence->prompt - request->prompts].bytes == NULL, bytes);
    if (bytes->n > 0 && !(prompt && has_no_part(world, sequence, i))) {
        if (!places->begun) {
            cut_first(world, id, bytes);
        }
        places->begun = true;
        count(&places->counted, bytes->bytes, bytes->n);
    }
    return prompt && at > places->prompt ? places->prompt : at;
}

/* The places of the tokens up to `end`. After a stop string no token begins behind the text. */
static json_t *place_all(const struct dpe_serve_world *world,
                         const struct dpe_serve_sequence *sequence, struct dpe_serve_places *places,
                         int64_t end)
{
    json_t *offsets = json_array();
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    int64_t most = sequence->finish != NULL ? count_characters(&sequence->text) : INT64_MAX / 2;
    while (places->n < end) {
        int64_t at = place(world, sequence, places, &bytes);
        json_array_append_new(offsets, json_integer(dpe_least(at, places->prompt + most)));
    }
    return offsets;
}

void dpe_serve_places_free(struct dpe_serve_places *places)
{
    dpe_text_free(&places->counted.waiting);
}

/* ---------------------------------------------------------------------------------------- lists */

/* The likeliest tokens by name, and the token itself. Different tokens may still have one name
 * (bytes and a letter): the value is that of the token itself, else of the likelier one. */
static json_t *tops_of(const struct dpe_serve_world *world,
                       const struct dpe_serve_sequence *sequence, int64_t i, const json_t *text)
{
    const struct dpe_serve_score *score = &sequence->scores[i];
    int64_t n_top = sequence->request->top;
    if (!isfinite(score->logprob)) {
        return json_null();
    }
    json_t *top = json_object();
    for (int64_t t = 0; t < n_top; t++) {
        const struct dpe_serve_score *other = &sequence->tops[i * n_top + t];
        json_auto_t *key = other->id >= 0 ? token_text(world, other->id) : NULL;
        if (key != NULL && json_object_get(top, json_string_value(key)) == NULL) {
            json_object_set_new(top, json_string_value(key), number(other->logprob));
        }
    }
    if (n_top > 0) {
        json_object_set_new(top, json_string_value(text), number(score->logprob));
    }
    return top;
}

/* Of a completion: lists by token; top_logprobs has the token itself too. */
static json_t *lists(const struct dpe_serve_world *world, const struct dpe_serve_sequence *sequence,
                     struct dpe_serve_places *places, int64_t end)
{
    json_t *tokens = json_array();
    json_t *logprobs = json_array();
    json_t *tops = json_array();
    int64_t first = places->n;
    json_t *offsets = place_all(world, sequence, places, end);
    for (int64_t i = first; i < end; i++) {
        json_t *text = token_text(world, sequence->scores[i].id);
        json_array_append_new(tops, tops_of(world, sequence, i, text));
        json_array_append_new(tokens, text);
        json_array_append_new(logprobs, number(sequence->scores[i].logprob));
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *item(const struct dpe_serve_world *world, const struct dpe_serve_score *score)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text bytes = {0};
    bytes_of(world, score->id, false, &bytes);
    json_t *list = json_array();
    for (size_t i = 0; i < bytes.n; i++) {
        json_array_append_new(list, json_integer((unsigned char)bytes.bytes[i]));
    }
    return json_pack("{s:o,s:o,s:o}", "token", token_text(world, score->id), "logprob",
                     number(score->logprob), "bytes", list);
}

/* Of a chat: a list of objects. */
static json_t *items(const struct dpe_serve_world *world, const struct dpe_serve_sequence *sequence,
                     struct dpe_serve_places *places, int64_t end)
{
    json_t *content = json_array();
    int64_t n_top = sequence->request->top;
    for (int64_t i = places->n; i < end; i++) {
        json_t *made = item(world, &sequence->scores[i]);
        json_t *top = json_array();
        for (int64_t t = 0; t < n_top; t++) {
            const struct dpe_serve_score *other = &sequence->tops[i * n_top + t];
            if (other->id >= 0) {
                json_array_append_new(top, item(world, other));
            }
        }
        json_object_set_new(made, "top_logprobs", top);
        json_array_append_new(content, made);
    }
    places->n = end;
    return json_pack("{s:o}", "content", content);
}

json_t *dpe_serve_logprobs(const struct dpe_serve_world *world,
                           const struct dpe_serve_sequence *sequence,
                           struct dpe_serve_places *places, int64_t end)
{
    if (!sequence->request->scored) {
        return json_null();
    }
    return sequence->request->kind == SERVE_CHAT ? items(world, sequence, places, end)
                                                 : lists(world, sequence, places, end);
}

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

/* What is new of a sequence since `sent`: of all when nothing was. */
static json_t *choice(const struct dpe_serve_world *world,
                      const struct dpe_serve_sequence *sequence, struct dpe_serve_sent *sent,
                      const char *key)
{
    const struct dpe_serve_request *request = sequence->request;
    const bool chat = request->kind == SERVE_CHAT;
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    if (!sent->begun && request->echo) {
        put_echo(world, sequence, &text);
    }
    if (sequence->safe > sent->bytes) {
        dpe_text_put_bytes(&text, sequence->text.bytes + sent->bytes, sequence->safe - sent->bytes);
    }
    json_t *said = text_of(text.bytes, text.n);
    if (chat) {
        said = json_pack("{s:s*,s:o}", "role", sent->begun ? NULL : "assistant", "content", said);
    }
    sent->bytes = sequence->safe;
    sent->begun = true;
    sent->finished = sequence->finish != NULL;
    return json_pack("{s:I,s:s?,s:o,s:o}", "index", (json_int_t)(sequence - request->sequences),
                     "finish_reason", sequence->finish, "logprobs",
                     dpe_serve_logprobs(world, sequence, &sent->places, sequence->n_scores),
                     chat ? key : "text", said);
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
        const struct dpe_serve_sequence *sequence = &request->sequences[i];
        struct dpe_serve_sent sent = {0};
        json_t *made = choice(world, sequence, &sent, "message");
        dpe_serve_places_free(&sent.places);
        json_array_append_new(choices, made);
        json_array_append_new(plans, plan_of(world, sequence));
        json_t *ids = request->ids ? json_array() : NULL;
        for (int64_t t = 0; ids != NULL && t < sequence->n_out; t++) {
            json_array_append_new(ids, json_integer(sequence->out[t]));
        }
        json_object_set_new(made, "token_ids", ids); /* NULL: sets nothing */
    }
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", usage(request));
    /* One answer: an object; several: a list. */
    json_object_set(answer, "dpe", request->n_sequences == 1 ? json_array_get(plans, 0) : plans);
    return answer;
}

/* --------------------------------------------------------------------------------------- pieces */

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
    json_t *piece = head(world, request, true);
    json_object_set_new(piece, "choices", json_pack("[o]", choice(world, sequence, sent, "delta")));
    if (ended) {
        json_object_set_new(piece, "dpe", plan_of(world, sequence));
    }
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
    return json_pack("{s:{s:o,s:s,s:o,s:s?}}", "error", "message", text, "type", type, "param",
                     param, "code", known);
}
