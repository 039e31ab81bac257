/* A request from its JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/system/platform.h"
#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

typedef struct dpe_serve_refusal refusal_t;

/* ------------------------------------------------------------------------------------ prompts */

static bool add_text(const struct dpe_serve_world *world, struct dpe_serve_request *request,
                     int64_t i, const json_t *text, const char *key, refusal_t *refusal)
{
    if (dpe_text_append(&request->texts[i], json_string_value(text), json_string_length(text),
                        NULL) != DPE_OK) {
        return dpe_serve_refuse(refusal, 500, "", "out of memory");
    }
    return dpe_serve_encode(world, text, key, request->add_special, &request->prompts[i], refusal);
}

static bool make_prompts(struct dpe_serve_request *request, size_t n, refusal_t *refusal)
{
    if (n < 1 || n > SERVE_MOST_SEQUENCES) {
        return dpe_serve_refuse(refusal, 400, "prompt",
                                "prompt: expected 1 to %d prompts, found %zu", SERVE_MOST_SEQUENCES,
                                n);
    }
    request->n_prompts = (int64_t)n;
    request->prompts = dpe_alloc_zero(n, sizeof *request->prompts);
    request->texts = dpe_alloc_zero(n, sizeof *request->texts);
    return (request->prompts != NULL && request->texts != NULL) ||
           dpe_serve_refuse(refusal, 500, "", "out of memory");
}

/* A text, ids, or a list of either. */
static bool parse_prompts(const struct dpe_serve_world *world, const json_t *prompt,
                          const char *key, struct dpe_serve_request *request, refusal_t *refusal)
{
    bool several = json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0));
    json_auto_t *list =
        several ? json_incref((json_t *)(uintptr_t)prompt) : json_pack("[O?]", prompt);
    bool good = make_prompts(request, json_array_size(list), refusal);
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        good = dpe_json_is_text(item) ? add_text(world, request, (int64_t)i, item, key, refusal)
               : json_is_array(item)
                   ? dpe_serve_ids(world, item, key, &request->prompts[i], refusal)
                   : dpe_serve_refuse(
                         refusal, 400, key,
                         "%s: expected a text, a list of token ids, or a list of either", key);
    }
    return good;
}

/* RULER's list of stop words, joined by commas. */
static json_t *split_words(const json_t *words)
{
    json_t *list = json_array();
    const char *at = json_string_value(words);
    while (*at != '\0') {
        size_t n = strcspn(at, ",");
        if (n > 0) {
            json_array_append_new(list, json_stringn(at, n));
        }
        at += n + (at[n] == ',');
    }
    return list;
}

static bool parse_stops(const json_t *stop, const char *key, struct dpe_serve_request *request,
                        refusal_t *refusal)
{
    if (stop == NULL || json_is_null(stop)) {
        return true;
    }
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (n > SERVE_MOST_STOPS) {
        return dpe_serve_refuse(refusal, 400, key, "%s: expected at most %d texts, found %zu", key,
                                SERVE_MOST_STOPS, n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
        size_t length = json_string_length(text);
        if (!dpe_json_is_text(text) || length < 1 || length > SERVE_STOP_BYTES ||
            strlen(json_string_value(text)) != length) {
            return dpe_serve_refuse(refusal, 400, key,
                                    "%s: expected a text of 1 to %d bytes without NUL, or a list "
                                    "of such texts",
                                    key, SERVE_STOP_BYTES);
        }
        request->stops[request->n_stops] = strdup(json_string_value(text));
        if (request->stops[request->n_stops++] == NULL) {
            return dpe_serve_refuse(refusal, 500, "", "out of memory");
        }
    }
    return true;
}

/* --------------------------------------------------------------------------------- parameters */

static void parse_logprobs(const json_t *body, struct dpe_serve_request *request,
                           refusal_t *refusal)
{
    if (request->kind == SERVE_CHAT) {
        request->scored = dpe_serve_flag(body, "logprobs", false, refusal);
        request->top = dpe_serve_whole(body, "top_logprobs", 0, SERVE_MOST_TOP, 0, refusal);
        if (request->top > 0 && !request->scored) {
            dpe_serve_refuse(refusal, 400, "top_logprobs",
                             "top_logprobs: expected logprobs true as well");
        }
    } else {
        int64_t top = dpe_serve_whole(body, "logprobs", 0, SERVE_MOST_TOP, -1, refusal);
        request->scored = top >= 0;
        request->top = top > 0 ? top : 0;
    }
}

/* Whether the number of tokens is wanted at the end of a stream. */
static bool parse_stream_options(const json_t *options, refusal_t *refusal)
{
    if (options != NULL && !json_is_null(options) && !json_is_object(options)) {
        return dpe_serve_refuse(refusal, 400, "stream_options",
                                "stream_options: expected an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, key, value)
    {
        /* Obfuscation fills events up to one size, for the network. */
        if (strcmp(key, "include_usage") != 0 && strcmp(key, "include_obfuscation") != 0 &&
            !dpe_json_is_nothing(value)) {
            dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", "stream_options",
                                "stream_options: expected include_usage alone");
        }
    }
    return dpe_serve_flag(options, "include_usage", false, refusal);
}

/* The plan that a client named after it gave it; −1: none. */
static int64_t parse_plan(const struct dpe_serve_world *world, const json_t *body,
                          refusal_t *refusal)
{
    const json_t *value = json_object_get(body, "dpe_plan");
    if (value == NULL || json_is_null(value)) {
        return -1;
    }
    int64_t found =
        dpe_json_is_text(value) ? dpe_serve_world_hold(world, json_string_value(value)) : -1;
    if (found < 0) {
        dpe_serve_refuse_as(
            refusal, 404, "plan_not_found", "dpe_plan",
            "dpe_plan: this server has no plan with that digest; give it with POST /v1/dpe/plan");
    }
    return found;
}

static void parse_values(const json_t *body, struct dpe_serve_request *request, refusal_t *refusal)
{
    bool list = request->kind == SERVE_RULER;
    bool ruler = list || request->kind == SERVE_RULER_ONE;
    int64_t random = 0;
    const int64_t most = INT64_C(1) << 40;
    if (!dpe_random_bytes(&random, sizeof random)) {
        random = (int64_t)time(NULL);
    }
    request->max_new = dpe_serve_whole(body, "max_tokens", 0, most,
                                       request->kind == SERVE_CHAT    ? -1
                                       : request->kind == SERVE_NORMS ? 0
                                                                      : 16,
                                       refusal);
    if (request->kind == SERVE_CHAT) {
        request->max_new =
            dpe_serve_whole(body, "max_completion_tokens", 0, most, request->max_new, refusal);
    } else if (list) {
        request->max_new = dpe_serve_whole(body, "tokens_to_generate", 0, most, 16, refusal);
    }
    request->temperature = dpe_serve_real(body, "temperature", 0.0, 1e6, 1.0, refusal);
    request->top_p = dpe_serve_real(body, "top_p", 0.0, 1.0, 1.0, refusal);
    request->n = ruler ? 1 : dpe_serve_whole(body, "n", 1, SERVE_MOST_SEQUENCES, 1, refusal);
    request->seed = (uint64_t)dpe_serve_whole(body, list ? "random_seed" : "seed", INT64_MIN,
                                              INT64_MAX, random, refusal);
    request->echo =
        request->kind == SERVE_COMPLETION && dpe_serve_flag(body, "echo", false, refusal);
    request->stream = !ruler && dpe_serve_flag(body, "stream", false, refusal);
    request->ignore_eos = dpe_serve_flag(body, "ignore_eos", false, refusal);
    request->usage = parse_stream_options(json_object_get(body, "stream_options"), refusal);
    if (!ruler) {
        parse_logprobs(body, request, refusal);
    }
    int64_t top_k = dpe_serve_whole(body, "top_k", -1, most, 0, refusal);
    if (top_k == 1) {
        request->temperature = 0.0; /* some clients ask for greedy answers in this way */
    } else if (top_k > 1 && request->temperature > 0.0) {
        dpe_serve_refuse(refusal, 400, "top_k",
                         "top_k: expected 1, or temperature 0; dpe-serve draws by temperature and "
                         "top_p");
    }
    if (dpe_serve_whole(body, "best_of", 1, SERVE_MOST_SEQUENCES, request->n, refusal) !=
        request->n) {
        dpe_serve_refuse(refusal, 400, "best_of", "best_of: only the value of n is supported");
    }
}

/* ---------------------------------------------------------------------------------- sequences */

static const char *prompt_key(enum dpe_serve_kind kind)
{
    return kind == SERVE_CHAT ? "messages" : kind == SERVE_RULER ? "prompts" : "prompt";
}

static bool make_sequence(const struct dpe_serve_world *world, struct dpe_serve_request *request,
                          int64_t index, refusal_t *refusal)
{
    struct dpe_serve_sequence *sequence = &request->sequences[index];
    const struct dpe_tokens *prompt = &request->prompts[index / request->n];
    int64_t left = world->length - (int64_t)prompt->n;
    if (prompt->n == 0) {
        return dpe_serve_refuse(refusal, 400, prompt_key(request->kind), "the prompt is empty");
    }
    if (left < 0 || request->max_new > left) {
        /* Clients know what happened by the code, or by the first words of this message. */
        return dpe_serve_refuse_as(
            refusal, 400, "context_length_exceeded", prompt_key(request->kind),
            "This model's maximum context length is %lld tokens (--length of the server). However, "
            "the prompt has %zu "
            "tokens and up to %lld new ones are asked for; shorten the prompt or ask for fewer.",
            (long long)world->length, prompt->n,
            (long long)(request->max_new > 0 ? request->max_new : 0));
    }
    sequence->request = request;
    sequence->prompt = prompt;
    sequence->max_new =
        request->max_new >= 0 ? request->max_new : dpe_serve_world_room(world, (int64_t)prompt->n);
    sequence->plan = request->plan >= 0
                         ? request->plan
                         : dpe_serve_world_choose(world, (int64_t)prompt->n + sequence->max_new);
    dpe_rng_seed(&sequence->rng, request->seed, (uint64_t)(index % request->n));
    sequence->out = dpe_alloc((size_t)sequence->max_new, sizeof *sequence->out);
    bool good = sequence->out != NULL;
    if (request->scored) {
        size_t n = (request->echo ? prompt->n : 0) + (size_t)sequence->max_new;
        sequence->scores = dpe_alloc(n, sizeof *sequence->scores);
        sequence->tops = dpe_alloc(n * (size_t)request->top, sizeof *sequence->tops);
        good = good && sequence->scores != NULL && sequence->tops != NULL;
    }
    return good || dpe_serve_refuse(refusal, 503, "", "out of memory for this request");
}

/* Whether an answer with the log-probabilities that are asked for is of a bearable size. */
static bool check_scores(const struct dpe_serve_world *world, uint64_t memory,
                         const struct dpe_serve_request *request, refusal_t *refusal)
{
    int64_t n = 0;
    for (int64_t i = 0; i < request->n_prompts && request->scored; i++) {
        int64_t prompt = (int64_t)request->prompts[i].n;
        int64_t left = world->length > prompt ? world->length - prompt : 0;
        int64_t made = request->max_new >= 0 && request->max_new < left ? request->max_new : left;
        n += request->n * (made + (request->echo ? prompt : 0)) * (request->top + 1);
    }
    int64_t most = dpe_least((int64_t)(memory / SERVE_SCORE_BYTES), SERVE_MOST_SCORES);
    return n <= most ||
           dpe_serve_refuse(
               refusal, 400, "logprobs",
               "logprobs: %lld numbers are asked for, an answer may have %lld; ask for "
               "fewer tokens, alternatives or prompts at once",
               (long long)n, (long long)most);
}

static bool make_sequences(const struct dpe_serve_world *world, uint64_t memory,
                           struct dpe_serve_request *request, refusal_t *refusal)
{
    request->n_sequences = request->n_prompts * request->n;
    if (request->n_sequences > SERVE_MOST_SEQUENCES) {
        return dpe_serve_refuse(refusal, 400, "n", "expected at most %d answers, found %lld",
                                SERVE_MOST_SEQUENCES, (long long)request->n_sequences);
    }
    if (!check_scores(world, memory, request, refusal)) {
        return false;
    }
    request->sequences = dpe_alloc_zero((size_t)request->n_sequences, sizeof *request->sequences);
    bool good = request->sequences != NULL || dpe_serve_refuse(refusal, 500, "", "out of memory");
    for (int64_t i = 0; good && i < request->n_sequences; i++) {
        good = make_sequence(world, request, i, refusal);
    }
    return good;
}

/* Sums that are zero. */
static bool make_norms(const struct dpe_serve_world *world, const json_t *body,
                       struct dpe_serve_request *request, refusal_t *refusal)
{
    const struct dpe_config *config = dpe_model_config(world->model);
    struct dpe_norm_sums *norms = &request->norms;
    size_t layers = (size_t)config->n_layers;
    size_t pairs = layers * (size_t)config->head_dim / 2;
    if (request->n_prompts != 1 || request->plan < 0) {
        return dpe_serve_refuse(refusal, 400, "prompt", "expected one prompt, and a dpe_plan");
    }
    norms->products = dpe_serve_flag(body, "products", false, refusal);
    norms->q = dpe_alloc_zero((size_t)config->n_heads * pairs, sizeof *norms->q);
    norms->k = norms->products
                   ? NULL
                   : dpe_alloc_zero((size_t)config->n_kv_heads * pairs, sizeof *norms->k);
    norms->rows = dpe_alloc_zero(layers, sizeof *norms->rows);
    bool good = norms->q != NULL && norms->rows != NULL && (norms->products || norms->k != NULL);
    return refusal->status == 0 &&
           (good || dpe_serve_refuse(refusal, 503, "", "out of memory for this request"));
}

bool dpe_serve_request_parse(const struct dpe_serve_world *world, enum dpe_serve_kind kind,
                             const json_t *body, uint64_t memory, struct dpe_serve_request *request,
                             struct dpe_serve_refusal *refusal)
{
    static const char *const prefixes[] = {"cmpl", "chatcmpl", "ruler", "ruler", "norms"};
    uint64_t random = 0;
    *request = (struct dpe_serve_request){.kind = kind, .created = (int64_t)time(NULL)};
    dpe_condition_init(&request->changed);
    if (!dpe_random_bytes(&random, sizeof random)) {
        random = (uint64_t)(uintptr_t)request;
    }
    snprintf(request->id, sizeof request->id, "%s-%016llx", prefixes[kind],
             (unsigned long long)random);
    dpe_serve_check_members(world, body, 1U << kind, refusal);
    request->add_special = dpe_serve_flag(body, "add_special_tokens", true, refusal);
    parse_values(body, request, refusal);
    request->plan = parse_plan(world, body, refusal);
    request->ids =
        kind == SERVE_COMPLETION && dpe_serve_flag(body, "return_token_ids", false, refusal);
    const char *stops = kind == SERVE_RULER ? "stop_words_list" : "stop";
    const json_t *given = json_object_get(body, stops);
    json_auto_t *words = kind == SERVE_RULER && dpe_json_is_text(given)
                             ? split_words(given)
                             : json_incref((json_t *)(uintptr_t)given);
    if (refusal->status != 0 || !parse_stops(words, stops, request, refusal)) {
        return false;
    }
    bool good = false;
    if (kind == SERVE_CHAT) {
        good = make_prompts(request, 1, refusal) &&
               dpe_serve_chat_prompt(world, body, &request->prompts[0], refusal);
    } else {
        const char *key = prompt_key(kind);
        good = parse_prompts(world, json_object_get(body, key), key, request, refusal);
    }
    if (good && kind == SERVE_NORMS) {
        good = make_norms(world, body, request, refusal);
    }
    return good && make_sequences(world, memory, request, refusal);
}

uint64_t dpe_serve_request_bytes(const struct dpe_serve_request *request)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < request->n_prompts && request->prompts != NULL; i++) {
        bytes += 2 * sizeof *request->prompts[i].ids * request->prompts[i].n; /* a list that grew */
        bytes += request->texts != NULL ? request->texts[i].n : 0;
    }
    for (int64_t i = 0; i < request->n_sequences && request->sequences != NULL; i++) {
        const struct dpe_serve_sequence *sequence = &request->sequences[i];
        int64_t prompt =
            request->echo && sequence->prompt != NULL ? (int64_t)sequence->prompt->n : 0;
        bytes += sizeof *sequence->out * (uint64_t)sequence->max_new;
        if (request->scored) {
            bytes += (uint64_t)(prompt + sequence->max_new) * (uint64_t)(request->top + 1) *
                     SERVE_SCORE_BYTES;
        }
    }
    return bytes;
}

void dpe_serve_request_free(struct dpe_serve_request *request)
{
    for (int64_t i = 0; i < request->n_sequences && request->sequences != NULL; i++) {
        struct dpe_serve_sequence *sequence = &request->sequences[i];
        free(sequence->out);
        free(sequence->scores);
        free(sequence->tops);
        dpe_text_free(&sequence->text);
    }
    for (int64_t i = 0; i < request->n_prompts; i++) {
        if (request->prompts != NULL) {
            dpe_tokens_free(&request->prompts[i]);
        }
        if (request->texts != NULL) {
            dpe_text_free(&request->texts[i]);
        }
    }
    for (int64_t i = 0; i < request->n_stops; i++) {
        free(request->stops[i]);
    }
    free(request->move.path);
    free(request->norms.q);
    free(request->norms.k);
    free(request->norms.rows);
    free(request->sequences);
    free(request->prompts);
    free(request->texts);
    pthread_cond_destroy(&request->changed);
}
