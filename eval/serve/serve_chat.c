/* The prompt of a chat. */
#include <time.h>

#include "eval/serve/serve_tool.h"

/* Messages with contents that are lists of parts, as clients may send them: the texts of the parts
 * in one. */
static json_t *plain_messages(const json_t *messages, struct dpe_serve_refusal *refusal)
{
    json_t *plain = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *given = json_array_get(messages, i);
        const json_t *parts = json_object_get(given, "content");
        json_t *message = json_copy((json_t *)(uintptr_t)given);
        struct dpe_text text = {0};
        for (size_t p = 0; json_is_array(parts) && p < json_array_size(parts); p++) {
            const json_t *part = json_object_get(json_array_get(parts, p), "text");
            if (!json_is_string(part)) {
                dpe_serve_refuse(refusal, 400, "messages",
                                 "messages[%zu].content: expected a text or parts of type text", i);
                break;
            }
            dpe_text_append(&text, json_string_value(part), json_string_length(part), NULL);
        }
        if (!json_is_object(given) || !json_is_string(json_object_get(given, "role"))) {
            dpe_serve_refuse(refusal, 400, "messages", "messages[%zu]: expected an object with a role",
                             i);
        } else if (parts != NULL && !json_is_array(parts) && !json_is_string(parts) &&
                   !json_is_null(parts)) {
            dpe_serve_refuse(refusal, 400, "messages",
                             "messages[%zu].content: expected a text or parts of type text", i);
        } else if (json_is_array(parts)) {
            json_object_set_new(message, "content",
                                json_stringn(text.n > 0 ? text.bytes : "", text.n));
        }
        dpe_text_free(&text);
        json_array_append_new(plain, message);
    }
    return plain;
}

/* Variables for the template, as Qwen's enable_thinking; NULL: none. Those that the server sets are not
 * theirs. */
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

bool dpe_serve_chat_prompt(const struct dpe_serve_world *world, const json_t *body,
                           struct dpe_tokens *ids, struct dpe_serve_refusal *refusal)
{
    if (world->chat == NULL) {
        return dpe_serve_refuse(refusal, 400, "messages",
                                "there is no chat template; start dpe-serve with "
                                "--chat-template FILE, or use /v1/completions");
    }
    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return dpe_serve_refuse(refusal, 400, "messages", "messages: expected a list of messages");
    }
    bool answer = dpe_serve_flag(body, "add_generation_prompt", true, refusal);
    const json_t *more = template_variables(body, refusal);
    json_t *given = plain_messages(messages, refusal);
    struct dpe_text text = {0};
    struct dpe_error err = {0};
    time_t seconds = time(NULL);
    struct tm now;
    localtime_r(&seconds, &now);
    bool good = refusal->status == 0;
    if (good && dpe_chat_render(world->chat, given, answer, more, &now, &text, &err) != DPE_OK) {
        good = dpe_serve_refuse_error(refusal, "messages", &err);
    }
    if (good) {
        /* The template writes the special tokens, BOS among them. */
        json_t *rendered = json_stringn(text.n > 0 ? text.bytes : "", text.n);
        good = rendered != NULL ? dpe_serve_encode(world, rendered, "messages", false, ids, refusal)
                                : dpe_serve_refuse(refusal, 500, "", "out of memory");
        json_decref(rendered);
    }
    json_decref(given);
    dpe_text_free(&text);
    return good;
}
