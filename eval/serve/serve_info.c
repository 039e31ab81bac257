/* What the server says about itself: models, tokenizer, load. */
#include <stdio.h>
#include <string.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

json_t *dpe_serve_models(const struct dpe_serve_world *world)
{
    return json_pack("{s:s,s:[{s:s,s:s,s:I,s:s,s:I}]}", "object", "list", "data", "id", world->name,
                     "object", "model", "created", (json_int_t)world->started, "owned_by", "dpe",
                     "max_model_len", (json_int_t)world->length);
}

static json_t *text_of_id(const struct dpe_serve_world *world, int64_t id)
{
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    int32_t one = (int32_t)id;
    bool there =
        id >= 0 && dpe_tokenizer_decode(world->tokenizer, &one, 1, false, &text, NULL) == DPE_OK;
    return there && text.n > 0 ? json_stringn(text.bytes, text.n) : json_null();
}

json_t *dpe_serve_tokenizer_info(const struct dpe_serve_world *world)
{
    const struct dpe_config *config = dpe_model_config(world->model);
    json_t *info = json_copy(world->tokenizer_config);
    int64_t eos = config->n_eos > 0 ? config->eos_ids[0] : -1;
    const struct {
        const char *key;
        int64_t id;
    } tokens[] = {{"bos_token", config->bos_id}, {"eos_token", eos}};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        json_t *given = json_object_get(info, tokens[i].key);
        json_t *content = json_object_get(given, "content");
        if (json_is_string(content)) {
            json_object_set(info, tokens[i].key, content);
        } else if (!json_is_string(given)) {
            json_object_set_new(info, tokens[i].key, text_of_id(world, tokens[i].id));
        }
    }
    json_object_set_new(info, "vocab_size", json_integer(config->vocab));
    json_object_set_new(info, "fingerprint",
                        json_string(dpe_tokenizer_fingerprint(world->tokenizer)));
    return info;
}

/* The ids as JSON, without a JSON value for each. */
static void write_ids(const struct dpe_tokens *ids, int64_t length, struct dpe_text *answer)
{
    dpe_text_put(answer, "{\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++) {
        dpe_text_put(answer, "%s%d", i > 0 ? "," : "", (int)ids->ids[i]);
    }
    dpe_text_put(answer, "],\"count\":%zu,\"max_model_len\":%lld}", ids->n, (long long)length);
}

bool dpe_serve_tokenize(const struct dpe_serve_world *world, const json_t *body, const char *digest,
                        struct dpe_text *answer, struct dpe_serve_refusal *refusal)
{
    (void)digest;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens ids = {0};
    const json_t *prompt = json_object_get(body, "prompt");
    bool special = dpe_serve_flag(body, "add_special_tokens", true, refusal);
    bool chat = json_object_get(body, "messages") != NULL;
    /* What the request for the answer would have as well may stand here. */
    unsigned kinds = 1U << SERVE_TOKENIZE | 1U << (chat ? SERVE_CHAT : SERVE_COMPLETION);
    bool good = dpe_serve_check_members(world, body, kinds, refusal);
    if (chat) {
        good = good && dpe_serve_chat_prompt(world, body, &ids, refusal);
    } else if (!dpe_json_is_text(prompt)) {
        good = dpe_serve_refuse(refusal, 400, "prompt", "prompt: expected a text");
    } else {
        good = good && dpe_serve_encode(world, prompt, "prompt", special, &ids, refusal);
    }
    if (good) {
        write_ids(&ids, world->length, answer);
    }
    return good;
}

bool dpe_serve_detokenize(const struct dpe_serve_world *world, const json_t *body,
                          const char *digest, struct dpe_text *answer,
                          struct dpe_serve_refusal *refusal)
{
    (void)digest;
    DPE_SCOPED(dpe_tokens_free) struct dpe_tokens ids = {0};
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct dpe_error err = {0};
    const json_t *list = json_object_get(body, "tokens");
    if (!dpe_serve_check_members(world, body, 1U << SERVE_DETOKENIZE, refusal)) {
        return false;
    }
    if (!json_is_array(list)) {
        return dpe_serve_refuse(refusal, 400, "tokens", "tokens: expected a list of token ids");
    }
    if (!dpe_serve_ids(world, list, "tokens", &ids, refusal)) {
        return false;
    }
    if (dpe_tokenizer_decode(world->tokenizer, ids.ids, ids.n, false, &text, &err) != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "tokens", &err);
    }
    json_auto_t *made =
        json_pack("{s:o}", "prompt", json_stringn(text.n > 0 ? text.bytes : "", text.n));
    DPE_OWNED char *bytes = json_dumps(made, JSON_COMPACT);
    if (bytes == NULL) {
        return dpe_serve_refuse(refusal, 503, "", "out of memory for this request");
    }
    dpe_text_put(answer, "%s", bytes);
    return true;
}

/* A total is a counter, another one a gauge. */
static const struct {
    const char *name, *help;
    size_t at; /* of an int64_t, or a double */
    bool real;
} metrics[] = {
#define COUNT(field) offsetof(struct dpe_serve_counts, field)
    {"requests_total", "Requests for text", COUNT(requests)},
    {"requests_refused_total", "Requests refused because the queue was full", COUNT(refused)},
    {"requests_cancelled_total", "Requests whose client hung up", COUNT(cancelled)},
    {"sequences_failed_total", "Sequences that ended with an error", COUNT(failed)},
    {"sequences_finished_total", "Sequences that were answered", COUNT(finished)},
    {"prompt_tokens_total", "Prompt tokens that were read", COUNT(prompt_tokens)},
    {"cached_tokens_total", "Prompt tokens that were in the cache already", COUNT(cached_tokens)},
    {"new_tokens_total", "Tokens that were generated", COUNT(new_tokens)},
    {"steps_total", "Decoding steps, each of all running sequences", COUNT(steps)},
    {"running", "Sequences that run", COUNT(running)},
    {"waiting", "Sequences in the queue", COUNT(waiting)},
    {"first_token_seconds_total",
     "Seconds from request to first token, summed over finished sequences", COUNT(first_seconds),
     true},
    {"answer_seconds_total", "Seconds from request to end, summed over finished sequences",
     COUNT(seconds), true},
#undef COUNT
};

void dpe_serve_metrics(const struct dpe_serve_counts *counts, struct dpe_text *text)
{
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const char *name = metrics[i].name;
        const void *at = (const char *)counts + metrics[i].at;
        dpe_text_put(text, "# HELP dpe_%s %s\n# TYPE dpe_%s %s\ndpe_%s ", name, metrics[i].help,
                     name, strstr(name, "_total") != NULL ? "counter" : "gauge", name);
        if (metrics[i].real) {
            dpe_text_put(text, "%.6f\n", *(const double *)at);
        } else {
            dpe_text_put(text, "%lld\n", (long long)*(const int64_t *)at);
        }
    }
}

json_t *dpe_serve_state(const struct dpe_serve_world *world, const struct dpe_serve_counts *counts)
{
    json_t *plans = json_array();
    for (int64_t i = 0; i < world->n_plans; i++) {
        const struct dpe_serve_plan *plan = &world->plans[i];
        const char *said = plan->evidence[0] != '\0' ? plan->evidence : "nothing was measured";
        json_t *item = json_pack("{s:s,s:I,s:s*}", "plan", plan->plan.name, "length",
                                 (json_int_t)plan->length, "evidence", i > 0 ? said : NULL);
        json_array_append_new(plans, item);
    }
    return json_pack("{s:s,s:s,s:I,s:o,s:b,s:I,s:I}", "status", "ok", "model", world->name,
                     "length", (json_int_t)world->length, "plans", plans, "chat",
                     world->chat != NULL, "running", (json_int_t)counts->running, "waiting",
                     (json_int_t)counts->waiting);
}

/* ------------------------------------------------------------------------------------ engines */

/* What tools of this project ask of an engine (outputs/remote/remote.h): who it is, and to take a
 * plan. */
json_t *dpe_serve_about(const struct dpe_serve_world *world)
{
    char numbers[160];
    const char *types = dpe_model_types(world->model);
    const struct dpe_tool_options *tool = &world->args->tool;
    snprintf(numbers, sizeof numbers, "%s weights, %s cache, %s",
             types != NULL ? types : "the folder's", dpe_kv_type_names[tool->kv_type],
             world->device);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I}", "engine", "dpe-serve", "version",
                     dpe_version(), "name", world->name, "model",
                     dpe_model_fingerprint(world->model), "tokenizer",
                     dpe_tokenizer_fingerprint(world->tokenizer), "numbers", numbers, "length",
                     (json_int_t)world->length);
}

bool dpe_serve_take_plan(const struct dpe_serve_world *world, const json_t *body,
                         const char *digest, struct dpe_text *answer,
                         struct dpe_serve_refusal *refusal)
{
    struct dpe_error err = {0};
    if (world->args->no_plans) {
        return dpe_serve_refuse(refusal, 403, "", "this server takes no plans (--no-plans)");
    }
    if (dpe_serve_taken_add(world, body, digest, &err) != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "plan", &err);
    }
    dpe_text_put(answer, "{\"plan\":\"%s\",\"model\":\"%s\"}", digest,
                 dpe_model_fingerprint(world->model));
    return true;
}
