/* Typed members of a request, its refusals, and the prompt of a chat. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/text/json.h"
#include "eval/serve/serve_tool.h"

bool dpe_serve_refuse_as(struct dpe_serve_refusal *refusal, unsigned status, const char *code,
                         const char *param, const char *format, ...)
{
    if (refusal->status == 0) {
        va_list values;
        refusal->status = status;
        refusal->code = code;
        snprintf(refusal->param, sizeof refusal->param, "%s", param);
        va_start(values, format);
        vsnprintf(refusal->text, sizeof refusal->text, format, values);
        va_end(values);
    }
    return false;
}

/* A client need not know where the server keeps its files: of a path the last part is left. */
static void leave_out_folders(char *text)
{
    static const char ends[] = " \t\n'\"()[]";
    char *to = text;
    const char *from = text;
    while (*from != '\0') {
        size_t n = strcspn(from, ends);
        size_t first = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            bool url = i > 0 && from[i - 1] == ':' && from[i + 1] == '/';
            if (from[i] == '/' && !url) {
                first = i + 1;
            } else if (url) {
                break;
            }
        }
        size_t end = n + strspn(from + n, ends);
        memmove(to, from + first, end - first);
        to += end - first;
        from += end;
    }
    *to = '\0';
}

bool dpe_serve_refuse_error(struct dpe_serve_refusal *refusal, const char *param,
                            const struct dpe_error *err)
{
    bool theirs = err->status == DPE_BAD_DATA || err->status == DPE_USAGE;
    bool late = err->status == DPE_INCOMPLETE;
    bool first = refusal->status == 0;
    dpe_serve_refuse_as(refusal,
                        theirs ? 400
                        : late ? 504
                               : 500,
                        err->status == DPE_NONFINITE ? "not_finite" : NULL, param, "%s", err->text);
    if (first) {
        if (!theirs && !late) {
            dpe_log_warning("%s", err->text);
        }
        leave_out_folders(refusal->text);
    }
    return false;
}

static json_t *member(const json_t *body, const char *key, const struct dpe_serve_refusal *refusal)
{
    json_t *value = refusal->status == 0 ? json_object_get(body, key) : NULL;
    return json_is_null(value) ? NULL : value;
}

int64_t dpe_serve_whole(const json_t *body, const char *key, int64_t low, int64_t high,
                        int64_t fallback, struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a whole number from %lld to %lld", key,
                         (long long)low, (long long)high);
        return fallback;
    }
    return json_integer_value(value);
}

double dpe_serve_real(const json_t *body, const char *key, double low, double high, double fallback,
                      struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value == NULL) {
        return fallback;
    }
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(number >= low && number <= high)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected a number from %g to %g", key, low, high);
        return fallback;
    }
    return number;
}

bool dpe_serve_flag(const json_t *body, const char *key, bool fallback,
                    struct dpe_serve_refusal *refusal)
{
    const json_t *value = member(body, key, refusal);
    if (value != NULL && !json_is_boolean(value)) {
        dpe_serve_refuse(refusal, 400, key, "%s: expected true or false", key);
        return fallback;
    }
    return value != NULL ? json_is_true(value) : fallback;
}

bool dpe_serve_ids(const struct dpe_serve_world *world, const json_t *list, const char *key,
                   struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    int64_t vocab = dpe_model_config(world->model)->vocab;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= vocab) {
            return dpe_serve_refuse(refusal, 400, key, "%s: expected token ids from 0 to %lld", key,
                                    (long long)vocab - 1);
        }
        int32_t id = (int32_t)json_integer_value(value);
        if (dpe_tokens_append(ids, &id, 1, NULL) != DPE_OK) {
            return dpe_serve_refuse(refusal, 500, "", "out of memory");
        }
    }
    return true;
}

bool dpe_serve_encode(const struct dpe_serve_world *world, const json_t *text, const char *key,
                      bool special, struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    const struct dpe_encode_options options = {.add_special = special,
                                               .special = DPE_SPECIAL_PARSE};
    struct dpe_error err = {0};
    dpe_status status = dpe_tokenizer_encode(world->tokenizer, json_string_value(text),
                                             json_string_length(text), &options, ids, &err);
    return status == DPE_OK || dpe_serve_refuse_error(refusal, key, &err);
}

/* ---------------------------------------------------------------------------------------- chats */

/* Variables for the template, as Qwen's enable_thinking; NULL: none. Those that the server sets are
 * not theirs. */
static const json_t *template_variables(const json_t *body, struct dpe_serve_refusal *refusal)
{
    static const char *const own[] = {"messages", "add_generation_prompt", "tools", "documents"};
    const json_t *given = json_object_get(body, "chat_template_kwargs");
    if (given == NULL || json_is_null(given)) {
        return NULL;
    }
    if (!json_is_object(given)) {
        dpe_serve_refuse(refusal, 400, "chat_template_kwargs",
                         "chat_template_kwargs: expected an object");
        return NULL;
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (json_object_get(given, own[i]) != NULL) {
            dpe_serve_refuse(refusal, 400, "chat_template_kwargs",
                             "chat_template_kwargs: %s cannot be given here", own[i]);
        }
    }
    return given;
}

/* The tools that a model may call, for the template; NULL: none. Nothing reads calls out of an
 * answer: they are its text. "none" asks that no tool be called, so the model is told of none. */
static const json_t *tools_of(const struct dpe_serve_world *world, const json_t *body,
                              struct dpe_serve_refusal *refusal)
{
    const json_t *tools = json_object_get(body, "tools");
    const json_t *choice = json_object_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    bool none = word != NULL && strcmp(word, "none") == 0;
    if (!dpe_json_is_nothing(choice) && !none && (word == NULL || strcmp(word, "auto") != 0)) {
        dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", "tool_choice",
                            "tool_choice: expected \"auto\" or \"none\"; dpe-serve cannot make a "
                            "model call a tool");
    }
    if (dpe_json_is_nothing(tools)) {
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *type = json_string_value(json_object_get(json_array_get(tools, i), "type"));
        if (type == NULL || strcmp(type, "function") != 0 ||
            !json_is_string(json_object_get(function, "name"))) {
            dpe_serve_refuse(refusal, 400, "tools",
                             "tools[%zu]: expected type function and a function with a name", i);
        }
    }
    if (!json_is_array(tools)) {
        dpe_serve_refuse(refusal, 400, "tools", "tools: expected a list of tools");
    } else if (!none && !dpe_chat_spells(world->chat, "tools")) {
        dpe_serve_refuse_as(refusal, 400, "unsupported_parameter", "tools",
                            "tools: the chat template has no place for them; leave them out");
    }
    return none ? NULL : tools;
}

bool dpe_serve_chat_prompt(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    if (world->chat == NULL) {
        return dpe_serve_refuse(refusal, 400, "messages",
                                "there is no chat template; start dpe-serve with "
                                "--chat-template FILE, or use /v1/completions");
    }
    DPE_SCOPED(dpe_text_free) struct dpe_text text = {0};
    struct dpe_error err = {0};
    time_t seconds = time(NULL);
    struct tm now;
    localtime_r(&seconds, &now);
    json_auto_t *messages = NULL;
    struct dpe_chat_turn turn = {.now = &now,
                                 .prompt =
                                     dpe_serve_flag(body, "add_generation_prompt", true, refusal),
                                 .more = template_variables(body, refusal),
                                 .tools = tools_of(world, body, refusal)};
    if (refusal->status != 0) {
        return false;
    }
    dpe_status status =
        dpe_chat_messages(world->chat, json_object_get(body, "messages"), &messages, &err);
    turn.messages = messages;
    if (status != DPE_OK || dpe_chat_render(world->chat, &turn, &text, &err) != DPE_OK) {
        return dpe_serve_refuse_error(refusal, "messages", &err);
    }
    /* The template writes the special tokens, BOS among them. */
    json_auto_t *rendered = json_stringn(text.n > 0 ? text.bytes : "", text.n);
    return rendered != NULL ? dpe_serve_encode(world, rendered, "messages", false, ids, refusal)
                            : dpe_serve_refuse(refusal, 500, "", "out of memory");
}
