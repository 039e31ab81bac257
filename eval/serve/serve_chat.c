/* The prompt of a chat. */
#include <string.h>
#include <time.h>

#include "engine/json/json_strict.h"
#include "eval/serve/serve_tool.h"

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
    struct dpe_text text = {0};
    struct dpe_error err = {0};
    time_t seconds = time(NULL);
    struct tm now;
    localtime_r(&seconds, &now);
    json_t *messages = NULL;
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
    if (status == DPE_OK) {
        status = dpe_chat_render(world->chat, &turn, &text, &err);
    }
    bool good = status == DPE_OK || dpe_serve_refuse_error(refusal, "messages", &err);
    if (good) {
        /* The template writes the special tokens, BOS among them. */
        json_t *rendered = json_stringn(text.n > 0 ? text.bytes : "", text.n);
        good = rendered != NULL ? dpe_serve_encode(world, rendered, "messages", false, ids, refusal)
                                : dpe_serve_refuse(refusal, 500, "", "out of memory");
        json_decref(rendered);
    }
    json_decref(messages);
    dpe_text_free(&text);
    return good;
}
